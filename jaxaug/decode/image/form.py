"""What the pixels of a canvas are: their channels, their dtype, the bands that are taken."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from jaxaug._checks import check_count, dtype_name, is_int

COLORS = {"gray": 1, "rgb": 3, "rgba": 4}
AS_STORED = "as stored"
_DTYPES = ("uint8", "uint16", "float32")
_MAX_CHANNELS = 4096


@dataclasses.dataclass(frozen=True)
class PixelForm:
    """The pixels that an image becomes.

    Attributes:
      channels: "rgb", "gray" or "rgba" for colors; a number, or "as stored", for the numbers of the
        file, as many a pixel.
      dtype: "uint8", "uint16" or "float32".
      bands: of the numbers of the file those that are taken, from 0; None for all.
      page: of a file of several images.
    """

    channels: str | int = "rgb"
    dtype: str = "uint8"
    bands: tuple[int, ...] | None = None
    page: int = 0

    @property
    def is_usual(self) -> bool:
        """True for colors of 8 bits, which all backends decode."""
        return self.dtype == "uint8" and self.channels in ("rgb", "gray") and self.page == 0

    @property
    def count(self) -> int:
        """Channels of a canvas; an error where no file has told them yet."""
        if self.channels == AS_STORED:
            raise ValueError(
                f"`channels` must be a number here, got {AS_STORED!r}: no file has told how many "
                "numbers a pixel has. decode.Image asks the first."
            )
        return self.channels if isinstance(self.channels, int) else COLORS[self.channels]

    def misfit(self, samples: int, images: int = 1) -> str:
        """Return why a file of so many numbers a pixel cannot have this form, or ""."""
        if self.page >= images:
            return f"it has {images} images, and page={self.page} was asked for, from 0"
        if self.bands is not None:
            most = max(self.bands)
            if most < samples:
                return ""
            return f"`bands` asks for number {most}, and it has {samples}, from 0"
        if self.channels in COLORS or self.channels in (AS_STORED, samples):
            return ""
        return (
            f"it has {samples} numbers a pixel, and channels={self.channels} was asked for: "
            "`bands` takes some of them"
        )


USUAL = {3: PixelForm(), 1: PixelForm("gray")}


def pixel_form(
    channels: str | int | None, dtype: DTypeLike, bands: Sequence[int] | None, page: int
) -> PixelForm:
    """Return the form that arguments ask for.

    Args:
      channels: None is "rgb", or with `bands` their number.
      dtype: a name of `PixelForm`, or NumPy's or JAX's dtype of that name.

    Raises:
      ValueError: an argument is wrong, or `channels` and `bands` contradict each other.

    Example:
      >>> pixel_form(None, "uint16", [3, 2, 1], 0).channels
      3
    """
    dtype = dtype_name("dtype", dtype, _DTYPES)
    check_count("page", page)
    taken = None if bands is None else _check_bands(bands)
    if channels is None:
        channels = "rgb" if taken is None else len(taken)
    if is_int(channels):
        channels = int(channels)
    named = isinstance(channels, str) and channels in (*COLORS, AS_STORED)
    if not named and not (isinstance(channels, int) and 1 <= channels <= _MAX_CHANNELS):
        raise ValueError(
            '`channels` must be "rgb", "gray", "rgba", "as stored" or a number from 1 to '
            f"{_MAX_CHANNELS}, got {channels!r}."
        )
    if taken is not None and channels != len(taken):
        raise ValueError(
            f"`channels` must be left out beside `bands`, or be their number, {len(taken)}, got "
            f"{channels!r}."
        )
    return PixelForm(channels, dtype, taken, int(page))


def _check_bands(bands: Any) -> tuple[int, ...]:
    taken = tuple(bands) if isinstance(bands, (tuple, list, np.ndarray)) else ()
    if not taken or not all(is_int(band) and band >= 0 for band in taken):
        raise ValueError(
            "`bands` must be numbers of bands from 0 on, as of an array's last axis, got "
            f"{bands!r}."
        )
    return tuple(int(band) for band in taken)
