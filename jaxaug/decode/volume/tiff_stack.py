"""What the pages of a TIFF are to a volume: slices, channels, or what no volume has.

As OME-XML, ImageJ and tifffile tell it in the description of the first page; without them each page
is a slice.

Reference: docs.openmicroscopy.org/ome-model (OME-TIFF); imagej.net, hyperstacks.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from jaxaug.errors import DecodeError

_IMAGES = re.compile(r"ImageJ=(?s:.*?)\nimages=(\d+)")
_NUMBERS = re.compile(r"^(\w+)=(\d+)\s*$", re.MULTILINE)
_NAMES = {"T": "times", "Z": "slices", "C": "channels"}
_SHAPED = '{"shape": ['
_UNITS = {"\u00b5m": 1e-3, "\u03bcm": 1e-3, "nm": 1e-6, "mm": 1.0, "cm": 10.0, "m": 1e3}  # in mm


class Stack(NamedTuple):
    """The pages of a volume.

    Attributes:
      pages: int[slices, channels], the number of each page.
      spacing: along (D, H, W) in mm; 1 where the file does not tell.
    """

    pages: np.ndarray
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0)


def read_stack(description: str, count: int, page: Any) -> Stack:
    """Return the pages of a volume.

    Args:
      description: of the first page.
      count: how many pages there are.
      page: the layout of the first.

    Raises:
      DecodeError: they are no volume, or some are in other files.
    """
    if description.endswith("OME>"):
        return _ome(description, count, page)
    sizes = _told(description, page)
    told = math.prod(sizes.values())
    if told > count or (told < count and not description.startswith(_SHAPED)):
        sizes, told = {"Z": count}, count  # of a file that was changed
    return Stack(_arranged(sizes, np.arange(told), page))


def told_pages(description: str, page: Any) -> int:
    """Return how many pages ImageJ or tifffile tell of, at least 1."""
    return math.prod(_told(description, page).values())


def _told(description: str, page: Any) -> dict[str, int]:
    """Return the axes of the pages, the one that changes fastest last; {} where nothing is told."""
    if images := _IMAGES.match(description):
        told = {name: int(number) for name, number in _NUMBERS.findall(description)}
        times, channels = told.get("frames", 1), told.get("channels", 1)
        slices = told.get("slices", int(images[1]) // max(1, times * channels))
        return {"T": times, "Z": slices, "C": channels}
    if not description.startswith(_SHAPED):
        return {}
    told = json.loads(description)
    sides = told["shape"]
    first = len(sides)
    within = page.height * page.width * page.samples
    while first and math.prod(sides[first:]) < within:
        first -= 1
    axes = told.get("axes") or [f"of axis {axis}" for axis in range(first)]
    return dict(zip(axes[:first], sides[:first], strict=True))


def _arranged(sizes: Mapping[str, int], numbers: np.ndarray, page: Any) -> np.ndarray:
    """Return the numbers of pages, the last of `sizes` fastest, as [slices, channels]."""
    long = {axis: size for axis, size in sizes.items() if size > 1}
    slices = [axis for axis in long if axis != "C"]
    if len(slices) > 1 or ("C" in long and page.samples > 1):
        told = " x ".join(f"{size} {_NAMES.get(axis, axis)}" for axis, size in long.items())
        raise DecodeError(
            f"TIFF: its pages are {told}, of {page.samples} numbers a pixel, and a volume is"
            " [D, H, W] or [D, H, W, C]: store each as a file"
        )
    pages = numbers.reshape(list(long.values()))
    if "C" not in long:
        return pages.reshape(-1, 1)
    return np.moveaxis(pages, list(long).index("C"), -1).reshape(-1, long["C"])


def _ome(description: str, count: int, page: Any) -> Stack:
    """Return the pages of the first image of OME-XML."""
    root = ElementTree.fromstring(description.encode("latin-1"))
    pixels = next(each for each in root.iter() if _name(each) == "Pixels")
    order = pixels.attrib["DimensionOrder"][:1:-1]  # of XYZCT, TCZ
    sizes = {axis: int(pixels.attrib[f"Size{axis}"]) for axis in order}
    if page.samples > 1:
        sizes["C"] //= page.samples
    told = math.prod(sizes.values())
    numbers = np.full(min(told, count), -1)
    files = set()
    for block in (each for each in pixels if _name(each) == "TiffData"):
        files |= {each.attrib.get("FileName") for each in block if _name(each) == "UUID"}
        _place(block.attrib, sizes, numbers)
    if told > count or len(files) > 1 or numbers.min() < 0 or numbers.max() >= count:
        raise DecodeError(
            f"TIFF: OME-XML tells of {told} pages, some of which are not among the {count}"
            " of this file: store all of an image in one file"
        )
    return Stack(_arranged(sizes, numbers, page), _spacing(pixels.attrib))


def _place(block: Mapping[str, str], sizes: Mapping[str, int], numbers: np.ndarray) -> None:
    """Write the pages of a block of OME-XML to their places."""
    start = 0
    for axis, size in sizes.items():
        first = int(block.get(f"First{axis}", 0))
        if first < 0:
            raise DecodeError(f"TIFF: OME-XML begins pages at First{axis}={first}, below 0")
        start = start * size + first
    every = len(numbers) if "IFD" not in block else 1
    stop = min(start + int(block.get("PlaneCount", every)), len(numbers))
    first = int(block.get("IFD", 0))
    numbers[start:stop] = np.arange(first, first + max(0, stop - start))


def _spacing(pixels: Mapping[str, str]) -> tuple[float, float, float]:
    """Return the sides of a voxel that OME-XML tells, 1 where one is missing."""
    sides = [
        float(pixels.get(f"PhysicalSize{axis}", "nan"))
        * _UNITS.get(pixels.get(f"PhysicalSize{axis}Unit", "\u00b5m"), math.nan)
        for axis in "ZYX"
    ]
    z, y, x = sides if all(0 < side < math.inf for side in sides) else (1.0, 1.0, 1.0)
    return z, y, x


def _name(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rsplit("}", 1)[-1]
