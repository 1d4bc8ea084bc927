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


def in_fields(plane: np.ndarray, height: int, columns: np.ndarray, siting: int = 0) -> np.ndarray:
    """Chroma of interlaced 4:2:0 at the rows of luma, each of its own field, and at columns.

    By ITU-T H.262 figure 6-2 the rows of chroma of a field lie a quarter of the distance of its
    rows of luma below the first of two in the top field, three quarters in the bottom field.
    That is half a row below the first of two rows of the frame; by `siting` it is none, or one.
    """
    found = np.empty((height, len(columns)))
    for field, below in enumerate((0.25, 0.75)):
        rows = (np.arange(len(found[field::2])) - below - siting / 4) / 2
        found[field::2] = at(plane[field::2], rows, columns)
    return found


def rgb(
    luma, chroma, matrix: str, full: bool, rows: int = 0, columns: int = 0, interlaced: bool = False
) -> np.ndarray:
    """RGB in [0, 255]; chroma [2, ...] of half the size lies by `rows` and `columns`.

    -1 is on the first of two pixels, 0 between them, 1 on the second.
    """
    height, width = luma.shape
    chroma = chroma.astype(np.float64)
    if interlaced:
        x = (np.arange(width) - (columns + 1) / 2) / 2
        chroma = np.stack([in_fields(plane, height, x, rows) for plane in chroma])
    elif chroma.shape[1:] != luma.shape:
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
