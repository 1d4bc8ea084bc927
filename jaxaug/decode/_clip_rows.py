"""Columns with a row for each frame of a video: those of the frames that clips show."""

from typing import Any

import numpy as np

from jaxaug._typing import Values
from jaxaug.decode._column import ColumnDecoder, RowError
from jaxaug.decode._types import Ragged


def clips_of(decoder: ColumnDecoder) -> tuple[int, ...]:
    """Return the shape of the frames that a row shows, (T,) or (count, T); () of an image."""
    return getattr(decoder, "clip_shape", ())


def one_frame(values: Values) -> np.ndarray:
    """Return the value of a frame [1, ...] from a column with one for each.

    Raises:
      ValueError: the column has no axis of frames.
    """
    each = values.values if isinstance(values, Ragged) else values
    assert isinstance(each, np.ndarray)
    return each[:1] if isinstance(values, Ragged) else each[:1, 0]


def rows_of_clips(values: Values, image: Any, repeat: bool, fill: float = 0) -> np.ndarray:
    """Return the rows of the frames that clips show, [n, clips..., ...].

    Args:
      values: `Ragged` or [n, F, ...], a row for each frame of each video.
      image: the arrays of the decoded videos.
      repeat: behind the end of a video is the row of the last frame shown, else `fill`.
      fill: also where nothing is shown.

    Raises:
      RowError: a video has more frames than rows.
    """
    frames = image["frame"]
    if repeat:
        frames = np.where(frames < 0, frames.max(axis=-1, keepdims=True), frames)
    assert not hasattr(values, "addresses")
    if isinstance(values, Ragged):
        rows, counts = values.values, np.asarray(values.lengths)
    else:
        assert isinstance(values, np.ndarray)
        rows = values.reshape(-1, *values.shape[2:])
        counts = np.full(len(values), values.shape[1])
    numbers = frames.reshape(len(frames), -1)
    last = numbers.max(axis=1, initial=-1)
    for row in np.flatnonzero(last >= counts).tolist()[:1]:
        raise RowError(
            row,
            f"must have a row for each frame of its video, got {counts[row]} rows in record "
            f"{{index}}, of which frame {last[row]} is shown.",
        )
    starts = np.cumsum(counts) - counts
    places = np.where(numbers >= 0, numbers + starts[:, None], 0)
    found = rows[places] if len(rows) else np.zeros((*places.shape, *rows.shape[1:]), rows.dtype)
    found[numbers < 0] = fill
    return found.reshape(*frames.shape, *rows.shape[1:])
