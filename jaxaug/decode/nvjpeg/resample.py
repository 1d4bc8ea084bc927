"""From whole decoded images to canvases: shrunk with antialiasing and turned upright, by a CUDA
kernel.

XLA's stream is busy with training steps; this kernel runs on a stream of the decoder's own, before
them.
"""

from typing import NamedTuple

import numpy as np

from jaxaug.decode.native.kernels import Kernel, compile_kernels

# One image of a launch; the layout of `Image` below.
RECORD = np.dtype(
    [
        ("slot", np.uint64),  # where the whole image lies, rows of 3 width bytes
        ("canvas", np.uint64),
        ("height", np.int32),  # as stored
        ("width", np.int32),
        ("out_height", np.int32),  # upright, on the canvas
        ("out_width", np.int32),
        ("transpose", np.int32),  # from stored to upright: transpose, then mirror
        ("flip_x", np.int32),
        ("flip_y", np.int32),
        ("unused", np.int32),
    ]
)

_BLOCK = 16  # threads a side: square, so that turned images read few lines of memory, too

# Weights as Pillow's: a triangle of half-width max(1, scale) about the output pixel's center (i +
# 1/2) scale, cut at the image's border and divided by their sum (Pillow, src/libImaging/Resample.c,
# precompute_coeffs). The center is split into a whole and a fraction in integers, as float32 has no
# digits left for the fraction of a large one.
_SOURCE = r"""
struct Image {
  unsigned char* slot;
  unsigned char* canvas;
  int height, width, out_height, out_width, transpose, flip_x, flip_y, unused;
};

struct Taps {
  int first, last;
  float center, inverse;  // of the first tap's center, in taps; 1 / half-width
};

__device__ Taps find_taps(int position, int in, int out) {
  long long numerator = (2LL * position + 1) * in;
  long long denominator = 2LL * out;
  int whole = (int)(numerator / denominator);
  float fraction = (float)(numerator % denominator) / (float)denominator;
  float half = fmaxf((float)in / (float)out, 1.0f);
  Taps taps;
  taps.first = max(0, whole + (int)floorf(fraction - half + 0.5f));
  taps.last = min(in, whole + (int)floorf(fraction + half + 0.5f));
  taps.center = (float)(whole - taps.first) + fraction - 0.5f;
  taps.inverse = 1.0f / half;
  return taps;
}

__device__ float weight(const Taps& taps, int tap) {
  return fmaxf(0.0f, 1.0f - fabsf((float)tap - taps.center) * taps.inverse);
}

__device__ bool is_marked(const unsigned char* pixel, uchar3 mark) {
  return pixel[0] == mark.x && pixel[1] == mark.y && pixel[2] == mark.z;
}

__device__ unsigned char round_level(float value) {
  return (unsigned char)fminf(fmaxf(floorf(value + 0.5f), 0.0f), 255.0f);
}

extern "C" __global__ void mark_slots(const Image* images, int count, int mark) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  for (int channel = 0; channel < 3; ++channel) {
    images[i].slot[channel] = (unsigned char)(mark >> (8 * channel));
  }
}

extern "C" __global__ void resample(const Image* images, int pitch, int mark) {
  Image image = images[blockIdx.z];
  uchar3 marked = make_uchar3(mark, mark >> 8, mark >> 16);
  if (is_marked(image.slot, marked)) return;  // not written: the canvas keeps its own mark
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= image.out_width || y >= image.out_height) return;

  int u = image.flip_x ? image.out_width - 1 - x : x;
  int v = image.flip_y ? image.out_height - 1 - y : y;
  bool transpose = image.transpose;
  int stored_width = transpose ? image.out_height : image.out_width;
  int stored_height = transpose ? image.out_width : image.out_height;
  Taps across = find_taps(transpose ? v : u, image.width, stored_width);
  Taps down = find_taps(transpose ? u : v, image.height, stored_height);

  float red = 0.0f, green = 0.0f, blue = 0.0f, total = 0.0f;
  for (int j = down.first; j < down.last; ++j) {
    const unsigned char* pixel = image.slot + ((size_t)j * image.width + across.first) * 3;
    float row_red = 0.0f, row_green = 0.0f, row_blue = 0.0f, row_total = 0.0f;
    for (int i = 0; i < across.last - across.first; ++i, pixel += 3) {
      float w = weight(across, i);
      row_red += w * pixel[0];
      row_green += w * pixel[1];
      row_blue += w * pixel[2];
      row_total += w;
    }
    float w = weight(down, j - down.first);
    red += w * row_red;
    green += w * row_green;
    blue += w * row_blue;
    total += w * row_total;
  }
  unsigned char* out = image.canvas + (size_t)y * pitch + x * 3;
  out[0] = round_level(red / total);
  out[1] = round_level(green / total);
  out[2] = round_level(blue / total);
}
"""


class Resampler(NamedTuple):
    """The compiled kernels.

    Attributes:
      mark: writes a color to the first pixel of each slot.
      resample: fills the canvases of all slots whose first pixel is another one.
    """

    mark: Kernel
    resample: Kernel

    def mark_slots(self, table: int, count: int, color: np.ndarray, stream: int) -> None:
        """Start writing `color` (uint8[3]) to `count` slots of the table of `RECORD`s on the
        device.
        """
        grid = (-(-count // 128), 1, 1)
        self.mark.launch(
            stream, grid, (128, 1, 1), np.uint64(table), np.int32(count), _as_int(color)
        )

    def fill_canvases(
        self, table: int, records: np.ndarray, pitch: int, color: np.ndarray, stream: int
    ) -> None:
        """Start shrinking and turning the slots of `records`, which the table holds, to their
        canvases.
        """
        grid = (
            -(-int(records["out_width"].max()) // _BLOCK),
            -(-int(records["out_height"].max()) // _BLOCK),
            len(records),
        )
        self.resample.launch(
            stream, grid, (_BLOCK, _BLOCK, 1), np.uint64(table), np.int32(pitch), _as_int(color)
        )


def _as_int(color: np.ndarray) -> np.int32:
    return np.int32(int(color[0]) | int(color[1]) << 8 | int(color[2]) << 16)


def compile_resampler() -> Resampler:
    """Return the kernels for the current device.

    Raises:
      LibraryError: they cannot be compiled.
    """
    kernels = compile_kernels(_SOURCE, ("mark_slots", "resample"))
    return Resampler(kernels["mark_slots"], kernels["resample"])
