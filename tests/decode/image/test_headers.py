"""The byte check and the header facts: against Pillow's reading, against damage, and inside their
bounds.
"""

import io
import re
import struct
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import simplejpeg
from PIL import Image, ImageCms, PngImagePlugin

from jaxaug.decode import Encoded, read_headers
from jaxaug.decode.image import pillow
from jaxaug.decode.image.parse import headers as parse_headers
from tests.decode.samples import (
    ARITHMETIC,
    JPEGS,
    PICTURE,
    SEVERAL_SCANS,
    exif_segment,
    insert,
    lossless,
    patch_sof,
    save,
    segment,
)
from tests.images import encode

PLAIN = encode(PICTURE, subsampling=2)
OTHERS = {kind: encode(PICTURE, kind) for kind in ("PNG", "WEBP", "BMP", "GIF", "TIFF")}


def check(*files: bytes):
    return read_headers(Encoded.from_bytes(files))


def reason(file: bytes) -> str:
    headers = check(file)
    assert set(check(*[file] * 20).reason) == {
        headers.reason[0]
    }  # of many files numpy does what Python does of few
    assert (headers.kind[0] == 0) == bool(headers.reason[0])
    return headers.reason[0]


def cut_out(file: bytes, start: bytes) -> bytes:
    """`file` without its first segment that begins with these bytes."""
    at = file.index(start)
    return file[:at] + file[at + 2 + int.from_bytes(file[at + 2 : at + 4], "big") :]


def swapped_scan(file: bytes) -> bytes:
    """`file` with the components of its first scan as Cb, Cr, Y, which libjpeg-turbo refuses."""
    at = file.index(b"\xff\xda") + 5
    return file[:at] + file[at + 2 : at + 6] + file[at : at + 2] + file[at + 6 :]


# ---- facts


def test_all_files_at_once_agree_with_pillow():
    files = JPEGS | OTHERS
    headers = check(*files.values())
    for row, (name, file) in enumerate(files.items()):
        image = Image.open(io.BytesIO(file))
        assert headers.reason[row] == "", name
        assert (headers.width[row], headers.height[row]) == image.size, name
        assert headers.kind[row] == (1 if image.format == "JPEG" else 2), name
        if image.format == "JPEG":
            assert headers.components[row] == len(image.getbands()), name
            assert headers.precision[row] == 8, name
            assert (headers.coding[row] == 2) == (
                "progressive" in image.info and name == "progressive"
            ), name


def test_a_batch_reads_as_its_files_one_by_one():
    files = [*JPEGS.values(), b"", *OTHERS.values(), b"hello", PLAIN[:300]]
    together = check(*files)
    for row, file in enumerate(files):
        alone = check(file)
        for name, column in together._asdict().items():
            assert column[row] == getattr(alone, name)[0], (row, name)


def test_few_jpegs_are_read_one_by_one(monkeypatch):
    """And give what all at once do: every column, of the good and of the bad."""
    exif = [
        exif_segment(value, order, long)
        for value in range(10)
        for order in "<>"
        for long in (False, True)
    ]
    files = [*JPEGS.values(), *(insert(PLAIN, each) for each in exif)]
    longer = [insert(PLAIN, segment(0xE2, bytes(60_000)) * parts) for parts in (1, 3, 5)]
    files += [PLAIN[:length] for length in range(0, len(PLAIN), 9)] + [
        PLAIN + bytes(9),
        insert(PLAIN, b"rubbish"),
        *longer,
    ]
    together = check(*files)
    usual = [
        file for name, file in JPEGS.items() if not name.startswith(("lossless", "arithmetic"))
    ]
    usual += longer[:2]  # of a longer header not all is copied
    assert len(files) > parse_headers._MAX_LOOPED_JPEGS >= 8
    few = [check(*files[first : first + 8]) for first in range(0, len(files), 8)]
    for name, column in together._asdict().items():
        pieces = [getattr(each, name) for each in few]
        assert {piece.dtype for piece in pieces} == {column.dtype}
        assert np.concatenate(pieces).tolist() == column.tolist(), name
    monkeypatch.setattr(parse_headers, "check_jpegs", lambda *arguments: 1 / 0)
    for first in range(0, len(usual), 8):
        assert not any(check(*usual[first : first + 8]).reason)


@pytest.mark.parametrize("name", ["444", "422", "440", "420", "411", "Gray"])
def test_sampling_is_that_of_the_encoder(name):
    pixels = PICTURE[:, :, :1] if name == "Gray" else PICTURE
    colorspace = "GRAY" if name == "Gray" else "RGB"
    file = simplejpeg.encode_jpeg(
        np.ascontiguousarray(pixels), colorspace=colorspace, colorsubsampling=name
    )
    luma = {"444": 0x11, "422": 0x21, "440": 0x12, "420": 0x22, "411": 0x41, "Gray": 0x11}[name]
    chroma = 0 if name == "Gray" else 0x1111
    assert check(file).sampling[0] == luma << 24 | chroma << 8


def test_color_models_scans_and_codings():
    names = ["gray", "4:2:0", "RGB", "CMYK", "YCCK"]
    assert check(*[JPEGS[name] for name in names]).color.tolist() == [1, 2, 3, 4, 5]
    headers = check(SEVERAL_SCANS, ARITHMETIC, PLAIN)
    assert headers.scan_components.tolist() == [1, 3, 3] and headers.components.tolist() == [
        3,
        3,
        3,
    ]
    assert headers.coding.tolist() == [0, 9, 0]
    assert PLAIN[headers.scan_offset[2] - 3 : headers.scan_offset[2]] == bytes(
        [0, 63, 0]
    )  # the end of SOS


def test_a_pillow_that_reads_no_lossless_files_is_named(monkeypatch):
    assert reason(JPEGS["lossless"]) == ""
    monkeypatch.setattr(pillow, "reads_lossless_jpegs", lambda: False)
    assert "a lossless JPEG: Pillow reads these with libjpeg-turbo 3" in reason(JPEGS["lossless"])


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("long, before", [(False, 0), (True, 0), (False, 9)])
def test_exif_orientation(order, long, before):
    files = [
        insert(PLAIN, exif_segment(value, order, long, before))
        for value in (*range(1, 9), 0, 9, 77)
    ]
    headers = check(*files)
    assert headers.orientation.tolist() == [*range(1, 9), 1, 1, 1]
    assert set(headers.width.tolist()) == {50}  # as stored
    assert headers.original_size()[:8].tolist() == [[37, 50]] * 4 + [[50, 37]] * 4


def test_a_damaged_exif_segment_is_no_orientation_and_no_error():
    good = exif_segment(6, "<", before=3)
    damaged = [
        good.replace(b"II*\0", b"II+\0"),
        good.replace(b"II*\0" + bytes([8]), b"II*\0" + bytes([250])),
        good.replace(
            bytes([4, 0]) + bytes.fromhex("0001"), bytes.fromhex("ffff0001")
        ),  # 65535 entries
        segment(0xE1, b"Exif\0\0"),
        segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\xff"),
    ]
    files = [insert(PLAIN, each) for each in damaged]
    for batch in (files, files + [PLAIN] * 20, files * 4):  # one by one, or all at once
        headers = check(*batch)
        assert not any(headers.reason)
        assert headers.orientation[:5].tolist() == [1, 1, 6, 1, 1]  # a wrong count hides nothing


def test_the_first_exif_segment_that_says_one_counts():
    twice = exif_segment(0, "<", before=1).replace(
        struct.pack("<HHII", 0x0100, 4, 1, 7), struct.pack("<HHIHH", 0x0112, 3, 1, 8, 0)
    )
    after = exif_segment(5, "<", before=1).replace(
        struct.pack("<HHII", 0x0100, 4, 1, 7), struct.pack("<HHIHH", 0x0112, 3, 1, 9, 0)
    )
    file = insert(PLAIN, exif_segment(6, "<") + exif_segment(3, ">"))
    others = [exif_segment(0, ">") + exif_segment(3, ">"), twice, after, twice + after]
    files = [file, *(insert(PLAIN, each) for each in others)]
    for batch in (files, files + [PLAIN] * 20, files * 4):
        assert check(*batch).orientation[:5].tolist() == [6, 3, 8, 5, 8]
    assert Image.open(io.BytesIO(file)).getexif()[0x0112] == 6


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_orientation_of_other_formats(kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    headers = check(encode(PICTURE, kind, exif=exif))
    assert (headers.height[0], headers.width[0], headers.orientation[0]) == (37, 50, 6)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP"])
def test_usual_files_of_other_formats_are_not_opened(monkeypatch, kind):
    image = Image.fromarray(PICTURE)
    files = [
        save(image, kind),
        save(image.convert("L"), kind),
        save(image.quantize(16), kind, dpi=(72, 72)),
    ]
    if kind == "PNG":
        info = PngImagePlugin.PngInfo()
        info.add_text("Software", "a test")
        icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        files += [
            save(image, kind, pnginfo=info, icc_profile=icc),
            save(image.convert("RGBA"), kind),
        ]
    elif kind == "WEBP":
        clear = Image.fromarray(np.dstack([PICTURE, PICTURE[:, :, :1]]))
        files += [save(image, kind, lossless=True), save(clear, kind, lossless=True)]
        files += [save(clear, kind), save(clear, kind, icc_profile=bytes(99))]
    elif kind == "GIF":
        frames = {"save_all": True, "append_images": [image.rotate(90)], "loop": 0}
        files += [save(image, kind, comment="a test"), save(image, kind, **frames)]
    monkeypatch.setattr(pillow, "open_image", lambda *arguments: 1 / 0)
    headers = check(*files)
    assert headers.kind.tolist() == [2] * len(files) and set(headers.precision.tolist()) == {8}
    assert set(zip(headers.height.tolist(), headers.width.tolist())) == {(37, 50)}


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_what_may_turn_an_image_is_left_to_pillow(kind):
    """EXIF, XMP, and EXIF in a text of a PNG, which ImageMagick writes."""
    exif = Image.Exif()
    exif[0x0112] = 8
    image = Image.fromarray(PICTURE)
    xmp = '<x tiff:Orientation="8"/>'
    files = [save(image, kind, exif=exif)]
    if kind == "PNG":
        text = PngImagePlugin.PngInfo()
        raw = PngImagePlugin.PngInfo()
        text.add_itxt("XML:com.adobe.xmp", xmp)
        raw.add_text("Raw profile type exif", "\nexif\n  1\n" + exif.tobytes().hex())
        files += [save(image, kind, pnginfo=text), save(image, kind, pnginfo=raw)]
    else:
        files.append(save(image, kind, xmp=xmp.encode()))
    assert check(*files).orientation.tolist() == [8] * len(files)


# ---- what is accepted


@pytest.mark.parametrize(
    "file",
    [
        PLAIN + bytes(999),
        PLAIN + b"rubbish behind the end",
        PLAIN + encode(PICTURE[::2]),  # a second picture, as multi-picture files have
        insert(PLAIN, b"\xff" * 4_000_000),  # filling before a marker, T.81 B.1.1.2
        insert(PLAIN, b"\0rubbish\xff\0\0"),
        insert(PLAIN, b"\xff\x01\xff\xd3"),  # TEM and RST, which have no length
        insert(PLAIN, segment(0xE3, bytes(5)) * 900),
    ],
)
def test_odd_but_whole_files_are_good(file):
    assert reason(file) == ""
    assert (check(file).height[0], check(file).width[0]) == (37, 50)


# ---- what is refused


@pytest.mark.filterwarnings("ignore:::PIL")
@pytest.mark.parametrize(
    "file, clause",
    [
        (b"", "empty"),
        (b"hello, this is text", r"not an image jaxaug knows \(it begins with b'hello, t'\)"),
        (
            b"OggS" + bytes(40),
            r"videos and sounds begin so \(ogg\): `decode.Video` or `Audio` reads them",
        ),
        (b"\xff\xd8", "only 2 bytes"),
        (PLAIN[:-2], "truncated"),
        (PLAIN[: len(PLAIN) // 2 + 300], "truncated"),
        (PLAIN[:-2] + bytes(64), "truncated"),
        (PLAIN[:400], "cut or has a wrong length"),
        (PLAIN[:160] + b"\xff\xd9", "cut or has a wrong length|ends before any image data"),
        (cut_out(PLAIN, b"\xff\xc0"), r"no JPEG frame header \(SOF\)"),
        (insert(PLAIN, PLAIN[PLAIN.index(b"\xff\xc0") :][:19]), "more than one JPEG frame header"),
        (cut_out(PLAIN, b"\xff\xdb"), "without its quantization table"),
        (cut_out(PLAIN, b"\xff\xc4"), "without its Huffman table"),
        (insert(PLAIN, segment(0xDB, bytes(64))), "malformed JPEG quantization table"),
        (insert(PLAIN, segment(0xDB, b"\x07" + bytes(64))), "malformed JPEG quantization table"),
        (
            insert(PLAIN, segment(0xC4, b"\0" + bytes([2, *[0] * 15, 1, 2]))),
            "malformed JPEG Huffman table",
        ),
        (
            insert(PLAIN, segment(0xC4, b"\0" + bytes([1, *[0] * 15, 16]))),
            "malformed JPEG Huffman table",
        ),
        (
            insert(PLAIN, segment(0xC4, b"\0" + bytes([0] * 15 + [200]))),
            "malformed JPEG Huffman table",
        ),
        (
            insert(PLAIN, segment(0xC4, b"\0" + bytes([0] * 15 + [20, *[15] * 20]))),
            "",
        ),  # one DC symbol, many codes
        (
            insert(PLAIN, segment(0xC4, b"\0" + bytes([0] * 15 + [20, *[15] * 19, 16]))),
            "malformed JPEG Huffman table",
        ),
        (
            insert(PLAIN, segment(0xC4, b"\x10" + bytes([0] * 15 + [3, 16, 99, 255]))),
            "",
        ),  # AC symbols are bytes
        (insert(PLAIN, segment(0xC4, b"\x10" + bytes([0] * 14 + [56, 200] + [1] * 256))), ""),
        (
            insert(PLAIN, segment(0xC4, b"\x10" + bytes([0] * 14 + [57, 200] + [1] * 257))),
            "malformed JPEG Huffman table",
        ),
        (insert(PLAIN, b"\xff\xe3\0\1"), "FFE3 is cut or has a wrong length"),
        (insert(PLAIN, segment(0xDD, bytes(3))), "restart interval of the wrong length"),
        (insert(ARITHMETIC, segment(0xCC, b"\x40\x10")), "arithmetic conditioning"),
        (patch_sof(PLAIN, 4, b"\x0c"), "12 bits a sample"),
        (patch_sof(PLAIN, 1, b"\xc3"), "a lossless JPEG whose colors are not RGB, CMYK or gray"),
        (patch_sof(PLAIN, 1, b"\xcb"), r"an arithmetic lossless JPEG \(SOF11\)"),
        (lossless(PICTURE, predictor=8 - 1)[:-2], "truncated"),
        (
            lossless(PICTURE[:9, :9]).replace(b"\x03\0\x01\0\0", b"\x03\0\x08\0\0"),
            "wrong parameters",
        ),
        (
            lossless(PICTURE[:9, :9], extra=segment(0xDD, b"\0\x0a")),
            "restart interval is no whole lines",
        ),
        (lossless(PICTURE[:9, :9], extra=segment(0xDD, b"\0\x51")), ""),
        (patch_sof(PLAIN, 1, b"\xc5"), r"a hierarchical JPEG \(SOF5\)"),
        (patch_sof(PLAIN, 5, b"\0\0"), "without height or width"),
        (patch_sof(PLAIN, 5, b"\xea\x60\xea\x60"), "60000 x 60000 pixels are more than max_pixels"),
        (patch_sof(PLAIN, 5, b"\xff\xff"), "side above 65500"),
        (patch_sof(PLAIN, 11, b"\x05"), "sampling factors that do not fit"),
        (patch_sof(PLAIN, 11, b"\x32"), ""),  # 3 x 2 luma blocks to 1 x 1: unusual and allowed
        (patch_sof(PLAIN, 11, b"\x44"), "too large for an interleaved scan"),
        (patch_sof(PLAIN, 10, b"\x09"), "components are not those of the frame"),
        (swapped_scan(PLAIN), "components are not in the order of the frame"),
        (swapped_scan(JPEGS["progressive"]), "components are not in the order of the frame"),
        (patch_sof(PLAIN, 9, b"\x02"), "frame header of the wrong length"),
        (insert(PLAIN, b"\xff\xd8"), "a marker FFD8"),
        (insert(PLAIN, b"\xff\xf7\0\0"), "a marker FFF7"),
        (insert(PLAIN, segment(0xE3, b"") * 1200), "more than 1000 segments"),
        (PLAIN[: PLAIN.index(b"\xff\xda")] + segment(0xFE, b""), "ends inside its header"),
        (PLAIN.replace(b"\xff\xda", b"\xff\xfe"), "ends before any image data"),
        (JPEGS["progressive"].replace(b"\0\0\x01", b"\0\x07\x01"), "wrong parameters"),
        (JPEGS["progressive"][:-2] + b"\xff\xda" * 600 + b"\xff\xd9", "more than 500 scans"),
        (OTHERS["PNG"][:20], "PNG: "),
        (OTHERS["WEBP"][:14], "WEBP: "),
        (b"BMW is a car", "BMP: "),
        (OTHERS["GIF"][:9], "GIF: "),
        (OTHERS["TIFF"][:8], "TIFF: "),
    ],
)
def test_bad_files_and_what_is_wrong_with_them(file, clause):
    assert re.search(clause, reason(file)) if clause else reason(file) == ""


def test_a_bad_file_does_not_touch_its_neighbors():
    headers = check(PLAIN, PLAIN[:200], PLAIN, b"", OTHERS["PNG"])
    assert headers.kind.tolist() == [1, 0, 1, 0, 2]
    assert headers.orientation.tolist() == [1] * 5


def test_every_truncation_is_refused():
    files = [PLAIN[:length] for length in range(len(PLAIN) - 1)]
    assert (check(*files).kind == 0).all()
    progressive = JPEGS["progressive"]
    assert (
        check(*[progressive[:length] for length in range(len(progressive) - 1)]).kind == 0
    ).all()


def test_the_end_is_found_wherever_it_is():
    """Trailers around the sizes of the windows in which the end marker is looked for."""
    for form in (PLAIN, JPEGS["progressive"]):
        for length in (1, *range(42, 52), 4090, *range(4092, 4100), 36_860, 300_000, 600_001):
            trailer = bytes([0xFF, 0xD8, 0xD9]) * (length // 3 + 1)
            assert reason(form + trailer[:length]) == "", length
            assert "truncated" in reason(form[:-2] + trailer[:length]), length
    assert "truncated" in reason(
        PLAIN[: check(PLAIN).scan_offset[0]] + b"\xff\xd9" + PLAIN
    )  # no image data


def test_scans_are_counted_where_several_are_possible():
    many = b"\xff\xda" * 600 + b"\xff\xd9"
    assert reason(PLAIN + many) == ""
    assert "more than 500 scans" in reason(JPEGS["progressive"] + many)
    assert "more than 500 scans" in reason(SEVERAL_SCANS + many)


def test_scans_times_pixels_are_bounded():
    """A scan of a few bytes takes as long as one over the whole image."""
    scans = b"\xff\xda" * 40 + b"\xff\xd9"
    vast = patch_sof(JPEGS["progressive"], 5, (11585).to_bytes(2, "big") * 2)
    assert reason(vast) == "" == reason(JPEGS["progressive"] + scans)
    assert re.search("scans of 134212225 pixels, more than 4294967296 in all", reason(vast + scans))
    assert read_headers(Encoded.from_bytes([vast + scans]), 2**28).reason[0] == ""
    few_pixels = Encoded.from_bytes([JPEGS["progressive"] + scans])
    assert read_headers(few_pixels, 37 * 50).reason[0] == ""  # that bound is of the vast alone


def test_successive_approximation_goes_down_by_one_bit_and_begins_at_13():
    """The last byte of a progressive scan's header, T.81 G.1.1.1.2."""
    file = JPEGS["progressive"]
    place = file.index(b"\0\0\x01", file.index(b"\xff\xda")) + 2
    for bits in (0x00, 0x0D, 0x10, 0x21, 0xED):
        assert reason(file[:place] + bytes([bits]) + file[place + 1 :]) == "", hex(bits)
    for bits in (0x0E, 0x11, 0x20, 0x12, 0xFE):
        changed = file[:place] + bytes([bits]) + file[place + 1 :]
        assert "wrong parameters" in reason(changed), hex(bits)


def test_pngs_with_more_text_than_pillow_reads_are_bad(monkeypatch):
    monkeypatch.setattr(PngImagePlugin, "MAX_TEXT_MEMORY", 2**20)
    comment = PngImagePlugin.PngInfo()
    comment.add_text("Comment", "x" * 2**21)
    image = Image.fromarray(PICTURE)
    for options in ({"icc_profile": bytes(2**20 + 1)}, {"pnginfo": comment}):
        file = save(image, "PNG", **options)
        with pytest.raises(ValueError, match=r"too large|[Tt]oo much memory"):
            Image.open(io.BytesIO(file)).load()
        assert reason(file).startswith("PNG: ")


def test_a_bad_file_of_many_pixels_has_its_own_reason():
    vast = patch_sof(PLAIN, 5, b"\xea\x60\xea\x60")
    assert "more than max_pixels" in reason(vast)
    assert "max_pixels" not in reason(vast[:-40]) != ""


def test_any_number_of_frame_headers_is_one_fault():
    at = PLAIN.index(b"\xff\xc0")
    frame = PLAIN[at : at + 19]
    for count in (1, 2, 255, 256, 700):
        assert "more than one JPEG frame header" in reason(insert(PLAIN, frame * count, at))


def test_a_short_jfif_segment_says_nothing_of_the_colors():
    """Alone and among others."""
    at = PLAIN.index(b"JFIF") - 4
    plain = PLAIN[:at] + PLAIN[at + 2 + int.from_bytes(PLAIN[at + 2 : at + 4], "big") :]
    adobe = segment(0xEE, b"Adobe\0\x64\0\0\0\0\0")
    files = [insert(plain, segment(0xE0, b"JFIF\0" + bytes(n)) + adobe) for n in (0, 8, 9)]
    for headers in (check(*files), check(*files, *[PLAIN] * 20)):
        assert headers.color[:3].tolist() == [3, 3, 2]


def test_a_file_with_a_trailer_is_not_copied():
    file = insert(PLAIN, segment(0xFE, bytes(60_000)) * 100) + bytes(20)
    large = PLAIN[:-2] + bytes(8_000_000) + b"\xff\xd9" + bytes(20)
    encoded = Encoded.from_bytes([file, large, PLAIN + bytes(8_000_000)])
    read_headers(encoded)
    tracemalloc.start()
    try:
        assert read_headers(encoded).reason.tolist() == [""] * 3
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_files_of_one_layout_keep_their_own_facts():
    """A layout is judged once: what differs below it, sides and damaged tables, stays with its
    file.
    """
    sides = [(1, 1), (37, 50), (8, 65500), (9, 65501), (0, 7)]
    files = [patch_sof(PLAIN, 5, bytes([h >> 8, h & 255, w >> 8, w & 255])) for h, w in sides]
    files += [PLAIN.replace(PLAIN[PLAIN.index(b"\xff\xc4") + 5 :][:16], bytes([255] * 16)), PLAIN]
    headers = check(*files, *files)
    clauses = ["", "", "", "a JPEG side above 65500 pixels", "a JPEG without height or width"]
    clauses += ["a malformed JPEG Huffman table", ""]
    assert headers.reason.tolist() == clauses * 2
    good = headers.kind == 1
    sizes = [size for size, clause in zip([*sides, (), (37, 50)], clauses) if not clause] * 2
    assert list(zip(headers.height[good].tolist(), headers.width[good].tolist())) == sizes
    assert set(headers.sampling[good].tolist()) == {check(PLAIN).sampling[0]}


def test_max_pixels_counts_pixels_of_every_format():
    for file in (PLAIN, OTHERS["PNG"]):
        encoded = Encoded.from_bytes([file])
        assert read_headers(encoded, 37 * 50).reason[0] == ""
        assert (
            read_headers(encoded, 37 * 50 - 1).reason[0]
            == "50 x 37 pixels are more than max_pixels=1849"
        )


# ---- bounds

_GUARDED = """
import ctypes, mmap, sys
import numpy as np
from jaxaug.decode import Decoder, Encoded
from tests.decode.samples import JPEGS, PICTURE, exif_segment, insert
from tests.images import encode

jpegs = [*JPEGS.values()]
jpegs += [insert(JPEGS["4:2:0"], exif_segment(6, order)) for order in "<>"]
files = jpegs + [encode(PICTURE, kind) for kind in ("PNG", "WEBP", "BMP", "GIF", "TIFF")]
files += [file[:length] for file in jpegs for length in range(0, min(len(file), 900), 7)]
page = mmap.PAGESIZE
libc = ctypes.CDLL(None)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
starts = []
memory = []
# The readable bytes touch the forbidden page after them, or the one before.
for at_end in (True, False):
    for file in files:
        pages = -(-max(len(file), 1) // page)
        block = mmap.mmap(-1, (pages + 2) * page)
        base = np.frombuffer(block, np.uint8).ctypes.data
        offset = (pages + 1) * page - len(file) if at_end else page
        block[offset : offset + len(file)] = file
        for guard in (base, base + (pages + 1) * page):
            assert libc.mprotect(guard, page, 0) == 0
        starts.append(base + offset)
        memory.append(block)
lengths = [len(file) for file in files] * 2
encoded = Encoded(np.array(starts, np.uint64), np.array(lengths, np.uint64), memory)
with Decoder((64, 64), "host", on_error="mask") as decoder:
    valid = decoder.decode(encoded).valid
print(len(files), valid[: len(files)].sum(), (valid[: len(files)] == valid[len(files) :]).all())
if "overread" in sys.argv:
    from jaxaug.decode._types import memory_view

    bytes(memory_view(starts[0], len(files[0]) + 1))
"""


def test_nothing_outside_of_an_image_is_read():
    def run(*arguments):
        command = [sys.executable, "-c", _GUARDED, *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    done = run()
    assert done.returncode == 0, done.stderr
    count, valid, same = done.stdout.split()
    assert int(count) > 1000 and int(valid) == len(JPEGS) + 7 and same == "True"
    assert run("overread").returncode < 0  # killed: the guard does bite
