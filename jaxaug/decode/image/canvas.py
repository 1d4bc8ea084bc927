"""Canvases: which one images get, and the size of an image on it."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from jaxaug._warn import warn_user
from jaxaug.decode._column import Column
from jaxaug.decode.image.form import PixelForm
from jaxaug.decode.image.parse.headers import BAD, Headers, read_headers

_SAMPLED_RECORDS = 1000  # looked at where no index holds all headers
_SHARE = 0.95  # of the images, whose sides a canvas has at least
_MULTIPLE = 64
_MAX_SIDE = 1024  # 256 canvases of 1,024 x 1,024 take 0.8 GB; photographs of phones would take 12
_DEFAULT_CANVAS = (512, 512)  # of a column without a good image


class Sides(NamedTuple):
    """The sides of some images, upright.

    Attributes:
      heights, widths: int64[k, 2], each value once, in order, and how many images have it.

    Example:
      >>> sides_of(np.array([[30, 50], [40, 50]])).widths.tolist()
      [[50, 2]]
    """

    heights: np.ndarray
    widths: np.ndarray

    @property
    def uniform(self) -> bool:
        """All images have one size."""
        return len(self.heights) == len(self.widths) == 1

    def quantile(self, share: float) -> tuple[int, int]:
        """Return the smallest height, and width, that `share` of the images at least do not exceed.

        It is `np.percentile(..., method="higher")` of all images, at least one.
        """
        found = []
        for values, counts in (self.heights.T, self.widths.T):
            ends = np.cumsum(counts)
            place = np.ceil(share * (ends[-1] - 1) - 1e-6)
            found.append(int(values[np.searchsorted(ends, place, side="right")]))
        return found[0], found[1]


def sides_of(sizes: np.ndarray) -> Sides:
    """Return the sides of images of these sizes, int32[n, 2] (height, width)."""
    pairs = [np.unique(sizes[:, axis], return_counts=True) for axis in (0, 1)]
    return Sides(*(np.stack(pair, axis=1).astype(np.int64) for pair in pairs))


def join_sides(parts: Iterable[Sides]) -> Sides:
    """Return the sides of all images of some parts."""
    return Sides(*map(_sum, zip(NO_SIDES, *parts)))


def _sum(histograms: Iterable[np.ndarray]) -> np.ndarray:
    values, counts = np.concatenate([*histograms]).reshape(-1, 2).T
    distinct, place = np.unique(values, return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, place.reshape(-1), counts)
    return np.stack([distinct, sums], axis=1)


NO_SIDES = sides_of(np.zeros((0, 2), np.int32))


def fit_size(original_size: np.ndarray, canvas: tuple[int, int]) -> np.ndarray:
    """Return the sizes of images on a canvas: their own, or shrunk to fit with the aspect kept.

    s = min(1, H / h, W / w);  size = max(1, floor(s (h, w) + 1/2))

    Args:
      original_size: int32[n, 2], (height, width) of the upright images, at least 1.
      canvas: (H, W).

    Returns:
      int32[n, 2].

    Example:
      >>> fit_size(np.array([[100, 50], [300, 50], [1, 4000]]), (200, 200)).tolist()
      [[100, 50], [200, 33], [1, 200]]
    """
    if not np.count_nonzero(original_size > canvas):
        return original_size.astype(np.int32)
    sides = np.array(original_size.T, np.float64, order="C")
    limits = np.array(canvas, np.float64)[:, None]
    scale = (limits / sides).min(axis=0, initial=1.0)
    size = np.floor(sides * scale + 0.5)
    return np.maximum(size, 1.0).T.astype(np.int32, order="C")


def rows_within(canvas: tuple[int, int], bound: float) -> int:
    """Return the rows of a canvas on which images of at most `bound` = h / w lie."""
    height, width = canvas
    # An image fills at most the width; its height is rounded up from a half.
    return min(height, max(1, math.floor(bound * width + 0.5 + 1e-6)))


def pick_canvas(column: Column, form: PixelForm) -> tuple[tuple[int, int], bool]:
    """Return the canvas of a column of encoded images, and whether all looked at have its size.

    Where an index tells all sides, or holds all headers, all are used; else those of 1,000 records.
    """
    sides = column.summary() if form.is_usual else None
    return canvas_of(sizes_in(column, form)) if sides is None else canvas_of_sides(sides)


def sizes_in(column: Column, form: PixelForm) -> np.ndarray:
    """Return int32[k, 2], (height, width) of all images of a column, or of 1,000."""
    stored = column.stored() if form.is_usual else None
    if stored is None:
        parts = column.sample(_SAMPLED_RECORDS)
        stored = [read_headers(part, form=form) for part in parts]
    sizes = [np.zeros((0, 2), np.int32), *map(good_sizes, stored)]  # lists may have no image
    return np.concatenate(sizes)


def good_sizes(headers: Headers) -> np.ndarray:
    """Return int32[k, 2], (height, width) of the images that are good, upright."""
    return headers.original_size()[headers.kind != BAD]


def canvas_of(sizes: np.ndarray, decoder: str = "Image") -> tuple[tuple[int, int], bool]:
    """Return the canvas of images of these sizes int32[n, 2] (height, width), and if all are equal.

    It is the size itself where all are equal; else the 95th percentile of each side, rounded up to
    64, at most 1,024, with a warning where that bound is met; 512 x 512 if there are none.

    Args:
      sizes: (height, width) of each.
      decoder: what the user gives a canvas to.

    Example:
      >>> canvas_of(np.array([[300, 400], [300, 401]]))
      ((320, 448), False)
    """
    return canvas_of_sides(sides_of(sizes), decoder)


def canvas_of_sides(found: Sides, decoder: str = "Image") -> tuple[tuple[int, int], bool]:
    """Return what `canvas_of` returns by how many images have which sides."""
    if not len(found.heights):
        return _DEFAULT_CANVAS, True

    uniform = found.uniform
    sides = found.quantile(_SHARE)
    if uniform:
        height, width = fit_size(np.array([sides]), (_MAX_SIDE, _MAX_SIDE))[0].tolist()
    else:
        height, width = (min(-(-side // _MULTIPLE) * _MULTIPLE, _MAX_SIDE) for side in sides)

    if max(sides) > _MAX_SIDE:
        warn_user(
            f"most {decoder.lower()}s fit {sides[0]} x {sides[1]} pixels, but the Loader's own "
            f"canvas has at most {_MAX_SIDE} a side: larger ones are shrunk to {height} x {width}. "
            f"Give the Loader `decode={decoder}(canvas=(height, width))` of your own, this one if "
            "it is right."
        )
    return (height, width), uniform
