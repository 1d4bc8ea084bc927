"""Records of packed files read into a staging buffer by a pool of threads."""

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.storage.files import DataFile, Patience, Refused, is_remote, pause
from jaxaug.iterators.sources.storage.held import Held, Memory, errors_at
from jaxaug.iterators.sources.storage.read import FileReader, Read, allowed_open, read_fully
from jaxaug.iterators.sources.storage.threads import LOOK_SECONDS, Threads, check_awaited

_MAX_GAP = 64 << 10  # bytes skipped between two records rather than asked for in two reads
_LOCAL_THREADS = 16  # reads of disks under way at a time
_REMOTE_THREADS = 128  # which wait for a server most of their time
_REQUEST_SHARE = 0.25  # of the timeout, for one request
_ONCE = Patience(retries=0)
_SPAN = 8 << 20  # bytes, about, of the reads that a long run is divided into for the pool


class Staged:
    """Ranges read into fresh memory by a pool of threads: for network disks, remote files, and
    failing ones.

    Neighboring records are read in one go, and all that the page cache holds in one call.
    Guarantees: a failed, short or stalled read is retried and in the end gives failed rows, never a
    crash; bytes handed over do not change afterwards. Each file that a call touches is compared
    with what was indexed: a local one after the reads by size and time of modification, a remote
    one by the ETag of each answer (by a request after the reads where obstore or the ETag is
    missing; nothing can be told where a server has nothing of the kind). A local one that was
    written to gives failed rows; a remote one, and one that is missing or forbidden, is an error,
    as more than a few records are lost. A local file that is deleted or replaced is read on
    unharmed as long as it is open. It costs a copy, a system call or a request for each run of
    records, one call more for each local file, and the memory of what is read.

    Args:
      files: local or remote. Local ones stay open, a quarter of those that the process may open at
        most.
      local: all files lie on disks of this machine, see `FileReader`.
      timeout: seconds without any read finishing after which those under way, and those behind
        them, count as failed; their threads are left behind until the system lets go of them, and
        hold no process at its end.
      retries: tries after the first, 0.1, 0.2, 0.4, ... seconds apart, for local files. Remote ones
        are tried for `timeout` seconds, and a request is given up after a quarter of them.
      threads: reads under way at a time; None for what suits the files.
      read: how bytes are got; `FileReader()` if None.
    """

    def __init__(
        self,
        files: list[DataFile],
        *,
        local: bool = False,
        timeout: float = 60.0,
        retries: int = 3,
        threads: int | None = None,
        read: Read | None = None,
    ):
        self._files = files
        self._remote = [is_remote(file.path) for file in files]
        # The last try of a remote read begins within the timeout, and takes its own time.
        self._timeout = timeout * (1 + _REQUEST_SHARE) if any(self._remote) else timeout
        self._patience = Patience(seconds=timeout)
        self._retries = retries
        self._threads = threads or (_REMOTE_THREADS if any(self._remote) else _LOCAL_THREADS)
        self._read = read or FileReader(
            allowed_open(len(files)), local, timeout=_REQUEST_SHARE * timeout
        )
        sizes = np.array([file.size for file in files], np.int64)
        self._starts = np.cumsum(sizes) - sizes  # of files, one behind the other
        self._held: weakref.WeakKeyDictionary[object, Held] = weakref.WeakKeyDictionary()
        self._given_up: dict[int, str] = {}  # what the last `hold` has tried, by its place
        self._pool: Threads | None = None
        self._wanted = 0  # bytes
        self._process = os.getpid()  # whose threads those of the pool are
        self._lock = threading.Lock()

    def read(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
    ) -> tuple[Encoded, dict[int, str]]:
        """Return addresses inside a new staging buffer, and of what is held."""
        self._wanted += int(lengths.sum())
        at = self._starts[files] + offsets
        addresses, held = self._take(at, lengths)
        given_up, self._given_up = self._given_up, {}
        failures = errors_at(given_up, at, addresses == 0)
        known = lengths.astype(np.uint64)
        known[list(failures)] = 0
        rows = np.setdiff1d(np.flatnonzero(addresses == 0), list(failures))
        if not rows.size:
            return Encoded(addresses.astype(np.uint64), known, held), failures

        spans, span_of, places, size = _merge(files[rows], offsets[rows], lengths[rows])
        staging, errors = self._fill(spans, np.empty(size, np.uint8))
        failed = np.isin(span_of, list(errors))
        for row in np.flatnonzero(failed).tolist():
            failures[int(rows[row])] = errors[span_of[row]]
        addresses[rows] = staging.ctypes.data + places
        known[rows[failed]] = 0
        return Encoded(addresses.astype(np.uint64), known, [staging, held]), failures

    def hold(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, keeper: object
    ) -> None:
        """Read ranges that will be wanted, each by one `read`, in as few requests as may be.

        What cannot be read is an error of the next `read`, which would try as long once more, and
        left to later ones. Who asks for them passes what they live for.
        """
        spans, span_of, places, size = _merge(files, offsets, lengths)
        memory = Memory.of(size)
        staging, errors = self._fill(spans, memory.data)
        if staging is not memory.data:  # a read that stalls may still write there
            memory = Memory(staging, None)
        failed = np.isin(span_of, list(errors))
        at = self._starts[files] + offsets
        some = lengths > 0
        bad = np.flatnonzero(failed & some)
        self._given_up = {int(at[row]): errors[span_of[row]] for row in bad.tolist()}
        good = ~failed & some
        with self._lock:
            held = self._held.setdefault(keeper, Held())
        held.add(at[good], lengths[good], places[good], memory)

    def _take(self, at: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, list[Any]]:
        """Return the address of each range, 0 where none is held, and the owners of the bytes."""
        addresses = np.zeros(len(at), np.int64)
        owners = []
        with self._lock:
            every = list(self._held.values())
        for held in every:
            rows = np.flatnonzero(addresses == 0)
            addresses[rows], owner = held.take(at[rows], length[rows])
            owners.append(owner)
        return addresses, owners

    @property
    def traffic(self) -> dict[str, int]:
        """What was asked of servers, see `Far`; nothing where files are local."""
        if not any(self._remote) or not isinstance(self._read, FileReader):
            return {}
        return {"wanted_bytes": self._wanted} | self._read.remote.counts

    def _fill(self, spans: list["_Span"], staging: np.ndarray) -> tuple[np.ndarray, dict[int, str]]:
        """Read every span to its place; return the memory, and the errors by number of the span."""
        began = time.monotonic()
        waiting = self._fill_alone(spans, staging)
        # What one request of it may have taken of the time for which it is tried.
        spent = min(time.monotonic() - began, _REQUEST_SHARE * self._patience.seconds)
        patience = Patience(seconds=self._patience.seconds - spent)
        errors: dict[int, str] = {}
        for attempt in range(self._retries + 1):
            if attempt:
                pause(attempt - 1)
            read = partial(self._read_span, staging.data, patience)
            failed, stalled = self._share(read, spans, waiting)
            if stalled:
                # A read that ends late writes to the memory that it was given.
                staging = staging.copy()
            failed |= self._check(spans, [number for number in waiting if number not in failed])
            # Those of remote files were tried for long already, and stay.
            far = {number: errors[number] for number in errors if self._is_far(spans[number])}
            errors = far | failed
            waiting = [number for number in sorted(failed) if not self._is_far(spans[number])]
            if not waiting:
                break
        return staging, errors

    def _read_span(self, staging: memoryview, patience: Patience, span: "_Span") -> None:
        destination = staging[span.place : span.place + span.length]
        patience = patience if self._is_far(span) else _ONCE
        read_fully(self._read, self._files[span.file], span.offset, destination, patience)

    def _is_far(self, span: "_Span") -> bool:
        return self._remote[span.file]

    def _check(self, spans: list["_Span"], numbers: list[int]) -> dict[int, str]:
        """Return the spans that may be of a changed file, and why; each file is asked once."""
        if not isinstance(self._read, FileReader):
            return {}
        first = {spans[number].file: number for number in reversed(numbers)}
        check = partial(_check_file, self._read, self._files)
        found, _ = self._share(check, spans, sorted(first.values()))
        return {
            number: found[first[spans[number].file]]
            for number in numbers
            if first[spans[number].file] in found
        }

    def _fill_alone(self, spans: list["_Span"], staging: np.ndarray) -> list[int]:
        """Read what needs no other threads; return the numbers of the other spans.

        They would read it no faster, and each would take the GIL from those that decode.
        """
        if not isinstance(self._read, FileReader):
            return list(range(len(spans)))
        files = [self._files[span.file] for span in spans]
        columns = np.array(spans, np.int64).reshape(-1, 4)
        addresses = staging.ctypes.data + columns[:, 3]
        found = self._read.read_cached(files, columns[:, 1], addresses, columns[:, 2])
        far = [number for number, span in enumerate(spans) if self._is_far(span)]
        if far:
            asked = [spans[number] for number in far]
            places = [staging.data[span.place : span.place + span.length] for span in asked]
            files = [files[number] for number in far]
            offsets = [span.offset for span in asked]
            found[far] = self._read.remote.read_many(files, offsets, places)
        return np.flatnonzero(~found).tolist()

    def _share(
        self, act: "_Act", spans: list["_Span"], numbers: list[int]
    ) -> tuple[dict[int, str], bool]:
        """Do something with spans in threads; return the errors, and True if some of it stalled."""
        left = deque(numbers)  # a task for each span would cost more than it
        outcome = _Outcomes(self._patience.seconds if any(self._remote) else math.inf)
        count = min(len(numbers), self._threads)
        tasks = [self._submit(_each, act, spans, left, outcome) for _ in range(count)]
        pending: set[Future] = set(tasks)
        try:
            while pending:
                seconds = outcome.last + self._timeout - time.monotonic()
                if seconds <= 0:
                    break
                _, pending = wait(pending, min(seconds, LOOK_SECONDS))
                check_awaited()
        finally:
            if pending:
                left.clear()
                self._abandon_pool()
        for task in tasks:
            if not task.cancel() and task not in pending:  # cancelled are those that have not begun
                task.result()
        if outcome.refused is not None:
            raise SourceError(str(outcome.refused))
        return self._errors(outcome, spans, numbers), bool(pending)

    def _errors(
        self,
        outcome: "_Outcomes",
        spans: list["_Span"],
        numbers: list[int],
    ) -> dict[int, str]:
        """Return the errors by number; what has not ended is one too."""
        ended = {number: outcome.errors[number] for number in numbers if number in outcome.errors}
        errors = {number: error for number, error in ended.items() if error is not None}
        for number in numbers:
            if number not in ended:
                path = self._files[spans[number].file].name
                errors[number] = f"{path!r}: no answer within {self._timeout:g} s"
        return errors

    def _submit(self, act: Callable[..., None], *arguments: Any) -> Future:
        with self._lock:
            # A forked child has the pool of its parent, and none of the threads.
            if self._pool is None or self._process != os.getpid():
                self._pool = Threads(self._threads, "jaxaug-read")
                self._process = os.getpid()
            return self._pool.submit(act, *arguments)

    def _abandon_pool(self) -> None:
        """Drop the pool: threads that hang cannot be ended, the next read starts new ones."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
                self._pool = None


class _Outcomes:
    """The end of each span and the time of the last one; threads add to it.

    Args:
      patience: seconds without a read that succeeds after which none is begun any more.
    """

    def __init__(self, patience: float):
        self._patience = patience
        self.errors: dict[int, str | None] = {}
        self.last = time.monotonic()
        self._good = self.last  # the time of the last one that succeeded
        self.refused: Refused | None = None

    def add(self, number: int, error: str | None) -> None:
        self.errors[number] = error
        self.last = time.monotonic()
        if error is None:
            self._good = self.last

    @property
    def hopeless(self) -> bool:
        return time.monotonic() > self._good + self._patience


def _each(act: "_Act", spans: list["_Span"], left: deque[int], outcome: _Outcomes) -> None:
    """Do something, once, with each span that no other thread has taken."""
    while outcome.refused is None and not outcome.hopeless:
        try:
            number = left.popleft()
        except IndexError:
            return
        error = None
        try:
            act(spans[number])
        except Refused as failure:
            outcome.refused = failure
            return
        except (SourceError, OSError) as failure:
            error = str(failure)
        outcome.add(number, error)


def _check_file(reader: FileReader, files: list[DataFile], span: "_Span") -> None:
    reader.check(files[span.file])


class _Span(NamedTuple):
    """Bytes of one file that are read together, and their place in the staging buffer."""

    file: int
    offset: int
    length: int
    place: int


_Act: TypeAlias = Callable[[_Span], None]


def _merge(files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray):
    """Join neighboring records: (spans, span of each record, place of it, size of the buffer)."""
    order = np.lexsort((offsets, files))
    file = files[order]
    start = offsets[order]
    stop = (offsets + lengths)[order]
    first = np.ones(order.size, bool)
    first[1:] = (file[1:] != file[:-1]) | (start[1:] > stop[:-1] + _MAX_GAP)
    heads = np.flatnonzero(first)
    if not heads.size:
        return [], np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    run = np.cumsum(first) - 1
    size = (np.maximum.reduceat(stop, heads) - start[heads])[run]
    parts = np.maximum(np.rint(size / _SPAN), 1).astype(np.int64)  # equal ones
    part = (start - start[heads][run]) * parts // np.maximum(size, 1)
    first[1:] |= part[1:] != part[:-1]
    heads = np.flatnonzero(first)
    sizes = np.maximum.reduceat(stop, heads) - start[heads]
    bases = np.cumsum(sizes) - sizes
    spans = [
        _Span(*row)
        for row in zip(file[heads].tolist(), start[heads].tolist(), sizes.tolist(), bases.tolist())
    ]
    span_of = np.empty_like(order)
    places = np.empty_like(order)
    span_of[order] = number = np.cumsum(first) - 1
    places[order] = bases[number] + start - start[heads][number]
    return spans, span_of, places, int(sizes.sum())
