"""Five and ten crops of one image: a test of a classifier on its corners and its center."""

from dataclasses import KW_ONLY, dataclass

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample, Scalar
from jaxaug.augment._base import Flag, ImageInfo, Size, convert_fields
from jaxaug.augment._chain import (
    Compose,
    Geometric,
    Transform,
    Transforms,
    check_key,
    image_alone,
    stacked,
)
from jaxaug.augment._ops.flip import RandomHorizontalFlip, RandomVerticalFlip
from jaxaug.augment._warp import Warp, has_static_shape, shifted

# The shares (above, left) of the room about a window: torchvision's order.
_PLACES = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.5, 0.5))


@dataclass(frozen=True)
class FiveCrop:
    """Make a stack of five windows of one image: its four corners and its center.

    Like `MultiView` it is a whole chain, as for `Loader(transform=...)`, and cannot be part of a
    `Compose`: what stands before and after the crop is given to it. All windows have the same key,
    so that what is drawn is drawn once for all of them.

    Args:
      size: (height, width) of the windows in pixels, or an int for a square.
      before: transforms of the whole image, such as `Resize(256)`.
      after: transforms of each window, such as `Normalize`.

    Returns:
      On a call `(key, image)` or `(key, sample)` a dict: "crops" [5, H, W, C] in the order top
      left, top right, bottom left, bottom right, center, and the other entries of the sample.

    Raises:
      ValueError: for an image, or a canvas, smaller than the window; for a mask, boxes, keypoints
        or what a chain names in `targets`; for an entry "crops".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> crops = FiveCrop(2)(jax.random.key(0), jnp.arange(12.0).reshape(3, 4, 1) / 12)["crops"]
      >>> (crops[:, 0, 0, 0] * 12).astype(int).tolist()
      [0, 2, 4, 6, 1]

    Reference: Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural Networks",
    2012, section 4.1.

    Differs from torchvision in `before` and `after`, and in giving one array, not a tuple. Of an
    image whose smaller `size` lies on a canvas that is large enough, the windows are zero beyond
    it: that is known too late for an error.
    """

    size: Size
    _: KW_ONLY
    before: Transforms = ()
    after: Transforms = ()

    def __post_init__(self):
        convert_fields(self)

    @property
    def chains(self) -> tuple[Transform, ...]:
        """What stands before and after the windows."""
        return (Compose(self.before), Compose(self.after))

    def __call__(self, key: Key, sample: Array | Sample) -> Sample:
        """Return the windows of one image or one sample; see the class."""
        check_key(key, sample)
        given, rest = image_alone(self, sample, ["crops"])

        def window(place: Array) -> Sample:
            before, after = self.chains
            return Compose([before, _Placed(self.size, place[0], place[1]), after])(key, given)

        windows = jax.vmap(window)(jnp.asarray(_PLACES, jnp.float32))
        return {**rest, "crops": stacked("crops", windows)}


@dataclass(frozen=True)
class TenCrop(FiveCrop):
    """Make a stack of ten windows of one image: those of `FiveCrop`, of it and of its mirror image.

    Args:
      size: (height, width) of the windows in pixels, or an int for a square.
      vertical_flip: mirror top to bottom, not left to right.
      before: transforms of the whole image, such as `Resize(256)`.
      after: transforms of each window, such as `Normalize`.

    Returns:
      What `FiveCrop` returns, with "crops" [10, H, W, C]: the five of the image, then those of the
      mirrored one in the same order.

    Raises:
      ValueError: as for `FiveCrop`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> crops = TenCrop(2)(jax.random.key(0), jnp.arange(12.0).reshape(3, 4, 1) / 12)["crops"]
      >>> (crops[:, 0, 0, 0] * 12).round().astype(int).tolist()
      [0, 2, 4, 6, 1, 3, 1, 7, 5, 2]

    Reference and differences from torchvision: see `FiveCrop`.
    """

    vertical_flip: Flag = False

    def __call__(self, key: Key, sample: Array | Sample) -> Sample:
        """Return the windows of one image or one sample; see the class."""
        result = super().__call__(key, sample)
        flip = RandomVerticalFlip(1.0) if self.vertical_flip else RandomHorizontalFlip(1.0)
        mirror = FiveCrop(self.size, before=(*self.before, flip), after=self.after)
        mirrored = mirror(key, sample)["crops"]
        return {**result, "crops": jnp.concatenate([result["crops"], mirrored])}


@dataclass(frozen=True)
class _Placed(Geometric):
    """A window of `size`, with the shares `above` and `left` of the room about it."""

    size: Size
    above: Scalar
    left: Scalar

    def warp(self, params: None, info: ImageInfo) -> Warp:
        """Return the shift to the window, rounded as torchvision's center."""
        height, width = self.size
        if has_static_shape(info.canvas) and (height > info.canvas[0] or width > info.canvas[1]):
            raise ValueError(
                f"`size` must be at most {info.canvas}, that of the image, got {self.size}: put a"
                " Resize into `before`."
            )
        fits = info.size is None
        rows, columns = map(jnp.float32, info.height_width)
        top = jnp.round(self.above * (rows - height))
        left = jnp.round(self.left * (columns - width))
        return shifted(top, left, self.size, None, fits)
