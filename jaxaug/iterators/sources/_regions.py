"""Regions of images as COCO stores them, polygons and run lengths, drawn into masks.

A region is a list of places in the image's pixels, column by column, at which it begins and ends in
turn. The results are those of pycocotools, pixel by pixel.

Reference: `rleFrPoly` and `rleFrString` in common/maskApi.c of
https://github.com/cocodataset/cocoapi.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

IGNORED = 255
_SUBPIXELS = 5  # a polygon's outline is followed in steps of a fifth of a pixel
_MIN_CORNERS = 3
_MAX_CORNER = 2**20  # pixels from the origin: an outline takes memory for each of its steps

Size = tuple[int, int]
# Places int64[k] of one or several overlapping parts.
Region = Sequence[np.ndarray]


def read_region(segmentation: Any, size: Size) -> Region:
    """Return the region of a "segmentation": polygons, or runs as a list or a text.

    Args:
      segmentation: float64[2 k] (x, y, x, y, ...) for each polygon, or {"size": [h, w], "counts":
        ...}.
      size: (height, width) of the image.
    """
    if not isinstance(segmentation, Mapping):
        return [polygon_places(part, size) for part in segmentation]
    counts = segmentation["counts"]
    if isinstance(counts, str):
        counts = read_counts(counts)
    places = np.cumsum(np.asarray(counts, np.int64))
    return [np.minimum(places, size[0] * size[1])]


def check_segmentation(segmentation: Any, size: Size) -> None:
    """Raise ValueError unless `read_region` can read a segmentation."""
    if not isinstance(segmentation, Mapping):
        for corners in segmentation:
            if corners.ndim != 1 or corners.size % 2 or corners.size < 2 * _MIN_CORNERS:
                raise ValueError(
                    f"a polygon must be {_MIN_CORNERS} or more pairs of x and y, got "
                    f"{corners.tolist()}"
                )
            if not (np.abs(corners) <= _MAX_CORNER).all():  # also of NaN
                raise ValueError(f"a polygon has the corners {corners.tolist()}")
        return
    found = tuple(map(int, segmentation["size"]))
    if found != size:
        raise ValueError(f"a region of {found} pixels in an image of {size}")
    counts = segmentation["counts"]
    if isinstance(counts, str):
        return
    lengths = np.asarray(counts, np.float64)
    whole = lengths.ndim == 1 and ((lengths >= 0) & (lengths % 1 == 0)).all()
    if not whole or lengths.sum() > size[0] * size[1]:
        raise ValueError(f"runs of {counts} pixels in an image of {size}")


def read_counts(text: str) -> list[int]:
    """Return the lengths of runs that a text encodes, five bits a letter.

    From the third on they are differences to the one before the last.

    Example:
      >>> read_counts("3121")
      [3, 1, 2, 2]
    """
    counts: list[int] = []
    number = 0
    shift = 0
    for letter in text:
        bits = ord(letter) - 48
        number |= (bits & 0x1F) << shift
        shift += 5
        if bits & 0x20:
            continue

        if bits & 0x10:
            number -= 1 << shift
        if len(counts) > 2:
            number += counts[-2]
        counts.append(number)
        number = 0
        shift = 0
    return counts


def polygon_places(corners: np.ndarray, size: Size) -> np.ndarray:
    """Return the places at which the columns of an image enter and leave a polygon.

    Args:
      corners: float64[2 k], x and y of each corner in pixels.
      size: (height, width) of the image.
    """
    x, y = _outline(np.trunc(_SUBPIXELS * corners.reshape(-1, 2) + 0.5))
    crossings = np.flatnonzero(x[1:] != x[:-1])
    left = np.minimum(x[crossings], x[crossings + 1])
    top = np.minimum(y[crossings], y[crossings + 1])

    column = (left + 0.5) / _SUBPIXELS - 0.5
    height, width = size
    inside = (np.floor(column) == column) & (column >= 0) & (column <= width - 1)
    row = np.ceil(np.clip((top + 0.5) / _SUBPIXELS - 0.5, 0, height))
    return np.sort(column[inside] * height + row[inside]).astype(np.int64)


def _outline(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of all points of a grid on the closed outline with corners [k, 2].

    Along each edge the longer direction takes every step; the other is rounded, from the same end
    for both directions of the edge.
    """
    ends = np.roll(corners, -1, axis=0)
    lengths = np.abs(ends - corners).max(axis=1).astype(np.int64)
    edge = np.repeat(np.arange(len(corners)), lengths + 1)
    first = np.cumsum(lengths + 1) - (lengths + 1)
    step = np.arange(len(edge)) - first[edge]

    wide = np.abs(ends - corners)[:, 0] >= np.abs(ends - corners)[:, 1]
    axis = np.where(wide, 0, 1)
    rows = np.arange(len(corners))
    flipped = corners[rows, axis] > ends[rows, axis]
    low = np.where(flipped[:, None], ends, corners)
    high = np.where(flipped[:, None], corners, ends)
    slope = (high - low) / np.maximum(lengths, 1)[:, None]

    along = np.where(flipped[edge], lengths[edge] - step, step)
    points = low[edge] + slope[edge] * along[:, None]
    exact = np.arange(2) == axis[edge][:, None]
    rounded = np.where(exact, points, np.trunc(points + 0.5))
    return rounded[:, 0], rounded[:, 1]


def draw_classes(size: Size, objects: Sequence[tuple[int, Region]]) -> np.ndarray:
    """Return a mask [h, w] of regions with numbers; pixels of two numbers are `IGNORED`."""
    mask = np.zeros(size[0] * size[1], np.uint8)
    for number, region in objects:
        start, inside = _filled(region)
        part = mask[start : start + len(inside)]
        clash = inside & (part != 0) & (part != number)
        part[inside] = number
        part[clash] = IGNORED
    return mask.reshape(size[::-1]).T


def draw_objects(size: Size, objects: Sequence[tuple[int, Region]]) -> np.ndarray:
    """Return a mask [h, w] of regions with numbers, later ones above earlier ones."""
    mask = np.zeros(size[0] * size[1], np.uint8)
    for number, region in objects:
        start, inside = _filled(region)
        mask[start : start + len(inside)][inside] = number
    return mask.reshape(size[::-1]).T


def _filled(region: Region) -> tuple[int, np.ndarray]:
    """Return the first place of a region, and bool[k], True inside of it, from there on."""
    parts = [places for places in region if places.size]
    if not parts:
        return 0, np.zeros(0, np.bool_)
    start = min(int(places[0]) for places in parts)
    stop = max(int(places[-1]) for places in parts)
    inside = np.zeros(stop - start, np.bool_)
    for places in parts:
        turns = np.bincount(places - start, minlength=stop - start + 1)
        inside |= (np.cumsum(turns) & 1).astype(np.bool_)[: stop - start]
    return start, inside
