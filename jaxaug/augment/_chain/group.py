"""Transforms of groups of samples: the kind that mixes several images, and chains of them."""

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import (
    NO_IMAGE,
    ImageInfo,
    Operator,
    Parameters,
    chosen_alike,
    store,
)
from jaxaug.augment._chain.progress import USUAL_CHANNELS, check_key
from jaxaug.augment._chain.transform import Transform
from jaxaug.augment._warp import (
    BOXES_ELSEWHERE,
    as_boxes,
    box_columns,
    check_box_columns,
    given_alone,
)

# Entries that cannot be mixed.
_LEFT_BEHIND = ("keypoints", "masks", "polygons", "video", "audio", "volume")


class GroupOp(Operator):
    """A random transform of a group of samples, for `Loader(batch_transform=...)`.

    A group is a sample whose arrays have a leading axis of `group_size`: "image" [g, H, W, C], or
    whatever `transform` made of it, [g, C, H, W] of floats for example. A field `p` is the
    probability of being applied, to the whole group. The `info` of `make_params` has the canvas of
    one image; its size is int32[g, 2], its boxes float[g, n, 4].

    Attributes:
      group_size: how many samples make a group.
      needs: the entry of a group that it mixes.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> class Swap(GroupOp):
      ...     group_size = 2
      ...     def apply(self, params, group, info):
      ...         return {**group, "image": group["image"][::-1]}
      >>> group = {"image": jnp.arange(2.0).reshape(2, 1, 1, 1)}
      >>> Swap()(jax.random.key(0), group)["image"].ravel().tolist()
      [1.0, 0.0]
    """

    group_size: int
    needs: ClassVar[str] = "image"

    @abc.abstractmethod
    def apply(self, params: Parameters, group: Sample, info: ImageInfo) -> Sample:
        """Transform a group; draw nothing.

        With a `p` and no `neutral` it must keep the entries, their shapes and dtypes.
        """

    def check_labels(self, labels: np.ndarray) -> None:
        """Raise ValueError for labels int[n] for which there is no class.

        A call cannot see them. A Loader gives it the highest one that its source knows, or a few.
        """
        count = getattr(self, "num_classes", None)
        highest = int(labels.max(initial=0))
        if count is not None and highest >= count:
            name = type(self).__name__
            raise ValueError(
                f"`num_classes` of {name} must be above every label, got {count} and a label of"
                f" {highest}: write {name}({highest + 1}), or give it as many classes as there are."
            )

    def __call__(self, key: Key, group: Sample) -> Sample:
        """Transform one group; groups go through `jax.vmap`, with one key per group."""
        check_key(key, group)
        self._check_group(group)
        group = jax.tree.map(jnp.asarray, dict(group))
        info = group_info(group)
        drawn = self.draw(key, info)
        result = self.apply(drawn.params, dict(group), info)
        return chosen_alike(self, drawn, result, group)

    def _check_group(self, group: Any) -> None:
        """Raise where `group` is no sample of `group_size` images."""
        name, count = type(self).__name__, self.group_size
        if not isinstance(group, Mapping):
            got = type(group).__name__
            if hasattr(group, "dtype"):
                got = f"{group.dtype}{list(group.shape)}"
            expected = f"a dict {{'{self.needs}': [{count}, ...], ...}}"
            raise TypeError(f"{name} needs a group of samples, {expected}, got {got}.")
        if self.needs not in group:
            hint = ": mix the frames of videos through jax.vmap, all of them with one key"
            raise ValueError(
                f"a group must have an {self.needs!r}, got the keys {sorted(group)}"
                f"{hint if 'video' in group else ''}."
            )
        size = jnp.shape(group[self.needs])[0]
        if size != count:
            what = "images" if self.needs == "image" else "samples"
            raise ValueError(
                f"{name} mixes groups of {count}, got {size} {what}: give it to"
                f" Loader(batch_transform=...), or groups [n, {count}, ...] through jax.vmap."
            )
        if "size" in group and jnp.shape(group["size"]) != (count, 2):
            raise ValueError(
                f"{name} mixes groups of single images, with `size` int32[{count}, 2], got"
                f" {list(jnp.shape(group['size']))}: mix those of a list through jax.vmap."
            )


def group_info(group: Sample) -> ImageInfo:
    """Return the `ImageInfo` of the images of a group, of no image where it has none."""
    if "image" not in group:
        return ImageInfo(NO_IMAGE, epoch=group.get("epoch"))
    canvas = group["image"].shape[1:3]
    if channels_first(group["image"]):
        canvas = group["image"].shape[2:4]
    return ImageInfo(canvas, group.get("size"), group.get("boxes"), group.get("epoch"))


def channels_first(images: Array) -> bool:
    """Return True where images [g, ., ., .] have the layout CHW."""
    if images.ndim < 4:  # gray, without a channel
        return False
    first, last = images.shape[1], images.shape[3]
    return last not in USUAL_CHANNELS and first < last


def check_layout(transform: Any, images: Array) -> None:
    """Raise where images [g, ., ., .] may be of either layout, with a side as short as channels."""
    shape = images.shape[1:]
    if shape[0] in USUAL_CHANNELS and shape[2] in USUAL_CHANNELS:
        raise ValueError(
            f"{type(transform).__name__} cuts windows of [H, W, C] or [C, H, W], got {shape}, which"
            f" may be either: give images of more than {USUAL_CHANNELS[-1]} pixels a side."
        )


def mixable(transform: Any, group: Sample) -> Sample:
    """Return the group, checked, with soft labels and with zeros for boxes that are padding."""
    _check_mixed(transform, group)
    group = with_soft_labels(transform, group)
    return jax.vmap(given_alone)(group) if "boxes" in group else group


def with_soft_labels(transform: Any, group: Sample) -> Sample:
    """Return the group with its "label" int[g] as float32 [g, num_classes], if it has one.

    -1, a row without a label, becomes zeros; a label beyond the classes NaN, which a loss shows.
    """
    if "label" not in group:
        return group
    label = group["label"]
    name = type(transform).__name__
    if label.dtype == bool:  # a class, or which classes there are
        label = label.astype(jnp.int32 if label.ndim == 1 else jnp.float32)
        group = {**group, "label": label}
    if jnp.issubdtype(label.dtype, jnp.floating):
        _check_soft(name, label, transform.num_classes)
        return group
    if label.ndim != 1:
        raise ValueError(
            f"{name} needs one class per sample, 'label' int[{label.shape[0]}], got"
            f" {label.dtype}{list(label.shape)}: make multiple classes floats, one per class."
        )
    if transform.num_classes is None:
        raise ValueError(
            f"{name} makes soft labels of 'label', got num_classes=None: write {name}(num_classes)."
        )
    soft = jax.nn.one_hot(label, transform.num_classes, dtype=jnp.float32)
    known = (label < transform.num_classes)[:, None]
    return {**group, "label": jnp.where(known, soft, jnp.nan)}


def _check_soft(name: str, label: Array, num_classes: int | None) -> None:
    """Raise where floats [g, ...] are not the soft labels of so many classes.

    Class ids in floats look like regression targets, of which the mean is meant.
    """
    if num_classes is None or (label.ndim > 1 and label.shape[-1] == num_classes):
        return
    raise ValueError(
        f"`label` of {name}(num_classes={num_classes}) must be a class of each sample, integers, or"
        f" soft labels, floats [..., {num_classes}], got {label.dtype}{list(label.shape[1:])} for a"
        " sample: make class ids integers, .astype('int32'), or leave `num_classes` out to blend"
        " numbers such as targets of a regression."
    )


def _check_mixed(transform: Any, group: Sample) -> None:
    """Raise where an entry of the group would not follow its image, or is not as it must be."""
    if group["image"].ndim != 4:
        raise ValueError(
            f"{type(transform).__name__} mixes single images with channels, [H, W, C] or [C, H, W],"
            f" got {group['image'].shape[1:]}: write gray images [H, W, 1], and mix the frames of"
            " videos through jax.vmap, all of them with one key."
        )
    nested = [name for name, value in group.items() if not hasattr(value, "shape")]
    behind = nested + [name for name in _LEFT_BEHIND if name in group]
    if behind:
        raise ValueError(
            f"{type(transform).__name__} mixes 'image', 'label', 'mask' and 'boxes', got"
            f" {', '.join(map(repr, behind))} beside them: take them out of the sample before."
        )
    renamed = [name for name in BOXES_ELSEWHERE if name in group]
    if renamed:
        raise ValueError(
            f"{type(transform).__name__} would leave {renamed[0]!r} as they are while it mixes the"
            " images: call them 'boxes'."
        )
    if "labels" in group and "labels" not in transform.per_box:
        raise ValueError(
            f"{type(transform).__name__} mixes 'image', 'label', 'mask' and 'boxes', got 'labels'"
            " beside them: call a class of each image 'label', and name classes of boxes,"
            " `per_box=('labels',)`."
        )
    _check_planes(transform, group)
    if "boxes" in group:
        as_boxes(group["boxes"][0])
        check_box_columns(transform, {name: value[0] for name, value in group.items()})


def _check_planes(transform: Any, group: Sample) -> None:
    """Raise where an entry has pixels of its image's height and width, as a second image has."""
    canvas = group_info(group).canvas
    mixed = {"image", "label", "mask"}
    if "boxes" in group:
        mixed |= set(
            box_columns({name: value[0] for name, value in group.items()}, transform.per_box)
        )
    for name, value in group.items():
        if name not in mixed and value.ndim > 2 and canvas in (value.shape[1:3], value.shape[-2:]):
            raise ValueError(
                f"{type(transform).__name__} mixes 'image', 'label', 'mask' and 'boxes', and would"
                f" leave the pixels of {name!r} {value.shape[1:]} as they are: join them to the"
                " image as further channels, or take them out of the sample before."
            )


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
        first = self.transforms[0] if self.transforms else self
        store(self, needs=first.entry if isinstance(first, Transform) else first.needs)

    def _check_boxes(self) -> None:
        """Raise where a chain takes and gives boxes in another format than group operators."""
        mixing = [type(each).__name__ for each in self.transforms if isinstance(each, GroupOp)]
        for transform in self.transforms:
            box_format = getattr(transform, "box_format", "xyxy")
            if mixing and box_format not in ("xyxy", "xyxyxyxy"):
                raise ValueError(
                    f"{mixing[0]} takes and gives boxes as xyxy, got a chain with"
                    f" box_format={box_format!r} beside it: leave that out (of oriented boxes write"
                    " 'xyxyxyxy'), and convert the boxes at the end,"
                    " functional.convert_bounding_box_format."
                )

    def check_labels(self, labels: np.ndarray) -> None:
        """Raise ValueError for labels for which the first that makes them soft has no class."""
        for transform in self.transforms:
            if isinstance(transform, Transform):  # which may change them
                return
            transform.check_labels(labels)
            if getattr(transform, "num_classes", None) is not None:
                return

    def make_params(self, key: Key, info: ImageInfo) -> Key:
        """Return the key itself: each transform draws from what the one before left."""
        return key

    def apply(self, params: Key, group: Sample, info: ImageInfo) -> Sample:
        """Apply the transforms one after the other, each to its parts of the group."""
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
    count = jnp.shape(next(iter(group.values())))[0]
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
