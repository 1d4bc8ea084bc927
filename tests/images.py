"""Images that the tests make: smooth, so that JPEG keeps them, and told apart by their content."""

import io

import numpy as np
from PIL import Image


def picture(seed: int, height: int, width: int) -> np.ndarray:
    """A smooth uint8[height, width, 3] picture: another seed, another picture."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encode(pixels: np.ndarray, kind: str = "JPEG", **options) -> bytes:
    """`pixels` as a file of `kind`."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


def jpegs(count: int, height: int = 40, width: int = 56, seed: int = 0) -> list[bytes]:
    """`count` different JPEGs, all of one size."""
    return [encode(picture(seed + i, height, width), quality=90) for i in range(count)]
