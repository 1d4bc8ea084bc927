"""From an order and a source to the encoded rows of one batch after another."""

import itertools
import time
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

from jaxaug._typing import Features
from jaxaug.decode import Encoded
from jaxaug.iterators._cursor import Cursor, next_step
from jaxaug.iterators._order import Order, find_records
from jaxaug.iterators._protocol import Source, Stream
from jaxaug.iterators._stats import Stats

PADDING = -1


class Rows(NamedTuple):
    """How batches are cut: `local` are the rows of the global batch that this process decodes."""

    batch_size: int
    local: np.ndarray  # int64[r] in [0, batch_size)
    drop: bool  # drop the tail of an epoch instead of padding it
    epochs: int | None


class Records(NamedTuple):
    """The local rows of one batch; padding rows have index -1, length 0 and zero features."""

    epoch: int
    positions: np.ndarray  # int64[r]
    indices: np.ndarray  # int64[r]
    encoded: Encoded
    features: dict[str, np.ndarray]


# What a stage hands on: the cursor once this batch is delivered, and the batch or what went wrong with it.
RecordsOrError = tuple[Cursor, Records | Exception]


def read_batches(
    source: Source, order: Order, rows: Rows, cursor: Cursor, stats: Stats
) -> Generator[RecordsOrError, None, None]:
    """Batches of a random access source from `cursor` on."""
    while True:
        step = next_step(cursor, order.length, rows.batch_size, rows.drop)
        if rows.epochs is not None and step.epoch >= rows.epochs:
            return
        cursor = step.after
        started = time.perf_counter()
        positions = np.where(rows.local < step.rows, step.start + rows.local, PADDING)
        indices = np.full(len(positions), PADDING, np.int64)
        real = positions != PADDING
        try:
            indices[real] = find_records(order, step.epoch, positions[real], len(source))
            batch = Records(step.epoch, positions, indices, *read_rows(source, indices))
        except Exception as error:  # handed to the consumer in its place
            yield cursor, error
            continue
        stats.add_seconds("reader", time.perf_counter() - started)
        yield cursor, batch


def read_rows(source: Source, indices: np.ndarray) -> tuple[Encoded, dict[str, np.ndarray]]:
    """`source.read` of the rows whose index is not -1; the others are empty."""
    real = indices != PADDING
    if real.all():
        encoded, features = source.read(indices)
        return encoded, {name: narrow(name, column) for name, column in features.items()}
    # Some record must be read to know the features' shapes; record 0 stands in for the padding.
    encoded, features = source.read(np.where(real, indices, 0))
    blank = {name: _zero(narrow(name, column), ~real) for name, column in features.items()}
    return encoded._replace(lengths=np.where(real, encoded.lengths, np.uint64(0))), blank


def read_stream(stream: Stream, rows: Rows, cursor: Cursor, stats: Stats) -> Generator[RecordsOrError, None, None]:
    """Batches of a stream: each process runs through all of it and keeps its rows; a resume skips."""
    for epoch in itertools.count(cursor.epoch):
        if rows.epochs is not None and epoch >= rows.epochs:
            return
        position = cursor.position if epoch == cursor.epoch else 0
        items = itertools.islice(stream.iterate(), position, None)
        chunk, following = _take(items, rows), None
        if not chunk and position == 0:
            raise ValueError("`source` yields no records in an epoch: it must be re-iterable, not a used-up iterator.")
        while len(chunk) >= (rows.batch_size if rows.drop else 1):
            started = time.perf_counter()
            following = _take(items, rows)  # one batch ahead, to know which batch ends the epoch
            last = len(following) < (rows.batch_size if rows.drop else 1)
            after = Cursor(epoch + 1, 0) if last else Cursor(epoch, position + len(chunk))
            try:
                batch = _stream_records(chunk, rows, epoch, position)
            except Exception as error:
                yield after, error
            else:
                stats.add_seconds("reader", time.perf_counter() - started)
                yield after, batch
            position, chunk = position + len(chunk), following


def _take(items: Iterator, rows: Rows) -> list:
    return list(itertools.islice(items, rows.batch_size))


def _stream_records(chunk: list, rows: Rows, epoch: int, position: int) -> Records:
    positions = np.where(rows.local < len(chunk), position + rows.local, PADDING)
    mine = [chunk[row] if row < len(chunk) else (b"", chunk[0][1]) for row in rows.local.tolist()]
    encoded = Encoded.from_bytes([image for image, _ in mine])
    columns = stack_features([features for _, features in mine])
    return Records(epoch, positions, positions, encoded, {k: _zero(v, positions < 0) for k, v in columns.items()})


def stack_features(rows: list[Features]) -> dict[str, np.ndarray]:
    """Dicts of scalars and arrays, one a record, to columns."""
    names = rows[0].keys() if rows else ()
    return {name: narrow(name, np.stack([np.asarray(row[name]) for row in rows])) for name in names}


def narrow(name: str, column: np.ndarray) -> np.ndarray:
    """64-bit numbers in 32 bits, whether or not x64 is on; text is refused."""
    column = np.asarray(column)
    if column.dtype.kind not in "biuf":
        raise TypeError(
            f"feature {name!r} must be numbers, got dtype {column.dtype}: leave text to `source.describe(index)`."
        )
    narrower = {"int64": np.int32, "uint64": np.uint32, "float64": np.float32}
    return column.astype(narrower.get(column.dtype.name, column.dtype), copy=False)


def _zero(column: np.ndarray, rows: np.ndarray) -> np.ndarray:
    column = column.copy()
    column[rows] = 0
    return column
