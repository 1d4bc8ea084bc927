"""The state of a chain: made of a sample, and made a sample again."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxaug._typing import Array, Sample
from jaxaug.augment._base import ImageInfo, Output
from jaxaug.augment._boundary import channels_to_front
from jaxaug.augment._boxes import check_mask, fill_unused


class State(NamedTuple):
    """The image (uint8, or float in [0, 1]), its frame, and the other entries of the sample."""

    image: Array
    info: ImageInfo
    rest: Sample


def check_key(key: Any, sample: Any) -> None:
    """Raise where `key` is not one PRNG key."""
    if _is_key(key):
        return
    if _is_key(sample):
        raise TypeError("the arguments are swapped: call transform(key, image), the key first.")
    shape = getattr(key, "shape", None)
    got = type(key).__name__ if shape is None else f"{key.dtype}{list(shape)}"
    batch = " One image a call: batches go through jax.vmap, with one key per image."
    hint = batch if shape else ""
    raise TypeError(f"`key` must be a PRNG key such as jax.random.key(0), got {got}.{hint}")


def begin(given: Any) -> State:
    """Check an image or a sample, and take it apart."""
    rest = dict(given) if isinstance(given, Mapping) else {"image": given}
    if "image" not in rest:
        raise ValueError(f"a sample must have an 'image', got the keys {sorted(rest)}.")
    image = rest.pop("image")
    size = rest.pop("size", None)
    _check_values(image)
    image = jnp.asarray(image)
    _check_image(image)
    if size is not None:
        size = _as_size(size)
    if "mask" in rest:
        rest["mask"] = jnp.asarray(rest["mask"])
        check_mask(rest["mask"], image)
    return State(image, ImageInfo((image.shape[0], image.shape[1]), size), rest)


def finish(state: State, ending: Output | None, dtype: Any, mask_fill: int) -> Sample:
    """Fill what is unused, give the image its final dtype and layout; return the sample."""
    image = state.image
    rest = dict(state.rest)
    used = state.info.used()
    if ending is not None:
        image = ending.values(unit(image)).astype(ending.dtype)
    elif dtype == jnp.uint8 and image.dtype != jnp.uint8:
        image = jnp.round(jnp.clip(image, 0.0, 1.0) * 255).astype(jnp.uint8)
    else:
        image = image.astype(dtype)

    if used is not None:
        image = jnp.where(used[:, :, None], image, jnp.zeros_like(image))
        if "mask" in rest:
            rest["mask"] = fill_unused(rest["mask"], used, mask_fill)
        rest["size"] = state.info.size
    channels_first = ending is not None and ending.layout.endswith("CHW")
    if channels_first:
        image = channels_to_front(image)
    return {**rest, "image": image}


def unit(image: Array) -> Array:
    """Return `image` as float32 in [0, 1]."""
    values = image.astype(jnp.float32)
    return values / 255 if image.dtype == jnp.uint8 else values


def _is_key(value: Any) -> bool:
    """Return True for one typed key, and for the uint32 words of one."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return False
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return value.shape == ()
    return dtype == np.uint32 and value.shape in ((2,), (4,))  # threefry's two, rbg's four


def _check_values(image: Any) -> None:
    """Raise for float values above 1, where they can be read: not while tracing."""
    if isinstance(image, Tracer) or not isinstance(image, (np.ndarray, jax.Array)):
        return
    if not jnp.issubdtype(image.dtype, jnp.floating) or image.size == 0:
        return
    largest = float(np.asarray(image).max())
    if largest > 1 + _OVERSHOOT:
        raise ValueError(
            f"expected a float image in [0, 1], got values up to {largest:g}: divide by 255, or give uint8."
        )


_OVERSHOOT = 1e-2  # what float arithmetic and half precision may leave above 1


def _check_image(image: Array) -> None:
    shape = tuple(image.shape)
    if image.ndim != 3 or shape[2] != 3:
        raise ValueError(f"expected one image (h, w, 3), got {shape}{_rank_hint(shape)}.")
    if image.dtype != jnp.uint8 and not jnp.issubdtype(image.dtype, jnp.floating):
        got = f"{image.dtype}{list(shape)}"
        hint = "convert 0 to 255 with .astype('uint8')"
        raise TypeError(f"expected a uint8 image, or a float image in [0, 1], got {got}: {hint}.")


def _rank_hint(shape: tuple[int, ...]) -> str:
    if len(shape) == 4:
        return ": batches go through jax.vmap"
    if len(shape) == 2 and shape[1] == 3:
        return ": under jax.vmap give a batch (n, h, w, 3), or in_axes=(0, None) for one image"
    return ""


def _as_size(size: Any) -> Array:
    size = jnp.asarray(size)
    if size.shape != (2,) or not jnp.issubdtype(size.dtype, jnp.integer):
        got = f"{size.dtype}{list(size.shape)}"
        raise ValueError(f"`size` must be int32[2], the used (height, width), got {got}.")
    return size.astype(jnp.int32)
