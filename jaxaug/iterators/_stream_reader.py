"""Reading a stream: every process runs through all of it and keeps its rows; a resume skips."""

import dataclasses
import itertools
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from jaxaug._typing import Features
from jaxaug.decode import Encoded
from jaxaug.iterators._features import (
    blank_rows,
    check_features,
    feature_spec,
    stack_features,
)
from jaxaug.iterators._masks import stored_dtype
from jaxaug.iterators._protocol import Stream
from jaxaug.iterators._reader import (
    MAX_MASK_TRIES,
    MAX_READ_RECORDS,
    PADDING,
    BatchPlan,
    EncodedBatch,
    ReadBatch,
    Reader,
    RecordForm,
    without_bytes,
)
from jaxaug.iterators._state import Cursor

_BYTES = (bytes, bytearray, memoryview)
_MAX_RECORDS = 2**31  # of an epoch: their numbers are int32 in a batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamReader(Reader):
    """Reads a stream in its own order."""

    source: Stream

    @property
    def sampler_name(self) -> str:
        return "Stream"

    def read_first(self) -> RecordForm:
        first = next(self.source.iterate(), None)
        if first is None:
            raise ValueError("`source` must yield at least one record, got an empty stream.")
        features, masks = _split_masks([first[1]])
        columns = stack_features(features, np.zeros(1, np.int64))
        mask = None if masks is None else self._mask_dtype()
        return RecordForm(feature_spec(columns), mask=mask)

    def _mask_dtype(self) -> np.dtype:
        """Return the dtype of the first good mask."""
        for _, features in itertools.islice(self.source.iterate(), MAX_MASK_TRIES):
            _, masks = _split_masks([features])
            dtype = None if masks is None else stored_dtype(masks)
            if dtype is not None:
                return dtype
        return np.dtype(np.uint8)

    def read_some(self, count: int, seed: int) -> Iterator[Encoded]:
        del seed  # the first records are all that can be had
        records = itertools.islice(self.source.iterate(), count)
        while images := [image for image, _ in itertools.islice(records, MAX_READ_RECORDS)]:
            yield Encoded.from_bytes(images)

    def batches(self, plan: BatchPlan, cursor: Cursor) -> Generator[ReadBatch, None, None]:
        for epoch in itertools.count(cursor.epoch):
            if plan.ends_before(epoch):
                return

            start = cursor.position if epoch == cursor.epoch else 0
            count = yield from self._read_epoch(plan, Cursor(epoch, start))
            if start == 0 and count < plan.min_records:
                raise ValueError(
                    f"`source` must yield at least {plan.min_records} records an epoch, a batch, "
                    f"got {count}: take a smaller `batch_size`, or last_batch='pad'; an iterable "
                    "that can be run through only once must be made anew."
                )

    def _read_epoch(self, plan: BatchPlan, cursor: Cursor) -> Generator[ReadBatch, None, int]:
        """Yield the rest of an epoch; return how many records it had."""
        epoch, position = cursor
        records = itertools.islice(self.source.iterate(), position, None)
        chunk, error = _take(records, plan.batch_size)
        while error is None and len(chunk) >= plan.min_records:
            started = time.perf_counter()
            # One chunk ahead, to know which batch is the last.
            following, error = _take(records, plan.batch_size)
            last = error is None and len(following) < plan.min_records
            after = Cursor(epoch + 1, 0) if last else Cursor(epoch, position + len(chunk))
            batch = self._make_batch(chunk, plan, Cursor(epoch, position))
            if isinstance(batch, EncodedBatch):
                batch = batch._replace(seconds=time.perf_counter() - started)
            yield ReadBatch(epoch, after, batch)

            position += len(chunk)
            chunk = following

        if error is not None:
            raise error
        return position + len(chunk)

    def _make_batch(self, chunk: list, plan: BatchPlan, cursor: Cursor) -> EncodedBatch | Exception:
        """Return this process's rows of a chunk; an exception, for the consumer to meet there."""
        epoch, position = cursor
        positions = np.where(plan.local < len(chunk), position + plan.local, PADDING)
        padding = positions == PADDING
        rows = np.where(padding, 0, plan.local).tolist()
        indices = np.where(padding, position, positions)
        try:
            if position + len(chunk) > _MAX_RECORDS:
                raise ValueError(
                    '`source` must yield at most 2^31 records an epoch, as their "index" is int32, '
                    "got more: let it end earlier, and the next epoch begins."
                )
            encoded = Encoded.from_bytes([chunk[row][0] for row in rows])
            others, masks = _split_masks([chunk[row][1] for row in rows])
            columns = stack_features(others, indices)
            if self.form is not None:
                check_features(columns, self.form.features)
        except Exception as error:
            return error

        features = blank_rows(columns, padding, self.mask_fill)
        images = without_bytes(encoded, padding)
        return EncodedBatch(epoch, positions, positions, images, features, masks)


def _split_masks(features: Sequence[Features]) -> tuple[Sequence[Features], Encoded | None]:
    """Return the features of records without their encoded masks, and these; None without any."""
    if not isinstance(features[0].get("mask"), _BYTES):
        return features, None
    masks: list[Any] = []
    others = []
    for each in features:
        mask = each.get("mask")
        masks.append(mask if isinstance(mask, _BYTES) else b"")
        others.append({name: value for name, value in each.items() if name != "mask"})
    return others, Encoded.from_bytes(masks)


def _take(records: Iterator, count: int) -> tuple[list, Exception | None]:
    """Return the next records, and the exception that cut them short."""
    taken: list = []
    try:
        for record in itertools.islice(records, count):
            taken.append(record)
    except Exception as error:
        return taken, error
    return taken, None
