"""TFRecord files of tf.Example records, read without tensorflow."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._typing import PathLike
from jaxaug.errors import SourceError
from jaxaug.iterators.sources import _items
from jaxaug.iterators.sources.packed.columns import ColumnBuilder, MaxLength, Place
from jaxaug.iterators.sources.packed.source import PackedSource
from jaxaug.iterators.sources.packed.tf_example import Feature, parse_example
from jaxaug.iterators.sources.storage.crc32c import crc32c
from jaxaug.iterators.sources.storage.read import BlockReader

# A record, little-endian: length uint64, masked CRC-32C of these 8 bytes, data, masked CRC-32C of
# the data. tensorflow/core/lib/io/record_writer.h
_HEAD_BYTES = 12
_TAIL_BYTES = 4
# tensorflow/core/lib/hash/crc32c.h: stored = rotate right by 15, plus this
_MASK_DELTA = np.uint32(0xA282EAD8)


class TFRecord(PackedSource):
    """Images or videos in TFRecord files of tf.Example, as tensorflow and TFDS write them.

    The index is made on first use, with all checksums of the files verified, and kept beside the
    files or, where that cannot be, in $XDG_CACHE_HOME/jaxaug (`index_path` tells; `python -m jaxaug
    index` makes it beforehand); from then on a batch is numpy indexing. Numbers become features:
    one per record as [n], k per record as [n, k], varying ones (boxes) as zero-padded [n, most]
    with "<name>_length" int32[n]. Strings are in `texts`, by the names of their features, and in
    `describe`. Labels are as the files have them:
    ImageNet's of TF-Slim count from 1.

    Args:
      paths: files, glob patterns, brace ranges ("train-{00000..00146}.tfrecord"), or URLs (gs://,
        s3://, http://); the files of a pattern come sorted.
      image: the bytes feature that holds the encoded image.
      mask: the bytes feature that holds the encoded mask, such as
        "image/segmentation/class/encoded"; None for no masks. See `decode.Mask`.
      video: the bytes feature that holds an encoded video, in place of the image; the column is
        "video" then.
      label: the integer feature that becomes "label"; None for none.
      features: names of further features, or {name: new name}; None for all numbers. Bytes that
        are named here become uint8[n, k].
      boxes_of: the image whose pixels "boxes" and "keypoints" are in: "stored", as the file has it,
        or "upright", as viewers show it, turned by EXIF.
      nulls: what a record has that lacks its number in a column of single ones: "error"; "nan" for
        NaN in floats; "count" for 0, with a column "<name>_count" that is 0 there and else 1.
      max_length: the length of columns of lists, by column; or a number for all those whose lists
        differ in length. Shorter lists are padded, longer ones cut, and "<name>_length" is how
        many numbers are there; in `features` how many there were.
      index: the file of the index, or a folder (made if it ends with "/") for it and those of the
        single files, read and written there alone; or the URL of either, of a folder with "/" at
        its end: such an index is read once, and kept in memory. None for beside the files or
        $XDG_CACHE_HOME/jaxaug.
      trust_index: open nothing but `index`, which must be there: no file is listed or asked for. A
        remote one that changed is an error when it is read, where its server gives ETags.
      mmap: map files on disks of this machine into memory, fast and without a copy; a disk that
        fails or a file that is cut while a batch is decoded then ends the process. False: read them
        with retries; what lies on network disks and at URLs always is.
      timeout: seconds without an answer after which a read of records counts as failed; not for
        mapped files. A read of a URL is tried again until then, each time after a quarter of it.
      retries: tries of a read of a file after the first, 0.1, 0.2, 0.4, ... seconds apart; not for
        mapped files.
      cache: a folder in which what was read of URLs is kept, by blocks of 1 MiB; processes may
        share it. None keeps nothing.
      cache_bytes: about how much of it; blocks that were not used for longest make room.

    Raises:
      ValueError: `timeout` or `retries` are no such numbers.
      SourceError: a missing or damaged file, a record without the image or the label, no records,
        one of `features` that no record has, or two features that would get the same name.

    Example:
      A file without records is an error:

      >>> import tempfile
      >>> file = tempfile.NamedTemporaryFile(suffix=".tfrecord")
      >>> TFRecord(file.name)  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      jaxaug.errors.SourceError: no records in 1 file(s), ...
    """

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        image: str = "image/encoded",
        mask: str | None = None,
        video: str | None = None,
        label: str | None = "image/class/label",
        features: Sequence[str] | Mapping[str, str] | None = None,
        boxes_of: str = "stored",
        nulls: str = "error",
        max_length: MaxLength = None,
        index: PathLike | None = None,
        trust_index: bool = False,
        mmap: bool = True,
        timeout: float = 60.0,
        retries: int = 3,
        cache: PathLike | None = None,
        cache_bytes: float = 100e9,
    ):
        if video is not None:
            self._main = "video"
            image = video
        self._image = image
        self._mask = mask
        self._label = label
        self._names = None if features is None else _items.new_names(features)
        labelled = {} if label is None else {label: "label"}
        _items.check_different((self._names or {}) | labelled)
        options = {"image": image, "label": label, "features": self._names}
        if mask is not None:
            options["mask"] = mask
        if video is not None:
            options["column"] = self._main
        reading = {"mmap": mmap, "timeout": timeout, "retries": retries}
        kept = {"cache": cache, "cache_bytes": cache_bytes}
        columns = {"boxes_of": boxes_of, "nulls": nulls, "max_length": max_length}
        place = {"index": index, "trust_index": trust_index}
        super().__init__(paths, options, **place, **columns, **reading, **kept)

    def _open(self) -> None:
        super()._open()
        self._check_found(self._names, self._label)

    def _scan(
        self, reader: BlockReader, columns: ColumnBuilder, report: Callable[[int], None]
    ) -> dict[str, Any]:
        offset = 0
        size = reader.file.size
        while offset < size:
            block, starts, lengths = _frames(reader, offset, columns.count)
            data = block.data
            for start, length in zip(starts.tolist(), lengths.tolist()):
                try:
                    found = parse_example(data, start, start + length)
                except ValueError as error:
                    raise _damaged(reader, columns.count, f"is no tf.Example: {error}") from error
                number = columns.count
                first, last = self._take_bytes(found, self._main, self._image, reader, number)
                mask = None
                if self._mask is not None:
                    begin, end = self._take_bytes(found, "mask", self._mask, reader, number)
                    mask = Place(offset + begin, end - begin)
                numbers = self._numbers(found, data, reader, number)
                lead = first - (start - _HEAD_BYTES)
                columns.add(block[first:last], offset + first, lead, numbers, mask)
            offset += int(starts[-1] + lengths[-1]) + _TAIL_BYTES
            report(offset)
        return {}

    def _take_bytes(
        self, found: dict[str, Feature], what: str, name: str, reader: BlockReader, number: int
    ) -> tuple[int, int]:
        """Take the place of an image or a mask, (start, stop), out of a record's features."""
        place = found.pop(name, None)
        if not isinstance(place, list) or len(place) != 1:
            names = sorted(found)
            raise _damaged(reader, number, f"has no {what} {name!r}; its features are {names}")
        return place[0]

    def _numbers(
        self, found: dict[str, Feature], data: memoryview, reader: BlockReader, number: int
    ) -> dict[str, np.ndarray]:
        """Return the numbers of a record that are kept, by name."""
        numbers = {}
        if self._label is not None:
            numbers["label"] = self._label_of(found, reader, number)
        for name, value in found.items():
            if self._names is not None:
                if name not in self._names:
                    continue
                name = self._names[name]
                if isinstance(value, list) and len(value) == 1:
                    value = np.frombuffer(data[slice(*value[0])], np.uint8)
            if not isinstance(value, np.ndarray):
                continue
            if name in numbers:
                what = (
                    f"has a feature {name!r} beside the label {self._label!r}, which is called so"
                )
                hint = "pass another `label`, or the `features` that you need"
                raise _damaged(reader, number, f"{what}: {hint}")
            numbers[name] = value
        return numbers

    def _label_of(
        self,
        found: dict[str, Feature],
        reader: BlockReader,
        number: int,
    ) -> np.ndarray:
        """Take the label out of a record's features."""
        label = found.pop(str(self._label), None)
        if not isinstance(label, np.ndarray) or label.size != 1 or label.dtype != np.int64:
            what = f"has no integer label {self._label!r} (None for none)"
            if label is not None:
                is_numbers = isinstance(label, np.ndarray)
                what += f", got {f'{label.size} of {label.dtype}' if is_numbers else 'bytes'}"
            raise _damaged(reader, number, f"{what}; its features are {sorted(found)}")
        return label

    def _texts(
        self, reader: BlockReader, start: int, stop: int, names: Sequence[str]
    ) -> dict[str, Any]:
        data = reader.at(start, stop - start).data
        found: dict[str, Any] = dict(parse_example(data, _HEAD_BYTES, len(data) - _TAIL_BYTES))
        found |= dict.fromkeys({self._image, self._mask} & found.keys())
        for name in names:
            value = found.get(name)
            if isinstance(value, list) and len(value) == 1:
                found[name] = bytes(data[slice(*value[0])])
        return found

    def _strings(self, reader: BlockReader, start: int) -> dict[str, Any]:
        block, starts, lengths = _frames(reader, start, None)
        data = block.data
        found = parse_example(data, int(starts[0]), int(starts[0] + lengths[0]))
        for name in (self._image, self._mask):
            found.pop(str(name), None)
        strings = {}
        for name, value in found.items():
            if isinstance(value, list):
                texts = [_text(bytes(data[begin:end])) for begin, end in value]
                strings[name] = texts[0] if len(texts) == 1 else texts
        return strings


def _frames(
    reader: BlockReader, offset: int, first_record: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the next verified records from `offset` on: (block, starts in it, lengths)."""
    block = reader.at(offset, reader.block_size)
    starts, lengths, wanted = _walk(block, reader, first_record)
    if not starts:  # the first record is longer than a block
        block = reader.at(offset, wanted)
        starts, lengths, wanted = _walk(block, reader, first_record)
    if not starts:
        what = f"is cut: the file ends within it, {wanted - block.size} bytes early"
        raise _damaged(reader, first_record, what)
    begins = np.array(starts, np.int64)
    sizes = np.array(lengths, np.int64)
    good = _stored(block, begins + sizes) == _masked(crc32c(block, begins, sizes))
    if not good.all():
        bad = int(np.argmin(good))
        number = None if first_record is None else first_record + bad
        raise _damaged(reader, number, "is damaged: the checksum of its data differs")
    return block, begins, sizes


def _walk(
    block: np.ndarray, reader: BlockReader, first_record: int | None
) -> tuple[list[int], list[int], int]:
    """Return the whole records of a block: (starts, lengths, bytes to the end of the next one)."""
    starts = []
    lengths = []
    at = 0
    while at + _HEAD_BYTES <= block.size:
        (length,) = struct.unpack_from("<Q", block.data, at)
        stop = at + _HEAD_BYTES + length + _TAIL_BYTES
        if stop > block.size:
            break
        starts.append(at + _HEAD_BYTES)
        lengths.append(length)
        at = stop
    heads = np.array(
        [start - _HEAD_BYTES for start in starts] + [at] * (at + _HEAD_BYTES <= block.size),
        np.int64,
    )
    good = _stored(block, heads + 8) == _masked(crc32c(block, heads, np.full(heads.size, 8)))
    if not good.all():
        number = None if first_record is None else first_record + int(np.argmin(good))
        hint = ", or this is no TFRecord" if number == 0 else ""
        raise _damaged(reader, number, f"is damaged: the checksum of its length differs{hint}")
    if at + _HEAD_BYTES > block.size:
        return starts, lengths, at + _HEAD_BYTES
    (length,) = struct.unpack_from("<Q", block.data, at)
    return starts, lengths, at + _HEAD_BYTES + length + _TAIL_BYTES


def _stored(block: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the uint32 at each offset."""
    return block[offsets[:, None] + np.arange(4)].view("<u4")[:, 0]


def _masked(crcs: np.ndarray) -> np.ndarray:
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + _MASK_DELTA


def _damaged(reader: BlockReader, number: int | None, what: str) -> SourceError:
    which = "a record" if number is None else f"record {number}"
    return SourceError(f"{reader.file.name!r}: {which} {what}.")


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
