"""The commands `index` and `pack`."""

import re

import numpy as np

from jaxaug.__main__ import main
from jaxaug.iterators import ImageFolder, WebDataset
from tests.iterators import containers


def test_index_tells_the_format_by_content_and_names_features(tmp_path, capsys):
    records = [containers.example({"image": image, "class": 7}) for image in containers.jpegs(3)]
    (tmp_path / "a.bin").write_bytes(containers.tfrecord(records))
    assert main(["index", str(tmp_path / "*.bin"), "--image", "image", "--label", "class"]) == 0
    assert "TFRecord(3 images in 1 files, ['label'])" in capsys.readouterr().out
    assert main(["index", str(tmp_path / "a.bin"), "--image", "image", "--label", ""]) == 0
    assert "['class']" in capsys.readouterr().out
    assert len(list(tmp_path.glob("*.index"))) == 2

    (tmp_path / "b.dat").write_bytes(containers.tar(containers.labelled_files(2)))
    assert main(["index", str(tmp_path / "b.dat"), "--image", "jpg"]) == 0
    assert "WebDataset(2 images in 1 files, ['label'])" in capsys.readouterr().out


def test_index_reports_errors_without_a_traceback(tmp_path, capsys):
    (tmp_path / "b.tar").write_bytes(containers.tar(containers.labelled_files(2)))
    assert main(["index", str(tmp_path / "b.tar"), "--label", "class"]) == 1
    assert "is a tar file, whose labels are in `cls` members" in capsys.readouterr().err
    assert main(["index", str(tmp_path / "missing-*.tar")]) == 1
    assert "matches no file" in capsys.readouterr().err


def test_pack_says_what_it_gained(tmp_path, capsys):
    for number, image in enumerate(containers.jpegs(4)):
        path = tmp_path / "images" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    assert main(["pack", str(tmp_path / "images"), str(tmp_path / "out.tar")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"[\d,]+ records/s from the files, [\d,]+ from the tar: \d+\.\d x", said)
    packed, folder = WebDataset(tmp_path / "out.tar"), ImageFolder(tmp_path / "images")
    (ours, features), (theirs, wanted) = packed.read(np.arange(4)), folder.read(np.arange(4))
    assert all(ours.view(row) == theirs.view(row) for row in range(4))
    assert features["label"].tolist() == wanted["label"].tolist()
    assert main(["pack", str(tmp_path / "images"), str(tmp_path / "out.tar")]) == 1
    assert "exists" in capsys.readouterr().err


def test_pack_takes_a_list(tmp_path, capsys):
    for number, image in enumerate(containers.jpegs(2)):
        (tmp_path / f"{number}.jpg").write_bytes(image)
    (tmp_path / "list.csv").write_text("0.jpg,4,2\n1.jpg,7,0\n")
    assert main(["pack", str(tmp_path / "list.csv"), str(tmp_path / "out.tar"), "--sep", ","]) == 0
    assert "from the files" in capsys.readouterr().out
    assert WebDataset(tmp_path / "out.tar").features["label"].tolist() == [[4, 2], [7, 0]]
