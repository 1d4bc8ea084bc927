"""The engines get only the images that all parsers read alike."""

import numpy as np
import pytest
import simplejpeg

from jaxaug.decode import Encoded, decode_image, read_headers
from jaxaug.decode.image.canvas import fit_size
from jaxaug.decode.image.nvjpeg.dispatch import (
    ENGINE,
    HOST,
    NONE,
    SLOT,
    Batch,
    assign_backends,
    leave_rare_samplings,
    order_for_engines,
    slot_bytes,
)
from tests.decode.samples import JPEGS, PICTURE, insert, patch_sof, segment
from tests.images import encode, picture

PLAIN = JPEGS["4:2:0"]
SOF = PLAIN.index(b"\xff\xc0")
SOS = PLAIN.index(b"\xff\xda")


def backends(*files: bytes) -> list[int]:
    """Return the backends of good files, the same for each alone as for all together."""
    headers = read_headers(Encoded.from_bytes(files))
    assert headers.reason.tolist() == [""] * len(files)
    together = assign_backends(headers, headers.original_size(), 2**20, 3).tolist()
    for file, expected in zip(files, together):
        alone = read_headers(Encoded.from_bytes([file]))
        assert assign_backends(alone, alone.original_size(), 2**20, 3).tolist() == [expected]
    return together


def test_the_usual_forms_go_to_the_engines():
    names = ["4:4:4", "4:2:2", "4:2:0", "4:4:0", "gray", "restart markers"]
    assert backends(*[JPEGS[name] for name in names]) == [ENGINE] * len(names)
    assert backends(PLAIN + bytes(99), insert(PLAIN, segment(0xFE, b"a comment"))) == [ENGINE] * 2


def test_other_codings_colors_and_samplings_go_to_the_host():
    names = ["4:1:1", "progressive", "RGB", "CMYK", "YCCK"]
    names += ["arithmetic", "sparse chroma", "several scans"]
    assert backends(*[JPEGS[name] for name in names]) == [HOST] * len(names)


@pytest.mark.parametrize("factors", [h << 4 | v for h in range(1, 5) for v in range(1, 5)])
def test_a_gray_image_with_factors_goes_to_the_host(factors):
    """T.81 A.2.2: a scan of one component is not interleaved, so that its factors mean nothing."""
    gray = patch_sof(JPEGS["gray"], 11, bytes([factors]))
    assert backends(gray) == [ENGINE if factors == 0x11 else HOST]
    np.testing.assert_array_equal(decode_image(gray), decode_image(JPEGS["gray"]))


@pytest.mark.parametrize("sampling", ["444", "422", "420", "440"])
def test_small_images_with_less_chroma_go_to_the_host(sampling):
    sizes = [(1, 1), (4, 4), (15, 99), (99, 15), (512, 1), (16, 16), (16, 99)]
    files = [simplejpeg.encode_jpeg(picture(0, *size), colorsubsampling=sampling) for size in sizes]
    expected = [HOST if min(size) < 16 and sampling != "444" else ENGINE for size in sizes]
    assert backends(*files) == expected
    assert backends(*[encode(picture(0, *size)[..., 0]) for size in sizes]) == [ENGINE] * 7


WIDE = b"\x10" + np.arange(1, 65).astype(">u2").tobytes()


@pytest.mark.parametrize(
    "file",
    [
        insert(PLAIN, b"\xff\xff"),  # filling
        insert(PLAIN, b"\0rubbish"),
        insert(PLAIN, b"\xff\x01"),  # TEM
        insert(PLAIN, b"\xff\xd0" + segment(0xFE, PLAIN[SOF : SOF + 19])),  # RST
        insert(PLAIN, segment(0xDC, b"\0\x25"), SOS),  # DNL
        insert(PLAIN, segment(0xCC, b"\0\x10"), SOS),  # arithmetic conditioning in a file without
        insert(PLAIN, segment(0xDB, WIDE)),  # baseline files have 8-bit tables
        insert(PLAIN, segment(0xEE, b"Adobe\0\x64\0\0\0\0\0")),  # JFIF says YCbCr, this says RGB
        PLAIN[: SOS + 11] + b"\x01\x3f\0" + PLAIN[SOS + 14 :],  # begins at the second coefficient
    ],
)
def test_what_parsers_may_read_in_several_ways_goes_to_the_host(file):
    assert backends(PLAIN, *[file] * 10, PLAIN) == [ENGINE, *[HOST] * 10, ENGINE]
    assert decode_image(file).shape == PICTURE.shape


def test_baseline_files_with_more_than_two_huffman_tables_of_a_class_go_to_the_host():
    gray = encode(PICTURE[..., 0], quality=90)
    renumbered = gray
    for old, new in [
        (b"\xff\xc4\x00\x1f\x00", b"\xff\xc4\x00\x1f\x02"),
        (b"\xff\xc4\x00\xb5\x10", b"\xff\xc4\x00\xb5\x12"),
        (b"\xff\xda\x00\x08\x01\x01\x00", b"\xff\xda\x00\x08\x01\x01\x22"),
    ]:
        assert renumbered.count(old) == 1
        renumbered = renumbered.replace(old, new)
    assert backends(gray, renumbered) == [ENGINE, HOST]
    np.testing.assert_array_equal(decode_image(renumbered), decode_image(gray))


def test_larger_and_turned_images_go_through_slots_that_hold_them():
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    files = [
        encode(picture(0, 40, 60)),
        encode(picture(0, 40, 61)),
        encode(picture(0, 40, 60), exif=exif),  # 60 x 40 upright
        encode(picture(0, 400, 610)),
        encode(picture(0, 40, 61), progressive=True),
        encode(picture(0, 40, 61), "PNG"),
    ]
    headers = read_headers(Encoded.from_bytes(files))
    size = fit_size(headers.original_size(), (60, 60))
    largest = int(slot_bytes(headers.height, headers.width, 3)[2])
    assert assign_backends(headers, size, 2**20, 3).tolist() == [
        ENGINE,
        SLOT,
        SLOT,
        SLOT,
        HOST,
        HOST,
    ]
    assert assign_backends(headers, size, largest, 3).tolist() == [
        ENGINE,
        SLOT,
        SLOT,
        HOST,
        HOST,
        HOST,
    ]
    assert assign_backends(headers, size, 0, 3).tolist() == [ENGINE, HOST, HOST, HOST, HOST, HOST]


def test_slots_of_huge_images_are_counted_in_64_bits():
    assert slot_bytes(np.array([65535], np.int32), np.array([65535], np.int32), 3) >= 3 * 65535**2
    assert slot_bytes(np.array([1], np.int32), np.array([1], np.int32), 3) == 256


def test_each_gpu_has_images_for_slots_first_and_the_largest_of_both_kinds():
    rng = np.random.default_rng(3)
    encoded = Encoded.from_bytes([JPEGS["4:2:0"]] * 200)
    headers = read_headers(encoded)
    sides = rng.integers(16, 65500, (2, 200)).astype(np.int32)
    headers = headers._replace(height=sides[0], width=sides[1])
    backends = rng.choice(np.array([ENGINE, HOST, NONE, SLOT], np.uint8), 200)
    batch = Batch(encoded, headers, sides.T, backends)

    rows = [row for row in range(200) if backends[row] in (ENGINE, SLOT)]
    pixels = np.prod(sides, axis=0, dtype=np.int64).tolist()
    expected = sorted(rows, key=lambda row: (row // 50, backends[row] == ENGINE, -pixels[row]))
    assert order_for_engines(batch, 50).tolist() == expected


def test_a_sampling_of_less_than_one_in_64_goes_to_the_host():
    sampling = np.array([0x22111100] * 126 + [0x11111100] * 2 + [0x11000000] * 2, np.uint32)
    backends = np.full(130, ENGINE, np.uint8)
    backends[[0, 127]] = SLOT
    backends[[1, 129]] = NONE
    left = leave_rare_samplings(backends, sampling)
    assert left[:2].tolist() == [SLOT, NONE] and (left[2:126] == ENGINE).all()
    assert left[126:].tolist() == [ENGINE, SLOT, HOST, NONE]
