"""Items of other libraries as records."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.errors import DecodeError, SourceError
from jaxaug.iterators import Concat, InMemory, Source
from jaxaug.iterators.sources.random_access import RandomAccess
from jaxaug.sharding import batch_sharding
from tests.iterators.sources import containers


def one_device():
    return batch_sharding(jax.devices("cpu")[:1])


def items(count=4):
    return [
        {
            "image": image,
            "label": np.int64(9 - i),
            "pair": np.array([i, 1.5]),
            "name": f"n{i}",
            "raw": b"\xe4",
        }
        for i, image in enumerate(containers.jpegs(count))
    ]


class Batched:
    """What Grain and TFDS sources look like."""

    def __init__(self, items):
        self.items = items
        self.asked = []

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
    features = dict(source.read(np.array([3, 0, 3])))
    encoded = features.pop("image")
    assert [bytes(encoded.view(row)) for row in range(3)] == [
        containers.jpegs(4)[i] for i in (3, 0, 3)
    ]
    assert features["label"].dtype == np.int64 and features["label"].tolist() == [6, 9, 6]
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


def test_no_records_have_columns_too():
    """As where a mask chooses none."""
    (image,) = containers.jpegs(1)
    items = [{"image": image, "label": 3, "box": np.zeros(4, np.float32)} for _ in range(2)]
    source = RandomAccess(items)
    other = InMemory([image], {"label": [5], "box": np.ones((1, 4), np.float32)})
    for empty in (source, Concat([source, other])):
        features = dict(empty.read(np.zeros(0, np.int64)))
        encoded = features.pop("image")
        assert len(encoded.lengths) == 0
        assert features["label"].shape == (0,) and features["box"].shape == (0, 4)


@pytest.mark.parametrize("wrap", [Broken, BrokenBatched])
def test_items_that_cannot_be_had_are_bad_records(wrap):
    source = RandomAccess(wrap(items(8)))
    with Loader(source, 8, shuffle=False, on_error="mask") as loader:
        batch = next(loader)
        assert batch["valid"].tolist() == [True, False, True, True, False, True, True, True]
        assert batch["label"].tolist() == [9, -1, 7, 6, -1, 4, 3, 2]
        reasons = {record["index"]: record["reason"] for record in loader.stats["bad_records"]}
    assert "under 'image', got NoneType" in reasons[1] and reasons[4] == "OSError: the disk is gone"
    with (
        Loader(source, 8, shuffle=False) as loader,
        pytest.raises(DecodeError, match="record 1 must hold") as error,
    ):
        next(loader)
    assert error.value.index == 1


def test_hugging_face_images():
    rows = [
        {"jpg": {"bytes": image, "path": f"{i}.jpg"}, "class": i}
        for i, image in enumerate(containers.jpegs(2))
    ]
    source = RandomAccess(rows, image="jpg", label="class")
    features = dict(source.read(np.array([1])))
    encoded = features.pop("image")
    assert bytes(encoded.view(0)) == containers.jpegs(2)[1] and features["label"].tolist() == [1]
    assert source.describe(1) == {"record": 1, "path": "1.jpg"}


def test_hugging_face_images_in_files(tmp_path):
    paths = [tmp_path / f"{number}.jpg" for number in range(3)]
    for path, image in zip(paths, containers.jpegs(3)):
        path.write_bytes(image)
    images = [{"bytes": None, "path": str(path)} for path in paths[:2]] + [{"path": paths[2]}]
    rows = [{"image": image, "label": i} for i, image in enumerate(images)]
    source = RandomAccess(rows)
    paths[1].unlink()
    features = dict(source.read(np.arange(3)))
    encoded = features.pop("image")
    found = [bytes(encoded.view(row)) for row in range(3)]
    assert found == [containers.jpegs(3)[0], b"", containers.jpegs(3)[2]]
    assert features["label"].tolist() == [0, 0, 2]
    assert [source.describe(i)["path"] for i in (0, 2)] == [str(paths[0]), str(paths[2])]
    error = source.describe(1)["error"]
    assert re.search("record 1: '.*1.jpg' cannot be read: No such file", error)


@pytest.mark.parametrize(
    "rows, message",
    [
        ([], "at least one item"),
        (
            [{"image": np.zeros((8, 8, 3), np.float32), "label": 1}],
            r"must hold pixels as uint8\[h, w, 3\] or \[h, w\], got float32\[8, 8, 3\]: convert it",
        ),
        ([{"img": b"", "label": 1}], r"under 'image', got NoneType; it has \['img', 'label'\]"),
        ([{"img": {"bytes": b"x"}, "label": 1}], r"it has \['img', 'label'\]. Pass image='img'."),
        ([{"image": None, "raw": b"x"}], r"it has \['image', 'raw'\]. Give bytes, a Pillow image"),
        ([{"image": b"x"}], "items have no 'label'.*pass label=None"),
        (
            [{"image": b"x", "label": "cat"}] * 3,
            "record 0 has 'cat' under 'label', which is no number",
        ),
        ([{"image": b"x", "label": None}] * 200, "record 0 has None under 'label', which is no"),
        ([{"image": b"x", "label": 2**70}], "record 0 has 1180591620717411303424 under 'label'"),
        ([{"image": b"x", "label": [1, "a"]}], r"record 0 has \[1, 'a'\] under 'label'"),
        ([b"x"], "it has bytes"),
    ],
)
def test_items_that_will_not_do(rows, message):
    with pytest.raises(SourceError, match=message):
        RandomAccess(rows)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"x": None}, "record 3 must have float64[2] under 'x', got None."),
        ({"x": "text"}, "record 3 must have float64[2] under 'x', got 'text'."),
        (
            {"x": np.zeros(3)},
            "record 3 must have float64[2] under 'x', got float64[3]: pad it to one shape",
        ),
        ({"x": 1.5}, "record 3 must have float64[2] under 'x', got float64[]: pad it to one shape"),
        ({"n": 1.5}, "record 3 must have int16[] under 'n', got float64[]."),
        ({"n": 2**40}, "record 3 must have int16[] under 'n', got 1099511627776."),
        ({"label": None}, "record 3 must have int64[] under 'label', got None."),
        ({"label": "cat"}, "record 3 must have int64[] under 'label', got 'cat'."),
        ({"label": 0.5}, "record 3 must have int64[] under 'label', got float64[]."),
        ({"label": 2**63}, "record 3 must have int64[] under 'label', got 9223372036854775808."),
    ],
)
@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("wrap", [list, Batched])
def test_an_odd_item_is_a_bad_record_and_no_more(change, reason, missing, wrap):
    rows = [row | {"x": np.array([i, 0.5]), "n": np.int16(i)} for i, row in enumerate(items(6))]
    if missing:
        del rows[3][next(iter(change))]
        reason = reason.split(", got ")[0] + ", got None."
    else:
        rows[3] |= change
    source = RandomAccess(wrap(rows))
    features = dict(source.read(np.arange(6)))
    encoded = features.pop("image")
    assert encoded.lengths.astype(bool).tolist() == [True, True, True, False, True, True]
    assert features["label"].tolist() == [9, 8, 7, 0, 5, 4] and features["n"].dtype == np.int16
    assert features["x"].tolist() == [[0, 0.5], [1, 0.5], [2, 0.5], [0, 0], [4, 0.5], [5, 0.5]]
    found = source.describe(3)
    assert found.keys() == {"record", "error"} and found["error"].startswith(reason)
    assert "error" not in source.describe(2)
    with Loader(source, 6, shuffle=False, on_error="mask", sharding=one_device()) as loader:
        assert np.flatnonzero(~np.asarray(next(loader)["valid"])).tolist() == [3]
        assert loader.stats["bad_records"][0]["reason"] == found["error"]


@pytest.mark.parametrize("value", [0.1, np.inf, 2**25])
@pytest.mark.parametrize("bad", [1e300, 2**24 + 1, -(2.0**24) - 1])
def test_a_number_that_float32_would_change_is_a_bad_record(value, bad):
    rows = [{"image": b"x", "x": x} for x in (np.float32(1), value, bad, np.nan)]
    source = RandomAccess(rows, label=None)
    features = dict(source.read(np.arange(4)))
    encoded = features.pop("image")
    assert encoded.lengths.astype(bool).tolist() == [True, True, False, True]
    np.testing.assert_array_equal(features["x"], np.array([1, value, 0, np.nan], np.float32))
    assert "must have float32[] under 'x', got" in source.describe(2)["error"]


def test_the_first_good_item_says_which_features_there_are():
    rows = items(6)
    rows[0] |= {"label": None, "pair": "odd"}
    rows[1] |= {"image": None}
    source = RandomAccess(rows)
    features = dict(source.read(np.arange(6)))
    encoded = features.pop("image")
    assert encoded.lengths.astype(bool).tolist() == [False, False, True, True, True, True]
    assert features["label"].tolist() == [0, 0, 7, 6, 5, 4] and features["pair"].shape == (6, 2)


@pytest.mark.parametrize(
    "values, dtype",
    [
        ([2**40, 2**62], np.int64),
        ([2**63, 2**64 - 1], np.uint64),
        ([0.7, 1e300], np.float64),
        ([np.float32(0.1), np.float32(2)], np.float32),
        ([1.5, 2], np.float64),
        ([True, False], np.bool_),
        ([3, True], np.int64),
        ([np.uint8(3), 200], np.uint8),
        ([np.array([1, 2]), np.array([3, 4])], np.int64),
        ([np.array(5), jnp.array(7)], np.int64),
        ([jnp.array([0.5, 3], jnp.bfloat16), np.array([2.0, 0.25])], jnp.bfloat16),
    ],
)
def test_numbers_keep_their_dtype_and_value(values, dtype):
    rows = [row | {"label": value, "x": value} for row, value in zip(items(2), values)]
    features = dict(RandomAccess(rows).read(np.arange(2)))
    features.pop("image")
    for name in ("label", "x"):
        assert features[name].dtype == dtype
        assert features[name].tolist() == np.array(values, dtype).tolist()


def test_features_that_vary_can_be_left_out():
    rows = [row | {"boxes": np.zeros((i, 4))} for i, row in enumerate(items(3))]
    lengths = RandomAccess(rows).read(np.arange(3))["image"].lengths
    assert lengths.astype(bool).tolist() == [True, False, False]
    source = RandomAccess(rows, features=["pair"])
    features = dict(source.read(np.arange(3)))
    encoded = features.pop("image")
    assert encoded.lengths.all() and sorted(features) == ["label", "pair"]
    assert sorted(RandomAccess(rows, features=[]).read(np.arange(3))) == ["image", "label"]
    what = r"`features`: .* no numbers called \['name'\]; found were \['boxes', 'la"
    with pytest.raises(SourceError, match=what):
        RandomAccess(rows, features=["name"])


def test_tensors_of_torch_are_numbers():
    torch = pytest.importorskip("torch")
    rows = [row | {"label": torch.tensor(i), "x": torch.ones(2)} for i, row in enumerate(items(3))]
    features = dict(RandomAccess(rows).read(np.arange(3)))
    encoded = features.pop("image")
    assert features["label"].dtype == np.int64 and features["label"].tolist() == [0, 1, 2]
    assert features["x"].tolist() == [[1, 1]] * 3 and encoded.lengths.all()


@pytest.mark.parametrize("answered", [0, 1, 3])
def test_too_few_items_are_an_error(answered):
    class Short(Batched):
        def __getitems__(self, indices):
            return super().__getitems__(indices if len(indices) == 1 else range(answered))

    source = RandomAccess(Short(items()))
    what = f"Short.__getitems__ must answer 2 items for 2 numbers, got {answered}"
    with pytest.raises(SourceError, match=what):
        source.read(np.arange(2))


def test_fingerprints_tell_data_sets_apart():
    prints = {RandomAccess(items(count)).fingerprint() for count in (2, 3, 4)}
    prints.add(RandomAccess(items(4)[::-1]).fingerprint())
    assert len(prints) == 4 and RandomAccess(items(4)).fingerprint() in prints


def test_an_object_without_items_by_number_is_told_how_it_fails():
    """Such as a DataFrame of pandas, whose items are its columns."""
    columns = {"image": [b""], "label": [1]}
    with pytest.raises(SourceError, match="record 0 cannot be read: KeyError: 0"):
        RandomAccess(columns)


class OneFile:
    """Items in one open file, of which each read first moves the position."""

    def __init__(self, path, images):
        self._ends = np.cumsum([0, *map(len, images)]).tolist()
        path.write_bytes(b"".join(images))
        self._file = open(path, "rb", buffering=0)

    def __len__(self):
        return len(self._ends) - 1

    def __getitem__(self, index):
        start, stop = self._ends[index : index + 2]
        self._file.seek(start)
        time.sleep(0)  # other threads run now
        return {"image": self._file.read(stop - start), "label": index}


def test_one_thread_at_a_time_asks_for_items(tmp_path):
    """The threads of a Loader do: one reads ahead, others describe and replace bad records."""
    images = [bytes([number]) * 9 for number in range(50)]
    source = RandomAccess(OneFile(tmp_path / "images", images))

    def read(start):
        order = np.roll(np.arange(50), start)
        encoded = source.read(order)["image"]
        return [bytes(encoded.view(row)) for row in range(50)] == [images[i] for i in order]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(40)))


class Part:
    """Items of a data set by number, as torch's `random_split` makes them."""

    def __init__(self, dataset, numbers):
        self.dataset = dataset
        self._numbers = numbers

    def __len__(self):
        return len(self._numbers)

    def __getitem__(self, index):
        return self.dataset[self._numbers[index]]


class Pairs(Part):
    """Items of a data set, read by another RandomAccess of it."""

    def __getitem__(self, index):
        encoded = RandomAccess(self.dataset, label=None).read(np.array([self._numbers[index]]))[
            "image"
        ]
        return {"image": bytes(encoded.view(0))}


def test_an_item_may_be_read_from_the_data_set_that_it_is_a_part_of():
    images = [bytes([number]) * 9 for number in range(4)]
    items = [{"image": image} for image in images]
    found = []

    def read():
        encoded = RandomAccess(Pairs(items, [2, 0]), label=None).read(np.array([0, 1]))["image"]
        found.extend(bytes(encoded.view(row)) for row in range(2))

    thread = threading.Thread(target=read, daemon=True)  # which would wait for itself
    thread.start()
    thread.join(60)
    assert found == [images[2], images[0]]


def test_parts_of_one_open_file_are_read_one_after_the_other(tmp_path):
    images = [bytes([number]) * 9 for number in range(50)]
    whole = OneFile(tmp_path / "images", images)
    parts = [range(25), range(25, 50)]
    sources = [RandomAccess(Part(Part(whole, range(50)), part)) for part in parts]

    def read(turn):
        encoded = sources[turn % 2].read(np.arange(25))["image"]
        found = [bytes(encoded.view(row)) for row in range(25)]
        return found == [images[number] for number in parts[turn % 2]]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(80)))


def test_a_fingerprint_tells_other_numbers_and_masks_apart():
    """Classes that are numbered in the order of a set are others in each process."""

    def changed(name, value):
        return [item | {"mask": b"", name: value} for item in items(3)]

    def fingerprint(items):
        return RandomAccess(items, mask="mask").fingerprint()

    data = changed("label", np.int64(1)), changed("label", np.int64(2)), changed("mask", b"\1")
    assert len(set(map(fingerprint, data))) == 3
    assert fingerprint(data[0]) == fingerprint(changed("label", np.int64(1)))


@pytest.mark.parametrize("path", ["a.parquet", Path("a.parquet")])
def test_a_path_is_no_source_of_items(path):
    with pytest.raises(SourceError, match=r"got .*a.parquet'\)?: files are read by Parquet, Arr"):
        RandomAccess(path)


def test_lists_of_any_length_are_padded_as_max_length_says():
    boxes = [
        np.array(rows, np.float32).reshape(-1, 4) for rows in ([[1, 2, 10, 12]], [], [[0] * 4] * 3)
    ]
    labels = [[3], [], [4, 5, 6]]
    items = [
        {"image": jpeg, "label": n, "boxes": boxes[n], "kinds": labels[n]}
        for n, jpeg in enumerate(containers.jpegs(3))
    ]
    source = RandomAccess(
        items, features={"kinds": "box_labels"}, max_length={"boxes": 2, "kinds": 3}
    )
    order = np.array([2, 1, 0, 2])
    found = source.read(order)
    np.testing.assert_array_equal(found["boxes"].values, np.concatenate([boxes[n] for n in order]))
    assert found["boxes"].lengths.tolist() == [3, 0, 1, 3]
    assert found["boxes"].padded()[0].tolist() == [[0] * 4] * 2  # a third is cut
    assert found["box_labels"].padded().tolist() == [[4, 5, 6], [-1] * 3, [3, -1, -1], [4, 5, 6]]
    assert source.read(order[:0])["boxes"].padded().shape == (0, 2, 4)

    with Loader(source, 3, shuffle=False, sharding=one_device()) as loader:
        batch = next(loader)
    assert batch["boxes"].shape == (3, 2, 4) and batch["boxes_length"].tolist() == [1, 0, 2]
    assert batch["box_labels"][1].tolist() == [-1] * 3


@pytest.mark.parametrize(
    "rows, error",
    [
        ([[1, 2]], r"int64\[n, 3\] under 'rows', got int64\[1, 2\]"),
        ("text", r"int64\[n, 3\] under 'rows', got 'text'"),
        ([[1, 2, 3], [1, 2]], r"int64\[n, 3\] under 'rows', got"),
        ([[1, 2, 0.5]], r"int64\[n, 3\] under 'rows', got float64\[1, 3\]"),
        (None, r"int64\[n, 3\] under 'rows', got None"),
    ],
)
def test_a_list_of_another_form_is_a_bad_record(rows, error):
    items = [{"image": jpeg, "rows": [[1, 2, 3]]} for jpeg in containers.jpegs(2)]
    items[1]["rows"] = rows
    source = RandomAccess(items, label=None, max_length={"rows": 5})
    assert re.search(error, source.describe(1)["error"])
    found = source.read(np.arange(2))
    assert found["rows"].lengths.tolist() == [1, 0] and found["image"].lengths[1] == 0


def test_the_form_of_an_empty_list_is_that_of_a_later_one():
    lists = [[], [], [[1, 2]], [[0.5, 1]]]
    items = [
        {"image": jpeg, "label": 0, "rows": rows} for jpeg, rows in zip(containers.jpegs(4), lists)
    ]
    source = RandomAccess(items, max_length={"rows": 2})
    rows = source.read(np.arange(3))["rows"]
    assert rows.lengths.tolist() == [0, 0, 1] and rows.values.tolist() == [[1, 2]]
    assert "got float64[1, 2]" in source.describe(3)["error"]  # the first is of integers


def test_boxes_may_be_whole_numbers_in_the_first_record_alone():
    boxes = [[[1, 2, 3, 4]], [[0.5, 1, 2, 3], [1, 2, 3, 4]]]
    items = [{"image": jpeg, "boxes": each} for jpeg, each in zip(containers.jpegs(2), boxes)]
    found = RandomAccess(items, label=None, max_length={"boxes": 2}).read(np.arange(2))["boxes"]
    assert found.lengths.tolist() == [1, 2] and found.values.tolist() == boxes[0] + boxes[1]


def test_max_length_of_what_is_no_list_is_an_error():
    items = [{"image": jpeg, "rows": [], "number": 3} for jpeg in containers.jpegs(2)]
    with pytest.raises(SourceError, match=r"no rows under 'rows' .*np\.zeros"):
        RandomAccess(items, label=None, max_length={"rows": 5})
    with pytest.raises(SourceError, match=r"no lists of numbers called \['number'\]"):
        RandomAccess(items, label=None, max_length={"number": 5})
    with pytest.raises(TypeError, match=r"must be a dict of the most rows by key.*got 5"):
        RandomAccess(items, label=None, max_length=5)
    with pytest.raises(ValueError, match=r"`max_length\['rows'\]` must be an int of at least 1"):
        RandomAccess(items, label=None, max_length={"rows": 0})
