"""`ColorJitter` as two CUDA kernels: the sum of gray before contrast, then all components.

A block reads the order of its image once, so every pixel computes only the components that are
there, in their order; XLA computes each of them at each turn and selects.
"""

from collections.abc import Sequence

from jax import Array

from jaxaug._typing import Scalar
from jaxaug.augment._cuda.call import CudaKernel, as_row, call, with_constants
from jaxaug.augment._cuda.gray_source import GRAY, fixed_point_one

_THREADS = 256
_PIXELS = 8  # a thread sums or changes so many


def jitter(image: Array, numbers: Sequence[Scalar], components: int) -> Array:
    """Return float32[H, W, 3].

    Args:
      image: float32[H, W, 3].
      numbers: 6 + components: the used (height, width), brightness, contrast, saturation and hue,
        and the components in their order: 0 brightness, 1 contrast, 2 saturation, 3 hue.
      components: how many there are, at most 4.
    """
    height, width, _ = image.shape
    blocks = -(-height * width // (_THREADS * _PIXELS))
    constants = {
        "HEIGHT": height,
        "WIDTH": width,
        "COMPONENTS": components,
        "BLOCKS": blocks,
        "PIXELS": _PIXELS,
        "ONE": fixed_point_one(width),
    }
    source = with_constants(constants, GRAY + _SOURCE)

    def kernel(name: str, result: tuple[tuple[int, ...], str]) -> CudaKernel:
        return CudaKernel(source, name, (result,), blocks=(blocks, 1), threads=(_THREADS, 1))

    row = as_row(numbers)
    (sums,) = call(kernel("sum_gray", ((blocks, 2), "int32")), image, row)
    return call(kernel("change_colors", ((height, width, 3), "float32")), image, row, sums)[0]


_SOURCE = r"""
struct Color {
  float red, green, blue;
};

__device__ float gray_of(const Color& c) { return gray_of(c.red, c.green, c.blue); }

__device__ Color blend(const Color& c, float factor, float other) {
  float rest = (1.0f - factor) * other;
  return {unit(factor * c.red + rest), unit(factor * c.green + rest), unit(factor * c.blue + rest)};
}

__device__ float below_largest(float sixths) {
  sixths -= 6.0f * floorf(sixths * (1.0f / 6.0f));
  return unit(fminf(sixths, 4.0f - sixths));
}

__device__ Color shift_hue(const Color& c, float turns) {
  float value = fmaxf(c.red, fmaxf(c.green, c.blue));
  float chroma = value - fminf(c.red, fminf(c.green, c.blue));
  float above = value == c.red     ? c.green - c.blue
                : value == c.green ? 2.0f * chroma + c.blue - c.red
                                   : 4.0f * chroma + c.red - c.green;
  float sixths = (chroma > 0.0f ? __fdividef(above, chroma) : 0.0f) + 6.0f * turns;
  return {unit(value - chroma * below_largest(sixths + 5.0f)),
          unit(value - chroma * below_largest(sixths + 3.0f)),
          unit(value - chroma * below_largest(sixths + 1.0f))};
}

__device__ Color change(const Color& c, int component, const float* numbers, float mean) {
  if (component == 0) return blend(c, numbers[2], 0.0f);
  if (component == 1) return blend(c, numbers[3], mean);
  if (component == 2) return blend(c, numbers[4], gray_of(c));
  return numbers[5] == 0.0f ? c : shift_hue(c, numbers[5]);
}

__device__ Color load(const float* pixel) { return {pixel[0], pixel[1], pixel[2]}; }

extern "C" __global__ void __launch_bounds__(256)
sum_gray(const float* __restrict__ images, const float* __restrict__ all_numbers,
         int* __restrict__ results) {
  const float* numbers = all_numbers + blockIdx.z * (6 + COMPONENTS);
  const float* image = images + (size_t)blockIdx.z * (HEIGHT * WIDTH * 3);
  int height = (int)numbers[0], width = (int)numbers[1];
  int before[COMPONENTS];
  int count = 0;
  bool found = false;
  for (int turn = 0; turn < COMPONENTS; ++turn) {
    before[turn] = (int)numbers[6 + turn];
    found = found || before[turn] == 1;
    if (!found) ++count;
  }

  long long sum = 0;
  if (found) {
    int first = blockIdx.x * (blockDim.x * PIXELS) + threadIdx.x;
    for (int k = 0; k < PIXELS; ++k) {
      int i = first + k * blockDim.x;
      if (i >= HEIGHT * WIDTH || i / WIDTH >= height || i % WIDTH >= width) continue;
      Color color = load(image + i * 3);
      for (int turn = 0; turn < count; ++turn) color = change(color, before[turn], numbers, 0.0f);
      sum += fixed_point(gray_of(color));
    }
  }
  write_sum(sum, results + ((size_t)blockIdx.z * BLOCKS + blockIdx.x) * 2);
}

extern "C" __global__ void __launch_bounds__(256)
change_colors(const float* __restrict__ images, const float* __restrict__ all_numbers,
              const int* __restrict__ all_sums, float* __restrict__ results) {
  const float* numbers = all_numbers + blockIdx.z * (6 + COMPONENTS);
  size_t offset = (size_t)blockIdx.z * (HEIGHT * WIDTH * 3);
  __shared__ float shared_mean;
  if (threadIdx.x < 32) {
    const int* sums = all_sums + (size_t)blockIdx.z * (BLOCKS * 2);
    int upper = 0, lower = 0;
    for (int k = threadIdx.x; k < BLOCKS; k += 32) {
      upper += sums[2 * k];
      lower += sums[2 * k + 1];
    }
    for (int step = 16; step > 0; step /= 2) {
      upper += __shfl_down_sync(0xffffffffu, upper, step);
      lower += __shfl_down_sync(0xffffffffu, lower, step);
    }
    if (threadIdx.x == 0) shared_mean = mean_of(upper, lower, numbers);
  }
  __syncthreads();
  float mean = shared_mean;

  int order[COMPONENTS];
  for (int turn = 0; turn < COMPONENTS; ++turn) order[turn] = (int)numbers[6 + turn];
  int first = blockIdx.x * (blockDim.x * PIXELS) + threadIdx.x;
  for (int k = 0; k < PIXELS; ++k) {
    int i = first + k * blockDim.x;
    if (i >= HEIGHT * WIDTH) continue;
    Color color = load(images + offset + (size_t)i * 3);
    for (int turn = 0; turn < COMPONENTS; ++turn) color = change(color, order[turn], numbers, mean);
    float* result = results + offset + (size_t)i * 3;
    result[0] = color.red;
    result[1] = color.green;
    result[2] = color.blue;
  }
}
"""
