"""Checks of a Loader's arguments: each by itself, against each other, and against the source."""

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jaxaug._checks import (
    check_choice,
    check_positive_int,
    check_probability,
    is_int,
    takes_two,
)
from jaxaug.decode import ColumnDecoder, Decoder
from jaxaug.iterators.loader.batch_function import Transform, group_size
from jaxaug.iterators.loader.state import batches_per_epoch
from jaxaug.iterators.samplers.sampler import Sampler, Sequential, Shuffled, check_sampler
from jaxaug.iterators.sources.protocol import Source, Stream
from jaxaug.sharding._mesh import RowRange

# Entries that the Loader itself puts into a batch.
_RESERVED = {"valid", "index"}
DISK = "disk:"  # begins a `keep` that names a directory
_DEVICE = "device:"  # and one that names a share

# What other loaders call an argument, and what is written here.
_ELSEWHERE = {
    "drop_last": "write last_batch='drop', which is the default, or 'pad'",
    "num_workers": "leave it out: threads read and decode, decode.Image(num_threads=) of them",
    "pin_memory": "leave it out: batches are on the devices",
    "persistent_workers": "leave it out: there are no worker processes",
    "prefetch_factor": "write prefetch=, in batches",
    "sampler": "write shuffle=, which takes a sampler, too",
    "collate_fn": "write batch_transform=, a function of (key, group); arrays are stacked anyway",
    "generator": "write seed=",
    "worker_init_fn": "write seed=, from which all draws come",
    "num_threads": "write decode=Image(num_threads=)",
    "canvas": "write decode=Image(canvas=(height, width))",
    "channels": "write decode=Image(channels=)",
    "dtype": "write decode=Image(dtype=)",
    "bands": "write decode=Image(bands=)",
}


@dataclasses.dataclass(frozen=True)
class Options:
    """The arguments of a Loader, see there."""

    source: Source | Stream
    batch_size: int
    transform: Transform | None
    batch_transform: Transform | None
    seed: int
    shuffle: bool | Sampler
    epochs: int | None
    decode: Any
    max_bad: float | None
    last_batch: str
    on_error: str
    prefetch: int
    keep: str | None = None

    @property
    def drop(self) -> bool:
        """True if the tail of an epoch is dropped."""
        return self.last_batch == "drop"


def check_known(unknown: Mapping[str, Any]) -> None:
    """Refuse arguments that a Loader does not have, and tell what stands for those of others."""
    for name in unknown:
        known = ", ".join(field.name for field in dataclasses.fields(Options))
        remedy = _ELSEWHERE.get(name, f"it has {known} and sharding")
        raise TypeError(f"Loader has no argument `{name}`: {remedy}.")


def checked_options(options: Options) -> Options:
    """Return the arguments, numbers of NumPy as Python's; refuse what is wrong by itself."""
    _check_source(options.source)
    check_positive_int("batch_size", options.batch_size)
    check_positive_int("prefetch", options.prefetch)
    check_choice("last_batch", options.last_batch, ("drop", "pad"))
    check_choice("on_error", options.on_error, ("raise", "mask", "replace"))
    _check_keep(options.keep)
    if options.epochs is not None:
        check_positive_int("epochs", options.epochs)

    if not is_int(options.seed) or not 0 <= options.seed < 2**64:
        raise ValueError(f"`seed` must be an int in [0, 2^64), got {options.seed!r}.")
    if not isinstance(options.shuffle, (bool, Sampler)):
        raise TypeError(f"`shuffle` must be True, False or a `Sampler`, got {options.shuffle!r}.")

    if options.max_bad is not None:
        check_probability("max_bad", options.max_bad)

    _check_buckets(options)
    _check_function("transform", options.transform, "sample")
    _check_function("batch_transform", options.batch_transform, "group")
    given = options.decode if isinstance(options.decode, Mapping) else {"image": options.decode}
    for name, decoder in given.items():
        if decoder is not None and not isinstance(decoder, (ColumnDecoder, Decoder)):
            raise TypeError(
                f"`decode` must be a decoder such as decode.Image(canvas=(512, 512)), or a dict of "
                f"them by column, got {decoder!r} for column {name!r}."
            )
    return dataclasses.replace(
        options,
        batch_size=int(options.batch_size),
        seed=int(options.seed),
        epochs=None if options.epochs is None else int(options.epochs),
    )


def _check_keep(keep: Any) -> None:
    """Refuse what names no place for decoded records."""
    on_disk = isinstance(keep, str) and keep.startswith(DISK) and keep != DISK
    if keep not in (None, "host") and not on_disk and device_share(keep) is None:
        raise ValueError(
            "`keep` must be None, 'device', 'device:SHARE' with a share of the records in (0, 1), "
            f"'host' or 'disk:DIR' with a directory, got {keep!r}."
        )


def device_share(keep: Any) -> float | None:
    """Return the share of the records that devices keep; None where `keep` names no devices."""
    if keep == "device":
        return 1.0
    if not isinstance(keep, str) or not keep.startswith(_DEVICE):
        return None
    try:
        share = float(keep.removeprefix(_DEVICE))
    except ValueError:
        return None
    return share if 0 < share < 1 else None


def _check_buckets(options: Options) -> None:
    """Refuse what would bring records of another bucket, or another form, into a batch."""
    of = getattr(options.shuffle, "of", None)
    if of is None:
        return
    if options.on_error == "replace":
        raise ValueError(
            "`on_error` must be 'raise' or 'mask' where `shuffle` has buckets, got 'replace': the"
            f" next record may be longer than the batch. Or leave `of`={of!r} out."
        )
    if options.keep is not None:
        raise ValueError(
            "`keep` must be None where `shuffle` has buckets, as records are kept in one form, got"
            f" {options.keep!r}: or leave `of`={of!r} out."
        )


def _check_source(source: Any) -> None:
    """Refuse a source that is neither a `Source` nor a `Stream`."""
    if isinstance(source, type):
        raise TypeError(f"`source` is the class {source.__name__}: write {source.__name__}(...).")
    if isinstance(source, (Source, Stream)):
        return

    has_items = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if isinstance(source, (str, os.PathLike)):
        remedy = "open the path by a source such as ImageFolder(path)"
    elif has_items and not isinstance(source, (list, tuple)):
        remedy = "wrap it in jaxaug.iterators.RandomAccess"
    else:
        remedy = (
            "wrap lists in InMemory, items with `[]` and `len` in RandomAccess and iterables in "
            "FromIterable"
        )
    raise TypeError(
        "`source` must have __len__, read, describe and fingerprint, got "
        f"{type(source).__name__}: see jaxaug.iterators.Source, or {remedy}."
    )


def _check_function(name: str, function: Any, given: str) -> None:
    """Refuse a transform that is no function of (key, `given`), or a class."""
    if isinstance(function, type):
        raise TypeError(
            f"`{name}` is the class {function.__name__}: write {function.__name__}(...)."
        )
    if function is not None and not callable(function):
        raise TypeError(
            f"`{name}` must be a function (key, {given}) -> {given}, got "
            f"{type(function).__name__}: jaxaug.augment's `Compose` makes one of a list."
        )
    if function is not None and not takes_two(function):
        raise TypeError(
            f"`{name}` must take two arguments, (key, {given}), got {function!r}: write "
            f"def function(key, {given})."
        )


def check_stream_options(options: Options) -> None:
    """Refuse options that only a source with random access can follow."""
    if options.shuffle is not False:
        raise ValueError(
            "`shuffle` must be False for a stream, which has an order of its own, got "
            f"{options.shuffle!r}."
        )
    if options.on_error == "replace":
        raise ValueError(
            "`on_error` must be 'raise' or 'mask' for a stream, got 'replace': it has no other "
            "records."
        )
    if options.keep is not None:
        raise ValueError(
            f"`keep` must be None for a stream, whose records cannot be read by number, got "
            f"{options.keep!r}."
        )


def check_kept(keep: str, decoders: Mapping[str, ColumnDecoder]) -> None:
    """Refuse to keep what another epoch, or a later run, may decode otherwise."""
    for name, decoder in decoders.items():
        if decoder.draws:
            raise ValueError(
                f"`keep` must be None where decoding is random, got {keep!r}: column {name!r} "
                f"shows something else in each epoch, by {decoder!r}. Give one that draws nothing, "
                "as by another `start`."
            )
        values = [getattr(decoder, field.name) for field in dataclasses.fields(decoder)]
        has_function = any(callable(value) and not isinstance(value, type) for value in values)
        if has_function and keep.startswith(DISK):
            raise ValueError(
                "`keep` must be None, 'host' or 'device' where a function decodes, which a later "
                f"run cannot tell from another, got {keep!r}: column {name!r} has {decoder!r}."
            )


def make_sampler(shuffle: bool | Sampler, count: int, seed: int, batch_size: int) -> Sampler:
    """Return the sampler of a source of `count` records.

    Raises:
      ValueError: `shuffle` is a sampler for another source, or for other batches.
    """
    if isinstance(shuffle, bool):
        return Shuffled(count, seed) if shuffle else Sequential(count)
    check_sampler(shuffle, count)
    wanted = getattr(shuffle, "batch_size", batch_size)
    if wanted % batch_size:
        raise ValueError(
            f"`batch_size` must be that of `shuffle`, {wanted}, or divide it, got {batch_size}:"
            " batches would hold records of several buckets."
        )
    return shuffle


def check_batch_size(length: int | None, batch_size: int, drop: bool) -> None:
    """Refuse a batch size that leaves an epoch of `length` records without a batch."""
    if length is not None and batches_per_epoch(length, batch_size, drop) == 0:
        raise ValueError(
            f"`batch_size` must be at most {length}, the records of an epoch, got {batch_size}: "
            "take a smaller one, or last_batch='pad'."
        )


def check_groups(batch_transform: Transform | None, ranges: Sequence[RowRange]) -> None:
    """Refuse shards that do not hold whole groups of a batch transform."""
    if batch_transform is None:
        return
    rows = ranges[0].length
    size = group_size(batch_transform)
    if rows % size:
        raise ValueError(
            f"`batch_size` must give each shard a multiple of {size} rows, the group of "
            f"`batch_transform`, got {rows} rows a shard."
        )


def check_names(names: Collection[str], decoders: Mapping[str, ColumnDecoder]) -> None:
    """Refuse columns with the names of a batch's own entries, and those that would share others.

    Args:
      names: of the columns.
      decoders: by column; they may make entries beside it.
    """
    made_by: dict[str, str] = {}
    for name, decoder in decoders.items():
        made = [entry for entry in decoder.entries(name) if entry != name]
        if both := [entry for entry in made if entry in made_by]:
            raise ValueError(
                f"`source` must not have columns {made_by[both[0]]!r} and {name!r}, which both make"
                f" the entries {', '.join(map(repr, both))}: rename one of them, as by"
                f" iterators.Renamed(source, {{{name!r}: 'second'}})."
            )
        made_by |= dict.fromkeys(made, name)
    if "image" in names and made_by.get("size", "image") != "image":
        raise ValueError(
            f"`source` must not have an 'image' without a size beside {made_by['size']!r}, whose "
            "'size' transforms would take for that of the image: rename it, as by "
            "iterators.Renamed(source, {'image': 'picture'})."
        )
    own = {*_RESERVED, *made_by}
    taken = sorted(own & set(names))
    if taken:
        raise ValueError(
            f"`source` must not have a feature named {', '.join(map(repr, taken))}: a batch's own "
            f"entries are {', '.join(map(repr, sorted(own)))}. Rename it, or leave it out."
        )


def order_ranges(ranges: Sequence[RowRange], decoder: Decoder) -> list[RowRange]:
    """Return the ranges of rows in the order of the decoder's devices.

    Raises:
      ValueError: the decoder has not one device for each.
    """
    by_device = {device: each for each in ranges for device in each.devices}
    found = [by_device[device] for device in decoder.devices if device in by_device]
    one_each = len(found) == len(decoder.devices) == len(ranges) == len(set(found))
    if not one_each:
        raise ValueError(
            f"`decode` must have one device for each of {len(ranges)} local shards, such as "
            f"{[each.devices[0] for each in ranges]}, got {list(decoder.devices)}."
        )
    return found
