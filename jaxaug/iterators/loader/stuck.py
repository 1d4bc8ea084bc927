"""The end of a process that waits in vain for one that has ended.

An exception cannot reach a thread that waits inside of a collective. What tells that it waits in
vain is public: it holds an array over the devices of a process that has ended, and that array does
not become ready.
"""

import atexit
import contextlib
import faulthandler
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from jaxaug.errors import ProcessError
from jaxaug.iterators.loader.lifeline import Lifeline, Seat

_GRACE_SECONDS = 5.0  # between the end of a process and that of one that waits for it in vain
_HEAD_START_SECONDS = 2.0  # of the others before the first process, without which JAX aborts them
_LINGER_SECONDS = (
    12.0  # that the first process waits for the others at its end, for the same reason
)
_NOTICE_SECONDS = 3.0  # after JAX's notice of a SIGTERM, for the program to ask for it
_NOTICE_BATCHES = 2
# Set to 1, the named error is printed, and the process goes on to wait for JAX.
_VARIABLE = "JAXAUG_KEEP_STUCK_PROCESSES"
_CAUSE_SECONDS = 1.0  # that an error waits for the news of another process
_FINISH_SECONDS = 600.0
_MAX_CHARACTERS = 1000  # of an error that the others are told
_JAX = str(Path(jax.__file__).parent)
# Of JAX's preemption service: the time of the notice, and the last step that each process asked
# about when it came.
_NOTICE = "RECEIVED_PREEMPTION_NOTICE"
_COUNTER = "PREEMPTION_CURRENT_COUNTER/"

_lifelines: dict[str, Lifeline] = {}


class Watch:
    """Called at every tick of a lifeline; ends the process where nothing else can."""

    def __init__(self):
        self._stuck: set[int] = set()
        self._since = 0.0
        self._said = False
        self._notice_at: float | None = None
        self._taken_at_notice: dict[str, int] = {}
        self._next_look = 0.0

    def __call__(self, lifeline: Lifeline) -> None:
        """Look once."""
        if lifeline.leaving is None:  # then JAX clears its backends, and a look would make new ones
            self._answer(lifeline)
            self._look_for_notice(lifeline)
            if lifeline.ended:
                self._end_if_stuck(lifeline)
        elif lifeline.failed:
            self._end_if_it_waits_for_jax(lifeline)

    def _answer(self, lifeline: Lifeline) -> None:
        """Tell a process that waits in a comparison if this one has gone on without."""
        for (key, rank), stop in list(lifeline.stops.items()):
            seat = lifeline.seats.get(key)
            if seat is None or not stop.waits or stop.entered <= seat.entered:
                continue
            if seat.delivered > stop.at:
                reason = (
                    f"process {rank} {stop.why}, process {lifeline.rank} takes batches instead: "
                    "every process must make the same calls in the same order (does each of them "
                    "find the file of the state?)."
                )
                with contextlib.suppress(RuntimeError):  # another one has said it
                    name = f"{key}/{stop.entered - 1}/verdict"
                    lifeline.client.key_value_set(name, json.dumps(["failed", reason]))

    def _look_for_notice(self, lifeline: Lifeline) -> None:
        now = time.monotonic()
        if self._notice_at is not None or now < self._next_look:
            return
        self._next_look = now + max(
            1.0, 0.01 * len(lifeline.others)
        )  # bounds all requests a second
        with contextlib.suppress(RuntimeError):  # no notice, or no store any more
            lifeline.client.key_value_try_get(_NOTICE)
            self._notice_at = now
            self._taken_at_notice = {key: seat.taken for key, seat in lifeline.seats.items()}
            lifeline.notice = lambda seat: self._notice(lifeline, seat)

    def _notice(self, lifeline: Lifeline, seat: Seat) -> str | None:
        """Say that a SIGTERM came if the program has not asked for it."""
        assert self._notice_at is not None
        waited = time.monotonic() - self._notice_at
        taken = seat.taken - self._taken_at_notice.get(seat.key, 0)
        if waited < _NOTICE_SECONDS or taken < _NOTICE_BATCHES:
            return None
        counters = lifeline.client.key_value_dir_get(_COUNTER)
        if any(value != "0" for _, value in counters):
            return None
        return (
            f"a process received SIGTERM {waited:.0f} s ago, and the program asks neither "
            "`multihost_utils.reached_preemption_sync_point` nor Orbax's `reached_preemption`"
        )

    def _end_if_stuck(self, lifeline: Lifeline) -> None:
        now = time.monotonic()
        stuck = {id(array) for array in _waiting_for(set(lifeline.ended))}
        if not stuck & self._stuck:
            self._stuck = stuck
            self._since = now
            return
        self._stuck &= stuck
        grace = _GRACE_SECONDS + (_HEAD_START_SECONDS if lifeline.leads else 0)
        if now - self._since >= grace and not self._said:
            self._said = True
            self._end(lifeline, f"this process has waited {now - self._since:.0f} s in vain for")

    def _end_if_it_waits_for_jax(self, lifeline: Lifeline) -> None:
        """End a process that would wait for those that never come to JAX's shutdown."""
        assert lifeline.leaving is not None
        leaving = time.monotonic() - lifeline.leaving
        first_stays = lifeline.leads and lifeline.connected() and leaving < _LINGER_SECONDS
        if first_stays or not _in_shutdown_of_jax():
            return
        if lifeline.rank in lifeline.failed:
            _exit()  # its error has been printed
        self._end(lifeline, "this process would wait at its end for")

    def _end(self, lifeline: Lifeline, waits: str) -> None:
        name = _first_end(lifeline)
        _print(
            f"{waits} {name}. Read its log, and start all processes again from the last checkpoint."
            f" ({_VARIABLE}=1 keeps this process.)"
        )
        if os.environ.get(_VARIABLE, "0") in ("", "0"):
            with contextlib.suppress(Exception):  # where stderr is no file
                faulthandler.dump_traceback(sys.stderr)
            lifeline.post(why=f"was ended, as it waited in vain for {name}", failed=True)
            lifeline.flush()
            _exit()


def _first_end(lifeline: Lifeline) -> str:
    """Name the process that ended first, and how."""
    rank, why = next(iter(lifeline.ended.items()))
    return f"process {rank}, which {why}"


def _print(text: str) -> None:
    with contextlib.suppress(Exception):
        print(f"jaxaug.errors.ProcessError: {text}", file=sys.stderr, flush=True)


def _waiting_for(ranks: set[int]) -> Iterator[Any]:
    """Yield the arrays over devices of `ranks` that are not ready."""
    for array in jax.live_arrays():
        with contextlib.suppress(RuntimeError):  # deleted meanwhile, or failed: not waited for
            if array.is_fully_addressable or array.is_deleted() or array.is_ready():
                continue
            if ranks & {device.process_index for device in array.sharding.device_set}:
                yield array


def _in_shutdown_of_jax() -> bool:
    """Return True if the main thread runs a function that JAX has registered for the exit."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_JAX)


def _exit() -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1)


def lifeline_of(key: str, make: Callable[[], Lifeline]) -> Lifeline:
    """Return the lifeline of the processes that `key` names; make and start it at first."""
    if key not in _lifelines:
        if not _lifelines:
            atexit.register(_leave)  # after that of JAX, so that it runs before
        _lifelines[key] = make().start()
    return _lifelines[key]


def _leave() -> None:
    """Tell the peers that this process ends, and how, before JAX waits for them."""
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    why = "has ended"
    if error is not None:
        text = "".join(traceback.format_exception_only(error)).strip()
        why = f"ended with {text[:_MAX_CHARACTERS]}"
    _finish_computations()
    if error is not None and not isinstance(error, ProcessError):
        _name_cause()
    for lifeline in _lifelines.values():
        lifeline.leave(why, failed=error is not None)


def _name_cause() -> None:
    """Say which process ended before this one's error, which may be a lost connection."""
    end = time.monotonic() + _CAUSE_SECONDS
    while time.monotonic() < end:
        for lifeline in _lifelines.values():
            if lifeline.ended:
                _print(f"the error above came after the end of {_first_end(lifeline)}.")
                return
        time.sleep(0.05)


def _finish_computations() -> None:
    """Wait until no array over several processes is being computed, nor can be any more."""
    ranks = set(range(jax.process_count()))
    end = time.monotonic() + _FINISH_SECONDS
    failed = getattr(sys, "last_value", None) is not None
    while not failed and time.monotonic() < end and any(True for _ in _waiting_for(ranks)):
        if any(lifeline.ended for lifeline in _lifelines.values()):
            return
        time.sleep(0.05)


def _forget() -> None:
    """Close a fork's copies of the connections, which would outlive the process."""
    for lifeline in _lifelines.values():
        lifeline.close_links()
    _lifelines.clear()
    atexit.unregister(_leave)


os.register_at_fork(after_in_child=_forget)
