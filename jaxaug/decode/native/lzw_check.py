"""A CUDA kernel that finds damage in LZW, of which nvTIFF tells nothing.

Reference: TIFF 6.0, section 13.
"""

import numpy as np

from jaxaug.decode.native.kernels import Kernel, compile_kernels

# A strip or a tile, with the memory layout of the C++ struct `Part` below.
PART = np.dtype(
    [
        ("at", np.uint64),  # where it begins, in bytes behind the table of all parts
        ("count", np.uint64),  # its bytes
        ("size", np.uint64),  # those it decodes to
        ("whole", np.uint64),  # the kernel writes 1 where it does, else 0
    ]
)
_THREADS = 256  # of a block; the others of its 3,839 places follow in turns

# A block for each part. Between two Clear codes the width of a code follows from its number alone,
# so that all are read at once. Code 258 + j stands for the bytes of the j-th code behind a Clear
# and one more: lengths are distances to the root of a tree, found by halving the paths in turns.
SOURCE = r"""
#define CLEAR 256
#define END 257
#define FIRST 258
#define MOST 3839  // codes behind a Clear until the table of 4,096 is full
#define NONE 0xffff

struct Part { unsigned long long at, count, size, whole; };

__device__ int width_of(int i) { return 9 + (i > 253) + (i > 765) + (i > 1789); }

__device__ int bits_before(int i) {
  return 9 * i + max(0, i - 254) + max(0, i - 766) + max(0, i - 1790);
}

__device__ int read_code(const unsigned char* data, unsigned long long count,
                         unsigned long long bit, int width) {
  if (bit + width > 8 * count) return NONE;
  unsigned long long at = bit >> 3;
  unsigned int bits = data[at] << 16;
  if (at + 1 < count) bits |= data[at + 1] << 8;
  if (at + 2 < count) bits |= data[at + 2];
  return bits >> (24 - (int)(bit & 7) - width) & ((1 << width) - 1);
}

extern "C" __global__ void check_lzw(Part* parts, const unsigned char* data) {
  __shared__ unsigned short length[2][MOST];  // from a code to `parent`
  __shared__ short parent[2][MOST];
  __shared__ unsigned short codes[MOST];
  __shared__ int end;
  __shared__ unsigned int sum;
  Part part = parts[blockIdx.x];
  data += part.at;
  unsigned long long total = 0;
  unsigned long long bit = 9;
  bool good = read_code(data, part.count, 0, 9) == CLEAR;
  bool ended = false;
  while (good && !ended) {
    if (threadIdx.x == 0) { end = MOST; sum = 0; }
    __syncthreads();
    for (int i = threadIdx.x; i < MOST; i += blockDim.x) {
      int code = read_code(data, part.count, bit + bits_before(i), width_of(i));
      codes[i] = (unsigned short)code;
      if (code == CLEAR || code == END || code == NONE) { atomicMin(&end, i); break; }
    }
    __syncthreads();
    int last = end;
    int stop = last == MOST ? NONE : codes[last];
    bool bad = stop == NONE || (stop == CLEAR && last == 0);
    for (int i = threadIdx.x; i < last; i += blockDim.x) {
      int older = codes[i] < CLEAR ? -1 : codes[i] - FIRST;
      bad |= older >= i;  // not in the table yet
      parent[0][i] = (short)older;
      length[0][i] = 1;
    }
    if (__syncthreads_or(bad)) { good = false; break; }
    int now = 0;
    bool moved = true;
    while (moved) {
      moved = false;
      for (int i = threadIdx.x; i < last; i += blockDim.x) {
        int next = parent[now][i];
        int far = length[now][i];
        if (next >= 0) {
          far += length[now][next];
          next = parent[now][next];
          moved = true;
        }
        length[1 - now][i] = (unsigned short)far;
        parent[1 - now][i] = (short)next;
      }
      now = 1 - now;
      moved = __syncthreads_or(moved);
    }
    unsigned int own = 0;
    for (int i = threadIdx.x; i < last; i += blockDim.x) own += length[now][i];
    atomicAdd(&sum, own);
    __syncthreads();
    total += sum;
    bit += bits_before(last) + width_of(last);
    ended = stop == END;
    good = total <= part.size;
    __syncthreads();
  }
  if (threadIdx.x == 0) parts[blockIdx.x].whole = good && total == part.size;
}
"""


def compile_check() -> Kernel:
    """Return the kernel for the current device.

    Raises:
      LibraryError: it cannot be compiled.
    """
    return compile_kernels(SOURCE, ("check_lzw",))["check_lzw"]


def check(kernel: Kernel, table: int, count: int, stream: int) -> None:
    """Start looking through `count` parts.

    Args:
      kernel: of `compile_check`.
      table: address of the device, of `count` PART; the bytes follow behind them.
      stream: the kernel runs on it.
    """
    data = np.uint64(table + count * PART.itemsize)
    kernel.launch(stream, (count, 1, 1), (_THREADS, 1, 1), np.uint64(table), data)
