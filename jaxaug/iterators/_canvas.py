"""The canvas that fits most images of a source."""

import itertools

import numpy as np

from jaxaug.decode import Encoded, Headers, read_headers
from jaxaug.decode._header import BAD
from jaxaug.iterators._order import permute
from jaxaug.iterators._protocol import Indexed, Source, Stream

_SAMPLE = 1000  # records looked at where no index holds all headers
_CHUNK = 1 << 18  # records of an index looked at in one go
_SHARE, _MULTIPLE = 95, 64  # per cent of the images that fit each side; sides are multiples of 64 pixels


def pick_canvas(source: Source | Stream, seed: int) -> tuple[int, int]:
    """(height, width): the 95th percentile of each side of the upright images, rounded up to 64.

    Where an index holds all headers, all are used; else those of 1,000 records, the same on every process: a
    seeded sample of a random access source, the first of a stream.
    """
    return canvas_of(_sampled_sizes(source, seed) if (sizes := _indexed_sizes(source)) is None else sizes)


def canvas_of(sizes: np.ndarray) -> tuple[int, int]:
    """The canvas of images of these sizes int32[n, 2] (height, width); 512 x 512 if there are none."""
    if not len(sizes):
        return 512, 512
    # "higher": a side that an image really has, so that a set of equal images fits exactly
    height, width = np.percentile(sizes, _SHARE, axis=0, method="higher").astype(int).tolist()
    return -(-height // _MULTIPLE) * _MULTIPLE, -(-width // _MULTIPLE) * _MULTIPLE


def _indexed_sizes(source: Source | Stream) -> np.ndarray | None:
    """The sizes of all good images, if an index holds them."""
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
        encoded = Encoded.from_bytes([image for image, _ in itertools.islice(source.iterate(), _SAMPLE)])
    else:
        chosen = permute(seed, 0, np.arange(min(_SAMPLE, len(source))), len(source))
        encoded, _ = source.read(np.sort(chosen))
    return _good_sizes(read_headers(encoded))


def _good_sizes(headers: Headers) -> np.ndarray:
    return headers.original_size()[headers.kind != BAD]
