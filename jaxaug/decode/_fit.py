"""The size of an image on its canvas."""

import numpy as np


def fit_size(original_size: np.ndarray, canvas: tuple[int, int]) -> np.ndarray:
    """Return the sizes of images on a canvas: their own, or shrunk to fit with the aspect kept.

    s = min(1, H / h, W / w);  size = max(1, floor(s (h, w) + 1/2)), and never beyond the canvas

    Args:
      original_size: int32[n, 2], (height, width) of the upright images, at least 1.
      canvas: (H, W).

    Returns:
      int32[n, 2].

    Example:
      >>> fit_size(np.array([[100, 50], [300, 50], [1, 4000]]), (200, 200)).tolist()
      [[100, 50], [200, 33], [1, 200]]
    """
    height, width = original_size.T
    scale = np.minimum(1.0, np.minimum(canvas[0] / height, canvas[1] / width))
    size = np.floor(original_size * scale[:, None] + 0.5)
    return np.minimum(np.maximum(size, 1), canvas).astype(np.int32)
