"""The keys of records: stored values, and what they depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug import Loader
from jaxaug.iterators import InMemory, Weighted, sample_keys
from jaxaug.iterators.loader.keys import BATCH_TRANSFORM, TRANSFORM, seed_key, split_words
from jaxaug.sharding import batch_sharding
from tests.images import jpegs


def key_bits(keys):
    return [tuple(bits) for bits in np.asarray(jax.random.key_data(keys)).tolist()]


@pytest.mark.parametrize(
    "seed, purpose, epoch, index, expected",
    [
        (0, TRANSFORM, 0, 0, (2997799507, 312763045)),
        (7, TRANSFORM, 3, 17, (1065161947, 2940310749)),
        (2**32 + 5, TRANSFORM, 2, 2**32 + 9, (3631786643, 3653766872)),
        (7, BATCH_TRANSFORM, 3, 17, (1894573202, 2425423211)),
    ],
)
def test_stored_keys(seed, purpose, epoch, index, expected):
    """Never change these: runs that are resumed draw their parameters by them."""
    root = jax.random.fold_in(seed_key(np.array(split_words(seed), np.uint32)), purpose)
    words = np.array([split_words(index)], np.uint32)
    assert key_bits(sample_keys(root, epoch, words)) == [expected]


ONE = batch_sharding(jax.devices("cpu")[:1])


def show_key(key, sample):
    return {"image": sample["image"][:1, :1], "key": jax.random.key_data(key)}


def show_group_key(key, group):
    return group | {"group": jnp.broadcast_to(jax.random.key_data(key), (2, 2))}


@pytest.mark.parametrize(
    "shuffle, index, keys, group_keys, sampled",
    [
        (
            True,
            [2, 3, 1, 0],
            [
                (1369766937, 3895194207),
                (3006257493, 3131814112),
                (1683499015, 820705502),
                (3761565832, 4180991381),
            ],
            [(2598178020, 3359808382), (1878827394, 1608828266)],
            (1369766937, 3895194207),
        ),
        (
            Weighted(np.arange(1.0, 5.0), seed=3),
            [0, 0, 1, 3],
            [
                (3486300111, 2545650310),
                (250982509, 2712013320),
                (3589512509, 3867535615),
                (2606513275, 1599008116),
            ],
            [(3291625253, 3363280359), (3209311041, 1798370054)],
            (1128969027, 110366825),
        ),
    ],
)
def test_stored_keys_of_a_loader(shuffle, index, keys, group_keys, sampled):
    """Never change these: the keys of epoch 1, and of record 2 at its position 3."""
    with Loader(
        InMemory(jpegs(4)),
        4,
        transform=show_key,
        batch_transform=show_group_key,
        seed=2**40 + 11,
        shuffle=shuffle,
        sharding=ONE,
    ) as loader:
        next(loader)
        batch = next(loader)
        sample = loader.sample(2, 1, position=3)
    assert batch["index"].tolist() == index
    assert batch["key"].tolist() == [list(key) for key in keys]
    assert batch["group"][::2].tolist() == [list(key) for key in group_keys]
    assert key_bits(sample["key"][None]) == [sampled]
    assert sample["sample"]["key"].tolist() == list(sampled)


def test_sample_keys_belong_to_epoch_and_record():
    root = jax.random.key(3)
    indices = np.arange(100)
    keys = key_bits(sample_keys(root, 0, indices))
    assert len(set(keys)) == 100
    assert key_bits(sample_keys(root, 0, indices[::-1])) == keys[::-1]
    assert not set(keys) & set(key_bits(sample_keys(root, 1, indices)))


def test_sample_keys_fold_both_words():
    wide = np.array([[0, 5], [1, 5]], np.uint32)
    keys = key_bits(sample_keys(jax.random.key(0), 0, wide))
    assert (
        keys[0] == key_bits(sample_keys(jax.random.key(0), 0, np.array([5])))[0]
        and keys[0] != keys[1]
    )


@pytest.mark.parametrize("number", [7, 2**31 + 7, 2**32 + 7, 2**40 + 7])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_sample_keys_of_large_numbers_are_those_of_their_words(number, dtype):
    words = np.array([split_words(number)], np.uint32)
    root = jax.random.key(0)
    numbers = np.array([number], dtype)
    assert key_bits(sample_keys(root, 0, numbers)) == key_bits(sample_keys(root, 0, words))
    found = key_bits(sample_keys(root, 0, words, numbers))
    assert found == key_bits(sample_keys(root, 0, words, words))


@pytest.mark.parametrize("seed", [9, 2**40 + 9])
def test_sample_keys_are_the_keys_of_a_loader_for_users_of_both(seed):
    root = jax.random.fold_in(jax.random.key(seed % 2**32), TRANSFORM)
    if seed >= 2**32:  # without x64, jax.random.key takes 32 bits
        root = jax.random.fold_in(seed_key(np.array(split_words(seed), np.uint32)), TRANSFORM)
    with Loader(InMemory(jpegs(4)), 4, seed=seed, sharding=ONE) as loader:
        sampled = loader.sample(3, epoch=4)["key"]
    assert key_bits(sample_keys(root, 4, np.array([3]))) == key_bits(sampled[None])


def test_positions_tell_repeated_records_apart():
    root = jax.random.key(3)
    twice = np.array([5, 5])
    keys = key_bits(sample_keys(root, 0, twice, np.array([0, 1])))
    assert keys[0] != keys[1]
    folded = root
    for word in (0, 0, 5, 0, 1):  # epoch, the words of the record, those of the position
        folded = jax.random.fold_in(folded, word)
    assert keys[1] == key_bits(folded[None])[0]


def test_each_record_may_have_an_epoch_of_its_own():
    root = jax.random.key(3)
    mixed = key_bits(sample_keys(root, jnp.array([2, 0], jnp.uint32), np.array([5, 5])))
    assert mixed == [key_bits(sample_keys(root, e, np.array([5])))[0] for e in (2, 0)]


@pytest.mark.parametrize("epoch", [4, np.arange(8)], ids=["one epoch", "epochs"])
@pytest.mark.parametrize("position", [None, np.arange(8)], ids=["without", "positions"])
def test_keys_are_split_as_the_records_on_an_explicit_mesh(epoch, position):
    """As the "index" of a batch is: jax.make_mesh makes Explicit axes unless told otherwise."""
    devices = jax.devices("cpu")[:4]
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,), devices=devices)
    root = jax.random.key(3)
    expected = key_bits(sample_keys(root, epoch, np.arange(8), position))
    with jax.set_mesh(mesh):
        index = jax.device_put(np.arange(8), NamedSharding(mesh, P("d")))
        keys = jax.jit(sample_keys)(root, epoch, index, position)
    assert keys.sharding.spec == P("d")
    assert key_bits(keys) == expected


def test_seeds_above_32_bits_stay_apart():
    keys = [seed_key(np.array(split_words(seed), np.uint32)) for seed in (5, 2**32 + 5, 2**63 + 5)]
    assert len({key_bits(key[None])[0] for key in keys}) == 3


def test_seeds_of_any_size_have_two_words():
    for number in (0, 7, 2**32 + 5, 2**64 - 1, 2**64, 2**70 + 2**40 + 3, -1, -(2**40)):
        high, low = split_words(number)
        assert 0 <= low < 2**32 and high * 2**32 + low == number % 2**64
