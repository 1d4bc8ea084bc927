"""Recipes: what they give, and views of one image."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment import recipes
from tests.images import picture

IMAGE = jnp.asarray(picture(0, 40, 60))
KEY = jax.random.key(3)
CHAINS = {
    "imagenet_train": recipes.imagenet_train(24, augment.RandAugment()),
    "deit3_train": recipes.deit3_train(24),
    "cifar_train": recipes.cifar_train(24),
}


@pytest.mark.parametrize("name", CHAINS)
def test_training_chains_normalize_and_vary(name):
    chain = CHAINS[name]
    assert pickle.loads(pickle.dumps(chain)) == chain
    out = jax.jit(jax.vmap(chain, in_axes=(0, None)))(jax.random.split(KEY, 4), IMAGE)
    assert out.shape == (4, 24, 24, 3) and out.dtype == jnp.float32
    assert (np.asarray(out) < -0.2).any() and np.abs(out).max() < 3
    assert not np.array_equal(out[0], out[1])


def test_evaluation_is_a_normalized_center_crop():
    out = recipes.imagenet_eval(24, 30, "bfloat16", "CHW")(KEY, IMAGE)
    assert out.shape == (3, 24, 24) and out.dtype == jnp.bfloat16
    cropped = augment.Compose([augment.Resize(30), augment.CenterCrop(24)])(KEY, IMAGE / 255)
    cropped = np.asarray(cropped)
    mean = np.array(recipes.IMAGENET_MEAN)
    std = np.array(recipes.IMAGENET_STD)
    np.testing.assert_allclose(
        np.asarray(out, np.float32).transpose(1, 2, 0), (cropped - mean) / std, atol=0.02
    )


@pytest.mark.parametrize(
    ("recipe", "shapes"),
    [
        (recipes.simclr(24), {"view": (2, 24, 24, 3)}),
        (recipes.byol(24), {"view_1": (1, 24, 24, 3), "view_2": (1, 24, 24, 3)}),
        (
            recipes.dino(24, 12, 5, layout="CHW"),
            {"global_1": (1, 3, 24, 24), "global_2": (1, 3, 24, 24), "local": (5, 3, 12, 12)},
        ),
    ],
)
def test_views_of_one_image(recipe, shapes):
    assert pickle.loads(pickle.dumps(recipe)) == recipe and hash(recipe) == hash(recipe)
    sample = {"image": IMAGE, "size": jnp.array([30, 44], jnp.int32), "label": jnp.int32(7)}
    out = jax.eval_shape(recipe, KEY, sample)
    assert {name: out[name].shape for name in shapes} == shapes
    assert set(out) == {*shapes, "label"}


def test_views_are_those_of_the_chain():
    chain = augment.RandomResizedCrop(8)
    out = augment.MultiView({"a": (chain, 2), "b": (chain, 2)})(KEY, {"image": IMAGE, "label": 1})
    for number, name in enumerate("ab"):
        keys = jax.random.split(jax.random.fold_in(KEY, number), 2)
        np.testing.assert_array_equal(out[name], jnp.stack([chain(key, IMAGE) for key in keys]))
    assert out["label"] == 1
    assert not np.array_equal(out["a"], out["b"]) and not np.array_equal(out["a"][0], out["a"][1])


def test_arguments_of_views():
    crop = augment.RandomResizedCrop(8)
    with pytest.raises(ValueError, match=r"`views` must be \{name: \(chain, count\)\}"):
        augment.MultiView([crop])
    with pytest.raises(ValueError, match=r"`views\['a'\]\[1\]` must be an int of at least 1"):
        augment.MultiView({"a": (crop, 0)})
    with pytest.raises(TypeError, match="holds the class RandomResizedCrop"):
        augment.MultiView({"a": (augment.RandomResizedCrop, 1)})
    views = augment.MultiView({"a": (crop, 1)})
    with pytest.raises(ValueError, match="got 'mask' beside"):
        views(KEY, {"image": IMAGE, "mask": IMAGE[:, :, 0]})
    with pytest.raises(ValueError, match="entry 'a'"):
        views(KEY, {"image": IMAGE, "a": 1})
    flips = augment.MultiView({"a": (augment.RandomHorizontalFlip(), 1)})
    with pytest.raises(ValueError, match="images of different sizes"):
        flips(KEY, {"image": IMAGE, "size": jnp.array([30, 44], jnp.int32)})
