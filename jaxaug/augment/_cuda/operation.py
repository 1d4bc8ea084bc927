"""One color operation of a policy as two CUDA kernels: measure the image, then change it.

All pixels of an image share one operation, so only that one is computed, and only the images of
contrast, autocontrast and equalize are measured. XLA computes every operation for every image.
"""

from jax import Array

from jaxaug._typing import Scalar
from jaxaug.augment._cuda.call import CudaKernel, as_row, call, with_constants
from jaxaug.augment._cuda.gray_source import GRAY, fixed_point_one

# ShearX to Rotate move pixels. The magnitude of Brightness to Sharpness is added to 1.
NAMES = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "SolarizeAdd",
    "AutoContrast",
    "Equalize",
    "Invert",
)

_THREADS = 256
_PIXELS = 8  # that a thread changes
_MEASURING = 8  # blocks that measure an image


def change(
    image: Array, extent: tuple[Scalar, Scalar], code: Scalar, magnitude: Scalar, tolerance: float
) -> Array:
    """Return float32[H, W, 3] after the operation.

    Args:
      image: float32[H, W, 3] in [0, 1].
      extent: its used (height, width).
      code: int32, a place in NAMES.
      magnitude: float32: one less than the factor of a blend; the bits of Posterize, the threshold
        of Solarize in [0, 1], the levels of SolarizeAdd.
      tolerance: the levels by which a value may lie below the threshold of Solarize.
    """
    height, width, _ = image.shape
    constants = {
        "HEIGHT": height,
        "WIDTH": width,
        "PIXELS": _PIXELS,
        "MEASURING": _MEASURING,
        "ONE": fixed_point_one(width),
        "TOLERANCE": f"{tolerance:.9e}f",
        **{name.upper(): i for i, name in enumerate(NAMES)},
    }
    source = with_constants(constants, GRAY + _SOURCE)
    row = as_row([*extent, code, magnitude])
    measure = CudaKernel(
        source,
        "measure",
        (((_MEASURING, 3, 256), "int32"),),
        blocks=(_MEASURING, 1),
        threads=(_THREADS, 1),
    )
    blocks = -(-height * width // (_THREADS * _PIXELS))
    apply = CudaKernel(
        source,
        "change",
        (((height, width, 3), "float32"),),
        blocks=(blocks, 1),
        threads=(_THREADS, 1),
    )
    (measured,) = call(measure, image, row)
    return call(apply, image, row, measured)[0]


_SOURCE = r"""
__device__ int level_of(float value) { return (int)rintf(unit(value) * 255.0f); }

__device__ float gray_of(const float* pixel) { return gray_of(pixel[0], pixel[1], pixel[2]); }

// Contrast: the sum of gray in fixed point, halves of 16 bits; else the histogram of each channel.
extern "C" __global__ void __launch_bounds__(256)
measure(const float* __restrict__ images, const float* __restrict__ all_numbers,
        int* __restrict__ results) {
  const float* numbers = all_numbers + blockIdx.z * 4;
  int code = (int)numbers[2];
  if (code != CONTRAST && code != AUTOCONTRAST && code != EQUALIZE) return;
  const float* image = images + (size_t)blockIdx.z * (HEIGHT * WIDTH * 3);
  int* result = results + ((size_t)blockIdx.z * MEASURING + blockIdx.x) * 768;
  int height = (int)numbers[0], width = (int)numbers[1];
  __shared__ int counts[768];
  for (int k = threadIdx.x; k < 768; k += blockDim.x) counts[k] = 0;
  __syncthreads();

  long long sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < HEIGHT * WIDTH;
       i += MEASURING * blockDim.x) {
    if (i / WIDTH >= height || i % WIDTH >= width) continue;
    const float* pixel = image + (size_t)i * 3;
    if (code == CONTRAST) {
      sum += fixed_point(gray_of(pixel));
    } else {
      for (int c = 0; c < 3; ++c) atomicAdd(counts + 256 * c + level_of(pixel[c]), 1);
    }
  }

  if (code == CONTRAST) {
    write_sum(sum, result);
    return;
  }
  __syncthreads();
  for (int k = threadIdx.x; k < 768; k += blockDim.x) result[k] = counts[k];
}

__device__ float mean_gray(const int* measured, const float* numbers) {
  int upper = 0, lower = 0;
  for (int block = 0; block < MEASURING; ++block) {
    upper += measured[block * 768];
    lower += measured[block * 768 + 1];
  }
  return mean_of(upper, lower, numbers);
}

// The sum over the threads before this one; 256 threads.
__device__ int sum_before(int value, int* scratch) {
  scratch[threadIdx.x] = value;
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    int other = threadIdx.x >= step ? scratch[threadIdx.x - step] : 0;
    __syncthreads();
    scratch[threadIdx.x] += other;
    __syncthreads();
  }
  int sum = scratch[threadIdx.x] - value;
  __syncthreads();
  return sum;
}

// A curve of 256 levels for each channel; autocontrast needs its low level and scale alone.
__device__ void find_curves(const int* measured, int code, float* curves, int* scratch) {
  __shared__ int low, high;
  int level = threadIdx.x;
  for (int c = 0; c < 3; ++c) {
    int count = 0;
    const int* counts = measured + 256 * c + level;
    for (int block = 0; block < MEASURING; ++block) count += counts[block * 768];
    if (level == 0) {
      low = 255;
      high = 0;
    }
    int before = sum_before(count, scratch);
    if (count > 0) {
      atomicMin(&low, level);
      atomicMax(&high, level);
    }
    __syncthreads();
    if (code == AUTOCONTRAST) {
      bool flat = high <= low;
      curves[256 * c] = flat ? 0.0f : (float)low / 255.0f;
      curves[256 * c + 1] = flat ? 1.0f : 255.0f / (float)(high - low);
    } else {
      if (level == high) scratch[0] = before / 255;
      __syncthreads();
      int step = scratch[0];
      int target = step > 0 ? min((before + step / 2) / step, 255) : level;
      curves[256 * c + level] = (float)target / 255.0f;
    }
    __syncthreads();
  }
}

__device__ float smooth(const float* image, int row, int column, int height, int width, int c) {
  const float* center = image + ((size_t)row * WIDTH + column) * 3 + c;
  if (row < 1 || column < 1 || row >= height - 1 || column >= width - 1) return center[0];
  float sum = 0.0f;
  for (int y = -1; y <= 1; ++y) {
    for (int x = -1; x <= 1; ++x) sum += center[(y * WIDTH + x) * 3];
  }
  return (sum + 4.0f * center[0]) * (1.0f / 13.0f);
}

extern "C" __global__ void __launch_bounds__(256)
change(const float* __restrict__ images, const float* __restrict__ all_numbers,
       const int* __restrict__ all_measured, float* __restrict__ results) {
  const float* numbers = all_numbers + blockIdx.z * 4;
  size_t offset = (size_t)blockIdx.z * (HEIGHT * WIDTH * 3);
  const float* image = images + offset;
  const int* measured = all_measured + (size_t)blockIdx.z * (MEASURING * 768);
  int height = (int)numbers[0], width = (int)numbers[1];
  int code = (int)numbers[2];
  float magnitude = numbers[3];
  __shared__ float curves[768];
  __shared__ int scratch[256];
  float mean = 0.0f;
  if (code == CONTRAST) mean = mean_gray(measured, numbers);
  if (code == AUTOCONTRAST || code == EQUALIZE) find_curves(measured, code, curves, scratch);

  float factor = 1.0f + magnitude;
  int first = blockIdx.x * (blockDim.x * PIXELS) + threadIdx.x;
  for (int k = 0; k < PIXELS; ++k) {
    int i = first + k * blockDim.x;
    if (i >= HEIGHT * WIDTH) return;
    const float* pixel = image + (size_t)i * 3;
    float* result = results + offset + (size_t)i * 3;
    float gray = code == COLOR ? gray_of(pixel) : mean;
    for (int c = 0; c < 3; ++c) {
      float value = pixel[c];
      switch (code) {
        case BRIGHTNESS:
          value = unit(factor * value);
          break;
        case COLOR:
        case CONTRAST:
          value = unit(factor * value + (1.0f - factor) * gray);
          break;
        case SHARPNESS:
          value = unit(factor * value + (1.0f - factor) *
                       smooth(image, i / WIDTH, i % WIDTH, height, width, c));
          break;
        case POSTERIZE: {
          int cleared = 8 - (int)magnitude;
          value = (float)((level_of(value) >> cleared) << cleared) / 255.0f;
          break;
        }
        case SOLARIZE:
          if ((float)level_of(value) >= magnitude * 255.0f - TOLERANCE) value = 1.0f - value;
          break;
        case SOLARIZEADD:
          if (level_of(value) < 128) value = fminf(value + magnitude / 255.0f, 1.0f);
          break;
        case AUTOCONTRAST:
          value = unit((value - curves[256 * c]) * curves[256 * c + 1]);
          break;
        case EQUALIZE:
          value = curves[256 * c + level_of(value)];
          break;
        case INVERT:
          value = 1.0f - value;
          break;
        default:  // those that move pixels
          break;
      }
      result[c] = value;
    }
  }
}
"""
