"""The script on processes of one machine: killed, ended by SIGTERM, resumed by other numbers.

Every step of every run has the loss of one process that was never stopped, so its batch held the
same images with the same augmentation.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxaug.__main__ import main as jaxaug

FOLDER = Path(__file__).parents[1]
STEPS = 150
TIMEOUT = 300
# The images are noise and the rate is small: what a loss tells is which images the batch held.
OPTIONS = ["--classes", 2, "--size", 16, "--batch-size", 12, "--learning-rate", 0.001]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a tar of 40 small images of two classes."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        folder = root / "images" / name
        folder.mkdir(parents=True)
        for number in range(20):
            coarse = rng.integers(0, 256, (3, 3, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((24, 24)).save(folder / f"{number}.jpg")
    with contextlib.redirect_stdout(None):
        assert jaxaug(["pack", str(root / "images"), str(root / "data.tar")]) == 0
    return root / "data.tar"


def slurm(rank, count):
    """Return the options and the environment of a process that srun starts."""
    environment = {
        "SLURM_JOB_ID": str(os.getpid()),  # JAX makes the port of it
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NTASKS": str(count),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
    }
    return ["--cluster"], environment


def shell(rank, count, port):
    """Return the options and the environment of a process that is started by hand."""
    return ["--coordinator", f"localhost:{port}", "--processes", count, "--process", rank], {}


def start(launch, data, checkpoint, save_every):
    """Start one process of `train.py`."""
    options, environment = launch
    options = [*options, *OPTIONS, "--data", data, "--checkpoint", checkpoint]
    options += ["--steps", STEPS, "--save-every", save_every]
    ours = {"PYTHONPATH": str(FOLDER.parents[1]), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "train.py", *map(str, options)],
        cwd=FOLDER,
        env=os.environ | ours | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def losses_of(processes, until=None, number=None):
    """Return the losses by step; at step `until` all processes get the signal `number`."""
    losses = {}
    watch = threading.Timer(TIMEOUT, lambda: [process.kill() for process in processes])
    watch.start()
    try:
        for line in processes[0].stdout:
            found = re.match(r"step (\d+): loss (\S+)", line)
            if found is None:
                continue
            losses[int(found[1])] = float(found[2])
            if int(found[1]) == until:
                for process in processes:
                    process.send_signal(number)
        for process in processes:
            process.wait()
    finally:
        watch.cancel()
        for process in processes:
            process.kill()
            process.communicate()
    return losses


def free_port():
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


def test_kills_and_other_numbers_of_processes_change_no_batch(data, tmp_path):
    alone = losses_of([start(([], {}), data, tmp_path / "alone", STEPS)])
    assert sorted(alone) == list(range(1, STEPS + 1))

    # Two processes by Slurm's variables, killed behind a checkpoint.
    path = tmp_path / "run"
    two = [start(slurm(rank, 2), data, path, 2) for rank in range(2)]
    killed = losses_of(two, until=9, number=signal.SIGKILL)
    assert [process.returncode for process in two] == [-signal.SIGKILL] * 2

    # Three by hand, told to end: they save at a common step, and end well.
    port = free_port()
    three = [start(shell(rank, 3, port), data, path, STEPS) for rank in range(3)]
    ended = losses_of(three, until=15, number=signal.SIGTERM)
    assert [process.returncode for process in three] == [0] * 3
    assert 1 < min(ended) <= max(killed) + 1
    assert 15 <= max(ended) < STEPS

    # One alone goes on behind the last step of the three.
    rest = losses_of([start(([], {}), data, path, STEPS)])
    assert sorted(rest) == list(range(max(ended) + 1, STEPS + 1))

    for part in (killed, ended, rest):
        assert part == pytest.approx({step: alone[step] for step in part}, rel=1e-4)
    assert len({round(loss, 4) for loss in alone.values()}) > STEPS // 3
