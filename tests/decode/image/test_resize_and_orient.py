"""The launches of the kernels that shrink and turn whole images."""

import ctypes

import numpy as np
import pytest

from jaxaug.decode.image.nvjpeg.resize_and_orient import RECORD, Resampler
from jaxaug.decode.native.kernels import Kernel

MOST_BLOCKS = 65_535  # of CUDA along z


class Launches(Kernel):
    """A kernel that notes the records of each launch."""

    def __init__(self):
        super().__init__(None)
        self.slots = []

    def launch(self, stream, grid, block, *arguments):
        columns, rows, count = grid
        assert 0 < count <= MOST_BLOCKS
        found = np.frombuffer(ctypes.string_at(int(arguments[0]), count * RECORD.itemsize), RECORD)
        assert columns * block[0] >= found["out_width"].max()
        assert rows * block[1] >= found["out_height"].max()
        self.slots += found["slot"].tolist()


@pytest.mark.parametrize("count", [1, MOST_BLOCKS, MOST_BLOCKS + 1, 2 * MOST_BLOCKS + 3])
def test_every_image_is_launched_once_however_many_there_are(count):
    records = np.zeros(count, RECORD)
    records["slot"] = np.arange(count)
    records["out_height"] = np.arange(count) % 90 + 1
    records["out_width"] = np.arange(count) % 70 + 1
    kernel = Launches()
    resampler = Resampler(sentinel_kernel=Launches(), resample_kernel=kernel)
    resampler.fill_canvases(records.ctypes.data, records, 210, np.array([3, 250, 7], np.uint8), 0)
    assert kernel.slots == [*range(count)]
