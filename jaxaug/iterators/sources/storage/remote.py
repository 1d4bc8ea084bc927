"""Ranges of remote files: by obstore where it is installed and sees the same files, else by fsspec.

obstore sends and receives outside of the GIL, for a third of the processor time, and its requests
carry the ETag that was indexed, so that no other request has to tell that a file is the same.
"""

import importlib
import os
import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

from jaxaug.iterators.sources.storage.files import (
    MAY_PASS,
    DataFile,
    Refused,
    file_system_of,
    hide_secrets,
    stat_file,
)

_PROTOCOLS = ("http", "https", "s3", "gs", "gcs", "az", "abfs")
_MAX_TRIALS = 3  # of a store that does not answer, before fsspec is taken for good
# What obstore says behind the answer's status may be of the server, which may repeat a key in it.
_STATUS = re.compile(r"status code: (\d{3})([\w ]*)")


def changed(file: DataFile) -> Refused:
    """Return the error for a remote file that is not the one that was indexed."""
    return Refused(f"{file.name!r} changed since it was indexed: open the source again.")


class _Place(NamedTuple):
    """A file in a store: "http://host:80" and "folder/a.tar"."""

    root: str
    path: str


class _Stores:
    """The stores of this process by root, and how often one that is new did not answer."""

    def __init__(self):
        self.lock = threading.Lock()
        self.found: dict[tuple[str, float], Any] = {}
        self.trials: dict[str, int] = {}
        self.process = os.getpid()


_stores = _Stores()


class RemoteReader:
    """Reads ranges of remote files.

    Args:
      timeout: seconds without a byte after which a request counts as failed.
    """

    def __init__(self, timeout: float = 15.0):
        self._timeout = timeout

    def read(self, file: DataFile, offset: int, destination: memoryview) -> int:
        """Read the bytes from `offset` on; return how many they are, 0 at the end of the file.

        Raises:
          Exception: the range did not come; `may_pass` tells whether it may in another try.
        """
        store, path = self._store_of(file)
        get = _by_fsspec if store is None else _by_obstore(store, path)
        data = get(file, offset, len(destination))
        if len(data) > len(destination):
            raise Refused(
                f"the server of {file.name!r} ignores ranges: "
                f"sent {len(data)} bytes for {len(destination)}."
            )
        destination[: len(data)] = memoryview(data)
        return len(data)

    def check(self, file: DataFile) -> None:
        """Raise Refused unless the file is the one that was indexed, if reads do not tell it.

        Raises:
          SourceError: it is not to be found.
        """
        store, _ = self._store_of(file)
        if store is not None and _is_etag(file.stamp):
            return
        system, name = file_system_of(file.path)
        system.invalidate_cache(name)
        if stat_file(file.path) != file:
            raise changed(file)

    def _store_of(self, file: DataFile) -> tuple[Any, str]:
        """Return the store of a file, None for fsspec, and the path in it."""
        place = _place_of(file.path)
        # obstore's threads are not in a forked child.
        if place is None or _stores.process != os.getpid():
            return None, ""
        key = (place.root, self._timeout)
        if key not in _stores.found:
            with _stores.lock:
                if key not in _stores.found:
                    self._open(key, place.path, file)
        return _stores.found.get(key), place.path

    def _open(self, key: tuple[str, float], path: str, file: DataFile) -> None:
        """Keep the store of a root, or None: it must see the file as fsspec does."""
        root, timeout = key
        try:
            obstore = importlib.import_module("obstore")
            store = _new_store(root, timeout)
            seen = obstore.head(store, path)
        except ImportError:
            _stores.found[key] = None
            return
        except Exception:  # credentials that it does not find, or a server that fails for a moment
            _stores.trials[root] = _stores.trials.get(root, 0) + 1
            if _stores.trials[root] == _MAX_TRIALS:
                _stores.found[key] = None
            return
        stamps = (seen["e_tag"], seen["version"]) if _is_etag(file.stamp) else (file.stamp,)
        same = seen["size"] == file.size and file.stamp in stamps
        _stores.found[key] = store if same else None


def _new_store(root: str, timeout: float) -> Any:
    """Return a store that reports every failure at once: what to try again is decided here."""
    seconds = f"{max(1, round(1000 * timeout))}ms"
    client = {"allow_http": True, "connect_timeout": seconds, "read_timeout": seconds}
    retry = {"max_retries": 0}
    from_url = importlib.import_module("obstore.store").from_url
    return from_url(root, client_options=client, retry_config=retry)


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
    return _Place(f"{protocol}://{host}", unquote(path) if protocol.startswith("http") else path)


def _is_etag(stamp: str) -> bool:
    """Return True for a strong ETag, which a request may carry: RFC 9110, section 13.1.1."""
    return stamp.startswith('"')


def _by_obstore(store: Any, path: str) -> Callable[[DataFile, int, int], Any]:
    """Return a function that gets a range of a file in a store."""
    obstore = importlib.import_module("obstore")
    failures = importlib.import_module("obstore.exceptions")

    def get(file: DataFile, offset: int, length: int) -> Any:
        options: dict[str, Any] = {"range": (offset, offset + length)}
        if _is_etag(file.stamp):
            options["if_match"] = file.stamp
        try:
            found = obstore.get(store, path, options=options)
            data = found.bytes()
        except failures.PreconditionError:
            raise changed(file) from None
        except (failures.BaseError, FileNotFoundError) as error:
            raise _failure(file, error) from None
        # Servers may ignore what they are asked for.
        if _is_etag(file.stamp) and found.meta["e_tag"] != file.stamp:
            raise changed(file)
        if found.range != (offset, min(offset + length, file.size)):
            raise OSError(f"the server sent bytes {found.range[0]} to {found.range[1]}")
        return data

    return get


def _failure(file: DataFile, error: Exception) -> Exception:
    """Return what to raise for an error of obstore: OSError if another try is worth it."""
    kind = type(error).__name__
    status = _STATUS.search(str(error))
    if kind == "NotSupportedError":
        return Refused(f"the server of {file.name!r} ignores ranges.")
    text = str(error).partition("\n")[0]
    said = "".join(status.groups()).strip() if status else hide_secrets(text)
    if status and status[1].startswith("4") and int(status[1]) not in MAY_PASS:
        return Refused(f"{file.name!r} cannot be read: {said}.")
    return OSError(said)


def _by_fsspec(file: DataFile, offset: int, length: int) -> bytes:
    """Return a range of a file; each protocol has its own errors."""
    system, name = file_system_of(file.path)
    return system.cat_file(name, start=offset, end=offset + length)
