"""From the arguments of a Loader to the parts of its pipeline."""

import dataclasses
from typing import Any

import numpy as np
from jax.sharding import NamedSharding

from jaxaug.decode import Decoder
from jaxaug.iterators import _arguments
from jaxaug.iterators._builder import BatchBuilder, RowLayout, row_shapes, word_count
from jaxaug.iterators._canvas import CanvasChoice, pick_canvas
from jaxaug.iterators._compile import BatchFunction, CompiledBatch, Transform, compile_batch
from jaxaug.iterators._features import Column, FeatureSpec, feature_spec, stack_features
from jaxaug.iterators._order import Order
from jaxaug.iterators._protocol import Pixels, Source, Stream
from jaxaug.iterators._reader import BatchPlan, ReadRecords, record_reader
from jaxaug.sharding._mesh import ambient_sharding, check_batch_sharding
from jaxaug.sharding._split import local_parts, spans_processes


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that a Loader's arguments lead to, before any thread runs.

    Attributes:
      order, read: the order of the records, and how to read them; None for a stream.
      batches: how batches are cut.
      layout: where the local rows lie.
      features: the form of a record's features.
      image: the form of a row of pixels; None where a decoder makes them.
      decoder: None where the source has pixels.
      choice: the canvas that the Loader picked itself.
      function: the computation of a batch.
    """

    source: Source | Stream
    order: Order | None
    read: ReadRecords | None
    batches: BatchPlan
    layout: RowLayout
    features: FeatureSpec
    image: Column | None
    decoder: Decoder | None
    owns_decoder: bool
    choice: CanvasChoice | None
    function: BatchFunction
    seed: int
    on_error: str

    @property
    def own_decoder(self) -> Decoder | None:
        """The decoder that ends with the Loader."""
        return self.decoder if self.owns_decoder else None

    @property
    def mask_fill(self) -> int:
        """The value of integer masks where there is no image."""
        return self.function.mask_fill

    @property
    def builders(self) -> int:
        """How many batches at once keep decoder and device busy."""
        return 2 if self.decoder is None else self.decoder.in_flight

    def compile(self, batch_transform: bool = True) -> CompiledBatch:
        """Compile the computation of a batch, with or without the batch transform."""
        function = self.function
        if not batch_transform:
            function = function._replace(batch_transform=None)
        rows = row_shapes(len(self.layout.rows), word_count(self.order), self.features, self.image, function.canvas)
        return compile_batch(function, rows, self.layout.devices)

    def make_builder(self, compiled: CompiledBatch, on_error: str) -> BatchBuilder:
        """Return what makes batches by this computation; it does not refer to the user's functions."""
        return BatchBuilder(
            self.source,
            self.order,
            self.read,
            self.decoder,
            self.layout,
            compiled,
            self.function.canvas,
            self.mask_fill,
            self.seed,
            on_error,
        )

    def note(self, spec: dict[str, Any]) -> str | None:
        """Return what the user should know about the canvas that the Loader picked."""
        if self.choice is None or self.choice.uniform or "size" not in spec:
            return None
        height, width = self.choice.canvas
        return (
            f"the images have different sizes and lie on canvases of {height} x {width}, zero outside of their "
            '"size", which is still in the batch: let the transform end at one size, with CenterCrop, Resize or '
            'RandomResizedCrop, or have the model use "size" (a `canvas=` of your own says that it does).'
        )


def make_plan(
    source: Source | Stream,
    batch_size: int,
    transform: Transform | None,
    batch_transform: Transform | None,
    seed: int,
    shuffle: "bool | Order",
    epochs: int | None,
    canvas: tuple[int, int] | None,
    mask_fill: int,
    drop: bool,
    on_error: str,
    sharding: NamedSharding | None,
    decoder: Decoder | None,
) -> Plan:
    """Return the plan of a Loader, see there.

    Raises:
      ValueError, TypeError: arguments that do not fit each other or the source.
    """
    order = _arguments.make_order(source, shuffle, seed, on_error)
    sharding = ambient_sharding() if sharding is None else check_batch_sharding(sharding)
    parts = local_parts(sharding, batch_size)
    _arguments.check_sharding_is_addressable(parts, sharding)
    _arguments.check_groups(batch_transform, parts)
    _arguments.check_batch_size(order, batch_size, drop)
    features, image = _first_record(source)
    _arguments.check_names(list(features))

    choice = None
    owns_decoder = False
    devices = [part.devices[0] for part in parts]
    if image is not None:
        _arguments.check_no_decoder(decoder, canvas)
    elif decoder is None:
        owns_decoder = True
        if canvas is None:
            choice = pick_canvas(source, seed)
            canvas = choice.canvas
        decoder = Decoder(canvas, devices=devices, deterministic=spans_processes(sharding))
    elif spans_processes(sharding):
        _arguments.check_replicas(decoder)

    if decoder is not None:
        parts = _arguments.order_parts(parts, decoder)
        devices = decoder.devices
        canvas = decoder.canvas
    elif image is not None:
        canvas = (image.shape[0], image.shape[1])
    assert canvas is not None

    layout = RowLayout(parts, devices, sharding)
    return Plan(
        source,
        order,
        None if isinstance(source, Stream) else record_reader(source, features, mask_fill),
        BatchPlan(batch_size, layout.rows, drop, epochs),
        layout,
        features,
        image,
        decoder,
        owns_decoder,
        choice,
        BatchFunction(transform, batch_transform, mask_fill, canvas),
        seed,
        on_error,
    )


def _first_record(source: Source | Stream) -> tuple[FeatureSpec, Column | None]:
    """Return the form of the first record's features, and of its pixels if it has any."""
    if isinstance(source, Stream):
        first = next(source.iterate(), None)
        if first is None:
            raise ValueError("`source` must yield at least one record, got an empty stream.")
        return feature_spec(stack_features([first[1]], np.zeros(1, np.int64))), None

    images, columns = record_reader(source, None, 0)(np.zeros(1, np.int64))
    image = Column(images.array.dtype, images.array.shape[1:]) if isinstance(images, Pixels) else None
    return feature_spec(columns), image
