"""A user's own `jax.shard_map` around jaxaug, which splits some arguments and shares the others."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment._cuda import choice
from tests.augment.audio import test_laws as sounds
from tests.test_contract import KEYS, MESH, NAMES, always, batch, info_of, rows

SPLIT = jax.P("batch")
SHARED = jax.P()
WAYS = {"keys": (SPLIT, SHARED), "sample": (SHARED, SPLIT)}


def over_devices(function, specs, *arguments):
    """Return the traced program of a vmapped function, and its arguments on the mesh."""
    axes = tuple(0 if spec == SPLIT else None for spec in specs)
    each = jax.shard_map(jax.vmap(function, axes), mesh=MESH, in_specs=specs, out_specs=SPLIT)
    shardings = tuple(jax.NamedSharding(MESH, spec) for spec in specs)
    arguments = jax.device_put(arguments, shardings)
    return jax.jit(each).trace(*arguments), arguments


def arguments_of(way, keys, sample):
    """Return (keys, sample) with the first row of what is shared."""
    return (keys, rows(sample, 0)) if way == "keys" else (rows(keys, 0), sample)


@pytest.mark.parametrize("name", NAMES)
def test_every_transform_is_traced_with_one_argument_split(name, monkeypatch):
    """With a kernel beside XLA, where there is one: the results of both need one type."""
    monkeypatch.setattr(choice, "is_available", lambda: True)
    with jax.set_mesh(MESH):
        for way, specs in WAYS.items():
            over_devices(always(name), specs, *arguments_of(way, KEYS, batch(name)))


@pytest.mark.parametrize("name", sounds.NAMES)
def test_every_transform_of_sounds_is_traced_with_one_argument_split(name):
    transform = sounds.always(name)  # recordings made inside of the mesh would be of all devices
    with jax.set_mesh(MESH):
        for way, specs in WAYS.items():
            over_devices(transform, specs, *arguments_of(way, KEYS, sounds.batch(name)))


CHAINS = {
    "jitter": augment.Compose([augment.RandomResizedCrop(9), augment.ColorJitter(0.3, 0.3)]),
    "policy": augment.Compose([augment.TrivialAugmentWide(), augment.ToFloat()]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CHAINS)
def test_calls_and_replays_are_those_without_it(name, way):
    chain = CHAINS[name]

    def both(key, sample):
        drawn = chain.make_params(key, info_of(sample))
        return chain(key, sample), chain.apply(drawn, sample)

    given = arguments_of(way, KEYS, batch("CenterCrop"))
    with jax.set_mesh(MESH):
        traced, arguments = over_devices(both, WAYS[way], *given)
        results = traced.lower().compile()(*arguments)

    axes = tuple(0 if spec == SPLIT else None for spec in WAYS[way])
    expected = jax.jit(jax.vmap(chain, axes))(*given)
    for result in results:
        jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), result, expected)


def test_a_group_that_is_shared():
    mosaic = augment.Mosaic((16, 20), num_classes=3)
    chain = augment.GroupCompose([mosaic, augment.ColorJitter(0.3, 0.3)])
    image = jnp.zeros((mosaic.group_size, 16, 20, 3), jnp.uint8)
    group = {"image": image, "label": jnp.zeros(mosaic.group_size, jnp.int32)}
    with jax.set_mesh(MESH):
        over_devices(chain, WAYS["keys"], KEYS, group)


def test_a_video_that_is_shared_keeps_what_its_frames_share():
    video = {"image": jnp.zeros((2, 16, 20, 3), jnp.uint8), "label": jnp.int32(3)}
    frames = augment.Frames(CHAINS["jitter"])
    with jax.set_mesh(MESH):
        traced, arguments = over_devices(frames, WAYS["keys"], KEYS, video)
        result = traced.lower().compile()(*arguments)

    np.testing.assert_array_equal(result["label"], [3] * len(KEYS))


@pytest.mark.parametrize("way", WAYS)
def test_sounds_are_those_without_it(way):
    audio = augment.audio
    chain = augment.Compose([audio.TimeShift(), audio.AddNoise()])
    given = arguments_of(way, KEYS, sounds.batch("TimeShift"))
    with jax.set_mesh(MESH):
        traced, arguments = over_devices(chain, WAYS[way], *given)
        result = traced.lower().compile()(*arguments)

    axes = tuple(0 if spec == SPLIT else None for spec in WAYS[way])
    expected = jax.jit(jax.vmap(chain, axes))(*given)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), result, expected)
