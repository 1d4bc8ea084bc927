"""Whether a function of the user's reads the part of a canvas that is no image."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from jaxaug._mesh_context import no_mesh
from jaxaug.iterators._batch_function import Transform


def ignores_size(transform: Transform, sample: dict[str, jax.ShapeDtypeStruct]) -> bool:
    """Return True if "image" of a function's output does not depend on "size" of its input.

    It is False where the output has "size", which says what is image, and for dataclasses, such as
    the chains of `augment`, which know the size.

    Args:
      transform: a function that has been traced with this sample before.
      sample: the form of one sample, "epoch" included.
    """
    if dataclasses.is_dataclass(transform) or "size" not in sample:
        return False
    key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
    with no_mesh():
        closed, output = jax.make_jaxpr(transform, return_shape=True)(key, sample)
    if "image" not in output or "size" in output:
        return False

    jaxpr = closed.jaxpr
    leaves, _ = jax.tree.flatten(jax.tree_util.tree_map_with_path(_name, output))
    wanted = {id(var) for var, name in zip(jaxpr.outvars, leaves, strict=True) if name == "image"}
    for equation in reversed(jaxpr.eqns):
        if any(id(var) in wanted for var in equation.outvars):
            wanted |= {id(var) for var in equation.invars if not isinstance(var, Literal)}

    names, _ = jax.tree.flatten(jax.tree_util.tree_map_with_path(_name, (key, sample)))
    sizes = [var for var, name in zip(jaxpr.invars, names, strict=True) if name == "size"]
    return not any(id(var) in wanted for var in sizes)


def _name(path: tuple[Any, ...], leaf: Any) -> str:
    """Return the first name on the way to a leaf."""
    return next((part.key for part in path if isinstance(part, jax.tree_util.DictKey)), "")


def one_sample(rows: dict[str, Any], canvas: tuple[int, int], channels: int) -> dict[str, Any]:
    """Return the form of the sample that a transform gets for a row of `row_shapes`."""
    sample = {name: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for name, x in rows.items()}
    sample["image"] = jax.ShapeDtypeStruct((*canvas, channels), np.uint8)
    return {"epoch": jax.ShapeDtypeStruct((), np.int32), **sample}
