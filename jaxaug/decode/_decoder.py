"""`Decoder`: the verdict over each image, the choice of an engine, and the assembling of the batch."""

import functools
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxaug._checks import check_choice, check_positive_int, check_size
from jaxaug._typing import Device
from jaxaug.decode._engine import Engine
from jaxaug.decode._header import BAD, MAX_PIXELS, Headers, read_headers
from jaxaug.decode._host import HostEngine, fit_size
from jaxaug.decode._types import Encoded, ImageBatch
from jaxaug.errors import DecodeError


class Decoded(NamedTuple):
    """A decoded batch as the Loader takes it: bad images are told, not raised.

    Attributes:
      pixels: one uint8[n / devices, H, W, 3] per device; they may view a buffer of the decoder's own, so
        compute from them and never hand them out.
      size: int32[n, 2], (height, width) on the canvas; the canvas's own for a bad image.
      original_size: int32[n, 2], (height, width) of the upright image; the canvas's own for a bad image.
      orientation: uint8[n], the EXIF orientation 1..8 that was applied.
      valid: bool[n]; rows that are not are zero.
      failures: row -> reason, for the bad images.
      release: to be called once with arrays whose computation reads `pixels`; it is waited for before these are
        written again, so the arrays must not be donated or deleted meanwhile.
      lent: `pixels` view a buffer of the decoder's own.
      waited: seconds until the device had read what that buffer held before.
    """

    pixels: list[jax.Array]
    size: np.ndarray
    original_size: np.ndarray
    orientation: np.ndarray
    valid: np.ndarray
    failures: dict[int, str]
    release: Callable[[Any], None]
    lent: bool
    waited: float


class Decoder:
    """Decodes batches of encoded images into static canvases on the local devices.

    Every image lies upright at the top-left of a canvas of zeros; one larger than the canvas is shrunk to
    fit, aspect kept and antialiased. One Decoder drives all its devices; `decode` may be called from any
    thread.

    Args:
      canvas: (H, W) of every row, in pixels.
      backend: "host" decodes with threads on the CPU, "nvjpeg" on the JPEG engines of NVIDIA GPUs; "auto"
        takes the best there is.
      devices: local devices; device d gets the d-th equal share of the rows. None: all local devices.
      on_error: "raise" a DecodeError for the first bad image of a batch, or "mask" bad images: zeros and
        valid=False.
      num_threads: host threads; None: one per CPU that this process may use. Beside a GPU's engines half of them decode
        what those refuse, and a quarter, of large images half, a share of the rest.
      max_pixels: an image whose header promises more pixels is bad; checked before anything is allocated.
      deterministic: the way an image is decoded depends on its bytes alone, so that its pixels do too. With
        the host backend this always holds.

    Raises:
      ValueError: an argument is wrong.

    Example:
      >>> import io, jax, numpy as np
      >>> from PIL import Image
      >>> file = io.BytesIO()
      >>> Image.fromarray(np.full((2, 3, 3), 255, np.uint8)).save(file, "jpeg")
      >>> with Decoder((4, 4), "host", devices=jax.local_devices()[:1]) as decoder:
      ...     batch = decoder.decode([file.getvalue()])
      >>> batch.pixels.shape, batch.size.tolist(), batch.valid.tolist()
      ((1, 4, 4, 3), [[2, 3]], [True])
    """

    def __init__(
        self,
        canvas: tuple[int, int] = (512, 512),
        backend: str = "auto",
        devices: Sequence[Device] | None = None,
        on_error: str = "raise",
        num_threads: int | None = None,
        max_pixels: int = MAX_PIXELS,
        deterministic: bool = False,
    ):
        check_size("canvas", canvas)
        check_choice("backend", backend, ("auto", "nvjpeg", "host"))
        check_choice("on_error", on_error, ("raise", "mask"))
        check_positive_int("max_pixels", max_pixels)
        if num_threads is None:
            num_threads = _usable_cpus()
        check_positive_int("num_threads", num_threads)
        self.canvas, self.on_error, self.max_pixels = canvas, on_error, max_pixels
        self.deterministic = deterministic
        self.devices = _check_devices(devices)
        self.backend, self._engine = _make_engine(backend, self.devices, canvas, num_threads, deterministic)
        self._lock, self._closed = threading.Lock(), False
        self._stats: dict[str, int] = {"images": 0, "failed": 0, "shrunk": 0}

    def decode(self, encoded: "Encoded | Sequence[bytes]") -> ImageBatch:
        """Decode n images.

        Args:
          encoded: `Encoded`, or a sequence of bytes-like objects; n is a multiple of the number of devices.

        Returns:
          ImageBatch of n rows; `pixels` is the array itself if there is one device, else a list of arrays.

        Raises:
          ValueError: the devices do not divide n.
          DecodeError: with on_error="raise", for the first bad image; `index` is its row.
        """
        encoded = _as_encoded(encoded)
        decoded = self.decode_rows(encoded)
        if decoded.failures and self.on_error == "raise":
            decoded.release(None)
            row = min(decoded.failures)
            raise DecodeError(decoded.failures[row], index=row, byte_count=int(encoded.lengths[row]))
        pixels = decoded.pixels
        if decoded.lent:  # a view of a decode buffer never leaves jaxaug: a copy of it does
            pixels = _copy_and_release(decoded)
        pixels = pixels[0] if len(pixels) == 1 else list(pixels)
        return ImageBatch(pixels, decoded.size, decoded.original_size, decoded.valid)

    def decode_rows(self, encoded: Encoded, headers: Headers | None = None) -> Decoded:
        """Decode n images for the Loader: bad ones are told row by row, and the buffers stay the decoder's.

        Args:
          encoded: n images, n a multiple of the number of devices.

        Returns:
          Decoded; its `release` must be called.

        Raises:
          ValueError: the devices do not divide n.
        """
        count = len(encoded.lengths)
        if count % len(self.devices):
            raise ValueError(
                f"`encoded` must have a multiple of {len(self.devices)} images, one share per device, got "
                f"{count}: pad the batch, or give the Decoder fewer `devices`."
            )
        if self._closed:
            raise RuntimeError("this Decoder is closed: make a new one.")
        encoded = encoded._replace(
            addresses=np.asarray(encoded.addresses, np.uint64), lengths=np.asarray(encoded.lengths, np.uint64)
        )
        headers = read_headers(encoded, self.max_pixels) if headers is None else headers
        valid, original_size = headers.kind != BAD, headers.original_size()
        original_size[~valid] = self.canvas
        size = fit_size(original_size, self.canvas)
        canvases = self._engine.decode(encoded, headers, size)
        failures = {row: str(headers.reason[row]) for row in (~valid).nonzero()[0].tolist()}
        failures |= canvases.failures
        valid[list(failures)] = False
        size[~valid] = original_size[~valid] = self.canvas
        self._count(valid, (size != original_size).any(1), canvases.decoded)
        orientation = np.where(valid, headers.orientation, 1).astype(np.uint8)
        about = (size, original_size, orientation, valid, failures)
        return Decoded(canvases.pixels, *about, canvases.release, canvases.lent, canvases.waited)

    @property
    def in_flight(self) -> int:
        """How many calls of `decode` at once keep the backend busy; more wait for each other."""
        return self._engine.in_flight

    @property
    def stats(self) -> dict[str, int]:
        """How many images so far: decoded, failed, shrunk to the canvas, and decoded by each backend."""
        with self._lock:
            return dict(self._stats)

    def close(self) -> None:
        """Stop the threads and free the buffers; a second call does nothing."""
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._engine.close()

    def __enter__(self) -> "Decoder":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _count(self, valid: np.ndarray, shrunk: np.ndarray, decoded: dict[str, int]) -> None:
        counts = {"images": valid.sum(), "failed": (~valid).sum(), "shrunk": shrunk.sum()} | decoded
        with self._lock:
            for name, count in counts.items():
                self._stats[name] = self._stats.get(name, 0) + int(count)


def _make_engine(
    backend: str, devices: list[Device], canvas: tuple[int, int], num_threads: int, deterministic: bool
) -> tuple[str, Engine]:
    """The backend's name and engine."""
    on_gpus = all(device.platform == "gpu" for device in devices)
    if backend == "nvjpeg" and not on_gpus:
        raise ValueError(
            f"`devices` must be NVIDIA GPUs for backend='nvjpeg', got {devices}: where there is one, install "
            "jaxaug[cuda13] or jaxaug[cuda12]; else take 'auto' or 'host'."
        )
    if backend == "auto" and not on_gpus:
        _warn_once(
            f"jaxaug decodes on the host, as {devices[0]} is no NVIDIA GPU. Where there is one, install jaxaug[cuda13] "
            "or jaxaug[cuda12]."
        )
    if backend == "host" or not on_gpus:
        return "host", HostEngine(devices, canvas, num_threads)
    from jaxaug.decode._nvjpeg import NvjpegEngine
    from jaxaug.decode.native._cuda import CudaError
    from jaxaug.decode.native._load import LibraryError
    from jaxaug.decode.native._nvjpeg import NvjpegError

    try:
        return "nvjpeg", NvjpegEngine(devices, canvas, num_threads, deterministic)
    except (LibraryError, NvjpegError, CudaError) as error:
        if backend == "nvjpeg":
            raise
        _warn_once(f"jaxaug decodes on the host, because the GPU's JPEG engines cannot be used: {error}")
        return "host", HostEngine(devices, canvas, num_threads)


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


def _copy_and_release(decoded: Decoded) -> list[jax.Array]:
    pixels, readers = [], []
    try:
        for view in decoded.pixels:
            copy, done = _copy(view)
            pixels.append(copy)
            readers.append(done)
    finally:
        decoded.release(readers)
    return pixels


@jax.jit
def _copy(view: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The pixels in memory of XLA's own, and a small array that is ready when they are."""
    return jnp.copy(view), jnp.zeros((), jnp.uint8)


def _check_devices(devices: Sequence[Device] | None) -> list[Device]:
    local = jax.local_devices()
    if devices is None:
        return local
    devices = list(devices)
    if not devices or not all(isinstance(device, jax.Device) for device in devices):
        raise ValueError(f"`devices` must be one or more jax devices, got {devices!r}.")
    if foreign := [device for device in devices if device.process_index != jax.process_index()]:
        raise ValueError(f"`devices` must be local to this process, got {foreign} of other processes.")
    return devices


def _as_encoded(encoded: "Encoded | Sequence[bytes]") -> Encoded:
    if isinstance(encoded, Encoded):
        return encoded
    if isinstance(encoded, (bytes, bytearray, memoryview, np.ndarray)):
        raise TypeError("`encoded` must be a sequence of bytes-like objects, got one of them: wrap it in a list.")
    return Encoded.from_bytes(encoded)


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
