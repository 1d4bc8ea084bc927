"""Recipes of segmentation: "mask" [H, W], class indices, moves with the image."""

from typing import Any

from jaxaug.augment import (
    Compose,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResize,
    Resize,
    Transform,
)
from jaxaug.augment.recipes._statistics import IMAGENET_MEAN, IMAGENET_STD

_MAX_ASPECT = 4  # long side / short side that a resized image may have before it is shrunk


def segmentation_train(
    size: int = 480,
    base: int = 520,
    policy: Transform | None = None,
    dtype: Any = "float32",
    layout: str = "HWC",
) -> Compose:
    """Return resize of the shorter side to 0.5 to 2 times `base`, flip, crop, `policy`,
    normalization.

    Resize, flip and crop are one resample, of the mask too (nearest). Where the crop looks beyond
    the image, the mask holds 255, which losses leave out, and the image is black.

    Args:
      size: of the crop, in pixels.
      base: the shorter side before, in pixels, times 0.5 to 2.
      policy: None, or any transform, for example `RandomPhotometricDistort()`.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> mask = jnp.ones((40, 60), jnp.uint8)
      >>> sample = {"image": jnp.zeros((40, 60, 3), jnp.uint8), "mask": mask}
      >>> out = segmentation_train(32, 36)(jax.random.key(0), sample)
      >>> out["image"].shape, out["mask"].shape
      ((32, 32, 3), (32, 32))

    Reference: torchvision, references/segmentation/presets.py, SegmentationPresetTrain.

    Differs from torchvision in where an image smaller than the crop is placed, there at the top
    left, here at random; and in `policy`.
    """
    longest = _MAX_ASPECT * 2 * base
    return Compose(
        [
            RandomResize(int(0.5 * base), int(2.0 * base), canvas=(longest, longest)),
            RandomHorizontalFlip(),
            RandomCrop(size, pad_if_needed=True),
            *([] if policy is None else [policy]),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def segmentation_eval(
    base: int = 520,
    canvas: tuple[int, int] | None = None,
    dtype: Any = "float32",
    layout: str = "HWC",
) -> Compose:
    """Return resize of the shorter side, normalization.

    Args:
      base: the shorter side, in pixels.
      canvas: (height, width) of the output array, for images of different shapes; each keeps its
        "size", and its mask holds 255 beyond.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> segmentation_eval(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (32, 48, 3)

    Reference: torchvision, references/segmentation/presets.py, SegmentationPresetEval.
    """
    return Compose([Resize(base, canvas), Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout)])
