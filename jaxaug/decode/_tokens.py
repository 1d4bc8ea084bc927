"""The decoder of a column of texts: the numbers of a tokenizer of the user's."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxaug._checks import check_positive_int
from jaxaug._typing import Values
from jaxaug.decode._column import Column, ColumnDecoder, Decoded, RowError, valid_rows
from jaxaug.decode._types import Encoded


@dataclasses.dataclass(frozen=True)
class Tokenized(ColumnDecoder):
    """Texts as numbers: a column of encoded bytes, each the UTF-8 of one text.

    The entry is `<name>` int32[B, max_length], padded with `fill`, and "<name>_length" int32[B].
    `tokenize` runs on the host, in the threads that read ahead, once for each record of a batch. As
    it sees nothing but the text, batches are the same after any resume.

    Args:
      tokenize: the text, a str, to a sequence of ints, of any tokenizer; a longer one is cut. It is
        called from several threads.
      max_length: numbers of a row.
      fill: the number behind the end.

    Raises:
      TypeError: `tokenize` cannot be called.
      ValueError: `max_length` is no int of at least 1.

    Example:
      >>> words = Tokenized(lambda text: [len(word) for word in text.split()], max_length=4)
      >>> texts = Encoded.from_bytes([b"a record of five words", b"two words"])
      >>> decoded = words.decode_rows(texts, None, {}, np.ones(2, bool), np.zeros(2, np.uint64))
      >>> decoded.arrays["tokens"].tolist(), decoded.arrays["length"].tolist()
      ([[1, 6, 2, 4], [3, 5, 0, 0]], [4, 2])
    """

    # Not part of what processes compare: a function has another address in each.
    tokenize: Callable[[str], Sequence[int]] = dataclasses.field(repr=False)
    max_length: int
    fill: int = 0

    def __post_init__(self):
        if not callable(self.tokenize):
            raise TypeError(
                "`tokenize` must be a function of a text, got "
                f"{type(self.tokenize).__name__}: give the method that makes ids, such as "
                "`tokenizer.encode`."
            )
        check_positive_int("max_length", self.max_length)

    def fit(self, column: Column, siblings: Mapping[str, ColumnDecoder]) -> ColumnDecoder:
        """Return this decoder, for a column of bytes."""
        if not isinstance(column.example, Encoded):
            raise TypeError(
                f"column {column.name!r} must be the bytes of texts, got "
                f"{type(column.example).__name__}."
            )
        return self

    def within(self, bound: float) -> "Tokenized":
        """Return the decoder of texts of at most `bound` numbers."""
        most = max(1, math.ceil(bound))
        return dataclasses.replace(self, max_length=min(most, self.max_length))

    def exceeds(self, arrays: Mapping[str, Any]) -> np.ndarray:
        """Return where a text has more numbers."""
        return arrays["length"] > self.max_length

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the forms of a row's numbers, and of how many there are."""
        return {
            "tokens": jax.ShapeDtypeStruct((self.max_length,), np.int32),
            "length": jax.ShapeDtypeStruct((), np.int32),
        }

    def decode_rows(
        self,
        values: Values,
        checked: Any,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the numbers of the wanted rows.

        Raises:
          RowError: `tokenize` fails, or gives other than numbers of 32 bits.
        """
        assert isinstance(values, Encoded)
        count = len(values.lengths)
        tokens = np.full((count, self.max_length), self.fill, np.int32)
        lengths = np.zeros(count, np.int32)
        failures: dict[int, str] = {}
        for row in np.flatnonzero(wanted).tolist():
            try:
                text = bytes(values.view(row)).decode()
            except UnicodeDecodeError as error:
                failures[row] = f"its text is no UTF-8: {error}"
                continue
            found = self._numbers(row, text)
            lengths[row] = len(found)
            tokens[row, : len(found)] = found
        arrays = {"tokens": tokens, "length": lengths}
        return Decoded(arrays, valid_rows(failures, wanted), failures)

    def _numbers(self, row: int, text: str) -> np.ndarray:
        try:
            found = self.tokenize(text)
            numbers = np.asarray(found)
        except Exception as error:
            raise RowError(
                row, f"cannot be tokenized in record {{index}}: {type(error).__name__}: {error}"
            ) from error
        if not numbers.size:
            return np.zeros(0, np.int32)
        limits = np.iinfo(np.int32)
        good = numbers.ndim == 1 and numbers.dtype.kind in "iu"
        if not good or numbers.min() < limits.min or numbers.max() > limits.max:
            known = numbers.dtype != np.object_
            got = f"{numbers.dtype}{list(numbers.shape)}" if known else type(found).__name__
            raise RowError(
                row,
                f"must become a sequence of ints of 32 bits by `tokenize`, got {got} in record"
                " {index}.",
            )
        return numbers[: self.max_length]
