"""Damage that costs pixels and not the image: `strict` refuses it, `truncated` takes cut JPEGs."""

import io

import jax
import numpy as np
import pytest
from PIL import Image, ImageFile

from jaxaug import Loader, iterators
from jaxaug.decode import Decoder, Encoded, decode_image, read_headers
from jaxaug.errors import DecodeError
from tests.decode.samples import JPEGS, PICTURE, segment
from tests.images import encode
from tests.iterators.loaders import one_device

PLAIN = JPEGS["4:2:0"]
FRAME = PLAIN[PLAIN.index(b"\xff\xc0") :][:19]
DAMAGED = {
    "an unknown marker": PLAIN[:-40] + b"\xff\x5a" + PLAIN[-40:],
    "a second frame": PLAIN[:-40] + FRAME + PLAIN[-40:],
    "a bogus table behind the scan": PLAIN[:-2] + segment(0xC4, b"\x77" * 30) + PLAIN[-2:],
    "a cut segment": PLAIN[:-2] + b"\xff\xfe\x70\0" + PLAIN[-2:],
    "image data that ends early": PLAIN[:-200] + b"\xff\xd9",
    "image data left out": PLAIN[:700] + PLAIN[800:],
    "CMYK": JPEGS["CMYK"][:-300] + b"\xff\xd9",
    "unusual sampling": JPEGS["sparse chroma"][:-30] + b"\xff\x5a" + JPEGS["sparse chroma"][-30:],
}


@pytest.mark.parametrize("name", JPEGS)
def test_strict_takes_what_is_whole(name):
    for mode in ("rgb", "gray", "unchanged"):
        strict = decode_image(JPEGS[name], mode, strict=True)
        np.testing.assert_array_equal(strict, decode_image(JPEGS[name], mode))
    decode_image(JPEGS[name] + b"behind the end", strict=True)


@pytest.mark.parametrize("name", DAMAGED)
def test_strict_refuses_damage_that_costs_pixels(name):
    assert decode_image(DAMAGED[name]).shape[2] == 3
    with pytest.raises(DecodeError) as error:
        decode_image(DAMAGED[name], strict=True)
    assert error.value.byte_count == len(DAMAGED[name])


def test_strict_names_the_marker_and_its_place():
    file = DAMAGED["an unknown marker"]
    with pytest.raises(DecodeError, match=rf"FF5A at byte {len(file) - 42}, inside"):
        decode_image(file, strict=True)
    with pytest.raises(DecodeError, match=r"a second frame header \(FFC0\)"):
        decode_image(DAMAGED["a second frame"], strict=True)


def test_strict_needs_a_strict_pillow(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ValueError, match=r"LOAD_TRUNCATED_IMAGES is True.*set it to False"):
        decode_image(encode(PICTURE, "PNG"), strict=True)


# ---- no end marker

CUT = {name: file[:-2] for name, file in JPEGS.items() if file.endswith(b"\xff\xd9")}


@pytest.mark.parametrize("name", CUT)
def test_a_jpeg_without_its_end_marker_is_read_when_asked_for(name):
    """No pixel is missing: the same as of the whole file, and as Pillow reads that."""
    with pytest.raises(DecodeError, match=r"no end marker.*truncated='accept'"):
        decode_image(CUT[name])
    for mode in ("rgb", "gray", "unchanged"):
        pixels = decode_image(CUT[name], mode, truncated="accept")
        np.testing.assert_array_equal(pixels, decode_image(JPEGS[name], mode))


def test_what_is_missing_is_what_libjpeg_makes_of_it(monkeypatch):
    """Half of the image data: the upper part is right, the rest as Pillow fills it."""
    whole = encode(np.tile(PICTURE, (4, 4, 1)))
    half = whole[: len(whole) // 2]
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    pillows = np.asarray(Image.open(io.BytesIO(half)).convert("RGB")).astype(int)
    pixels = decode_image(half, truncated="accept").astype(int)
    assert np.abs(pixels - pillows)[:48].max() <= 1
    assert np.abs(pixels[:32] - decode_image(whole)[:32]).max() <= 1


def test_wherever_it_is_cut_the_byte_check_decides():
    """What has a whole header and some data becomes an image, and in the same way as Pillow's."""
    rng = np.random.default_rng(0)
    files = [file[: int(at)] for file in JPEGS.values() for at in rng.uniform(2, len(file), 24)]
    with Decoder((40, 64), "host", jax.devices("cpu")[:1], "mask", truncated="accept") as decoder:
        encoded = Encoded.from_bytes(files)
        headers = read_headers(encoded, truncated="accept")
        decoded = decoder.decode(encoded)
    assert decoded.valid.tolist() == (headers.kind == 1).tolist()
    assert 0.1 < decoded.valid.mean() < 0.9
    assert headers.reason.tolist() == [
        read_headers(Encoded.from_bytes([file]), truncated="accept").reason[0] for file in files
    ]


def test_without_image_data_there_is_no_image():
    start = PLAIN.index(b"\xff\xda") + 14
    for file in (PLAIN[:start], PLAIN[:start] + b"\xff\xd9", PLAIN[: start - 3]):
        headers = read_headers(Encoded.from_bytes([file]), truncated="accept")
        assert headers.kind[0] == 0 and headers.reason[0]
        many = read_headers(Encoded.from_bytes([file] * 20), truncated="accept")
        assert set(many.reason) == {headers.reason[0]}


@pytest.mark.parametrize("count", [1, 20])
def test_engines_do_not_get_a_jpeg_without_its_end(count):
    encoded = Encoded.from_bytes([PLAIN[:-2], PLAIN] * count)
    headers = read_headers(encoded, truncated="accept")
    assert headers.plain.tolist() == [0, 1] * count
    assert read_headers(encoded).kind.tolist() == [0, 1] * count


@pytest.mark.parametrize("on_error", ["mask", "replace", "raise"])
def test_a_loader_takes_them_through_its_decoder(on_error):
    files = [PLAIN, PLAIN[:-2], PLAIN[:300]] if on_error != "raise" else [PLAIN, PLAIN[:-2], PLAIN]
    source = iterators.InMemory(files * 8)
    options = {"shuffle": False, "sharding": one_device(), "on_error": on_error, "max_bad": None}
    device = jax.devices("cpu")[:1]
    with (
        Decoder((37, 50), "host", device, truncated="accept") as decoder,
        Loader(source, 24, decode=decoder, **options) as loader,
    ):
        batch = next(loader)
        valid = np.asarray(batch["valid"]).reshape(8, 3)
        assert valid[:, :2].all() and valid[:, 2].all() == (on_error != "mask")
        np.testing.assert_array_equal(batch["image"][1], decode_image(PLAIN))
        sample = loader.sample(1)
        np.testing.assert_array_equal(sample["original"], decode_image(PLAIN))


@pytest.mark.parametrize("name", ["strict", "truncated"])
def test_wrong_arguments_are_named(name):
    with pytest.raises(ValueError, match=f"`{name}` must be one of"):
        decode_image(PLAIN, **{name: "yes"})
    with pytest.raises(ValueError, match="`truncated` must be one of 'error', 'accept'"):
        Decoder((8, 8), truncated="yes")
