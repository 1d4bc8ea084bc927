"""Ranges of files of web servers, by sockets: the system copies each byte straight to its place.

That is done outside of the GIL, for half the processor time of a client that hands over pieces.
"""

import http.client
import re
import ssl
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

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
      headers: of the answer, which may tell when to come again.
    """

    def __init__(self, status: int, headers: http.client.HTTPMessage):
        known = status in [each.value for each in HTTPStatus]
        super().__init__(f"{status} {HTTPStatus(status).phrase}" if known else str(status))
        self.status = status
        self.headers = headers


class Facts(NamedTuple):
    """What a server tells of a file: its size in bytes, and its headers."""

    size: int
    headers: http.client.HTTPMessage


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
            answer.read()
            if answer.status != 200:
                raise Failed(answer.status, answer.headers)
            return Facts(int(answer.headers["Content-Length"] or -1), answer.headers)

    def read(
        self, path: str, offset: int, destination: memoryview, match: str | None
    ) -> http.client.HTTPMessage:
        """Fill `destination` with the bytes from `offset` on; return the headers of the answer.

        Args:
          path: of the file, as a URL has it.
          offset, destination: of the range, which lies in the file.
          match: the ETag that the file must have; None for any.

        Raises:
          Failed: the server answers something else.
          OSError: it does not answer, or not with these bytes.
        """
        until = None if self._whole is None else time.monotonic() + self._whole
        last = offset + len(destination) - 1
        asked = {"Range": f"bytes={offset}-{last}", "Accept-Encoding": "identity"}
        asked |= {} if match is None else {"If-Match": match}
        with self._ask("GET", f"{self._root}/{_written(path)}", asked) as answer:
            if answer.status != 206:
                raise Failed(answer.status, answer.headers)
            came = answer.headers.get("Content-Range", "")
            if not came.startswith(f"bytes {offset}-{last}/"):
                raise OSError(f"the server sent {came or 'an unnamed range'}")
            _fill(answer, destination, until)
            return answer.headers

    @contextmanager
    def _ask(
        self, method: str, url: str, headers: dict[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        """Give the beginning of an answer, which may be that of another URL."""
        for _ in range(_MAX_REDIRECTS):
            with self._answer(method, url, headers) as answer:
                if answer.status not in _MOVED or "Location" not in answer.headers:
                    yield answer
                    return
                answer.read(_PIECE_BYTES)
            # Bytes that a server has left as they are come as Latin-1, as in any header.
            url = urljoin(url, _written(answer.headers["Location"].encode("latin-1")))
        raise OSError("the server redirects for ever")

    @contextmanager
    def _answer(
        self, method: str, url: str, headers: dict[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        """Give the beginning of an answer; its connection goes on if all of it is read."""
        parts = urlsplit(url)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        host = (parts.scheme, parts.netloc)
        connection = _idle.take(host) or _connection(*host)
        used = connection.sock is not None
        answer = None
        try:
            try:
                answer = self._begin(connection, method, target, headers)
            except (http.client.HTTPException, ConnectionError):
                if not used:
                    raise
                connection.close()  # as the server has done meanwhile
                connection = _connection(*host)
                answer = self._begin(connection, method, target, headers)
            yield answer
        except http.client.HTTPException as error:
            # It may cite what the server has sent.
            raise OSError(f"the answer is damaged: {type(error).__name__}") from error
        finally:
            if answer is not None and answer.isclosed() and connection.sock is not None:
                _idle.add(host, connection)
            else:
                connection.close()

    def _begin(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        headers: dict[str, str],
    ) -> http.client.HTTPResponse:
        """Send a request; return the beginning of the answer."""
        connection.timeout = self._timeout if self._whole is None else self._whole
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        connection.request(method, target, headers=headers)
        return connection.getresponse()


def _written(url: str | bytes) -> str:
    """Return a URL, or a part of one, with escapes for what may not stand in it, and its own."""
    return _PERCENT.sub("%25", quote(url, safe=_URL))


class _Idle:
    """Connections that wait for a request of any thread, by scheme and host.

    The one that was used last goes first, so that there are no more than requests at a time.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], deque[tuple[float, http.client.HTTPConnection]]]
        self._found = defaultdict(deque)

    def take(self, host: tuple[str, str]) -> http.client.HTTPConnection | None:
        """Return a connection, None if there is none; close those that have waited for long."""
        with self._lock:
            for found in self._found.values():
                while found and found[0][0] < time.monotonic() - _IDLE_SECONDS:
                    found.popleft()[1].close()
            return self._found[host].pop()[1] if self._found[host] else None

    def add(self, host: tuple[str, str], connection: http.client.HTTPConnection) -> None:
        """Have a connection wait."""
        with self._lock:
            self._found[host].append((time.monotonic(), connection))


_idle = _Idle()


def _connection(scheme: str, host: str) -> http.client.HTTPConnection:
    """Return a new connection, which is opened by its first request."""
    if {scheme, "all"} & getproxies().keys() and not proxy_bypass(host):
        raise OSError("it is behind a proxy")
    if scheme not in ("http", "https") or "@" in host:
        raise OSError("the server redirects to another protocol, or to a user")
    if scheme == "http":
        return http.client.HTTPConnection(host)
    return http.client.HTTPSConnection(host, context=_certificates())


@cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates that are trusted: to read them takes longer than a request."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _fill(answer: http.client.HTTPResponse, destination: memoryview, until: float | None) -> None:
    """Copy the body of an answer to its place."""
    if answer.length not in (None, len(destination)):
        raise OSError(f"the server sends {answer.length} bytes for {len(destination)}")
    # As much as has come: that of a server that trickles might not fill a piece for ever.
    read = answer.readinto if answer.chunked else answer.fp.readinto1
    count = 0
    while count < len(destination):
        if until is not None and time.monotonic() > until:
            raise TimeoutError("the answer takes too long")
        came = read(destination[count : count + _PIECE_BYTES])
        if not came:
            raise OSError(f"the server sent {count} bytes for {len(destination)}")
        count += came
    if answer.chunked and answer.read(1):
        raise OSError("the server sent more bytes than it was asked for")
    answer.close()
