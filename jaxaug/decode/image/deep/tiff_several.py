"""Small TIFFs of a batch that are alike, several at a time.

Each call, and each turn of a thread, costs Python as much as the pixels of such an image.
"""

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from jaxaug.decode.image.deep import tiff
from jaxaug.decode.image.deep.layout import Layout
from jaxaug.decode.native.tiff_pages import Form

_SMALL = 2**20  # bytes; larger images keep a thread busy alone
_SHARE = 2**21  # bytes of the images that a thread takes at once
_MAX_FILES = 2**24  # bytes of their files, which are copied


def shares(layouts: Mapping[int, Layout | None], threads: int) -> list[list[int]]:
    """Return the rows of images in shares, each for one thread at a time.

    Several of a share are for `decode_several`. There are as many shares as keep all threads busy;
    but pixels without compression are merely copied, so that a small share is not worth a thread.

    Args:
      layouts: row -> layout; None for images that have none.
      threads: that decode.
    """
    found = []
    alike = collections.defaultdict[tuple[Form, bool], list[int]](list)
    for row, layout in layouts.items():
        form = None if layout is None else _form_of(layout)
        if layout is None or form is None:
            found.append([row])
        else:
            alike[form, layout.place.compression == tiff.LZW].append(row)
    for (form, compressed), rows in alike.items():
        count = -(-len(rows) * form.height * form.pitch // _SHARE)
        if compressed:
            count = -(-count // threads) * threads
        found += [rows[first::count] for first in range(min(count, len(rows)))]
    return found


def _form_of(layout: Layout) -> Form | None:
    """Return the form of what `decode_several` may decode, None for all others."""
    place = layout.place
    if not isinstance(place, tiff.Directory) or place.form is None or not tiff.is_common(place):
        return None
    return place.form if place.form.height * place.form.pitch < _SMALL else None


def decode_several(
    files: Sequence[memoryview], layouts: Sequence[Layout]
) -> list[np.ndarray | None]:
    """Return the pixels of a share as `tiff.decode` does; None for what it must decode alone."""
    place = layouts[0].place
    if place.compression != tiff.LZW:
        return [tiff.view(data, layout) for data, layout in zip(files, layouts)]
    alone: list[np.ndarray | None] = [None] * len(files)
    pages = [tiff.page_alone(data, layout.place) for data, layout in zip(files, layouts)]
    whole = [page for page in pages if page is not None]
    if len(whole) < len(files) or sum(map(len, files)) > _MAX_FILES:
        return alone
    try:
        return list(tiff.by_libtiff(place.form, whole))
    except Exception:  # one of them is damaged
        return alone
