"""One operation of a policy, traced: chosen by number, so that a choice costs one warp and one
pass over the pixels.

All that move pixels are one affine map, of which the operation fills in one number. Of the others
only the drawn one is computed where images come one after the other; `jax.vmap` computes all in
one pass and selects.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Scalar
from jaxaug.augment._base import ImageInfo, to_levels
from jaxaug.augment._cuda import choice
from jaxaug.augment._cuda import operation as cuda_operation
from jaxaug.augment._ops.color import adjust_contrast, rgb_to_grayscale
from jaxaug.augment._ops.filters import adjust_sharpness
from jaxaug.augment._ops.histogram import autocontrast, equalize
from jaxaug.augment._ops.policy_tables import Space
from jaxaug.augment._ops.tone import LEVEL_TOLERANCE, invert, posterize, solarize
from jaxaug.augment._warp import Warp
from jaxaug.augment._xla import with_jvp_of
from jaxaug.augment.matrix import Matrix, about, product, rotation

_ROUNDINGS = ("", "down", "up", "nearest")
_PIXEL_TOLERANCE = 1e-4  # a share of a side may come out just below a whole pixel
_ADD_BELOW = 128  # the level up to which SolarizeAdd adds


class Slot(NamedTuple):
    """Operations of a policy: int32 places in NAMES and float32 magnitudes, of one shape."""

    code: Array
    magnitude: Array


def slot_of(space: Space, index: Array, strength: Scalar, negative: Array, info: ImageInfo) -> Slot:
    """Return an operation of `space` with its magnitude.

    Args:
      space: the operations.
      index: int32, traced, of the operation.
      strength: in [0, 1], from the low to the high end of the range.
      negative: bool, turns the sign of a signed magnitude.
      info: of the image, whose sides shares refer to.
    """

    def entry(values: list[Any]) -> Array:
        return picked(index, jnp.asarray(values, jnp.float32))

    def down(magnitude: Array) -> Array:
        return jnp.floor(magnitude + _PIXEL_TOLERANCE)

    height, width = info.extent
    along_x = entry([operation.share and operation.name == "TranslateX" for operation in space])
    along_y = entry([operation.share and operation.name == "TranslateY" for operation in space])
    low = entry([operation.low for operation in space])
    high = entry([operation.high for operation in space])
    unit = 1 + along_x * (width - 1) + along_y * (height - 1)
    magnitude = (low + (high - low) * strength) * unit

    rounding = entry([_ROUNDINGS.index(operation.rounding) for operation in space])
    for number, function in ((1, down), (2, jnp.ceil), (3, jnp.round)):
        magnitude = jnp.where(rounding == number, function(magnitude), magnitude)
    signed = entry([operation.signed for operation in space]) > 0
    magnitude = jnp.where(signed & negative, -magnitude, magnitude)
    code = entry([cuda_operation.NAMES.index(operation.name) for operation in space])
    return Slot(code.astype(jnp.int32), magnitude)


def only_where(applied: Array, slot: Slot) -> Slot:
    """Return the operation, or the identity."""
    return Slot(jnp.where(applied, slot.code, 0), jnp.where(applied, slot.magnitude, 0.0))


def slot_warp(slot: Slot, info: ImageInfo) -> Warp:
    """Return the map of the operation, the identity for those that move nothing."""
    height, width = info.extent
    moved = Matrix(
        xy=_amount(slot, "ShearX"),
        x1=-_amount(slot, "TranslateX"),
        yx=_amount(slot, "ShearY"),
        y1=-_amount(slot, "TranslateY"),
    )
    turned = about(rotation(_amount(slot, "Rotate")), width / 2, height / 2)
    return Warp.framing(info, product(turned, moved))


def slot_color(slot: Slot, image: Array, info: ImageInfo, names: Collection[str]) -> Array:
    """Return the image after the operation, itself for those that move pixels.

    Args:
      slot: the operation.
      image: float32[H, W, 3] in [0, 1].
      info: of the image.
      names: of the operations that are to be computed.
    """

    def by_cuda(slot: Slot, image: Array, info: ImageInfo) -> Array:
        return cuda_operation.change(image, info.extent, slot.code, slot.magnitude, LEVEL_TOLERANCE)

    def by_xla(slot: Slot, image: Array, info: ImageInfo) -> Array:
        return _color_by_xla(slot, image, info, names)

    return choice.on_gpu(by_cuda, by_xla, slot, image, info)


def _color_by_xla(slot: Slot, image: Array, info: ImageInfo, names: Collection[str]) -> Array:
    """Return `slot_color`, computed by XLA.

    Its derivative is taken through the sum of all operations: that of a mapped `switch` has
    residuals that JAX does not split on an explicit mesh.
    """

    def summed(slot: Slot, image: Array, size: Array | None) -> Array:
        functions = _functions(slot, size, names)
        masks = {name: _is(slot, name).astype(jnp.float32) for name in functions}
        result = (1 - sum(masks.values())) * image
        for name, function in functions.items():
            result = result + masks[name] * function(image)
        return result

    @with_jvp_of(summed)
    def color(slot: Slot, image: Array, size: Array | None) -> Array:
        functions = _functions(slot, size, names)
        branch = jnp.int32(0)
        for number, name in enumerate(functions, 1):
            branch = jnp.where(_is(slot, name), jnp.int32(number), branch)
        return lax.switch(branch, [lambda image: image, *functions.values()], image)

    return color(slot, image, info.size)


def _functions(
    slot: Slot, size: Array | None, names: Collection[str]
) -> dict[str, Callable[[Array], Array]]:
    """Return the operations that change values, by name."""
    bits = _amount(slot, "Posterize", 8.0)
    threshold = _amount(slot, "Solarize", 2.0)
    levels = _amount(slot, "SolarizeAdd")
    functions = {
        "Brightness": lambda image: _blend(slot, image, jnp.zeros_like(image)),
        "Color": lambda image: _blend(slot, image, rgb_to_grayscale(image, 3)),
        "Contrast": lambda image: _blend(slot, image, adjust_contrast(image, 0.0, size)),
        "Sharpness": lambda image: _blend(slot, image, adjust_sharpness(image, 0.0, size)),
        "Posterize": lambda image: posterize(image, bits),
        "Solarize": lambda image: solarize(image, threshold),
        "SolarizeAdd": lambda image: _solarize_add(image, levels),
        "AutoContrast": lambda image: jnp.clip(autocontrast(image, size), 0.0, 1.0),
        "Equalize": lambda image: equalize(image, size),
        "Invert": invert,
    }
    return {name: function for name, function in functions.items() if name in names}


def picked(index: Array, values: Array) -> Array:
    """Return `values[index]` along the first axis.

    Summed, not indexed: a batch that is split on an explicit mesh allows no gather here.
    """
    places = jnp.arange(values.shape[0], dtype=jnp.int32)
    places = places.reshape((-1,) + (1,) * (values.ndim - 1))
    return jnp.sum(jnp.where(places == index, values, 0.0), axis=0)


def _blend(slot: Slot, image: Array, other: Array) -> Array:
    """Return f * image + (1 - f) * other, of which the magnitude is f - 1."""
    factor = 1.0 + slot.magnitude
    return jnp.clip(factor * image + (1 - factor) * other, 0.0, 1.0)


def _solarize_add(image: Array, levels: Array) -> Array:
    """Return the image with `levels` of 255 added to what is darker than 128.

    Reference: timm, `solarize_add`.
    """
    lighter = jnp.minimum(image + levels / 255, 1.0)
    return jnp.where(to_levels(image) < _ADD_BELOW, lighter, image)


def _is(slot: Slot, name: str) -> Array:
    return slot.code == cuda_operation.NAMES.index(name)


def _amount(slot: Slot, name: str, otherwise: float = 0.0) -> Array:
    """Return the magnitude where the operation is `name`."""
    return jnp.where(_is(slot, name), slot.magnitude, otherwise)
