"""A function that takes the padding of the canvas for image is told so once."""

import warnings

import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.iterators import InMemory
from tests.images import encode
from tests.iterators.loaders import one_device

crop = augment.Compose([augment.RandomResizedCrop(16)])


def notes(sizes, transform, **options):
    images = [encode(np.full((*size, 3), 255, np.uint8), "PNG") for size in sizes]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Loader(
            InMemory(images), 2, transform=transform, sharding=one_device(), **options
        ) as loader:
            zeros = float(np.mean(np.asarray(next(loader)["image"]) == 0))
    return [str(each.message) for each in caught if "padding" in str(each.message)], zeros


VARIED = [(20, 60), (60, 20)]


@pytest.mark.parametrize(
    "transform",
    [
        lambda key, sample: {"image": crop(key, sample["image"])},
        lambda key, sample: {"image": crop(key, {"image": sample["image"]})["image"]},
        lambda key, sample: {"image": sample["image"] / 255},
    ],
)
def test_a_function_that_passes_the_image_alone_is_told_so(transform):
    (note,), zeros = notes(VARIED, transform)
    assert zeros > 0.3 and "crop(key, sample)" in note


@pytest.mark.parametrize(
    "transform",
    [
        crop,
        lambda key, sample: crop(key, sample),
        lambda key, sample: {"image": crop(key, sample)["image"]},
        lambda key, sample: {"label": sample["size"][0], "mean": sample["image"].mean()},
        lambda key, sample: {**sample, "image": sample["image"] / 255},
    ],
)
def test_a_function_that_uses_the_size_or_keeps_it_is_not(transform):
    if transform is crop:
        assert notes(VARIED, transform) == ([], 0)
        return
    images = [encode(np.full((*size, 3), 255, np.uint8), "PNG") for size in VARIED]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*padding")
        Loader(InMemory(images), 2, transform=transform, sharding=one_device()).close()


def test_images_of_one_size_have_no_padding():
    transform = lambda key, sample: {"image": crop(key, sample["image"])}  # noqa: E731
    assert notes([(20, 60), (20, 60)], transform) == ([], 0)
