"""Checks of a Loader's arguments that need more than one of them, and what follows from them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxaug._checks import check_choice, check_positive_int, check_size, is_int
from jaxaug.decode import Decoder
from jaxaug.iterators._compile import Transform, group_size
from jaxaug.iterators._protocol import Source, Stream
from jaxaug.iterators._sampler import Sampler, Sequential, Shuffled, check_sampler
from jaxaug.iterators._state import batches_per_epoch
from jaxaug.sharding._split import Part

_RESERVED = {"image", "size", "valid", "index"}  # what the Loader itself puts into a batch


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
    canvas: tuple[int, int] | None
    mask_fill: int
    last_batch: str
    on_error: str
    decoder: Decoder | None
    prefetch: int

    @property
    def drop(self) -> bool:
        """The tail of an epoch is dropped."""
        return self.last_batch == "drop"


def check_options(options: Options) -> None:
    """Refuse arguments that are wrong by themselves."""
    _check_source(options.source)
    check_positive_int("batch_size", options.batch_size)
    check_positive_int("prefetch", options.prefetch)
    check_choice("last_batch", options.last_batch, ("drop", "pad"))
    check_choice("on_error", options.on_error, ("raise", "mask", "replace"))
    if options.epochs is not None:
        check_positive_int("epochs", options.epochs)

    if not is_int(options.seed) or not 0 <= options.seed < 2**64:
        raise ValueError(f"`seed` must be an int in [0, 2^64), got {options.seed!r}.")
    if not is_int(options.mask_fill):
        raise ValueError(f"`mask_fill` must be an int, got {options.mask_fill!r}.")

    _check_function("transform", options.transform)
    _check_function("batch_transform", options.batch_transform)
    _check_decoder(options.decoder, options.canvas)


def _check_decoder(decoder: Any, canvas: tuple[int, int] | None) -> None:
    if not isinstance(decoder, (Decoder, type(None))):
        raise TypeError(f"`decoder` must be a jaxaug.Decoder or None, got {decoder!r}.")
    if canvas is None:
        return
    check_size("canvas", canvas)
    if decoder is not None:
        raise ValueError(
            f"`canvas` must be left out where a `decoder` is given, which has its own {decoder.canvas}, got {canvas}."
        )


def _check_function(name: str, function: Any) -> None:
    """Refuse a transform that is no function, or a class where an instance of it was meant."""
    if isinstance(function, type):
        raise TypeError(
            f"`{name}` is the class {function.__name__}: write {function.__name__}(...)."
        )
    if function is not None and not callable(function):
        raise TypeError(
            f"`{name}` must be a function (key, sample) -> sample, got {type(function).__name__}: "
            "jaxaug.augment's `Compose` makes one of a list."
        )


def _check_source(source: Any) -> None:
    """Refuse what is neither a `Source` nor a `Stream`."""
    if isinstance(source, type):
        raise TypeError(f"`source` is the class {source.__name__}: write {source.__name__}(...).")
    if isinstance(source, (Source, Stream)):
        return
    remedy = "wrap lists in InMemory, items with `[]` and `len` in RandomAccess and iterables in FromIterable"
    if (
        hasattr(source, "__getitem__")
        and hasattr(source, "__len__")
        and not isinstance(source, (list, tuple))
    ):
        remedy = "wrap it in jaxaug.iterators.RandomAccess"
    raise TypeError(
        f"`source` must have __len__, read, describe and fingerprint, got {type(source).__name__}: see "
        f"jaxaug.iterators.Source, or {remedy}."
    )


def make_sampler(
    source: Source | Stream, shuffle: bool | Sampler, seed: int, on_error: str
) -> Sampler | None:
    """Return the order of the records, None for a stream.

    Raises:
      TypeError, ValueError: `shuffle` or `on_error` does not fit the source.
    """
    if not isinstance(shuffle, (bool, Sampler)):
        raise TypeError(f"`shuffle` must be True, False or a `Sampler`, got {shuffle!r}.")
    if isinstance(source, Stream):
        if shuffle is not False:
            raise ValueError(
                "`shuffle` must be False for a stream, which has an order of its own, got True."
            )
        if on_error == "replace":
            raise ValueError(
                "`on_error` must be 'raise' or 'mask' for a stream, got 'replace': it has no other records."
            )
        return None

    if isinstance(shuffle, Sampler):
        check_sampler(shuffle, len(source))
        return shuffle
    return Shuffled(len(source), seed) if shuffle else Sequential(len(source))


def check_batch_size(sampler: Sampler | None, batch_size: int, drop: bool) -> None:
    """Refuse a batch size that leaves an epoch without a batch."""
    if sampler is not None and batches_per_epoch(sampler.length, batch_size, drop) == 0:
        raise ValueError(
            f"`batch_size` must be at most {sampler.length}, the records of an epoch, got {batch_size}: "
            "take a smaller one, or last_batch='pad'."
        )


def check_groups(batch_transform: Transform | None, parts: Sequence[Part]) -> None:
    """Refuse shards that do not hold whole groups of a batch transform."""
    rows = parts[0].stop - parts[0].start
    if batch_transform is not None and rows % group_size(batch_transform):
        raise ValueError(
            f"`batch_size` must give each shard a multiple of {group_size(batch_transform)} rows, the group of "
            f"`batch_transform`, got {rows} rows a shard."
        )


def check_names(names: Sequence[str]) -> None:
    """Refuse features that have the names of a batch's own entries."""
    if taken := sorted(set(names) & _RESERVED):
        raise ValueError(
            f"`source` must not have a feature named {', '.join(map(repr, taken))}: a batch's own entries are "
            f"{', '.join(map(repr, sorted(_RESERVED)))}. Rename it, or leave it out."
        )


def order_parts(parts: Sequence[Part], decoder: Decoder) -> list[Part]:
    """Return the parts in the order of the decoder's devices.

    Raises:
      ValueError: the decoder has not one device for each.
    """
    by_device = {device: part for part in parts for device in part.devices}
    chosen = [by_device.get(device) for device in decoder.devices]
    if None in chosen or len(chosen) != len(parts) or len(set(chosen)) != len(parts):
        raise ValueError(
            f"`decoder` must have one device for each of {len(parts)} local shards, such as "
            f"{[part.devices[0] for part in parts]}, got {list(decoder.devices)}."
        )
    return [part for part in chosen if part is not None]


def check_replicas(decoder: Decoder) -> None:
    """Refuse a decoder whose rows another process would decode to other pixels.

    Engines and host threads differ by a level: processes that decode the same rows must choose
      alike.
    """
    if decoder.backend == "nvjpeg" and not decoder.deterministic:
        raise ValueError(
            "`decoder` must be deterministic where several processes hold the same rows, or their replicas would "
            "differ, got one that is not: make it with Decoder(..., deterministic=True)."
        )


def check_no_decoder(decoder: Decoder | None, canvas: tuple[int, int] | None) -> None:
    """Refuse what only encoded images have."""
    for name, value in {"decoder": decoder, "canvas": canvas}.items():
        if value is not None:
            raise ValueError(
                f"`{name}` must be left out for a source of pixels, which are not decoded, got {value!r}."
            )
