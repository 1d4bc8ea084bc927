"""From a sampler and a source to the encoded rows of one batch after another."""

import itertools
import time
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import numpy as np

from jaxaug.decode import Encoded
from jaxaug.iterators._features import (
    Features,
    FeatureSpec,
    blank_rows,
    check_features,
    narrow_features,
    stack_features,
)
from jaxaug.iterators._protocol import Pixels, Source, Stream
from jaxaug.iterators._sampler import Sampler, find_records
from jaxaug.iterators._state import Cursor, next_step

PADDING = -1


class BatchPlan(NamedTuple):
    """How batches are cut: `local` are the rows of the global batch that this process decodes."""

    batch_size: int
    local: np.ndarray  # int64[r] in [0, batch_size)
    drop: bool  # drop the tail of an epoch instead of padding it
    epochs: int | None

    @property
    def least(self) -> int:
        """The fewest records that make a batch."""
        return self.batch_size if self.drop else 1


class EncodedBatch(NamedTuple):
    """The local rows of one batch; padding rows have index -1, no bytes and blank features."""

    epoch: int
    positions: np.ndarray  # int64[r]
    indices: np.ndarray  # int64[r]
    images: Encoded | Pixels
    features: Features
    seconds: float = 0.0  # that reading took


class Read(NamedTuple):
    """One batch of the order, or why it could not be read.

    Attributes:
      epoch: the epoch that the batch belongs to.
      after: the cursor once it is delivered.
      batch: the rows, or the exception.
    """

    epoch: int
    after: Cursor
    batch: EncodedBatch | Exception


ReadRecords = Callable[[np.ndarray], tuple[Encoded | Pixels, Features]]


def read_batches(
    read: ReadRecords, count: int, sampler: Sampler, plan: BatchPlan, cursor: Cursor
) -> Generator[Read, None, None]:
    """Yield the batches of a random access source of `count` records from `cursor` on."""
    while True:
        step = next_step(cursor, sampler.length, plan.batch_size, plan.drop)
        if plan.epochs is not None and step.epoch >= plan.epochs:
            return

        cursor = step.after
        positions = np.where(plan.local < step.rows, step.start + plan.local, PADDING)
        indices = np.full(len(positions), PADDING, np.int64)
        real = positions != PADDING
        started = time.perf_counter()
        try:
            indices[real] = find_records(sampler, step.epoch, positions[real], count)
            images, features = read(indices)
        except Exception as error:  # handed to the consumer in its place
            yield Read(step.epoch, cursor, error)
            continue

        seconds = time.perf_counter() - started
        yield Read(
            step.epoch,
            cursor,
            EncodedBatch(step.epoch, positions, indices, images, features, seconds),
        )


def record_reader(source: Source, spec: FeatureSpec | None, mask_fill: int) -> ReadRecords:
    """Return `source.read` with checked and narrowed features; rows with index -1 are blank.

    Args:
      spec: what the features are held to; None takes them as they are.
    """

    def read(indices: np.ndarray) -> tuple[Encoded | Pixels, Features]:
        padding = indices == PADDING
        # Record 0 stands in for the padding: some record must be read to know the shapes.
        records = np.where(padding, 0, indices)
        images, columns = source.read(records)
        _check_images(images, len(records))
        columns = narrow_features(columns, records)
        if spec is not None:
            check_features(columns, spec, len(records))
        if not padding.any():
            return images, columns

        if isinstance(images, Encoded):
            images = images._replace(lengths=np.where(padding, np.uint64(0), images.lengths))
        return images, blank_rows(columns, padding, mask_fill)

    return read


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


def read_stream(
    stream: Stream, plan: BatchPlan, spec: FeatureSpec, mask_fill: int, cursor: Cursor
) -> Generator[Read, None, None]:
    """Yield the batches of a stream: each process runs through all of it and keeps its rows; a
    resume skips.
    """
    for epoch in itertools.count(cursor.epoch):
        if plan.epochs is not None and epoch >= plan.epochs:
            return

        start = cursor.position if epoch == cursor.epoch else 0
        count = yield from _read_epoch(stream, plan, spec, mask_fill, Cursor(epoch, start))
        if start == 0 and count < plan.least:
            raise ValueError(
                f"`source` must yield at least {plan.least} records an epoch, a batch, got {count}: take a smaller "
                "`batch_size`, or last_batch='pad'; an iterable that can be run through only once must be made anew."
            )


def _read_epoch(
    stream: Stream, plan: BatchPlan, spec: FeatureSpec, mask_fill: int, cursor: Cursor
) -> Generator[Read, None, int]:
    """Yield the rest of an epoch; return how many records it had."""
    epoch, position = cursor
    items = itertools.islice(stream.iterate(), position, None)
    chunk, error = _take(items, plan.batch_size)
    while error is None and len(chunk) >= plan.least:
        started = time.perf_counter()
        following, error = _take(
            items, plan.batch_size
        )  # one ahead, to know which batch is the last
        last = error is None and len(following) < plan.least
        after = Cursor(epoch + 1, 0) if last else Cursor(epoch, position + len(chunk))
        batch = _stream_batch(chunk, plan, spec, mask_fill, epoch, position)
        if isinstance(batch, EncodedBatch):
            batch = batch._replace(seconds=time.perf_counter() - started)
        yield Read(epoch, after, batch)

        position += len(chunk)
        chunk = following

    if error is not None:
        raise error
    return position + len(chunk)


def _take(items: Iterator, count: int) -> tuple[list, Exception | None]:
    """Return the next items, and the exception that cut them short."""
    taken: list = []
    try:
        for item in itertools.islice(items, count):
            taken.append(item)
    except Exception as error:
        return taken, error
    return taken, None


def _stream_batch(
    chunk: list, plan: BatchPlan, spec: FeatureSpec, mask_fill: int, epoch: int, position: int
) -> EncodedBatch | Exception:
    positions = np.where(plan.local < len(chunk), position + plan.local, PADDING)
    padding = positions == PADDING
    rows = np.where(padding, 0, plan.local).tolist()
    try:
        encoded = Encoded.from_bytes([chunk[row][0] for row in rows])
        columns = stack_features(
            [chunk[row][1] for row in rows], np.where(padding, position, positions)
        )
        check_features(columns, spec, len(rows))
    except Exception as error:  # handed to the consumer in its place
        return error

    encoded = encoded._replace(lengths=np.where(padding, np.uint64(0), encoded.lengths))
    features = blank_rows(columns, padding, mask_fill)
    return EncodedBatch(epoch, positions, positions, encoded, features)
