"""Arguments inside of a user's `jax.shard_map`, which may split some and share others."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer


def vary_alike(*trees: Any) -> tuple[Any, ...]:
    """Return pytrees whose arrays all vary over the mesh axes over which one of them does.

    The type of an array inside of `jax.shard_map` says over which axes it varies. What a loop
    carries keeps its type, and the programs for several kinds of devices give results of one type:
    with keys that are split and an image that is not, neither would be so. Elsewhere nothing
    varies, and the same arrays come back.

    Reference: "Tracking how values vary over manual mesh axes",
      https://docs.jax.dev/en/latest/notebooks/shard_map.html.
    """
    varying = [_varying(leaf) for leaf in jax.tree.leaves(trees)]
    every = frozenset[Any]().union(*varying)
    if all(axes == every for axes in varying):
        return trees
    return jax.tree.map(lambda leaf: _vary_over(leaf, every), trees)


def _varying(leaf: Any) -> frozenset[Any]:
    if not isinstance(leaf, Tracer):
        return frozenset()
    return jax.typeof(leaf).manual_axis_type.varying


def _vary_over(leaf: Any, axes: frozenset[Any]) -> Any:
    missing = tuple(axes - _varying(leaf))
    if not missing or not hasattr(leaf, "dtype"):
        return leaf
    return lax.pcast(jnp.asarray(leaf), missing, to="varying")
