"""The part of a sound file that a record is."""

import math
from typing import NamedTuple

import numpy as np

from jaxaug.decode._types import Span
from jaxaug.decode.audio.header import Header
from jaxaug.decode.audio.read_header import read_header
from jaxaug.errors import DecodeError

_SLACK = 0.1  # seconds that the end of a span may lie behind that of its file: they are rounded


class Part(NamedTuple):
    """The part of a file that a record is.

    Attributes:
      header: of the file.
      begin, end: its samples, [begin, end).
      channel: the one of the file's that it is; -1 for all.
    """

    header: Header
    begin: int
    end: int
    channel: int = -1

    @property
    def frames(self) -> int:
        """The samples of each channel."""
        return self.end - self.begin

    @property
    def channels(self) -> int:
        """How many channels it has."""
        return self.header.channels if self.channel < 0 else 1

    def of(self, samples: np.ndarray) -> np.ndarray:
        """Return its channels of samples [n, channels of the file]."""
        return samples if self.channel < 0 else samples[:, self.channel : self.channel + 1]


def find_part(data: memoryview, span: Span | None, row: int) -> Part:
    """Return the part of a file that record `row` is.

    Raises:
      DecodeError: the file cannot be decoded, or has no such part.
    """
    header = read_header(data)
    if span is None:
        return Part(header, 0, header.frames)
    seconds = header.frames / header.rate
    begin, end = float(span.start[row]), float(span.end[row])
    if begin * header.rate > header.frames - 1 or (math.isfinite(end) and end > seconds + _SLACK):
        raise DecodeError(f"it ends after {seconds:g} seconds, before the part {span.text(row)}")
    first = round(begin * header.rate)
    last = header.frames if math.isinf(end) else min(header.frames, round(end * header.rate))
    channel = -1 if span.channel is None else int(span.channel[row])
    if channel >= header.channels:
        raise DecodeError(f"it has {header.channels} channels, none of number {channel}")
    return Part(header, first, max(last, first + 1), channel)
