"""The few type names that more than one layer uses. Shapes stand in the docstrings."""

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import numpy as np

Array: TypeAlias = jax.Array
Device: TypeAlias = Any  # jax.Device, which type checkers take for a variable
Key: TypeAlias = jax.Array  # a typed PRNG key, `jax.random.key(seed)`
Scalar: TypeAlias = float | jax.Array
Sample: TypeAlias = dict[
    str, Any
]  # {"image": uint8 | float [H, W, 3], "size"?: int32[2], "label"?, "boxes"?, ...}
Features: TypeAlias = Mapping[str, np.ndarray]  # per record columns of a source, first axis n
PathLike: TypeAlias = str | os.PathLike[str]
