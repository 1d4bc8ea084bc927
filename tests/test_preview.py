"""The command `preview`: a chain of the user's own on a folder or on the drawn scene."""

import sys
import wave
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug import augment
from jaxaug.__main__ import main
from jaxaug._demo.chain import load_chain
from jaxaug._demo.draws import pictures
from jaxaug._demo.preview import demo_images
from jaxaug._demo.sheet import CAPTION_HEIGHT, FIRST_GAP, GAP, MARGIN, TILE, TITLE_HEIGHT
from tests.images import encode, picture

MODULE = """
import jax
import missing_on_demand
from jaxaug import augment
from jaxaug.augment import recipes

chain = augment.Compose([augment.RandomInvert(p=1.0), augment.Normalize(0.5, 0.25)])
number = 7

def black(key, sample):
    return {**sample, "image": 0 * sample["image"]}

def made():
    return chain

class Next(augment.GroupOp):
    group_size = 3
    def make_params(self, key, info):
        return None
    def apply(self, params, group, info):
        return {**group, "image": group["image"][jax.numpy.array([1, 2, 0])]}

following = Next()
pair = (augment.RandomInvert(p=1.0), augment.GroupCompose([augment.Normalize(0.5, 0.25), Next()]))
mix = augment.MixUp(10, alpha=4.0)

functions = (black, mix)

def mosaics():
    return recipes.yolo_train(64)

def refuses():
    raise TypeError("of the user's own")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return the name of a module in the current folder."""
    name = f"chains_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MODULE.replace("import missing_on_demand", ""))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


def tile(sheet: np.ndarray, row: int, column: int) -> np.ndarray:
    """Return one tile of a sheet."""
    top = MARGIN + TITLE_HEIGHT + row * (CAPTION_HEIGHT + TILE + GAP) + CAPTION_HEIGHT
    left = MARGIN + column * (TILE + GAP) + (FIRST_GAP - GAP if column else 0)
    return sheet[top : top + TILE, left : left + TILE].astype(int)


def folder_of(count: int, parent: Path) -> Path:
    """Return a folder with one class of images."""
    folder = parent / "images" / "class"
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number}.jpg").write_bytes(encode(picture(number, 60, 60), quality=95))
    return folder.parent


def test_a_chain_is_drawn_on_each_image_of_a_folder(module, tmp_path, capsys):
    folder = folder_of(2, tmp_path)
    out = tmp_path / "sheet.png"
    command = ["preview", str(folder), "--chain", f"{module}:chain", "--canvas", "64"]
    assert main([*command, "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)

    sheet = np.asarray(Image.open(out))
    for row in range(2):
        given = tile(sheet, row, 0)
        for column in (1, 6):  # inverted, and not as the model sees it
            assert np.abs(tile(sheet, row, column) + given - 255).mean() < 2


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", ["following", "pair"])
def test_each_image_is_grouped_with_those_below(module, tmp_path, name, count):
    """Two images make groups of three, too."""
    out = tmp_path / "sheet.png"
    command = ["preview", str(folder_of(count, tmp_path)), "--chain", f"{module}:{name}"]
    assert main([*command, "--canvas", "64", "--out", str(out)]) == 0

    sheet = np.asarray(Image.open(out))
    for row in range(count):
        below = tile(sheet, (row + 1) % count, 0)
        expected = 255 - below if name == "pair" else below
        assert np.abs(tile(sheet, row, 1) - expected).mean() < 2


@pytest.mark.parametrize("name, targets", [("mix", []), ("mosaics", ["--targets"])])
def test_groups_are_drawn_of_the_scene_and_its_variants(module, tmp_path, name, targets):
    out = tmp_path / "sheet.png"
    command = ["preview", *targets, "--chain", f"{module}:{name}", "--canvas", "64"]
    assert main([*command, "--out", str(out)]) == 0

    sheet = np.asarray(Image.open(out))
    given = [tile(sheet, row, 0) for row in range(4)]
    assert len({each.tobytes() for each in given}) == 4
    for row in range(4):
        draws = [tile(sheet, row, column) for column in range(1, 7)]
        assert len({each.tobytes() for each in draws}) > 2
        assert all(np.abs(each - given[row]).mean() > 1 for each in draws)


def test_a_chain_is_drawn_on_the_scene(module, tmp_path):
    out = tmp_path / "sheet.png"
    command = ["preview", "--chain", f"{module}:black", "--canvas", "64", "-o", str(out)]
    assert main(command) == 0
    middle = tile(np.asarray(Image.open(out)), 0, 1)[TILE // 2]
    assert (middle == 0).all()


def test_draws_differ_and_follow_the_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sheets = []
    for seed in ("0", "0", "1"):
        command = ["preview", "--chain", "jaxaug.augment:RandomPerspective", "--canvas", "64"]
        assert main([*command, "--targets", "--seed", seed]) == 0
        sheets.append(np.asarray(Image.open("jaxaug_preview.png")))
    np.testing.assert_array_equal(sheets[0], sheets[1])
    assert np.abs(sheets[0].astype(int) - sheets[2]).mean() > 0.1
    tiles = [tile(sheets[0], 0, column) for column in range(1, 7)]
    assert len({each.tobytes() for each in tiles}) > 2


def test_the_scene_has_targets_where_they_are_asked_for():
    (bare,) = demo_images(64)
    assert sorted(bare.sample) == ["image", "size"]
    (scene,) = demo_images(64, targets=True)
    names = ["boxes", "image", "keypoints", "mask", "size"]
    assert sorted(scene.sample) == names and bare.sample["size"].tolist() == [48, 64]
    augment.RandomRotation(30)(jax.random.key(0), scene.sample)
    for several in demo_images(64, targets=True, several=True):
        assert sorted(several.sample) == ["boxes", "image", "mask", "size"]


def test_a_chain_is_a_transform_a_function_or_what_a_function_returns(module):
    chain = load_chain(f"{module}:chain")
    assert load_chain(f"{module}:made") is chain
    assert load_chain(f"{module}:black").__name__ == "black"
    assert isinstance(load_chain("jaxaug.augment.recipes:dino"), augment.MultiView)


@pytest.mark.parametrize(
    "text, said",
    [
        ("chain", "must be module:name"),
        ("nowhere:chain", "there is no module 'nowhere'"),
        ("MODULE:nothing", "has no 'nothing'"),
        ("MODULE:number", "got 7"),
        ("MODULE:functions", "wrap a function of (key, image) in `Lambda`"),
        ("jaxaug.augment:RandomRotation", "must be a transform"),
    ],
)
def test_what_is_no_chain_is_said_in_a_sentence(module, text, said, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["preview", "--chain", text.replace("MODULE", module)])
    assert exit.value.code == 2
    assert said in capsys.readouterr().err


def test_errors_of_the_module_itself_are_not_hidden(module, tmp_path):
    with pytest.raises(TypeError, match="of the user's own"):
        load_chain(f"{module}:refuses")
    (tmp_path / "incomplete.py").write_text(MODULE)
    with pytest.raises(ModuleNotFoundError, match="missing_on_demand"):
        load_chain("incomplete:chain")


def test_targets_of_a_folder_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["preview", str(tmp_path), "--targets"])
    assert "only the drawn scene has them" in capsys.readouterr().err


def test_a_folder_of_sounds_is_drawn(module, tmp_path, capsys):
    """Waveforms above spectrograms; a tone twice as high lies twice as high in its picture."""
    folder = tmp_path / "sounds" / "tones"
    folder.mkdir(parents=True)
    time = np.arange(16_000) / 16_000
    for number, frequency in enumerate((2000, 4000)):
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            tone = 16_000 * np.sin(2 * np.pi * frequency * time)
            file.writeframes(tone.astype("<i2").tobytes())
    (folder / "2.wav").write_bytes(b"RIFF, but no sound")
    out = tmp_path / "sheet.png"
    command = ["preview", str(folder.parent), "--chain", "jaxaug.augment.audio:Gain"]
    assert main([*command, "--out", str(out)]) == 0
    assert "2.wav" in capsys.readouterr().err

    sheet = np.asarray(Image.open(out))
    for row, frequency in enumerate((2000, 4000)):
        for column in (0, 3):
            spectrogram = tile(sheet, row, column)[48:].sum(axis=(1, 2))
            height = 1 - spectrogram.argmax() / len(spectrogram)
            assert abs(height - frequency / 8000) < 0.03
    assert main(["preview", str(folder.parent), "--out", str(out)]) == 0
    assert Image.open(out).height > 7 * TILE


def test_a_folder_of_videos_is_drawn(tmp_path, capsys):
    """Four frames of each clip; those of a flipped one are mirrored alike."""
    videos = pytest.importorskip("tests.videos")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "0.mp4").write_bytes(videos.kind("h264"))
    (tmp_path / "run" / "1.mp4").write_bytes(videos.kind("h264")[:900])
    module = tmp_path / "clip_chains.py"
    module.write_text(
        "from jaxaug import augment\nmirror = augment.Frames(augment.RandomHorizontalFlip(1.0))\n"
    )
    sys.path.insert(0, str(tmp_path))
    out = tmp_path / "sheet.png"
    try:
        command = ["preview", str(tmp_path), "--canvas", "64", "--chain", "clip_chains:mirror"]
        assert main([*command, "--out", str(out)]) == 0
    finally:
        sys.path.remove(str(tmp_path))
    assert "1.mp4" in capsys.readouterr().err
    sheet = np.asarray(Image.open(out)).astype(int)
    plain, mirrored = tile(sheet, 0, 0), tile(sheet, 0, 2)
    width = plain.shape[1]
    assert plain[:, width // 2].min() > 200 > plain[:, width // 4].mean()  # a gap between frames
    halves = mirrored[:, : width // 2], plain[:, : width // 2][:, ::-1]
    assert np.abs(halves[0] - halves[1]).mean() < np.abs(halves[0] - halves[1][:, ::-1]).mean()


def test_clips_are_drawn_alike_in_any_layout_and_with_sizes_of_each_frame():
    clip = np.stack([picture(number, 8, 10) for number in range(6)])
    [expected] = pictures({"video": clip, "size": np.array([8, 9])})
    planes = np.moveaxis(clip, -1, 1)
    sizes = np.tile([8, 9], (6, 1))
    [drawn] = pictures({"video": planes, "size": sizes})
    np.testing.assert_array_equal(drawn, expected)
    np.testing.assert_array_equal(pictures({"video": planes}), pictures({"video": clip}))


def test_the_sheet_is_shown_on_request(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(Image.Image, "show", lambda image: shown.append(image.filename))
    out = str(tmp_path / "sheet.jpg")
    command = ["preview", "--chain", "jaxaug.augment:RandomInvert", "--canvas", "64"]
    assert main([*command, "--out", out, "--show"]) == 0
    assert shown == [out]
