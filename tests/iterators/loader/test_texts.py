"""Texts of a batch: captions, by the names that they have in the files."""

import io
import json
import tarfile

import jax
import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.errors import SourceError
from jaxaug.iterators import (
    MDS,
    Concat,
    FromIterable,
    InMemory,
    LitData,
    Parquet,
    RandomAccess,
    Subset,
    TFRecord,
    WebDataset,
    for_pmap,
    to_numpy,
)
from jaxaug.iterators.loader.keys import split_words
from jaxaug.iterators.loader.sample import record_numbers
from jaxaug.iterators.sources.storage import staged
from tests.images import jpegs
from tests.iterators.sources import containers
from tests.iterators.sources.packed import test_chunked

COUNT = 12
CAPTIONS = [f"ein großer Hund, Nr. {number} " + "ü" * number for number in range(COUNT)]


def write_tar(path, order, long=""):
    """Captions in `txt` and in `json`, in several orders of members, hidden ones between them."""
    with tarfile.open(path, "w") as tar:
        for number, image in enumerate(jpegs(COUNT)):
            files = {
                "jpg": image,
                "txt": CAPTIONS[number].encode(),
                "json": json.dumps({"caption": CAPTIONS[number], "n": number}).encode(),
            }
            for extension in order:
                path_in_tar = f"{long}{number}.{extension}"
                both = {"__meta__.json": b"no JSON", path_in_tar: files[extension]}
                for name, data in both.items():
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return path


def sources(tmp_path):
    tars = [
        write_tar(tmp_path / "a.tar", ["jpg", "txt", "json"]),
        write_tar(tmp_path / "b.tar", ["json", "txt", "jpg"], long="folder/" + "x" * 120),
    ]
    for path in tars:
        for mmap in (True, False):
            for name in ("txt", "caption"):
                yield WebDataset(path, label=None, mmap=mmap), name
    images = jpegs(COUNT)
    records = [
        containers.example({"image/encoded": image, "text": caption.encode()})
        for image, caption in zip(images, CAPTIONS)
    ]
    (tmp_path / "a.tfrecord").write_bytes(containers.tfrecord(records))
    for mmap in (True, False):
        yield TFRecord(tmp_path / "a.tfrecord", label=None, mmap=mmap), "text"
    items = [{"image": image, "text": text} for image, text in zip(images, CAPTIONS)]
    yield RandomAccess(items, label=None), "text"
    yield InMemory(images, {"text": CAPTIONS, "n": np.arange(COUNT)}), "text"
    yield InMemory(images, {"text": np.array(CAPTIONS, object)}), "text"
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, type in (("p", pa.string()), ("q", pa.dictionary(pa.int32(), pa.string()))):
        table = pa.table({"image": images, "text": pa.array(CAPTIONS, type)})
        parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=5)
        yield Parquet(tmp_path / f"{name}.parquet", label=None), "text"
    pa.feather = pytest.importorskip("pyarrow.feather")
    pa.feather.write_feather(table, tmp_path / "a.arrow", compression="uncompressed")
    yield Parquet(tmp_path / "a.arrow", label=None), "text"


def test_every_source_gives_its_texts_in_any_order(tmp_path):
    order = np.array([11, 0, 5, 5, 3, 10, 11])
    expected = [CAPTIONS[index] for index in order.tolist()]
    seen = 0
    for source, name in sources(tmp_path):
        found = source.texts(order, [name])
        assert found == {name: expected} and type(found[name][0]) is str, source
        assert source.texts(order[:0], [name]) == {name: []}
        twice = Concat([Subset(source, range(4)), Subset(source, np.arange(4, COUNT))])
        assert twice.texts(order, [name]) == {name: expected}
        with pytest.raises(SourceError, match=r"(no|column of) text.*'nothing'"):
            source.texts(order, ["nothing"])
        with pytest.raises(IndexError):
            source.texts(np.array([-1]), [name])
        with pytest.raises(TypeError, match="`names` must be a list"):
            source.texts(order, name)
        seen += 1
    assert seen == 16


def test_a_batch_has_the_texts_of_its_rows():
    source = InMemory(jpegs(COUNT), {"text": CAPTIONS})
    rows = 8 * jax.device_count()
    with Loader(source, rows, seed=3, last_batch="pad", epochs=1) as loader:
        for batch in loader:
            texts = loader.texts(batch, ["text"])["text"]
            index = np.asarray(batch["index"]).tolist()
            assert texts == [CAPTIONS[record] if record >= 0 else "" for record in index]
    with Loader(source, rows, seed=3, last_batch="pad", epochs=1) as loader:
        for batch in to_numpy(loader):
            assert len(loader.texts(batch, ["text"])["text"]) == rows


def test_texts_of_a_batch_in_shards_are_those_of_its_rows():
    """Two rows each are no pairs (high, low) of one number."""
    source = InMemory(jpegs(COUNT), {"text": CAPTIONS})
    with Loader(source, 2 * jax.device_count(), seed=3, last_batch="pad") as loader:
        batch = next(loader)
        expected = loader.texts(batch, ["text"])
        shards = [np.asarray(shard.data) for shard in batch["index"].addressable_shards]
        assert loader.texts({"index": shards}, ["text"]) == expected
        assert loader.texts({"index": batch["index"].tolist()}, ["text"]) == expected
    with Loader(source, 2 * jax.device_count(), seed=3, last_batch="pad") as loader:
        assert loader.texts(next(iter(for_pmap(loader))), ["text"]) == expected


def test_a_record_without_text_is_an_error_or_what_was_asked_for(tmp_path):
    items = [{"image": b"x", "text": "a"}, {"image": b"x", "text": None}, {"image": b"x"}]
    source = RandomAccess(items, label=None)
    for record in (1, 2):
        with pytest.raises(SourceError, match=rf"record {record} has no text 'text'.*missing=''"):
            source.texts(np.array([0, record]), ["text"])
    assert source.texts(np.arange(3), ["text"], missing="-") == {"text": ["a", "-", "-"]}

    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        pa.table({"image": [b"x", b"y"], "text": ["a", None], "n": [1, 2]}), tmp_path / "a.parquet"
    )
    source = Parquet(tmp_path / "a.parquet", label=None)
    with pytest.raises(SourceError, match="record 1 has no text 'text'"):
        source.texts(np.arange(2), ["text"])
    assert source.texts(np.arange(2), ["text"], missing="") == {"text": ["a", ""]}
    with pytest.raises(SourceError, match=r"no column of texts called 'n'.*\['text'\]"):
        source.texts(np.arange(2), ["n"])


@pytest.mark.parametrize("kind", ["tar", "lists", "tfrecord", "mds", "litdata"])
def test_texts_leave_images_where_they_are(tmp_path, monkeypatch, kind):
    """At URLs the bytes of each image traveled twice."""
    monkeypatch.setattr(staged, "_MAX_GAP", 0)
    source, name = {
        "tar": lambda path: (WebDataset(write_masked(path), label=None, mask="seg.png"), "txt"),
        "lists": lambda path: (WebDataset(write_masked(path), label=None, image="*g"), "txt"),
        "tfrecord": lambda path: (write_tfrecord(path), "text"),
        "mds": lambda path: (test_chunked.write_mds(path) or MDS(path), "name"),
        "litdata": lambda path: (test_chunked.write_litdata(path) or LitData(path), "name"),
    }[kind](tmp_path)
    indices = np.arange(len(source))
    expected = source.texts(indices, [name])
    columns = source.read(indices)
    encoded = [getattr(columns[each], "values", columns[each]) for each in columns.keys() & MEDIA]
    known = sum(int(each.lengths.sum()) for each in encoded)
    size = sum(file.size for file in source._files)
    asked = []
    storage = staged.Staged(source._files)
    fill = storage._fill
    storage._fill = lambda spans, memory: asked.append(memory.size) or fill(spans, memory)
    source._storage = storage
    assert source.texts(indices, [name]) == expected
    assert asked[0] <= size - known and known > 1000
    if kind == "tar":
        with pytest.raises(SourceError, match=r"record 0 has no text 'jpg'"):
            source.texts(indices, ["jpg"])
    if kind == "tfrecord":
        with pytest.raises(SourceError, match=r"record 0 has no text 'image/encoded'"):
            source.texts(indices, ["image/encoded"])


MEDIA = {"image", "mask"}


def write_masked(folder):
    """Captions between images and masks."""
    files = {}
    for number, image in enumerate(jpegs(COUNT)):
        files |= {f"{number}.jpg": image, f"{number}.txt": CAPTIONS[number].encode()}
        files[f"{number}.seg.png"] = image[::-1]
    (folder / "m.tar").write_bytes(containers.tar(files))
    return folder / "m.tar"


def write_tfrecord(folder):
    examples = [
        containers.example({"a": text.encode(), "image/encoded": image, "text": text.encode()})
        for image, text in zip(jpegs(COUNT), CAPTIONS)
    ]
    (folder / "t.tfrecord").write_bytes(containers.tfrecord(examples))
    return TFRecord(folder / "t.tfrecord", label=None)


def test_texts_of_files_that_changed_are_an_error(tmp_path):
    path = write_tar(tmp_path / "a.tar", ["jpg", "txt", "json"])
    for mmap in (True, False):
        source = WebDataset(path, label=None, mmap=mmap)
        assert source.texts(np.array([1]), ["txt"])["txt"] == [CAPTIONS[1]]
        path.write_bytes(path.read_bytes() + bytes(512))
        with pytest.raises(SourceError, match=r"record 1: .*a\.tar' changed"):
            source.texts(np.array([1]), ["txt"])


def test_a_stream_has_none():
    stream = FromIterable([{"image": jpegs(1)[0]}] * 8, label=None)
    with Loader(stream, jax.device_count(), shuffle=False) as loader:
        with pytest.raises(TypeError, match=r"FromIterable, .* turn texts into numbers where"):
            loader.texts(next(loader), ["text"])


def test_a_batch_without_its_records_is_refused():
    source = InMemory(jpegs(8), {"text": CAPTIONS[:8]})
    with Loader(source, jax.device_count()) as loader:
        batch = next(loader)
        for wrong in ((batch["image"], batch["index"]), {"image": batch["image"]}):
            with pytest.raises(TypeError, match=r"`batch` must be a dict with \"index\", got"):
                loader.texts(wrong, ["text"])


def test_numbers_beyond_2_31_are_put_together():
    numbers = np.array([2**33 + 5, -1, 0])
    words = np.stack(split_words(numbers), axis=1).astype(np.uint32)
    assert record_numbers(words).tolist() == numbers.tolist()


@pytest.mark.parametrize("kind", ["tar", "tfrecord", "parquet", "items"])
def test_text_among_features_is_refused_with_the_way_to_it(tmp_path, kind):
    image = jpegs(1)[0]
    if kind == "tar":
        path = write_tar(tmp_path / "a.tar", ["jpg", "txt", "json"])
        make = lambda: WebDataset(path, label=None, features=["txt"])  # noqa: E731
    elif kind == "tfrecord":
        record = containers.example({"image/encoded": image, "text": [b"x", b"y"]})
        (tmp_path / "a.tfrecord").write_bytes(containers.tfrecord([record]))
        make = lambda: TFRecord(tmp_path / "a.tfrecord", label=None, features=["text"])  # noqa: E731
    elif kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pa.table({"image": [image], "text": ["x"]}), tmp_path / "a.parquet")
        make = lambda: Parquet(tmp_path / "a.parquet", label=None, features=["text"])  # noqa: E731
    else:
        items = [{"image": image, "text": "x"}]
        make = lambda: RandomAccess(items, label=None, features=["text"])  # noqa: E731
    with pytest.raises(SourceError, match=r"`features`.*loader\.texts\(batch, names\)"):
        make()
