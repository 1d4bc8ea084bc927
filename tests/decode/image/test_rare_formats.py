"""Formats that Pillow reads and few files have: icons, textures, and what old programs write."""

import io
import struct
import tracemalloc
import zlib

import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug.decode import Decoder, Encoded, decode_image, read_headers
from jaxaug.errors import DecodeError
from tests.decode.samples import PICTURE, RARE, cur, psd, qoi, save


@pytest.mark.parametrize("name", RARE)
def test_pixels_are_those_that_were_written(name):
    file, pixels = RARE[name]
    np.testing.assert_array_equal(decode_image(file), pixels)
    pillows = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))
    np.testing.assert_array_equal(decode_image(file), pillows)
    many = read_headers(Encoded.from_bytes([file] * 20))
    assert set(zip(many.height.tolist(), many.width.tolist())) == {pixels.shape[:2]}


@pytest.mark.parametrize("name", RARE)
def test_a_cut_file_is_an_error(name):
    """Whatever is cut off the pixels; behind them may lie what none needs, a mask or a footer."""
    file, _ = RARE[name]
    for share in (0.05, 0.2, 0.5, 0.75):
        with pytest.raises(DecodeError):
            decode_image(file[: int(share * len(file))])


def icon(head: bytes, side: int = 16) -> bytes:
    entry = struct.pack("<BBBBHHII", side, side, 0, 0, 1, 32, len(head), 22)
    return struct.pack("<HHH", 0, 1, 1) + entry + head


def png_head(width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 99) + b"IDAT" + bytes(99)


def dib(width: int, height: int) -> bytes:
    return struct.pack("<IiiHHIIiiII", 40, width, 2 * height, 1, 32, 0, 0, 0, 0, 0, 0) + bytes(9)


SIDE = 30000
BOMBS = {
    "ICO of a PNG": icon(png_head(SIDE, SIDE)),
    "ICO of a bitmap": icon(dib(SIDE, SIDE)),
    "CUR": cur(PICTURE)[:26] + struct.pack("<ii", SIDE, 2 * SIDE) + cur(PICTURE)[34:],
    "DDS": RARE["DDS"][0][:12] + struct.pack("<II", SIDE, SIDE) + RARE["DDS"][0][20:],
    "PCX": RARE["PCX"][0][:8] + struct.pack("<HH", SIDE - 1, SIDE - 1) + RARE["PCX"][0][12:],
    "PSD": psd(PICTURE)[:14] + struct.pack(">II", SIDE, SIDE) + psd(PICTURE)[22:],
    "QOI": qoi(PICTURE)[:4] + struct.pack(">II", SIDE, SIDE) + qoi(PICTURE)[12:],
    "TGA": RARE["TGA"][0][:12] + struct.pack("<HH", SIDE, SIDE) + RARE["TGA"][0][16:],
    "XBM": RARE["XBM"][0].replace(b"width 50", b"width 30000").replace(b"ht 37", b"ht 30000"),
    "XPM": RARE["XPM"][0].replace(b'"50 37 ', b'"30000 30000 '),
}


@pytest.mark.parametrize("name", BOMBS)
def test_large_promises_are_refused_before_anything_is_allocated(name):
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=f"{SIDE} x {SIDE} pixels are more than max_pixels"):
            decode_image(BOMBS[name], max_pixels=2**20)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Image was not the expected size")
def test_an_icon_of_another_size_than_its_directory_says():
    """Larger ones than 256 x 256 cannot say so: the size is that of the image inside."""
    file = icon(save(Image.fromarray(PICTURE), "PNG"))
    assert read_headers(Encoded.from_bytes([file])).original_size().tolist() == [[37, 50]]
    np.testing.assert_array_equal(decode_image(file), PICTURE)


def test_the_largest_of_several_icons():
    image = Image.fromarray(PICTURE)
    file = save(image, "ICO", sizes=[(16, 12), (50, 37), (32, 24)])
    assert decode_image(file).shape == (37, 50, 3)


def test_a_tga_without_footer_is_told():
    bare = RARE["TGA"][0][:-26]
    with pytest.raises(DecodeError, match="a TGA is known by its footer alone"):
        decode_image(bare)
    with pytest.raises(DecodeError) as error:
        decode_image(b"<html>no TGA, whatever a header of that might be</html>")
    assert "TGA" not in error.value.reason


def test_one_batch_of_all():
    files = [file for file, _ in RARE.values()] * 2
    with Decoder((37, 50), "host", jax.devices("cpu")[:1]) as decoder:
        pixels = np.asarray(decoder.decode(files).pixels)
    np.testing.assert_array_equal(pixels, [each for _, each in RARE.values()] * 2)
