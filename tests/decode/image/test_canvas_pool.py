"""The host memory that batches use by turns: nothing of an earlier image is left, and no array that
somebody has is written to.
"""

import gc
import math
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug.decode import Decoder
from jaxaug.decode.image.host import host_backend
from jaxaug.decode.image.host.canvas_pool import CanvasPool
from tests.images import encode, jpegs, picture

ROWS = 6
SEED = int(np.random.SeedSequence().generate_state(1)[0])
UNREADABLE = encode(picture(0, 30, 30), "PNG")[:200]  # its header is good: only decoding tells


def decoder():
    return Decoder((64, 64), "host", jax.devices("cpu")[:1], on_error="mask", num_threads=2)


def random_files(rng):
    """Return images of any size, turned ones, and some that are none."""
    files = []
    for kind in rng.choice(["JPEG", "PNG", "text", "unreadable"], ROWS, p=[0.6, 0.2, 0.1, 0.1]):
        height, width = rng.integers(1, 90, 2)
        pixels = 255 - picture(int(rng.integers(1000)), height, width) // 4  # no zeros
        made = {"text": b"no image", "unreadable": UNREADABLE}
        files.append(made.get(kind) or encode(pixels, kind))
    return files


def test_no_batch_shows_an_earlier_one():
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    addresses = []
    with decoder() as old:
        for _ in range(25):
            files = random_files(rng)
            with decoder() as new:
                expected = np.array(new.decode(files).pixels)
            found = old.decode(files).pixels
            addresses.append(np.asarray(found).ctypes.data)
            np.testing.assert_array_equal(np.asarray(found), expected)
            del found
    assert len(set(addresses)) < 10


@pytest.mark.parametrize(
    "keep", [lambda x: x, np.asarray, np.from_dlpack, lambda x: np.asarray(x)[2:, ::2, 5]]
)
def test_what_somebody_has_is_not_written_to(keep):
    with decoder() as decode:
        kept = keep(decode.decode(jpegs(ROWS)).pixels)
        expected = np.array(kept)
        gc.collect()
        for seed in range(6):
            decode.decode(jpegs(ROWS, 60, 60, seed * 100 + 50))
        np.testing.assert_array_equal(np.asarray(kept), expected)


def test_what_a_computation_reads_is_not_written_to():
    @jax.jit
    def slow(pixels):  # reads them in every turn
        def add(i, total):
            return total + pixels[i % ROWS].astype(jnp.int32)

        return jax.lax.fori_loop(0, 6000, add, jnp.zeros(pixels.shape[1:], jnp.int32))

    files = jpegs(ROWS)
    others = jpegs(ROWS, 60, 60, seed=100)
    with decoder() as decode:
        expected = np.array(slow(jnp.array(decode.decode(files).pixels, copy=True)))
        for _ in range(4):
            running = slow(decode.decode(files).pixels)
            decode.decode(others)
            np.testing.assert_array_equal(running, expected)


def test_an_exception_in_the_midst_leaves_nothing(monkeypatch):
    def fail(data, header, size, canvas, form):
        canvas[:] = 255
        raise RuntimeError("in the midst")

    with decoder() as decode, decoder() as new:
        decode.decode(jpegs(ROWS))
        with monkeypatch.context() as patched:
            patched.setattr(host_backend, "decode_into", fail)
            with pytest.raises(RuntimeError, match="in the midst"):
                decode.decode(jpegs(ROWS))
        gc.collect()
        small = jpegs(ROWS, 9, 11)
        expected = new.decode(small).pixels
        for found in [decode.decode(small).pixels for _ in range(3)]:  # all blocks
            np.testing.assert_array_equal(found, expected)


def test_few_blocks_wait_and_none_after_close():
    shape = (64, 64, 3)
    pool = CanvasPool(shape, 2)

    def held():
        """How many blocks of seven rows have memory."""
        return round(tracemalloc.get_traced_memory()[0] / (7 * math.prod(shape)))

    tracemalloc.start()
    taken = [pool.take(7).pixels for _ in range(5)]
    first = taken[-1].ctypes.data
    assert all(each.ctypes.data % 64 == 0 and not each.any() for each in taken)
    del taken[:]
    assert held() == 2
    assert pool.take(7).pixels.ctypes.data != first  # the one that waits longest
    other = pool.take(8).pixels
    assert held() == 1  # that of 8: those of 7 rows were freed
    pool.close()
    del other
    assert held() == 0
    tracemalloc.stop()
