"""The rows of a batch: what the host gives to the compiled call, and in which form."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxaug.decode import ColumnDecoder, Decoded, Ragged
from jaxaug.iterators.loader.columns import Form, Forms
from jaxaug.iterators.loader.keys import split_words
from jaxaug.iterators.loader.reader import ReadBatch

ROW_NAMES = ("words", "valid", "index")  # what a row has beside values, see `RowSchema.names`


@dataclasses.dataclass(frozen=True)
class RowSchema:
    """The form of the rows that a process makes of a batch.

    Attributes:
      forms: of the columns of the source.
      decoders: fitted, by column, each behind the one that it follows.
      with_replacement: positions are part of the keys.
      wide_index: the numbers of records need two words.
    """

    forms: Forms
    decoders: Mapping[str, ColumnDecoder]
    with_replacement: bool
    wide_index: bool

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

    def arrays(
        self, batch: ReadBatch, decoded: Mapping[str, Decoded], valid: np.ndarray
    ) -> dict[str, Any]:
        """Return the rows of a batch.

        Args:
          batch: as it was read.
          decoded: its columns.
          valid: bool[n], the rows that hold a decoded record.
        """
        plain: dict[str, Any] = {}
        for name in self._plain():
            values = batch.columns[name]
            if isinstance(values, Ragged):
                plain[f"{name}_length"] = values.padded_lengths
                values = values.padded()
            plain[name] = values

        return {
            **self.names(batch, batch.indices, valid),
            "plain": plain,
            "decoded": {name: dict(decoded[name].arrays) for name in self.decoders},
        }

    def names(self, batch: ReadBatch, indices: np.ndarray, valid: np.ndarray) -> dict[str, Any]:
        """Return what rows have beside values: the words of their keys, and their records.

        Args:
          batch: of the rows.
          indices: int64[n], their records.
          valid: bool[n], the rows that hold a decoded record.
        """
        positions = batch.positions if self.with_replacement else None
        return {
            "words": key_words(batch.epoch, indices, positions),
            "valid": valid,
            "index": self._index(indices),
        }

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

    def _index(self, indices: np.ndarray) -> np.ndarray:
        """Return the entry "index" of a batch: int32[n], or words uint32[n, 2] of large numbers."""
        if self.wide_index:
            return np.stack(split_words(indices), axis=1).astype(np.uint32)
        return indices.astype(np.int32)


def key_words(epoch: int, indices: np.ndarray, positions: np.ndarray | None) -> np.ndarray:
    """Return the words that make the keys of rows, in the form that `row_keys` takes.

    Args:
      epoch: the epoch of all rows.
      indices: int64[n], the records.
      positions: int64[n], their positions in the epoch where records repeat, else None.

    Returns:
      uint32[n, 3], or uint32[n, 5] with positions.
    """
    words = np.empty((len(indices), 3 if positions is None else 5), np.uint32)
    words[:, 0] = epoch & 0xFFFFFFFF
    words[:, 1], words[:, 2] = split_words(indices)
    if positions is not None:
        words[:, 3], words[:, 4] = split_words(positions)
    return words
