"""What all sources of loose files do in the same way."""

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from jaxaug._typing import Values
from jaxaug.decode import Encoded, Span
from jaxaug.iterators.sources.protocol import Parts
from jaxaug.iterators.sources.storage.loose import LooseFiles


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
