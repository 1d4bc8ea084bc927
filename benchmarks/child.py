"""A process that answers lines."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping

from footprint import family

EXIT_SECONDS = 30.0  # that a process may take for its end


class Child:
    """A process that gets lines on its standard input and answers them on its standard output.

    Args:
      command: the program and its arguments.
      environment: variables that it gets beside those of this process.
      limit: seconds that an answer may take. After them the process is killed.
    """

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str] | None = None,
        limit: float | None = None,
    ):
        variables = os.environ | dict(environment or {})
        self._process = subprocess.Popen(
            command, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._limit = limit

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: str) -> None:
        """Write a line to its input."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # the missing answer tells it
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def answer(self, *begins: str) -> str:
        """Return the next line that begins with one of the given words.

        Raises:
          RuntimeError: the process has ended.
        """
        timer = threading.Timer(self._limit or threading.TIMEOUT_MAX, self._kill)
        timer.daemon = True
        timer.start()
        try:
            return self._line(begins)
        finally:
            timer.cancel()

    def close(self) -> None:
        """Close its input, which tells it to end, and wait for that."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()

    def _line(self, begins: tuple[str, ...]) -> str:
        assert self._process.stdout
        while line := self._process.stdout.readline():
            if line.startswith(begins):
                return line.strip()
        raise RuntimeError(f"the process {self._process.args} has ended")

    def _kill(self) -> None:
        """Kill it and all that come from it, which might keep its output open."""
        for process in family(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
