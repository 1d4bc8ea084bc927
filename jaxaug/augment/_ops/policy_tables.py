"""The tables of the policies: operations, their ranges, and AutoAugment's learned sub-policies."""

from typing import Literal, NamedTuple, TypeAlias

Rounding = Literal["", "down", "up", "nearest"]  # of a magnitude, toward zero for "down"


class Operation(NamedTuple):
    """An operation of a policy, and its magnitude: `low` at strength 0, `high` at strength 1.

    Attributes:
      name: one of `_cuda.operation.NAMES`.
      low, high: the ends of the range.
      signed: True where the sign is drawn.
      rounding: of the magnitude.
      share: True for a share of the width (TranslateX) or height (TranslateY), else pixels.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    signed: bool = False
    rounding: Rounding = ""
    share: bool = False


Space: TypeAlias = tuple[Operation, ...]  # what a policy draws from, each as likely

_STATISTICS = (Operation("AutoContrast"), Operation("Equalize"))


def _enhancements(high: float) -> tuple[Operation, ...]:
    names = ("Brightness", "Color", "Contrast", "Sharpness")
    return tuple(Operation(name, 0.0, high, signed=True) for name in names)


def _moves(
    shear: float, translate: float, degrees: float, rounding: Rounding = "down", share: bool = True
) -> tuple[Operation, ...]:
    return (
        Operation("ShearX", 0.0, shear, signed=True),
        Operation("ShearY", 0.0, shear, signed=True),
        Operation("TranslateX", 0.0, translate, True, rounding, share),
        Operation("TranslateY", 0.0, translate, True, rounding, share),
        Operation("Rotate", 0.0, degrees, signed=True),
    )


# torchvision's, https://github.com/pytorch/vision, torchvision/transforms/v2/_auto_augment.py.
AUTO_AUGMENT: Space = (
    *_moves(0.3, 150 / 331, 30.0),
    *_enhancements(0.9),
    Operation("Posterize", 8.0, 4.0, rounding="nearest"),
    Operation("Solarize", 1.0, 0.0),
    *_STATISTICS,
    Operation("Invert"),
)

RAND_AUGMENT: Space = (Operation("Identity"), *AUTO_AUGMENT[:-1])

TRIVIAL_AUGMENT_WIDE: Space = (
    Operation("Identity"),
    *_moves(0.99, 32.0, 135.0, share=False),
    *_enhancements(0.99),
    Operation("Posterize", 8.0, 2.0, rounding="nearest"),
    Operation("Solarize", 1.0, 0.0),
    *_STATISTICS,
)

AUGMIX_PARTIAL: Space = (
    *_moves(0.3, 1 / 3, 30.0),
    Operation("Posterize", 4.0, 0.0, rounding="nearest"),
    Operation("Solarize", 1.0, 0.0),
    *_STATISTICS,
)

AUGMIX: Space = (*AUGMIX_PARTIAL, *_enhancements(0.9))

# timm's "increasing" one (`rand-m9-mstd0.5-inc1`), https://github.com/huggingface/pytorch-image-models,
# timm/data/auto_augment.py. There Solarize keeps levels below 256, SolarizeAdd adds levels of 255.
RAND_AUGMENT_TIMM: Space = (
    *_moves(0.3, 0.45, 30.0, rounding=""),
    *_enhancements(0.9),
    Operation("Posterize", 4.0, 0.0, rounding="up"),
    Operation("Solarize", 256 / 255, 0.0),
    Operation("SolarizeAdd", 0.0, 110.0, rounding="down"),
    *_STATISTICS,
    Operation("Invert"),
)


def rand_augment_big_vision(magnitude: float) -> Space:
    """Return the operations of big_vision without its Cutout; magnitude 10 is strength 1.

    Reference: https://github.com/google-research/big_vision, big_vision/pp/archive/autoaugment.py.
    Its enhancements go one way, its translations are pixels. TensorFlow converts the threshold of
    Solarize to 8 bits, so that 256 is 0, and 384 is 128.
    """
    threshold = int(magnitude / 10 * 256) % 256 / 255
    enhancements = ("Brightness", "Color", "Contrast", "Sharpness")
    return (
        *_moves(0.3, 100.0, 30.0, rounding="", share=False),
        *(Operation(name, -0.9, 0.9) for name in enhancements),  # factors from 0.1 to 1.9
        Operation("Posterize", 0.0, 4.0, rounding="down"),
        Operation("Solarize", threshold, threshold),
        Operation("SolarizeAdd", 0.0, 110.0, rounding="down"),
        *_STATISTICS,
        Operation("Invert"),
    )


# Rows of two: the name, its probability, its bin of 10 (0 where it has no magnitude).
SUB_POLICIES = {
    "imagenet": (
        (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 0)),
        (("Equalize", 0.8, 0), ("Equalize", 0.6, 0)),
        (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
        (("Equalize", 0.4, 0), ("Solarize", 0.2, 4)),
        (("Equalize", 0.4, 0), ("Rotate", 0.8, 8)),
        (("Solarize", 0.6, 3), ("Equalize", 0.6, 0)),
        (("Posterize", 0.8, 5), ("Equalize", 1.0, 0)),
        (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
        (("Equalize", 0.6, 0), ("Posterize", 0.4, 6)),
        (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
        (("Rotate", 0.4, 9), ("Equalize", 0.6, 0)),
        (("Equalize", 0.0, 0), ("Equalize", 0.8, 0)),
        (("Invert", 0.6, 0), ("Equalize", 1.0, 0)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
        (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
        (("Sharpness", 0.4, 7), ("Invert", 0.6, 0)),
        (("ShearX", 0.6, 5), ("Equalize", 1.0, 0)),
        (("Color", 0.4, 0), ("Equalize", 0.6, 0)),
        (("Equalize", 0.4, 0), ("Solarize", 0.2, 4)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 0)),
        (("Invert", 0.6, 0), ("Equalize", 1.0, 0)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Equalize", 0.8, 0), ("Equalize", 0.6, 0)),
    ),
    "cifar10": (
        (("Invert", 0.1, 0), ("Contrast", 0.2, 6)),
        (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
        (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
        (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.5, 0), ("Equalize", 0.9, 0)),
        (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
        (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
        (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
        (("Equalize", 0.6, 0), ("Equalize", 0.5, 0)),
        (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
        (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
        (("Equalize", 0.3, 0), ("AutoContrast", 0.4, 0)),
        (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
        (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
        (("Solarize", 0.5, 2), ("Invert", 0.0, 0)),
        (("Equalize", 0.2, 0), ("AutoContrast", 0.6, 0)),
        (("Equalize", 0.2, 0), ("Equalize", 0.6, 0)),
        (("Color", 0.9, 9), ("Equalize", 0.6, 0)),
        (("AutoContrast", 0.8, 0), ("Solarize", 0.2, 8)),
        (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
        (("Solarize", 0.4, 5), ("AutoContrast", 0.9, 0)),
        (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.9, 0), ("Solarize", 0.8, 3)),
        (("Equalize", 0.8, 0), ("Invert", 0.1, 0)),
        (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, 0)),
    ),
    "svhn": (
        (("ShearX", 0.9, 4), ("Invert", 0.2, 0)),
        (("ShearY", 0.9, 8), ("Invert", 0.7, 0)),
        (("Equalize", 0.6, 0), ("Solarize", 0.6, 6)),
        (("Invert", 0.9, 0), ("Equalize", 0.6, 0)),
        (("Equalize", 0.6, 0), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("AutoContrast", 0.8, 0)),
        (("ShearY", 0.9, 8), ("Invert", 0.4, 0)),
        (("ShearY", 0.9, 5), ("Solarize", 0.2, 6)),
        (("Invert", 0.9, 0), ("AutoContrast", 0.8, 0)),
        (("Equalize", 0.6, 0), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("Solarize", 0.3, 3)),
        (("ShearY", 0.8, 8), ("Invert", 0.7, 0)),
        (("Equalize", 0.9, 0), ("TranslateY", 0.6, 6)),
        (("Invert", 0.9, 0), ("Equalize", 0.6, 0)),
        (("Contrast", 0.3, 3), ("Rotate", 0.8, 4)),
        (("Invert", 0.8, 0), ("TranslateY", 0.0, 2)),
        (("ShearY", 0.7, 6), ("Solarize", 0.4, 8)),
        (("Invert", 0.6, 0), ("Rotate", 0.8, 4)),
        (("ShearY", 0.3, 7), ("TranslateX", 0.9, 3)),
        (("ShearX", 0.1, 6), ("Invert", 0.6, 0)),
        (("Solarize", 0.7, 2), ("TranslateY", 0.6, 7)),
        (("ShearY", 0.8, 4), ("Invert", 0.8, 0)),
        (("ShearX", 0.7, 9), ("TranslateY", 0.8, 3)),
        (("ShearY", 0.8, 5), ("AutoContrast", 0.7, 0)),
        (("ShearX", 0.7, 2), ("Invert", 0.1, 0)),
    ),
}
