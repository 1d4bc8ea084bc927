"""The laws of transforms, of every transform of volumes that is exported."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment import volume as vol

SHAPE = (6, 7, 7)
CUT = (4, 5, 3)
ROWS = 3
CASES = {
    "Affine": {"degrees": 20, "scale": (0.8, 1.2), "shear": 0.1, "translate": 1},
    "Anisotropy": {},
    "BiasField": {},
    "Blur": {"sigma": (0.5, 1.0)},
    "CenterCrop": {"size": CUT},
    "CoarseDropout": {"size": (0.3, 0.6)},
    "Crop": {"size": CUT},
    "CropOrPad": {"size": CUT},
    "Elastic": {"control": 5, "magnitude": (0.5, 1.0)},
    "Equalize": {"bins": 16},
    "Flip": {},
    "ForegroundCrop": {"size": CUT},
    "Gamma": {},
    "GridShuffle": {"grid": (3, 3, 2)},
    "MotionBlur": {"length": (1.0, 3.0)},
    "Noise": {},
    "Perspective": {},
    "QuarterTurn": {},
    "Resize": {"size": CUT},
    "ResizedCrop": {"size": CUT},
    "Standardize": {},
    "Window": {"low": 0.2, "high": 0.7},
}
# Draw nothing.
FIXED = {"CenterCrop", "CropOrPad", "Equalize", "Flip", "Resize", "Standardize", "Window"}
KEYS = jax.random.split(jax.random.key(1), ROWS)
# Channels are one by one what a volume alone is, but for noise, which each has of its own.
CHANNELS = 2


def build(name, **changes):
    return getattr(vol, name)(**{**CASES[name], **changes})


def has_p(name):
    return "p" in inspect.signature(getattr(vol, name)).parameters


def always(name):
    return build(name, p=1.0) if has_p(name) else build(name)


def samples():
    rng = np.random.default_rng(0)
    volume = rng.random((ROWS, *SHAPE, CHANNELS)).astype(np.float32)
    return {
        "volume": jnp.asarray(volume),
        "labels": jnp.asarray(volume[..., 0] > 0.6, jnp.int32),
        "spacing": jnp.array([[3.0, 1.0, 1.0]] * ROWS),
        "case": jnp.arange(ROWS, dtype=jnp.int32),
    }


def of(tree, row):
    return jax.tree.map(lambda leaf: leaf[row], tree)


@functools.cache
def run_of(name):
    chain = augment.Compose([always(name)])
    never = build(name, p=0.0) if has_p(name) else None

    def laws(key, sample):
        info = augment.VolumeInfo(SHAPE, CHANNELS, sample["spacing"])

        def total(volume):
            return jnp.sum(chain(key, {**sample, "volume": volume})["volume"] ** 2)

        gray = {**sample, "volume": sample["volume"][..., 0]}
        return {
            "called": chain(key, sample),
            "replayed": chain.apply(chain.make_params(key, info), sample),
            "never": None if never is None else never(key, sample),
            "gray": chain(key, gray)["volume"],
            "gradient": jax.grad(total)(sample["volume"]),
        }

    return jax.jit(jax.vmap(laws))


def test_the_table_is_that_of_the_exports():
    found = [getattr(vol, name) for name in vol.__all__]
    classes = [each for each in found if inspect.isclass(each) and issubclass(each, vol.VolumeOp)]
    assert sorted(CASES) == sorted(e.__name__ for e in classes if not inspect.isabstract(e))


QUICK = ("Affine", "Elastic", "ForegroundCrop", "Noise")
EACH = [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in CASES]


@pytest.mark.parametrize("name", EACH)
def test_laws(name):
    given = samples()
    out = jax.device_get(run_of(name)(KEYS, given))
    called = out["called"]
    shape = CUT if "size" in CASES[name] else SHAPE
    assert called["volume"].shape == (ROWS, *shape, CHANNELS)
    assert called["volume"].dtype == np.float32
    assert called["labels"].shape == (ROWS, *shape) and called["labels"].dtype == np.int32
    np.testing.assert_array_equal(called["case"], given["case"])

    jax.tree.map(np.testing.assert_array_equal, out["replayed"], called)
    if out["never"] is not None:
        jax.tree.map(np.testing.assert_array_equal, out["never"], given)
        assert (called["volume"] != given["volume"]).any()
    if name != "Noise":
        np.testing.assert_allclose(out["gray"], called["volume"][..., 0], atol=1e-6)
    assert np.isfinite(out["gradient"]).all() and (out["gradient"] != 0).any()

    backwards = run_of(name)(KEYS[::-1], jax.tree.map(lambda leaf: leaf[::-1], given))["called"]
    jax.tree.map(np.testing.assert_array_equal, of(backwards, slice(None, None, -1)), called)
    others = run_of(name)(jax.random.split(jax.random.key(2), ROWS), given)["called"]
    assert np.array_equal(others["volume"], called["volume"]) == (name in FIXED)
    text = str(jax.make_jaxpr(always(name))(KEYS[0], of(given, 0)))
    assert "dot_general" not in text


def test_bits_are_those_of_a_larger_batch_and_of_a_sample_alone():
    chain = augment.Compose(
        [
            build("ForegroundCrop"),
            build("Elastic", control=4),
            build("Affine"),
            vol.Flip(),
            vol.Gamma(),
        ]
    )
    given = samples()
    called = jax.jit(jax.vmap(chain))(KEYS, given)
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), given)
    more = jax.jit(jax.vmap(chain))(jnp.concatenate([KEYS, KEYS]), twice)
    jax.tree.map(np.testing.assert_array_equal, of(more, slice(ROWS, None)), called)


def test_choices_take_volumes_and_image_transforms_beside_them():
    choice = augment.OneOf(
        [build("Affine"), augment.Compose([build("Elastic"), vol.Gamma()])], p=1.0
    )
    chain = augment.Compose([choice, augment.RandomApply([vol.Flip(p=1.0)], p=0.5)])
    out = jax.jit(jax.vmap(chain))(KEYS, samples())
    assert out["volume"].shape == (ROWS, *SHAPE, CHANNELS)
    both = augment.Compose([vol.Flip((0,), p=1.0), augment.RandomHorizontalFlip(1.0)])
    sample = {**of(samples(), 0), "image": jnp.arange(3, dtype=jnp.uint8).reshape(1, 3, 1)}
    out = both(KEYS[0], sample)
    assert out["image"].ravel().tolist() == [2, 1, 0]
    np.testing.assert_array_equal(out["volume"], sample["volume"][::-1])


def test_levels_and_other_numbers_become_floats():
    flip = vol.Flip((0,), p=1.0)
    for dtype, top in (("uint8", 255), ("uint16", 65535), ("int16", 1)):
        given = np.array([[[200]], [[100]]], dtype)
        out = flip(KEYS[0], given)
        assert out.dtype == np.float32
        np.testing.assert_allclose(out.ravel() * top, [100, 200], rtol=1e-6)
