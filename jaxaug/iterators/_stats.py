"""What a Loader has done so far, counted where it happens and read as one plain dict."""

import threading
import time
from typing import Any

STAGES = ("reader", "decoder", "device", "consumer")
_NAMED_RECORDS = 1000  # bad records beyond these are counted, not named: a report must stay readable


class Stats:
    """Counters of one Loader; the reader, the builder and the consumer write to it from their threads.

    Args:
      builders: how many threads decode and launch batches at a time.
    """

    def __init__(self, builders: int):
        self._lock = threading.Lock()
        self._builders = builders
        self._started: float | None = None
        self._counts = {"batches": 0, "images": 0, "bad": 0, "masked": 0, "replaced": 0, "shrunk": 0}
        self._seconds = {"reader": 0.0, "decoder": 0.0, "transform": 0.0, "consumer": 0.0}
        self._bad_records: list[dict[str, Any]] = []

    def start(self) -> None:
        """The consumer asks for its first batch: rates and shares count from here on."""
        with self._lock:
            self._started = self._started or time.perf_counter()

    def count(self, **increments: int) -> None:
        """Add to the counters."""
        with self._lock:
            for name, increment in increments.items():
                self._counts[name] += increment

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Add to the time spent in a stage; for the consumer, to the time it waited."""
        with self._lock:
            self._seconds[stage] += seconds

    def add_bad(self, record: dict[str, Any]) -> None:
        """Count a record that could not be decoded, and remember its name."""
        with self._lock:
            self._counts["bad"] += 1
            if len(self._bad_records) < _NAMED_RECORDS:
                self._bad_records.append(record)

    def snapshot(self) -> dict[str, Any]:
        """The counters, the bad records, the rate, and the share of time that went by in each stage."""
        with self._lock:
            elapsed = 0.0 if self._started is None else time.perf_counter() - self._started
            shares: dict[str, float] = self._shares(elapsed) if elapsed else {stage: 0.0 for stage in STAGES}
            return {
                **self._counts,
                "images_per_second": self._counts["images"] / elapsed if elapsed else 0.0,
                "seconds": elapsed,
                "shares": shares,
                "bottleneck": max(shares, key=lambda stage: shares[stage]) if elapsed else None,
                "bad_records": [dict(record) for record in self._bad_records],
            }

    def _shares(self, elapsed: float) -> dict[str, float]:
        """How busy each stage is, 0 to 1: the others wait for the one that always is."""
        busy = {
            "reader": self._seconds["reader"],
            "decoder": self._seconds["decoder"] / self._builders,
            "device": self._seconds["transform"] / self._builders,
            "consumer": elapsed - self._seconds["consumer"],
        }
        return {stage: min(max(busy[stage] / elapsed, 0.0), 1.0) for stage in STAGES}
