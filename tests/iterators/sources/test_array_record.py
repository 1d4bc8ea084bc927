"""ArrayRecord files."""

import pickle

import numpy as np
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators import ArrayRecord
from tests.iterators.sources import containers

array_record = pytest.importorskip("array_record.python.array_record_module")


def write(path, records):
    writer = array_record.ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()


def examples(count, start=0):
    found = []
    for number in range(start, start + count):
        fields = {
            "image": containers.jpegs(start + count)[number],
            "label": number,
            "weight": number / 2,
            "boxes": np.arange(number % 3),
            "tokens": np.array([number, 7]),
            "name": b"name %d" % number,
        }
        found.append(containers.example(fields))
    return found


def test_records_of_several_files(tmp_path):
    write(tmp_path / "a-0.arrayrecord", examples(4))
    write(tmp_path / "a-1.arrayrecord", examples(3, 4))
    source = ArrayRecord(tmp_path / "a-{0..1}.arrayrecord")
    features = dict(source.read(np.array([6, 0, 4])))
    encoded = features.pop("image")
    found = [bytes(encoded.view(row)) for row in range(3)]
    assert found == [containers.jpegs(7)[number] for number in (6, 0, 4)]
    assert {name: column.tolist() for name, column in features.items()} == {
        "label": [6, 0, 4],
        "weight": [3.0, 0.0, 2.0],
    }
    assert source.describe(5)["name"] == "name 5"
    assert repr(source) == "ArrayRecord(7 images in 2 files, ['label', 'weight'])"
    copy = pickle.loads(pickle.dumps(source))
    assert copy.fingerprint() == source.fingerprint()


def test_features_are_chosen_and_renamed(tmp_path):
    write(tmp_path / "a", examples(3))
    source = ArrayRecord(tmp_path / "a", label=None, features={"tokens": "text", "label": "class"})
    features = dict(source.read(np.arange(3)))
    features.pop("image")
    assert features["text"].tolist() == [[0, 7], [1, 7], [2, 7]]
    assert features["class"].tolist() == [0, 1, 2]


def test_records_of_other_formats(tmp_path):
    write(tmp_path / "a", [bytes([9]) + image for image in containers.jpegs(2)])
    source = ArrayRecord(tmp_path / "a", image=1, label=0, parse=lambda data: (data[0], data[1:]))
    features = dict(source.read(np.array([1])))
    encoded = features.pop("image")
    assert bytes(encoded.view(0)) == containers.jpegs(2)[1] and features["label"].tolist() == [9]


def test_files_and_records_that_are_none(tmp_path):
    (tmp_path / "text").write_bytes(b"no records" * 99)
    with pytest.raises(SourceError, match="text' cannot be read as ArrayRecord"):
        ArrayRecord(tmp_path / "text")
    write(tmp_path / "a", [b"no example"])
    with pytest.raises(SourceError, match="record 0 cannot be read"):
        ArrayRecord(tmp_path / "a")
    write(tmp_path / "b", [*examples(2), b"no example"])
    source = ArrayRecord(tmp_path / "b")
    assert source.read(np.arange(3))["image"].lengths.tolist()[2] == 0
    assert source.describe(2)["error"].startswith("ValueError")
