"""TFRecord: framing, checksums, tf.Example, features, damage."""

import functools
import random

import numpy as np
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators import Source
from jaxaug.iterators.sources.packed.tf_example import parse_example
from jaxaug.iterators.sources.packed.tfrecord import TFRecord
from jaxaug.iterators.sources.storage import index
from jaxaug.iterators.sources.storage.crc32c import crc32c
from jaxaug.iterators.sources.storage.read import BlockReader
from tests.iterators.sources import containers


def write(folder, shards, name="a"):
    paths = [folder / f"{name}-{number:02d}.tfrecord" for number in range(len(shards))]
    for path, records in zip(paths, shards):
        path.write_bytes(containers.tfrecord(records))
    return paths


@pytest.mark.parametrize("native", [True, False])
def test_crc32c_equals_the_definition(monkeypatch, native):
    if native:
        pytest.importorskip("google_crc32c")
    else:
        monkeypatch.setattr("jaxaug.iterators.sources.storage.crc32c.native_crc32c", lambda: None)
    generator = np.random.default_rng(1)
    data = generator.integers(0, 256, 5000, dtype=np.uint8)
    lengths = np.array([0, 1, 2, 3, 8, 9, 511, 512, 513, 1024, 2500, 5000])
    starts = np.array([17, 0, 4998, 7, 1, 4991, 3, 0, 1, 77, 2500, 0])
    expected = [containers.crc32c(data[a : a + n].tobytes()) for a, n in zip(starts, lengths)]
    assert crc32c(data, starts, lengths).tolist() == expected
    assert crc32c(data, np.zeros(0, int), np.zeros(0, int)).shape == (0,)


@pytest.mark.parametrize("mmap", [True, False])
def test_records_of_several_files(tmp_path, mmap):
    examples = containers.labelled_examples(23)
    write(tmp_path, [examples[:9], [], examples[9:10], examples[10:]])
    source = TFRecord(tmp_path / "a-*.tfrecord", mmap=mmap)
    assert isinstance(source, Source) and len(source) == 23
    indices = np.random.default_rng(0).integers(0, 23, 60)  # any order, with repeats
    features = dict(source.read(indices))
    encoded = features.pop("image")
    assert features["label"].dtype == np.int32 and features["label"].tolist() == indices.tolist()
    images = containers.jpegs(23)
    assert [bytes(encoded.view(row)) for row in range(60)] == [images[index] for index in indices]
    none = source.read(np.zeros(0, np.int64))
    assert none["image"].lengths.shape == (0,) and none["label"].shape == (0,)


def test_records_longer_than_a_block_and_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "BlockReader", functools.partial(BlockReader, block=700))
    examples = containers.labelled_examples(12)  # 300 to 900 bytes each
    source = TFRecord(write(tmp_path, [examples]))
    assert containers.images_by_label(source) == dict(enumerate(containers.jpegs(12)))


def test_features_become_columns(tmp_path):
    records = [
        containers.example(
            {
                "image/encoded": image,
                "image/class/label": np.int64(label),
                "size": np.array([label, -label]),
                "boxes": np.arange(label % 4, dtype=np.float32) + 0.5,
                "big": np.array(2**40 + label),
                "sometimes": np.array([7]) if label == 2 else np.zeros(0, int),
                "never": np.zeros(0, int),
                "name": f"näme {label}".encode(),
                "tags": [b"x", b"\xff"],
            },
            packed=bool(label % 2),
        )
        for label, image in enumerate(containers.jpegs(6))
    ]
    paths = write(tmp_path, [records[:4], records[4:]])
    with pytest.raises(
        SourceError, match=r"'sometimes' has no number in 5 of 6 records, the first"
    ):
        TFRecord(paths)
    source = TFRecord(paths, nulls="count")
    features = dict(source.read(np.arange(6)))
    features.pop("image")
    assert sorted(features) == [
        "big", "boxes", "label", "size", "sometimes", "sometimes_count"
    ]  # fmt: skip
    assert features["size"].dtype == np.int32 and features["size"].tolist() == [
        [i, -i] for i in range(6)
    ]
    assert features["big"].dtype == np.int64 and features["big"].tolist() == [
        2**40 + i for i in range(6)
    ]
    boxes = features["boxes"]
    assert boxes.values.dtype == np.float32 and boxes.padded().shape == (6, 3)
    assert boxes.padded()[3:5].tolist() == [[0.5, 1.5, 2.5], [0, 0, 0]]
    assert boxes.lengths.tolist() == [0, 1, 2, 3, 0, 1]
    assert features["sometimes"].tolist() == [0, 0, 7, 0, 0, 0]
    about = source.describe(4)
    assert (
        about["path"].endswith("a-01.tfrecord")
        and about["record_in_file"] == 0
        and about["record"] == 4
    )
    assert about["name"] == "näme 4" and about["tags"] == ["x", b"\xff"]
    fewer = TFRecord(tmp_path / "a-*", label=None, features=["big"])
    assert sorted(fewer.read(np.array([0]))) == ["big", "image"]
    assert fewer.fingerprint() != source.fingerprint()


def test_features_that_come_and_go_over_many_records(tmp_path):
    """More records than are collected at a time, so that whole chunks lack a feature."""
    records = []
    expected = []
    for number in range(900):
        boxes = np.arange(number % 3) + number if 600 <= number < 700 else np.zeros(0, int)
        expected.append(boxes.tolist() + [0] * (2 - boxes.size))
        features = {"image/encoded": b"x" * (number + 1), "image/class/label": np.int64(number)}
        records.append(containers.example(features | ({"boxes": boxes} if boxes.size else {})))
    source = TFRecord(write(tmp_path, [records[:850], records[850:]]))
    features = dict(source.read(np.arange(900)))
    encoded = features.pop("image")
    assert encoded.lengths.tolist() == list(range(1, 901)) and features["label"].tolist() == list(
        range(900)
    )
    assert features["boxes"].padded().tolist() == expected
    assert features["boxes"].lengths.tolist() == [
        n % 3 if 600 <= n < 700 else 0 for n in range(900)
    ]


def test_the_parser_agrees_with_the_protobuf_library():
    generated = pytest.importorskip("tensorflow_datasets.proto.tf_example_generated_pb2")
    generator = random.Random(0)
    for _ in range(200):
        message = generated.Example()
        expected = {}
        for name in {
            "".join(generator.choices("abcé/", k=3)) for _ in range(generator.randrange(6))
        }:
            kind = generator.randrange(3)
            count = generator.randrange(5)
            kept = message.features.feature[name]
            if kind == 0:
                expected[name] = [
                    generator.randbytes(generator.randrange(200)) for _ in range(count)
                ]
                kept.bytes_list.value.extend(expected[name])
            elif kind == 1:
                expected[name] = np.array(
                    [generator.gauss(0, 1e10) for _ in range(count)], np.float32
                ).tolist()
                kept.float_list.value.extend(expected[name])
            else:
                expected[name] = [
                    generator.randrange(-(2**63), 2**63) >> generator.randrange(64)
                    for _ in range(count)
                ]
                kept.int64_list.value.extend(expected[name])
        data = memoryview(b"pre" + message.SerializeToString() + b"post")
        found = parse_example(data, 3, len(data) - 4)
        plain = {
            k: [bytes(data[a:b]) for a, b in v] if isinstance(v, list) else v.tolist()
            for k, v in found.items()
        }
        assert plain == expected


def test_the_parser_survives_any_bytes():
    good = containers.example(
        {"a": b"xyz", "b": np.arange(5), "c": np.ones(3, np.float32), "d": np.array(-1)}
    )
    generator = np.random.default_rng(2)
    refused = 0
    for _ in range(3000):
        data = containers.mutate(good, generator)
        try:
            for value in parse_example(memoryview(data), 0, len(data)).values():
                assert not isinstance(value, list) or all(
                    0 <= a <= b <= len(data) for a, b in value
                )
        except ValueError:
            refused += 1
    assert 300 < refused < 3000


def damaged(data, how):
    records = [len(containers.tfrecord([record])) for record in containers.labelled_examples(3)]
    second = records[0]
    return {
        "flipped image byte": data[: second + 60]
        + bytes([data[second + 60] ^ 4])
        + data[second + 61 :],
        "flipped length byte": data[: second + 1]
        + bytes([data[second + 1] ^ 1])
        + data[second + 2 :],
        "length beyond the file": data[: second + 6] + b"\x01" + data[second + 7 :],
        "cut in a record": data[: second + 100],
        "cut in a header": data[: second + 5],
        "cut before the last checksum": data[: second + records[1] - 2],
    }[how]


@pytest.mark.parametrize(
    "how, message",
    [
        ("flipped image byte", "record 1 is damaged: the checksum of its data"),
        ("flipped length byte", "record 1 is damaged: the checksum of its length"),
        ("length beyond the file", "record 1 is damaged: the checksum of its length"),
        ("cut in a record", "record 1 is cut"),
        ("cut in a header", "record 1 is cut"),
        ("cut before the last checksum", "record 1 is cut"),
    ],
)
def test_a_damaged_file_is_named_with_its_record(tmp_path, how, message):
    good, bad = write(tmp_path, [containers.labelled_examples(3)] * 2)
    bad.write_bytes(damaged(bad.read_bytes(), how))
    with pytest.raises(SourceError, match=message) as caught:
        TFRecord([good, bad])
    assert str(bad) in str(caught.value)


def test_records_without_what_was_asked_for(tmp_path):
    path = write(tmp_path, [[containers.example({"picture": b"x", "class": np.int64(1)})]])
    with pytest.raises(
        SourceError,
        match=r"record 0 has no image 'image/encoded'; its features are \['class', 'pic",
    ):
        TFRecord(path)
    with pytest.raises(
        SourceError, match=r"record 0 has no integer label 'image/class/label' \(None for none\)"
    ):
        TFRecord(path, image="picture")
    assert len(TFRecord(path, image="picture", label="class")) == 1
    for wrong, held in (
        (b"1", "bytes"),
        (np.array([1, 2]), "2 of int64"),
        (np.float32(1), "1 of float32"),
    ):
        path = write(
            tmp_path, [[containers.example({"image/encoded": b"...", "x": wrong})]], name="wrong"
        )
        with pytest.raises(SourceError, match=f"no integer label 'x' .*, got {held}; its features"):
            TFRecord(path, label="x")
    path = write(tmp_path, [[b"\x0a\xff no example"]], name="other")
    with pytest.raises(SourceError, match=r"record 0 is no tf\.Example"):
        TFRecord(path)


def test_features_that_no_record_has_or_whose_names_collide(tmp_path):
    def records(**features):
        labelled = {"image/encoded": b"...", "image/class/label": np.int64(3)}
        return [
            containers.example(labelled | {name: value[i] for name, value in features.items()})
            for i in range(2)
        ]

    lengths = np.array([1]), np.array([1, 2])
    path = write(tmp_path, [records(x=lengths, text=[b"a", b"b"])])
    assert sorted(TFRecord(path, features=["x", "image/class/label"]).read(np.arange(2))) == [
        "image",
        "label",
        "x",
    ]
    for wrong in (["nope", "x"], ["nope", "x"]):  # a stored index knows as well
        with pytest.raises(
            SourceError,
            match=rf"no record has numbers called \['{wrong[0]}'\]; found were \['label', 'x'",
        ):
            TFRecord(path, features=wrong)

    path = write(tmp_path, [records(x=lengths, x_length=np.array([7, 8]))], name="count")
    with pytest.raises(
        SourceError,
        match=r"'x' differs between records.* called 'x_length', as another feature is: rename",
    ):
        TFRecord(path)
    features = dict(TFRecord(path, features=["x_length"]).read(np.arange(2)))
    features.pop("image")
    assert features["x_length"].tolist() == [7, 8]
    path = write(tmp_path, [records(x=np.array([1, 2]), x_count=np.array([7, 8]))], name="fixed")
    assert TFRecord(path).read(np.arange(2))["x_count"].tolist() == [7, 8]

    path = write(tmp_path, [records(label=np.array([7, 8]))], name="label")
    with pytest.raises(
        SourceError, match=r"record 0 has a feature 'label' beside the label 'image/class/label'"
    ):
        TFRecord(path)
    assert TFRecord(path, label="label").read(np.arange(2))["label"].tolist() == [7, 8]
    assert TFRecord(path, features=[]).read(np.arange(2))["label"].tolist() == [3, 3]


def test_paths_that_are_none():
    """Commands of webdataset, whose output has no records that can be reached by number."""
    with pytest.raises(SourceError, match=r'"pipe:" begins a command, .*: give the file or URL'):
        TFRecord("pipe:curl https://example.org/a-{0..1}.tfrecord")
    for wrong in (b"a.tfrecord", [3], ["a.tfrecord", None]):
        with pytest.raises(TypeError, match="`paths` must be a path or pattern, or a list of them"):
            TFRecord(wrong)


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(SourceError, match="matches no file"):
        TFRecord(tmp_path / "*.tfrecord")
    with pytest.raises(SourceError, match="cannot be opened: No such file"):
        TFRecord(tmp_path / "a.tfrecord")
    with pytest.raises(SourceError, match=r"is a folder; name its files"):
        TFRecord(tmp_path)
    with pytest.raises(SourceError, match="at least one file"):
        TFRecord([])
    (tmp_path / "empty.tfrecord").write_bytes(b"")
    with pytest.raises(SourceError, match="no records in 1 file"):
        TFRecord(tmp_path / "empty.tfrecord")


def test_indices_outside_are_refused(tmp_path):
    source = TFRecord(write(tmp_path, [containers.labelled_examples(3)]))
    for wrong in ([-1], [3]):
        with pytest.raises(IndexError, match=r"`indices` must lie in \[0, 3\)"):
            source.read(np.array(wrong))


@pytest.mark.parametrize("count", [150, pytest.param(4000, marks=pytest.mark.slow)])
def test_mutated_files_give_an_error_or_right_data(tmp_path, count):
    good = containers.tfrecord(containers.labelled_examples(4))
    truth = dict(enumerate(containers.jpegs(4)))
    generator = np.random.default_rng(count)
    refused = 0
    for number in range(count):
        path = (
            tmp_path / f"{number}.tfrecord"
        )  # a new file: within one tick of the clock, mtime tells nothing
        path.write_bytes(containers.mutate(good, generator))
        try:
            found = containers.images_by_label(TFRecord(path))
        except SourceError:
            refused += 1
        else:
            assert (
                found.items() <= truth.items()
            )  # whole records were cut off, or nothing was changed
    assert refused > 0.9 * count


def test_features_are_renamed(tmp_path):
    examples = []
    for number, image in enumerate(containers.jpegs(2)):
        fields = {"image/encoded": image, "image/class/label": number, "index": number + 5}
        examples.append(containers.example(fields))
    (tmp_path / "a.tfrecord").write_bytes(containers.tfrecord(examples))
    source = TFRecord(tmp_path / "a.tfrecord", features={"index": "uid"})
    assert source.features["uid"].tolist() == [5, 6] and sorted(source.features) == ["label", "uid"]
    with pytest.raises(SourceError, match="would both be called 'label'"):
        TFRecord(tmp_path / "a.tfrecord", features={"index": "label"})


def test_another_file_is_asked_whether_it_is_a_tfrecord(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"hello " * 100)
    with pytest.raises(SourceError, match=r"record 0 .* differs, or this is no TFRecord\.$"):
        TFRecord(tmp_path / "a.txt")


def test_unknown_fields_of_every_wire_type_are_skipped():
    fields = {"k": np.array([7, 8]), "b": b"bytes"}
    known = containers.example(fields)
    unknown = [
        containers.varint(9 << 3) + containers.varint(2**64 - 1),
        containers.varint(9 << 3 | 1) + b"\xff" * 8,
        containers.varint(9 << 3 | 2) + containers.varint(3) + b"abc",
        containers.varint(9 << 3 | 5) + b"\xff" * 4,
    ]
    expected = parse_example(memoryview(known), 0, len(known))
    for each in unknown:
        data = each + known
        found = parse_example(memoryview(data), 0, len(data))
        assert found["k"].tolist() == expected["k"].tolist()  # pyright: ignore
        ((start, stop),) = found["b"]
        assert data[start:stop] == b"bytes"
    for wrong in (b"\0\0", b"\x02\0", b"\x0b", b"\x09" + bytes(7)):
        with pytest.raises(ValueError, match="at byte"):
            parse_example(memoryview(wrong), 0, len(wrong))
