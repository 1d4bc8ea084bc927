"""Connections to web servers by HTTP/1.1: four calls of the system for a range of a file.

The standard library's module takes twice the processor time: it reads headers as those of mail.
"""

import math
import re
import select
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from functools import cache
from urllib.parse import urlsplit

_HEAD_BYTES = 4096  # that are received at a time where their number is not known
_MAX_HEAD = 64 << 10
_MAX_LINES = 1000  # behind the last chunk
_MAX_EARLY = 20  # answers before the one that ends a request
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_BODILESS = (204, 304)


class Damaged(OSError):
    """An answer that is none of HTTP; what it holds is not cited."""

    def __init__(self, what: str):
        super().__init__(f"the answer is damaged: {what}")


class Connection:
    """A connection, for one request after the other.

    Args:
      scheme: "http" or "https".
      host: with its port, where that is not the usual one.
      timeout: seconds without a byte after which it has failed.

    Raises:
      OSError: there is none.
    """

    def __init__(self, scheme: str, host: str, timeout: float):
        try:
            parts = urlsplit(f"//{host}")
            address = (parts.hostname or "", parts.port or {"http": 80, "https": 443}[scheme])
            self._name = host.encode("ascii" if host.isascii() else "idna")
        except ValueError as error:  # it may cite the URL
            raise OSError("the URL has no host, or a wrong port") from error
        self._socket = socket.create_connection(address, timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._flags = 0
        if scheme == "https":
            try:
                self._socket = _certificates().wrap_socket(self._socket, server_hostname=address[0])
            except BaseException:
                self._socket.close()
                raise
        self._came = select.poll()
        self._came.register(self._socket, select.POLLIN)
        self._seconds = -1.0
        self._wait_for(timeout)
        self._until = math.inf
        self.rest = b""  # received, and not used yet

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    @property
    def waits(self) -> bool:
        """Return True if nothing has come behind the last answer, not even the end.

        What came would be taken for the next answer.
        """
        return not (self.has_more or self._came.poll(0))

    @property
    def has_more(self) -> bool:
        """Return True if there are bytes that the system has handed over already."""
        decrypted = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        return bool(self.rest or decrypted)

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], timeout: float, until: float
    ) -> "Answer":
        """Send a request; return its answer, of which the head is there.

        Args:
          method, target, headers: of the request.
          timeout: seconds without a byte after which it has failed, and those for the head.
          until: the time, as `time.monotonic` has it, after which no more of the answer is read.

        Raises:
          ConnectionError: the server has closed the connection.
          OSError: the answer does not come, or is none.
        """
        self._wait_for(timeout)
        self._until = min(time.monotonic() + timeout, until)
        self._send(method, target, headers)
        for _ in range(_MAX_EARLY):
            answer = Answer(self, method)
            if not 100 <= answer.status < 200:
                self._until = until
                return answer
        raise Damaged("it does not come")

    def begin(self, method: str, target: str, headers: Mapping[str, str]) -> None:
        """Send a request; whatever is read of its answer, `Answer` too, is what is there by then.

        TimeoutError tells that there is no more yet.

        Raises:
          OSError: it cannot be sent.
        """
        self._wait_for(0.0)
        self._until = math.inf
        self._send(method, target, headers)

    def _send(self, method: str, target: str, headers: Mapping[str, str]) -> None:
        lines = [f"{method} {target} HTTP/1.1".encode(), b"Host: " + self._name]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in headers.items()]
        self._socket.sendall(b"\r\n".join([*lines, b"", b""]))

    def _wait_for(self, seconds: float) -> None:
        """Have calls fail after so many seconds without a byte; at once for 0."""
        if seconds == self._seconds:
            return
        self._seconds = seconds
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(seconds)
            return
        self._flags = socket.MSG_WAITALL if seconds else socket.MSG_DONTWAIT
        if not seconds:
            return
        # By the system: Python's own timeout is one call more for each that receives.
        self._socket.settimeout(None)
        whole = int(seconds)
        limit = struct.pack("ll", whole, max(int(1e6 * (seconds - whole)), 0 if whole else 1))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, limit)

    def head(self) -> bytes:
        """Return the lines of a head, without the empty one behind them."""
        found = _HEAD_END.search(self.rest)
        while found is None:
            self._receive_more()
            found = _HEAD_END.search(self.rest)
        lines, self.rest = self.rest[: found.start()], self.rest[found.end() :]
        return lines

    def line(self) -> bytes:
        """Return a line without its end."""
        while b"\n" not in self.rest:
            self._receive_more()
        line, _, self.rest = self.rest.partition(b"\n")
        return line.rstrip(b"\r")

    def _receive_more(self) -> None:
        if len(self.rest) > _MAX_HEAD:
            raise Damaged("a line or head does not end")
        data = memoryview(bytearray(_HEAD_BYTES))
        count = self._receive(data, self._flags & socket.MSG_DONTWAIT)
        if not count:
            raise ConnectionResetError("the server closed the connection")
        self.rest += data[:count]

    def read(self, destination: memoryview) -> int:
        """Fill a destination as far as bytes come in time; return how many, 0 at the end."""
        if not self.rest:
            return self._receive(destination, self._flags)
        count = min(len(self.rest), len(destination))
        destination[:count] = self.rest[:count]
        self.rest = self.rest[count:]
        return count

    def _receive(self, destination: memoryview, flags: int) -> int:
        if time.monotonic() > self._until:
            raise TimeoutError("the answer takes too long")
        try:
            return self._socket.recv_into(destination, 0, flags)
        except (BlockingIOError, ssl.SSLWantReadError):
            raise TimeoutError("timed out") from None


class Answer:
    """An answer whose head has come.

    Attributes:
      connection: that it comes on.
      status: its number.
      headers: by names in lower case; of a name that comes twice the first one.
      length: bytes that are left of the body, or of the chunk of it that has begun; None for all
        until the connection ends.
      chunked: chunks follow.
    """

    def __init__(self, connection: Connection, method: str):
        self.connection = connection
        first, *lines = connection.head().decode("latin-1").split("\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise Damaged("it has no status")
        self.status = int(rest[:3])
        self.headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            known = self.headers.setdefault(name.lower(), value.strip())
            if name.lower() == "content-length" and known != value.strip():
                raise Damaged("it has two lengths")
        said = self.headers.get("connection", "").lower()
        self._goes_on = "close" not in said if version == "HTTP/1.1" else "keep-alive" in said
        coding = self.headers.get("transfer-encoding", "").lower()
        self.chunked = coding == "chunked"
        if coding not in ("", "chunked", "identity"):
            raise Damaged("its transfer encoding is unknown")
        length = self.headers.get("content-length", "")
        self.length = int(length) if length.isdecimal() else None
        if method == "HEAD" or self.status in _BODILESS or self.status < 200:
            self.chunked, self.length = False, 0
        elif self.chunked:
            self.length = 0

    @property
    def leaves_connection(self) -> bool:
        """Return True if all of it was read, so that another request may follow."""
        ended = self.length == 0 and not self.chunked and not self.connection.rest
        return ended and self._goes_on

    def read(self, destination: memoryview) -> int:
        """Read bytes of the body; return how many, 0 at its end."""
        if self.chunked and self.length == 0:
            self._begin_chunk()
        if self.length == 0:
            return 0
        came = self.connection.read(destination[: self.length])
        if self.length is not None:
            self.length -= came
        if came and self.chunked and self.length == 0 and self.connection.line():
            raise Damaged("a chunk does not end where it says")
        return came

    def _begin_chunk(self) -> None:
        size = self.connection.line().partition(b";")[0].strip()
        try:
            self.length = int(size, 16)
        except ValueError:
            self.length = -1
        if self.length < 0:
            raise Damaged("a chunk has no size")
        if self.length:
            return
        self.chunked = False
        for _ in range(_MAX_LINES):
            if not self.connection.line():
                return
        raise Damaged("it does not end")


@cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates that are trusted: to read them takes longer than a request."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
