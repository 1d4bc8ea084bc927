"""The images of the engines, laid out for the calls of several GPUs."""

import numpy as np

from jaxaug.decode import Encoded, read_headers
from jaxaug.decode._fit import fit_size
from jaxaug.decode._orientation import steps
from jaxaug.decode.nvjpeg.dispatch import ENGINE, HOST, SLOT, Batch, assign_backends
from jaxaug.decode.nvjpeg.engine_images import images_for_engines
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

    for gpu, images in enumerate(images_for_engines(batch, 3, CANVAS)):
        rows = (images.rows + 40 * gpu).tolist()
        assert sorted(rows) == [
            row for row in range(40 * gpu, 40 * gpu + 40) if backends[row] in (ENGINE, SLOT)
        ]
        whole = backends[rows] == SLOT
        assert 0 < whole.sum() < len(rows) and (np.diff(whole.astype(int)) <= 0).all()

        for place, row in enumerate(rows):
            assert bytes(images.encoded.view(place)) == files[row]
            assert images.sampling[place] == headers.sampling[row]
            area = int(headers.height[row]) * int(headers.width[row])
            record = images.records[place]
            if not whole[place]:
                assert images.slot_bytes[place] == 0 and images.pitches[place] == 3 * 64
                continue
            assert 0 <= images.slot_bytes[place] - 3 * area < 256
            assert images.pitches[place] == 3 * headers.width[row]
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
    images = images_for_engines(Batch(encoded, headers, size, backends), 3, CANVAS)
    assert [sorted(each.rows.tolist()) for each in images] == [[0, 1], [], [0, 1]]
