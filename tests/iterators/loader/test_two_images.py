"""Two encoded images in a record: each its own column, on canvases of one or of two sizes."""

import jax
import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.decode import Encoded, Image, decode_image
from jaxaug.iterators import Buckets
from tests.images import encode, picture
from tests.iterators.loaders import one_device


class Stereo:
    """Pairs of JPEGs; the right one of record 2 is smaller where `odd`."""

    def __init__(self, odd=False):
        self.left = [encode(picture(number, 40, 56)) for number in range(8)]
        self.right = [encode(picture(number + 8, 40, 56)) for number in range(8)]
        if odd:
            self.right[2] = encode(picture(10, 30, 56))

    def __len__(self):
        return len(self.left)

    def read(self, indices):
        chosen = indices.tolist()
        return {
            "image": Encoded.from_bytes([self.left[number] for number in chosen]),
            "right": Encoded.from_bytes([self.right[number] for number in chosen]),
            "label": indices,
        }

    def describe(self, index):
        return {"record": index}

    def fingerprint(self):
        return "stereo"


OPTIONS = {"shuffle": False, "sharding": one_device()}


def test_both_images_of_a_record_lie_on_one_canvas():
    source = Stereo()
    columns = {"image": Image(canvas=(48, 64)), "right": Image(like="image")}
    with Loader(source, 8, decode=columns, **OPTIONS) as loader:
        batch = jax.device_get(next(loader))
        assert set(loader.decoders) == {"image", "right"}
        assert loader.sample(3)["original"].shape == (40, 56, 3)
    assert sorted(batch) == [
        "image",
        "index",
        "label",
        "original_size",
        "right",
        "size",
        "valid",
    ]
    for row in range(8):
        for name, files in (("image", source.left), ("right", source.right)):
            np.testing.assert_array_equal(batch[name][row, :40, :56], decode_image(files[row]))
            assert not batch[name][row, 40:].any()


def test_one_draw_moves_both():
    chain = augment.Compose(
        [augment.RandomCrop(32), augment.RandomHorizontalFlip()], targets={"right": "image"}
    )
    source = Stereo()
    source.right = source.left
    columns = {"image": Image(), "right": Image(like="image")}
    with Loader(source, 8, transform=chain, decode=columns, **OPTIONS) as loader:
        batch = next(loader)
    np.testing.assert_array_equal(batch["image"], batch["right"])


@pytest.mark.filterwarnings("ignore:1 of 8 records could not be decoded")
def test_an_image_of_another_size_is_a_bad_record():
    columns = {"image": Image(canvas=(48, 64)), "right": Image(like="image")}
    with Loader(Stereo(odd=True), 8, decode=columns, on_error="mask", **OPTIONS) as loader:
        batch = next(loader)
        assert batch["valid"].tolist() == [True, True, False] + [True] * 5
        reason = loader.stats["bad_records"][0]["reason"]
    assert reason == "'right': it is 30 x 56 pixels, 'image' 40 x 56"


def test_images_of_their_own_sizes_have_canvases_of_their_own():
    columns = {"image": Image(canvas=(48, 64)), "right": Image(canvas=(20, 28), channels="gray")}
    with Loader(Stereo(odd=True), 8, decode=columns, last_batch="pad", **OPTIONS) as loader:
        batch = next(loader)
    assert batch["right"].shape == (8, 20, 28, 1) and batch["image"].shape == (8, 48, 64, 3)
    assert batch["right_size"].tolist() == [[20, 28]] * 2 + [[15, 28]] + [[20, 28]] * 5
    assert batch["right_original_size"][2].tolist() == [30, 56]


def test_what_a_second_image_cannot_be():
    with pytest.raises(ValueError, match="`decode` must say how column 'right' is decoded"):
        Loader(Stereo(), 8, **OPTIONS)
    with pytest.raises(ValueError, match="`canvas` of column 'right' must be left out beside"):
        wrong = {"image": Image(), "right": Image(canvas=(8, 8), like="image")}
        Loader(Stereo(), 8, decode=wrong, **OPTIONS)
    with pytest.raises(ValueError, match="column 'right' follows column 'left', which has no"):
        Loader(Stereo(), 8, decode={"right": Image(like="left")}, **OPTIONS)


def test_buckets_are_of_the_image_that_the_other_is_like():
    """By the second one alone, the first would keep its height."""
    columns = {"image": Image(canvas=(64, 64)), "right": Image(like="image")}
    options = {"decode": columns, "sharding": one_device()}
    ratios = np.full(8, 40 / 56)
    with Loader(Stereo(), 8, shuffle=Buckets(ratios, [0.75, 1], 8, of="image"), **options) as both:
        batch = next(both)
    assert batch["image"].shape == batch["right"].shape == (8, 48, 64, 3)
    with pytest.raises(ValueError, match="`of` must name 'image', which column 'right' follows"):
        Loader(Stereo(), 8, shuffle=Buckets(ratios, [0.75, 1], 8, of="right"), **options)
