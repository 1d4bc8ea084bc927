"""The demo, from drawing the data to a trained network."""

import importlib.util

import jax

import jaxaug
from jaxaug import Loader, augment
from jaxaug._demo.data import make_dataset
from jaxaug._demo.preview import draw_sheet, folder_images
from jaxaug._demo.speed import augment_rate, decode_rate, pipeline_rate
from jaxaug._typing import PathLike
from jaxaug.iterators import ImageFolder

IMAGE_SIZE = 64
MEAN = (0.5, 0.5, 0.5)
STD = (0.25, 0.25, 0.25)

TRAIN = augment.Compose(
    [
        augment.RandomResizedCrop(IMAGE_SIZE, scale=(0.4, 1.0)),
        augment.RandomHorizontalFlip(),
        augment.RandomVerticalFlip(),
        augment.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.1),
        augment.Normalize(MEAN, STD),
    ]
)
VALIDATE = augment.Compose(
    [
        augment.Resize(IMAGE_SIZE),
        augment.CenterCrop(IMAGE_SIZE),
        augment.Normalize(MEAN, STD),
    ]
)


def run_demo(
    out: PathLike, epochs: int = 8, cache: PathLike | None = None, count: int = 2000
) -> None:
    """Draw a data set, write its contact sheet, measure the pipeline, train; print each result.

    Args:
      out: the PNG of the contact sheet.
      epochs: epochs of training.
      cache: folder for the data set, see `make_dataset`.
      count: images to draw.
    """
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    _say("jaxaug", f"{jaxaug.__version__} on jax {jax.__version__}, {devices}")

    root = make_dataset(cache, count)
    images = ImageFolder(root / "train")
    val_images = ImageFolder(root / "val")
    _say(
        "data",
        f"{len(images)} + {len(val_images)} images of {len(images.classes)} classes in {root}",
    )
    sheet = draw_sheet(folder_images(root / "train"), out, "jaxaug demo")
    _say("sheet", str(sheet.resolve()))

    batch_size = 64 // jax.device_count() * jax.device_count() or jax.device_count()
    _measure(images, batch_size)

    if not all(importlib.util.find_spec(name) for name in ("flax", "optax")):
        _say("training", "needs Flax and Optax: pip install flax optax")
        return
    _train(images, val_images, batch_size, epochs)


def _measure(images: ImageFolder, batch_size: int) -> None:
    with Loader(images, batch_size, transform=TRAIN) as loader:
        canvas = loader.decoders["image"].canvas
        pipeline = pipeline_rate(loader, batch_size)
    decode, batch = decode_rate(images, batch_size, canvas)
    height, width = canvas
    augmented = augment_rate(TRAIN, batch)
    _say(
        "decode", f"{decode:7,.0f} images/s  JPEG to canvases of {height} x {width}, on one device"
    )
    _say(
        "augment",
        f"{augmented:7,.0f} images/s  canvases to {IMAGE_SIZE} x {IMAGE_SIZE}, on one device",
    )
    _say("pipeline", f"{pipeline:7,.0f} images/s  files to batches of {batch_size}, on all devices")


def _train(images: ImageFolder, val_images: ImageFolder, batch_size: int, epochs: int) -> None:
    from jaxaug._demo.train import train  # needs Flax

    with (
        Loader(images, batch_size, transform=TRAIN) as loader,
        Loader(
            val_images, batch_size, transform=VALIDATE, shuffle=False, last_batch="pad"
        ) as val_loader,
    ):
        _say("training", f"{epochs} epochs of {len(loader)} batches; the first step is compiled")
        for result in train(loader, val_loader, len(images.classes), epochs):
            scores = f"loss {result.loss:.3f}  validation accuracy {result.accuracy:.1%}"
            _say("training", f"epoch {result.epoch:2} of {epochs}  {scores}")


def _say(subject: str, text: str) -> None:
    print(f"{subject:10}{text}", flush=True)
