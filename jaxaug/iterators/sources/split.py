"""Random parts of a source: training, validation, test."""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, overload

import numpy as np

from jaxaug.errors import SourceError
from jaxaug.iterators.samplers.sampler import permute
from jaxaug.iterators.sources.protocol import Source
from jaxaug.iterators.sources.subset import Subset

Share = str | float | Fraction


@overload
def split(source: Source, part: Share, /, *, seed: int = 0, stratify: bool = True) -> Subset: ...


@overload
def split(
    source: Source,
    part: Share,
    second: Share,
    /,
    *others: Share,
    seed: int = 0,
    stratify: bool = True,
) -> tuple[Subset, ...]: ...


def split(
    source: Source,
    *parts: Share,
    seed: int = 0,
    stratify: bool = True,
) -> Subset | tuple[Subset, ...]:
    """Divide a source into random parts: `train, val = split(source, 0.9, 0.1)`.

    Shares are slices of one permutation of the records, which depends on the seed and the labels
    alone. So parts of equal seed that share a bound leave no record out and share none, also if
    they come from several calls, and a smaller share lies within a larger one. A bound is that
    share of len(source), rounded half up, whatever the labels. Inside a part, records keep the
    order of the source.

    Where integer labels are known without reading, the permutation takes all classes evenly: in
    each part a class has its share of the records, but for one or two.

    Args:
      source: any random access source.
      parts: shares, one after the other, such as 0.9 or "90%"; or slices of the permutation, such
        as "[:90%]", "[90%:]", "[-10%:]"; or records by number, not permuted: "[100:2000]", "[-5:]".
      seed: another seed gives other parts.
      stratify: False takes the records whatever their labels.

    Returns:
      The part; a tuple of them if `parts` are several.

    Raises:
      ValueError: no parts, one that is not of these forms, shares of more than 1 in all, or slices
        and shares at once.
      SourceError: a part holds no records.

    Example:
      >>> from jaxaug.iterators import InMemory
      >>> source = InMemory([b"..."] * 8, {"label": np.array([0, 0, 0, 0, 1, 1, 1, 1])})
      >>> train, val = split(source, "75%", "25%")
      >>> train.features["label"].tolist(), val.features["label"].tolist()
      ([0, 0, 0, 1, 1, 1], [0, 1])
      >>> split(source, "[75%:]").fingerprint() == val.fingerprint()
      True

    Differs from torch's `random_split` in the stratification and the sizes' rounding, and from
    TFDS's slices, which are contiguous.
    """
    bounds = _bounds(parts)
    permuted = any(isinstance(bound, Fraction) for pair in bounds for bound in pair)
    order = _stratified_order(source, int(seed), stratify) if permuted else np.zeros(0, np.int64)
    found = tuple(_cut(source, order, part, *pair) for part, pair in zip(parts, bounds))
    return found if len(parts) > 1 else next(iter(found))


_Bound = Fraction | int | None
_NUMBER = r"-?\d+(?:\.\d+)?%|-?\d+"
_SLICE = re.compile(rf"\s*\[\s*({_NUMBER})?\s*:\s*({_NUMBER})?\s*\]\s*")
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_MAX_DENOMINATOR = (
    10**6
)  # the largest denominator of a share: 5/6 + 1/6 is 1, though as floats it is not


def _bounds(parts: Sequence[Any]) -> list[tuple[_Bound, _Bound]]:
    """Return (start, stop) of each part: Fractions of the permutation, or numbers of records."""
    if not parts:
        wanted = 'such as 0.9, "90%" or "[:90%]"'
        raise ValueError(f"`parts` must name at least one part, {wanted}, got none.")
    given = ", ".join(map(repr, parts))
    slices = [_slice(part) for part in parts]
    found = [pair for pair in slices if pair is not None]
    if len(found) == len(parts):
        return found
    if found:
        raise ValueError(f"`parts` must be all shares or all slices, got {given}.")
    shares = [_share(part) for part in parts]
    stops = [sum(shares[: place + 1], Fraction(0)) for place in range(len(shares))]
    if stops[-1] > 1:
        raise ValueError(f"`parts` must be shares of 1 in all at most, got {given}.")
    return list(zip([Fraction(0), *stops], stops))


def _slice(part: Any) -> tuple[_Bound, _Bound] | None:
    """Return the bounds in "[start:stop]"; None for what is no such text."""
    match = _SLICE.fullmatch(part) if isinstance(part, str) else None
    if match is None:
        return None
    texts = [text for text in match.groups() if text]
    if len({text.endswith("%") for text in texts}) == 2:
        raise ValueError(
            f"`parts`: {part!r} has a number and a percentage; numbers are records of the source, "
            "percentages cut its permutation: give both bounds as numbers or both in per cent."
        )
    start, stop = (_slice_bound(text) for text in match.groups())
    return start, stop


def _slice_bound(text: str | None) -> _Bound:
    if text is None or not text.endswith("%"):
        return None if text is None else int(text)
    share = Fraction(text[:-1]) / 100
    return 1 + share if text.startswith("-") else share


def _share(part: Any) -> Fraction:
    percent = _PERCENT.fullmatch(part) if isinstance(part, str) else None
    if percent is not None:
        share = Fraction(percent[1]) / 100
    elif isinstance(part, (float, np.floating, Fraction)) and 0 <= part <= 1:
        share = Fraction(float(part)).limit_denominator(_MAX_DENOMINATOR)
    else:
        several = isinstance(part, (list, tuple))
        remedy = f": write split(source, {', '.join(map(repr, part))})" if several else ""
        raise ValueError(
            '`parts` must be shares such as 0.9 or "90%", or slices "[start:stop]" with numbers or '
            f'per cent, such as "[:90%]" and "[100:2000]", got {part!r}{remedy}.'
        )
    return share


def _cut(source: Source, order: np.ndarray, part: Any, start: _Bound, stop: _Bound) -> Subset:
    if isinstance(start, Fraction) or isinstance(stop, Fraction):
        first, last = (_round_half_up(bound, len(order)) for bound in (start, stop))
        chosen = np.sort(order[first:last])
    else:
        chosen = range(len(source))[start:stop]
    if not len(chosen):
        raise SourceError(f"`parts`: {part!r} of {len(source)} records holds none.")
    return Subset(source, chosen)


def _round_half_up(bound: Any, count: int) -> int | None:
    if bound is None:
        return None
    return max(0, int(bound * count + Fraction(1, 2)))


def _stratified_order(source: Source, seed: int, stratify: bool) -> np.ndarray:
    """Return a permutation of the records; with known labels every stretch has each class's share.

    Record j of a class of m gets the key (j + u) / m, where the classes' offsets u are spread
    evenly over (0, 1); sorting by key takes a class's records at equal distances.
    """
    count = len(source)
    shuffled = permute(seed, 0, np.arange(count), count)
    labels = known_labels(source) if stratify else None
    if labels is None:
        return shuffled
    _, classes, sizes = np.unique(labels[shuffled], return_inverse=True, return_counts=True)
    by_class = np.argsort(classes, kind="stable")
    rank = np.empty(count, np.int64)
    rank[by_class] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    offsets = (permute(seed, 1, np.arange(sizes.size), sizes.size) + 0.5) / sizes.size
    keys = (rank + offsets[classes]) / sizes[classes]
    return shuffled[np.argsort(keys, kind="stable")]


def known_labels(source: Source) -> np.ndarray | None:
    """Return the labels int[n], one per record, if the source knows them without reading."""
    columns = getattr(source, "features", None)
    labels = columns.get("label") if columns is not None else getattr(source, "labels", None)
    if labels is None:
        return None
    labels = np.asarray(labels)
    return labels if labels.ndim == 1 and labels.dtype.kind in "biu" else None
