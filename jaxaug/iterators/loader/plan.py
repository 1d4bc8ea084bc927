"""From the arguments of a Loader to the parts of its pipeline."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from jaxaug._cached import cached_property
from jaxaug._typing import Device, Values
from jaxaug.decode import ColumnDecoder, Decoder, default_decoder, describe
from jaxaug.errors import DecodeError
from jaxaug.iterators.loader import arguments
from jaxaug.iterators.loader.arguments import Options
from jaxaug.iterators.loader.batch_function import BatchFunction, computes_in_turn
from jaxaug.iterators.loader.builder import BatchBuilder, BatchForm, KeepingBuilder
from jaxaug.iterators.loader.columns import Columns, count_rows, form_of, take_rows
from jaxaug.iterators.loader.compile import (
    CompiledBatch,
    RowGather,
    compile_batch,
    configuration,
)
from jaxaug.iterators.loader.cpu_threads import deadlock_note
from jaxaug.iterators.loader.decode import ColumnsDecoder
from jaxaug.iterators.loader.dependence import depends
from jaxaug.iterators.loader.device_store import DeviceStore
from jaxaug.iterators.loader.host_store import DiskStore, HostStore
from jaxaug.iterators.loader.kept import KeepingReader, RecordStore
from jaxaug.iterators.loader.mixed_store import MixedStore
from jaxaug.iterators.loader.reader import BatchPlan, Reader, RecordReader, SourceColumn
from jaxaug.iterators.loader.rows import RowSchema
from jaxaug.iterators.loader.state import Cursor, RunIdentity, batches_per_epoch, start_of_batch
from jaxaug.iterators.loader.stream_reader import StreamReader
from jaxaug.iterators.samplers.sampler import Sampler, Sequential
from jaxaug.iterators.sources.protocol import Source, Stream
from jaxaug.sharding._assemble import RowLayout
from jaxaug.sharding._mesh import local_row_ranges, spans_processes

_MAX_LOOKED_AT = 16  # records whose floats are looked at, beside the first


@dataclasses.dataclass(frozen=True)
class Plan:
    """The parts of a Loader's pipeline, before any thread runs.

    Attributes:
      options: the arguments.
      reader: reads the source.
      batches: the cut of epochs into batches.
      layout: the places of the local rows.
      schema: the form of the rows.
      decoder: of all columns.
      function: the computation of a batch.
      store: of the records that are kept; None without `keep`.
    """

    options: Options
    reader: Reader
    batches: BatchPlan
    layout: RowLayout
    schema: RowSchema
    decoder: ColumnsDecoder
    function: BatchFunction
    store: RecordStore | None = None

    @property
    def source(self) -> Source | Stream:
        """The source of the records."""
        return self.options.source

    @property
    def running(self) -> dict[str, Any]:
        """The running decoders by column."""
        return {
            name: getattr(each, "running", each) for name, each in self.decoder.decoders.items()
        }

    @property
    def builders(self) -> int:
        """The number of batches at once that keep decoders and device busy."""
        return self.decoder.in_flight

    @property
    def depth(self) -> int:
        """How many batches are being built or wait for the consumer."""
        depth = self.options.prefetch + self.builders
        # The device computes a run while the one before it is taken.
        return depth if self.store is None else max(depth, self.store.run + 1)

    @property
    def counted(self) -> list[str]:
        """What the decoders count."""
        return [name for each in self.schema.decoders.values() for name in each.counted]

    @cached_property
    def run(self) -> RunIdentity:
        """The facts that a state must share with this Loader."""
        fingerprint = self.source.fingerprint()
        if not isinstance(fingerprint, str):
            raise TypeError(f"`source.fingerprint` must return a str, got {fingerprint!r}.")
        return RunIdentity(
            self.options.seed, fingerprint, self.reader.sampler_name, self.reader.length
        )

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

    def _compile(
        self,
        function: BatchFunction,
        run: int = 1,
        schema: RowSchema | None = None,
        gather: RowGather | None = None,
    ) -> CompiledBatch:
        layout = self.layout
        return compile_batch(
            function,
            self.schema if schema is None else schema,
            len(layout.rows),
            layout.devices,
            run,
            layout.output,
            eager=self.reader.bounded is None,
            gather=gather,
        )

    def _bucket(self, bound: float) -> BatchForm:
        """Return the form of the batches of a bucket."""
        assert self.reader.bounded is not None
        schema = self.schema.within(self.reader.bounded, bound)
        function = self.function._replace(decoders=tuple(schema.decoders.items()))
        return BatchForm(schema, self._compile(function, schema=schema))

    def make_batch_builder(self) -> BatchBuilder:
        """Return the builder of the batches that are delivered."""
        on_error = self.options.on_error
        parts = self._parts(self.compiled, on_error)
        if self.store is None:
            parts["forms"] |= {bound: self._bucket(bound) for bound in self.reader.bounds}
            return BatchBuilder(**parts)
        compiled_run = self.compiled
        platform = self.layout.devices[0].platform
        if self.store.run > 1 or self.store.gather is not None or platform != "cpu":
            function = self.function._replace(all_valid=True)
            compiled_run = self._compile(function, self.store.run, gather=self.store.gather)
        return KeepingBuilder(self.store, compiled_run, **parts)

    def make_builder(self, compiled: CompiledBatch, on_error: str) -> BatchBuilder:
        """Return a builder of batches by this computation.

        It does not refer to the user's functions, so that their owner can be collected.
        """
        return BatchBuilder(**self._parts(compiled, on_error))

    def _parts(self, compiled: CompiledBatch, on_error: str) -> dict[str, Any]:
        return {
            "reader": self.reader,
            "decoder": self.decoder,
            "forms": {None: BatchForm(self.schema, compiled)},
            "layout": self.layout,
            "seed": self.options.seed,
            "on_error": on_error,
        }

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
            "seed": self.options.seed,
            "shuffle": self.run.sampler,
            "batch_size": options.batch_size,
            "epochs": options.epochs,
            "last_batch": options.last_batch,
            "on_error": options.on_error,
            "max_bad": options.max_bad,
            "transform": configuration(options.transform),
            "batch_transform": configuration(options.batch_transform),
            "sharding": f"{sharding.spec} over {dict(sharding.mesh.shape)} of {device_ids}",
            "fingerprint": self.run.fingerprint,
            "length": self.run.length,
            "decode": {name: repr(each) for name, each in self.schema.decoders.items()},
            "element_spec": spec,
        }

    def notes(self, spec: dict[str, Any]) -> list[str]:
        """Return the warnings about JAX's threads, about bounds, and those of the decoders."""
        notes = [deadlock_note(self.layout.devices), self._bounds_note()]
        notes = [note for note in notes if note is not None]
        for name, decoder in self.schema.decoders.items():
            notes += decoder.notes(name, spec, self._ignores)
        return notes

    def _bounds_note(self) -> str | None:
        """Return a warning where buckets cut nothing, as by lengths in another unit."""
        of, bounds = self.reader.bounded, self.reader.bounds
        if of is None or len(bounds) < 2:
            return None
        if self._sample_of(self.schema.within(of, bounds[0])) != self._sample_of(self.schema):
            return None
        return (
            f"`shuffle`: the first of its bounds, {bounds[0]:g}, already holds the longest {of!r},"
            " so that every batch has the longest form: `lengths` and `bounds` must be in the"
            " column's unit (seconds of Audio, numbers of Tokenized and of arrays, height over"
            " width of Image), with a bound below the longest."
        )

    def _ignores(self, output: str, entry: str) -> bool:
        """Return True where an output of a function of the user's does not depend on an entry."""
        transform = self.function.transform
        if transform is None:
            return False
        return not depends(transform, self._sample_of(self.schema), output, entry)

    def _sample_of(self, schema: RowSchema) -> dict[str, Any]:
        """Return the shapes of the sample that the transform is given for rows of a schema.

        Some decoders cut their arrays only where they place them.
        """
        function = self.function._replace(decoders=tuple(schema.decoders.items()))
        return jax.eval_shape(function.sample_of, schema.shapes(1))


def make_plan(options: Options, sharding: NamedSharding) -> Plan:
    """Return the plan of a Loader with these options.

    Raises:
      ValueError, TypeError: options that do not fit each other, the source or the sharding.
    """
    batch_size = options.batch_size
    reader = _make_reader(options)
    ranges = local_row_ranges(sharding, batch_size)
    arguments.check_groups(options.batch_transform, ranges)
    arguments.check_batch_size(reader.length, batch_size, options.drop)

    first = reader.read_first()
    forms = {name: form_of(values) for name, values in first.items()}
    reader = dataclasses.replace(reader, forms=forms)
    given = _declared(options, first)
    lent = {name: each for name, each in given.items() if isinstance(each, Decoder)}
    devices = None
    for each in lent.values():
        ranges = arguments.order_ranges(ranges, each)
        devices = devices or each.devices
    devices = devices or [each.devices[0] for each in ranges]

    layout = RowLayout(ranges, devices, sharding)
    shared = spans_processes(sharding)
    fitted = _fit(given, first, reader, options.seed, shared)
    running: dict[str, Any] = {}
    decoder = ColumnsDecoder(running, options.seed, reader.with_replacement, list(lent))
    with ThreadPoolExecutor(1, thread_name_prefix="jaxaug-open") as pool:
        opened = pool.submit(_open, running, lent, fitted, layout.devices, shared)
        try:
            plan = _plan_of(options, first, reader, fitted, layout, decoder)
            _ = plan.compiled  # while the engines of GPUs start, which takes as long
            opened.result()
        except BaseException:
            wait([opened])
            decoder.close()
            raise
    return plan


def _plan_of(
    options: Options,
    first: Columns,
    reader: Reader,
    fitted: dict[str, ColumnDecoder],
    layout: RowLayout,
    decoder: ColumnsDecoder,
) -> Plan:
    """Return the plan of a Loader whose decoders are fitted, and maybe not yet running."""
    schema = RowSchema(reader.forms or {}, fitted, reader.with_replacement, reader.wide_index)
    arguments.check_names(schema.forms, fitted)
    for name, each in fitted.items():
        each.check_transform(name, options.transform)
    _check_values(options.transform, first, fitted, reader, options.seed)
    reader = _with_parts(reader, fitted, options.seed)
    store, reader = _keep(options, first, reader, schema, layout)
    function = BatchFunction(
        options.transform,
        options.batch_transform,
        tuple(fitted.items()),
        computes_in_turn(layout.devices[0].platform, fitted),
    )
    return Plan(
        options=options,
        reader=reader,
        batches=BatchPlan(options.batch_size, layout.rows, options.drop, options.epochs),
        layout=layout,
        schema=schema,
        decoder=decoder,
        function=function,
        store=store,
    )


def _check_values(
    transform: Any,
    first: Columns,
    decoders: Mapping[str, ColumnDecoder],
    reader: Reader,
    seed: int,
) -> None:
    """Let a transform that can look at a few records do so: it is traced from then on."""
    check = getattr(transform, "check_values", None)
    if check is None:
        return
    sample = {name: _to_look_at(values, decoders.get(name)) for name, values in first.items()}
    sample = {name: value for name, value in sample.items() if value is not None}
    check(sample)
    if not isinstance(reader, RecordReader):  # a stream may have to wait for more of them
        return
    for name, value in sample.items():
        if value.ndim in (2, 3) and np.issubdtype(value.dtype, np.floating):
            for values in reader.read_sample(name, _MAX_LOOKED_AT, seed):
                for row in range(count_rows(values)):
                    more = _to_look_at(take_rows(values, slice(row, row + 1)), decoders.get(name))
                    check({} if more is None else {name: more})


def _to_look_at(values: Values, decoder: ColumnDecoder | None) -> np.ndarray | None:
    """Return the value of one record where a transform may have to see it."""
    if isinstance(values, np.ndarray):
        return values[0]
    if decoder is None:
        return None
    forms = decoder.forms().values()
    if any(len(form.shape) == 3 and np.issubdtype(form.dtype, np.floating) for form in forms):
        with contextlib.suppress(DecodeError):  # `on_error` says what becomes of it
            return decoder.original(values)
    return None


def _with_parts(reader: Reader, fitted: Mapping[str, ColumnDecoder], seed: int) -> Reader:
    """Return a reader that reads no more than the decoders need, where both can."""
    parts = {name: each for name, each in fitted.items() if each.reads_parts}
    if not parts or not isinstance(reader, RecordReader):
        return reader
    return dataclasses.replace(reader, parts=parts, seed=seed)


def _keep(
    options: Options, first: Columns, reader: Reader, schema: RowSchema, layout: RowLayout
) -> tuple[RecordStore | None, Reader]:
    """Return the store of the records that are kept, and the reader of the others."""
    if options.keep is None:
        return None, reader
    assert isinstance(reader, RecordReader)
    arguments.check_kept(options.keep, schema.decoders)
    columns = {
        name: SourceColumn(name, first[name], reader, options.seed) for name in schema.decoders
    }
    expected = schema.expected_extents(columns)
    store = _make_store(options, reader, schema, layout, expected)
    keeping = KeepingReader(
        source=reader.source,
        forms=reader.forms,
        copies=reader.copies,
        sampler=reader.sampler,
        store=store,
        replaces=options.on_error == "replace",
    )
    return store, keeping


def _make_store(
    options: Options, reader: RecordReader, schema: RowSchema, layout: RowLayout, expected: Any
) -> RecordStore:
    """Return the store that `keep` names, of rows with these extents."""
    length = len(reader.source)
    share = arguments.device_share(options.keep)
    if share is not None:
        needed = _count_needed(reader.sampler, length, layout, options.batch_size)
        return _make_device_store(
            schema,
            length,
            layout,
            expected=expected,
            needed=needed,
            share=share,
            keep=str(options.keep),
        )
    if options.keep == "host":
        return HostStore(schema, length, layout, expected=expected)
    directory = Path(str(options.keep).removeprefix(arguments.DISK))
    return DiskStore(schema, layout, directory, reader.source, expected=expected)


def _count_needed(sampler: Sampler, length: int, layout: RowLayout, batch_size: int) -> int:
    """Return how many records this process needs over all epochs.

    Of an order that is the same in each they are those at its rows of the batches; of any other
    they are all, in time.
    """
    if not isinstance(sampler, Sequential):
        return length
    batches, rest = divmod(length, batch_size)
    return batches * len(layout.rows) + int(np.count_nonzero(layout.rows < rest))


def _make_device_store(
    schema: RowSchema,
    length: int,
    layout: RowLayout,
    *,
    expected: Any,
    needed: int,
    share: float,
    keep: str,
) -> RecordStore:
    """Return a store on devices for a share of the records that this process needs.

    The others go to the host, and so do those that come unforeseen: in the place of bad records,
    after a resume amid a batch of another size, or where rows take more than those of a sample.
    """
    room = max(int(share * needed), 1)
    device = DeviceStore(
        schema, length, layout, expected=expected, room=room, share=share, keep=keep
    )
    if room == length and not device.is_tight:
        return device
    rest = HostStore(
        schema,
        length,
        layout,
        expected=expected,
        room=length if device.is_tight else length - room,
        planned=needed - room,
        keep=keep,
    )
    return MixedStore(device, rest, rows=schema, length=length, layout=layout)


def _make_reader(options: Options) -> Reader:
    """Return the reader of a stream or of a source: nothing else asks which of them it is."""
    source = options.source
    if isinstance(source, Stream):
        arguments.check_stream_options(options)
        return StreamReader(source=source)

    sampler = arguments.make_sampler(options.shuffle, len(source), options.seed, options.batch_size)
    copies = {}
    if isinstance(options.decode, Mapping):
        given = options.decode.items()
        copies = {name: each.reads for name, each in given if getattr(each, "reads", None)}
    return RecordReader(source=source, sampler=sampler, copies=copies)


def _declared(options: Options, first: Columns) -> dict[str, ColumnDecoder | Decoder]:
    """Return the decoders of the columns: the user's, else the source's, else by their names."""
    given = options.decode
    if given is None:
        given = {}
    elif not isinstance(given, Mapping):
        # A decoder without a name is that of "image", or of the only encoded column.
        encoded = [name for name, values in first.items() if form_of(values).kind == "Encoded"]
        only = encoded[0] if len(encoded) == 1 and "image" not in first else "image"
        given = {only: given}
    unknown = sorted(set(given) - set(first))
    if unknown:
        raise ValueError(
            f"`decode` must name columns of the source, {sorted(first)}, got {unknown}: write"
            f" {next(iter(first))!r}, or iterators.Renamed(source, {{{next(iter(first))!r}:"
            f" {unknown[0]!r}}}); texts become columns by"
            f" Renamed(source, texts={{{unknown[0]!r}: {unknown[0]!r}}})."
        )

    declared = getattr(options.source, "decoders", {})
    chosen: dict[str, ColumnDecoder | Decoder] = {}
    for name, values in first.items():
        if name in given:
            decoder = given[name]
        else:
            decoder = declared.get(name) or default_decoder(name, values)
        if decoder is not None:
            chosen[name] = decoder
        elif form_of(values).kind == "Encoded":
            raise ValueError(
                f"`decode` must say how column {name!r} is decoded, which holds encoded bytes: "
                f"give decode={{{name!r}: Image()}}, Mask() for a mask of the image, "
                "Tokenized(...) for texts, Volume(...), or another decoder."
            )
    return _in_order(chosen, set(given))


def _in_order(
    decoders: Mapping[str, ColumnDecoder | Decoder], asked: set[str]
) -> dict[str, ColumnDecoder | Decoder]:
    """Return the decoders, each behind the one that it follows.

    A column that follows one which is not there is left as it is, unless the user named it.
    """
    ordered: dict[str, ColumnDecoder | Decoder] = {}
    waiting = dict(decoders)
    while waiting:
        ready = [
            name
            for name, each in waiting.items()
            if isinstance(each, Decoder) or each.follows() in (None, *ordered)
        ]
        if not ready:
            break
        for name in ready:
            ordered[name] = waiting.pop(name)

    for name, each in waiting.items():
        if name in asked and isinstance(each, ColumnDecoder):
            raise ValueError(
                f"`decode`: column {name!r} follows column {each.follows()!r}, which has no "
                "decoder: name another one."
            )
    return ordered


def _fit(
    given: Mapping[str, ColumnDecoder | Decoder],
    first: Columns,
    reader: Reader,
    seed: int,
    shared: bool,
) -> dict[str, ColumnDecoder]:
    """Return the decoders fitted to their columns."""
    fitted: dict[str, ColumnDecoder] = {}
    for name, each in given.items():
        if not isinstance(each, Decoder):
            fitted[name] = each.fit(SourceColumn(name, first[name], reader, seed), fitted)
            continue
        found = form_of(first[name])
        if found.kind != "Encoded":
            raise ValueError(
                "`decode` must be a description such as Image() for an array of pixels, "
                f"or leave it out, got a Decoder for column {name!r}, which is {found}."
            )
        fitted[name] = describe(each, deterministic=shared)
    return fitted


def _open(
    running: dict[str, Any],
    lent: Mapping[str, Decoder],
    fitted: Mapping[str, ColumnDecoder],
    devices: Sequence[Device],
    shared: bool,
) -> None:
    """Add the running decoders of all columns to `running`, in their order."""
    for name, each in fitted.items():
        running[name] = lent[name] if name in lent else each.open(devices, shared)
