"""Recipes of trainings without labels: views of one image (SimCLR, BYOL, DINO), masked parts (MAE,
V-JEPA), pairs with texts (SigLIP).
"""

from typing import Any

from jaxaug._checks import check_positive_int
from jaxaug.augment import (
    ColorJitter,
    Compose,
    Frames,
    GaussianBlur,
    MultiView,
    Normalize,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomSolarize,
    Resize,
    ToFloat,
    Transform,
)
from jaxaug.augment.recipes._statistics import IMAGENET_MEAN, IMAGENET_STD

_SIGMA = (0.1, 2.0)  # of the blur in pixels, in all three papers
_PIL_THRESHOLD = 128 / 255  # of ImageOps.solarize
_PIL_KERNEL = 17  # PIL blurs without a bound: 4 standard deviations of 2 pixels on both sides


def simclr(
    size: int = 224,
    strength: float = 1.0,
    blur: float = 0.5,
    dtype: Any = "float32",
    layout: str = "HWC",
) -> MultiView:
    """Return two views, "view": random resized crop, flip, jitter, gray, blur.

    Args:
      size: of the crop, in pixels.
      strength: of the color jitter; 0.5 for CIFAR-10.
      blur: the probability of the blur; 0 for CIFAR-10.
      dtype, layout: of the output, in [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> simclr(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8))["view"].shape
      (2, 32, 32, 3)

    Reference: T. Chen et al., "A Simple Framework for Contrastive Learning of Visual
      Representations", 2020, appendix A; google-research/simclr, data_util.py.

    Differs from it in antialiased crops, and in torchvision's contrast and saturation (there about
    the mean of each channel, and of HSV).
    """
    check_positive_int("size", size)
    jitter = 0.8 * strength
    chain = Compose(
        [
            RandomResizedCrop(size, interpolation="bicubic"),
            RandomHorizontalFlip(),
            ColorJitter(jitter, jitter, jitter, 0.2 * strength, p=0.8),
            RandomGrayscale(p=0.2),
            *([GaussianBlur(_tenth(size), _SIGMA, p=blur)] if blur else []),
            ToFloat(dtype, layout),
        ]
    )
    return MultiView({"view": (chain, 2)})


def byol(size: int = 224, dtype: Any = "float32", layout: str = "HWC") -> MultiView:
    """Return "view_1", always blurred, and "view_2", seldom blurred and at times solarized.

    Args:
      size: of the crops, in pixels.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> byol(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8))["view_2"].shape
      (1, 32, 32, 3)

    Reference: J.-B. Grill et al., "Bootstrap Your Own Latent", 2020, appendix B;
      google-deepmind/deepmind-research, byol/utils/augmentations.py.

    Differs from it in antialiased crops, and in torchvision's brightness, contrast and saturation
    (there added, about the mean of each channel, and of HSV).
    """
    check_positive_int("size", size)

    def view(blur: float, *last: Transform) -> Compose:
        return Compose(
            [
                RandomResizedCrop(size, interpolation="bicubic"),
                *_flip_and_color(),
                GaussianBlur(_tenth(size), _SIGMA, p=blur),
                *last,
                Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
            ]
        )

    solarize = RandomSolarize(0.5, p=0.2)
    return MultiView({"view_1": (view(1.0), 1), "view_2": (view(0.1, solarize), 1)})


def dino(
    global_size: int = 224,
    local_size: int = 96,
    local_crops: int = 8,
    dtype: Any = "float32",
    layout: str = "HWC",
    share: float = 0.4,
) -> MultiView:
    """Return "global_1", "global_2" (one large crop each) and "local" (small crops).

    Args:
      global_size, local_size: of the crops, in pixels.
      local_crops: how many small crops.
      dtype, layout: of the output.
      share: of the image, the most that small crops show and the least of large ones; 0.32 for
        DINOv2 and DINOv3.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> views = dino(32, 16)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8))
      >>> views["global_1"].shape, views["local"].shape
      ((1, 32, 32, 3), (8, 16, 16, 3))

    Reference: M. Caron et al., "Emerging Properties in Self-Supervised Vision Transformers", 2021;
      facebookresearch/dino, main_dino.py, `DataAugmentationDINO`; the same of facebookresearch's
      dinov2 (ssl_default_config.yaml: 0.32 and 0.05) and dinov3, dinov3/data/augmentations.py.
    """

    def view(crop: RandomResizedCrop, blur: float, *last: Transform) -> Compose:
        return Compose(
            [
                crop,
                *_flip_and_color(),
                GaussianBlur(_PIL_KERNEL, _SIGMA, p=blur),
                *last,
                Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
            ]
        )

    large = RandomResizedCrop(global_size, scale=(share, 1.0), interpolation="bicubic")
    small = RandomResizedCrop(local_size, scale=(0.05, share), interpolation="bicubic")
    solarize = RandomSolarize(_PIL_THRESHOLD, p=0.2)
    return MultiView(
        {
            "global_1": (view(large, 1.0), 1),
            "global_2": (view(large, 0.1, solarize), 1),
            "local": (view(small, 0.5), local_crops),
        }
    )


def mae_train(size: int = 224, dtype: Any = "float32", layout: str = "HWC") -> Compose:
    """Return random resized crop, flip, normalization: what masked autoencoders are trained on.

    Args:
      size: of the crop, in pixels.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> mae_train(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: K. He et al., "Masked Autoencoders Are Scalable Vision Learners", 2021;
      facebookresearch/mae, main_pretrain.py: scale (0.2, 1.0), bicubic.
    """
    return Compose(
        [
            RandomResizedCrop(size, scale=(0.2, 1.0), interpolation="bicubic"),
            RandomHorizontalFlip(),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def vjepa_train(size: int = 224, dtype: Any = "float32", layout: str = "HWC") -> Frames:
    """Return random resized crop, flip, normalization, alike for all frames of a video.

    Args:
      size: of the crop, in pixels.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> vjepa_train(32)(jax.random.key(0), jnp.zeros((4, 40, 60, 3), jnp.uint8)).shape
      (4, 32, 32, 3)

    Reference: A. Bardes et al., "Revisiting Feature Prediction for Learning Visual Representations
      from Video", 2024; facebookresearch/jepa, configs/pretrain/vitl16.yaml and
      app/vjepa/transforms.py: scale (0.3, 1.0), aspect (0.75, 1.35), no policy, no erasing.
    """
    chain = Compose(
        [
            RandomResizedCrop(size, scale=(0.3, 1.0), ratio=(0.75, 1.35)),
            RandomHorizontalFlip(),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )
    return Frames(chain)


def siglip(size: int = 224, dtype: Any = "float32", layout: str = "HWC") -> Compose:
    """Return resize, aspect not kept, and values in [-1, 1]: images of pairs with texts.

    Args:
      size: of the square output, in pixels.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> siglip(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).min().item()
      -1.0

    Reference: X. Zhai et al., "Sigmoid Loss for Language Image Pre-Training", 2023;
      google-research/big_vision, `resize(224)|value_range(-1,1)`, in training and evaluation.
    """
    return Compose([Resize((size, size)), Normalize(0.5, 0.5, dtype, layout)])


def _flip_and_color() -> list[Transform]:
    """Return what BYOL and DINO do between crop and blur."""
    jitter = ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8)
    return [RandomHorizontalFlip(), jitter, RandomGrayscale(p=0.2)]


def _tenth(size: int) -> int:
    """Return the taps of a blur of a tenth of the image, odd, as SimCLR and BYOL have them."""
    return size // 10 // 2 * 2 + 1
