"""nvJPEG's batched decoding, on the JPEG engines or on the GPU's multiprocessors."""

import contextlib
import threading
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.native import cuda, libnvjpeg

# States at work at once, so that the engines never pause. Each keeps 14 streams busy: a third would
# share the GPU's 32 queues with the first two (see `jaxaug/__init__.py`), and beside a training
# they would then wait for each other: 9,900 images/s instead of 18,600 (measured on an H200).
TURNS = 2


class _State(NamedTuple):
    """What one call needs, kept for the next one of its sampling."""

    sampling: int
    state: Any
    stream: int


class BatchedDecoder:
    """Decodes batches for several threads, each chroma sampling with states and streams of its own.

    A batched call that mixes samplings takes three times as long, and so does a state that changes
    from one to another (measured on an H200, with interpolated chroma).

    Args:
      handle: of nvJPEG.

    Attributes:
      turns: `with decoder.turns:`, a thread may call `decode`.
    """

    def __init__(self, handle: Any):
        self._handle = handle
        self._states: list[_State] = []
        self._idle: dict[int, list[_State]] = {}
        self._making = threading.Lock()
        self.turns = threading.Semaphore(TURNS)

    def idle(self) -> bool:
        """Whether a turn is free."""
        free = self.turns.acquire(blocking=False)
        if free:
            self.turns.release()
        return free

    def decode(
        self, encoded: Encoded, sampling: np.ndarray, pointers: np.ndarray, pitches: np.ndarray
    ) -> None:
        """Decode n images, each to the memory at its pointer; return when they are there.

        The samplings take the thread's turn one after another as they come, or two at once where a
        second turn is free.

        Args:
          encoded: the images.
          sampling: uint32[n], see `Headers`.
          pointers: uint64[n].
          pitches: uint64[n], bytes from one row of an image to the next.

        Raises:
          NvjpegError: some image was refused; none is to be trusted.
        """
        images = libnvjpeg.destinations(pointers, pitches)
        masks = ((group, sampling == group) for group in dict.fromkeys(sampling.tolist()))
        calls = [
            (group, (encoded.addresses[rows], encoded.lengths[rows], images[rows]))
            for group, rows in masks
        ]
        for group, _ in calls:
            self._make_states(group)
        running: list[_State] = []
        try:
            for group, arrays in calls:
                if running and not self.turns.acquire(blocking=False):
                    self._wait(running[-1])
                    self._give_back(running.pop())
                running.append(self._take_state(group))
                libnvjpeg.decode_batched(
                    self._handle, running[-1].state, *arrays, running[-1].stream
                )
        finally:  # until then the arrays and the encoded bytes are read
            self._finish_all(running)

    def close(self) -> None:
        """Free everything but the handle; its device is current."""
        for _, state, stream in self._states:
            libnvjpeg.destroy("nvjpegJpegStateDestroy", state)
            cuda.call("cudaStreamDestroy", stream)

    def _make_states(self, sampling: int) -> None:
        """Make as many states of this sampling as there are turns, with its first image.

        Making one halts the engines of all GPUs, 0.1 s with one and 0.4 s with four: that belongs
        to the start.
        """
        with self._making:
            if sampling not in self._idle:
                self._idle[sampling] = [self._make_state(sampling) for _ in range(TURNS)]

    def _take_state(self, sampling: int) -> _State:
        """Return an idle state of this sampling; there is one, unless a Ctrl-C has lost it."""
        with contextlib.suppress(IndexError):
            return self._idle[sampling].pop()
        return self._make_state(sampling)

    def _make_state(self, sampling: int) -> _State:
        state = _State(
            sampling, libnvjpeg.create("nvjpegJpegStateCreate", self._handle), cuda.create_stream()
        )
        self._states.append(state)
        return state

    def _finish_all(self, running: list[_State]) -> None:
        """Wait for all, and give back their turns but the first one's, which is the caller's."""
        if running:
            try:
                self._wait(running[-1])
            finally:  # Ctrl-C comes when a call of CUDA returns: the others still write
                self._give_back(running.pop())
                if running:
                    self.turns.release()
                self._finish_all(running)

    def _wait(self, state: _State) -> None:
        cuda.call("cudaStreamSynchronize", state.stream)

    def _give_back(self, state: _State) -> None:
        self._idle[state.sampling].append(state)
