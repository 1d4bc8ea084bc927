"""What all sources of loose files do in the same way."""

import copy
from collections.abc import Mapping
from typing import Self

from jaxaug.iterators.sources.storage.loose import LooseFiles


class FileSource:
    """A source whose record `i` is the file `i` of `_files`."""

    _files: LooseFiles

    def __len__(self) -> int:
        return len(self._files)

    def path(self, index: int) -> str:
        """Return the path of record `index`."""
        return self._files.path(index)

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
