"""The recipe of AugReg: Vision Transformers from RandAugment and mixup in seven strengths."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxaug._checks import check_choice
from jaxaug._typing import Key
from jaxaug.augment import (
    Compose,
    ImageInfo,
    MixUp,
    Normalize,
    RandAugment,
    RandomChoice,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Transform,
)
from jaxaug.augment._base import Color
from jaxaug.augment._ops.erase import Holes, Occlusion
from jaxaug.augment.random import integer, uniform

_GRAY = 128 / 255
_OPERATIONS = 15  # of RandAugment, beside Cutout
_CUTOUT = 40  # pixels from its center to its sides at magnitude 10


class _Strength(NamedTuple):
    """The operations of RandAugment, their magnitude, and alpha of mixup, 0 without it."""

    num_ops: int
    magnitude: int
    alpha: float


_STRENGTHS = {
    "none": _Strength(0, 0, 0.0),
    "light1": _Strength(2, 0, 0.0),
    "light2": _Strength(2, 10, 0.2),
    "medium1": _Strength(2, 15, 0.2),
    "medium2": _Strength(2, 15, 0.5),
    "strong1": _Strength(2, 20, 0.5),
    "strong2": _Strength(2, 20, 0.8),
}


def augreg_train(
    strength: str = "medium2",
    size: int = 224,
    num_classes: int | None = None,
    dtype: Any = "float32",
    layout: str = "HWC",
) -> tuple[Compose, MixUp | None]:
    """Return random resized crop, flip, RandAugment, values in [-1, 1]; and mixup for the batch.

    Give them to `Loader(transform=..., batch_transform=...)`.

    | strength | RandAugment | mixup |
    | --- | --- | --- |
    | "none" | | |
    | "light1" | 2 operations of magnitude 0 | |
    | "light2" | 2 of 10 | 0.2 |
    | "medium1" | 2 of 15 | 0.2 |
    | "medium2" | 2 of 15 | 0.5 |
    | "strong1" | 2 of 20 | 0.5 |
    | "strong2" | 2 of 20 | 0.8 |

    Magnitude 0 is not nothing: it inverts, posterizes to black and turns gray. The authors take
    "light1" for ViT-Ti/16 on ImageNet, "light2" for S/32, "medium2" from S/16 on. Dropout and
    stochastic depth, of which the paper has settings as well, belong to the model.

    Args:
      strength: a row of the table.
      size: of the crop, in pixels.
      num_classes: of the soft labels that `MixUp` makes of whole ones.
      dtype, layout: of the output.

    Raises:
      ValueError: no such strength.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> chain, mixup = augreg_train("light2", 32, num_classes=10)
      >>> chain(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape, mixup.alpha
      ((32, 32, 3), 0.2)

    Reference: A. Steiner et al., "How to train your ViT? Data, Augmentation, and Regularization in
      Vision Transformers", 2021; google-research/big_vision, configs/vit_i1k.py, with
      pp/archive/autoaugment.py for the operations.

    Differs from it in an antialiased resize of the crop, there without, and in mixup, there with
    one weight for the whole batch. Solarize is as there, where TensorFlow's 8 bits turn the
    threshold 256 into 0, so that "light2" inverts all of the image.
    """
    check_choice("strength", strength, tuple(_STRENGTHS))
    num_ops, magnitude, alpha = _STRENGTHS[strength]
    chain = Compose(
        [
            RandomResizedCrop(size, (0.05, 1.0), (0.75, 1.33)),
            RandomHorizontalFlip(),
            *[_operation(magnitude) for _ in range(num_ops)],
            Normalize(0.5, 0.5, dtype, layout),
        ]
    )
    return chain, MixUp(num_classes, alpha) if alpha else None


def _operation(magnitude: int) -> Transform:
    """Return one of 16 operations, each as likely."""
    policy = RandAugment(1, magnitude, variant="big_vision", interpolation="nearest", fill=_GRAY)
    cutout = _Cutout(_CUTOUT * magnitude // 10)
    return RandomChoice([policy, cutout], weights=(_OPERATIONS, 1))


@dataclass(frozen=True)
class _Cutout(Occlusion):
    """Paint over a square around a random pixel, as much of it as lies on the image.

    Args:
      reach: pixels from the center to the sides.
    """

    reach: int
    value: Color = _GRAY
    mask_fill: int | None = None

    def make_params(self, key: Key, info: ImageInfo) -> Holes:
        """Draw the center."""
        numbers = uniform(key, shape=(2, 1))
        height, width = info.height_width
        side = jnp.full((1,), 2 * self.reach, jnp.int32)
        top = integer(numbers[0], 0, height) - self.reach
        left = integer(numbers[1], 0, width) - self.reach
        return Holes(top, left, side, side)
