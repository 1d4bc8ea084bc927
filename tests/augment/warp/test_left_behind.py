"""Entries that look as if they should move with their image, and do not."""

import jax
import jax.numpy as jnp
import pytest

from jaxaug import augment

KEY = jax.random.key(0)
FLIP = augment.Compose([augment.RandomHorizontalFlip(1.0)])
IMAGE = jnp.zeros((6, 7, 3), jnp.uint8)


@pytest.mark.parametrize(
    "name, entry, kinds",
    [
        ("depth", jnp.zeros((6, 7)), '"map", "mask" or "image"'),
        ("normals", jnp.zeros((6, 7, 3)), '"map", "mask" or "image"'),
        ("landmarks", jnp.zeros((5, 2)), '"keypoints"'),
        ("points", jnp.zeros((2, 5, 3)), '"keypoints"'),
    ],
)
def test_they_are_told(name, entry, kinds):
    message = f"'{name}'.* stays where it is while the image moves.*{kinds}"
    with pytest.warns(UserWarning, match=message):
        out = FLIP(KEY, {"image": IMAGE, name: entry})
    assert out[name].shape == entry.shape
    moving = {name: kinds.split('"')[1]}
    augment.Compose(FLIP.transforms, targets=moving)(KEY, {"image": IMAGE, name: entry})


@pytest.mark.parametrize(
    "name, entry",
    [
        ("embedding", jnp.zeros((6,))),
        ("points", jnp.zeros((5, 2), jnp.int32)),
        ("tokens", jnp.zeros((7, 6))),
        ("landmarks", jnp.zeros((5, 4))),
    ],
)
def test_others_are_not(name, entry):
    FLIP(KEY, {"image": IMAGE, name: entry})


def test_where_nothing_moves_nothing_is_told():
    bright = augment.Compose([augment.ColorJitter(0.2)])
    bright(KEY, {"image": IMAGE, "depth": jnp.zeros((6, 7))})
