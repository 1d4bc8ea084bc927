"""Arrays beside the images: `.npy` and `.npz` members of tars, and bytes of tf.Examples."""

import io

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.errors import SourceError
from jaxaug.iterators import TFRecord, WebDataset
from tests.iterators.loaders import one_device
from tests.iterators.sources import containers

COUNT = 4
IMAGES = containers.jpegs(COUNT)


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def opened(tmp_path, members, **options):
    """A tar of images, with members by extension for each of them."""
    files = {}
    for record, others in enumerate(members):
        files[f"{record}.jpg"] = IMAGES[record]
        for extension, data in others.items():
            files[f"{record}.{extension}"] = data
    path = tmp_path / "a.tar"
    path.write_bytes(containers.tar(files))
    return WebDataset(path, label=None, **options)


@pytest.mark.parametrize(
    "dtype, expected",
    [
        (np.uint8, np.uint8),
        (np.bool_, np.bool_),
        (np.int64, np.int32),
        (np.uint16, np.int32),
        (np.float64, np.float32),
        (np.float16, np.float32),
    ],
)
@pytest.mark.parametrize("shape", [(), (77,), (1,), (3, 5), (1, 4)])
def test_arrays_of_one_shape_are_columns(tmp_path, shape, dtype, expected):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2, shape).astype(dtype) for _ in range(COUNT)]
    members = [{"emb.npy": npy(array)} for array in arrays]
    source = opened(tmp_path, members, features={"emb.npy": "embedding"})
    column = source.features["embedding"]
    wanted = np.stack(arrays)
    if shape == (1,):
        wanted = wanted[:, 0]  # as lists of one number are
    assert column.dtype == expected and list(source.features) == ["embedding"]
    np.testing.assert_array_equal(column, wanted)
    np.testing.assert_array_equal(source.read(np.array([2]))["embedding"][0], wanted[2])


def test_arrays_of_different_lengths_are_padded(tmp_path):
    boxes = [np.arange(4 * k, dtype=np.float32).reshape(k, 4) for k in (2, 0, 1, 3)]
    members = [{"boxes.npy": npy(each)} for each in boxes]
    source = opened(tmp_path, members, features={"boxes.npy": "boxes"})
    assert source.features["boxes"].shape == (4, 3, 4)
    assert source.features["boxes_length"].tolist() == [2, 0, 1, 3]
    for record, each in enumerate(boxes):
        found = source.features["boxes"][record]
        np.testing.assert_array_equal(found[: len(each)], each)
        assert not found[len(each) :].any()
    with Loader(source, COUNT, shuffle=False, sharding=one_device()) as loader:
        batch = next(loader)
    assert batch["boxes"].shape == (4, 3, 4) and batch["boxes_length"].tolist() == [2, 0, 1, 3]


def test_arrays_of_an_npz_are_named_by_member_and_array(tmp_path):
    tokens = np.arange(COUNT * 7, dtype=np.int32).reshape(COUNT, 7)
    members = [{"text.npz": npz(ids=tokens[i], length=np.array(i))} for i in range(COUNT)]
    features = {"text.npz/ids": "tokens", "text.npz/length": "length"}
    source = opened(tmp_path, members, features=features)
    assert sorted(source.features) == ["length", "tokens"]
    np.testing.assert_array_equal(source.features["tokens"], tokens)
    assert source.features["length"].tolist() == [0, 1, 2, 3]


def test_arrays_are_read_only_where_they_are_named(tmp_path):
    members = [{"a.npy": npy(np.zeros(3)), "json": b'{"x": 5}'} for _ in range(COUNT)]
    assert list(opened(tmp_path, members).features) == ["x"]
    assert sorted(opened(tmp_path, members, features=["x", "a.npy"]).features) == ["a.npy", "x"]


def test_a_record_without_the_array_has_none(tmp_path):
    members = [{"t.npy": npy(np.ones(3, int))}, {}, {}, {"t.npy": npy(np.ones(3, int))}]
    source = opened(tmp_path, members, features={"t.npy": "t"})
    assert source.features["t"].tolist() == [[1] * 3, [0] * 3, [0] * 3, [1] * 3]
    assert source.features["t_length"].tolist() == [3, 0, 0, 3]


@pytest.mark.parametrize(
    "members, name, message",
    [
        ({"t.npy": b"no array"}, "t.npy", "'0.t.npy' is no array of numpy: "),
        ({"t.npy": npy(np.array([{}]))}, "t.npy", "'0.t.npy' is no array of numpy: .*pickle"),
        ({"t.npy": npy(np.array(["text"]))}, "t.npy", "'0.t.npy' holds <U4, no numbers"),
        ({"t.npz": npz(a=np.zeros(2))}, "t.npz/b", r"'0.t.npz' has no array 'b' but \['a'\]"),
        ({"t.npz": npz(a=np.zeros(2))}, "t.npz", "'0.t.npz' has several arrays: name one, such as"),
        ({}, "t.npy", r"`features`: no record has numbers called \['t.npy'\]"),
    ],
)
def test_members_that_are_no_such_arrays_are_named(tmp_path, members, name, message):
    with pytest.raises(SourceError, match=message):
        opened(tmp_path, [members] * COUNT, features=[name])


def test_arrays_of_other_shapes_are_refused(tmp_path):
    members = [{"t.npy": npy(np.zeros((2, 3 + i // 3)))} for i in range(COUNT)]
    with pytest.raises(SourceError, match=r"feature 't.npy' has arrays \[k, 3\] and \[k, 4\]"):
        opened(tmp_path, members, features=["t.npy"])


def test_bytes_of_tf_examples_are_columns_where_they_are_named(tmp_path):
    records = []
    for i in range(COUNT):
        fields = {"image": IMAGES[i], "label": i, "tokens": bytes(range(i, i + 6)), "text": b"a"}
        records.append(containers.example(fields))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(containers.tfrecord(records))
    names = {"image": "image", "label": "label"}
    source = TFRecord(path, **names, features=["tokens"])
    column = source.features["tokens"]
    assert column.dtype == np.uint8 and column[1].tolist() == [1, 2, 3, 4, 5, 6]
    assert source.describe(1)["text"] == "a"
    assert list(TFRecord(path, **names).features) == ["label"]


@pytest.mark.parametrize(
    "value, message",
    [
        (np.float64(2**24 + 1), r"be exact in float32, got 16777217.0 in record 2"),
        (np.float64(1e300), r"fit float32, got 1e\+300 in record 2"),
        (np.uint64(2**64 - 1), r"fit int32, got 18446744073709551615 in record 2"),
    ],
)
def test_a_number_that_would_change_is_left_for_the_loader_to_refuse(tmp_path, value, message):
    arrays = [np.zeros((), value.dtype) for _ in range(COUNT)]
    arrays[2] = np.array(value)
    source = opened(tmp_path, [{"x.npy": npy(array)} for array in arrays], features=["x.npy"])
    with Loader(source, COUNT, shuffle=False, sharding=one_device()) as loader:
        with pytest.raises(ValueError, match=f"feature 'x.npy' must {message}"):
            next(loader)
