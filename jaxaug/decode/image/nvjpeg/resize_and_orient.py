"""CUDA kernels that resample whole decoded images to their canvases, shrunk and upright.

The stream of XLA is busy with training steps, so the kernels run on a stream of the decoder's own,
with a higher priority.
"""

from typing import NamedTuple

import numpy as np

from jaxaug.decode.native.kernels import Kernel, compile_kernels

# One image of a launch, with the memory layout of the C++ struct `Image` below.
RECORD = np.dtype(
    [
        ("slot", np.uint64),  # address of the whole image, its rows without padding
        ("canvas", np.uint64),  # address of the canvas
        ("height", np.int32),  # as stored
        ("width", np.int32),
        ("out_height", np.int32),  # upright, on the canvas
        ("out_width", np.int32),
        ("transpose", np.int32),  # from stored to upright: transpose, then mirror
        ("flip_x", np.int32),
        ("flip_y", np.int32),
        ("eighths", np.int32),  # of the stored sides that the slot has, rounded up
    ]
)

# Threads per side of a block, square so that transposed images read few cache lines, too.
_BLOCK_SIDE = 16
_MAX_IMAGES = 65_535  # of a launch: the most blocks along z
_SENTINEL_BLOCK = 128  # threads of a block that writes sentinels

# Weights as Pillow's: a triangle of half-width max(1, scale) about the output pixel's center (i +
# 1/2) scale, cut at the image's border and divided by their sum (Pillow, src/libImaging/Resample.c,
# precompute_coeffs). The center is split into a whole and a fraction in integers, as float32 has no
# digits left for the fraction of a large one. An image that libjpeg has decoded at some eighths
# ends where that part of its stored side does, inside of its last pixel.
_SOURCE = r"""
struct Image {
  unsigned char* slot;
  unsigned char* canvas;
  int height, width, out_height, out_width, transpose, flip_x, flip_y, eighths;
};

struct Taps {
  int first, last;
  float center, inverse;  // of the first tap's center, in taps; 1 / half-width
};

__device__ int scaled(int side, int eighths) { return (side * eighths + 7) / 8; }

__device__ Taps find_taps(int position, int side, int eighths, int out) {
  int in = side * eighths;
  long long numerator = (2LL * position + 1) * in;
  long long denominator = 16LL * out;
  int whole = (int)(numerator / denominator);
  float fraction = (float)(numerator % denominator) / (float)denominator;
  float half = fmaxf((float)in / (float)(8 * out), 1.0f);
  Taps taps;
  taps.first = max(0, whole + (int)floorf(fraction - half + 0.5f));
  taps.last = min(scaled(side, eighths), whole + (int)floorf(fraction + half + 0.5f));
  taps.center = (float)(whole - taps.first) + fraction - 0.5f;
  taps.inverse = 1.0f / half;
  return taps;
}

__device__ float weight(const Taps& taps, int tap) {
  return fmaxf(0.0f, 1.0f - fabsf((float)tap - taps.center) * taps.inverse);
}

__device__ bool has_sentinel(const unsigned char* slot, int sentinel) {
  return (slot[0] | slot[1] << 8 | slot[2] << 16) == sentinel;
}

__device__ unsigned char round_level(float value) {
  return (unsigned char)fminf(fmaxf(floorf(value + 0.5f), 0.0f), 255.0f);
}

extern "C" __global__ void write_sentinels(const Image* images, int count, int sentinel) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  for (int byte = 0; byte < 3; ++byte) {
    images[i].slot[byte] = (unsigned char)(sentinel >> (8 * byte));
  }
}

extern "C" __global__ void resample(const Image* images, int pitch, int sentinel) {
  Image image = images[blockIdx.z];
  if (has_sentinel(image.slot, sentinel)) return;  // not decoded: the canvas keeps its own sentinel
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= image.out_width || y >= image.out_height) return;

  int u = image.flip_x ? image.out_width - 1 - x : x;
  int v = image.flip_y ? image.out_height - 1 - y : y;
  bool transpose = image.transpose;
  int stored_width = transpose ? image.out_height : image.out_width;
  int stored_height = transpose ? image.out_width : image.out_height;
  int slot_width = scaled(image.width, image.eighths);
  Taps across = find_taps(transpose ? v : u, image.width, image.eighths, stored_width);
  Taps down = find_taps(transpose ? u : v, image.height, image.eighths, stored_height);

  float sums[CHANNELS] = {};
  float total = 0.0f;
  for (int j = down.first; j < down.last; ++j) {
    const unsigned char* pixel = image.slot + ((size_t)j * slot_width + across.first) * CHANNELS;
    float row_sums[CHANNELS] = {};
    float row_total = 0.0f;
    for (int i = 0; i < across.last - across.first; ++i, pixel += CHANNELS) {
      float w = weight(across, i);
      for (int channel = 0; channel < CHANNELS; ++channel) row_sums[channel] += w * pixel[channel];
      row_total += w;
    }
    float w = weight(down, j - down.first);
    for (int channel = 0; channel < CHANNELS; ++channel) sums[channel] += w * row_sums[channel];
    total += w * row_total;
  }
  unsigned char* out = image.canvas + (size_t)y * pitch + x * CHANNELS;
  for (int channel = 0; channel < CHANNELS; ++channel) {
    out[channel] = round_level(sums[channel] / total);
  }
}
"""


class Resampler(NamedTuple):
    """The compiled kernels.

    Attributes:
      sentinel_kernel: writes three bytes to the beginning of each slot.
      resample_kernel: fills the canvases of all slots that begin with other bytes.
    """

    sentinel_kernel: Kernel
    resample_kernel: Kernel

    def write_sentinels(self, table: int, count: int, sentinel: np.ndarray, stream: int) -> None:
        """Start writing `sentinel` (uint8[3]) to the slots of the first `count` records.

        Args:
          table: address of the records on the device.
        """
        grid = (-(-count // _SENTINEL_BLOCK), 1, 1)
        block = (_SENTINEL_BLOCK, 1, 1)
        arguments = (np.uint64(table), np.int32(count), _pack(sentinel))
        self.sentinel_kernel.launch(stream, grid, block, *arguments)

    def fill_canvases(
        self, table: int, records: np.ndarray, pitch: int, sentinel: np.ndarray | None, stream: int
    ) -> None:
        """Start shrinking and orienting images from their slots to their canvases.

        Args:
          table: address of the records, which the device can read.
          records: the same records on the host.
          pitch: bytes of a canvas row.
          sentinel: uint8[3]; slots that begin with it are left out. None leaves none out.
          stream: the kernel runs on it.
        """
        columns = -(-int(records["out_width"].max()) // _BLOCK_SIDE)
        rows = -(-int(records["out_height"].max()) // _BLOCK_SIDE)
        block = (_BLOCK_SIDE, _BLOCK_SIDE, 1)
        without = np.int32(-1) if sentinel is None else _pack(sentinel)
        for start in range(0, len(records), _MAX_IMAGES):
            grid = (columns, rows, min(_MAX_IMAGES, len(records) - start))
            address = np.uint64(table + start * RECORD.itemsize)
            arguments = (address, np.int32(pitch), without)
            self.resample_kernel.launch(stream, grid, block, *arguments)


def _pack(sentinel: np.ndarray) -> np.int32:
    first, second, third = sentinel.tolist()
    return np.int32(first | second << 8 | third << 16)


def compile_resampler(channels: int) -> Resampler:
    """Return the kernels for the current device.

    Args:
      channels: of the images.

    Raises:
      LibraryError: they cannot be compiled.
    """
    source = f"#define CHANNELS {channels}\n{_SOURCE}"
    kernels = compile_kernels(source, ("write_sentinels", "resample"))
    return Resampler(
        sentinel_kernel=kernels["write_sentinels"], resample_kernel=kernels["resample"]
    )
