"""A source whose columns have other names, or whose texts are columns."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._typing import Features, Values
from jaxaug.decode import ColumnDecoder, Encoded
from jaxaug.iterators.sources.protocol import Far, Source, Summarized
from jaxaug.iterators.sources.stamps import stamps_of


class Renamed:
    """A source whose columns have other names, sounds of a tar as "audio", say; or its texts too.

    The name of a column decides how it is decoded where neither the source nor the Loader's
    `decode` says more. Texts, which `source.texts` gives by name, become columns of encoded bytes
    for `decode.Tokenized`.

    Args:
      source: any random access source.
      names: {name: new name} of columns.
      texts: {name of a text: name of its column}: an extension or a name in `json` of WebDataset, a
        column of strings of Parquet, what `source.texts` takes.
      missing: the text of a record that has none; None for a SourceError.

    Raises:
      TypeError: the source is a stream.
      ValueError: two columns would have one name, or the source has no texts.

    Example:
      >>> from jaxaug.iterators import InMemory
      >>> source = InMemory([b"RIFF"], {"caption": np.array(["a dog barks"])})
      >>> source = Renamed(source, {"image": "audio"}, texts={"caption": "words"})
      >>> columns = source.read(np.array([0]))
      >>> list(columns), bytes(columns["words"].view(0))
      (['audio', 'words'], b'a dog barks')
    """

    def __init__(
        self,
        source: Source,
        names: Mapping[str, str] | None = None,
        *,
        texts: Mapping[str, str] | None = None,
        missing: str | None = None,
    ):
        if not hasattr(source, "read"):
            raise TypeError(
                f"`source` must have random access, got {type(source).__name__}: the columns of a"
                " stream have the names that its own `iterate` yields, those of FromIterable by its"
                " `column` and `features`."
            )
        self.source = source
        self.names = dict(names or {})
        self.text_columns = dict(texts or {})
        self.missing = missing
        for argument, given in (("names", self.names), ("texts", self.text_columns)):
            if len(set(given.values())) < len(given):
                raise ValueError(f"`{argument}` must give different names, got {given}.")
        if self.text_columns and not hasattr(source, "texts"):
            raise ValueError(
                f"`texts` must be left out: {type(source).__name__} has no method `texts` that "
                "reads them."
            )

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        texts = f", texts={self.text_columns}" if self.text_columns else ""
        return f"Renamed({self.source!r}, {self.names}{texts})"

    def __getattr__(self, name: str) -> Any:
        # `classes`, `labels`, `path` of the source; pickle asks before there is one.
        own = ("source", "names", "text_columns", "missing", "headers", "untrusting")
        if name.startswith("_") or name in own:
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
        """Read the source's records, and the texts that are columns."""
        columns = self._renamed(self.source.read(indices))
        if not self.text_columns:
            return columns
        found = self.texts(indices, list(self.text_columns), self.missing)
        texts = {
            # JSON may have one half of a surrogate pair, which is no letter.
            column: Encoded.from_bytes([text.encode("utf-8", "replace") for text in found[name]])
            for name, column in self.text_columns.items()
        }
        twice = sorted(texts.keys() & columns.keys())
        if twice:
            raise ValueError(f"`texts` must give names that no column has, got {twice}.")
        return columns | texts

    def texts(
        self, indices: np.ndarray, names: Sequence[str], missing: str | None = None
    ) -> dict[str, list[str]]:
        """Return the source's texts, see `Loader.texts`."""
        return self.source.texts(indices, names, missing)  # pyright: ignore

    @property
    def records_ahead(self) -> int:
        """What the source says: from Python 3.12 on `isinstance` sees nothing of `__getattr__`."""
        return self.source.records_ahead if isinstance(self.source, Far) else 0

    def summary(self) -> Mapping[str, Any]:
        """Return what the source knows of all records, by the new names."""
        return self._renamed(self.source.summary() if isinstance(self.source, Summarized) else {})

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return the source's stamps, see `Stamped`."""
        return stamps_of(self.source, indices)

    def describe(self, index: int) -> dict[str, Any]:
        """Return the source's description of the record."""
        return self.source.describe(index)

    def fingerprint(self) -> str:
        """Return a hash of the source's, and of what its columns hold by the other names."""
        known = [self.source.fingerprint(), self.names, self.text_columns, self.missing]
        return hashlib.blake2b(json.dumps(known).encode(), digest_size=8).hexdigest()

    def _renamed(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        renamed = {self.names.get(name, name): value for name, value in columns.items()}
        if len(renamed) < len(columns):
            raise ValueError(f"`names` must give different names, got {self.names}: {[*columns]}.")
        return renamed
