"""The size of an image on its canvas."""

import numpy as np


def fit_size(original_size: np.ndarray, canvas: tuple[int, int]) -> np.ndarray:
    """Return the sizes of images on a canvas: their own, or shrunk to fit with the aspect kept.

    s = min(1, H / h, W / w);  size = max(1, floor(s (h, w) + 1/2))

    Args:
      original_size: int32[n, 2], (height, width) of the upright images, at least 1.
      canvas: (H, W).

    Returns:
      int32[n, 2].

    Example:
      >>> fit_size(np.array([[100, 50], [300, 50], [1, 4000]]), (200, 200)).tolist()
      [[100, 50], [200, 33], [1, 200]]
    """
    sides = np.array(original_size.T, np.float64, order="C")
    limits = np.array(canvas, np.float64)[:, None]
    scale = (limits / sides).min(axis=0, initial=1.0)
    size = np.floor(sides * scale + 0.5)
    return np.maximum(size, 1.0).T.astype(np.int32, order="C")
