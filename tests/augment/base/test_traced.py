"""Settings that are arrays of JAX: gradients, ensembles and modules of transforms."""

import dataclasses
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxaug import Loader
from jaxaug import augment as A
from jaxaug.augment import functional as F
from jaxaug.augment._cuda import choice
from jaxaug.iterators import InMemory
from tests.images import jpegs

KEY = jax.random.key(0)


def smooth(height=24, width=30):
    """Return a float image without edges, whose resample has gradients everywhere."""
    y, x = np.mgrid[:height, :width]
    waves = [0.5 + 0.4 * np.sin(x / (4 + c)) * np.cos(y / (5 - c)) for c in range(3)]
    return jnp.asarray(np.stack(waves, axis=2), jnp.float32)


IMAGE = smooth()
NOISE = jax.random.uniform(KEY, IMAGE.shape)
WEIGHTS = smooth().transpose(1, 0, 2).reshape(IMAGE.shape)


def weighed(image):
    """Return a number in which the pixels count differently."""
    return jnp.sum(image * WEIGHTS)


def chain_of(q):
    return A.Compose([A.RandomRotation((q, q)), A.ColorJitter(brightness=(0.5, 0.5 + q / 8))])


@pytest.mark.parametrize(
    "function, at",
    [
        (lambda q: A.RandomRotation((q, q), interpolation="bicubic")(KEY, IMAGE), 7.3),
        (lambda q: A.RandomAffine(0, scale=(q, q), interpolation="bicubic")(KEY, IMAGE), 1.2),
        (lambda q: A.RandomShear((q, q), interpolation="bicubic")(KEY, IMAGE), 9.0),
        (lambda q: A.RandomPerspective(q, p=1.0, interpolation="bicubic")(KEY, IMAGE), 0.3),
        (lambda q: A.OpticalDistortion((q, q), 1.0, interpolation="bicubic")(KEY, IMAGE), 0.1),
        (lambda q: A.ElasticTransform(q, 6.0, interpolation="bicubic")(KEY, IMAGE), 40.0),
        (lambda q: F.affine(IMAGE, scale=q, interpolation="bicubic"), 0.8),
        (lambda q: F.rotate(IMAGE, q, interpolation="bicubic"), 12.0),
        (lambda q: A.ColorJitter(brightness=(q, q))(KEY, IMAGE * 0.5), 1.2),
        (lambda q: A.ColorJitter(0, (q, q), (0.7, q))(KEY, IMAGE), 0.8),
        (lambda q: A.RandomGamma((q, q), p=1.0)(KEY, IMAGE), 1.4),
        (lambda q: A.GaussianBlur(7, sigma=(q, q))(KEY, NOISE) * (NOISE - 0.5), 1.5),
        (lambda q: A.Normalize((q, 0.5, 0.5), q)(KEY, IMAGE), 0.6),
    ],
)
def test_gradients_are_those_of_finite_differences(function, at):
    step = at * 1e-2
    gradient = jax.grad(lambda q: weighed(function(q)))(at)
    above, below = map(jax.jit(function), (at + step, at - step))
    change = np.asarray(above, np.float64) - np.asarray(below, np.float64)
    difference = np.sum(change * np.asarray(WEIGHTS)) / (2 * step)
    assert abs(difference) > 1e-3
    np.testing.assert_allclose(gradient, difference, rtol=0.03)


def test_the_leaves_are_the_arrays_and_have_names():
    chain = A.Compose([A.RandomApply([A.RandomRotation((-5.0, jnp.float32(9)))]), A.CenterCrop(8)])
    [(path, leaf)] = jax.tree_util.tree_leaves_with_path(chain)
    assert jax.tree_util.keystr(path) == ".transforms[0].transforms[0].degrees[1]"
    assert leaf == 9
    assert jax.tree.leaves(A.RandomRotation(9)) == []
    assert jax.tree.leaves(A.RandomRotation(np.float32(9))) == []


def test_an_array_of_several_numbers_is_several_leaves():
    assert len(jax.tree.leaves(A.RandomRotation(jnp.array([-10, 10])))) == 2


@pytest.mark.parametrize("other", [None, object(), 3, "a", (1, 2)])
def test_a_leaf_may_be_anything_and_is_checked_by_the_constructor_alone(other):
    chain = A.Compose([A.RandomRotation(jnp.float32(9), p=jnp.float32(0.5)), A.Normalize(0.5, 1)])
    structure = jax.tree.structure(chain)
    replaced = jax.tree.unflatten(structure, [other] * structure.num_leaves)
    assert structure.flatten_up_to(replaced) == [other] * structure.num_leaves
    back = jax.tree.unflatten(structure, jax.tree.leaves(chain))
    assert back == chain and jax.tree.structure(back) == structure


def test_arrays_are_compared_by_value_and_pickled():
    chain = chain_of(jnp.float32(9))
    assert chain == chain_of(jnp.float32(9)) and hash(chain) == hash(chain_of(jnp.float32(9)))
    assert chain != chain_of(jnp.float32(8)) and chain != chain_of(9.0)
    assert pickle.loads(pickle.dumps(chain)) == chain


def test_tracers_are_compared_by_identity():
    def compare(q, r):
        assert A.RandomRotation((q, q)) == A.RandomRotation((q, q))
        assert hash(A.RandomRotation((q, q))) == hash(A.RandomRotation((q, q)))
        assert A.RandomRotation((q, q)) != A.RandomRotation((q, r))

    jax.eval_shape(compare, 1.0, 1.0)


def test_an_ensemble_of_settings_is_a_vmap_over_the_chain():
    settings = jnp.array([5.0, 10.0, 20.0])
    ensemble = jax.vmap(chain_of)(settings)
    together = jax.jit(jax.vmap(lambda chain: chain(KEY, IMAGE)))(ensemble)
    alone = [chain_of(q)(KEY, IMAGE) for q in settings]
    np.testing.assert_allclose(together, jnp.stack(alone), atol=1e-5)


def test_a_chain_as_an_argument_compiles_once_for_all_values():
    run: Any = jax.jit(lambda chain, image: chain(KEY, image))
    for q in (1.0, 9.0):
        np.testing.assert_allclose(
            run(chain_of(jnp.float32(q)), IMAGE), chain_of(q)(KEY, IMAGE), atol=1e-4
        )
        assert run._cache_size() == 1
    run(A.Compose([A.RandomRotation(9)]), IMAGE)
    assert run._cache_size() == 2


@pytest.mark.training
def test_an_optimizer_updates_a_chain():
    """From half of the brightness to that of the target, which is 1.5 times the image."""
    chain: Any = A.Compose([A.ColorJitter(brightness=(jnp.float32(0.5),) * 2), A.ToFloat()])
    image = 0.5 * IMAGE

    def loss(chain):
        return jnp.mean((chain(KEY, image) - 1.5 * image) ** 2)

    optimizer = optax.adam(0.1)
    state = optimizer.init(chain)
    gradient = jax.jit(jax.grad(loss))
    for _ in range(100):
        updates, state = optimizer.update(gradient(chain), state)
        chain = optax.apply_updates(chain, updates)
    np.testing.assert_allclose(jax.tree.leaves(chain), 1.5, atol=0.05)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Model:
    """A module as equinox makes them."""

    augment: A.Compose
    weight: jax.Array


def test_a_chain_is_a_field_of_a_module():
    model = Model(chain_of(jnp.float32(9)), jnp.float32(2))
    gradients = jax.grad(lambda model: weighed(model.weight * model.augment(KEY, IMAGE)))(model)
    assert all(
        gradient != 0 for gradient in [gradients.weight, jax.tree.leaves(gradients.augment)[0]]
    )


def test_a_chain_is_data_of_a_flax_module_and_takes_its_parameters():
    nnx = pytest.importorskip("flax.nnx")

    class Module(nnx.Module):
        def __init__(self):
            self.limit = nnx.Param(jnp.float32(9))
            self.chain = nnx.data(chain_of(jnp.float32(8)))

        def __call__(self, image):
            return A.RandomRotation((0.0, self.limit))(KEY, self.chain(KEY, image))

    gradients = nnx.grad(lambda module: weighed(module(IMAGE)))(Module())
    assert gradients["limit"][...] != 0


def test_known_numbers_are_checked_and_traced_ones_are_not():
    with pytest.raises(ValueError, match=r"`distortion_scale` must be a number in \[0.0, 1.0\]"):
        A.RandomPerspective(jnp.float32(1.5))
    with pytest.raises(ValueError, match="`degrees` must be a pair"):
        A.RandomRotation((jnp.float32(3), 2.0))
    with pytest.raises(ValueError, match="`degrees` must be"):
        A.RandomRotation(jnp.bool_(True))
    jax.eval_shape(lambda q: A.RandomPerspective(q).distortion_scale, 1.5)
    with pytest.raises(ValueError, match="`contrast` must be a pair"):
        jax.eval_shape(lambda q: A.ColorJitter(0, (q, -1.0)).contrast, 1.5)


def test_a_traced_size_is_an_error_that_names_it():
    with pytest.raises(ValueError, match=r"`size` must be \(height, width\)"):
        jax.eval_shape(lambda side: A.CenterCrop(side)(KEY, IMAGE), 8)


def test_a_frame_of_a_traced_angle_holds_every_angle():
    image = jnp.ones((20, 30, 3))
    turn = A.RandomRotation((jnp.float32(90), jnp.float32(90)), expand=True)
    out = turn(KEY, {"image": image, "size": jnp.array([20, 30])})
    assert out["size"].tolist() == [30, 20]
    np.testing.assert_allclose(out["image"].sum(), image.sum(), rtol=1e-4)


def test_runs_fuse_where_their_fill_is_one_array():
    fill = jnp.float32(0.5)
    info = A.ImageInfo((24, 30))
    fused = A.Compose([A.RandomRotation(9, fill=fill), A.RandomShear(9, fill=fill)]).explain(info)
    assert fused.startswith("1 pass ")
    parted = [A.RandomRotation(9, fill=fill), A.RandomShear(9, fill=jnp.float32(0.5))]
    assert A.Compose(parted).explain(info).startswith("2 passes")


def test_the_table_of_levels_has_the_gradients_of_the_pixels(monkeypatch):
    """As on a GPU, where what computes a run of single values must not close over tracers."""
    levels = jnp.round(IMAGE * 255).astype(jnp.uint8)

    def total(q):
        return weighed(A.Compose([A.RandomGamma((q, q), p=1.0), A.ToFloat()])(KEY, levels))

    expected = jax.grad(total)(1.5)
    monkeypatch.setattr(choice, "is_available", lambda: True)
    np.testing.assert_allclose(jax.grad(total)(1.5), expected, rtol=1e-4)


def test_a_loader_takes_a_transform_of_arrays():
    source = InMemory(jpegs(8))
    images = []
    for brightness in (1.5, jnp.float32(1.5)):
        jitter = A.ColorJitter(brightness=(brightness, brightness))
        with Loader(source, 8, transform=A.Compose([jitter]), shuffle=False) as loader:
            images.append(np.asarray(next(loader)["image"]).astype(int))
    assert np.abs(images[0] - images[1]).max() <= 1
