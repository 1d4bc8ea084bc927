"""The canvas that fits most images of a source."""

import warnings
from typing import NamedTuple

import numpy as np

from jaxaug.decode import Headers, read_headers
from jaxaug.decode._fit import fit_size
from jaxaug.decode.parse.headers import BAD
from jaxaug.iterators._protocol import Indexed, Source, Stream
from jaxaug.iterators._reader import Reader

_SAMPLED_RECORDS = 1000  # looked at where no index holds all headers
_CHUNK_RECORDS = 1 << 18  # of an index, looked at at a time
_PERCENTILE = 95
_MULTIPLE = 64
_MAX_SIDE = 1024  # 256 canvases of 1,024 x 1,024 take 0.8 GB; photographs of phones would take 12
_DEFAULT_CANVAS = (512, 512)  # of a source without a good image


class CanvasChoice(NamedTuple):
    """A canvas that the Loader chose itself.

    Attributes:
      canvas: (height, width).
      uniform: all images that were looked at have this size.
    """

    canvas: tuple[int, int]
    uniform: bool


def pick_canvas(reader: Reader, seed: int) -> CanvasChoice:
    """Return the canvas of a reader's source, see `canvas_of`.

    Where an index holds all headers, all are used; else those of 1,000 records, the same on every
    process: a seeded sample of a random access source, the first of a stream.
    """
    sizes = _indexed_sizes(reader.source)
    if sizes is None:
        parts = reader.read_some(_SAMPLED_RECORDS, seed)
        sizes = np.concatenate([_good_sizes(read_headers(part)) for part in parts])
    return canvas_of(sizes)


def canvas_of(sizes: np.ndarray) -> CanvasChoice:
    """Return the canvas of images of these sizes int32[n, 2] (height, width).

    It is the size itself where all are equal; else the 95th percentile of each side, rounded up to
    64, at most 1,024, with a warning where that bound is met; 512 x 512 if there are none.

    Example:
      >>> canvas_of(np.array([[300, 400], [300, 401]]))
      CanvasChoice(canvas=(320, 448), uniform=False)
    """
    if not len(sizes):
        return CanvasChoice(_DEFAULT_CANVAS, True)

    uniform = bool((sizes == sizes[0]).all())
    # "higher": a side that an image really has
    sides = np.percentile(sizes, _PERCENTILE, axis=0, method="higher").astype(int).tolist()
    if uniform:
        height, width = fit_size(sizes[:1], (_MAX_SIDE, _MAX_SIDE))[0].tolist()
    else:
        height, width = (min(-(-side // _MULTIPLE) * _MULTIPLE, _MAX_SIDE) for side in sides)

    if max(sides) > _MAX_SIDE:
        warnings.warn(
            f"most images fit {sides[0]} x {sides[1]} pixels, but the Loader's own canvas has at "
            f"most {_MAX_SIDE} a side: larger ones are shrunk to {height} x {width}. Give the "
            "Loader a `canvas=(height, width)` of your own, this one if it is right.",
            # canvas_of, pick_canvas, _make_decoder, make_plan, the Loader, its caller
            stacklevel=6,
        )
    return CanvasChoice((height, width), uniform)


def _indexed_sizes(source: Source | Stream) -> np.ndarray | None:
    """Return the sizes of all good images, if an index holds them."""
    if not isinstance(source, Indexed):
        return None

    sizes = []
    for start in range(0, len(source), _CHUNK_RECORDS):
        stop = min(start + _CHUNK_RECORDS, len(source))
        headers = source.headers(np.arange(start, stop))
        if headers is None:
            return None
        sizes.append(_good_sizes(headers))
    return np.concatenate(sizes)


def _good_sizes(headers: Headers) -> np.ndarray:
    return headers.original_size()[headers.kind != BAD]
