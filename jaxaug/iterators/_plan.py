"""From the arguments of a Loader to the parts of its pipeline."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jax.sharding import NamedSharding

from jaxaug.decode import Decoder
from jaxaug.iterators import _arguments
from jaxaug.iterators._arguments import Options
from jaxaug.iterators._batch_function import BatchFunction, computes_in_turn, row_shapes
from jaxaug.iterators._builder import BatchBuilder
from jaxaug.iterators._canvas import CanvasChoice, pick_canvas
from jaxaug.iterators._compile import CompiledBatch, compile_batch, configuration
from jaxaug.iterators._cpu_threads import deadlock_note
from jaxaug.iterators._features import mask_blank_value
from jaxaug.iterators._layout import RowLayout
from jaxaug.iterators._masks import MaskDecoder
from jaxaug.iterators._padding import ignores_size, one_sample
from jaxaug.iterators._protocol import Source, Stream
from jaxaug.iterators._reader import BatchPlan, Reader, RecordForm, RecordReader
from jaxaug.iterators._state import Cursor, RunIdentity, batches_per_epoch, start_of_batch
from jaxaug.iterators._stream_reader import StreamReader
from jaxaug.sharding._split import RowRange, local_row_ranges, spans_processes


@dataclasses.dataclass(frozen=True)
class Plan:
    """The parts of a Loader's pipeline, before any thread runs.

    Attributes:
      options: the arguments.
      reader: reads the source.
      batches: the cut of epochs into batches.
      layout: the places of the local rows.
      form: the form of a record.
      decoder: None where the source has pixels.
      masks: decodes masks; None where the source has no encoded ones.
      choice: the canvas, where the Loader picked it itself.
      function: the computation of a batch.
    """

    options: Options
    reader: Reader
    batches: BatchPlan
    layout: RowLayout
    form: RecordForm
    decoder: Decoder | None
    masks: MaskDecoder | None
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
    def builders(self) -> int:
        """The number of batches at once that keep decoder and device busy."""
        return 2 if self.decoder is None else self.decoder.in_flight

    @cached_property
    def run(self) -> RunIdentity:
        """The facts that a state must share with this Loader."""
        fingerprint = self.source.fingerprint()
        if not isinstance(fingerprint, str):
            raise TypeError(f"`source.fingerprint` must return a str, got {fingerprint!r}.")
        return RunIdentity(self.seed, fingerprint, self.reader.sampler_name, self.reader.length)

    @cached_property
    def compiled(self) -> CompiledBatch:
        """The compiled computation of a batch."""
        return self._compile(self.function)

    @cached_property
    def compiled_rows(self) -> CompiledBatch:
        """The compiled computation of a batch without the batch transform."""
        if self.function.batch_transform is None:
            return self.compiled
        return self._compile(self.function._replace(batch_transform=None))

    def _ignores_size(self) -> bool:
        transform = self.function.transform
        if transform is None:
            return False
        rows = self._row_shapes(self.function)["sample"]
        sample = one_sample(rows, self.function.canvas, self.function.channels)
        return ignores_size(transform, sample)

    def _compile(self, function: BatchFunction) -> CompiledBatch:
        return compile_batch(function, self._row_shapes(function), self.layout.devices)

    def _row_shapes(self, function: BatchFunction) -> dict[str, Any]:
        return row_shapes(
            len(self.layout.rows),
            self.reader.with_replacement,
            self.reader.wide_index,
            self.form,
            function.canvas,
            function.channels,
        )

    def make_builder(self, compiled: CompiledBatch, on_error: str) -> BatchBuilder:
        """Return a builder of batches by this computation.

        It does not refer to the user's functions, so that their owner can be collected.
        """
        return BatchBuilder(
            self.reader,
            self.decoder,
            self.masks,
            self.layout,
            compiled,
            self.function.canvas,
            self.seed,
            on_error,
        )

    def batches_per_epoch(self) -> int:
        """Return the number of batches of a whole epoch.

        Raises:
          TypeError: the source is a stream.
        """
        if self.reader.length is None:
            raise TypeError(
                "a Loader of a stream has no length: how many records it holds shows at its end."
            )
        return batches_per_epoch(self.reader.length, self.batches.batch_size, self.batches.drop)

    def start_of_batch(self, cursor: Cursor) -> Cursor:
        """Return the start of the batch at `cursor`, in the next epoch if this one is over."""
        if self.reader.length is None:
            return cursor
        return start_of_batch(
            cursor, self.reader.length, self.batches.batch_size, self.batches.drop
        )

    def facts(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the facts that must be the same on all processes, causes before consequences."""
        options = self.options
        sharding = self.layout.sharding
        device_ids = np.asarray(sharding.mesh.device_ids).tolist()
        return {
            "seed": self.seed,
            "shuffle": self.run.sampler,
            "batch_size": int(options.batch_size),
            "epochs": None if options.epochs is None else int(options.epochs),
            "last_batch": options.last_batch,
            "on_error": options.on_error,
            "max_bad": options.max_bad,
            "mask_fill": int(options.mask_fill),
            "transform": configuration(options.transform),
            "batch_transform": configuration(options.batch_transform),
            "sharding": f"{sharding.spec} over {dict(sharding.mesh.shape)} of {device_ids}",
            "fingerprint": self.run.fingerprint,
            "length": self.run.length,
            "canvas": (*map(int, self.function.canvas), self.function.channels),
            "element_spec": spec,
        }

    def notes(self, spec: dict[str, Any]) -> list[str]:
        """Return the warnings about JAX's threads, and about the canvas that the Loader picked."""
        note = deadlock_note(self.layout.devices)
        notes = [] if note is None else [note]
        if self.choice is None or self.choice.uniform:
            return notes
        if "size" not in spec and self._ignores_size():
            return [
                *notes,
                'the images have different sizes, and the "image" that `transform` returns does '
                'not depend on "size": it takes the black padding of the canvas for image. Give a '
                'chain the whole sample, as in `crop(key, sample)`, not `sample["image"]` alone, '
                'or use "size" yourself.',
            ]
        if "size" not in spec or "mask" in spec:
            return notes  # `mask_fill` says where there is no image

        height, width = self.choice.canvas
        return [
            *notes,
            f"the images have different sizes and lie on canvases of {height} x {width}, zero "
            'outside of their "size", which is still in the batch: let the transform end at one '
            "size, with CenterCrop, Resize or RandomResizedCrop, or have the model use "
            '"size" (a `canvas=` of your own says that it does).',
        ]


def make_plan(options: Options, sharding: NamedSharding) -> Plan:
    """Return the plan of a Loader with these options.

    Raises:
      ValueError, TypeError: options that do not fit each other, the source or the sharding.
    """
    batch_size = int(options.batch_size)
    reader = _make_reader(options)
    ranges = local_row_ranges(sharding, batch_size)
    _arguments.check_groups(options.batch_transform, ranges)
    _arguments.check_batch_size(reader.length, batch_size, options.drop)

    form = reader.read_first()
    _arguments.check_names(form.features)
    reader = dataclasses.replace(reader, form=form)

    choice = None
    if form.image is None:
        decoder, choice = _make_decoder(options, reader, ranges, sharding)
        ranges = _arguments.order_ranges(ranges, decoder)
        devices = decoder.devices
        canvas = decoder.canvas
        channels = decoder.channels
    else:
        _arguments.check_no_decoder(options.decoder, options.canvas)
        decoder = None
        devices = [each.devices[0] for each in ranges]
        canvas = (form.image.shape[0], form.image.shape[1])
        channels = 3

    layout = RowLayout(ranges, devices, sharding)
    in_turn = computes_in_turn(devices[0].platform, canvas)
    return Plan(
        options,
        reader,
        BatchPlan(batch_size, layout.rows, options.drop, options.epochs),
        layout,
        form,
        decoder,
        _make_masks(form, reader.mask_fill, decoder),
        choice,
        BatchFunction(
            options.transform,
            options.batch_transform,
            reader.mask_fill,
            canvas,
            channels,
            in_turn,
        ),
    )


def _make_masks(form: RecordForm, mask_fill: int, decoder: Decoder | None) -> MaskDecoder | None:
    """Return the decoder of masks; None where the source has no encoded ones."""
    if form.mask is None or decoder is None:
        return None
    fill = mask_blank_value(form.mask, mask_fill)
    return MaskDecoder(form.mask, decoder.canvas, fill, decoder.max_pixels)


def _make_reader(options: Options) -> Reader:
    """Return the reader of a stream or of a source: nothing else asks which of them it is."""
    source = options.source
    mask_fill = int(options.mask_fill)
    if isinstance(source, Stream):
        _arguments.check_stream_options(options)
        return StreamReader(source=source, mask_fill=mask_fill)

    sampler = _arguments.make_sampler(options.shuffle, len(source), int(options.seed))
    return RecordReader(source=source, mask_fill=mask_fill, sampler=sampler)


def _make_decoder(
    options: Options, reader: Reader, ranges: Sequence[RowRange], sharding: NamedSharding
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
        choice = pick_canvas(reader, int(options.seed))
        canvas = choice.canvas
    devices = [each.devices[0] for each in ranges]
    return Decoder(canvas, devices=devices, deterministic=shared), choice
