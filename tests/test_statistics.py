"""The command `statistics`, beside sums of Fractions over all pixels."""

import io
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from jaxaug import _statistics
from jaxaug.__main__ import main
from jaxaug._statistics import statistics
from jaxaug.decode.image.form import PixelForm
from jaxaug.errors import SourceError
from jaxaug.iterators import ImageFolder, WebDataset
from tests.images import encode
from tests.iterators.sources import containers
from tests.pieces import killed_behind_a_piece

RNG = np.random.default_rng(0)


def expected(images, full, nodata=None):
    """(mean, std) of each channel, by rational numbers."""
    found = []
    for channel in range(images[0].shape[2]):
        values = np.concatenate([image[..., channel].ravel() for image in images])
        values = [Fraction(each) for each in values.tolist() if each != nodata]
        mean = sum(values) / len(values)
        variance = sum(each * each for each in values) / len(values) - mean * mean
        found.append((float(mean / full), math.sqrt(variance) / full))
    return zip(*found)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jaxaug"


def folder(root, files, suffix):
    for number, file in enumerate(files):
        path = root / "ab"[number % 2] / f"{number:03d}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file)
    return root


def tiff(image, nodata=None):
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    file = io.BytesIO()
    tags = [] if nodata is None else [(42113, "s", 0, str(nodata), True)]
    tifffile.imwrite(
        file, image, photometric="minisblack", planarconfig="contig", metadata=None, extratags=tags
    )
    return file.getvalue()


def test_colors_of_8_bits(tmp_path, capsys):
    images = [RNG.integers(0, 256, (5 + k, 7, 3), np.uint8) for k in range(70)]
    root = folder(
        tmp_path / "data", [*(encode(each, "PNG") for each in images), b"no image"], ".png"
    )
    out = tmp_path / "o.json"
    assert main(["statistics", str(root), "--processes", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    mean, std = expected(images, 255)
    assert found["mean"] == list(mean) and found["std"] == list(std)
    assert found["images"] == 70 and found["bad"] == 1
    assert found["pixels"] == [sum(each[..., 0].size for each in images)] * 3
    said = capsys.readouterr().out
    assert "70 images; 1 could not be read" in said and "augment.Normalize([0.49" in said


def test_bands_of_16_bits_without_nodata(tmp_path):
    images = [RNG.integers(0, 65536, (6, 5, 13)).astype(np.uint16) for _ in range(3)]
    for image in images:
        image[:2, :2, 4] = 9
    root = folder(tmp_path / "data", [tiff(each, 9) for each in images], ".tif")
    found = statistics(ImageFolder(root), PixelForm(13, "uint16"), 1)
    mean, std = expected(images, 65535, nodata=9)
    assert found.mean == tuple(mean) and found.std == tuple(std)
    assert found.pixels[4] < found.pixels[0]
    few = statistics(ImageFolder(root), PixelForm(2, "uint16", (3, 1)), 1)
    assert few.mean == (found.mean[3], found.mean[1])


def test_upper_bits_of_what_is_no_data_are_left_out(tmp_path):
    """65,535 is no data, and its upper 8 bits, 255, are those of other numbers, too."""
    image = RNG.integers(65000, 65536, (6, 5, 2)).astype(np.uint16)
    image[:2], image[2] = 65535, 65534
    source = ImageFolder(folder(tmp_path / "data", [tiff(image, 65535)], ".tif"))
    found = statistics(source, PixelForm(2, "uint8"), processes=1)
    upper = [image[..., k][image[..., k] < 65535] >> 8 for k in range(2)]
    assert found.pixels == tuple(each.size for each in upper)
    np.testing.assert_allclose(found.mean, [each.mean() / 255 for each in upper], rtol=1e-12)


def test_a_channel_without_data_is_an_error(tmp_path):
    """Its mean is no number: 0 and 1 for it would be told by nobody."""
    image = np.ones((4, 5, 2), np.float32)
    image[..., 1] = np.nan
    source = ImageFolder(folder(tmp_path / "data", [tiff(image)] * 3, ".tif"))
    with pytest.raises(SourceError, match="channel 1 has no pixel with data"):
        statistics(source, PixelForm(2, "float32"), processes=1)


def test_floats_without_nan_and_infinities(tmp_path):
    images = [RNG.normal(250, 3, (6, 5, 2)).astype(np.float32) for _ in range(3)]
    data = [image.copy() for image in images]
    for image in data:
        image[:2, 0, 1] = np.nan, np.inf
    root = folder(tmp_path / "data", [tiff(each) for each in data], ".tif")
    found = statistics(ImageFolder(root), PixelForm(2, "float32"), 1)
    for channel, (mean, std) in enumerate(zip(found.mean, found.std)):
        values = np.concatenate([each[..., channel].ravel() for each in data]).astype(np.float64)
        values = values[np.isfinite(values)]
        np.testing.assert_allclose((mean, std), (values.mean(), values.std()), rtol=1e-9)
    assert found.pixels == (90, 84)


def test_a_run_that_was_killed_goes_on(tmp_path, monkeypatch, cache):
    images = [RNG.integers(0, 256, (2, 3, 3), np.uint8) for _ in range(130)]
    root = folder(tmp_path / "data", [encode(each, "PNG") for each in images], ".png")
    source = ImageFolder(root)
    with killed_behind_a_piece(_statistics):
        statistics(source, PixelForm(), 1)
    (journal,) = cache.iterdir()
    assert len(journal.read_text().splitlines()) == 2
    run = _statistics.run_pieces

    def rest(work, source, starts, *others):
        assert starts == [64, 128]
        return run(work, source, starts, *others)

    monkeypatch.setattr(_statistics, "run_pieces", rest)
    mean, std = expected(images, 255)
    found = statistics(source, PixelForm(), 2)
    assert found.mean == tuple(mean) and found.std == tuple(std)
    assert not list(cache.iterdir())


def test_a_tar_is_a_source_and_nothing_readable_is_told(tmp_path, capsys, cache):
    image = RNG.integers(0, 256, (4, 4, 3), np.uint8)
    tar = tmp_path / "a.tar"
    tar.write_bytes(containers.tar({"0.png": encode(image, "PNG"), "0.cls": b"1"}))
    assert main(["statistics", str(tar), "--channels", "gray", "--processes", "1"]) == 0
    assert "channel 0" in capsys.readouterr().out
    root = folder(tmp_path / "data", [b"no image"], ".png")
    with pytest.raises(SourceError, match="no image could be read"):
        statistics(ImageFolder(root), PixelForm(), 1)
    assert not list(cache.iterdir())  # once a library is there, they are read anew
    with pytest.raises(SystemExit):
        main(["statistics", str(tar), "--channels", "4x"])
    assert "`channels` must be" in capsys.readouterr().err


def test_lists_count_image_by_image(tmp_path):
    images = [RNG.integers(0, 256, (4, 4 + k, 3), np.uint8) for k in range(3)]
    names = ("0.0.png", "0.1.png", "1.0.png")
    files = {name: encode(image, "PNG") for name, image in zip(names, images)}
    (tmp_path / "a.tar").write_bytes(containers.tar(files))
    found = statistics(WebDataset(tmp_path / "a.tar", image="*.png", label=None), PixelForm(), 1)
    assert found.images == 3
    mean, std = expected([np.concatenate([each.reshape(-1, 1, 3) for each in images])], 255)
    assert found.mean == tuple(mean) and found.std == tuple(std)
