"""Ranges of files of web servers, by sockets: the system copies each byte straight to its place.

That is done outside of the GIL, for half the processor time of a client that hands over pieces.
"""

import http.client
import threading
import time
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

_PIECE_BYTES = 1 << 20  # of an answer, between two looks at the clock
_MAX_REDIRECTS = 5
_MOVED = (301, 302, 303, 307, 308)

_connections = threading.local()  # of each thread, by scheme and host


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
        url = f"{self._root}/{quote(path)}"
        host = urlsplit(url)
        if host.scheme in getproxies() and not proxy_bypass(host.netloc):
            raise OSError("it is behind a proxy")
        answer = self._ask("HEAD", url, {})
        answer.read()
        if answer.status != 200:
            raise Failed(answer.status, answer.headers)
        return Facts(int(answer.headers["Content-Length"] or -1), answer.headers)

    def read(
        self, path: str, offset: int, destination: memoryview, match: str | None
    ) -> http.client.HTTPMessage:
        """Fill `destination` with the bytes from `offset` on; return the headers of the answer.

        Args:
          path: of the file.
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
        answer = self._ask("GET", f"{self._root}/{quote(path)}", asked)
        came = answer.headers.get("Content-Range", "")
        if answer.status != 206:
            self._drop()
            raise Failed(answer.status, answer.headers)
        if not came.startswith(f"bytes {offset}-{last}/"):
            self._drop()
            raise OSError(f"the server sent {came or 'an unnamed range'}")
        try:
            _fill(answer, destination, until)
        except BaseException:
            self._drop()
            raise
        return answer.headers

    def _ask(self, method: str, url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Return the beginning of an answer, which may be that of another URL."""
        for _ in range(_MAX_REDIRECTS):
            answer = self._answer(method, url, headers)
            if answer.status not in _MOVED or "Location" not in answer.headers:
                return answer
            answer.read()
            url = urljoin(url, answer.headers["Location"])
        raise OSError("the server redirects for ever")

    def _answer(self, method: str, url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Return the beginning of an answer; a connection that was closed meanwhile is renewed."""
        parts = urlsplit(url)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        for fresh in (False, True):
            connection, used = self._connect(parts.scheme, parts.netloc, fresh)
            try:
                connection.request(method, target, headers=headers)
                return connection.getresponse()
            except (http.client.HTTPException, ConnectionError) as error:
                self._drop()
                if not used:
                    raise OSError(str(error) or type(error).__name__) from error
            except BaseException:
                self._drop()
                raise
        raise AssertionError

    def _connect(
        self, scheme: str, host: str, fresh: bool
    ) -> tuple[http.client.HTTPConnection, bool]:
        """Return this thread's connection to a host, and True if it was used before."""
        found = vars(_connections).setdefault("found", {})
        key = (scheme, host)
        used = key in found and not fresh
        if not used:
            kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
            if scheme not in kinds:
                raise OSError(f"the server redirects to {scheme}")
            found[key] = kinds[scheme](host)
        connection = found[key]
        connection.timeout = self._timeout if self._whole is None else self._whole
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        return connection, used

    def _drop(self) -> None:
        """Close this thread's connections: an answer may be left in one."""
        for connection in vars(_connections).pop("found", {}).values():
            connection.close()


def _fill(answer: http.client.HTTPResponse, destination: memoryview, until: float | None) -> None:
    """Copy the body of an answer to its place."""
    count = 0
    while count < len(destination):
        if until is not None and time.monotonic() > until:
            raise TimeoutError("the answer takes too long")
        came = answer.readinto(destination[count : count + _PIECE_BYTES])
        if not came:
            raise OSError(f"the server sent {count} bytes for {len(destination)}")
        count += came
    if answer.length:
        raise OSError(f"the server sent {answer.length} bytes more than it was asked for")
