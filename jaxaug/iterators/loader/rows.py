"""The rows of a batch: what the host gives to the compiled call, in which form, and packed."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._cached import cached_property
from jaxaug.decode import ColumnDecoder, Ragged
from jaxaug.decode._column import Column
from jaxaug.iterators.loader.columns import Form, Forms
from jaxaug.iterators.loader.decode import DecodedBatch
from jaxaug.iterators.loader.keys import split_words
from jaxaug.iterators.loader.reader import ReadBatch

ROW_NAMES = ("words", "valid", "index")  # what a row has beside values, see `RowSchema.names`

# A column of more bytes in each row, such as masks, travels alone: packing copies it once more.
MAX_COLUMN_BYTES = 1024


@dataclasses.dataclass(frozen=True)
class RowSchema:
    """The form of the rows that a process makes of a batch.

    Attributes:
      forms: of the columns of the source.
      decoders: fitted, by column, each behind the one that it follows.
      with_replacement: positions are part of the keys.
      wide_index: the numbers of records need two words.
      bounded: the columns that are cut to the bound of a bucket.
      bound: None where none are.
    """

    forms: Forms
    decoders: Mapping[str, ColumnDecoder]
    with_replacement: bool
    wide_index: bool
    bounded: tuple[str, ...] = ()
    bound: float | None = None

    def within(self, of: str, bound: float) -> "RowSchema":
        """Return the form of rows of a bucket, whose records of column `of` have a bound.

        Raises:
          ValueError: there is no such column, or it has no lengths of its own, as a mask, or
            those of the one that it follows.
        """
        forms = dict(self.forms)
        decoders = dict(self.decoders)
        leader = decoders[of].follows() if of in decoders else None
        if leader in decoders and _has_lengths(decoders[leader]):
            raise ValueError(
                f"`shuffle`: `of` must name {leader!r}, which column {of!r} follows, so that both "
                f"are cut, got {of!r}."
            )
        bounded = [of]
        if of in decoders:
            for name, decoder in decoders.items():
                if name == of or decoder.follows() in bounded:
                    bounded.append(name)
                    decoders[name] = decoder.within(bound)
        plain = of in forms and of not in decoders and forms[of].kind == "Ragged"
        if plain:
            most = min(forms[of].max_length, math.ceil(bound))
            forms[of] = forms[of]._replace(max_length=most)
        elif of not in decoders or not _has_lengths(decoders[of]):
            kind = type(decoders[of]).__name__ if of in decoders else forms.get(of, "none")
            raise ValueError(
                "`shuffle`: `of` must name a column with lengths, such as one of Audio, Image, "
                f"Tokenized or arrays of different lengths, among {sorted(forms)}, got {of!r}, "
                f"which is {kind}: leave `of` out, and batches have the longest form."
            )
        return dataclasses.replace(
            self, forms=forms, decoders=decoders, bounded=tuple(dict.fromkeys(bounded)), bound=bound
        )

    def shapes(self, count: int) -> dict[str, Any]:
        """Return the tree of the shapes of `count` rows, as `arrays` gives them."""

        def rows(dtype: Any, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((count, *shape), dtype)

        plain: dict[str, Any] = {}
        for name, form in self._plain().items():
            if form.kind == "Ragged":
                plain[f"{name}_length"] = rows(np.int32, ())
            longest = (form.max_length,) if form.kind == "Ragged" else ()
            plain[name] = rows(form.dtype, (*longest, *form.shape))

        decoded = {}
        for name, decoder in self.decoders.items():
            forms = decoder.forms().items()
            decoded[name] = {key: rows(form.dtype, form.shape) for key, form in forms}
        return {
            "words": rows(np.uint32, (5 if self.with_replacement else 3,)),
            "valid": rows(np.bool_, ()),
            "index": rows(np.uint32, (2,)) if self.wide_index else rows(np.int32, ()),
            "plain": plain,
            "decoded": decoded,
        }

    def arrays(self, decoded: DecodedBatch) -> dict[str, Any]:
        """Return the rows of a batch."""
        read = decoded.read
        plain: dict[str, Any] = {}
        for name, form in self._plain().items():
            values = read.columns[name]
            if isinstance(values, Ragged):
                if name in self.bounded:
                    longer = np.minimum(values.lengths, values.max_length) > form.max_length
                    self._check_bound(name, longer & decoded.valid, read.indices)
                    values = values._replace(max_length=form.max_length)
                plain[f"{name}_length"] = values.padded_lengths
                values = values.padded()
            plain[name] = values

        arrays = {name: decoded.columns[name].arrays for name in self.decoders}
        for name in self.bounded:
            if name in arrays:
                longer = self.decoders[name].exceeds(arrays[name])
                self._check_bound(name, longer & decoded.valid, read.indices)
                arrays[name] = self._cut(name, arrays[name])
        names = self.names(read, read.indices, decoded.valid)
        return {**names, "plain": plain, "decoded": arrays}

    def _cut(self, name: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first parts of the arrays of a column of a bucket, in its form."""
        decoder = self.decoders[name]
        forms = decoder.forms()
        return {
            key: array
            if key in decoder.on_device
            else array[:, *(slice(side) for side in forms[key].shape)]
            for key, array in arrays.items()
        }

    def _check_bound(self, name: str, longer: np.ndarray, indices: np.ndarray) -> None:
        """Raise ValueError where rows bool[n] are longer than the bound of their bucket."""
        if longer.any():
            raise ValueError(
                f"column {name!r}: record {int(indices[longer.argmax()])} is longer than"
                f" {self.bound:g}, the bound of its bucket: the `lengths` of `shuffle` must be"
                " those of the column."
            )

    def names(self, batch: ReadBatch, indices: np.ndarray, valid: np.ndarray) -> dict[str, Any]:
        """Return what rows have beside values: the words of their keys, and their records.

        The entry "index" is int32[n], or words uint32[n, 2] of large numbers.

        Args:
          batch: of the rows.
          indices: int64[n], their records.
          valid: bool[n], the rows that hold a decoded record.
        """
        words = self.words(batch.span.epoch, batch.positions, indices)
        return {"words": words, "valid": valid, "index": self._index(words)}

    def words(self, epoch: int, positions: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Return the words of the keys of records int64[n] at positions of an epoch."""
        words = np.empty((len(indices), 5 if self.with_replacement else 3), np.uint32)
        words[:, 0] = epoch & 0xFFFFFFFF
        words[:, 1], words[:, 2] = split_words(indices)
        if self.with_replacement:
            words[:, 3], words[:, 4] = split_words(positions)
        return words

    def kept_names(self, words: Array) -> dict[str, Array]:
        """Return `names` of rows that all hold a record, on the device, by their words."""
        return {
            "words": words,
            "valid": jnp.ones(len(words), bool),
            "index": self._index(words),
        }

    def _index(self, words: Any) -> Any:
        """Return the numbers of records by the words of their keys."""
        return words[:, 1:3] if self.wide_index else words[:, 2].astype(np.int32)

    def extents(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return how far the values of rows are used: a tree like them, None where in full."""
        decoded = values["decoded"]
        return self._tree_of({name: d.extents(decoded[name]) for name, d in self.decoders.items()})

    def expected_extents(self, columns: Mapping[str, Column]) -> dict[str, Any]:
        """Return what `extents` will give of all records, or of a sample of them."""
        return self._tree_of(
            {name: each.expected_extents(columns[name]) for name, each in self.decoders.items()}
        )

    def _tree_of(self, extents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return what arrays of columns have as a tree like the values of rows."""
        decoded = {
            name: {key: extents[name].get(key) for key in arrays}
            for name, arrays in self._blank["decoded"].items()
        }
        return self._blank | {"decoded": decoded}

    @cached_property
    def _blank(self) -> dict[str, Any]:
        """A tree like the values of rows, of None alone."""
        shapes = self.shapes(1)
        decoded = {name: dict.fromkeys(arrays) for name, arrays in shapes["decoded"].items()}
        return {"plain": dict.fromkeys(shapes["plain"]), "decoded": decoded}

    def split(self, rows: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a tree of rows without what lies on the devices already, and that, by column."""
        host = {}
        device = {}
        for name, arrays in rows["decoded"].items():
            there = self.decoders[name].on_device
            device[name] = {key: value for key, value in arrays.items() if key in there}
            host[name] = {key: value for key, value in arrays.items() if key not in there}
        return rows | {"decoded": host}, device

    def join(self, host: dict[str, Any], device: dict[str, Any]) -> dict[str, Any]:
        """Return the tree that was split."""
        decoded = {name: {**device[name], **host["decoded"][name]} for name in self.decoders}
        return host | {"decoded": decoded}

    def _plain(self) -> dict[str, Form]:
        """Return the columns that need no decoder."""
        return {name: form for name, form in self.forms.items() if name not in self.decoders}


def _has_lengths(decoder: ColumnDecoder) -> bool:
    """Return True for a decoder whose records differ in length."""
    return type(decoder).exceeds is not ColumnDecoder.exceeds


class RowPacking:
    """The columns of a batch as one array of bytes: one copy to each device, not one a column.

    Args:
      columns: a tree of arrays [n, ...] or of their `jax.ShapeDtypeStruct`s.

    Attributes:
      shapes: those of the packed arrays.

    Example:
      >>> rows = {"label": np.array([7, 8], np.int32), "valid": np.array([True, False])}
      >>> packing = RowPacking(rows)
      >>> packed = packing.pack(rows)
      >>> [array.shape for array in packed], packing.unpack(packed)["label"].tolist()
      ([(2, 5)], [7, 8])
    """

    def __init__(self, columns: Any):
        leaves, self._tree = jax.tree.flatten(columns)
        row_bytes = [math.prod(leaf.shape[1:]) * np.dtype(leaf.dtype).itemsize for leaf in leaves]
        self._is_alone = [size > MAX_COLUMN_BYTES for size in row_bytes]
        self._is_packed = [not is_alone for is_alone in self._is_alone]
        small = enumerate(compress(leaves, self._is_packed))
        large = compress(leaves, self._is_alone)
        fields = [(f"column {number}", leaf.dtype, leaf.shape[1:]) for number, leaf in small]
        self._record = np.dtype(fields)

        count = leaves[0].shape[0]
        packed = jax.ShapeDtypeStruct((count, self._record.itemsize), np.uint8)
        self.shapes = [packed, *(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in large)]

    def pack(self, columns: Any) -> list[np.ndarray]:
        """Return the columns as uint8[n, bytes], and those that travel alone.

        Raises:
          TypeError: a column has another dtype than at construction.
        """
        leaves = self._tree.flatten_up_to(columns)
        packed = np.empty(len(leaves[0]), self._record)
        for name, column in zip(self._record.names or (), compress(leaves, self._is_packed)):
            np.copyto(packed[name], column, casting="equiv")
        large = compress(leaves, self._is_alone)
        return [packed.view(np.uint8).reshape(len(packed), -1), *large]

    def pack_on_device(self, columns: Any) -> list[Array]:
        """Return what `pack` does, of arrays on a device."""
        leaves = self._tree.flatten_up_to(columns)
        parts = [_bytes(leaf) for leaf in compress(leaves, self._is_packed)]
        return [jnp.concatenate(parts, axis=1), *compress(leaves, self._is_alone)]

    def unpack(self, arrays: "Sequence[Array | np.ndarray]") -> Any:
        """Return the tree of columns, on the device; of any number of rows."""
        packed, *large = arrays
        small = []
        start = 0
        for number in range(len(self._record.names or ())):
            field = self._record[number]
            small.append(_column(packed[:, start : start + field.itemsize], field))
            start += field.itemsize

        packed_columns = iter(small)
        others = iter(large)
        leaves = [next(others if is_alone else packed_columns) for is_alone in self._is_alone]
        return jax.tree.unflatten(self._tree, leaves)


def _bytes(column: Array) -> Array:
    """Return the bytes uint8[n, k] of a column [n, ...], of which `_column` is the inverse."""
    if column.dtype == np.bool_:
        column = column.astype(np.uint8)
    size = math.prod(column.shape[1:]) * column.dtype.itemsize
    return lax.bitcast_convert_type(column, np.uint8).reshape(len(column), size)


def _column(data: "Array | np.ndarray", field: np.dtype) -> Array:
    """Return the column [n, ...] of a field of each row, from its bytes uint8[n, k]."""
    shape = (len(data), *field.shape)
    if field.base == np.bool_:
        return lax.ne(data, np.uint8(0)).reshape(shape)
    if field.base.itemsize > 1:
        shape += (field.base.itemsize,)
    return lax.bitcast_convert_type(data.reshape(shape), field.base)
