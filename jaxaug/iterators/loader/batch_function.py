"""The pure function of a batch: columns placed, samples transformed, groups mixed, rows blanked."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._checks import is_int
from jaxaug._typing import Key
from jaxaug.decode import ColumnDecoder
from jaxaug.iterators.loader.columns import BLANK_LABELS, blank_value, name_on_path
from jaxaug.iterators.loader.keys import BATCH_TRANSFORM, TRANSFORM, sample_keys, seed_key

Transform = Callable[[Key, dict[str, Any]], dict[str, Any]]

# On CPUs the values between two operators of one record stay in the cache, where those of a batch
# go through the memory. For smaller records (RGB images of 128 x 128) the steps of the loop would
# take longer than that.
_MIN_VALUES_IN_TURN = 3 * 2**14

_OWN_NAMES = ("index", "valid")  # entries of a batch that only the Loader may set


class BatchFunction(NamedTuple):
    """A pure function of the rows of one device.

    Attributes:
      transform, batch_transform: see `Loader`.
      decoders: of the columns, in the order in which they are placed.
      in_turn: the rows are computed one after the other, each by all cores, not all at once.
      all_valid: all rows hold records, so that none is blanked. Where a kernel gives the last
        values that would be one more pass over them.
    """

    transform: Transform | None
    batch_transform: Transform | None
    decoders: tuple[tuple[str, ColumnDecoder], ...]
    in_turn: bool
    all_valid: bool = False

    def __call__(self, seed: Array, rows: dict[str, Any]) -> tuple[dict[str, Any], Array]:
        """Return the batch, and a small array that is ready when the batch is.

        Args:
          seed: uint32[2], the words of the seed.
          rows: arrays of the form of `RowSchema.shapes`.
        """
        if self.all_valid:  # a constant, by which XLA drops the selections
            rows = rows | {"valid": jnp.ones_like(rows["valid"])}
        keys = row_keys(seed, TRANSFORM, rows["words"])
        epochs = rows["words"][:, 0].astype(jnp.int32)
        # What is only copied has no values between operators.
        mapped = jax.vmap if self.transform is None else self._mapped
        batch = mapped(self._transform_row)(
            keys, epochs, rows["valid"], rows["plain"], rows["decoded"]
        )
        if self.batch_transform is not None:
            batch = self._transform_groups(seed, rows, batch)
        return batch, jnp.logical_not(rows["valid"])

    def _mapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of one row as a function of all rows."""
        if not self.in_turn:
            return jax.vmap(function)
        return lambda *rows: lax.map(lambda row: function(*row), rows)

    def _transform_row(
        self,
        key: Key,
        epoch: Array,
        valid: Array,
        plain: dict[str, Array],
        decoded: dict[str, dict[str, Array]],
    ) -> dict[str, Any]:
        sample = self._placed(valid, plain, decoded)
        output = sample
        if self.transform is not None:
            output = self.transform(key, {"epoch": epoch, **sample})
            if isinstance(output, dict) and "epoch" not in sample:
                output = {name: value for name, value in output.items() if name != "epoch"}
        _check_output("transform", output)
        # The selection also makes the output a fresh buffer where there is no transform.
        return self._blank_unless(valid, output)

    def _placed(
        self, valid: Array, plain: dict[str, Array], decoded: dict[str, dict[str, Array]]
    ) -> dict[str, Array]:
        """Return the sample of a row."""
        sample = dict(plain)
        for name, decoder in self.decoders:
            sample |= decoder.place(name, decoded[name], decoded, valid)
        return sample

    def sample_of(self, rows: dict[str, Any]) -> dict[str, Array]:
        """Return the sample that the transform is given for the first of some rows."""
        row = jax.tree.map(lambda array: array[0], rows)
        sample = self._placed(row["valid"], row["plain"], row["decoded"])
        return {"epoch": jnp.zeros((), jnp.int32), **sample}

    def _transform_groups(
        self, seed: Array, rows: dict[str, Any], batch: dict[str, Any]
    ) -> dict[str, Any]:
        assert self.batch_transform is not None
        size = group_size(self.batch_transform)
        epochs = rows["words"][:, 0].astype(jnp.int32)
        given = "epoch" in batch
        batch = {"epoch": epochs} | batch | {"valid": rows["valid"]}
        count = len(rows["valid"]) // size
        groups = jax.tree.map(lambda x: x.reshape(count, size, *x.shape[1:]), batch)
        words = rows["words"][::size]  # of the first row of each group
        keys = row_keys(seed, BATCH_TRANSFORM, words)
        mixed = self._mapped(self.batch_transform)(keys, groups)
        if isinstance(mixed, dict):
            mixed.pop("valid", None)
            if not given:
                mixed.pop("epoch", None)
        _check_output("batch_transform", mixed)
        for path, leaf in jax.tree_util.tree_leaves_with_path(mixed):
            if leaf.ndim < 2 or leaf.shape[1] != size:
                shape = list(leaf.shape[1:])
                raise ValueError(
                    "`batch_transform` must return as many rows as it gets, `group_size` = "
                    f"{size}, got shape {shape} as output{jax.tree_util.keystr(path)}."
                )

        mixed = jax.tree.map(lambda x: x.reshape(count * size, *x.shape[2:]), mixed)
        return self._mapped(self._blank_unless)(rows["valid"], mixed)

    def _blank_unless(self, valid: Array, output: dict[str, Any]) -> dict[str, Any]:
        """Return the output of a valid row, else blank values."""
        blanks: dict[str, int | None] = {}
        for name, decoder in self.decoders:
            blanks |= decoder.blanks(name)
        known = (*BLANK_LABELS, *blanks)

        def blank(path: Sequence[Any], value: Any) -> Any:
            name = name_on_path(path, known)
            if blanks.get(name, 0) is None:
                return value
            value = jnp.asarray(value)
            fill = blank_value(name, value.dtype)
            if name in blanks and jnp.issubdtype(value.dtype, np.integer):
                fill = _fitting(name, blanks[name], value.dtype)
            return jnp.where(valid, value, jnp.full_like(value, fill))

        return jax.tree_util.tree_map_with_path(blank, output)


def _fitting(name: str, fill: Any, dtype: Any) -> int:
    """Return what rows that are not valid hold, if the dtype can hold it."""
    limits = jnp.iinfo(dtype)
    if not limits.min <= fill <= limits.max:
        raise ValueError(
            f"{name!r} must be of a dtype that holds {fill}, its value in rows that are not valid, "
            f"got {dtype}: give a wider one, or another `fill` to its decoder."
        )
    return fill


def computes_in_turn(platform: str, decoders: Mapping[str, ColumnDecoder]) -> bool:
    """Return True where rows of these columns are computed faster one after the other."""
    forms = [form for decoder in decoders.values() for form in decoder.forms().values()]
    most = max((form.size for form in forms), default=0)
    return platform == "cpu" and most >= _MIN_VALUES_IN_TURN


def row_keys(seed: Array, purpose: int, words: Array) -> Key:
    """Return the key of each row, from the seed's words uint32[2] and "words" of the rows."""
    key = jax.random.fold_in(seed_key(seed), purpose)
    position = words[:, 3:5] if words.shape[1] == 5 else None
    return sample_keys(key, words[:, 0], words[:, 1:3], position)


def _check_output(name: str, output: Any) -> None:
    """Refuse what is no dict of arrays, or sets an entry that belongs to the Loader."""
    if not isinstance(output, dict):
        got = "an array" if isinstance(output, jax.Array) else type(output).__name__
        raise TypeError(
            f"`{name}` must return a dict, as it is given one, got {got}: what is changed goes into"
            ' it, as in {**sample, "image": image}.'
        )
    if not output or not all(isinstance(key, str) for key in output):
        raise TypeError(f"`{name}` must return a dict of names and arrays, got {output!r}.")
    for key in _OWN_NAMES:
        if key in output:
            raise ValueError(
                f"`{name}` must not return {key!r}, which the Loader itself puts into a batch: "
                "give it another name."
            )

    for path, leaf in jax.tree_util.tree_leaves_with_path(output):
        where = f"output{jax.tree_util.keystr(path)}"
        if jnp.issubdtype(getattr(leaf, "dtype", bool), jax.dtypes.prng_key):
            raise TypeError(
                f"`{name}` must return arrays and numbers, got a key as {where}: return "
                "`jax.random.key_data(key)`."
            )
        try:
            if isinstance(leaf, str):
                raise TypeError  # of which `result_type` takes "int8" for a dtype
            jax.dtypes.canonicalize_dtype(jnp.result_type(leaf))
        except TypeError:
            raise TypeError(
                f"`{name}` must return arrays and numbers, got {leaf!r} as {where}."
            ) from None


def group_size(batch_transform: Transform) -> int:
    """Return the number of consecutive samples that a batch transform mixes.

    It is the attribute `group_size`, 2 where there is none.

    Raises:
      ValueError: the attribute is no int of at least 1.
    """
    size = getattr(batch_transform, "group_size", 2)
    if not is_int(size) or size < 1:
        raise ValueError(
            f"`batch_transform.group_size` must be an int of at least 1, got {size!r}."
        )
    return int(size)
