"""Reading: from a source to the encoded rows of one batch after another."""

import abc
import dataclasses
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
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
from jaxaug.iterators._masks import stored_dtype
from jaxaug.iterators._protocol import Indexed, Masked, Pixels, Source
from jaxaug.iterators._sampler import Sampler, find_records, permute, sampler_name
from jaxaug.iterators._state import BatchSpan, Cursor, next_span

PADDING = -1  # the index of a row without a record
# Positions that a sampler is asked for at once, those of the next batches, at least of one: its
# numpy calls for a single batch would take two to four times as long for each position.
_MAX_POSITIONS = 8192
MAX_MASK_TRIES = 100  # records looked at for the first good mask
MAX_READ_RECORDS = 64  # read at once to look at their headers: photographs have megabytes each


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


class Rows(NamedTuple):
    """Records as they were read.

    Attributes:
      images: encoded images, or pixels.
      features: the records' features.
      masks: the encoded mask of each image; None where the source has none.
    """

    images: Encoded | Pixels
    features: Features
    masks: Encoded | None = None


class EncodedBatch(NamedTuple):
    """The local rows of one batch, before they are decoded.

    Attributes:
      epoch: the epoch of the batch.
      positions: int64[r], the positions of the rows in the epoch.
      indices: int64[r], the records; padding rows have `PADDING`, no bytes and blank features.
      images, features, masks: see `Rows`.
      seconds: how long reading took.
      headers: the headers that the source's index has stored; None if it has none.
    """

    epoch: int
    positions: np.ndarray
    indices: np.ndarray
    images: Encoded | Pixels
    features: Features
    masks: Encoded | None = None
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
      mask: the dtype of its masks once they are decoded; None if it has no encoded ones.
    """

    features: FeatureSpec
    image: Column | None = None
    mask: np.dtype | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader(abc.ABC):
    """Reads the batches of a source.

    The defaults are those of a stream. Nothing here refers to the user's functions.

    Attributes:
      source: the records.
      mask_fill: the value of integer masks in blank rows.
      form: that all records must have; None while the first is looked at.
    """

    source: Any
    mask_fill: int
    form: RecordForm | None = None

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
    def read_some(self, count: int, seed: int) -> Iterator[Encoded]:
        """Yield the images of up to `count` records, some at a time, the same on every process."""

    @abc.abstractmethod
    def batches(self, plan: BatchPlan, cursor: Cursor) -> Generator[ReadBatch, None, None]:
        """Yield the batches from `cursor` on."""

    def read_rows(self, indices: np.ndarray) -> Rows:
        """Return records int64[n]; rows with index `PADDING` are blank."""
        raise TypeError(f"{self.source!r} has no random access.")

    def read_positions(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, Rows]:
        """Return the numbers int64[n] of the records at positions of an epoch, and the records."""
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
        first = self.read_rows(np.zeros(1, np.int64))
        mask = None if first.masks is None else self._mask_dtype()
        return RecordForm(feature_spec(first.features), _image_form(first.images), mask)

    def _mask_dtype(self) -> np.dtype:
        """Return the dtype of the first good mask."""
        for index in range(min(len(self.source), MAX_MASK_TRIES)):
            masks = self.read_rows(np.array([index])).masks
            dtype = None if masks is None else stored_dtype(masks)
            if dtype is not None:
                return dtype
        return np.dtype(np.uint8)

    def read_some(self, count: int, seed: int) -> Iterator[Encoded]:
        positions = np.arange(min(count, len(self.source)))
        chosen = np.sort(permute(seed, 0, positions, len(self.source)))
        for first in range(0, len(chosen), MAX_READ_RECORDS):
            images, _ = self.source.read(chosen[first : first + MAX_READ_RECORDS])
            if isinstance(images, Masked):
                images = images.images
            assert isinstance(images, Encoded)  # pixels have no canvas
            yield images

    def batches(self, plan: BatchPlan, cursor: Cursor) -> Generator[ReadBatch, None, None]:
        count = max(1, _MAX_POSITIONS // len(plan.local))
        while True:
            started = time.perf_counter()
            spans = self._next_spans(plan, cursor, count)
            epoch = spans[0].epoch
            if plan.ends_before(epoch):
                return
            cursor = spans[-1].after

            starts, rows = np.array([(span.start, span.rows) for span in spans]).T[..., None]
            positions = np.where(plan.local < rows, starts + plan.local, PADDING)
            found = self._find_batches(epoch, positions)
            for span, places, indices in zip(spans, positions, found):
                # In no variable, or the batch would stay alive as long as the next one is read.
                yield ReadBatch(
                    epoch, span.after, self._read_batch(epoch, places, indices, started)
                )
                started = time.perf_counter()

    def _next_spans(self, plan: BatchPlan, cursor: Cursor, count: int) -> list[BatchSpan]:
        """Return up to `count` batches from `cursor` on, all of one epoch."""
        length = self.length  # an order may have to count it
        spans = [next_span(cursor, length, plan.batch_size, plan.drop)]
        while len(spans) < count and spans[-1].after.epoch == spans[0].epoch:
            spans.append(next_span(spans[-1].after, length, plan.batch_size, plan.drop))
        return spans

    def _find_batches(self, epoch: int, positions: np.ndarray) -> Sequence[np.ndarray | Exception]:
        """Return the records of each batch of `positions` [k, r], or why they cannot be found."""
        real = positions != PADDING
        indices = np.full(positions.shape, PADDING, np.int64)
        try:
            indices[real] = self._find_records(epoch, positions[real])
        except Exception as error:
            if len(positions) == 1:
                return [error]
            # One by one, as those before the failing one are good.
            return [self._find_batches(epoch, places[None])[0] for places in positions]
        return list(indices)

    def _read_batch(
        self,
        epoch: int,
        positions: np.ndarray,
        indices: np.ndarray | Exception,
        started: float,
    ) -> EncodedBatch | Exception:
        """Return the rows of records; an exception, for the consumer to meet in its place."""
        if isinstance(indices, Exception):
            return indices
        try:
            rows = self.read_rows(indices)
            headers = self._stored_headers(indices) if isinstance(rows.images, Encoded) else None
        except Exception as error:
            return error

        seconds = time.perf_counter() - started
        return EncodedBatch(epoch, positions, indices, *rows, seconds, headers)

    def _stored_headers(self, indices: np.ndarray) -> Headers | None:
        """Return the headers that an index has stored; a padding row has those of record 0."""
        if not isinstance(self.source, Indexed):
            return None
        return self.source.headers(np.where(indices == PADDING, 0, indices))

    def _find_records(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        return find_records(self.sampler, epoch, positions, len(self.source))

    def read_rows(self, indices: np.ndarray) -> Rows:
        padding = indices == PADDING
        if not padding.any():
            return self._read_records(indices)

        # A padding row is a copy of another row, of record 0 where there is no other: a read may
        # take a while.
        records = indices[~padding] if not padding.all() else np.zeros(1, np.int64)
        place = np.cumsum(~padding) - 1
        images, columns, masks = self._read_records(records)
        if isinstance(images, Encoded):
            images = without_bytes(images.take(place), padding)
        else:
            images = Pixels(images.array[place])
        columns = {name: column[place] for name, column in columns.items()}
        masks = None if masks is None else masks.take(place)
        return Rows(images, blank_rows(columns, padding, self.mask_fill), masks)

    def _read_records(self, records: np.ndarray) -> Rows:
        """Return records int64[n], in the form of the first."""
        answer = self.source.read(records)
        _check_answer(answer)
        images, columns = answer
        masks = None
        if isinstance(images, Masked):
            images, masks = images
            _check_masks(images, masks, columns, len(records))
        _check_images(images, len(records))
        rows = Rows(images, narrow_features(columns, records), masks)
        if self.form is not None:
            _check_form(rows, self.form)
        return rows

    def read_positions(self, epoch: int, positions: np.ndarray) -> tuple[np.ndarray, Rows]:
        indices = self._find_records(epoch, positions)
        return indices, self.read_rows(indices)

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


def _image_form(images: Encoded | Pixels) -> Column | None:
    """Return the form of pixels; None for encoded images."""
    if isinstance(images, Encoded):
        return None
    return Column(images.array.dtype, images.array.shape[1:])


def _check_answer(answer: Any) -> None:
    """Refuse what is no pair of images and columns."""
    pair = isinstance(answer, (tuple, list)) and len(answer) == 2
    if pair and isinstance(answer[0], (Encoded, Masked, Pixels)) and isinstance(answer[1], Mapping):
        return
    kinds = [type(part).__name__ for part in (answer if pair else [answer])]
    raise TypeError(
        "`source.read` must return (Encoded, features), (Masked, features) or (Pixels, features) "
        f"with a dict of arrays, got {' and '.join(kinds)}: `Encoded.from_bytes` takes a list of "
        "bytes."
    )


def _check_form(rows: Rows, form: RecordForm) -> None:
    """Refuse records of another form than the first."""
    check_features(rows.features, form.features)
    image = _image_form(rows.images)
    if image != form.image:
        raise ValueError(
            f"`source` must give images as {form.image or 'Encoded'} in every read, as in the "
            f"first, got {image or 'Encoded'}."
        )
    if (rows.masks is None) != (form.mask is None):
        raise ValueError(
            "`source` must give masks in every read or in none, as in the first, got "
            f"{'none' if rows.masks is None else 'masks'}."
        )


def _check_images(images: Encoded | Pixels, count: int) -> None:
    if isinstance(images, Pixels):
        _check_pixels(images.array)
    found = len(images.array if isinstance(images, Pixels) else images.lengths)
    if found != count:
        raise ValueError(
            f"`source.read` must return one image for each of {count} records, got {found}."
        )


def _check_pixels(array: Any) -> None:
    found = type(array).__name__
    if isinstance(array, np.ndarray):
        if array.dtype == np.uint8 and array.ndim >= 3 and array.shape[3:] in ((), (1,), (3,)):
            return
        found = f"{array.dtype}{list(array.shape)}"
    raise ValueError(
        "`Pixels` must hold uint8[n, H, W, 3], or gray [n, H, W] or [n, H, W, 1], of NumPy, got "
        f"{found}."
    )


def _check_masks(images: Any, masks: Encoded, columns: Features, count: int) -> None:
    if not isinstance(images, Encoded) or not isinstance(masks, Encoded):
        kinds = f"{type(images).__name__} and {type(masks).__name__}"
        raise TypeError(f"`Masked` must hold two `Encoded`, got {kinds}.")
    if "mask" in columns:
        raise ValueError("`source` must have its masks in files or in a feature 'mask', got both.")
    if len(masks.lengths) != count:
        raise ValueError(
            f"`source.read` must return one mask for each of {count} records, got "
            f"{len(masks.lengths)}."
        )
