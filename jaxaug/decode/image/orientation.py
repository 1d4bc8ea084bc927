"""The eight EXIF orientations as steps from the stored to the upright image.

The table is used by the host's pixels, by Pillow, by the resampling kernel, by the sizes in the
headers, and by the boxes and masks of the iterators.
"""

import numpy as np

# Orientation -> (transpose, flip_x, flip_y): transpose the stored image if asked, then mirror its
# columns and its rows. Reference: CIPA DC-008 (EXIF), tag 0x0112. Index 0 is not used.
_STEPS = (
    (False, False, False),
    (False, False, False),
    (False, True, False),
    (False, True, True),
    (False, False, True),
    (True, False, False),
    (True, True, False),
    (True, True, True),
    (True, False, True),
)
# bool[9] each, to be indexed with orientations.
TRANSPOSE, FLIP_X, FLIP_Y = np.array(_STEPS).T.copy()


def steps(orientation: int) -> tuple[bool, bool, bool]:
    """Return (transpose, flip_x, flip_y) of one orientation.

    Example:
      >>> steps(6)
      (True, True, False)
    """
    return _STEPS[orientation]


def upright_size(height: np.ndarray, width: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    """Return int32[n, 2], (height, width) of upright images, from the sides of the stored ones.

    Example:
      >>> upright_size(np.array([2, 2]), np.array([3, 3]), np.array([1, 6])).tolist()
      [[2, 3], [3, 2]]
    """
    transposed = TRANSPOSE[orientation]
    size = np.empty((*transposed.shape, 2), np.int32)
    size[..., 0] = height
    size[..., 1] = width
    if np.count_nonzero(transposed):
        size[transposed] = size[transposed][..., ::-1]
    return size


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Return a view of stored pixels [h, w, ...] that is upright."""
    transpose, flip_x, flip_y = steps(orientation)
    if transpose:
        pixels = pixels.swapaxes(0, 1)
    if flip_y:
        pixels = pixels[::-1]
    if flip_x:
        pixels = pixels[:, ::-1]
    return pixels
