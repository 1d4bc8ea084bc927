"""Packed files for the tests of storage."""

import ctypes
import mmap

import numpy as np

from jaxaug.iterators.sources.packed.tfrecord import TFRecord
from jaxaug.iterators.sources.storage.files import list_files
from tests.iterators.sources import containers


def noise(folder, sizes):
    """Files of random bytes: (DataFiles, their contents)."""
    generator = np.random.default_rng(0)
    contents = []
    for number, size in enumerate(sizes):
        contents.append(generator.bytes(size))
        (folder / f"{number}.bin").write_bytes(contents[-1])
    return list_files([folder / f"{number}.bin" for number in range(len(sizes))]), contents


def source_of(folder, mmap, **options):
    """Six records in two files."""
    examples = containers.labelled_examples(6)
    for name, part in (("a", examples[:3]), ("b", examples[3:])):
        (folder / f"{name}.tfrecord").write_bytes(containers.tfrecord(part))
    return TFRecord(folder / "*.tfrecord", mmap=mmap, **options)


def check_rows(source, bad):
    """Those rows of `bad` have length 0 and an error that names the file; the others are right."""
    features = dict(source.read(np.arange(6)))
    encoded = features.pop("image")
    assert features["label"].tolist() == list(range(6))
    for row, image in enumerate(containers.jpegs(6)):
        assert bytes(encoded.view(row)) == (b"" if row in bad else image)
        about = source.describe(row) if row in bad else {}
        assert ("error" in about) == (row in bad)
        assert row not in bad or about["path"] in about["error"]


def resident(address, length):
    """Return which share of some mapped pages is in memory, 0 to 1."""
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    pages = (ctypes.c_ubyte * -(-(address + length - first) // mmap.PAGESIZE))()
    mincore = ctypes.CDLL(None).mincore
    assert mincore(ctypes.c_void_p(first), ctypes.c_size_t(address + length - first), pages) == 0
    return np.mean([page & 1 for page in pages])
