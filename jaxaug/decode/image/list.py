"""Several images in one column: as many as a record has, up to a bound."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Device, Values
from jaxaug.decode._column import Column, ColumnDecoder, Decoded
from jaxaug.decode._types import Encoded, Ragged


class EachImage(Column):
    """A column of lists of images as one of single images."""

    def __init__(self, column: Column):
        self.name = column.name
        self.example = column.example.values
        self._column = column

    def first(self, count: int) -> Iterator[Values]:
        return _images_of(self._column.first(count))

    def sample(self, count: int, known: Any = None) -> Iterator[Values]:
        del known  # no index holds anything of lists
        return _images_of(self._column.sample(count))

    def stored(self) -> None:
        return None


def _images_of(records: Iterator[Values]) -> Iterator[Encoded]:
    """Yield the images of records that have any."""
    for record in records:
        if len(record.values.lengths):
            yield record.values


@dataclasses.dataclass(frozen=True)
class ImageList(ColumnDecoder):
    """Lists of images on canvases of one size.

    A record's entry is [k, H, W, channels], its first `<name>_length` images on their canvases and
    zeros behind them. It is bad if one of its images is.

    Attributes:
      image: the decoder of each.
      most: k, the most images of a record; further ones are left out.
    """

    image: Any
    most: int

    on_device = ("pixels",)
    counted = ("shrunk",)

    @property
    def canvas(self) -> tuple[int, int]:
        """(H, W) of each image."""
        return self.image.canvas

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        forms = {
            name: jax.ShapeDtypeStruct((self.most, *form.shape), form.dtype)
            for name, form in self.image.forms().items()
        }
        return forms | {"length": jax.ShapeDtypeStruct((), np.int32)}

    def made_by(self, platform: str) -> Mapping[str, str]:
        return self.image.made_by(platform)

    def open(self, devices: Sequence[Device], deterministic: bool) -> "ListReader":
        return ListReader(self.image.open(devices, deterministic), self.most)

    def place(
        self, name: str, row: Mapping[str, Array], siblings: Mapping[str, Any], valid: Array
    ) -> dict[str, Array]:
        """Return the images, their sizes, and how many there are."""
        there = valid & (jnp.arange(self.most) < row["length"])
        each = {key: row[key] for key in self.image.forms()}
        place = jax.vmap(lambda image, is_there: self.image.place(name, image, {}, is_there))
        return {**place(each, there), f"{name}_length": row["length"]}

    def entries(self, name: str) -> tuple[str, ...]:
        return (*self.image.entries(name), f"{name}_length")

    def blanks(self, name: str) -> Mapping[str, None]:
        return self.image.blanks(name)

    def original(self, values: Values) -> "np.ndarray | None":
        """Return the first image of a record."""
        images = values.values
        return self.image.original(images) if len(images.lengths) else None


class ListReader:
    """The host half of `ImageList`: one call of the decoder for all images of a batch.

    Args:
      decoder: decodes single images.
      most: images of a record.
    """

    def __init__(self, decoder: Any, most: int):
        self.running = decoder
        self.in_flight = decoder.in_flight
        self.close = decoder.close
        self._most = most

    def check_rows(self, values: Ragged, stored: Any) -> tuple[Any, dict[int, str]]:
        """Return the headers of all images in columns [n, k]; see `ColumnDecoder`."""
        images, there = self._flat(values)
        headers, failures = self.running.check_rows(images, None)
        by_record = type(headers)(*(column.reshape(-1, self._most) for column in headers))
        return by_record, self._by_record(failures, there)

    def decode_rows(
        self,
        values: Ragged,
        checked: Any,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the canvases of n x k images; see `ColumnDecoder`."""
        images, there = self._flat(values)
        asked = there & np.repeat(wanted, self._most)
        headers = type(checked)(*(column.reshape(-1) for column in checked))
        decoded = self.running.decode_rows(images, headers, {}, asked, keys)
        failures = self._by_record(decoded.failures, there)
        arrays = {
            name: _by_list(array, self._most) if name != "pixels" else array
            for name, array in decoded.arrays.items()
        }
        with no_mesh():
            pixels = [_by_list(array, self._most) for array in decoded.arrays["pixels"]]
        lengths = np.minimum(values.lengths, self._most).astype(np.int32)
        good = (decoded.valid | ~there).reshape(-1, self._most).all(axis=1)
        release = decoded.release
        return decoded._replace(
            arrays={**arrays, "pixels": pixels, "length": lengths},
            valid=good & wanted,
            failures=failures,
            warnings={row // self._most: each for row, each in decoded.warnings.items()},
            release=lambda readers: release((readers, pixels)),  # the memory was only copied from
        )

    def _flat(self, values: Ragged) -> tuple[Encoded, np.ndarray]:
        """Return n x k images, of length 0 where a record has none, and bool[n k]: the others."""
        count = len(values.lengths)
        place = np.arange(self._most)
        there = place < values.lengths[:, None]
        starts = np.cumsum(values.lengths) - values.lengths
        source = np.where(there, starts[:, None] + place, 0).reshape(-1)
        flat = there.reshape(-1)
        if not len(values.values.lengths):
            nothing = np.zeros(count * self._most, np.uint64)
            return Encoded(nothing, nothing, None), flat
        images = values.values.take(source)
        return images._replace(lengths=np.where(flat, images.lengths, np.uint64(0))), flat

    def _by_record(self, failures: Mapping[int, str], there: np.ndarray) -> dict[int, str]:
        """Return the first failure of each record; places without an image are none."""
        found: dict[int, str] = {}
        for place, reason in sorted(failures.items()):
            if there[place]:
                row, number = divmod(place, self._most)
                found.setdefault(row, f"image {number}: {reason}")
        return found


def _by_list(array: Any, most: int) -> Any:
    """Return [n k, ...] as [n, k, ...]."""
    return array.reshape(-1, most, *array.shape[1:])
