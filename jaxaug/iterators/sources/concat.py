"""Several sources as one."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from jaxaug._checks import checked_indices
from jaxaug._typing import Features, Values
from jaxaug.decode import ColumnDecoder, Encoded, Ragged
from jaxaug.iterators.loader.columns import (
    LABELS,
    Columns,
    Form,
    Forms,
    form_of,
    narrow_columns,
    take_rows,
)
from jaxaug.iterators.sources.protocol import Far, Indexed, Source
from jaxaug.iterators.sources.stamps import stamps_of

_FIRST = np.zeros(1, np.int64)
_CLASS_COLUMNS = {*LABELS, "box_labels"}  # of class numbers


class Concat:
    """The records of several sources, one source after the other.

    All must have the same features, in one shape each; dtypes become the common one. Where the
    sources have `classes`, classes of one name become one: "label", "labels" and "box_labels" then
    count through the names of all, those of the first source first. Without `classes` labels stay
    what they are. `Mix(source.lengths, weights)` is an order that draws from the sources by weight.

    Args:
      sources: random access sources.

    Attributes:
      sources: the sources, as a tuple.
      lengths: the number of records of each.

    Raises:
      ValueError: no sources, or their features or pixels do not fit each other; only some of those
        with labels have `classes`, or these differ where labels are no integers or masks may hold
        class numbers.

    Example:
      >>> from jaxaug.iterators import InMemory
      >>> source = Concat([InMemory([b"a", b"b"]), InMemory([b"c"])])
      >>> encoded = source.read(np.array([2, 0]))["image"]
      >>> len(source), bytes(encoded.view(0)), bytes(encoded.view(1))
      (3, b'c', b'a')
    """

    def __init__(self, sources: Sequence[Source]):
        self.sources = tuple(sources)
        if not self.sources:
            raise ValueError("`sources` must hold at least one source, got none.")
        self.lengths = tuple(len(source) for source in self.sources)
        self._starts = np.cumsum([0, *self.lengths])
        _check_decoders(self.sources)
        self._forms = _common_forms(self.sources)
        self._classes, self._ranks = _join_classes(self.sources, self._forms)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        numbers = sorted(
            name for name, form in self._forms.items() if form.kind != "Encoded" and name != "image"
        )
        return f"Concat({len(self)} images in {len(self.sources)} sources, {numbers})"

    @property
    def features(self) -> Features:
        """All columns of all sources.

        Raises:
          AttributeError: a source has no columns.
        """
        columns = []
        for number, source in enumerate(self.sources):
            found = self._of_source(source, "features")
            columns.append(self._renumbered(number, np.arange(len(source)), found))
        return cast(Features, self._join(columns))

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes of all sources, each once; None where they have none.

        Raises:
          AttributeError: a source does not know of classes.
        """
        for source in self.sources:
            self._of_source(source, "classes")
        return self._classes

    def path(self, index: int) -> str:
        """Return the path of record `index`.

        Raises:
          AttributeError: its source has no such method.
        """
        number, local = self._place(index)
        return self._of_source(self.sources[number], "path")(local)

    def read(self, indices: np.ndarray) -> dict[str, Values]:
        """Read the records from their sources.

        Raises:
          IndexError: an index outside [0, len).
        """
        groups, back = self._by_source(checked_indices(indices, len(self)))
        found = []
        for number, local in groups:
            columns = self.sources[number].read(local)
            found.append(self._renumbered(number, local, columns))
        return {name: take_rows(values, back) for name, values in self._join(found).items()}

    def texts(
        self, indices: np.ndarray, names: Sequence[str], missing: str | None = None
    ) -> dict[str, list[str]]:
        """Return the texts of records `indices` from their sources, see `Loader.texts`.

        Raises:
          AttributeError: a source has no such method.
          IndexError: an index outside [0, len).
        """
        groups, back = self._by_source(checked_indices(indices, len(self)))
        joined: dict[str, list[str]] = {name: [] for name in names}
        for number, local in groups:
            found = self._of_source(self.sources[number], "texts")(local, names, missing)
            for name, texts in joined.items():
                texts += found[name]
        return {name: [texts[place] for place in back.tolist()] for name, texts in joined.items()}

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return the stamps of the records by their sources, see `Stamped`."""
        groups, back = self._by_source(checked_indices(indices, len(self)))
        stamps = [stamps_of(self.sources[number], local) for number, local in groups]
        return np.concatenate(stamps)[back]

    @property
    def decoders(self) -> Mapping[str, ColumnDecoder]:
        """How the sources declare that their columns are decoded."""
        return getattr(self.sources[0], "decoders", {})

    @property
    def records_ahead(self) -> int:
        """The least that a far source says."""
        said = [each.records_ahead for each in self.sources if isinstance(each, Far)]
        return min([each for each in said if each], default=0)

    def hold(self, indices: np.ndarray, keeper: object) -> None:
        """Have the sources hold records, those that can; see `Far`."""
        for number, local in self._by_source(checked_indices(indices, len(self)))[0]:
            hold = getattr(self.sources[number], "hold", None)
            if hold is not None and local.size:
                hold(local, keeper)

    @property
    def traffic(self) -> dict[str, int]:
        """What the sources say, added up."""
        found: Counter[str] = Counter()
        for each in self.sources:
            found.update(getattr(each, "traffic", {}))
        return dict(found)

    def headers(self, indices: np.ndarray) -> dict[str, Any]:
        """Return what the sources' indexes know of the columns that all of them know."""
        groups, back = self._by_source(checked_indices(indices, len(self)))
        found = []
        for number, local in groups:
            source = self.sources[number]
            found.append(source.headers(local) if isinstance(source, Indexed) else {})
        known = set.intersection(*(set(each) for each in found))
        joined = {}
        for name in sorted(known):
            parts = [each[name] for each in found]
            columns = (np.concatenate(each)[back] for each in zip(*parts))
            joined[name] = type(parts[0])(*columns)
        return joined

    def describe(self, index: int) -> dict[str, Any]:
        """Return the number of the source, and what it says of the record."""
        number, local = self._place(index)
        found = self.sources[number].describe(local)
        return found | {"record": index, "source": number, "record_in_source": local}

    def fingerprint(self) -> str:
        """Return a hash of the sources' fingerprints and lengths, and of classes that differ."""
        known: list[Any] = [(source.fingerprint(), len(source)) for source in self.sources]
        if self._ranks:
            known.append([self._classes, [ranks.tolist() for ranks in self._ranks]])
        return hashlib.blake2b(repr(known).encode(), digest_size=8).hexdigest()

    def _by_source(self, indices: np.ndarray) -> tuple[list[tuple[int, np.ndarray]], np.ndarray]:
        """Return the records by source, and the places that bring them back into their order.

        Returns:
          groups: (number of a source, int64[k] records in it), at least one.
          back: int64[n], the place of each of `indices` among all groups.
        """
        numbers = np.searchsorted(self._starts, indices, side="right") - 1
        groups = []
        for number in np.unique(numbers).tolist() or [0]:
            groups.append((number, indices[numbers == number] - self._starts[number]))
        return groups, np.argsort(np.argsort(numbers, kind="stable"))

    def _place(self, index: int) -> tuple[int, int]:
        """Return the number of the source of a record, and the record's number in it."""
        checked_indices(np.array([index]), len(self))
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        return number, index - int(self._starts[number])

    def _renumbered(self, number: int, records: np.ndarray, columns: Columns) -> Columns:
        """Return the columns of records of a source with the class numbers of all sources."""
        if not self._ranks:
            return columns
        ranks = self._ranks[number]
        renumbered = {}
        for name in _CLASS_COLUMNS & columns.keys():
            labels = np.asarray(columns[name])
            wrong = labels >= len(ranks)
            if wrong.any():
                row = np.argwhere(wrong)[0]
                raise ValueError(
                    f"feature {name!r} is {labels[tuple(row)]} in record {records[row[0]]} of "
                    f"source {number}, which has {len(ranks)} classes: correct its `classes`."
                )
            wide = np.result_type(labels.dtype, np.int32)  # there may be more than 256 classes
            renumbered[name] = np.where(labels < 0, labels, ranks[labels]).astype(wide)
        return {**columns, **renumbered}

    def _join(self, columns: Sequence[Columns]) -> dict[str, Values]:
        """Return the columns of several parts, in dtypes that hold those of all sources."""
        return {
            name: _join_values([found[name] for found in columns], form.dtype, form.max_length)
            for name, form in self._forms.items()
            if all(name in found for found in columns)
        }

    def _of_source(self, source: Source, name: str) -> Any:
        try:
            return getattr(source, name)
        except AttributeError as error:
            raise AttributeError(f"{source!r}, a part of {self!r}, has no `{name}`.") from error


def _check_decoders(sources: Sequence[Source]) -> None:
    """Raise ValueError where sources declare different decoders."""
    declared = [getattr(source, "decoders", {}) for source in sources]
    for number, found in enumerate(declared):
        if found != declared[0]:
            raise ValueError(
                f"`sources` must declare the same `decoders`, got {declared[0]} of source 0 and "
                f"{found} of source {number}: make them with the same arguments."
            )


def _common_forms(sources: Sequence[Source]) -> dict[str, Form]:
    """Return the form that the columns of all sources have, from their first records.

    Raises:
      ValueError: they differ by more than the dtype.
    """
    forms = _stored_forms(sources[0])
    for number, source in enumerate(sources[1:], 1):
        found = _stored_forms(source)
        for name in sorted({*forms, *found}):
            forms[name] = _common_form(name, forms.get(name), found.get(name), number)
    return forms


def _stored_forms(source: Source) -> dict[str, Form]:
    """Return the forms of columns in their own dtypes, which the Loader can narrow."""
    columns = source.read(_FIRST)
    narrow_columns(columns, _FIRST)
    return {
        name: form_of(values if isinstance(values, (Encoded, Ragged)) else np.asarray(values))
        for name, values in columns.items()
    }


def _common_form(name: str, first: Form | None, other: Form | None, number: int) -> Form:
    remedy = "give the sources the same `features`"
    if first is None:
        raise ValueError(
            f"`sources`: source {number} has a column {name!r}, source 0 has none: {remedy}."
        )
    if other is None:
        raise ValueError(
            f"`sources`: source {number} has no column {name!r}, source 0 has one: {remedy}."
        )
    if first.kind != other.kind:
        raise ValueError(
            f"`sources` must have one kind of values in each column, got column {name!r} as "
            f"{first} in source 0 and {other} in source {number}: a Loader needs one kind."
        )
    if first.kind == "Encoded" and bool(first.max_length) == bool(other.max_length):
        return first._replace(max_length=max(first.max_length, other.max_length))
    if first.shape != other.shape:
        raise ValueError(
            f"`sources` must have one shape for each column, got column {name!r} as {first} in "
            f"source 0 and {other} in source {number}: pad or resize it to one."
        )
    assert first.dtype is not None and other.dtype is not None
    dtype = np.result_type(first.dtype, other.dtype)
    if dtype.kind == "f" and first.dtype.kind in "iu" and other.dtype.kind in "iu":
        raise ValueError(
            f"`sources` must have one kind of integers for each column, got column {name!r} as "
            f"{first} in source 0 and {other} in source {number}, which NumPy joins as floats: "
            "convert one of them."
        )
    return first._replace(dtype=dtype, max_length=max(first.max_length, other.max_length))


def _join_classes(
    sources: Sequence[Source], forms: Forms
) -> tuple[tuple[str, ...] | None, list[np.ndarray]]:
    """Return the names of all classes, and for each source the new numbers of its own.

    Names are None where no source has any, and the numbers empty where all have the same.

    Raises:
      ValueError: some have none, or classes differ that cannot be renumbered.
    """
    found = [getattr(source, "classes", None) for source in sources]
    named = [classes for classes in found if classes]
    if not named:
        return None, []
    if len(named) < len(found):
        if _CLASS_COLUMNS & forms.keys():
            raise _classes_missing(found)
        return None, []
    names = tuple(dict.fromkeys(name for classes in named for name in classes))
    if all(tuple(classes) == names for classes in named):
        return names, []

    _check_renumbering(sources, forms)
    places = {name: place for place, name in enumerate(names)}
    return names, [np.array([places[name] for name in classes]) for classes in named]


def _classes_missing(found: Sequence[Any]) -> ValueError:
    without = next(number for number, classes in enumerate(found) if not classes)
    other = next(number for number, classes in enumerate(found) if classes)
    return ValueError(
        f"`sources`: source {without} has no `classes`, source {other} has {len(found[other])}, so "
        "that one label may be two classes: name what the labels of each count through, as by "
        f"`source.classes = {tuple(found[other])[:2]}`."
    )


def _check_renumbering(sources: Sequence[Source], forms: Forms) -> None:
    """Raise ValueError where different classes show in more than integer labels."""
    for name in sorted(_CLASS_COLUMNS & forms.keys()):
        if np.dtype(forms[name].dtype).kind not in "iu":
            raise ValueError(
                f"`sources` have different `classes`, and feature {name!r} is {forms[name]}: only "
                "integers can be renumbered, so give the sources the same classes."
            )
    for number, source in enumerate(sources):
        masked = "mask" in source.read(_FIRST)
        if masked and getattr(source, "mask", None) != "objects":
            raise ValueError(
                f"`sources` have different `classes`, and source {number} has masks, which may hold"
                " class numbers that are not renumbered: give the sources the same classes."
            )


def _join_values(parts: Sequence[Any], dtype: np.dtype | None, max_length: int) -> Values:
    """Return the values of several parts of a column as one."""
    if isinstance(parts[0], Encoded):
        return Encoded.join(parts)
    if isinstance(getattr(parts[0], "values", None), Encoded):
        return Ragged.join(parts)._replace(max_length=max_length)

    arrays = [np.asarray(getattr(part, "values", part)) for part in parts]
    common = np.result_type(dtype, *(array.dtype for array in arrays))
    joined = np.concatenate(arrays).astype(common, copy=False)
    if not isinstance(parts[0], Ragged):
        return joined
    lengths = np.concatenate([part.lengths for part in parts])
    return Ragged(joined, lengths, max_length, parts[0].fill)
