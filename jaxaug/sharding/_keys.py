"""Keys that belong to a record, not to its place in a batch.

A sample's key is folded from (seed, epoch, record), so the same record gets the same parameters for
any batch size, any number of devices and hosts, and after any resume.
"""

import jax
import numpy as np

from jaxaug._typing import Array, Key

# The purposes a seed is spent on are folded in first, so that their keys never meet. The order of
# the records is the third purpose; it is drawn on the host (iterators/_sampler.py) with a hash of its
# own.
TRANSFORM = 1
BATCH_TRANSFORM = 2


def seed_key(words: Array) -> Key:
    """`jax.random.key(seed, impl="threefry2x32")` of the (high, low) words uint32[2] of a 64-bit
    seed.

    Example:
      >>> bool(seed_key(np.array([0, 7], np.uint32)) == jax.random.key(7, impl="threefry2x32"))
      True
    """
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def split_words(number: "int | np.ndarray") -> tuple:
    """The (high, low) 32-bit words of a 64-bit number.

    Example:
      >>> split_words(2**32 + 5)
      (1, 5)
    """
    return (number >> 32) & 0xFFFFFFFF, number & 0xFFFFFFFF


def fold_words(key: Key, words: Array) -> Key:
    """Fold each uint32 of `words` [k] into `key`, first to last."""
    for position in range(words.shape[0]):
        key = jax.random.fold_in(key, words[position])
    return key


def sample_keys(key: Key, epoch: int, index: "np.ndarray | Array") -> Key:
    """The keys of the records `index` in `epoch`: key[n].

    Args:
      key: the key of the purpose, as in `jax.random.fold_in(jax.random.key(seed), 1)` for
        transforms.
      epoch: the number of the epoch, from 0.
      index: int[n] record numbers below 2^31, or uint32[n, 2] (high, low) words.

    Example:
      >>> keys = sample_keys(jax.random.key(0), 0, np.array([3, 8, 3]))
      >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
      (True, False)
    """
    if index.ndim == 1:
        low = jax.numpy.asarray(index, dtype="uint32")
        index = jax.numpy.stack([jax.numpy.zeros_like(low), low], axis=1)
    key = jax.random.fold_in(key, np.uint32(epoch))
    return jax.vmap(lambda words: fold_words(key, words))(index)
