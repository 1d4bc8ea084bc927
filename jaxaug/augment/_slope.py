"""Functions that are computed in one way and differentiated in another."""

from collections.abc import Callable
from typing import Any

import jax


def with_slope_of(reference: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """Return a decorator that gives a function the derivatives of `reference`, of all orders.

    The function computes the values and is never differentiated itself: it may be a kernel, a loop
    or a choice that JAX cannot differentiate well.

    Args:
      reference: a function of the same operands, pytrees of arrays, with results of the same shapes
        and dtypes. Neither closes over values that are differentiated.
    """

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        sloped = jax.custom_jvp(function)

        @sloped.defjvp
        def slope(primals: Any, tangents: Any) -> tuple[Any, Any]:
            _, tangent = jax.jvp(reference, primals, tangents)
            return sloped(*primals), tangent

        return sloped

    return wrap
