"""From bytes to pixels on the host: libjpeg-turbo through simplejpeg, and Pillow for everything else."""

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import numpy as np

from jaxaug._checks import check_positive_int
from jaxaug._typing import Device
from jaxaug.decode import _pillow
from jaxaug.decode._engine import Canvases
from jaxaug.decode._header import BAD, JPEG, MAX_PIXELS, Headers, read_headers
from jaxaug.decode._jpeg import GRAY, LOSSLESS, RGB, YCBCR
from jaxaug.decode._repair import repaired_jpegs
from jaxaug.decode._types import Encoded
from jaxaug.errors import DecodeError

# Three components as the TurboJPEG interface, and so simplejpeg, knows them: 4:4:4, 4:2:2, 4:4:0, 4:2:0,
# 4:1:1, 4:4:1, and 4:2:2 and 4:4:0 with doubled factors. Pillow decodes the others with libjpeg-turbo, too.
_TURBO_SAMPLINGS = frozenset(
    (0x11111100, 0x21111100, 0x12111100, 0x22111100, 0x41111100, 0x14111100, 0x22121200, 0x22212100)
)
_T = TypeVar("_T")
_ALIGNMENT = 64  # bytes; from there on XLA's CPU client takes host memory as it is


def decode_image(
    data: "bytes | bytearray | memoryview | np.ndarray",
    max_pixels: int = MAX_PIXELS,
) -> np.ndarray:
    """Decode one image of any supported format on the host.

    Args:
      data: the encoded bytes: JPEG, PNG, WebP, BMP, GIF (first frame), TIFF, PPM, PGM or PBM, and
        where this Pillow has the codecs, JPEG 2000 and AVIF.
      max_pixels: an image whose header promises more pixels is refused before anything is
        allocated.

    Returns:
      uint8[h, w, 3], RGB, upright (all eight EXIF orientations applied); gray is repeated to three channels,
      CMYK converted, alpha dropped, 16 bit scaled to 8.

    Raises:
      DecodeError: the bytes are not such an image, or not a whole one, or one of too many pixels.
      TypeError: `data` is not bytes-like.

    Example:
      >>> import io, numpy as np
      >>> from PIL import Image
      >>> file = io.BytesIO()
      >>> Image.fromarray(np.zeros((2, 3), np.uint8)).save(file, "png")
      >>> decode_image(file.getvalue()).shape
      (2, 3, 3)

    Differs from PIL in that the image is turned upright and converted to RGB, and that a JPEG without its end
    is refused.
    """
    check_positive_int("max_pixels", max_pixels)
    encoded = Encoded.from_bytes([data])
    headers = read_headers(encoded, max_pixels)
    if headers.kind[0] == BAD:
        raise DecodeError(headers.reason[0], byte_count=len(data))
    height, width = headers.original_size()[0].tolist()
    row = np.zeros((height, width, 3), np.uint8)
    try:
        decode_into(encoded.view(0), headers.row(0), (height, width), row)
    except DecodeError as error:
        raise DecodeError(error.reason, byte_count=len(data)) from error
    return row


def fit_size(original_size: np.ndarray, canvas: tuple[int, int]) -> np.ndarray:
    """The size at which images lie on a canvas: their own, or shrunk to fit with the aspect kept.

    s = min(1, H / h, W / w);  size = max(1, floor(s (h, w) + 1/2)), and never beyond the canvas

    Args:
      original_size: int32[n, 2], (height, width) of the upright images, at least 1.
      canvas: (H, W).

    Returns:
      int32[n, 2].

    Example:
      >>> fit_size(np.array([[100, 50], [300, 50], [1, 4000]]), (200, 200)).tolist()
      [[100, 50], [200, 33], [1, 200]]
    """
    scale = np.minimum(1.0, np.min(np.array(canvas) / original_size, axis=-1, keepdims=True))
    return np.clip(np.floor(original_size * scale + 0.5), 1, canvas).astype(np.int32)


def decode_into(data: memoryview, header: Headers, size: tuple[int, int], row: np.ndarray) -> None:
    """Decode one image to the top-left of its canvas; the rest of the canvas is not touched.

    Args:
      data: the bytes of one image.
      header: its facts, `Headers.row(i)`; its kind is good.
      size: (h, w) of the upright image on the canvas, from `fit_size`.
      row: uint8[H, W, 3], C contiguous.

    Raises:
      DecodeError: the pixels cannot be read; then the canvas may be partly written.
    """
    height, width = size
    if not _suits_turbojpeg(header):
        format = _pillow.format_of(data) or "JPEG"
        orientation = int(header.orientation)
        image = _despite_damage(lambda data: _pillow.upright_rgb(data, format, orientation), data, header)
        row[:height, :width] = _shrink(image, size, image.size)
        return
    stored = (int(header.height), int(header.width))
    wanted = (width, height) if header.orientation >= 5 else size
    if wanted == stored and header.orientation == 1 and width == row.shape[1]:
        _decode_jpeg(data, header, 8, row)  # the rows follow each other on the canvas as well: no copy
        return
    scale = _dct_scale(stored, wanted)
    pixels = _decode_jpeg(data, header, scale, None)
    if wanted != stored:
        from PIL import Image

        extent = (stored[1] * scale / 8, stored[0] * scale / 8)  # libjpeg rounds it up to whole pixels
        pixels = _shrink(Image.fromarray(pixels), wanted, extent)
    # Items of three bytes: turned, numpy would copy each byte alone.
    target = row.view("V3")[:height, :width, 0]
    target[:] = _upright(np.ascontiguousarray(pixels).view("V3")[..., 0], int(header.orientation))


def _suits_turbojpeg(header: Headers) -> bool:
    if header.coding == LOSSLESS:
        return False
    if header.color in (YCBCR, RGB):
        return int(header.sampling) in _TURBO_SAMPLINGS
    return header.kind == JPEG and header.color == GRAY


def _shrink(image: Any, size: tuple[int, int], extent: tuple[float, float]) -> np.ndarray:
    """The first `extent` (w, h) pixels of a Pillow image at `size` (h, w), antialiased."""
    from PIL import Image

    if image.size != size[::-1]:
        image = image.resize(size[::-1], Image.Resampling.BILINEAR, box=(0, 0, *extent))
    return np.asarray(image)


def _dct_scale(stored: tuple[int, int], wanted: tuple[int, int]) -> int:
    """The smallest s for which the image decoded at s/8 covers the wanted size; never 6 or 7.

    libjpeg-turbo has no vector code for those two: they take longer than the whole image.
    """
    scale = max(1, *(-(-8 * want // have) for have, want in zip(stored, wanted)))
    return scale if scale < 6 else 8


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """A view of the pixels turned as EXIF orientation 1..8 asks (CIPA DC-008, tag 0x0112)."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def _decode_jpeg(data: memoryview, header: Headers, scale: int, buffer: np.ndarray | None) -> np.ndarray:
    """uint8[h, w, 3] at scale / 8 of the stored size; accurate DCT, fancy upsampling."""
    import simplejpeg

    height, width = -(-int(header.height) * scale // 8), -(-int(header.width) * scale // 8)

    def decode(data: memoryview | bytes) -> np.ndarray:
        try:
            return simplejpeg.decode_jpeg(data, "RGB", min_height=height, min_width=width, buffer=buffer, strict=False)
        except ValueError as error:
            raise DecodeError(f"libjpeg-turbo: {error}") from error

    return _despite_damage(decode, data, header)


def _despite_damage(decode: Callable[[Any], _T], data: memoryview, header: Headers) -> _T:
    """What `decode` makes of an image, or else of what is sound in it: the byte check has called it good."""
    try:
        return decode(data)
    except DecodeError:
        if header.kind == JPEG:
            for repaired in repaired_jpegs(data, int(header.color)):
                with contextlib.suppress(DecodeError):
                    return decode(repaired)
        raise


class HostEngine:
    """Decodes batches with a pool of host threads, one canvas a device.

    Args:
      devices: where the canvases go, each an equal share of the rows, in order.
      canvas: (H, W).
      num_threads: at least 1; the threads start with the first batch.
    """

    in_flight = 1  # a batch keeps all threads busy
    counted: tuple[str, ...] = ("host",)

    def __init__(self, devices: Sequence[Device], canvas: tuple[int, int], num_threads: int):
        self._devices, self._canvas, self._num_threads = devices, canvas, num_threads
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="jaxaug-decode")

    def decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> Canvases:
        """Decode the good rows; see `Engine`."""
        share = len(headers.kind) // len(self._devices)
        canvases = [_zero_canvas(share, self._canvas) for _ in self._devices]
        good = (headers.kind != BAD).nonzero()[0].tolist()
        rows = iter(good)
        failures: dict[int, str] = {}

        def work():
            for row in rows:  # shared by the threads: each takes the next row when it is free
                target = canvases[row // share][row % share]
                fit = (int(size[row, 0]), int(size[row, 1]))
                try:
                    decode_into(encoded.view(row), headers.row(row), fit, target)
                except DecodeError as error:
                    target[:] = 0
                    failures[row] = error.reason

        for task in [self._pool.submit(work) for _ in range(min(self._num_threads, len(good)))]:
            task.result()
        pixels = [jax.device_put(canvas, device) for canvas, device in zip(canvases, self._devices)]
        return Canvases(pixels, failures, {"host": len(good) - len(failures)}, _release_nothing, lent=False)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()


def _release_nothing(outputs: Any) -> None:
    """The canvases are fresh memory that jax owns: there is no buffer to hand back."""
    del outputs


def _zero_canvas(rows: int, canvas: tuple[int, int]) -> np.ndarray:
    """uint8[rows, H, W, 3], zero, aligned so that a CPU device takes the memory without a copy.

    `np.zeros` is lazy: pages that no image covers are never touched, and large blocks come as huge pages.
    """
    shape = (rows, *canvas, 3)
    block = np.zeros(rows * canvas[0] * canvas[1] * 3 + _ALIGNMENT, np.uint8)
    first = -block.ctypes.data % _ALIGNMENT
    return block[first : block.size - _ALIGNMENT + first].reshape(shape)
