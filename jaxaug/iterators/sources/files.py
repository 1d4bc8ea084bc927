"""Images by their paths, with columns of NumPy beside them."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._typing import PathLike, Values
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import hash_features, join_columns, take_rows
from jaxaug.iterators.sources._base import FileSource, TableSource, check_boxes_of
from jaxaug.iterators.sources.memory import split_features
from jaxaug.iterators.sources.storage.files import local_path
from jaxaug.iterators.sources.storage.loose import LooseFiles


class Files(FileSource, TableSource):
    """Images, or other files, of a list of paths, with features as arrays.

    Args:
      paths: of local files, absolute or relative to the working directory.
      features: name -> one row for each path: numbers [n, ...], `Ragged`, or [n] of str for
        `loader.texts`.
      boxes_of: "stored" for boxes and keypoints of the pixels as they lie in the file, which are
        turned with the image by its EXIF orientation; "upright" for those of the turned image.
      column: of the files, such as "audio".

    Raises:
      TypeError: `paths` is one path, or `features` no dict.
      ValueError: a feature has another number of rows.
      SourceError: there is no path.

    Example:
      >>> source = Files(["cat.jpg", "dog.jpg"], {"label": np.array([0, 1])})
      >>> len(source), os.path.basename(source.path(1))
      (2, 'dog.jpg')
    """

    def __init__(
        self,
        paths: Sequence[PathLike],
        features: Mapping[str, Any] | None = None,
        *,
        boxes_of: str = "stored",
        column: str = "image",
    ):
        check_boxes_of(boxes_of)
        if isinstance(paths, (str, os.PathLike)):
            raise TypeError(
                f"`paths` must be a list of paths, got the one path {os.fspath(paths)!r}: a folder "
                "is read by ImageFolder, a text file by FileList, a pattern as "
                "Files(sorted(glob.glob(pattern)))."
            )
        if not len(paths):
            raise SourceError("`paths` must hold at least one path, got none.")
        self._boxes_of = boxes_of
        self._column = column
        whole = [local_path(path) for path in paths]
        root = os.path.commonpath(map(os.path.dirname, whole))
        self._files = LooseFiles(root, [os.path.relpath(path, root) for path in whole])
        self._features, self._texts = split_features(features, len(paths))

    def __repr__(self) -> str:
        return f"Files({len(self)} files, features {sorted(self._features)})"

    def _columns(self, indices: np.ndarray, files: Encoded) -> dict[str, Values]:
        columns = {name: take_rows(column, indices) for name, column in self._features.items()}
        return join_columns({self._column: files}, columns)

    def _rows_of_texts(self, indices: np.ndarray, names: Sequence[str]) -> list[dict[str, str]]:
        return [{name: column[i] for name, column in self._texts.items()} for i in indices.tolist()]

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's path, and "error" if the file cannot be read now."""
        return self._files.describe(index)

    def fingerprint(self) -> str:
        """Return a hash of the features, and of the paths below the folder that they share."""
        digest = hashlib.blake2b(self._files.fingerprint().encode(), digest_size=8)
        hash_features(digest, self._features)
        return digest.hexdigest()
