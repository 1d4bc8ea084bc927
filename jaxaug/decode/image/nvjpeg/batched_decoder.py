"""nvJPEG's batched decoding, on the JPEG engines or on the GPU's multiprocessors."""

import threading
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.native import cuda, libnvjpeg

# Batched calls that run at once on a GPU, so that the engines never pause. The state of each keeps
# 14 streams busy: a third one would share the GPU's 32 hardware queues with the first two (see
# `jaxaug/__init__.py`), and during a training they would wait for each other: 9,900 images/s
# instead of 18,600 (measured on an H200).
MAX_RUNNING_CALLS = 2


class _State(NamedTuple):
    """A state of nvJPEG and its stream, kept for later calls with the same sampling."""

    sampling: int
    state: Any
    stream: int


class BatchedDecoder:
    """Decodes batches for several threads, with separate states for each chroma sampling.

    A batched call that mixes samplings takes three times as long, and so does a state that changes
    from one sampling to another (measured on an H200, with interpolated chroma).

    Args:
      handle: of nvJPEG.
      channels: 3 for RGB, 1 for luma.

    Attributes:
      permits: a thread may call `decode` inside of `with decoder.permits:`.
    """

    def __init__(self, handle: Any, channels: int):
        self._handle = handle
        self._channels = channels
        self._states: list[_State] = []
        self._idle: dict[int, list[_State]] = {}  # by sampling
        self._making = threading.Lock()
        self.permits = threading.Semaphore(MAX_RUNNING_CALLS)

    def has_free_permit(self) -> bool:
        """Return True if a call could start now."""
        free = self.permits.acquire(blocking=False)
        if free:
            self.permits.release()
        return free

    def decode(
        self, encoded: Encoded, sampling: np.ndarray, pointers: np.ndarray, pitches: np.ndarray
    ) -> None:
        """Decode n images to the addresses in `pointers`; return when they are written.

        The samplings are decoded one after another with the permit of the caller, or two at once if
        a second permit is free.

        Args:
          encoded: n images.
          sampling: uint32[n], see `Headers`.
          pointers: uint64[n].
          pitches: uint64[n], bytes from one row of an image to the next.

        Raises:
          NvjpegError: some image was refused; none of them may be used.
        """
        groups = {each: (sampling == each).nonzero()[0] for each in set(sampling.tolist())}
        for each in groups:
            self.make_states(each)

        images = libnvjpeg.destinations(pointers, pitches)
        parts: list[tuple[np.ndarray, ...]] = []
        running: list[_State] = []
        try:
            # The largest first: the others run beside it, one after another.
            for each in sorted(groups, key=lambda each: -len(groups[each])):
                if running and not self.permits.acquire(blocking=False):
                    self._wait(running[-1])
                    self._give_back(running.pop())
                running.append(self._take_state(each))
                _, state, stream = running[-1]
                rows = groups[each]
                parts.append((encoded.addresses[rows], encoded.lengths[rows], images[rows]))
                libnvjpeg.decode_batched(
                    self._handle, state, *parts[-1], stream=stream, channels=self._channels
                )
        finally:  # until then the arrays and the encoded bytes are read
            self._finish_all(running)

    def make_states(self, sampling: int) -> None:
        """Make all states of a sampling, unless they are there.

        Making one stops the engines of all GPUs, for 0.1 s with one GPU and 0.4 s with four, so it
        must not happen later than with the first image.
        """
        if sampling in self._idle:
            return
        with self._making:
            if sampling not in self._idle:  # made by another thread meanwhile
                states = [self._make_state(sampling) for _ in range(MAX_RUNNING_CALLS)]
                self._idle[sampling] = states

    def close(self) -> None:
        """Free everything but the handle; its device is current."""
        for _, state, stream in self._states:
            libnvjpeg.destroy("nvjpegJpegStateDestroy", state)
            cuda.call("cudaStreamDestroy", stream)

    def _take_state(self, sampling: int) -> _State:
        """Return an idle state of a sampling; there is one, unless a Ctrl-C has lost it."""
        try:
            return self._idle[sampling].pop()
        except IndexError:
            return self._make_state(sampling)

    def _make_state(self, sampling: int) -> _State:
        made = libnvjpeg.create("nvjpegJpegStateCreate", self._handle)
        state = _State(sampling, made, cuda.create_stream())
        self._states.append(state)
        return state

    def _finish_all(self, running: list[_State]) -> None:
        """Wait for all calls, and release their permits but the first, which is the caller's."""
        if running:
            try:
                self._wait(running[-1])
            finally:  # Ctrl-C is raised when a call of CUDA returns: the other calls still write
                self._give_back(running.pop())
                if running:
                    self.permits.release()
                self._finish_all(running)

    def _wait(self, state: _State) -> None:
        cuda.call("cudaStreamSynchronize", state.stream)

    def _give_back(self, state: _State) -> None:
        self._idle[state.sampling].append(state)
