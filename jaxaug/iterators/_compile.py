"""The one compiled call of a batch: masks placed, samples transformed, groups mixed, blank rows
blanked.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Array, Device, Key
from jaxaug.iterators._features import blank_value, fill_of
from jaxaug.iterators._place import place_mask
from jaxaug.sharding._keys import (
    BATCH_TRANSFORM,
    TRANSFORM,
    sample_keys,
    seed_key,
    split_words,
)
from jaxaug.sharding._mesh import auto_mesh

Transform = Callable[[Key, dict[str, Any]], dict[str, Any]]

_SHARED_CALLS = 8  # compiled calls that outlive their Loader
_OWN_NAMES = ("index", "valid")  # entries of a batch that only the Loader may set

# What a trace depends on beside its arguments; thread-local in `with jax.enable_x64():` and its
# like.
_TRACE_CONFIG = (
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_matmul_precision",
    "jax_threefry_partitionable",
    "jax_debug_nans",
    "jax_disable_jit",
)


class BatchFunction(NamedTuple):
    """A pure function of the rows of one device.

    Attributes:
      transform, batch_transform: see `Loader`.
      mask_fill: the value of masks outside of the image.
      canvas: (H, W) of the images.
    """

    transform: Transform | None
    batch_transform: Transform | None
    mask_fill: int
    canvas: tuple[int, int]

    def __call__(self, seed: Array, rows: dict[str, Any]) -> tuple[dict[str, Any], Array]:
        """Return the batch, and a small array that is ready when the batch is."""
        keys = row_keys(seed, TRANSFORM, rows["words"])
        batch = jax.vmap(self._transform_one)(
            keys, rows["valid"], rows["sample"], rows["placement"]
        )
        if self.batch_transform is not None:
            batch = self._mix(seed, rows, batch)
        return batch, jnp.logical_not(rows["valid"])

    def _transform_one(
        self,
        key: Key,
        valid: Array,
        sample: dict[str, Array],
        placement: dict[str, Array],
    ) -> dict[str, Any]:
        sample = dict(sample)
        sample["image"] = _three_channels(sample["image"])
        if "mask" in sample:
            fill = fill_of(sample["mask"].dtype, self.mask_fill)
            sample["mask"] = place_mask(sample["mask"], **placement, canvas=self.canvas, fill=fill)

        output = sample
        if self.transform is not None:
            output = self.transform(key, sample)
        _check_output("transform", output)
        # The selection also makes the output a fresh buffer where there is no transform.
        return self._blank(output, valid)

    def _mix(self, seed: Array, rows: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        assert self.batch_transform is not None
        size = group_size(self.batch_transform)
        groups = jax.tree.map(
            lambda x: x.reshape(-1, size, *x.shape[1:]), batch | {"valid": rows["valid"]}
        )
        keys = row_keys(seed, BATCH_TRANSFORM, rows["words"][::size])  # the first row of each group
        mixed = jax.vmap(self.batch_transform)(keys, groups)
        if isinstance(mixed, dict):
            mixed.pop("valid", None)
        _check_output("batch_transform", mixed)
        _check_group(mixed, size)

        mixed = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), mixed)
        return jax.vmap(self._blank)(mixed, rows["valid"])

    def _blank(self, output: dict[str, Any], valid: Array) -> dict[str, Any]:
        """Return the output of a valid row, else its blank values; "size" is the canvas's own
        already.
        """

        def blank(name: str, value: Any) -> Array:
            value = jnp.asarray(value)
            fill = blank_value(name, value.dtype, self.mask_fill)
            return jnp.where(valid, value, jnp.full_like(value, fill))

        return {
            name: value if name == "size" else jax.tree.map(functools.partial(blank, name), value)
            for name, value in output.items()
        }


def key_words(epoch: int, indices: np.ndarray, positions: np.ndarray | None) -> np.ndarray:
    """Return the words that make the keys of rows, in the form that `row_keys` takes.

    Args:
      epoch: the epoch of all rows.
      indices: int64[n], the records.
      positions: int64[n], their positions in the epoch where records repeat, else None.

    Returns:
      uint32[n, 3], or uint32[n, 5] with positions.
    """
    columns = [np.full(len(indices), epoch, np.int64), *split_words(indices)]
    if positions is not None:
        columns += split_words(positions)
    return np.stack(columns, axis=1).astype(np.uint32)


def row_keys(seed: Array, purpose: int, words: Array) -> Key:
    """Return the key of each row, from the seed's words uint32[2] and those of `key_words`."""
    key = jax.random.fold_in(seed_key(seed), purpose)
    position = words[:, 3:5] if words.shape[1] == 5 else None
    return sample_keys(key, words[:, 0], words[:, 1:3], position)


def _three_channels(image: Array) -> Array:
    """Return a gray image [H, W] or [H, W, 1] with its channel repeated."""
    if image.ndim == 2:
        image = image[..., None]
    return jnp.broadcast_to(image, (*image.shape[:2], 3))


def _check_output(name: str, output: Any) -> None:
    if not isinstance(output, dict):
        raise TypeError(
            f"`{name}` must return a dict, as it is given one, got {type(output).__name__}."
        )
    if not output or not all(isinstance(key, str) for key in output):
        raise TypeError(f"`{name}` must return a dict of names and arrays, got {output!r}.")
    if taken := [key for key in _OWN_NAMES if key in output]:
        raise ValueError(
            f"`{name}` must not return {taken[0]!r}, which the Loader itself puts into a batch: give it another name."
        )
    for path, leaf in jax.tree_util.tree_leaves_with_path(output):
        try:
            jax.dtypes.canonicalize_dtype(jnp.result_type(leaf))
        except TypeError:
            raise TypeError(
                f"`{name}` must return arrays and numbers, got {leaf!r} as output{jax.tree_util.keystr(path)}."
            ) from None


def _check_group(mixed: dict[str, Any], size: int) -> None:
    """Refuse outputs [groups, ...] of a batch transform that do not keep the rows of a group."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(mixed):
        if leaf.ndim < 2 or leaf.shape[1] != size:
            raise ValueError(
                f"`batch_transform` must return as many rows as it gets, `group_size` = {size}, got shape "
                f"{list(leaf.shape[1:])} as output{jax.tree_util.keystr(path)}."
            )


def group_size(batch_transform: Transform) -> int:
    """Return how many consecutive samples a batch transform mixes: its `group_size`, 2 where it has
    none.

    Raises:
      ValueError: it is no int of at least 1.
    """
    size = getattr(batch_transform, "group_size", 2)
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
        raise ValueError(
            f"`batch_transform.group_size` must be an int of at least 1, got {size!r}."
        )
    return int(size)


class CompiledBatch(NamedTuple):
    """A compiled `BatchFunction`.

    Attributes:
      call: (seed words, rows) -> (batch, ready), on the rows of all local devices.
      shapes: the local batch as a tree of jax.ShapeDtypeStruct.
    """

    call: Callable[[Array, dict[str, Any]], tuple[dict[str, Any], Array]]
    shapes: dict[str, Any]


def compile_batch(
    function: BatchFunction, rows: dict[str, Any], devices: Sequence[Device]
) -> CompiledBatch:
    """Compile the call for rows of these shapes, on a mesh of our own, whatever mesh the caller has
    set.

    A function that is equal in value to an earlier one, and holds no function of the user's, shares
    its call.

    Args:
      function: the function.
      rows: a tree of (shape, dtype) pairs, `ShapeDtypeStruct`s without sharding.
      devices: those that share the rows, in their order.

    Raises:
      Exception: whatever the transforms raise when they are traced.
    """
    key = value_key(function)
    if key is None:
        return _compile(function, rows, devices)
    leaves, tree = jax.tree.flatten(rows)
    config = tuple(str(getattr(jax.config, name, None)) for name in _TRACE_CONFIG)
    shapes = tuple((leaf.shape, np.dtype(leaf.dtype).str) for leaf in leaves)
    return _SHARED.get((key, str(tree), shapes, tuple(devices), config), function, rows, devices)


def _compile(
    function: BatchFunction, rows: dict[str, Any], devices: Sequence[Device]
) -> CompiledBatch:
    mesh = auto_mesh(devices)
    replicated = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec("batch"))
    seed = jax.ShapeDtypeStruct((2,), np.uint32, sharding=replicated)
    rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=split), rows)
    mapped = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec("batch")),
        out_specs=PartitionSpec("batch"),
        check_vma=False,  # per-sample mathematics: nothing varies or is shared across devices
    )
    with no_mesh():
        lowered = jax.jit(mapped).lower(seed, rows)
        compiled = lowered.compile()

    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), lowered.out_info[0])
    return CompiledBatch(compiled, shapes)


class _SharedCalls:
    """The last few compiled calls by value."""

    def __init__(self, limit: int):
        self._limit = limit
        self._calls: dict[Any, CompiledBatch] = {}

    def get(
        self, key: Any, function: BatchFunction, rows: dict[str, Any], devices: Sequence[Device]
    ) -> CompiledBatch:
        call = self._calls.pop(key, None) or _compile(function, rows, devices)
        self._calls[key] = call  # the newest last
        while len(self._calls) > self._limit:
            self._calls.pop(next(iter(self._calls)), None)
        return call


_SHARED = _SharedCalls(_SHARED_CALLS)


def value_key(value: Any) -> Any:
    """Return a hashable that is equal for equal configurations; None for what may hold a function
    or an array.

    Values are told apart by type, so that 1, 1.0 and True are three.

    Example:
      >>> value_key((1, "a")) == value_key((1, "a")), value_key((1,)) == value_key((1.0,))
      (True, False)
      >>> value_key((1, print)) is None
      True
    """
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return type(value), repr(value)
    if isinstance(value, tuple):
        parts = [value_key(part) for part in value]
    elif _is_frozen(value):
        parts = [value_key(getattr(value, field.name)) for field in dataclasses.fields(value)]
    else:
        return None
    return None if None in parts else (type(value), tuple(parts))


def _is_frozen(value: Any) -> bool:
    """Return True for an instance of a frozen dataclass whose fields are all there is to it."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen or not parameters.eq:
        return False
    return getattr(value, "__dict__", {}).keys() <= {
        field.name for field in dataclasses.fields(value)
    }
