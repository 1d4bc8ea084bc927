"""The decoders of boxes and keypoints: turned upright by their image's EXIF, and scaled with it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from jaxaug._typing import Values
from jaxaug.decode._clip_rows import clips_of, one_frame, rows_of_clips
from jaxaug.decode._column import Column, ColumnDecoder, Decoded, valid_rows
from jaxaug.decode._types import Encoded, Ragged
from jaxaug.decode.image.orientation import FLIP_X, FLIP_Y, TRANSPOSE

Move = Callable[[np.ndarray], np.ndarray]  # of points float32[n, k, 2]


@dataclasses.dataclass(frozen=True)
class Keypoints(ColumnDecoder):
    """Points of images: the description that `Loader(decode=)` takes, and sources declare.

    A column [n, ..., 2] of (x, y) in edge coordinates and absolute pixels of the stored file, or
    [n, ..., 3] with a visibility, which stays, or flat [n, 2 k], as packed files have it, becomes
    float32[B, ..., 2 or 3] on the image's canvas, flat ones [B, k, 2]. A keypoint of three zeros is
    padding and stays. Beside a `Ragged` column "<name>_length" counts points.

    Of a video, the column has a row for each of its frames, `Ragged` of [k, 2 or 3] or [n, F, k, 2
    or 3]; the entry has those of the frames that the row shows, [B, (count,) T, k, 2 or 3], zeros
    where `pad="mask"` shows none.

    Args:
      of: the column of the image, or of the video.
      upright: the column is in pixels of the upright image, not of the stored file.

    Raises:
      ValueError: a column of another shape or count.

    Example:
      >>> Keypoints(of="left").of
      'left'
    """

    of: str = "image"
    upright: bool = False
    # Set by `fit`: the column, the shape of a record's points, and whether their number varies.
    name: str = dataclasses.field(default="", repr=False)
    shape: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    ragged: bool = dataclasses.field(default=False, repr=False)
    # Of a video: the shape of its clips, and whether they repeat the last frame.
    clips: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    repeat: bool = dataclasses.field(default=False, repr=False)

    numbers: ClassVar[int] = 2  # of one of them

    def fit(self, column: Column, siblings: Mapping[str, ColumnDecoder]) -> "Keypoints":
        """Return the decoder with the shape of the column."""
        named = dataclasses.replace(self, name=column.name)
        if clips := clips_of(siblings[self.of]):
            return named._fit_clips(column.example, clips, siblings[self.of])
        values, _ = named._unflatten(column.example)
        ragged = isinstance(column.example, Ragged)
        return dataclasses.replace(named, shape=values.shape[1:], ragged=ragged)

    def _fit_clips(
        self, example: Values, clips: tuple[int, ...], video: ColumnDecoder
    ) -> "Keypoints":
        """Return the decoder of a column with a row for each frame of a video."""
        frame = one_frame(example)
        if not self._has_shape(frame):
            raise ValueError(
                f"feature {self.name!r} must have a row [k, {self.numbers}] for each frame of its "
                f"video, got rows {list(frame.shape[1:])}: other data needs another name."
            )
        repeat = getattr(video, "pad", "last") == "last"
        return dataclasses.replace(
            self, shape=(*clips, *frame.shape[1:]), clips=clips, repeat=repeat
        )

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the form of the points, and of their number where it varies."""
        forms = {"points": jax.ShapeDtypeStruct(self.shape, np.float32)}
        if self.ragged:
            forms["length"] = jax.ShapeDtypeStruct((), np.int32)
        return forms

    def decode_rows(
        self,
        values: Values,
        checked: Any,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the points of n records on the canvases of their images."""
        image = siblings[self.of].arrays
        if self.clips:
            points = rows_of_clips(values, image, self.repeat).astype(np.float32)
            flat = points.reshape(len(points), -1, points.shape[-1])
            flat = self.moved(flat, _onto_canvas(image, self.upright))
            return Decoded({"points": flat.reshape(points.shape)}, valid_rows({}, wanted), {})
        points, lengths = self._unflatten(values)
        if "size" in image:
            points = self.moved(points, _onto_canvas(image, self.upright))
        arrays = {"points": points}
        if lengths is not None:
            arrays["length"] = lengths
        return Decoded(arrays, valid_rows({}, wanted), {})

    def moved(self, points: np.ndarray, move: Move) -> np.ndarray:
        """Return points float32[n, ..., 2 or 3] after `move`; their visibility stays."""
        places = move(points[..., :2].reshape(len(points), -1, 2)).reshape(*points.shape[:-1], 2)
        joined = np.concatenate([places, points[..., 2:]], axis=-1)
        padding = (points == 0).all(axis=-1, keepdims=True) & (points.shape[-1] == 3)
        return np.where(padding, np.float32(0), joined).astype(np.float32)

    def _unflatten(self, values: Values) -> tuple[np.ndarray, "np.ndarray | None"]:
        """Return a column as float32[n, ...], and how many there are where that varies."""
        assert not isinstance(values, Encoded)
        lengths = None
        if isinstance(values, Ragged):
            lengths = values.padded_lengths
            if values.values.ndim == 1:
                lengths = self._whole(lengths)
            values = values.padded()
        if self._has_shape(values):
            return values.astype(np.float32), lengths
        if values.ndim != 2 or values.shape[1] % self.numbers:
            what = "boxes" if self.numbers == 4 else "keypoints"
            raise ValueError(
                f"feature {self.name!r} must have {self.numbers} numbers for each of k {what}, "
                f"[n, k, {self.numbers}] or flat [n, {self.numbers} k], got {list(values.shape)}: "
                "other data needs another name."
            )
        return values.reshape(len(values), -1, self.numbers).astype(np.float32), lengths

    def _has_shape(self, values: np.ndarray) -> bool:
        return values.ndim >= 3 and values.shape[-1] in (2, 3)

    def _whole(self, lengths: np.ndarray) -> np.ndarray:
        """Return the count of points from that of their numbers."""
        if (lengths % self.numbers).any():
            odd = lengths[lengths % self.numbers != 0][0]
            raise ValueError(
                f"feature {self.name!r} must have {self.numbers} numbers for each of its "
                f"{self.name}, got a record with {odd} in all: other data needs another name."
            )
        return lengths // self.numbers


@dataclasses.dataclass(frozen=True)
class Boxes(Keypoints):
    """Boxes of images: the description that `Loader(decode=)` takes, and sources declare.

    A column [n, k, 4] of xyxy in edge coordinates and absolute pixels of the stored file, or flat
    [n, 4 k], becomes float32[B, k, 4] on the image's canvas; one of oriented boxes [n, k, 8], their
    four corners clockwise, [B, k, 8]. A box of zeros is padding and stays. Beside a `Ragged` column
    "<name>_length" counts boxes. Of a video they are by frame, see `Keypoints`.

    Args:
      of: the column of the image, or of the video.
      upright: the column is in pixels of the upright image, not of the stored file.

    Raises:
      ValueError: a column of another shape or count.

    Example:
      >>> Boxes().of
      'image'
    """

    numbers: ClassVar[int] = 4

    def moved(self, points: np.ndarray, move: Move) -> np.ndarray:
        """Return the hulls of boxes float32[n, k, 4] after `move`, of [n, k, 8] the corners."""
        boxes = points
        if boxes.shape[-1] == _CORNERS:
            return _moved_corners(boxes, move)
        corners = move(boxes.reshape(len(boxes), -1, 2)).reshape(*boxes.shape[:2], 2, 2)
        hulls = np.concatenate([corners.min(axis=2), corners.max(axis=2)], axis=-1)
        padding = (boxes == 0).all(axis=-1, keepdims=True)
        return np.where(padding, np.float32(0), hulls).astype(np.float32)

    def _has_shape(self, values: np.ndarray) -> bool:
        return values.ndim == 3 and values.shape[-1] in (4, _CORNERS)


def stored_points(
    name: str,
    values: Values,
    original_size: np.ndarray,
    orientation: np.ndarray,
    rows: np.ndarray,
) -> Values:
    """Return "boxes" or "keypoints", of some rows moved from the upright image's pixels to the
    stored file's, as float32 in their own shape.

    Args:
      name: of the column.
      values: as `Boxes` and `Keypoints` take them.
      original_size: int32[n, 2], the sizes of the upright images.
      orientation: uint8[n], the EXIF orientation 1 to 8.
      rows: bool[n], the rows to move; the others are in pixels of the stored file already.

    Example:
      A box at the left of an upright image lies at the bottom of the file that EXIF turns:

      >>> box = np.array([[[0.0, 0.0, 5.0, 30.0]]])
      >>> size = np.array([[30, 20]])
      >>> stored_points("boxes", box, size, np.array([6]), np.array([True])).tolist()
      [[[0.0, 15.0, 30.0, 20.0]]]
    """
    decoder = dataclasses.replace(_DECODERS[name], name=name)
    points, _ = decoder._unflatten(values)

    def back(points: np.ndarray) -> np.ndarray:
        turned = _transpose(_mirror(points, original_size, orientation), orientation)
        return np.where(rows[:, None, None], turned, points)

    moved = decoder.moved(points, back)
    if isinstance(values, Ragged):
        flat = moved.reshape(len(moved), -1, *values.values.shape[1:])
        return Ragged.from_padded(flat, values.padded_lengths)._replace(
            max_length=values.max_length, fill=values.fill
        )
    return moved.reshape(values.shape)  # pyright: ignore[reportAttributeAccessIssue]


_DECODERS: Mapping[str, Keypoints] = {"boxes": Boxes(), "keypoints": Keypoints()}


def _onto_canvas(image: Mapping[str, np.ndarray], upright: bool) -> Move:
    """Return what turns points of stored files upright, and scales them to the canvas."""
    scale = image["size"] / np.maximum(image["original_size"], 1).astype(np.float32)

    def move(points: np.ndarray) -> np.ndarray:
        if not upright:
            points = _transpose(points, image["orientation"])
            points = _mirror(points, image["original_size"], image["orientation"])
        return points * scale[:, None, ::-1]

    return move


_CORNERS = 8  # the numbers of an oriented box
_MIRRORED = (1, 0, 3, 2)  # the corners of a mirrored one, clockwise from its first again


def _moved_corners(boxes: np.ndarray, move: Move) -> np.ndarray:
    """Return oriented boxes float32[n, k, 8] after `move`."""
    before = boxes.reshape(*boxes.shape[:2], 4, 2)
    after = move(boxes.reshape(len(boxes), -1, 2)).reshape(before.shape)
    mirrored = _turns_right(before) != _turns_right(after)
    after = np.where(mirrored[..., None, None], after[:, :, _MIRRORED], after).reshape(boxes.shape)
    padding = (boxes == 0).all(axis=-1, keepdims=True)
    return np.where(padding, np.float32(0), after).astype(np.float32)


def _turns_right(corners: np.ndarray) -> np.ndarray:
    """Return True where corners [..., 4, 2] run clockwise on the screen."""
    first = corners[..., 2, :] - corners[..., 0, :]
    second = corners[..., 3, :] - corners[..., 1, :]
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0] > 0


def _transpose(points: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    return np.where(TRANSPOSE[orientation][:, None, None], points[..., ::-1], points)


def _mirror(points: np.ndarray, original_size: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    flips = np.stack([FLIP_X[orientation], FLIP_Y[orientation]], axis=1)[:, None]
    sides = original_size[:, None, ::-1].astype(np.float32)
    return np.where(flips, sides - points, points)
