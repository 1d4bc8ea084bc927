"""The random half of every operator: parameters from a key, and the coin of `p`."""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key
from jaxaug.augment import random
from jaxaug.augment._base import pytree as _pytree
from jaxaug.augment._base.fields import as_probability, convert_fields, repr_in_order, store
from jaxaug.augment.matrix import is_static

Parameters = Any  # a pytree of arrays, its own for each operator
_COIN = 2**31  # folded into the key of an operator: no place in a chain has this number


class Drawn(NamedTuple):
    """All that is random in one application of an operator: a pytree that can be saved.

    Attributes:
      params: what `make_params` gave.
      applied: bool, the coin of `p`; None without a `p` below 1, or where the parameters tell.
    """

    params: Parameters
    applied: Array | None = None


class Operator(abc.ABC):  # noqa: B024 - its kinds have the abstract methods
    """A frozen dataclass of settings that draws parameters and applies them.

    A field `p` is the probability of being applied, in [0, 1]: its coin is drawn here, from a key
    of its own, so that it says nothing about the parameters. A field whose type names a
    `Converter` keeps what that makes of the argument. As a pytree its leaves are the JAX arrays
    among its settings.
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        # The one that dataclasses write puts inherited fields first.
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = repr_in_order
        # Those that dataclasses write take no arrays.
        if "__eq__" not in cls.__dict__:
            cls.__eq__ = _pytree.same
            cls.__hash__ = _pytree.hashed
        _pytree.register(cls)

    def __post_init__(self):
        """Convert the fields, and check `p`.

        A subclass whose fields depend on each other checks that in a `__post_init__` of its own,
        after this one.
        """
        convert_fields(self)
        p = getattr(self, "p", None)
        if p is not None:
            store(self, p=as_probability("p", p))

    def make_params(self, key: Key, info: Any) -> Parameters:
        """Draw the parameters, a pytree of arrays, by default None; it knows nothing of `p`.

        Args:
          key: a PRNG key.
          info: an `ImageInfo`, of an operator of sounds an `AudioInfo`.
        """
        return None

    def neutral(self, params: Parameters) -> Parameters | None:
        """Return parameters that change nothing, where that is cheaper than to select the result.

        By default None: where the coin of `p` says no, a `Geometric` is given the identity as its
        matrix, and the other kinds the pixels from before.
        """
        return None

    def draw(self, key: Key, info: Any) -> Drawn:
        """Draw the parameters and the coin of `p`."""
        params = self.make_params(key, info)
        p = getattr(self, "p", 1.0)
        if is_static(p) and p == 1:
            return Drawn(params)
        applied = random.coin(jax.random.fold_in(key, _COIN), p)
        neutral = self.neutral(params)
        if neutral is None:
            return Drawn(params, applied)
        return Drawn(chosen(applied, params, neutral))


def chosen(applied: Array | None, result: Any, before: Any) -> Any:
    """Return `result`, or `before` where the coin says no: pytrees of one structure.

    What is the same in both is left as it is.
    """
    if applied is None:
        return result
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(applied, a, b), result, before)


def chosen_alike(operator: Operator, drawn: Drawn, result: Any, before: Any) -> Any:
    """Return `chosen`; raise where a coin would broadcast arrays of two shapes."""
    if drawn.applied is None:
        return result

    def check(path: Any, after: Any, given: Any) -> None:
        if after is not given and jnp.shape(after) != jnp.shape(given):
            name = jax.tree_util.keystr(path, simple=True)
            raise ValueError(
                f"`p` of {type(operator).__name__} must be 1: it changes the shape of {name!r} from"
                f" {jnp.shape(given)} to {jnp.shape(after)}, and all need the same."
            )

    jax.tree_util.tree_map_with_path(check, result, before)
    return chosen(drawn.applied, result, before)
