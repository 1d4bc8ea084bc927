"""Over a thousand damaged files: nothing that Pillow refuses passes the strict check."""

import collections
import io
import random
import warnings

import numpy as np
import pytest
from PIL import Image, ImageFile

from jaxaug._verify import find_fault
from jaxaug.decode import Encoded, decode_image
from jaxaug.errors import DecodeError
from tests.decode.samples import JPEGS, PICTURE, RARE, insert, segment
from tests.images import encode

SEED = 20261
LARGE = np.tile(PICTURE, (3, 4, 1))
GOOD = {
    **JPEGS,
    "large": encode(LARGE, quality=92),
    "large 4:4:4": encode(LARGE, subsampling=0, restart_marker_blocks=5),
    "large progressive": encode(LARGE, progressive=True),
    **{kind: encode(PICTURE, kind) for kind in ("PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")},
    **{kind: encode(PICTURE, kind) for kind in ("JPEG2000", "AVIF")},
    **{name: file for name, (file, _) in RARE.items()},
}


def segments(file: bytes) -> list[tuple[int, int]]:
    """The (start, stop) of the segments of a JPEG before its image data."""
    found = []
    at = 2
    while file[at + 1] != 0xDA:
        stop = at + 2 + int.from_bytes(file[at + 2 : at + 4], "big")
        found.append((at, stop))
        at = stop
    return found


def data_start(file: bytes) -> int:
    return file.index(b"\xff\xda", segments(file)[-1][1]) + 14


def damages(file: bytes, rng: random.Random) -> dict[str, bytes]:
    """One of each kind of damage."""
    at = rng.randrange(16, len(file))
    flipped = bytearray(file)
    for _ in range(3):
        flipped[rng.randrange(12, len(file))] ^= 1 << rng.randrange(8)
    found = {
        "whole": file,
        "cut": file[:at],
        "cut at the end": file[: -rng.randrange(1, 9)],
        "bits flipped": bytes(flipped),
        "bytes lost": file[:at] + file[at + rng.randrange(1, 40) :],
        "bytes added": file[:at] + rng.randbytes(rng.randrange(1, 40)) + file[at:],
        "zeros": file[:at] + bytes(len(file) - at),
    }
    if file[:2] != b"\xff\xd8":
        return found
    start, stop = rng.choice(segments(file))
    inside = rng.randrange(data_start(file), len(file) - 2)
    frame = next(
        file[first:last]
        for first, last in segments(file)
        if file[first + 1] & 0xF0 == 0xC0 and file[first + 1] not in (0xC4, 0xCC)
    )
    marker = bytes([0xFF, rng.choice([0x02, 0x5A, 0xBF, 0xC8, 0xF0, 0xD8])])
    table = segment(0xC4, rng.randbytes(30))
    return found | {
        "segment deleted": file[:start] + file[stop:],
        "segment twice": insert(file, file[start:stop], start),
        "second frame before": insert(file, frame, start),
        "second frame inside": insert(file, frame, inside),
        "second frame behind": insert(file, frame, len(file) - 2),
        "marker inside": insert(file, marker, inside),
        "bogus table inside": insert(file, table, inside),
        "bogus table behind": insert(file, table, len(file) - 2),
        "end inside": insert(file, b"\xff\xd9", inside),
        "no end": file[:-2],
    }


def pillow_refuses(file: bytes) -> str:
    """What Pillow says about a file that it does not read, or ""."""
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    try:
        with Image.open(io.BytesIO(file)) as image:
            image.load()
            image.convert("RGB")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_pillow_refuses_is_refused():
    rng = random.Random(SEED)
    counts = collections.Counter[str]()
    stricter = collections.Counter[str]()
    for _ in range(4):
        for name, whole in GOOD.items():
            for kind, file in damages(whole, rng).items():
                fault = find_fault(Encoded.from_bytes([file]))
                refused = pillow_refuses(file)
                assert fault or not refused, (name, kind, refused, file.hex())
                assert not fault or kind != "whole", (name, fault)
                counts["files"] += 1
                counts["refused by Pillow"] += bool(refused)
                counts["of these read without strict"] += bool(refused) and reads(file)
                if fault and not refused:
                    stricter[kind] += 1
    print(counts, stricter)
    assert counts["files"] > 1200
    assert counts["of these read without strict"] > 50  # which is what strict is for


def reads(file: bytes) -> bool:
    """Whether `decode_image` takes a file without `strict`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            decode_image(file)
    except DecodeError:
        return False
    return True
