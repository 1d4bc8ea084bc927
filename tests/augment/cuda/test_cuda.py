"""The CUDA kernels compute what XLA does; on other devices nothing changes."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import mlir

from jaxaug import _nvrtc, augment
from jaxaug.augment._cuda import call, choice

gpus = [device for device in jax.devices() if device.platform == "gpu"]
needs_gpu = pytest.mark.skipif(not gpus, reason="needs a GPU")
needs_two = pytest.mark.skipif(len(gpus) < 2, reason="needs two GPUs")
needs_nvrtc = pytest.mark.skipif(not _nvrtc.is_available(), reason="needs cuda-bindings")

TO_FLOAT = augment.ToFloat()


def affine(mode: str) -> augment.Compose:
    turn = augment.RandomAffine(
        180, (0.3, 0.3), (0.3, 2.0), (-20, 20, -20, 20), padding_mode=mode, fill=0.3
    )
    return augment.Compose([turn, TO_FLOAT])


def rand_augment(magnitude: int) -> augment.Compose:
    return augment.Compose([augment.RandAugment(1, 9 + 6 * magnitude), TO_FLOAT])


CHAINS = {
    **{f"affine, {mode}": affine(mode) for mode in ("edge", "reflect", "symmetric", "wrap")},
    "affine, constant": affine("constant"),
    "crop": augment.Compose(
        [augment.RandomResizedCrop(48), augment.RandomHorizontalFlip(), TO_FLOAT]
    ),
    "crop, rotation": augment.Compose(
        [augment.RandomResizedCrop(48), augment.RandomRotation(40, fill=0.5), TO_FLOAT]
    ),
    "bicubic": augment.Compose([augment.RandomResizedCrop(48, interpolation="bicubic"), TO_FLOAT]),
    "bicubic rotation": augment.Compose(
        [augment.RandomRotation(90, interpolation="bicubic"), TO_FLOAT]
    ),
    "resize": augment.Compose([augment.Resize((20, 40)), TO_FLOAT]),
    "resize, center crop": augment.Compose([augment.Resize(40), augment.CenterCrop(36), TO_FLOAT]),
    "perspective": augment.Compose([augment.RandomPerspective(0.6, 1.0), TO_FLOAT]),
    "jitter": augment.Compose([augment.ColorJitter(0.4, 0.4, 0.4, 0.3), TO_FLOAT]),
    "jitter of two": augment.Compose([augment.ColorJitter(0.4, 0.4), TO_FLOAT]),
    "distortion without hue": augment.Compose(
        [augment.RandomPhotometricDistort(hue=(0, 0)), TO_FLOAT]
    ),
    "small on its canvas": augment.Compose([augment.ScaleJitter(64, (0.1, 0.3)), TO_FLOAT]),
    "tones": augment.Compose(
        [
            augment.CenterCrop(48),
            augment.RandomGamma((0.7, 1.4)),
            augment.RandomSolarize(0.5),
            augment.RandomPosterize(5),
            augment.RandomRGBShift(0.1),
            augment.Normalize(0.5, 0.25),
        ]
    ),
    "equalize": augment.Compose([augment.RandomEqualize(p=1.0), TO_FLOAT]),
    **{f"RandAugment, {i}": rand_augment(i) for i in range(4)},
    "TrivialAugment": augment.Compose([augment.TrivialAugmentWide(), TO_FLOAT]),
    "AutoAugment": augment.Compose([augment.AutoAugment(), TO_FLOAT]),
    "timm": augment.Compose([augment.RandAugment(variant="timm"), TO_FLOAT]),
    "all": augment.Compose(
        [
            augment.RandomResizedCrop(48),
            augment.RandomRotation(7),
            augment.ColorJitter(0.4, 0.4, 0.4, 0.1),
            augment.Normalize(0.5, 0.25),
        ]
    ),
}


def batch(count: int, dtype: str = "uint8", sized: bool = True) -> dict[str, jax.Array]:
    """Return noise images of 65 x 97, with garbage beside the used part."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (count, 65, 97, 3), dtype=np.uint8)
    sample = {"image": jnp.asarray(image if dtype == "uint8" else (image / 255).astype(dtype))}
    if sized:
        sizes = rng.integers((33, 49), (66, 98), (count, 2))
        sample["size"] = jnp.asarray(sizes, jnp.int32)
    return sample


def images(chain, sample: dict[str, jax.Array]) -> np.ndarray:
    keys = jax.random.split(jax.random.key(1), len(sample["image"]))
    return np.asarray(jax.jit(jax.vmap(chain))(keys, sample)["image"], np.float32)


@pytest.fixture
def without_kernels(monkeypatch):
    """Return a function that turns the kernels off."""

    def turn_off():
        monkeypatch.setattr(choice, "is_available", lambda: False)

    return turn_off


@needs_gpu
@needs_nvrtc
@pytest.mark.parametrize("dtype, sized", [("uint8", True), ("float32", False)])
@pytest.mark.parametrize("name", CHAINS)
def test_a_kernel_computes_what_xla_does(name, dtype, sized, without_kernels):
    sample = batch(16, dtype, sized)
    by_kernel = images(CHAINS[name], sample)
    without_kernels()
    by_xla = images(CHAINS[name], sample)

    # A position of 100 pixels is rounded to 8e-6; the images are noise.
    np.testing.assert_allclose(by_kernel, by_xla, rtol=0, atol=1e-4 if name == "all" else 3e-5)


def normalized(interpolation: str, **options) -> augment.Compose:
    """Return a crop whose output the kernel writes."""
    crop = augment.RandomResizedCrop(48, interpolation=interpolation)
    turn = augment.RandomRotation(30, interpolation=interpolation, fill=0.2)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    return augment.Compose([crop, turn, augment.Normalize(mean, std, **options)])


@needs_gpu
@needs_nvrtc
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "dtype, relative", [("float32", 0.0), ("bfloat16", 2**-7), ("float16", 2**-10)]
)
def test_an_epilogue_is_that_of_xla(dtype, relative, interpolation, layout, without_kernels):
    chain = normalized(interpolation, dtype=dtype, layout=layout)
    by_kernel = images(chain, batch(16))
    without_kernels()
    np.testing.assert_allclose(by_kernel, images(chain, batch(16)), rtol=relative, atol=3e-4)


@needs_gpu
@needs_nvrtc
@pytest.mark.parametrize("name", ["all", "affine, reflect"])
def test_bits_do_not_depend_on_the_batch(name):
    sample = batch(64)
    whole = images(CHAINS[name], sample)
    keys = jax.random.split(jax.random.key(1), 64)[:3]
    few = jax.jit(jax.vmap(CHAINS[name]))(keys, jax.tree.map(lambda x: x[:3], sample))

    np.testing.assert_array_equal(np.asarray(few["image"], np.float32), whole[:3])


@needs_gpu
@needs_nvrtc
@pytest.mark.parametrize("name", ["crop, rotation", "jitter"])
def test_gradients_are_those_of_xla(name, without_kernels):
    sample = batch(4, "float32")
    keys = jax.random.split(jax.random.key(1), 4)

    def gradients():
        def loss(pixels):
            return jnp.sum(jax.vmap(CHAINS[name])(keys, {**sample, "image": pixels})["image"] ** 2)

        return np.asarray(jax.jit(jax.grad(loss))(sample["image"]))

    by_kernel = gradients()
    without_kernels()
    np.testing.assert_allclose(by_kernel, gradients(), rtol=0, atol=2e-4)


@needs_two
@needs_nvrtc
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_a_split_batch_is_computed_where_it_lies(kind):
    kinds = (getattr(jax.sharding.AxisType, kind),)
    mesh = jax.make_mesh((2,), ("data",), axis_types=kinds, devices=gpus[:2])
    rows = jax.NamedSharding(mesh, jax.P("data"))
    sample = batch(16)
    keys = jax.random.split(jax.random.key(1), 16)
    whole = images(CHAINS["all"], sample)
    with jax.set_mesh(mesh):
        program = jax.jit(jax.vmap(CHAINS["all"]))
        compiled = program.lower(*jax.device_put((keys, sample), rows)).compile()
        split = compiled(*jax.device_put((keys, sample), rows))

    assert "all-gather" not in (compiled.as_text() or "")
    np.testing.assert_array_equal(np.asarray(split["image"], np.float32), whole)


def test_without_a_gpu_xla_computes(monkeypatch):
    sample = batch(2)
    expected = images(CHAINS["all"], sample)
    monkeypatch.setattr(choice, "is_available", lambda: True)
    if not gpus:
        np.testing.assert_array_equal(images(CHAINS["all"], sample), expected)


@pytest.fixture
def kernel_for_cpus(monkeypatch):
    """Return a kernel that adds a number of its image to all pixels, also on CPUs."""

    def launch(kernel, image, number):
        (shape, dtype), *_ = kernel.results
        assert image.shape[1:] == shape and 0 < len(image) <= call._MAX_IMAGES
        return [(image + number[:, None, None, :1]).astype(dtype)]

    monkeypatch.setattr(call, "_launch", launch)
    mlir.register_lowering(call._kernel_call, call._lower, platform="cpu")
    kernel = call.CudaKernel("", "add", (((4, 5, 3), "float32"),), (1, 1), (1, 1))
    return lambda image, number: call.call(kernel, image, number)[0]


def test_batches_of_batches_are_one_launch(kernel_for_cpus):
    image = jnp.arange(2 * 3 * 4 * 5 * 3, dtype=jnp.float32).reshape(2, 4, 5, 3, 3)
    number = jnp.arange(3, dtype=jnp.float32)[:, None]
    both = jax.vmap(jax.vmap(kernel_for_cpus, (2, 0)), (0, None))
    result = jax.jit(both)(image, number)

    expected = jnp.moveaxis(image, 3, 1) + number[None, :, None, None]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6])
def test_a_batch_has_as_many_launches_as_it_needs(kernel_for_cpus, monkeypatch, count):
    """CUDA refuses an empty grid, and one with more than 65,535 blocks along z."""
    monkeypatch.setattr(call, "_MAX_IMAGES", 2)
    image = jnp.arange(count * 4 * 5 * 3, dtype=jnp.float32).reshape(count, 4, 5, 3)
    number = jnp.arange(count, dtype=jnp.float32)[:, None]
    result = jax.jit(jax.vmap(kernel_for_cpus))(image, number)

    np.testing.assert_array_equal(result, image + number[:, None, None])


@needs_gpu
@needs_nvrtc
@pytest.mark.parametrize("count", [0, 65_537])
def test_a_gpu_takes_no_image_and_more_than_a_grid_has(count):
    """The last images of a batch of two launches have the bits of a batch of their own."""
    chain = augment.Compose([augment.RandomResizedCrop(2), TO_FLOAT])
    keys = jax.random.split(jax.random.key(1), count)
    pixels = jax.random.bits(jax.random.key(2), (count, 3, 4, 3), jnp.uint8)
    run = jax.jit(jax.vmap(chain))
    out = run(keys, pixels)

    assert out.shape == (count, 2, 2, 3)
    np.testing.assert_array_equal(out[-2:], run(keys[-2:], pixels[-2:]))


@pytest.mark.skipif(jax.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_each_device_launches_for_its_rows(kernel_for_cpus, kind):
    kinds = (getattr(jax.sharding.AxisType, kind),)
    mesh = jax.make_mesh((2,), ("data",), axis_types=kinds, devices=jax.devices()[:2])
    rows = jax.NamedSharding(mesh, jax.P("data"))
    image = np.arange(8 * 4 * 5 * 3, dtype=np.float32).reshape(8, 4, 5, 3)
    number = np.arange(8, dtype=np.float32)[:, None]
    with jax.set_mesh(mesh):
        split = jax.device_put((image, number), rows)
        compiled = jax.jit(jax.vmap(kernel_for_cpus)).lower(*split).compile()
        result = compiled(*split)

    assert "all-gather" not in (compiled.as_text() or "")
    assert result.sharding.is_equivalent_to(rows, 4)
    np.testing.assert_array_equal(result, image + number[:, None, None])


@needs_nvrtc
def test_a_chain_lowers_to_one_warp_and_two_kernels_of_jitter():
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 4))
    traced = jax.jit(jax.vmap(CHAINS["all"])).trace(keys, jax.eval_shape(lambda: batch(4)))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()

    assert text.count("custom_call @__gpu$xla.gpu.ptx") == 3


@needs_nvrtc
@pytest.mark.parametrize(
    "dtype, written", [("float32", "f32"), ("bfloat16", "bf16"), ("float16", "f16")]
)
def test_the_warp_writes_what_the_model_takes(dtype, written):
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 4))
    chain = normalized("bicubic", dtype=dtype)
    traced = jax.jit(jax.vmap(chain)).trace(keys, jax.eval_shape(lambda: batch(4)))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()

    (call_line,) = [line for line in text.splitlines() if "__gpu$xla.gpu.ptx" in line]
    assert call_line.endswith(f"-> tensor<4x48x48x3x{written}>")


@needs_nvrtc
def test_faulty_source_is_named():
    with pytest.raises(RuntimeError, match=r"NVRTC cannot compile[\s\S]*nonsense"):
        _nvrtc.compile_to_ptx("nonsense", 70)


@needs_nvrtc
def test_one_source_is_compiled_for_all_newer_architectures_and_for_one():
    source = 'extern "C" __global__ void add(float* x) { *x += 1.0f; }'
    assert ".visible .entry add(" in _nvrtc.compile_to_ptx(source, 70)
    assert _nvrtc.compile_to_cubin(source, 90).startswith(b"\x7fELF")


@needs_nvrtc
def test_a_space_stays_a_space(tmp_path):
    """As CPython shares bytes of one letter, where a module was not read from a cache."""
    code = (
        "from jaxaug import _nvrtc\n"
        "_nvrtc.compile_to_cubin('extern \"C\" __global__ void f(float* x) { *x = 1; }', 90)\n"
        "assert bytes([32])[0] == 32"
    )
    fresh = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    subprocess.run([sys.executable, "-B", "-c", code], env=fresh, check=True)
