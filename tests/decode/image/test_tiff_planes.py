"""TIFFs whose colors lie in planes, one behind the other."""

import struct

import cv2
import numpy as np
import pytest

from jaxaug.decode import decode_image
from jaxaug.errors import DecodeError

BLACK_IS_ZERO = 1
RGB = 2
CMYK = 5


def planar(pixels, order, photometric=RGB):
    """A TIFF without compression, two strips a plane, written by hand."""
    height, width, samples = pixels.shape
    half = height // 2
    halves = (pixels[:half], pixels[half:])
    parts = [part[:, :, plane] for plane in range(samples) for part in halves]
    strips = [part.astype(pixels.dtype.newbyteorder(order)).tobytes() for part in parts]
    bits = [8 * pixels.dtype.itemsize] * samples
    fields = {256: [width], 257: [height], 258: bits, 259: [1], 262: [photometric], 277: [samples]}
    fields |= {273: strips, 278: [half], 279: [*map(len, strips)], 284: [2]}
    if samples == 4 and photometric == RGB:
        fields[338] = [2]  # alpha

    number = order + "I"
    after = 8 + 2 + 12 * len(fields) + 4
    lists = after + 4 * sum(len(values) for values in fields.values() if len(values) > 1)
    fields[273] = [lists + sum(map(len, strips[:each])) for each in range(len(strips))]
    entries = b""
    long = b""
    for tag in sorted(fields):
        values = b"".join(struct.pack(number, value) for value in fields[tag])
        place = values if len(values) == 4 else struct.pack(number, after + len(long))
        entries += struct.pack(order + "HHI", tag, 4, len(fields[tag])) + place
        long += values if len(values) > 4 else b""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(number, 8)
    directory = struct.pack(order + "H", len(fields)) + entries + bytes(4)
    return head + directory + long + b"".join(strips)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("samples", [3, 4])
def test_planes_are_read_with_their_depth(order, dtype, samples):
    highest = np.iinfo(dtype).max
    pixels = np.random.default_rng(0).integers(0, highest + 1, (6, 9, samples)).astype(dtype)
    file = planar(pixels, order)
    exact = pixels[:, :, :3].astype(np.float64) * 255 / highest
    np.testing.assert_allclose(decode_image(file), exact, atol=1)
    if samples == 3:
        opencvs = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]
        np.testing.assert_allclose(decode_image(file).astype(int), opencvs, atol=1)
    if dtype == np.uint8:
        np.testing.assert_array_equal(decode_image(file, "unchanged"), pixels)
        return
    with pytest.raises(DecodeError, match="TIFF color of 16 bits: Pillow reads 8 of them"):
        decode_image(file, "unchanged")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_one_plane_is_gray(order, dtype):
    highest = np.iinfo(dtype).max
    pixels = np.random.default_rng(0).integers(0, highest + 1, (6, 9, 1)).astype(dtype)
    file = planar(pixels, order, BLACK_IS_ZERO)
    np.testing.assert_array_equal(decode_image(file, "unchanged"), pixels[:, :, 0])
    eight = pixels[:, :, 0] >> (8 if dtype == np.uint16 else 0)
    np.testing.assert_array_equal(decode_image(file, "gray"), eight)


@pytest.mark.parametrize("order", ["<", ">"])
def test_planes_of_cmyk_with_sixteen_bits_are_refused(order):
    with pytest.raises(DecodeError, match="TIFF: unknown raw mode"):
        decode_image(planar(np.zeros((6, 9, 4), np.uint16), order, CMYK))
