"""The example on tiny data: its parts against known answers, and a whole run."""

import json
import subprocess
import sys
from pathlib import Path

import average_precision  # pyright: ignore[reportMissingImports]
import centers  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2]


def run(*arguments: object) -> None:
    """Run a script of the examples; each has modules of the same names, so in its own process."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_targets_hold_the_boxes():
    """What the targets say is found again: boxes, labels, and nothing for padding."""
    boxes = jnp.array([[10.0, 6.0, 30.0, 21.0], [40.0, 30.0, 63.0, 47.0], [0.0, 0.0, 0.0, 0.0]])
    labels = jnp.array([2, 0, -1])
    heat, distances, own = centers.make_targets(boxes, labels, (12, 16), 3)
    assert heat.shape == (12, 16, 3) and distances.shape == (12, 16, 4) and int(own.sum()) == 2
    assert bool(own[3, 5]) and float(heat[3, 5, 2]) == 1 and float(heat[0, 0].max()) < 0.1
    found, scores, classes = centers.find_boxes(heat, distances, 2)
    order = np.argsort(np.asarray(found)[:, 0])
    np.testing.assert_allclose(np.asarray(found)[order], boxes[:2], atol=1e-3)
    assert np.asarray(classes)[order].tolist() == [2, 0] and scores.tolist() == [1, 1]


def test_a_box_of_each_neighbor_cell_is_a_peak_of_its_own():
    boxes = jnp.array([[0.0, 0.0, 16.0, 16.0], [32.0, 0.0, 48.0, 16.0]])
    heat, distances, _ = centers.make_targets(boxes, jnp.array([0, 0]), (12, 16), 1)
    found, scores, _ = jax.jit(centers.find_boxes, static_argnums=2)(heat, distances, 3)
    assert (np.asarray(scores) > 0.99).sum() == 2 and found.shape == (3, 4)


def test_average_precision_of_known_answers():
    """Two given boxes: the best found is wrong, the second right, the third a double."""
    given = average_precision.Boxes(np.array([[0, 0, 10, 10], [20, 20, 30, 30]]), np.array([0, 0]))
    rows = np.array([[50, 50, 60, 60], [0, 0, 10, 10], [1, 0, 10, 10], [20, 20, 30, 28]])
    scores = np.array([0.9, 0.8, 0.7, 0.6])
    found = average_precision.Boxes(rows, np.zeros(4, int), scores)
    value = average_precision.mean_average_precision([found], [given], 1)
    # Recall 1/2 at precision 1/2, recall 1 at 2/4.
    assert value == pytest.approx((1 / 2 + 2 / 4) / 2)
    value = average_precision.mean_average_precision([found], [given], 1, least_iou=0.9)
    assert value == pytest.approx(1 / 2 / 2)
    perfect = given._replace(scores=np.array([0.3, 0.2]))
    assert average_precision.mean_average_precision([perfect], [given], 3) == 1
    other = perfect._replace(labels=np.array([1, 1]))
    assert average_precision.mean_average_precision([other], [given], 3) == 0


def test_iou():
    boxes = np.array([[0.0, 0.0, 4.0, 2.0], [2.0, 0.0, 6.0, 2.0], [10.0, 10.0, 11.0, 11.0]])
    values = average_precision.iou(boxes, boxes)
    np.testing.assert_allclose(values, [[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 1]])


@pytest.mark.training
def test_learns(tmp_path):
    """A whole run on few images: the loss goes down, all test images are counted."""
    data = tmp_path / "shapes"
    run(EXAMPLES / "shapes.py", data, "--train", 32, "--test", 10)
    run(
        EXAMPLES / "detection" / "train.py",
        *("--data", data, "--augment", "ssd", "--size", 48, "--width", 4),
        *("--batch-size", 8, "--epochs", 16, "--learning-rate", 0.01),
        *("--results", tmp_path / "results.json"),
    )
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["losses"][-1] < 0.7 * results["losses"][0]
    assert 0 <= results["ap"] <= results["ap50"] <= 1 and results["images"] == 10
