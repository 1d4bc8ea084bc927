"""The CUDA C++ that color kernels share: gray values, and their mean in fixed point.

`GRAY` needs the constant ONE, see `fixed_point_one`. `numbers` begin with the used height and
width.
"""

from jaxaug.augment._xla import fixed_point_bits


def fixed_point_one(width: int) -> str:
    """Return the constant ONE for images of a width: 1 in fixed point, as `exact_sum` has it."""
    return f"{2.0 ** fixed_point_bits(width):.1f}f"


GRAY = r"""
__device__ float unit(float value) { return fminf(fmaxf(value, 0.0f), 1.0f); }

__device__ float gray_of(float red, float green, float blue) {
  return 0.2989f * red + 0.587f * green + 0.114f * blue;
}

__device__ int fixed_point(float value) {
  return (int)rintf(fminf(fmaxf(value, -2.0f), 2.0f) * ONE);
}

// Writes the sum over the 256 threads of a block, in halves of 16 bits.
__device__ void write_sum(long long sum, int* result) {
  __shared__ long long sums[8];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 1; k < 8; ++k) sum += sums[k];
    result[0] = (int)(sum >> 16);
    result[1] = (int)(sum & 0xffff);
  }
}

__device__ float mean_of(int upper, int lower, const float* numbers) {
  float sum = ((float)upper * 65536.0f + (float)lower) / ONE;
  return sum / (numbers[0] * numbers[1]);
}
"""
