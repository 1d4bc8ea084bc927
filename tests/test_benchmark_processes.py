"""The processes of the benchmarks: asked for lines, killed when they hang, weighed."""

import subprocess
import sys
import tarfile
import time
from pathlib import Path

import psutil
import pytest

from tests.images import jpegs

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import child as processes
import footprint
import images

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

ANSWERS = """
import sys
print("noise", flush=True)
print("ready", flush=True)
for line in sys.stdin:
    print("noise\\nrate", 2 * float(line), flush=True)
"""

# A child of the child keeps its output open.
HANGS = """
import subprocess, sys, time
started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("ready", started.pid, flush=True)
time.sleep(60)
"""


def test_a_child_answers_lines_until_its_end():
    child = processes.Child([sys.executable, "-c", ANSWERS])
    assert child.answer("ready", "failed") == "ready"
    child.send("1.5")
    assert child.answer("rate", "failed") == "rate 3.0"
    child.close()
    with pytest.raises(RuntimeError, match="has ended"):
        child.answer("rate")


def test_a_child_that_hangs_is_killed_with_its_own():
    child = processes.Child([sys.executable, "-c", HANGS], limit=120.0)
    grandchild = psutil.Process(int(child.answer("ready").split()[1]))
    child._limit = 0.5
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="has ended"):
        child.answer("rate")
    assert time.monotonic() - started < 20
    child.close()
    grandchild.wait(10)


def test_the_footprint_of_a_process_holds_its_children():
    program = """
import subprocess, sys
kept = bytearray(40 << 20)
if len(sys.argv) < 2:
    child = subprocess.Popen([sys.executable, "-c", sys.stdin.read(), "leaf"], stdout=1)
else:
    print("made", flush=True)
import time; time.sleep(60)
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", program], **pipes)
    process.stdin.write(program)
    process.stdin.close()
    assert process.stdout.readline() == "made\n"
    below = psutil.Process(process.pid).children(recursive=True)
    try:
        assert footprint.family(process.pid) == [process.pid, *(each.pid for each in below)]
        assert len(below) == 1
        rss = sum(
            psutil.Process(number).memory_info().rss for number in footprint.family(process.pid)
        )
        assert 80 / 1024 < footprint.resident_gb(process.pid) <= rss / 2**30
    finally:
        for each in below:
            each.kill()
        process.kill()
        process.wait()


# Takes 200 MB and gives them back, each when it is told to.
TAKES = """
import sys
print("before", flush=True)
sys.stdin.readline()
block = b"x" * (200 << 20)
print("taken", flush=True)
sys.stdin.readline()
del block
print("given back", flush=True)
sys.stdin.readline()
"""


def test_a_peak_outlasts_what_made_it():
    """In a process whose memory nothing else moves, however late the watching thread comes."""
    child = processes.Child([sys.executable, "-c", TAKES])
    process = child.pid
    peak = footprint.Peak()
    child.answer("before")
    before = footprint.resident_gb(process)
    with peak.watching(process):
        child.send("")
        child.answer("taken")
        deadline = time.monotonic() + 20
        while peak.gb.get("host", 0.0) < before + 0.19 and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send("")
        child.answer("given")
        after = footprint.resident_gb(process)
    child.close()
    assert peak.gb["host"] > before + 0.19 and after < before + 0.01


def test_the_loose_files_are_those_of_the_tar(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "COPIES_OF", 23)
    given = jpegs(3)
    (tmp_path / "given").mkdir()
    for number, image in enumerate(given):
        (tmp_path / f"given/{number}.jpg").write_bytes(image)
    with tarfile.open(tmp_path / "given.tar", "w") as tar:
        for number in range(3):
            tar.add(tmp_path / f"given/{number}.jpg", f"{number}.jpg")

    images.write_tar(tmp_path / "given.tar", tmp_path / "all.tar", "")
    images.write_files(tmp_path / "given.tar", tmp_path / "all", "")
    with tarfile.open(tmp_path / "all.tar") as tar:
        packed = {
            member.name: tar.extractfile(member).read()
            for member in tar
            if member.name.endswith(".jpg")
        }
    loose = {path.name: path.read_bytes() for path in tmp_path.glob("all/*/*.jpg")}
    assert loose == packed and len(loose) == 23
    assert set(loose.values()) == set(given)
    assert len(list((tmp_path / "all").iterdir())) == images.CLASSES
