"""The resample of a run of geometric ops as one CUDA kernel.

Computes what `_resample` describes, with the same taps and weights: a thread reads the taps of its
output pixel and writes its channels. XLA sums the largest number of taps for every pixel; here each
pixel reads those that it needs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug._typing import Array, Scalar
from jaxaug.augment._base import PADDING_MODES, Epilogue
from jaxaug.augment._cuda.call import CudaKernel, as_row, call, with_constants
from jaxaug.augment._cuda.warp_source import SOURCE

_THREADS = (32, 4)
# Groups of four taps for which weights are integers: from a shrink by more than 4 on, as long as 32
# bits hold 255 times the sum of the weights.
_DOT_GROUPS = range(3, 65)


class Constants(NamedTuple):
    """What is the same for all images, and compiled into the kernel.

    Attributes:
      image: (height, width, channels) of the source.
      dtype: of the source, one of PIXELS.
      canvas: (height, width) of the result.
      radius: of the interpolation's kernel: 1 for the triangle, 2 for the cubic convolution.
      affine: False where each position is divided by a third coordinate.
      mode: the padding mode that folds indices.
      fills, framed: see `_axis.Axis`.
      windowed: there is a window.
      taps, most: of the y and the x axis, see `_axis.Axis`.
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


def warp(constants: Constants, image: Array, numbers: Sequence[Scalar]) -> Array:
    """Return what the epilogue makes of float32[*constants.canvas, C] in [0, 1].

    Args:
      constants: what is compiled into the kernel.
      image: [H, W, C].
      numbers: 15 + C: the matrix by rows, the extent (height, width), the first and last
        pixels of the window (top, left, bottom, right), and the color of what lies outside.
    """
    height, width = constants.canvas
    kernel = CudaKernel(
        source=_source(constants),
        name="warp",
        results=(((height, width, constants.image[2]), constants.epilogue.dtype),),
        blocks=(-(-width // _THREADS[0]), -(-height // _THREADS[1])),
        threads=_THREADS,
    )
    return call(kernel, image, as_row(numbers))[0]


def _source(constants: Constants) -> str:
    groups = -(-constants.taps[1] // 4)
    words = constants.dtype == "uint8" and constants.image[2] == 3
    defines = {
        "HEIGHT": constants.image[0],
        "WIDTH": constants.image[1],
        "CHANNELS": constants.image[2],
        "OUT_HEIGHT": constants.canvas[0],
        "OUT_WIDTH": constants.canvas[1],
        "PIXEL": PIXELS[constants.dtype],
        "SCALE": "(1.0f / 255.0f)" if constants.dtype == "uint8" else "1.0f",
        "RADIUS": constants.radius,
        "AFFINE": int(constants.affine),
        **{mode.upper(): number for number, mode in enumerate(PADDING_MODES)},
        "MODE": constants.mode.upper(),
        "FILLS": int(constants.fills),
        "FRAMED": int(constants.framed),
        "WINDOWED": int(constants.windowed),
        "TAPS_Y": constants.taps[0],
        "TAPS_X": constants.taps[1],
        "GROUPS": groups,
        "WORDS": int(words),
        "DOTS": int(words and constants.radius == 1 and groups in _DOT_GROUPS),
        "MOST_Y": f"{constants.most[0]:.9e}f",
        "MOST_X": f"{constants.most[1]:.9e}f",
        "CLIPS": int(constants.clips),
        **_epilogue_constants(constants.epilogue),
    }
    return with_constants(defines, SOURCE)


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
