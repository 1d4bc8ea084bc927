"""The images of the engines, laid out for the calls of several GPUs."""

import numpy as np

from jaxaug.decode import Encoded, read_headers
from jaxaug.decode._types import memory_view
from jaxaug.decode.image.canvas import fit_size
from jaxaug.decode.image.nvjpeg.dispatch import (
    ENGINE,
    HOST,
    SLOT,
    Batch,
    assign_backends,
    images_for_engines,
)
from jaxaug.decode.image.orientation import steps
from tests.decode.fake_gpu import WHOLE
from tests.images import encode, jpegs, picture

CANVAS = (64, 64, 3)


def test_each_gpu_gets_its_images_with_all_facts():
    rng = np.random.default_rng(5)
    kinds = [*WHOLE, *jpegs(20), encode(picture(0, 20, 30), "PNG"), b"no image"]
    files = [kinds[number] for number in rng.integers(len(kinds), size=120)]
    encoded = Encoded.from_bytes(files)
    headers = read_headers(encoded)
    original_size = headers.original_size()
    original_size[headers.reason != ""] = 64
    size = fit_size(original_size, CANVAS[:2])
    backends = assign_backends(headers, size, 2**20, 3)
    batch = Batch(encoded, headers, size, backends)
    pointers = 1000 + np.arange(120, dtype=np.uint64)

    for gpu, images in enumerate(images_for_engines(batch, pointers, 3, CANVAS)):
        rows = images["row"].tolist()
        assert sorted(rows) == [
            row for row in range(40 * gpu, 40 * gpu + 40) if backends[row] in (ENGINE, SLOT)
        ]
        whole = backends[rows] == SLOT
        assert 0 < whole.sum() < len(rows) and (np.diff(whole.astype(int)) <= 0).all()

        for place, row in enumerate(rows):
            image = images[place]
            assert bytes(memory_view(int(image["address"]), int(image["length"]))) == files[row]
            assert image["sampling"] == headers.sampling[row]
            area = int(headers.height[row]) * int(headers.width[row])
            record = image["record"]
            assert record["canvas"] == 1000 + row
            if not whole[place]:
                assert image["slot_bytes"] == 0 and image["pitch"] == 3 * 64
                continue
            assert 0 <= image["slot_bytes"] - 3 * area < 256
            assert image["pitch"] == 3 * headers.width[row]
            sides = (record["height"], record["width"], record["out_height"], record["out_width"])
            assert sides == (headers.height[row], headers.width[row], *size[row])
            turns = (record["transpose"], record["flip_x"], record["flip_y"])
            assert turns == steps(headers.orientation[row])


def test_a_gpu_without_images_for_its_engines_gets_none():
    encoded = Encoded.from_bytes(jpegs(6))
    headers = read_headers(encoded)
    size = headers.original_size()
    backends = assign_backends(headers, size, 2**20, 3)
    backends[2:4] = HOST
    pointers = np.zeros(6, np.uint64)
    images = images_for_engines(Batch(encoded, headers, size, backends), pointers, 3, CANVAS)
    assert [sorted(each["row"].tolist()) for each in images] == [[0, 1], [], [4, 5]]
