"""The interface between the Decoder and its backends, and the batch that they return."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.parse.headers import Headers


class DecodedBatch(NamedTuple):
    """A batch of n decoded images on d devices, with its failures reported instead of raised.

    Attributes:
      pixels: one uint8[n / d, H, W, channels] per device, in the order of the devices. They may
        view a buffer of the decoder, so compute from them and never hand them out.
      size: int32[n, 2], (height, width) on the canvas; the canvas's own for a bad image.
      original_size: int32[n, 2], (height, width) of the upright image; the canvas's own for a bad
        image.
      orientation: uint8[n], the EXIF orientation 1..8 that was applied.
      valid: bool[n], False for a bad image, whose row is zero.
      failures: row -> reason, for the bad images.
      bits: row -> bits a sample, for the images of more than 8, of which the upper 8 were kept.
      counts: how many images each backend decoded, by its name in `Decoder.stats`.
      release: must be called once, with arrays whose computation reads `pixels`. The decoder waits
        for them before it writes to the buffer again, so they must not be donated or deleted.
      borrowed: True if `pixels` view a buffer of the decoder.
      wait_seconds: seconds until the device had read the batch that the buffer held before.
    """

    pixels: list[jax.Array]
    size: np.ndarray
    original_size: np.ndarray
    orientation: np.ndarray
    valid: np.ndarray
    failures: dict[int, str]
    bits: dict[int, int]
    counts: dict[str, int]
    release: Callable[[Any], None]
    borrowed: bool
    wait_seconds: float


class DecodedPixels(NamedTuple):
    """The rows that a backend has decoded; see `DecodedBatch`.

    Attributes:
      pixels, counts, release, borrowed, wait_seconds: as there.
      failures: row -> reason, for images that failed although their header is good.
    """

    pixels: list[jax.Array]
    failures: dict[int, str]
    counts: dict[str, int]
    release: Callable[[Any], None]
    borrowed: bool
    wait_seconds: float = 0.0


def make_batch(
    decoded: DecodedPixels,
    headers: Headers,
    bad: dict[int, str],
    size: np.ndarray,
    original_size: np.ndarray,
    canvas: tuple[int, int],
) -> DecodedBatch:
    """Return the batch of some pixels, with the facts of its rows.

    Args:
      decoded: the pixels of n images.
      headers: of the images.
      bad: row -> reason, for the images that are `BAD`.
      size, original_size: int32[n, 2], see `DecodedBatch`; set to the canvas's for failures.
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
    return DecodedBatch(
        pixels=decoded.pixels,
        size=size,
        original_size=original_size,
        orientation=orientation,
        valid=valid,
        failures=failures,
        bits={row: int(headers.precision[row]) for row in deep if valid[row]},
        counts=decoded.counts,
        release=decoded.release,
        borrowed=decoded.borrowed,
        wait_seconds=decoded.wait_seconds,
    )


class Backend(Protocol):
    """Decodes the good images of a batch; which ones are good is decided before.

    Attributes:
      in_flight: how many concurrent calls of `decode` keep the backend busy.
      counted: the names in `DecodedBatch.counts`.
    """

    in_flight: int
    counted: tuple[str, ...]

    @property
    def bytes_held(self) -> int:
        """The device memory that the backend holds now, outside of JAX's own."""
        ...

    def decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> DecodedPixels:
        """Decode the rows that are not `BAD`, each to the top-left of its canvas.

        May be called from several threads at once.

        Args:
          encoded: n images; n is a multiple of the number of devices.
          headers: of the n images.
          size: int32[n, 2], (height, width) of each image on its canvas; all other pixels are zero.
        """
        ...

    def close(self) -> None:
        """Stop the threads and free the buffers; no call follows."""
        ...
