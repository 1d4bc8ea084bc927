"""A process that answers lines."""

import contextlib
import os
import subprocess
from collections.abc import Mapping


class Child:
    """A process that gets lines on its standard input and answers them on its standard output.

    Args:
      command: the program and its arguments.
      environment: variables that it gets beside those of this process.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str] | None = None):
        variables = os.environ | dict(environment or {})
        self._process = subprocess.Popen(
            command, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, line: str, *begins: str) -> str:
        """Send a line; return its answer."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # the missing answer tells it
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return self.answer(*begins)

    def answer(self, *begins: str) -> str:
        """Return the next line that begins with one of the given words.

        Raises:
          RuntimeError: the process has ended.
        """
        assert self._process.stdout
        while line := self._process.stdout.readline():
            if line.startswith(begins):
                return line.strip()
        raise RuntimeError(f"the process {self._process.args} has ended")

    def close(self) -> None:
        """Close its input, which tells it to end, and wait for that."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
