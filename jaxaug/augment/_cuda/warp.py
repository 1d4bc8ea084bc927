"""The resample of a run of geometric ops as one CUDA kernel.

Computes what `_resample` describes, with the same taps and weights: a thread reads the taps of its
output pixel and writes its channels. XLA sums the largest number of taps for every pixel; here each
pixel reads those that it needs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from jaxaug._typing import Scalar
from jaxaug.augment._base import PADDING_MODES, Epilogue
from jaxaug.augment._cuda.call import CudaKernel, as_row, call, with_constants

_THREADS = (32, 4)
# Groups of four taps for which weights are integers: from a shrink by more than 4 on, as long as 32
# bits hold 255 times the sum of the weights.
_DOT_GROUPS = range(3, 65)


class Constants(NamedTuple):
    """What is the same for all images, and compiled into the kernel.

    Attributes:
      image: (height, width, channels) of the source.
      dtype: of the source, one of PIXELS.
      canvas: (height, width) of the result.
      radius: of the interpolation's kernel: 1 for the triangle, 2 for the cubic convolution.
      affine: False where each position is divided by a third coordinate.
      mode: the padding mode that folds indices.
      fills, framed: see `_axis.Axis`.
      windowed: there is a window.
      taps, most: of the y and the x axis, see `_axis.Axis`.
      clips: values beyond [0, 1] are clipped before the epilogue.
      epilogue: of the values.
    """

    image: tuple[int, int, int]
    dtype: str
    canvas: tuple[int, int]
    radius: int
    affine: bool
    mode: str
    fills: bool
    framed: bool
    windowed: bool
    taps: tuple[int, int]
    most: tuple[float, float]
    clips: bool
    epilogue: Epilogue


def computes(dtype: Any, epilogue: Epilogue | None) -> bool:
    """Return True if the kernel reads images of a dtype and has the epilogue."""
    return str(dtype) in PIXELS and (epilogue is None or epilogue.dtype in RESULTS)


def warp(constants: Constants, image: Array, numbers: Sequence[Scalar]) -> Array:
    """Return what the epilogue makes of float32[*constants.canvas, C] in [0, 1].

    Args:
      constants: what is compiled into the kernel.
      image: [H, W, C].
      numbers: 15 + C: the matrix by rows, the extent (height, width), the first and last
        pixels of the window (top, left, bottom, right), and the color of what lies outside.
    """
    height, width = constants.canvas
    kernel = CudaKernel(
        source=_source(constants),
        name="warp",
        results=(((height, width, constants.image[2]), constants.epilogue.dtype),),
        blocks=(-(-width // _THREADS[0]), -(-height // _THREADS[1])),
        threads=_THREADS,
    )
    return call(kernel, image, as_row(numbers))[0]


def _source(constants: Constants) -> str:
    groups = -(-constants.taps[1] // 4)
    words = constants.dtype == "uint8" and constants.image[2] == 3
    defines = {
        "HEIGHT": constants.image[0],
        "WIDTH": constants.image[1],
        "CHANNELS": constants.image[2],
        "OUT_HEIGHT": constants.canvas[0],
        "OUT_WIDTH": constants.canvas[1],
        "PIXEL": PIXELS[constants.dtype],
        "SCALE": "(1.0f / 255.0f)" if constants.dtype == "uint8" else "1.0f",
        "RADIUS": constants.radius,
        "AFFINE": int(constants.affine),
        **{mode.upper(): number for number, mode in enumerate(PADDING_MODES)},
        "MODE": constants.mode.upper(),
        "FILLS": int(constants.fills),
        "FRAMED": int(constants.framed),
        "WINDOWED": int(constants.windowed),
        "TAPS_Y": constants.taps[0],
        "TAPS_X": constants.taps[1],
        "GROUPS": groups,
        "WORDS": int(words),
        "DOTS": int(words and constants.radius == 1 and groups in _DOT_GROUPS),
        "MOST_Y": f"{constants.most[0]:.9e}f",
        "MOST_X": f"{constants.most[1]:.9e}f",
        "CLIPS": int(constants.clips),
        **_epilogue_constants(constants.epilogue),
    }
    return with_constants(defines, _SOURCE)


def _epilogue_constants(epilogue: Epilogue) -> dict[str, Any]:
    """Return the constants of an epilogue; XLA, too, multiplies by the inverse of a constant."""
    shift = np.array(epilogue.shift, np.float32)
    inverse = 1 / np.array(epilogue.scale, np.float32)
    return {
        "SHIFTS": int(shift.size > 0),
        "SHIFT": ", ".join(f"{value:.9e}f" for value in shift),
        "INVERSE": ", ".join(f"{value:.9e}f" for value in inverse),
        "RESULT": RESULTS[epilogue.dtype],
        "BFLOAT16": int(epilogue.dtype == "bfloat16"),
        "FLOAT16": int(epilogue.dtype == "float16"),
    }


# C++ types of the dtypes that the kernel reads and writes.
PIXELS = {"uint8": "unsigned char", "float32": "float"}
RESULTS = {"float32": "float", "bfloat16": "unsigned short", "float16": "unsigned short"}

# The CUDA C++; the constants of `Constants` are defined before it.
_SOURCE = r"""
struct Axis {
  float extent, low, high;  // the used length; the first and last pixel of the window
};

struct Taps {
  int first, last;               // the pixels that are read
  float center, inverse;         // inverse: output pixels per source pixel, at most 1
  float coverage;                // of a framed axis
  bool inside;                   // no tap needs to be folded or filled
};

__device__ float modulo(float index, float period) {
  return index - period * floorf((index + 0.5f) / period);
}

__device__ float fold(float index, float length) {
#if MODE == REFLECT
  float period = fmaxf(2.0f * length - 2.0f, 1.0f);
  index = fabsf(modulo(index, period));
  index = fminf(index, period - index);
#elif MODE == SYMMETRIC
  index = modulo(index, 2.0f * length);
  index = fminf(index, 2.0f * length - 1.0f - index);
#elif MODE == WRAP
  index = modulo(index, length);
#endif
  return fminf(fmaxf(index, 0.0f), length - 1.0f);
}

__device__ Taps find_taps(float position, float scale, const Axis& axis, int count, float most) {
  float stretch = count <= 2 * RADIUS ? 1.0f : fminf(fmaxf(scale, 1.0f), most);
  float half = RADIUS * stretch;
  Taps taps;
  taps.inverse = 1.0f / stretch;
  taps.center = position - 0.5f;
  taps.coverage = 1.0f;
#if FRAMED
  taps.center = fold(taps.center, axis.extent);
#if FILLS
  float inverse = 1.0f / fmaxf(scale, 1e-6f);
  float before = fminf(fmaxf(position * inverse + 0.5f, 0.0f), 1.0f);
  float behind = fminf(fmaxf((axis.extent - position) * inverse + 0.5f, 0.0f), 1.0f);
  taps.coverage = before * behind;
#endif
#endif
  taps.first = (int)floorf(taps.center - half) + 1;
  taps.last = min(taps.first + count - 1, (int)ceilf(taps.center + half) - 1);
#if WINDOWED
  taps.first = max(taps.first, (int)axis.low);
  taps.last = min(taps.last, (int)axis.high);
#endif
  // The unused part of a canvas may have no taps, and begin beyond the image.
  taps.inside = taps.first >= 0 && taps.first <= taps.last &&
                (float)taps.last <= axis.extent - 1.0f;
  return taps;
}

__device__ float weight(const Taps& taps, int tap) {
  float distance = fabsf((float)tap - taps.center) * taps.inverse;
#if RADIUS == 1
  return fmaxf(0.0f, 1.0f - distance);
#else
  float near = (1.5f * distance - 2.5f) * distance * distance + 1.0f;
  float far = ((-0.5f * distance + 2.5f) * distance - 4.0f) * distance + 2.0f;
  return distance < 1.0f ? near : distance < 2.0f ? far : 0.0f;
#endif
}

// A byte in the lowest bits of the float 2^23 adds its value; a conversion takes longer.
__device__ float to_float(unsigned int word, int place) {
  return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 + place)) - 8388608.0f;
}

struct Sums {
  float color[CHANNELS];
  float total_x, total_y;    // of all weights
  float inside_x, inside_y;  // of those inside of the source
};

#if DOTS
// A weight is an integer of 16 bits, off by 8e-6 at most. The high bytes of four are one word and
// their low bytes another: a sum of products with the values of four pixels is one instruction.
struct Weights {
  unsigned int high[GROUPS], low[GROUPS];
};

__device__ float find_weights(const Taps& taps, int count, Weights& weights) {
  unsigned int total = 0;
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    weights.high[group] = weights.low[group] = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int tap = group * 4 + k;
      unsigned int whole =
          tap < count ? __float2uint_rn(weight(taps, taps.first + tap) * 65535.0f) : 0;
      weights.high[group] |= (whole >> 8) << (8 * k);
      weights.low[group] |= (whole & 255) << (8 * k);
      total += whole;
    }
  }
  return (float)total * (1.0f / 65535.0f);
}
#else
struct Weights {
  float of[GROUPS * 4];
};

__device__ float find_weights(const Taps& taps, int count, Weights& weights) {
  float total = 0.0f;
#pragma unroll
  for (int k = 0; k < GROUPS * 4; ++k) {
    weights.of[k] = k < count ? weight(taps, taps.first + k) : 0.0f;
    total += weights.of[k];
  }
  return total;
}
#endif

#if WORDS
// Adds up a line of pixels of 3 bytes that lie side by side: 4 pixels are 3 words.
__device__ void add_line(const unsigned int* words, int byte, int last_word, int count,
                         const Weights& weights, float weight_y, float* color) {
  int word = byte >> 2;
  int shift = 8 * (byte & 3);
#if DOTS
  unsigned int high[3] = {}, low[3] = {};
#else
  float sum[3] = {0.0f, 0.0f, 0.0f};
#endif
  unsigned int before = words[word];
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    if (group * 4 >= count) break;
    unsigned int packed[3] = {};
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      if (k == 2 && group * 4 + 2 >= count) break;
      ++word;
      unsigned int behind = words[min(word, last_word)];
      packed[k] = __funnelshift_r(before, behind, shift);
      before = behind;
    }
#if DOTS
    // R G B R, G B R G, B R G B to R R R R, G G G G, B B B B.
    unsigned int red = __byte_perm(packed[0], packed[1], 0x0630);
    unsigned int green = __byte_perm(packed[0], packed[1], 0x0741);
    unsigned int blue = __byte_perm(packed[0], packed[1], 0x0052);
    unsigned int planes[3] = {__byte_perm(red, packed[2], 0x5210),
                              __byte_perm(green, packed[2], 0x6210),
                              __byte_perm(blue, packed[2], 0x7410)};
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      high[c] = __dp4a(planes[c], weights.high[group], high[c]);
      low[c] = __dp4a(planes[c], weights.low[group], low[c]);
    }
#else
#pragma unroll
    for (int k = 0; k < 6; ++k) {
      sum[k % 3] += to_float(packed[k / 4], k % 4) * weights.of[group * 4 + k / 3];
    }
    if (group * 4 + 2 >= count) break;
#pragma unroll
    for (int k = 6; k < 12; ++k) {
      sum[k % 3] += to_float(packed[k / 4], k % 4) * weights.of[group * 4 + k / 3];
    }
#endif
  }
#if DOTS
  float scaled = weight_y * (1.0f / 65535.0f);
  for (int c = 0; c < 3; ++c) color[c] += (float)(256 * high[c] + low[c]) * scaled;
#else
  for (int c = 0; c < 3; ++c) color[c] += sum[c] * weight_y;
#endif
}
#endif

// All taps lie inside of the source.
__device__ void add_inside(const PIXEL* images, size_t first_pixel, size_t end, const Taps& rows,
                           const Taps& columns, Sums& sums) {
  int count = columns.last - columns.first + 1;
  Weights weights;
  sums.total_x = find_weights(columns, count, weights);
  size_t first_byte = (first_pixel + (size_t)rows.first * WIDTH + columns.first) * CHANNELS;
#if WORDS
  const unsigned int* words = (const unsigned int*)images + first_byte / 4;
  int byte = (int)(first_byte % 4);
  size_t words_left = (end - 1) / 4 - first_byte / 4;
  int last_word = (int)(words_left < (1u << 30) ? words_left : (1u << 30));
#else
  const PIXEL* line = images + first_byte;
#endif
  for (int i = rows.first; i <= rows.last; ++i) {
    float weight_y = weight(rows, i);
    sums.total_y += weight_y;
#if WORDS
    add_line(words, byte, last_word, count, weights, weight_y, sums.color);
    byte += WIDTH * 3;
#else
    float sum[CHANNELS];
    for (int c = 0; c < CHANNELS; ++c) sum[c] = 0.0f;
#pragma unroll
    for (int k = 0; k < GROUPS * 4; ++k) {
      if (k >= count) break;
      for (int c = 0; c < CHANNELS; ++c) sum[c] += (float)line[k * CHANNELS + c] * weights.of[k];
    }
    for (int c = 0; c < CHANNELS; ++c) sums.color[c] += sum[c] * weight_y;
    line += WIDTH * CHANNELS;
#endif
  }
  sums.inside_x = sums.total_x;
  sums.inside_y = sums.total_y;
}

__device__ bool is_inside(int tap, const Axis& axis) {
#if FILLS && !FRAMED
  return tap >= 0 && (float)tap <= axis.extent - 1.0f;
#else
  return true;
#endif
}

// Some taps are folded, or filled.
__device__ void add_across_border(const PIXEL* images, size_t first_pixel, const Taps& rows,
                                  const Taps& columns, const Axis& y_axis, const Axis& x_axis,
                                  Sums& sums) {
  for (int j = columns.first; j <= columns.last; ++j) {
    float weight_x = weight(columns, j);
    sums.total_x += weight_x;
    if (is_inside(j, x_axis)) sums.inside_x += weight_x;
  }
  for (int i = rows.first; i <= rows.last; ++i) {
    float weight_y = weight(rows, i);
    sums.total_y += weight_y;
    if (!is_inside(i, y_axis)) continue;
    sums.inside_y += weight_y;
    size_t line = first_pixel + (size_t)fold((float)i, y_axis.extent) * WIDTH;
    float sum[CHANNELS];
    for (int c = 0; c < CHANNELS; ++c) sum[c] = 0.0f;
    for (int j = columns.first; j <= columns.last; ++j) {
      if (!is_inside(j, x_axis)) continue;
      float weight_x = weight(columns, j);
      const PIXEL* pixel = images + (line + (size_t)fold((float)j, x_axis.extent)) * CHANNELS;
      for (int c = 0; c < CHANNELS; ++c) sum[c] += (float)pixel[c] * weight_x;
    }
    for (int c = 0; c < CHANNELS; ++c) sums.color[c] += sum[c] * weight_y;
  }
}

// NVRTC has no headers for the half precisions.
__device__ RESULT to_result(float value) {
#if BFLOAT16
  unsigned int bits = __float_as_uint(value);
  unsigned int to_nearest_even = 0x7fffu + ((bits >> 16) & 1u);
  return value != value ? 0x7fc0 : (bits + to_nearest_even) >> 16;
#elif FLOAT16
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  return value;
#endif
}

__device__ RESULT epilogue(float value, float shift, float inverse) {
#if CLIPS
  value = fminf(fmaxf(value, 0.0f), 1.0f);
#endif
#if SHIFTS
  value = (value - shift) * inverse;
#endif
  return to_result(value);
}

extern "C" __global__ void __launch_bounds__(128)
warp(const PIXEL* __restrict__ images, const float* __restrict__ numbers,
     RESULT* __restrict__ results) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column >= OUT_WIDTH || row >= OUT_HEIGHT) return;
  size_t image = blockIdx.z;
  const float* m = numbers + image * (15 + CHANNELS);
  Axis y_axis = {m[9], m[11], m[13]};
  Axis x_axis = {m[10], m[12], m[14]};

  float x = (float)column + 0.5f;
  float y = (float)row + 0.5f;
  float source_x = m[0] * x + m[1] * y + m[2];
  float source_y = m[3] * x + m[4] * y + m[5];
#if AFFINE
  float scale_x = sqrtf(m[0] * m[0] + m[1] * m[1]);
  float scale_y = sqrtf(m[3] * m[3] + m[4] * m[4]);
#else
  const float far = 1048576.0f;
  float w = fmaxf(m[6] * x + m[7] * y + m[8], 1e-6f);
  source_x = fminf(fmaxf(source_x / w, -far), far);
  source_y = fminf(fmaxf(source_y / w, -far), far);
  float ax = (m[0] - source_x * m[6]) / w, bx = (m[1] - source_x * m[7]) / w;
  float ay = (m[3] - source_y * m[6]) / w, by = (m[4] - source_y * m[7]) / w;
  float scale_x = sqrtf(ax * ax + bx * bx);
  float scale_y = sqrtf(ay * ay + by * by);
#endif
  Taps rows = find_taps(source_y, scale_y, y_axis, TAPS_Y, MOST_Y);
  Taps columns = find_taps(source_x, scale_x, x_axis, TAPS_X, MOST_X);

  Sums sums = {};
  size_t first_pixel = image * ((size_t)HEIGHT * WIDTH);
  if (rows.inside && columns.inside) {
    size_t end = (size_t)gridDim.z * ((size_t)HEIGHT * WIDTH * CHANNELS);
    add_inside(images, first_pixel, end, rows, columns, sums);
  } else {
    add_across_border(images, first_pixel, rows, columns, y_axis, x_axis, sums);
  }

  float share_x = columns.coverage / fmaxf(sums.total_x, 1e-3f);
  float share_y = rows.coverage / fmaxf(sums.total_y, 1e-3f);
  float scale = share_x * share_y * SCALE;
  RESULT* result = results + ((image * OUT_HEIGHT + row) * OUT_WIDTH + column) * CHANNELS;
#if FILLS
#if FRAMED
  float outside = 1.0f - rows.coverage * columns.coverage;
#else
  float outside = 1.0f - (sums.inside_x * share_x) * (sums.inside_y * share_y);
#endif
#endif
#if SHIFTS
  const float shift[CHANNELS] = {SHIFT};
  const float inverse[CHANNELS] = {INVERSE};
#else
  const float shift[CHANNELS] = {};
  const float inverse[CHANNELS] = {};
#endif
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) {
    float value = sums.color[c] * scale;
#if FILLS
    value += outside * m[15 + c];
#endif
    result[c] = epilogue(value, shift[c], inverse[c]);
  }
}
"""
