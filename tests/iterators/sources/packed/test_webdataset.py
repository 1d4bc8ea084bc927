"""WebDataset: tar formats, grouping by key, features, damage; and packing a folder."""

import io
import json
import os
import subprocess
import tarfile

import jax
import numpy as np
import pytest

from jaxaug import Loader, _pack
from jaxaug._pack import build_index, pack_files
from jaxaug.errors import SourceError
from jaxaug.iterators import FileList, ImageFolder
from jaxaug.iterators.sources.packed import columns
from jaxaug.iterators.sources.packed.tar import members
from jaxaug.iterators.sources.packed.tfrecord import TFRecord
from jaxaug.iterators.sources.packed.webdataset import WebDataset
from jaxaug.iterators.sources.storage import index as index_file
from jaxaug.iterators.sources.storage.files import list_files
from jaxaug.iterators.sources.storage.read import BlockReader, FileReader
from jaxaug.sharding import batch_sharding
from tests.iterators.sources import containers

LONG = (
    "a/very/" + "deep/" * 30 + "n" * 90
)  # 247 characters, so that gnu needs a long name and ustar a prefix
FORMATS = {"gnu": tarfile.GNU_FORMAT, "ustar": tarfile.USTAR_FORMAT, "pax": tarfile.PAX_FORMAT}


def write(folder, files, name="a.tar", format=tarfile.PAX_FORMAT):
    path = folder / name
    path.write_bytes(containers.tar(files, format))
    return path


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_every_tar_format(tmp_path, format, mmap):
    first, second, third = containers.jpegs(3)
    accented = "é" if format == "ustar" else "é€" * 60
    files = {
        f"{LONG}.jpg": first,
        f"{LONG}.cls": b"2",
        f"{accented}.JPG": second,
        f"{accented}.cls": b" 0\n",
        "plain.jpeg": third,
        "plain.cls": b"1",
    }
    source = WebDataset(write(tmp_path, files, format=FORMATS[format]), mmap=mmap)
    features = dict(source.read(np.array([2, 0, 1])))
    encoded = features.pop("image")
    assert [bytes(encoded.view(row)) for row in range(3)] == [third, first, second]
    assert features["label"].dtype == np.int32 and features["label"].tolist() == [1, 2, 0]
    assert [source.describe(index)["key"] for index in range(3)] == [LONG, accented, "plain"]


@pytest.mark.parametrize("format", FORMATS)
def test_members_agree_with_tarfile(tmp_path, format):
    """Folders, links, empty files, sizes around the block of 512 bytes."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=FORMATS[format]) as archive:
        for number, size in enumerate([0, 1, 511, 512, 513, 5000]):
            folder = tarfile.TarInfo(f"d{number}")
            link = tarfile.TarInfo(f"link{number}")
            folder.type = tarfile.DIRTYPE
            link.type = tarfile.SYMTYPE
            link.linkname = "x" * 99
            archive.addfile(folder)
            archive.addfile(link)
            member = tarfile.TarInfo(f"d{number}/file")
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))
    (file,) = list_files(path)
    with tarfile.open(path) as archive:
        kinds = {tarfile.SYMTYPE: "symbolic", tarfile.LNKTYPE: "hard"}
        found = [member for member in archive if not member.isdir()]
        expected = [(m.name, m.offset, m.offset_data, m.size, kinds.get(m.type, "")) for m in found]
    assert [
        tuple(member) for member in members(BlockReader(FileReader(), file, block=1024))
    ] == expected


def test_a_size_beyond_octal(tmp_path):
    """GNU tar writes sizes of 8 GiB and more in binary; the data itself is a hole in the file."""
    size = 9 << 30
    path = tmp_path / "big.tar"
    member = tarfile.TarInfo("big.jpg")
    member.size = size
    with open(path, "wb") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.truncate(512 + size + 1024)
    (file,) = list_files(path)
    walk = members(BlockReader(FileReader(), file, block=1024))
    assert tuple(next(walk)) == ("big.jpg", 0, 512, size, "") and list(walk) == []


def test_a_size_in_a_pax_header_counts(tmp_path):
    """For files of 8 GiB and more; some writers leave 0 in the header behind it."""
    member = tarfile.TarInfo("a.jpg")
    behind = member.tobuf(tarfile.USTAR_FORMAT)
    member.pax_headers = {"size": "700"}
    before = member.tobuf(tarfile.PAX_FORMAT)[:-512]
    other = tarfile.TarInfo("b.jpg").tobuf(tarfile.USTAR_FORMAT)
    path = tmp_path / "a.tar"
    path.write_bytes(before + behind + bytes(1024) + other + bytes(1024))
    (file,) = list_files(path)
    with tarfile.open(path) as archive:
        expected = [(m.name, m.offset, m.offset_data, m.size, "") for m in archive]
    assert expected[0][3] == 700
    assert [*map(tuple, members(BlockReader(FileReader(), file)))] == expected


def test_times_in_an_old_header_of_gnu_are_no_prefix(tmp_path):
    """It has them where ustar has the prefix of a name."""
    header = bytearray(tarfile.TarInfo("a.jpg").tobuf(tarfile.GNU_FORMAT))
    header[345:369] = b"14751270000\0" * 2
    header[148:156] = b" " * 8
    header[148:155] = b"%06o\0" % sum(header)
    path = tmp_path / "a.tar"
    path.write_bytes(bytes(header) + bytes(1024))
    (file,) = list_files(path)
    assert [member.name for member in members(BlockReader(FileReader(), file))] == ["a.jpg"]


def test_members_become_features_and_strings(tmp_path):
    one, two, three = containers.jpegs(3)
    files = {
        "x/1.json": json.dumps(
            {"width": 7, "score": 1, "half": True, "name": "n", "huge": 2**80, "one": 2**63}
        ).encode(),
        "x/1.seg.png": b"a mask",
        "x/1.jpg": one,
        "x/1.txt": "größer".encode(),
        "x/2.png": two,
        "x/2.json": json.dumps({"width": 9, "score": 0.5, "half": False, "only here": 4}).encode(),
        "y/2.jpg": three,
        "y/2.png": b"not chosen: jpg comes first",
        "y/2.json": b'{"width": 1, "score": 2, "half": true}',
    }
    path = write(tmp_path, files)
    with pytest.raises(SourceError, match=r"'only here' has no number in 2 of 3 records.*record 0"):
        WebDataset(path)
    source = WebDataset(path, nulls="count")
    features = dict(source.read(np.arange(3)))
    encoded = features.pop("image")
    assert [bytes(encoded.view(row)) for row in range(3)] == [one, two, three]
    assert {name: column.tolist() for name, column in features.items()} == {
        "width": [7, 9, 1],
        "score": [1, 0.5, 2],
        "half": [1, 0, 1],
        "only here": [0, 4, 0],
        "only here_count": [0, 1, 0],
    }
    assert features["score"].dtype == np.float32 and features["width"].dtype == np.int32
    about = source.describe(0)
    assert (about["key"], about["txt"], about["json"]["name"], about["record"]) == (
        "x/1",
        "größer",
        "n",
        0,
    )
    assert source.describe(2)["record_in_file"] == 2 and "txt" not in source.describe(2)


def test_several_shards_by_braces(tmp_path):
    files = containers.labelled_files(7)
    names = list(files)
    for shard in range(3):
        mine = {name: files[name] for number, name in enumerate(names) if number // 2 % 3 == shard}
        write(tmp_path, mine, f"a-{shard:03d}.tar")
    source = WebDataset(str(tmp_path / "a-{000..002}.tar"))
    assert containers.images_by_label(source) == dict(enumerate(containers.jpegs(7)))
    assert [source.describe(index)["record_in_file"] for index in range(7)] == [0, 1, 2, 0, 1, 0, 1]
    with pytest.raises(SourceError, match=r"a-003.tar' cannot be opened"):
        WebDataset(str(tmp_path / "a-{000..003}.tar"))


@pytest.mark.parametrize(
    "braces", ["{10..8}", "{010..8}", "{3..001}", "{0..2}", "{00..2}", "{10..08}", "{10..0}"]
)
def test_braces_are_those_of_bash(tmp_path, braces):
    told = subprocess.run(["bash", "-c", f"echo {braces}"], capture_output=True, check=True)
    names = told.stdout.decode().split()
    for name in names:
        (tmp_path / f"{name}.tar").write_bytes(b"")
    found = list_files([tmp_path / f"{names[0]}.tar", str(tmp_path / f"{braces}.tar")])
    assert [os.path.basename(file.path) for file in found[1:]] == [f"{name}.tar" for name in names]


@pytest.mark.parametrize(
    "files, message",
    [
        ({"a.txt": b"1"}, r"'a' has no image \['jpg', 'jpeg'.*it has \['txt'\]"),
        (
            {"a.jpg": b"1", "b.jpg": b"2", "a.cls": b"3"},
            r"'a' has no image .* it has \['cls'\]: members of one record must follow each other, "
            "and other extensions be named, by `image` or `video`",
        ),
        (
            {"img.0001.jpg": b"1", "img.0002.jpg": b"2"},
            r"'0002.jpg'\]: a name's key ends at its first dot; image='\*\.jpg'",
        ),
        ({"a.jpg": b"1", "a.cls": b"cat"}, r"'a.cls' is no integer but b'cat'"),
        ({"a.jpg": b"1", "a.json": b"{"}, r"'a.json' is no JSON"),
        ({"a.jpg": b"1", "a.JPG": b"2"}, r"'a' has two members with the extension 'jpg'"),
        (
            {"a.jpg": b"1", "a.cls": b"1", "b.jpg": b"2"},
            r"`label`: no single .* in 1 of 2 records, .* record 1, number 1 in '.*tar': leave",
        ),
        (
            {
                "a.jpg": b"1",
                "a.json": b'{"label": 2}',
                "b.jpg": b"1",
                "b.json": b'{"label": 1.5}',
            },
            r"`label` must be class numbers \(int32\), got 1.5 in record 1: .*\"target\"",
        ),
        (
            {"a.jpg": b"1", "a.cls": b"3000000000"},
            r"`label` must be class numbers \(int32\), got 3000000000 in record 0",
        ),
        ({"a.jpg": b"1", "a.json": b'{"label": true}'}, r"`label` must .* got True in record 0"),
        ({"__classes__": b"[]"}, r"no records in 1 file"),
    ],
)
def test_wrong_contents_are_named(tmp_path, files, message):
    with pytest.raises(SourceError, match=message):
        WebDataset(write(tmp_path, files))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", ["hard", "symbolic"])
def test_links_are_named_and_not_left_out(tmp_path, format, kind):
    """As tarfile, and GNU tar, store the second name of a file."""
    for name, data in containers.labelled_files(2).items():
        (tmp_path / name).write_bytes(data)
    (os.link if kind == "hard" else os.symlink)(tmp_path / "0000.jpg", tmp_path / "0002.jpg")
    (tmp_path / "0002.cls").write_bytes(b"2")
    names = sorted(path.name for path in tmp_path.iterdir())
    for dereference, name in ((False, "links.tar"), (True, "whole.tar")):
        with tarfile.open(
            tmp_path / name, "w", format=FORMATS[format], dereference=dereference
        ) as archive:
            for member in names:
                archive.add(tmp_path / member, member)
                if dereference:
                    archive.inodes.clear()  # and --hard-dereference
    with pytest.raises(
        SourceError, match=rf"'0002.jpg' is a {kind} link; .*--dereference --hard-dereference"
    ):
        WebDataset(tmp_path / "links.tar")
    first, second = containers.jpegs(2)
    assert containers.images_by_label(WebDataset(tmp_path / "whole.tar")) == {
        0: first,
        1: second,
        2: first,
    }


def test_what_systems_and_tools_leave_behind_is_skipped(tmp_path):
    """As webdataset's `base_plus_ext` and `skip_meta` do."""
    one, two = containers.jpegs(2)
    members = [
        ("README", b"about"),
        ("./__meta__.json", b"not json"),
        ("__meta__", b"x"),
        ("__more__/a.jpg", b"x"),
        (".DS_Store", b"x"),
        ("./._a.jpg", b"AppleDouble"),
        ("./a.jpg", one),
        ("./._a.cls", b"AppleDouble"),
        ("./LICENSE", b"x"),
        ("./a.cls", b"4"),
        ("./b/._c.jpg", b"AppleDouble"),
        ("./b/c.jpg", two),
        ("./b/c.cls", b"5"),
        ("./__classes__", b'["x"]'),
    ]
    source = WebDataset(write(tmp_path, dict(members)))
    assert containers.images_by_label(source) == {4: one, 5: two} and source.classes == ("x",)
    assert [source.describe(index)["key"] for index in range(2)] == ["./a", "./b/c"]
    latest = tarfile.TarInfo("latest")
    latest.type = tarfile.SYMTYPE
    latest.linkname = "a.jpg"
    (tmp_path / "link.tar").write_bytes(latest.tobuf() + (tmp_path / "a.tar").read_bytes())
    assert len(WebDataset(tmp_path / "link.tar")) == 2


@pytest.mark.parametrize(
    "cut, message",
    [
        (700, r"is cut within the member '0000.jpg' \(byte 0\)"),
        (-11000, r"it was cut|is cut within"),
        (200, r"ends without the blocks of zeros"),
        (0, r"ends without the blocks of zeros"),
    ],
)
def test_a_cut_tar_is_an_error(tmp_path, cut, message):
    path = write(tmp_path, containers.labelled_files(20))
    os.truncate(path, cut if cut >= 0 else path.stat().st_size + cut)
    with pytest.raises(SourceError, match=message):
        WebDataset(path)


def test_what_is_no_tar_is_called_so(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"a JPEG, say" * 100)
    with pytest.raises(SourceError, match=r"x\.tar' is damaged.* Is it a tar at all\?"):
        WebDataset(tmp_path / "x.tar")


def test_a_tar_without_its_end_and_one_with_two(tmp_path):
    data = containers.tar(containers.labelled_files(2)).rstrip(b"\0")
    whole = -(-len(data) // 512) * 512
    (tmp_path / "cut.tar").write_bytes(data.ljust(whole, b"\0"))
    with pytest.raises(SourceError, match="ends without the blocks of zeros"):
        WebDataset(tmp_path / "cut.tar")
    archive = containers.tar(containers.labelled_files(2))
    (tmp_path / "two.tar").write_bytes(archive + archive)
    with pytest.raises(SourceError, match="has data behind its end"):
        WebDataset(tmp_path / "two.tar")


@pytest.mark.parametrize("count", [150, pytest.param(4000, marks=pytest.mark.slow)])
def test_mutated_tars_give_an_error_or_what_tarfile_finds(tmp_path, count):
    """A tar has no checksum of its data, so the file's own bytes are the truth, found by another
    reader.
    """
    good = containers.tar(containers.labelled_files(3), tarfile.GNU_FORMAT).rstrip(b"\0") + bytes(
        2048
    )
    good = good[: len(good) // 512 * 512]
    generator = np.random.default_rng(count)
    refused = 0
    for number in range(count):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(containers.mutate(good, generator))
        try:
            source = WebDataset(path)
        except SourceError:
            refused += 1
            continue
        with tarfile.open(path) as archive:
            truth = {
                member.name: archive.extractfile(member).read()
                for member in archive
                if member.isreg()
            }
        features = dict(source.read(np.arange(len(source))))
        encoded = features.pop("image")
        for row in range(len(source)):
            key = source.describe(row)["key"]
            assert bytes(encoded.view(row)) == truth[f"{key}.jpg"]
            assert features["label"][row] == int(truth[f"{key}.cls"])
    assert 0.3 * count < refused < count


def make_folder(root):
    for index, image in enumerate(containers.jpegs(11)):
        folder = root / f"class.{index % 3}" / ("deeper" if index % 2 else "")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"some.name {index}{['.jpg', '.JPEG', '.jfif'][index % 3]}").write_bytes(image)
    (root / "class.0" / "notes.txt").write_text("no image")
    return root


def test_a_packed_folder_holds_what_the_folder_does(tmp_path):
    folder = ImageFolder(make_folder(tmp_path / "images"))
    packed = pack_files(folder, tmp_path / "images.tar")
    assert len(packed) == 11 and packed.classes == ("class.0", "class.1", "class.2")
    features, wanted = (source.read(np.arange(11)) for source in (packed, folder))
    assert [bytes(features["image"].view(row)) for row in range(11)] == [
        bytes(wanted["image"].view(row)) for row in range(11)
    ]
    assert features["label"].tolist() == wanted["label"].tolist()
    assert packed.describe(0)["key"].startswith("class.0/00-some_name")
    with pytest.raises(SourceError, match="exists"):
        pack_files(folder, tmp_path / "images.tar")


@pytest.mark.parametrize("text", ["{} 3\n{} 0\n{} 7\n", "{} 3 1\n{}\n{} 2 0 5\n", "{}\n{}\n{}\n"])
def test_a_packed_list_holds_what_the_list_does(tmp_path, text):
    images = containers.jpegs(3)
    names = ["here/a.b.jpg", "there/a.b.JPEG", "c.jpg"]
    for name, image in zip(names, images):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(image)
    (tmp_path / "list.txt").write_text(text.format(*names))
    source = FileList(tmp_path / "list.txt")
    packed = pack_files(source, tmp_path / "out" / "packed.tar")
    features, wanted = (dict(one.read(np.arange(3))) for one in (packed, source))
    ours = features.pop("image")
    del wanted["image"]
    assert [bytes(ours.view(row)) for row in range(3)] == images and packed.classes is None
    assert features.keys() == wanted.keys()
    assert all(features[name].tolist() == wanted[name].tolist() for name in wanted)
    assert [packed.describe(index)["key"] for index in range(3)] == ["0-a_b", "1-a_b", "2-c"]


def test_a_list_that_a_tar_cannot_hold(tmp_path):
    (tmp_path / "list.txt").write_text("a.jpg 1\nb.jpg\n")
    with pytest.raises(SourceError, match=r"some images of .* have one label and some none"):
        pack_files(FileList(tmp_path / "list.txt"), tmp_path / "packed.tar")


def test_the_index_that_checked_a_packed_tar_stays(tmp_path, monkeypatch):
    count = []
    build = index_file._build
    monkeypatch.setattr(index_file, "_build", lambda *args: count.append(1) or build(*args))
    pack_files(ImageFolder(make_folder(tmp_path / "images")), tmp_path / "out" / "images.tar")
    assert len(count) == 1
    assert sorted(name.rpartition(".")[2] for name in os.listdir(tmp_path / "out")) == [
        "index",
        "tar",
    ]


def test_a_tar_that_differs_never_gets_its_name(tmp_path, monkeypatch):
    folder = ImageFolder(make_folder(tmp_path / "images"))
    add = _pack.add_file

    def damage(tar, name, data):
        add(
            tar,
            name,
            data[:-1] + b"?"
            if name.startswith("class.1/05") and not name.endswith("cls")
            else data,
        )

    monkeypatch.setattr(_pack, "add_file", damage)
    with pytest.raises(SourceError, match=r"record 5 of .* differs from"):
        pack_files(folder, tmp_path / "images.tar")
    assert os.listdir(tmp_path) == ["images"]


def test_a_folder_that_cannot_be_read_leaves_no_tar(tmp_path):
    root = make_folder(tmp_path / "images")
    (root / "class.1" / "dangling.jpg").symlink_to("nowhere")
    with pytest.raises(SourceError, match=r"dangling.jpg' cannot be read: No such file"):
        pack_files(ImageFolder(root), tmp_path / "images.tar")
    assert os.listdir(tmp_path) == ["images"]


@pytest.mark.parametrize("name", ["label", "classes"])
def test_several_labels_in_json(tmp_path, name):
    one, two, three = containers.jpegs(3)
    files = {
        "a.jpg": one,
        "a.json": b'{"%s": [4, 1]}' % name.encode(),
        "b.jpg": two,
        "b.json": b'{"%s": [], "width": 3}' % name.encode(),
        "c.jpg": three,
        "c.json": b'{"%s": [2]}' % name.encode(),
    }
    options = {"nulls": "count"} | ({} if name == "label" else {"label": name})
    assert WebDataset(write(tmp_path, files), **options).features["label"].tolist() == [
        [4, 1],
        [-1, -1],
        [2, -1],
    ]


@pytest.mark.parametrize("label", ["cls", "kind"])
@pytest.mark.parametrize("value", ['"cat"', '["cat", "dog"]', "[1, 0.5]", "{}"])
def test_a_label_that_is_no_number_is_named(tmp_path, label, value):
    """And not left out, so that a training on it fails elsewhere."""
    name = "label" if label == "cls" else label
    files = {
        "a.jpg": containers.jpegs(1)[0],
        "a.json": b'{"%s": %s}' % (name.encode(), value.encode()),
    }
    tar = write(tmp_path, files)
    with pytest.raises(SourceError, match=r"'a\.json' has the label .*: pass label=None for none"):
        WebDataset(tar, label=label)
    source = WebDataset(tar, label=None)
    assert list(source.features) == []
    assert source.describe(0)["json"] == {name: json.loads(value)}


def test_the_format_is_told_by_content(tmp_path):
    tar = write(tmp_path, containers.labelled_files(2), "one.bin")
    (tmp_path / "two.bin").write_bytes(containers.tfrecord(containers.labelled_examples(2)))
    assert isinstance(build_index(tar), WebDataset)
    assert isinstance(build_index(tmp_path / "two.bin", label=None), TFRecord)


def test_an_index_is_made_whatever_becomes_of_records_without_a_number(tmp_path):
    tar = write(tmp_path, {"a.jpg": b"x", "a.json": b'{"x": 1}', "b.jpg": b"y"})
    place = build_index(tar).index_path
    with pytest.raises(SourceError, match="'x' has no number"):
        WebDataset(tar)
    source = WebDataset(tar, nulls="count")
    assert source.index_path == place and source.features["x_count"].tolist() == [1, 0]


@pytest.mark.parametrize("value", ['"wide"', "[1, null]", '["a"]', "{}"])
def test_what_was_asked_for_and_is_no_number_is_an_error(tmp_path, value):
    """`null` and a missing name are one thing, and `nulls` says what to do."""
    files = {"a.jpg": b"x", "a.json": b'{"x": [1]}', "b.jpg": b"y"}
    tar = write(tmp_path, files | {"b.json": b'{"x": %s}' % value.encode()})
    with pytest.raises(SourceError, match=r"'b\.json' has .* under 'x', which is no number"):
        WebDataset(tar, features=["x"])
    assert "x" not in WebDataset(tar, features=[]).features


def shard_of(tmp_path, objects, **members):
    """A tar of images with these JSON objects beside them."""
    files = {}
    for number, (image, found) in enumerate(zip(containers.jpegs(len(objects)), objects)):
        files |= {f"{number}.jpg": image, f"{number}.json": json.dumps(found).encode()}
        files |= {f"{number}.{extension}": data for extension, data in members.items()}
    (tmp_path / "a.tar").write_bytes(containers.tar(files))
    return tmp_path / "a.tar"


def test_features_of_json_are_chosen_and_renamed(tmp_path):
    found = {"index": 7, "size": 9, "width": 5, "tokens": [1, 2, 3]}
    path = shard_of(tmp_path, [found, found])
    assert sorted(WebDataset(path).features) == ["index", "size", "width"]
    source = WebDataset(path, features={"index": "uid", "tokens": "tokens"})
    assert source.features["uid"].tolist() == [7, 7]
    assert source.features["tokens"].tolist() == [[1, 2, 3], [1, 2, 3]]
    assert sorted(WebDataset(path, features=["width"]).features) == ["width"]
    assert WebDataset(path, features=[]).features == {}
    with Loader(
        source, 2, shuffle=False, sharding=batch_sharding(jax.devices("cpu")[:1])
    ) as loader:
        assert next(loader)["uid"].tolist() == [7, 7]


@pytest.mark.parametrize("chunk", [1, 2, 256])
def test_records_without_numbers_leave_the_others_as_they_are(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(columns, "_MAX_CHUNK_IMAGES", chunk)
    found = [{"ids": ids} for ids in ([], [], [16_777_217, 4], [])]
    source = WebDataset(shard_of(tmp_path, found), features=["ids"])
    assert source.features["ids"].dtype == np.int32
    assert source.features["ids"].tolist() == [[0, 0], [0, 0], [16_777_217, 4], [0, 0]]
    assert source.features["ids_length"].tolist() == [0, 0, 2, 0]


@pytest.mark.parametrize("label", [[4, 5], [[4, 6], [5, 7]], [[4], [5, 7]]])
def test_a_feature_beside_the_label_may_be_called_label_count(tmp_path, label):
    found = [{"label": each, "label_count": 8} for each in label]
    features = WebDataset(shard_of(tmp_path, found)).features
    assert features["label_count"].tolist() == [8, 8]
    assert features["label"][1].tolist() == label[1]


@pytest.mark.parametrize(
    "label, expected",
    [("cls", [4, 4]), ("label", [1, 2]), ("kind", [[5, 6], [7, -1]]), (None, None)],
)
def test_the_label_is_chosen(tmp_path, label, expected):
    path = shard_of(tmp_path, [{"label": 1, "kind": [5, 6]}, {"label": 2, "kind": [7]}], cls=b"4")
    features = WebDataset(path, label=label, features=[]).features
    assert expected == (features["label"].tolist() if "label" in features else None)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"features": ["no"]}, r"`features`: no record has numbers called \['no'\]"),
        ({"label": "no"}, "0.json' has no label 'no'"),
        ({"features": {"x": "y", "y": "y"}}, "'x' and 'y' would both be called 'y'"),
        ({"features": {"x": "label"}}, "would both be called 'label'"),
        ({"label": "x"}, "would both be called 'label'"),
        ({"features": "x"}, "`features` must be names, or new names by name, got 'x'"),
    ],
)
def test_features_of_json_that_are_none(tmp_path, options, message):
    path = shard_of(tmp_path, [{"x": 1, "y": 2, "label": 3}])
    with pytest.raises((SourceError, ValueError), match=message):
        WebDataset(path, **options)


def test_a_label_with_a_longer_extension(tmp_path):
    files = {"a.jpg": b"1", "a.kind.cls": b"3", "b.jpg": b"2", "b.kind.cls": b"5"}
    path = write(tmp_path, files)
    assert WebDataset(path, label="kind.cls").features["label"].tolist() == [3, 5]
    assert not WebDataset(path, label=None).features
    with pytest.raises(
        SourceError, match=r"has no 'cls' but \['kind.cls'\]: pass label='kind.cls'"
    ):
        WebDataset(path)
    with pytest.raises(SourceError, match=r"has no label 'other.cls'"):
        WebDataset(path, label="other.cls")
