"""Data files, local or remote: which there are, whether they changed, and bytes of them.

A path with "://" (gs://, s3://, http://) is remote and goes through fsspec; every other one is a
local file.
"""

import errno
import glob
import importlib
import os
import re
import stat
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug._typing import PathLike
from jaxaug.errors import SourceError

INDEX_PREFIX = "jaxaug-"
INDEX_SUFFIX = ".index"
_FIRST_PAUSE = 0.1  # seconds before the first retry
_BLOCK = 8 << 20  # bytes read ahead while a file is run through from front to back
# What fsspec's file systems call the stamp of a file, those of its content before times: HTTP, S3,
# Azure and WebDAV give ETags; GCS a generation, its etag changes with the metadata too; the memory
# system a time of creation.
_STAMPS = (
    *("generation", "ETag", "etag", "md5Hash", "Content-MD5", "Digest"),
    *("Last-Modified", "LastModified", "last_modified", "modified", "updated", "mtime", "created"),
)
NO_WAIT = getattr(
    os, "RWF_NOWAIT", 0
)  # of preadv: only what the page cache holds; Linux alone can tell


class DataFile(NamedTuple):
    """A file as it was when it was listed; `stamp` changes when its content does."""

    path: str
    size: int
    # local: the time of modification in ns; remote: the ETag, or what comes nearest; "" if there is
    # none
    stamp: str


# (file, offset, destination) -> bytes read, 0 at the end of the file. Raises OSError, which is
# retried.
Read = Callable[[DataFile, int, memoryview], int]


def local_path(path: PathLike) -> str:
    """Return the absolute path of a local file, "~" expanded."""
    return os.path.abspath(os.path.expanduser(path))


def is_remote(path: str) -> bool:
    """Whether a path is a URL for fsspec."""
    return "://" in path


def is_index(path: str) -> bool:
    """Whether a file is an index that lies beside its data, where "folder/*" finds it too."""
    name = os.path.basename(path)
    return (
        name.startswith(INDEX_PREFIX) and INDEX_SUFFIX in name
    )  # one that is being written has more behind it


def list_files(paths: PathLike | Sequence[PathLike]) -> list[DataFile]:
    """The files that paths, glob patterns and brace ranges name.

    Args:
      paths: one or several of "train-*.tfrecord", "train-{00000..00146}.tar",
        "gs://bucket/train-*.tar", plain paths; each pattern's files come sorted. A web server lists
        nothing: name its files.

    Raises:
      SourceError: a pattern that matches nothing, or a file that is missing.

    Example:
      >>> [os.path.basename(p) for p in _braces("a-{08..10}.tar")]
      ['a-08.tar', 'a-09.tar', 'a-10.tar']
    """
    given = (
        [os.fspath(paths)]
        if isinstance(paths, (str, os.PathLike))
        else [os.fspath(path) for path in paths]
    )
    if not given:
        raise SourceError("`paths` must name at least one file, got none.")
    found = [path for pattern in given for braced in _braces(pattern) for path in _matches(braced)]
    return [_stat(path) for path in found]


def _braces(pattern: str) -> list[str]:
    """`{00..12}` and `{a,b}` written out, as shells and WebDataset do."""
    match = re.search(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    low, high, names = match.groups()
    inside = (
        names.split(",") if names else [f"{n:0{len(low)}d}" for n in range(int(low), int(high) + 1)]
    )
    before = pattern[: match.start()]
    after = pattern[match.end() :]
    return [before + one + rest for one in inside for rest in _braces(after)]


def _matches(pattern: str) -> list[str]:
    if is_remote(pattern):
        system, below = _system(pattern)
        system.invalidate_cache()  # fsspec may hold a listing of earlier
        if "*" not in pattern:  # a URL may well hold a "?"
            return [pattern]
        found = sorted(system.unstrip_protocol(name) for name in system.glob(below))
    elif not glob.has_magic(pattern):
        return [local_path(pattern)]
    else:
        every = glob.glob(os.path.expanduser(pattern), recursive=True)
        found = sorted(os.path.abspath(name) for name in every if not is_index(name))
    if not found:
        raise SourceError(f"`paths`: {pattern!r} matches no file.")
    return found


def _stat(path: str) -> DataFile:
    try:
        if not is_remote(path):
            facts = os.stat(path)
            if stat.S_ISDIR(facts.st_mode):
                raise SourceError(
                    f"`paths`: {path!r} is a folder; name its files, for example {path}/*.tar."
                )
            return DataFile(path, facts.st_size, str(facts.st_mtime_ns))
        info = _remote_facts(*_system(path))
    except SourceError:
        raise
    except Exception as error:  # each protocol has its own
        raise SourceError(f"`paths`: {path!r} cannot be opened: {reason(error)}.") from error
    if info.get("size") is None:
        raise SourceError(
            f"`paths`: the server of {path!r} does not tell its size, so no ranges of it can be read."
        )
    return DataFile(
        path, int(info["size"]), str(next((info[key] for key in _STAMPS if info.get(key)), ""))
    )


def _remote_facts(system: Any, name: str, retries: int = 3) -> dict[str, Any]:
    """Ask for a file, again where the failure may pass."""
    for retry in range(retries):
        try:
            return system.info(name)
        except Exception as error:  # each protocol has its own
            cause = _beneath(error) or error
            final = isinstance(cause, (FileNotFoundError, PermissionError))
            server = getattr(cause, "status", 0) >= 500
            if final or not (isinstance(cause, OSError) or server):  # TimeoutError is an OSError
                raise
            pause(retry)
    return system.info(name)


def reason(error: BaseException) -> str:
    """Return what an exception says, in one clause, without the path that OSError adds."""
    cause = _beneath(error)
    if cause is not None:
        return reason(cause)
    if isinstance(error, FileNotFoundError):  # fsspec's have the path alone
        return os.strerror(errno.ENOENT)
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error) or type(error).__name__


def _beneath(error: BaseException) -> BaseException | None:
    """Return the failure that fsspec takes for a missing file: of a connection or a server."""
    cause = error.__cause__ or error.__context__
    if not isinstance(error, FileNotFoundError) or cause is None:
        return None
    missing = isinstance(cause, FileNotFoundError) or getattr(cause, "status", None) in (404, 410)
    return _beneath(cause) if missing else cause


def _system(path: str):
    """(file system, name in it) of a URL."""
    try:
        return importlib.import_module("fsspec.core").url_to_fs(path)
    except (
        ImportError,
        ValueError,
    ) as error:  # of fsspec, of what it needs for a protocol, or no such protocol
        needed = 'pip install "jaxaug[remote]"'
        raise SourceError(
            f"{path!r} is remote, which needs fsspec: {reason(error)} ({needed})."
        ) from error


class Patience:
    """How long a single thread may take to read from the page cache, before others had better help.

    Where it takes longer, it hardly gets the GIL, as beside Python that never waits: several get it
      more often.
    """

    def __init__(self):
        self._until = time.perf_counter() + 5e-3

    def lasts(self, calls: int, length: int) -> bool:
        """Whether there was time for some more system calls, 0.1 ms each, and bytes, 1 GB/s."""
        self._until += 1e-4 * calls + 1e-9 * length
        return time.perf_counter() < self._until


class OpenFile:
    """A local file that is still the one that was indexed, open until the last thread lets go of
    it.

    Raises:
      SourceError: it is another one, or was written to.
      OSError: it cannot be opened.
    """

    def __init__(self, file: DataFile):
        self._file = file
        self._stamp = int(file.stamp)
        self.descriptor = os.open(file.path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.descriptor)
        self.check()

    def check(self) -> None:
        """Nobody has written to it, as size and time of modification tell."""
        facts = os.fstat(self.descriptor)
        if facts.st_mtime_ns != self._stamp or facts.st_size != self._file.size:
            raise changed(self._file)


def changed(file: DataFile) -> SourceError:
    """What to raise for a file that is not the one that was indexed."""
    return SourceError(f"{file.path!r} changed since it was indexed: open the source again.")


def allowed_open(count: int) -> int:
    """Return how many of `count` files a reader may hold open: a quarter of the process's limit."""
    import resource  # POSIX only, as much of this package; nothing else here needs it

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return count if soft == resource.RLIM_INFINITY else min(count, max(1, soft // 4))


class FileReader:
    """`Read` of local files by preadv and of remote ones by fsspec.

    Args:
      most: local files that stay open between calls. Opening one costs as much as reading some
        images.
    """

    def __init__(self, most: int = 16):
        self._most = most
        self._lock = threading.Lock()
        self._opened: dict[DataFile, OpenFile] = {}  # the longest unused first

    def __call__(self, file: DataFile, offset: int, destination: memoryview) -> int:
        if not is_remote(file.path):
            opened = self._open(
                file
            )  # held until the bytes are there: others may drive it out of the cache
            return os.preadv(opened.descriptor, [destination], offset)
        system, name = _system(file.path)
        try:
            data = system.cat_file(name, start=offset, end=offset + len(destination))
        except Exception as error:  # each protocol has its own; all of them are worth another try
            raise OSError(f"{type(error).__name__}: {error}") from error
        if len(data) > len(destination):
            raise SourceError(
                f"the server of {file.path!r} ignores ranges: sent {len(data)} bytes for {len(destination)}."
            )
        destination[: len(data)] = data
        return len(data)

    def check(self, file: DataFile) -> None:
        """What was read before this call are the bytes that were indexed.

        Raises:
          SourceError: the file has changed, or is not to be found.
          OSError: an open one cannot be asked.
        """
        if not is_remote(file.path):
            return self._open(file).check()
        system, name = _system(file.path)
        system.invalidate_cache(name)
        if _stat(file.path) != file:
            raise changed(file)

    def _open(self, file: DataFile) -> OpenFile:
        opened = self._opened.get(file) or OpenFile(
            file
        )  # outside of the lock: a dead disk never answers
        with self._lock:
            self._opened.pop(file, None)
            self._opened[file] = opened
            while len(self._opened) > self._most:
                del self._opened[next(iter(self._opened))]
        return opened

    def cached(self, file: DataFile, offset: int, destination: memoryview) -> bool:
        """Fill `destination` if that can be done without a wait: the file is open, the page cache
        holds all of it.
        """
        opened = self._opened.get(file)
        if opened is None or not NO_WAIT:
            return False
        try:
            return os.preadv(opened.descriptor, [destination], offset, NO_WAIT) == len(destination)
        except OSError:  # not there, or a file system that cannot tell
            return False


def read_fully(
    read: Read, file: DataFile, offset: int, destination: memoryview, retries: int = 3
) -> None:
    """Fill `destination` with the bytes from `offset` on, trying again after an OSError.

    Raises:
      SourceError: the file ends too early, or the last try failed too.
    """
    done = 0
    failures = 0
    while done < len(destination):
        try:
            count = read(file, offset + done, destination[done:])
        except OSError as error:
            if failures == retries:
                raise SourceError(
                    f"{file.path!r} cannot be read at byte {offset + done}: {reason(error)}."
                ) from error
            pause(failures)
            failures += 1
            continue
        if count <= 0:
            raise SourceError(
                f"{file.path!r} ends at byte {offset + done}, within what was indexed: it was cut."
            )
        done += count


def pause(retry: int) -> None:
    """Wait before a retry, counted from 0; each waits twice as long as the one before."""
    time.sleep(_FIRST_PAUSE * 2**retry)


class Window:
    """A file read from front to back in large blocks; views of earlier blocks stay valid."""

    def __init__(self, read: Read, file: DataFile, block: int = _BLOCK):
        self.file = file
        self.block_size = block
        self._read = read
        self._start = 0
        self._block = np.zeros(0, np.uint8)

    def at(self, offset: int, length: int) -> np.ndarray:
        """uint8[length] from `offset` on; fewer where the file ends."""
        length = min(length, self.file.size - offset)
        if length <= 0:
            return self._block[:0]
        begin = offset - self._start
        if not 0 <= begin <= begin + length <= self._block.size:
            size = min(max(length, self.block_size), self.file.size - offset)
            self._block = np.empty(size, np.uint8)
            self._start = offset
            begin = 0
            read_fully(self._read, self.file, offset, self._block.data)
        return self._block[begin : begin + length]
