"""Oriented boxes of records, beside their corners as keypoints."""

import dataclasses
from types import SimpleNamespace

import numpy as np

from jaxaug.decode import Boxes, Keypoints

# What the decoder of an image says of two rows: a mirrored file, and one that was shrunk.
ARRAYS = {
    "size": np.array([[30, 20], [15, 10]], np.int32),
    "original_size": np.array([[30, 20], [30, 20]], np.int32),
    "orientation": np.array([2, 6], np.uint8),
}


def test_corners_of_oriented_boxes_are_points_in_their_order():
    corners = np.array([[[3, 4, 9, 2, 11, 8, 5, 10], [0] * 8]] * 2, np.float32)
    rows = np.array([True, True])

    def decoded(kind, values):
        decoder = dataclasses.replace(kind, name="boxes", shape=values.shape[1:])
        return decoder.decode_rows(
            values, None, {"image": SimpleNamespace(arrays=ARRAYS)}, rows, rows
        ).arrays

    points = decoded(Keypoints(), corners.reshape(2, 2, 4, 2))["points"][:, 0]
    boxes = decoded(Boxes(), corners)["points"]
    assert boxes.shape == (2, 2, 8) and not boxes[:, 1].any()
    # The first is mirrored: its first side stays the first, and corners run clockwise again.
    np.testing.assert_array_equal(boxes[0, 0].reshape(4, 2), points[0, [1, 0, 3, 2]])
    np.testing.assert_array_equal(boxes[1, 0].reshape(4, 2), points[1])
