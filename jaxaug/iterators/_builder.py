"""One batch, from encoded rows to global arrays: decode, one compiled call, relabel."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxaug._typing import Array
from jaxaug.decode import Decoder
from jaxaug.iterators._bad_records import BadRecord, decode_batch
from jaxaug.iterators._batch_function import key_words
from jaxaug.iterators._compile import CompiledBatch
from jaxaug.iterators._features import blank_rows
from jaxaug.iterators._layout import RowLayout
from jaxaug.iterators._masks import MaskDecoder
from jaxaug.iterators._place import check_masks, mask_names, place_points
from jaxaug.iterators._protocol import Pixels
from jaxaug.iterators._reader import PADDING, EncodedBatch, Reader
from jaxaug.sharding._keys import split_words


class BuiltBatch(NamedTuple):
    """A batch for the consumer; the device may still compute it.

    Attributes:
      arrays: the global batch.
      done: ready when the arrays are, and nobody else can donate or delete it.
      counts: "images", "shrunk", "masked", "replaced".
      bad: the records that could not be decoded.
      deep: (record, bits a sample) of the first image that has lost bits; None without one.
      seconds: "reader", "decoder", "device": at work on this batch.
    """

    arrays: dict[str, Any]
    done: Array
    counts: dict[str, int]
    bad: list[BadRecord]
    deep: tuple[int, int] | None
    seconds: dict[str, float]


class RowImages(NamedTuple):
    """The images of all local rows on the devices, and their facts on the host.

    Attributes:
      array: uint8[n, H, W, channels], or gray [n, H, W] or [n, H, W, 1].
      size, original_size, orientation, valid: see `ImageBatch`.
      bits: see `DecodedBatch`.
      release: called with an array that is ready when nothing reads the images any more.
      wait_seconds: seconds that decoding waited for the device.
    """

    array: Array | np.ndarray
    size: np.ndarray
    original_size: np.ndarray
    orientation: np.ndarray
    valid: np.ndarray
    bits: dict[int, int]
    release: Callable[[Any], None]
    wait_seconds: float


class BatchBuilder:
    """Turns the local rows of a batch into global arrays.

    Args:
      reader: names the records, and reads replacements.
      decoder: has the layout's devices, in its order; None where the source has pixels.
      masks: decodes masks; None where the source has no encoded ones.
      layout: the places of the rows.
      compiled: the computation.
      canvas: (H, W) of the images.
      seed: of the keys.
      on_error: "raise", "mask" or "replace".
    """

    def __init__(
        self,
        reader: Reader,
        decoder: Decoder | None,
        masks: MaskDecoder | None,
        layout: RowLayout,
        compiled: CompiledBatch,
        canvas: tuple[int, int],
        seed: int,
        on_error: str,
    ):
        self._reader = reader
        self._decoder = decoder
        self._masks = masks
        self._layout = layout
        self._compiled = compiled
        self._canvas = np.array(canvas, np.int32)
        self._on_error = on_error
        self._split = layout.split
        self._seed = jax.device_put(np.array(split_words(seed), np.uint32), layout.replicated)

    def spec(self) -> dict[str, Any]:
        """Return the shapes, dtypes and shardings of a batch."""
        return jax.tree.map(self._layout.global_shape, self._compiled.shapes)

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
            packed = self._compiled.packing.pack(self._host_rows(records, images, valid))
            rows = jax.device_put(packed, self._split)
            pixels = images.array
            if isinstance(pixels, np.ndarray):
                pixels = jax.device_put(pixels, self._split)
            arrays, done = self._compiled.call(self._seed, pixels, rows)
        finally:
            images.release(done)

        seconds = {
            "reader": records.seconds,
            "decoder": decoded_at - started - images.wait_seconds,
            "device": time.perf_counter() - decoded_at + images.wait_seconds,
        }
        deep = next(((int(records.indices[row]), images.bits[row]) for row in images.bits), None)
        return BuiltBatch(arrays, done, _count(images, valid, bad), bad, deep, seconds)

    def _decode(self, records: EncodedBatch) -> tuple[EncodedBatch, RowImages, list[BadRecord]]:
        if isinstance(records.images, Pixels):
            return records, _take_pixels(records.images), []

        assert self._decoder is not None
        records, decoded, bad = decode_batch(
            records, self._decoder, self._masks, self._reader, self._on_error
        )
        shape = (len(records.indices), *decoded.pixels[0].shape[1:])
        images = RowImages(
            array=jax.make_array_from_single_device_arrays(shape, self._split, decoded.pixels),
            size=decoded.size,
            original_size=decoded.original_size,
            orientation=decoded.orientation,
            valid=decoded.valid,
            bits=decoded.bits,
            release=decoded.release,
            wait_seconds=decoded.wait_seconds,
        )
        return records, images, bad

    def _host_rows(
        self, records: EncodedBatch, images: RowImages, valid: np.ndarray
    ) -> dict[str, Any]:
        """Return the rows of the compiled call, without images."""
        features = records.features
        size = images.size
        original_size = images.original_size
        if not valid.all():
            features = blank_rows(features, ~valid, self._reader.mask_fill)
            size = np.where(valid[:, None], size, self._canvas)
            original_size = np.where(valid[:, None], original_size, np.int32(0))

        sample = place_points(features, images.size, images.original_size, images.orientation)
        placement = {}
        for name in mask_names(sample):
            if name == "mask" and self._masks is not None:
                continue  # it lies on the canvas already
            check_masks(
                name,
                sample[name],
                images.original_size,
                images.orientation,
                valid,
                records.indices,
            )
            placement[name] = {
                "size": images.size,
                "original_size": images.original_size,
                "orientation": images.orientation,
            }

        if isinstance(images.array, jax.Array):  # arrays of pixels have a static size
            sample["size"] = size
            sample["original_size"] = original_size

        positions = records.positions if self._reader.with_replacement else None
        return {
            "words": key_words(records.epoch, records.indices, positions),
            "valid": valid,
            "index": self._index(records.indices),
            "sample": sample,
            "placement": placement,
        }

    def _index(self, indices: np.ndarray) -> np.ndarray:
        """Return the entry "index" of a batch: int32[n], or words uint32[n, 2] of large numbers."""
        if self._reader.wide_index:
            return np.stack(split_words(indices), axis=1).astype(np.uint32)
        return indices.astype(np.int32)


def _take_pixels(pixels: Pixels) -> RowImages:
    """Return images that need no decoding; the compiled call's output is a copy of them."""
    count, *sides = pixels.array.shape[:3]
    size = np.tile(np.array(sides, np.int32), (count, 1))
    return RowImages(
        array=pixels.array,
        size=size,
        original_size=size,
        orientation=np.ones(count, np.uint8),
        valid=np.ones(count, np.bool_),
        bits={},
        release=lambda readers: None,
        wait_seconds=0.0,
    )


def _count(images: RowImages, valid: np.ndarray, bad: list[BadRecord]) -> dict[str, int]:
    height_differs, width_differs = (images.original_size != images.size).T
    shrunk = (height_differs | width_differs) & valid
    actions = [record["action"] for record in bad]
    return {
        "images": int(np.count_nonzero(valid)),
        "shrunk": int(np.count_nonzero(shrunk)),
        "masked": actions.count("masked"),
        "replaced": actions.count("replaced"),
    }
