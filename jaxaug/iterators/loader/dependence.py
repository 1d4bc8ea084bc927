"""Whether what a function of the user's returns depends on an entry of the sample."""

import dataclasses
from typing import Any

import jax

from jaxaug._mesh_context import no_mesh
from jaxaug.iterators.loader.batch_function import Transform


def depends(
    transform: Transform, sample: dict[str, jax.ShapeDtypeStruct], output: str, entry: str
) -> bool:
    """Return True if `output` of a function may depend on `entry` of its sample.

    It is True for dataclasses, such as the chains of `augment`, which know what they use.

    Args:
      transform: a function that has been traced with this sample before.
      sample: the form of one sample, "epoch" included.
      output: a name in what the function returns.
      entry: a name in the sample.
    """
    if dataclasses.is_dataclass(transform) or entry not in sample:
        return True
    from jax.extend.core import Literal  # brings Pallas with it

    key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
    with no_mesh():
        closed, outputs = jax.make_jaxpr(transform, return_shape=True)(key, sample)

    jaxpr = closed.jaxpr
    leaves, _ = jax.tree.flatten(jax.tree_util.tree_map_with_path(_name, outputs))
    wanted = {id(var) for var, name in zip(jaxpr.outvars, leaves, strict=True) if name == output}
    for equation in reversed(jaxpr.eqns):
        if any(id(var) in wanted for var in equation.outvars):
            wanted |= {id(var) for var in equation.invars if not isinstance(var, Literal)}

    names, _ = jax.tree.flatten(jax.tree_util.tree_map_with_path(_name, (key, sample)))
    entries = [var for var, name in zip(jaxpr.invars, names, strict=True) if name == entry]
    return any(id(var) in wanted for var in entries)


def _name(path: tuple[Any, ...], leaf: Any) -> str:
    """Return the first name on the way to a leaf."""
    return next((part.key for part in path if isinstance(part, jax.tree_util.DictKey)), "")
