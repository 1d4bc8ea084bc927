"""Pixels in memory: the same order, resume and sharding, through no Decoder."""

import copy
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import Decoder, Loader, augment, decode
from jaxaug.errors import SourceError
from jaxaug.iterators import FromIterable, InMemory, Subset
from jaxaug.sharding import batch_sharding
from tests.images import encode, jpegs

N = 20


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).integers(0, 256, (N, 10, 12, 3), np.uint8)


def one_device():
    return batch_sharding(jax.devices("cpu")[:1])


def rows(loader, epochs=1):
    return {
        (epoch, int(i)): np.asarray(image).tobytes()
        for epoch in range(epochs)
        for batch in loader
        for i, image in zip(batch["index"], batch["image"])
    }


def test_pixels_come_as_they_are_with_their_features(pixels):
    source = InMemory(pixels, {"label": np.arange(N)})
    assert repr(source) == "InMemory(20 images of 10 x 12 pixels, features ['label'])"
    with Loader(source, 8, seed=3, last_batch="pad") as loader:
        assert loader.element_spec.keys() == {
            "image",
            "label",
            "valid",
            "index",
        }
        for batch in loader:
            for row, index in enumerate(batch["index"].tolist()):
                expected = pixels[index] if index >= 0 else np.zeros((10, 12, 3), np.uint8)
                np.testing.assert_array_equal(batch["image"][row], expected)
                assert batch["label"][row] == index and batch["valid"][row] == (index >= 0)


def test_the_order_and_the_parameters_are_those_of_encoded_images(pixels):
    chain = augment.Compose(
        [augment.RandomCrop(8), augment.RandomHorizontalFlip(), augment.ToFloat()]
    )
    encoded = InMemory([encode(image, "PNG") for image in pixels])
    options = {"transform": chain, "seed": 5, "sharding": one_device()}
    with Loader(encoded, 4, **options) as loader:
        expected = rows(loader, 2)
    for batch_size, sharding in ((4, one_device()), (8, batch_sharding(jax.devices("cpu")[:4]))):
        with Loader(InMemory(pixels), batch_size, **(options | {"sharding": sharding})) as loader:
            found = rows(loader, 2)
        assert all(expected[key] == value for key, value in found.items()) and len(found) >= 32
    with (
        Loader(InMemory(pixels), 4, **options) as loader,
        Loader(InMemory(pixels), 2, **options) as other,
    ):
        next(loader), next(loader)
        other.set_state(loader.get_state())
        assert rows(other) == {k: v for k, v in rows(loader).items() if k[0] == 0}


@pytest.mark.parametrize("shape", [(N, 10, 12), (N, 10, 12, 1)])
def test_gray_is_repeated_to_three_channels(shape):
    gray = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    with Loader(InMemory(gray), 4, shuffle=False, sharding=one_device()) as loader:
        image = np.asarray(next(loader)["image"])
    np.testing.assert_array_equal(image, np.repeat(gray[:4].reshape(4, 10, 12, 1), 3, -1))


def test_a_memory_map_is_read_row_by_row(tmp_path, pixels):
    np.save(tmp_path / "a.npy", pixels)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    with (
        Loader(InMemory(mapped), 4, sharding=one_device()) as loader,
        Loader(InMemory(pixels), 4, sharding=one_device()) as plain,
    ):
        assert rows(loader) == rows(plain)
        assert loader.get_state() == plain.get_state()
    part = Subset(InMemory(mapped), np.array([7, 3]))
    with Loader(part, 2, shuffle=False, sharding=one_device()) as loader:
        np.testing.assert_array_equal(np.asarray(next(loader)["image"]), pixels[[7, 3]])


def test_the_fingerprint_tells_other_pixels(pixels):
    other = pixels.copy()
    other[7, 0, 0, 0] ^= 1
    prints = {
        InMemory(array).fingerprint()
        for array in (pixels, other, pixels[:-1], pixels.reshape(N, 12, 10, 3))
    }
    assert len(prints) == 4 and InMemory(pixels.copy()).fingerprint() in prints


@pytest.mark.parametrize(
    "images, error, message",
    [
        (
            np.zeros((3, 4, 4, 3), np.complex64),
            ValueError,
            r"must be pixels \[N, H, W, C\].*complex64\[3, 4, 4, 3\]",
        ),
        (
            np.zeros((3, 3, 4, 4, 2), np.uint8),
            ValueError,
            r"got uint8\[3, 3, 4, 4, 2\]: convert the array, channels last",
        ),
        (np.zeros((3, 4), np.uint8), ValueError, r"got uint8\[3, 4\]"),
        (np.zeros((3, 0, 4, 3), np.uint8), ValueError, "must have pixels"),
        (np.zeros((0, 4, 4, 3), np.uint8), SourceError, "at least one image"),
        ([], SourceError, "at least one image"),
        (b"an image", TypeError, "must be a sequence of bytes .* got bytes: make a list of it"),
        (
            (image for image in jpegs(2)),
            TypeError,
            "got generator: make a list of it, or use FromIterable",
        ),
        ({"a": b"x"}, TypeError, "got dict"),
        (
            [np.zeros((4, 5, 3), np.uint8)] * 2,
            ValueError,
            r"got a list of arrays \[4, 5, 3\]: join those of one size by `numpy.stack`",
        ),
    ],
)
def test_wrong_images_are_named(images, error, message):
    with pytest.raises(error, match=message):
        InMemory(images)


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_pixels_of_other_libraries(pixels, library):
    as_array = jnp.asarray if library == "jax" else pytest.importorskip("torch").from_numpy
    source = InMemory(as_array(pixels.copy()))
    found = source.read(np.array([2, 0]))["image"]
    np.testing.assert_array_equal(found, pixels[[2, 0]])
    assert source.fingerprint() == InMemory(pixels).fingerprint()


class Frame(dict):
    """Columns by name whose truth is ambiguous, as that of a DataFrame of pandas."""

    def __bool__(self):
        raise ValueError("The truth value of a DataFrame is ambiguous.")


def test_features_may_be_a_data_frame(pixels):
    source = InMemory(pixels, Frame(label=np.arange(N)))
    assert source.features["label"].tolist() == list(range(N))


@pytest.mark.parametrize("labels", [np.array([1, 2]), [1, 2]])
def test_labels_without_a_name_are_told_the_form(labels):
    with pytest.raises(TypeError, match=r'`features` must be a dict .* write \{"label": labels\}'):
        InMemory(jpegs(2), labels)


def test_what_only_encoded_images_have_is_refused(pixels):
    with pytest.raises(ValueError, match="`canvas` must be left out for a source of pixels"):
        Loader(InMemory(pixels), 4, decode=decode.Image(canvas=(10, 12)), sharding=one_device())
    with Decoder((10, 12), devices=jax.devices("cpu")[:1]) as decoder:
        with pytest.raises(ValueError, match=r"`decode` must be a description"):
            Loader(InMemory(pixels), 4, decode=decoder, sharding=one_device())


def test_a_batch_does_not_change_with_the_array(pixels):
    mine = pixels.copy()
    with Loader(InMemory(mine), 4, shuffle=False, sharding=one_device()) as loader:
        batch = next(loader)
        mine[:] = 0
        np.testing.assert_array_equal(np.asarray(batch["image"]), pixels[:4])


def test_a_hand_written_loop_gives_the_same(pixels):
    """What a user would write, with the same keys, is what the Loader computes."""
    chain = augment.Compose([augment.RandomHorizontalFlip(), augment.ToFloat()])
    with Loader(InMemory(pixels), 4, transform=chain, seed=9, sharding=one_device()) as loader:
        batch = next(loader)
        keys = jnp.stack([loader.sample(int(i))["key"] for i in batch["index"]])
    by_hand = jax.jit(jax.vmap(chain))(
        keys, {"image": jnp.asarray(pixels[np.asarray(batch["index"])])}
    )
    np.testing.assert_array_equal(np.asarray(batch["image"]), np.asarray(by_hand["image"]))


def test_pickled_and_copied_sources_hold_their_images(tmp_path, pixels):
    images = jpegs(6)
    for source in (InMemory(images, {"label": np.arange(6)}), InMemory(pixels)):
        expected = source.read(np.arange(4))["image"]
        for clone in (pickle.loads(pickle.dumps(source)), copy.deepcopy(source), copy.copy(source)):
            assert clone.fingerprint() == source.fingerprint()
            found = clone.read(np.arange(4))["image"]
            if isinstance(found, np.ndarray):
                np.testing.assert_array_equal(found, expected)
            else:
                assert [bytes(found.view(i)) for i in range(4)] == images[:4]
    (tmp_path / "source").write_bytes(pickle.dumps(InMemory(images)))
    code = (
        "import pickle, sys, numpy as np; source = pickle.load(open(sys.argv[1], 'rb'));"
        "print(sum(map(sum, (source.read(np.arange(6))['image'].view(i) for i in range(6)))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "source")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == str(sum(map(sum, images))), done.stderr[-1000:]


@pytest.mark.parametrize(
    "item, message",
    [
        ({"jpg": b"x", "label": 1}, r"it has \['jpg', 'label'\]. Pass image='jpg'"),
        ((b"x", 3), r"it has tuple of \(bytes, int\). Pass image=0, label=1"),
        ((b"x",), r"it has tuple of \(bytes\). Pass image=0"),
        (b"x", r"it has bytes. Give bytes"),
    ],
)
def test_a_stream_of_other_items_is_named(item, message):
    stream = FromIterable([item])
    with pytest.raises(SourceError, match=r"record 0 must hold the encoded image.*" + message):
        list(stream.iterate())


def test_a_callable_that_gives_the_same_iterator_again_is_refused():
    iterator = iter([(b"x", {})])
    with pytest.raises(TypeError, match="must give a fresh iterator each epoch"):
        FromIterable(lambda: iterator)
    assert repr(FromIterable([(b"x", {})])) == "FromIterable(list)"


@pytest.mark.parametrize("name", ["image", "right"])
def test_floats_that_a_chain_would_clip_are_refused(pixels, name):
    """A chain that is traced cannot see them: the Loader shows it some records."""
    unit = pixels / np.float32(255)
    levels = np.float32(pixels)
    levels[0] = 0  # the first record tells nothing
    columns = {"image": unit, "right": unit, name: levels}
    image = columns.pop("image")
    chain = augment.Compose([augment.RandomInvert()], targets={"right": "image"})
    with pytest.raises(ValueError, match=r"float image.* in \[0, 1\], got values from .* to 2\d\d"):
        Loader(InMemory(image, columns), 4, transform=chain, sharding=one_device())
    source = InMemory(unit, {"right": unit, "numbers": np.float32(pixels)})
    with Loader(source, 4, transform=chain, sharding=one_device()) as loader:
        assert next(loader)["numbers"].max() > 1


@pytest.mark.parametrize("given", [list, jnp.asarray])
def test_floats_of_a_source_of_ones_own_may_come_as_lists_or_jax_arrays(given):
    class Grays(InMemory):
        def read(self, indices):
            return {"image": given(np.full((len(indices), 4, 4, 3), self.level, np.float32))}

    chain = augment.Compose([augment.RandomInvert(1.0)])
    source = Grays(np.zeros((5, 4, 4, 3), np.float32))
    source.level = 0.25
    with Loader(source, 2, transform=chain, sharding=one_device()) as loader:
        assert (np.asarray(next(loader)["image"]) == 0.75).all()
    source.level = 2
    with pytest.raises(ValueError, match=r"float image in \[0, 1\], got values"):
        Loader(source, 2, transform=chain, sharding=one_device())


def test_decoded_floats_that_a_chain_would_clip_are_refused():
    """Numbers are those of the file: 0 to 255 here."""
    chain = augment.Compose([augment.RandomInvert()])
    options = {"decode": decode.Image(dtype="float32"), "sharding": one_device()}
    images = [encode(np.zeros((8, 9, 3), np.uint8)), *jpegs(3)]
    with pytest.raises(ValueError, match=r"float image in \[0, 1\], got values from .* to 2\d\d"):
        Loader(InMemory(images), 4, transform=chain, **options)

    def scaled(key, sample):
        return chain(key, {**sample, "image": sample["image"] / 255})

    with Loader(InMemory(jpegs(4)), 4, transform=scaled, **options) as loader:
        assert next(loader)["image"].max() <= 1
    with Loader(InMemory([b"bad"]), 1, transform=chain, on_error="mask", **options) as loader:
        assert not next(loader)["valid"].any()
