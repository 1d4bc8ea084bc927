"""A folder of images, one sub-folder a class."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxaug._typing import Features, PathLike
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators.sources._files import reason
from jaxaug.iterators.sources._loose import LooseFiles

# Names only choose which files are records; what a file is, its bytes decide.
_EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


class ImageFolder:
    """Images in class folders: `root/dog/x.jpg`, `root/cat/y/z.png`; the label is the class's rank by name.

    A folder without sub-folders of images is one class named ".", label 0. Files are found by
    their extension, in any depth, sorted by path.

    Args:
      root: the folder.

    Raises:
      SourceError: the folder is missing, holds no images, or one below it cannot be read.

    Example:
      >>> import tempfile
      >>> root = Path(tempfile.mkdtemp())
      >>> for name in ("cat/a.jpg", "dog/b.jpg"):
      ...     (root / name).parent.mkdir()
      ...     _ = (root / name).write_bytes(b"...")
      >>> source = ImageFolder(root)
      >>> source.classes, source.labels.tolist()
      (('cat', 'dog'), [0, 1])
    """

    def __init__(self, root: PathLike):
        self.root = Path(root)
        if not self.root.is_dir():
            raise SourceError(f"`root` must be a folder of images, got {str(self.root)!r}, which is none.")
        try:
            names = sorted(_image_files(str(self.root)))
        except OSError as error:  # no permission, links that go round in circles
            raise SourceError(f"`root`: {error.filename!r} cannot be read: {reason(error)}.") from error
        if not names:
            raise SourceError(
                f"no images below {str(self.root)!r}: expected class folders with files named {', '.join(_EXTENSIONS)}."
            )
        folders = [name.split(os.sep, 1)[0] if os.sep in name else "." for name in names]
        self.classes: tuple[str, ...] = tuple(sorted(set(folders)))
        ranks = {name: rank for rank, name in enumerate(self.classes)}
        self.labels = np.array([ranks[folder] for folder in folders], np.int32)
        self._files = LooseFiles(str(self.root), names)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"ImageFolder({str(self.root)!r}: {len(self)} images, {len(self.classes)} classes)"

    def path(self, index: int) -> str:
        """The path of record `index`."""
        return self._files.path(index)

    @property
    def features(self) -> Features:
        """The column "label": no image is read."""
        return {"label": self.labels}

    def read(self, indices: np.ndarray) -> tuple[Encoded, Features]:
        """The files' bytes and "label" int32[n]; a file that cannot be read has length 0."""
        return self._files.read(indices), {"label": self.labels[indices]}

    def describe(self, index: int) -> dict[str, Any]:
        """The record's path and class, and "error" if the file cannot be read now."""
        return self._files.describe(index) | {"class": self.classes[self.labels[index]]}

    def fingerprint(self) -> str:
        """A hash of the relative paths."""
        return self._files.fingerprint()


def _image_files(root: str, below: str = "") -> Iterator[str]:
    """Paths relative to `root` of the image files below `root/below`."""
    with os.scandir(os.path.join(root, below)) as entries:
        for entry in entries:
            name = os.path.join(below, entry.name)
            if entry.is_dir():
                yield from _image_files(root, name)
            elif entry.name.lower().endswith(_EXTENSIONS) and not entry.name.startswith("._"):  # AppleDouble
                yield name
