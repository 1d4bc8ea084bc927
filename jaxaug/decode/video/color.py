"""From planes to RGB: a pure function, in integers, so that every device gives the same pixels."""

from typing import Any

import numpy as np

Plane = Any  # an array of JAX or of NumPy: the operators are those of either

_SHIFT = 14  # bits of a coefficient behind the point
_FRACTION = 6  # bits of interpolated chroma behind the point: eighths of rows, and of columns
# (Kr, Kb) of BT.601, BT.709 and BT.2020, ITU-R BT.601-7, BT.709-6 and BT.2020-2.
_LUMA_WEIGHTS = ((0.299, 0.114), (0.2126, 0.0722), (0.2627, 0.0593))


def _coefficients() -> np.ndarray:
    """Return int32[3, 2, 5]: of luma, Cr to R, Cb and Cr to G, Cb to B, by matrix and range."""
    table = []
    for red, blue in _LUMA_WEIGHTS:
        green = 1 - red - blue
        chroma = (
            2 * (1 - red),
            -2 * (1 - blue) * blue / green,
            -2 * (1 - red) * red / green,
            2 * (1 - blue),
        )
        limited = [255 / 219, *(255 / 224 * each for each in chroma)]
        table.append([limited, [1.0, *chroma]])
    return np.round(np.array(table) * 2**_SHIFT).astype(np.int32)


def whole_chroma(
    chroma: Plane, size: tuple[int, int], siting: Any = (0, 0), interlaced: bool = False
) -> Plane:
    """Return chroma at the size of luma, in 64ths of a level.

    That of half the size is interpolated linearly; edges repeat.

    Args:
      chroma: uint8[..., ceil(H / 2), ceil(W / 2)] or uint8[..., H, W].
      size: (H, W).
      siting: where a value lies among the two rows and among the two columns that share it: -1 on
        the first, 0 in the middle, 1 on the second; two ints or int[2].
      interlaced: rows are interpolated between those of their own field.

    Returns:
      uint16[..., H, W].

    Example:
      >>> whole_chroma(np.array([[0, 16]], np.uint8), (2, 4))[0].tolist()
      [0, 256, 768, 1024]
    """
    values = chroma.astype(np.uint16)
    if chroma.shape[-2:] == size:
        return values << _FRACTION
    wide = doubled(values, -1, size[1], 2 * siting[1])
    if interlaced:
        return doubled_in_fields(wide, size[0], siting[0])
    return doubled(wide, -2, size[0], 2 * siting[0])


def to_rgb(
    luma: Plane, cb: Plane, cr: Plane, matrix: Any, full_range: Any, shown: Any = True
) -> Plane:
    """Return RGB of planes of 8 bits.

    With Y' = luma - 16 and 219 levels, or all 255 levels, and the weights Kr, Kb of the matrix:
    R = Y' + 2 (1 - Kr) Cr, B = Y' + 2 (1 - Kb) Cb, G from Y' = Kr R + Kg G + Kb B.

    Args:
      luma: uint8[..., H, W].
      cb, cr: uint16[..., H, W], in 64ths of a level, see `whole_chroma`.
      matrix: 0 for BT.601, 1 for BT.709, 2 for BT.2020.
      full_range: 1 for values 0 to 255, else 0.
      shown: bool, of a shape like `luma`; where it is False the pixel is zero.

    Returns:
      uint8[..., H, W, 3].

    Example:
      >>> white = np.full((1, 1), 235, np.uint8)
      >>> gray = np.full((1, 1), 128 * 64, np.uint16)
      >>> to_rgb(white, gray, gray, 0, 0).tolist()
      [[[255, 255, 255]]]
    """
    levels = rgb_levels(luma, cb, cr, matrix, full_range, shown)
    return luma.__array_namespace__().stack(levels, axis=-1)


def rgb_levels(
    luma: Plane, cb: Plane, cr: Plane, matrix: Any, full_range: Any, shown: Any = True
) -> list[Plane]:
    """Return the channels uint8[..., H, W] of `to_rgb`."""
    xp = luma.__array_namespace__()
    table = xp.asarray(_coefficients())[matrix, full_range]
    scale, cr_red, cb_green, cr_green, cb_blue = (table[k] for k in range(5))
    cb, cr = (each.astype(np.int32) - (128 << _FRACTION) for each in (cb, cr))

    black = 16 - 16 * full_range
    half = 1 << (_SHIFT + _FRACTION - 1)
    gray = (luma.astype(np.int32) - black) * (scale << _FRACTION) + half
    gray = xp.where(shown, gray, np.int32(-(2**30)))  # far below zero in each channel
    sums = (gray + cr * cr_red, gray + cb * cb_green + cr * cr_green, gray + cb * cb_blue)
    levels = [xp.clip(each >> (_SHIFT + _FRACTION), 0, 255) for each in sums]
    return [each.astype(np.uint8) for each in levels]


def doubled(values: Plane, axis: int, length: int, siting: Any) -> Plane:
    """Return eight times the values, interpolated between neighbors of an axis.

    Args:
      values: uint16[...], at most an eighth of what it holds.
      axis: negative.
      length: of the axis in the result, twice that of the values or one less.
      siting: of the axis, in halves of that of `whole_chroma`.
    """
    xp = values.__array_namespace__()
    axis += values.ndim
    whole = (slice(None),) * axis
    before = xp.concatenate([values[(*whole, slice(1))], values[(*whole, slice(-1))]], axis)
    after = xp.concatenate(
        [values[(*whole, slice(1, None))], values[(*whole, slice(-1, None))]], axis
    )
    to_first, to_second = (xp.asarray(2 + siting * sign).astype(np.uint16) for sign in (1, -1))
    # Differences of unsigned numbers wrap, and their sums wrap back.
    first = 8 * values + to_first * (before - values)
    second = 8 * values + to_second * (after - values)
    pairs = xp.stack([first, second], axis + 1)
    shape = (*values.shape[:axis], 2 * values.shape[axis], *values.shape[axis + 1 :])
    return xp.reshape(pairs, shape)[(*whole, slice(length))]


def doubled_in_fields(values: Plane, length: int, siting: Any = 0) -> Plane:
    """Return eight times the rows of an interlaced frame, between neighbors of their own field.

    Rows are those of the first field and of the second in turn, of values as of pixels. So in a
    pair of a field's rows a value in the middle of the frame's rows lies halfway to the upper row
    in the first field, to the lower one in the second.

    Args:
      values: uint16[..., h, w], at most an eighth of what it holds.
      length: rows of the result, 2 h or one less.
      siting: of rows, see `whole_chroma`.

    Example:
      >>> doubled_in_fields(np.array([[0], [80], [8], [80]], np.uint16), 8)[:, 0].tolist()
      [0, 640, 24, 640, 56, 640, 64, 640]
    """
    xp = values.__array_namespace__()
    if values.shape[-2] % 2:  # the row that is missing is the last one of its field
        last = values[..., -2:, :][..., :1, :]
        values = xp.concatenate([values, last], -2)
    *whole, rows, columns = values.shape
    pairs = xp.reshape(values, (*whole, rows // 2, 2, columns))
    siting = siting + np.array([-1, 1]).reshape((1,) * len(whole) + (1, 2, 1))
    found = doubled(pairs, -3, rows, siting)
    return xp.reshape(found, (*whole, 2 * rows, columns))[..., :length, :]
