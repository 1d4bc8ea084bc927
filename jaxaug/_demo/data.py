"""The data set of the demo: drawn JPEG files in class folders, as mixed as photographs are."""

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jaxaug._demo.drawings import KINDS, draw
from jaxaug._demo.progress import progress
from jaxaug._typing import PathLike
from jaxaug.iterators.sources.storage.files import cache_folder

# Counted up whenever the drawings change, so that a cached set of older drawings is not taken.
VERSION = 1
SIDES = (120, 700)  # the shortest and the longest side, in pixels
CLASSES = tuple(KINDS)

# How an upright image is stored under EXIF orientation k (EXIF 2.3, tag 0x0112).
_STORED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
_ORIENTATION_TAG = 0x0112


def make_dataset(cache: PathLike | None = None, count: int = 2000, seed: int = 0) -> Path:
    """Draw a labeled data set of JPEGs, or return the one that is already there.

    Ten classes in equal parts, four fifths in `train/<class>/`, one fifth in `val/<class>/`. Sides
    of 120 to 700 pixels; chroma at 4:4:4, 4:2:2 and 4:2:0; about a tenth each gray, progressive,
    and rotated by EXIF.

    Args:
      cache: the folder in which the data set gets a folder of its own; by default `cache_folder()`.
      count: how many images.
      seed: the same seed draws the same files.

    Returns:
      The folder with `train` and `val`.
    """
    root = Path(cache_folder() if cache is None else cache) / f"demo-{VERSION}-{count}-{seed}"
    if root.exists():
        return root

    root.parent.mkdir(parents=True, exist_ok=True)
    # Drawn beside its place and renamed when complete: an interrupted run leaves nothing that looks
    # finished.
    unfinished = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))
    try:
        _fill(unfinished, count, seed)
        unfinished.rename(root)
    except OSError:
        if not root.exists():  # else another process was faster; its files are the same
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return root


def _fill(root: Path, count: int, seed: int) -> None:
    """Draw all images below `root`."""
    for split in ("train", "val"):
        for name in CLASSES:
            (root / split / name).mkdir(parents=True)

    # NumPy and Pillow draw and encode without the GIL.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = pool.map(lambda index: _write(root, index, seed), range(count))
        for _ in progress(jobs, "drawing the data set", count):
            pass


def _write(root: Path, index: int, seed: int) -> None:
    """Draw image `index`, which depends on (seed, index) alone, and store it."""
    rng = np.random.default_rng((seed, index))
    name = CLASSES[index % len(CLASSES)]
    split = "val" if index // len(CLASSES) % 5 == 4 else "train"
    image = Image.fromarray(draw(name, _size(rng), rng))
    if rng.uniform() < 0.1:
        image = image.convert("L")

    exif = Image.Exif()
    if rng.uniform() < 0.1:
        orientation = int(rng.integers(2, 9))
        image = image.transpose(_STORED[orientation])
        exif[_ORIENTATION_TAG] = orientation

    options: dict[str, Any] = {
        "quality": int(rng.integers(70, 96)),
        "progressive": rng.uniform() < 0.1,
    }
    if image.mode == "RGB":
        options["subsampling"] = int(rng.integers(0, 3))
    image.save(root / split / name / f"{index:05}.jpg", exif=exif, **options)


def _size(rng: np.random.Generator) -> tuple[int, int]:
    """Draw a (height, width), mostly of an aspect between 1:2 and 2:1."""
    height = np.exp(rng.uniform(*np.log(SIDES)))
    width = np.clip(height * 2 ** rng.uniform(-1, 1), *SIDES)
    return round(height), round(width)
