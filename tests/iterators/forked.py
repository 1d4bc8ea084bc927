"""Processes that have imported what they run: forks of one that did nothing but import it.

A process that imports JAX and jaxaug takes as long for that as for a short test.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FORKS = """
import json, os, signal, sys, time
import jax.numpy, numpy
import jaxaug.augment, jaxaug.decode, jaxaug.iterators, jaxaug.sharding, tests.images
for line in sys.stdin:
    children, ends = {}, {}
    program, *calls = json.loads(line)
    for folder, *arguments in calls:
        child = os.fork()
        if child == 0:
            break
        children[child] = folder
    else:
        while children:
            child, status = os.wait()
            ends[children.pop(child)] = os.waitstatus_to_exitcode(status), time.time()
        print(json.dumps([ends[folder] for folder, *_ in calls]), flush=True)
        continue
    break
else:
    sys.exit()
for stream, name in (sys.stdout, "out"), (sys.stderr, "err"):
    os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT), stream.fileno())
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
signal.alarm(300)
sys.argv = ["-c", *arguments]
exec(program, {"__name__": "__main__"})
"""


class End(NamedTuple):
    """How a process ended, when, and what it had printed."""

    status: int
    at: float
    out: str
    error: str


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


Run = Callable[[str, Sequence[Sequence[object]]], list[End]]


@contextlib.contextmanager
def forks() -> Iterator[Run]:
    """A function that runs a program in one process for each list of its arguments, all at once."""
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ, **pipes) as mother:

        def run(program: str, calls: Sequence[Sequence[object]]) -> list[End]:
            with tempfile.TemporaryDirectory() as folder:
                folders = [Path(folder, str(number)) for number in range(len(calls))]
                for each in folders:
                    each.mkdir()
                lists = [[str(each), *map(str, call)] for each, call in zip(folders, calls)]
                print(json.dumps([program, *lists]), file=mother.stdin, flush=True)
                ends = json.loads(mother.stdout.readline())
                texts = [[(each / name).read_text() for name in ("out", "err")] for each in folders]
            return [End(*end, *text) for end, text in zip(ends, texts)]

        yield run
