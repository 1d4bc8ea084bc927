"""Masks in files of their own: decoded as they are stored, and placed as their images are."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from jaxaug.decode import DecodedBatch, Encoded, Headers, read_headers
from jaxaug.decode._cpus import usable_cpus
from jaxaug.decode._orientation import TRANSPOSE, upright
from jaxaug.decode.host.decode_image import decode_unchanged
from jaxaug.decode.parse.headers import BAD
from jaxaug.errors import DecodeError

Size = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class MaskDecoder:
    """Decodes the masks of a batch onto canvases in host memory, with a thread for each CPU.

    Attributes:
      dtype: of the canvases.
      canvas: (H, W).
      fill: the value where there is no image.
      max_pixels: masks of more are refused.
    """

    dtype: np.dtype
    canvas: Size
    fill: int
    max_pixels: int

    def decode(self, masks: Encoded, images: DecodedBatch) -> tuple[np.ndarray, dict[int, str]]:
        """Return the masks of the valid rows on canvases [n, H, W], and the rows that failed.

        Args:
          masks: n encoded masks.
          images: the facts of their images.

        Returns:
          The canvases, and row -> reason for masks that cannot be decoded or do not fit.
        """
        canvases = np.full((len(masks.lengths), *self.canvas), self.fill, self.dtype)
        headers = read_headers(masks, self.max_pixels)
        place = partial(self._place, canvases, masks, headers, images)
        rows = np.flatnonzero(images.valid).tolist()
        # Its threads end with the batch.
        with ThreadPoolExecutor(usable_cpus(), thread_name_prefix="jaxaug-masks") as pool:
            reasons = list(pool.map(place, rows))
        return canvases, {row: reason for row, reason in zip(rows, reasons) if reason}

    def _place(
        self,
        canvases: np.ndarray,
        masks: Encoded,
        headers: Headers,
        images: DecodedBatch,
        row: int,
    ) -> str:
        """Put the mask of a row on its canvas; return what is wrong with it, or ""."""
        try:
            mask = self._decode(masks.view(row), headers.row(row))
            original_size = tuple(images.original_size[row].tolist())
            # A mask that has an orientation of its own is upright by now.
            turned = int(headers.orientation[row]) != 1
            orientation = 1 if turned else int(images.orientation[row])
            mask = turn_mask(mask, original_size, orientation)
        except DecodeError as error:
            return f"its mask: {error.reason}"
        height, width = images.size[row].tolist()
        canvases[row, :height, :width] = shrink_mask(mask, (height, width))
        return ""

    def _decode(self, data: memoryview, header: Headers) -> np.ndarray:
        """Return the class numbers [h, w] of a mask, upright by its own orientation."""
        if header.kind == BAD:
            raise DecodeError(str(header.reason))
        mask = decode_unchanged(data, header)
        if mask.ndim != 2 or mask.dtype.kind not in "iu":
            raise DecodeError(
                f"it must hold one class number for each pixel, got {mask.dtype}{list(mask.shape)}:"
                " convert colors to numbers first"
            )

        limits = np.iinfo(self.dtype)
        low = int(mask.min())
        number = low if low < limits.min else int(mask.max())
        if not limits.min <= number <= limits.max:
            raise DecodeError(
                f"number {number} does not fit {self.dtype}, which the first mask has: store all "
                "masks with 16 bits"
            )
        return mask


def stored_dtype(masks: Encoded) -> np.dtype | None:
    """Return the dtype for masks like the first of these: uint8, or int32 for more than 8 bits.

    It is None if that one cannot be decoded.
    """
    header = read_headers(masks).row(0)
    if header.kind == BAD:
        return None
    try:
        mask = decode_unchanged(masks.view(0), header)
    except DecodeError:
        return None
    return np.dtype(np.uint8 if mask.dtype.itemsize == 1 else np.int32)


def turn_mask(mask: np.ndarray, original_size: Size, orientation: int) -> np.ndarray:
    """Return a mask upright, as its image is.

    A mask has the pixels of the stored image, as whoever drew it without looking at EXIF saw it,
    and is turned with it. One that has only the upright image's size is upright already.

    Args:
      mask: [h, w].
      original_size: (height, width) of the upright image.
      orientation: the EXIF orientation of the image, 1 to 8.

    Raises:
      DecodeError: it has neither size.

    Example:
      >>> turn_mask(np.array([[1, 2, 3]]), (3, 1), 6).tolist()
      [[1], [2], [3]]
    """
    stored = original_size[::-1] if TRANSPOSE[orientation] else original_size
    if mask.shape == stored:
        return upright(mask, orientation)
    if mask.shape == original_size:
        return mask
    height, width = mask.shape
    raise DecodeError(
        f"it must have the size of its image, {stored[0]} x {stored[1]}, got {height} x {width}"
    )


def shrink_mask(mask: np.ndarray, size: Size) -> np.ndarray:
    """Return a mask [h, w] at a smaller size, each pixel from the nearest.

    Pixel i takes pixel floor((i + 1/2) h / size), as `place_mask` has it.

    Example:
      >>> shrink_mask(np.arange(6)[None], (1, 3)).tolist()
      [[1, 3, 5]]
    """
    if mask.shape == size:
        return mask
    y, x = ((2 * np.arange(new) + 1) * old // (2 * new) for old, new in zip(mask.shape, size))
    return mask[y][:, x]
