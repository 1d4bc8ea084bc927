"""`Encoded` in other processes and after its owner has gone."""

import copy
import gc
import pickle
import subprocess
import sys
import zlib

import numpy as np
import pytest

from jaxaug.decode import Encoded, decode_image, read_headers
from jaxaug.iterators import InMemory
from tests.images import jpegs

IMAGES = [*jpegs(4), b"", b"text", bytes(100_000)]


def bytes_of(encoded: Encoded) -> list[bytes]:
    return [bytes(encoded.view(row)) for row in range(len(encoded.lengths))]


def forms() -> dict[str, Encoded]:
    encoded = Encoded.from_bytes(IMAGES)
    return {
        "all": encoded,
        "some": encoded.take(np.array([6, 0, 0, 3])),
        "none": Encoded.from_bytes([]),
        "nothing but empty ones": Encoded.from_bytes([b"", b""]),
        "other integers": encoded._replace(lengths=encoded.lengths.astype(np.int32)),
    }


@pytest.mark.parametrize("name", forms())
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]
)
def test_a_copy_has_its_own_bytes(name, again):
    encoded = forms()[name]
    expected = bytes_of(encoded)
    made = again(encoded)
    assert type(made) is Encoded and made.addresses.dtype == made.lengths.dtype == np.uint64
    if any(expected):
        assert not set(made.addresses[made.lengths > 0]) & set(encoded.addresses)
    del encoded
    gc.collect()
    assert bytes_of(made) == expected
    read_headers(made)


CHILD = """
import pickle, sys, zlib
import numpy as np
encoded, source = pickle.load(open(sys.argv[1], "rb"))
read = source.read(np.arange(len(source)))["image"]
for each in (encoded, read):
    print([zlib.crc32(each.view(row)) for row in range(len(each.lengths))])
"""


def test_another_process_reads_the_same_bytes(tmp_path):
    images = jpegs(6)
    (tmp_path / "file").write_bytes(pickle.dumps((Encoded.from_bytes(images), InMemory(images))))
    command = [sys.executable, "-c", CHILD, tmp_path / "file"]
    child = subprocess.run(command, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert child.stdout == f"{[zlib.crc32(image) for image in images]}\n" * 2


def test_pixels_are_no_files():
    message = r"must be the bytes of files, got pixels uint8\[4, 5, 3\], .*RandomAccess takes"
    pixels = np.zeros((4, 5, 3), np.uint8)
    with pytest.raises(TypeError, match=message):
        Encoded.from_bytes([b"...", pixels])
    with pytest.raises(TypeError, match=message):
        decode_image(pixels)
    assert Encoded.from_bytes([pixels.ravel()]).lengths.tolist() == [60]
