"""Ranges of files of web servers, by sockets: the system copies each byte straight to its place.

That is done outside of the GIL, for less processor time than a client that hands over pieces takes.
"""

import math
import re
import selectors
import ssl
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from jaxaug.iterators.sources.storage.connection import Answer, Connection, Damaged
from jaxaug.iterators.sources.storage.files import pause_after
from jaxaug.iterators.sources.storage.threads import LOOK_SECONDS, check_awaited, pause

_PIECE_BYTES = 1 << 20  # of an answer, copied at a time at most
_MAX_REDIRECTS = 5
_MOVED = (301, 302, 303, 307, 308)
_MAX_AT_A_TIME = 128  # ranges that one thread waits for
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

    Attributes:
      redirects: the server has sent a request on to another place.
    """

    def __init__(self, root: str, timeout: float, whole: float | None = None):
        self._root = root
        self._timeout = timeout
        self._whole = whole
        self.redirects = False

    def facts(self, path: str) -> Facts:
        """Return what is known of a file.

        Raises:
          OSError: the server does not tell it.
        """
        with self._ask("HEAD", self._url(path), {}) as answer:
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
        with self._ask("GET", self._url(path), _headers_of(offset, last, match)) as answer:
            _check(answer, offset, last)
            _fill(answer, destination)
            return answer.headers

    def read_many(
        self, wanted: "Mapping[int, Wanted]", patience: Callable[[int], float]
    ) -> dict[int, float]:
        """Read ranges by this thread alone, as far as enough connections wait.

        A thread for each takes twice the processor time: it is woken for each piece that comes, and
        waits for the GIL. What does not come as it should is left out: only one request is lost.

        Args:
          wanted: the ranges, by numbers.
          patience: the seconds after which a range of so many bytes is left out.

        Returns:
          The seconds that ranges took, by number; infinite for those that took too long, and NaN
          for those that came in another way.

        Raises:
          SourceError: nobody waits for them any more.
        """
        host, _ = _parts(self._root)
        most = min(len(wanted), _MAX_AT_A_TIME)
        connections = [] if self.redirects else _idle.take_many(host, most)
        if len(connections) < most / 2:  # threads open some
            for connection in connections:
                _idle.add(host, connection)
            return {}
        targets = {number: _parts(self._url(wanted[number].path))[1] for number in wanted}
        loop = _Loop(host, wanted, targets, (patience, self._timeout))
        found = loop.run(connections)
        if loop.failures:  # those who ask for the same again do so when the server wants it
            pause(min(max(map(pause_after, loop.failures)), self._timeout))
        return found

    def _url(self, path: str) -> str:
        return f"{self._root}/{_written(path)}"

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
                self.redirects = True
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


@lru_cache(maxsize=4096)
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
        return next(iter(self.take_many(host, 1)), None)

    def take_many(self, host: tuple[str, str], most: int) -> list[Connection]:
        """Return connections as `take` does, as many as there are."""
        taken: list[Connection] = []
        with self._lock:
            for found in self._found.values():
                while found and found[0][0] < time.monotonic() - _IDLE_SECONDS:
                    found.popleft()[1].close()
            while self._found[host] and len(taken) < most:
                connection = self._found[host].pop()[1]
                if connection.waits:
                    taken.append(connection)
                else:
                    connection.close()
        return taken

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


def _headers_of(offset: int, last: int, match: str | None) -> dict[str, str]:
    """Return what a request for a range says."""
    asked = {"Range": f"bytes={offset}-{last}", "Accept-Encoding": "identity"}
    return asked | ({} if match is None else {"If-Match": match})


def _check(answer: Answer, offset: int, last: int) -> None:
    """Raise OSError if an answer is not that to the request for a range."""
    if answer.status != 206:
        raise Failed(answer.status, answer.headers)
    came = answer.headers.get("content-range", "")
    if not came.startswith(f"bytes {offset}-{last}/"):
        raise OSError(f"the server sent {came or 'an unnamed range'}")
    check_coding(answer.headers.get("content-encoding", ""))


class Wanted(NamedTuple):
    """A range of a file, see `WebStore.read`."""

    path: str
    offset: int
    destination: memoryview
    match: str


class _Coming:
    """A range that is on its way.

    Args:
      number: which it is.
      wanted: the range.
      connection: that it comes on.
      seconds: after which it is late.
    """

    def __init__(self, number: int, wanted: Wanted, connection: Connection, seconds: float):
        self.number = number
        self.connection = connection
        self.began = self.heard = time.monotonic()
        self.until = self.began + seconds
        self._wanted = wanted
        self._count = 0
        self._answer: Answer | None = None

    def advance(self) -> bool:
        """Take what has come; return True if that is all of it.

        Raises:
          OSError: the answer is not as it should be.
        """
        self.heard = time.monotonic()
        try:
            answer = self._answer or self._head()
            destination = self._wanted.destination
            while self._count < len(destination):
                came = answer.read(destination[self._count :])
                if not came:
                    raise OSError("the answer ends too early")
                self._count += came
                if not self.connection.has_more and self._count < len(destination):
                    return False
        except TimeoutError:  # no more has come
            return False
        if not answer.leaves_connection:
            raise OSError("the connection does not go on")
        return True

    def _head(self) -> Answer:
        _, offset, destination, match = self._wanted
        answer = Answer(self.connection, "GET")
        _check(answer, offset, offset + len(destination) - 1)
        if answer.headers.get("etag", match) != match or answer.length != len(destination):
            raise OSError("the answer is not the range")
        self._answer = answer
        return answer


class _Loop:
    """Ranges that come on some connections to a server, one after the other on each.

    Attributes:
      failures: what the server answered without the bytes.
    """

    def __init__(
        self,
        host: tuple[str, str],
        wanted: Mapping[int, Wanted],
        targets: Mapping[int, str],
        limits: tuple[Callable[[int], float], float],
    ):
        self._host = host
        self._wanted = wanted
        self._targets = targets
        self._patience, self._timeout = limits
        self._left = deque(wanted)
        self._coming: dict[int, _Coming] = {}
        self._seconds: dict[int, float] = {}
        self.failures: list[Failed] = []
        self._waiting = selectors.DefaultSelector()

    def run(self, connections: list[Connection]) -> dict[int, float]:
        """Return what `WebStore.read_many` does."""
        look = time.monotonic()
        try:
            for connection in connections:
                self._waiting.register(connection, selectors.EVENT_READ)
                self._ask(connection)
            while self._coming:
                for key, _ in self._waiting.select(LOOK_SECONDS):
                    self._advance(self._coming[key.fd])
                if time.monotonic() > look + LOOK_SECONDS:
                    check_awaited()
                    look = time.monotonic()
                    self._drop_late(look)
        finally:
            for each in self._coming.values():
                each.connection.close()
            self._waiting.close()
        return self._seconds

    def _ask(self, connection: Connection) -> None:
        """Ask for the next range on a connection that waits, or leave it to others."""
        if not (self._left and connection.waits):
            self._waiting.unregister(connection)
            _idle.add(self._host, connection)
            return
        number = self._left.popleft()
        wanted = self._wanted[number]
        size = len(wanted.destination)
        asked = _headers_of(wanted.offset, wanted.offset + size - 1, wanted.match)
        try:
            connection.begin("GET", self._targets[number], asked)
        except OSError:
            self._seconds[number] = math.nan
            self._close(connection)
            return
        self._coming[connection.fileno()] = _Coming(
            number, wanted, connection, self._patience(size)
        )

    def _advance(self, coming: _Coming) -> None:
        try:
            if not coming.advance():
                return
        except OSError as error:
            self.failures += [error] if isinstance(error, Failed) else []
            self._drop(coming, math.nan)
            return
        self._seconds[coming.number] = coming.heard - coming.began
        del self._coming[coming.connection.fileno()]
        self._ask(coming.connection)

    def _drop_late(self, now: float) -> None:
        for coming in list(self._coming.values()):
            if now > min(coming.until, coming.heard + self._timeout):
                self._drop(coming, math.inf)

    def _drop(self, coming: _Coming, seconds: float) -> None:
        self._seconds[coming.number] = seconds
        del self._coming[coming.connection.fileno()]
        self._close(coming.connection)

    def _close(self, connection: Connection) -> None:
        self._waiting.unregister(connection)
        connection.close()


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
