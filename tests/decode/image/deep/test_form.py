"""What `channels`, `dtype`, `bands` and `page` promise, for every format that has them."""

import io
import warnings

import imagecodecs
import jax.numpy as jnp
import numpy as np
import PIL.Image
import pytest

from jaxaug.decode import Decoder, Encoded, Image, Volume, decode_image
from jaxaug.errors import DecodeError, PrecisionWarning
from jaxaug.iterators import InMemory, Loader
from tests.decode.image.deep.files import decode, numbers, reason, tiff
from tests.images import encode, picture
from tests.iterators.loaders import one_device

COLOR = numbers(30, 40, 3)
GRAY = numbers(30, 40)
BANDS = numbers(30, 40, 13)
SMALL = picture(0, 30, 40)


@pytest.mark.parametrize(
    "file, stored",
    [
        (imagecodecs.png_encode(COLOR), COLOR),
        (imagecodecs.png_encode(GRAY), GRAY[..., None]),
        (imagecodecs.png_encode(numbers(30, 40, 4)), numbers(30, 40, 4)),
        (tiff(COLOR, photometric="rgb"), COLOR),
        (tiff(GRAY), GRAY[..., None]),
        (tiff(BANDS), BANDS),
        (encode(SMALL, "PNG"), SMALL),
        (encode(SMALL[..., 0], "BMP"), SMALL[..., :1]),
    ],
    ids=["PNG", "gray PNG", "RGBA PNG", "TIFF", "gray TIFF", "bands", "8 bits", "8 bits gray"],
)
def test_numbers_stay_as_they_are(file, stored):
    """In uint16 and in float32, all of them or some bands; another number is a bad image."""
    count = stored.shape[2]
    for dtype in ("uint16", "float32"):
        found = decode(file, channels=count, dtype=dtype)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, stored)
    bands = [count - 1, 0]
    np.testing.assert_array_equal(decode(file, bands=bands, dtype="uint16"), stored[..., bands])
    if count in (1, 3):
        wanted = {1: "gray", 3: "rgb"}[count]
        np.testing.assert_array_equal(decode(file, channels=wanted, dtype="uint16"), stored)
    with pytest.raises(DecodeError, match=rf"it has {count} numbers a pixel, and channels=5"):
        decode(file, channels=5, dtype="uint16")
    with pytest.raises(DecodeError, match=rf"`bands` asks for number {count}, and it has {count}"):
        decode(file, bands=[count], dtype="uint16")


def test_colors_are_converted_at_full_depth():
    """Gray is repeated, RGB weighed as Pillow does, alpha kept or made, 8 upper bits warned of."""
    gray, color, clear = (imagecodecs.png_encode(x) for x in (GRAY, COLOR, numbers(30, 40, 4)))
    np.testing.assert_array_equal(decode(gray, dtype="uint16"), np.dstack([GRAY] * 3))
    luma = np.floor(COLOR @ np.array([0.299, 0.587, 0.114]) + 0.5)
    found = decode(color, channels="gray", dtype="uint16")[..., 0].astype(int)
    assert np.abs(found - luma).max() <= 1
    rgba = decode(color, channels="rgba", dtype="uint16")
    np.testing.assert_array_equal(rgba[..., :3], COLOR)
    assert (rgba[..., 3] == 65535).all()
    np.testing.assert_array_equal(
        decode(clear, channels="rgba", dtype="uint16"), numbers(30, 40, 4)
    )
    np.testing.assert_array_equal(decode(clear, dtype="uint16"), numbers(30, 40, 4)[..., :3])
    with pytest.warns(PrecisionWarning, match="16 bits"):
        found = decode(color, channels=3)
    np.testing.assert_array_equal(found, COLOR >> 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decode(color, dtype="uint16")


def test_alpha_of_8_bits_is_pillows():
    clear = np.dstack([SMALL, SMALL[::-1, :, 0]])
    palette = PIL.Image.fromarray(clear).quantize(16)
    buffer = io.BytesIO()
    palette.save(buffer, "PNG")
    files = [encode(clear, "PNG"), encode(clear, "WEBP", lossless=True), buffer.getvalue()]
    for file in files:
        expected = np.asarray(PIL.Image.open(io.BytesIO(file)).convert("RGBA"))
        np.testing.assert_array_equal(decode(file, channels="rgba")[..., 3], expected[..., 3])
    jpeg = encode(SMALL)
    np.testing.assert_array_equal(decode(jpeg, channels="rgba")[..., :3], decode_image(jpeg))
    assert (decode(jpeg, channels="rgba")[..., 3] == 255).all()


@pytest.mark.parametrize("channels", [3, "rgb"])
def test_a_large_image_is_shrunk_as_8_bits_are(channels):
    """By Pillow's triangle, each channel, before the numbers are rounded once."""
    deep = imagecodecs.png_encode(COLOR)
    found = decode(deep, (15, 64), channels=channels, dtype="uint16")
    floats = decode(deep, (15, 64), channels=channels, dtype="float32")
    for k in range(3):
        band = PIL.Image.fromarray(COLOR[..., k].astype(np.float32))
        expected = np.asarray(band.resize((20, 15), PIL.Image.Resampling.BILINEAR))
        np.testing.assert_allclose(floats[..., k], expected, rtol=1e-6)
        assert np.abs(found[..., k].astype(float) - expected).max() <= 0.5 + 1e-2
    plain = encode(SMALL, "PNG")
    np.testing.assert_array_equal(decode(plain, (15, 64), channels=3), decode(plain, (15, 64)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_deep_images_are_turned(orientation):
    """By the TIFF's own tag, or the PNG's EXIF: as Pillow turns 8 bits."""
    tags = [(274, "H", 1, orientation, True)]
    exif = PIL.Image.Exif()
    exif[274] = orientation
    small = encode(SMALL, "PNG", exif=exif)
    wide = np.asarray(SMALL, np.uint16) * 257
    expected = decode(small).astype(np.uint16) * 257
    found = decode(tiff(wide, photometric="rgb", extratags=tags), dtype="uint16")
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(decode(small, dtype="uint16"), expected // 257)


def test_a_loader_gives_batches_of_them():
    """The first good record tells the number; another one is bad."""
    files = [tiff(BANDS), tiff(BANDS[::-1]), tiff(COLOR)]
    image = Image(dtype="uint16", channels="as stored")
    with Loader(
        InMemory(files), 3, decode=image, shuffle=False, on_error="mask", sharding=one_device()
    ) as loader:
        batch = next(loader)
    assert batch["image"].shape == (3, 30, 40, 13) and batch["image"].dtype == np.uint16
    assert batch["valid"].tolist() == [True, True, False]
    np.testing.assert_array_equal(batch["image"][1], BANDS[::-1])
    image = Image(canvas=(20, 50), dtype="float32", bands=(12, 3))
    source = InMemory(files[:2])
    with Loader(
        source, 2, decode=image, shuffle=False, sharding=one_device(), keep="host", epochs=2
    ) as loader:
        first, again = list(loader), list(loader)
    assert first[0]["image"].shape == (2, 20, 50, 2) and first[0]["image"].dtype == np.float32
    assert first[0]["size"].tolist() == [[20, 27]] * 2
    np.testing.assert_array_equal(first[0]["image"], again[0]["image"])


def test_bands_of_an_array_are_taken_on_the_device():
    """It keeps its dtype; what it has not is an error."""
    source = InMemory(np.stack([BANDS, BANDS[::-1]]))
    options = {"shuffle": False, "sharding": one_device()}
    with Loader(source, 2, decode=Image(bands=(12, 3), dtype="uint16"), **options) as loader:
        found = next(loader)["image"]
    np.testing.assert_array_equal(found, np.stack([BANDS, BANDS[::-1]])[..., [12, 3]])
    for form, words in (
        ({"bands": (13,)}, "`bands` asks for number 13"),
        ({"channels": 3}, "it has 13 numbers a pixel, and channels=3"),
        ({"dtype": "float32"}, "it is uint16, and dtype='float32'"),
        ({"page": 1}, "it has no pages"),
    ):
        with pytest.raises(ValueError, match=f"'image' is an array of pixels.*{words}"):
            Loader(source, 2, decode=Image(**form), **options)


def test_arguments_that_contradict_each_other():
    for wrong, words in (
        ({"dtype": "int8"}, "`dtype` must be one of 'uint8', 'uint16', 'float32'"),
        ({"channels": "bgr"}, "`channels` must be .* got 'bgr'"),
        ({"channels": 0}, "`channels` must be .* got 0"),
        ({"bands": ()}, r"`bands` must be numbers of bands from 0 on.* got \(\)"),
        ({"bands": (-1,)}, "`bands` must be numbers"),
        ({"bands": (0, 1), "channels": 3}, "`channels` must be left out beside `bands`"),
        ({"page": -1}, "`page` must be an int of at least 0"),
    ):
        for maker in (Image, Decoder):
            with pytest.raises(ValueError, match=words):
                maker(**wrong)
    with pytest.raises(ValueError, match="`channels` must be a number here"):
        Decoder(channels="as stored")


@pytest.mark.parametrize("kind", [np.uint16, jnp.uint16, np.dtype("uint16")])
def test_dtypes_are_taken_as_their_names(kind):
    assert Image(dtype=kind) == Image(dtype="uint16")
    assert Volume(dtype=kind) == Volume(dtype="uint16")
    file = imagecodecs.png_encode(GRAY)
    np.testing.assert_array_equal(decode_image(file, "gray", dtype=kind), GRAY)
    np.testing.assert_array_equal(decode(file, channels="gray", dtype=kind)[..., 0], GRAY)


@pytest.mark.parametrize("kind", [float, np.int64, "none", None, 3])
def test_other_dtypes_are_refused_by_name(kind):
    with pytest.raises(
        ValueError, match="`dtype` must be one of 'uint8', 'uint16', 'float32', got"
    ):
        Image(dtype=kind)


def test_what_a_dtype_does_not_hold_is_a_bad_image_by_its_header():
    for dtype in ("int8", "int16", "int32", "uint32", "float16", "float32", "float64"):
        file = tiff(numbers(4, 5, dtype=dtype))
        found = reason(file, channels=1, dtype="uint16")
        assert (
            found
            == f"TIFF: its pixels are {dtype}, which uint16 does not hold: take dtype='float32'"
        )
    assert "max_pixels=10" in reason(tiff(GRAY), dtype="uint16", max_pixels=10)
    many = tiff(numbers(4, 5, 40))
    assert "take more than 32 x max_pixels=20" in reason(
        many, channels=40, dtype="uint16", max_pixels=20
    )
    assert "has 1 images, and page=1" in reason(encode(SMALL, "GIF"), page=1)
    assert "has 1 images, and page=1" in reason(encode(SMALL), page=1)
    assert "not an image jaxaug knows" in reason(b"no image at all", page=1)


@pytest.mark.parametrize(
    "mode, dtype", [("gray", "uint16"), ("unchanged", "uint16"), ("unchanged", None)]
)
def test_pixels_do_not_lie_in_a_file_that_nobody_holds(mode, dtype):
    """Numbers that need no decoding are copied: the file may be freed, or hold another by then."""
    npy = io.BytesIO()
    np.save(npy, GRAY)
    for file in (tiff(GRAY), npy.getvalue()):
        memory = bytearray(file)
        found = decode_image(memory, mode, dtype=dtype)
        before = found.copy()
        memory[:] = bytes(len(memory))
        np.testing.assert_array_equal(found, before)


def test_whole_images_of_a_loader_do_not_lie_in_its_files():
    """`Image.original`, which `Loader.sample` shows, is asked for while the file is there."""
    memory = bytearray(tiff(GRAY))
    image = Image(channels="gray", dtype="uint16")
    found = image.original(Encoded.from_bytes([memory]))
    memory[:] = bytes(len(memory))
    np.testing.assert_array_equal(found, GRAY)
