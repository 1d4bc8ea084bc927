"""From the arguments of a Loader to the parts of its pipeline."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import NamedSharding

from jaxaug.decode import Decoder
from jaxaug.iterators import _arguments
from jaxaug.iterators._arguments import Options
from jaxaug.iterators._builder import BatchBuilder, RowLayout, row_shapes, word_count
from jaxaug.iterators._canvas import CanvasChoice, pick_canvas
from jaxaug.iterators._compile import BatchFunction, CompiledBatch, compile_batch
from jaxaug.iterators._features import Column, FeatureSpec, feature_spec, stack_features
from jaxaug.iterators._protocol import Pixels, Source, Stream
from jaxaug.iterators._reader import BatchPlan, ReadRecords, record_reader
from jaxaug.iterators._sampler import Sampler, sampler_name
from jaxaug.sharding._split import Part, local_parts, spans_processes


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that a Loader's options lead to, before any thread runs.

    Attributes:
      options: the arguments.
      order, read: the order of the records, and how to read them; None for a stream.
      batches: how batches are cut.
      layout: where the local rows lie.
      features: the form of a record's features.
      image: the form of a row of pixels; None where a decoder makes them.
      decoder: None where the source has pixels.
      choice: the canvas, where the Loader picked it itself.
      function: the computation of a batch.
    """

    options: Options
    sampler: Sampler | None
    read: ReadRecords | None
    batches: BatchPlan
    layout: RowLayout
    features: FeatureSpec
    image: Column | None
    decoder: Decoder | None
    choice: CanvasChoice | None
    function: BatchFunction

    @property
    def source(self) -> Source | Stream:
        """The source of the records."""
        return self.options.source

    @property
    def seed(self) -> int:
        """The seed of the order and of every key."""
        return int(self.options.seed)

    @property
    def own_decoder(self) -> Decoder | None:
        """The decoder that ends with the Loader."""
        return None if self.options.decoder is not None else self.decoder

    @property
    def mask_fill(self) -> int:
        """The value of integer masks where there is no image."""
        return self.function.mask_fill

    @property
    def sampler_name(self) -> str:
        """The name that a state knows the order by."""
        return "Stream" if self.sampler is None else sampler_name(self.sampler)

    @property
    def builders(self) -> int:
        """How many batches at once keep decoder and device busy."""
        return 2 if self.decoder is None else self.decoder.in_flight

    def compile(self, batch_transform: bool = True) -> CompiledBatch:
        """Compile the computation of a batch, with or without the batch transform."""
        function = self.function
        if not batch_transform:
            function = function._replace(batch_transform=None)
        rows = row_shapes(
            len(self.layout.rows),
            word_count(self.sampler),
            self.features,
            self.image,
            function.canvas,
        )
        return compile_batch(function, rows, self.layout.devices)

    def make_builder(self, compiled: CompiledBatch, on_error: str) -> BatchBuilder:
        """Return what makes batches by this computation; it does not refer to the user's functions."""
        return BatchBuilder(
            self.source,
            self.sampler,
            self.read,
            self.decoder,
            self.layout,
            compiled,
            self.function.canvas,
            self.mask_fill,
            self.seed,
            on_error,
        )

    def facts(self) -> dict[str, Any]:
        """Return what must be the same on all processes, causes before what follows from them."""
        options = self.options
        sharding = self.layout.sharding
        return {
            "seed": self.seed,
            "shuffle": self.sampler_name,
            "batch_size": int(options.batch_size),
            "epochs": None if options.epochs is None else int(options.epochs),
            "last_batch": options.last_batch,
            "on_error": options.on_error,
            "sharding": (
                f"{sharding.spec} over {dict(sharding.mesh.shape)} of {np.asarray(sharding.mesh.device_ids).tolist()}"
            ),
            "fingerprint": self.source.fingerprint(),
            "length": None if self.sampler is None else self.sampler.length,
            "canvas": tuple(map(int, self.function.canvas)),
        }

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


def make_plan(options: Options, sharding: NamedSharding) -> Plan:
    """Return the plan of a Loader with these options.

    Raises:
      ValueError, TypeError: options that do not fit each other, the source or the sharding.
    """
    source = options.source
    batch_size = int(options.batch_size)
    sampler = _arguments.make_sampler(source, options.shuffle, int(options.seed), options.on_error)
    parts = local_parts(sharding, batch_size)
    _arguments.check_groups(options.batch_transform, parts)
    _arguments.check_batch_size(sampler, batch_size, options.drop)
    features, image = _first_record(source)
    _arguments.check_names(list(features))

    choice = None
    if image is None:
        decoder, choice = _decoder_of(options, parts, sharding)
        parts = _arguments.order_parts(parts, decoder)
        devices = decoder.devices
        canvas = decoder.canvas
    else:
        _arguments.check_no_decoder(options.decoder, options.canvas)
        decoder = None
        devices = [part.devices[0] for part in parts]
        canvas = (image.shape[0], image.shape[1])

    layout = RowLayout(parts, devices, sharding)
    mask_fill = int(options.mask_fill)
    return Plan(
        options,
        sampler,
        None if isinstance(source, Stream) else record_reader(source, features, mask_fill),
        BatchPlan(batch_size, layout.rows, options.drop, options.epochs),
        layout,
        features,
        image,
        decoder,
        choice,
        BatchFunction(options.transform, options.batch_transform, mask_fill, canvas),
    )


def _decoder_of(
    options: Options, parts: Sequence[Part], sharding: NamedSharding
) -> tuple[Decoder, CanvasChoice | None]:
    """Return the user's decoder, or a new one; with the canvas if that was picked here."""
    shared = spans_processes(sharding)
    if options.decoder is not None:
        if shared:
            _arguments.check_replicas(options.decoder)
        return options.decoder, None

    choice = None
    canvas = options.canvas
    if canvas is None:
        choice = pick_canvas(options.source, int(options.seed))
        canvas = choice.canvas
    devices = [part.devices[0] for part in parts]
    return Decoder(canvas, devices=devices, deterministic=shared), choice


def _first_record(source: Source | Stream) -> tuple[FeatureSpec, Column | None]:
    """Return the form of the first record's features, and of its pixels if it has any."""
    if isinstance(source, Stream):
        first = next(source.iterate(), None)
        if first is None:
            raise ValueError("`source` must yield at least one record, got an empty stream.")
        return feature_spec(stack_features([first[1]], np.zeros(1, np.int64))), None

    images, columns = record_reader(source, None, 0)(np.zeros(1, np.int64))
    image = (
        Column(images.array.dtype, images.array.shape[1:]) if isinstance(images, Pixels) else None
    )
    return feature_spec(columns), image
