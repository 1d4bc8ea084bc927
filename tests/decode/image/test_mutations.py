"""Thousands of damaged files: each gives an image or a reason, the byte check tells which, and the
rest stands.
"""

import random
import zlib

import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug.decode import Decoder, Encoded, Headers, read_headers
from jaxaug.decode.image.parse import headers as headers_of
from jaxaug.decode.image.parse.headers import DEEP, JPEG
from jaxaug.decode.image.parse.other_formats import format_of
from tests.decode import fields
from tests.decode.samples import (
    JPEGS,
    PICTURE,
    RARE,
    exif_segment,
    insert,
    lossless,
    save,
    twelve_bits,
)
from tests.images import encode

SEED = 20260  # another seed, other damage; a failure prints the file
WHOLE = JPEGS["4:2:0"]
MARKERS = bytes(
    [
        0x01,
        0xC0,
        0xC1,
        0xC2,
        0xC3,
        0xC4,
        0xC9,
        0xCA,
        0xCC,
        0xD0,
        0xD8,
        0xD9,
        0xDA,
        0xDB,
        0xDC,
        0xDD,
        0xE1,
    ]
)


def damage(file: bytes, rng: random.Random) -> bytes:
    """One to three of: a flipped bit, a new byte, bytes lost or added, a swapped marker, a cut
    tail.
    """
    data = bytearray(file)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if len(data) < 16:
            break
        at = (
            rng.randrange(2, len(data) - 2)
            if rng.random() < 0.3
            else rng.randrange(2, min(len(data), 700) - 2)
        )
        kind = rng.randrange(12)
        if kind < 5:
            data[at] ^= 1 << rng.randrange(8)
        elif kind < 7:
            data[at] = rng.randrange(256)
        elif kind < 8:
            del data[at : at + rng.randrange(1, 5)]
        elif kind < 9:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        elif kind < 11:
            found = [
                i for i in range(len(data) - 1) if data[i] == 0xFF and data[i + 1] not in (0, 255)
            ]
            if found:
                data[rng.choice(found) + 1] = rng.choice(MARKERS)
        else:
            del data[at:]
    return bytes(data)


def run(sources: list[bytes], count: int, decoder: Decoder, rng: random.Random):
    """Decode `count` damaged files, 50 at a time, the last of each batch whole."""
    expected = np.asarray(decoder.decode([WHOLE]).pixels)[0]
    for _ in range(count // 50):
        files = [damage(rng.choice(sources), rng) for _ in range(49)] + [WHOLE]
        encoded = Encoded.from_bytes(files)
        headers = read_headers(encoded, decoder.max_pixels)
        decoded = decoder.decode_rows(encoded)
        pixels = np.asarray(decoded.arrays["pixels"][0])
        np.testing.assert_array_equal(pixels[-1], expected)
        assert not pixels[~decoded.valid].any()
        assert set(decoded.failures) == set((~decoded.valid).nonzero()[0].tolist())
        assert all(decoded.failures.values())
        for row, file in enumerate(files):
            height, width = decoded.arrays["size"][row]
            assert not pixels[row, height:].any() and not pixels[row, :, width:].any(), file.hex()
        yield files, headers, decoded


def test_damaged_jpegs_the_byte_check_decides():
    """So that the verdict is the same whatever decodes: what it lets pass does become an image."""
    deep = [lossless(PICTURE[:9, :9].astype(np.uint16) * 257, bits=16), twelve_bits(WHOLE)]
    sources = [*JPEGS.values(), *deep, *[insert(WHOLE, exif_segment(8, order)) for order in "<>"]]
    kinds = set()
    with Decoder((40, 64), "host", jax.devices("cpu")[:1], "mask", max_pixels=2**20) as decoder:
        for files, headers, decoded in run(sources, 4000, decoder, random.Random(SEED)):
            good = np.isin(headers.kind, (JPEG, DEEP))
            for row in (good != decoded.valid).nonzero()[0].tolist():
                assert headers.kind[row] == 2, (decoded.failures.get(row), files[row].hex())
            kinds |= set(zip(headers.kind.tolist(), decoded.valid.tolist()))
    assert {(0, False), (1, True)} <= kinds


def assert_read_alike_together_and_alone(
    files: list[bytes], together: Headers, max_pixels: int
) -> None:
    """Every column is the same for many files, read with numpy, as for one, read without."""
    for row, file in enumerate(files):
        alone = read_headers(Encoded.from_bytes([file]), max_pixels)
        for name, one, many in zip(Headers._fields, alone, together):
            assert one[0] == many[row], (name, file.hex())


def test_damaged_jpegs_read_alike_together_and_alone():
    rng = random.Random(SEED)
    reasons = set()
    exif = [
        exif_segment(value, order, value > 4, value % 3) for value in range(10) for order in "<>"
    ]
    sources = [*JPEGS.values(), *(insert(WHOLE, each) for each in exif)]
    for _ in range(20):
        files = [damage(rng.choice(sources), rng) for _ in range(100)]
        files = [file + rng.randbytes(rng.choice((0, 0, 1, 50, 5000))) for file in files]
        together = read_headers(Encoded.from_bytes(files), 2**20)
        assert_read_alike_together_and_alone(files, together, 2**20)
        reasons |= {reason.split(":")[0] for reason in together.reason}
    assert len(reasons) > 20


@pytest.mark.filterwarnings("ignore:::PIL")
def test_damaged_files_of_other_formats():
    kinds = ("PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF")
    sources = [encode(PICTURE, kind) for kind in kinds]
    sources += [file for file, _ in RARE.values()]
    count = 0
    with Decoder((40, 64), "host", jax.devices("cpu")[:1], "mask", max_pixels=2**20) as decoder:
        for _, headers, decoded in run(sources, 2000, decoder, random.Random(SEED)):
            assert not decoded.valid[headers.kind == 0].any()
            count += decoded.valid.sum()
    assert 20 < count < 2000


@pytest.mark.filterwarnings("ignore:::PIL")
def test_damaged_files_of_other_formats_are_judged_as_pillow_opens_them(monkeypatch):
    """A header that is read without Pillow gives the same columns, also for bad files."""
    rng = random.Random(SEED)
    read = 0
    image = Image.fromarray(PICTURE)
    exif = Image.Exif()
    exif[0x0112] = 6
    modes = ("RGB", "L", "P", "1")
    sources = [
        save(image.convert(mode), kind) for mode in modes for kind in ("PNG", "WEBP", "GIF", "BMP")
    ]
    sources += [save(image, kind, exif=exif) for kind in ("PNG", "WEBP")]
    sources += [
        save(
            Image.merge("RGBA", (*image.split(), image.convert("L"))), "WEBP", icc_profile=bytes(9)
        )
    ] * 4
    sources += [
        save(image, "PNG", dpi=(72, 72)),
        save(image, "WEBP", lossless=True),
        save(image, "GIF", comment="x"),
    ]
    sizes = dict(headers_of.SIZES)
    for _ in range(40):
        files = [damage_head(rng.choice(sources), rng) for _ in range(100)]
        encoded = Encoded.from_bytes(files)
        without = read_headers(encoded, 2**20)
        with monkeypatch.context() as patch:
            patch.setattr(headers_of, "SIZES", {})
            opened = read_headers(encoded, 2**20)
        for name, one, other in zip(Headers._fields, without, opened):
            for row in (one != other).nonzero()[0].tolist():
                pytest.fail(f"{name}: {one[row]} {other[row]} {files[row].hex()}")
        for file in files:
            if reader := sizes.get(format_of(file)):
                read += reader(memoryview(file), file[:56].ljust(56, b"\0")) is not None
    assert 500 < read < 3500


def damage_head(file: bytes, rng: random.Random) -> bytes:
    """Damage near the beginning; the checksums of a PNG are often right all the same."""
    data = bytearray(file)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(4, min(rng.choice((34, 60, 200)), len(data)))
        kind = rng.randrange(5)
        if kind < 3:
            data[at] = rng.choice((0, 1, 255, data[at] ^ 1 << rng.randrange(8)))
        elif kind == 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        else:
            del data[max(at, len(data) - rng.randrange(1, 20)) :]
    if data[:4] == b"\x89PNG" and rng.random() < 0.7:
        at = 8
        while at + 12 <= len(data):
            stop = at + 8 + int.from_bytes(data[at : at + 4], "big")
            data[stop : stop + 4] = zlib.crc32(data[at + 4 : stop]).to_bytes(4, "big")[
                : len(data) - stop
            ]
            at = stop + 4
    return bytes(data)


# ---- header fields


def run_fields(count: int) -> None:
    """The host decodes all that the check calls good; files are read alike together and alone."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print("seed", seed)
    rng = random.Random(seed)
    found = {"good": 0, "bad": 0}
    sources = [file for file in JPEGS.values() if len(file) < 10_000]
    with Decoder((40, 64), "host", jax.devices("cpu")[:1], "mask", max_pixels=2**16) as decoder:
        for _ in range(count // 50):
            files = [fields.change(rng.choice(sources), rng) for _ in range(50)]
            encoded = Encoded.from_bytes(files)
            headers = read_headers(encoded, decoder.max_pixels)
            decoded = decoder.decode_rows(encoded)
            good = headers.kind == 1
            for row in (good & ~decoded.valid).nonzero()[0].tolist():
                pytest.fail(f"{decoded.failures[row]}: {files[row].hex()}")
            assert_read_alike_together_and_alone(files, headers, decoder.max_pixels)
            found["good"] += int(good.sum())
            found["bad"] += int((~good).sum())
    assert min(found.values()) > count // 5, found


def test_fields_are_written_as_they_were_parsed():
    for file in JPEGS.values():
        assert fields.write(fields.parse(file)) == file


def test_changed_header_fields_the_byte_check_decides():
    run_fields(4000)


@pytest.mark.slow
def test_many_changed_header_fields():
    run_fields(60_000)
