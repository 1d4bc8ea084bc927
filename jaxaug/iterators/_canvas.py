"""The canvas that fits most images of a source."""

import itertools
import warnings
from typing import NamedTuple

import numpy as np

from jaxaug.decode import Encoded, Headers, read_headers
from jaxaug.decode._fit import fit_size
from jaxaug.decode.parse.headers import BAD
from jaxaug.iterators._protocol import Indexed, Source, Stream
from jaxaug.iterators._sampler import permute

_SAMPLE = 1000  # records looked at where no index holds all headers
_CHUNK = 1 << 18  # records of an index looked at in one go
_PERCENTILE = 95
_MULTIPLE = 64
_MAX_SIDE = 1024  # 256 canvases of 1,024 x 1,024 take 0.8 GB; photographs of phones would take 12


class CanvasChoice(NamedTuple):
    """A canvas (height, width), and whether all images that were looked at have just that size."""

    canvas: tuple[int, int]
    uniform: bool


def pick_canvas(source: Source | Stream, seed: int) -> CanvasChoice:
    """Return the canvas of a source, see `canvas_of`.

    Where an index holds all headers, all are used; else those of 1,000 records, the same on every
    process: a seeded sample of a random access source, the first of a stream.
    """
    sizes = _indexed_sizes(source)
    if sizes is None:
        sizes = _sampled_sizes(source, seed)
    return canvas_of(sizes)


def canvas_of(sizes: np.ndarray) -> CanvasChoice:
    """Return the canvas of images of these sizes int32[n, 2] (height, width).

    The size itself where all are equal; else the 95th percentile of each side, rounded up to 64, at
    most 1,024, with a warning where that bound is met; 512 x 512 if there are none.

    Example:
      >>> canvas_of(np.array([[300, 400], [300, 401]]))
      CanvasChoice(canvas=(320, 448), uniform=False)
    """
    if not len(sizes):
        return CanvasChoice((512, 512), True)
    uniform = bool((sizes == sizes[0]).all())
    # "higher": a side that an image really has
    sides = np.percentile(sizes, _PERCENTILE, axis=0, method="higher").astype(int).tolist()
    if uniform:
        height, width = fit_size(sizes[:1], (_MAX_SIDE, _MAX_SIDE))[0].tolist()
    else:
        height, width = (min(-(-side // _MULTIPLE) * _MULTIPLE, _MAX_SIDE) for side in sides)

    if max(sides) > _MAX_SIDE:
        warnings.warn(
            f"most images fit {sides[0]} x {sides[1]} pixels, but the Loader's own canvas has at most {_MAX_SIDE} a "
            f"side: larger ones are shrunk to {height} x {width}. Give the Loader a `canvas=(height, width)` of your "
            "own, this one if it is right.",
            stacklevel=4,
        )
    return CanvasChoice((height, width), uniform)


def _indexed_sizes(source: Source | Stream) -> np.ndarray | None:
    """Return the sizes of all good images, if an index holds them."""
    if isinstance(source, Stream) or not isinstance(source, Indexed):
        return None
    sizes = []
    for start in range(0, len(source), _CHUNK):
        headers = source.headers(np.arange(start, min(start + _CHUNK, len(source))))
        if headers is None:
            return None
        sizes.append(_good_sizes(headers))
    return np.concatenate(sizes)


def _sampled_sizes(source: Source | Stream, seed: int) -> np.ndarray:
    if isinstance(source, Stream):
        encoded = Encoded.from_bytes(
            [image for image, _ in itertools.islice(source.iterate(), _SAMPLE)]
        )
    else:
        chosen = permute(seed, 0, np.arange(min(_SAMPLE, len(source))), len(source))
        encoded, _ = source.read(np.sort(chosen))
        assert isinstance(encoded, Encoded)  # pixels have no canvas
    return _good_sizes(read_headers(encoded))


def _good_sizes(headers: Headers) -> np.ndarray:
    return headers.original_size()[headers.kind != BAD]
