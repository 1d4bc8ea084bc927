"""Loose images packed into one indexed tar, and the index of packed files."""

import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import jax
import numpy as np

from jaxaug._typing import PathLike
from jaxaug.decode import Encoded, Image
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.loader import Loader
from jaxaug.iterators.sources._video_index import index_videos
from jaxaug.iterators.sources.filelist import FileList
from jaxaug.iterators.sources.folder import VIDEOS, ImageFolder, files_below
from jaxaug.iterators.sources.packed.tar import is_tar
from jaxaug.iterators.sources.packed.tfrecord import TFRecord
from jaxaug.iterators.sources.packed.webdataset import CLASSES, WebDataset
from jaxaug.iterators.sources.paired import PairedFolders
from jaxaug.iterators.sources.protocol import Source
from jaxaug.iterators.sources.storage.byte_progress import byte_progress
from jaxaug.iterators.sources.storage.files import list_files, local_path, reason
from jaxaug.iterators.sources.storage.read import BlockReader, FileReader
from jaxaug.sharding import batch_sharding

LooseSource = ImageFolder | FileList | PairedFolders
MASK = "seg"  # the extension of a mask begins with it: key.seg.png

_DECODED_TOGETHER = 128  # images
_SECONDS = 1.0  # in which reads are measured, at least
_PARTIAL = ".part"  # the end of the name of a folder that is being written
_JPEG_NAMES = {"jpe": "jpg", "jfif": "jpg"}  # other names of the same format, which few tools know


def index_folder(folder: str) -> tuple[int, str]:
    """Keep the tables of the videos below a folder; return how many there are, and the file.

    Raises:
      SourceError: there are none, or the file can be written nowhere.
    """
    root = local_path(folder)
    names = sorted(files_below(root, VIDEOS))
    if not names:
        raise SourceError(f"no videos below {root!r}: expected files named {', '.join(VIDEOS)}.")
    return len(names), index_videos(root, names)


def build_index(paths: PathLike | Sequence[PathLike], **options: Any) -> TFRecord | WebDataset:
    """Make the index of tar or TFRecord files, or check the one that is there.

    Args:
      paths: as `TFRecord` and `WebDataset` take them; the format is told by content.
      options: those of the source, such as image="image" and label="label".

    Returns:
      The opened source.

    Raises:
      SourceError: a missing or damaged file, or a record without image or label.
    """
    options = {"nulls": "count"} | options  # whoever opens it says what they are
    return packed_kind(paths)(paths, **options)


def packed_kind(paths: PathLike | Sequence[PathLike]) -> type[TFRecord] | type[WebDataset]:
    """Return the source that reads some packed files, told by their content."""
    files = [file for file in list_files(paths) if file.size]
    tar = bool(files) and is_tar(BlockReader(FileReader(), files[0], block=512))
    return WebDataset if tar else TFRecord


def pack_files(source: LooseSource, out: PathLike) -> WebDataset:
    """Pack loose files into one uncompressed, indexed tar.

    The records keep their order and labels. Record i of a folder is
    `<class>/<i>-<name>.<extension>`, of a list `<i>-<name>.<extension>`; a single label is in
    `.cls`, several are in `.json` under "label", the mask of an image is in `.seg.<extension>`. A
    folder's class names are in the member `__classes__`. The tar gets its name only when every
    image, mask and label was read back and compared.

    Args:
      source: the files and their labels, or pairs of images and masks.
      out: the tar to write; it must not exist.

    Returns:
      The opened tar.

    Raises:
      SourceError: a file that cannot be read, `out` exists or cannot be written, the tar does not
        hold what it should, or a list with one label for some images and none for others, which a
        tar cannot tell from a single label.

    Example:
      >>> from pathlib import Path
      >>> root = Path(tempfile.mkdtemp())
      >>> (root / "images/cat").mkdir(parents=True)
      >>> _ = (root / "images/cat/tom.jpg").write_bytes(b"...")
      >>> packed = pack_files(ImageFolder(root / "images"), root / "images.tar")
      >>> packed.classes, packed.describe(0)["key"]
      (('cat',), 'cat/0-tom')
    """
    folder, name = os.path.split(local_path(out))
    if os.path.exists(os.path.join(folder, name)):
        raise SourceError(f"`out` {os.fspath(out)!r} exists: remove it or name another file.")
    labels = source.features.get("label")
    if labels is not None and labels.shape[1:] == (1,):
        raise SourceError(
            f"some images of {source!r} have one label and some none: "
            "give each one, or none to any."
        )
    try:
        _pack(source, folder, name)
    except OSError as error:  # no space, no permission
        what = f"`out` {os.fspath(out)!r} cannot be written: {reason(error)}."
        raise SourceError(what) from error
    return _open(source, os.path.join(folder, name))


def _open(source: LooseSource, path: str) -> WebDataset:
    """Open a tar that `source` was packed into."""
    if not isinstance(source, PairedFolders):
        return WebDataset(path)
    paths = (source.mask_path(index) for index in range(len(source)))
    return WebDataset(path, mask=sorted({f"{MASK}.{_extension(each)}" for each in paths}))


def _pack(source: LooseSource, folder: str, name: str) -> None:
    with partial_folder(folder, name) as partial:
        tar = os.path.join(partial, name)
        _write_tar(source, tar)
        _compare(source, _open(source, tar))
        # The index first: what has its name is whole.
        for done in sorted(os.listdir(partial), key=lambda done: done == name):
            os.replace(os.path.join(partial, done), os.path.join(folder, done))


@contextmanager
def partial_folder(folder: str, name: str) -> Iterator[str]:
    """Make a folder for what is not whole yet, which goes at the end; remove those left by kills.

    Args:
      folder: where the whole file will be.
      name: of that file.
    """
    os.makedirs(folder, exist_ok=True)
    _remove_abandoned(folder, name)
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix=f"{name}.", suffix=_PARTIAL, dir=folder)
        partial = stack.enter_context(made)
        with suppress(OSError):  # some network disks have no locks
            stack.enter_context(_locked(partial))
        yield partial


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold the lock of a folder; raise OSError where another process does, or none can be had."""
    import fcntl  # POSIX only

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(folder: str, name: str) -> None:
    """Remove what an earlier run that was killed has left; nobody holds its lock any more."""
    for entry in os.listdir(folder):
        if entry.startswith(f"{name}.") and entry.endswith(_PARTIAL):
            path = os.path.join(folder, entry)
            with suppress(OSError), _locked(path):
                shutil.rmtree(path)


def pack_decoded(source: Source, folder: PathLike, side: int) -> tuple[int, int]:
    """Decode the images of a source once, into a folder that `Loader(keep="disk:FOLDER")` takes.

    Records that are there already are not decoded again: after a kill the same call goes on.

    Args:
      source: the images.
      folder: of the files, which other sources and sizes may share.
      side: of the canvases; larger images are shrunk to it.

    Returns:
      How many records are there, without bad ones, and the bytes of all.

    Raises:
      MemoryError: they do not fit on the disk.
      SourceError: the folder cannot be written.
    """
    try:
        return _pack_decoded(source, folder, side)
    except OSError as error:
        why = reason(error.__cause__ or error)
        what = f"`folder` {os.fspath(folder)!r} cannot be written: {why}."
        raise SourceError(what) from error


def _pack_decoded(source: Source, folder: PathLike, side: int) -> tuple[int, int]:
    loader = Loader(
        source,
        min(len(source), _DECODED_TOGETHER),
        shuffle=False,
        decode=Image(canvas=(side, side)),
        max_bad=None,
        last_batch="pad",
        on_error="mask",
        sharding=batch_sharding(jax.devices()[:1]),
        keep=f"disk:{os.fspath(folder)}",
    )
    with loader:
        for batch in loader:
            jax.block_until_ready(batch)
        return loader.stats["kept_records"], loader.stats["kept_bytes"]


def measure_reads(source: Source) -> float:
    """Return the records/s of a source in random order, each byte copied once into memory."""
    generator = np.random.default_rng(0)
    records = 0
    started = time.perf_counter()
    elapsed = 0.0
    while elapsed < _SECONDS:
        for encoded in _files(source.read(generator.integers(0, len(source), 256))):
            for row in range(256):
                bytes(encoded.view(row))
        records += 256
        elapsed = time.perf_counter() - started
    return records / elapsed


def _files(columns: Mapping[str, Any]) -> list[Encoded]:
    """Return the columns of encoded values."""
    return [values for values in columns.values() if isinstance(values, Encoded)]


def _write_tar(source: LooseSource, path: str) -> None:
    count = len(source)
    images = [source.path(index) for index in range(count)]
    masks = []
    if isinstance(source, PairedFolders):
        masks = [source.mask_path(index) for index in range(count)]
    total = sum(os.path.getsize(file) for file in images + masks if os.path.exists(file))
    labels = source.features.get("label")
    with byte_progress(total, "pack") as advance, tarfile.open(path, "w") as tar:
        if isinstance(source, ImageFolder):
            add_file(tar, CLASSES, json.dumps(source.classes).encode())
        for index, image in enumerate(images):
            key = _key(source, index)
            data = _content(image)
            add_file(tar, f"{key}.{_extension(image)}", data)
            advance(len(data))
            if masks:
                data = _content(masks[index])
                add_file(tar, f"{key}.{MASK}.{_extension(masks[index])}", data)
                advance(len(data))
            if labels is not None:
                label = labels[index].tolist()
                if isinstance(label, int):
                    add_file(tar, f"{key}.cls", str(label).encode())
                else:
                    add_file(tar, f"{key}.json", json.dumps({"label": label}).encode())


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SourceError(f"{path!r} cannot be read: {error.strerror}.") from error


def _key(source: LooseSource, index: int) -> str:
    """Return the key of a record; the number makes it unique, a dot would end it."""
    stem = os.path.splitext(os.path.basename(source.path(index)))[0]
    number = str(index).zfill(len(str(len(source) - 1)))
    folder = f"{source.classes[source.labels[index]]}/" if isinstance(source, ImageFolder) else ""
    return f"{folder}{number}-{re.sub('[.]', '_', stem)}"


def _extension(path: str) -> str:
    extension = os.path.splitext(path)[1][1:].lower()
    return _JPEG_NAMES.get(extension, extension)


def add_file(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file to a tar, without time and owner: equal records give equal tars."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _compare(source: LooseSource, packed: WebDataset) -> None:
    """Raise unless every image, mask and label is in the tar as it is in the files."""
    ours = packed.features
    theirs = source.features
    same = ours.keys() == theirs.keys()
    same = same and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    if not same or packed.classes != getattr(source, "classes", None) or len(packed) != len(source):
        raise SourceError(f"{packed!r} does not hold what {source!r} does.")
    for start in range(0, len(source), 64):
        indices = np.arange(start, min(start + 64, len(source)))
        copies = _files(packed.read(indices))
        for row, index in enumerate(indices.tolist()):
            paths = [source.path(index)]
            if isinstance(source, PairedFolders):
                paths.append(source.mask_path(index))
            pairs = zip(copies, paths, strict=True)
            if any(copy.view(row) != _content(path) for copy, path in pairs):
                raise SourceError(
                    f"record {index} of {packed!r} differs from {source.path(index)!r}."
                )
