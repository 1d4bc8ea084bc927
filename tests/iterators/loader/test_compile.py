"""The compiled call: made once, at construction, in the caller's settings, on our own mesh."""

import dataclasses
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug import Decoder, Loader, augment
from jaxaug.decode import Image
from jaxaug.iterators import InMemory, for_pmap, to_numpy
from jaxaug.iterators.loader import compile as compile_module
from jaxaug.iterators.loader.compile import value_key
from jaxaug.sharding import batch_sharding
from tests.images import jpegs
from tests.iterators.loaders import one_device

N = 16


@pytest.fixture(scope="module")
def source():
    return InMemory(jpegs(N), {"label": np.arange(N)})


def chain():
    return augment.Compose([augment.RandomCrop(24), augment.RandomHorizontalFlip()])


@pytest.fixture
def compilations(monkeypatch):
    """The functions that were compiled."""
    seen = []
    compile_ = compile_module._compile
    monkeypatch.setattr(compile_module, "_SHARED", compile_module._SharedCalls(8))
    monkeypatch.setattr(compile_module, "_compile", lambda *a: seen.append(a[0]) or compile_(*a))
    return seen


def test_equal_transforms_share_their_compilation(source, compilations):
    batches = []
    for seed in (0, 0, 1):
        with Loader(source, 8, transform=chain(), seed=seed, sharding=one_device()) as loader:
            batches.append(np.asarray(next(loader)["image"]))
    assert len(compilations) == 1
    np.testing.assert_array_equal(batches[0], batches[1])
    assert (batches[0] != batches[2]).any()


@pytest.mark.parametrize(
    "change",
    [
        {"transform": augment.CenterCrop(23)},
        {"batch_size": 4},
        {"decode": Image(canvas=(30, 30))},
        {"sharding": batch_sharding(jax.devices("cpu")[1:2])},
        {"batch_transform": lambda key, group: group},
    ],
)
def test_what_differs_is_compiled_anew(source, compilations, change):
    same = {"batch_size": 8, "transform": augment.CenterCrop(24), "sharding": one_device()}
    for options in (same, same | change, same):
        Loader(source, **options).close()
    assert len(compilations) == 2


def test_the_callers_settings_are_part_of_it(source, compilations):
    for enabled in (False, True, False):
        with jax.enable_x64(enabled):
            Loader(source, 8, transform=chain(), sharding=one_device()).close()
    assert len(compilations) == 2


def test_functions_are_not_shared_and_die_with_their_loader(source, compilations):
    def make():
        def transform(key, sample):
            return {"image": sample["image"]}

        Loader(source, 8, transform=transform, sharding=one_device()).close()
        return weakref.ref(transform)

    first = make()
    _ = make()
    assert len(compilations) == 2
    compilations.clear()
    gc.collect()
    assert first() is None


def test_the_same_function_in_a_chain_is_compiled_once_and_dies_with_its_chain(
    source, compilations
):
    def make(factor):
        def darken(key, image):
            return image * factor

        return darken

    function = make(0.5)
    for _ in range(3):
        transform = augment.Compose([augment.RandomCrop(24), augment.Lambda(function)])
        Loader(source, 8, transform=transform, sharding=one_device()).close()
    assert len(compilations) == 1

    other = augment.Compose([augment.RandomCrop(24), augment.Lambda(make(0.5))])
    Loader(source, 8, transform=other, sharding=one_device()).close()
    assert len(compilations) == 2
    alive = weakref.ref(function)
    del function, transform  # pyright: ignore[reportPossiblyUnboundVariable]
    compilations.clear()
    gc.collect()
    assert alive() is None


def test_a_function_whose_closure_has_changed_is_compiled_anew(source, compilations):
    factor = 0.5

    def darken(key, image):
        return image * factor

    transform = augment.Compose([augment.Lambda(darken), augment.ToFloat()])
    means = []
    for factor in (0.5, 0.25):  # noqa: B007
        with Loader(source, 8, transform=transform, sharding=one_device()) as loader:
            means.append(float(np.mean(loader.sample(0)["sample"]["image"])))
    assert len(compilations) == 2 and means[1] < 0.6 * means[0]


def test_a_function_that_holds_an_array_is_not_shared():
    table = np.ones(3)
    assert value_key(lambda key, image: image * table, []) is None


def test_eight_compiled_calls_are_kept_the_newest_ones():
    compiled = []
    calls = compile_module._SharedCalls(8)
    for key in [*range(10), 2, 9, 0, 2]:  # 0 and 1 are gone by then, and 3 goes for 0
        calls.get(key, lambda key=key: compiled.append(key) or object())
    assert compiled == [*range(10), 0] and list(calls._calls) == [4, 5, 6, 7, 8, 9, 0, 2]


@dataclasses.dataclass(frozen=True)
class Halve:
    """A transform of one's own that compares by value."""

    factor: float = 0.5

    def __call__(self, key, sample):
        return {"image": sample["image"] * jnp.float32(self.factor)}


@dataclasses.dataclass(frozen=True)
class Holds:
    function: object


def test_what_compares_by_value():
    assert value_key(Halve(0.5)) == value_key(Halve(0.5)) != value_key(Halve(0.25))
    assert value_key(Halve(1)) != value_key(Halve(1.0)) != value_key(Halve(True))
    assert value_key(chain()) == value_key(chain()) is not None
    assert value_key(augment.Compose([augment.Lambda(lambda key, image: image)])) is None
    assert value_key(Holds(print)) is None and value_key(Holds(np.ones(3))) is None
    assert value_key(lambda x: x) is None and value_key([1]) is None


def test_x64_holds_for_the_batches_that_threads_make(source):
    with jax.enable_x64(True):
        with Loader(
            source,
            8,
            transform=lambda key, sample: {"image": sample["image"].astype(np.float64)},
            sharding=one_device(),
        ) as loader:
            assert loader.element_spec["image"].dtype == next(loader)["image"].dtype == np.float64


def test_errors_of_a_transform_come_from_the_constructor(source):
    def wrong(key, sample):
        return {"image": sample["image"] @ sample["image"]}

    with pytest.raises(TypeError, match=r"dot_general|contract"):
        Loader(source, 8, transform=wrong, sharding=one_device())


MESHES = {
    "Auto": ((8,), ("d",), AxisType.Auto),
    "Explicit": ((8,), ("d",), AxisType.Explicit),
    "Auto 2-D": ((4, 2), ("a", "b"), AxisType.Auto),
    "Explicit 2-D": ((4, 2), ("a", "b"), AxisType.Explicit),
}


@pytest.mark.parametrize("name", MESHES)
def test_everything_works_inside_of_set_mesh(source, name):
    shape, names, kind = MESHES[name]
    mesh = jax.make_mesh(shape, names, axis_types=(kind,) * len(names), devices=jax.devices("cpu"))
    sharding = NamedSharding(mesh, P(names[0]))
    options = {"transform": chain(), "seed": 5}
    with Loader(source, 8, sharding=sharding, **options) as loader:
        expected = np.asarray(next(loader)["image"])
    with jax.set_mesh(mesh):
        with Loader(source, 8, sharding=sharding, **options) as loader:
            np.testing.assert_array_equal(np.asarray(next(loader)["image"]), expected)
            one = loader.sample(3, 0)
            assert one["sample"]["image"].shape == (24, 24, 3)
            next(iter(to_numpy(loader)))
            if name == "Auto":
                assert next(iter(for_pmap(loader)))["image"].shape == (8, 1, 24, 24, 3)
        with Loader(source, 8, sharding=one_device(), **options) as loader:
            np.testing.assert_array_equal(np.asarray(next(loader)["image"]), expected)
        with Decoder((40, 56), devices=jax.devices("cpu")[:2]) as decoder:
            assert len(decoder.decode(jpegs(2)).pixels) == 2


def test_a_chain_with_kernels_takes_a_mesh_of_another_axis_name(source):
    sharding = batch_sharding(jax.make_mesh((2,), ("d",), devices=jax.devices("cpu")[:2]))
    with Loader(source, 4, transform=augment.RandomResizedCrop(24), sharding=sharding) as loader:
        assert next(loader)["image"].sharding == sharding


@pytest.mark.parametrize(
    "held, kind",
    [
        ("array", AxisType.Auto),
        ("array", AxisType.Explicit),
        ("key", AxisType.Explicit),  # JAX takes one of an Auto mesh
        ("sharding", AxisType.Auto),
        ("sharding", AxisType.Explicit),
    ],
)
def test_a_transform_that_holds_what_lies_on_a_mesh_is_told_so(source, kind, held):
    """As all arrays do that are made inside of `jax.set_mesh`."""
    mesh = jax.make_mesh((8,), ("d",), (kind,), devices=jax.devices("cpu"))
    with jax.set_mesh(mesh):
        table = jnp.linspace(0, 1, 256)
        root = jax.device_put(jax.random.key(3), NamedSharding(mesh, P()))

    def transform(key, sample):
        image = sample["image"].astype(jnp.int32)
        if held == "array":
            return {"image": table[image]}
        if held == "key":
            return {"image": image * jax.random.uniform(root)}
        return {"image": jax.lax.with_sharding_constraint(image, NamedSharding(mesh, P()))}

    sharding = NamedSharding(mesh, P("d"))
    with pytest.raises(ValueError, match=r"`transform`.* of a mesh.*np.asarray\(array\)"):
        Loader(source, 8, transform=transform, sharding=sharding)


def test_without_a_sharding_the_mesh_that_is_set_is_taken(source):
    mesh = jax.make_mesh((4,), ("d",), devices=jax.devices("cpu")[:4], axis_types=(AxisType.Auto,))
    with jax.set_mesh(mesh), Loader(source, 8) as loader:
        assert loader.element_spec["image"].sharding == NamedSharding(mesh, P("d"))
        assert next(loader)["image"].sharding == NamedSharding(mesh, P("d"))
    mesh = jax.make_mesh(
        (2, 2), ("a", "b"), devices=jax.devices("cpu")[:4], axis_types=(AxisType.Auto,) * 2
    )
    with (
        jax.set_mesh(mesh),
        pytest.raises(ValueError, match=r"`sharding` must be given.*\('a', 'b'\)"),
    ):
        Loader(source, 8)


def test_a_loader_compiles_also_where_jit_is_disabled(source):
    def transform(key, sample):
        return {"image": sample["image"][:2]}

    with Loader(source, 8, transform=transform, sharding=one_device()) as loader:
        expected = np.asarray(next(loader)["image"])
    jax.config.update("jax_disable_jit", True)  # of all threads, as JAX_DISABLE_JIT=1 is
    try:
        with Loader(source, 8, transform=transform, sharding=one_device()) as loader:
            np.testing.assert_array_equal(next(loader)["image"], expected)
    finally:
        jax.config.update("jax_disable_jit", False)
