"""TIFFs that say the same of their pixels, as one program writes them: one is read for all.

Of the others it is compared, for all at once, that they do, and read where their parts lie.
"""

from typing import NamedTuple

import numpy as np

from jaxaug.decode.image.deep import tiff
from jaxaug.decode.image.deep.layout import Layout
from jaxaug.decode.image.deep.tiff_tags import Tags, tags_at
from jaxaug.decode.image.parse.memory_windows import read_inside

# What tells a format, and where the first directory begins: see `other_formats.format_of`.
_SIGNS = [(0, b"\xff" * 16), (128, b"\xff" * 4)]
_WORD = 8  # bytes that are compared at once
_MAX_READ = 2**12  # bytes of a file


class _Numbers(NamedTuple):
    """Where the numbers of a tag lie, the dtype of each, and the end of all."""

    at: int
    dtype: np.dtype
    stop: int

    def read(self, starts: np.ndarray, count: int) -> np.ndarray:
        """Return the first numbers of files at some addresses, uint64[k, count]."""
        size = self.dtype.itemsize
        places = self.at + size * np.arange(count)
        return read_inside(starts[:, None] + places, size).view(self.dtype).astype(np.uint64)


class Alike(NamedTuple):
    """What files must have to be read as another one is.

    Attributes:
      layout: of the first page of that file, which is good.
      words: int64[w], where the words lie that are compared.
      values, masks: uint64[w], these words, and their bits that count.
      parts: the offsets and the counts of the parts, which may differ.
      length: bytes of a file that are looked at.
    """

    layout: Layout
    words: np.ndarray
    values: np.ndarray
    masks: np.ndarray
    parts: tuple[_Numbers, _Numbers]
    length: int

    @classmethod
    def as_file(cls, data: memoryview, layout: Layout) -> "Alike | None":
        """Return what files must have to be read as this one; None if it is too odd."""
        tags = tags_at(data, layout.place.start)
        count = len(layout.place.offsets)
        offsets, counts = (_numbers(tags, tag, count) for tag in tiff.part_tags(tags))
        if offsets is None or counts is None:
            return None
        masks = [_in_words(*each) for each in (*_SIGNS, *_far(tags), _directory(tags))]
        length = max(offsets.stop, counts.stop, *(at + len(mask) for at, mask in masks))
        read = 2 * _WORD * count + sum(len(mask) for _, mask in masks)
        if read > _MAX_READ or length > len(data) or min(masks)[0] < 0:
            return None
        values = b"".join(data[at : at + len(mask)] for at, mask in masks)
        return cls(
            layout=layout,
            words=np.concatenate([at + np.arange(0, len(mask), _WORD) for at, mask in masks]),
            values=np.frombuffer(values, np.uint64),
            masks=np.frombuffer(b"".join(mask for _, mask in masks), np.uint64),
            parts=(offsets, counts),
            length=length,
        )

    def find(self, starts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, list[Layout]]:
        """Return which of n files are so, int64[k], and their layouts; all of these are good.

        Args:
          starts, sizes: int64[n], the address and the bytes of each file.
        """
        rows = (sizes >= self.length).nonzero()[0]
        words = read_inside(starts[rows, None] + self.words, _WORD).view(np.uint64)
        rows = rows[~((words ^ self.values) & self.masks).any(axis=1)]
        place = self.layout.place
        count = len(place.offsets)
        offsets, counts = (numbers.read(starts[rows], count) for numbers in self.parts)
        if fixed := tiff.fixed_counts(place):
            counts = np.where(offsets > 0, np.array(fixed, np.uint64), np.uint64(0))
        size = sizes[rows, None].astype(np.uint64)
        inside = ((offsets <= size) & (counts <= size - np.minimum(offsets, size))).all(axis=1)
        moved = zip(offsets[inside].tolist(), counts[inside].tolist())
        return rows[inside], [self._moved(*each) for each in moved]

    def _moved(self, offsets: list[int], counts: list[int]) -> Layout:
        """Return the layout with the parts in their places."""
        place = self.layout.place
        if offsets == list(place.offsets) and counts == list(place.counts):
            return self.layout
        return self.layout._replace(place=place._replace(offsets=offsets, counts=counts))


def _numbers(tags: Tags, tag: int, least: int) -> _Numbers | None:
    """Return where the numbers of a tag lie; None for fewer than `least`, or with a sign."""
    code, count, at = tags.find(tag) or ("", 0, 0)
    if count < least or code not in "BHIQ":
        return None
    return _Numbers(at, np.dtype(tags.order + code), at + tags.entries[tag].size)


def _directory(tags: Tags) -> tuple[int, bytes]:
    """Return where the directory begins, and the bits that count of it.

    These are the heads of all entries, and of the tags that are read the values or their offsets.
    """
    kind = tags.kind
    blank = b"\xff" * kind.head.size + bytes(kind.inline)
    mask = bytearray(blank * (len(tags.heads) // kind.head.size))
    parts = tiff.part_tags(tags)
    for tag, entry in tags.entries.items():
        if tag in tiff.READ or (tag in parts and not entry.inline):
            mask[entry.at : entry.at + kind.inline] = b"\xff" * kind.inline
    return tags.start, b"\xff" * kind.length.size + mask


def _far(tags: Tags) -> list[tuple[int, bytes]]:
    """Return the same of values that lie elsewhere, but for those of the parts."""
    far = [tag for tag in tiff.READ & tags.entries.keys() if not tags.entries[tag].inline]
    places = [(tags.find(tag) or ("", 0, 0))[2] for tag in far]
    return [(at, b"\xff" * tags.entries[tag].size) for at, tag in zip(places, far)]


def _in_words(at: int, mask: bytes) -> tuple[int, bytes]:
    """Return the mask of whole words that end with it."""
    more = -len(mask) % _WORD
    return at - more, bytes(more) + mask
