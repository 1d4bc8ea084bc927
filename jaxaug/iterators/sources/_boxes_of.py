"""Boxes and keypoints that were annotated on upright images, in pixels of the stored files.

The Loader turns them with their image by its EXIF orientation, as they come in stored pixels.
"""

import numpy as np

from jaxaug._typing import Features
from jaxaug.decode import Encoded, Headers, read_headers
from jaxaug.iterators._place import stored_points

BOXES_OF = ("stored", "upright")


def as_stored(
    features: Features, boxes_of: str, images: Encoded, headers: Headers | None = None
) -> Features:
    """Return features with "boxes" and "keypoints" in pixels of the stored files.

    Args:
      features: as `place_points` says.
      boxes_of: "stored" or "upright", the images that they were annotated on.
      images: the encoded images.
      headers: theirs, where they are known.
    """
    if boxes_of == "stored" or not features.keys() & {"boxes", "keypoints"}:
        return features
    headers = read_headers(images) if headers is None else headers
    every = np.ones(len(headers.kind), bool)
    return stored_points(features, headers.original_size(), headers.orientation, every)
