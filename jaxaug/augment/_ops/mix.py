"""Two images in one: `MixUp`, `CutMix` and the choice between both.

Both blend inside of a window: MixUp's is the whole image, CutMix's weight is 0. So one function
applies them, and a choice among them is one of numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample, Scalar
from jaxaug.augment._base import (
    SMALLEST,
    Converter,
    ImageInfo,
    Names,
    as_int,
    as_number,
    as_optional,
    as_probability,
    chosen,
    ordered,
    top_level,
)
from jaxaug.augment._chain import GroupOp, channels_first, check_layout, mixable
from jaxaug.augment._warp import VALID, WEIGHTS, box_columns, clipped, hulls, packed, present
from jaxaug.augment.random import beta, uniform


class Blend(NamedTuple):
    """The parameters of a group: inside of its window a sample is blended with its partner.

    Attributes:
      weight: float32[2], that of each sample's own image, 1 for no mixing.
      window: int32[2, 4], (left, top, right, bottom) in pixels.
    """

    weight: Array
    window: Array


class Blending(GroupOp):
    """A blend of each of two samples with the other."""

    group_size = 2
    weighs: ClassVar[bool] = True  # False where each pixel is of one image
    cuts: ClassVar[bool] = True  # False where windows are the whole image
    num_classes: int | None
    per_box: Sequence[str]

    def neutral(self, params: Blend) -> Blend:
        """Return the weights that change nothing."""
        return params._replace(weight=jnp.ones_like(params.weight))

    def apply(self, params: Blend, group: Sample, info: ImageInfo) -> Sample:
        """Blend images, labels, masks and boxes."""
        group = mixable(self, group)
        if self.cuts:
            check_layout(self, group["image"])
        partners = {name: value[::-1] for name, value in group.items()}
        if "valid" in group:
            weight = jnp.where(partners["valid"], params.weight, 1.0)
            params = params._replace(weight=weight)
        return jax.vmap(self._mixed)(params, group, partners)

    def _mixed(self, blend: Blend, own: Sample, partner: Sample) -> Sample:
        """Return one sample, blended with its partner."""
        first = channels_first(own["image"][None])
        rows, columns = own["image"].shape[1:] if first else own["image"].shape[:2]
        inside = _inside(blend.window, (rows, columns))
        mixed = dict(own)
        plane = inside[None] if first else inside[:, :, None]
        mixed["image"] = _blended(own["image"], partner["image"], blend.weight, plane)
        if "label" in own:
            share = own_share(blend, own.get("size"), partner.get("size"), (rows, columns))
            mixed["label"] = share * own["label"] + (1 - share) * partner["label"]
        if "size" in own:
            both = jnp.maximum(own["size"], partner["size"])
            mixed["size"] = jnp.where(blend.weight < 1, both, own["size"])
        if "mask" in own:
            plane = inside if own["mask"].ndim == 2 else inside[:, :, None]
            mixed["mask"] = self._mixed_mask(own["mask"], partner["mask"], blend.weight, plane)
        return mixed_boxes(blend, mixed, partner, self.per_box) if "boxes" in own else mixed

    def _mixed_mask(self, own: Array, partner: Array, weight: Array, inside: Array) -> Array:
        if not jnp.issubdtype(own.dtype, jnp.floating):
            if self.weighs:
                raise ValueError(
                    f"{type(self).__name__} has no mean of the class indices of 'mask', got"
                    f" {own.dtype}: make it floats [H, W, classes] before, or use CutMix."
                )
            return jnp.where(inside & (weight == 0), partner, own)
        return _blended(own, partner, weight, inside)


_LARGEST_ALPHA = 1e3


def _as_alpha(name: str, value: Any) -> Scalar:
    number = as_number(name, value, 0.0, _LARGEST_ALPHA)
    if not ordered(SMALLEST, number):
        raise ValueError(f"`{name}` must be above 0, got {value!r}.")
    return number


@dataclass(frozen=True)
class MixUp(Blending):
    """Blend each image with its partner: weight * image + (1 - weight) * partner.

    For `Loader(batch_transform=...)`: samples 2k and 2k + 1 of the global batch are partners. Each
    has its own weight, drawn from Beta(alpha, alpha). Where the partner is not "valid", and where
    the coin of `p` says no, nothing is mixed. It may come after `Normalize`, in either layout.

    Args:
      num_classes: the length of the soft labels that an integer "label" becomes, float32
        [num_classes], mixed or not. A label of -1 gives zeros, one beyond the classes NaN, which a
        Loader refuses where it finds it. Floating labels are soft already; without a "label" it is
        not needed.
      alpha: the parameter of the Beta distribution, above 0.
      p: the probability of mixing a pair.
      per_box: the names of entries with a row per box, beside those that begin with "box_".

    Returns:
      On a call `(key, group)` the group. A floating "mask" is blended, one of class indices
      refused. "boxes" [n, 4], xyxy, become [2n, 4], those of both, packed to the front;
      "box_weights" float32[2n] has the weights of their images, times those of a mix before, and
      "boxes_valid" bool[2n] marks them.
      Images of different "size" lie at the top left of a frame that holds both.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> group = {"image": jnp.zeros((2, 8, 8, 3)), "label": jnp.array([0, 2])}
      >>> MixUp(3)(jax.random.key(0), group)["label"].shape
      (2, 3)

    Reference: Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018.

    Differs from torchvision in a weight for each sample, there one for the batch, and in partners:
    there the sample before.
    """

    cuts: ClassVar[bool] = False
    num_classes: Annotated[int | None, Converter(as_optional, as_int, 1)] = None
    alpha: Annotated[float, Converter(_as_alpha)] = 1.0
    p: float = 1.0
    per_box: Names = ()

    def make_params(self, key: Key, info: ImageInfo) -> Blend:
        """Draw the weights."""
        return _whole(beta(key, self.alpha, (2,)), info)


@dataclass(frozen=True)
class CutMix(Blending):
    """Paste a window of its partner into each image.

    The window's area is 1 - Beta(alpha, alpha) of the image before it is cut at the edges, its
    center uniform; labels are mixed by the area that is left. Otherwise as `MixUp`.

    Args:
      num_classes, alpha, p, per_box: see `MixUp`.

    Returns:
      See `MixUp`; masks are pasted with the image. Boxes of the partner are cut at the window, own
      ones shrink where it hides a side or all of them, and their "box_weights" are 1.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> group = {"image": jnp.zeros((2, 8, 8, 3)), "label": jnp.array([0, 2])}
      >>> CutMix(3)(jax.random.key(0), group)["label"].sum(axis=1).tolist()
      [1.0, 1.0]

    Reference: Yun et al., CutMix: Regularization Strategy, ICCV 2019.
    """

    weighs: ClassVar[bool] = False
    num_classes: Annotated[int | None, Converter(as_optional, as_int, 1)] = None
    alpha: Annotated[float, Converter(_as_alpha)] = 1.0
    p: float = 1.0
    per_box: Names = ()

    def make_params(self, key: Key, info: ImageInfo) -> Blend:
        """Draw the windows."""
        center_key, share_key = jax.random.split(key)
        return _window(uniform(center_key, shape=(2, 2)), beta(share_key, self.alpha, (2,)), info)


@dataclass(frozen=True)
class MixUpOrCutMix(Blending):
    """Do `MixUp` or `CutMix`, by a coin for each sample, at the price of one of them.

    Args:
      num_classes, p, per_box: see `MixUp`.
      mixup_alpha, cutmix_alpha: the parameters of their Beta distributions.
      cutmix_share: the probability of CutMix.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> group = {"image": jnp.zeros((2, 8, 8, 3)), "label": jnp.array([0, 2])}
      >>> MixUpOrCutMix(3)(jax.random.key(0), group)["label"].shape
      (2, 3)
    """

    num_classes: Annotated[int | None, Converter(as_optional, as_int, 1)] = None
    mixup_alpha: Annotated[float, Converter(_as_alpha)] = 0.8
    cutmix_alpha: Annotated[float, Converter(_as_alpha)] = 1.0
    cutmix_share: Annotated[float, Converter(as_probability)] = 0.5
    p: float = 1.0
    per_box: Names = ()

    def make_params(self, key: Key, info: ImageInfo) -> Blend:
        """Draw both, and the coin."""
        number_key, mixup_key, cutmix_key = jax.random.split(key, 3)
        numbers = uniform(number_key, shape=(2, 3))
        mixup = _whole(beta(mixup_key, self.mixup_alpha, (2,)), info)
        cutmix = _window(numbers[:, :2], beta(cutmix_key, self.cutmix_alpha, (2,)), info)
        cuts = numbers[:, 2] < self.cutmix_share
        return jax.vmap(chosen)(cuts, cutmix, mixup)


def own_share(blend: Blend, size: Any, other: Any, canvas: tuple[int, int]) -> Array:
    """Return the share of a sample's own label, float32."""
    frame = jnp.asarray(canvas, jnp.int32) if size is None else jnp.maximum(size, other)
    height, width = frame.astype(jnp.float32)
    left, top, right, bottom = blend.window.astype(jnp.float32)
    return 1 - (1 - blend.weight) * ((right - left) / width) * ((bottom - top) / height)


def mixed_boxes(blend: Blend, own: Sample, partner: Sample, per_box: Sequence[str]) -> Sample:
    """Return `own` with the boxes of both, those that are hidden or cut off dropped."""
    window = blend.window.astype(own["boxes"].dtype)
    hidden = blend.weight == 0
    boxes = jnp.where(hidden, uncovered(own["boxes"], window), own["boxes"])
    others = clipped(partner["boxes"], tuple(window))
    others = jnp.where(blend.weight < 1, others, jnp.zeros_like(others))

    mixed = dict(own)
    for name in box_columns(own, per_box):
        mixed[name] = jnp.concatenate([own[name], partner[name]])
    mixed["boxes"] = jnp.concatenate([boxes, others])
    own_weights = jnp.where(hidden, 1.0, blend.weight) * _weights_before(own)
    other_weights = (1 - blend.weight) * _weights_before(partner)
    mixed[WEIGHTS] = jnp.concatenate([own_weights, other_weights])
    mixed[VALID] = present(mixed["boxes"])
    return packed(mixed, mixed[VALID], per_box)


def _weights_before(sample: Sample) -> Array:
    """Return float32[n], the weights that boxes have of a mix before: 1 without one."""
    return sample.get(WEIGHTS, jnp.ones(sample["boxes"].shape[:1], jnp.float32))


def uncovered(boxes: Array, window: Array) -> Array:
    """Return the hulls of what a window leaves of xyxy boxes [n, 4]; zeros where that is nothing.

    Only a window as wide as the box can move its upper and lower sides, and one as high the others.
    """
    left, top, right, bottom = window
    if boxes.shape[-1] != 4:  # oriented ones stay whole, or are hidden
        x0, y0, x1, y1 = hulls(boxes).T
        hidden = (x0 >= left) & (y0 >= top) & (x1 <= right) & (y1 <= bottom)
        return jnp.where(hidden[:, None], 0, boxes)
    x0, y0, x1, y1 = boxes.T
    as_wide = (left <= x0) & (right >= x1)
    as_high = (top <= y0) & (bottom >= y1)
    low_y = jnp.where(as_wide & (top <= y0), jnp.clip(bottom, y0, y1), y0)
    high_y = jnp.where(as_wide & (bottom >= y1), jnp.clip(top, y0, y1), y1)
    low_x = jnp.where(as_high & (left <= x0), jnp.clip(right, x0, x1), x0)
    high_x = jnp.where(as_high & (right >= x1), jnp.clip(left, x0, x1), x1)
    seen = (high_x > low_x) & (high_y > low_y)
    return jnp.where(seen[:, None], jnp.stack([low_x, low_y, high_x, high_y], axis=1), 0)


def _frame(info: ImageInfo) -> tuple[Array, Array]:
    """Return (height, width) int32 of the frame that holds both images."""
    if info.size is None:
        height, width = info.canvas
        return jnp.int32(height), jnp.int32(width)
    height, width = info.size.max(axis=0)
    return height, width


def _whole(weight: Array, info: ImageInfo) -> Blend:
    """Return a blend of all pixels."""
    height, width = _frame(info)
    window = jnp.stack([jnp.zeros_like(width), jnp.zeros_like(height), width, height])
    return Blend(weight, jnp.broadcast_to(window[None], (2, 4)))


def _window(centers: Array, share: Array, info: ImageInfo) -> Blend:
    """Return windows, cut at the edges, that show the partner; rounded as in torchvision.

    Args:
      centers: float32[2, 2], (x, y) as shares of the sides.
      share: float32[2], of what the windows leave.
      info: of the group.
    """
    height, width = _frame(info)
    half = 0.5 * jnp.sqrt(1 - share)
    sides = []
    for axis, length in enumerate((width, height)):
        length = length.astype(jnp.float32)
        middle = jnp.floor(centers[:, axis] * length)
        reach = jnp.floor(half * length)
        sides.append((jnp.maximum(middle - reach, 0.0), jnp.minimum(middle + reach, length)))
    (left, right), (top, bottom) = sides
    window = jnp.stack([left, top, right, bottom], axis=1).astype(jnp.int32)
    return Blend(jnp.zeros_like(share), window)


def _inside(window: Array, canvas: tuple[int, int]) -> Array:
    """Return bool[H, W], True in the window."""
    left, top, right, bottom = window
    y = jnp.arange(canvas[0], dtype=jnp.int32)
    x = jnp.arange(canvas[1], dtype=jnp.int32)
    rows = (y >= top) & (y < bottom)
    columns = (x >= left) & (x < right)
    return rows[:, None] & columns[None, :]


def _blended(own: Array, partner: Array, weight: Array, inside: Array) -> Array:
    """Return the blend inside of the window, in the dtype of `own`."""
    first, second = (value.astype(jnp.float32) for value in (own, partner))
    # One product: of two, XLA's CPU backend fuses either with the sum, by the shape of the batch.
    blend = second + weight * (first - second)
    if top_level(own.dtype) is not None:
        blend = jnp.round(blend)
    return jnp.where(inside & (weight < 1), blend.astype(own.dtype), own)
