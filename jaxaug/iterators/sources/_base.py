"""What the package's own sources have in common."""

import abc
import copy
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, Self

import numpy as np

from jaxaug._checks import check_choice, checked_indices
from jaxaug._typing import Features, Values
from jaxaug.decode import Boxes, ColumnDecoder, Encoded, Keypoints, Span
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.protocol import Parts
from jaxaug.iterators.sources.storage.loose import LooseFiles

BOXES_OF = ("stored", "upright")


def check_boxes_of(boxes_of: str) -> None:
    """Raise ValueError unless boxes are of "stored" or of "upright" images."""
    check_choice("boxes_of", boxes_of, BOXES_OF)


class Annotated:
    """A source whose boxes and keypoints were annotated on stored or on upright images."""

    _boxes_of: str

    @property
    def decoders(self) -> dict[str, ColumnDecoder]:
        """How boxes and keypoints are decoded."""
        if self._boxes_of == "stored":
            return {}
        return {"boxes": Boxes(upright=True), "keypoints": Keypoints(upright=True)}


class TextSource(Sized):
    """A source whose records have texts, which batches do not hold."""

    def texts(
        self, indices: np.ndarray, names: Sequence[str], missing: str | None = None
    ) -> dict[str, list[str]]:
        """Return texts of records `indices` by name: a list of one for each record.

        Args:
          indices: int64[n].
          names: as the class's own docstring says.
          missing: stands where a record has none; None for an error.

        Raises:
          IndexError: an index outside [0, len).
          TypeError: `names` is a single name, of which the letters would count.
          SourceError: a record has no such text, or cannot be read.
        """
        if isinstance(names, (str, bytes)):
            raise TypeError(
                f"`names` must be a list of names of texts, got {names!r}: write [{names!r}]."
            )
        indices = checked_indices(indices, len(self))
        texts: dict[str, list[str]] = {name: [] for name in names}
        for row, index in zip(self._rows_of_texts(indices, names), indices.tolist()):
            for name, column in texts.items():
                column.append(_text(row, name, index, missing))
        return texts

    @abc.abstractmethod
    def _rows_of_texts(
        self, indices: np.ndarray, names: Sequence[str]
    ) -> Iterable[Mapping[Any, Any]]:
        """Return what each record has by name, `names` at least.

        What is neither text nor bytes counts as none.
        """


class TableSource(Annotated, TextSource):
    """A source that holds the columns of all records beside what is encoded."""

    _features: dict[str, np.ndarray]

    @property
    def features(self) -> Features:
        """All columns of features by name, known without reading an image.

        `Weighted(balanced_weights(source.features["label"]))` draws all classes equally often.
        """
        return dict(self._features)


class OpenedSource(TableSource):
    """A source that opens files; a copy, also one in another process, opens the same ones anew."""

    def _open_as_given(self) -> None:
        """Open what the attributes tell that there are by now."""
        given = set(vars(self))
        self._open()
        self._set_by_open = vars(self).keys() - given

    @abc.abstractmethod
    def _open(self) -> None:
        """Open the files, and set what they tell."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in vars(self) if name not in self._set_by_open}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open_as_given()


class FileSource:
    """A source whose record `i` is the file `i` of `_files`."""

    _files: LooseFiles
    _column = "image"  # of the files

    def __len__(self) -> int:
        return len(self._files)

    def path(self, index: int) -> str:
        """Return the path of record `index`."""
        return self._files.path(index)

    def headers(self, indices: np.ndarray) -> dict[str, Any]:
        """Return what an index of the folder knows of videos."""
        stored = None if self._column == "image" else self._files.tables(indices)
        return {} if stored is None else {self._column: stored}

    def read_parts(self, indices: np.ndarray, parts: Mapping[str, Parts]) -> Mapping[str, Values]:
        """Read records as `read` does, of indexed videos what is needed; see `Partial`."""
        stored = self.headers(indices).get(self._column)
        if stored is None or self._column not in parts:
            return self.read(indices)
        ranges = parts[self._column](stored, self._span_of(indices))
        return self._columns(indices, self._files.read_parts(indices, ranges))

    def read(self, indices: np.ndarray) -> Mapping[str, Values]:
        """Read the files' bytes and the columns; a file that cannot be read has length 0."""
        return self._columns(indices, self._files.read(indices))

    def _columns(self, indices: np.ndarray, files: Encoded) -> Mapping[str, Values]:
        """Return the columns of records, given the bytes of their files."""
        raise NotImplementedError

    def _span_of(self, indices: np.ndarray) -> Span | None:
        """Return the parts of their files that records are; None where all are whole."""
        return None

    def untrusting(self) -> Self:
        """Return a copy that also reads what a verification found bad; see `verify`."""
        other = copy.copy(self)
        other._files = self._files.untrusting()
        return other

    def findings_place(self) -> str:
        """Return the file that `keep_findings` writes, if it can."""
        return self._files.findings_place()

    def keep_findings(self, findings: Mapping[int, str]) -> str:
        """Keep record -> reason, which later sources take for bad; return the file with it."""
        return self._files.keep_findings(findings)


class LabeledFiles(FileSource):
    """Files each of which may have a label."""

    labels: np.ndarray | None

    @property
    def features(self) -> Features:
        """The column "label", if there are labels; known without reading a file."""
        return {} if self.labels is None else {"label": self.labels}


def note_failures(known: dict[int, str], indices: np.ndarray, failures: Mapping[int, str]) -> None:
    """Note why rows of `indices` could not be read, by record; forget what the others had.

    Each in one step: another thread may describe the record.
    """
    if not failures and not known:
        return
    for row, index in enumerate(indices.tolist()):
        if row in failures:
            known[index] = failures[row]
        else:
            known.pop(index, None)


def _text(row: Mapping[Any, Any], name: str, index: int, missing: str | None) -> str:
    value = row.get(name)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        value = missing
    if value is None:
        raise SourceError(
            f"record {index} has no text {name!r}; it has {sorted(row, key=str)}: pass "
            "missing='' for an empty one, or another name."
        )
    return value
