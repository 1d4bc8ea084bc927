"""Data files, local or remote: which there are, whether they changed, and bytes of them.

A path with "://" (gs://, s3://, http://) is remote and goes through fsspec; every other one is a
local file.
"""

import errno
import glob
import hashlib
import importlib
import itertools
import math
import os
import random
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import takewhile
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np

from jaxaug._install import install_command
from jaxaug._typing import PathLike
from jaxaug.errors import SourceError

T = TypeVar("T")
# (bytes of a compressed file, the most that may be in it) -> what is in it, or a byte beyond that
Unpack = Callable[[np.ndarray, int], np.ndarray]

INDEX_PREFIX = "jaxaug-"
INDEX_SUFFIX = ".index"  # of the index of many files
PART_SUFFIX = ".jaxidx"  # of the index of one file
_CACHES = ("simplecache", "filecache", "blockcache", "cached")  # protocols of fsspec
_FIRST_PAUSE = 0.1  # seconds before the first retry
_MAX_PAUSE = 5.0
_ASKED_FILES = 64  # remote files whose facts are asked for at a time
_LISTED_FILES = 16  # from so many on a listing of their folder tells them
# Answers of a server that another try may change: a timeout, too early, too many requests.
MAY_PASS = (408, 425, 429)
# What fsspec's file systems call the stamp of a file, those of its content before times: HTTP, S3,
# Azure and WebDAV give ETags; GCS a generation, its etag changes with the metadata too; the memory
# system a time of creation.
_STAMP_KEYS = (
    *("generation", "ETag", "etag", "md5Hash", "Content-MD5", "Digest"),
    *("Last-Modified", "LastModified", "last_modified", "modified", "updated", "mtime", "created"),
)


class DataFile(NamedTuple):
    """A file as it was when it was listed.

    Attributes:
      path: a local path or a URL.
      size: in bytes.
      stamp: another one when the content changes. Of local files the time of modification in ns, of
        remote ones the ETag or what comes nearest; "" where a server has nothing of the kind.
      unpack: of a file that is compressed as a whole, what gives the bytes that records have their
        places in; `size` is what these are at most.
    """

    path: str
    size: int
    stamp: str
    unpack: Unpack | None = None

    @property
    def name(self) -> str:
        """The path as it may be shown and stored: a URL without its credentials."""
        return hide_secrets(self.path)

    @property
    def identity(self) -> str:
        """The name that an index knows the file by, the same after a token was renewed.

        Where the server has no stamp, a query might be all that tells two files apart.
        """
        query = "" if self.stamp else self.path.partition("?")[2]
        if not query or not is_remote(self.path):
            return self.name
        return f"{self.name}#{hashlib.blake2b(query.encode(), digest_size=8).hexdigest()}"


class Refused(SourceError):
    """A remote file cannot be read, and no other try would change that."""


def changed(file: DataFile) -> SourceError:
    """Return the error for a file that is not the one that was indexed."""
    kind = Refused if is_remote(file.path) else SourceError
    return kind(f"{file.name!r} changed since it was indexed: open the source again.")


# The user and password of any URL; the query of a web server, where tokens and signatures are.
_USER = re.compile(r"(\w[\w+.-]*://)[^/\s'\"]*@")
_QUERY = re.compile(r"(https?://[^\s'\"?]*)\?[^\s'\")]*")
# A user and an address for a host, which may have two colons: RFC 3986, section 3.2.
_COLONS = re.compile(r"^(https?://)([^/?#@]*@)?(\[[\w.:%]+\])?")


def hide_secrets(text: str) -> str:
    """Return a text without the users, passwords and queries of the URLs in it.

    Example:
      >>> hide_secrets("https://user:word@host/a.tar?token=abc")
      'https://host/a.tar'
    """
    return _QUERY.sub(r"\1", _USER.sub(r"\1", text))


def cause_of(error: BaseException, path: str) -> BaseException | None:
    """Return the error as the cause to show; None for a URL, which tracebacks would print."""
    return None if is_remote(path) else error


def local_path(path: PathLike) -> str:
    """Return the absolute path of a local file, "~" expanded.

    Raises:
      SourceError: it is a URL, or has a NUL.
    """
    name = os.path.expanduser(path)
    check_local(name)
    return os.path.abspath(name)


def check_local(path: str, where: str = "") -> None:
    """Raise SourceError if a path is a URL or has a NUL; `where` it was found leads the message."""
    place = where and f"{where}: "
    if is_remote(path):
        raise SourceError(
            f"{place}{hide_secrets(path)!r} must be a path on this machine: URLs "
            "are read by WebDataset, TFRecord, Parquet, MDS and LitData alone."
        )
    if "\0" in path:  # at which the system would end it, and open another file
        raise SourceError(f"{place}a path must have no byte of 0, got {path!r}: correct it.")


def is_remote(path: str) -> bool:
    """Return True if a path is a URL for fsspec."""
    return "://" in path


def is_web(url: str) -> bool:
    """Return True for a URL of a web server, which is no chain of fsspec.

    Example:
      >>> is_web("http://me:word@[::1]:80/a.tar"), is_web("http://host/a.zip::b")
      (True, False)
    """
    return "::" not in _COLONS.sub(r"\1", url) and url.startswith(("http://", "https://"))


def is_index(path: str) -> bool:
    """Return True if a file is an index, which "folder/*" finds beside the data too."""
    name = os.path.basename(path)
    # One that is being written has more behind the suffix.
    return PART_SUFFIX in name or (name.startswith(INDEX_PREFIX) and INDEX_SUFFIX in name)


def list_files(paths: PathLike | Sequence[PathLike]) -> list[DataFile]:
    """Return the files that paths, glob patterns and brace ranges name.

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
    given = _as_list(paths)
    if not given:
        raise SourceError("`paths` must name at least one file, got none.")

    found: list[str | DataFile] = []
    for pattern in given:
        for braced in _braces(pattern):
            found += _matches(braced)
    return _stat_files(found)


def named_paths(paths: PathLike | Sequence[PathLike]) -> list[str]:
    """Return the files that paths and brace ranges name, without a look at them.

    Raises:
      SourceError: a pattern, whose files only a listing would tell.
    """
    named = [path for pattern in _as_list(paths) for path in _braces(pattern)]
    for path in named:
        if "*" in path if is_remote(path) else glob.has_magic(path):
            raise SourceError(
                f"`paths`: {hide_secrets(path)!r} must name its files by brace ranges, as "
                "`trust_index` lists none: patterns need a listing."
            )
    return [path if is_remote(path) else local_path(path) for path in named]


def _as_list(paths: PathLike | Sequence[PathLike]) -> list[str]:
    """Return one or several paths as texts."""
    single = isinstance(paths, (str, bytes, os.PathLike))
    texts = []
    for path in [paths] if single else list(paths):
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"`paths` must be a path or pattern, or a list of them, got {path!r}.")
        texts.append(os.fspath(path))
        if texts[-1].startswith("pipe:"):  # as webdataset has them; may hold secrets
            raise SourceError(
                '`paths`: "pipe:" begins a command, in whose output no record can be reached by '
                "number: give the file or URL that it reads."
            )
    return texts


def _stat_files(found: list[str | DataFile]) -> list[DataFile]:
    """Return the facts of files that are not known yet.

    Those of a folder of a store that lists come by one listing; else a server is asked for many at
    a time.
    """
    far = [place for place, each in enumerate(found) if isinstance(each, str) and is_remote(each)]
    if len(far) >= _LISTED_FILES:
        listed = _list_folder([str(found[place]) for place in far])
        for place in far:
            found[place] = listed.get(str(found[place]), found[place])
        far = [place for place in far if isinstance(found[place], str)]
    if len(far) > 1:
        with ThreadPoolExecutor(min(_ASKED_FILES, len(far)), "jaxaug-stat") as pool:
            for place, file in zip(far, pool.map(stat_file, [str(found[each]) for each in far])):
                found[place] = file
    return [stat_file(each) if isinstance(each, str) else each for each in found]


def _list_folder(paths: list[str]) -> dict[str, DataFile]:
    """Return the facts of files by what a listing of their folder tells; none where it fails."""
    prefix = os.path.commonprefix(paths)  # noqa: RUF071, as stores list by characters
    if "/" not in prefix.partition("://")[2] or prefix.startswith("http") or "::" in prefix:
        return {}
    try:
        found = _matches(prefix + "*")
    except Exception:  # each protocol has its own; whoever asks for each file tells what is wrong
        return {}
    return {file.path: file for file in found if isinstance(file, DataFile)}


def _braces(pattern: str) -> list[str]:
    """Return a pattern with `{00..12}` and `{a,b}` written out, as shells and WebDataset do."""
    match = re.search(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    low, high, names = match.groups()
    if names:
        inside = names.split(",")
    else:
        inside = _numbers(low, high)
    before = pattern[: match.start()]
    rests = _braces(pattern[match.end() :])
    return [before + one + rest for one in inside for rest in rests]


def _numbers(first: str, last: str) -> list[str]:
    """Return the numbers from one to another, up or down, in digits with the zeros of either."""
    start = int(first)
    stop = int(last)
    step = 1 if start <= stop else -1
    width = next((len(bound) for bound in (first, last) if bound.startswith("0")), 0)
    return [f"{number:0{width}d}" for number in range(start, stop + step, step)]


def _matches(pattern: str) -> Sequence[str | DataFile]:
    """Return the paths that a pattern names, or the files if a listing tells their facts."""
    if is_remote(pattern):
        _check_uncached(pattern)
        system, below = file_system_of(pattern)
        system.invalidate_cache()  # fsspec may hold a listing of earlier
        if "*" not in pattern:  # a URL may well hold a "?"
            return [pattern]
        listed = insist(partial(system.glob, below, detail=True), OPENING)
        names = {_chained(pattern, system.unstrip_protocol(name)): name for name in listed}
        found = [_listed(path, listed[names[path]]) for path in sorted(names) if not is_index(path)]
    elif not glob.has_magic(pattern):
        return [local_path(pattern)]
    else:
        every = glob.glob(os.path.expanduser(pattern), recursive=True)
        found = sorted(os.path.abspath(name) for name in every if not is_index(name))
    if not found:
        raise SourceError(f"`paths`: {hide_secrets(pattern)!r} matches no file.")
    return found


def _check_uncached(pattern: str) -> None:
    """Raise SourceError for a URL behind a cache of fsspec.

    It writes a file under its final name while other threads, which read records at the same time,
    already take bytes of it.
    """
    protocols = [link.partition("://")[0] for link in pattern.split("::")]
    cache = next((each for each in protocols if each in _CACHES), None)
    if cache is not None:
        raise SourceError(
            f"`paths`: {hide_secrets(pattern)!r} is behind a cache of fsspec, whose unfinished "
            f"files would be read: leave '{cache}::' out, or copy the files to a local disk."
        )


def _chained(pattern: str, path: str) -> str:
    """Return the URL of a file that a pattern matches, in the chain "zip://*.tar::gs://b/a.zip".

    Example:
      >>> _chained("dir::gs://b/*.tar", "gs://b/1.tar")
      'dir::gs://b/1.tar'
    """
    if is_web(pattern):
        return path
    links = pattern.split("::")
    place = next(number for number, link in enumerate(links) if is_remote(link))
    return "::".join([*links[:place], path, *links[place + 1 :]])


def stat_file(path: str) -> DataFile:
    try:
        if not is_remote(path):
            facts = os.stat(path)
            if stat.S_ISDIR(facts.st_mode):
                raise _is_folder(path)
            return DataFile(path, facts.st_size, str(facts.st_mtime_ns))
        system, name = file_system_of(path)
        info = insist(partial(system.info, name), OPENING)
    except SourceError:
        raise
    except Exception as error:  # each protocol has its own
        what = f"`paths`: {hide_secrets(path)!r} cannot be opened: {reason(error)}."
        raise SourceError(what) from cause_of(error, path)
    return _data_file(path, info)


def _listed(path: str, info: Mapping[str, Any]) -> str | DataFile:
    """Return a file with what a listing tells, or its path where an answer may say it otherwise.

    Generations and quoted ETags are written in one way; times are not.
    """
    exact = info.get("generation") or str(info.get("ETag", "")).startswith('"')
    return _data_file(path, info) if exact else path


def _data_file(path: str, info: Mapping[str, Any]) -> DataFile:
    """Return a remote file by what fsspec tells of it."""
    if info.get("type") == "directory":
        raise _is_folder(hide_secrets(path))
    if info.get("size") is None:
        raise SourceError(
            f"`paths`: the server of {hide_secrets(path)!r} does not tell its size, "
            "so no ranges of it can be read."
        )
    stamps = (info[key] for key in _STAMP_KEYS if info.get(key))
    return DataFile(path, int(info["size"]), str(next(stamps, "")))


def _is_folder(path: str) -> SourceError:
    pattern = f"{path.rstrip('/')}/*"
    return SourceError(f"`paths`: {path!r} is a folder; name its files, as by {pattern!r}.")


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
    return hide_secrets(said or str(error) or type(error).__name__)


def _beneath(error: BaseException) -> BaseException | None:
    """Return the failure that fsspec takes for a missing file: of a connection or a server."""
    cause = error.__cause__ or error.__context__
    if not isinstance(error, FileNotFoundError) or cause is None:
        return None
    # fsspec's memory looks a name up.
    missing = isinstance(cause, (FileNotFoundError, LookupError)) or _status(cause) in (404, 410)
    return _beneath(cause) if missing else cause


def file_system_of(path: str):
    """Return the file system of a URL, and the name of the file in it."""
    try:
        if is_web(path) and "::" in path:  # which fsspec would take for a chain
            return importlib.import_module("fsspec").filesystem(path.partition(":")[0]), path
        return importlib.import_module("fsspec.core").url_to_fs(path)
    except (ImportError, ValueError) as error:  # no fsspec, not what a protocol needs, none such
        raise SourceError(
            f"{hide_secrets(path)!r} is remote, which needs fsspec: {reason(error)}"
            f" ({install_command('remote')})."
        ) from error


def open_file(path: str) -> BinaryIO:
    """Open a file for reading, or one of a store, whose parts come as they are asked for."""
    if not is_remote(path):
        return open(path, "rb")
    system, name = file_system_of(path)
    return system.open(name, "rb")


def read_whole(path: str) -> bytes:
    """Return the bytes of a file, or of one of a store.

    Raises:
      OSError: there is none, or it is a local one that cannot be read.
      SourceError: a server does not give it, which does not say that there is none.
    """
    if not is_remote(path):
        with open(path, "rb") as file:
            return file.read()
    system, name = file_system_of(path)
    try:
        return insist(partial(system.cat_file, name), REMOTE)
    except Exception as error:  # each protocol has its own
        if isinstance(error, FileNotFoundError) and _beneath(error) is None:
            raise
        what = f"{hide_secrets(path)!r} cannot be read: {reason(error)}."
        raise SourceError(what) from cause_of(error, path)


def write_whole(url: str, data: bytes) -> None:
    """Write a file of a store; those of objects show it when it is whole.

    Raises:
      OSError: it cannot be written.
    """
    if is_web(url):
        raise OSError("web servers take no files")
    system, name = file_system_of(url)
    try:
        insist(partial(system.pipe_file, name, data), REMOTE)
    except Exception as error:  # each protocol has its own
        raise OSError(reason(error)) from cause_of(error, url)


def write_to_first(
    places: Sequence[str], what: str, write: Callable[[str], T], advice: str = ""
) -> T:
    """Write a file to the first of some places that takes it; return what `write` returns.

    Args:
      places: paths or URLs, the best first.
      what: it holds, for the message.
      write: gets the place, whose folder is there by then.
      advice: what else to do where none takes it.

    Raises:
      SourceError: none does.
    """
    refused = []
    for place in places:
        try:
            if not is_remote(place):  # stores have no folders
                os.makedirs(os.path.dirname(place), exist_ok=True)
            return write(place)
        except OSError as error:
            refused.append(f"{hide_secrets(place)!r} ({reason(error)})")
    raise SourceError(
        f"no {what} can be written to {' or '.join(refused)}: set XDG_CACHE_HOME to a folder that "
        f"can be written{advice}."
    )


def pause(retry: int) -> None:
    """Wait before a retry, counted from 0; each waits twice as long as the one before."""
    time.sleep(_FIRST_PAUSE * 2**retry)


class Patience(NamedTuple):
    """How often, and for how many seconds in all, a failed read is tried again."""

    retries: float = math.inf
    seconds: float = math.inf


LOCAL = Patience(retries=3)
OPENING = Patience(seconds=10.0)  # a wrong name of a host should show soon
REMOTE = Patience(seconds=60.0)


def insist(act: Callable[[], T], patience: Patience) -> T:
    """Return what `act` returns, called again after failures that may pass.

    Between two calls it waits, each time about twice as long, or as long as the server asks for.
    The pauses are random within limits, or all that failed together would come back together.
    """
    until = time.monotonic() + patience.seconds
    for failures in itertools.count():
        try:
            return act()
        except Exception as error:
            seconds = pause_after(error, failures)
            spent = failures >= patience.retries or time.monotonic() + seconds > until
            if spent or not may_pass(error):
                raise
        time.sleep(seconds)
    raise AssertionError


def may_pass(error: BaseException) -> bool:
    """Return True for a failed read that may do if it is tried again.

    What is missing, forbidden, or was called in a wrong way stays so.
    """
    cause = _beneath(error) or error
    status = _status(cause)
    if 400 <= status < 500:
        return status in MAY_PASS
    return not isinstance(cause, (SourceError, FileNotFoundError, PermissionError, ValueError))


def _status(error: BaseException) -> int:
    """Return the status of a server's answer, where aiohttp or botocore has it; 0 for none."""
    response = getattr(error, "response", None)
    facts = response.get("ResponseMetadata", {}) if isinstance(response, Mapping) else {}
    status = getattr(error, "status", None) or facts.get("HTTPStatusCode")
    return status if isinstance(status, int) else 0


def pause_after(error: BaseException, failures: int = 0) -> float:
    """Return the seconds until another try, after a number of failures before this one.

    They are as many at least as a server asks for in "Retry-After".
    """
    seconds = min(_FIRST_PAUSE * 2**failures, _MAX_PAUSE) * random.uniform(0.5, 1.5)
    headers = getattr(_beneath(error) or error, "headers", None) or {}
    asked = str(headers.get("Retry-After", ""))
    return max(seconds, float(asked)) if asked.isdecimal() else seconds


def cache_folder() -> str:
    """Return the folder of what is kept and may be made anew."""
    found = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(found, "jaxaug")


def common_folder(paths: list[str]) -> tuple[str, list[str]]:
    """Return the deepest folder that holds all paths, "" if none does, and their names in it."""
    heads = [path.split("/")[:-1] for path in paths]
    same = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*heads))]
    prefix = "".join(f"{part}/" for part in same)
    return prefix[:-1], [path[len(prefix) :] for path in paths]
