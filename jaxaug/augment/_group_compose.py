"""Chains for groups of samples: `GroupCompose`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxaug._typing import Key, Sample
from jaxaug.augment._fields import store
from jaxaug.augment._group import GroupOp
from jaxaug.augment._info import ImageInfo
from jaxaug.augment._transform import Transform


@dataclass(frozen=True)
class GroupCompose(GroupOp):
    """Group operators and transforms of single samples, one after the other.

    An operator mixes what no operator before has mixed: the sizes of their groups multiply. That of
    `Mosaic`, then `MixUp` is eight samples, of which two fours become mosaics, and each of these is
    mixed with one of the other four. Transform k takes `fold_in(key, k)`, and its part i of the
    group `fold_in` of that with i.

    Args:
      transforms: `GroupOp`s, and transforms that are applied to each sample of the group. Chains
        among them have boxes as xyxy, as group operators do.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> steps = [augment.Mosaic(16), augment.Resize((8, 8)), augment.Normalize(0.5, 0.5)]
      >>> mix = GroupCompose([*steps, augment.MixUp(3)])
      >>> group = {"image": jnp.zeros((8, 9, 9, 3), jnp.uint8)}
      >>> mix.group_size, mix(jax.random.key(0), group)["image"].shape
      (8, (8, 8, 8, 3))
    """

    transforms: Sequence[Any]

    def __post_init__(self):
        super().__post_init__()
        store(self, transforms=tuple(self.transforms))
        for transform in self.transforms:
            if not isinstance(transform, (GroupOp, Transform)):
                raise TypeError(
                    "`transforms` must be group operators such as MixUp, and transforms of single"
                    f" samples, got {transform!r}: wrap a function of (key, image) in `Lambda`."
                )
        self._check_boxes()
        store(self, group_size=math.prod(map(_group_size, self.transforms)))

    def _check_boxes(self) -> None:
        """Raise where a chain takes and gives boxes in another format than group operators."""
        mixing = [type(each).__name__ for each in self.transforms if isinstance(each, GroupOp)]
        for transform in self.transforms:
            box_format = getattr(transform, "box_format", "xyxy")
            if mixing and box_format != "xyxy":
                raise ValueError(
                    f"{mixing[0]} takes and gives boxes as xyxy, got a chain with"
                    f" box_format={box_format!r} beside it: leave that out, and convert the boxes"
                    " at the end, functional.convert_bounding_box_format."
                )

    def sample(self, key: Key, info: ImageInfo) -> Key:
        """Return the key itself: each transform draws from what the one before left."""
        del info
        return key

    def apply(self, params: Key, group: Sample, info: ImageInfo) -> Sample:
        """Apply the transforms in turn, each to its parts of the group."""
        del info
        mixed = 1  # consecutive samples that the operators before have mixed
        for number, transform in enumerate(self.transforms):
            key = jax.random.fold_in(params, number)
            group = _in_parts(transform, key, group, mixed)
            mixed *= _group_size(transform)
        return group


def _group_size(transform: Any) -> int:
    return transform.group_size if isinstance(transform, GroupOp) else 1


def _in_parts(transform: Any, key: Key, group: Sample, mixed: int) -> Sample:
    """Return the group with `transform` applied to its parts.

    Args:
      transform: of groups, or of single samples.
      key: folded with the number of each part.
      group: of whole parts.
      mixed: how many samples lie between those of a part.
    """
    count = group["image"].shape[0]
    size = _group_size(transform)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(count // size, dtype=jnp.int32))
    if isinstance(transform, Transform):
        return jax.vmap(transform)(keys, group)

    def split(value: Any) -> Any:
        rows = value.reshape(count // (size * mixed), size, mixed, *value.shape[1:])
        return jnp.swapaxes(rows, 1, 2).reshape(count // size, size, *value.shape[1:])

    def joined(value: Any) -> Any:
        rows = value.reshape(count // (size * mixed), mixed, size, *value.shape[2:])
        return jnp.swapaxes(rows, 1, 2).reshape(count, *value.shape[2:])

    return jax.tree.map(joined, jax.vmap(transform)(keys, jax.tree.map(split, group)))
