"""Volumes in files: what a header tells, and how a window of the voxels is read.

NIfTI-1 and -2 (also compressed by gzip), NPY, TIFF with a page for each slice, and Zarr arrays in a
folder. Where the numbers lie in the file as they are, a window costs no more than its own bytes.

Reference: nifti.nimh.nih.gov (scaling, qform and sform); numpy.org (NPY); TIFF 6.0, Adobe 1992.
"""

import functools
import io
import math
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode._libraries import library, missing
from jaxaug.decode._npy import MAX_NPY_HEADER, read_npy_header
from jaxaug.decode.image.deep import tiff
from jaxaug.decode.image.deep.tiff_tags import find_pages, tags_at
from jaxaug.decode.volume.tiff_stack import read_stack, told_pages
from jaxaug.errors import DecodeError

Window = tuple[slice, ...]

MAX_BYTES = 2**34  # of a whole volume or page whose bytes are compressed
_NIFTI_HEAD = 540  # of NIfTI-2; NIfTI-1 has 348
_MILLIMETERS = {1: 1000.0, 3: 0.001}  # of the units of xyzt_units: meters, micrometers
_GZIP = b"\x1f\x8b"
_PIECE = 2**16  # bytes that are unpacked at a time
_ZARR = b"\0zarr\0"
_SUBFILE, _DESCRIPTION = 254, 270  # tags of TIFF
_REDUCED, _TRANSPARENCY = 1, 4  # bits of a subfile's type
_folders: set[str] = set()


class StoredVolume(NamedTuple):
    """A volume in a file.

    Attributes:
      shape: (D, H, W) or (D, H, W, C).
      dtype: of what `read` returns, in this machine's byte order.
      spacing: of the voxels along (D, H, W) in mm; 1 where the file does not tell.
      read: read(window) returns the voxels of slices of `shape`.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    spacing: tuple[float, float, float]
    read: Callable[[Window], np.ndarray]


def zarr_reference(folder: str) -> bytes:
    """Return what stands for the bytes of a Zarr array in a folder.

    Only folders that this process was asked for are opened: no bytes of a data set name another.
    It is for sources of one's own; `iterators.Arrays` does it for paths of folders.

    Example:
      >>> zarr_reference("/data/scan.zarr")
      b'\\x00zarr\\x00/data/scan.zarr'
    """
    _folders.add(folder)
    return _ZARR + folder.encode()


def open_volume(data: memoryview, canonical: bool) -> StoredVolume:
    """Return the volume that the bytes of a file hold.

    Args:
      data: all bytes of the file, or a `zarr_reference`.
      canonical: NIfTI: turn the axes by quarter turns and flips so that z, y and x run to the
        head, to the front and to the right, as closely as that does.

    Raises:
      DecodeError: it is none, or damaged, or a library is missing.
    """
    head = bytes(data[:6])
    try:
        if head == _ZARR:
            return _checked(_zarr(bytes(data[6:]).decode()))
        if head == b"\x93NUMPY":
            return _checked(_npy(data))
        if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            return _checked(_tiff(data))
        return _checked(_nifti(data, canonical))
    except DecodeError:
        raise
    except Exception as error:  # of damaged headers, by any library
        raise DecodeError(f"volume: {type(error).__name__}: {error}") from error


def _checked(volume: StoredVolume) -> StoredVolume:
    """Return a volume whose form may be."""
    if len(volume.shape) not in (3, 4) or min(volume.shape) < 1 or volume.dtype.kind not in "buif":
        what = f"{volume.dtype}{list(volume.shape)}"
        raise DecodeError(f"volumes are numbers [D, H, W] or [D, H, W, C], got {what}")
    return volume


# ---- NPY


def _npy(data: memoryview) -> StoredVolume:
    file = io.BytesIO(data[:MAX_NPY_HEADER])
    shape, fortran, stored = read_npy_header(file)
    if stored.kind not in "buif":
        raise DecodeError(f"NPY: volumes are numbers, got {stored}{list(shape)}")
    voxels = _array(data, stored, shape, file.tell(), "NPY", "F" if fortran else "C")
    native = np.dtype(np.uint8) if stored.kind == "b" else stored.newbyteorder("=")
    return StoredVolume(
        shape, native, (1.0, 1.0, 1.0), lambda window: voxels[window].astype(native)
    )


def _array(
    data: "memoryview | bytearray",
    stored: np.dtype,
    shape: tuple[int, ...],
    start: int,
    what: str,
    order: Any,
) -> np.ndarray:
    """Return the array that lies in a file from `start` on, without a copy."""
    need = start + math.prod(shape) * stored.itemsize
    if need > len(data):
        raise DecodeError(f"{what}: truncated, {len(data)} bytes of {need}")
    flat = np.frombuffer(data, stored, math.prod(shape), start)
    return flat.reshape(shape, order=order)


# ---- NIfTI


def _nifti(data: memoryview, canonical: bool) -> StoredVolume:
    packed = bytes(data[:2]) == _GZIP
    head = _unpacked(data, _NIFTI_HEAD) if packed else bytes(data[:_NIFTI_HEAD])
    header = _nifti_header(head)
    shape = tuple(int(side) for side in header.get_data_shape())
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) == 5 and shape[3] == 1:  # vectors
        shape = (*shape[:3], shape[4])
    if len(shape) not in (3, 4) or min(shape) < 1:
        raise DecodeError(f"NIfTI: volumes are [x, y, z] or [x, y, z, n], got {list(shape)}")
    stored = header.get_data_dtype()
    if stored.kind not in "uif" or stored.itemsize > 8:
        raise DecodeError(f"NIfTI: its voxels are {stored}, no numbers")
    start = int(header.get_data_offset())
    if start < header.sizeof_hdr:
        raise DecodeError(f"NIfTI: its voxels begin inside of its header, at byte {start}")
    need = start + math.prod(shape) * stored.itemsize
    if packed and need > MAX_BYTES:
        raise DecodeError(f"NIfTI: {need} bytes when unpacked, more than {MAX_BYTES}")
    slope, intercept = header.get_slope_inter()
    scaled = slope is not None and (slope, intercept) != (1.0, 0.0)
    native = np.dtype(np.float32) if scaled else stored.newbyteorder("=")
    axes = _axes(header) if canonical else ((0, 1), (1, 1), (2, 1))
    zooms = _zooms(header)
    order = [axes[k][0] for k in (2, 1, 0)]  # of the file, for z, y and x
    signs = [axes[k][1] for k in (2, 1, 0)]

    def read(window: Window) -> np.ndarray:
        # A byte more than it needs, so that the checksum behind the last is compared.
        raw = _unpacked(data, need + 1) if packed else data
        voxels = _array(raw, stored, shape, start, "NIfTI", "F")
        voxels = voxels.transpose([*order, *range(3, len(shape))])
        voxels = voxels[tuple(slice(None, None, sign) for sign in signs)][window]
        if scaled:
            return (voxels * np.float64(slope) + np.float64(intercept)).astype(np.float32)
        return voxels.astype(native)

    if not packed and need > len(data):
        raise DecodeError(f"NIfTI: truncated, {len(data)} bytes of {need}")
    sides = [shape[axis] for axis in order]
    z, y, x = (zooms[axis] for axis in order)
    return StoredVolume((*sides, *shape[3:]), native, (z, y, x), read)


def _nifti_header(head: "bytes | bytearray") -> Any:
    if reason := missing("nibabel", "NIfTI volumes", "volume"):
        raise DecodeError(reason)
    nibabel = library("nibabel")
    sizes = {int.from_bytes(head[:4], "little"), int.from_bytes(head[:4], "big")}
    kind = nibabel.Nifti2Header if 540 in sizes else nibabel.Nifti1Header
    if not sizes & {348, 540}:
        raise DecodeError("no volume: neither NIfTI nor NPY, TIFF or Zarr by its first bytes")
    header = kind(bytes(head[: kind.sizeof_hdr]), check=False)  # without its extensions
    magic = bytes(header["magic"].item())
    if not magic.startswith((b"n+1", b"n+2")):
        raise DecodeError("NIfTI: its voxels are in another file (.img): store both as one .nii")
    return header


def _axes(header: Any) -> tuple[tuple[int, int], ...]:
    """Return (axis of the file, direction) of what runs to the right, the front and the head."""
    orientations = library("nibabel").orientations
    found = orientations.io_orientation(header.get_best_affine())  # of each axis of the file
    axes: list[tuple[int, int]] = [(0, 1), (1, 1), (2, 1)]
    if np.isnan(found).any():
        return tuple(axes)
    for axis, (goal, sign) in enumerate(found):
        axes[int(goal)] = (axis, int(sign))
    return tuple(axes)


def _zooms(header: Any) -> list[float]:
    """Return the sides of a voxel along x, y and z in mm; 1 where they are no lengths."""
    unit = _MILLIMETERS.get(int(header["xyzt_units"]) & 7, 1.0)
    sides = [abs(float(zoom)) * unit for zoom in header.get_zooms()[:3]]
    return [side if 0 < side < math.inf else 1.0 for side in sides]


def _unpacked(data: memoryview, size: int) -> bytearray:
    """Return the first bytes of what gzip has packed, of one member or many."""
    found = bytearray()
    place = 0
    while len(found) < size and bytes(data[place : place + 2]) == _GZIP:
        unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while len(found) < size and place < len(data) and not unpack.eof:
            piece = data[place : place + _PIECE]
            found += unpack.decompress(piece, size - len(found))
            place += len(piece) - len(unpack.unused_data)
    return found


# ---- TIFF


def _tiff(data: memoryview) -> StoredVolume:
    starts = find_pages(data)
    if not starts:
        raise DecodeError("TIFF: it has no page")
    first = tiff.layout_at(data, starts[0])
    size = first.height * first.width * first.samples * first.dtype.itemsize
    if size > max(MAX_BYTES, len(data)):
        raise DecodeError(f"TIFF: a page of {size} bytes when unpacked, more than {MAX_BYTES}")
    description = tags_at(data, starts[0]).text(_DESCRIPTION)
    if len(starts) == 1 and (told := told_pages(description, first)) > 1:
        pages = _undirected(data, first, told)
        stack = read_stack(description, told, first)
    else:
        starts = _whole_pages(data, starts)
        pages = functools.partial(_page, data, starts, first)
        stack = read_stack(description, len(starts), first)
    depth, channels = stack.pages.shape
    count = channels * first.samples
    shape = (depth, first.height, first.width, *((count,) if count > 1 else ()))

    def read(window: Window) -> np.ndarray:
        found = (np.concatenate([pages(int(k)) for k in row], 2) for row in stack.pages[window[0]])
        voxels = np.stack([page[window[1:3]] for page in found])
        return voxels[(..., *window[3:])] if count > 1 else voxels[..., 0]

    return StoredVolume(shape, first.dtype, stack.spacing, read)


def _whole_pages(data: memoryview, starts: list[int]) -> list[int]:
    """Return pages without the smaller copies and the masks of others, which GDAL puts last."""

    def is_other(start: int) -> bool:
        return bool(tags_at(data, start).number(_SUBFILE, 0) & (_REDUCED | _TRANSPARENCY))

    if len(starts) == 1 or not is_other(starts[-1]):
        return starts
    return [start for start in starts if start == starts[0] or not is_other(start)]


def _page(data: memoryview, starts: list[int], first: Any, page: int) -> np.ndarray:
    """Return [h, w, samples] of a page."""
    layout = tiff.layout_at(data, starts[page])
    alike = ("height", "width", "samples", "dtype")
    if any(getattr(layout, name) != getattr(first, name) for name in alike):
        raise DecodeError(f"TIFF: page {page} has another form than the first")
    return tiff.decode(data, layout)


def _undirected(data: memoryview, first: Any, count: int) -> Callable[[int], np.ndarray]:
    """Return what reads a page of those that lie behind the first, without directories.

    So ImageJ writes files of more than 4 GiB, and tifffile with `truncate=True`.
    """
    place = first.place
    if place.compression != 1 or place.planes > 1 or place.tiled or place.stored is None:
        raise DecodeError(f"TIFF: {count} slices behind one directory: store each as a page")
    shape = (count, first.height, first.width, first.samples)
    pixels = _array(data, place.stored, shape, place.offsets[0], "TIFF", "C")
    return lambda page: pixels[page].astype(first.dtype)


# ---- Zarr


def _zarr(folder: str) -> StoredVolume:
    if folder not in _folders:
        raise DecodeError("the bytes name a folder that no source of this process gave")
    array = _open_zarr(folder)
    dtype = np.dtype(array.dtype).newbyteorder("=")
    return StoredVolume(tuple(array.shape), dtype, (1.0, 1.0, 1.0), lambda w: np.asarray(array[w]))


@functools.lru_cache(1024)
def _open_zarr(folder: str) -> Any:
    if reason := missing("zarr", "Zarr arrays", "volume"):
        raise DecodeError(reason)
    return library("zarr").open_array(folder, mode="r")
