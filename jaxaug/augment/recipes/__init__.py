"""Recipes: the chains of well-known trainings, with the values that their authors published.

Each returns a configuration that can be looked at, changed and called. Inputs are uint8 images,
outputs float arrays for the model; `dtype` and `layout` are those of `Normalize`.
"""

from typing import Any

from jaxaug._checks import check_positive_int
from jaxaug.augment._compose import Compose
from jaxaug.augment._transform import Transform
from jaxaug.augment.blur import GaussianBlur
from jaxaug.augment.color import ColorJitter, Grayscale
from jaxaug.augment.crop import CenterCrop, RandomCrop, RandomResizedCrop
from jaxaug.augment.flip import RandomHorizontalFlip
from jaxaug.augment.output import Normalize, ToFloat
from jaxaug.augment.policies import ThreeAugment
from jaxaug.augment.resize import Resize
from jaxaug.augment.tone import RandomSolarize
from jaxaug.augment.views import MultiView

# The mean and standard deviation of the training sets' pixels, as torchvision's references have
# them (ImageNet), and of CIFAR-10's 50,000 images.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2470, 0.2435, 0.2616)

_SOLARIZE_FROM = 128 / 255  # of PIL's ImageOps.solarize
_PIL_KERNEL = 17  # PIL blurs without a bound: 4 standard deviations of 2 pixels on both sides


def imagenet_train(
    size: int = 224, policy: Transform | None = None, dtype: Any = "float32", layout: str = "HWC"
) -> Compose:
    """Return random resized crop, flip, `policy`, normalization.

    Args:
      size: of the crop, in pixels.
      policy: None, or for example `TrivialAugmentWide(interpolation="bilinear")`, as torchvision's
        newer weights have it.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> imagenet_train(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: torchvision, references/classification/presets.py, ClassificationPresetTrain.
    """
    return Compose(
        [
            RandomResizedCrop(size),
            RandomHorizontalFlip(),
            *([] if policy is None else [policy]),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def imagenet_eval(
    size: int = 224, resize: int = 256, dtype: Any = "float32", layout: str = "HWC"
) -> Compose:
    """Return resize of the shorter side, center crop, normalization.

    Args:
      size: of the crop, in pixels.
      resize: the shorter side before, in pixels.
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
    size: int = 224, color_jitter: float = 0.3, dtype: Any = "float32", layout: str = "HWC"
) -> Compose:
    """Return random resized crop, flip, one of three (gray, solarize, blur), jitter, normalization.

    Args:
      size: of the crop, in pixels.
      color_jitter: of brightness, contrast and saturation.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> deit3_train(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: H. Touvron et al., "DeiT III: Revenge of the ViT", 2022; facebookresearch/deit,
      augment.py, `new_data_aug_generator`.

    Differs from it in bilinear instead of bicubic crops.
    """
    return Compose(
        [
            RandomResizedCrop(size),
            RandomHorizontalFlip(),
            ThreeAugment(),
            ColorJitter(color_jitter, color_jitter, color_jitter),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def cifar_train(
    size: int = 32, policy: Transform | None = None, dtype: Any = "float32", layout: str = "HWC"
) -> Compose:
    """Return random crop of the image padded by 4 pixels, flip, `policy`, normalization.

    Args:
      size: of the crop, in pixels.
      policy: None, or for example `AutoAugment("cifar10")`.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> cifar_train()(jax.random.key(0), jnp.zeros((32, 32, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: K. He et al., "Deep Residual Learning for Image Recognition", 2015, section 4.2.
    """
    return Compose(
        [
            RandomCrop(size, padding=4),
            RandomHorizontalFlip(),
            *([] if policy is None else [policy]),
            Normalize(CIFAR10_MEAN, CIFAR10_STD, dtype, layout),
        ]
    )


def simclr(
    size: int = 224, strength: float = 1.0, dtype: Any = "float32", layout: str = "HWC"
) -> MultiView:
    """Return two views, "view": random resized crop, flip, jitter, gray, blur.

    Args:
      size: of the crop, in pixels.
      strength: of the color jitter; 0.5 for CIFAR-10.
      dtype, layout: of the output, in [0, 1].

    Example:
      >>> import jax, jax.numpy as jnp
      >>> simclr(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8))["view"].shape
      (2, 32, 32, 3)

    Reference: T. Chen et al., "A Simple Framework for Contrastive Learning of Visual
      Representations", 2020, appendix A.
    """
    check_positive_int("size", size)
    jitter = 0.8 * strength
    chain = Compose(
        [
            RandomResizedCrop(size),
            RandomHorizontalFlip(),
            ColorJitter(jitter, jitter, jitter, 0.2 * strength, p=0.8),
            Grayscale(p=0.2),
            GaussianBlur(size // 10 // 2 * 2 + 1, (0.1, 2.0), p=0.5),  # a tenth of the image
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

    Reference: J.-B. Grill et al., "Bootstrap Your Own Latent", 2020, appendix B.

    Differs from it in bilinear instead of bicubic crops.
    """

    def view(blur: float, solarize: float) -> Compose:
        return Compose(
            [
                RandomResizedCrop(size),
                *_flip_and_color(),
                GaussianBlur(23, (0.1, 2.0), p=blur),
                RandomSolarize(_SOLARIZE_FROM, p=solarize),
                Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
            ]
        )

    return MultiView({"view_1": (view(1.0, 0.0), 1), "view_2": (view(0.1, 0.2), 1)})


def dino(
    global_size: int = 224,
    local_size: int = 96,
    local_crops: int = 8,
    dtype: Any = "float32",
    layout: str = "HWC",
) -> MultiView:
    """Return "global_1", "global_2" (one large crop each) and "local" (small crops).

    Args:
      global_size, local_size: of the crops, in pixels.
      local_crops: how many small crops.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> views = dino(32, 16)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8))
      >>> views["global_1"].shape, views["local"].shape
      ((1, 32, 32, 3), (8, 16, 16, 3))

    Reference: M. Caron et al., "Emerging Properties in Self-Supervised Vision Transformers", 2021;
      facebookresearch/dino, main_dino.py, `DataAugmentationDINO`.

    Differs from it in bilinear instead of bicubic crops.
    """

    def view(size: int, scale: tuple[float, float], blur: float, solarize: float) -> Compose:
        return Compose(
            [
                RandomResizedCrop(size, scale=scale),
                *_flip_and_color(),
                GaussianBlur(_PIL_KERNEL, (0.1, 2.0), p=blur),
                RandomSolarize(_SOLARIZE_FROM, p=solarize),
                Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
            ]
        )

    return MultiView(
        {
            "global_1": (view(global_size, (0.4, 1.0), 1.0, 0.0), 1),
            "global_2": (view(global_size, (0.4, 1.0), 0.1, 0.2), 1),
            "local": (view(local_size, (0.05, 0.4), 0.5, 0.0), local_crops),
        }
    )


def _flip_and_color() -> list[Transform]:
    """Return what BYOL and DINO do between crop and blur."""
    jitter = ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8)
    return [RandomHorizontalFlip(), jitter, Grayscale(p=0.2)]
