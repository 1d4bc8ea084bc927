"""How many images have which height and which width: what a canvas is picked from."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


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
