"""What an index keeps of the encoded values themselves: headers of images, tables of videos."""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode import Encoded, Headers, read_headers
from jaxaug.decode.image.canvas import NO_SIDES, Sides, good_sizes, sides_of
from jaxaug.decode.image.parse.headers import no_layouts, no_reasons
from jaxaug.decode.video.stored import StoredVideos, read_videos
from jaxaug.decode.video.table import Codec

_HEADER = "header/"  # the prefix of the columns of images
_SIZES = "video/sizes"  # uint32[n], the bytes of each table
TABLES = "video/tables"  # uint8[sum of them], one behind the other
_VIDEO_VERSION = 1  # of tables, beside what they tell of codecs
_IMAGE = [name for name in Headers._fields if name not in ("reason", "layout")]
_OWN = ("height", "width", "scan_offset")  # that each image has its own of
_SHARED = [_HEADER + name for name in _IMAGE if name not in _OWN]
_NO_REASONS = no_reasons(0)
Columns = Mapping[str, np.ndarray]


class Facts(NamedTuple):
    """What an index keeps of a kind of encoded values.

    Attributes:
      names: JSON values; an index with others is built anew.
      read: returns the columns of some values.
      shared: the columns whose values many records share, which are kept as rows of a table.
      sides: returns the sides of the good images among some values, by what `read` returned.
      stored: returns what a decoder is given of records int64[k], from all columns and the place
        at which each record's part of `TABLES` begins.
    """

    names: list[Any]
    read: Callable[[Encoded], Columns]
    shared: Sequence[str]
    sides: Callable[[Columns], Sides]
    stored: Callable[[Columns, np.ndarray, np.ndarray], Any]


def facts_of(column: str) -> Facts:
    """Return what an index keeps of a column "image" or "video".

    Tables of videos need PyAV; an index that was made without it has none, and is made anew where
    PyAV is.
    """
    if column != "video":
        return Facts(_IMAGE, _image_columns, _SHARED, _image_sides, _image_headers)
    able = importlib.util.find_spec("av") is not None
    read = _video_columns if able else _no_columns
    codec = [field.name for field in dataclasses.fields(Codec)]
    names = ["tables", _VIDEO_VERSION, *codec] if able else ["tables", 0]
    return Facts(names, read, (), lambda columns: NO_SIDES, _stored_videos)


@dataclasses.dataclass(frozen=True)
class Shared:
    """A column of values that many records share, read like an array.

    Attributes:
      rows: int[n], the row in `values` of each record.
      values: int64[k].
    """

    rows: np.ndarray
    values: np.ndarray

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        return self.values[self.rows[indices]]


def table_starts(columns: Columns) -> np.ndarray:
    """Return where each record's part of `TABLES` begins, int64[n]."""
    sizes = columns.get(_SIZES, np.zeros(0, np.int64)).astype(np.int64)
    return np.cumsum(sizes) - sizes


def _image_columns(encoded: Encoded) -> Columns:
    headers = read_headers(encoded)
    return {_HEADER + name: getattr(headers, name) for name in _IMAGE}


def _image_sides(columns: Columns) -> Sides:
    headers = {name: columns[_HEADER + name] for name in _IMAGE}
    return sides_of(good_sizes(Headers(**headers, reason=_NO_REASONS, layout=_NO_REASONS)))


def _image_headers(columns: Columns, starts: np.ndarray, indices: np.ndarray) -> Headers:
    """Return the headers of images; `reason` stays empty."""
    facts = {name: columns[_HEADER + name][indices] for name in _IMAGE}
    facts |= {name: facts[name].astype(np.int32) for name in ("height", "width")}
    return Headers(**facts, reason=no_reasons(len(indices)), layout=no_layouts(len(indices)))


def _video_columns(encoded: Encoded) -> Columns:
    return pack_tables(read_videos(encoded))


def _no_columns(encoded: Encoded) -> Columns:
    return pack_tables(StoredVideos(np.full(len(encoded.lengths), b"", object)))


def pack_tables(stored: StoredVideos) -> dict[str, np.ndarray]:
    """Return the columns of an index that hold the tables of videos."""
    tables = stored.tables.tolist()
    sizes = np.array([len(table) for table in tables], np.uint32)
    return {_SIZES: sizes, TABLES: np.frombuffer(b"".join(tables), np.uint8)}


def _stored_videos(columns: Columns, starts: np.ndarray, indices: np.ndarray) -> StoredVideos:
    """Return the tables of videos."""
    tables = np.empty(len(indices), object)
    begins = starts[indices]
    ends = begins + columns[_SIZES][indices]
    for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist())):
        tables[row] = columns[TABLES][begin:end].tobytes()
    return StoredVideos(tables)
