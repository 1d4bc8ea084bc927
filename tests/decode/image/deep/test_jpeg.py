"""JPEG of 12 bits and lossless JPEG of 2 to 16, beside files whose numbers are known."""

import numpy as np
import pytest

from jaxaug.decode import Encoded, decode_image, read_headers
from jaxaug.decode.image.nvjpeg.dispatch import HOST, NONE, assign_backends
from jaxaug.decode.image.parse.headers import BAD, DEEP
from jaxaug.errors import DecodeError, PrecisionWarning
from tests.decode.image.deep.files import decode, numbers, reason
from tests.decode.samples import JPEGS, exif_segment, lossless, twelve_bits


@pytest.mark.parametrize("bits", [2, 7, 9, 10, 12, 15, 16])
def test_lossless_files_give_their_numbers(bits):
    pixels = numbers(13, 9, 3) >> (16 - bits)
    for predictor in range(1, 8):
        stored = pixels if predictor % 2 else pixels[..., :1]
        file = lossless(stored, predictor, bits=bits)
        found = decode(file, channels=stored.shape[2], dtype="uint16")
        np.testing.assert_array_equal(found, stored)
        unchanged = decode_image(file, "unchanged")
        np.testing.assert_array_equal(unchanged, stored.squeeze())
        assert unchanged.dtype == (np.uint8 if bits <= 8 else np.uint16)
    np.testing.assert_array_equal(decode(file, channels=3, dtype="float32"), pixels)


def test_eight_bits_are_the_upper_ones():
    pixels = numbers(8, 9, 3) >> 4
    file = lossless(pixels, bits=12)
    with pytest.warns(PrecisionWarning, match="12 bits"):
        np.testing.assert_array_equal(decode_image(file), pixels >> 4)
    turned = lossless(pixels, extra=exif_segment(6, "<"), bits=12)
    expected = pixels.swapaxes(0, 1)[:, ::-1]
    np.testing.assert_array_equal(decode(turned, dtype="uint16"), expected)
    few = lossless(pixels >> 8, bits=4)
    np.testing.assert_array_equal(decode_image(few), (pixels >> 8) * 17)


COLORED = sorted(name for name in JPEGS if "lossless" not in name and name not in ("CMYK", "YCCK"))


@pytest.mark.parametrize("name", COLORED)
def test_twelve_bits_are_those_of_eight_further_up(name):
    eight = decode_image(JPEGS[name]).astype(int)
    twelve = decode(twelve_bits(JPEGS[name]), dtype="uint16").astype(int)
    inside = ((eight > 0) & (eight < 255)).all(-1)  # what the 8 bits have not clipped
    assert inside.mean() > 0.9
    assert abs(twelve - eight - (2048 - 128))[inside].max() <= 3  # roundings of YCbCr to RGB


def test_four_inks_are_numbers():
    file = twelve_bits(JPEGS["CMYK"])
    assert decode(file, channels=4, dtype="uint16").shape == (37, 50, 4)
    assert "4 numbers a pixel are no colors" in reason(file, dtype="uint16")


def test_the_header_decides():
    good = lossless(numbers(8, 9), bits=16)
    progressive = twelve_bits(JPEGS["progressive"])
    files = [good, progressive, good[:-2], patch_precision(good, 17), patch_precision(good, 1)]
    for copies in (1, 5):  # read one by one, and all at once
        headers = read_headers(Encoded.from_bytes(files * copies))
        assert headers.kind.tolist() == [DEEP, DEEP, BAD, BAD, BAD] * copies
        assert headers.precision[:2].tolist() == [16, 12]
        assert headers.coding[:2].tolist() == [3, 2]
        assert "truncated JPEG: no end marker" in headers.reason[2]
        assert "(SOF3) of 17 bits a sample" in headers.reason[3]
        size = headers.original_size()
        assert (
            assign_backends(headers, size, 2**30, 3).tolist() == [HOST, HOST, *[NONE] * 3] * copies
        )
    assert "numbers a pixel" in reason(good, channels=3, dtype="uint16")
    assert "9 x 8 pixels are more than max_pixels" in reason(good, max_pixels=71)
    with pytest.raises(DecodeError, match="page=1 was asked for"):
        decode(good, page=1, dtype="uint16")


def patch_precision(file: bytes, bits: int) -> bytes:
    at = file.index(b"\xff\xc3") + 4
    return file[:at] + bytes([bits]) + file[at + 1 :]


def test_what_is_left_of_a_truncated_file_is_taken_where_that_is_asked_for():
    pixels = numbers(8, 9) >> 4
    half = lossless(pixels, bits=12)[:-40]
    found = decode(half, channels=1, dtype="uint16", truncated="accept")[..., 0]
    np.testing.assert_array_equal(found[:3], pixels[:3])
    with pytest.raises(DecodeError, match="no end marker"):
        decode_image(half + b"\xff\xbd", dtype="uint16")


def test_markers_inside_of_the_image_data_are_damage_to_a_strict_reader():
    file = lossless(numbers(8, 9) >> 4, bits=12)
    damaged = file[:-20] + b"\xff\xc3" + file[-18:]
    assert decode_image(damaged, dtype="uint16").shape == (8, 9, 3)
    with pytest.raises(DecodeError, match="a second frame header"):
        decode_image(damaged, dtype="uint16", strict=True)
