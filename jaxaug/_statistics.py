"""The mean and the deviation of each channel of a source, for `Normalize`."""

import dataclasses
import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxaug._pieces import PIECE, Journal, images_of, run_pieces, write_json
from jaxaug.decode import Encoded
from jaxaug.decode._cpus import usable_cpus
from jaxaug.decode.image.deep.convert import nodata_of
from jaxaug.decode.image.form import PixelForm
from jaxaug.decode.image.host.decode_image import decode_as
from jaxaug.decode.image.parse.headers import MAX_PIXELS, read_headers
from jaxaug.errors import DecodeError, SourceError
from jaxaug.iterators.sources.storage.byte_progress import byte_progress
from jaxaug.iterators.sources.storage.files import cache_folder

_LEVELS = {"uint8": 255, "uint16": 65535, "float32": 1}  # what is 1.0 to `Normalize`


class Statistics(NamedTuple):
    """What a source holds, a number for each channel.

    Attributes:
      mean, std: in the units of `Normalize`, [0, 1] of levels, else those of the file.
      pixels: how many there are, without those of no data (GDAL), NaN and
        infinities.
      images: that were read.
      bad: that could not be.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    pixels: tuple[int, ...]
    images: int
    bad: int


class Sums(NamedTuple):
    """Exact sums over pixels, for each channel: of integers ints, of floats those of float64.

    Attributes:
      pixels: how many there are.
      total: of their numbers.
      squares: of the squares of these.
      images, bad: how many were read, and could not be.
    """

    pixels: list[int]
    total: list[Any]
    squares: list[Any]
    images: int
    bad: int


def statistics(source: Any, form: PixelForm, processes: int | None = None) -> Statistics:
    """Return the statistics of a source's images, at their full size.

    Those of integers are exact: sums of ints, rounded once at the end. A run that is killed goes on
    where it ended.

    Args:
      source: with a column "image" of encoded bytes.
      form: of the pixels, as `decode.Image` takes it.
      processes: None for one on each CPU that this process may use.

    Raises:
      SourceError: no image could be read, their channels differ, or one has no data at all.
    """
    count = len(source)
    journal = Journal(_journal_path(source, form), [source.fingerprint(), count, repr(form)])
    results = journal.resume()
    starts = [start for start in range(0, count, PIECE) if start not in results]
    work = partial(sums_of, form)
    pieces = run_pieces(work, source, starts, PIECE, processes or usable_cpus())
    with byte_progress(len(starts) * PIECE, "statistics") as advance:
        for start, result in pieces:
            journal.add(start, result)
            results[start] = result
            advance(PIECE)
    found = [Sums(*each) for _, each in sorted(results.items())]
    journal.remove()  # also where they are of no use: the files or the libraries may change
    return _finish(found, _LEVELS[form.dtype])


def _journal_path(source: Any, form: PixelForm) -> str:
    """Return a file in the cache of the user, one for each source and form."""
    name = hashlib.blake2b(f"{source.fingerprint()}{form}".encode(), digest_size=8).hexdigest()
    os.makedirs(cache_folder(), exist_ok=True)
    return os.path.join(cache_folder(), f"{name}.statistics")


def sums_of(form: PixelForm, source: Any, start: int) -> Sums:
    """Return the sums over the records of the piece that begins with `start`."""
    columns = source.read(np.arange(start, min(start + PIECE, len(source))))
    column, _ = images_of(columns["image"])
    found: list[Sums] = []
    bad = 0
    for row in range(len(column.lengths)):
        try:
            found.append(_of_image(column.take(slice(row, row + 1)), form))
        except DecodeError:
            bad += 1
    return _joined(found)._replace(bad=bad) if found else Sums([], [], [], 0, bad)


def _of_image(encoded: Encoded, form: PixelForm) -> Sums:
    pixels = decode_as(encoded, form, MAX_PIXELS, "error")
    layout = read_headers(encoded, MAX_PIXELS, "error", form).layout[0]
    nodata = None if layout is None else nodata_of(layout, form)
    there = np.ones(pixels.shape, np.bool_)
    if nodata is not None and layout is not None:
        told = pixels
        if form.dtype == "uint8" and layout.bits > 8:  # its upper 8 bits do not tell
            told = decode_as(
                encoded, dataclasses.replace(form, dtype="uint16"), MAX_PIXELS, "error"
            )
        there = told != nodata
    channels = [pixels[..., k][there[..., k]] for k in range(pixels.shape[2])]
    if pixels.dtype.kind == "f":
        floats = [each[np.isfinite(each)].astype(np.float64) for each in channels]
        totals = [float(each.sum()) for each in floats]
        squares = [float((each * each).sum()) for each in floats]
        return Sums([each.size for each in floats], totals, squares, 1, 0)
    levels = np.arange(np.iinfo(pixels.dtype).max + 1)
    counts = [np.bincount(each, minlength=len(levels)) for each in channels]
    # At most 2^31 pixels: their squares of 32 bits fit 64.
    totals = [int(each @ levels) for each in counts]
    squares = [int(each @ (levels * levels)) for each in counts]
    return Sums([each.size for each in channels], totals, squares, 1, 0)


def _joined(parts: Sequence[Sums]) -> Sums:
    """Return the sums of all parts; floats are added exactly, and rounded once."""
    widths = {len(part.pixels) for part in parts if part.images}
    if len(widths) > 1:
        raise SourceError(
            f"the images must have one number of channels, got {sorted(widths)}: give --channels."
        )
    read = [part for part in parts if part.images]
    add = [list(zip(*(getattr(part, name) for part in read))) for name in Sums._fields[:3]]
    count, total, squares = ([_sum(each) for each in columns] for columns in add)
    images = sum(part.images for part in parts)
    return Sums(count, total, squares, images, sum(part.bad for part in parts))


def _sum(numbers: Sequence[Any]) -> Any:
    return math.fsum(numbers) if isinstance(numbers[0], float) else sum(numbers)


def _finish(parts: Sequence[Sums], full: int) -> Statistics:
    if not any(part.images for part in parts):
        raise SourceError(
            "no image could be read, as which videos and sounds do not count: `python -m jaxaug "
            "verify` tells why."
        )
    sums = _joined(parts)
    means, deviations = [], []
    if 0 in sums.pixels:
        raise SourceError(
            f"channel {sums.pixels.index(0)} has no pixel with data: all are NaN, infinite or the "
            "number that stands for none. Leave it out by --bands."
        )
    for count, total, squares in zip(sums.pixels, sums.total, sums.squares):
        mean = Fraction(total) / count
        variance = Fraction(squares) / count - mean * mean
        means.append(float(mean / full))
        deviations.append(math.sqrt(max(variance, 0)) / full)
    return Statistics(tuple(means), tuple(deviations), tuple(sums.pixels), sums.images, sums.bad)


def lines(found: Statistics) -> Iterator[str]:
    """Yield a line for each channel, and the `Normalize` of them."""
    for channel, (mean, std, count) in enumerate(zip(found.mean, found.std, found.pixels)):
        yield f"channel {channel}: mean {mean:.9g}, std {std:.9g} of {count:,} pixels"
    bad = f"; {found.bad:,} could not be read" if found.bad else ""
    yield f"{found.images:,} images{bad}"
    mean, std = (", ".join(f"{each:.6g}" for each in numbers) for numbers in found[:2])
    yield f"augment.Normalize([{mean}], [{std}])"


def write(path: str, found: Statistics) -> None:
    """Write them as JSON."""
    write_json(path, found._asdict())
