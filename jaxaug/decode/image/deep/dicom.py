"""Frames of DICOM files: stored values, not rescaled.

By pydicom and the codecs that it finds; JPEG of 12 bits, lossless JPEG and JPEG-LS by imagecodecs,
which is there for other formats.

Reference: DICOM PS3.3 C.7.6.3 (image pixel), PS3.10 7.1 (preamble), PS3.6 table A-1 (syntaxes).
"""

import io
from typing import Any

import numpy as np

from jaxaug.decode._libraries import library, missing
from jaxaug.decode._types import Encoded
from jaxaug.decode.image.deep.embedded import check_embedded
from jaxaug.decode.image.deep.layout import Layout
from jaxaug.decode.image.parse.jpeg import first_segments, jpeg_fault
from jaxaug.decode.image.parse.jpeg_segments import APP14
from jaxaug.errors import DecodeError

_COLORS = {"MONOCHROME1": "gray", "MONOCHROME2": "gray", "RGB": "rgb"}
_EXTENDED = "1.2.840.10008.1.2.4.51"  # of 8 bits Pillow reads it
# Transfer syntax -> codec of imagecodecs.
_CODECS = {_EXTENDED: "jpeg8_decode"}
_CODECS |= dict.fromkeys(("1.2.840.10008.1.2.4.57", "1.2.840.10008.1.2.4.70"), "jpeg8_decode")
_CODECS |= dict.fromkeys(("1.2.840.10008.1.2.4.80", "1.2.840.10008.1.2.4.81"), "jpegls_decode")
_PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")


def read_layout(data: memoryview, page: int) -> Layout:
    """Return the layout of a frame.

    Raises:
      DecodeError: the file has no such frame, or no codec of its syntax is installed.
    """
    dataset = _read(data)
    found = [name for name in _PIXELS if name in dataset]
    if not found:
        raise DecodeError("DICOM: it has no pixels")
    for name in ("Rows", "Columns", "BitsAllocated"):
        if not isinstance(dataset.get(name), int):
            raise DecodeError(f"DICOM: it does not tell its {name}")
    frames = int(dataset.get("NumberOfFrames") or 1)
    if page >= frames:
        raise DecodeError(f"DICOM: it has {frames} frames, and page={page} was asked for, from 0")
    _check_codec(dataset)
    allocated = dataset.BitsAllocated
    kind = "i" if dataset.get("PixelRepresentation", 0) == 1 else "u"
    kind = kind if found == ["PixelData"] else "f"
    samples = int(dataset.get("SamplesPerPixel") or 1)
    photometric = str(dataset.get("PhotometricInterpretation", ""))
    colors = "rgb" if photometric.startswith("YBR") else _COLORS.get(photometric, "")
    padding = dataset.get("PixelPaddingValue")
    return Layout(
        height=dataset.Rows,
        width=dataset.Columns,
        samples=samples,
        dtype=np.dtype(f"{kind}{max(1, allocated // 8)}"),
        bits=allocated if kind == "f" else int(dataset.get("BitsStored") or allocated),
        colors=colors,
        inverted=photometric == "MONOCHROME1",
        nodata=float(padding) if isinstance(padding, int) else None,
        place=page,
    )


def _read(data: memoryview) -> Any:
    if reason := missing("pydicom", "DICOM images", "deep"):
        raise DecodeError(reason)
    return library("pydicom").dcmread(io.BytesIO(data))


def _check_codec(dataset: Any) -> None:
    """Raise DecodeError unless a codec for the transfer syntax is there."""
    syntax = getattr(dataset.file_meta, "TransferSyntaxUID", None)
    if syntax is None:
        raise DecodeError("DICOM: it does not tell its transfer syntax")
    if not syntax.is_encapsulated:
        return
    if _codec(dataset):
        if reason := missing("imagecodecs", f"DICOM images of {syntax.name}", "deep"):
            raise DecodeError(reason)
        return
    try:
        decoder = library("pydicom.pixels").get_decoder(syntax)
    except NotImplementedError:
        raise DecodeError(f"DICOM: pydicom does not read {syntax.name}") from None
    if not decoder.is_available:
        need = "; ".join(decoder.missing_dependencies)
        raise DecodeError(f"DICOM: {syntax.name} needs a codec of pydicom: {need}")


def _codec(dataset: Any) -> str:
    """Return the codec of imagecodecs that decodes a frame, "" where pydicom's does."""
    syntax = dataset.file_meta.TransferSyntaxUID
    if str(dataset.get("PhotometricInterpretation", "")).startswith("YBR"):
        return ""  # whose colors pydicom converts
    if syntax == _EXTENDED and int(dataset.get("BitsStored") or 8) <= 8:
        return ""
    return _CODECS.get(syntax, "")


def decode(data: memoryview, layout: Layout) -> np.ndarray:
    """Return [h, w, samples], the stored values; YBR becomes RGB."""
    dataset = _read(data)
    if dataset.file_meta.TransferSyntaxUID.is_encapsulated:
        frames = int(dataset.get("NumberOfFrames") or 1)
        encaps = library("pydicom.encaps")
        frame = encaps.get_frame(dataset.PixelData, layout.place, number_of_frames=frames)
        check_embedded(memoryview(frame), (layout.height, layout.width), "DICOM")
        if codec := _codec(dataset):
            return _decode_frame(frame, codec, layout)
    pixels = library("pydicom.pixels").pixel_array(dataset, index=layout.place)
    return pixels.reshape(layout.height, layout.width, layout.samples)


def _decode_frame(frame: bytes, codec: str, layout: Layout) -> np.ndarray:
    """Return the pixels of a compressed frame; signed ones are those of its last bits."""
    options = {}
    if codec == "jpeg8_decode":
        if fault := jpeg_fault(frame):
            raise DecodeError(f"DICOM: {fault}")
        # Without a segment of Adobe's the file around it tells the colors; libjpeg guesses YCbCr.
        markers = [marker for marker, _, _ in first_segments(Encoded.from_bytes([frame]))]
        if layout.colors == "rgb" and APP14 not in markers:
            options = {"colorspace": "rgb", "outcolorspace": "rgb"}
    pixels = getattr(library("imagecodecs"), codec)(frame, **options)
    if pixels.itemsize > layout.dtype.itemsize:
        return pixels  # which the header denies
    unused = 8 * layout.dtype.itemsize - layout.bits
    shape = (layout.height, layout.width, layout.samples)
    pixels = pixels.astype(f"u{layout.dtype.itemsize}").reshape(shape)
    return (pixels << unused).view(layout.dtype) >> unused
