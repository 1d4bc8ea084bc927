"""Faults of files become bad records, and the next epoch works."""

import os
import re
import threading

import pytest

from jaxaug import Loader
from jaxaug.errors import DecodeError
from jaxaug.iterators import TFRecord
from jaxaug.iterators.sources.storage.read import FileReader
from jaxaug.iterators.sources.storage.staged import Staged
from tests.images import jpegs
from tests.iterators.loaders import one_device
from tests.iterators.sources import containers


def two_files(tmp_path, mmap) -> TFRecord:
    """Eight images, four to a file."""
    for name, start in (("a", 0), ("b", 4)):
        records = [
            containers.example({"image/encoded": image, "image/class/label": start + i})
            for i, image in enumerate(jpegs(4, seed=start))
        ]
        (tmp_path / f"{name}.tfrecord").write_bytes(containers.tfrecord(records))
    return TFRecord(tmp_path / "*.tfrecord", mmap=mmap)


# A mapping does not ask for permission again, and waiting for it cannot be stopped: see `Mapped`.
@pytest.mark.parametrize(
    "fault, mmap",
    [
        ("cut", True),
        ("cut", False),
        ("deleted", True),
        ("deleted", False),
        ("taken", False),
        ("stalled", False),
    ],
)
def test_a_fault_of_one_file_masks_its_rows_and_the_next_epoch_works(tmp_path, fault, mmap):
    source = two_files(tmp_path, mmap)
    path = tmp_path / "b.tfrecord"
    moved = tmp_path / "moved"
    data = path.read_bytes()
    times = path.stat().st_mtime_ns
    reader = FileReader()
    refuse = []
    go_on = threading.Event()

    def read(file, offset, destination):
        if refuse and file.path == str(path):
            if refuse[0] == "stalled":
                go_on.wait(60)
            raise PermissionError(13, "Permission denied")
        return reader(file, offset, destination)

    if fault in ("taken", "stalled"):
        source._storage = Staged(source._files, timeout=2.0, retries=0, read=read)
    elif not mmap:
        source._storage = Staged(source._files, retries=0)
    options = {"shuffle": False, "sharding": one_device(), "on_error": "mask"}
    with (
        Loader(source, 8, **options) as loader,
        Loader(source, 8, **(options | {"on_error": "raise"})) as strict,
    ):
        if fault == "cut":
            path.write_bytes(data[:100])
        elif fault == "deleted":
            path.rename(moved)
        else:
            refuse.append(fault)
        assert next(loader)["valid"].tolist() == [True] * 4 + [False] * 4
        bad = loader.stats["bad_records"]
        message = {
            "cut": "100 bytes|ends at byte|changed",
            "deleted": "No such file",
            "taken": "Permission denied",
        }
        assert [record["index"] for record in bad[:4]] == [4, 5, 6, 7] and bad[0]["file"] == str(
            path
        )
        assert re.search(message.get(fault, "no answer within 2 s"), bad[0]["reason"])
        with pytest.raises(DecodeError, match=r"record 4 \(.*b.tfrecord"):
            next(strict)
        refuse.clear()
        go_on.set()
        if fault == "cut":
            path.write_bytes(data)
            os.utime(path, ns=(times, times))
        elif fault == "deleted":
            moved.rename(path)
        for each, epoch in ((loader, 1), (strict, 0)):  # what failed was not delivered
            each.set_state(each.get_state())  # forget what was read ahead
            assert each.get_state()["epoch"] == epoch and next(each)["label"].tolist() == list(
                range(8)
            )
            assert each.get_state()["epoch"] == epoch + 1
        assert loader.stats["images"] >= 12
