"""Transforms of single values on a uint8 image: on a GPU a table of the 256 levels.

A value of the result depends on a level and a channel alone, so a run of such transforms is
computed for 256 values of each channel, and the pixels look theirs up. XLA computes it for every
pixel. On CPUs and TPUs that is faster: they look up slowly.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxaug.augment._base import LEVELS, Drawn, Epilogue, ImageInfo, look_up, unit
from jaxaug.augment._cuda.choice import on_gpu


class LevelStep(NamedTuple):
    """A `Pointwise` transform whose values are computed one by one, with what it drew."""

    transform: Any
    drawn: Drawn
    info: ImageInfo


def through_levels(image: Array, steps: Sequence[LevelStep], epilogue: Epilogue | None) -> Array:
    """Return what the steps and the epilogue make of a uint8 image [H, W, C]."""
    return on_gpu(by_table, by_pixel, image, tuple(steps), epilogue)


def by_pixel(image: Array, steps: Sequence[LevelStep], epilogue: Epilogue | None) -> Array:
    """Return the result of `through_levels`, computed for each pixel."""
    values = unit(image)
    for transform, drawn, info in steps:
        values = transform.apply_drawn(drawn, values, info)
    return values if epilogue is None else epilogue.of(values)


def by_table(image: Array, steps: Sequence[LevelStep], epilogue: Epilogue | None) -> Array:
    """Return the result of `through_levels`, computed for each level and looked up."""
    levels = image.astype(jnp.int32)
    # From the image: a batch that is sharded explicitly needs a table of each image.
    zero = 0 * levels.sum(dtype=jnp.int32)
    column = zero + jnp.arange(LEVELS, dtype=jnp.int32)[:, None, None]
    column = jnp.broadcast_to(column, (LEVELS, 1, image.shape[2]))
    table = by_pixel(column.astype(jnp.uint8), steps, epilogue)
    return look_up(levels, table[:, 0].T)
