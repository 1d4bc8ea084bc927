"""The Decoder: it checks the images of a batch, passes them to a backend and counts them."""

import contextlib
import functools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxaug._checks import check_choice, check_positive_int, check_size
from jaxaug._install import install_gpu_command
from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Device
from jaxaug._warn import precision_warning, warn_user
from jaxaug.decode._column import Decoded, release_nothing
from jaxaug.decode._cpus import usable_cpus
from jaxaug.decode._types import Encoded, ImageBatch
from jaxaug.decode.image.backend import Backend, DecodedPixels, warn_of_host
from jaxaug.decode.image.canvas import fit_size
from jaxaug.decode.image.deep.gpu import decode_by
from jaxaug.decode.image.form import PixelForm, pixel_form
from jaxaug.decode.image.host.host_backend import HostBackend
from jaxaug.decode.image.parse.headers import BAD, MAX_PIXELS, Headers, read_headers
from jaxaug.decode.image.parse.stored_headers import confirm_headers
from jaxaug.errors import DecodeError


class Decoder:
    """Decode batches of encoded images into static canvases on the local devices.

    Every image lies upright at the top-left of a canvas of zeros. One larger than the canvas is
    shrunk to fit, antialiased, with its aspect kept. One Decoder uses all its devices. `decode` may
    be called from any thread, also inside of `jax.set_mesh`, but not from a process that was forked
    after the Decoder was made. `close` waits for the running calls.

    **JPEG engines.** With the "nvjpeg" backend they decode baseline JPEGs of 8 bits per sample and
    one scan, gray or YCbCr, with chroma sampling 4:4:4, 4:2:2, 4:4:0 or 4:2:0; if the
    chroma is subsampled, with both sides of 16 pixels or more. They may be larger than the canvas
    or turned by EXIF. Host threads decode the rest and upload it: progressive, lossless and
    arithmetic JPEGs, RGB, CMYK and 4:1:1, those with an unusual header, and all other formats.
    `stats` counts the images of both. A check of the bytes decides before which files are good, so
    both agree on that.

    **Formats.** The host reads JPEG, PNG, WebP, BMP, GIF (first frame), TIFF, PPM, PGM, PBM, ICO
    (largest image), CUR, DDS, PCX, PSD, QOI, TGA, XBM, XPM, and where this Pillow has the codecs,
    JPEG 2000 and AVIF. With the extra `deep` also TIFF of any bands and bits, JPEG XL, HEIC, frames
    of DICOM, and all bits of JPEG 2000 and AVIF; without it PAM, PFM, and arrays of NPY and NPZ. A
    format is recognized by the first bytes, a TGA by its footer.

    **Memory.** A batch takes H x W x channels bytes per image, and several batches may be in
    flight. With "nvjpeg", the canvases lie outside of the memory that JAX reserves, as do the
    images that are decoded whole before they are shrunk. Together they take up to a tenth of the
    device's memory, or 2 GB if that is more; a batch that alone takes more is decoded all the same.
    While a host thread decodes, it takes up to 9 bytes per pixel of its image: 16 threads with
    images of 2^27 pixels (the default of `max_pixels`) take 19 GB.

    Args:
      canvas: (H, W) of every row, in pixels.
      backend: "host" decodes with threads on the CPU, "nvjpeg" with the JPEG engines of NVIDIA
        GPUs. "auto" takes the best one available, and warns if that is "host" although the devices
        are GPUs.
      devices: local devices; the rows are divided equally among them, in order. None: all local
        devices.
      on_error: "raise" a DecodeError for the first bad image of a batch, or "mask" bad images:
        their rows are zeros, and `valid` is False.
      num_threads: host threads; None: one for each CPU that this process may use. With "host", all
        of them decode. With "nvjpeg", half of them, divided among the GPUs, decode the images that
        the engines cannot; the other CPUs are left to the calling threads. With one GPU and without
        `deterministic`, a quarter more help the engines, or half more if the files are large.
      max_pixels: an image with more pixels in its header is bad. This is checked before anything is
        allocated. A JPEG of several scans is also bad if its pixels times its scans are more than
        32 times `max_pixels`, and more than 2^32.
      deterministic: the pixels of an image depend on its bytes alone. This always holds with
        "host". With "nvjpeg" it needs GPUs with JPEG engines; without them, "auto" takes "host".
      channels: "rgb"; "gray" for canvases of one channel: the Y channel of a gray or YCbCr JPEG,
        which costs no color conversion and a third of the memory, else 0.299 R + 0.587 G + 0.114 B
        (Y differs from Pillow's `convert("L")` where RGB values are rounded or clipped: 0.01 levels
        in the mean of 100 photographs, at most 19); "rgba", opaque where a file has no alpha; or n,
        the n numbers that each pixel of a file has: palettes are not looked up then. None is "rgb",
        or with `bands` their number.
      dtype: "uint8", "uint16" or "float32". Numbers stay as the file has them, and nothing is
        scaled: 8 and 12 bits are 0 to 255 and 0 to 4,095 in each. As uint8, more bits keep their
        upper 8, with a PrecisionWarning; signed integers and floats are bad images but for float32.
        Colors of fewer than 8 bits fill 8. Other dtypes than uint8 are decoded by host threads,
        but on GPUs JPEG 2000 and TIFF with LZW by nvJPEG2000 and nvTIFF where these are installed.
      bands: the numbers of a pixel that are taken, in that order, counted from 0 as in an array
        (GDAL counts from 1).
      page: of a file of several images, counted from 0.
      truncated: a JPEG without its end marker is bad ("error"), or is decoded as far as it goes, by
        host threads with every backend ("accept"). What is missing is gray, or a coarser image of
        a progressive one. Other damage counts as ever.

    Attributes:
      canvas: (H, W).
      form: what the pixels are.

    Raises:
      ValueError: an argument is wrong.
      LibraryError, NvjpegError, CudaError: backend="nvjpeg" cannot be used here.

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
        channels: str | int | None = None,
        dtype: DTypeLike = "uint8",
        bands: Sequence[int] | None = None,
        page: int = 0,
        truncated: str = "error",
    ):
        if isinstance(canvas, (tuple, list, np.ndarray)):
            canvas = tuple(_as_int(side) for side in canvas)
        max_pixels = _as_int(max_pixels)
        threads: int = usable_cpus() if num_threads is None else _as_int(num_threads)

        check_size("canvas", canvas)
        check_choice("backend", backend, ("auto", "nvjpeg", "host"))
        check_choice("on_error", on_error, ("raise", "mask"))
        check_positive_int("max_pixels", max_pixels)
        check_positive_int("num_threads", threads)
        check_choice("deterministic", deterministic, (False, True))
        check_choice("truncated", truncated, ("error", "accept"))

        self.canvas = canvas
        self.form = pixel_form(channels, dtype, bands, page)
        self.on_error = on_error
        self.max_pixels = max_pixels
        self.truncated = truncated
        self.deterministic = deterministic
        self.devices = _check_devices(devices)
        self.backend, self._backend = _make_backend(
            backend, self.devices, self.canvas, self.form, threads, deterministic
        )

        self._warned = False
        self._checking = threading.Lock()
        self._lock = threading.Lock()
        self._closed = False
        self._call_ended = threading.Condition(self._lock)
        self._calls = set[object]()
        self._process = os.getpid()
        self._stats = dict.fromkeys(("images", "failed", "shrunk", *self._backend.counted), 0)

    def decode(self, encoded: "Encoded | Sequence[bytes]") -> ImageBatch:
        """Decode n images.

        Args:
          encoded: `Encoded`, or a sequence of bytes-like objects; n is a multiple of the number of
            devices.

        Returns:
          ImageBatch of n rows; `pixels` is the array itself if there is one device, else a list of
          arrays.

        Raises:
          ValueError: the devices do not divide n; or the Decoder is closed.
          TypeError: `encoded` is something else.
          DecodeError: with on_error="raise", for the first bad image; `index` is its row.
          MemoryError: the device has no memory left for a batch.
          RuntimeError: the Decoder was made before this process was forked.
        """
        encoded = _as_encoded(encoded)
        with self._call():
            return self._decode(encoded)

    def _decode(self, encoded: Encoded) -> ImageBatch:
        decoded = self._decode_rows(encoded)
        if decoded.failures and self.on_error == "raise":
            decoded.release(None)
            row = min(decoded.failures)
            byte_count = int(encoded.lengths[row])
            raise DecodeError(decoded.failures[row], index=row, byte_count=byte_count)
        self._warn(decoded)

        pixels = decoded.arrays["pixels"]
        if decoded.release is not release_nothing:  # a view of a buffer never leaves jaxaug
            pixels = _copy_and_release(decoded)
        return ImageBatch(
            pixels=pixels[0] if len(pixels) == 1 else list(pixels),
            size=decoded.arrays["size"],
            original_size=decoded.arrays["original_size"],
            valid=decoded.valid,
        )

    def _warn(self, decoded: Decoded) -> None:
        """Warn of the first image that has lost bits."""
        if decoded.warnings and not self._warned:
            self._warned = True
            row = min(decoded.warnings)
            warning = decoded.warnings[row]
            warn_user(f"image {row} of the batch {warning}", type(warning))

    def check_rows(
        self, encoded: Encoded, stored: Headers | None = None
    ) -> tuple[Headers, dict[int, str]]:
        """Return the headers of n images, and row -> reason for those that cannot be decoded.

        Args:
          encoded: n images.
          stored: those of an earlier `read_headers`, as an index stores them. They spare the check
            of tables, ends and formats. The sides and components of a JPEG are always compared with
            its own frame header; one that differs is checked in full. Images of more than the
            Decoder's `max_pixels` are bad in any case.

        Raises:
          ValueError: `stored` has another number of rows.
        """
        encoded = encoded.checked()
        if stored is not None and len(stored.kind) != len(encoded.lengths):
            raise ValueError(
                f"`stored` must be the headers of `encoded`, {len(encoded.lengths)} rows, got "
                f"{len(stored.kind)}: take `read_headers(encoded)`."
            )
        # One check at a time: numpy gives up the GIL in each of its hundreds of calls on a large
        # batch, and concurrent checks would hand it to each other every time. It costs as much as
        # a tenth of Python's time with eight GPUs, and more than the checks gain side by side.
        limits = (self.max_pixels, self.truncated, self.form)
        with self._checking:
            if stored is None:
                headers = read_headers(encoded, *limits)
            else:
                headers = confirm_headers(encoded, stored, *limits)
        return headers, _reasons(headers)

    def decode_rows(
        self,
        encoded: Encoded,
        checked: Headers | None = None,
        siblings: Mapping[str, Decoded] = MappingProxyType({}),
        wanted: np.ndarray | None = None,
        keys: np.ndarray | None = None,
    ) -> Decoded:
        """Decode n images for a loader, without errors for bad images and without a copy.

        Args:
          encoded: n images, n a multiple of the number of devices.
          checked: the headers that `check_rows` gave for them; None to check them here.
          siblings, keys: not used, see `ColumnDecoder.decode_rows`.
          wanted: bool[n], False for rows without an image, which `stats` does not count; None for
            all.

        Returns:
          Decoded, with the arrays "pixels" (one [n / d, H, W, channels] for each of d
          devices), "size" and "original_size" int32[n, 2], and "orientation" uint8[n], the EXIF
          orientation that was applied; a bad image has the canvas as its sizes, and orientation 1.

        Raises:
          ValueError: the devices do not divide n, or the Decoder is closed.
          MemoryError: the device has no memory left for a batch.
          RuntimeError: the Decoder was made before this process was forked.
        """
        with self._call():
            return self._decode_rows(encoded, checked, wanted)

    def _decode_rows(
        self,
        encoded: Encoded,
        checked: Headers | None = None,
        wanted: np.ndarray | None = None,
    ) -> Decoded:
        encoded = encoded.checked()
        count = len(encoded.lengths)
        if count % len(self.devices):
            raise ValueError(
                f"`encoded` must have a multiple of {len(self.devices)} images, one share per "
                f"device, got {count}: pad the batch, or give the Decoder fewer `devices`."
            )
        if checked is None:
            headers, bad = self.check_rows(encoded)
        else:
            headers, bad = checked, _reasons(checked)
        original_size = headers.original_size()
        if bad:
            original_size[list(bad)] = self.canvas
        size = fit_size(original_size, self.canvas)

        pixels = self._backend.decode(encoded, headers, size)
        decoded = _with_sizes(pixels, headers, bad, size, original_size, self.canvas)
        if self.form.dtype != "uint8":
            decoded = decoded._replace(warnings={})
        return self._count(decoded, pixels.counts, wanted)

    @property
    def in_flight(self) -> int:
        """Return how many calls of `decode` at once keep the backend busy; more would wait."""
        return self._backend.in_flight

    @property
    def stats(self) -> dict[str, int]:
        """The numbers of images so far, and the device memory.

        "images" were decoded and "failed" were not; "shrunk" are larger than the canvas; the other
        names count the images that each backend decoded. "device_bytes" is the device memory
        outside of JAX's own that canvases and slots take now.
        """
        with self._lock:
            return {**self._stats, "device_bytes": self._backend.bytes_held}

    def close(self) -> None:
        """Wait for the running calls of `decode`, then stop the threads and free the buffers.

        Later calls of `decode` are errors; a later `close` does nothing. In a process that was
        forked after the Decoder was made, `close` does nothing, as it has no threads and buffers.
        """
        if os.getpid() != self._process:
            return
        with self._call_ended:
            self._closed = True
            self._call_ended.wait_for(lambda: not self._calls)
        self._backend.close()

    def __enter__(self) -> "Decoder":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """Register a call, so that `close` waits for it, and hide the mesh of the user from it."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "this Decoder was made before the process was forked, and its threads are not "
                'here: make it in the child, or start processes with the "spawn" method.'
            )
        call = object()
        try:
            with self._lock:
                if self._closed:
                    raise ValueError("the Decoder is closed: make a new one.")
                self._calls.add(call)
            with no_mesh():
                yield
        finally:
            with self._lock:
                self._calls.discard(call)
                self._call_ended.notify_all()

    def _count(
        self, decoded: Decoded, by_backend: Mapping[str, int], wanted: np.ndarray | None
    ) -> Decoded:
        """Count the rows of a batch; return it with what it adds to a Loader's counts."""
        everything = len(decoded.valid)
        asked = everything if wanted is None else int(np.count_nonzero(wanted))
        valid = decoded.valid if wanted is None else decoded.valid & wanted
        images = int(np.count_nonzero(valid))
        shrunk = 0
        if np.count_nonzero(differs := decoded.arrays["size"] != decoded.arrays["original_size"]):
            shrunk = int(np.count_nonzero(differs.any(axis=1) & valid))
        counts = {"images": images, "failed": asked - images, "shrunk": shrunk}
        with self._lock:
            for name, count in (counts | dict(by_backend)).items():
                self._stats[name] += count
        return decoded._replace(counts={"shrunk": shrunk})


def _reasons(headers: Headers) -> dict[int, str]:
    """Return row -> reason for the images that are `BAD`."""
    rows = (headers.kind == BAD).nonzero()[0].tolist()
    return {row: str(headers.reason[row]) for row in rows}


def _with_sizes(
    decoded: DecodedPixels,
    headers: Headers,
    bad: dict[int, str],
    size: np.ndarray,
    original_size: np.ndarray,
    canvas: tuple[int, int],
) -> Decoded:
    """Return some pixels with the sizes and orientations of their images.

    Args:
      decoded: the pixels of n images.
      headers: of the images.
      bad: row -> reason, for the images that are `BAD`.
      size, original_size: int32[n, 2]; set to the canvas's for failures.
      canvas: (H, W).
    """
    failures = bad | decoded.failures
    valid = np.ones(len(size), np.bool_)
    orientation = headers.orientation.astype(np.uint8)
    if failures:
        rows = list(failures)
        valid[rows] = False
        original_size[rows] = canvas
        orientation[rows] = 1
        size[rows] = canvas

    deep = (headers.precision > 8).nonzero()[0].tolist()
    arrays = {
        "pixels": decoded.pixels,
        "size": size,
        "original_size": original_size,
        "orientation": orientation,
    }
    return Decoded(
        arrays,
        valid,
        failures,
        {row: precision_warning(int(headers.precision[row])) for row in deep if valid[row]},
        release=decoded.release,
        wait_seconds=decoded.wait_seconds,
    )


def _make_backend(
    backend: str,
    devices: list[Device],
    canvas: tuple[int, int],
    form: PixelForm,
    num_threads: int,
    deterministic: bool,
) -> tuple[str, Backend]:
    """Return the backend's name and the backend."""
    on_gpus = all(device.platform == "gpu" for device in devices)
    if backend == "nvjpeg" and not on_gpus:
        raise ValueError(
            f"`devices` must be NVIDIA GPUs for backend='nvjpeg', got {devices}: where there "
            f"is one, {install_gpu_command()}; else take 'auto' or 'host'."
        )
    if backend == "nvjpeg" and not form.is_usual:
        raise ValueError(
            "`backend` must be 'auto' or 'host' for other pixels than uint8 of \"rgb\" or "
            "\"gray\", which the JPEG engines do not give, got 'nvjpeg'."
        )
    if backend == "host" or not on_gpus or (deterministic and not form.is_usual):
        return "host", HostBackend(devices, canvas, num_threads, form)
    if not form.is_usual:
        from jaxaug.decode.image.nvtiff_backend import NvtiffBackend

        begin = functools.partial(_begin_thread, devices[0].local_hardware_id or 0)
        host = HostBackend(devices, canvas, num_threads, form, begin)
        return "host", NvtiffBackend(devices, canvas, form, host)
    from jaxaug.decode.image.nvjpeg.nvjpeg_backend import NvjpegBackend
    from jaxaug.decode.native.cuda import CudaError
    from jaxaug.decode.native.libnvjpeg import NvjpegError
    from jaxaug.decode.native.load_library import LibraryError

    canvas_shape = (*canvas, form.count)
    # Its threads start with its first batch.
    host = None if backend == "nvjpeg" else HostBackend(devices, canvas, num_threads, form)
    try:
        return "nvjpeg", NvjpegBackend(devices, canvas_shape, num_threads, deterministic, host)
    except (LibraryError, NvjpegError, CudaError) as error:
        if host is None:
            raise
        warn_of_host(error)
        return "host", host


def _begin_thread(ordinal: int) -> None:
    """Have a host thread decode JPEG 2000 and TIFF on a GPU, where the libraries are installed."""
    from jaxaug.decode.native.cuda import CudaError
    from jaxaug.decode.native.libnvjpeg2k import Jpeg2000Decoder
    from jaxaug.decode.native.libnvtiff import TiffDecoder
    from jaxaug.decode.native.load_library import LibraryError

    decoders = {}
    for format, kind in (("JPEG2000", Jpeg2000Decoder), ("TIFF", TiffDecoder)):
        with contextlib.suppress(LibraryError, CudaError, RuntimeError):
            decoders[format] = kind(ordinal)
    decode_by(**decoders)


def _copy_and_release(decoded: Decoded) -> list[jax.Array]:
    pixels = []
    readers = []
    try:
        for view in decoded.arrays["pixels"]:
            copy, done = _copy(view)
            pixels.append(copy)
            readers.append(done)
    finally:
        decoded.release(readers)
    return pixels


@jax.jit
def _copy(view: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return a copy in XLA's own memory, and a small array that is ready when the copy is."""
    return jnp.copy(view), jnp.zeros((), jnp.uint8)


def _check_devices(devices: Sequence[Device] | None) -> list[Device]:
    local = jax.local_devices()
    if devices is None:
        return local
    if isinstance(devices, jax.Device) or not isinstance(devices, Iterable):
        raise ValueError(
            f"`devices` must be a sequence of jax devices, got {devices!r}: wrap one in a list.",
        )
    devices = list(devices)
    if not devices or not all(isinstance(device, jax.Device) for device in devices):
        raise ValueError(f"`devices` must be one or more jax devices, got {devices!r}.")
    foreign = [device for device in devices if device.process_index != jax.process_index()]
    if foreign:
        raise ValueError(
            f"`devices` must be local to this process, got {foreign} of other processes."
        )
    return devices


def _as_encoded(encoded: "Encoded | Sequence[bytes]") -> Encoded:
    if isinstance(encoded, Encoded):
        return encoded
    if isinstance(encoded, (bytes, bytearray, memoryview, np.ndarray)):
        raise TypeError(
            "`encoded` must be a sequence of bytes-like objects, got one of them: wrap it in a "
            "list."
        )
    if isinstance(encoded, (str, os.PathLike)) or not hasattr(encoded, "__getitem__"):
        raise TypeError(
            "`encoded` must be `Encoded` or a sequence of bytes-like objects, got "
            f"{type(encoded).__name__}: give the bytes of each file, in a list."
        )
    return Encoded.from_bytes(encoded)


def _as_int(value: Any) -> Any:
    """Return a numpy integer as a Python integer, and any other value unchanged."""
    return int(value) if isinstance(value, np.integer) else value
