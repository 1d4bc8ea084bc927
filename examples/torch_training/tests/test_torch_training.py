"""The scripts on tiny data: processes and a resume change nothing, and tensors are the arrays."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch", reason="needs torch, which no extra of jaxaug installs")

FOLDER = Path(__file__).parents[1]
# images of each of two classes; 22 test images do not fill their last batch of 8
COUNTS = {"train": 20, "val": 11}
STEPS = 10  # of a run of two epochs
TIMEOUT = 300


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for split, count in COUNTS.items():
        for name in ("one", "two"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (24, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.jpg")
    return root


def run(script, *arguments, processes=1):
    """Run a script of the example, by torchrun if in several processes; return what it prints."""
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launch if processes > 1 else []), script, *map(str, arguments)]
    ours = {"PYTHONPATH": str(FOLDER.parents[1]), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        cwd=FOLDER,
        env=os.environ | ours | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def options(data):
    return ["--data", data, "--size", 16, "--batch-size", 8, "--epochs", 2]


def test_two_processes_and_a_resume_by_one_train_as_one_process_does(data, tmp_path):
    """The weights agree, so each step had the same images with the same augmentation."""
    alone = tmp_path / "alone.pt"
    printed = run("train.py", *options(data), "--checkpoint", alone)
    assert re.findall(r"epoch (\d): .* \d+ of (\d+) right", printed) == [("0", "22"), ("1", "22")]

    # Two processes make seven steps, which end within the second epoch; then one goes on.
    path = tmp_path / "two.pt"
    stop = ["--save-every", 1, "--stop-at", 7]
    printed = run("train.py", *options(data), "--checkpoint", path, *stop, processes=2)
    assert re.findall(r"epoch (\d): .* \d+ of (\d+) right", printed) == [("0", "22")]
    state = torch.load(path)["loader"]
    assert (state["epoch"], state["position"]) == (1, 16)
    run("train.py", *options(data), "--checkpoint", path, "--resume")

    expected, found = (torch.load(each) for each in (alone, path))
    assert expected["steps"] == found["steps"] == STEPS
    assert expected["loader"] == found["loader"]
    for name, weight in expected["model"].items():
        torch.testing.assert_close(found["model"][name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None,
    reason="needs lightning, which no extra of jaxaug installs",
)
def test_lightning_validates_on_all_images(data, tmp_path):
    printed = run("train_lightning.py", *options(data), "--runs", tmp_path)
    assert "'images': 22.0" in printed
    assert list(tmp_path.rglob("epoch=1-step=10.ckpt"))


def test_the_tensors_are_the_arrays():
    printed = run("prove_no_copy.py", "--batches", 3, "--batch-size", 8, "--size", 32)
    assert "1 of 1 batches: tensor.data_ptr() == array.unsafe_buffer_pointer()" in printed
