"""Shards of Streaming and chunks of LitData, written here by the formats' descriptions."""

import bz2
import gzip
import hashlib
import json
import os
import pickle
import struct

import numpy as np
import pyarrow
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators import MDS, LitData
from jaxaug.iterators.sources.storage import cached, unpacked
from jaxaug.iterators.sources.storage.mapped import Mapped
from tests.iterators.sources import containers

COUNT = 7
MDS_COLUMNS = {"image": ("jpeg", None), "label": ("int", 8), "name": ("str", None)}
MDS_COLUMNS |= {"other": ("pkl", None), "weight": ("float32", 4)}
LIT_FORMATS = {"image": "jpeg", "label": "int", "name": "str", "good": "bool", "w": "float"}


def records():
    for number, image in enumerate(containers.jpegs(COUNT)):
        numbers = {"label": np.int64(number), "weight": np.float32(number / 4)}
        numbers |= {"w": np.float64(number / 3), "good": np.bool_(number % 2)}
        fields = {name: value.tobytes() for name, value in numbers.items()}
        yield fields | {"image": image, "name": f"näme {number}".encode(), "other": b"?" * number}


def table(items, before=b""):
    """A file: the count, the places, what lies before the first record, the records."""
    places = np.cumsum([0, *map(len, items)]) + 4 * (len(items) + 2) + len(before)
    head = np.uint32(len(items)).tobytes() + places.astype("<u4").tobytes()
    return head + before + b"".join(items)


def packed(fields, names):
    sizes = np.array([len(fields[name]) for name in names if name not in FIXED], "<u4")
    return sizes.tobytes() + b"".join(fields[name] for name in MDS_COLUMNS)


FIXED = ("label", "weight")


def write_mds(folder):
    shards = []
    found = [packed(fields, MDS_COLUMNS) for fields in records()]
    for number, items in enumerate((found[:4], found[4:])):
        config = {"column_names": [*MDS_COLUMNS], "format": "mds", "compression": None}
        config["column_encodings"] = [encoding for encoding, _ in MDS_COLUMNS.values()]
        config["column_sizes"] = [size for _, size in MDS_COLUMNS.values()]
        data = table(items, json.dumps(config).encode())
        name = f"shard.{number:05d}.mds"
        (folder / name).write_bytes(data)
        shards.append(config | {"raw_data": {"basename": name, "bytes": len(data)}})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def write_litdata(folder):
    found = []
    for fields in records():
        sizes = np.array([len(fields[name]) for name in LIT_FORMATS], "<u4")
        found.append(sizes.tobytes() + b"".join(fields[name] for name in LIT_FORMATS))
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = {"type": "builtins.dict", "context": json.dumps([*LIT_FORMATS])}
    spec["children_spec"] = [leaf] * len(LIT_FORMATS)
    chunks = []
    for number, items in enumerate((found[:4], found[4:])):
        name = f"chunk-0-{number}.bin"
        (folder / name).write_bytes(table(items))
        # As older releases count them; newer ones count the table, too.
        size = sum(map(len, items))
        chunks.append({"filename": name, "chunk_size": len(items), "chunk_bytes": size})
    config = {"compression": None, "data_format": [*LIT_FORMATS.values()]}
    config["data_spec"] = json.dumps([1, spec])
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))


KINDS = [(MDS, write_mds), (LitData, write_litdata)]


@pytest.mark.parametrize("kind, write", KINDS)
def test_records_are_those_that_were_written(tmp_path, kind, write):
    write(tmp_path)
    opened = kind(tmp_path)
    for source in (opened, pickle.loads(pickle.dumps(opened)), kind(tmp_path)):
        order = np.array([6, 0, 3, 4])
        columns = dict(source.read(order))
        image = columns.pop("image")
        wanted = [containers.jpegs(COUNT)[index] for index in order]
        assert [bytes(image.view(row)) for row in range(4)] == wanted
        assert columns["label"].tolist() == order.tolist() and columns["label"].dtype == np.int32
        if kind is MDS:
            assert columns["weight"].tolist() == (order / 4).tolist()
        else:
            assert columns["w"].tolist() == np.float32(order / 3).tolist()
            assert columns["good"].tolist() == (order % 2 == 1).tolist()
        assert source.texts(order, ["name"]) == {"name": [f"näme {index}" for index in order]}
        assert source.describe(5)["name"] == "näme 5" and source.describe(5)["record_in_file"] == 1
        assert source.fingerprint() == opened.fingerprint()
    renamed = kind(tmp_path, label=None, features={"label": "number"})
    assert renamed.read(order)["number"].tolist() == order.tolist()


@pytest.mark.parametrize("kind, write", KINDS)
@pytest.mark.parametrize(
    "change, message",
    [
        (lambda folder, file: (folder / "index.json").unlink(), "index.json' cannot be opened"),
        (lambda folder, file: (folder / "index.json").write_text("[]"), "is a list, no index of"),
        (lambda folder, file: (folder / "index.json").write_text("{}"), "names no (shards|chunks)"),
        (lambda folder, file: (folder / "index.json").write_text("x"), "is no JSON"),
        (lambda folder, file: file.unlink(), "cannot be opened: No such file"),
        (lambda folder, file: file.write_bytes(b""), "has 0 bytes, too few for a table"),
        (lambda folder, file: file.write_bytes(file.read_bytes()[:-1]), "a table of records until"),
        (lambda folder, file: file.write_bytes(b"\xff" * 99), "is cut within its table"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, kind, write, change, message):
    write(tmp_path)
    change(tmp_path, next(each for each in sorted(tmp_path.iterdir()) if each.suffix != ".json"))
    with pytest.raises(SourceError, match=message):
        kind(tmp_path)


@pytest.mark.parametrize("kind, write", KINDS)
def test_fields_that_are_not_there_are_named(tmp_path, kind, write):
    write(tmp_path)
    for options, message in (
        ({"image": "jpg"}, r"`image`: no field of encoded bytes is called 'jpg'; found were"),
        ({"label": "class"}, r"no numbers are called \['class'\]"),
        ({"features": ["name"]}, r"no numbers are called \['name'\]"),
    ):
        with pytest.raises(SourceError, match=message):
            kind(tmp_path, **options)


def compress(folder, name="zstd", unpacked=False):
    """Compress files as `write` has written them, and tell so in index.json."""
    found = json.loads((folder / "index.json").read_text())
    listed = found.get("shards", []) + found.get("chunks", [])
    for file in listed:
        path = folder / (file["raw_data"]["basename"] if "raw_data" in file else file["filename"])
        ends = path.with_name(f"{path.name}.{name.partition(':')[0]}")
        if "raw_data" in file:
            file |= {"compression": name, "zip_data": {"basename": ends.name}}
        else:
            ends = path.with_name(path.name.replace(".bin", f".{name}.bin"))
            file["filename"] = ends.name
            found["config"]["compression"] = name
        ends.write_bytes(COMPRESS[name.partition(":")[0]](path.read_bytes()))
        if not unpacked:
            path.unlink()
    (folder / "index.json").write_text(json.dumps(found))


def by_arrow(codec):
    return lambda data: pyarrow.compress(data, codec=codec, asbytes=True)


COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "unknown": bytes}
COMPRESS |= {"zstd": by_arrow("zstd"), "br": by_arrow("brotli"), "snappy": by_arrow("snappy")}
COMPRESSED = [(MDS, write_mds, name) for name in ("zstd:7", "gz", "bz2", "br", "snappy")]
COMPRESSED += [(LitData, write_litdata, name) for name in ("zstd", "zstd:4")]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def images_of(source, rows):
    encoded = source.read(np.array(rows))["image"]
    return [bytes(encoded.view(row)) for row in range(len(rows))]


def check_all(source):
    order = [6, 0, 3, 4, 1, 5, 2]
    assert images_of(source, order) == [containers.jpegs(COUNT)[row] for row in order]
    assert source.read(np.array(order))["label"].tolist() == order
    assert source.texts(np.array([5, 1]), ["name"]) == {"name": ["näme 5", "näme 1"]}
    assert source.describe(5)["name"] == "näme 5"


@pytest.mark.parametrize("kind, write, name", COMPRESSED)
def test_compressed_files_are_unpacked_once(tmp_path, cache, monkeypatch, kind, write, name):
    write(tmp_path)
    compress(tmp_path, name)
    monkeypatch.setattr(cached, "BLOCK_BYTES", 512)
    source = kind(tmp_path)
    images_of(source, [5, 1])
    assert source._storage.flush(60) and list((cache / "jaxaug" / "unpacked").glob("*/*"))
    unpack_file = unpacked.unpack_file
    monkeypatch.setattr(unpacked, "unpack_file", None)  # what is kept serves from now on
    for again in (source, pickle.loads(pickle.dumps(source)), kind(tmp_path)):
        assert images_of(again, range(COUNT)) == containers.jpegs(COUNT)
        assert again.fingerprint() == source.fingerprint()
    monkeypatch.setattr(unpacked, "unpack_file", unpack_file)
    check_all(source)


@pytest.mark.parametrize("kind, write", KINDS)
def test_what_is_unpacked_keeps_its_bound(tmp_path, kind, write):
    write(tmp_path)
    compress(tmp_path)
    source = kind(tmp_path, cache=tmp_path / "kept", cache_bytes=1)
    for _ in range(3):
        for row in (6, 0, 5, 1):
            assert images_of(source, [row]) == [containers.jpegs(COUNT)[row]]
            assert source._storage.flush(60)
    assert len(list((tmp_path / "kept").glob("*/*"))) <= 1


@pytest.mark.parametrize("kind, write", KINDS)
def test_compressed_files_that_fail_are_bad_records(tmp_path, cache, kind, write):
    write(tmp_path)
    compress(tmp_path)
    first, second = sorted(tmp_path.glob("*.zstd*"))
    source = kind(tmp_path)
    good, stat = first.read_bytes(), first.stat()
    first.write_bytes(good[:-9])
    os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    second.touch()
    images = source.read(np.arange(COUNT))["image"]
    assert images.lengths.tolist() == [0] * COUNT
    assert (
        "zst" in source.describe(0)["error"] and "cannot be unpacked" in source.describe(0)["error"]
    )
    assert "changed since it was indexed" in source.describe(6)["error"]
    first.write_bytes(good)
    os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert images_of(source, range(4)) == containers.jpegs(COUNT)[:4]


def test_more_in_a_compressed_file_than_is_told_is_refused(tmp_path, cache):
    write_mds(tmp_path)
    compress(tmp_path)
    found = json.loads((tmp_path / "index.json").read_text())
    found["shards"][1]["raw_data"]["bytes"] -= 1
    (tmp_path / "index.json").write_text(json.dumps(found))
    with pytest.raises(SourceError, match=r"00001.mds.zstd' has more than the \d+ bytes in it"):
        MDS(tmp_path)
    compress_name = found["shards"][0] | {"compression": "unknown"}
    (tmp_path / "index.json").write_text(json.dumps({"shards": [compress_name]}))
    with pytest.raises(SourceError, match=r"is compressed by 'unknown'; known are \['br', 'bz2'"):
        MDS(tmp_path)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", ["sha1", "blake2b", "unknown"])
def test_hashes_that_are_told_are_compared(tmp_path, cache, name, compressed):
    write_mds(tmp_path)
    found = json.loads((tmp_path / "index.json").read_text())
    for shard in found["shards"]:
        data = (tmp_path / shard["raw_data"]["basename"]).read_bytes()
        right = "" if name == "unknown" else hashlib.new(name, data).hexdigest()
        shard["raw_data"]["hashes"] = {"shake_128": "", name: right}
    (tmp_path / "index.json").write_text(json.dumps(found))
    if compressed:
        compress(tmp_path)
        found = json.loads((tmp_path / "index.json").read_text())
    check_all(MDS(tmp_path, index=f"{tmp_path}/good/"))
    found["shards"][1]["raw_data"]["hashes"][name] = "0" * 40
    (tmp_path / "index.json").write_text(json.dumps(found))
    if name == "unknown":
        return check_all(MDS(tmp_path, index=f"{tmp_path}/other/"))
    with pytest.raises(SourceError, match=rf"00001.mds.* has another {name} than its index.json"):
        MDS(tmp_path, index=f"{tmp_path}/other/")


@pytest.mark.parametrize("kind, write", KINDS)
def test_compressed_files_are_read_where_they_lie_unpacked(tmp_path, kind, write):
    write(tmp_path)
    expected = kind(tmp_path).fingerprint()
    compress(tmp_path, unpacked=True)
    source = kind(tmp_path)
    assert images_of(source, range(COUNT)) == containers.jpegs(COUNT)
    assert source.fingerprint() == expected and isinstance(source._storage, Mapped)


def in_batches(data, of=3):
    """The layout of litdata/streaming/framed_zstd.py: items compressed several at a time."""
    count = int(np.frombuffer(data, "<u4", 1)[0])
    places = np.frombuffer(data, "<u4", count + 1, 4).astype(int)
    firsts = range(0, count, of)
    items = [data[places[first] : places[min(first + of, count)]] for first in firsts]
    frames = [by_arrow("zstd")(each) for each in items]
    head = struct.pack("<8sHHIII", b"LDFZ01\0\0", 1, 0, count, of, len(frames))
    head += (places - places[0]).astype("<u4").tobytes()
    at = len(head) + 24 * len(frames)
    for first, frame, item in zip(firsts, frames, items):
        head += struct.pack("<IIQII", first, min(of, count - first), at, len(frame), len(item))
        at += len(frame)
    return head + b"".join(frames)


def as_rows(fields):
    """The layout of `append_arrow_row_footer` of litdata/streaming/item_loader.py."""
    rows = [
        {"image": each["image"], "label": int(np.frombuffer(each["label"], np.int64)[0])}
        | {"name": each["name"].decode(), "good": bool(each["good"][0])}
        | {"w": float(np.frombuffer(each["w"], np.float64)[0])}
        for each in fields
    ]
    table = pyarrow.Table.from_pylist(rows)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_file(sink, table.schema) as writer:
        for start in range(0, len(rows), 2):
            writer.write_table(table.slice(start, 2))
    ipc = sink.getvalue().to_pybytes()
    places = np.full(len(rows) + 2, 4 * (len(rows) + 2), "<u4")
    places[0] = len(rows)
    return places.tobytes() + ipc + struct.pack("<I", len(ipc)) + b"LDARW01\0"


@pytest.mark.parametrize("layout", ["batch", "rows"])
def test_other_layouts_of_litdata(tmp_path, cache, layout):
    write_litdata(tmp_path)
    found = json.loads((tmp_path / "index.json").read_text())
    every, first = list(records()), 0
    for chunk in found["chunks"]:
        path = tmp_path / chunk["filename"]
        part = every[first : first + chunk["chunk_size"]]
        first += chunk["chunk_size"]
        path.write_bytes(in_batches(path.read_bytes()) if layout == "batch" else as_rows(part))
        chunk["chunk_bytes"] = path.stat().st_size
    if layout == "batch":
        found["config"] |= {"compression": "zstd", "compression_level": "batch"}
    (tmp_path / "index.json").write_text(json.dumps(found))
    source = LitData(tmp_path)
    check_all(source)
    columns = source.read(np.arange(COUNT))
    assert columns["w"].tolist() == np.float32(np.arange(COUNT) / 3).tolist()
    assert columns["good"].tolist() == [row % 2 == 1 for row in range(COUNT)]

    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(SourceError, match=r"chunk-0-1.bin' cannot be unpacked"):
        LitData(tmp_path)


@pytest.mark.parametrize("said", [{"compression_level": "sample"}, {"ipc_compression": "zstd"}])
def test_items_of_litdata_that_are_compressed_by_themselves_are_refused(tmp_path, said):
    write_litdata(tmp_path)
    found = json.loads((tmp_path / "index.json").read_text())
    found["config"] |= {"compression": "zstd"} | said
    (tmp_path / "index.json").write_text(json.dumps(found))
    with pytest.raises(SourceError, match="compressed one by one, or as rows of Arrow: write them"):
        LitData(tmp_path)


@pytest.mark.parametrize("kind, key", [(MDS, "shards"), (LitData, "chunks")])
@pytest.mark.parametrize("entry", ["a", {}, {"format": "mds"}])
def test_an_index_that_lacks_something_is_named(tmp_path, kind, key, entry):
    config = {"data_format": ["jpeg"], "data_spec": "[1, {}]"}
    (tmp_path / "index.json").write_text(json.dumps({key: [entry], "config": config}))
    with pytest.raises(SourceError, match=r"index\.json' lacks something|has the format None"):
        kind(tmp_path)


def test_another_format_of_streaming_is_named(tmp_path):
    shard = {"columns": {"text": "str"}, "format": "json", "newline": "\n"}
    (tmp_path / "index.json").write_text(json.dumps({"shards": [shard]}))
    with pytest.raises(SourceError, match="has the format 'json', not 'mds'"):
        MDS(tmp_path)
