"""The CUDA C++ of the warp, compiled for this machine's CPU, computes what XLA does.

No GPU is needed: each thread is a turn of a loop, and CUDA's functions on bits are written out.
"""

import ctypes
import functools
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.augment._cuda import choice, warp

COMPILER = shutil.which("c++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")

BEFORE = r"""
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
using std::max;
using std::min;
#define __device__ static
#define __global__
#define __restrict__
#define __launch_bounds__(threads)

struct Dim3 {
  unsigned int x, y, z;
};
static Dim3 blockIdx, threadIdx, blockDim, gridDim;

static float __uint_as_float(unsigned int bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

static unsigned int __float_as_uint(float value) {
  unsigned int bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

static unsigned int __float2uint_rn(float value) { return (unsigned int)std::nearbyint(value); }

static unsigned int byte_of(unsigned long long word, int place) {
  return (unsigned int)(word >> (8 * place)) & 255;
}

static unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
  unsigned long long both = ((unsigned long long)y << 32) | x;
  unsigned int result = 0;
  for (int i = 0; i < 4; ++i) result |= byte_of(both, (selector >> (4 * i)) & 7) << (8 * i);
  return result;
}

static unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
  return (unsigned int)((((unsigned long long)high << 32) | low) >> (shift & 31));
}

static unsigned int __dp4a(unsigned int x, unsigned int y, unsigned int sum) {
  for (int i = 0; i < 4; ++i) sum += byte_of(x, i) * byte_of(y, i);
  return sum;
}
"""
BEHIND = r"""
extern "C" void run(const PIXEL* images, const float* facts, RESULT* results, const int* sizes) {
  blockDim = {(unsigned int)sizes[0], (unsigned int)sizes[1], 1};
  gridDim = {(unsigned int)sizes[2], (unsigned int)sizes[3], (unsigned int)sizes[4]};
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
        for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
          for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x)
            warp(images, facts, results);
}
"""


@pytest.fixture
def by_source(tmp_path, monkeypatch):
    """Return a function that lets chains take the source of the kernel, or XLA again."""

    @functools.cache
    def compiled(source: str) -> ctypes.CDLL:
        path = tmp_path / f"{abs(hash(source))}"
        path.with_suffix(".cpp").write_text(BEFORE + source + BEHIND)
        options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-w", "-o", f"{path}.so"]
        subprocess.run([COMPILER, *options, f"{path}.cpp"], check=True)
        return ctypes.CDLL(f"{path}.so")

    def launch(kernel, images, facts):
        (shape, dtype), *_ = kernel.results
        count = len(images)
        # As in the memory of a device, where words that begin in the last pixels end behind them.
        padded = np.append(images, np.zeros(8, images.dtype))
        results = np.zeros((count, *shape), jnp.dtype(dtype))
        sizes = np.array([*kernel.threads, *kernel.blocks, count], np.int32)
        arrays = (padded, np.ascontiguousarray(facts), results, sizes)
        compiled(kernel.source).run(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
        return results

    def call(kernel, image, facts):
        shape, dtype = kernel.results[0]

        def host(image, facts):
            whole = image.reshape(-1, *image.shape[-3:])
            results = launch(kernel, whole, facts.reshape(len(whole), -1))
            return results.reshape(*image.shape[:-3], *shape)

        result = jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))
        return [jax.pure_callback(host, result, image, facts, vmap_method="broadcast_all")]

    def take(source: bool) -> None:
        monkeypatch.setattr(warp, "call", call)
        monkeypatch.setattr(
            choice,
            "on_gpu",
            lambda kernel, xla, *operands: (kernel if source else xla)(*operands),
        )

    return take


def crop(side: int, *others: A.Transform, interpolation: str = "bilinear") -> A.Compose:
    return A.Compose([A.RandomResizedCrop(side, interpolation=interpolation), *others])


def turn(mode: str) -> A.RandomAffine:
    return A.RandomAffine(180, (0.3, 0.3), (0.2, 1.5), (-20, 20), padding_mode=mode, fill=0.3)


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CHAINS = {  # taps along an axis: 5 for a crop to 48, 25 to 8
    "crop": crop(48, A.RandomHorizontalFlip(), A.ToFloat()),
    "strong shrink": crop(8, A.ToFloat()),
    "crop, rotation": crop(12, A.RandomRotation(40, fill=0.5), A.ToFloat()),
    "bicubic": crop(48, A.Normalize(MEAN, STD), interpolation="bicubic"),
    "strong bicubic shrink": crop(8, A.ToFloat(), interpolation="bicubic"),
    "perspective": A.Compose([A.RandomPerspective(0.6, 1.0), A.ToFloat()]),
    "normalize": crop(48, A.Normalize(MEAN, STD)),
    "small on its canvas": A.Compose([A.ScaleJitter(64, (0.1, 0.3)), A.ToFloat()]),
    **{
        f"affine, {mode}": A.Compose([turn(mode), A.ToFloat()])
        for mode in ("edge", "reflect", "symmetric", "wrap", "constant")
    },
}


@pytest.mark.parametrize(
    "name, dtype, sized",
    [
        *((name, "uint8", True) for name in CHAINS),
        *((name, "float32", False) for name in ("crop", "strong shrink", "affine, constant")),
    ],
)
def test_the_source_computes_what_xla_does(by_source, name, dtype, sized):
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (4, 65, 97, 3), dtype=np.uint8)
    sample = {"image": jnp.asarray(noise if dtype == "uint8" else np.float32(noise) / 255)}
    if sized:
        sample["size"] = jnp.asarray(rng.integers((33, 49), (66, 98), (4, 2)), jnp.int32)
    keys = jax.random.split(jax.random.key(1), 4)

    def images(source: bool) -> np.ndarray:
        by_source(source)
        chain = jax.vmap(lambda key, sample: CHAINS[name](key, sample)["image"])
        return np.asarray(jax.jit(chain)(keys, sample), np.float32)

    tolerance = 3e-5 / min(STD) if name in ("bicubic", "normalize") else 3e-5
    np.testing.assert_allclose(images(True), images(False), rtol=0, atol=tolerance)


def test_a_white_image_stays_white(by_source):
    """Weights of 16 bits are divided by their own sum."""
    by_source(True)
    white = jnp.full((300, 400, 3), 255, jnp.uint8)
    found = jax.jit(crop(16, A.ToFloat()))(jax.random.key(0), white)
    np.testing.assert_allclose(found, 1.0, rtol=0, atol=1e-6)


def test_bfloat16_is_the_nearest(by_source):
    by_source(True)
    image = jnp.asarray(np.random.default_rng(0).integers(0, 256, (65, 97, 3), np.uint8))

    def normalized(dtype: str) -> jax.Array:
        chain = crop(12, A.Normalize(MEAN, STD, dtype))
        return jax.jit(chain)(jax.random.key(0), image)

    np.testing.assert_array_equal(
        normalized("bfloat16"), normalized("float32").astype(jnp.bfloat16)
    )
