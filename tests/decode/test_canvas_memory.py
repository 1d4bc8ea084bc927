"""Tests of the host's canvas memory: lent, kept by every reader, used again, zero beyond images."""

import gc

import jax
import numpy as np

from jaxaug.decode import Decoder
from jaxaug.decode.host.canvas_memory import CanvasMemory, clear_beyond
from tests.images import encode

CANVAS = (40, 48, 3)


def test_a_block_is_used_again_when_no_array_refers_to_it():
    memory = CanvasMemory(CANVAS)
    block = memory.take(2)
    address = block.pixels.ctypes.data
    del block
    again = memory.take(2)
    assert again.pixels.ctypes.data == address


def test_views_and_jax_arrays_keep_a_block():
    memory = CanvasMemory(CANVAS)
    block = memory.take(2)
    address = block.pixels.ctypes.data
    view = np.asarray(block.pixels[1, :, :4])
    shared = jax.device_put(block.pixels, jax.devices("cpu")[0])
    shared.block_until_ready()
    del block

    assert memory.take(2).pixels.ctypes.data != address
    del view
    gc.collect()
    assert memory.take(2).pixels.ctypes.data != address
    assert not np.asarray(shared).any()


def test_a_block_outlives_its_memory():
    pixels = CanvasMemory(CANVAS).take(1).pixels
    gc.collect()
    pixels[:] = 7
    assert (pixels == 7).all()


def test_a_block_of_another_size_is_not_used_again():
    memory = CanvasMemory(CANVAS)
    memory.take(2)
    assert memory.take(3).pixels.shape == (3, *CANVAS)


def test_what_was_used_is_cleared_beyond_the_next_size():
    block = CanvasMemory(CANVAS).take(1)
    for size in ((30, 40), (35, 10), (5, 48), (0, 0)):
        clear_beyond(block, 0, size)
        expected = np.zeros(CANVAS, bool)
        expected[: size[0], : size[1]] = True
        assert not block.pixels[0][~expected].any()
        block.pixels[0, : size[0], : size[1]] = 255


def test_batches_of_a_decoder_are_those_of_a_new_one():
    rng = np.random.default_rng(0)
    device = jax.local_devices()[:1]
    with Decoder(CANVAS[:2], "host", device, on_error="mask") as decoder:
        for _ in range(6):
            sides = rng.integers(8, 60, (4, 2))
            images = [encode(rng.integers(0, 256, (*side, 3), np.uint8)) for side in sides]
            images[int(rng.integers(4))] = b"broken"
            with Decoder(CANVAS[:2], "host", device, on_error="mask") as fresh:
                expected = np.array(fresh.decode(images).pixels)
            np.testing.assert_array_equal(decoder.decode(images).pixels, expected)


def test_a_batch_that_is_kept_does_not_change():
    device = jax.local_devices()[:1]
    with Decoder(CANVAS[:2], "host", device) as decoder:
        kept = decoder.decode([encode(np.full(CANVAS, 200, np.uint8))]).pixels
        before = np.array(kept)
        for _ in range(6):
            decoder.decode([encode(np.zeros(CANVAS, np.uint8))])
        np.testing.assert_array_equal(kept, before)
