"""The seam between the Decoder and its backends."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxaug.decode._types import Encoded
from jaxaug.decode.parse.headers import Headers


class Canvases(NamedTuple):
    """A decoded batch on its devices.

    Attributes:
      pixels: one uint8[n / devices, H, W, 3] per device.
      failures: row -> reason, for the rows that failed although their header is good; they are
        zero.
      decoded: how many images each backend decoded, by its name.
      release: takes arrays whose computation reads `pixels`, then frees or reuses their memory.
      lent: `pixels` view a buffer of the engine's own, which is written again after `release`.
      waited: seconds until the device had read what such a buffer held before.
    """

    pixels: list[jax.Array]
    failures: dict[int, str]
    decoded: dict[str, int]
    release: Callable[[Any], None]
    lent: bool
    waited: float = 0.0


class Engine(Protocol):
    """A way to get from bytes to canvases. Which images are good is decided before it is asked."""

    in_flight: int  # how many batches at once keep it busy
    counted: tuple[str, ...]  # the names in `Canvases.decoded`

    @property
    def bytes_held(self) -> int:
        """The memory of devices that it takes by now, outside of JAX's own."""
        ...

    def decode(self, encoded: Encoded, headers: Headers, size: np.ndarray) -> Canvases:
        """Decode the rows that are not `BAD`, each to `size` (int32[n, 2]) at the top-left of its
        canvas.

        The number of rows is a multiple of the number of devices; all other pixels are zero. May be
        called from several threads at once.
        """
        ...

    def close(self) -> None:
        """Stop threads and free buffers; nothing is asked afterwards."""
        ...
