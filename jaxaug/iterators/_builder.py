"""One batch: encoded rows to global arrays. Decode, one compiled call, relabel."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug._typing import Array, Device
from jaxaug.decode import Decoder
from jaxaug.iterators._bad_records import BadRecord, decode_batch
from jaxaug.iterators._compile import CompiledBatch, key_words
from jaxaug.iterators._features import Column, FeatureSpec, blank_rows
from jaxaug.iterators._place import check_mask_shape, check_masks, place_points
from jaxaug.iterators._protocol import Pixels, Source, Stream
from jaxaug.iterators._reader import PADDING, EncodedBatch, ReadRecords
from jaxaug.iterators._sampler import Sampler
from jaxaug.sharding._assemble import assemble
from jaxaug.sharding._keys import split_words
from jaxaug.sharding._mesh import auto_mesh
from jaxaug.sharding._split import Part, count_parts


class BuiltBatch(NamedTuple):
    """A batch for the consumer; the device may still compute it.

    Attributes:
      arrays: the global batch.
      done: ready when the arrays are, and nobody else can donate or delete it.
      counts: "images", "shrunk", "masked", "replaced".
      bad: the records that could not be decoded.
      seconds: "reader", "decoder", "device": at work on this batch.
    """

    arrays: dict[str, Any]
    done: Array
    counts: dict[str, int]
    bad: list[BadRecord]
    seconds: dict[str, float]


class Images(NamedTuple):
    """The images of a batch on the devices, and their facts on the host; `ImageBatch` of all local
    rows.
    """

    array: Array | np.ndarray  # uint8[n, H, W, 3], or gray [n, H, W] or [n, H, W, 1]
    size: np.ndarray
    original_size: np.ndarray
    orientation: np.ndarray
    valid: np.ndarray
    release: Callable[[Any], None]
    waited: float


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """Where the local rows lie: `devices[i]` holds the i-th equal share of them, `parts[i]` of the
    global batch.
    """

    parts: Sequence[Part]
    devices: Sequence[Device]
    sharding: NamedSharding

    @property
    def rows(self) -> np.ndarray:
        """int64[r], the rows of the global batch that this process makes, in the order of the
        devices.
        """
        return np.concatenate([np.arange(part.start, part.stop) for part in self.parts])

    @property
    def split(self) -> NamedSharding:
        """The local rows over our own mesh."""
        return NamedSharding(auto_mesh(self.devices), PartitionSpec("batch"))

    @property
    def replicated(self) -> NamedSharding:
        """The same on each device of our own mesh."""
        return NamedSharding(auto_mesh(self.devices), PartitionSpec())

    def assemble(self, array: Array) -> Array:
        """Return local rows on our mesh as rows of the global batch."""
        shards = {shard.device: shard.data for shard in array.addressable_shards}
        in_row_order = sorted(zip(self.parts, self.devices), key=lambda pair: pair[0].start)
        return assemble([shards[device] for _, device in in_row_order], self.sharding)

    def global_shape(self, local: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        """Return the shape of `assemble`'s result."""
        rows = count_parts(self.sharding) * (self.parts[0].stop - self.parts[0].start)
        return jax.ShapeDtypeStruct((rows, *local.shape[1:]), local.dtype, sharding=self.sharding)


class BatchBuilder:
    """Turns the local rows of a batch into global arrays.

    Args:
      source: names the records.
      order, read: the order of the records, and how to read replacements; None for a stream.
      decoder: has the layout's devices, in its order; None where the source has pixels.
      layout: where the rows lie.
      compiled: the computation.
      canvas: (H, W) of the images.
      mask_fill: the value of integer masks where there is no image.
      seed: of the keys.
      on_error: "raise", "mask" or "replace".
    """

    def __init__(
        self,
        source: Source | Stream,
        sampler: Sampler | None,
        read: ReadRecords | None,
        decoder: Decoder | None,
        layout: RowLayout,
        compiled: CompiledBatch,
        canvas: tuple[int, int],
        mask_fill: int,
        seed: int,
        on_error: str,
    ):
        self._source = source
        self._sampler = sampler
        self._read = read
        self._decoder = decoder
        self._layout = layout
        self._compiled = compiled
        self._canvas = canvas
        self._mask_fill = mask_fill
        self._on_error = on_error
        self._wide_index = isinstance(source, Source) and len(source) >= 2**31
        self._word_count = word_count(sampler)
        self._split = layout.split
        self._seed = jax.device_put(np.array(split_words(seed), np.uint32), layout.replicated)

    def spec(self) -> dict[str, Any]:
        """Return the shapes, dtypes and shardings of a batch."""
        n = len(self._layout.rows)
        index = self._index(np.zeros(n, np.int64))
        shapes = self._compiled.shapes | {
            "valid": jax.ShapeDtypeStruct((n,), np.bool_),
            "index": jax.ShapeDtypeStruct(index.shape, index.dtype),
        }
        return jax.tree.map(self._layout.global_shape, shapes)

    def build(self, records: EncodedBatch) -> BuiltBatch:
        """Return the global arrays of one batch."""
        local = self.build_local(records)
        return local._replace(arrays=jax.tree.map(self._layout.assemble, local.arrays))

    def build_local(self, records: EncodedBatch) -> BuiltBatch:
        """Return the local rows of one batch, on our own mesh."""
        started = time.perf_counter()
        records, images, bad = self._decode(records)
        decoded_at = time.perf_counter()
        done: Any = ()
        try:
            valid = images.valid & (records.indices != PADDING)
            rows, index = jax.device_put(
                (self._host_rows(records, images, valid), self._index(records.indices)), self._split
            )
            if isinstance(images.array, jax.Array):
                rows["sample"]["image"] = images.array
            outputs, done = self._compiled.call(self._seed, rows)
        finally:
            images.release(done)

        waited = images.waited
        seconds = {
            "reader": records.seconds,
            "decoder": decoded_at - started - waited,
            "device": time.perf_counter() - decoded_at + waited,
        }
        arrays = outputs | {"valid": rows["valid"], "index": index}
        return BuiltBatch(arrays, done, _count(images, valid, bad), bad, seconds)

    def _decode(self, records: EncodedBatch) -> tuple[EncodedBatch, Images, list[BadRecord]]:
        if isinstance(records.images, Pixels):
            return records, _take_pixels(records.images), []

        assert self._decoder is not None
        records, decoded, bad = decode_batch(
            records, self._decoder, self._source, self._sampler, self._on_error, self._read
        )
        shape = (len(records.indices), *decoded.pixels[0].shape[1:])
        array = jax.make_array_from_single_device_arrays(shape, self._split, decoded.pixels)
        images = Images(
            array,
            decoded.size,
            decoded.original_size,
            decoded.orientation,
            decoded.valid,
            decoded.release,
            decoded.waited,
        )
        return records, images, bad

    def _host_rows(
        self, records: EncodedBatch, images: Images, valid: np.ndarray
    ) -> dict[str, Any]:
        """Return what the compiled call takes besides decoded images."""
        features = records.features
        if not valid.all():
            features = blank_rows(features, ~valid, self._mask_fill)
        sample = place_points(features, images.size, images.original_size, images.orientation)

        placement = {}
        if "mask" in sample:
            check_masks(
                sample["mask"], images.original_size, images.orientation, valid, records.indices
            )
            placement = {
                "size": images.size,
                "original_size": images.original_size,
                "orientation": images.orientation,
            }

        if isinstance(images.array, np.ndarray):
            sample["image"] = images.array  # whole: a static size, so no "size"
        else:
            canvas = np.array(self._canvas, np.int32)
            sample["size"] = np.where(valid[:, None], images.size, canvas).astype(np.int32)
        return {
            "words": key_words(
                records.epoch,
                records.indices,
                records.positions if self._word_count > 3 else None,
            ),
            "valid": valid,
            "sample": sample,
            "placement": placement,
        }

    def _index(self, indices: np.ndarray) -> np.ndarray:
        if self._wide_index:
            return np.stack(split_words(indices), axis=1).astype(np.uint32)
        return indices.astype(np.int32)


def row_shapes(
    n: int, words: int, features: FeatureSpec, image: Column | None, canvas: tuple[int, int]
) -> dict[str, Any]:
    """Return the shapes of the rows that the compiled call takes.

    Args:
      n: local rows.
      words: numbers that are folded into a row's key, see `word_count`.
      features: the form of a record's features.
      image: the form of a row of pixels; None where a decoder makes them.
      canvas: (H, W) of decoded images.

    Raises:
      ValueError: boxes, keypoints or a mask of an impossible shape.
    """
    one = np.ones((1, 2), np.int32)
    blank = {name: np.zeros((1, *column.shape), column.dtype) for name, column in features.items()}
    placed = place_points(blank, one, one, np.ones(1, np.uint8))
    sample = {
        name: jax.ShapeDtypeStruct((n, *column.shape[1:]), column.dtype)
        for name, column in placed.items()
    }
    if image is None:
        sample["image"] = jax.ShapeDtypeStruct((n, *canvas, 3), np.uint8)
        sample["size"] = jax.ShapeDtypeStruct((n, 2), np.int32)
    else:
        sample["image"] = jax.ShapeDtypeStruct((n, *image.shape), image.dtype)

    placement = {}
    if "mask" in sample:
        check_mask_shape(sample["mask"].shape)
        placement = {
            "size": jax.ShapeDtypeStruct((n, 2), np.int32),
            "original_size": jax.ShapeDtypeStruct((n, 2), np.int32),
            "orientation": jax.ShapeDtypeStruct((n,), np.uint8),
        }
    return {
        "words": jax.ShapeDtypeStruct((n, words), np.uint32),
        "valid": jax.ShapeDtypeStruct((n,), np.bool_),
        "sample": sample,
        "placement": placement,
    }


def word_count(sampler: Sampler | None) -> int:
    """Return how many words are folded into a key: epoch and record, the position too where records
    repeat.
    """
    return 5 if sampler is not None and sampler.with_replacement else 3


def _take_pixels(pixels: Pixels) -> Images:
    """Return images that need no decoding; the compiled call's output is a copy of them."""
    n, *sides = pixels.array.shape[:3]
    size = np.tile(np.array(sides, np.int32), (n, 1))
    return Images(
        pixels.array,
        size,
        size,
        np.ones(n, np.uint8),
        np.ones(n, np.bool_),
        lambda readers: None,
        0.0,
    )


def _count(images: Images, valid: np.ndarray, bad: list[BadRecord]) -> dict[str, int]:
    different = images.original_size != images.size
    shrunk = (different[:, 0] | different[:, 1]) & valid
    actions = [record["action"] for record in bad]
    return {
        "images": int(valid.sum()),
        "shrunk": int(shrunk.sum()),
        "masked": actions.count("masked"),
        "replaced": actions.count("replaced"),
    }
