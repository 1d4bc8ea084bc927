"""The decoder of a column of volumes: windows of one shape."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import DTypeLike

from jaxaug._checks import check_choice, check_positive_int, dtype_name
from jaxaug._install import installed_versions
from jaxaug._typing import Device, Values
from jaxaug.decode._column import Column, ColumnDecoder, Decoded, decode_each, valid_rows
from jaxaug.decode._cpus import usable_cpus
from jaxaug.decode._draw import draw_integers
from jaxaug.decode._libraries import IMAGE_PACKAGES
from jaxaug.decode._row_threads import RowThreads
from jaxaug.decode._types import Encoded
from jaxaug.decode.volume.stored import StoredVolume, open_volume
from jaxaug.errors import DecodeError

_SAMPLED_RECORDS = 32  # looked at for the shape that all have
_DTYPES = ("uint8", "uint16", "int16", "int32", "float32")


@dataclasses.dataclass(frozen=True)
class Volume(ColumnDecoder):
    """Volumes of one shape: the description that `Loader(decode=)` takes.

    A column of encoded volumes, NIfTI (.nii, .nii.gz), NPY, TIFF with a page for each slice, or
    Zarr (see `iterators.Arrays`), by content, becomes `<name>` [B, D, H, W] or [B, D, H, W, C] with
    z, y, x in this order, "<name>_spacing" float32[B, 3] in mm, which of a column "volume" is
    "spacing" as `augment.volume` takes it, "<name>_start" int32[B, 3], where the window begins in
    the file's volume (below 0 where it is padded), and "<name>_size" int32[B, 3], that of the file.

    Pages of a TIFF are slices, or slices and channels where ImageJ, OME-XML or tifffile say so, as
    `tifffile.imread` has them; times beside slices are bad records, smaller copies and masks no
    slices.

    Along an axis where the file has more than `shape`, a window of it is taken; where it has less
    it is padded alike on both sides. Of NPY and NIfTI without compression, of TIFF by page and of
    Zarr by chunk only what the window needs is read: files of more than 8 MiB are mapped.

    Numbers are those of the file, scaled where NIfTI says so (float32 then). The axes of NIfTI are
    brought to z to the head, y to the front and x to the right by flips and exchanges.

    Args:
      shape: (D, H, W) of a batch; None for that which all files have, so that another is bad.
      window: what is taken of a larger file: "center", or "random", drawn from (seed, epoch,
        record), so that it is the same for any batch size, number of hosts and resume.
      of: the column whose window this one shows, as labels that of their volume.
      dtype: "uint8", "uint16", "int16", "int32" or "float32"; None for that of the first file, but
        int32 of labels. A number that it cannot hold makes a bad record.
      fill: of voxels that no file has.
      canonical: False leaves the axes of NIfTI as they are stored: z, y, x are its k, j, i. A
        column with `of` has those of that one.
      num_threads: that decode; None for one for each CPU.

    Raises:
      ValueError: an argument is wrong.

    Example:
      >>> import io, jax
      >>> from jaxaug.iterators import InMemory, Loader, Renamed
      >>> file = io.BytesIO()
      >>> np.save(file, np.arange(60, dtype=np.int16).reshape(3, 4, 5))
      >>> source = Renamed(InMemory([file.getvalue()] * jax.device_count()), {"image": "volume"})
      >>> with Loader(source, jax.device_count(), decode={"volume": Volume((2, 4, 6))}) as loader:
      ...     batch = next(loader)
      >>> batch["volume"].shape[1:], batch["volume_start"][0].tolist()
      ((2, 4, 6), [0, 0, 0])
    """

    shape: tuple[int, int, int] | None = None
    window: str = "center"
    of: str | None = None
    dtype: DTypeLike | None = None
    fill: float = 0
    canonical: bool = True
    num_threads: int | None = None
    channels: int | None = dataclasses.field(default=None, kw_only=True, repr=False)
    whole: bool = dataclasses.field(default=False, kw_only=True, repr=False)

    def __post_init__(self):
        if self.shape is not None:
            shape = tuple(self.shape) if isinstance(self.shape, Iterable) else ()
            if len(shape) != 3:
                raise ValueError(f"`shape` must be (depth, height, width), got {self.shape!r}.")
            for side in shape:
                check_positive_int("shape", side)
            object.__setattr__(self, "shape", tuple(int(side) for side in shape))
        check_choice("window", self.window, ("center", "random"))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", dtype_name("dtype", self.dtype, _DTYPES))
        if self.num_threads is not None:
            check_positive_int("num_threads", self.num_threads)

    @property
    def draws(self) -> bool:
        """True where windows are drawn."""
        return self.window == "random" and self.of is None

    def fit(self, column: Column, siblings: Mapping[str, ColumnDecoder]) -> "Volume":
        """Return the decoder with what the files tell: shape, dtype and channels."""
        if not isinstance(column.example, Encoded):
            raise TypeError(
                f"column {column.name!r} must be encoded volumes, got"
                f" {type(column.example).__name__}: arrays of voxels need no decoder."
            )
        shape, canonical = self.shape, self.canonical
        if self.of is not None:
            other = siblings.get(self.of)
            if not isinstance(other, Volume):
                raise ValueError(f"`of` must name a column that Volume decodes, got {self.of!r}.")
            shape = other.shape if shape is None else shape
            canonical = other.canonical
            if shape != other.shape:
                raise ValueError(
                    f"`shape` of column {column.name!r} must be that of {self.of!r},"
                    f" {other.shape}, got {shape}."
                )
        found = self._some(column, shape is not None)
        first = found[0]
        dtype = self.dtype or ("int32" if self.of is not None else _dtype_of(first))
        _check_fill(self.fill, np.dtype(dtype))
        return dataclasses.replace(
            self,
            shape=_common_shape(column.name, found) if shape is None else shape,
            dtype=dtype,
            canonical=canonical,
            channels=first.shape[3] if len(first.shape) == 4 else None,
            whole=shape is None,
        )

    def _some(self, column: Column, one: bool) -> list[StoredVolume]:
        """Return the volumes among the first that can be read, or one of them.

        Raises:
          ValueError: there is none.
        """
        found: list[StoredVolume] = []
        error = None
        for number, values in enumerate(column.first(_SAMPLED_RECORDS)):
            assert isinstance(values, Encoded)
            try:
                found.append(open_volume(values.view(0), self.canonical))
            except DecodeError as failure:
                error = error or column.error(number, failure.reason)
            if found and one:
                break
        if not found:
            raise ValueError(
                f"column {column.name!r} must have a volume that can be read among its first"
                f" {_SAMPLED_RECORDS} records: {error}."
            ) from error
        return found

    def made_by(self, platform: str) -> dict[str, str]:
        """Return the versions of the readers of volumes, and of the slices that are images."""
        return installed_versions("nibabel", "zarr", "numcodecs", *IMAGE_PACKAGES)

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the forms of the voxels, and of what is known of them."""
        assert self.shape is not None and self.dtype is not None
        channels = () if self.channels is None else (self.channels,)
        return {
            "voxels": jax.ShapeDtypeStruct((*self.shape, *channels), np.dtype(self.dtype)),
            "spacing": jax.ShapeDtypeStruct((3,), np.float32),
            "start": jax.ShapeDtypeStruct((3,), np.int32),
            "size": jax.ShapeDtypeStruct((3,), np.int32),
        }

    def entries(self, name: str) -> tuple[str, ...]:
        """Return the names of the entries: "spacing" is that of a "volume"."""
        spacing = "spacing" if name == "volume" else f"{name}_spacing"
        return (name, spacing, f"{name}_start", f"{name}_size")

    def open(self, devices: Sequence[Device], deterministic: bool) -> "VolumeReader":
        """Return the threads that decode."""
        return VolumeReader(self)

    def original(self, values: Values) -> np.ndarray:
        """Return all voxels of one record."""
        assert isinstance(values, Encoded)
        volume = open_volume(values.view(0), self.canonical)
        return volume.read(tuple(slice(None) for _ in volume.shape))


def _common_shape(name: str, found: list[StoredVolume]) -> tuple[int, int, int]:
    shapes = sorted({volume.shape[:3] for volume in found})
    if len(shapes) > 1:
        raise ValueError(
            f"`shape` must be given for column {name!r}: its volumes are {shapes[0]} to"
            f" {shapes[-1]}, and all of a batch have one shape."
        )
    depth, height, width = shapes[0]
    return depth, height, width


def _check_fill(fill: float, dtype: np.dtype) -> None:
    if dtype.kind == "f":
        return
    limits = np.iinfo(dtype)
    if not (float(fill).is_integer() and limits.min <= fill <= limits.max):
        raise ValueError(
            f"`fill` must be a number of {dtype}, which the batches have, got {fill!r}: give"
            ' dtype="float32".'
        )


def _dtype_of(volume: StoredVolume) -> str:
    """Return the dtype of a batch, one that JAX has, for what a file holds."""
    if volume.dtype.name in _DTYPES:
        return volume.dtype.name
    if volume.dtype.name == "int8":
        return "int16"
    return "int32" if volume.dtype.kind in "ui" else "float32"


class VolumeReader:
    """The host half of `Volume`: threads that read the windows of a batch."""

    in_flight = 2

    def __init__(self, volume: Volume):
        self.running = volume
        self._threads = RowThreads(volume.num_threads or usable_cpus(), "jaxaug-volume")

    def check_rows(self, values: Encoded, stored: Any) -> tuple[list[Any], dict[int, str]]:
        """Return the volumes of n files, not yet read; see `ColumnDecoder`."""
        rows = range(len(values.lengths))
        opened = list(self._threads.map(lambda row: self._open(values, row), rows))
        errors = (
            (row, error) for row, error in enumerate(opened) if isinstance(error, DecodeError)
        )
        return opened, {row: error.reason for row, error in errors}

    def _open(self, values: Encoded, row: int) -> "StoredVolume | DecodeError":
        column = self.running
        try:
            volume = open_volume(values.view(row), column.canonical)
            channels = volume.shape[3] if len(volume.shape) == 4 else None
            if channels != column.channels:
                raise DecodeError(f"it has {channels} channels, the first record {column.channels}")
            if column.whole and volume.shape[:3] != column.shape:
                raise DecodeError(
                    f"it has {volume.shape[:3]} voxels, the first records {column.shape}: give"
                    " Volume(shape=...)"
                )
        except DecodeError as error:
            return error
        return volume

    def decode_rows(
        self,
        values: Encoded,
        checked: list[Any],
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the windows of n volumes; see `ColumnDecoder`."""
        forms = self.running.forms().items()
        arrays = {key: np.zeros((len(wanted), *f.shape), f.dtype) for key, f in forms}
        other = None if self.running.of is None else siblings[self.running.of].arrays

        def decode(row: int) -> None:
            if isinstance(checked[row], DecodeError):
                raise checked[row]
            begin = None if other is None else (other["start"][row], other["size"][row])
            self._read(checked[row], begin, keys[row : row + 1], arrays, row)

        failures = decode_each(self._threads, decode, wanted)
        for row in failures:
            for array in arrays.values():
                array[row] = 0
        return Decoded(arrays, valid_rows(failures, wanted), failures)

    def _read(
        self,
        volume: StoredVolume,
        other: Any,
        key: np.ndarray,
        arrays: dict[str, np.ndarray],
        row: int,
    ) -> None:
        """Write the window of one volume into the arrays."""
        size = np.array(volume.shape[:3])
        assert self.running.shape is not None
        start = self._start(size, key) if other is None else other[0]
        if other is not None and (other[1] != size).any():
            raise DecodeError(
                f"it has {size.tolist()} voxels, {self.running.of!r} {other[1].tolist()}"
            )
        goal = arrays["voxels"][row]
        goal[...] = self.running.fill
        low = np.maximum(start, 0)
        high = np.minimum(start + self.running.shape, size)
        window = tuple(slice(a, b) for a, b in zip(low.tolist(), high.tolist()))
        place = tuple(slice(a, b) for a, b in zip((low - start).tolist(), (high - start).tolist()))
        try:
            voxels = volume.read(window)
        except DecodeError:
            raise
        except Exception as error:  # the libraries raise nearly every exception
            raise DecodeError(f"volume: {type(error).__name__}: {error}") from error
        goal[place] = _held(voxels, goal.dtype)
        arrays["spacing"][row] = volume.spacing
        arrays["start"][row] = start
        arrays["size"][row] = size

    def _start(self, size: np.ndarray, key: np.ndarray) -> np.ndarray:
        """Return the first voxel of a window, int64[3]."""
        spare = size - self.running.shape
        middle = np.sign(spare) * (np.abs(spare) // 2)
        if self.running.window == "center":
            return middle
        drawn = draw_integers(key, np.arange(3), high=np.maximum(spare, 0) + 1)
        return np.where(spare > 0, drawn, middle)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def _held(voxels: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return voxels in the dtype of a batch.

    Raises:
      DecodeError: it cannot hold them.
    """
    if dtype == np.float32 or np.can_cast(voxels.dtype, dtype):
        return voxels.astype(dtype)
    whole = voxels.dtype.kind in "ui" or bool((voxels == np.floor(voxels)).all())
    limits = np.iinfo(dtype)
    # Of Python: NumPy rounds the limits to the dtype of the voxels.
    if not whole or voxels.min().item() < limits.min or voxels.max().item() > limits.max:
        raise DecodeError(
            f"its numbers are {voxels.dtype}, from {voxels.min()} to {voxels.max()}, which {dtype}"
            ' cannot hold: give Volume(dtype="float32")'
        )
    return voxels.astype(dtype)
