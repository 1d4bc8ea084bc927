"""Operands of which JAX traces the arrays, while numbers and strings stay what they are."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxaug._typing import Array


def split_arrays(operands: Any) -> tuple[list[Array], Callable[[Sequence[Array]], Any]]:
    """Return the arrays of a pytree, and a function that puts such arrays in their places."""
    leaves, structure = jax.tree.flatten(operands)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray))]

    def join(arrays: Sequence[Array]) -> Any:
        whole = list(leaves)
        for place, array in zip(places, arrays):
            whole[place] = array
        return jax.tree.unflatten(structure, whole)

    return [leaves[place] for place in places], join
