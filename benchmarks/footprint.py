"""The memory that a process takes on the host and on the GPU."""

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

INTERVAL = 0.1  # seconds


def family(process: int) -> list[int]:
    """Return the numbers of a process and of all that come from it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            parent = path.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(path.parent.name))

    found = [process]
    for number in found:  # grows
        found += children.get(number, [])
    return found


def resident_gb(process: int) -> float:
    """Return the GB of resident memory of a process and of all that come from it.

    Their own pages and those of shared memory are added up. Of the mapped files, which are the
    same libraries in each, those of the process that maps most count.
    """
    found = [resident(number) for number in family(process)]
    own = sum(each.get("RssAnon", 0) + each.get("RssShmem", 0) for each in found)
    return (own + max(each.get("RssFile", 0) for each in found)) / 2**20


def resident(process: int) -> dict[str, int]:
    """Return the KB of resident memory of a process by kind; nothing if it has ended."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    lines = [line.split() for line in text.splitlines() if line.startswith("Rss")]
    return {name.removesuffix(":"): int(kilobytes) for name, kilobytes, _ in lines}


def gpu_gb() -> float:
    """Return the GB in use on the first GPU that CUDA shows this process, by all processes."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    command += ["-i", visible]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 1024


class Peak:
    """The most memory that a process takes: made before it starts, then `watching` it.

    Attributes:
      gb: "host" is `resident_gb`; "GPU" is what the first visible GPU has more in use than before,
        which is the memory of this process as long as others do not change theirs. Without
        `nvidia-smi` there is no "GPU".
    """

    def __init__(self):
        self._before = gpu_gb() if shutil.which("nvidia-smi") else None
        self.gb: dict[str, float] = {}

    @contextlib.contextmanager
    def watching(self, process: int) -> Iterator[None]:
        """Look at the memory every tenth of a second while this is open."""
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(process, done))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _watch(self, process: int, done: threading.Event) -> None:
        while True:
            found = {"host": resident_gb(process)}
            if self._before is not None:
                found["GPU"] = gpu_gb() - self._before
            for name, value in found.items():
                self.gb[name] = max(value, self.gb.get(name, 0.0))
            if done.wait(INTERVAL):
                return
