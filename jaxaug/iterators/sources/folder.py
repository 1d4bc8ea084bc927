"""Folders of images, videos or sounds, with one sub-folder for each class."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from jaxaug._typing import Features, PathLike, Values
from jaxaug._warn import warn_user
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators.sources._base import FileSource
from jaxaug.iterators.sources.storage.files import local_path, reason
from jaxaug.iterators.sources.storage.loose import LooseFiles

# Names only choose which files are records; what a file is, its bytes decide.
_IMAGES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_IMAGES += (
    ".jp2",
    ".j2k",
    ".jxl",
    ".avif",
    ".heic",
    ".heif",
    ".pgm",
    ".ppm",
    ".pam",
    ".pfm",
    ".dcm",
)
VIDEOS = (".mp4", ".m4v", ".mov", ".3gp", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mts")
VIDEOS += (".mpg", ".mpeg", ".vob", ".flv", ".ogv", ".wmv", ".asf", ".ivf")
_SOUNDS = (
    ".wav",
    ".wave",
    ".w64",
    ".rf64",
    ".aif",
    ".aiff",
    ".aifc",
    ".au",
    ".snd",
    ".caf",
    ".sph",
)
_SOUNDS += (".flac", ".mp3", ".ogg", ".oga", ".opus", ".aac", ".m4a", ".wma")
_SOUNDS += (".ac3", ".eac3", ".amr", ".awb")
# By what is in a folder: the source that reads it.
_SOURCES = {
    "images": ("ImageFolder", _IMAGES),
    "videos": ("VideoFolder", VIDEOS),
    "sounds": ("AudioFolder", _SOUNDS),
}
_MAX_SHOWN_NAMES = 5  # names in an error
_PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}


class ClassFolder(FileSource):
    """Files in class folders; see `ImageFolder` and `VideoFolder`."""

    _column: ClassVar[str]
    _noun: ClassVar[str]
    _extensions: ClassVar[tuple[str, ...]]

    def __init__(self, root: PathLike, classes: Sequence[str] | None = None):
        self.root = Path(local_path(root))
        names, below = _list_folder(self.root, self._noun, self._extensions)
        folders = [name.split(os.sep, 1)[0] if os.sep in name else "." for name in names]
        found = sorted(set(folders))
        if classes is None:
            _check_no_shift(str(self.root), self._noun, found, names, below)
            self._warn_of_classes(found)
        self.classes: tuple[str, ...] = tuple(found) if classes is None else _class_names(classes)
        unknown = [name for name in found if name not in self.classes]
        if unknown:
            wanted = f"`classes` must name every folder with {self._noun} below {str(self.root)!r}"
            raise SourceError(f"{wanted}; it lacks {listed(unknown)}.")
        ranks = {name: rank for rank, name in enumerate(self.classes)}
        self.labels = np.array([ranks[folder] for folder in folders], np.int32)
        self._files = LooseFiles(str(self.root), names)

    def _warn_of_classes(self, found: Sequence[str]) -> None:
        """Warn of a folder without classes, and of parts of a data set that would be classes."""
        if found == ["."]:
            warn_user(
                f"{str(self.root)!r} has {self._noun} and no class folders, so that all have label"
                f" 0: give {str(self.root.absolute().parent)!r} if it is a class itself,"
                " Files(sorted(paths)) if they have no labels, or classes=['.'] if this is meant."
            )
        if _PARTS.issuperset(name.lower() for name in found):
            one = f"{type(self).__name__}({str(self.root / found[-1])!r})"
            warn_user(
                f"the classes of {str(self.root)!r} are {found}, which are usually parts of a data"
                f" set: give {one} for one of them, or classes={found} if they are classes."
            )

    def __repr__(self) -> str:
        found = f"{len(self)} {self._noun}, {len(self.classes)} classes, {sorted(self.features)}"
        return f"{type(self).__name__}({str(self.root)!r}: {found})"

    @property
    def features(self) -> Features:
        """The column "label", known without reading a file."""
        return {"label": self.labels}

    def _columns(self, indices: np.ndarray, files: Encoded) -> dict[str, Values]:
        return {self._column: files, "label": self.labels[indices]}

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's path and class, and "error" if the file cannot be read now."""
        return self._files.describe(index) | {"class": self.classes[self.labels[index]]}

    def fingerprint(self) -> str:
        """Return a hash of the relative paths and of the labels."""
        return self._files.fingerprint(self.labels)


class ImageFolder(ClassFolder):
    """Images in class folders: `root/dog/x.jpg`, `root/cat/y/z.png`; the label is the class's rank.

    A folder without sub-folders of images is one class named ".", label 0, and is warned of unless
    `classes` names it. Files are found by their extension, in any depth, sorted by path. Empty
    folders named ".like-this" do not count.

    Args:
      root: the folder.
      classes: names of the class folders in the order of their labels; some may be empty or not
        there. When None, all folders below `root`, sorted by name, none of which may be empty: else
        training and validation data could count differently.

    Attributes:
      classes: the class names, tuple[str, ...].
      labels: the class of each image, int32[n].

    Raises:
      SourceError: the folder is missing, holds no images, one below it cannot be read, a class
        folder has no images, there are images beside the class folders, or in a folder that
        `classes` does not name.
      ValueError: `classes` are no names, or hold one twice.

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

    _column = "image"
    _noun = "images"
    _extensions = _IMAGES


class VideoFolder(ClassFolder):
    """Videos in class folders: `root/dog/x.mp4`, `root/cat/y/z.mkv`; the label is the class's rank.

    All else is as in `ImageFolder`; the column is "video", which `decode.Video` decodes. `python -m
    jaxaug index FOLDER` keeps the tables of the videos, so that only what a clip needs is looked
    at.

    Args:
      root: the folder.
      classes: names of the class folders in the order of their labels; None for all, sorted.

    Attributes:
      classes: the class names, tuple[str, ...].
      labels: the class of each video, int32[n].

    Raises:
      SourceError, ValueError: as those of `ImageFolder`.

    Example:
      >>> import tempfile
      >>> root = Path(tempfile.mkdtemp())
      >>> (root / "run").mkdir()
      >>> _ = (root / "run" / "a.mp4").write_bytes(b"...")
      >>> VideoFolder(root).labels.tolist()
      [0]
    """

    _column = "video"
    _noun = "videos"
    _extensions = VIDEOS


class AudioFolder(ClassFolder):
    """Sounds in class folders: `root/yes/x.wav`, `root/no/y/z.flac`; the label is the class's rank.

    All else is as in `ImageFolder`; the column is "audio", which `decode.Audio` decodes.

    Args:
      root: the folder.
      classes: names of the class folders in the order of their labels; None for all, sorted.

    Attributes:
      classes: the class names, tuple[str, ...].
      labels: the class of each sound, int32[n].

    Raises:
      SourceError, ValueError: as those of `ImageFolder`.

    Example:
      >>> import tempfile
      >>> root = Path(tempfile.mkdtemp())
      >>> (root / "yes").mkdir()
      >>> _ = (root / "yes" / "a.wav").write_bytes(b"...")
      >>> AudioFolder(root).labels.tolist()
      [0]
    """

    _column = "audio"
    _noun = "sounds"
    _extensions = _SOUNDS


def _list_folder(root: Path, noun: str, extensions: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the files of a kind below a folder, and the folders in it, both sorted.

    Raises:
      SourceError: it is no folder, cannot be read, or holds no such files.
    """
    if not root.is_dir():
        raise SourceError(f"`root` must be a folder of {noun}, got {str(root)!r}, which is none.")
    try:
        names = sorted(files_below(str(root), extensions))
        below = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    except OSError as error:
        raise SourceError(f"`root`: {error.filename!r} cannot be read: {reason(error)}.") from error
    if not names:
        expected = f"class folders with files named {', '.join(extensions)}"
        raise SourceError(f"no {noun} below {str(root)!r}: expected {expected}{_others(root)}.")
    return names, below


def open_folder(root: PathLike) -> list[ClassFolder]:
    """Return a source for each of images, videos and sounds below a folder.

    Where there are several, a class folder may have files of one of them alone.

    Raises:
      SourceError: it is no folder, cannot be read, has none of them, or the files of one kind have
        no classes, see `ImageFolder`.
    """
    path = Path(local_path(root))
    names, below = _list_folder(path, "images, videos or sounds", _IMAGES + VIDEOS + _SOUNDS)
    kinds = [
        kind
        for kind in (ImageFolder, VideoFolder, AudioFolder)
        if any(name.lower().endswith(kind._extensions) for name in names)
    ]
    if len(kinds) == 1:
        return [kinds[0](path)]
    return [kind(path, [".", *below]) for kind in kinds]


def _others(root: Path) -> str:
    """Return what reads the files of another kind below a folder, for a message; "" without any."""
    found = [
        f"{noun}, which {source} reads,"
        for noun, (source, extensions) in _SOURCES.items()
        if any(files_below(str(root), extensions))
    ]
    return f"; there are {' and '.join(found)}".removesuffix(",") if found else ""


def _class_names(classes: Sequence[str]) -> tuple[str, ...]:
    names = () if isinstance(classes, str) else tuple(classes)
    texts = all(isinstance(name, str) for name in names)
    if not names or not texts or len(set(names)) < len(names):
        raise ValueError(f"`classes` must be different names of folders, got {classes!r}.")
    return names


def _check_no_shift(
    root: str, noun: str, found: list[str], names: list[str], below: list[str]
) -> None:
    """Raise SourceError where labels would not be what they are in a folder of the same classes.

    Files beside the class folders would be a class of their own, the first one; an empty class
    folder would be none.
    """
    if found == ["."]:
        return
    beside = [name for name in names if os.sep not in name]
    if beside:
        raise SourceError(
            f"{noun} in no class folder below {root!r}: {listed(beside)}. Remove them, or name '.' "
            "in classes=[...], which makes them a class."
        )
    empty = [name for name in below if name not in found and not name.startswith(".")]
    if empty:
        raise SourceError(
            f"no {noun} in {listed(empty)} below {root!r}: remove what is no class, or fix the "
            "labels by classes=[...], which may name empty folders."
        )


def listed(names: list[str]) -> str:
    """Return the first few of some names, for a message."""
    shown = ", ".join(map(repr, names[:_MAX_SHOWN_NAMES]))
    return (
        shown
        if len(names) <= _MAX_SHOWN_NAMES
        else f"{shown} and {len(names) - _MAX_SHOWN_NAMES} more"
    )


def files_below(root: str, extensions: tuple[str, ...] = _IMAGES) -> Iterator[str]:
    """Yield the paths, relative to `root`, of the files below it by extension, in no order."""
    yield from _files_below(root, "", (_identity(root),), extensions)


def _files_below(
    root: str, below: str, above: tuple[tuple[int, int], ...], extensions: tuple[str, ...]
) -> Iterator[str]:
    with os.scandir(os.path.join(root, below)) as entries:
        for entry in entries:
            name = os.path.join(below, entry.name)
            if entry.is_dir():
                identity = _identity(entry.path)
                if identity in above:
                    what = "is a link to a folder that holds it, which never ends: remove it"
                    raise SourceError(f"`root`: {entry.path!r} {what}.")
                yield from _files_below(root, name, (*above, identity), extensions)
            elif entry.name.lower().endswith(extensions) and not entry.name.startswith(
                "._"
            ):  # AppleDouble
                yield name


def _identity(folder: str) -> tuple[int, int]:
    """Return what tells a folder from all others, however it is reached."""
    facts = os.stat(folder)
    return facts.st_dev, facts.st_ino
