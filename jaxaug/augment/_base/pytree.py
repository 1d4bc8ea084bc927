"""Transforms as pytrees: the JAX arrays among their settings are leaves, all else is structure.

So `jax.grad`, `jax.vmap`, optimizers and modules see what may be learned, and a transform of Python
numbers stays one static value. A pytree is taken apart and put together again without its
constructor: a leaf may be a tracer, a gradient, or whatever stands for one.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jax.tree_util import GetAttrKey, keystr, register_pytree_with_keys

_LEAF = ...  # marks the place of a leaf among what is static
_FLAT = "_flat"  # where a transform keeps leaves that are no arrays


class Structure(NamedTuple):
    """What is static in a transform.

    Attributes:
      tree: of {name: setting}.
      static: its leaves, with `_LEAF` for those that are leaves of the transform.
    """

    tree: Any
    static: tuple[Any, ...]


def register(cls: type) -> type:
    """Make a class of frozen settings a pytree."""
    register_pytree_with_keys(
        cls,
        _flatten_with_keys,
        lambda structure, leaves: _unflatten(cls, structure, leaves),
        _flatten,
    )
    return cls


def same(self: Any, other: Any) -> Any:
    """Return True for a dataclass of the same class and settings; arrays are compared by value."""
    if self is other:
        return True
    if other.__class__ is not self.__class__ or not _by_value(self):
        return NotImplemented
    return _compared(self) == _compared(other)


def hashed(self: Any) -> int:
    """Return the hash that goes with `same`."""
    return hash((type(self), *_compared(self))) if _by_value(self) else object.__hash__(self)


def _by_value(transform: Any) -> bool:
    """Return True for a dataclass that is compared by its fields."""
    parameters = getattr(transform, "__dataclass_params__", None)
    return parameters is not None and parameters.eq


def _compared(transform: Any) -> tuple[Any, ...]:
    fields = dataclasses.fields(transform)
    return tuple(_value(getattr(transform, field.name)) for field in fields if field.compare)


def _value(setting: Any) -> Any:
    """Return a setting to compare and to hash: of an array its numbers, of a tracer itself."""
    if isinstance(setting, tuple):
        return tuple(map(_value, setting))
    if isinstance(setting, Tracer):
        return _Traced(setting)
    if isinstance(setting, jax.Array):
        numbers = np.asarray(setting)
        return ("array", numbers.shape, numbers.dtype.str, numbers.tobytes())
    return setting


class _Traced:
    """A tracer, which equals itself alone."""

    def __init__(self, tracer: Tracer):
        self.tracer = tracer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Traced) and other.tracer is self.tracer

    def __hash__(self) -> int:
        return id(self.tracer)


def _flatten(transform: Any) -> tuple[tuple[Any, ...], Structure]:
    """Return the leaves and the structure."""
    leaves, structure = _flatten_with_keys(transform)
    return tuple(leaf for _, leaf in leaves), structure


def _flatten_with_keys(transform: Any) -> tuple[tuple[tuple[Any, Any], ...], Structure]:
    """Return the leaves, named by the way to them, and the structure."""
    kept = transform.__dict__.get(_FLAT)
    if kept is not None:
        return kept
    declared = dataclasses.fields(transform) if dataclasses.is_dataclass(transform) else ()
    names = dict.fromkeys([*(field.name for field in declared), *vars(transform)])
    settings = {name: getattr(transform, name) for name in names if name != _FLAT}
    found, tree = jax.tree_util.tree_flatten_with_path(settings)
    leaves = [(_key(path), leaf) for path, leaf in found if isinstance(leaf, jax.Array)]
    static = (_LEAF if isinstance(leaf, jax.Array) else leaf for _, leaf in found)
    return tuple(leaves), Structure(tree, tuple(static))


def _unflatten(cls: type, structure: Structure, leaves: Any) -> Any:
    """Return a transform of `structure` with other leaves; its constructor is not called."""
    leaves = tuple(leaves)
    rest: Iterator[Any] = iter(leaves)
    values = [next(rest) if each is _LEAF else each for each in structure.static]
    transform = object.__new__(cls)
    for name, value in jax.tree.unflatten(structure.tree, values).items():
        object.__setattr__(transform, name, value)
    if not all(isinstance(leaf, jax.Array) for leaf in leaves):
        # The settings do not tell any more which of them are leaves.
        numbered = jax.tree.unflatten(structure.tree, range(len(structure.static)))
        paths, _ = jax.tree_util.tree_flatten_with_path(numbered)
        keys = [_key(path) for path, number in paths if structure.static[number] is _LEAF]
        object.__setattr__(transform, _FLAT, (tuple(zip(keys, leaves)), structure))
    return transform


def _key(path: tuple[Any, ...]) -> Any:
    """Return the way from a transform to a leaf as one name: `transforms[0].degrees[1]`."""
    return GetAttrKey(path[0].key + keystr(path[1:]))
