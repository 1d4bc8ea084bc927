"""One record as the Loader delivers it."""

import jax
import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.decode import Decoder, decode_image
from jaxaug.errors import DecodeError
from jaxaug.iterators import FromIterable, InMemory, Weighted
from jaxaug.sharding import batch_sharding
from tests.images import jpegs

N = 12


@pytest.fixture(scope="module")
def images():
    return jpegs(N)


def chain():
    return augment.Compose(
        [augment.RandomResizedCrop(24), augment.ColorJitter(0.4, 0.4), augment.ToFloat()]
    )


@pytest.mark.bits
@pytest.mark.parametrize("devices, mixes", [(1, False), (4, True)])
def test_a_sample_is_bit_equal_to_the_row_of_the_batch(images, devices, mixes):
    source = InMemory(images, {"label": np.arange(N)})
    sharding = batch_sharding(jax.devices("cpu")[:devices])
    swap = (lambda key, group: group | {"image": group["image"][::-1]}) if mixes else None
    with Loader(
        source, 4 if devices == 1 else 8, transform=chain(), sharding=sharding, seed=7
    ) as plain:
        rows = {
            (epoch, int(i)): np.asarray(image)
            for epoch in range(2)
            for batch in plain
            for i, image in zip(batch["index"], batch["image"])
        }
    with Loader(
        source, 8, transform=chain(), batch_transform=swap, sharding=sharding, seed=7
    ) as loader:
        for (epoch, index), expected in list(rows.items())[::5]:
            found = loader.sample(index, epoch)
            np.testing.assert_array_equal(found["sample"]["image"], expected)
            assert found["sample"]["label"] == index
            np.testing.assert_array_equal(found["original"], decode_image(images[index]))
            assert found["describe"] == source.describe(index)


def test_the_key_is_the_one_that_the_transform_gets(images):
    source = InMemory(images)
    with Loader(source, 8, transform=chain(), seed=2**40 + 3) as loader:
        found = loader.sample(5, epoch=3)
    again = jax.jit(chain())(found["key"], {"image": found["original"]})
    np.testing.assert_allclose(again["image"], found["sample"]["image"], atol=1e-5)


def test_pixels_have_samples(images):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 10, 12), np.uint8)
    with Loader(InMemory(pixels), 8) as loader:
        found = loader.sample(3)
    np.testing.assert_array_equal(found["original"], pixels[3])
    np.testing.assert_array_equal(found["sample"]["image"], np.repeat(pixels[3][..., None], 3, -1))


def test_what_cannot_be_sampled_is_named(images):
    with Loader(InMemory([*images, b"no"]), 8, on_error="mask") as loader:
        with pytest.raises(DecodeError, match="record 12"):
            loader.sample(12)
        for wrong in (13, -1, 2.5):
            with pytest.raises(IndexError, match=r"`index` must be an int in \[0, 13\)"):
                loader.sample(wrong)
        with pytest.raises(ValueError, match="`epoch`"):
            loader.sample(0, -1)
        loader.sample(np.int64(3))
    with Loader(InMemory(images), 8, shuffle=Weighted(np.ones(N))) as loader:
        with pytest.raises(ValueError, match="`position` must be given with Weighted"):
            loader.sample(0)
        index = int(next(loader)["index"][2])
        assert loader.sample(index, 0, position=2)["sample"]["image"].shape == (40, 56, 3)
    with Loader(FromIterable([(image, {}) for image in images]), 8, shuffle=False) as loader:
        with pytest.raises(TypeError, match="random access"):
            loader.sample(0)


def test_a_sample_reads_and_decodes_its_own_record_alone(images):
    class Counted(InMemory):
        asked = ()

        def read(self, indices):
            self.asked += (indices.tolist(),)
            return super().read(indices)

    source = Counted(images, {"label": np.arange(N)})
    with Loader(source, 8, sharding=batch_sharding(jax.devices("cpu")[:4])) as loader:
        source.asked = ()
        assert loader.sample(5)["sample"]["label"] == 5
        assert loader.decoders["image"] is not None
        assert source.asked == ([5],) and loader.decoders["image"].stats["images"] == 1


def test_the_original_may_have_as_many_pixels_as_the_decoder_allows(images, monkeypatch):
    """As where a Decoder is made for images of more pixels than the default allows."""
    expected = decode_image(images[3])
    monkeypatch.setattr(decode_image, "__defaults__", ("rgb", 100))
    devices = jax.devices("cpu")[:1]
    with Decoder((40, 56), "host", devices, max_pixels=expected.size) as decoder:
        sharding = batch_sharding(devices)
        with Loader(InMemory(images), 4, decode=decoder, sharding=sharding) as loader:
            found = loader.sample(3)
    np.testing.assert_array_equal(found["original"], expected)
