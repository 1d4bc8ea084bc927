"""The pool of canvas buffers."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import pytest

from jaxaug.decode import Encoded
from jaxaug.decode.nvjpeg import canvas_buffers
from tests.decode.fake_gpu import CANVAS, HostBuffer, decoder
from tests.images import jpegs


def test_a_buffer_keeps_its_readers_when_the_wait_for_them_is_interrupted(gpu, monkeypatch):
    def interrupted(self, rows):
        raise KeyboardInterrupt

    pool = canvas_buffers.BufferPool(0, CANVAS, 2**30)
    reader = jax.numpy.zeros(())
    buffer, _ = pool.take(1)
    pool.give_back(buffer, reader)
    monkeypatch.setattr(HostBuffer, "prepare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.take(1)
    assert buffer.readers is reader


def test_the_wait_for_a_buffer_is_reported(gpu, monkeypatch):
    monkeypatch.setattr(canvas_buffers, "MAX_BUFFERS", 1)
    with decoder() as decode:
        first = decode.decode_rows(Encoded.from_bytes(jpegs(2)))
        with ThreadPoolExecutor(1) as reader:
            reader.submit(lambda: time.sleep(0.3) or first.release(()))
            second = decode.decode_rows(Encoded.from_bytes(jpegs(2)))
        second.release(())
        assert first.wait_seconds < 0.1 < 0.25 < second.wait_seconds


def test_buffers_grow_while_they_are_read_and_no_further_than_memory(monkeypatch):
    room = [3]  # buffers

    class Buffer(HostBuffer):
        idle = True

        def prepare(self, rows):
            if not self.pixels.size:
                room[0] -= 1
                if room[0] < 0:
                    raise MemoryError("full")
            return super().prepare(rows)

        def is_idle(self):
            return self.idle

    monkeypatch.setattr(canvas_buffers, "CanvasBuffer", Buffer)
    pool = canvas_buffers.BufferPool(0, CANVAS, 2**30)
    first, _ = pool.take(2)
    pool.give_back(first)
    assert pool.take(2)[0] is first  # idle: used again
    monkeypatch.setattr(Buffer, "idle", False)
    pool.give_back(first)
    second = pool.take(2)[0]
    third = pool.take(2)[0]
    assert len({first, second, third}) == 3
    assert pool.take(2)[0] is first  # the fourth did not fit: wait for the oldest
    pool.give_back(third)
    assert pool.take(2)[0] is third
    with pytest.raises(MemoryError, match="full"):
        canvas_buffers.BufferPool(0, CANVAS, 2**30).take(2)


def test_fewer_buffers_where_memory_is_short(gpu):
    pool = canvas_buffers.BufferPool(0, CANVAS, budget=3 * 10 * CANVAS[0] * CANVAS[1] * 3)
    taken = [pool.take(10)[0] for _ in range(3)]
    waiting = threading.Thread(target=lambda: taken.append(pool.take(10)[0]))
    waiting.start()
    time.sleep(0.1)
    assert len(taken) == 3
    pool.give_back(taken[0])
    waiting.join(10)
    assert len(taken) == 4 and taken[3] is taken[0]
