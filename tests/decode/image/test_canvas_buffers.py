"""The pool of canvas buffers."""

import ctypes
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxaug.decode import Encoded
from jaxaug.decode.image.nvjpeg import canvas_buffers
from jaxaug.decode.native import cuda
from tests.decode.fake_gpu import CANVAS, HostBuffer, HostMemory, decoder
from tests.images import jpegs

SHAPE = (*CANVAS, 3)


def test_a_buffer_keeps_its_readers_when_the_wait_for_them_is_interrupted(gpu, monkeypatch):
    def interrupted(self, rows):
        raise KeyboardInterrupt

    pool = canvas_buffers.BufferPool(0, SHAPE, 2**30)
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
        asked = threading.Event()
        take = canvas_buffers.BufferPool.take
        monkeypatch.setattr(
            canvas_buffers.BufferPool, "take", lambda *given: asked.set() or take(*given)
        )

        def release():
            asked.wait(60)
            time.sleep(0.3 + first.wait_seconds)
            first.release(())

        with ThreadPoolExecutor(1) as reader:
            reader.submit(release)
            second = decode.decode_rows(Encoded.from_bytes(jpegs(2)))
        second.release(())
        assert first.wait_seconds + 0.25 < second.wait_seconds


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
    pool = canvas_buffers.BufferPool(0, SHAPE, 2**30)
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
        canvas_buffers.BufferPool(0, SHAPE, 2**30).take(2)


def test_fewer_buffers_where_memory_is_short(gpu):
    pool = canvas_buffers.BufferPool(0, SHAPE, budget=3 * 10 * CANVAS[0] * CANVAS[1] * 3)
    taken = [pool.take(10)[0] for _ in range(3)]
    waiting = threading.Thread(target=lambda: taken.append(pool.take(10)[0]))
    waiting.start()
    time.sleep(0.1)
    assert len(taken) == 3
    pool.give_back(taken[0])
    waiting.join(60)
    assert len(taken) == 4 and taken[3] is taken[0]


# ---- the sentinel, on a device of host memory


class HostDevice:
    """The calls of a `CanvasBuffer`, done on host memory."""

    def __init__(self):
        self.memory = HostMemory()
        self.pinned_array = self.memory.pinned_array
        self.held = {}  # bytes by address

    def allocate(self, size):
        address = self.memory.allocate(size)
        self.held[address] = size
        return address

    def call(self, name, *given):
        if name == "cudaMemsetAsync":
            self.memory.do_later(ctypes.memset, *given[:3])
        if name == "cudaMemcpy2DAsync":
            self.memory.do_later(self._copy, *given[:6])
        if name == "cudaFree":
            del self.held[given[0]]
        return self.memory.call(name, *given)

    @staticmethod
    def _copy(to, to_pitch, source, pitch, width, height):
        assert width <= min(to_pitch, pitch)
        for row in range(height):
            ctypes.memmove(to + row * to_pitch, source + row * pitch, width)


@pytest.fixture
def device(monkeypatch):
    """A `HostDevice` in the place of CUDA."""
    device = HostDevice()
    for name in ("call", "allocate", "pinned_array"):
        monkeypatch.setattr(cuda, name, getattr(device, name))
    monkeypatch.setattr(cuda, "create_stream", lambda: 0)
    kinds = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)
    monkeypatch.setattr(cuda, "runtime", lambda: SimpleNamespace(cudaMemcpyKind=kinds))
    return device


def test_buffers_of_small_batches_do_not_all_grow(device):
    """Six batches of ten rows at once, then of forty and of ten by turns: the budget is kept."""
    budget = 80 * math.prod(SHAPE)
    pool = canvas_buffers.BufferPool(0, SHAPE, budget)
    for buffer in [pool.take(10)[0] for _ in range(6)]:
        pool.give_back(buffer)
    for turn in range(24):
        taken = [pool.take(40 if turn % 3 else 10)[0] for _ in range(2)]
        assert pool.bytes_held == sum(device.held.values()) <= budget, turn
        for buffer in taken:
            pool.give_back(buffer)
    pool.close()
    assert not device.held


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_the_largest_idle_buffer_is_taken_and_does_not_grow(device, order):
    pool = canvas_buffers.BufferPool(0, SHAPE, 2**30)
    small, large = (pool.take(rows)[0] for rows in (2, 10))
    for buffer in (small, large)[order]:
        pool.give_back(buffer)
    assert pool.take(5)[0] is large


@pytest.mark.parametrize("shape", [(8, 9, 3), (8, 9, 1), (5, 1, 1), (1, 2, 1), (1, 1, 1)])
def test_the_sentinel_shows_which_canvases_were_not_written(device, shape):
    buffer = canvas_buffers.CanvasBuffer(shape)
    size = math.prod(shape)
    for _ in range(2):
        pointers = buffer.prepare(5)
        assert (np.diff(pointers.astype(np.int64)) == size).all()
        for row in (0, 3):
            ctypes.memset(int(pointers[row]), 200, size)
        buffer.write_sentinels([3])
        assert buffer.take_unwritten_rows(5, [4]).tolist() == [1, 2, 3]
        canvases = [ctypes.string_at(int(pointer), size) for pointer in pointers]
        assert canvases[0] == bytes([200]) * size
        assert canvases[1] == canvases[2] == bytes(size)
        assert canvases[3] == bytes(3)[:size] + bytes([200]) * (size - 3)
        assert canvases[4][:3] == canvas_buffers.SENTINEL.tobytes()[:size]
        buffer.clear([0, 3])
        canvases = [ctypes.string_at(int(pointer), size) for pointer in pointers]
        assert canvases[:4] == [bytes(size)] * 4
        assert canvases[4][:3] == canvas_buffers.SENTINEL.tobytes()[:size]
    device.memory.check_guards()


class Reader:
    """An array that is being read until somebody waits for it."""

    def __init__(self, order, fails=False):
        self._order = order
        self._fails = fails

    def block_until_ready(self):
        self._order.append("read")
        if self._fails:
            raise RuntimeError("the computation failed")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("write", [lambda buffer: buffer.prepare(3), lambda buffer: buffer.close()])
def test_a_buffer_is_not_written_or_freed_while_it_is_read(device, monkeypatch, write, fails):
    order = []
    buffer = canvas_buffers.CanvasBuffer((4, 5, 3))
    buffer.prepare(3)
    monkeypatch.setattr(cuda, "call", lambda name, *given: order.append(name))
    buffer.readers = {"image": Reader(order), "others": [Reader(order, fails)]}
    write(buffer)
    assert order[:2] == ["read", "read"] and order[2] in ("cudaMemsetAsync", "cudaStreamDestroy")
    assert "read" not in order[2:] and buffer.readers == ()


def test_a_view_is_of_the_memory_that_the_buffer_has_now(device, monkeypatch):
    monkeypatch.setattr(
        cuda,
        "import_buffer",
        lambda pointer, shape, dtype: SimpleNamespace(at=pointer, shape=shape),
    )
    buffer = canvas_buffers.CanvasBuffer((4, 5, 3))
    for rows in (2, 1, 2, 7):
        pointers = buffer.prepare(rows)
        view = buffer.view(rows)
        assert view is buffer.view(rows)
        assert view.at == pointers[0] and view.shape == (rows, 4, 5, 3)
    buffer.prepare(20)  # and no view of it
    pointers = buffer.prepare(7)
    assert buffer.view(7).at == pointers[0]
