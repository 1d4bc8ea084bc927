"""A contestant in a process of its own."""

import json
import sys
import time
from typing import Any

from child import Child
from footprint import Peak

ANSWER_SECONDS = 120.0  # that one may take for an answer


class Contestant:
    """A contestant in a process of its own, warmed up.

    The process runs a script with `--serve TASK`, answers "ready" and some JSON, and then each line
    of seconds with "rate" and images/s; or "failed" and a reason.

    Args:
      script: its path.
      task: given to it as JSON.
      seconds: of the warm-up, behind the batches that are not counted.

    Attributes:
      ready: the JSON of its first answer.
      warm: images/s in the warm-up.
      memory_gb: the most that it took until then, "host" and "GPU" as `Peak` has them.

    Raises:
      RuntimeError: it cannot be opened or fails.
    """

    def __init__(self, script: str, task: dict[str, Any], seconds: float):
        peak = Peak()
        command = [sys.executable, script, "--serve", json.dumps(task)]
        self._child = Child(command, limit=ANSWER_SECONDS)
        self.close = self._child.close
        try:
            with peak.watching(self._child.pid):
                self.ready = json.loads(self._answer("ready"))
                self.warm = self.rate(seconds)
        except RuntimeError:
            self.close()
            raise
        self.memory_gb = peak.gb

    def rate(self, seconds: float) -> float:
        """Return images/s.

        Raises:
          RuntimeError: it fails, or takes too long.
        """
        self._child.send(str(seconds))
        return float(self._answer("rate"))

    def _answer(self, begins: str) -> str:
        kind, _, rest = self._child.answer(begins, "failed").partition(" ")
        if kind == "failed":
            raise RuntimeError(rest)
        return rest


def open_best(
    script: str, task: dict[str, Any], choices: list[dict[str, Any]], seconds: float
) -> Contestant | None:
    """Return the contestant with the settings that are fastest in the warm-up.

    Settings that fail are left out with a printed line; None if no others are left.
    """
    best = None
    for settings in choices:
        name = " ".join([task["name"], *(f"{key}={value}" for key, value in settings.items())])
        try:
            found = Contestant(script, task | settings, seconds)
        except RuntimeError as error:
            print(f"  left out: {name}: {error}", flush=True)
            continue
        if len(choices) > 1:
            print(f"  {name}: {found.warm:,.0f}", flush=True)
        if best is None:
            best = found
        elif best.warm < found.warm:
            best.close()
            best = found
        else:
            found.close()
    return best


def measure_in_turn(
    contestants: dict[str, Contestant], rounds: int, seconds: float, pause: float = 0.0
) -> dict[str, list[float]]:
    """Return the images/s of all rounds by name; one that fails is left out with a printed line.

    The `pause`, in seconds, follows each: what it reads ahead is not to be decoded beside the next.
    """
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name in list(rates):
            try:
                rates[name].append(contestants[name].rate(seconds))
            except RuntimeError as error:
                print(f"  left out: {name}: {error}", flush=True)
                rates.pop(name)
            time.sleep(pause)
    return rates
