"""RGB of planes in float64, from the definitions of ITU-R BT.601, BT.709 and BT.2020."""

import numpy as np

WEIGHTS = {"601": (0.299, 0.114), "709": (0.2126, 0.0722), "2020": (0.2627, 0.0593)}


def at(plane: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Linear interpolation at fractional rows and columns, edges repeated."""
    for axis, places in enumerate((rows, columns)):
        places = np.clip(places, 0, plane.shape[axis] - 1)
        low = np.floor(places).astype(int)
        high = np.minimum(low + 1, plane.shape[axis] - 1)
        shape = [-1 if each == axis else 1 for each in range(2)]
        part = (places - low).reshape(shape)
        plane = np.take(plane, low, axis) * (1 - part) + np.take(plane, high, axis) * part
    return plane


def rgb(luma, chroma, matrix: str, full: bool, rows: int = 0, columns: int = 0) -> np.ndarray:
    """RGB in [0, 255]; chroma [2, ...] of half the size lies by `rows` and `columns`.

    -1 is on the first of two pixels, 0 between them, 1 on the second.
    """
    height, width = luma.shape
    chroma = chroma.astype(np.float64)
    if chroma.shape[1:] != luma.shape:
        y = (np.arange(height) - (rows + 1) / 2) / 2
        x = (np.arange(width) - (columns + 1) / 2) / 2
        chroma = np.stack([at(plane, y, x) for plane in chroma])
    red, blue = WEIGHTS[matrix]
    y = luma / 255.0 if full else (luma - 16.0) / 219
    cb, cr = (chroma - 128) / (255 if full else 224)
    r = y + 2 * (1 - red) * cr
    b = y + 2 * (1 - blue) * cb
    g = (y - red * r - blue * b) / (1 - red - blue)
    return 255 * np.clip(np.stack([r, g, b], axis=-1), 0, 1)
