"""What the processes of a Loader know of each other's end, within a second.

The first of the processes listens, and the others keep a connection open to it. The kernel closes
the connection of a process that dies in whatever way, so one that is merely slow (it compiles, it
swaps, it holds the GIL) is never taken for dead. Who ends in order, closes a Loader, or waits in a
comparison says so, and the first process passes that on. The key-value store of `jax.distributed`
holds no more than the address.
"""

import contextlib
import json
import secrets
import selectors
import socket
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxaug.errors import ProcessError
from jaxaug.iterators.loader.state import Cursor

_TICK_SECONDS = 0.5
_CONNECT_SECONDS = 10.0
_FLUSH_SECONDS = 3.0  # that the end of a process waits until it has told the others
_REQUEST_SECONDS = 5.0  # that it waits for the answer to a request of the thread
_MAX_LINE = 1 << 20  # bytes: whoever sends more is none of ours


class Stop(NamedTuple):
    """The place behind which a process takes no batch of a Loader.

    Attributes:
      why: a clause about the process, for messages.
      entered: the number of comparisons that the process had begun.
      at: the cursor behind its last batch.
      waits: it stops until all others have come to its comparison, and not for good.
    """

    why: str
    entered: int
    at: Cursor
    waits: bool


class Seat:
    """One Loader of this process, as its peers see it.

    Attributes:
      key: names the Loader on all processes.
      entered: the number of comparisons that it has begun.
      delivered: the cursor behind its last batch.
      taken: the batches that it has delivered.
    """

    def __init__(self, lifeline: "Lifeline", key: str):
        self._lifeline = lifeline
        self.key = key
        self.entered = 0
        self.delivered = Cursor(0, 0)
        self.taken = 0
        lifeline.seats[key] = self

    def reach(self, cursor: Cursor) -> None:
        """Remember that a batch was delivered."""
        self.delivered = cursor
        self.taken += 1

    def check(self, after: Cursor) -> None:
        """Refuse a batch that ends at `after` if another process takes no part in it.

        Raises:
          ProcessError: another process has ended, has closed its Loader, or waits elsewhere.
        """
        reason = self._lifeline.notice(self) or self.stopped_before(after)
        if reason is not None:
            place = f"epoch {self.delivered.epoch}, position {self.delivered.position}"
            raise ProcessError(
                f"{reason}, so this process cannot go on after {place}: read that process's log, "
                "and start all processes again from the last checkpoint."
            )

    def stopped_before(self, after: Cursor) -> str | None:
        """Name a process that takes no part in a batch that ends at `after`."""
        for rank in self._lifeline.others:
            stop = self._lifeline.stops.get((self.key, rank))
            ended = self._lifeline.ended.get(rank)
            if stop is None or (stop.waits and ended):
                reason = ended
            elif stop.waits and stop.entered <= self.entered:
                reason = None  # this process has come as well
            else:
                reason = (ended or stop.why) if after > stop.at else None
            if reason is not None:
                return f"process {rank} {reason}"
        return None

    def absent(self) -> str | None:
        """Name a process that comes to no comparison any more."""
        for rank in self._lifeline.others:
            stop = self._lifeline.stops.get((self.key, rank))
            reason = self._lifeline.ended.get(rank)
            if reason is None and stop is not None and not stop.waits:
                reason = stop.why
            if reason is not None:
                return f"process {rank} {reason}"
        return None

    def wait(self, call: str) -> None:
        """Tell the others that this process waits for them in `call`."""
        self._post(f"waits for the others in {call}", waits=True)

    def leave(self) -> None:
        """Tell the others that this Loader is closed."""
        if self._lifeline.seats.pop(self.key, None) is not None:
            place = f"epoch {self.delivered.epoch}, position {self.delivered.position}"
            self._post(f"closed its Loader at {place}", waits=False)

    def _post(self, why: str, waits: bool) -> None:
        self._lifeline.post(stops=[(self.key, Stop(why, self.entered, self.delivered, waits))])


class Lifeline:
    """The connections between the processes `ranks`, and what came over them.

    Args:
      client: of the key-value store.
      key: names these processes in it.
      rank: the number of this process.
      ranks: the numbers of all of them, ascending.
      host: a name of this machine under which the others reach it, for the first process.
      watch: called at every tick, in the thread; once `leaving` is set, it must not call JAX.

    Attributes:
      others: the other processes.
      ended: those that have ended, with a clause that says how.
      failed: those that have not ended in order.
      stops: by Loader and process.
      seats: this process's Loaders.
      leaving: the time at which this process began to end, None before.
    """

    def __init__(
        self,
        client: Any,
        key: str,
        rank: int,
        ranks: Sequence[int],
        host: Callable[[], str],
        watch: "Callable[[Lifeline], None]",
    ):
        self.client = client
        self.rank = rank
        self.others = [each for each in ranks if each != rank]
        self.ended: dict[int, str] = {}
        self.failed: set[int] = set()
        self.stops: dict[tuple[str, int], Stop] = {}
        self.seats: dict[str, Seat] = {}
        self.leaving: float | None = None
        self.leads = rank == ranks[0]
        self.notice: Callable[[Seat], str | None] = lambda seat: None
        self._first = ranks[0]
        self._key = key
        self._host = host
        self._watch = watch
        self._outbox: deque[bytes] = deque()
        self._history: list[bytes] = []  # for those that connect later
        self._links: dict[socket.socket, tuple[int | None, bytearray]] = {}
        self._selector = selectors.DefaultSelector()
        self._in_jax = threading.Lock()  # held by the thread while it calls JAX
        self._token = secrets.token_hex(8)
        self._thread = threading.Thread(target=self._run, name="jaxaug-lifeline", daemon=True)

    def start(self) -> "Lifeline":
        """Connect, in the thread; nothing waits for it."""
        self._thread.start()
        return self

    def connected(self) -> set[int]:
        """Return the processes whose connections to this one are open."""
        return {rank for rank, _ in self._links.values() if rank is not None}

    def post(self, stops: Sequence[tuple[str, Stop]] = (), **end: Any) -> None:
        """Tell the others about stops, and about the end of this process if `why` is given."""
        message = {"rank": self.rank, "stops": list(stops)} | end
        self._outbox.append(json.dumps(message).encode() + b"\n")

    def leave(self, why: str, failed: bool) -> None:
        """Tell the others that this process ends, and wait until they are told."""
        stops = []
        for key, seat in list(self.seats.items()):
            stops.append((key, Stop(why, seat.entered, seat.delivered, waits=False)))
        self.leaving = time.monotonic()
        if failed:
            self.failed.add(self.rank)
        self.post(stops, why=why, failed=failed)
        while self._outbox and time.monotonic() - self.leaving < _FLUSH_SECONDS:
            time.sleep(0.01)
        # A thread that comes back from C++ to a Python that ends makes the process abort.
        if self._in_jax.acquire(timeout=_REQUEST_SECONDS):
            self._in_jax.release()

    def flush(self) -> None:
        """Send what was posted; in the thread."""
        while self._outbox:
            self._send(self._outbox[0])
            self._outbox.popleft()

    def close_links(self) -> None:
        """Close the connections without a word."""
        for link in [*self._links]:
            link.close()

    def _run(self) -> None:
        try:
            server = self._listen() if self.leads else None
            if server is None:
                self._connect()
            while True:
                for event, _ in self._selector.select(_TICK_SECONDS):
                    if server is not None and event.fileobj is server:
                        self._add(server.accept()[0], None)
                    else:
                        self._receive(event.fileobj)
                self.flush()
                with self._in_jax:
                    self._watch(self)
        except Exception:  # the Loaders go on without: JAX's own heartbeat is left
            warnings.warn(
                "jaxaug sees no more whether the other processes live; JAX ends this one about "
                f"100 s after another has died: {traceback.format_exc(limit=-2)}",
                RuntimeWarning,
                stacklevel=1,
            )

    def _listen(self) -> socket.socket:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        server = socket.create_server(("", 0), family=family, dualstack_ipv6=both, backlog=4096)
        self._selector.register(server, selectors.EVENT_READ)
        address = [self._host(), server.getsockname()[1], self._token]
        with self._in_jax:
            if self.leaving is None:
                self.client.key_value_set(self._key, json.dumps(address))
        return server

    def _connect(self) -> None:
        while (address := self._address()) is None:
            time.sleep(_TICK_SECONDS)
        host, port, self._token = address
        link = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
        self._add(link, self._first)
        hello = {"rank": self.rank, "token": self._token, "stops": []}
        link.sendall(json.dumps(hello).encode() + b"\n")

    def _address(self) -> list[Any] | None:
        with self._in_jax, contextlib.suppress(RuntimeError):  # of JAX: not there yet
            if self.leaving is None:
                return json.loads(self.client.key_value_try_get(self._key))
        return None

    def _add(self, link: socket.socket, rank: int | None) -> None:
        link.settimeout(_CONNECT_SECONDS)
        self._links[link] = rank, bytearray()
        self._selector.register(link, selectors.EVENT_READ)

    def _receive(self, link: Any) -> None:
        rank, buffer = self._links[link]
        try:
            data = link.recv(1 << 16)
        except OSError:
            data = b""
        buffer += data
        if not data or len(buffer) > _MAX_LINE:
            self._drop(link)
            return

        *lines, rest = bytes(buffer).split(b"\n")
        buffer[:] = rest
        for line in lines:
            message = json.loads(line)
            if self.leads and rank is None:
                if message.get("token") != self._token:
                    self._drop(link)
                    return
                rank = int(message["rank"])
                self._links[link] = rank, buffer
                link.sendall(b"".join(self._history))
                continue
            self._learn(message)
            if self.leads:
                self._send(line + b"\n", but=link)

    def _learn(self, message: dict[str, Any]) -> None:
        rank = message["rank"]
        for key, (why, entered, at, waits) in message["stops"]:
            self.stops[key, rank] = Stop(why, entered, Cursor(*at), waits)
        if "why" in message and rank != self.rank:
            self.ended.setdefault(rank, message["why"])
            if message["failed"]:
                self.failed.add(rank)

    def _send(self, line: bytes, but: socket.socket | None = None) -> None:
        """Send a line to all that are connected, as far as they still are."""
        self._history.append(line)
        for link, (rank, _) in list(self._links.items()):
            if link is not but and rank is not None:
                with contextlib.suppress(OSError):
                    link.sendall(line)

    def _drop(self, link: socket.socket) -> None:
        rank, _ = self._links.pop(link)
        self._selector.unregister(link)
        link.close()
        if rank is None or rank in self.ended:
            return
        why = "was killed or has crashed"
        message = {"rank": rank, "stops": [], "why": why, "failed": True}
        self._learn(message)
        if self.leads:
            self._send(json.dumps(message).encode() + b"\n")
