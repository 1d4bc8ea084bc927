"""Shards of Streaming and chunks of LitData, written here by the formats' descriptions."""

import json
import pickle

import numpy as np
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators import MDS, LitData
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
        chunks.append({"filename": name, "chunk_size": len(items), "chunk_bytes": 0})
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
def test_fields_that_are_not_there_and_compressed_files_are_named(tmp_path, kind, write):
    write(tmp_path)
    for options, message in (
        ({"image": "jpg"}, r"`image`: no field of encoded bytes is called 'jpg'; found were"),
        ({"label": "class"}, r"no numbers are called \['class'\]"),
        ({"features": ["name"]}, r"no numbers are called \['name'\]"),
    ):
        with pytest.raises(SourceError, match=message):
            kind(tmp_path, **options)
    compress(tmp_path)
    for path in tmp_path.glob("*[0-9].*"):
        path.unlink()
    says = r"is compressed \(zstd\).*: unpack each .*\.zstd.*' to '(shard.00000.mds|chunk-0-0.bin)'"
    with pytest.raises(SourceError, match=says):
        kind(tmp_path)


def compress(folder):
    """Make an index.json that of compressed files, which lie unpacked beside themselves."""
    found = json.loads((folder / "index.json").read_text())
    for shard in found.get("shards", []):
        shard["compression"] = "zstd"
        shard["zip_data"] = {"basename": shard["raw_data"]["basename"] + ".zstd"}
    for chunk in found.get("chunks", []):
        found["config"]["compression"] = "zstd"
        chunk["filename"] = chunk["filename"].replace(".bin", ".zstd.bin")
    (folder / "index.json").write_text(json.dumps(found))


@pytest.mark.parametrize("kind, write", KINDS)
def test_compressed_files_are_read_where_they_lie_unpacked(tmp_path, kind, write):
    write(tmp_path)
    expected = kind(tmp_path).fingerprint()
    compress(tmp_path)
    source = kind(tmp_path)
    images = source.read(np.arange(COUNT))["image"]
    assert [bytes(images.view(row)) for row in range(COUNT)] == containers.jpegs(COUNT)
    assert source.fingerprint() == expected


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
