"""The tables of loose videos, kept in `jaxaug-videos.index` in their folder.

Or in the cache folder where that cannot be written. By name, each with the size and the time of
modification that the file had; a file that has changed is read as if it had none.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from jaxaug.decode._cpus import usable_cpus
from jaxaug.decode.video.stored import StoredVideos, read_videos
from jaxaug.iterators.sources._findings import places, state_of
from jaxaug.iterators.sources.packed.facts import facts_of, pack_tables, table_starts
from jaxaug.iterators.sources.storage.byte_progress import byte_progress
from jaxaug.iterators.sources.storage.files import (
    INDEX_PREFIX,
    INDEX_SUFFIX,
    write_to_first,
)
from jaxaug.iterators.sources.storage.index_file import IndexDamaged, read_index, write_index

_NAME = f"{INDEX_PREFIX}videos{INDEX_SUFFIX}"
_VERSION = 2


class VideoIndex:
    """The tables of the videos below a folder.

    Args:
      root: the folder.
      names: paths relative to it, by whose number tables are asked for.
      columns: of the index.
      indexed: the names that it has, in its order.
    """

    def __init__(
        self, root: str, names: Sequence[str], columns: dict[str, np.ndarray], indexed: list[str]
    ):
        self._root = root
        self._names = names
        self._columns = columns
        self._starts = table_starts(columns)
        rows = {name: row for row, name in enumerate(indexed)}
        self._rows = np.array([rows.get(name, -1) for name in names], np.int64)

    def tables(self, indices: np.ndarray) -> StoredVideos:
        """Return what is known of the files int64[n], nothing of those that have changed."""
        rows = self._rows[indices]
        states = self._columns["states"][rows]
        for place in np.flatnonzero(rows >= 0).tolist():
            path = os.path.join(self._root, self._names[int(indices[place])])
            if state_of(path) != states[place].tolist():
                rows[place] = -1
        tables = np.full(len(rows), b"", object)
        known = rows >= 0
        stored = facts_of("video").stored(self._columns, self._starts, rows[known])
        tables[known] = stored.tables
        return StoredVideos(tables)


def open_video_index(root: str, names: Sequence[str]) -> VideoIndex | None:
    """Return the index of videos below a folder; None if there is none that can be used."""
    for place in places(root, _NAME):
        try:
            index = read_index(place)
        except (IndexDamaged, OSError):
            continue
        kept = [index.extra.get(name) for name in ("version", "facts")]
        if kept == [_VERSION, facts_of("video").names]:
            return VideoIndex(root, names, index.columns, index.extra["names"])
    return None


def index_videos(root: str, names: Sequence[str]) -> str:
    """Write the tables of videos below a folder; return the file that holds them.

    Args:
      root: the folder.
      names: paths relative to it.

    Raises:
      SourceError: it can be written nowhere.
      ImportError: PyAV is not installed.
    """
    states = [state_of(os.path.join(root, name)) for name in names]
    tables = np.empty(len(names), object)
    with (
        ThreadPoolExecutor(usable_cpus(), thread_name_prefix="jaxaug-index") as pool,
        byte_progress(sum(max(0, size) for size, _ in states), "index") as advance,
    ):
        for row, table in enumerate(pool.map(partial(_table, root), names)):
            tables[row] = table
            advance(max(0, states[row][0]))
    columns = {"states": np.array(states, np.int64), **pack_tables(StoredVideos(tables))}
    extra = {"version": _VERSION, "facts": facts_of("video").names, "names": list(names)}
    header = {"counts": [len(names)], "extra": extra, "fingerprint": ""}

    def write(place: str) -> str:
        write_index(place, header, columns.items())
        return place

    return write_to_first(places(root, _NAME), "index", write)


def _table(root: str, name: str) -> bytes:
    from jaxaug.iterators.sources.storage.loose import read_files

    return read_videos(read_files([os.path.join(root, name)])).tables[0]
