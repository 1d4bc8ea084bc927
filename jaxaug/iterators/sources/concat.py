"""Several sources as one."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._typing import Features
from jaxaug.decode import Encoded, Headers
from jaxaug.iterators._features import LABELS, Column, feature_spec, narrow_features
from jaxaug.iterators._protocol import Indexed, Masked, Pixels, Source
from jaxaug.iterators.sources._indices import checked_indices

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
      >>> encoded, _ = source.read(np.array([2, 0]))
      >>> len(source), bytes(encoded.view(0)), bytes(encoded.view(1))
      (3, b'c', b'a')
    """

    def __init__(self, sources: Sequence[Source]):
        self.sources = tuple(sources)
        if not self.sources:
            raise ValueError("`sources` must hold at least one source, got none.")
        self.lengths = tuple(len(source) for source in self.sources)
        self._starts = np.cumsum([0, *self.lengths])
        self._spec = _common_spec(self.sources)
        self._classes, self._ranks = _join_classes(self.sources, self._spec)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        found = f"{len(self)} images in {len(self.sources)} sources, {sorted(self._spec)}"
        return f"Concat({found})"

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
        return self._join_columns(columns)

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

    def read(self, indices: np.ndarray) -> tuple[Encoded | Masked | Pixels, Features]:
        """Read the records from their sources.

        Raises:
          IndexError: an index outside [0, len).
        """
        groups, back = self._by_source(checked_indices(indices, len(self)))
        images = []
        columns = []
        for number, local in groups:
            found, features = self.sources[number].read(local)
            images.append(found)
            columns.append(self._renumbered(number, local, features))
        joined = self._join_columns(columns)
        return _join_images(images, back), {name: joined[name][back] for name in joined}

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

    def headers(self, indices: np.ndarray) -> Headers | None:
        """Return the header facts of the sources' indexes; None unless all have one."""
        groups, back = self._by_source(checked_indices(indices, len(self)))
        found = []
        for number, local in groups:
            source = self.sources[number]
            headers = source.headers(local) if isinstance(source, Indexed) else None
            if headers is None:
                return None
            found.append(headers)
        return Headers(*(np.concatenate(columns)[back] for columns in zip(*found)))

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

    def _renumbered(self, number: int, records: np.ndarray, columns: Features) -> Features:
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

    def _join_columns(self, columns: Sequence[Features]) -> dict[str, np.ndarray]:
        """Return the features of several parts, in dtypes that hold those of all sources."""
        joined = {}
        for name, common in self._spec.items():
            parts = [np.asarray(found[name]) for found in columns]
            dtype = np.result_type(common.dtype, *(part.dtype for part in parts))
            joined[name] = np.concatenate(parts).astype(dtype, copy=False)
        return joined

    def _of_source(self, source: Source, name: str) -> Any:
        try:
            return getattr(source, name)
        except AttributeError as error:
            raise AttributeError(f"{source!r}, a part of {self!r}, has no `{name}`.") from error


def _common_spec(sources: Sequence[Source]) -> dict[str, Column]:
    """Return the form that the features of all sources have, from their first records.

    Raises:
      ValueError: they differ by more than the dtype, or the images do.
    """
    first_images, first_columns = sources[0].read(_FIRST)
    spec = _stored_spec(first_columns)
    for number, source in enumerate(sources[1:], 1):
        images, columns = source.read(_FIRST)
        _check_images(images, first_images, number)
        found = _stored_spec(columns)
        for name in sorted({*spec, *found}):
            spec[name] = _common_column(name, spec.get(name), found.get(name), number)
    return spec


def _stored_spec(columns: Features) -> dict[str, Column]:
    """Return the form of columns in their own dtypes, which the Loader can narrow."""
    narrow_features(columns, _FIRST)
    return feature_spec({name: np.asarray(column) for name, column in columns.items()})


def _common_column(name: str, first: Column | None, other: Column | None, number: int) -> Column:
    remedy = "give the sources the same `features`"
    if first is None:
        raise ValueError(
            f"`sources`: source {number} has a feature {name!r}, source 0 has none: {remedy}."
        )
    if other is None:
        raise ValueError(
            f"`sources`: source {number} has no feature {name!r}, source 0 has one: {remedy}."
        )
    if first.shape != other.shape:
        raise ValueError(
            f"`sources` must have one shape for each feature, got feature {name!r} as {first} in "
            f"source 0 and {other} in source {number}: pad it to the larger."
        )
    dtype = np.result_type(first.dtype, other.dtype)
    if dtype.kind == "f" and first.dtype.kind in "iu" and other.dtype.kind in "iu":
        raise ValueError(
            f"`sources` must have one kind of integers for each feature, got feature {name!r} as "
            f"{first} in source 0 and {other} in source {number}, which NumPy joins as floats: "
            "convert one of them."
        )
    return Column(dtype, first.shape)


def _join_classes(
    sources: Sequence[Source], spec: Mapping[str, Column]
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
        if _CLASS_COLUMNS & spec.keys():
            raise _classes_missing(found)
        return None, []
    names = tuple(dict.fromkeys(name for classes in named for name in classes))
    if all(tuple(classes) == names for classes in named):
        return names, []

    _check_renumbering(sources, spec)
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


def _check_renumbering(sources: Sequence[Source], spec: Mapping[str, Column]) -> None:
    """Raise ValueError where different classes show in more than integer labels."""
    for name in sorted(_CLASS_COLUMNS & spec.keys()):
        if spec[name].dtype.kind not in "iu":
            raise ValueError(
                f"`sources` have different `classes`, and feature {name!r} is {spec[name]}: only "
                "integers can be renumbered, so give the sources the same classes."
            )
    for number, source in enumerate(sources):
        images, columns = source.read(_FIRST)
        masked = isinstance(images, Masked) or "mask" in columns
        if masked and getattr(source, "mask", None) != "objects":
            raise ValueError(
                f"`sources` have different `classes`, and source {number} has masks, which may hold"
                " class numbers that are not renumbered: give the sources the same classes."
            )


_Images = Encoded | Masked | Pixels
_KINDS = {Encoded: "encoded images", Masked: "images with masks", Pixels: "pixels"}


def _check_images(images: _Images, first: _Images, number: int) -> None:
    kind = _KINDS[type(images)]
    wanted = _KINDS[type(first)]
    if kind != wanted:
        raise ValueError(
            f"`sources`: source {number} has {kind}, source 0 {wanted}: a Loader needs one kind."
        )
    if isinstance(images, Pixels) and isinstance(first, Pixels):
        shape, wanted = list(images.array.shape[1:]), list(first.array.shape[1:])
        if shape != wanted:
            raise ValueError(
                f"`sources`: source {number} has pixels of {shape}, source 0 of {wanted}: "
                "resize them to one."
            )


def _join_images(images: Sequence[_Images], rows: np.ndarray) -> _Images:
    """Return the rows of several parts, taken as one."""
    pixels = [part.array for part in images if isinstance(part, Pixels)]
    if pixels:
        return Pixels(np.concatenate(pixels)[rows])
    masked = [part for part in images if isinstance(part, Masked)]
    if masked:
        joined = _join_encoded([part.images for part in masked], rows)
        return Masked(joined, _join_encoded([part.masks for part in masked], rows))
    return _join_encoded([part for part in images if isinstance(part, Encoded)], rows)


def _join_encoded(encoded: Sequence[Encoded], rows: np.ndarray) -> Encoded:
    addresses = np.concatenate([part.addresses for part in encoded])
    lengths = np.concatenate([part.lengths for part in encoded])
    return Encoded(addresses[rows], lengths[rows], [part.owner for part in encoded])
