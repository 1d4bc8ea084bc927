"""The example on drawn tones, as a whole run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = Path(__file__).parents[1] / "train.py"


@pytest.mark.training
def test_learns(tmp_path):
    results = tmp_path / "results.json"
    options = ["--epochs", "6", "--width", "8", "--held-out", "8", "--batch-size", "16"]
    options += ["--learning-rate", "0.01", "--results", str(results)]
    done = subprocess.run([sys.executable, TRAIN, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(results.read_text())
    assert found["sounds"] == 80 and found["losses"][-1] < 0.7 * found["losses"][0]
    assert found["accuracy"] > 0.5  # of ten keys
