"""Pixels of the host path: against Pillow's, against the source of lossless files, and against laws
of shrinking.
"""

import io
import struct
import tracemalloc
import warnings
import zlib

import cv2
import jax
import numpy as np
import pytest
from PIL import Image, ImageOps, features

from jaxaug.decode import Decoder, Encoded, decode_image, read_headers
from jaxaug.decode.image import pillow
from jaxaug.decode.image.canvas import fit_size
from jaxaug.decode.image.host.decode_image import decode_into
from jaxaug.errors import DecodeError
from tests.decode.samples import (
    ARITHMETIC,
    JPEGS,
    PICTURE,
    SEVERAL_SCANS,
    SOURCE,
    SPARSE_CHROMA,
    exif_segment,
    insert,
    lossless,
    patch_sof,
    save,
    segment,
)
from tests.images import encode, picture

PLAIN = encode(PICTURE, subsampling=2)


def with_pillow(file: bytes) -> np.ndarray:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert("RGB"))


def on_canvas(file: bytes, canvas: tuple[int, int]) -> tuple[np.ndarray, tuple[int, int]]:
    """One image on a canvas of 9s, which shows what the decoder does not write."""
    encoded = Encoded.from_bytes([file])
    headers = read_headers(encoded)
    height, width = fit_size(headers.original_size(), canvas)[0].tolist()
    row = np.full((*canvas, 3), 9, np.uint8)
    decode_into(encoded.view(0), headers.row(0), (height, width), row)
    return row, (height, width)


# ---- every sort of file


@pytest.mark.parametrize("name", JPEGS)
def test_jpegs_equal_pillows(name):
    """Both are libjpeg-turbo, of different versions: at most one level apart."""
    pixels = decode_image(JPEGS[name])
    expected = with_pillow(JPEGS[name])
    assert pixels.dtype == np.uint8 and pixels.shape == expected.shape
    assert np.abs(pixels.astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    "file, source",
    [
        (encode(PICTURE, quality=100, subsampling=0), PICTURE),
        (encode(PICTURE, quality=100, subsampling=0, keep_rgb=True), PICTURE),
        (ARITHMETIC, SOURCE),
        (SPARSE_CHROMA, SOURCE),
        (SEVERAL_SCANS, SOURCE),
    ],
)
def test_jpegs_are_near_what_was_encoded(file, source):
    assert np.abs(decode_image(file).astype(int) - source).mean() < 6


def test_lossless_files_give_their_source_back():
    gray = np.repeat(PICTURE[:, :, :1], 3, axis=2)
    alpha = np.dstack([PICTURE, PICTURE[:, :, :1]])  # partly transparent: the color stays as it is
    palette = Image.fromarray(PICTURE).quantize(16)
    for file, source in [
        *[(encode(PICTURE, kind), PICTURE) for kind in ("PNG", "BMP", "TIFF")],
        (encode(PICTURE, "WEBP", lossless=True), PICTURE),
        (encode(PICTURE[:, :, 0], "PNG"), gray),
        (encode(PICTURE[:, :, 0], "BMP"), gray),
        (encode(alpha, "PNG"), PICTURE),
        (encode(alpha, "TIFF"), PICTURE),
        (save(Image.fromarray(PICTURE[:, :, :2], "LA"), "PNG"), gray),
        (save(palette, "PNG"), palette.convert("RGB")),
        (save(palette, "PNG", transparency=bytes(range(16))), palette.convert("RGB")),
        (save(palette, "GIF"), palette.convert("RGB")),
        (
            save(palette, "GIF", save_all=True, append_images=[palette.rotate(180)]),
            palette.convert("RGB"),
        ),
        (
            save(Image.fromarray(PICTURE).convert("1"), "PNG"),
            Image.fromarray(PICTURE).convert("1").convert("RGB"),
        ),
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # as Pillow warns of transparency that it drops
            pixels = decode_image(file)
        np.testing.assert_array_equal(pixels, np.asarray(source))


@pytest.mark.parametrize("form", ["P6", "P5", "P4", "JPEG 2000", "JPEG 2000 codestream", "AVIF"])
def test_formats_that_pillow_has_codecs_for(form):
    """Each equals Pillow's pixels, is found by content, and is bad once it is cut."""
    image = Image.fromarray(PICTURE)
    file = {
        "P6": lambda: save(image, "PPM"),
        "P5": lambda: save(image.convert("L"), "PPM"),
        "P4": lambda: save(image.convert("1"), "PPM"),
        "JPEG 2000": lambda: save(image, "JPEG2000"),
        "JPEG 2000 codestream": lambda: save(image, "JPEG2000", no_jp2=True),
        "AVIF": lambda: save(image, "AVIF", quality=90),
    }[form]()
    np.testing.assert_array_equal(decode_image(file), with_pillow(file))
    headers = read_headers(Encoded.from_bytes([file]))
    assert (headers.height[0], headers.width[0], headers.kind[0]) == (37, 50, 2)
    lengths = range(0, len(file), 1 + len(file) // 150)
    with Decoder((40, 64), "host", jax.devices("cpu")[:1], "mask") as decoder:
        batch = decoder.decode([*(file[:length] for length in lengths), file])
    assert batch.valid.tolist() == [False] * len(lengths) + [True]


def test_portable_pixmaps_as_text_and_of_sixteen_bits():
    plain = b"P3\n# a comment\n2 1\n255\n1 2 3 4 5 6\n"
    np.testing.assert_array_equal(decode_image(plain), [[[1, 2, 3], [4, 5, 6]]])
    deep = b"P5 2 1 65535\n" + bytes([200, 7, 1, 255])
    np.testing.assert_array_equal(decode_image(deep), [[[200] * 3, [1] * 3]])
    np.testing.assert_array_equal(decode_image(b"P1 2 1\n1 0"), [[[0] * 3, [255] * 3]])


def bmp(numbers, bits, grays):
    """A BMP whose palette has these gray levels and no others, written by hand."""
    height, width = numbers.shape
    stride = -(-width * bits // 32) * 4
    spread = (numbers[::-1, :, None] >> np.arange(bits - 1, -1, -1)) & 1
    packed = np.packbits(spread.reshape(height, -1).astype(np.uint8), axis=1)
    rows = np.pad(packed, [(0, 0), (0, stride - packed.shape[1])]).tobytes()
    palette = b"".join(bytes((gray, gray, gray, 0)) for gray in grays)
    sizes = (40, width, height, 1, bits, 0, len(rows), 0, 0, len(grays), 0)
    form = struct.pack("<IiiHHIIiiII", *sizes)
    start = 14 + len(form) + len(palette)
    return b"BM" + struct.pack("<III", start + len(rows), 0, start) + form + palette + rows


@pytest.mark.parametrize("width", [1, 7, 40])
@pytest.mark.parametrize(
    "bits, grays",
    [
        *[(bits, each) for bits in (1, 4, 8) for each in ((0, 255), (255, 0), (0,), (0, 1))],
        *[(bits, range(count)) for bits in (4, 8) for count in (3, 16)],
        (4, range(0, 256, 17)),
        (8, range(256)),
    ],
)
def test_bmps_of_few_gray_levels(bits, grays, width):
    numbers = np.random.default_rng(0).integers(0, len(grays), (5, width)).astype(np.uint8)
    file = bmp(numbers, bits, grays)
    opencvs = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    np.testing.assert_array_equal(decode_image(file), opencvs)
    np.testing.assert_array_equal(decode_image(file, "gray"), np.array(grays)[numbers])
    np.testing.assert_array_equal(decode_image(file, "unchanged"), numbers)


def test_avif_stands_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    file = save(Image.fromarray(PICTURE), "AVIF", quality=90, exif=exif)
    assert decode_image(file).shape == (50, 37, 3)
    np.testing.assert_array_equal(decode_image(file), with_pillow(file))


@pytest.mark.parametrize("kind, codec", [("AVIF", "avif"), ("WEBP", "webp")])
def test_a_codec_that_this_pillow_lacks_is_named(monkeypatch, kind, codec):
    file = save(Image.fromarray(PICTURE), kind)
    supported = [name for name in features.get_supported() if name != codec]
    monkeypatch.setattr(features, "get_supported", lambda: supported)
    pillow._plugin.cache_clear()
    try:
        with pytest.raises(DecodeError, match=rf"{kind}: Pillow \d+\.\d.* has no codec for it"):
            decode_image(file)
    finally:
        pillow._plugin.cache_clear()


# ---- modes


def luma(pixels: np.ndarray) -> np.ndarray:
    """ITU-R BT.601, in float64."""
    return pixels @ np.array([0.299, 0.587, 0.114])


@pytest.mark.parametrize("name", JPEGS)
@pytest.mark.parametrize("orientation", [1, 6])
def test_gray_of_jpegs_is_their_luma(name, orientation):
    file = insert(JPEGS[name], exif_segment(orientation, "<"))
    pixels = decode_image(file, "gray")
    assert pixels.dtype == np.uint8 and pixels.shape == with_pillow(file).shape[:2]
    if "K" in name:  # no Y channel: CMYK and YCCK become RGB first
        np.testing.assert_allclose(pixels, luma(with_pillow(file)), atol=2)
        return
    image = Image.open(io.BytesIO(JPEGS[name]))
    if image.mode == "RGB" and "lossless" not in name:
        image.draft("L", None)  # libjpeg's own gray
    expected = np.asarray(image.convert("L"))
    expected = expected if orientation == 1 else expected.swapaxes(0, 1)[:, ::-1]
    assert np.abs(pixels.astype(int) - expected).max() <= 1


def test_gray_of_jpegs_that_pillow_reads_is_not_the_luma_of_clipped_colors():
    """Other sampling factors make other colors of the same data, far beyond those of RGB."""
    blocks = np.random.default_rng(0).integers(0, 2, (6, 8, 3)).astype(np.uint8) * 255
    file = patch_sof(encode(blocks.repeat(16, 0).repeat(16, 1), subsampling=2), 11, b"\x42")
    image = Image.open(io.BytesIO(file))
    image.draft("L", None)
    pixels = decode_image(file, "gray")
    np.testing.assert_array_equal(pixels, image)
    assert np.abs(luma(decode_image(file)) - pixels).max() > 50


def test_gray_of_other_formats_is_the_luma_of_their_colors():
    palette = Image.fromarray(PICTURE).quantize(16)
    deep = np.arange(0, 65536, 41, dtype=np.uint16)[:1500].reshape(30, 50)
    for file in [
        *[encode(PICTURE, kind) for kind in ("PNG", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")],
        encode(np.dstack([PICTURE, PICTURE[:, :, :1]]), "PNG"),
        save(palette, "PNG", transparency=bytes(range(16))),
        save(palette, "GIF"),
        save(Image.fromarray(PICTURE[:, :, :2], "LA"), "PNG"),
        save(Image.fromarray(PICTURE).convert("1"), "PNG"),
        encode(deep, "PNG"),
    ]:
        pixels = decode_image(file, mode="gray")
        assert pixels.ndim == 2 and pixels.dtype == np.uint8
        np.testing.assert_allclose(pixels, luma(decode_image(file)), atol=0.51)
    np.testing.assert_array_equal(decode_image(encode(deep, "PNG"), "gray"), deep >> 8)


def test_unchanged_keeps_what_a_file_stores():
    palette = Image.fromarray(PICTURE).quantize(16)
    numbers = np.asarray(palette)
    alpha = np.dstack([PICTURE, PICTURE[:, :, :1]])
    deep = np.arange(0, 65536, 41, dtype=np.uint16)[:1500].reshape(30, 50)
    binary = Image.fromarray(PICTURE).convert("1")
    whole = deep.astype(np.int32) * 9 - 70000
    real = deep.astype(np.float32) / 7
    for file, stored in [
        *[(save(palette, kind), numbers) for kind in ("PNG", "BMP", "TIFF", "GIF")],
        (save(palette, "PNG", transparency=bytes(range(16))), numbers),
        (save(palette, "PNG", bits=8), numbers),
        *[(encode(deep, kind), deep) for kind in ("PNG", "TIFF")],
        *[(cv2.imencode(f".{kind}", deep)[1].tobytes(), deep) for kind in ("png", "tiff", "pgm")],
        *[(save(Image.fromarray(each), "TIFF"), each) for each in (whole, real)],
        *[(encode(alpha, kind), alpha) for kind in ("PNG", "TIFF")],
        (encode(alpha, "WEBP", lossless=True, exact=True), alpha),
        (save(Image.fromarray(PICTURE[:, :, :2], "LA"), "PNG"), PICTURE[:, :, :2]),
        *[(encode(PICTURE[:, :, 0], kind), PICTURE[:, :, 0]) for kind in ("PNG", "BMP", "TIFF")],
        *[(encode(PICTURE, kind), PICTURE) for kind in ("PNG", "BMP", "TIFF", "PPM")],
        *[(save(binary, kind), np.asarray(binary).astype(np.uint8)) for kind in ("PNG", "TIFF")],
        (lossless(PICTURE[:, :, 0]), PICTURE[:, :, 0]),
    ]:
        pixels = decode_image(file, mode="unchanged")
        assert pixels.dtype == stored.dtype and pixels.flags.writeable
        np.testing.assert_array_equal(pixels, stored)


@pytest.mark.parametrize("highest", [1, 2, 20, 99, 128, 254, 255, 256, 1000, 40000, 65534, 65535])
@pytest.mark.parametrize("text", [False, True])
def test_unchanged_keeps_the_numbers_of_portable_graymaps(highest, text):
    numbers = np.unique(np.linspace(0, highest, 1200).astype(np.int64))
    kind = np.uint8 if highest < 256 else np.uint16
    stored = numbers.astype(np.dtype(kind).newbyteorder(">")).tobytes()
    pixels = " ".join(map(str, numbers)).encode() + b"\n" if text else stored
    file = b"P%d %d 1 %d\n" % (2 if text else 5, numbers.size, highest) + pixels
    found = decode_image(file, "unchanged")
    assert found.dtype == kind
    np.testing.assert_array_equal(found[0], numbers)
    gray = decode_image(file, "gray")[0]
    np.testing.assert_allclose(gray, numbers.astype(np.float64) * 255 / highest, atol=1)
    if highest < 256:
        color = b"P6 1 1 %d\n" % highest + bytes([0, 1, highest])
        assert decode_image(color, "unchanged").tolist() == [[[0, 1, highest]]]


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("color", [0, 3])
def test_unchanged_keeps_the_numbers_of_few_bits(bits, color):
    """Class numbers, gray or of a palette: a PNG that is written by hand, as Pillow cannot."""
    numbers = np.random.default_rng(bits).integers(0, 2**bits, (5, 16), np.uint8)
    spread = (numbers[..., None] >> np.arange(bits - 1, -1, -1)) & 1
    packed = np.packbits(spread.reshape(5, -1).astype(np.uint8), axis=1)
    rows = b"".join(b"\0" + row.tobytes() for row in packed)

    def chunk(name, data):
        checksum = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", 16, 5, bits, color, 0, 0, 0)
    palette = chunk(b"PLTE", bytes(3 * 2**bits)) if color == 3 else b""
    body = chunk(b"IHDR", header) + palette + chunk(b"IDAT", zlib.compress(rows))
    file = b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")
    np.testing.assert_array_equal(decode_image(file, "unchanged"), numbers)


def test_unchanged_jpegs():
    for name, file in JPEGS.items():
        pixels = decode_image(file, "unchanged")
        image = Image.open(io.BytesIO(file))
        assert pixels.dtype == np.uint8 and pixels.shape == np.asarray(image).shape, name
        assert np.abs(pixels.astype(int) - np.asarray(image)).max() <= 1, name


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("stored", ["numbers", "deep", "alpha"])
def test_unchanged_images_stand_upright(kind, stored):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = {
        "numbers": Image.fromarray(PICTURE).quantize(16),
        "deep": Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30) * 100),
        "alpha": Image.fromarray(np.dstack([PICTURE, PICTURE[:, :, :1]])),
    }[stored]
    pixels = decode_image(save(image, kind, exif=exif), "unchanged")
    np.testing.assert_array_equal(pixels, np.asarray(image).swapaxes(0, 1)[:, ::-1])


@pytest.mark.parametrize("kind, channels", [("png", 3), ("png", 4), ("tiff", 3), ("ppm", 3)])
def test_color_of_sixteen_bits_is_not_called_unchanged(kind, channels):
    pixels = np.arange(60 * channels, dtype=np.uint16).reshape(6, 10, channels) * 200
    file = cv2.imencode(f".{kind}", pixels)[1].tobytes()
    with pytest.raises(
        DecodeError,
        match=f"{kind.upper()} color of 16 bits: Pillow reads 8 of them, take mode='rgb'",
    ):
        decode_image(file, "unchanged")
    np.testing.assert_allclose(decode_image(file), pixels[..., 2::-1] / 257.0, atol=1)


def test_wrong_modes_are_named():
    with pytest.raises(
        ValueError, match="`mode` must be one of 'rgb', 'gray', 'unchanged', got 'L'"
    ):
        decode_image(PLAIN, "L")


# ---- limits


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "TIFF", "BMP", "JPEG2000", "PPM", "AVIF"])
def test_pillows_pixel_limit_does_not_count(monkeypatch, kind):
    file = save(Image.fromarray(PICTURE), kind)
    expected = decode_image(file)
    for limit in (100, 1500):  # an error, and a warning, of Pillow's
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(decode_image(file), expected)
        assert Image.MAX_IMAGE_PIXELS == limit


def test_the_limit_is_lifted_for_as_long_as_some_thread_needs_it(monkeypatch):
    limit = pillow._PixelLimit()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with limit.lifted((10, 10)):
        assert Image.MAX_IMAGE_PIXELS == 100
        with limit.lifted((10, 11)):
            with limit.lifted((20, 20)), limit.lifted((1, 1)):
                assert Image.MAX_IMAGE_PIXELS is None
            assert Image.MAX_IMAGE_PIXELS is None
        assert Image.MAX_IMAGE_PIXELS == 100


def test_max_pixels_of_one_image():
    for file in (PLAIN, save(Image.fromarray(PICTURE), "PNG")):
        assert decode_image(file, max_pixels=37 * 50).shape == (37, 50, 3)
        with pytest.raises(DecodeError, match="50 x 37 pixels are more than max_pixels=1849"):
            decode_image(file, max_pixels=37 * 50 - 1)
    with pytest.raises(ValueError, match="`max_pixels` must be"):
        decode_image(PLAIN, max_pixels=0)


@pytest.mark.parametrize(
    "options",
    [{}, {"lossless": True}, {"save_all": True, "append_images": [Image.new("RGB", (50, 37))]}],
)
def test_the_size_of_webp_and_gif_is_known_before_pillow_opens_them(monkeypatch, options):
    monkeypatch.setattr(pillow, "open_image", lambda *arguments: 1 / 0)
    for kind in ("WEBP", "GIF"):
        file = save(Image.fromarray(PICTURE), kind, **options)
        with pytest.raises(DecodeError, match="50 x 37 pixels are more than max_pixels=1849"):
            decode_image(file, max_pixels=37 * 50 - 1)


@pytest.mark.parametrize("predictor", range(1, 8))
def test_lossless_jpegs_give_their_source_back(predictor):
    pixels = np.ascontiguousarray(PICTURE[:20, :24])
    adobe = segment(0xEE, b"Adobe\0\x64\0\0\0\0\0")
    for file in (lossless(pixels, predictor), lossless(pixels, predictor, adobe, table=3)):
        np.testing.assert_array_equal(decode_image(file), pixels)
    gray = np.repeat(pixels[:, :, :1], 3, axis=2)
    np.testing.assert_array_equal(decode_image(lossless(pixels[:, :, 0], predictor)), gray)
    turned = lossless(pixels, predictor, exif_segment(6, "<"))
    np.testing.assert_array_equal(decode_image(turned), pixels.swapaxes(0, 1)[:, ::-1])


def test_sixteen_bits_become_eight():
    deep = np.arange(0, 65536, 41, dtype=np.uint16)[:1500].reshape(30, 50)
    color = np.dstack([deep, deep[::-1], 65535 - deep])
    exact = color.astype(np.float64) * 255 / 65535
    gray_file = encode(deep, "PNG")
    color_file = cv2.imencode(".png", color[:, :, ::-1])[1].tobytes()
    np.testing.assert_allclose(decode_image(color_file), exact, atol=1)
    np.testing.assert_allclose(decode_image(gray_file), np.repeat(exact[:, :, :1], 3, 2), atol=1)
    np.testing.assert_array_equal(
        decode_image(gray_file)[:, :, 0], decode_image(color_file)[:, :, 0]
    )


def tiff(strip, height, width, bits, photometric=1):
    """A little-endian TIFF of one strip of gray; photometric 0 says that 0 is white."""
    fields = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 273: 0, 277: 1}
    fields |= {278: height, 279: len(strip)}
    fields[273] = 8 + 2 + 12 * len(fields) + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, fields[tag]) for tag in sorted(fields))
    directory = struct.pack("<H", len(fields)) + entries + bytes(4)
    return b"II*\0" + struct.pack("<I", 8) + directory + strip


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_deep_white_of_jpeg_2000_is_not_black(channels):
    deep = np.linspace(0, 65535, 64 * 64 * channels).round().astype(np.uint16)
    file = cv2.imencode(".jp2", deep.reshape(64, 64, channels))[1].tobytes()
    if channels == 1:
        exact = deep.reshape(64, 64) * (255 / 65535)
        np.testing.assert_allclose(decode_image(file, "gray"), exact, atol=1)
        return
    stored = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_UNCHANGED)
    stored = stored[..., [2, 1, 0, 3][:channels]]
    np.testing.assert_array_equal(decode_image(file, "unchanged"), stored)
    np.testing.assert_array_equal(decode_image(file), stored[..., :3] >> 8)


@pytest.mark.parametrize("bits", [9, 10, 12, 15, 16])
def test_gray_of_jpeg_2000_keeps_its_numbers(bits):
    """A file of 16 bits whose header then says fewer: what is coded counts from the middle."""
    numbers = np.linspace(0, 2**bits - 1, 64 * 64).round().astype(np.uint16).reshape(64, 64)
    shifted = numbers + np.uint16(2**15 - 2 ** (bits - 1))
    lossless = [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000]
    file = bytearray(cv2.imencode(".jp2", shifted, lossless)[1].tobytes())
    for place in (file.find(b"ihdr") + 14, file.find(b"\xff\x4f\xff\x51") + 42):
        assert file[place] == 15
        file[place] = bits - 1
    np.testing.assert_array_equal(decode_image(file, "unchanged"), numbers)
    exact = numbers * (255 / (2**bits - 1))
    np.testing.assert_allclose(decode_image(file, "gray"), exact, atol=1)


def test_twelve_bits_become_eight():
    deep = np.arange(0, 4096, 3, dtype=np.uint16)[:1360].reshape(34, 40)
    first, second = deep.astype(np.uint32).reshape(-1, 2).T  # two pixels in three bytes
    pairs = (first << 12 | second).astype(">u4").view(np.uint8).reshape(-1, 4)
    file = tiff(pairs[:, 1:].tobytes(), 34, 40, 12)
    np.testing.assert_array_equal(decode_image(file, "unchanged"), deep)
    exact = deep.astype(np.float64) * 255 / 4095
    np.testing.assert_allclose(decode_image(file)[:, :, 1], exact, atol=1)
    np.testing.assert_allclose(decode_image(file, "gray"), exact, atol=1)


@pytest.mark.parametrize("photometric", [0, 1])
def test_sixteen_bits_of_which_zero_is_white(photometric):
    deep = np.arange(0, 65536, 41, dtype=np.uint16)[:1500].reshape(30, 50)
    file = tiff(deep.astype("<u2").tobytes(), 30, 50, 16, photometric)
    np.testing.assert_array_equal(decode_image(file, "unchanged"), deep)
    libtiffs = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    np.testing.assert_allclose(decode_image(file).astype(int), libtiffs, atol=1)
    np.testing.assert_allclose(decode_image(file, "gray").astype(int), libtiffs[..., 0], atol=1)


def test_pixels_without_an_agreed_range_are_refused():
    file = save(Image.fromarray(PICTURE[:, :, 0].astype(np.float32)), "TIFF")
    with pytest.raises(DecodeError, match="TIFF pixels of floats have no agreed range"):
        decode_image(file)


@pytest.mark.parametrize(
    "wrap", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)]
)
def test_any_bytes_like_object_will_do(wrap):
    np.testing.assert_array_equal(decode_image(wrap(PLAIN)), decode_image(PLAIN))


# ---- orientation


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", "<>")
def test_jpegs_stand_upright(orientation, order):
    file = insert(PLAIN, exif_segment(orientation, order))
    pixels = decode_image(file)
    np.testing.assert_array_equal(pixels, with_pillow(file))
    row, size = on_canvas(file, (60, 60))
    assert size == pixels.shape[:2]
    np.testing.assert_array_equal(row[: size[0], : size[1]], pixels)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", [2, 6])
def test_other_formats_stand_upright(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    lossless = {"lossless": True} if kind == "WEBP" else {}
    turned = PICTURE[:, ::-1] if orientation == 2 else PICTURE.swapaxes(0, 1)[:, ::-1]
    np.testing.assert_array_equal(
        decode_image(encode(PICTURE, kind, exif=exif, **lossless)), turned
    )


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["CMYK", "sparse chroma"])
def test_jpegs_that_pillow_reads_stand_upright_damaged_or_not(name, orientation):
    file = insert(JPEGS[name], exif_segment(orientation, "<"))
    np.testing.assert_array_equal(decode_image(file), with_pillow(file))
    np.testing.assert_array_equal(decode_image(insert(file, b"rubbish")), with_pillow(file))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0hello, no TIFF",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        *(b"Exif\0\0" + exif_segment(orientation, "<")[10:] for orientation in (0, 9, 300)),
    ],
)
def test_damaged_exif_costs_no_image(kind, exif):
    lossless = {"lossless": True} if kind == "WEBP" else {}
    plain = decode_image(save(Image.fromarray(PICTURE), kind, **lossless))
    damaged = save(Image.fromarray(PICTURE), kind, exif=exif, **lossless)
    np.testing.assert_array_equal(decode_image(damaged), plain)


def test_the_orientation_of_a_png_may_stand_behind_its_pixels():
    exif = exif_segment(6, ">")[10:]
    chunk = b"eXIf" + exif
    chunk = struct.pack(">I", len(exif)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    file = encode(PICTURE, "PNG")
    turned = insert(file, chunk, at=len(file) - 12)
    np.testing.assert_array_equal(decode_image(turned), PICTURE.swapaxes(0, 1)[:, ::-1])


# ---- the canvas


@pytest.mark.parametrize("canvas", [(37, 50), (64, 50), (37, 80), (64, 64), (20, 20), (40, 10)])
@pytest.mark.parametrize("file", [PLAIN, encode(PICTURE, "PNG"), JPEGS["CMYK"]])
def test_nothing_but_the_used_part_is_written(file, canvas):
    row, (height, width) = on_canvas(file, canvas)
    rest = row.copy()
    rest[:height, :width] = 9
    assert (rest == 9).all()
    if (height, width) == (37, 50):
        np.testing.assert_array_equal(row[:height, :width], decode_image(file))
    else:
        assert row[:height, :width].std() > 9


def test_fit_keeps_the_aspect():
    sizes = np.array([[100, 200], [200, 100], [1000, 1000], [50, 4000], [99, 101], [64, 96]])
    fitted = fit_size(sizes, (64, 96))
    for (height, width), (h, w) in zip(sizes.tolist(), fitted.tolist()):
        scale = min(1, 64 / height, 96 / width)
        assert 1 <= h <= 64 and 1 <= w <= 96
        assert abs(h - height * scale) <= 0.5 and abs(w - width * scale) <= 0.5
    np.testing.assert_array_equal(fit_size(fitted, (64, 96)), fitted)  # what fits stays
    halves = fit_size(np.array([[10, 5], [10, 7], [5, 10]]), (5, 5))
    assert halves.tolist() == [[5, 3], [5, 4], [3, 5]]  # up, always


@pytest.mark.parametrize("canvas", [(1, 1), (3, 1), (511, 997), (2**20 - 1, 3), (2**31 - 1,) * 2])
def test_no_image_goes_beyond_its_canvas(canvas):
    rng = np.random.default_rng(0)
    sizes = (2 ** rng.uniform(0, 31, (10_000, 2))).astype(np.int32)
    fitted = fit_size(sizes, canvas)
    assert (fitted >= 1).all() and (fitted <= canvas).all() and (fitted <= sizes).all()
    shrunk = (fitted != sizes).any(axis=1)
    assert (fitted == canvas).any(axis=1)[shrunk].all()


@pytest.mark.parametrize("side", [1, 2, 3, 7, 8, 9])
def test_tiny_jpegs_are_decoded_in_full(side):
    file = encode(picture(1, side, side), quality=95)
    np.testing.assert_array_equal(decode_image(file), with_pillow(file))


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("short", [13, 30, 61, 100, 140, 170, 200])
def test_shrinking_keeps_a_ramp_a_ramp(short, orientation):
    """A linear ramp stays linear under any symmetric filter: pixel i of n shows the source at (i +
    1/2) / n.

    The sides are such that every DCT scale but the whole ends inside a pixel: taking that pixel for
    a whole one would be wrong by 1 to 6 levels at the far edge. The mean over the other axis takes
    JPEG's noise away.
    """
    height, width = 203, 307
    ramp = np.zeros((height, width, 3))
    ramp[..., 0] = (np.arange(width) + 0.5) / width * 255
    ramp[..., 1] = (np.arange(height)[:, None] + 0.5) / height * 255
    file = encode(ramp.round().astype(np.uint8), quality=100, subsampling=0)
    if orientation == 1:
        row, (h, w) = on_canvas(file, (short, 999))
        pixels = row[:h, :w]
    else:
        row, (h, w) = on_canvas(insert(file, exif_segment(6, ">")), (999, short))
        pixels = row[:h, :w][:, ::-1].swapaxes(0, 1)  # turned back
    h, w = pixels.shape[:2]
    assert h == short
    x, y = (np.arange(w) + 0.5) / w * 255, (np.arange(h) + 0.5) / h * 255
    np.testing.assert_allclose(pixels[..., 0].mean(0)[2:-2], x[2:-2], atol=1)
    np.testing.assert_allclose(pixels[..., 1].mean(1)[2:-2], y[2:-2], atol=1)


@pytest.mark.parametrize("scale", [0.1, 0.2, 0.3, 0.45, 0.55, 0.7, 0.9])
def test_shrinking_is_near_a_float64_resize_of_the_whole_image(scale):
    """The DCT scale is a filter of its own: smooth pictures agree within a level, the worst pixel
    within 6.
    """
    pixels = picture(3, 240, 360)
    file = encode(pixels, quality=95, subsampling=0)
    row, (h, w) = on_canvas(file, (int(240 * scale), 360))
    expected = triangle(
        triangle(with_pillow(file).astype(np.float64), h).swapaxes(0, 1), w
    ).swapaxes(0, 1)
    difference = np.abs(row[:h, :w] - expected)
    assert difference.mean() < 1 and difference.max() < 6


def triangle(pixels: np.ndarray, count: int) -> np.ndarray:
    """Antialiased linear resize along the first axis, straight from its definition."""
    ratio = len(pixels) / count
    centres = (np.arange(count)[:, None] + 0.5) * ratio
    weights = np.maximum(0, 1 - np.abs(np.arange(len(pixels)) + 0.5 - centres) / max(ratio, 1))
    return np.tensordot(weights / weights.sum(1, keepdims=True), pixels, 1)


def test_no_alias_survives_shrinking():
    """A checkerboard of single pixels becomes gray, whether the DCT scale or the resize takes it
    away.
    """
    board = np.repeat((np.indices((200, 200)).sum(0) % 2 * 255).astype(np.uint8)[..., None], 3, -1)
    for file in (encode(board, quality=95), encode(board, "PNG")):
        for side in (25, 60, 90):
            row, _ = on_canvas(file, (side, side))
            assert np.abs(row[2:-2, 2:-2].astype(float) - 127.5).max() < 40


# ---- damage


def test_damaged_image_data_costs_pixels_not_the_image():
    """Bytes that look like an impossible marker, in the last third: libjpeg gives up there, the
    rest stands.
    """
    pixels = picture(2, 160, 160)
    file = encode(pixels, quality=90)
    for marker in (b"\xff\x02", b"\xff\xc4", b"\xff\xd8", b"\xff\xc8\0\0"):
        at = len(file) * 2 // 3
        damaged = file[:at] + marker + file[at + len(marker) :]
        result = decode_image(damaged)
        assert result.shape == pixels.shape
        np.testing.assert_array_equal(result[:64], decode_image(file)[:64])


def damaged_behind_its_first_scan() -> tuple[bytes, int]:
    """A progressive JPEG and where its first scan ends: libjpeg-turbo warns of the rubbish there,
    then gives up at a table, before it has written a row.
    """
    file = JPEGS["progressive"]
    table = file.index(b"\xff\xc4", file.index(b"\xff\xda"))
    return file[:table] + bytes(8) + file[table : table + 4] + b"\x7f" + file[table + 5 :], table


def test_a_decode_that_ends_early_leaves_nothing_of_the_image_before():
    file, _ = damaged_behind_its_first_scan()
    encoded = Encoded.from_bytes([file])
    header = read_headers(encoded).row(0)
    rows = [np.full((header.height, header.width, 3), level, np.uint8) for level in (0, 255)]
    for row in rows:
        decode_into(encoded.view(0), header, row.shape[:2], row)
    np.testing.assert_array_equal(*rows)
    np.testing.assert_array_equal(rows[0], decode_image(file))


def test_a_progressive_jpeg_shows_the_scan_before_its_damage():
    """Pillow refuses it; it is no black image that counts as valid."""
    file, end = damaged_behind_its_first_scan()
    with pytest.raises(OSError):
        Image.open(io.BytesIO(file)).load()
    expected = Image.open(io.BytesIO(file[:end] + b"\xff\xd9"))
    np.testing.assert_array_equal(decode_image(file), np.asarray(expected))


@pytest.mark.parametrize("name", ["4:2:0", "progressive", "CMYK", "gray", "sparse chroma"])
def test_rubbish_between_segments_changes_nothing(name):
    odd = insert(JPEGS[name], b"rubbish")
    np.testing.assert_array_equal(decode_image(odd), decode_image(JPEGS[name]))


def without_adobe(file):
    at = file.index(b"Adobe") - 4
    return file[:at] + file[at + 2 + int.from_bytes(file[at + 2 : at + 4], "big") :]


def test_a_repair_keeps_the_restart_interval():
    file = encode(PICTURE, restart_marker_blocks=3)
    np.testing.assert_array_equal(decode_image(insert(file, b"rubbish")), decode_image(file))


@pytest.mark.parametrize(
    "file",
    [JPEGS["CMYK"], without_adobe(JPEGS["CMYK"]), JPEGS["YCCK"]],
    ids=["Adobe", "no", "YCCK"],
)
def test_a_repair_keeps_the_four_colors(file):
    at = len(file) - 40
    damaged = file[:at] + b"\xff\xc1" + file[at + 2 :]
    with pytest.raises(OSError):
        Image.open(io.BytesIO(damaged)).load()
    np.testing.assert_array_equal(decode_image(damaged)[:16], decode_image(file)[:16])


def test_an_unknown_jfif_version_changes_nothing():
    at = PLAIN.index(b"JFIF\0") + 5
    np.testing.assert_array_equal(
        decode_image(PLAIN[:at] + b"\x09" + PLAIN[at + 1 :]), decode_image(PLAIN)
    )


@pytest.mark.parametrize("file", [b"", b"text", PLAIN[:-9], encode(PICTURE, "PNG")[:300]])
def test_bad_bytes_raise_with_their_count(file):
    with pytest.raises(DecodeError, match=rf"cannot decode image \({len(file)} bytes\): .+"):
        decode_image(file)


def test_a_palette_that_is_missing_is_named():
    file = save(Image.fromarray(PICTURE).quantize(16), "TIFF")
    tag = struct.pack("<HH", 320, 3)  # ColorMap, of SHORTs
    assert file.count(tag) == 1
    with pytest.raises(DecodeError, match=r"TIFF: .*no palette"):
        decode_image(file.replace(tag, struct.pack("<HH", 318, 3)))


def test_a_vast_header_is_refused_before_anything_is_allocated():
    file = patch_sof(PLAIN, 5, b"\xea\x60\xea\x60")
    decode_image(PLAIN)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="60000 x 60000 pixels"):
            decode_image(file)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
