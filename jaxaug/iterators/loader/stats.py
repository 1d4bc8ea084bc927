"""The counters and clocks of a Loader, read as one plain dict."""

import threading
import time
from collections.abc import Iterable
from typing import Any

STAGES = ("reader", "decoder", "device", "consumer")
_MAX_NAMED_RECORDS = 1000  # further bad records are counted only: a report must stay readable


class Readiness:
    """Tells when an array is ready.

    Attributes:
      array: the array.
      is_watched: a thread waits for it; else nothing tells.
      time: at which it was; None until then.
    """

    def __init__(self, array: Any, is_watched: bool = True):
        self.array = array
        self.is_watched = is_watched
        self.time: float | None = None


class Stats:
    """The counters of one Loader, written by its consumer and read by any thread.

    The clock runs while the consumer wants batches. The time between two requests is a turn: it
    begins when a batch is handed over, belongs to the device until that batch is ready, and then to
    the consumer. A turn that nobody watches is shared as the last one that was.

    Args:
      builders: how many threads decode and launch batches at a time.
      counted: what decoders count, beside what every Loader does.
    """

    def __init__(self, builders: int, counted: Iterable[str] = ()):
        # Reentrant: a signal handler may ask for the stats amidst any line of the main thread.
        self._lock = threading.RLock()
        self._builders = builders
        # The clock: the seconds it ran before it was last started, and the time of that start.
        self._elapsed = 0.0
        self._since = None
        # The turn: the time at which the batch was handed over, and when the device finished it,
        # where that was later.
        self._handed: float | None = None
        self._ready: Readiness | None = None
        self._late_share = 1.0  # of the last turn that was watched
        self._counts = {
            "batches": 0,
            "images": 0,
            "bad": 0,
            "masked": 0,
            "replaced": 0,
            **dict.fromkeys(counted, 0),
        }
        self._seconds = {"reader": 0.0, "decoder": 0.0, "device": 0.0, "late": 0.0, "consumer": 0.0}
        self._bad_records: list[dict[str, Any]] = []

    def asked(self) -> None:
        """Note that the consumer asks for a batch: its last turn is over, and the clock runs."""
        with self._lock:
            now = time.perf_counter()
            self._end_turn(now)
            if self._since is None:
                self._since = now

    def handed(self, ready: Readiness | None) -> None:
        """Note that the consumer has a batch: its turn begins.

        Args:
          ready: tells when the device has finished the batch; None if it already has.
        """
        with self._lock:
            self._handed = time.perf_counter()
            self._ready = ready

    def pause(self) -> None:
        """Stop the clock until a batch is asked for."""
        with self._lock:
            now = time.perf_counter()
            self._end_turn(now)
            self._elapsed = self._running(now)
            self._since = None

    def delivered(
        self, counts: dict[str, int], bad: list[dict[str, Any]], seconds: dict[str, float]
    ) -> None:
        """Count a batch, its bad records, and the time that the stages were at work on it."""
        with self._lock:
            self._counts["batches"] += 1
            self.count(counts)
            for stage, increment in seconds.items():
                self._seconds[stage] += increment
        self.add_bad(bad)

    def count(self, counts: dict[str, int]) -> None:
        """Add to the counters."""
        with self._lock:
            for name, increment in counts.items():
                self._counts[name] += increment

    def add_bad(self, records: list[dict[str, Any]]) -> None:
        """Count records that could not be decoded, and remember the names of the first thousand."""
        with self._lock:
            self._counts["bad"] += len(records)
            self._bad_records += records[: _MAX_NAMED_RECORDS - len(self._bad_records)]

    def snapshot(self) -> dict[str, Any]:
        """Return the counters, the bad records, the rate, and each stage's share of the time."""
        with self._lock:
            now = time.perf_counter()
            elapsed = self._running(now)
            shares = dict.fromkeys(STAGES, 0.0)
            rate = 0.0
            bottleneck = None
            if elapsed:
                shares = self._shares(now, elapsed)
                rate = self._counts["images"] / elapsed
                bottleneck = max(shares, key=lambda stage: shares[stage])
            return {
                **self._counts,
                "images_per_second": rate,
                "seconds": elapsed,
                "shares": shares,
                "bottleneck": bottleneck,
                "bad_records": [dict(record) for record in self._bad_records],
            }

    def _shares(self, now: float, elapsed: float) -> dict[str, float]:
        """Return the share of the time, 0 to 1, in which each stage is at work."""
        late, own = self._turn(now)
        busy = {
            "reader": self._seconds["reader"],
            "decoder": self._seconds["decoder"] / self._builders,
            "device": self._seconds["device"] / self._builders + self._seconds["late"] + late,
            "consumer": self._seconds["consumer"] + own,
        }
        return {stage: min(max(busy[stage] / elapsed, 0.0), 1.0) for stage in STAGES}

    def _running(self, now: float) -> float:
        """Return the seconds that the clock has run."""
        if self._since is None:
            return self._elapsed
        return self._elapsed + (now - self._since)

    def _turn(self, now: float) -> tuple[float, float]:
        """Return the seconds of the current turn before the batch was ready, and those after."""
        if self._handed is None:
            return 0.0, 0.0

        turn = now - self._handed
        if self._ready is None:
            late = 0.0
        elif self._ready.is_watched:
            ready = now if self._ready.time is None else self._ready.time
            late = min(max(ready - self._handed, 0.0), turn)
        else:
            late = turn * self._late_share
        return late, turn - late

    def _end_turn(self, now: float) -> None:
        """Add the seconds of the current turn to those of device and consumer."""
        late, own = self._turn(now)
        if self._ready is not None and self._ready.is_watched and late + own > 0:
            self._late_share = late / (late + own)
        self._seconds["late"] += late
        self._seconds["consumer"] += own
        self._handed = self._ready = None
