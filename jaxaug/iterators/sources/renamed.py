"""A source whose columns have other names."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._typing import Features, Values
from jaxaug.decode import ColumnDecoder
from jaxaug.iterators.sources.protocol import Source


class Renamed:
    """A source whose columns have other names: sounds of a tar as "audio", say.

    The name of a column decides how it is decoded where neither the source nor the Loader's
    `decode` says more.

    Args:
      source: any random access source.
      names: {name: new name} of columns.

    Raises:
      ValueError: two columns would have one name.

    Example:
      >>> from jaxaug.iterators import InMemory
      >>> source = Renamed(InMemory([b"RIFF"]), {"image": "audio"})
      >>> list(source.read(np.array([0])))
      ['audio']
    """

    def __init__(self, source: Source, names: Mapping[str, str]):
        self.source = source
        self.names = dict(names)
        if len(set(self.names.values())) < len(self.names):
            raise ValueError(f"`names` must give different names, got {self.names}.")

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return f"Renamed({self.source!r}, {self.names})"

    def __getattr__(self, name: str) -> Any:
        # `classes`, `labels`, `path` of the source; pickle asks before there is one.
        if name.startswith("_") or name in ("source", "names", "headers", "untrusting"):
            raise AttributeError(name)
        return getattr(self.source, name)

    @property
    def features(self) -> Features:
        """The source's columns that it knows without reading records."""
        return self._renamed(getattr(self.source, "features", {}))

    @property
    def decoders(self) -> Mapping[str, ColumnDecoder]:
        """How the source declares that its columns are decoded."""
        return self._renamed(getattr(self.source, "decoders", {}))

    def read(self, indices: np.ndarray) -> Mapping[str, Values]:
        """Read the source's records."""
        return self._renamed(self.source.read(indices))

    def texts(
        self, indices: np.ndarray, names: Sequence[str], missing: str | None = None
    ) -> dict[str, list[str]]:
        """Return the source's texts, see `Loader.texts`."""
        return self.source.texts(indices, names, missing)  # pyright: ignore

    def describe(self, index: int) -> dict[str, Any]:
        """Return the source's description of the record."""
        return self.source.describe(index)

    def fingerprint(self) -> str:
        """Return the source's hash: names are no data."""
        return self.source.fingerprint()

    def _renamed(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        renamed = {self.names.get(name, name): value for name, value in columns.items()}
        if len(renamed) < len(columns):
            raise ValueError(f"`names` must give different names, got {self.names}: {[*columns]}.")
        return renamed
