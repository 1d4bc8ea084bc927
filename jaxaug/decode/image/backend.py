"""The interface between the Decoder and its backends."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxaug._warn import warn_once
from jaxaug.decode._types import Encoded
from jaxaug.decode.image.parse.headers import Headers


class DecodedPixels(NamedTuple):
    """The rows that a backend has decoded; the Decoder adds what it knows of them.

    Attributes:
      pixels: one uint8[n / d, H, W, channels] for each of d devices, in their order.
      failures: row -> reason, for images that failed although their header is good.
      counts: how many images each backend decoded, by its name in `Decoder.stats`.
      release, wait_seconds: see `Decoded`; `release_nothing` where no buffer is to come back.
    """

    pixels: list[jax.Array]
    failures: dict[int, str]
    counts: dict[str, int]
    release: Callable[[Any], None]
    wait_seconds: float = 0.0


class Backend(Protocol):
    """Decodes the good images of a batch; which ones are good is decided before.

    Attributes:
      in_flight: how many concurrent calls of `decode` keep the backend busy.
      counted: the names in `DecodedPixels.counts`.
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


def warn_of_host(error: Exception) -> None:
    """Warn that images are decoded on the host where engines were asked for, if there are any."""
    warn_once(f"jaxaug decodes on the host, because the GPU's JPEG engines cannot be used: {error}")
