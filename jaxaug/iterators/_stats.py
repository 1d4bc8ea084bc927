"""What a Loader has done so far, counted where it happens and read as one plain dict."""

import threading
import time
from typing import Any

_NAMED_RECORDS = 1000  # bad records beyond these are counted, not named: a report must stay readable


class Stats:
    """Counters of one Loader; the reader, the builder and the consumer write to it from their threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self._started = time.perf_counter()
        self._counts = {"batches": 0, "images": 0, "bad": 0, "masked": 0, "replaced": 0, "shrunk": 0}
        self._seconds = {"reader": 0.0, "decoder": 0.0, "transform": 0.0, "consumer": 0.0}
        self._bad_records: list[dict[str, Any]] = []

    def count(self, **increments: int) -> None:
        """Add to the counters."""
        with self._lock:
            for name, increment in increments.items():
                self._counts[name] += increment

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Add to the time spent in, or waited for, a stage."""
        with self._lock:
            self._seconds[stage] += seconds

    def add_bad(self, record: dict[str, Any]) -> None:
        """Count a record that could not be decoded, and remember its name."""
        with self._lock:
            self._counts["bad"] += 1
            if len(self._bad_records) < _NAMED_RECORDS:
                self._bad_records.append(record)

    def snapshot(self) -> dict[str, Any]:
        """The counters, the bad records, the rate, and the seconds of each stage."""
        with self._lock:
            elapsed = time.perf_counter() - self._started
            return {
                **self._counts,
                "images_per_second": self._counts["images"] / elapsed,
                "seconds": dict(self._seconds),
                "bad_records": [dict(record) for record in self._bad_records],
            }
