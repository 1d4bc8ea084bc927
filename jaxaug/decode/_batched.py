"""nvJPEG's batched decoding: one batch at a time, on the JPEG engines or on the GPU's multiprocessors."""

from typing import Any

import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.native import _cuda, _nvjpeg


class BatchedDecoder:
    """Decodes one batch at a time, with a state and a stream for each chroma sampling.

    A batched call that mixes samplings takes three times as long, and so does a state that changes from one to
    another (measured on an H200, with interpolated chroma).

    Args:
      ordinal: the CUDA device.
      handle: of nvJPEG, on that device.
      pitch: bytes of a canvas row.
    """

    def __init__(self, ordinal: int, handle: Any, pitch: int):
        self._ordinal, self._handle, self._pitch = ordinal, handle, pitch
        self._states: dict[int, tuple[Any, int]] = {}  # sampling -> (state, stream), made when first met

    def decode(self, encoded: Encoded, sampling: np.ndarray, pointers: np.ndarray) -> None:
        """Decode n images, each to the canvas at its pointer; returns when they are there.

        Args:
          encoded: the images.
          sampling: uint32[n], see `Headers`.
          pointers: uint64[n].

        Raises:
          NvjpegError: some image was refused; none is to be trusted.
        """
        images = _nvjpeg.destinations(pointers, self._pitch)
        calls = []
        for group in np.unique(sampling).tolist():
            rows = sampling == group
            calls.append((*self._state(group), encoded.addresses[rows], encoded.lengths[rows], images[rows]))
        try:
            for state, stream, addresses, lengths, targets in calls:
                _nvjpeg.decode_batched(self._handle, state, addresses, lengths, targets, stream)
        finally:  # until then the arrays and the encoded bytes are read
            for _, stream, *_ in calls:
                _cuda.call("cudaStreamSynchronize", stream)

    def close(self) -> None:
        """Free everything but the handle."""
        _cuda.set_device(self._ordinal)
        for state, stream in self._states.values():
            _nvjpeg.library().nvjpegJpegStateDestroy(state)
            _cuda.call("cudaStreamDestroy", stream)

    def _state(self, sampling: int) -> tuple[Any, int]:
        if sampling not in self._states:
            state = _nvjpeg.create("nvjpegJpegStateCreate", self._handle)
            self._states[sampling] = state, _cuda.create_stream()
        return self._states[sampling]
