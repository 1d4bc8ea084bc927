"""Sources written into shards."""

import io
import os

import numpy as np
import pytest
from PIL import Image

from jaxaug.__main__ import main
from jaxaug._shards import pack_shards, shards_of_bytes
from jaxaug.decode import Ragged, Span, decode_image
from jaxaug.errors import SourceError
from jaxaug.iterators import ArrayRecord, ImageFolder, InMemory, Subset, WebDataset
from tests.iterators.sources import containers

COUNT = 11


def source_of():
    weights = np.float32(np.arange(COUNT) / 3)
    features = {"label": np.arange(COUNT) * 7, "weight": weights}
    return InMemory(containers.jpegs(COUNT), features)


def check(source):
    order = np.arange(COUNT)
    columns = dict(source.read(order))
    image = columns.pop("image")
    wanted = [containers.jpegs(COUNT)[index] for index in order]
    assert [bytes(image.view(row)) for row in range(COUNT)] == wanted
    assert columns["label"].tolist() == (order * 7).tolist()
    assert columns["weight"].tolist() == np.float32(order / 3).tolist()


@pytest.mark.parametrize("extension", ["tar", "arrayrecord"])
def test_parts_make_the_shards_of_a_source(tmp_path, extension):
    if extension == "arrayrecord":
        pytest.importorskip("array_record")
    out = tmp_path / f"x.{extension}"
    assert pack_shards(source_of(), out, 3, 1, 2) == (1, 0)
    assert pack_shards(source_of(), out, 3, 0, 2) == (2, 0)
    names = [f"x-{number:05d}-of-00003.{extension}" for number in range(3)]
    assert sorted(os.listdir(tmp_path)) == [*names, "x-of-00003.json"]
    kind = WebDataset if extension == "tar" else ArrayRecord
    check(kind(tmp_path / f"x-*.{extension}"))

    before = [(tmp_path / name).read_bytes() for name in names]
    (tmp_path / names[1]).unlink()
    (tmp_path / f"{names[1]}.part").write_bytes(b"killed")
    assert pack_shards(source_of(), out, 3) == (3, 2)
    assert [(tmp_path / name).read_bytes() for name in names] == before or kind is ArrayRecord
    check(kind(tmp_path / f"x-*.{extension}"))


def test_a_changed_source_is_noticed_where_it_gives_another_number_of_shards(tmp_path):
    pack_shards(source_of(), tmp_path / "x.tar", 2)
    pack_shards(source_of(), tmp_path / "x.tar", 3)
    with pytest.raises(SourceError, match="begun from another source"):
        pack_shards(Subset(source_of(), np.arange(4)), tmp_path / "x.tar", 1)
    pack_shards(Subset(source_of(), np.arange(4)), tmp_path / "x-of-4.tar", 1)


def test_shards_that_were_begun_from_another_source_are_refused(tmp_path):
    pack_shards(source_of(), tmp_path / "x.tar", 2, 0, 2)
    with pytest.raises(SourceError, match="begun from another source"):
        pack_shards(Subset(source_of(), range(10)), tmp_path / "x.tar", 2)
    with pytest.raises(SourceError, match=r"must end in \.tar or \.arrayrecord"):
        pack_shards(source_of(), tmp_path / "x.zip", 2)
    with pytest.raises(ValueError, match="shard have a record"):
        pack_shards(source_of(), tmp_path / "y.tar", 12)


def test_a_record_without_bytes_ends_the_shard_and_leaves_no_file(tmp_path):
    images = [*containers.jpegs(3), b""]
    with pytest.raises(SourceError, match=r"record 3, \['image'\]"):
        pack_shards(InMemory(images), tmp_path / "x.tar", 2)
    assert sorted(os.listdir(tmp_path)) == ["x-00000-of-00002.tar", "x-of-00002.json"]


@pytest.mark.parametrize("what", ["parts of files", "several files a record"])
def test_what_is_no_whole_file_is_refused(tmp_path, monkeypatch, what):
    read = InMemory.read

    def changed(self, indices):
        columns = read(self, indices)
        count = len(indices)
        if what == "parts of files":
            span = Span(np.zeros(count), np.ones(count))
            return columns | {"image": columns["image"]._replace(span=span)}
        return columns | {"image": Ragged(columns["image"], np.ones(count, int), max_length=1)}

    monkeypatch.setattr(InMemory, "read", changed)
    with pytest.raises(SourceError, match=f"column 'image' has {what}"):
        pack_shards(source_of(), tmp_path / "x.tar", 2)
    assert os.listdir(tmp_path) == ["x-of-00002.json"]


def test_the_command_packs_shards_by_parts(tmp_path, capsys):
    for number, image in enumerate(containers.jpegs(6)):
        folder = tmp_path / "images" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(image)
    command = ["pack", str(tmp_path / "images"), str(tmp_path / "x.tar"), "--shards", "3"]
    for part in range(2):
        assert main([*command, "--part", f"{part}/2"]) == 0
    assert "2 shards, 0 known" in capsys.readouterr().out
    source = WebDataset(tmp_path / "x-*.tar")
    folder = ImageFolder(tmp_path / "images")
    assert source.classes == ("a", "b")
    assert source.features["label"].tolist() == folder.features["label"].tolist()
    with pytest.raises(SystemExit):
        main(["pack", str(tmp_path / "images"), str(tmp_path / "y.tar"), "--part", "0/2"])
    again = ["pack", str(tmp_path / "x-*.tar"), str(tmp_path / "z.tar"), "--shards", "2"]
    assert main(again) == 0
    repacked = WebDataset(tmp_path / "z-*.tar")
    assert repacked.classes == ("a", "b") and len(repacked) == 6


def test_a_pack_that_was_interrupted_leaves_whole_shards(tmp_path, monkeypatch):
    read = InMemory.read

    def interrupted(self, indices):
        if 9 in indices:
            raise KeyboardInterrupt
        return read(self, indices)

    monkeypatch.setattr(InMemory, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pack_shards(source_of(), tmp_path / "x.tar", 3)
    assert len(list(tmp_path.glob("*.tar"))) == 2 and not list(tmp_path.glob("*.part"))
    monkeypatch.undo()
    assert pack_shards(source_of(), tmp_path / "x.tar", 3) == (3, 2)
    check(WebDataset(tmp_path / "x-*.tar"))


def test_a_part_that_runs_twice_at_a_time_writes_whole_shards(tmp_path, monkeypatch):
    """As that of a job that was taken for dead, and started elsewhere."""
    read = InMemory.read
    found = []

    def twice(self, indices):
        if not found:
            found.append(None)
            found[0] = pack_shards(source_of(), tmp_path / "x.tar", 3)
        return read(self, indices)

    monkeypatch.setattr(InMemory, "read", twice)
    assert pack_shards(source_of(), tmp_path / "x.tar", 3) == (3, 2) and found == [(3, 0)]
    assert len(os.listdir(tmp_path)) == 4  # three shards and what they are of
    check(WebDataset(tmp_path / "x-*.tar"))


def test_columns_that_differ_in_case_alone_are_refused(tmp_path):
    pairs = np.zeros((COUNT, 2))
    source = InMemory(containers.jpegs(COUNT), {"Box": pairs, "box": pairs + 1})
    with pytest.raises(SourceError, match=r"\['Box', 'box'\] differ in case alone"):
        pack_shards(source, tmp_path / "x.tar", 1)


def photographs(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(12):
        pixels = rng.integers(0, 256, (40 + number, 60, 3), dtype=np.uint8)
        folder = tmp_path / "in" / f"c{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return ImageFolder(tmp_path / "in")


def test_images_are_shrunk_to_a_side(tmp_path):
    source = photographs(tmp_path)
    pack_shards(source, tmp_path / "x.tar", 2, resize=20)
    packed = WebDataset(tmp_path / "x-*.tar")
    assert packed.classes == source.classes
    ours, theirs = (each.read(np.arange(12)) for each in (packed, source))
    assert ours["label"].tolist() == theirs["label"].tolist()
    for row in range(12):
        with Image.open(io.BytesIO(theirs["image"].view(row))) as image:
            size = (round(60 * 20 / image.height), 20)
            wanted = np.asarray(image.resize(size, Image.Resampling.BICUBIC), float)
        found = decode_image(bytes(ours["image"].view(row))).astype(float)
        assert found.shape == wanted.shape and abs(found - wanted).mean() < 4
    pack_shards(source, tmp_path / "y.tar", 1, resize=500)  # none is enlarged, or stored anew
    same = WebDataset(tmp_path / "y-*.tar").read(np.arange(12))["image"]
    assert all(bytes(same.view(row)) == bytes(theirs["image"].view(row)) for row in range(12))
    with pytest.raises(SourceError, match="begun from another source"):
        pack_shards(source, tmp_path / "x.tar", 2)
    boxes = InMemory(containers.jpegs(COUNT), {"boxes": np.zeros((COUNT, 1, 4), np.float32)})
    with pytest.raises(SourceError, match=r"\['boxes'\] would not follow"):
        pack_shards(boxes, tmp_path / "z.tar", 1, resize=20)


@pytest.mark.parametrize("size", [20_000, 60_000, 1e9])
def test_shards_have_about_so_many_bytes(tmp_path, capsys, size):
    photographs(tmp_path)
    main(["pack", str(tmp_path / "in"), str(tmp_path / "x.tar"), "--shard-bytes", str(size)])
    sizes = [path.stat().st_size for path in tmp_path.glob("x-*.tar")]
    assert f"{len(sizes)} shards" in capsys.readouterr().out
    ends = 10_240 + 2048  # of a tar, and the names of the classes
    assert max(sizes) <= size + ends and (size > 1e8 or min(sizes) > 0.3 * size)
    assert len(WebDataset(tmp_path / "x-*.tar")) == 12


def test_arrays_count_among_the_bytes_of_shards(tmp_path):
    source = InMemory(containers.jpegs(COUNT), {"spectrum": np.ones((COUNT, 5000), np.float32)})
    pack_shards(source, tmp_path / "x.tar", shards_of_bytes(source, 1e5))
    sizes = [path.stat().st_size for path in tmp_path.glob("x-*.tar")]
    assert len(sizes) > 1 and max(sizes) <= 1e5 + 10_240  # the end of a tar


@pytest.mark.parametrize("size", ["nan", "0", "-1e6"])
def test_bytes_of_shards_that_are_no_size_are_refused(tmp_path, capsys, size):
    photographs(tmp_path)
    with pytest.raises(SystemExit):
        main(["pack", str(tmp_path / "in"), str(tmp_path / "x.tar"), f"--shard-bytes={size}"])
    assert "--shard-bytes must be" in capsys.readouterr().err
