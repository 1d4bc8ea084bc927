"""Headers of TIFFs that are read together, against those of the same files one by one."""

import random

import numpy as np
import pytest

from jaxaug.decode import Encoded
from jaxaug.decode.image.form import PixelForm
from jaxaug.decode.image.parse import headers as headers_module
from jaxaug.decode.image.parse.headers import DEEP, Headers, read_headers
from tests.decode.image.deep.files import numbers, tiff

FORM = PixelForm("as stored", "float32")
KINDS = [{}, {"compression": "lzw"}, {"compression": "zlib", "rowsperstrip": 4}]
KINDS += [{"byteorder": ">"}, {"bigtiff": True, "compression": "lzw"}, {"tile": (16, 16)}]


def told(headers: Headers, row: int) -> tuple:
    """What is known of a file; its parts as tuples."""
    *columns, layout = headers.row(row)
    if layout is not None:
        place = layout.place
        parts = (tuple(place.offsets), tuple(place.counts))
        layout = layout._replace(place=place._replace(offsets=parts[0], counts=parts[1]))
    return (*columns, layout)


def check(files: list[bytes]) -> Headers:
    """Return the headers of a batch, which must be those of its files alone."""
    together = read_headers(Encoded.from_bytes(files), form=FORM)
    for row, file in enumerate(files):
        alone = read_headers(Encoded.from_bytes([file]), form=FORM)
        assert told(together, row) == told(alone, 0)
    return together


@pytest.mark.parametrize("options", KINDS)
def test_one_is_read_for_all(options, monkeypatch):
    files = [tiff(numbers(20, 24, 5, seed=seed), **options) for seed in range(4)]
    check(files)
    read = []
    one = headers_module.deep.read_layout
    monkeypatch.setattr(
        headers_module.deep, "read_layout", lambda *args: read.append(1) or one(*args)
    )
    assert (read_headers(Encoded.from_bytes(files), form=FORM).kind == DEEP).all()
    assert len(read) == 1


@pytest.mark.parametrize("options", KINDS)
def test_damaged_ones_are_what_they_are_alone(options):
    """Each byte of the directory and of its values changed, and the end cut off."""
    whole = tiff(numbers(20, 24, 5), **options)
    changes = random.Random(5)
    damaged = []
    for at in range(0, 420, 2):
        one = bytearray(whole)
        one[at] ^= 1 << changes.randrange(8)
        damaged.append(bytes(one))
    damaged += [whole[:-cut] for cut in (1, 9, 300)]
    damaged += [whole[:stop] for stop in (3, 20, 130, 200)]
    damaged.append(whole[:4] + b"ftyp" + whole[8:])
    found = check([whole, *damaged, whole + b"more"])
    assert found.kind[0] == found.kind[-1] == DEEP
    assert 10 < np.count_nonzero(found.kind == DEEP) < len(damaged)


def test_parts_that_wrap_around_the_address_space_are_refused():
    """An offset and a count of 64 bits whose sum is small."""
    whole = tiff(numbers(20, 24, 5), bigtiff=True, compression="lzw")
    alike = tiff(numbers(20, 24, 5, seed=1), bigtiff=True, compression="lzw")
    found = check([whole, alike])
    offset, count = (each[0] for each in found.layout[1].place[-2:])
    for old, new in ((offset, 2**64 - count + 8), (count, 2**64 - offset + 8), (offset, 2**63)):
        changed = alike.replace(old.to_bytes(8, "little"), new.to_bytes(8, "little"))
        assert changed != alike
        assert "truncated" in check([whole, alike, changed]).reason[2]


def test_one_that_is_of_another_format_all_the_same_is_refused():
    """A DICOM may begin with a TIFF; here the directory lies behind the bytes that tell it."""
    whole = tiff(numbers(20, 24, 5))
    stop = 10 + 12 * int.from_bytes(whole[8:10], "little")
    whole = whole[:4] + len(whole).to_bytes(4, "little") + whole[8:] + whole[8:stop]
    other = whole[:128] + b"DICM" + whole[132:]
    found = check([whole, whole, other])
    assert found.kind[0] == found.kind[1] == DEEP
    assert "DICOM" in found.reason[2]
