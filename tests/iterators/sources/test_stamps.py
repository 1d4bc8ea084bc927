"""Stamps: another number for a record that has changed, and the same one for every other."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxaug.decode import Encoded, Ragged
from jaxaug.iterators import (
    Arrays,
    Coco,
    Concat,
    Files,
    ImageFolder,
    InMemory,
    PairedFolders,
    Parquet,
    Renamed,
    Subset,
    WebDataset,
)
from jaxaug.iterators.sources.stamps import joined, stamps_of
from tests.images import jpegs
from tests.iterators.sources.containers import tar

COUNT = 6


def write(path: Path, content: bytes) -> None:
    """Write a file, at another time in nanoseconds than before."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(before + 1, before + 1))


def in_files(root: Path) -> None:
    for number, image in enumerate(jpegs(COUNT)):
        write(root / f"images/a/{number}.jpg", image)
        write(root / f"masks/a/{number}.jpg", image)
        for part in ("0", "1"):
            write(root / f"zarr/{number}/c/{part}", b"chunk")
    images = [{"id": i, "file_name": f"{i}.jpg", "height": 9, "width": 9} for i in range(COUNT)]
    boxes = [{"id": i, "image_id": i, "category_id": 1, "bbox": [1, 1, 2, 2]} for i in range(COUNT)]
    found = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "a"}]}
    write(root / "boxes.json", json.dumps(found).encode())


FILES = {
    "folder": (lambda root: ImageFolder(root / "images"), "images/a/2.jpg", [2]),
    "pairs": (lambda root: PairedFolders(root / "images", root / "masks"), "images/a/2.jpg", [2]),
    "masks": (lambda root: PairedFolders(root / "images", root / "masks"), "masks/a/2.jpg", [2]),
    "list": (
        lambda root: Files([root / f"images/a/{i}.jpg" for i in range(COUNT)]),
        "images/a/2.jpg",
        [2],
    ),
    "coco": (lambda root: Coco(root / "images/a", root / "boxes.json"), "images/a/2.jpg", [2]),
    "json": (
        lambda root: Coco(root / "images/a", root / "boxes.json"),
        "boxes.json",
        list(range(COUNT)),
    ),
    "zarr": (
        lambda root: Arrays({"volume": [root / f"zarr/{i}" for i in range(COUNT)]}),
        "zarr/2/c/1",
        [2],
    ),
    "subset": (
        lambda root: Subset(Concat([ImageFolder(root / "images")] * 2), [0, 2, 8, 4, 5, 11]),
        "images/a/2.jpg",
        [1, 2],
    ),
    "renamed": (
        lambda root: Renamed(ImageFolder(root / "images"), {"image": "x"}),
        "images/a/2.jpg",
        [2],
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_changed_changes_its_records(kind, tmp_path):
    make, name, changed = FILES[kind]
    in_files(tmp_path)
    source = make(tmp_path)
    rows = np.arange(COUNT)
    before = stamps_of(source, rows)
    assert before.dtype == np.uint32
    assert stamps_of(make(tmp_path), rows[::-1]).tolist() == before[::-1].tolist()
    write(tmp_path / name, (tmp_path / name).read_bytes())
    assert np.flatnonzero(stamps_of(source, rows) != before).tolist() == changed
    (tmp_path / name).unlink()
    assert np.flatnonzero(stamps_of(source, rows) != before).tolist() == changed


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_a_packed_file_that_changed_changes_its_records(kind, tmp_path):
    paths = [tmp_path / f"{number}.{kind}" for number in range(2)]
    for number, path in enumerate(paths):
        images = jpegs(COUNT)[3 * number :][:3]
        if kind == "tar":
            write(path, tar({f"{i}.jpg": image for i, image in enumerate(images)}))
            continue
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"image": images}), path)

    def stamps():
        source = WebDataset(list(map(str, paths))) if kind == "tar" else Parquet(paths, label=None)
        return source.stamps(np.arange(COUNT))

    before = stamps()
    assert stamps().tolist() == before.tolist()
    write(paths[1], paths[1].read_bytes())
    assert np.flatnonzero(stamps() != before).tolist() == [3, 4, 5]


IN_MEMORY: dict[str, Any] = {
    "pixels": lambda last: InMemory(np.stack([np.full((3, 3), i) for i in (0, 1, last)])),
    "images": lambda last: InMemory([b"0", b"1", str(last).encode()]),
    "lists": lambda last: InMemory([[b"0", b"1"], [b"2"], [b"3", str(last).encode()]]),
    "masks": lambda last: InMemory([b"0"] * 3, masks=[b"0", b"1", str(last).encode()]),
    "texts": lambda last: InMemory([b"0"] * 3, {"text": np.array(["0", "1", str(last)])}),
    "files": lambda last: InMemory(
        [b"0"] * 3, {"sound": Encoded.from_bytes([b"0", b"1", str(last).encode()])}
    ),
    "lengths": lambda last: InMemory(
        [b"0"] * 3, {"x": Ragged(np.array([0, 1, 2, last]), np.array([2, 0, 2]), 2)}
    ),
    "array": lambda last: Arrays({"x": np.array([0, 1, last]), "y": np.zeros((3, 0))}),
    "sliced": lambda last: Arrays({"x": np.array([[0, 1, last], [5, 6, 7]]).T}),
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_what_is_in_memory_is_told_by_its_bytes(kind):
    rows = np.array([2, 0, 1])
    first, same, other = (IN_MEMORY[kind](last).stamps(rows) for last in (7, 7, 8))
    assert first.tolist() == same.tolist()
    assert (first != other).tolist() == [True, False, False]


def test_sources_without_stamps_are_told_by_their_paths(tmp_path):
    source: Any = SimpleNamespace(path=lambda index: str(tmp_path / f"{index}"))
    nameless: Any = SimpleNamespace()
    rows = np.arange(2)
    write(tmp_path / "0", b"0")
    before = stamps_of(source, rows)
    assert before[0] != 0 and before[1] == 0
    write(tmp_path / "0", b"1")
    assert stamps_of(source, rows)[0] != before[0]
    assert stamps_of(nameless, rows).tolist() == [0, 0]


def test_one_of_several_stamps_changes_the_joined_one():
    stamps = np.random.default_rng(0).integers(0, 2**32, (3, 1000), np.uint32)
    before = joined(*stamps)
    for row in range(3):
        other = stamps.copy()
        other[row] += np.uint32(1 << 31)
        assert (joined(*other) != before).all()
