"""Keys that belong to a record, not to its place in a batch.

A sample's key is folded from (seed, epoch, record), so the same record gets the same parameters for
any batch size, any number of devices and hosts, and after any resume.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._splitmix import fold
from jaxaug._typing import Key

# The purpose of a key is folded into its seed first, so that keys of two purposes never meet. Two
# purposes are drawn on the host, by a hash: the order of the records, by `samplers/sampler.py`, and
# what decoders show of them.
TRANSFORM = 1
BATCH_TRANSFORM = 2
_DECODE = int.from_bytes(b"decode", "big")  # no epoch of an order, whose keys it must not meet


def seed_key(words: Array) -> Key:
    """Return `jax.random.key(seed, impl="threefry2x32")` from the seed's words.

    Args:
      words: uint32[2], the (high, low) words of a 64-bit seed.

    Example:
      >>> bool(seed_key(np.array([0, 7], np.uint32)) == jax.random.key(7, impl="threefry2x32"))
      True
    """
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def split_words(number: "int | np.ndarray | Array") -> tuple:
    """Return the (high, low) 32-bit words of a 64-bit number.

    Example:
      >>> split_words(2**32 + 5)
      (1, 5)
    """
    return (number >> 32) & 0xFFFFFFFF, number & 0xFFFFFFFF


def sample_keys(
    key: Key,
    epoch: "int | Array",
    index: "np.ndarray | Array",
    position: "np.ndarray | Array | None" = None,
) -> Key:
    """Return the keys of the records `index` in `epoch`: key[n].

    Epoch, index and position are folded into `key` one after another, the epoch as one word of 32
    bits, the others by their high and their low word.

    Args:
      key: the key of the purpose, as in `jax.random.fold_in(jax.random.key(seed), 1)` for
        transforms.
      epoch: the number of the epoch, from 0; uint32[n] where the records differ in it.
      index: int[n] record numbers, or uint32[n, 2] (high, low) words.
      position: the positions of the records in the epoch, in the form of `index`; given where a
        sampler draws with replacement, so that a record drawn twice has two keys.

    Example:
      >>> keys = sample_keys(jax.random.key(0), 0, np.array([3, 8, 3]))
      >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
      (True, False)
    """
    records = _word_pairs(index)
    # Sums with zeros: on an Explicit mesh all columns must be split as the records are.
    zeros = jnp.zeros_like(records)
    columns = [zeros[:, :1] + jnp.asarray(epoch, "uint32").reshape(-1, 1), records]
    if position is not None:
        columns.append(zeros + _word_pairs(position))

    words = jnp.concatenate(columns, axis=1)
    return jax.vmap(_fold_words, in_axes=(None, 0))(key, words)


def decode_keys(
    seed: int, epoch: int, index: np.ndarray, position: "np.ndarray | None" = None
) -> np.ndarray:
    """Return what decoders draw from on the host, by the rule of `sample_keys`: uint64[n].

    Args:
      seed: of the Loader.
      epoch: the number of the epoch.
      index: int64[n], the records.
      position: int64[n], their positions in the epoch, where records repeat.

    Example:
      >>> keys = decode_keys(0, 0, np.array([3, 8, 3]))
      >>> bool(keys[0] == keys[2] != keys[1])
      True
    """
    key = np.zeros(1, np.uint64)
    for word in (seed, _DECODE, epoch, index):
        key = fold(key, word)
    return key if position is None else fold(key, position)


def _word_pairs(numbers: "np.ndarray | Array") -> Array:
    """Return int[n] numbers as words uint32[n, 2]; words stay as they are."""
    if numbers.ndim == 2:
        return jnp.asarray(numbers, "uint32")
    wide = numbers.dtype.itemsize == 8
    high, low = split_words(numbers) if wide else (jnp.zeros_like(numbers), numbers)
    return jnp.stack([jnp.asarray(high, "uint32"), jnp.asarray(low, "uint32")], axis=1)


def _fold_words(key: Key, words: Array) -> Key:
    """Fold each uint32 of `words` [k] into `key`, first to last."""
    for column in range(words.shape[0]):
        key = jax.random.fold_in(key, words[column])
    return key
