"""The example on drawn videos, as a whole run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("av")
TRAIN = Path(__file__).parents[1] / "train.py"


def run(results, *options):
    command = [sys.executable, TRAIN, *options, "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(results.read_text())


@pytest.mark.training
def test_runs(tmp_path):
    options = ["--drawn", "6", "--epochs", "3", "--width", "16", "--batch-size", "8"]
    found = run(tmp_path / "results.json", *options)
    assert found["videos"] == 8 and found["losses"][-1] < found["losses"][0]


@pytest.mark.slow
@pytest.mark.training
def test_learns(tmp_path):
    found = run(tmp_path / "results.json", "--drawn", "40", "--epochs", "9")
    assert found["accuracy"] > 0.5  # of four ways
