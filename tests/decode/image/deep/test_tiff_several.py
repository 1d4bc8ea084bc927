"""Small TIFFs that are decoded several at a time, against the same ones alone."""

import io

import jax
import numpy as np
import pytest

from jaxaug.decode import Decoder
from jaxaug.decode._libraries import library
from jaxaug.decode.image.deep import tiff
from jaxaug.decode.image.deep.tiff_several import decode_several, shares

tifffile = pytest.importorskip("tifffile")
imagecodecs = pytest.importorskip("imagecodecs")

KINDS = [{}, {"compression": "lzw"}, {"compression": "lzw", "predictor": 2, "rowsperstrip": 3}]
KINDS += [{"compression": "lzw", "tile": (16, 16)}, {"compression": "lzw", "byteorder": ">"}]
PLANES = {"compression": "lzw", "planarconfig": "separate"}


def write(pixels, options):
    if options.get("planarconfig") == "separate":
        pixels = np.moveaxis(pixels, -1, 0)
    file = io.BytesIO()
    shown = {"photometric": "minisblack", "planarconfig": "contig"} | options
    tifffile.imwrite(file, pixels, **shown)
    return file.getvalue()


def drawn(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**16, (count, 20, 24, 5)).astype(np.uint16)


@pytest.mark.parametrize("options", [*KINDS, PLANES])
def test_several_are_what_was_written(options):
    pixels = drawn(4)
    files = [memoryview(write(each, options)) for each in pixels]
    layouts = [tiff.read_layout(file, 0) for file in files]
    found = decode_several(files, layouts)
    np.testing.assert_array_equal(found, pixels)


def test_shares_hold_each_row_once_and_alike_ones_together():
    files = [write(drawn(1)[0], options) for options in KINDS for _ in range(9)]
    layouts = {row: tiff.read_layout(memoryview(file), 0) for row, file in enumerate(files)}
    layouts |= {100: None, 101: None}
    found = shares(layouts, threads=2)
    assert sorted(row for rows in found for row in rows) == sorted(layouts)
    assert [100] in found
    assert [101] in found
    forms = [{layouts[row].place.form for row in rows} for rows in found if len(rows) > 1]
    assert all(len(each) == 1 for each in forms)
    # One of the copies, and for each form in LZW as many as threads.
    assert sorted(map(len, found)) == [1, 1, 4, 4, 4, 4, 5, 5, 5, 5, 9]


def test_a_batch_is_its_images_one_by_one(monkeypatch):
    files = [write(each, KINDS[row % 5]) for row, each in enumerate(drawn(40))]
    files[11] = files[11][:400] + bytes(40) + files[11][440:]  # in LZW
    files[22] = files[22][:-9]
    files[30] = b"no image"
    calls = []
    decode = library("imagecodecs").tiff_decode
    monkeypatch.setattr(
        imagecodecs, "tiff_decode", lambda *args, **kw: calls.append(1) or decode(*args, **kw)
    )
    form = {"channels": 3, "bands": (3, 0, 1), "dtype": "float32", "on_error": "mask"}
    with Decoder((24, 20), "host", jax.devices()[:1], num_threads=2, **form) as decoder:
        whole = decoder.decode(files)
        together = len(calls)
        alone = [decoder.decode([file]) for file in files]
    assert together < len(calls) - together
    np.testing.assert_array_equal(whole.valid, [bool(each.valid[0]) for each in alone])
    assert 37 <= whole.valid.sum() < 40
    for row, each in enumerate(alone):
        np.testing.assert_array_equal(whole.pixels[row], each.pixels[0])
        np.testing.assert_array_equal(whole.size[row], each.size[0])
