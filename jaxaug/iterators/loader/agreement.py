"""The comparison of the Loaders that several processes make over the same devices.

None of it is a collective, which would hang everywhere when one process does not come: each process
posts its facts to the key-value store of `jax.distributed`, the first compares them and posts the
verdict, and all read that. So n processes cost O(n) requests, of about 0.4 ms each.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding

from jaxaug.errors import JaxaugError, ProcessError
from jaxaug.iterators.loader.lifeline import Lifeline, Seat
from jaxaug.iterators.loader.stuck import Watch, lifeline_of

_POLL_SECONDS = 0.5  # of one request: Ctrl-C and the failure of another process are seen after it
_WAITS_AFTER = 1.0  # seconds until the others are told that this process waits for them
_MAX_CHARACTERS = 1000  # of a value that is posted and shown
# The verdicts.
_SAME = "same"
_DIFFER = "differ"
_FAILED = "failed"
_RECORDS = "give all the same records in the same order (has each process a full copy?)"
_ADVICE = {
    "fingerprint": _RECORDS,
    "length": _RECORDS,
    "element_spec": "give all the same `transform` and records with the same features",
    "state": "give all the same state",
}
_MUST_CALL = "Every process with a device of `sharding` must make the same calls in the same order."
# The n-th Loader over a set of devices is compared with the n-th of the other processes.
_ordinals: dict[str, Iterator[int]] = collections.defaultdict(itertools.count)


@dataclasses.dataclass(frozen=True)
class Peers:
    """The processes that own the devices of a sharding, on each of which a Loader is made.

    Args:
      client: the client of the key-value store of `jax.distributed`; None compares nothing.
      key: names these processes and this Loader in the store, the same on each of them.
      rank: the number of this process.
      ranks: the numbers of all of them, ascending.
      warn_after: seconds after which a warning names the processes that have not come.
      give_up_after: seconds after which it is an error.
      seat: tells whether the others live.
    """

    client: Any
    key: str
    rank: int
    ranks: Sequence[int]
    warn_after: float = 10.0
    give_up_after: float = 600.0
    rounds: Iterator[int] = dataclasses.field(default_factory=itertools.count)
    seat: Seat | None = None

    @contextlib.contextmanager
    def compare(self, call: str) -> Iterator[dict[str, Any]]:
        """Yield a dict for facts; at the end of the block compare it with that of the others.

        A block that raises tells the others, which then raise too instead of waiting. The caller
        closes what the block made when the comparison raises.

        Args:
          call: the call that every process makes, for messages, such as "Loader(...)".

        Raises:
          ValueError: facts differ; on every process, naming each of them with its values.
          JaxaugError: another process failed in its block, or did not come in time.
          ProcessError: another process has ended, or has closed its Loader.
        """
        facts: dict[str, Any] = {}
        if self.client is None:
            yield facts
            return

        comparison = _Comparison(self, f"{self.key}/{next(self.rounds)}", call)
        if self.seat is not None:
            self.seat.entered += 1
        try:
            yield facts
            comparison.run(flatten(facts))
        except BaseException as error:
            reason = shorten(f"{type(error).__name__}: {error}")
            comparison.post(_FAILED, f"{call} failed on process {self.rank}: {reason}")
            raise
        finally:
            comparison.clear()


class _Comparison:
    """One exchange of facts, under `key` in the store."""

    def __init__(self, peers: Peers, key: str, call: str):
        self._peers = peers
        self._client = peers.client
        self._key = key
        self._call = call
        self._start = time.monotonic()
        self._warned = False
        self._told = False

    def run(self, facts: Mapping[str, str]) -> None:
        """Post this process's facts and raise the common verdict."""
        self._start = time.monotonic()
        self._client.key_value_set(f"{self._key}/facts/{self._peers.rank}", json.dumps(facts))
        if self._peers.rank == self._peers.ranks[0]:
            all_facts = {}
            for rank in self._peers.ranks:
                all_facts[rank] = json.loads(self._wait(f"facts/{rank}"))
            self._judge(all_facts)
        _raise_verdict(self._wait("verdict"))

    def _judge(self, facts: Mapping[int, Mapping[str, str]]) -> None:
        """Compare the facts of all processes and post the verdict."""
        lines = differences(facts)
        if lines:
            message = "\n- ".join([f"{self._call} differs between processes:", *lines])
            self.post(_DIFFER, message)
        else:
            self.post(_SAME, "")

    def post(self, kind: str, message: str) -> None:
        """Post a verdict, unless there is one."""
        with contextlib.suppress(RuntimeError):
            self._client.key_value_set(f"{self._key}/verdict", json.dumps([kind, message]))

    def clear(self) -> None:
        """Delete this process's facts; only the verdict stays in the store."""
        with contextlib.suppress(RuntimeError):
            self._client.key_value_delete(f"{self._key}/facts/{self._peers.rank}")

    def _wait(self, name: str) -> str:
        """Return the value of `name` once it is there."""
        milliseconds = int(_POLL_SECONDS * 1000)
        seat = self._peers.seat
        absent = None
        while True:
            before = absent  # twice, as who closes its Loader may be about to say why it ends
            absent = None if seat is None else seat.absent()  # first: who ends has posted before
            value = _look(self._client.blocking_key_value_get, f"{self._key}/{name}", milliseconds)
            if value is not None:
                return value
            _raise_verdict(_look(self._client.key_value_try_get, f"{self._key}/verdict"))
            if before is not None and absent is not None:
                raise ProcessError(f"{absent}, and does not call {self._call}. {_MUST_CALL}")

            waited = time.monotonic() - self._start
            if waited >= _WAITS_AFTER and not self._told and seat is not None:
                self._told = True
                seat.wait(self._call)
            if waited >= self._peers.give_up_after:
                message = f"{self._missing()} did not call {self._call} within {waited:.0f} s. "
                raise JaxaugError(message + _MUST_CALL)
            if waited >= self._peers.warn_after and not self._warned:
                self._warned = True
                message = f"{self._call} has waited {waited:.0f} s for {self._missing()}. "
                # _wait, run, compare, contextlib, the Loader, its caller
                warnings.warn(message + _MUST_CALL, RuntimeWarning, stacklevel=6)

    def _missing(self) -> str:
        """Name the processes without facts; the first one if only the verdict is missing."""
        entries = self._client.key_value_dir_get(f"{self._key}/facts/")
        come = {int(name.rsplit("/", 1)[1]) for name, _ in entries}
        missing = [rank for rank in self._peers.ranks if rank not in come]
        return name_processes(missing or self._peers.ranks[:1])


def peers_of(sharding: NamedSharding, **seconds: Any) -> Peers:
    """Return the processes of `sharding`; one process alone has nothing to compare.

    Args:
      sharding: the sharding of the batches.
      seconds: `warn_after` and `give_up_after` of `Peers`.

    Raises:
      ValueError: this process owns none of its devices.
    """
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    rank = devices[0].client.process_index()
    ranks = sorted({device.process_index for device in devices})
    if rank not in ranks:
        owners = name_processes(ranks)
        raise ValueError(
            f"`sharding` must hold a device of this process (process {rank}), got devices of "
            f"{owners}: make the Loader on {owners} only, or include a device of process {rank}."
        )
    client = _client() if len(ranks) > 1 else None
    if client is None:
        return Peers(None, "", rank, ranks)

    text = f"{devices[0].platform} {[device.id for device in devices]}"
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    key = f"jaxaug/{name}/{next(_ordinals[name])}"
    seat = _take_seat(client, key, rank, ranks)
    return Peers(client, key, rank, ranks, seat=seat, **seconds)


def _take_seat(client: Any, key: str, rank: int, ranks: Sequence[int]) -> Seat | None:
    """Return the seat of a Loader among the processes `ranks`; None without jax.distributed."""
    from jax._src.distributed import global_state  # as in `_client`

    coordinator = global_state.coordinator_address
    if coordinator is None:
        return None
    text = ",".join(map(str, ranks))
    name = f"jaxaug/lifeline/{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def make() -> Lifeline:
        host = functools.partial(_own_host, rank, coordinator)
        return Lifeline(client, name, rank, ranks, host=host, watch=Watch())

    return Seat(lifeline_of(name, make), key)


def _own_host(rank: int, coordinator: str) -> str:
    """Return a name of this machine by which the other processes reach it."""
    host, port = coordinator.rsplit(":", 1)
    host = host.strip("[]")
    if rank == 0:  # it is the coordinator
        return host
    family, _, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing: the kernel picks the way
        return probe.getsockname()[0]


def _client() -> Any:
    """Return the client of `jax.distributed`, which jax gives no public name."""
    try:
        from jax._src.distributed import global_state

        client = global_state.client
    except (ImportError, AttributeError):
        client = None
    if client is None:
        warnings.warn(
            "jaxaug cannot compare the Loaders of several processes, as they were not connected by "
            "jax.distributed.initialize(): give each the same records and arguments.",
            RuntimeWarning,
            stacklevel=4,  # _client, peers_of, the Loader, its caller
        )
    return client


def flatten(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested dicts of scalars, tuples and `jax.ShapeDtypeStruct` as one dict of texts.

    Example:
      >>> flatten({"seed": 3, "element_spec": {"label": jax.ShapeDtypeStruct((8,), "int32")}})
      {'seed': '3', "element_spec['label']": 'int32[8]'}
    """
    texts: dict[str, str] = {}
    for key, value in facts.items():
        name = f"{prefix}[{key!r}]" if prefix else key
        if isinstance(value, Mapping):
            texts |= flatten(value, name)
        elif isinstance(value, jax.ShapeDtypeStruct):
            texts[name] = f"{value.dtype}[{','.join(map(str, value.shape))}]"
        else:
            texts[name] = shorten(repr(value))
    return texts


def shorten(text: str) -> str:
    """Return a text, cut if it is long, with its hash so that it stays comparable."""
    if len(text) <= _MAX_CHARACTERS:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[:_MAX_CHARACTERS]}... (sha256 {digest})"


def differences(facts: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Return a line for each fact that differs between processes, with its values and the cure.

    Example:
      >>> differences({0: {"seed": "3"}, 1: {"seed": "4"}, 2: {"seed": "3"}})
      ['processes 0, 2 have seed=3, process 1 has seed=4: give all the same `seed`.']
    """
    lines = []
    for name in dict.fromkeys(itertools.chain(*facts.values())):
        holders: dict[str | None, list[int]] = {}
        for rank, texts in facts.items():
            holders.setdefault(texts.get(name), []).append(rank)
        if len(holders) > 1:
            root = name.split("[")[0]
            advice = _ADVICE.get(root, f"give all the same `{root}`")
            values = ", ".join(_hold(ranks, name, text) for text, ranks in holders.items())
            lines.append(f"{values}: {advice}.")
    return lines


def _hold(ranks: Sequence[int], name: str, text: str | None) -> str:
    verb = "has" if len(ranks) == 1 else "have"
    value = f"no {name}" if text is None else f"{name}={text}"
    return f"{name_processes(ranks)} {verb} {value}"


def name_processes(ranks: Sequence[int]) -> str:
    """Return the names of processes, of the first eight of them.

    Example:
      >>> name_processes([1]), name_processes([0, 2])
      ('process 1', 'processes 0, 2')
    """
    plural = "es" if len(ranks) > 1 else ""
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"process{plural} {', '.join(map(str, ranks[:8]))}{more}"


def _look(get: Callable[..., str], *args: Any) -> str | None:
    """Return the value that `get` gives, None if there is nothing yet."""
    try:
        return get(*args)
    except RuntimeError as error:  # jax.errors.JaxRuntimeError
        if "NOT_FOUND" in str(error) or "DEADLINE_EXCEEDED" in str(error):
            return None
        raise


def _raise_verdict(verdict: str | None) -> None:
    """Raise the error of a verdict; do nothing for a good one, or for none yet."""
    if verdict is None:
        return
    kind, message = json.loads(verdict)
    if kind == _DIFFER:
        raise ValueError(message)
    if kind == _FAILED:
        raise JaxaugError(message)
