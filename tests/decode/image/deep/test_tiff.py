"""TIFF of any numbers, beside tifffile and what was written."""

import io
import itertools
import struct

import jax
import numpy as np
import PIL.Image
import pytest
import tifffile

from jaxaug.decode import Decoder, decode_image
from jaxaug.decode.image.deep import tiff as tiff_module
from jaxaug.decode.image.deep import tiff_tags
from jaxaug.errors import DecodeError
from tests.decode.image.deep.files import decode, numbers, reason, tiff
from tests.images import picture

DTYPES = ("uint8", "int8", "uint16", "int16", "float16", "float32", "float64")
STORAGE = (
    (None, None),
    ("zlib", None),
    ("zlib", 2),
    ("lzw", 2),
    ("zstd", None),
    ("packbits", None),
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_those_that_were_written(dtype):
    """Chunky or planes, strips or tiles, both byte orders, compressed, predicted."""
    pixels = numbers(30, 40, 3, dtype=dtype)
    files = []
    for (compression, predictor), planes, tile, order in itertools.product(
        STORAGE, (False, True), (None, (16, 32)), "<>"
    ):
        options = {"compression": compression, "predictor": predictor, "byteorder": order}
        if predictor and pixels.dtype.kind == "f":
            options["predictor"] = 3
        stored = pixels.transpose(2, 0, 1).copy() if planes else pixels
        options |= {"planarconfig": "separate" if planes else "contig"}
        options |= {"tile": tile} if tile else {"rowsperstrip": 7}
        files.append(tiff(stored, bigtiff=order == ">", **options))
    one = jax.devices("cpu")[:1]
    with Decoder((30, 40), devices=one, num_threads=1, channels=3, dtype="float32") as decoder:
        found = np.asarray(decoder.decode(files).pixels)
    np.testing.assert_array_equal(found, np.broadcast_to(pixels.astype(np.float32), found.shape))


def test_pages_are_images_of_their_own():
    file = io.BytesIO()
    pages = [numbers(8, 9, dtype="uint16"), numbers(5, 6, 2, dtype="float32")]
    with tifffile.TiffWriter(file) as writer:
        writer.write(pages[0], photometric="minisblack")
        writer.write(pages[1], photometric="minisblack", planarconfig="contig")
    found = decode(file.getvalue(), channels=1, dtype="uint16")
    np.testing.assert_array_equal(found[..., 0], pages[0])
    found = decode(file.getvalue(), channels=2, dtype="float32", page=1)
    np.testing.assert_array_equal(found, pages[1])
    assert "it has 2 pages, and page=2" in reason(file.getvalue(), channels=2, page=2)


@pytest.mark.parametrize("nodata, dtype", [(-9999, "float32"), (np.nan, "float32"), (0, "uint16")])
def test_what_has_no_data_is_in_no_mean(nodata, dtype):
    """A shrink by 2 is the mean of the four pixels and, by a quarter, of their neighbors."""
    pixels = np.full((8, 8), 50, dtype)
    pixels[:4] = nodata
    pixels[4:, :2] = nodata
    text = "nan" if np.isnan(nodata) else str(nodata)
    file = tiff(pixels, extratags=[(42113, "s", 0, text, True)])
    found = decode(file, (4, 4), channels=1, dtype=dtype)[..., 0]
    assert (found[2:, 1:] == 50).all()
    np.testing.assert_array_equal(found[0], np.full(4, nodata, dtype))
    plain = decode(tiff(pixels), (4, 4), channels=1, dtype=dtype)[..., 0]
    assert np.isnan(nodata) or (plain[2:, 1] != 50).all()
    np.testing.assert_array_equal(decode(file, channels=1, dtype=dtype)[..., 0], pixels)


def test_white_may_be_zero_and_bits_may_be_reversed():
    """Colors are turned around at full depth; numbers are those of the file."""
    deep = numbers(5, 6)
    white = tiff(deep, photometric="miniswhite")
    np.testing.assert_array_equal(decode(white, channels="gray", dtype="uint16")[..., 0], ~deep)
    np.testing.assert_array_equal(decode(white, channels=1, dtype="uint16")[..., 0], deep)
    reverse = np.array([int(f"{number:08b}"[::-1], 2) for number in range(256)], np.uint8)
    pixels = picture(0, 5, 6)
    file = tiff(reverse[pixels], photometric="rgb")
    unit, order = struct.pack("<HHIH", 296, 3, 1, 1), struct.pack("<HHIH", 266, 3, 1, 2)
    assert file.count(unit) == 1
    file = file.replace(unit, order)
    for form in ({"channels": 3}, {"dtype": "uint16"}, {}):
        np.testing.assert_array_equal(decode(file, **form), pixels)
    bits = np.random.default_rng(0).random((9, 13)) < 0.5
    file = tiff(bits, photometric="miniswhite")
    np.testing.assert_array_equal(decode(file, channels=1)[..., 0], bits)
    np.testing.assert_array_equal(decode(file, channels="gray", page=0)[..., 0], 255 * ~bits)
    np.testing.assert_array_equal(decode(file, channels="rgba")[..., 0], 255 * ~bits)


def test_alpha_may_be_multiplied_into_the_colors():
    """Colors are divided by it, as Pillow does for 8 bits; numbers are those of the file."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, 7, 4), np.uint8)
    pixels[..., :3] = pixels[..., :3] * (pixels[..., 3:] / 255)
    straight = tiff(pixels, photometric="rgb", extrasamples=["unassalpha"])
    np.testing.assert_array_equal(decode(straight, channels="rgba", dtype="uint16"), pixels)
    multiplied = tiff(pixels, photometric="rgb", extrasamples=["assocalpha"])
    np.testing.assert_array_equal(decode(multiplied, channels=4, dtype="uint16"), pixels)
    expected = np.asarray(PIL.Image.open(io.BytesIO(multiplied)).convert("RGBA")).astype(int)
    found = decode(multiplied, channels="rgba", dtype="uint16").astype(int)
    assert np.abs(found - expected)[pixels[..., 3] > 0].max() <= 1
    deep = tiff(pixels.astype(np.uint16) * 257, photometric="rgb", extrasamples=["assocalpha"])
    found = decode(deep, channels="rgba", dtype="uint16")
    alpha = pixels[..., 3:].astype(float)
    exact = np.minimum(65535.0 * pixels[..., :3] / np.where(alpha, alpha, 1), 65535) * (alpha > 0)
    assert np.abs(found[..., :3] - exact).max() <= 0.5


@pytest.mark.parametrize("deep", [False, True])
def test_colors_that_are_not_seen_are_in_no_mean(deep):
    """A shrink weighs colors by alpha, as Pillow does."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (40, 56, 4), np.uint8)
    pixels[..., 3] *= rng.random((40, 56)) < 0.6
    pixels[:8, :8] = 77, 88, 99, 0
    image = PIL.Image.fromarray(pixels)
    expected = np.asarray(image.resize((14, 10), PIL.Image.Resampling.BILINEAR)).astype(int)
    file = io.BytesIO()
    image.save(file, "PNG")
    data = file.getvalue()
    if deep:
        data = tiff(pixels.astype("uint16") * 257, photometric="rgb", extrasamples=["unassalpha"])
    found = decode(data, (10, 14), channels="rgba", dtype="uint16" if deep else "uint8")
    levels = np.round(found / (257 if deep else 1)).astype(int)
    seen = expected[..., 3] >= 64  # of less Pillow, which rounds products to 8 bits, has few levels
    assert np.abs(levels - expected)[seen].max() <= 6
    assert np.abs(levels - expected)[..., 3].max() <= 1
    np.testing.assert_array_equal(levels[0, 0], [77, 88, 99, 0])


@pytest.mark.parametrize("codec", ["jpeg", "jpeg2000", "jpegxl", "png", "webp"])
def test_an_image_inside_may_not_be_larger_than_its_tile(codec):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    options = {"photometric": "rgb", "compression": codec, "tile": (32, 32)}
    good = tiff(pixels, **options)
    form = {"channels": 3, "dtype": "uint16"}
    assert decode(good, **form).shape == pixels.shape
    larger = tiff(pixels, **options | {"tile": (64, 64)})
    with tifffile.TiffFile(io.BytesIO(good)) as small, tifffile.TiffFile(io.BytesIO(larger)) as one:
        tags = small.pages[0].tags
        at, count = one.pages[0].dataoffsets[0], one.pages[0].databytecounts[0]
        inside = larger[at : at + count]
        bad = bytearray(good + inside)
        for tag, number in ((324, len(good)), (325, count)):  # of the first tile
            bad[tags[tag].valueoffset : tags[tag].valueoffset + 4] = number.to_bytes(4, "little")
    with pytest.raises(DecodeError, match="an image inside of it has 64 x 64 pixels, where 32 x"):
        decode(bytes(bad), **form)


def test_webp_inside_is_read_without_a_form():
    """Pillow's libtiff may lack it, and says so when the pixels are decoded."""
    pixels = picture(0, 40, 56)
    options = {"photometric": "rgb", "compression": "webp", "compressionargs": {"lossless": True}}
    for part in ({"tile": (32, 32)}, {"rowsperstrip": 16}):
        file = tiff(pixels, **options, **part)
        np.testing.assert_array_equal(decode(file), pixels)
        np.testing.assert_array_equal(decode_image(file), pixels)


@pytest.mark.parametrize("codec", ["jpeg", "png"])
def test_a_last_strip_may_be_taller_than_what_is_left(codec):
    """Some encoders give all strips one height; libtiff takes the first rows, too."""
    pixels = picture(0, 48, 64)
    for rows in (16, 48):
        file = tiff(pixels, photometric="rgb", compression=codec, rowsperstrip=rows)
        whole = tifffile.imread(io.BytesIO(file))
        with tifffile.TiffFile(io.BytesIO(file)) as opened:
            at = opened.pages[0].tags[257].valueoffset
        short = file[:at] + (41).to_bytes(4, "little") + file[at + 4 :]
        np.testing.assert_array_equal(decode(short, channels=3, dtype="uint16"), whole[:41])


def test_palettes_give_colors_or_their_numbers():
    for colors in (4, 16, 200):
        image = PIL.Image.fromarray(picture(1, 20, 30)).quantize(colors)
        buffer = io.BytesIO()
        image.save(buffer, "TIFF")
        file = buffer.getvalue()
        expected = np.asarray(image.convert("RGB"))
        np.testing.assert_array_equal(decode(file, dtype="uint16"), expected)
        np.testing.assert_array_equal(decode(file, channels=1)[..., 0], np.asarray(image))


def test_no_data_is_told_by_the_numbers_of_the_file():
    """Not by a color that is equal: of a palette, and where white is zero."""
    tag = {"extratags": [(42113, "s", 0, "0", True)]}
    pixels = np.ones((8, 8), np.uint8)
    pixels[:, ::2] = 2
    palette = np.zeros((3, 256), np.uint16)
    palette[0, 1] = palette[1, 2] = 65535
    options = {"photometric": "palette", "colormap": palette}
    plain = decode(tiff(pixels, **options), (4, 4), dtype="uint16")
    np.testing.assert_array_equal(
        decode(tiff(pixels, **options, **tag), (4, 4), dtype="uint16"), plain
    )
    for dtype in ("uint16", "int16"):
        white = np.full((8, 8), 50, dtype)
        white[:4] = 0
        file = tiff(white, photometric="miniswhite", **tag)
        found = decode(file, (4, 4), channels="gray", dtype="float32")[..., 0]
        limits = np.iinfo(dtype)
        total = float(limits.max) + limits.min
        assert (found[2:] == total - 50).all() and (found[0] == total).all()


@pytest.mark.parametrize(
    "nodata, expected, dtype",
    [("-7", -7, "int16"), ("nan", np.nan, "float32"), ("-9999", 0, "uint8"), ("nan", 0, "uint8")],
)
def test_tiles_that_were_never_written_have_no_data(nodata, expected, dtype):
    """GDAL writes an offset of 0 for them; what no pixel can be is 0."""
    pixels = numbers(16, 32, dtype=dtype)
    file = tiff(pixels, tile=(16, 16), extratags=[(42113, "s", 0, nodata, True)])
    with tifffile.TiffFile(io.BytesIO(file)) as opened:
        tag = opened.pages[0].tags[324]
    sparse = bytearray(file)
    sparse[tag.valueoffset + 4 : tag.valueoffset + 8] = bytes(4)
    found = decode(bytes(sparse), channels=1, dtype="float32")[..., 0]
    np.testing.assert_array_equal(found[:, :16], pixels[:, :16])
    np.testing.assert_array_equal(found[:, 16:], np.full((16, 16), expected))


def test_signed_numbers_are_no_colors():
    """Pillow takes them for unsigned ones, without a word."""
    file = tiff(numbers(4, 5, dtype="int8"))
    with pytest.raises(DecodeError, match=r"its pixels are int8.*dtype='float32'"):
        decode_image(file)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_signed_colors_have_an_end_of_their_own(dtype):
    """Full brightness is the largest number, and white as zero exchanges it with the smallest."""
    pixels = numbers(4, 5, dtype=dtype)
    white = tiff(pixels, photometric="miniswhite")
    found = decode(white, channels="gray", dtype="float32")[..., 0]
    np.testing.assert_array_equal(found, -1.0 - pixels)
    found = decode(tiff(pixels), channels="rgba", dtype="float32")
    np.testing.assert_array_equal(found[..., 0], pixels)
    assert (found[..., 3] == np.iinfo(dtype).max).all()


def test_files_with_the_same_directory_are_judged_by_their_own_bytes():
    """Values that lie elsewhere may differ, and so may the length of the file."""
    pixels = np.full((8, 8), 7, np.uint16)
    pixels[::2] = 9
    form = {"channels": 1, "dtype": "uint16"}
    files = [
        tiff(pixels, extratags=[(42113, "s", 0, text, True)]) for text in ("00000007", "00000009")
    ]
    at = files[0].index(b"00000007")
    assert files[0][:at] == files[1][:at] and len(files[0]) == len(files[1])
    for file, left in zip(files, (9, 7)):
        np.testing.assert_array_equal(decode(file, (4, 4), **form)[..., 0], np.full((4, 4), left))
    assert "truncated, part 0 ends at byte" in reason(files[0][:-10], **form)
    assert reason(files[0], **form) == ""
    for bits in ((16, 16, 8), (8, 8, 8)):
        file = tiff(numbers(8, 9, 3, dtype="uint8"))
        written = struct.pack("<3H", 8, 8, 8)
        assert file.count(written) == 1
        damaged = file.replace(written, struct.pack("<3H", *bits))
        assert ("its samples differ" in reason(damaged, channels=3)) is (bits[0] != bits[2])


def _forget():
    for one in (*vars(tiff_module).values(), *vars(tiff_tags).values()):
        if hasattr(one, "cache_clear"):
            one.cache_clear()


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("order", "<>")
def test_what_is_kept_of_other_files_changes_no_verdict(order, bigtiff):
    """Damaged copies have the verdict and the place that they have without other files."""
    options = {"byteorder": order, "bigtiff": bigtiff, "extratags": [(42113, "s", 0, "7", True)]}
    file = tiff(numbers(20, 18, 13, dtype="uint16"), tile=(16, 16), compression="lzw", **options)
    assert tiff_module.read_layout(memoryview(file), 0).samples == 13

    def told(damaged):
        try:
            return repr(tiff_module.read_layout(memoryview(damaged), 0))
        except (DecodeError, ValueError, OverflowError) as error:
            return repr(error)

    (start,) = struct.unpack_from(order + "IQ"[bigtiff], file, (4, 8)[bigtiff])
    rng = np.random.default_rng(0)
    copies = []
    for _ in range(300):
        damaged = bytearray(file)
        at = min(start + int(rng.integers(400)), len(file) - 1)
        damaged[at] = rng.choice([0, 1, 255, damaged[at] ^ 1 << int(rng.integers(8))])
        copies.append(bytes(damaged[: rng.choice([len(file), len(file) - 40])]))
    warm = [told(copy) for copy in copies]
    assert len(set(warm)) > 30
    for copy, verdict in zip(copies, warm):
        _forget()
        assert told(copy) == verdict


def test_bands_are_no_errors_in_the_log_of_pillow(caplog):
    """An index reads the headers of files as colors."""
    assert "are no colors" in reason(tiff(numbers(9, 14, 13)))
    assert not caplog.records


def test_damage_is_found_in_the_header():
    """Before anything is decoded or allocated."""
    whole = tiff(numbers(30, 40, 3), photometric="rgb")
    form = {"dtype": "uint16"}
    assert "part 0 ends at byte" in reason(whole[:-100], **form)
    assert "truncated, a directory" in reason(whole[:8], **form)
    packed = tiff(numbers(30, 40, 3), photometric="rgb", compression="zlib")
    assert "truncated, part 0" in reason(packed[:-100], **form)
    assert reason(packed, **form) == ""
    at = packed.index(struct.pack("<HHI", 257, 4, 1))
    tall = packed[: at + 8] + struct.pack("<I", 10**6) + packed[at + 12 :]
    assert "1 parts of" in reason(tall, **form) or "parts" in reason(tall, **form)
    wide = tiff(numbers(4, 4, 200, dtype="uint8"), tile=(16, 16), compression="zlib")
    for tag in (322, 323):
        at = wide.index(struct.pack("<HHI", tag, 4, 1)) + 8
        wide = wide[:at] + struct.pack("<I", 2048) + wide[at + 4 :]
    assert "parts of 2048 x 2048 pixels" in reason(wide, channels=200)
    broken = bytearray(packed)
    broken[-2000:-1900] = bytes(100)
    assert reason(bytes(broken), **form) == ""
    with pytest.raises(DecodeError, match="TIFF: "):
        decode(bytes(broken), **form)


@pytest.mark.parametrize("part", [{"rowsperstrip": 7}, {"tile": (16, 16)}])
def test_damaged_lzw_has_the_verdict_and_the_numbers_of_tifffile(part):
    """Of what tifffile's decoder takes no number may differ."""
    rng = np.random.default_rng(0)
    pixels = (rng.integers(0, 40, (24, 33, 3)) * 99).astype(np.uint16)
    file = tiff(pixels, compression="lzw", **part)
    form = {"channels": 3, "dtype": "uint16"}
    np.testing.assert_array_equal(decode(file, **form), pixels)
    for _ in range(12):
        damaged = bytearray(file)
        damaged[int(rng.integers(len(file) // 2, len(file)))] ^= 1 << int(rng.integers(8))
        try:
            expected = tifffile.imread(io.BytesIO(damaged))
        except Exception:
            with pytest.raises(DecodeError):
                decode(bytes(damaged), **form)
            continue
        np.testing.assert_array_equal(decode(bytes(damaged), **form), expected)
