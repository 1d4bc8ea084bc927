"""The resample of a run of geometric ops as one CUDA kernel.

Computes what `_resample` describes, with the same taps and weights: a thread reads the taps of its
output pixel and writes its channels. XLA sums the largest number of taps for every pixel; here each
pixel reads those that it needs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug._typing import Array, Scalar
from jaxaug.augment._border import PADDING_MODES
from jaxaug.augment._cuda.call import CudaKernel, as_facts, call, with_constants
from jaxaug.augment._cuda.warp_source import SOURCE
from jaxaug.augment._epilogue import Epilogue

_THREADS = (32, 4)
# Groups of four taps for which weights are integers: from a shrink by more than 4 on, as long as 32
# bits hold 255 times the sum of the weights.
_DOT_GROUPS = range(3, 65)


class Settings(NamedTuple):
    """The settings that are the same for all images, and compiled into the kernel.

    Attributes:
      image: (height, width, channels) of the source.
      dtype: of the source, one of PIXELS.
      canvas: (height, width) of the result.
      radius: of the interpolation's kernel: 1 for the triangle, 2 for the cubic convolution.
      affine: False where each position is divided by a third coordinate.
      mode: the padding mode that folds indices.
      fills, framed: see `_taps.Axis`.
      windowed: there is a window.
      taps, most: of the y and the x axis, see `_taps.Axis`.
      clips: values beyond [0, 1] are clipped before the epilogue.
      epilogue: of the values.
    """

    image: tuple[int, int, int]
    dtype: str
    canvas: tuple[int, int]
    radius: int
    affine: bool
    mode: str
    fills: bool
    framed: bool
    windowed: bool
    taps: tuple[int, int]
    most: tuple[float, float]
    clips: bool
    epilogue: Epilogue


def computes(dtype: Any, epilogue: Epilogue | None) -> bool:
    """Return True if the kernel reads images of a dtype and has the epilogue."""
    return str(dtype) in PIXELS and (epilogue is None or epilogue.dtype in RESULTS)


def warp(settings: Settings, image: Array, facts: Sequence[Scalar]) -> Array:
    """Return what the epilogue makes of float32[*settings.canvas, C] in [0, 1].

    Args:
      settings: what is compiled into the kernel.
      image: [H, W, C].
      facts: 15 + C numbers: the matrix by rows, the extent (height, width), the first and last
        pixels of the window (top, left, bottom, right), and the color of what lies outside.
    """
    height, width = settings.canvas
    kernel = CudaKernel(
        _source(settings),
        "warp",
        (((height, width, settings.image[2]), settings.epilogue.dtype),),
        (-(-width // _THREADS[0]), -(-height // _THREADS[1])),
        _THREADS,
    )
    return call(kernel, image, as_facts(facts))[0]


def _source(settings: Settings) -> str:
    groups = -(-settings.taps[1] // 4)
    words = settings.dtype == "uint8" and settings.image[2] == 3
    constants = {
        "HEIGHT": settings.image[0],
        "WIDTH": settings.image[1],
        "CHANNELS": settings.image[2],
        "OUT_HEIGHT": settings.canvas[0],
        "OUT_WIDTH": settings.canvas[1],
        "PIXEL": PIXELS[settings.dtype],
        "SCALE": "(1.0f / 255.0f)" if settings.dtype == "uint8" else "1.0f",
        "RADIUS": settings.radius,
        "AFFINE": int(settings.affine),
        "MODE": PADDING_MODES.index(settings.mode),
        "FILLS": int(settings.fills),
        "FRAMED": int(settings.framed),
        "WINDOWED": int(settings.windowed),
        "TAPS_Y": settings.taps[0],
        "TAPS_X": settings.taps[1],
        "GROUPS": groups,
        "WORDS": int(words),
        "DOTS": int(words and settings.radius == 1 and groups in _DOT_GROUPS),
        "MOST_Y": f"{settings.most[0]:.9e}f",
        "MOST_X": f"{settings.most[1]:.9e}f",
        "CLIPS": int(settings.clips),
        **_epilogue_constants(settings.epilogue),
    }
    return with_constants(constants, SOURCE)


def _epilogue_constants(epilogue: Epilogue) -> dict[str, Any]:
    """Return the constants of an epilogue; XLA, too, multiplies by the inverse of a constant."""
    shift = np.array(epilogue.shift, np.float32)
    inverse = 1 / np.array(epilogue.scale, np.float32)
    return {
        "SHIFTS": int(shift.size > 0),
        "SHIFT": ", ".join(f"{value:.9e}f" for value in shift),
        "INVERSE": ", ".join(f"{value:.9e}f" for value in inverse),
        "RESULT": RESULTS[epilogue.dtype],
        "BFLOAT16": int(epilogue.dtype == "bfloat16"),
        "FLOAT16": int(epilogue.dtype == "float16"),
    }


# C++ types of the dtypes that the kernel reads and writes.
PIXELS = {"uint8": "unsigned char", "float32": "float"}
RESULTS = {"float32": "float", "bfloat16": "unsigned short", "float16": "unsigned short"}
