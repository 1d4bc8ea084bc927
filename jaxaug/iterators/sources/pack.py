"""From many small files to one: a folder of images packed into an indexed tar, and the index of packed files."""

import io
import json
import os
import re
import tarfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxaug._typing import PathLike
from jaxaug.errors import SourceError
from jaxaug.iterators._protocol import Source
from jaxaug.iterators.sources._files import FileReader, Window, list_files
from jaxaug.iterators.sources._progress import byte_progress
from jaxaug.iterators.sources._tar import is_tar
from jaxaug.iterators.sources.folder import ImageFolder
from jaxaug.iterators.sources.tfrecord import TFRecord
from jaxaug.iterators.sources.webdataset import CLASSES, WebDataset

_JPEG_NAMES = {"jpe": "jpg", "jfif": "jpg"}  # other names of the same format, which few tools know


def build_index(paths: PathLike | Sequence[PathLike], **options: Any) -> TFRecord | WebDataset:
    """Make the index of tar or TFRecord files, or check the one that is there: what `python -m jaxaug index` does.

    Args:
      paths: as `TFRecord` and `WebDataset` take them; the format is told by content.
      options: those of the source, such as image="image" and label="label".

    Returns:
      The opened source.

    Raises:
      SourceError: a missing or damaged file, or a `label` for tar files, which have it in `cls` members.
    """
    files = [file for file in list_files(paths) if file.size]
    tar = bool(files) and is_tar(Window(FileReader(), files[0], block=512))
    if tar and "label" in options:
        raise SourceError(f"{files[0].path!r} is a tar file, whose labels are in `cls` members: leave out `label`.")
    return WebDataset(paths, **options) if tar else TFRecord(paths, **options)


def pack_folder(folder: PathLike, out: PathLike) -> WebDataset:
    """Pack an `ImageFolder` into one uncompressed, indexed tar: what `python -m jaxaug pack` does.

    The records keep their order and labels. Record i is `<class>/<i>-<name>.<extension>` with its label in
    `.cls`; the class names are in the member `__classes__`. In the end every image is read back and compared.

    Args:
      folder: class folders with images.
      out: the tar to write; it must not exist.

    Returns:
      The opened tar.

    Raises:
      SourceError: no images, a file that cannot be read, `out` exists, or the tar does not hold what it should.

    Example:
      >>> import tempfile
      >>> from pathlib import Path
      >>> root = Path(tempfile.mkdtemp())
      >>> (root / "images/cat").mkdir(parents=True)
      >>> _ = (root / "images/cat/tom.jpg").write_bytes(b"...")
      >>> packed = pack_folder(root / "images", root / "images.tar")
      >>> packed.classes, packed.describe(0)["key"]
      (('cat',), 'cat/0-tom')
    """
    source, out = ImageFolder(folder), os.fspath(out)
    if os.path.exists(out):
        raise SourceError(f"`out` {out!r} exists: remove it or name another file.")
    os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
    partial = f"{out}.part"
    try:
        _write_tar(source, partial)
        os.replace(partial, out)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    packed = WebDataset(out)
    _compare(source, packed)
    return packed


def measure_reads(source: Source, seconds: float = 1.0) -> float:
    """Records/s of a source in random order, each byte copied once, so that it is really in memory.

    Args:
      source: what to read.
      seconds: how long to read at least.
    """
    generator, records, started = np.random.default_rng(0), 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        encoded, _ = source.read(generator.integers(0, len(source), 256))
        for row in range(256):
            bytes(encoded.view(row))
        records += 256
    return records / elapsed


def _write_tar(source: ImageFolder, path: str) -> None:
    total = sum(os.path.getsize(source.path(index)) for index in range(len(source)))
    with byte_progress(total, "pack") as advance, tarfile.open(path, "w") as tar:
        _add(tar, CLASSES, json.dumps(source.classes).encode())
        for index, label in enumerate(source.labels.tolist()):
            try:
                with open(source.path(index), "rb") as file:
                    data = file.read()
            except OSError as error:
                raise SourceError(f"{source.path(index)!r} cannot be read: {error.strerror}.") from error
            stem, extension = _key(source, index)
            _add(tar, f"{stem}.{extension}", data)
            _add(tar, f"{stem}.cls", str(label).encode())
            advance(len(data))


def _key(source: ImageFolder, index: int) -> tuple[str, str]:
    """(key, extension). The number makes the key unique; it must hold no dot, which would end it."""
    stem, extension = os.path.splitext(os.path.basename(source.path(index)))
    extension = extension[1:].lower()
    number = str(index).zfill(len(str(len(source) - 1)))
    name = f"{source.classes[source.labels[index]]}/{number}-{re.sub('[.]', '_', stem)}"
    return name, _JPEG_NAMES.get(extension, extension)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)  # no times and owners: equal folders give equal tars
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _compare(source: ImageFolder, packed: WebDataset) -> None:
    """Every image and label is in the tar as it is in the folder."""
    if len(packed) != len(source) or packed.classes != source.classes:
        raise SourceError(f"{packed!r} does not hold what {source!r} does.")
    for start in range(0, len(source), 64):
        indices = np.arange(start, min(start + 64, len(source)))
        (ours, features), (theirs, wanted) = packed.read(indices), source.read(indices)
        for row, index in enumerate(indices.tolist()):
            if ours.view(row) != theirs.view(row) or features["label"][row] != wanted["label"][row]:
                raise SourceError(f"record {index} of {packed!r} differs from {source.path(index)!r}.")
