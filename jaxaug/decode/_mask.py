"""The decoder of a column of masks: class numbers that follow their image."""

import dataclasses
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._checks import is_int
from jaxaug._install import installed_versions
from jaxaug._typing import Values
from jaxaug.decode._clip_rows import clips_of, one_frame, rows_of_clips
from jaxaug.decode._column import (
    Column,
    ColumnDecoder,
    Decoded,
    RowError,
    decode_each,
    valid_rows,
)
from jaxaug.decode._cpus import usable_cpus
from jaxaug.decode._libraries import IMAGE_PACKAGES
from jaxaug.decode._types import Encoded
from jaxaug.decode.image.canvas import rows_within
from jaxaug.decode.image.column import Image, ImageArray
from jaxaug.decode.image.host.decode_image import decode_unchanged
from jaxaug.decode.image.orientation import FLIP_X, FLIP_Y, TRANSPOSE, upright
from jaxaug.decode.image.parse.headers import BAD, MAX_PIXELS, Headers, read_headers
from jaxaug.errors import DecodeError

Size = tuple[int, int]

_MAX_TRIES = 100  # records looked at for the first good mask


@dataclasses.dataclass(frozen=True)
class Mask(ColumnDecoder):
    """Masks of images: the description that `Loader(decode=)` takes, and sources declare.

    A column of encoded masks is decoded without a change of its numbers, to uint8, or to int32
    where the first has more than 8 bits. It has the size of its stored image and is turned and
    shrunk with it; one of the upright image's size is not turned. The entry is `<name>` [B, H, W]
    on the image's canvas.

    A column that is an array [n, Hm, Wm(, C)] holds each mask at its top-left, at least as large as
    the stored image; it is placed on the device.

    Of a video the column is an array with a mask for each of its frames, `Ragged` of [Hm, Wm] or
    [n, F, Hm, Wm]; the entry has those of the frames that the row shows, [B, (count,) T, H, W].

    Args:
      of: the column of the image, or of the video.
      fill: what integers are outside of the image, and in rows that are not valid; bool has False,
        float 0.
      instances: the array is [n, k, Hm, Wm], a mask for each of k objects; its entry is [B, k, H,
        W].

    Example:
      >>> Mask(fill=0)
      Mask(of='image', fill=0, instances=False)
    """

    of: str = "image"
    fill: int = 255
    instances: bool = False

    def __post_init__(self):
        if not is_int(self.fill):
            raise ValueError(f"`fill` must be an int, got {self.fill!r}.")

    def fit(self, column: Column, siblings: Mapping[str, ColumnDecoder]) -> ColumnDecoder:
        """Return the decoder of masks of this column's kind, on the canvas of its image."""
        image = siblings[self.of]
        if clips := clips_of(image):
            return self._fit_clips(column, clips, image)
        if not isinstance(image, (Image, ImageArray)) or image.canvas is None:
            raise ValueError(
                f"`of` of column {column.name!r} must name a column of images, got {self.of!r}."
            )
        if isinstance(column.example, Encoded):
            return self._fit_encoded(column, image)
        assert isinstance(column.example, np.ndarray)
        shape = column.example.shape[1:]
        dimensions = (3,) if self.instances else (2, 3)
        if len(shape) not in dimensions:
            wanted = (
                "[n, k, height, width]"
                if self.instances
                else ("[n, height, width] or [n, height, width, channels]")
            )
            raise ValueError(
                f"feature {column.name!r} must be {wanted}, got {list(column.example.shape)}: "
                "other data needs another name."
            )
        height, width = image.canvas
        rows, columns = shape[-2:] if self.instances else shape[:2]
        if isinstance(image, ImageArray) and (rows < height or columns < width):
            raise ValueError(
                f"feature {column.name!r} must be at least as large as its image, {height} x "
                f"{width} pixels, got {rows} x {columns}. Data that is no mask needs another name."
            )
        dtype = column.example.dtype
        fill = 0 if self.instances else fill_of(dtype, self.fill)
        return MaskArray(
            of=self.of,
            shape=shape,
            dtype=dtype.name,
            canvas=image.canvas,
            fill=fill,
            blank_fill=self.fill,
            instances=self.instances,
        )

    def _fit_clips(
        self, column: Column, clips: tuple[int, ...], video: ColumnDecoder
    ) -> "MaskArray":
        """Return the decoder of a column with a mask for each frame of a video."""
        frame = None if isinstance(column.example, Encoded) else one_frame(column.example)
        if frame is None or frame.ndim != 3 + self.instances:
            got = "encoded bytes" if frame is None else f"rows {list(frame.shape[1:])}"
            raise ValueError(
                f"feature {column.name!r} must be arrays with a mask for each frame of its video, "
                f"got {got}."
            )
        return MaskArray(
            of=self.of,
            shape=frame.shape[1:],
            dtype=frame.dtype.name,
            canvas=getattr(video, "canvas"),  # noqa: B009
            fill=0 if self.instances else fill_of(frame.dtype, self.fill),
            blank_fill=self.fill,
            instances=self.instances,
            clips=clips,
            repeat=getattr(video, "pad", "last") == "last",
        )

    def _fit_encoded(self, column: Column, image: "Image | ImageArray") -> "EncodedMask":
        if isinstance(image, ImageArray) or self.instances:
            raise ValueError(
                f"column {column.name!r} must be an array beside an image that is one, or of "
                "several instances, got encoded masks."
            )
        assert image.canvas is not None
        dtype = _first_dtype(column)
        fill = fill_of(dtype, self.fill)
        return EncodedMask(
            of=self.of,
            dtype=dtype.name,
            canvas=image.canvas,
            fill=fill,
            max_pixels=image.max_pixels,
        )


def fill_of(dtype: Any, fill: int) -> int:
    """Return the value of a mask where there is no image: `fill` for integers, else False or 0.

    Raises:
      ValueError: the dtype cannot hold `fill`.
    """
    if not jnp.issubdtype(dtype, np.integer):
        return 0
    limits = np.iinfo(dtype)
    if not limits.min <= fill <= limits.max:
        raise ValueError(
            f"`fill` of Mask must fit the mask's {np.dtype(dtype)}, {limits.min} to {limits.max}, "
            f"got {fill}: give another, or a mask of a wider dtype."
        )
    return fill


def _check_transform(name: str, fill: int, transform: Any) -> None:
    """Raise ValueError for a chain that fills masks with another number."""
    other = getattr(transform, "mask_fill", fill)
    if name == "mask" and other != fill:
        raise ValueError(
            f"`mask_fill` of the transform must be that of the Loader's masks, {fill}, got "
            f"{other}: give Compose(..., mask_fill={fill}), or decode={{'mask': "
            f"Mask(fill={other})}}."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodedMask(ColumnDecoder):
    """Masks in files: decoded onto canvases in host memory, with a thread for each CPU.

    Attributes:
      of: the column of the image.
      dtype: of the canvases, by name.
      canvas: (H, W).
      fill: the value where there is no image.
      max_pixels: masks of more are refused.
    """

    of: str
    dtype: str
    canvas: Size
    fill: int
    max_pixels: int = MAX_PIXELS

    def within(self, bound: float) -> "EncodedMask":
        return dataclasses.replace(self, canvas=(rows_within(self.canvas, bound), self.canvas[1]))

    def made_by(self, platform: str) -> dict[str, str]:
        return installed_versions(*IMAGE_PACKAGES)

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {"canvas": jax.ShapeDtypeStruct(self.canvas, np.dtype(self.dtype))}

    def blanks(self, name: str) -> Mapping[str, int]:
        return {name: self.fill}

    def check_transform(self, name: str, transform: Any) -> None:
        _check_transform(name, self.fill, transform)

    def decode_rows(
        self,
        values: Values,
        checked: Any,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the masks of the wanted rows on canvases [n, H, W]."""
        assert isinstance(values, Encoded)
        canvases = np.full((len(values.lengths), *self.canvas), self.fill, self.dtype)
        headers = read_headers(values, self.max_pixels)
        arrays = siblings[self.of].arrays
        place = partial(self._place, canvases, values, headers, arrays)
        # Its threads end with the batch.
        with ThreadPoolExecutor(usable_cpus(), thread_name_prefix="jaxaug-masks") as pool:
            failures = decode_each(pool, place, wanted)
        return Decoded({"canvas": canvases}, valid_rows(failures, wanted), failures)

    def _place(
        self,
        canvases: np.ndarray,
        masks: Encoded,
        headers: Headers,
        image: Mapping[str, np.ndarray],
        row: int,
    ) -> None:
        """Put the mask of a row on its canvas."""
        mask = self._decode(masks.view(row), headers.row(row))
        original_size = tuple(image["original_size"][row].tolist())
        # A mask that has an orientation of its own is upright by now.
        turned = int(headers.orientation[row]) != 1
        orientation = 1 if turned else int(image["orientation"][row])
        mask = turn_mask(mask, original_size, orientation)
        height, width = image["size"][row].tolist()
        canvases[row, :height, :width] = shrink_mask(mask, (height, width))

    def _decode(self, data: memoryview, header: Headers) -> np.ndarray:
        """Return the class numbers [h, w] of a mask, upright by its own orientation."""
        if header.kind == BAD:
            raise DecodeError(str(header.reason))
        mask = decode_unchanged(data, header)
        if mask.ndim != 2 or mask.dtype.kind not in "iu":
            raise DecodeError(
                f"it must hold one class number for each pixel, got {mask.dtype}{list(mask.shape)}:"
                " convert colors to numbers first"
            )

        limits = np.iinfo(self.dtype)
        low = int(mask.min())
        number = low if low < limits.min else int(mask.max())
        if not limits.min <= number <= limits.max:
            raise DecodeError(
                f"number {number} does not fit {self.dtype}, which the first mask has: store all "
                "masks with 16 bits"
            )
        return mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskArray(ColumnDecoder):
    """Masks that are arrays of one shape, placed on the canvas on the device.

    Attributes:
      of: the column of the image.
      shape: (Hm, Wm), (Hm, Wm, C), or (k, Hm, Wm) of instances.
      dtype: by name.
      canvas: (H, W) of the image.
      fill: the value outside of the image.
      blank_fill: that of integers in rows that are not valid.
      instances: the first axis is that of objects.
      clips, repeat: of a video, the shape of its clips, and whether they repeat the last frame.
    """

    of: str
    shape: tuple[int, ...]
    dtype: str
    canvas: Size
    fill: int
    blank_fill: int
    instances: bool
    clips: tuple[int, ...] = ()
    repeat: bool = False

    def within(self, bound: float) -> "MaskArray":
        return dataclasses.replace(self, canvas=(rows_within(self.canvas, bound), self.canvas[1]))

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        shape = (*self.clips, *self.shape)
        return {"stored": jax.ShapeDtypeStruct(shape, np.dtype(self.dtype))}

    def blanks(self, name: str) -> Mapping[str, int]:
        return {} if self.instances else {name: self.blank_fill}

    def check_transform(self, name: str, transform: Any) -> None:
        _check_transform(name, self.blank_fill, transform)

    def decode_rows(
        self,
        values: Values,
        checked: Any,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the masks as they are.

        Raises:
          ValueError: one is smaller than its stored image.
        """
        image = siblings[self.of].arrays
        if self.clips:
            values = rows_of_clips(values, image, self.repeat, self.fill)
        assert isinstance(values, np.ndarray)
        if "size" in image:
            self._check(image, wanted & siblings[self.of].valid)
        return Decoded({"stored": values}, valid_rows({}, wanted), {})

    def _check(self, image: Mapping[str, np.ndarray], valid: np.ndarray) -> None:
        transposed = TRANSPOSE[image["orientation"]][:, None]
        original_size = image["original_size"]
        stored = np.where(transposed, original_size[:, ::-1], original_size)
        sides = self.shape[1:3] if self.instances else self.shape[:2]
        small = valid & (stored > np.array(sides)).any(axis=1)
        if not small.any():
            return

        row = int(np.flatnonzero(small)[0])
        height, width = stored[row].tolist()
        raise RowError(
            row,
            f"must be at least as large as its stored image, {height} x {width} pixels in record "
            f"{{index}}, got {sides[0]} x {sides[1]}: its top-left part is used, so pad masks of "
            "images of different sizes to the largest. Data that is no mask needs another name.",
        )

    def place(
        self, name: str, row: Mapping[str, Array], siblings: Mapping[str, Any], valid: Array
    ) -> dict[str, Array]:
        mask = row["stored"]
        image = siblings[self.of]
        if "size" not in image:  # an array that fills its canvas
            sides = jnp.asarray(self.canvas, jnp.int32)
            image = {"size": sides, "original_size": sides, "orientation": jnp.uint8(1)}
        place = {name: image[name] for name in ("size", "original_size", "orientation")}
        place |= {"canvas": self.canvas, "fill": self.fill}
        placed = partial(place_masks if self.instances else place_mask, **place)
        if not self.clips:
            return {name: placed(mask)}
        masks = jax.vmap(placed)(mask.reshape(-1, *self.shape))
        return {name: masks.reshape(*self.clips, *masks.shape[1:])}


def _first_dtype(column: Column) -> np.dtype:
    """Return the dtype of the first good mask: uint8, or int32 for more than 8 bits."""
    for masks in column.first(_MAX_TRIES):
        assert isinstance(masks, Encoded)
        dtype = _stored_dtype(masks)
        if dtype is not None:
            return dtype
    return np.dtype(np.uint8)


def _stored_dtype(masks: Encoded) -> np.dtype | None:
    """Return the dtype for masks like the first of these; None if that one cannot be decoded."""
    header = read_headers(masks).row(0)
    if header.kind == BAD:
        return None
    try:
        mask = decode_unchanged(masks.view(0), header)
    except DecodeError:
        return None
    return np.dtype(np.uint8 if mask.dtype.itemsize == 1 else np.int32)


def turn_mask(mask: np.ndarray, original_size: Size, orientation: int) -> np.ndarray:
    """Return a mask upright, as its image is.

    A mask has the pixels of the stored image, as whoever drew it without looking at EXIF saw it,
    and is turned with it. One that has only the upright image's size is upright already.

    Args:
      mask: [h, w].
      original_size: (height, width) of the upright image.
      orientation: the EXIF orientation of the image, 1 to 8.

    Raises:
      DecodeError: it has neither size.

    Example:
      >>> turn_mask(np.array([[1, 2, 3]]), (3, 1), 6).tolist()
      [[1], [2], [3]]
    """
    stored = original_size[::-1] if TRANSPOSE[orientation] else original_size
    if mask.shape == stored:
        return upright(mask, orientation)
    if mask.shape == original_size:
        return mask
    height, width = mask.shape
    raise DecodeError(
        f"it must have the size of its image, {stored[0]} x {stored[1]}, got {height} x {width}:"
        " store it with one number for each pixel of the image, resized to the nearest if need be"
    )


def shrink_mask(mask: np.ndarray, size: Size) -> np.ndarray:
    """Return a mask [h, w] at a smaller size, each pixel from the nearest.

    Pixel i takes pixel floor((i + 1/2) h / size), as `place_mask` has it.

    Example:
      >>> shrink_mask(np.arange(6)[None], (1, 3)).tolist()
      [[1, 3, 5]]
    """
    if mask.shape == size:
        return mask
    y, x = ((2 * np.arange(new) + 1) * old // (2 * new) for old, new in zip(mask.shape, size))
    return mask[y][:, x]


def place_masks(masks: Array, **place: Any) -> Array:
    """Return the masks of instances [k, Hm, Wm] on the canvas, [k, H, W], see `place_mask`."""
    return jnp.moveaxis(place_mask(jnp.moveaxis(masks, 0, -1), **place), -1, 0)


def place_mask(
    mask: Array,
    size: Array,
    original_size: Array,
    orientation: Array,
    canvas: tuple[int, int],
    fill: int,
) -> Array:
    """Return one mask on the canvas.

    Its top-left part is turned upright and shrunk with nearest; `fill` is elsewhere. Pixel i of
    `size` takes pixel floor((i + 1/2) original / size) of the upright image, in integers, so that
    every device picks the same one.

    Args:
      mask: [Hm, Wm] or [Hm, Wm, C], at least as large as the stored image.
      size: int32[2] (height, width) used on the canvas.
      original_size: int32[2] (height, width) of the upright image.
      orientation: uint8, the EXIF orientation 1 to 8.
      canvas: (H, W).
      fill: the value outside of `size`.

    Returns:
      [H, W] or [H, W, C] of the mask's dtype.
    """
    y, y_inside = _nearest_pixels(canvas[0], size[0], original_size[0])
    x, x_inside = _nearest_pixels(canvas[1], size[1], original_size[1])
    y = jnp.where(jnp.asarray(FLIP_Y)[orientation], original_size[0] - 1 - y, y)
    x = jnp.where(jnp.asarray(FLIP_X)[orientation], original_size[1] - 1 - x, x)

    rows = jnp.broadcast_to(y[:, None], canvas)
    columns = jnp.broadcast_to(x[None, :], canvas)
    transposed = jnp.asarray(TRANSPOSE)[orientation]
    rows, columns = jnp.where(transposed, columns, rows), jnp.where(transposed, rows, columns)
    rows = jnp.clip(rows, 0, mask.shape[0] - 1)
    columns = jnp.clip(columns, 0, mask.shape[1] - 1)
    placed = mask[rows, columns]

    inside = y_inside[:, None] & x_inside[None, :]
    inside = inside.reshape(inside.shape + (1,) * (placed.ndim - 2))
    return jnp.where(inside, placed, jnp.asarray(fill, placed.dtype))


def _nearest_pixels(length: int, size: Array, original: Array) -> tuple[Array, Array]:
    """Return the upright image's pixel for each of `length` on the canvas.

    The second array, bool[length], is True for those that the image covers; of the others the pixel
    may lie beyond the image.
    """
    position = jnp.arange(length, dtype=jnp.int32)
    pixel = (2 * position + 1) * original // (2 * size)
    return pixel, position < size
