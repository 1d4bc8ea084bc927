"""The packets of an MP4 as its own tables tell them, so that they need not be demuxed one by one.

FFmpeg makes an index of them when it opens a file, with edit lists applied, of which a packet lacks
only when it is shown and whether others need it: "ctts" and "sdtp", ISO/IEC 14496-12 sections
8.6.1.3 and 8.6.4.3. Where demuxing might say more, nothing is said here.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.video.mp4_boxes import find_track, inner_boxes, tables_of
from jaxaug.decode.video.references import References

_MAX_DELAY = 1 << 28  # units of time; FFmpeg ignores tables with more
_NOT_NEEDED = 2  # by other samples: sample_is_depended_on


class Samples(NamedTuple):
    """Columns of a `Table`."""

    times: np.ndarray
    keyframes: np.ndarray
    shown: np.ndarray
    disposable: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray


def read_samples(
    data: memoryview, stream: Any, first: Any, references: References
) -> Samples | None:
    """Return what demuxing gives of a stream of an MP4; None where that alone tells.

    Args:
      data: the file.
      stream: of PyAV.
      first: its first packet.
      references: of its codec.
    """
    tables = _sample_tables(data, stream.id) if references.by_lengths else {}
    # Of several descriptions each has its own header, and fragments are not in these tables.
    if any(name not in tables for name in (b"stsz", b"stss", b"stsd")):
        return None
    if _count(tables[b"stsd"]) != 1 or not _count(tables[b"stss"]):
        return None
    if not _sample_count(tables[b"stsz"]):
        return None
    columns = [
        (each.pos, each.size, each.timestamp, each.is_keyframe, each.is_discard)
        for each in stream.index_entries
    ]
    offsets, sizes, decoded_at, marked, hidden = np.array(columns, np.int64).reshape(-1, 5).T
    delays = _delays(tables.get(b"ctts"), len(sizes))
    unneeded = _unneeded(tables.get(b"sdtp"), len(sizes))
    if delays is None or not _same(tables[b"stsz"], offsets, sizes, len(data)):
        return None
    entry = (first.pos, first.size, first.dts, first.is_keyframe, first.is_discard)
    content = data[first.pos : first.pos + first.size]
    if entry != columns[0] or first.is_disposable != unneeded[0] or bytes(first) != content:
        return None
    if first.pts is None or next(first.iter_sidedata(), None) is not None:
        return None
    slices = references.first_slices(data, offsets, sizes)
    keyframes = references.keyframes(slices, marked == 1)
    if keyframes is None or (keyframes != marked).any():
        return None
    times = decoded_at + delays + (first.pts - first.dts - delays[0])
    disposable = unneeded | references.disposable(slices, keyframes)
    return Samples(times, keyframes, hidden == 0, disposable, offsets, sizes)


def _sample_tables(data: memoryview, track: int) -> dict[bytes, memoryview]:
    """Return the contents of a track's tables by name; none where there are fragments."""
    if any(kind == b"moof" for kind, _, _ in inner_boxes(data, 0, len(data))):
        return {}
    tables = tables_of(data, find_track(data, track))
    return {name: data[first:last] for name, (first, last) in tables.items()}


def _count(table: memoryview) -> int:
    """Return the number behind the version and flags of a table; 0 if it is cut."""
    return int.from_bytes(table[4:8], "big")


def _numbers(table: memoryview, first: int, count: int) -> np.ndarray:
    """Return so many numbers of a table from a byte on, fewer if it is cut."""
    content = table[first : first + 4 * count]
    return np.frombuffer(content[: len(content) // 4 * 4], ">i4").astype(np.int64)


def _sample_count(table: memoryview) -> int:
    """Return how many samples a "stsz" has; 0 if they share a size, or it is cut.

    Either may claim any number of them in a few bytes.
    """
    count = int.from_bytes(table[8:12], "big")
    return 0 if _count(table) or len(table) < 12 + 4 * count else count


def _same(table: memoryview, offsets: np.ndarray, sizes: np.ndarray, end: int) -> bool:
    """Return True if the index has all samples of a "stsz" once, with bytes within the file."""
    count = _sample_count(table)
    return (
        len(offsets) == count > 0
        and np.array_equal(_numbers(table, 12, count), sizes)
        and bool((np.diff(np.sort(offsets)) > 0).all())
        and bool((sizes > 0).all() and (offsets >= 0).all() and (offsets + sizes <= end).all())
    )


def _delays(table: memoryview | None, count: int) -> np.ndarray | None:
    """Return the time int64[k] from decoding to showing each sample; None if it is not told."""
    if table is None:
        return np.zeros(count, np.int64)
    numbers = _numbers(table, 8, 2 * min(_count(table), count))
    runs, delays = numbers[: len(numbers) // 2 * 2].reshape(-1, 2).T
    if (runs <= 0).any() or (abs(delays) > _MAX_DELAY).any() or runs.sum() != count:
        return None
    return np.repeat(delays, runs)


def _unneeded(table: memoryview | None, count: int) -> np.ndarray:
    """Return bool[k], True for samples that a "sdtp" says no other needs."""
    flags = np.zeros(count, np.uint8)
    given = np.frombuffer(table[4 : 4 + count] if table is not None else b"", np.uint8)
    flags[: len(given)] = given
    return flags >> 2 & 3 == _NOT_NEEDED
