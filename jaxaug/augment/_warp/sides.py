"""What changes sides when an image is mirrored: joints, and classes, of left and right."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax.numpy as jnp

from jaxaug._typing import Array, Sample
from jaxaug.augment._base import plain

Swaps: TypeAlias = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
JOINTS = "keypoints"  # whose pairs are rows; those of other entries are values


def as_swaps(name: str, value: Any) -> Swaps:
    """Return {entry: pairs}, or the pairs of "keypoints", as pairs of a name and pairs."""
    value = plain(tuple(value.items()) if isinstance(value, Mapping) else value)
    if _are_pairs(value):
        value = ((JOINTS, value),) if value else ()
    named = isinstance(value, tuple) and all(
        isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in value
    )
    if not named or not all(_are_pairs(pairs) for _, pairs in value):
        raise ValueError(
            f"`{name}` must be pairs of joints, such as ((1, 2), (3, 4)), or a dict of entries and"
            f" their pairs, such as {{'keypoints': ((1, 2),), 'box_labels': ((5, 6),)}}, got"
            f" {value!r}: ints of at least 0, each once."
        )
    return tuple((entry, pairs) for entry, pairs in value if pairs)


def _are_pairs(value: Any) -> bool:
    """Return True for pairs of ints of at least 0, none of them twice."""
    if not isinstance(value, tuple):
        return False
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        return False
    numbers = [number for pair in value for number in pair]
    whole = all(isinstance(number, int) and number >= 0 for number in numbers)
    return whole and len(set(numbers)) == len(numbers)


def check_swaps(sample: Sample, swaps: Swaps) -> None:
    """Raise where an entry has not the joints, or not the integers, that `swaps` names."""
    for name, pairs in swaps:
        if name not in sample:
            continue
        value = jnp.asarray(sample[name])
        if name != JOINTS and not jnp.issubdtype(value.dtype, jnp.integer):
            raise TypeError(
                f"`swap` exchanges classes of {name!r}, integers, got {value.dtype}: name joints"
                f" {JOINTS!r}."
            )
        largest = max(number for pair in pairs for number in pair)
        if name == JOINTS and largest >= value.shape[-2]:
            raise ValueError(
                f"`swap` names joint {largest}, got 'keypoints' {value.shape} with"
                f" {value.shape[-2]} joints: they are counted from 0."
            )


def swapped(sample: Sample, swaps: Swaps, mirrors: Array | bool) -> Sample:
    """Return `sample` with joints and classes exchanged where its image was mirrored."""
    if mirrors is False:
        return sample
    changed = dict(sample)
    for name, pairs in swaps:
        if name in sample:
            value = jnp.asarray(sample[name])
            exchange = _joints if name == JOINTS else _classes
            changed[name] = jnp.where(mirrors, exchange(value, pairs), value)
    return changed


def _joints(points: Array, pairs: tuple[tuple[int, int], ...]) -> Array:
    order = list(range(points.shape[-2]))
    for left, right in pairs:
        order[left], order[right] = right, left
    return jnp.take(points, jnp.array(order, jnp.int32), axis=-2)


def _classes(values: Array, pairs: tuple[tuple[int, int], ...]) -> Array:
    changed = values
    for left, right in pairs:
        changed = jnp.where(values == left, jnp.asarray(right, values.dtype), changed)
        changed = jnp.where(values == right, jnp.asarray(left, values.dtype), changed)
    return changed
