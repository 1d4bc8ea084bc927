"""Which frames of a video a row shows: pure functions of the frames' times and of a key.

A clip is `frames` frames, `stride` apart or at `fps`. The place of its first frame is drawn among,
or chosen from, those at which the whole clip lies inside of the video.
"""

import dataclasses

import numpy as np

from jaxaug._checks import check_amount, check_choice, check_count, check_positive_int, is_int
from jaxaug.decode._draw import draw_integers

_STARTS = ("random", "uniform", "center")
# Seconds: a frame counts as shown from a little before its time, for times that were divided.
EARLY = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clips:
    """The clips of a row; see `decode.Video`, whose arguments these are."""

    frames: int
    stride: int | None
    fps: float | None
    count: int
    start: str | int
    overlap: bool

    def __post_init__(self):
        check_positive_int("frames", self.frames)
        check_positive_int("count", self.count)
        check_choice("overlap", self.overlap, (True, False))
        if self.count == 1 and not self.overlap:
            raise ValueError(
                "`count` must be at least 2 with overlap=False, which gives each clip a part of"
                " the video of its own, got 1."
            )
        if self.fps is not None:
            check_amount("fps", self.fps, "frames a second")
            if self.stride is not None:
                raise ValueError(
                    f"`stride` must be left out beside `fps`={self.fps:g}, got {self.stride!r}: "
                    "frames are so many apart, or at so many a second."
                )
        else:
            check_positive_int("stride", self.step)
        if is_int(self.start):
            check_count("start", int(self.start))
        else:
            check_choice("start", self.start, _STARTS)
        if self.count > 1 and (is_int(self.start) or self.start == "center"):
            raise ValueError(
                f"`start` must be 'random' or 'uniform' with `count`={self.count}, got "
                f"{self.start!r}: all clips would be the same."
            )

    @property
    def step(self) -> int:
        """Frames from one of a clip to the next, where it is not `fps` that counts."""
        return 4 if self.stride is None else self.stride

    def numbers(self, seconds: np.ndarray, key: np.ndarray, until: float) -> np.ndarray:
        """Return the frames of each clip, int64[count, frames]; -1 behind the video's end.

        Args:
          seconds: float64[n], the time of each frame of the video, ascending.
          key: uint64[1], of the row.
          until: the second up to which the last one is shown.
        """
        ends = [len(seconds)] * self.count
        begins = [0] * self.count
        if not self.overlap:
            bounds = np.arange(self.count + 1) * len(seconds) // self.count
            begins = bounds[:-1].tolist()
            ends = np.maximum(bounds[1:], bounds[:-1] + 1).tolist()  # not all have a frame
        clips = []
        for number, (begin, end) in enumerate(zip(begins, ends)):
            within = seconds[begin:end]
            first = self._first(number, self._places(within), key)
            found = self._from(within, first, seconds[end] if end < len(seconds) else until)
            clips.append(np.where(found < 0, -1, found + begin))
        return np.stack(clips)

    def _places(self, seconds: np.ndarray) -> int:
        """Return how many frames may be a clip's first, at least 1."""
        if self.fps is None:
            return max(1, len(seconds) - (self.frames - 1) * self.step)
        if not len(seconds):
            return 1
        latest = seconds[-1] - (self.frames - 1) / self.fps + EARLY
        return max(1, int(np.searchsorted(seconds, latest, side="right")))

    def _first(self, number: int, places: int, key: np.ndarray) -> int:
        """Return the first frame of a clip, one of so many places."""
        if self.start == "random":
            return int(draw_integers(key, number, high=places)[0])
        if self.start == "center":
            return (places - 1) // 2
        if self.start == "uniform":
            parts, part = (self.count, number) if self.overlap else (1, 0)
            return (2 * part + 1) * places // (2 * parts)
        return int(self.start)

    def _from(self, seconds: np.ndarray, first: int, until: float) -> np.ndarray:
        """Return the frames int64[frames] of the clip that begins with a frame."""
        if first >= len(seconds):
            return np.full(self.frames, -1)
        steps = np.arange(self.frames)
        if self.fps is None:
            found = first + steps * self.step
            return np.where(found < len(seconds), found, -1)

        times = seconds[first] + steps / self.fps
        found = np.searchsorted(seconds, times + EARLY, side="right") - 1
        return np.where(times <= max(until - 2 * EARLY, seconds[-1] + EARLY), found, -1)


def shown_until(seconds: np.ndarray) -> float:
    """Return the end of the last frame of a video, which is shown as long as the one before it."""
    return seconds[-1] + (seconds[-1] - seconds[-2] if len(seconds) > 1 else 0.0)
