"""Every transform that `jaxaug.augment` exports, against every law. A new export enters by itself."""

import dataclasses
import functools
import inspect
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from tests.images import picture


def darken(key, image):
    """What the Lambda does: random, with its key."""
    return image * jax.random.uniform(key, (), jnp.float32, 0.2, 0.9)


# What a required field is filled with; an export with another required field fails here, loudly.
FIELDS = {
    "size": (9, 11),
    "degrees": 25.0,
    "function": darken,
    "mean": (0.5, 0.4, 0.3),
    "std": (0.2, 0.3, 0.4),
    "transforms": (
        augment.RandomResizedCrop((9, 11)),
        augment.RandomRotation(20),
        augment.ColorJitter(0.3),
    ),
}
# Defaults under which a transform does nothing are no test of it.
TELLING = {"ColorJitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}}
NOT_RANDOM = {"CenterCrop", "Resize", "Normalize", "ToFloat"}
ROWS = 8
CANVAS = (16, 20)


def exported():
    names = {name: getattr(augment, name) for name in dir(augment)}
    return {
        name: kind
        for name, kind in names.items()
        if inspect.isclass(kind)
        and issubclass(kind, augment.Transform)
        and not inspect.isabstract(kind)
    }


def build(name, **changes):
    kind = exported()[name]
    required = [
        f.name for f in dataclasses.fields(kind) if f.init and f.default is dataclasses.MISSING
    ]
    return kind(
        **{**{field: FIELDS[field] for field in required}, **TELLING.get(name, {}), **changes}
    )


def with_p(name):
    return "p" in {field.name for field in dataclasses.fields(exported()[name])}


def always(name):
    return build(name, p=1.0) if with_p(name) else build(name)


def batch(rest=0):
    """Eight different images of different sizes on one canvas."""
    sizes = np.array(
        [[16, 20], [12, 20], [16, 13], [13, 14], [15, 19], [16, 16], [12, 18], [14, 12]], np.int32
    )
    pixels = np.full((ROWS, *CANVAS, 3), rest, np.uint8)
    for row, (height, width) in enumerate(sizes):
        pixels[row, :height, :width] = picture(row, height, width)
    return {
        "image": jnp.asarray(pixels),
        "size": jnp.asarray(sizes),
        "label": jnp.arange(ROWS, dtype=jnp.int32),
    }


def rows(tree, which):
    """Some rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf[which], tree)


KEYS = jax.random.split(jax.random.key(7), ROWS)
everything = pytest.mark.parametrize("name", sorted(exported()))


@pytest.fixture(scope="module")
def compiled():
    """jit(vmap(transform)), one for each transform: compiling is what costs here."""
    return functools.cache(lambda name: jax.jit(jax.vmap(always(name))))


def equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_the_table_is_not_empty():
    assert len(exported()) >= 15


@everything
def test_config(name):
    transform = always(name)
    assert hash(transform) == hash(always(name)) and transform == always(name)
    assert pickle.loads(pickle.dumps(transform)) == transform
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(transform, dataclasses.fields(transform)[0].name, 0)


@everything
def test_lists_become_tuples(name):
    required = {
        f.name for f in dataclasses.fields(exported()[name]) if f.default is dataclasses.MISSING
    }
    lists = {f: list(FIELDS[f]) for f in required if isinstance(FIELDS[f], tuple)}
    assert hash(build(name, **lists)) == hash(build(name))


@everything
def test_dtype_shape_and_rest(name, compiled):
    out = compiled(name)(KEYS, batch())
    equal(out["label"], batch()["label"])
    ending = issubclass(exported()[name], augment.Output)
    assert out["image"].dtype == (jnp.float32 if ending else jnp.uint8)
    fixed = name in ("CenterCrop", "Compose", "RandomCrop", "RandomResizedCrop", "Resize")
    assert out["image"].shape == (ROWS, *((9, 11) if fixed else CANVAS), 3)
    assert ("size" in out) != fixed
    bare = jax.eval_shape(always(name), KEYS[0], batch()["image"][0])
    assert bare.shape == out["image"].shape[1:] and bare.dtype == out["image"].dtype


@everything
def test_same_key_same_result_and_another_key_another(name, compiled):
    out = compiled(name)(KEYS, batch())
    equal(out, compiled(name)(KEYS, batch()))
    other = compiled(name)(jax.random.split(jax.random.key(8), ROWS), batch())
    same = np.array_equal(out["image"], other["image"])
    flip_or_gray = name in (
        "RandomHorizontalFlip",
        "RandomVerticalFlip",
        "Grayscale",
    )  # p = 1 leaves no chance
    assert same == (name in NOT_RANDOM or flip_or_gray)


@everything
def test_jit_equals_eager(name, compiled):
    row = rows(batch(), 3)
    eager = always(name)(KEYS[3], row)
    together = rows(compiled(name)(KEYS, batch()), 3)
    assert eager.keys() == together.keys()
    tolerance = 1 if eager["image"].dtype == jnp.uint8 else 1e-5
    np.testing.assert_allclose(
        np.asarray(eager["image"], float), np.asarray(together["image"], float), atol=tolerance
    )


@everything
def test_rows_do_not_depend_on_their_batch(name, compiled):
    """Four batches of two give the bits of one of eight, rows in another order theirs."""
    whole = compiled(name)(KEYS, batch())
    pairs = [compiled(name)(*rows((KEYS, batch()), slice(i, i + 2))) for i in range(0, ROWS, 2)]
    equal(whole, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *pairs))
    backwards = compiled(name)(*rows((KEYS, batch()), slice(None, None, -1)))
    equal(whole, rows(backwards, slice(None, None, -1)))


@everything
def test_no_dots(name):
    text = str(jax.make_jaxpr(always(name))(KEYS[0], rows(batch(), 0)))
    assert "dot_general" not in text
    assert not re.search(
        r"f64\[\d", text
    )  # Python numbers are f64[] under x64, before they meet an array


@everything
def test_the_unused_part_is_not_read(name, compiled):
    if name == "Lambda":
        pytest.skip("a user's function sees the whole canvas")
    equal(compiled(name)(KEYS, batch()), compiled(name)(KEYS, batch(rest=255)))


@pytest.mark.parametrize("name", [name for name in sorted(exported()) if with_p(name)])
def test_never_is_the_identity(name):
    out = jax.jit(jax.vmap(build(name, p=0.0)))(KEYS, batch())
    equal(out, batch())
    noise = np.random.default_rng(0).uniform(0, 1, (9, 7, 3)).astype(np.float32)
    equal(build(name, p=0.0)(KEYS[0], noise), noise)


@everything
def test_compiled_once(name):
    """For other keys, other sizes and an equal second instance."""

    @functools.partial(jax.jit, static_argnums=0)
    def draw(transform, key, sample):
        return transform.sample(key, augment.ImageInfo(CANVAS, sample["size"]))

    for transform in (always(name), always(name)):
        for row in range(3):
            draw(transform, KEYS[row], rows(batch(), row))
    assert draw._cache_size() == 1


@everything
def test_x64_changes_nothing(name):
    """Neither what is drawn nor the dtypes on the way: no array of float64."""
    transform = always(name)
    sample = rows(batch(), 3)
    info = augment.ImageInfo(CANVAS, sample["size"])
    drawn = transform.sample(KEYS[3], info)
    with jax.enable_x64(True):
        wide = transform.sample(KEYS[3], info)
        text = str(jax.make_jaxpr(transform)(KEYS[3], sample))
    arrays = jax.tree.leaves(drawn)
    wide_arrays = jax.tree.leaves(wide)
    for a, b in zip(arrays, wide_arrays, strict=True):
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        assert bool(jnp.all(a == b))
    assert not re.search(r"f64\[\d", text)


def test_x64_gives_the_same_bits(compiled):
    expected = compiled("Compose")(KEYS, batch())
    with jax.enable_x64(True):
        equal(jax.jit(jax.vmap(always("Compose")))(KEYS, batch()), expected)


@everything
def test_gradients_are_finite_and_reach_the_image(name):
    transform = always(name)
    image = jnp.asarray(batch()["image"][0], jnp.float32) / 255
    image = image.at[:2].set(0.5)  # gray: hue and saturation have their corners there
    slopes = jax.jit(jax.grad(lambda x: transform(KEYS[0], x).sum()))(image)
    assert np.isfinite(slopes).all() and (np.asarray(slopes) != 0).any()
