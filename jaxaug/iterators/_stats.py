"""What a Loader has done so far, counted where it happens and read as one plain dict."""

import threading
import time
from concurrent.futures import Future
from typing import Any

STAGES = ("reader", "decoder", "device", "consumer")
_NAMED_RECORDS = (
    1000  # bad records beyond these are counted, not named: a report must stay readable
)


class Stats:
    """Counters of one Loader; the reader, the builder and the consumer write to it from their
    threads.

    Args:
      builders: how many threads decode and launch batches at a time.
    """

    def __init__(self, builders: int):
        self._lock = threading.Lock()
        self._builders = builders
        # the clock: what it has run before, and when it was started
        self._elapsed = 0.0
        self._since = None
        self._handed: float | None = (
            None  # when the batch was handed over that the consumer now works on
        )
        self._ready: Future[float] | None = (
            None  # when the device had finished it, where that was later
        )
        self._counts = {
            "batches": 0,
            "images": 0,
            "bad": 0,
            "masked": 0,
            "replaced": 0,
            "shrunk": 0,
        }
        self._seconds = {"reader": 0.0, "decoder": 0.0, "device": 0.0, "late": 0.0, "consumer": 0.0}
        self._bad_records: list[dict[str, Any]] = []

    def asked(self) -> None:
        """The consumer asks for a batch: its turn with the last one is over, and the clock runs."""
        with self._lock:
            now = time.perf_counter()
            self._end_turn(now)
            self._since = now if self._since is None else self._since

    def handed(self, ready: "Future[float] | None") -> None:
        """The consumer has a batch: its turn begins. `ready` gives when the device has finished the
        batch, unless
        it already has."""
        with self._lock:
            self._handed = time.perf_counter()
            self._ready = ready

    def pause(self) -> None:
        """Nobody wants a batch: the clock stands until one is asked for."""
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
            for name, increment in counts.items():
                self._counts[name] += increment
            for stage, increment in seconds.items():
                self._seconds[stage] += increment
        self.add_bad(bad)

    def add_bad(self, records: list[dict[str, Any]]) -> None:
        """Count records that could not be decoded, and remember the names of the first thousand."""
        with self._lock:
            self._counts["bad"] += len(records)
            self._bad_records += records[: _NAMED_RECORDS - len(self._bad_records)]

    def snapshot(self) -> dict[str, Any]:
        """The counters, the bad records, the rate, and the share of time that went by in each
        stage.
        """
        with self._lock:
            now = time.perf_counter()
            elapsed = self._running(now)
            shares = self._shares(now, elapsed) if elapsed else {stage: 0.0 for stage in STAGES}
            return {
                **self._counts,
                "images_per_second": self._counts["images"] / elapsed if elapsed else 0.0,
                "seconds": elapsed,
                "shares": shares,
                "bottleneck": max(shares, key=lambda stage: shares[stage]) if elapsed else None,
                "bad_records": [dict(record) for record in self._bad_records],
            }

    def _shares(self, now: float, elapsed: float) -> dict[str, float]:
        """How busy each stage is, 0 to 1: the others wait for the one that always is."""
        late, own = self._turn(now)
        busy = {
            "reader": self._seconds["reader"],
            "decoder": self._seconds["decoder"] / self._builders,
            "device": self._seconds["device"] / self._builders + self._seconds["late"] + late,
            "consumer": self._seconds["consumer"] + own,
        }
        return {stage: min(max(busy[stage] / elapsed, 0.0), 1.0) for stage in STAGES}

    def _running(self, now: float) -> float:
        """Seconds that the clock has run."""
        return self._elapsed + (0.0 if self._since is None else now - self._since)

    def _turn(self, now: float) -> tuple[float, float]:
        """Seconds of the consumer's turn: as long as the device had not finished the batch, and
        those behind it.
        """
        if self._handed is None:
            return 0.0, 0.0
        ready = (
            self._handed
            if self._ready is None
            else self._ready.result()
            if self._ready.done()
            else now
        )
        ready = min(max(ready, self._handed), now)
        return ready - self._handed, now - ready

    def _end_turn(self, now: float) -> None:
        late, own = self._turn(now)
        self._seconds["late"] += late
        self._seconds["consumer"] += own
        self._handed = self._ready = None
