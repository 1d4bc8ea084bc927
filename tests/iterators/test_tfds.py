"""Data sets of other libraries: anything with items, and TFDS without tensorflow."""

import io
import pathlib
import sys
from typing import ClassVar

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.errors import DecodeError, SourceError
from jaxaug.iterators import Source
from jaxaug.iterators.sources.tfds import TFDS, RandomAccess
from tests.iterators import containers


def items(count=4):
    return [
        {"image": image, "label": np.int64(9 - i), "pair": np.array([i, 1.5]), "name": f"n{i}", "raw": b"\xe4"}
        for i, image in enumerate(containers.jpegs(count))
    ]


class Batched:
    """What Grain and TFDS sources look like."""

    def __init__(self, items):
        self.items, self.asked = items, []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        assert isinstance(index, int)
        return self.items[index]

    def __getitems__(self, indices):
        self.asked.append(indices)
        return [self.items[index] for index in indices]


@pytest.mark.parametrize("wrap", [list, Batched])
def test_items_become_records(wrap):
    wrapped = wrap(items())
    source = RandomAccess(wrapped)
    assert isinstance(source, Source) and len(source) == 4
    encoded, features = source.read(np.array([3, 0, 3]))
    assert [bytes(encoded.view(row)) for row in range(3)] == [containers.jpegs(4)[i] for i in (3, 0, 3)]
    assert features["label"].dtype == np.int32 and features["label"].tolist() == [6, 9, 6]
    assert features["pair"].tolist() == [[3, 1.5], [0, 1.5], [3, 1.5]]
    assert source.describe(2) == {"record": 2, "name": "n2", "raw": "\ufffd"}
    if wrap is Batched:
        assert [3, 0, 3] in wrapped.asked


class Broken(list):
    """Items of which one has no image and another cannot be read."""

    def __getitem__(self, index):
        if index == 4:
            raise OSError("the disk is gone")
        return {**super().__getitem__(index), **({"image": None} if index == 1 else {})}


class BrokenBatched(Broken):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


@pytest.mark.parametrize("wrap", [Broken, BrokenBatched])
def test_items_that_cannot_be_had_are_bad_records(wrap):
    source = RandomAccess(wrap(items(8)))
    with Loader(source, 8, shuffle=False, on_error="mask") as loader:
        batch = next(loader)
        assert batch["valid"].tolist() == [True, False, True, True, False, True, True, True]
        assert batch["label"].tolist() == [9, 0, 7, 6, 0, 4, 3, 2]
        reasons = {record["index"]: record["reason"] for record in loader.stats["bad_records"]}
    assert "under 'image', got NoneType" in reasons[1] and reasons[4] == "OSError: the disk is gone"
    with Loader(source, 8, shuffle=False) as loader, pytest.raises(DecodeError, match="record 1 must hold") as error:
        next(loader)
    assert error.value.index == 1


def test_hugging_face_images():
    rows = [{"jpg": {"bytes": image, "path": f"{i}.jpg"}, "class": i} for i, image in enumerate(containers.jpegs(2))]
    source = RandomAccess(rows, image="jpg", label="class")
    encoded, features = source.read(np.array([1]))
    assert bytes(encoded.view(0)) == containers.jpegs(2)[1] and features["label"].tolist() == [1]
    assert source.describe(1) == {"record": 1, "path": "1.jpg"}


@pytest.mark.parametrize(
    "rows, message",
    [
        ([], "at least one item"),
        ([{"image": np.zeros((8, 8, 3), np.uint8), "label": 1}], "must hold the encoded image as bytes.*got ndarray"),
        ([{"img": b"", "label": 1}], r"under 'image', got NoneType; it has \['img', 'label'\]"),
        ([{"image": b"x"}], "items have no 'label'.*pass label=None"),
        ([b"x"], "it has bytes"),
    ],
)
def test_items_that_will_not_do(rows, message):
    with pytest.raises(SourceError, match=message):
        RandomAccess(rows)


def test_fingerprints_tell_data_sets_apart():
    prints = {RandomAccess(items(count)).fingerprint() for count in (2, 3, 4)}
    prints.add(RandomAccess(items(4)[::-1]).fingerprint())
    assert len(prints) == 4 and RandomAccess(items(4)).fingerprint() in prints


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A tiny data set, written by TFDS as ArrayRecord: the root of data_dir."""
    tfds = pytest.importorskip("tensorflow_datasets")
    pytest.importorskip("array_record")
    root = tmp_path_factory.mktemp("tfds")

    class TinyPictures(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = pathlib.Path(root)
        url_infos: ClassVar = {}  # nothing is downloaded; TFDS would need importlib_resources to find that out

        def _info(self):
            features = tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
                    "label": tfds.features.ClassLabel(names=["cat", "dog"]),
                    "weight": tfds.features.Scalar(np.float32),
                    "name": tfds.features.Text(),
                }
            )
            return self.dataset_info_from_configs(features=features)

        def _split_generators(self, manager):
            return {"train": self._generate_examples(range(6)), "test": self._generate_examples(range(6, 8))}

        def _generate_examples(self, numbers):
            for i in numbers:
                image = io.BytesIO(containers.jpegs(8)[i])
                yield i, {"image": image, "label": i % 2, "weight": i / 2, "name": f"n{i}"}

    TinyPictures(data_dir=str(root), file_format="array_record").download_and_prepare()
    return root


def test_a_prepared_data_set_is_read_without_tensorflow(prepared):
    source = TFDS(prepared / "tiny_pictures" / "1.0.0", split="train")
    assert len(source) == 6 and source.classes == ("cat", "dog") and "tensorflow" not in sys.modules
    encoded, features = source.read(np.arange(6))
    weights = features["weight"]
    assert sorted(weights.tolist()) == [0, 0.5, 1, 1.5, 2, 2.5]  # TFDS shuffles what it writes
    for row, number in enumerate((2 * weights).astype(int).tolist()):
        assert bytes(encoded.view(row)) == containers.jpegs(8)[number]
        assert features["label"][row] == number % 2 and source.describe(row)["name"] == f"n{number}"


def test_splits_of_tfds_are_other_data_sets(prepared):
    folder = prepared / "tiny_pictures" / "1.0.0"
    parts = [TFDS(folder, split=split) for split in ("train", "train[:50%]", "train[50%:]", "test")]
    assert [len(part) for part in parts] == [6, 3, 3, 2]
    assert len({part.fingerprint() for part in parts}) == 4


def test_data_sets_that_are_not_there(prepared):
    with pytest.raises(SourceError, match="'no_such_data_set' is no data set that TFDS knows"):
        TFDS("no_such_data_set", split="train", data_dir=prepared)
    with pytest.raises(SourceError, match=r"'mnist' is not prepared: there is no '.*mnist.*'; give the `data_dir`"):
        TFDS("mnist", split="train", data_dir=prepared)
    with pytest.raises(SourceError, match="split 'valid', cannot be opened"):
        TFDS(prepared / "tiny_pictures" / "1.0.0", split="valid")
