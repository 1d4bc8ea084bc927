"""The kernel that finds damage in LZW, compiled for the host with one thread a block."""

import ctypes
import shutil
import struct
import subprocess

import imagecodecs
import numpy as np
import PIL.Image
import pytest

from jaxaug.decode.image.deep import tiff as reader
from jaxaug.decode.native.lzw_check import PART, SOURCE
from tests.decode.image.deep.files import numbers, tiff

_BEFORE = """
#include <algorithm>
using std::max;
#define __device__ static
#define __global__
#define __shared__ static
struct Index { int x; };
static Index threadIdx{0}, blockDim{1}, blockIdx{0};
static void __syncthreads() {}
static bool __syncthreads_or(bool any) { return any; }
static void atomicMin(int* place, int value) { *place = std::min(*place, value); }
static void atomicAdd(unsigned* place, unsigned value) { *place += value; }
"""
_BEHIND = """
extern "C" void check_all(Part* parts, const unsigned char* data, int count) {
  for (blockIdx.x = 0; blockIdx.x < count; ++blockIdx.x) check_lzw(parts, data);
}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("kernel")
    source, library = folder / "kernel.cpp", folder / "kernel.so"
    source.write_text(_BEFORE + SOURCE + _BEHIND)
    strict = ["-fsanitize=bounds", "-fsanitize-undefined-trap-on-error"]
    command = [compiler, "-O1", *strict, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    check = ctypes.CDLL(str(library)).check_all

    def run(data: bytes, parts: np.ndarray) -> np.ndarray:
        table = np.zeros(len(parts), PART)
        table["at"], table["count"], table["size"] = parts.T
        table["whole"] = 7
        stored = np.frombuffer(data, np.uint8)
        check(ctypes.c_void_p(table.ctypes.data), ctypes.c_void_p(stored.ctypes.data), len(table))
        return table["whole"]

    return run


def sequences(count):
    rng = np.random.default_rng(count)
    yield bytes(count)
    yield rng.integers(0, 256, count, np.uint8).tobytes()
    yield (rng.integers(-1, 2, count).cumsum() & 255).astype(np.uint8).tobytes()


def by_libtiff(data, tmp_path):
    """The one strip that libtiff writes."""
    path = tmp_path / "strip.tif"
    PIL.Image.frombytes("L", (len(data), 1), data).save(path, compression="tiff_lzw")
    file = path.read_bytes()
    place = reader.read_layout(memoryview(file), 0).place
    ((start,), (size,)) = place.offsets, place.counts
    return file[start : start + size]


@pytest.mark.parametrize("count", [1, 2, 253, 254, 255, 256, 257, 511, 3838, 9999, 300_007])
def test_what_encoders_write_is_whole(whole, tmp_path, count):
    for data in sequences(count):
        for stored in (imagecodecs.lzw_encode(data), by_libtiff(data, tmp_path)):
            size = len(stored)
            sizes = [[0, size, count], [0, size, count - 1], [0, size, count + 1]]
            assert whole(stored, np.array(sizes)).tolist() == [1, 0, 0]
            assert whole(stored, np.array([[0, size - 2, count]])).tolist() == [0]


def test_what_is_whole_the_host_decodes(whole):
    """All kinds of damage: a part that passes decodes to the same by two libraries of the host."""
    rng = np.random.default_rng(0)
    smooth = (np.arange(6000).reshape(40, 50, 3) // 7 + rng.integers(0, 4, (40, 50, 3))) % 65536
    verdicts = np.zeros((2, 2), int)
    for pixels in (smooth.astype(np.uint16), numbers(40, 50, 3, dtype="uint8")):
        good = tiff(pixels, compression="lzw", rowsperstrip=20)
        layout = reader.read_layout(memoryview(good), 0)
        parts = np.array([*zip(layout.place.offsets, layout.place.counts)])
        parts = np.column_stack([parts, np.full(2, pixels.nbytes // 2)])
        assert whole(good, parts).tolist() == [1, 1]
        for turn in range(300):
            bad = bytearray(good)
            start, count, _ = parts[turn % 2]
            at = int(start + rng.integers(count))
            end = int(min(start + count, at + rng.integers(1, 9)))
            bad[at:end] = rng.integers(0, 256, end - at, np.uint8).tobytes()
            if turn % 3 == 0:
                bad[at:end] = good[at:end]
                bad[at] ^= 1 << int(rng.integers(8))
            passes = whole(bytes(bad), parts).all()
            try:
                found = reader.decode(memoryview(bytes(bad)), layout)
            except Exception:
                assert not passes
                verdicts[0, 0] += 1
                continue
            verdicts[1, int(passes)] += 1
            if passes:
                plain = [imagecodecs.lzw_decode(bad[at : at + size]) for at, size, _ in parts]
                assert b"".join(plain) == found.tobytes()
    assert (verdicts.ravel()[[0, 3]] > 20).all()


def test_a_table_that_is_full_and_codes_ahead_of_it_are_damage(whole):
    def packed(codes, widths):
        bits = "".join(f"{code:0{width}b}" for code, width in zip(codes, widths))
        return int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")

    nine = [9] * 8
    cases = [
        ([256, 65, 258, 257], 3, 1),  # the entry that it ends itself
        ([256, 65, 259, 257], 3, 0),
        ([256, 258, 257], 1, 0),
        ([65, 256, 257], 1, 0),  # no Clear at the beginning
        ([256, 65, 256, 256, 257], 1, 0),
        ([256, 65, 66], 2, 0),  # no end
        ([256, 65, 256, 66, 257], 2, 1),
    ]
    for codes, size, expected in cases:
        stored = packed(codes, nine)
        assert whole(stored, np.array([[0, len(stored), size]])).tolist() == [expected], codes
    widths = [9] * 255 + [10] * 512 + [11] * 1024 + [12] * 4096
    for count in (3838, 3839, 4000):
        codes = [256] + [65] * count + [257]
        stored = packed(codes, widths)
        found = whole(stored, np.array([[0, len(stored), count]])).tolist()
        assert found == [int(count < 3839)]
    assert struct.calcsize("QQQQ") == PART.itemsize
