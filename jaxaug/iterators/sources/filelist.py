"""A text file that names images and their labels."""

import copy
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxaug._typing import Features, PathLike
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators.sources._files import local_path
from jaxaug.iterators.sources._loose import LooseFiles


class FileList:
    """Images named line by line: `path label`, or `path label label ...` where an image has several
    labels.

    Labels are integers from 0. If each image has one, "label" is int32[n]. If some have more or
    none, it is int32[n, k] padded with -1, and `jax.nn.one_hot(sample["label"],
    num_classes).max(0)` is the multi-hot target: -1 is all zeros. Without any labels there is no
    such feature.

    Args:
      path: the text file, UTF-8; image paths are relative to its folder, or absolute. Blank lines
        do not count.
      sep: what stands between path and labels, such as "," or "\\t"; None for any blanks. Paths
        must not hold it.

    Raises:
      SourceError: the file is missing or names no images, or a label is no integer from 0 to 2^31 -
        1.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
      ...     _ = file.write("cat.jpg,0\\nboth.jpg,0,1\\n"), file.flush()
      ...     source = FileList(file.name, sep=",")
      >>> source.labels.tolist(), os.path.basename(source.path(1))
      ([[0, -1], [0, 1]], 'both.jpg')
    """

    def __init__(self, path: PathLike, *, sep: str | None = None):
        self._list = local_path(path)
        names = []
        labels = []
        for number, line in _lines(self._list):
            name, *texts = line.strip("\r\n").split(sep)
            names.append(os.path.expanduser(name.strip()))
            labels.append([_label(text, f"{self._list!r}, line {number}", sep) for text in texts])
        if not names:
            raise SourceError(
                f"`path` {self._list!r} names no images: expected lines of `image label`."
            )
        self.labels: np.ndarray | None = _columns(labels)
        self._files = LooseFiles(os.path.dirname(self._list), names)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"FileList({self._list!r}: {len(self)} images, {sorted(self.features)})"

    def path(self, index: int) -> str:
        """Return the path of record `index`."""
        return self._files.path(index)

    @property
    def features(self) -> Features:
        """The column "label", if there are labels; known without reading an image."""
        return {} if self.labels is None else {"label": self.labels}

    def read(self, indices: np.ndarray) -> tuple[Encoded, Features]:
        """Read the files' bytes and "label"; a file that cannot be read has length 0."""
        columns = {name: column[indices] for name, column in self.features.items()}
        return self._files.read(indices), columns

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's path, and "error" if the file cannot be read now."""
        return self._files.describe(index)

    def untrusting(self) -> "FileList":
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

    def fingerprint(self) -> str:
        """Return a hash of the paths as listed and of the labels."""
        columns = [] if self.labels is None else [self.labels]
        return self._files.fingerprint(*columns)


def _lines(path: str) -> list[tuple[int, str]]:
    """Return the lines that are not blank, each with its number from 1."""
    try:
        # Windows begins such files with a byte order mark.
        with open(path, encoding="utf-8-sig") as file:
            return [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"`path` {path!r} cannot be read: {error}.") from error


def _label(text: str, where: str, sep: str | None) -> int:
    try:
        label = int(text)
    except ValueError:
        label = -1
    if not 0 <= label < 2**31:
        wanted = f"{where}: a label must be an integer from 0 to 2^31 - 1, got {text!r}"
        blanks = sep is None or sep == " "
        hint = " or, if it belongs to the path, choose another `sep`" if blanks else ""
        raise SourceError(f"{wanted}: correct it{hint}.")
    return label


def _columns(labels: list[list[int]]) -> np.ndarray | None:
    most = max(map(len, labels))
    if most == 0:
        return None
    if most == 1 and min(map(len, labels)) == 1:
        return np.array(labels, np.int32)[:, 0]
    return np.array([row + [-1] * (most - len(row)) for row in labels], np.int32)
