"""Functions of boxes, keypoints, masks and videos, made of those of images.

A function of images hands its map to `warp_image`; given a `Frame` in place of pixels it returns
that map, and what else has a place in the image is moved by it.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug.augment._base import ImageInfo
from jaxaug.augment._warp import (
    Frame,
    MappedFrame,
    as_box_format,
    convert_bounding_box_format,
    format_inside,
    move_boxes,
    move_points,
    read_exactly,
)


def kernels(
    geometry: Mapping[str, Callable[..., Any]], pixels: Mapping[str, Callable[..., Any]]
) -> dict[str, Callable[..., Array]]:
    """Return {name: function} of the kernels of geometric functions of images, and of pixels."""
    made: dict[str, Callable[..., Array]] = {}
    for name, function in geometry.items():
        for suffix, kernel in _KERNELS.items():
            made[f"{name}_{suffix}"] = _named(f"{name}_{suffix}", kernel, function)
    for name, function in pixels.items():
        made[f"{name}_video"] = _named(f"{name}_video", _video, function)
    return made


def _named(name: str, kernel: Callable[..., Array], function: Callable[..., Any]) -> Any:
    """Return a kernel of one function of images, under its name."""
    made = functools.partial(kernel, function)
    made.__name__ = name  # pyright: ignore[reportAttributeAccessIssue]
    made.__doc__ = (
        f"{kernel.__doc__}\n\nThe function of images is `functional.{function.__name__}`."
    )
    return made


def _map(function: Callable[..., Any], canvas_size: Any, *args: Any, **kwargs: Any) -> MappedFrame:
    height, width = canvas_size
    return function(Frame((int(height), int(width), 1)), *args, **kwargs)


def _bounding_boxes(
    function: Callable[..., Any],
    bounding_boxes: Array,
    canvas_size: tuple[int, int],
    *args: Any,
    format: str = "xyxy",
    **kwargs: Any,
) -> Array:
    """Return boxes [n, k] of a format as they lie in the image after a function of it.

    The arguments behind the (height, width) of the image are the function's. Boxes are not clipped.
    """
    box_format = as_box_format("format", format)
    inside = format_inside(box_format)
    boxes = convert_bounding_box_format(jnp.asarray(bounding_boxes), box_format, inside)
    moved = move_boxes(_map(function, canvas_size, *args, **kwargs).warp, boxes)
    return convert_bounding_box_format(moved, inside, box_format)


def _keypoints(
    function: Callable[..., Any],
    keypoints: Array,
    canvas_size: tuple[int, int],
    *args: Any,
    **kwargs: Any,
) -> Array:
    """Return points [..., 2 or 3] as they lie in the image after a function of it.

    The arguments behind the (height, width) of the image are the function's.
    """
    warp = _map(function, canvas_size, *args, **kwargs).warp
    return move_points(warp, jnp.asarray(keypoints))


def _mask(
    function: Callable[..., Any], mask: Array, *args: Any, fill: int = 0, **kwargs: Any
) -> Array:
    """Return a mask [H, W], or masks [n, H, W], as a function of the image moves it, with labels
    that are not blended.

    The arguments behind the mask are the function's, but for `fill`: the label outside.
    """
    mask = jnp.asarray(mask)
    if mask.ndim not in (2, 3):
        raise ValueError(f"`mask` must be [H, W] or [n, H, W], got {mask.shape}.")
    height, width = mask.shape[-2:]
    found = _map(function, (height, width), *args, **kwargs)
    planes = mask[:, :, None] if mask.ndim == 2 else jnp.moveaxis(mask, 0, 2)
    extent = ImageInfo((height, width)).extent
    outside = jnp.asarray(fill, mask.dtype)
    planes = read_exactly(planes, extent, found.warp, found.padding_mode, outside)
    return planes[:, :, 0] if mask.ndim == 2 else jnp.moveaxis(planes, 2, 0)


def _video(function: Callable[..., Any], video: Array, *args: Any, **kwargs: Any) -> Array:
    """Return a function of images of each frame of a video [t, H, W, C].

    The arguments behind the video are the function's, the same for all frames.
    """
    return jax.vmap(lambda frame: function(frame, *args, **kwargs))(jnp.asarray(video))


_KERNELS = {
    "bounding_boxes": _bounding_boxes,
    "keypoints": _keypoints,
    "mask": _mask,
    "video": _video,
}
