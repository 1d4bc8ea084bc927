"""Columns as bytes of a row: they come back as they were, also in a compiled call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug.iterators.loader.rows import RowPacking

N = 5
FORMS = [
    (np.bool_, ()),
    (np.int8, (2,)),
    (np.uint8, (4, 3)),
    (np.int16, ()),
    (np.float16, (3,)),
    (jnp.bfloat16, (2, 2)),
    (np.int32, (0, 4)),
    (np.uint32, (3,)),
    (np.int32, ()),
    (np.float32, (2, 1, 3)),
]


def columns():
    rng = np.random.default_rng(3)
    tree = {}
    for number, (dtype, shape) in enumerate(FORMS):
        tree[f"{number}"] = rng.integers(-100, 100, (N, *shape)).astype(dtype)
    return {"outer": tree, "empty": {}}


def test_columns_of_all_kinds_come_back():
    tree = columns()
    packing = RowPacking(tree)
    (packed,) = packing.pack(tree)
    size = sum(column[0].nbytes for column in tree["outer"].values())
    assert packed.dtype == np.uint8 and packed.shape == (N, size)
    assert [(each.shape, each.dtype) for each in packing.shapes] == [((N, size), np.uint8)]

    for unpack in (packing.unpack, jax.jit(packing.unpack)):
        found = unpack([packed])
        assert found.keys() == tree.keys() and found["empty"] == {}
        for name, column in tree["outer"].items():
            assert found["outer"][name].dtype == column.dtype
            np.testing.assert_array_equal(found["outer"][name], column)


def test_large_columns_travel_alone():
    tree = {
        "a": np.arange(N, dtype=np.int32),
        "mask": np.ones((N, 40, 50), np.uint8),
        "z": np.arange(N, dtype=np.uint8),
    }
    packing = RowPacking(tree)
    packed, mask = packing.pack(tree)
    assert packed.shape == (N, 5) and mask is tree["mask"]
    found = jax.jit(packing.unpack)([packed, mask])
    for name, column in tree.items():
        np.testing.assert_array_equal(found[name], column)


def test_a_column_of_another_dtype_is_not_converted():
    packing = RowPacking({"label": jax.ShapeDtypeStruct((N,), np.int32)})
    with pytest.raises(TypeError, match="int64"):
        packing.pack({"label": np.arange(N)})
