"""Ranges of files of web servers, by sockets: the system copies each byte straight to its place.

That is done outside of the GIL, for less processor time than a client that hands over pieces takes.
"""

import math
import re
import ssl
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from jaxaug.iterators.sources.storage.connection import Answer, Connection, Damaged

_PIECE_BYTES = 1 << 20  # of an answer, copied at a time at most
_MAX_REDIRECTS = 5
_MOVED = (301, 302, 303, 307, 308)
_IDLE_SECONDS = 60.0  # after which a server may well have closed a connection
_URL = "/:?#[]@!$&'()*+,;=%~"  # what stays in a URL beside letters: RFC 3986, section 2
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")  # that begins no escape


class Failed(OSError):
    """A server's answer without the bytes.

    Attributes:
      status: of the answer.
      headers: "Retry-After" of the answer, which may tell when to come again.
    """

    def __init__(self, status: int, headers: Mapping[str, str]):
        known = status in [each.value for each in HTTPStatus]
        super().__init__(f"{status} {HTTPStatus(status).phrase}" if known else str(status))
        self.status = status
        self.headers = {"Retry-After": headers.get("retry-after", "")}


def check_coding(coding: str) -> None:
    """Raise OSError if a server has compressed a range, which it was asked not to do.

    Other names than these are told of bytes as they are: "aws-chunked" by S3.
    """
    if coding.lower() in ("gzip", "x-gzip", "br", "deflate", "zstd", "compress"):
        raise OSError(f"the server has compressed what it sends ({coding.lower()})")


class Facts(NamedTuple):
    """What a server tells of a file: its size in bytes, and its headers by names in lower case."""

    size: int
    headers: Mapping[str, str]


class WebStore:
    """Files of a web server below "http://host:80", which asks for no user and is behind no proxy.

    Args:
      root: of the URLs.
      timeout: seconds without a byte after which a request has failed.
      whole: seconds after which it has failed anyway; None for no limit.
    """

    def __init__(self, root: str, timeout: float, whole: float | None = None):
        self._root = root
        self._timeout = timeout
        self._whole = whole

    def facts(self, path: str) -> Facts:
        """Return what is known of a file.

        Raises:
          OSError: the server does not tell it.
        """
        with self._ask("HEAD", f"{self._root}/{_written(path)}", {}) as answer:
            if answer.status != 200:
                raise Failed(answer.status, answer.headers)
            size = answer.headers.get("content-length", "")
            return Facts(int(size) if size.isdecimal() else -1, answer.headers)

    def read(
        self, path: str, offset: int, destination: memoryview, match: str | None
    ) -> Mapping[str, str]:
        """Fill `destination` with the bytes from `offset` on; return the headers of the answer,
        by names in lower case.

        Args:
          path: of the file, as a URL has it.
          offset, destination: of the range, which lies in the file.
          match: the ETag that the file must have; None for any.

        Raises:
          Failed: the server answers something else.
          OSError: it does not answer, or not with these bytes.
        """
        last = offset + len(destination) - 1
        asked = {"Range": f"bytes={offset}-{last}", "Accept-Encoding": "identity"}
        asked |= {} if match is None else {"If-Match": match}
        with self._ask("GET", f"{self._root}/{_written(path)}", asked) as answer:
            if answer.status != 206:
                raise Failed(answer.status, answer.headers)
            came = answer.headers.get("content-range", "")
            if not came.startswith(f"bytes {offset}-{last}/"):
                raise OSError(f"the server sent {came or 'an unnamed range'}")
            check_coding(answer.headers.get("content-encoding", ""))
            _fill(answer, destination)
            return answer.headers

    @contextmanager
    def _ask(self, method: str, url: str, headers: dict[str, str]) -> Iterator[Answer]:
        """Give the beginning of an answer, which may be that of another URL.

        Its connection goes on if all of it is read.
        """
        until = math.inf if self._whole is None else time.monotonic() + self._whole
        for _ in range(_MAX_REDIRECTS):
            host, target = _parts(url)
            answer = self._answer(host, method, target, headers, until)
            try:
                place = answer.headers.get("location")
                if answer.status not in _MOVED or place is None:
                    yield answer
                    return
                answer.read(memoryview(bytearray(_PIECE_BYTES)))
            finally:
                if answer.leaves_connection:
                    _idle.add(host, answer.connection)
                else:
                    answer.connection.close()
            url = _moved(url, place)
        raise OSError("the server redirects for ever")

    def _answer(
        self,
        host: tuple[str, str],
        method: str,
        target: str,
        headers: dict[str, str],
        until: float,
    ) -> Answer:
        """Send a request; return the beginning of the answer."""
        timeout = self._timeout if self._whole is None else self._whole
        request = (method, target, headers, timeout, until)
        waiting = _idle.take(host)
        if waiting is not None:
            try:
                return _begin(waiting, *request)
            except (ConnectionError, ssl.SSLError, Damaged):
                pass  # as the server closes it at this moment
        return _begin(_connection(*host, timeout), *request)


def _begin(connection: Connection, *request: Any) -> Answer:
    try:
        return connection.ask(*request)
    except BaseException:
        connection.close()
        raise


def _moved(url: str, place: str) -> str:
    """Return the URL that a server sends on to.

    Raises:
      OSError: it is none.
    """
    try:
        # Bytes that a server has left as they are come as Latin-1, as in any header.
        found = urljoin(url, _written(place.encode("latin-1")))
        _parts(found)
    except ValueError:  # which may cite a signature
        raise OSError("the server redirects to what is no URL") from None
    return found


@lru_cache(maxsize=4096)
def _parts(url: str) -> tuple[tuple[str, str], str]:
    """Return scheme and host of a URL, and what a request names."""
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return (parts.scheme, parts.netloc), target


def _written(url: str | bytes) -> str:
    """Return a URL, or a part of one, with escapes for what may not stand in it, and its own."""
    return _PERCENT.sub("%25", quote(url, safe=_URL))


class _Idle:
    """Connections that wait for a request of any thread, by scheme and host.

    The one that was used last goes first, so that there are no more than requests at a time.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], deque[tuple[float, Connection]]]
        self._found = defaultdict(deque)

    def take(self, host: tuple[str, str]) -> Connection | None:
        """Return a connection, None if there is none; close those that have waited for long, or
        that the server has ended.
        """
        with self._lock:
            for found in self._found.values():
                while found and found[0][0] < time.monotonic() - _IDLE_SECONDS:
                    found.popleft()[1].close()
            while self._found[host]:
                connection = self._found[host].pop()[1]
                if connection.waits:
                    return connection
                connection.close()
            return None

    def add(self, host: tuple[str, str], connection: Connection) -> None:
        """Have a connection wait."""
        with self._lock:
            self._found[host].append((time.monotonic(), connection))


_idle = _Idle()


def _connection(scheme: str, host: str, timeout: float) -> Connection:
    """Return a new connection."""
    if {scheme, "all"} & getproxies().keys() and not proxy_bypass(host):
        raise OSError("it is behind a proxy")
    if scheme not in ("http", "https") or "@" in host:
        raise OSError("the server redirects to another protocol, or to a user")
    return Connection(scheme, host, timeout)


def _fill(answer: Answer, destination: memoryview) -> None:
    """Copy the body of an answer to its place."""
    if not answer.chunked and answer.length not in (None, len(destination)):
        raise OSError(f"the server sends {answer.length} bytes for {len(destination)}")
    count = 0
    while count < len(destination):
        came = answer.read(destination[count : count + _PIECE_BYTES])
        if not came:
            raise OSError(f"the server sent {count} bytes for {len(destination)}")
        count += came
    if answer.chunked and answer.read(memoryview(bytearray(1))):
        raise OSError("the server sent more bytes than it was asked for")
