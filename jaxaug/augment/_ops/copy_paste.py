"""Objects of one image on another: `CopyAndPaste`."""

from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import (
    Converter,
    ImageInfo,
    Names,
    as_number,
    as_probability,
    extent,
    inside,
)
from jaxaug.augment._chain import GroupOp, channels_first
from jaxaug.augment._warp import (
    VALID,
    box_columns,
    check_box_columns,
    given_alone,
    packed,
    present,
)
from jaxaug.augment.random import uniform

_MASKS = "masks"


def boxes_of_masks(masks: Array) -> Array:
    """Return the xyxy boxes float32[n, 4] of instance masks [n, H, W]; of empty ones zeros.

    Args:
      masks: of any dtype; what is not zero belongs to the instance.

    Example:
      >>> import jax.numpy as jnp
      >>> boxes_of_masks(jnp.zeros((1, 4, 6), bool).at[0, 1:3, 2:5].set(True)).tolist()
      [[2.0, 1.0, 5.0, 3.0]]

    Differs from torchvision's `masks_to_boxes` in edge coordinates: there the last pixel.
    """
    inside = masks.astype(bool)
    sides = []
    for axis in (1, 2):  # a line of pixels along x, then along y
        line = inside.any(axis=axis)
        place = jnp.arange(line.shape[1], dtype=jnp.int32)[None, :]
        low = jnp.min(jnp.where(line, place, line.shape[1]), axis=1)
        high = jnp.max(jnp.where(line, place + 1, 0), axis=1)
        sides.append((low, high))
    (left, right), (top, bottom) = sides
    boxes = jnp.stack([left, top, right, bottom], axis=1).astype(jnp.float32)
    return jnp.where((right > left)[:, None], boxes, 0.0)


@dataclass(frozen=True)
class CopyAndPaste(GroupOp):
    """Paste objects of its partner onto each image.

    For `Loader(batch_transform=...)`: samples 2k and 2k + 1 of the global batch are partners. Each
    object of the partner is pasted with probability `share`, in place and hard-edged: scale and
    place come from the transforms before, as in `recipes.copy_paste_train`. Objects behind them
    lose the hidden pixels, and those of which too little is left are dropped.

    Args:
      share: the probability of each object of being pasted.
      min_visibility: an object that shows a smaller share of its pixels than before is dropped.
      p: the probability of pasting, in a pair.
      per_box: the names of entries with a row per box, beside "masks" and those that begin with
        "box_".

    Returns:
      On a call `(key, group)` the group: "masks" [2n, H, W] of both images, packed to the front,
      "boxes" [2n, 4] of what shows of them, and "boxes_valid" bool[2n]. A "mask" is pasted, too;
      a "label" stays.

    Raises:
      ValueError: on a call, for a group without "masks" [2, n, H, W] and "boxes" [2, n, 4], one in
        the layout CHW, and for keypoints and polygons.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> masks = jnp.zeros((2, 1, 8, 9), jnp.uint8).at[:, 0, 2:5, 3:7].set(1)
      >>> boxes = jnp.tile(jnp.array([3.0, 2.0, 7.0, 5.0]), (2, 1, 1))
      >>> group = {"image": jnp.zeros((2, 8, 9, 3), jnp.uint8), "masks": masks, "boxes": boxes}
      >>> jax.jit(CopyAndPaste(share=1.0))(jax.random.key(0), group)["boxes"][0].tolist()
      [[3.0, 2.0, 7.0, 5.0], [0.0, 0.0, 0.0, 0.0]]

    Reference: G. Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method for
      Instance Segmentation", CVPR 2021; `min_visibility` is AlbumentationsX's default.

    Differs from torchvision's reference and AlbumentationsX in edges that are not blended, which
    the paper found to make no difference.
    """

    share: Annotated[float, Converter(as_probability)] = 0.5
    min_visibility: Annotated[float, Converter(as_number, 0.0, 1.0)] = 0.05
    p: float = 1.0
    per_box: Names = ()
    group_size = 2

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw which objects of the partners are pasted, bool[2, n]."""
        if info.boxes is None:
            raise ValueError('CopyAndPaste needs groups with "boxes" and "masks".')
        return uniform(key, shape=info.boxes.shape[:2]) < self.share

    def neutral(self, params: Array) -> Array:
        """Return that none is pasted."""
        return jnp.zeros_like(params)

    def apply(self, params: Array, group: Sample, info: ImageInfo) -> Sample:
        """Paste pixels, masks and boxes."""
        _check(self, group)
        group = jax.vmap(_within)(jax.vmap(given_alone)(group))
        partners = {name: value[::-1] for name, value in group.items()}
        if "valid" in group:
            params = params & partners["valid"][:, None]
        return jax.vmap(self._pasted)(params, group, partners)

    def _pasted(self, taken: Array, own: Sample, partner: Sample) -> Sample:
        """Return one sample with the objects of its partner that are `taken`, bool[n]."""
        height, width = extent(own["image"], own.get("size"))
        y = jnp.arange(own["image"].shape[0], dtype=jnp.int32)
        x = jnp.arange(own["image"].shape[1], dtype=jnp.int32)
        used = (y < height)[:, None] & (x < width)[None, :]
        pasted = partner[_MASKS].astype(bool) & (taken & present(partner["boxes"]))[:, None, None]
        pasted = pasted & used[None]
        covered = pasted.any(axis=0)

        mixed = dict(own)
        for name in ("image", "mask"):
            if name in own:
                plane = covered if own[name].ndim == 2 else covered[:, :, None]
                mixed[name] = jnp.where(plane, partner[name], own[name])
        seen = own[_MASKS].astype(bool) & ~covered[None]
        shown = jnp.concatenate([seen, pasted])
        before = jnp.concatenate([own[_MASKS], partner[_MASKS]])
        columns = (_MASKS, *self.per_box)
        for name in box_columns(own, columns):
            mixed[name] = jnp.concatenate([own[name], partner[name]])
        mixed[_MASKS] = jnp.where(shown, before, jnp.zeros_like(before))
        mixed["boxes"] = self._boxes(own, partner, shown, before)
        mixed[VALID] = self._kept(own, taken, partner, shown, before)
        return packed(mixed, mixed[VALID], columns)

    def _boxes(self, own: Sample, partner: Sample, shown: Array, before: Array) -> Array:
        """Return the boxes of both, of what shows where that is not all."""
        boxes = jnp.concatenate([own["boxes"], partner["boxes"]])
        whole = (shown == before.astype(bool)).all(axis=(1, 2))
        return jnp.where(whole[:, None], boxes, boxes_of_masks(shown).astype(boxes.dtype))

    def _kept(
        self, own: Sample, taken: Array, partner: Sample, shown: Array, before: Array
    ) -> Array:
        """Return bool[2n], the objects of which enough shows; those that nothing hides stay."""
        pixels = jnp.sum(shown, axis=(1, 2), dtype=jnp.int32)
        # Small objects may have lost all pixels of their masks, but not their boxes, in a resize.
        pasted = taken & present(partner["boxes"]) & (pixels[taken.shape[0] :] > 0)
        given = jnp.concatenate([present(own["boxes"]), pasted])
        all_pixels = jnp.sum(before.astype(bool), axis=(1, 2), dtype=jnp.int32)
        least = self.min_visibility * all_pixels.astype(jnp.float32)
        hidden = (pixels < all_pixels) & ((pixels == 0) | (pixels.astype(jnp.float32) < least))
        return given & ~hidden


def _within(sample: Sample) -> Sample:
    """Return a sample whose masks are empty where its image is not: a partner may be larger."""
    used = inside(sample["image"], sample.get("size"))
    masks = sample[_MASKS]
    return {**sample, _MASKS: jnp.where(used[None], masks, jnp.zeros_like(masks))}


def _check(transform: CopyAndPaste, group: Sample) -> None:
    """Raise where the objects of a group cannot be pasted."""
    name = type(transform).__name__
    if channels_first(group["image"]):
        raise ValueError(f"{name} needs images [H, W, C], got {group['image'].shape[1:]}.")
    masks = group.get(_MASKS)
    if masks is None or masks.shape[1:2] != group["boxes"].shape[1:2] or masks.ndim != 4:
        got = "none" if masks is None else f"{masks.shape[1:]}"
        raise ValueError(
            f"{name} needs 'masks' [n, H, W], a row for each of the boxes"
            f" {group['boxes'].shape[1:]}, got {got}."
        )
    if group["boxes"].shape[-1] != 4:
        raise ValueError(f"{name} takes boxes as xyxy [n, 4], got {group['boxes'].shape[1:]}.")
    behind = [each for each in ("keypoints", "polygons") if each in group]
    if behind:
        raise ValueError(f"{name} cannot cut {behind[0]!r} where they are hidden: take them out.")
    rows = {name: value[0] for name, value in group.items() if name != _MASKS}
    check_box_columns(transform, rows)
