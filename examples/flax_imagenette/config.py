"""The settings of a run, in one frozen object."""

import argparse
import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a training run; the defaults are Imagenette's.

    Attributes:
      data: folder with one folder per split, each with one folder of images per class; or "tfds:"
        and the name of a prepared data set of TFDS, or its folder.
      train_split, test_split: names of the split folders, or splits of TFDS such as "train[:90%]".
      augment: a key of `input.AUGMENTATIONS`.
      image_size: side of the square images the network sees, pixels.
      blocks: residual blocks of each stage; a stage halves the side and doubles the width.
      width: channels of the first stage.
      batch_size: global, over all devices.
      epochs: passes over the training images.
      learning_rate: the highest; a linear warm-up over a twentieth of the steps, then a cosine to
        0.
      momentum: of SGD with Nesterov's correction.
      weight_decay: on kernels only.
      dtype: of the network's computation ("float32" or "bfloat16"); parameters are float32.
      seed: of parameters, order and augmentation.
      checkpoint: folder for checkpoints; none are written when it is empty.
      checkpoint_every: steps from one checkpoint to the next.
    """

    data: str = ""
    train_split: str = "train"
    test_split: str = "val"
    augment: str = "flip_resized_crop_jitter"
    image_size: int = 160
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    width: int = 64
    batch_size: int = 128
    epochs: int = 40
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    dtype: str = "float32"
    seed: int = 0
    checkpoint: str = ""
    checkpoint_every: int = 200


PRESETS = {
    "imagenette": Config(),
    "cifar10": Config(test_split="test", augment="flip_crop_jitter", image_size=32, epochs=30),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add an option for each field, and `--preset` for the values of those not given."""
    parser.add_argument("--preset", choices=PRESETS, default="imagenette")
    for field in dataclasses.fields(Config):
        required = field.name == "data"
        option = "--" + field.name.replace("_", "-")
        if field.name == "blocks":
            parser.add_argument(option, type=int, nargs="+")
        else:
            parser.add_argument(option, type=type(field.default), required=required)


def from_arguments(arguments: argparse.Namespace) -> Config:
    """Return the preset with the given options put in."""
    given = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(Config)}
    given = {name: value for name, value in given.items() if value is not None}
    if "blocks" in given:
        given["blocks"] = tuple(given["blocks"])
    return dataclasses.replace(PRESETS[arguments.preset], **given)
