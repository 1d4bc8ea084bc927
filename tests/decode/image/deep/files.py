"""Files of more than 8 bits, or of other numbers than colors, and how they are decoded."""

import io

import jax
import numpy as np
import tifffile

from jaxaug.decode import Decoder


def numbers(*shape, dtype="uint16", seed=0) -> np.ndarray:
    """Numbers over all of a dtype; floats around 0."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.normal(0, 100, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def tiff(pixels: np.ndarray, **options) -> bytes:
    """A TIFF by tifffile; [h, w, n] are bands unless the options say more."""
    if pixels.ndim == 3 and "photometric" not in options:
        options = {"photometric": "minisblack", "planarconfig": "contig"} | options
    file = io.BytesIO()
    tifffile.imwrite(file, pixels, **options)
    return file.getvalue()


def decode(file: bytes, canvas=(64, 64), **form) -> np.ndarray:
    """The used part of the canvas of one file."""
    with Decoder(canvas, devices=jax.devices("cpu")[:1], num_threads=1, **form) as decoder:
        batch = decoder.decode([file])
    height, width = batch.size[0].tolist()
    pixels = np.asarray(batch.pixels)[0]
    assert not pixels[height:].any() and not pixels[:, width:].any()
    return pixels[:height, :width]


def reason(file: bytes, **form) -> str:
    """Why a file is bad."""
    with Decoder((64, 64), devices=jax.devices("cpu")[:1], num_threads=1, **form) as decoder:
        return str(decoder.check_rows(decoder_input(file))[0].reason[0])


def decoder_input(file: bytes):
    from jaxaug.decode import Encoded

    return Encoded.from_bytes([file])
