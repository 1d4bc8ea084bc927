"""CUDA kernels that bring a decoded surface to canvases: split, cropped, turned, rounded, shrunk.

They give the numbers that `planes.planes_of`, `fit_planes` and `write_planes` give on the host.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from jaxaug.decode.native.kernels import Kernel, compile_kernels

BLOCK = (32, 8, 1)  # threads
# Of Pillow's weights in integers (src/libImaging/Resample.c, PRECISION_BITS: 32 - 8 - 2).
_WEIGHT_BITS = 22

_SOURCE = r"""
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned long long u64;

// Plane z of a surface: luma, Cb and Cr apart, or Cb and Cr in turn behind luma.
struct Surface {
  u64 pointer;
  int pitch, rows, left, top, height, width, halved, bits, turns, unused;
};
// Plane z of a canvas; `edge` more rows and columns repeat the last one of chroma.
struct Canvas {
  u64 luma, chroma;
  int luma_rows, luma_pitch, chroma_rows, chroma_pitch, edge, unused;
};

__device__ int half_up(int side, int halved) { return halved ? (side + 1) / 2 : side; }

__device__ u8 read(const Surface& s, int z, int y, int x) {
  const u8* plane = (const u8*)s.pointer;
  int step = s.bits > 8 ? 2 : 1;
  int halved = z ? s.halved : 0;
  size_t row = (s.top >> halved) + y, column = (s.left >> halved) + x;
  if (z && s.halved) {
    row += s.rows;
    column = 2 * column + (z - 1);
  } else {
    row += (size_t)z * s.rows;
  }
  const u8* value = plane + row * s.pitch + column * step;
  if (s.bits == 8) return *value;
  int whole = *(const u16*)value >> (16 - s.bits);
  return (u8)min((whole + (1 << (s.bits - 9))) >> (s.bits - 8), 255);
}

__device__ u8* locate(const Canvas& c, int z, int y, int x) {
  if (!z) return (u8*)c.luma + (size_t)y * c.luma_pitch + x;
  size_t row = (size_t)(z - 1) * c.chroma_rows + y;
  return (u8*)c.chroma + row * c.chroma_pitch + x;
}

// One axis of a plane, by weights int[out][taps] from the pixels int[out] on.
struct Axis {
  u64 luma_first, luma_weights, chroma_first, chroma_weights;
  int luma_taps, chroma_taps, luma_out, chroma_out, luma_other, chroma_other, down, unused;
};

// The surface goes to the first canvas, from there along the axes to the others. Three planes of
// each frame follow each other in the third dimension of a launch.
struct Frame {
  Surface surface;
  Canvas canvases[3];
  Axis axes[2];
};

extern "C" __global__ void place(const Frame* frames) {
  const Frame* frame = frames + blockIdx.z / 3;
  Surface s = frame->surface;
  Canvas c = frame->canvases[0];
  int z = blockIdx.z % 3;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  int height = half_up(s.height, z && s.halved), width = half_up(s.width, z && s.halved);
  int tall = s.turns & 1 ? width : height, wide = s.turns & 1 ? height : width;
  int edge = z ? c.edge : 0;
  int rows = z ? c.chroma_rows : c.luma_rows, columns = z ? c.chroma_pitch : c.luma_pitch;
  if (y >= min(tall + edge, rows)) return;
  int v = min(y, tall - 1), end = min(wide + edge, columns);
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  for (; x < end; x += gridDim.x * blockDim.x) {
    int u = min(x, wide - 1);
    int i = v, j = u;
    if (s.turns == 1) { i = u; j = width - 1 - v; }
    if (s.turns == 2) { i = height - 1 - v; j = width - 1 - u; }
    if (s.turns == 3) { i = height - 1 - u; j = v; }
    *locate(c, z, y, x) = read(s, z, i, j);
  }
}

extern "C" __global__ void shrink(const Frame* frames, int number) {
  const Frame* frame = frames + blockIdx.z / 3;
  Canvas from = frame->canvases[number], to = frame->canvases[number + 1];
  Axis axis = frame->axes[number];
  int z = blockIdx.z % 3;
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int out = z ? axis.chroma_out : axis.luma_out, other = z ? axis.chroma_other : axis.luma_other;
  int tall = axis.down ? out : other, wide = axis.down ? other : out;
  int edge = z ? to.edge : 0;
  int rows = z ? to.chroma_rows : to.luma_rows, columns = z ? to.chroma_pitch : to.luma_pitch;
  if (y >= min(tall + edge, rows) || x >= min(wide + edge, columns)) return;
  int v = min(y, tall - 1), u = min(x, wide - 1);
  int place = axis.down ? v : u, taps = z ? axis.chroma_taps : axis.luma_taps;
  const int* first = (const int*)(z ? axis.chroma_first : axis.luma_first);
  const int* weights = (const int*)(z ? axis.chroma_weights : axis.luma_weights) + place * taps;
  int sum = 1 << (BITS - 1);
  const u8* pixel = axis.down ? locate(from, z, first[place], u) : locate(from, z, v, first[place]);
  int step = axis.down ? (z ? from.chroma_pitch : from.luma_pitch) : 1;
  for (int tap = 0; tap < taps; ++tap) {
    if (weights[tap]) sum += weights[tap] * pixel[(size_t)tap * step];
  }
  *locate(to, z, y, x) = (u8)min(max(sum >> BITS, 0), 255);
}
""".replace("BITS", str(_WEIGHT_BITS))


def _record(addresses: str, numbers: str) -> np.dtype:
    fields = [(name, np.uint64) for name in addresses.split()]
    return np.dtype(fields + [(name, np.int32) for name in numbers.split()])


SURFACE = _record("pointer", "pitch rows left top height width halved bits turns unused")
CANVAS = _record("luma chroma", "luma_rows luma_pitch chroma_rows chroma_pitch edge unused")
AXIS = _record(
    "luma_first luma_weights chroma_first chroma_weights",
    "luma_taps chroma_taps luma_out chroma_out luma_other chroma_other down unused",
)
FRAME = np.dtype([("surface", SURFACE), ("canvases", CANVAS, 3), ("axes", AXIS, 2)])


@functools.lru_cache(256)
def pillow_weights(inside: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights with which Pillow shrinks a side, in units of 2^-22.

    A triangle of half-width s = max(1, inside / out) about (i + 1/2) inside / out, cut at the ends
    and divided by its sum (Pillow, src/libImaging/Resample.c, precompute_coeffs).

    Returns:
      (first, weights): int32[out], the first pixel; int32[out, taps].

    Example:
      >>> first, weights = pillow_weights(4, 2)
      >>> first.tolist(), (weights / 2**22).round(3).tolist()
      ([0, 1], [[0.429, 0.429, 0.143, 0.0, 0.0], [0.143, 0.429, 0.429, 0.0, 0.0]])
    """
    scale = inside / out
    half = max(1.0, scale)
    taps = math.ceil(half) * 2 + 1
    centers = (np.arange(out) + 0.5) * scale
    first = np.maximum((centers - half + 0.5).astype(np.int64), 0)
    last = np.minimum((centers + half + 0.5).astype(np.int64), inside)
    places = np.arange(taps)
    distances = (places + first[:, None] - centers[:, None] + 0.5) * (1.0 / half)
    weights = np.maximum(0.0, 1.0 - np.abs(distances))
    weights[places >= (last - first)[:, None]] = 0
    sums = np.zeros(out)
    for tap in range(taps):  # in Pillow's order, so that sums are rounded alike
        sums += weights[:, tap]
    weights = weights / sums[:, None]
    return first.astype(np.int32), (0.5 + weights * (1 << _WEIGHT_BITS)).astype(np.int32)


class Kernels(NamedTuple):
    """The compiled kernels."""

    place: Kernel
    shrink: Kernel


def compile_place_kernels() -> Kernels:
    """Return the kernels for the current device."""
    return Kernels(**compile_kernels(_SOURCE, ("place", "shrink")))
