"""The one place where a kernel is chosen instead of XLA."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxaug.augment._cuda.call import is_available
from jaxaug.augment._slope import with_slope_of


def on_gpu(kernel: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """Return `kernel(*operands)` where the program runs on a CUDA device, else `otherwise`.

    Args:
      kernel: computes by a CUDA kernel what `otherwise` does. It needs no derivative: that of
        `otherwise` is taken.
      otherwise: a function of the operands for XLA. Neither closes over traced values.
      operands: pytrees. Their arrays are traced; numbers and strings stay what they are.
    """
    if not is_available():
        return otherwise(*operands)

    leaves, structure = jax.tree.flatten(operands)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray))]

    def of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arrays: Any) -> Any:
            whole = list(leaves)
            for place, array in zip(places, arrays):
                whole[place] = array
            return function(*jax.tree.unflatten(structure, whole))

        return call

    plain = of_arrays(otherwise)
    by_cuda = with_slope_of(plain)(of_arrays(kernel))
    arrays = [leaves[place] for place in places]
    return lax.platform_dependent(*arrays, cuda=by_cuda, default=plain)
