"""The example on tiny data, as a whole run."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[2]


def run(*arguments: object) -> None:
    """Run a script of the examples; each has modules of the same names, so in its own process."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    data = tmp_path_factory.mktemp("data") / "shapes"
    run(EXAMPLES / "shapes.py", data, "--train", 32, "--test", 10)
    return data


def test_masks_and_boxes_are_of_the_same_shapes(shapes):
    """Each box is full of its class, but for the corners of its shape and what hides it."""
    found = json.loads((shapes / "train.json").read_text())
    assert [entry["name"] for entry in found["categories"]] == ["disc", "square", "triangle"]
    shares = []
    for entry in found["annotations"]:
        mask = np.asarray(Image.open(shapes / "train_masks" / f"{entry['image_id']:05d}.png"))
        assert mask.shape == (96, 128) and mask.max() <= 3
        x, y, width, height = entry["bbox"]
        inside = mask[y : y + height, x : x + width] == entry["category_id"]
        shares.append(inside.mean())
    assert len(shares) > 32 and np.min(shares) > 0.15 and np.mean(shares) > 0.6
    names = sorted(path.stem for path in (shapes / "train").glob("*.jpg"))
    assert names == sorted(path.stem for path in (shapes / "train_masks").glob("*.png"))


@pytest.mark.training
def test_learns(shapes, tmp_path):
    """A whole run on few images: the loss goes down, and the shapes are told from the rest."""
    run(
        EXAMPLES / "segmentation" / "train.py",
        *("--data", shapes, "--augment", "scale", "--size", 48, "--width", 4, "--levels", 3),
        *("--batch-size", 16, "--epochs", 8, "--learning-rate", 0.01),
        *("--results", tmp_path / "results.json"),
    )
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["losses"][-1] < 0.8 * results["losses"][0]
    assert len(results["iou"]) == 4 and results["images"] == 10
    assert results["iou"][0] > 0.5


@pytest.mark.training
def test_takes_masks_of_any_size_and_ignores_255(tmp_path):
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for number in range(8):
            height, width = rng.integers(40, 90, 2)
            mask = rng.integers(0, 3, (height, width), np.uint8)
            mask[:4] = 255
            for folder, name, pixels in (
                (split, f"{number}.JPEG", 80 * np.minimum(mask, 3)),
                (f"{split}_masks", f"{number}.png", mask),
            ):
                (tmp_path / folder).mkdir(exist_ok=True)
                Image.fromarray(pixels).save(tmp_path / folder / name)

    run(
        EXAMPLES / "segmentation" / "train.py",
        *("--data", tmp_path, "--size", 32, "--width", 4, "--levels", 2, "--batch-size", 8),
        *("--epochs", 2, "--results", tmp_path / "results.json"),
    )
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["iou"]) == 3 and results["images"] == 8
