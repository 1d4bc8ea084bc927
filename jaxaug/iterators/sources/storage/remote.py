"""Ranges of remote files: those of web servers by sockets, others by obstore, else by fsspec.

Both receive outside of the GIL; sockets take less processor time. Each is taken where it sees the
same files as fsspec, and its requests carry the ETag that was indexed, so that no other request has
to tell that a file is the same.
"""

import importlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from jaxaug.iterators.sources.storage.files import (
    MAY_PASS,
    DataFile,
    Refused,
    changed,
    file_system_of,
    hide_secrets,
    is_web,
    stat_file,
)
from jaxaug.iterators.sources.storage.pace import Pace
from jaxaug.iterators.sources.storage.web import Failed, Wanted, WebStore, check_coding

_PROTOCOLS = ("http", "https", "s3", "gs", "gcs", "az", "abfs")
_PIECE_BYTES = 64 << 10  # of an answer, copied at a time
_MAX_TRIALS = 3  # of a store that does not answer, before fsspec is taken for good
# What obstore says behind the answer's status may be of the server, which may repeat a key in it.
_STATUS = re.compile(r"status code: (\d{3})([\w ]*)")


def _without_ranges(file: DataFile) -> Refused:
    """Return the error for a server that sends whole files alone."""
    return Refused(
        f"the server of {file.name!r} ignores ranges, by which records are read: download the"
        " file, or serve it by another server (Python's http.server has no ranges)."
    )


class _Place(NamedTuple):
    """A file in a store: "http://host:80" and "folder/a.tar", as the URL has it."""

    root: str
    path: str


class _Stores:
    """The stores of this process by root, and how often one that is new did not answer."""

    def __init__(self):
        self.lock = threading.Lock()
        self.opening: dict[tuple[str, float], threading.Lock] = {}
        self.found: dict[tuple[str, float], Any] = {}
        self.trials: dict[str, int] = {}
        self.process = os.getpid()

    def hasty(self, usual: Any, root: str, limit: float) -> Any:
        """Return a store like `usual` whose requests end after so many seconds; of few limits."""
        key = (root, -limit)
        with self.lock:
            if key not in self.found:
                make = WebStore if isinstance(usual, WebStore) else _new_store
                self.found[key] = make(root, limit, whole=limit)
            return self.found[key]


_stores = _Stores()


class RemoteReader:
    """Reads ranges of remote files.

    A request of a store that takes far longer than others of its size is given up and asked anew,
    once: servers are slow for one in a hundred.

    Args:
      timeout: seconds without a byte after which a request counts as failed.

    Attributes:
      counts: "requests", their "bytes", those that failed ("failed"), and those that were given up
        because others were faster ("slow").
    """

    def __init__(self, timeout: float = 15.0):
        self._timeout = timeout
        self._pace = Pace(timeout)
        self.counts = {"requests": 0, "bytes": 0, "failed": 0, "slow": 0}

    def read(self, file: DataFile, offset: int, destination: memoryview) -> int:
        """Read the bytes from `offset` on; return how many they are, 0 at the end of the file.

        Raises:
          Exception: the range did not come; `may_pass` tells whether it may in another try.
        """
        place = _place_of(file.path)
        store = self._store_of(file, place)
        if store is None or place is None:
            by_web = partial(_by_http, timeout=self._timeout)
            read = by_web if is_web(file.path) else _by_fsspec
            return self._counted(read, file, offset, destination)

        began = time.monotonic()
        limit = self._pace.limit(len(destination))
        by_store = _by_socket if isinstance(store, WebStore) else _by_obstore
        try:
            hasty = store if limit is None else _stores.hasty(store, place.root, limit)
            read = partial(by_store, hasty, place.path)
            count = self._counted(read, file, offset, destination)
        except OSError:
            if limit is None or time.monotonic() < began + limit:
                raise
            self.counts["slow"] += 1
            self.counts["failed"] -= 1
            read = partial(by_store, store, place.path)
            count = self._counted(read, file, offset, destination)
        self._pace.add(len(destination), time.monotonic() - began)
        return count

    def read_many(
        self, files: Sequence[DataFile], offsets: Sequence[int], destinations: Sequence[memoryview]
    ) -> list[bool]:
        """Read ranges of web servers without threads, see `WebStore.read_many`.

        Returns:
          True for those that came, each of which lies in its file; `read` tells why others did not.
        """
        done = [False] * len(files)
        if _stores.process != os.getpid():
            return done
        wanted: dict[WebStore, dict[int, Wanted]] = {}
        for number, (file, offset, destination) in enumerate(zip(files, offsets, destinations)):
            where = _place_of(file.path)
            store = where and _stores.found.get((where.root, self._timeout))
            # Of others each answer does not say that the file is the same.
            if where and isinstance(store, WebStore) and _is_etag(file.stamp):
                asked = Wanted(where.path, offset, destination, file.stamp)
                wanted.setdefault(store, {})[number] = asked
        for store, ranges in wanted.items():
            for number, seconds in store.read_many(ranges, self._patience).items():
                done[number] = self._note(len(destinations[number]), seconds)
        return done

    def _patience(self, size: int) -> float:
        """Return the seconds after which a request for so many bytes is given up."""
        limit = self._pace.limit(size)
        # A byte now and then must not hold up all: threads go on with what is later than this.
        return self._timeout if limit is None else limit

    def _note(self, size: int, seconds: float) -> bool:
        """Count a request of `WebStore.read_many`; return True if it has succeeded."""
        good = math.isfinite(seconds)
        self.counts["requests"] += 1
        self.counts["bytes"] += size * good
        self.counts["slow"] += seconds == math.inf
        self.counts["failed"] += math.isnan(seconds)
        if good:
            self._pace.add(size, seconds)
        return good

    def _counted(
        self, read: Callable[..., int], file: DataFile, offset: int, destination: memoryview
    ) -> int:
        """Return what `read` does."""
        self.counts["requests"] += 1
        try:
            count = read(file, offset, destination)
        except BaseException:
            self.counts["failed"] += 1
            raise
        self.counts["bytes"] += count
        return count

    def check(self, file: DataFile) -> None:
        """Raise Refused unless the file is the one that was indexed, if reads do not tell it.

        Raises:
          SourceError: it is not to be found.
        """
        store = self._store_of(file, _place_of(file.path))
        if _is_etag(file.stamp) and (store is not None or is_web(file.path)):
            return
        system, name = file_system_of(file.path)
        system.invalidate_cache(name)
        if stat_file(file.path) != file:
            raise changed(file)

    def _store_of(self, file: DataFile, place: "_Place | None") -> Any:
        """Return the store for ranges of a file; None for fsspec."""
        # obstore's threads are not in a forked child.
        if place is None or _stores.process != os.getpid():
            return None
        key = (place.root, self._timeout)
        if key not in _stores.found:
            # Of its own: a server that hangs holds up no other.
            with _stores.opening.setdefault(key, threading.Lock()):
                if key not in _stores.found:
                    self._open(key, place.path, file)
        return _stores.found.get(key)

    def _open(self, key: tuple[str, float], path: str, file: DataFile) -> None:
        """Keep the store of a root, or None: it must see the file as fsspec does."""
        root, timeout = key
        doubtful = False
        for find in (_find_web, _find_obstore) if is_web(root) else (_find_obstore,):
            try:
                _stores.found[key] = find(root, timeout, path, file)
                return
            except (ImportError, _Differs):
                pass
            except Exception:  # credentials that it does not find, or a server that fails now
                doubtful = True
        _stores.trials[root] = _stores.trials.get(root, 0) + doubtful
        if not doubtful or _stores.trials[root] >= _MAX_TRIALS:
            _stores.found[key] = None


class _Differs(Exception):
    """A store sees a file in another way than fsspec."""


def _find_web(root: str, timeout: float, path: str, file: DataFile) -> WebStore:
    """Return the store of a web server."""
    store = WebStore(root, timeout)
    size, headers = store.facts(path)
    if size != file.size or (_is_etag(file.stamp) and headers.get("etag") != file.stamp):
        raise _Differs
    return store


def _find_obstore(root: str, timeout: float, path: str, file: DataFile) -> Any:
    """Return the store of obstore."""
    obstore = importlib.import_module("obstore")
    store = _new_store(root, timeout)
    seen = obstore.head(store, _key_of(file, path))
    stamps = (seen["e_tag"], seen["version"]) if _is_etag(file.stamp) else (file.stamp,)
    if seen["size"] != file.size or file.stamp not in stamps:
        raise _Differs
    return store


def _new_store(root: str, timeout: float, whole: float | None = None) -> Any:
    """Return a store that reports every failure at once: what to try again is decided here.

    Args:
      root: of its files.
      timeout: seconds without a byte.
      whole: seconds of a request; None for no limit.
    """
    seconds = f"{max(1, round(1000 * timeout))}ms"
    client = {"allow_http": True, "connect_timeout": seconds, "read_timeout": seconds}
    if whole is not None:
        client["timeout"] = seconds
    retry = {"max_retries": 0}
    from_url = importlib.import_module("obstore.store").from_url
    return from_url(root, client_options=client, retry_config=retry)


@lru_cache(maxsize=4096)
def _place_of(url: str) -> _Place | None:
    """Return where obstore has a file; None for URLs that fsspec alone reads.

    Example:
      >>> _place_of("http://host:80/folder/a.tar")
      _Place(root='http://host:80', path='folder/a.tar')
    """
    protocol, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    if protocol not in _PROTOCOLS or not path or any(mark in url for mark in "@?#"):
        return None
    # A name with a slash, or not of UTF-8: obstore's keys have neither.
    if protocol.startswith("http") and ("%2F" in path.upper() or "\ufffd" in unquote(path)):
        return None
    return _Place(f"{protocol}://{host}", path)


def _key_of(file: DataFile, path: str) -> str:
    """Return how obstore calls a file."""
    return unquote(path) if is_web(file.path) else path


def _is_etag(stamp: str) -> bool:
    """Return True for a strong ETag, which a request may carry: RFC 9110, section 13.1.1."""
    return stamp.startswith('"')


def _by_socket(
    store: WebStore, path: str, file: DataFile, offset: int, destination: memoryview
) -> int:
    """Read a range of a file of a web server, see `RemoteReader.read`."""
    end = min(offset + len(destination), file.size)
    if end <= offset:
        return 0
    match = file.stamp if _is_etag(file.stamp) else None
    try:
        headers = store.read(path, offset, destination[: end - offset], match)
    except Failed as failure:
        if failure.status in (404, 410):
            raise FileNotFoundError(file.name) from None
        if failure.status == 412:
            raise changed(file) from None
        if failure.status == 200:
            raise _without_ranges(file) from None
        raise
    # Servers may ignore what they are asked for.
    if match is not None and headers.get("etag", match) != match:
        raise changed(file)
    return end - offset


def _by_obstore(store: Any, path: str, file: DataFile, offset: int, destination: memoryview) -> int:
    """Read a range of a file in a store, see `RemoteReader.read`."""
    obstore = importlib.import_module("obstore")
    failures = importlib.import_module("obstore.exceptions")
    end = offset + len(destination)
    options: dict[str, Any] = {"range": (offset, end)}
    if _is_etag(file.stamp):
        options["if_match"] = file.stamp
    try:
        found = obstore.get(store, _key_of(file, path), options=options)
        # Servers may ignore what they are asked for.
        if _is_etag(file.stamp) and found.meta["e_tag"] != file.stamp:
            raise changed(file)
        if found.range != (offset, min(end, file.size)):
            raise OSError(f"the server sent bytes {found.range[0]} to {found.range[1]}")
        if is_web(file.path):
            check_coding(found.attributes.get("Content-Encoding", ""))
        return _copy(found.stream(_PIECE_BYTES), destination)
    except failures.PreconditionError:
        raise changed(file) from None
    except (failures.BaseError, FileNotFoundError) as error:
        raise _failure(file, error) from None


def _copy(pieces: Iterable[Any], destination: memoryview) -> int:
    """Copy pieces to their place as they come: memory for all of them would have to be cleared."""
    count = 0
    for piece in pieces:
        if count + len(piece) > len(destination):
            raise OSError(f"the server sent more than {len(destination)} bytes")
        destination[count : count + len(piece)] = memoryview(piece)
        count += len(piece)
    return count


def _failure(file: DataFile, error: Exception) -> Exception:
    """Return what to raise for an error of obstore: OSError if another try is worth it."""
    kind = type(error).__name__
    status = _STATUS.search(str(error))
    if kind == "NotSupportedError":
        return _without_ranges(file)
    text = str(error).partition("\n")[0]
    said = "".join(status.groups()).strip() if status else hide_secrets(text)
    if status and status[1].startswith("4") and int(status[1]) not in MAY_PASS:
        return Refused(f"{file.name!r} cannot be read: {said}.")
    return OSError(said)


def _by_http(file: DataFile, offset: int, destination: memoryview, timeout: float) -> int:
    """Read a range of a file of a web server, see `RemoteReader.read`.

    By the session of fsspec, which takes whatever range comes for the one that was asked for.
    """
    system, name = file_system_of(file.path)
    end = min(offset + len(destination), file.size)
    if end <= offset:
        return 0
    sync = importlib.import_module("fsspec.asyn").sync
    data = sync(system.loop, _web_range, system, name, file, (offset, end), timeout)
    if len(data) != end - offset:
        raise OSError(f"the server sent {len(data)} bytes for {end - offset}")
    destination[: len(data)] = data
    return len(data)


async def _web_range(
    system: Any, name: str, file: DataFile, part: tuple[int, int], timeout: float
) -> bytes:
    """Return a part of a file, of the state that was indexed."""
    offset, end = part
    asked = {"Range": f"bytes={offset}-{end - 1}", "Accept-Encoding": "identity"}
    if _is_etag(file.stamp):
        asked["If-Match"] = file.stamp
    patience = importlib.import_module("aiohttp").ClientTimeout(
        total=None, sock_connect=timeout, sock_read=timeout
    )
    session = await system.set_session()
    options = system.kwargs | {"headers": system.kwargs.get("headers", {}) | asked}
    async with session.get(system.encode_url(name), **{"timeout": patience, **options}) as answer:
        if answer.status == 404:
            raise FileNotFoundError(file.name)
        if answer.status == 412:
            raise changed(file)
        answer.raise_for_status()
        if answer.status != 206:
            raise _without_ranges(file)
        if _is_etag(file.stamp) and answer.headers.get("ETag", file.stamp) != file.stamp:
            raise changed(file)
        came = answer.headers.get("Content-Range", "")
        if not came.startswith(f"bytes {offset}-{end - 1}/"):
            raise OSError(f"the server sent {came or 'an unnamed range'}")
        return await answer.read()


def _by_fsspec(file: DataFile, offset: int, destination: memoryview) -> int:
    """Read a range of a file, see `RemoteReader.read`; each protocol has its own errors."""
    system, name = file_system_of(file.path)
    data = system.cat_file(name, start=offset, end=offset + len(destination))
    if len(data) > len(destination):
        raise Refused(
            f"the server of {file.name!r} ignores ranges: "
            f"sent {len(data)} bytes for {len(destination)}."
        )
    destination[: len(data)] = data
    return len(data)
