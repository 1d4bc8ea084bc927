"""Recipes of classifiers: ImageNet, DeiT III, CIFAR."""

from typing import Any

from jaxaug.augment import (
    CenterCrop,
    ColorJitter,
    Compose,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ThreeAugment,
    Transform,
)
from jaxaug.augment.recipes._statistics import (
    CIFAR10_MEAN,
    CIFAR10_STD,
    IMAGENET_MEAN,
    IMAGENET_STD,
)


def imagenet_train(
    size: int = 224,
    policy: Transform | None = None,
    erase: float = 0.0,
    dtype: Any = "float32",
    layout: str = "HWC",
) -> Compose:
    """Return random resized crop, flip, `policy`, erasing, normalization.

    torchvision's older weights (ResNet-50, V1) are trained with the defaults. Its newer ones (V2)
    take `imagenet_train(176, TrivialAugmentWide(interpolation="bilinear"), erase=0.1)`, and mix the
    batch by `Loader(batch_transform=MixUpOrCutMix(1000, mixup_alpha=0.2, cutmix_alpha=1.0))`.

    Args:
      size: of the crop, in pixels.
      policy: None, or any transform; torchvision's choices are `AutoAugment("imagenet")`,
        `RandAugment()`, `TrivialAugmentWide()` and `AugMix()`, with interpolation="bilinear".
      erase: the probability of `RandomErasing`, which leaves zeros after the normalization.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> imagenet_train(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: torchvision, references/classification/presets.py, ClassificationPresetTrain; the
      README beside it has the commands of the newer weights.
    """
    return Compose(
        [
            RandomResizedCrop(size),
            RandomHorizontalFlip(),
            *_optional(policy, erase, IMAGENET_MEAN),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def imagenet_eval(
    size: int = 224, resize: int = 256, dtype: Any = "float32", layout: str = "HWC"
) -> Compose:
    """Return resize of the shorter side, center crop, normalization.

    Args:
      size: of the crop, in pixels.
      resize: the shorter side before, in pixels; 232 for torchvision's newer weights.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> imagenet_eval(32, 36)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: torchvision, references/classification/presets.py, ClassificationPresetEval.
    """
    normalize = Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout)
    return Compose([Resize(resize), CenterCrop(size), normalize])


def deit3_train(
    size: int = 224,
    color_jitter: float = 0.3,
    simple_crop: bool = False,
    dtype: Any = "float32",
    layout: str = "HWC",
) -> Compose:
    """Return crop, flip, one of three (gray, solarize, blur), jitter, normalization.

    The paper mixes the batch, too: `Loader(batch_transform=MixUpOrCutMix(1000))`, with its defaults
    of alpha 0.8 and 1.0.

    Args:
      size: of the crop, in pixels.
      color_jitter: of brightness, contrast and saturation.
      simple_crop: False for a random resized crop; True, as on ImageNet-21k, resizes the shorter
        side and crops from a reflected border of 4 pixels.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> deit3_train(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: H. Touvron et al., "DeiT III: Revenge of the ViT", 2022; facebookresearch/deit,
      augment.py, `new_data_aug_generator`, and README_revenge.md for the numbers.
    """
    crop: list[Transform] = [RandomResizedCrop(size, interpolation="bicubic")]
    if simple_crop:
        resize = Resize(size, interpolation="bicubic")
        crop = [resize, RandomCrop(size, padding=4, padding_mode="reflect")]
    return Compose(
        [
            *crop,
            RandomHorizontalFlip(),
            ThreeAugment(),
            ColorJitter(color_jitter, color_jitter, color_jitter),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def convnext_train(
    size: int = 224,
    erase: float = 0.25,
    dtype: Any = "float32",
    layout: str = "HWC",
) -> Compose:
    """Return random resized crop, flip, timm's RandAugment, erasing by noise, normalization.

    ConvNeXt is trained with the defaults, and mixes the batch:
    `Loader(batch_transform=MixUpOrCutMix(1000))`, with its defaults of alpha 0.8 and 1.0. timm's
    EfficientNets take `erase=0.2` and no mixing.

    Args:
      size: of the crop, in pixels.
      erase: the probability of `RandomErasing`.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> convnext_train(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: Z. Liu et al., "A ConvNet for the 2020s", 2022; facebookresearch/ConvNeXt, main.py:
      rand-m9-mstd0.5-inc1, reprob 0.25, remode pixel, bicubic. pytorch-image-models, training
      commands of EfficientNet: rand-m9-mstd0.5, reprob 0.2, remode pixel.

    Differs from EfficientNet's in increasing operations, "inc1", and in interpolation, there any.
    """
    return Compose(
        [
            RandomResizedCrop(size, interpolation="bicubic"),
            RandomHorizontalFlip(),
            RandAugment(2, 9.0, variant="timm", magnitude_std=0.5),
            RandomErasing(erase, ratio=(0.3, 1 / 0.3), scale=(0.02, 1 / 3), value="random"),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def cifar_train(
    size: int = 32,
    policy: Transform | None = None,
    erase: float = 0.0,
    dtype: Any = "float32",
    layout: str = "HWC",
) -> Compose:
    """Return random crop of the image padded by 4 pixels, flip, `policy`, erasing, normalization.

    Args:
      size: of the crop, in pixels.
      policy: None, or for example `AutoAugment("cifar10")` or `TrivialAugmentWide()`.
      erase: the probability of `RandomErasing`, which leaves zeros after the normalization.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> cifar_train()(jax.random.key(0), jnp.zeros((32, 32, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: K. He et al., "Deep Residual Learning for Image Recognition", 2015, section 4.2.

    Differs from it in the normalization, there by the mean of each pixel.
    """
    return Compose(
        [
            RandomCrop(size, padding=4),
            RandomHorizontalFlip(),
            *_optional(policy, erase, CIFAR10_MEAN),
            Normalize(CIFAR10_MEAN, CIFAR10_STD, dtype, layout),
        ]
    )


def _optional(
    policy: Transform | None, erase: float, mean: tuple[float, float, float]
) -> list[Transform]:
    """Return the policy, and erasing by the color that is 0 after the normalization."""
    steps = [] if policy is None else [policy]
    return steps if erase == 0 else [*steps, RandomErasing(erase, value=mean)]
