"""The command `verify`: it finds what a Loader would take, and Loaders believe it."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from jaxaug import Loader, _verify
from jaxaug.__main__ import main
from jaxaug._verify import find_fault, verify
from jaxaug.decode import Encoded, read_headers
from jaxaug.errors import DecodeError, SourceError
from jaxaug.iterators import FileList, ImageFolder, Subset, WebDataset
from tests.decode.image.test_strict import DAMAGED
from tests.decode.samples import JPEGS, PICTURE
from tests.images import encode
from tests.iterators.loaders import one_device
from tests.iterators.sources import containers
from tests.pieces import killed_behind_a_piece

GOOD = JPEGS["4:2:0"]
BAD = DAMAGED["an unknown marker"]  # a Loader takes it by itself


def folder(root, files, name="{}.jpg"):
    for number, file in enumerate(files):
        path = root / "abc"[number % 3] / name.format(f"{number:03d}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file)
    return root


def valid(source, count):
    with Loader(
        source, count, shuffle=False, on_error="mask", sharding=one_device(), max_bad=None
    ) as loader:
        batch = next(loader)
        return np.asarray(batch["valid"]).tolist(), loader.stats["bad_records"]


def test_a_tar_keeps_it_in_its_index(tmp_path, capsys):
    files = {f"{i}.{kind}": file for i in range(4) for kind, file in (("jpg", GOOD), ("cls", b"1"))}
    files["2.jpg"] = BAD
    tar = tmp_path / "a.tar"
    tar.write_bytes(containers.tar(files))
    assert valid(WebDataset(tar), 4)[0] == [True] * 4
    fingerprint = WebDataset(tar).fingerprint()

    assert main(["verify", str(tar), "--processes", "1", "--out", str(tmp_path / "o.json")]) == 1
    said = capsys.readouterr().out
    assert "  2  " in said and "a.tar, 2  the marker FF5A" in said
    assert "1 of 4 records are bad. Checked 4 in " in said and "records/s" in said
    (entry,) = json.loads((tmp_path / "o.json").read_text())
    assert entry["record"] == 2 and entry["file"].endswith("a.tar, 2")

    source = WebDataset(tar)
    assert source.fingerprint() == fingerprint  # a run resumes
    flags, (bad,) = valid(source, 4)
    assert flags == [True, True, False, True]
    assert bad["index"] == 2 and bad["reason"].startswith("the marker FF5A")
    assert source.describe(2)["key"] == "2"
    assert valid(Subset(source, [2, 3]), 2)[0] == [False, True]
    with (
        Loader(source, 4, shuffle=False, sharding=one_device()) as loader,
        pytest.raises(DecodeError, match="the marker FF5A"),
    ):
        next(loader)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".index", ".json", ".tar"]

    tar.write_bytes(containers.tar(files | {"2.jpg": GOOD}))  # mended
    assert valid(WebDataset(tar), 4)[0] == [True] * 4
    assert main(["verify", str(tar), "--processes", "1"]) == 0


def test_a_folder_keeps_it_in_a_file_until_a_file_changes(tmp_path, capsys):
    root = folder(tmp_path / "train", [GOOD, BAD, GOOD, GOOD[:300]])
    assert main(["verify", str(root), "--processes", "1"]) == 1
    said = capsys.readouterr().out
    assert "001.jpg  the marker FF5A" in said and "003.jpg  " in said and "2 of 4 records" in said
    assert sorted(os.listdir(root)) == ["a", "b", "c", "jaxaug-bad.json"]

    source = ImageFolder(root)
    paths = [source.path(index) for index in range(4)]
    flags, bad = valid(source, 4)
    assert [path[-7:] for path, flag in zip(paths, flags) if not flag] == ["003.jpg", "001.jpg"]
    assert "FF5A" in " ".join(each["reason"] for each in bad)
    listed = tmp_path / "list.txt"
    listed.write_text("train/a/000.jpg 1\ntrain/b/001.jpg 2\n")
    assert valid(FileList(listed), 2)[0] == [True, True]  # of another folder
    assert main(["verify", str(listed), "--processes", "1"]) == 1
    assert valid(FileList(listed), 2)[0] == [True, False]

    (root / "b/001.jpg").write_bytes(GOOD)
    assert sum(valid(ImageFolder(root), 4)[0]) == 3
    (root / "jaxaug-bad.json").write_text("damaged")
    assert sum(valid(ImageFolder(root), 4)[0]) == 3  # 300 bytes of a JPEG: its header tells


class Unreadable(ImageFolder):
    """Its record 1 cannot be read, as without permission, which a root user has."""

    def read(self, indices):
        columns = super().read(indices)
        encoded = columns["image"]
        return {"image": encoded._replace(lengths=encoded.lengths * (indices != 1))}

    def describe(self, index):
        return super().describe(index) | ({"error": "cannot be read"} if index == 1 else {})


def test_what_could_not_be_read_is_listed_and_not_kept(tmp_path):
    root = folder(tmp_path, [GOOD, GOOD, BAD])
    result = verify(Unreadable(root), 1)
    assert result.findings.keys() == {1, 2} and result.findings[1] == "cannot be read"
    assert valid(ImageFolder(root), 3)[0] == [True, True, False]


@pytest.mark.parametrize("words", ["", " 0.5", " 1 2", " two gray cats"])
def test_lists_of_any_labels_are_taken(tmp_path, words, capsys):
    folder(tmp_path / "train", [GOOD, BAD])
    listed = tmp_path / "list.txt"
    listed.write_text(f"train/a/000.jpg{words}\ntrain/b/001.jpg{words}\n")
    assert main(["verify", str(listed), "--processes", "1"]) == 1
    assert "1 of 2 records" in capsys.readouterr().out


def test_a_run_that_was_killed_goes_on(tmp_path):
    root = folder(tmp_path, [GOOD, BAD] * 70)
    source = ImageFolder(root)
    with killed_behind_a_piece(_verify):
        verify(source, 1)
    assert sum(valid(ImageFolder(root), 140)[0]) == 140  # nothing is believed before the end
    journal = root / "jaxaug-bad.json.verify"
    with open(journal, "a") as file:
        file.write('[64, {"70": "cut')

    result = verify(source, 1)
    assert result.checked == 140 - 64 and result.records == 140
    names = [source.path(index)[-7:-4] for index in result.findings]
    assert sorted(names) == [f"{number:03d}" for number in range(1, 140, 2)]
    assert not journal.exists()
    again = verify(ImageFolder(root), 2)  # of a source that believes them: found anew
    assert again.checked == 140 and again.findings == result.findings


# The third piece is never written, however late it is that somebody looks.
PAUSES = """
import itertools, sys, time
from jaxaug import _verify
from jaxaug.__main__ import main
add, pieces = _verify.Journal.add, itertools.count(1)
def pausing(journal, *piece):
    if next(pieces) == 3:
        time.sleep(600)
    add(journal, *piece)
_verify.Journal.add = pausing
main(sys.argv[1:])
"""


def test_no_process_outlives_a_kill(tmp_path):
    """Of a real one: the journal stays, and the processes that decode end."""
    root = folder(tmp_path, [encode(np.tile(PICTURE, (20, 20, 1)))] * 640)
    command = [sys.executable, "-c", PAUSES, "verify", str(root), "--processes", "2"]
    journal = root / "jaxaug-bad.json.verify"
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        while not journal.exists() or journal.read_text().count("\n") < 3:
            assert running.poll() is None
            time.sleep(0.02)
        running.kill()
        # The pipe is at its end when all who could write to it are gone.
        assert running.stdout is not None and running.stdout.read() == b""
    done = journal.read_text().count("\n") - 1
    result = verify(ImageFolder(root), 2)
    assert 0 < result.checked <= 640 - 64 * (done - 1) and not result.findings


def test_where_the_folder_cannot_be_written_the_cache_keeps_it(tmp_path, monkeypatch):
    root = tmp_path / "data"
    root.mkdir()
    for number, file in enumerate((GOOD, BAD)):
        (root / f"{number}.jpg").write_bytes(file)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (root / "jaxaug-bad.json").mkdir()  # the tests may run as root, who writes anywhere
    result = verify(ImageFolder(root), 1)
    assert result.place.startswith(str(tmp_path / "cache"))
    assert sum(valid(ImageFolder(root), 2)[0]) == 1
    shutil.rmtree(tmp_path / "cache")
    assert sum(valid(ImageFolder(root), 2)[0]) == 2
    (tmp_path / "cache").write_text("a file")
    nowhere = rf"no findings can be written to '{root}/.* or '{tmp_path}/cache/jaxaug/.*: set XDG"
    with pytest.raises(SourceError, match=nowhere):
        verify(ImageFolder(root), 1)


def test_masks_are_looked_at_too(tmp_path, capsys):
    mask = encode(PICTURE[..., 0], "PNG")
    files = {}
    for number in range(3):
        files |= {f"{number}.jpg": GOOD, f"{number}.seg.png": mask if number else mask[:-60]}
    (tmp_path / "a.tar").write_bytes(containers.tar(files))
    assert main(["verify", str(tmp_path / "a.tar"), "--mask", "seg.png", "--processes", "1"]) == 1
    assert "a.tar, 0  the mask: PNG: " in capsys.readouterr().out
    assert valid(WebDataset(tmp_path / "a.tar", mask="seg.png"), 3)[0] == [False, True, True]


def test_a_list_is_bad_if_one_of_its_images_is(tmp_path, capsys):
    lists = ([GOOD], [GOOD, BAD, GOOD], [GOOD, GOOD])
    names = {f"{n}.{k}.jpg": file for n, each in enumerate(lists) for k, file in enumerate(each)}
    (tmp_path / "a.tar").write_bytes(containers.tar(names))
    options = ["--image", "*.jpg", "--label", "", "--processes", "1"]
    assert main(["verify", str(tmp_path / "a.tar"), *options]) == 1
    assert "a.tar, 1  the marker FF5A" in capsys.readouterr().out
    source = WebDataset(tmp_path / "a.tar", image="*.jpg", label=None)
    good, bad = valid(source, 3)
    assert good == [True, False, True]
    assert [entry["reason"][:15] for entry in bad] == ["the marker FF5A"]


def test_packing_takes_what_was_found_bad_along(tmp_path):
    root = folder(tmp_path / "train", [GOOD, BAD, GOOD])
    verify(ImageFolder(root), 1)
    assert main(["pack", str(root), str(tmp_path / "a.tar")]) == 0
    images = WebDataset(tmp_path / "a.tar").read(np.arange(3))["image"]
    assert (read_headers(images).kind == 1).all()


@pytest.mark.parametrize("name", JPEGS)
def test_whole_files_have_no_fault(name):
    assert find_fault(Encoded.from_bytes([JPEGS[name]])) == ""


@pytest.mark.parametrize("form", [(np.uint16, 13), (np.float32, 1), (np.int16, 1), (np.float64, 5)])
def test_numbers_that_are_no_colors_are_read_as_they_are_stored(tmp_path, form):
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    dtype, channels = form
    pixels = np.arange(8 * 6 * channels).reshape(8, 6, channels).astype(dtype)
    pixels = pixels if channels > 1 else pixels[..., 0]
    options = {"photometric": "minisblack", "planarconfig": "contig", "compression": "zlib"}
    tifffile.imwrite(tmp_path / "a.tif", pixels, metadata=None, **options)
    data = (tmp_path / "a.tif").read_bytes()
    assert find_fault(Encoded.from_bytes([data])) == ""
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        start = file.pages[0].dataoffsets[0]
    damaged = data[:start] + bytes(20) + data[start + 20 :]
    assert "TIFF: " in find_fault(Encoded.from_bytes([damaged]))
