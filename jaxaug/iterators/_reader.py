"""Reading: from a source to the encoded rows of one batch after another."""

import abc
import dataclasses
import time
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode import Encoded, Headers
from jaxaug.iterators._features import (
    Column,
    Features,
    FeatureSpec,
    blank_rows,
    check_features,
    feature_spec,
    narrow_features,
)
from jaxaug.iterators._protocol import Indexed, Pixels, Source
from jaxaug.iterators._sampler import Sampler, find_records, permute, sampler_name
from jaxaug.iterators._state import Cursor, next_span

PADDING = -1  # the index of a row without a record


class BatchPlan(NamedTuple):
    """The cut of epochs into batches.

    Attributes:
      batch_size: rows of the global batch.
      local: int64[r], the rows that this process decodes, each in [0, batch_size).
      drop: the tail of an epoch is dropped instead of padded.
      epochs: how many epochs there are; None for no end.
    """

    batch_size: int
    local: np.ndarray
    drop: bool
    epochs: int | None

    @property
    def min_records(self) -> int:
        """The fewest records that make a batch."""
        return self.batch_size if self.drop else 1

    def ends_before(self, epoch: int) -> bool:
        """Return True if `epoch` is not among the epochs."""
        return self.epochs is not None and epoch >= self.epochs


class EncodedBatch(NamedTuple):
    """The local rows of one batch, before they are decoded.

    Attributes:
      epoch: the epoch of the batch.
      positions: int64[r], the positions of the rows in the epoch.
      indices: int64[r], the records; padding rows have `PADDING`, no bytes and blank features.
      images: encoded images, or pixels.
      features: the records' features.
      seconds: how long reading took.
      headers: the headers that the source's index has stored; None if it has none.
    """

    epoch: int
    positions: np.ndarray
    indices: np.ndarray
    images: Encoded | Pixels
    features: Features
    seconds: float = 0.0
    headers: Headers | None = None


class ReadBatch(NamedTuple):
    """One batch as it was read, or the reason why it could not be.

    Attributes:
      epoch: the epoch that the batch belongs to.
      after: the cursor once it is delivered.
      batch: the rows, or the exception.
    """

    epoch: int
    after: Cursor
    batch: EncodedBatch | Exception


class RecordForm(NamedTuple):
    """The form of every record of a source.

    Attributes:
      features: the form of its features.
      image: the form of its pixels; None if its images are encoded.
    """

    features: FeatureSpec
    image: Column | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader(abc.ABC):
    """Reads the batches of a source.

    The defaults are those of a stream. Nothing here refers to the user's functions.

    Attributes:
      source: the records.
      mask_fill: the value of integer masks in blank rows.
      features: the form that features must have; None while the first record is looked at.
    """

    source: Any
    mask_fill: int
    features: FeatureSpec | None = None

    @property
    @abc.abstractmethod
    def sampler_name(self) -> str:
        """The name by which a state knows the order of the records."""

    @property
    def length(self) -> int | None:
        """Positions in an epoch; None if that shows at its end only."""
        return None

    @property
    def with_replacement(self) -> bool:
        """True if an epoch may hold a record twice."""
        return False

    @property
    def wide_index(self) -> bool:
        """True if the numbers of the records need more than 31 bits."""
        return False

    @abc.abstractmethod
    def read_first(self) -> RecordForm:
        """Return the form of the first record."""

    @abc.abstractmethod
    def read_some(self, count: int, seed: int) -> Encoded:
        """Return the images of up to `count` records, the same on every process."""

    @abc.abstractmethod
    def batches(self, plan: BatchPlan, cursor: Cursor) -> Generator[ReadBatch, None, None]:
        """Yield the batches from `cursor` on."""

    def read_rows(self, indices: np.ndarray) -> tuple[Encoded | Pixels, Features]:
        """Return images and features of records int64[n]; rows with index `PADDING` are blank."""
        raise TypeError(f"{self.source!r} has no random access.")

    def read_positions(
        self, epoch: int, positions: np.ndarray
    ) -> tuple[np.ndarray, Encoded | Pixels, Features]:
        """Return the records int64[n] at positions of an epoch, their images and features."""
        raise TypeError(f"{self.source!r} has no random access.")

    def check_record(self, index: int, position: int | None) -> tuple[int, int]:
        """Return a record's number and position in the form of ints.

        Raises:
          TypeError: the source has no random access.
          IndexError: no such record.
          ValueError: the position is missing.
        """
        raise TypeError("`sample` needs a source with random access, got a stream: take a batch.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordReader(Reader):
    """Reads a source with random access in the order of a sampler.

    Attributes:
      sampler: the order of the records.
    """

    source: Source
    sampler: Sampler

    @property
    def sampler_name(self) -> str:
        return sampler_name(self.sampler)

    @property
    def length(self) -> int:
        return self.sampler.length

    @property
    def with_replacement(self) -> bool:
        return self.sampler.with_replacement

    @property
    def wide_index(self) -> bool:
        return len(self.source) >= 2**31

    def read_first(self) -> RecordForm:
        images, columns = self.read_rows(np.zeros(1, np.int64))
        image = None
        if isinstance(images, Pixels):
            image = Column(images.array.dtype, images.array.shape[1:])
        return RecordForm(feature_spec(columns), image)

    def read_some(self, count: int, seed: int) -> Encoded:
        positions = np.arange(min(count, len(self.source)))
        chosen = permute(seed, 0, positions, len(self.source))
        encoded, _ = self.source.read(np.sort(chosen))
        assert isinstance(encoded, Encoded)  # pixels have no canvas
        return encoded

    def batches(self, plan: BatchPlan, cursor: Cursor) -> Generator[ReadBatch, None, None]:
        while True:
            span = next_span(cursor, self.length, plan.batch_size, plan.drop)
            if plan.ends_before(span.epoch):
                return
            cursor = span.after
            positions = np.where(plan.local < span.rows, span.start + plan.local, PADDING)
            yield ReadBatch(span.epoch, cursor, self._read_batch(span.epoch, positions))

    def _read_batch(self, epoch: int, positions: np.ndarray) -> EncodedBatch | Exception:
        """Return the rows at `positions`; an exception, for the consumer to meet in its place."""
        started = time.perf_counter()
        indices = np.full(len(positions), PADDING, np.int64)
        real = positions != PADDING
        try:
            indices[real] = self._find_records(epoch, positions[real])
            images, features = self.read_rows(indices)
            headers = self._stored_headers(indices) if isinstance(images, Encoded) else None
        except Exception as error:
            return error

        seconds = time.perf_counter() - started
        return EncodedBatch(epoch, positions, indices, images, features, seconds, headers)

    def _stored_headers(self, indices: np.ndarray) -> Headers | None:
        """Return the headers that an index has stored; a padding row has those of record 0."""
        if not isinstance(self.source, Indexed):
            return None
        return self.source.headers(np.where(indices == PADDING, 0, indices))

    def _find_records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        return find_records(self.sampler, epoch, positions, len(self.source))

    def read_rows(self, indices: np.ndarray) -> tuple[Encoded | Pixels, Features]:
        padding = indices == PADDING
        records = np.where(padding, 0, indices)
        images, columns = self.source.read(records)
        _check_images(images, len(records))
        columns = narrow_features(columns, records)
        if self.features is not None:
            check_features(columns, self.features, len(records))
        if not padding.any():
            return images, columns

        if isinstance(images, Encoded):
            images = without_bytes(images, padding)
        return images, blank_rows(columns, padding, self.mask_fill)

    def read_positions(
        self, epoch: int, positions: np.ndarray
    ) -> tuple[np.ndarray, Encoded | Pixels, Features]:
        indices = self._find_records(epoch, positions)
        return indices, *self.read_rows(indices)

    def check_record(self, index: int, position: int | None) -> tuple[int, int]:
        if not isinstance(index, (int, np.integer)) or not 0 <= index < len(self.source):
            raise IndexError(f"`index` must be an int in [0, {len(self.source)}), got {index!r}.")
        if position is None and self.with_replacement:
            raise ValueError(
                f"`position` must be given with {type(self.sampler).__name__}, which may draw a "
                "record twice in an epoch: each position has a key of its own."
            )
        return int(index), 0 if position is None else int(position)


def without_bytes(encoded: Encoded, rows: np.ndarray) -> Encoded:
    """Return the images with length 0 where `rows` (bool[n]) is True."""
    return encoded._replace(lengths=np.where(rows, np.uint64(0), encoded.lengths))


def _check_images(images: Encoded | Pixels, count: int) -> None:
    if not isinstance(images, (Encoded, Pixels)):
        raise TypeError(
            "`source.read` must return (Encoded, features), or (Pixels, features), got "
            f"{type(images).__name__}: `Encoded.from_bytes` takes a list of bytes."
        )
    found = len(images.array if isinstance(images, Pixels) else images.lengths)
    if found != count:
        raise ValueError(
            f"`source.read` must return one image for each of {count} records, got {found}."
        )
