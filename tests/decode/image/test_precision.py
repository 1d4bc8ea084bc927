"""Images of more than 8 bits a sample: a warning names the first, an error what is read."""

import struct
import warnings

import cv2
import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug import Loader, iterators
from jaxaug.decode import Decoder, Encoded, decode_image, read_headers
from jaxaug.errors import DecodeError, PrecisionWarning
from tests.decode.samples import PICTURE, save
from tests.images import encode
from tests.iterators.loaders import one_device

DEEP = np.arange(4096, dtype=np.uint16).reshape(64, 64)
COLOR = np.dstack([DEEP] * 3)
FILES = {
    "gray PNG": encode(DEEP, "PNG"),
    "color PNG": cv2.imencode(".png", COLOR)[1].tobytes(),
    "gray TIFF": encode(DEEP, "TIFF"),
    "PGM": cv2.imencode(".pgm", DEEP)[1].tobytes(),
    "PPM": cv2.imencode(".ppm", COLOR)[1].tobytes(),
    "gray JPEG 2000": encode(DEEP, "JPEG2000"),
}
PLAIN = encode(PICTURE, "PNG")


def tiff(samples: int, bits: int) -> bytes:
    """A TIFF of one pixel with so many samples, written by hand (TIFF 6.0)."""
    tags = [(256, 1), (257, 1), (258, bits), (259, 1), (262, 1), (273, 8), (277, samples)]
    tags += [(278, 1), (279, samples * bits // 8)]
    pixels = bytes(samples * bits // 8)
    at = 8 + len(pixels)
    directory = struct.pack("<H", len(tags))
    directory += b"".join(struct.pack("<HHII", tag, 3, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", at) + pixels + directory + bytes(4)


@pytest.mark.parametrize("name", FILES)
def test_a_warning_names_the_bits_and_what_to_do(name):
    for mode in ("rgb", "gray"):
        with pytest.warns(PrecisionWarning, match=r"16 bits a .*uint16.*convert") as got:
            decode_image(FILES[name], mode)
        assert got[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if "gray" in name or name == "PGM":
            decode_image(FILES[name], "unchanged")
        decode_image(PLAIN)


@pytest.mark.parametrize("name", FILES)
def test_headers_tell_the_bits_of_every_format(name):
    """The same for many files as for one."""
    files = [FILES[name], PLAIN] * 20
    assert read_headers(Encoded.from_bytes(files)).precision.tolist() == [16, 8] * 20
    assert read_headers(Encoded.from_bytes(files[:1])).precision.tolist() == [16]


def test_a_decoder_warns_once_and_not_of_bad_images():
    broken = FILES["gray PNG"][:100]
    with Decoder((64, 64), "host", jax.devices("cpu")[:1], on_error="mask") as decoder:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            decoder.decode([broken, PLAIN])
        with pytest.warns(PrecisionWarning, match="image 1 of the batch has 16 bits") as got:
            for _ in range(3):
                decoder.decode([PLAIN, FILES["gray PNG"]])
        assert len(got) == 1 and got[0].filename == __file__


def test_a_loader_warns_once_and_names_the_file(tmp_path):
    for number in range(12):
        file = FILES["gray PNG"] if number % 3 == 2 else PLAIN
        (tmp_path / f"{number:02d}.png").write_bytes(file)
    source = iterators.ImageFolder(tmp_path)
    with Loader(source, 4, shuffle=False, epochs=2, sharding=one_device()) as loader:
        with pytest.warns(PrecisionWarning, match=r"record 2 \(.*02.png\) has 16 bits") as got:
            for _ in range(6):
                next(loader)
    assert [each.category for each in got].count(PrecisionWarning) == 1
    assert {each.filename for each in got if each.category is PrecisionWarning} == {__file__}


def test_errors_say_which_samples_are_read():
    for samples, bits in ((13, 8), (13, 16), (7, 8)):
        match = rf"TIFF: its {samples} numbers a pixel are no colors: take .*bands="
        with pytest.raises(DecodeError, match=match):
            decode_image(tiff(samples, bits))
    for numbers, name in ((DEEP.astype(np.int32), "integers"), (DEEP.astype(np.float32), "floats")):
        with pytest.raises(DecodeError, match=rf"32-bit integers|{name}.*read of 8 bits.*float32"):
            decode_image(save(Image.fromarray(numbers), "TIFF"))
    deep = cv2.imencode(".jp2", COLOR)[1].tobytes()
    with pytest.warns(PrecisionWarning, match="has 16 bits"):
        decode_image(deep)
