"""Counter hashes on the host: 64-bit words by the mixer of SplitMix64.

The step and the multipliers are those of Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014, figure 18, the latter David Stafford's "mix 13" of the MurmurHash3
finalizer.
"""

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_MASK_64_BITS = (1 << 64) - 1


def mix(values: np.ndarray) -> np.ndarray:
    """Return SplitMix64's output function of 64-bit words.

    It is a bijection in which each output bit depends on all input bits.
    """
    values = (values ^ (values >> _SHIFTS[0])) * _MULTIPLIERS[0]
    values = (values ^ (values >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return values ^ (values >> _SHIFTS[2])


def stream(keys: np.ndarray, count: int) -> np.ndarray:
    """Return uint64[count, k], the first words of SplitMix64 started at each key uint64[k]."""
    steps = np.arange(1, count + 1, dtype=np.uint64)
    return mix(steps[:, None] * GOLDEN + keys)


def uniform(keys: np.ndarray, counters: np.ndarray) -> np.ndarray:
    """Return float64 in [0, 1), multiples of 2^-53: one for each key and counter, uint64 both."""
    return (mix(counters * GOLDEN + keys) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def fold(keys: np.ndarray, numbers: "int | np.ndarray") -> np.ndarray:
    """Return keys uint64[k] that depend on keys uint64[1] or [k], and on an int, or int64[k].

    Of an int of more bits the low 64 count. Mixing in between keeps the numbers (1, 2) and (2, 1)
    apart.
    """
    if not isinstance(numbers, np.ndarray):
        numbers = np.array(int(numbers) & _MASK_64_BITS, np.uint64)
    return mix(GOLDEN + keys + numbers.astype(np.uint64))
