"""Tables of videos for an index, so that a clip needs no look at its container."""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.video.decode_video import MAX_PIXELS
from jaxaug.decode.video.host import first_frame
from jaxaug.decode.video.planes import completed, planes_of
from jaxaug.decode.video.stream import VideoFile
from jaxaug.decode.video.table import Table
from jaxaug.errors import DecodeError

_MAX_TABLES = 32  # kept: files of which a batch has several clips, and what was just planned


class StoredVideos(NamedTuple):
    """What an index has stored of n videos.

    Attributes:
      tables: object[n] of bytes, see `Table.to_bytes`; empty where nothing is known.
    """

    tables: np.ndarray


def read_videos(encoded: Encoded) -> StoredVideos:
    """Return what an index may store of n videos; nothing of those that are bad.

    Example:
      >>> read_videos(Encoded.from_bytes([b"no video"])).tables.tolist()
      [b'']
    """
    tables = np.empty(len(encoded.lengths), object)
    for row in range(len(tables)):
        tables[row] = _read(encoded.view(row))
    return StoredVideos(tables)


def _read(data: memoryview) -> bytes:
    """Return the table of a video, empty if it is bad or its packets are not in the file as is.

    Its first frame, decoded with the table alone, must be the one that the container gives.
    """
    try:
        with VideoFile(data, MAX_PIXELS) as video:
            frame = first_frame(video)
            planes = planes_of(frame, video.table.codec)
            codec = completed(video.table.codec, frame)
            table = dataclasses.replace(video.table, codec=codec)
            if not video.whole:
                return b""
        with VideoFile(data, MAX_PIXELS, table) as again:
            other = planes_of(first_frame(again), table.codec)
    except DecodeError:
        return b""
    same = other.color == planes.color and all(
        np.array_equal(*each) for each in zip(planes[:2], other[:2])
    )
    return table.to_bytes() if same else b""


@functools.lru_cache(_MAX_TABLES)
def table_of(stored: bytes) -> Table | None:
    """Return a table that an index has stored; None for none."""
    return Table.from_bytes(stored) if stored else None
