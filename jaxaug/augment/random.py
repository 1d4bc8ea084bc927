"""Random numbers for the parameters of transforms: float32 and int32, whatever x64 says.

A call of the generator is the costly part of a small draw, to compile and to run. A transform with
several parameters draws all of its numbers at once, `uniform(key, shape=(7,))`, and brings each to
its range with `between`, `integer` and `order`; the other functions draw one parameter.

Numbers for pixels come from `uniform_field` and `normal_field`: that of a pixel depends on the key
and its place, not on the canvas that the image lies on.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.random import threefry_2x32

from jaxaug._typing import Key, Scalar
from jaxaug.augment._xla import barrier_on_cpu
from jaxaug.augment.matrix import is_static

_RESOLUTION = 2**23  # the numbers of [0, 1) that `jax.random.uniform` draws, of float32
_CHANNEL_BITS = 12  # of a counter of 32, above the column
_AFTER_MINUS_ONE = -1 + 2.0**-24  # the float32 after -1, where the normal quantile is finite
_PROPOSALS = 8  # each is accepted with a probability of more than 0.95


def uniform(key: Key, low: float = 0.0, high: float = 1.0, shape: tuple[int, ...] = ()) -> Array:
    """Draw float32 numbers, uniform on [low, high).

    Example:
      >>> import jax
      >>> float(uniform(jax.random.key(0), 2.0, 2.0))
      2.0
    """
    return between(jax.random.uniform(key, shape, jnp.float32), low, high)


def integers(key: Key, low: Scalar, high: Scalar, shape: tuple[int, ...] = ()) -> Array:
    """Draw int32 numbers, uniform on low, ..., high - 1; the bounds may be traced.

    Raises:
      ValueError: for static bounds with more than 8388608 numbers between them, not all of which
        would be drawn: use `jax.random.randint`.

    Example:
      >>> import jax
      >>> sorted(set(integers(jax.random.key(0), 3, 6, (40,)).tolist()))
      [3, 4, 5]
    """
    return integer(jax.random.uniform(key, shape, jnp.float32), low, high)


def permutation(key: Key, count: int) -> Array:
    """Draw int32[count], a permutation of 0, ..., count - 1, each as likely.

    Example:
      >>> import jax
      >>> sorted(permutation(jax.random.key(0), 4).tolist())
      [0, 1, 2, 3]
    """
    return order(jax.random.uniform(key, (count,), jnp.float32))


def coin(key: Key, p: Scalar) -> Array:
    """Draw a bool, True with probability `p`.

    Example:
      >>> import jax
      >>> bool(coin(jax.random.key(0), 1.0))
      True
    """
    return jax.random.uniform(key, (), jnp.float32) < p


def choice(key: Key, weights: int | Sequence[float]) -> Array:
    """Draw an int32 index, with probabilities in proportion to `weights`.

    Args:
      key: a PRNG key.
      weights: numbers of at least 0, not all 0; or an int n, for n equal ones.

    Example:
      >>> import jax
      >>> int(choice(jax.random.key(0), [0.0, 3.0, 0.0]))
      1
    """
    if isinstance(weights, int):
        return integers(key, 0, weights)
    limits = [sum(weights[: i + 1]) for i in range(len(weights))]
    number = uniform(key, 0.0, limits[-1])
    passed = number >= jnp.asarray(limits[:-1], jnp.float32)
    return jnp.sum(passed, dtype=jnp.int32)


def uniform_field(key: Key, shape: tuple[int, ...]) -> Array:
    """Draw float32[H, W] or [H, W, C], uniform on [0, 1): numbers for pixels.

    The number at [y, x, c] depends on the key, y, x and c alone. So an image gets the same numbers
    on every canvas, while `uniform(key, shape=shape)` gives others for another shape.

    Args:
      key: a PRNG key.
      shape: (H, W), the numbers of channel 0, or (H, W, C), of up to 2^20 columns and 4096
        channels.

    Raises:
      ValueError: for another shape.

    Example:
      >>> import jax
      >>> key = jax.random.key(0)
      >>> small, large = uniform_field(key, (4, 5)), uniform_field(key, (16, 9))
      >>> bool((small == large[:4, :5]).all())
      True

    Reference: J. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
    """
    bits = _field_bits(key, shape)
    ones = lax.bitcast_convert_type((bits >> 9) | jnp.uint32(0x3F800000), jnp.float32)  # [1, 2)
    return ones - 1.0


def normal_field(key: Key, shape: tuple[int, ...]) -> Array:
    """Draw float32[H, W] or [H, W, C] of the standard normal distribution: see `uniform_field`.

    Example:
      >>> import jax
      >>> numbers = normal_field(jax.random.key(0), (64, 64, 3))
      >>> print(f"{abs(numbers.mean()):.1f} {numbers.std():.1f}")
      0.0 1.0
    """
    number = jnp.maximum(2.0 * uniform_field(key, shape) - 1.0, _AFTER_MINUS_ONE)
    return math.sqrt(2) * lax.erf_inv(number)


def beta(key: Key, alpha: float, shape: tuple[int, ...] = ()) -> Array:
    """Draw float32 numbers of the symmetric Beta(alpha, alpha), in [0, 1].

    `jax.random.beta` rejects numbers in loops, each turn of which a GPU waits for. This formula has
    none.

    Example:
      >>> import jax
      >>> numbers = beta(jax.random.key(0), 0.2, (1000,))
      >>> bool(((numbers < 0.1) | (numbers > 0.9)).mean() > 0.6)
      True

    Reference: L. Devroye, "Random Variate Generation in One Line of Code", Winter Simulation
      Conference 1996.
    """
    first, second, side = uniform(key, shape=(3, *shape))
    spread = jnp.expm1(-jnp.log(first) / alpha) * jnp.cos(2 * jnp.pi * second) ** 2
    distance = 0.5 / jnp.sqrt(1 + 1 / spread)
    return jnp.where(side < 0.5, 0.5 - distance, 0.5 + distance)


def dirichlet(key: Key, alpha: float, count: int) -> Array:
    """Draw float32[count] of the symmetric Dirichlet distribution: shares that add up to 1.

    They are numbers of Gamma(alpha), each over their sum. `jax.random.dirichlet` rejects numbers in
    loops, each turn of which a GPU waits for. Here each is the first of eight proposals to be
    accepted; none is with a probability below 1e-10.

    Example:
      >>> import jax
      >>> round(float(dirichlet(jax.random.key(0), 1.0, 3).sum()), 3)
      1.0

    Reference: G. Marsaglia and W. Tsang, "A Simple Method for Generating Gamma Variables", 2000.
    """
    normal_key, uniform_key = jax.random.split(key)
    proposals = jax.random.normal(normal_key, (count, _PROPOSALS), jnp.float32)
    logs = jnp.log1p(-uniform(uniform_key, shape=(count, _PROPOSALS + 1)))  # of (0, 1]

    # Gamma(alpha) is Gamma(alpha + 1) times a uniform number to the power of 1 / alpha.
    scale = alpha + 2 / 3
    root = math.sqrt(9 * scale) if is_static(scale) else jnp.sqrt(9 * scale)
    cubes = (1 + proposals / root) ** 3
    cubes = jnp.maximum(cubes, jnp.finfo(jnp.float32).tiny)  # in place of 0: never accepted
    limits = proposals**2 / 2 + scale * (1 - cubes + jnp.log(cubes))
    first = jnp.argmax(logs[:, 1:] < limits, axis=1)
    accepted = jnp.take_along_axis(cubes, first[:, None], axis=1)[:, 0]
    return jax.nn.softmax(jnp.log(accepted) + logs[:, 0] / alpha)


def between(number: Array, low: Scalar, high: Scalar) -> Array:
    """Return a number of [0, 1) brought to [low, high).

    Example:
      >>> between(0.5, 2.0, 4.0)
      3.0
    """
    return low + number * (high - low)


def integer(number: Array, low: Scalar, high: Scalar) -> Array:
    """Return a number of [0, 1) as an int32 of low, ..., high - 1.

    Example:
      >>> int(integer(jnp.float32(0.99), 3, 6))
      5
    """
    if is_static(low) and is_static(high) and int(high) - int(low) > _RESOLUTION:
        raise ValueError(
            f"`low` and `high` must have at most {_RESOLUTION} numbers between them, all that a"
            f" float32 tells apart, got {low} and {high}: use `jax.random.randint`."
        )
    low = jnp.asarray(low, jnp.int32)
    high = jnp.asarray(high, jnp.int32)
    steps = jnp.floor(number * (high - low).astype(jnp.float32)).astype(jnp.int32)
    return jnp.minimum(low + steps, high - 1)


def order(numbers: Array) -> Array:
    """Return numbers of [0, 1) [n] as an int32[n] permutation of 0, ..., n - 1.

    Example:
      >>> order(jnp.array([0.3, 0.9, 0.1])).tolist()
      [2, 0, 1]
    """
    return jnp.argsort(numbers).astype(jnp.int32)


def _field_bits(key: Key, shape: tuple[int, ...]) -> Array:
    """Return uint32 of `shape`: 32 bits for each place."""
    if len(shape) not in (2, 3) or shape[1] > 2 ** (32 - _CHANNEL_BITS):
        expected = f"(H, W) or (H, W, C), of up to {2 ** (32 - _CHANNEL_BITS)} columns"
        raise ValueError(f"`shape` must be {expected}, got {shape}.")
    words = jax.random.bits(key, (2,), jnp.uint32)  # of a key of any implementation
    height, *rest = shape
    pairs = (-(-height // 2), *rest)

    # A hash gives two words: one for each of two rows.
    row = lax.broadcasted_iota(jnp.uint32, pairs, 0)
    place = lax.broadcasted_iota(jnp.uint32, pairs, 1)
    if len(rest) == 2:
        channel = lax.broadcasted_iota(jnp.uint32, pairs, 2)
        place = place | (channel << (32 - _CHANNEL_BITS))
    upper, lower = threefry_2x32(words, jnp.stack([row, place]))
    bits = jnp.stack([upper, lower], axis=1).reshape(2 * pairs[0], *rest)[:height]
    # Fused into what reads it, the stack costs more than the hash.
    return barrier_on_cpu(bits)
