"""Blocks of remote files, kept on a disk of this machine."""

import atexit
import ctypes
import hashlib
import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from jaxaug.decode import Encoded
from jaxaug.iterators.sources.storage.files import DataFile, reason
from jaxaug.iterators.sources.storage.held import errors_at
from jaxaug.iterators.sources.storage.segment import SUFFIX, Segment, checksum_name
from jaxaug.iterators.sources.storage.staged import Staged
from jaxaug.iterators.sources.storage.threads import Threads
from jaxaug.iterators.sources.storage.unpacked import Unpacked

BLOCK_BYTES = 1 << 20
_SEGMENT_BLOCKS = 64  # that are removed together, at most
_MIN_SEGMENTS = 16  # that the bound has room for
_MAX_MAPPED = 16_000  # segments, a quarter of the mappings that Linux grants a process
_GROUP_BLOCKS = 256  # fetched at a time; three such groups are in memory until they are written
_WAITING_GROUPS = 2  # that are being written while another one is fetched
_WRITE_SECONDS = 60.0  # after which a disk counts as dead
_EXIT_SECONDS = 10.0  # that the end of the process waits for what is being written
_SHARE_LEFT = 0.9  # of the bound, after the oldest segments were removed
_MAX_UNCOUNTED = 1 / 64  # of the bound, written before the folder is counted again
_OLD_SECONDS = 3600  # after which an unfinished file is one of a process that was killed
_LOOK_SECONDS = 30.0  # between two looks at which segments are there, and which were used

_open_caches: "weakref.WeakSet[Cached]" = weakref.WeakSet()


class Cached:
    """Ranges of remote files by whole blocks, which are kept in a folder.

    A block is asked for once; after that it comes from the folder, where it lies beside its
    neighbors in a mapped file, a `Segment`: records are handed over at their addresses there. The
    name of a segment holds the ETag of its file, so another state of the file has other ones. What
    was fetched is written in the background. Those segments go that were not used for longest.
    Processes share the folder, and one that is killed leaves no wrong bytes. A full disk ends the
    keeping, with a warning, and no more. As with every mapped file, a disk that fails under it, or
    another program that makes it shorter, cannot be caught.

    Args:
      far: the storage of the files.
      files: remote, or compressed; one without a stamp is not kept, as nothing would tell a change.
      folder: of the segments.
      bound: bytes, which the folder may exceed by a sixty-fourth for each process.
      whole: all blocks of a file are read, and kept, together.
    """

    def __init__(
        self,
        far: Staged | Unpacked,
        files: list[DataFile],
        folder: str,
        bound: float,
        *,
        whole: bool = False,
    ):
        self._far = far
        self._whole = whole
        self._files = files
        self._folder = folder
        self._bound = bound
        self._blocks = max(1, min(_SEGMENT_BLOCKS, int(bound / _MIN_SEGMENTS / BLOCK_BYTES)))
        sizes = np.array([file.size for file in files], np.int64)
        # Segments are numbered through all files, and so are blocks: each file begins with one.
        counts = -(-sizes // (BLOCK_BYTES * self._blocks))
        self._first_segment = np.concatenate([[0], np.cumsum(counts)])
        self._segments: dict[int, Segment] = {}
        self._used: set[int] = set()
        self._looked = time.monotonic()
        self._counts = {"wanted_bytes": 0, "hits": 0, "misses": 0}
        self._lock = threading.Lock()
        self._uncounted = bound  # so that the first block to be kept has the folder counted
        self._keeping = True
        self._given_up: dict[int, str] = {}  # what the last `hold` has tried, by block
        self._writer: Threads | None = None
        self._writes: list[Future] = []
        self._unwritten: dict[int, tuple[int, Any]] = {}  # address and owner by block
        self._process = os.getpid()
        _open_caches.add(self)

    def read(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
    ) -> tuple[Encoded, dict[int, str]]:
        """Return addresses inside segments, and in memory for what was not there."""
        if time.monotonic() > self._looked + _LOOK_SECONDS:
            self._look()
        begin, counts = self._touched(files, offsets, lengths)
        blocks = _distinct(begin, counts)
        given_up, self._given_up = self._given_up, {}
        places, owners, errors = self._locate(blocks, given_up)
        self._counts["wanted_bytes"] += int(lengths.sum())

        first = np.searchsorted(blocks, begin)
        addresses, joined = _addresses(places, first, counts, offsets % BLOCK_BYTES, lengths)
        failures = {}
        for bad in errors:
            for failed in np.flatnonzero((first <= bad) & (bad < first + counts)).tolist():
                failures[failed] = errors[bad]
        known = lengths.astype(np.uint64)
        known[list(failures)] = 0
        return Encoded(addresses.astype(np.uint64), known, [owners, joined]), failures

    def hold(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, keeper: object
    ) -> None:
        """Have the blocks of ranges kept that will be wanted, by the folder as long as it can.

        What cannot be read is an error of the next `read`, as of `Staged`.
        """
        blocks = _distinct(*self._touched(files, offsets, lengths))
        errors = self._locate(blocks, {})[2]
        self._given_up = {int(blocks[place]): error for place, error in errors.items()}

    def _touched(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the first block of each range, and how many it has."""
        begin = self._first_segment[files] * self._blocks + offsets // BLOCK_BYTES
        counts = np.where(lengths > 0, (offsets % BLOCK_BYTES + lengths - 1) // BLOCK_BYTES + 1, 0)
        return begin, counts

    @property
    def traffic(self) -> dict[str, int]:
        """What was asked of servers, see `Far`, and the blocks that the folder had or had not."""
        return self._far.traffic | self._counts

    def flush(self, seconds: float) -> bool:
        """Wait until what was read is kept; return False if that takes longer."""
        mine = self._writes if self._process == os.getpid() else []  # not those of a parent
        return not wait(mine, seconds).not_done

    def _locate(
        self, blocks: np.ndarray, known: dict[int, str]
    ) -> tuple[np.ndarray, list[Any], dict[int, str]]:
        """Return where blocks int64[k] lie, what keeps them there, and errors by place in k.

        Those whose errors are known, by block, are not asked for once more.
        """
        places = np.zeros(len(blocks), np.int64)
        owners: list[Any] = []
        # Before the segments are looked at: what is written meanwhile is found there.
        for place, block in enumerate(blocks.tolist() if self._unwritten else []):
            if block in self._unwritten:
                places[place], owner = self._unwritten.get(block, (0, None))
                owners.append(owner)
        segments, heads = np.unique(blocks // self._blocks, return_index=True)
        for segment, head, stop in zip(segments.tolist(), heads, [*heads[1:], len(blocks)]):
            kept = self._segment(segment)
            if kept is not None:
                within = blocks[head:stop] - segment * self._blocks
                kept_at = np.where(kept.find(within), kept.addresses(within), 0)
                places[head:stop] = np.where(places[head:stop] == 0, kept_at, places[head:stop])
                owners.append(kept.mapping)

        errors = errors_at(known, blocks, places == 0)
        missing = np.setdiff1d(np.flatnonzero(places == 0), list(errors))
        self._counts["hits"] += len(blocks) - missing.size
        self._counts["misses"] += missing.size
        while missing.size:
            group = self._group(blocks[missing])
            encoded, failed = self._fetch(group)
            rows = np.searchsorted(group, blocks[missing])
            wanted = missing[: int((rows < len(group)).sum())]  # those of the group come first
            rows = rows[: len(wanted)]
            places[wanted] = encoded.addresses[rows]
            owners.append(encoded.owner)
            errors |= {int(at): failed[row] for at, row in zip(wanted, rows) if row in failed}
            self._keep_later(np.delete(group, list(failed)), encoded, failed)
            missing = missing[len(wanted) :]
        return places, owners, errors

    def _group(self, missing: np.ndarray) -> np.ndarray:
        """Return the blocks, in order, that are fetched together with the first one missing."""
        group = missing[:_GROUP_BLOCKS]
        if not self._whole:
            return group
        files = np.unique(self._in_files(group)[0])
        counts = np.array([-(-self._files[file].size // BLOCK_BYTES) for file in files.tolist()])
        few = np.cumsum(counts) <= max(_GROUP_BLOCKS, counts[0])
        return _distinct(self._first_segment[files[few]] * self._blocks, counts[few])

    def _fetch(self, blocks: np.ndarray) -> tuple[Encoded, dict[int, str]]:
        files, numbers = self._in_files(blocks)
        sizes = np.array([self._files[file].size for file in files.tolist()], np.int64)
        starts = numbers * BLOCK_BYTES
        return self._far.read(files, starts, np.minimum(sizes - starts, BLOCK_BYTES))

    def _in_files(self, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the file of each block, and its number there."""
        segments = blocks // self._blocks
        files = np.searchsorted(self._first_segment, segments, side="right") - 1
        return files, blocks - self._first_segment[files] * self._blocks

    def _segment(self, number: int) -> Segment | None:
        """Return a segment; None if nothing is kept."""
        found = self._segments.get(number)
        if found is None:
            found = self._open(number)
        if found is not None:
            self._used.add(number)
        return found

    def _open(self, number: int) -> Segment | None:
        files, firsts = self._in_files(np.array([number * self._blocks]))
        file, first = self._files[files[0]], int(firsts[0])
        if not self._keeping or not file.stamp:
            return None
        left = file.size - first * BLOCK_BYTES
        starts = np.arange(min(self._blocks, -(-left // BLOCK_BYTES))) * BLOCK_BYTES
        form = f"{checksum_name()} {BLOCK_BYTES} {self._blocks}{' unpacked' * self._whole}"
        name = "\n".join([file.identity, file.stamp, form, str(first)])
        digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
        path = os.path.join(self._folder, digest[:2], digest[2:] + SUFFIX)
        try:
            found = Segment(path, np.minimum(left - starts, BLOCK_BYTES), BLOCK_BYTES)
        except OSError as error:
            return self._give_up(reason(error))
        with self._lock:
            while len(self._segments) >= _MAX_MAPPED:
                del self._segments[next(iter(self._segments))]
            return self._segments.setdefault(number, found)

    def _keep_later(self, blocks: np.ndarray, encoded: Encoded, failed: dict[int, str]) -> None:
        """Have blocks written while others are read; wait for those of earlier reads."""
        if not self._keeping:
            return
        addresses = np.delete(encoded.addresses, list(failed)).astype(np.int64)
        with self._lock:
            # A forked child has none of the threads.
            if self._writer is None or self._process != os.getpid():
                self._writer = Threads(1, "jaxaug-keep")
                self._writes = []
                self._unwritten = {}
                self._process = os.getpid()
            self._writes = [each for each in self._writes if not each.done()]
            waiting = self._writes[: 1 - _WAITING_GROUPS]
            for block, address in zip(blocks.tolist(), addresses.tolist()):
                self._unwritten[block] = (address, encoded.owner)
            self._writes.append(self._writer.submit(self._keep, blocks.tolist()))
        if wait(waiting, _WRITE_SECONDS).not_done:
            self._give_up(f"the disk does not answer within {_WRITE_SECONDS:g} s")

    def _keep(self, blocks: list[int]) -> None:
        """Write blocks that wait for it, after others have made room for them."""
        for block in blocks:
            found = self._unwritten.get(block)
            if found is None:  # another read has fetched it, too, and that was written
                continue
            try:
                self._write(block, found[0])
            except OSError as error:
                self._give_up(reason(error))
            finally:
                self._unwritten.pop(block, None)
            del found  # not held while the next one is written

    def _write(self, block: int, address: int) -> None:
        number, within = divmod(block, self._blocks)
        if self._keeping:
            self._make_room(BLOCK_BYTES)
        kept = self._segment(number)
        if self._keeping and kept is not None:
            with suppress(FileNotFoundError):  # another process has removed it
                kept.write(within, address)

    def _give_up(self, why: str) -> None:
        """Keep nothing more."""
        if self._keeping:
            self._keeping = False
            warnings.warn(
                f"`cache`: nothing more is kept in {self._folder!r}: {why}.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _make_room(self, size: int) -> None:
        """Count the folder now and then, and remove what was not used for longest."""
        self._uncounted += size
        if self._uncounted <= self._bound * _MAX_UNCOUNTED:
            return
        self._uncounted = 0
        self._look()
        with _locked(self._folder) as first:
            if first:
                _shrink(self._folder, self._bound)
        self._look()

    def _look(self) -> None:
        """Let go of segments that were removed; mark those that were used since the last look."""
        self._looked = time.monotonic()
        with self._lock:
            segments = dict(self._segments)
        for number, segment in segments.items():
            if not segment.is_there():
                with self._lock:
                    self._segments.pop(number, None)
            elif number in self._used:
                self._used.discard(number)
                with suppress(OSError):
                    os.utime(segment.path)


def _distinct(begin: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the numbers from each of `begin` on, so many as `counts` says, each once."""
    row = np.repeat(np.arange(len(begin)), counts)
    number = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.unique(begin[row] + number)


def _addresses(
    places: np.ndarray,
    first: np.ndarray,
    counts: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return where ranges lie, int64[n], and memory for those whose blocks do not lie in a row.

    Args:
      places: int64[k], of the touched blocks.
      first, counts: int64[n], the first block of each range, and how many it has.
      starts, lengths: int64[n], of each range in its first block, and its bytes.
    """
    if not places.size:
        return np.zeros(len(first), np.int64), places
    gaps = np.cumsum(np.diff(places, prepend=places[:1]) != BLOCK_BYTES)
    used = counts > 0
    begin = np.where(used, first, 0)
    addresses = places[begin] + starts
    cut = np.flatnonzero(used & (gaps[begin + np.maximum(counts, 1) - 1] != gaps[begin]))
    joined = np.empty(int(lengths[cut].sum()), np.uint8)
    place = joined.ctypes.data
    for row in cut.tolist():
        addresses[row] = place
        start, left = int(starts[row]), int(lengths[row])
        for block in range(int(first[row]), int(first[row] + counts[row])):
            size = min(BLOCK_BYTES - start, left)
            if places[block]:
                ctypes.memmove(place, int(places[block]) + start, size)
            place, start, left = place + size, 0, left - size
    return addresses, joined


@contextmanager
def _locked(folder: str) -> Iterator[bool]:
    """Hold the lock of a folder; False if another process has it, which removes files already."""
    import fcntl  # POSIX only, as is `resource` elsewhere

    os.makedirs(folder, exist_ok=True)
    descriptor = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _shrink(folder: str, bound: float) -> None:
    """Remove the segments that were not used for longest if there are too many."""
    found = []
    for entry in _entries(folder):
        with suppress(OSError):  # another process may have removed it
            facts = entry.stat()
            if entry.name.endswith(SUFFIX):
                found.append((facts.st_mtime_ns, 512 * facts.st_blocks, entry.path))
            elif facts.st_mtime < time.time() - _OLD_SECONDS:
                os.unlink(entry.path)
    total = sum(size for _, size, _ in found)
    if total <= bound * (1 - _MAX_UNCOUNTED):
        return
    for _, size, path in sorted(found):
        if total <= bound * _SHARE_LEFT:
            return
        with suppress(OSError):
            os.unlink(path)
        total -= size


def _entries(folder: str) -> Iterator[os.DirEntry]:
    for below in os.scandir(folder):
        if below.is_dir():
            yield from os.scandir(below.path)


@atexit.register
def _flush_all() -> None:
    """Have what was read last kept, too; a dead disk does not hold the process."""
    for each in list(_open_caches):
        each.flush(_EXIT_SECONDS)
