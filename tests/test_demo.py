"""The demo: its drawings, its data set, its contact sheet and its two commands."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from PIL import Image, ImageOps

from jaxaug import augment
from jaxaug.__main__ import main, make_parser
from jaxaug._demo import preview, run
from jaxaug._demo.data import CLASSES, SIDES, make_dataset
from jaxaug._demo.drawings import KINDS, draw
from jaxaug._demo.progress import progress
from jaxaug._demo.sheet import (
    CAPTION_HEIGHT,
    FIRST_GAP,
    GAP,
    MARGIN,
    TILE,
    TITLE_HEIGHT,
    Row,
    contact_sheet,
)
from jaxaug.iterators import ImageFolder

COUNT = 100


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("cache"), COUNT)


@pytest.mark.parametrize("kind", KINDS)
def test_drawing_is_two_tone_and_fills_its_size(kind):
    image = draw(kind, (130, 170), np.random.default_rng(1)).astype(int)
    assert image.shape == (130, 170, 3)
    # Ink and ground are far apart: neither covers nearly everything, whatever the noise.
    gray = image.mean(axis=2)
    dark = np.mean(gray < (np.percentile(gray, 1) + np.percentile(gray, 99)) / 2)
    assert 0.02 < dark < 0.98 and np.percentile(gray, 99) - np.percentile(gray, 1) > 30


def test_drawing_turns_with_the_plane():
    """A law of the fields: a ring's distance depends on the radius alone, a stripe's on x alone."""
    y, x = np.mgrid[-1:1:64j, -1:1:64j].astype(np.float32)
    rings = KINDS["rings"](x, y, np.random.default_rng(0))
    np.testing.assert_allclose(rings, KINDS["rings"](-y, x, np.random.default_rng(0)), atol=1e-5)
    stripes = KINDS["stripes"](x, y, np.random.default_rng(0))
    np.testing.assert_array_equal(stripes, np.broadcast_to(stripes[:1], stripes.shape))


def test_dataset_layout(dataset):
    train = ImageFolder(dataset / "train")
    val = ImageFolder(dataset / "val")
    assert train.classes == val.classes == tuple(sorted(CLASSES))
    assert Counter(train.labels.tolist()) == dict.fromkeys(range(10), COUNT * 8 // 100)
    assert Counter(val.labels.tolist()) == dict.fromkeys(range(10), COUNT * 2 // 100)


def test_dataset_holds_all_sorts_of_jpeg(dataset):
    files = sorted(dataset.rglob("*.jpg"))
    images = [Image.open(path) for path in files]
    assert any(image.mode == "L" for image in images)
    assert any("progressive" in image.info for image in images)
    assert any(image.getexif().get(0x0112, 1) != 1 for image in images)
    samplings = {layer[1:3] for image in images if image.mode == "RGB" for layer in image.layer[:1]}
    assert samplings == {(1, 1), (2, 1), (2, 2)}
    sides = np.array([image.size for image in images])
    assert sides.min() >= SIDES[0] and sides.max() <= SIDES[1] and sides.max() > 3 * sides.min()


def test_dataset_exif_images_are_upright_once_turned(tmp_path, monkeypatch):
    """A drawing brighter at the top stays so for a viewer that obeys the tag."""

    def ramp(kind, size, rng):
        return np.broadcast_to(
            np.linspace(255, 0, size[0]).astype(np.uint8)[:, None, None], (*size, 3)
        )

    monkeypatch.setattr("jaxaug._demo.data.draw", ramp)
    turned = 0
    for path in make_dataset(tmp_path, COUNT).rglob("*.jpg"):
        with Image.open(path) as image:
            turned += image.getexif().get(0x0112, 1) != 1
            rows = np.asarray(ImageOps.exif_transpose(image).convert("L"), float).mean(axis=1)
        assert rows[0] > 240 and rows[-1] < 15, path
    assert turned


def test_dataset_is_deterministic_and_cached(dataset, tmp_path):
    again = make_dataset(tmp_path, COUNT)
    files = sorted(path.relative_to(again) for path in again.rglob("*.jpg"))
    assert len(files) == COUNT
    assert all((again / name).read_bytes() == (dataset / name).read_bytes() for name in files)
    stamps = [(again / name).stat().st_mtime_ns for name in files]
    assert make_dataset(tmp_path, COUNT) == again
    assert stamps == [(again / name).stat().st_mtime_ns for name in files]
    assert make_dataset(tmp_path, 10, seed=1) != again


def test_cut_run_leaves_no_dataset(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("jaxaug._demo.data.draw", fail)
        with pytest.raises(KeyboardInterrupt):
            make_dataset(tmp_path, 10)
    assert list(tmp_path.iterdir()) == []
    assert len(list(make_dataset(tmp_path, 10).rglob("*.jpg"))) == 10


def test_sheet_size_and_places(tmp_path):
    red = np.zeros((40, 20, 3), np.uint8)
    green = np.zeros((20, 40, 3), np.uint8)
    red[..., 0] = 255
    green[..., 1] = 255
    rows = [Row("A", "a", [red, green, red]), Row("B", "b", [green])]
    path = contact_sheet(rows, tmp_path / "new" / "x.png", "title")
    sheet = np.asarray(Image.open(path))
    width = 2 * MARGIN + 3 * TILE + FIRST_GAP + GAP
    height = 2 * MARGIN + TITLE_HEIGHT + 2 * (CAPTION_HEIGHT + TILE) + GAP
    assert sheet.shape == (height, width, 3)
    middle = MARGIN + TITLE_HEIGHT + CAPTION_HEIGHT + TILE // 2
    first = MARGIN + TILE // 2
    second = MARGIN + TILE + FIRST_GAP + TILE // 2
    assert sheet[middle, first].tolist() == [255, 0, 0]
    assert sheet[middle, second].tolist() == [0, 255, 0]
    # Fitted, not stretched: the tall image leaves the sides of its tile free, the wide one top and
    # bottom.
    left_of_tall = sheet[middle, MARGIN + 4].tolist()
    above_wide = sheet[middle - TILE // 2 + 4, second].tolist()
    assert left_of_tall == above_wide != [255, 0, 0]
    assert sheet[middle - TILE // 2 + 4, first].tolist() == [255, 0, 0]


def test_sheet_needs_rows(tmp_path):
    with pytest.raises(ValueError, match="`rows` must have at least one row"):
        contact_sheet([], tmp_path / "x.png", "title")


def test_progress_without_tqdm(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert list(progress([1, 2], "counting")) == [1, 2]
    assert capsys.readouterr().out == "counting ...\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_drawn_for_terminals_alone(monkeypatch, capsys, terminal):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert list(progress([1, 2], "counting")) == [1, 2]
    printed = capsys.readouterr()
    assert printed.out == "" and ("counting" in printed.err) == terminal


def test_commands_parse():
    demo = make_parser().parse_args(["demo"])
    assert demo.out.endswith(".png") and demo.epochs > 0 and demo.data_cache is None
    sheet = make_parser().parse_args(["preview", "here", "--out", "x.png", "--seed", "3"])
    assert (sheet.folder, sheet.out, sheet.seed) == ("here", "x.png", 3)
    for wrong in ([], ["preview", "here", "--out", "x.txt"], ["demo", "--epochs", "-3"]):
        with pytest.raises(SystemExit):
            make_parser().parse_args(wrong)


def test_help_does_not_wait_for_jax():
    code = """
import sys
from jaxaug.__main__ import make_parser
make_parser().format_help()
sys.exit("jax" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_preview_of_a_plain_folder_with_a_broken_file(dataset, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        preview, "SHOWN", (augment.RandomRotation((-30, 30)), augment.CenterCrop(64))
    )
    folder = tmp_path / "mine"
    folder.mkdir()
    for path in sorted(dataset.rglob("*.jpg"))[:3]:
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "broken.jpg").write_bytes(b"no image")
    assert main(["preview", str(folder), "--out", str(tmp_path / "sheet.png")]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str((tmp_path / "sheet.png").resolve())
    assert f"left out '{folder / 'broken.jpg'}'" in printed.err
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    # The draws of a row differ from the decoded image and from one another.
    top = MARGIN + TITLE_HEIGHT + CAPTION_HEIGHT
    lefts = [MARGIN, MARGIN + TILE + FIRST_GAP, MARGIN + 2 * TILE + FIRST_GAP + GAP]
    tiles = [sheet[top : top + TILE, left : left + TILE].astype(int) for left in lefts]
    assert min(np.abs(tiles[a] - tiles[b]).mean() for a, b in ((0, 1), (0, 2), (1, 2))) > 1


@pytest.mark.parametrize("content", [None, b"no image"])
def test_preview_names_what_is_wrong(content, tmp_path, capsys):
    if content is not None:
        (tmp_path / "x.jpg").write_bytes(content)
    assert main(["preview", str(tmp_path), "--out", str(tmp_path / "sheet.png")]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert not (tmp_path / "sheet.png").exists()


@pytest.mark.slow
@pytest.mark.training
def test_demo_from_data_to_accuracy(dataset, tmp_path, capsys):
    run.run_demo(tmp_path / "sheet.png", epochs=2, cache=dataset.parent, count=COUNT)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("jaxaug", "data", "sheet", "decode", "augment", "pipeline"),
        *("training", "training", "training"),
    ]
    rates = [float(line.split()[1].replace(",", "")) for line in lines[3:6]]
    assert min(rates) > 0
    assert lines[6].split()[1:4] == ["2", "epochs", "of"]  # before the first is over
    assert all(0 <= float(line.split()[-1].rstrip("%")) <= 100 for line in lines[7:])
    assert Image.open(tmp_path / "sheet.png").width > 1000


def test_demo_without_flax_says_what_to_install(dataset, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "draw_sheet", lambda images, path, title: path)
    monkeypatch.setattr(run, "_measure", lambda images, batch_size: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    run.run_demo(tmp_path / "sheet.png", cache=dataset.parent, count=COUNT)
    assert "pip install flax optax" in capsys.readouterr().out.splitlines()[-1]
