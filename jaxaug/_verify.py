"""Every record of a source decoded strictly, and what was found kept for later Loaders."""

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxaug._pack import build_index
from jaxaug._pieces import PIECE, Journal, images_of, run_pieces, write_json
from jaxaug.decode import Encoded, decode_image, read_headers
from jaxaug.decode._cpus import usable_cpus
from jaxaug.decode.audio.decode_audio import check_audio
from jaxaug.decode.audio.read_header import is_sound
from jaxaug.decode.image.form import AS_STORED, PixelForm
from jaxaug.decode.image.host.turbojpeg import check_jpeg_strictly
from jaxaug.decode.image.parse.headers import BAD, DEEP, JPEG
from jaxaug.decode.image.parse.other_formats import format_of
from jaxaug.decode.video.container import container_at
from jaxaug.decode.video.decode_video import check_video, has_frames
from jaxaug.errors import DecodeError
from jaxaug.iterators.sources.filelist import FileList
from jaxaug.iterators.sources.folder import ClassFolder, ImageFolder, open_folder
from jaxaug.iterators.sources.packed.source import PackedSource
from jaxaug.iterators.sources.storage.byte_progress import byte_progress

_STORED = PixelForm(AS_STORED, "float32")  # which holds all numbers that a Loader can be asked for
_LISTS = (".txt", ".tsv", ".csv", ".lst", ".list")  # names of files that list others
_PIECE_OF_OTHERS = 4  # videos or sounds that a process takes at a time: they may be long
_JPEG = b"\xff\xd8"  # how each begins


class Verified(NamedTuple):
    """The result of a run.

    Attributes:
      findings: record -> reason; those of records that could not be read are not kept.
      records: the number of records of the source.
      checked: those decoded by this run; fewer than `records` where it went on after a kill.
      megabytes: of the records checked.
      seconds: that took.
      place: the file that keeps the findings.
    """

    findings: dict[int, str]
    records: int
    checked: int
    megabytes: float
    seconds: float
    place: str


VerifiableSource = ClassFolder | FileList | PackedSource
# Record -> reason of bad ones, and those that could not be read, which may be otherwise later.
Found = tuple[dict[int, str], list[int]]


def open_sources(
    paths: Sequence[str],
    sep: str | None,
    options: dict[str, Any],
    images_alone: bool = False,
) -> Iterator[VerifiableSource]:
    """Yield a source for each folder and list, and one for all other files together.

    Args:
      paths: class folders, text files with lines of `path label ...`, tar or TFRecord files.
      sep: of the text files.
      options: of the tar or TFRecord files, with which a Loader will open them.
      images_alone: leave out what else is in a folder; else there is a source for images, one for
        videos and one for sounds.
    """
    packed = []
    for path in paths:
        if os.path.isdir(path):
            yield from [ImageFolder(path)] if images_alone else open_folder(path)
        elif path.lower().endswith(_LISTS):
            yield FileList(path, sep=sep, dtype=str)  # whatever follows the path: labels, numbers
        else:
            packed.append(path)
    if packed:
        yield build_index(packed, **options)


def verify(source: VerifiableSource, processes: int | None = None) -> Verified:
    """Decode every record in several processes, and keep what is wrong with the source's data.

    A run that is killed goes on where it ended. What an earlier whole run found is found anew.

    Args:
      source: the records; its copies in other processes read the same files.
      processes: None for one on each CPU that this process may use.

    Raises:
      SourceError: the findings can be kept nowhere, or a process died.
      ImportError: a library that decodes them is not installed.
    """
    count = len(source)
    source = source.untrusting()
    piece = _piece_of(source)
    head = [source.fingerprint(), count, piece, "unread"]
    journal = Journal(f"{source.findings_place()}.verify", head)
    earlier = journal.resume()
    results = [*earlier.values()]
    starts = [start for start in range(0, count, piece) if start not in earlier]
    checked = 0
    total_bytes = 0
    started = time.perf_counter()
    work = partial(_check_piece, piece)
    pieces = run_pieces(work, source, starts, piece, processes or usable_cpus())
    with byte_progress(len(starts) * piece, "verify") as advance:
        for start, (found, size) in pieces:
            journal.add(start, found)
            results.append(found)
            checked += min(piece, count - start)
            total_bytes += size
            advance(piece)
    seconds = time.perf_counter() - started
    findings = dict(sorted((int(row), why) for bad, _ in results for row, why in bad.items()))
    unread = {row for _, each in results for row in each}
    place = source.keep_findings({row: why for row, why in findings.items() if row not in unread})
    journal.remove()
    return Verified(findings, count, checked, total_bytes / 1e6, seconds, place)


def print_result(source: VerifiableSource, result: Verified) -> None:
    """Print a line for each bad record, and a summary."""
    for entry in _list(source, result):
        print(f"{entry['record']:>10}  {entry['file']}  {entry['reason']}")
    rate = result.checked / max(result.seconds, 1e-9)
    megabytes = result.megabytes / max(result.seconds, 1e-9)
    earlier = result.records - result.checked
    print(
        f"{source}: {len(result.findings):,} of {result.records:,} records are bad. Checked "
        f"{result.checked:,} in {result.seconds:.1f} s: {rate:,.0f} records/s, "
        f"{megabytes:,.0f} MB/s" + (f"; {earlier:,} were checked before." if earlier else ".")
    )
    print(f"kept in {result.place}")


def write_list(path: str, results: Sequence[tuple[VerifiableSource, Verified]]) -> None:
    """Write the bad records of several sources as JSON."""
    write_json(path, [entry for source, result in results for entry in _list(source, result)])


def _list(source: VerifiableSource, result: Verified) -> Iterator[dict[str, Any]]:
    for index, reason in result.findings.items():
        about = source.describe(index)
        file = ", ".join(str(about[name]) for name in ("path", "key") if name in about)
        yield {"source": str(source), "record": index, "file": file, "reason": reason}


def _piece_of(source: VerifiableSource) -> int:
    """Return how many records a process takes at a time, by the first one."""
    if not len(source):
        return PIECE
    name, column = _main_column(source.read(np.zeros(1, np.int64)))
    encoded, _ = images_of(column)
    return PIECE if medium_of(encoded, name) == "image" else _PIECE_OF_OTHERS


def _main_column(columns: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the name of the column of encoded values and what it holds."""
    name = next(name for name in ("image", "video", "audio") if name in columns)
    return name, columns[name]


def _check_piece(piece: int, source: VerifiableSource, start: int) -> tuple[Found, int]:
    """Return what was found of the records from `start` on, and the bytes of them all."""
    indices = np.arange(start, min(start + piece, len(source)))
    columns = source.read(indices)
    pairs = [_main_column(columns)]
    if isinstance(columns.get("mask"), Encoded):
        pairs.insert(0, ("mask", columns["mask"]))  # the image's reason stays
    findings: dict[int, str] = {}
    unread: list[int] = []
    size = 0
    for name, column in pairs:
        encoded, records = images_of(column)
        size += int(encoded.lengths.sum())
        for row, index in enumerate(indices[records].tolist()):
            fault = find_fault(encoded.take(slice(row, row + 1)), name)
            if fault:
                about = {} if encoded.lengths[row] else source.describe(index)
                prefix = "the mask: " if name == "mask" else ""
                findings[index] = prefix + about.get("error", fault)
                if "error" in about:
                    unread.append(index)
    return (findings, unread), size


def find_fault(encoded: Encoded, column: str = "image") -> str:
    """Return what is wrong with one record, or "".

    Args:
      encoded: one image, mask, video or sound.
      column: the name of its column, see `medium_of`.
    """
    medium = medium_of(encoded, column)
    try:
        if medium == "video":
            check_video(encoded.view(0))
        elif medium == "audio":
            check_audio(encoded.view(0))
        else:
            return _fault_of_image(encoded, is_mask=medium == "mask")
    except DecodeError as error:
        return error.reason
    return ""


def medium_of(encoded: Encoded, column: str) -> str:
    """Return how a record is decoded, "image", "mask", "video" or "audio".

    A column "image" may hold any: sources call theirs so where nobody says more. There the content
    decides; what is nothing known counts as an image.
    """
    data = encoded.view(0)
    if column != "image" or not len(data):
        return column
    if format_of(data) is not None or bytes(data[: len(_JPEG)]) == _JPEG:
        return "image"
    container = container_at(data)
    if container is not None and has_frames(data, container):
        return "video"
    return "audio" if is_sound(data) else "image"


def _fault_of_image(encoded: Encoded, is_mask: bool) -> str:
    """Return what is wrong with one image, or "".

    Args:
      encoded: the image.
      is_mask: its numbers count, not its colors.
    """
    as_stored = not is_mask and _holds_numbers(encoded)
    headers = read_headers(encoded, form=_STORED if as_stored else PixelForm())
    if headers.kind[0] == BAD:
        return str(headers.reason[0])
    data = encoded.view(0)
    try:
        if as_stored:
            decode_image(data, strict=True, dtype=_STORED.dtype, channels=_STORED.channels)
            return ""
        if headers.kind[0] == JPEG and not is_mask:
            check_jpeg_strictly(data, headers.row(0))
            return ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bits that are lost, and of metadata
            decode_image(data, "unchanged" if is_mask else "rgb", strict=True)
    except DecodeError as error:
        return error.reason
    return ""


def _holds_numbers(encoded: Encoded) -> bool:
    """Return whether the pixels of an image are no levels of colors, but bands, floats or signed.

    Whether a Loader asks for them as they are stored is not known here: damage alone is a fault.
    """
    headers = read_headers(encoded, form=_STORED)
    layout = headers.layout[0]
    if headers.kind[0] != DEEP or layout is None:
        return False
    return not layout.colors or layout.dtype.kind != "u" or layout.bits > 16
