"""Type names that several layers share. Shapes are in the docstrings."""

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import numpy as np

Device: TypeAlias = Any  # jax.Device, which type checkers take for a variable
Key: TypeAlias = jax.Array  # a typed PRNG key, `jax.random.key(seed)`
Scalar: TypeAlias = float | jax.Array
# {"image": uint8 | float [H, W, 3], "size"?: int32[2], "label"?, "boxes"?, ...}
Sample: TypeAlias = dict[str, Any]
# the columns of a source by name, one row for each record
Features: TypeAlias = Mapping[str, np.ndarray]
# Of a column of a source, for some records: an array of NumPy [n, ...], `decode.Encoded` or
# `decode.Ragged`.
Values: TypeAlias = Any
PathLike: TypeAlias = str | os.PathLike[str]
