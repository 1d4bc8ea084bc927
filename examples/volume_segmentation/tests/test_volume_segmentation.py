"""The example as a whole run, on drawn data."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = Path(__file__).parents[1] / "train.py"


@pytest.mark.training
def test_learns(tmp_path):
    results = tmp_path / "results.json"
    options = ["--epochs", "12", "--scans", "16", "--results", str(results)]
    done = subprocess.run([sys.executable, TRAIN, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(results.read_text())
    assert found["losses"][-1] < 0.7 * found["losses"][0]
    assert found["dice"] > 0.4
