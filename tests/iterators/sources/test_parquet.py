"""Images in columns of Parquet and Arrow files."""

import io
import os
import pickle
import re
import resource
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators import Parquet, Subset
from jaxaug.iterators.sources import _arrow
from jaxaug.iterators.sources.parquet import _Cache
from jaxaug.iterators.sources.storage.files import list_files
from jaxaug.sharding import batch_sharding
from tests.iterators.sources import containers
from tests.iterators.sources.packed.test_remote import serving

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

COUNT = 10


def table(count=COUNT, start=0, struct=True):
    images = containers.jpegs(start + count)[start:]
    if struct:
        images = [{"bytes": image, "path": f"{i}.jpg"} for i, image in enumerate(images)]
    numbers = range(start, start + count)
    return pa.table(
        {
            "image": pa.array(images) if struct else pa.array(images, pa.binary()),
            "label": pa.array(numbers, pa.int64()),
            "weight": pa.array([number / 3 for number in numbers], pa.float64()),
            "good": pa.array([number % 2 == 0 for number in numbers]),
            "boxes": pa.array(
                [[number] * (number % 3) for number in numbers], pa.list_(pa.int32())
            ),
            "tokens": pa.array([[number, 7] for number in numbers], pa.list_(pa.int64(), 2)),
            "hash": pa.array([bytes([number, 255]) for number in numbers], pa.binary(2)),
            "name": pa.array([f"name {number}" for number in numbers]),
        }
    )


def write(path, data, form, rows=3):
    if form == "parquet":
        pq.write_table(data, path, row_group_size=rows, compression="snappy")
        return
    compression = "lz4" if form == "compressed" else None
    options = pa.ipc.IpcWriteOptions(compression=compression)
    make = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, make(sink, data.schema, options=options) as writer:
        writer.write_table(data, max_chunksize=rows)


FORMS = ["parquet", "file", "stream", "compressed"]


@pytest.mark.parametrize("struct", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_rows_become_records(tmp_path, form, struct):
    write(tmp_path / "a.data", table(7, 0, struct), form)
    write(tmp_path / "b.data", table(3, 7, struct), form)
    source = Parquet(tmp_path / "*.data")
    order = np.array([9, 0, 3, 3, 8, 6, 1, 2, 4, 5, 7])
    features = dict(source.read(order))
    encoded = features.pop("image")
    expected = [containers.jpegs(COUNT)[i] for i in order.tolist()]
    assert [bytes(encoded.view(row)) for row in range(order.size)] == expected
    assert features["label"].tolist() == order.tolist() and features["label"].dtype == np.int32
    np.testing.assert_array_equal(features["weight"], order / 3)
    assert features["good"].tolist() == (order % 2 == 0).tolist()
    assert features["boxes"].padded().shape == (order.size, 2)
    assert features["boxes"].lengths.tolist() == (order % 3).tolist()
    assert features["tokens"].tolist() == [[number, 7] for number in order.tolist()]
    assert features["hash"].dtype == np.uint8
    assert features["hash"].tolist() == [[number, 255] for number in order.tolist()]
    found = source.describe(8)
    assert found["name"] == "name 8" and found["row"] == 1 and found["path"].endswith("b.data")
    assert source.features["label"].tolist() == list(range(COUNT))
    assert repr(source).startswith("Parquet(10 images in 2 files, ['boxes',")


@pytest.mark.parametrize("form", ["file", "stream"])
def test_no_byte_of_a_mapped_file_is_copied(tmp_path, form):
    write(tmp_path / "a.arrow", table(), form)
    source = Parquet(tmp_path / "a.arrow")
    encoded = source.read(np.arange(COUNT))["image"]
    ranges = []
    for line in open("/proc/self/maps"):
        if line.rstrip().endswith("a.arrow"):
            low, high = (int(end, 16) for end in line.split()[0].split("-"))
            ranges.append((low, high))
    for address in encoded.addresses.tolist():
        assert any(low <= address < high for low, high in ranges)


def test_labels_and_features_are_chosen_and_renamed(tmp_path):
    write(tmp_path / "a.parquet", table(), "parquet")
    source = Parquet(tmp_path / "a.parquet", features={"weight": "share"})
    assert sorted(source.features) == ["label", "share"]
    source = Parquet(tmp_path / "a.parquet", label=None, features=["label", "tokens"])
    assert sorted(source.features) == ["label", "tokens"]
    source = Parquet(tmp_path / "a.parquet", label="tokens", features=[])
    assert source.features["label"].shape == (COUNT, 2)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"image": "picture"}, r"has no column 'picture' but .*: pass image='image'"),
        ({"image": "name"}, "column 'name' must hold the bytes of images, got string"),
        ({"label": "name"}, r"`label`: there is no column of numbers 'name'; found were"),
        ({"features": ["name"]}, r"`features`: there are no columns of numbers called \['name'\]"),
        ({"label": "weight"}, "'label' and 'weight' would both be called 'label'"),
        ({"label": "boxes", "features": ["label"]}, "would both be called 'label'"),
    ],
)
def test_columns_that_are_not_there(tmp_path, options, message):
    write(tmp_path / "a.parquet", table(), "parquet")
    with pytest.raises(SourceError, match=message):
        Parquet(tmp_path / "a.parquet", **options)


def test_nulls(tmp_path):
    images = [*containers.jpegs(2), None]
    data = {"image": pa.array(images, pa.binary()), "label": [1, 2, 3], "x": [5, None, 7]}
    write(tmp_path / "a.parquet", pa.table(data), "parquet")
    with pytest.raises(SourceError, match=r"'x' has no number in 1 of 3.*row 1 of .*a\.parquet'"):
        Parquet(tmp_path / "a.parquet")
    assert "x" not in Parquet(tmp_path / "a.parquet", features=["label"]).features
    with pytest.raises(SourceError, match=r"nulls='nan' for NaN in floats \(it is int32\)"):
        Parquet(tmp_path / "a.parquet", nulls="nan")
    source = pickle.loads(pickle.dumps(Parquet(tmp_path / "a.parquet", nulls="count")))
    features = dict(source.read(np.arange(3)))
    encoded = features.pop("image")
    assert encoded.lengths.tolist()[2] == 0
    assert features["x"].tolist() == [5, 0, 7] and features["x_count"].tolist() == [1, 0, 1]
    write(tmp_path / "b.parquet", pa.table({**data, "label": [1, None, 3]}), "parquet")
    with pytest.raises(SourceError, match=r"`label`: no single .* in 1 of 3 records, .* row 1 of "):
        Parquet(tmp_path / "b.parquet")
    nothing = pa.array([None] * 3, pa.int32())
    write(tmp_path / "c.parquet", pa.table({**data, "label": nothing, "x": nothing}), "parquet")
    assert Parquet(tmp_path / "c.parquet", label=None).features == {}
    for options, column in (({}, "label"), ({"label": None, "features": ["x"]}, "x")):
        with pytest.raises(SourceError, match=rf"no record has a number in \['{column}'\]"):
            Parquet(tmp_path / "c.parquet", **options)


def test_nulls_of_floats_are_nan_where_asked(tmp_path):
    """Also those of rows of one length; a list of any length that is null has no numbers."""
    pairs = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))
    data = {"image": containers.jpegs(3), "x": [None, 0.5, 2.0], "pairs": pairs}
    data["lists"] = pa.array([[1.0], None, []], pa.list_(pa.float32()))
    for number, rows in enumerate((slice(0, 2), slice(2, 3))):
        part = pa.table(data).slice(rows.start, rows.stop - rows.start)
        write(tmp_path / f"{number}.parquet", part, "parquet")
    options = {"label": None, "nulls": "nan"}
    features = dict(Parquet(tmp_path / "*.parquet", **options).read(np.arange(3)))
    features.pop("image")
    np.testing.assert_array_equal(features["x"], np.float32([np.nan, 0.5, 2]))
    expected = np.float32([[1, 2], [np.nan] * 2, [3, 4]])
    np.testing.assert_array_equal(features["pairs"], expected)
    assert features["lists"].tolist() == [1, 0, 0] and features["lists_length"].tolist() == [
        1,
        0,
        0,
    ]
    with pytest.raises(ValueError, match="`nulls` must be one of"):
        Parquet(tmp_path / "*.parquet", label=None, nulls="zero")


def test_bools_are_a_mask_and_as_labels_classes(tmp_path):
    """As integers they would be the numbers of records for `Subset`."""
    good = pa.array([True, False, None, True])
    data = {"image": pa.array(containers.jpegs(4), pa.binary()), "label": [5, 6, 7, 8]}
    lists = pa.array([[True], [], [False, True], [True]])
    write(tmp_path / "a.parquet", pa.table(data | {"good": good, "lists": lists}), "parquet")
    source = Parquet(tmp_path / "a.parquet", nulls="count")
    good = source.features["good"]
    assert good.dtype == source.features["lists"].dtype == np.bool_
    assert Subset(source, good).features["label"].tolist() == [5, 8]
    assert source.features["lists"].tolist()[1:3] == [[False, False], [False, True]]

    source = Parquet(tmp_path / "a.parquet", label="lists", features=[])
    assert source.features["label"].tolist() == [[1, -1], [-1, -1], [0, 1], [1, -1]]
    assert source.features["label"].dtype == np.int32


def test_lengths_take_no_other_columns_name(tmp_path):
    data = {"image": pa.array(containers.jpegs(2), pa.binary()), "x": [[1.0], [1.0, 2.0]]}
    for number, order in enumerate((["image", "x", "x_length"], ["image", "x_length", "x"])):
        columns = {name: (data | {"x_length": [7, 8]})[name] for name in order}
        write(tmp_path / f"{number}.parquet", pa.table(columns), "parquet")
        with pytest.raises(
            SourceError, match=r"'x' differs between records.* would be called 'x_length'"
        ):
            Parquet(tmp_path / f"{number}.parquet", label=None)


@pytest.mark.parametrize("label", [[4, 5], [[4, 6], [5, 7]], [[4], [5, 7]]])
def test_a_column_beside_the_label_may_be_called_label_count(tmp_path, label):
    data = {"image": pa.array(containers.jpegs(2), pa.binary()), "label": label}
    write(tmp_path / "a.parquet", pa.table(data | {"label_count": [8, 1]}), "parquet")
    features = Parquet(tmp_path / "a.parquet").features
    assert features["label_count"].tolist() == [8, 1]
    assert features["label"][1].tolist() == label[1]


def test_labels_of_one_byte_are_padded_as_all_are(tmp_path):
    kind = pa.list_(pa.uint8())
    data = {"image": pa.array(containers.jpegs(3), pa.binary())}
    labels = {"label": pa.array([[255, 2], [], [7]], kind)}
    write(tmp_path / "a.parquet", pa.table(data | labels), "parquet")
    source = Parquet(tmp_path / "a.parquet")
    assert source.features["label"].tolist() == [[255, 2], [-1, -1], [7, -1]]
    labels = {"label": pa.array([3, None, 4], pa.uint8())}
    write(tmp_path / "b.parquet", pa.table(data | labels), "parquet")
    with pytest.raises(SourceError, match=r"`label`: no single .* in 1 of 3 records, .* row 1 of "):
        Parquet(tmp_path / "b.parquet")


def test_images_in_files_of_their_own(tmp_path):
    images = containers.jpegs(3)
    for number in (0, 2):
        (tmp_path / f"{number}.jpg").write_bytes(images[number])
    rows = [
        {"bytes": images[1] if i == 1 else None, "path": str(tmp_path / f"{i}.jpg")}
        for i in range(3)
    ]
    write(tmp_path / "a.arrow", pa.table({"image": pa.array(rows), "label": [0, 1, 2]}), "file")
    source = Parquet(tmp_path / "a.arrow")
    encoded = source.read(np.array([2, 1, 0]))["image"]
    assert [bytes(encoded.view(row)) for row in range(3)] == images[::-1]

    (tmp_path / "0.jpg").unlink()
    (tmp_path / "2.jpg").write_bytes(b"")
    assert (source.read(np.arange(3))["image"].lengths > 0).tolist() == [False, True, False]
    message = re.escape(f"its file '{tmp_path}/0.jpg' cannot be read: No such file")
    assert re.search(message, source.describe(0)["error"])
    assert source.describe(2)["error"] == f"its file '{tmp_path}/2.jpg' is empty"


def test_row_groups_that_do_not_fit_are_read_again(tmp_path):
    write(tmp_path / "a.parquet", table(), "parquet", rows=2)
    source = Parquet(tmp_path / "a.parquet", memory=2000)
    with pytest.warns(UserWarning, match="take more than `memory`=2000 bytes"):
        first = source.read(np.arange(COUNT))["image"]
    second = source.read(np.arange(COUNT)[::-1])["image"]
    for row, image in enumerate(containers.jpegs(COUNT)):
        assert bytes(first.view(row)) == bytes(second.view(COUNT - 1 - row)) == image
    assert source._cache._held <= 2000


def test_a_row_group_may_hold_more_than_2_gib():
    """Its column has several chunks then, which Arrow cannot join."""
    memory = np.zeros(3 << 29, np.uint8)  # never touched
    data = pa.py_buffer(memory)
    offsets = pa.py_buffer(np.array([0, 100, memory.size], np.int32))
    chunk = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, data])
    images = _arrow.images_of(pa.chunked_array([chunk, chunk]), False)
    assert images.addresses.tolist() == [data.address, data.address + 100] * 2
    assert images.lengths.tolist() == [100, memory.size - 100] * 2


def test_a_group_that_two_threads_read_at_once_is_held_once(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", table(), "parquet")
    source = Parquet(tmp_path / "a.parquet")
    both = threading.Barrier(2, timeout=60)
    images_of = _arrow.images_of

    def images_of_both(*arguments):
        both.wait()  # neither has put its images into the cache yet
        return images_of(*arguments)

    monkeypatch.setattr(_arrow, "images_of", images_of_both)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(source.read, [np.arange(3)] * 2))
    monkeypatch.undo()
    alone = Parquet(tmp_path / "a.parquet")
    alone.read(np.arange(3))
    assert source._cache._held == alone._cache._held


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_was_written_to_gives_bad_records(tmp_path, form):
    write(tmp_path / "a.data", table(5), form)
    write(tmp_path / "b.data", table(5, 5), form)
    source = Parquet(tmp_path / "?.data")
    (tmp_path / "b.data").touch()
    encoded = source.read(np.arange(COUNT))["image"]
    assert (encoded.lengths.reshape(2, 5) > 0).tolist() == [[True] * 5, [False] * 5]
    assert "b.data' changed" in source.describe(7)["error"] and "error" not in source.describe(2)


@pytest.mark.parametrize("form", FORMS)
def test_files_of_more_bytes_than_the_process_may_map_are_read(tmp_path, monkeypatch, form):
    """As under `ulimit -v`."""
    write(tmp_path / "a.data", table(), form)
    limits = (1000, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(pa, "memory_map", lambda path: pytest.fail("mapped"))
    encoded = Parquet(tmp_path / "a.data").read(np.arange(COUNT))["image"]
    assert [bytes(encoded.view(row)) for row in range(COUNT)] == containers.jpegs(COUNT)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_was_written_to_and_then_replaced_is_opened_anew(tmp_path, form):
    path = tmp_path / "a.data"
    write(path, table(), form)
    whole = path.read_bytes()
    stamp = path.stat().st_mtime_ns
    source = Parquet(path)
    assert source.read(np.arange(2))["image"].lengths.all()
    with open(path, "r+b") as file:  # the same file, the same size
        file.write(whole[::-1])
    os.utime(path, ns=(stamp + 1, stamp + 1))
    assert not source.read(np.arange(COUNT))["image"].lengths.any()
    (tmp_path / "new").write_bytes(whole)
    os.utime(tmp_path / "new", ns=(stamp, stamp))
    os.replace(tmp_path / "new", path)
    encoded = source.read(np.arange(COUNT))["image"]
    assert [bytes(encoded.view(row)) for row in range(COUNT)] == containers.jpegs(COUNT)


@pytest.mark.parametrize("column", ["image", "name", "boxes"])
@pytest.mark.parametrize("form", ["file", "stream"])
def test_damaged_offsets_lead_nowhere(tmp_path, form, column):
    """Arrow takes them as they are, and whoever followed them would crash."""
    path = tmp_path / "a.arrow"
    made = table(struct=False)
    write(path, made, form, rows=COUNT)
    offsets = made[column].combine_chunks().buffers()[1].to_pybytes()[: 4 * (COUNT + 1)]
    damaged = bytearray(offsets)
    damaged[4 * 5 + 3] ^= 0x40  # the fifth ends a gigabyte later
    assert path.read_bytes().count(offsets) == 1
    path.write_bytes(path.read_bytes().replace(offsets, damaged))
    what = r"a.arrow', group 0, cannot be read"
    if column == "boxes":
        with pytest.raises(SourceError, match=what):
            Parquet(path)
        return
    source = Parquet(path)
    lengths = source.read(np.arange(COUNT))["image"].lengths
    expected = [0 if column == "image" else len(image) for image in containers.jpegs(COUNT)]
    assert lengths.tolist() == expected
    assert "error" in source.describe(5) and ("error" in source.describe(0)) == (column == "image")


@pytest.mark.parametrize("form", ["file", "stream"])
def test_a_damaged_name_of_a_column_names_the_file(tmp_path, form):
    write(tmp_path / "a.arrow", table(), form)
    damaged = (tmp_path / "a.arrow").read_bytes().replace(b"weight", b"\xffeight")
    (tmp_path / "a.arrow").write_bytes(damaged)
    with pytest.raises(SourceError, match=r"a.arrow' cannot be read as Parquet or Arrow: 'utf-8'"):
        Parquet(tmp_path / "a.arrow")


def test_files_that_are_none(tmp_path):
    for name, data in (("a", b""), ("b", b"PAR1 no more"), ("c", b"ARROW1\0\0"), ("d", b"x" * 99)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(SourceError, match=f"{name}' cannot be read as Parquet or Arrow"):
            Parquet(tmp_path / name)
    write(tmp_path / "e.parquet", table(2), "parquet")
    write(tmp_path / "f.parquet", table(2).drop_columns(["name"]), "parquet")
    with pytest.raises(SourceError, match=r"f.parquet' has other columns than .*e.parquet'"):
        Parquet([tmp_path / "e.parquet", tmp_path / "f.parquet"])
    write(tmp_path / "g.parquet", table(2).slice(0, 0), "parquet")
    with pytest.raises(SourceError, match="no records in 1 file"):
        Parquet(tmp_path / "g.parquet")


def test_a_copy_and_the_fingerprint(tmp_path):
    write(tmp_path / "a.parquet", table(), "parquet")
    source = Parquet(tmp_path / "a.parquet")
    copy = pickle.loads(pickle.dumps(source))
    assert copy.fingerprint() == source.fingerprint()
    assert bytes(copy.read(np.array([4]))["image"].view(0)) == containers.jpegs(COUNT)[4]
    (tmp_path / "moved").mkdir()
    (tmp_path / "a.parquet").rename(tmp_path / "moved" / "a.parquet")
    assert Parquet(tmp_path / "moved" / "a.parquet").fingerprint() == source.fingerprint()
    assert (
        Parquet(tmp_path / "moved" / "a.parquet", features=[]).fingerprint() != source.fingerprint()
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_loader_reads_them(tmp_path, form):
    write(tmp_path / "a.data", table(), form)
    sharding = batch_sharding(jax.devices("cpu")[:1])
    source = Parquet(tmp_path / "a.data", features=[])
    with Loader(source, 5, sharding=sharding) as loader:
        labels = np.concatenate([np.asarray(batch["label"]) for batch in loader])
    assert sorted(labels.tolist()) == list(range(COUNT))


def test_the_cache_of_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(2)})
    rows = {
        "image": [{"bytes": image, "path": None} for image in containers.jpegs(6)],
        "label": [number % 2 for number in range(6)],
    }
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "saved"))
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(tmp_path / "a.parquet"))
    for path in (tmp_path / "saved" / "*.arrow", tmp_path / "a.parquet"):
        source = Parquet(path)
        columns = dict(source.read(np.array([5, 0])))
        encoded = columns.pop("image")
        assert bytes(encoded.view(0)) == containers.jpegs(6)[5]
        assert columns["label"].tolist() == [1, 0]


@pytest.mark.parametrize("form", FORMS)
def test_remote_files(form):
    memory = pytest.importorskip("fsspec").filesystem("memory")
    buffer = io.BytesIO()
    if form == "parquet":
        pq.write_table(table(), buffer, row_group_size=3)
    else:
        options = pa.ipc.IpcWriteOptions(compression="lz4" if form == "compressed" else None)
        make = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
        with make(buffer, table().schema, options=options) as writer:
            writer.write_table(table(), max_chunksize=3)
    memory.pipe(f"/{form}/a.data", buffer.getvalue())
    source = Parquet(f"memory://{form}/a.data")
    features = dict(source.read(np.array([9, 0])))
    encoded = features.pop("image")
    assert bytes(encoded.view(0)) == containers.jpegs(COUNT)[9] and encoded.lengths.all()
    assert features["label"].tolist() == [9, 0] and source.describe(9)["name"] == "name 9"


def test_a_remote_file_costs_its_footer_and_the_groups_that_are_read(monkeypatch):
    pytest.importorskip("aiohttp")
    generator = np.random.default_rng(0)
    images = [containers.jpegs(1)[0] + generator.bytes(10_000) for _ in range(60)]
    data = pa.table({"image": pa.array(images, pa.binary()), "label": pa.array(range(60))})
    buffer = io.BytesIO()
    pq.write_table(data, buffer, row_group_size=10)
    with serving() as (handler, url):
        handler.contents["/a.parquet"] = buffer.getvalue()
        sent = []
        send = handler.send

        def counting(self, status, content, body=True, extra=None):
            sent.append(len(content) * body)
            return send(self, status, content, body, extra)

        handler.send = counting
        source = Parquet(f"{url}/a.parquet")
        # The footer is asked for with the 64 KiB before the end.
        assert sum(sent) < 70_000 + 6 * 1000 < len(buffer.getvalue()) / 5
        sent.clear()
        image = source.read(np.array([33, 36, 31]))["image"]
        assert [bytes(image.view(row)) for row in range(3)] == [images[i] for i in (33, 36, 31)]
        assert 100_000 < sum(sent) < 110_000  # one group of ten
        assert sum(size > 0 for size in sent) == 1


def test_a_store_that_fails_for_a_moment_is_asked_again(monkeypatch):
    memory = pytest.importorskip("fsspec.implementations.memory")
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    buffer = io.BytesIO()
    pq.write_table(table(), buffer, row_group_size=3)
    memory.MemoryFileSystem().pipe("/flaky/a.parquet", buffer.getvalue())
    source = Parquet("memory://flaky/a.parquet")
    read = memory.MemoryFile.read
    failures = [ConnectionError("reset")] * 3

    def fails(file, *arguments):
        if failures:
            raise failures.pop()
        return read(file, *arguments)

    monkeypatch.setattr(memory.MemoryFile, "read", fails)
    assert source.read(np.arange(3))["image"].lengths.all() and not failures
    failures += [ConnectionError("reset")] * 4
    assert not source.read(np.arange(3, 6))["image"].lengths.any()
    assert "group 1, cannot be read: reset" in source.describe(3)["error"]
    assert source.read(np.arange(COUNT))["image"].lengths.all()


def bytes_of(images):
    encoded = Encoded(images.addresses, images.lengths, images.owner)
    return [bytes(encoded.view(row)) for row in range(len(images.lengths))]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_the_places_of_images_are_those_of_the_rows(kind):
    """In a part of a larger array, and of null that has bytes."""
    values = [b"", b"ab", b"cde", b"f", b"ghij"]
    array = pa.array(values, kind)
    structs = pa.StructArray.from_arrays([array], ["bytes"])
    _, offsets, data = array.buffers()
    gaps = pa.Array.from_buffers(kind, 5, [pa.py_buffer(b"\x1b"), offsets, data])  # 11011
    for whole, expected in [
        (array, values),
        (structs, values),
        (gaps, [b"", b"ab", b"", b"f", b"ghij"]),
    ]:
        for part in (slice(None), slice(2, None), slice(1, 4)):
            column = pa.chunked_array([whole[part]])
            assert bytes_of(_arrow.images_of(column, False)) == expected[part]


@pytest.mark.parametrize("form", ["parquet", "file"])
def test_views_of_bytes_are_images(tmp_path, form):
    """polars writes such columns; short values lie in the views themselves."""
    images = [*containers.jpegs(4), b"short", None]
    write(tmp_path / "a", pa.table({"image": pa.array(images, pa.binary_view())}), form)
    source = Parquet(tmp_path / "a", label=None)
    encoded = source.read(np.array([5, 3, 4]))["image"]
    assert [bytes(encoded.view(row)) for row in range(3)] == [b"", images[3], b"short"]


class Scaled(Parquet):
    def __init__(self, path, scale):
        super().__init__(path, label=None)
        self.scale = scale


def test_a_copy_has_what_a_class_of_ones_own_adds(tmp_path):
    write(tmp_path / "a", table(7), "file")
    copied = pickle.loads(pickle.dumps(Scaled(tmp_path / "a", 3)))
    assert copied.scale == 3 and len(copied) == 7


def test_the_longest_unused_group_leaves_the_memory():
    cache = _Cache(2)
    image = object()
    cache.put(("image", 0), image, 1)
    cache.put(("image", 1), image, 1)
    assert cache.get(("image", 0)) is image
    with pytest.warns(UserWarning, match="row groups are decompressed again and again"):
        cache.put(("image", 2), image, 1)
    assert [cache.get(("image", number)) for number in range(3)] == [image, None, image]


@pytest.mark.parametrize("form", FORMS)
def test_groups_take_memory_unless_they_lie_in_a_mapped_file(tmp_path, form):
    path = tmp_path / "a.data"
    write(path, table(7), form)
    (file,) = list_files(path)
    assert _arrow.open_arrow(file, local=True).mapped == (form in ("file", "stream"))
    assert Parquet(path).describe(5)["row"] == 5  # of the second group of three
