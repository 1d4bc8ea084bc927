"""A text file that names files and their labels."""

import csv
import glob
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxaug._checks import check_choice
from jaxaug._typing import PathLike, Values
from jaxaug.decode import Encoded, Span
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import join_columns
from jaxaug.iterators.sources._base import LabeledFiles, TextSource
from jaxaug.iterators.sources.storage.files import check_local, local_path
from jaxaug.iterators.sources.storage.loose import LooseFiles

_CSV = (",", ";")  # separators of files in which quotes hold what has them


class FileList(LabeledFiles, TextSource):
    """Images, videos or sounds named line by line: `path label`, or `path label label ...` where a
    file has several labels.

    Labels are integers from 0. If each image has one, "label" is int32[n]. If some have more or
    none, it is int32[n, k] padded with -1, and `jax.nn.one_hot(sample["label"],
    num_classes).max(0)` is the multi-hot target: -1 is all zeros. Without any labels there is no
    such feature.

    For regression, `dtype=float` reads as many numbers for each image, "label" float32[n] or [n,
    k]. With `dtype=str` the rest of the line is a text, such as a caption: `loader.texts(batch,
    ["text"])`, and there is no label.

    Args:
      path: the text file, UTF-8; image paths are relative to its folder, or absolute. Blank lines
        do not count.
      sep: what stands between path and labels, such as "," or "\\t"; None for any blanks. Paths
        must not hold it, but for "," and ";", beside which quotes are those of CSV.
      dtype: of the labels: int for classes, float for numbers, str for a text.
      column: of the files, such as "video".
      spans: "seconds" or "frames" where each line ends with the start and the end of the part that
        the record is, `path label start end` as in DALI's lists; an end of "inf" is that of the
        file. Several lines may name one file. See `decode.Span`.

    Raises:
      ValueError: another `dtype`, or other `spans`; TypeError: a list of paths.
      SourceError: the file is missing or names no files, one is a URL, a label is no integer
        from 0 to 2^31 - 1, or no finite number, images have different counts of these, or a span is
        none: it begins at 0 or later, and ends after that.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
      ...     _ = file.write("cat.jpg,0\\nboth.jpg,0,1\\n"), file.flush()
      ...     source = FileList(file.name, sep=",")
      >>> source.labels.tolist(), os.path.basename(source.path(1))
      ([[0, -1], [0, 1]], 'both.jpg')
    """

    def __init__(
        self,
        path: PathLike,
        *,
        sep: str | None = None,
        dtype: type = int,
        column: str = "image",
        spans: str | None = None,
    ):
        check_choice("dtype", dtype, (int, float, str))
        check_choice("spans", spans, (None, "seconds", "frames"))
        self._column = column
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                f"`path` must be the path of a text file, got {path!r}: a list of paths is read by "
                "Files."
            )
        self._list = local_path(path)
        lines = _lines(self._list)
        if not lines:
            raise SourceError(
                f"`path` {self._list!r} names no files: expected lines of `path label`."
            )
        places = [f"{self._list!r}, line {number}" for number, _ in lines]
        texts = [line.strip("\r\n") for _, line in lines]
        self._span: Span | None = None
        if spans is not None:
            texts, self._span = _spans(texts, places, sep, spans)
        parts = [_fields(text, place, sep, dtype is str) for text, place in zip(texts, places)]
        names = [os.path.expanduser(name.strip()) for name, *_ in parts]
        for name, place in zip(names, places):
            check_local(name, place)
        texts = [rest for _, *rest in parts]
        self._texts = [" ".join(rest).strip() for rest in texts] if dtype is str else None
        self.labels: np.ndarray | None = None
        if dtype is int:
            self.labels = _classes(texts, places, sep)
        elif dtype is float:
            self.labels = _numbers(texts, places, sep)
        self._files = LooseFiles(os.path.dirname(self._list), names)

    def __repr__(self) -> str:
        return f"FileList({self._list!r}: {len(self)} records, {sorted(self.features)})"

    def _columns(self, indices: np.ndarray, files: Encoded) -> dict[str, Values]:
        columns = {name: column[indices] for name, column in self.features.items()}
        return join_columns({self._column: files._replace(span=self._span_of(indices))}, columns)

    def _span_of(self, indices: np.ndarray) -> Span | None:
        return None if self._span is None else self._span.take(indices)

    def _rows_of_texts(self, indices: np.ndarray, names: Sequence[str]) -> list[dict[str, str]]:
        return [self._text(index) for index in indices.tolist()]

    def _text(self, index: int) -> dict[str, str]:
        text = "" if self._texts is None else self._texts[index]
        return {"text": text} if text else {}

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's path, text and span, and "error" if the file cannot be read now."""
        span = {} if self._span is None else {"span": self._span.text(index)}
        return self._files.describe(index) | self._text(index) | span

    def fingerprint(self) -> str:
        """Return a hash of the paths as listed, of the labels or texts, and of the spans."""
        columns = [] if self.labels is None else [self.labels]
        if self._texts is not None:
            columns.append(np.frombuffer("\n".join(self._texts).encode(), np.uint8))
        if self._span is not None:
            unit = np.frombuffer(self._span.unit.encode(), np.uint8)
            columns += [self._span.start, self._span.end, unit]
        return self._files.fingerprint(*columns)


def _lines(path: str) -> list[tuple[int, str]]:
    """Return the lines that are not blank, each with its number from 1."""
    try:
        # Windows begins such files with a byte order mark.
        with open(path, encoding="utf-8-sig") as file:
            return [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        what = f"`path` {path!r} cannot be read as a text file with lines of `path label`: {error}"
        pattern = f"; files of a pattern are read by Files(sorted(glob.glob({path!r})))"
        raise SourceError(f"{what}{pattern if glob.has_magic(path) else ''}.") from error


def _spans(
    texts: list[str], places: list[str], sep: str | None, unit: str
) -> tuple[list[str], Span]:
    """Return lines without the two numbers at their ends, and these."""
    rests = []
    bounds = np.zeros((len(texts), 2))
    for row, (text, place) in enumerate(zip(texts, places)):
        rest, *found = text.rstrip().rsplit(sep, 2)
        try:
            start, end = map(float if unit == "seconds" else _frame, found)
        except ValueError:
            start, end = np.nan, np.nan
        if not 0 <= start < end or start == np.inf:
            raise SourceError(
                f"{place}: a line must end with start and end in {unit}, 0 <= start < end, got "
                f"{' '.join(found)!r}: correct it, or the `sep` of the file."
            )
        rests.append(rest)
        bounds[row] = start, end
    return rests, Span(bounds[:, 0], bounds[:, 1], unit)


def _fields(text: str, place: str, sep: str | None, two: bool) -> list[str]:
    """Return what stands between separators, of texts the name and the rest."""
    if sep not in _CSV:
        return text.split(sep, 1 if two else -1)
    try:
        (found,) = csv.reader([text], delimiter=sep, strict=True)
    except csv.Error as error:
        raise SourceError(
            f"{place}: quotes must be as in CSV, around whole fields and doubled inside, got"
            f" {text!r}: {error}; with sep='\\t' they are part of the text."
        ) from None
    return [found[0], sep.join(found[1:])] if two else found


def _frame(text: str) -> float:
    """Return the number of a frame, or infinity."""
    return np.inf if text.strip() == "inf" else int(text)


def _label(text: str, where: str, sep: str | None) -> int:
    try:
        label = int(text)
    except ValueError:
        label = -1
    if not 0 <= label < 2**31:
        wanted = f"{where}: a label must be an integer from 0 to 2^31 - 1, got {text!r}"
        raise SourceError(f"{wanted}: correct it{_of_blanks(sep)}.")
    return label


def _of_blanks(sep: str | None) -> str:
    """Return what to do about a path that `sep` has cut."""
    if sep is not None and sep != " ":
        return ""
    return ", or, if the file has blanks in its name, write a tab before its labels: sep='\\t'"


def _classes(texts: list[list[str]], places: list[str], sep: str | None) -> np.ndarray | None:
    """Return class numbers int32[n] or, padded with -1, [n, k]; None if there are none."""
    labels = []
    for row, place in zip(texts, places):
        labels.append([_label(text, place, sep) for text in row])
    most = max(map(len, labels))
    if most == 0:
        return None
    if most == 1 and min(map(len, labels)) == 1:
        return np.array(labels, np.int32)[:, 0]
    return np.array([row + [-1] * (most - len(row)) for row in labels], np.int32)


def _numbers(texts: list[list[str]], places: list[str], sep: str | None) -> np.ndarray:
    """Return numbers float32[n], or [n, k] where each image has k."""
    count = len(texts[0])
    numbers = np.zeros((len(texts), count), np.float64)
    for number, (row, place) in enumerate(zip(texts, places)):
        if len(row) != count or not count:
            raise SourceError(
                f"{place}: each image must have as many numbers, {max(count, 1)} as in the first "
                f"line, got {len(row)}: correct the line, or the `sep` of the file."
            )
        for column, text in enumerate(row):
            numbers[number, column] = _number(text, place, sep)
    return numbers[:, 0].astype(np.float32) if count == 1 else numbers.astype(np.float32)


def _number(text: str, place: str, sep: str | None) -> float:
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not abs(number) <= float(np.finfo(np.float32).max):
        raise SourceError(
            f"{place}: a label must be a finite number of float32, got {text!r}: correct or remove "
            f"the line, which may be a header{_of_blanks(sep)}."
        )
    return number
