"""The canvas that fits most images of a source."""

import itertools

import numpy as np

from jaxaug.decode import Encoded, Headers, read_headers
from jaxaug.iterators._order import permute
from jaxaug.iterators._protocol import Source, Stream

_SAMPLE = 1000  # records looked at where no index holds all headers
_SHARE, _MULTIPLE = 95, 64  # per cent of the images that fit each side; sides are multiples of 64 pixels


def pick_canvas(source: Source | Stream, seed: int) -> tuple[int, int]:
    """(height, width): the 95th percentile of each side of the upright images, rounded up to 64.

    Looks at a sample of 1,000 headers that is the same on every process: a seeded one of a random access
    source, the first of a stream.
    """
    if isinstance(source, Stream):
        encoded = Encoded.from_bytes([image for image, _ in itertools.islice(source.iterate(), _SAMPLE)])
    else:
        chosen = permute(seed, 0, np.arange(min(_SAMPLE, len(source))), len(source))
        encoded, _ = source.read(np.sort(chosen))
    return canvas_of(read_headers(encoded))


def canvas_of(headers: Headers) -> tuple[int, int]:
    """The canvas of images with these headers; 512 x 512 if none is good."""
    good = headers.height > 0
    if not good.any():
        return 512, 512
    turned = headers.orientation[good] >= 5
    height = np.where(turned, headers.width[good], headers.height[good])
    width = np.where(turned, headers.height[good], headers.width[good])
    # "higher": a side that an image really has, so that a set of equal images fits exactly
    sides = [int(np.percentile(side, _SHARE, method="higher")) for side in (height, width)]
    return -(-sides[0] // _MULTIPLE) * _MULTIPLE, -(-sides[1] // _MULTIPLE) * _MULTIPLE
