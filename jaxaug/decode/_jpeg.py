"""The byte check of JPEG files: markers, lengths, tables and end, for many files in one marker walk.

A file passes exactly when a decoder can start on it: what the frame and the first scan refer to is there and
well formed, and the file has its end. Damage inside the entropy-coded data is not looked for: it costs
pixels, not the image. The rules are those of ITU-T T.81 as libjpeg-turbo enforces them.
"""

import re
from typing import NamedTuple

import numpy as np

from jaxaug.decode._memory import read_bytes, read_ragged
from jaxaug.decode._types import Encoded, memory_view

# Marker codes, ITU-T T.81 table B.1.
_SOI, _EOI, _SOS, _DHT, _DAC, _DQT, _DNL, _DRI = 0xD8, 0xD9, 0xDA, 0xC4, 0xCC, 0xDB, 0xDC, 0xDD
_APP0, _APP1, _APP14, _COM = 0xE0, 0xE1, 0xEE, 0xFE
_FRAMES = (0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF)

# Colour models as the file stores them.
GRAY, YCBCR, RGB, CMYK, YCCK = 1, 2, 3, 4, 5

_SHORTEST = 64  # bytes; one quantisation table alone has more
_LARGEST_SIDE = 65500  # libjpeg's JPEG_MAX_DIMENSION
_MOST_SEGMENTS = 1000  # 255 ICC parts and 16 MB of XMP stay below it; it bounds the walk over hostile files
_MOST_SCANS = 500  # each scan of a progressive file costs a pass over the image, however few bytes it has
_MOST_BLOCKS = 10  # blocks in one interleaved MCU, T.81 B.2.3


def _lookup(*members: int) -> np.ndarray:
    """bool[256], True at the members."""
    return np.isin(np.arange(256), members)


_IS_FRAME = _lookup(*_FRAMES)
_HAS_LENGTH = _IS_FRAME | _lookup(_SOS, _DHT, _DAC, _DQT, _DNL, _DRI, _COM, *range(_APP0, _APP0 + 16))
_DECODABLE = _lookup(0, 1, 2, 9, 10)  # SOF numbers: baseline, extended, progressive; the arithmetic ones
_PROGRESSIVE = _lookup(2, 10)
_COUNTABLE = _lookup(1, 3, 4)  # components with a colour model
_NEXT_MARKER = re.compile(rb"\xff([^\x00\xff])")  # linear also over long filling
_CODE_SPACE = 1 << np.arange(15, -1, -1)  # what a code of 1..16 bits takes of 2^16 codes


class JpegColumns(NamedTuple):
    """What `check_jpegs` found, one row a file; the fields are those of `Headers`."""

    height: np.ndarray
    width: np.ndarray
    orientation: np.ndarray
    coding: np.ndarray
    precision: np.ndarray
    components: np.ndarray
    scan_components: np.ndarray
    sampling: np.ndarray
    color: np.ndarray
    scan_offset: np.ndarray


class _Segments(NamedTuple):
    """Marker segments of many files; the payload of each is the memory [start, stop)."""

    row: np.ndarray
    marker: np.ndarray
    start: np.ndarray
    stop: np.ndarray

    def where(self, mask: np.ndarray) -> "_Segments":
        chosen = mask.nonzero()[0]
        return _Segments(*(column[chosen] for column in self))

    def pick(self, marker: int) -> "_Segments":
        return self.where(self.marker == marker)


class _Frame(NamedTuple):
    """The SOF of each file; the last axis is the component, absent ones are zero."""

    coding: np.ndarray
    precision: np.ndarray
    height: np.ndarray
    width: np.ndarray
    parts: np.ndarray
    identity: np.ndarray
    across: np.ndarray
    down: np.ndarray
    table: np.ndarray


class _Scan(NamedTuple):
    """The first SOS of each file, its components told as numbers of the frame's components."""

    start: np.ndarray  # where the entropy-coded data begins
    parts: np.ndarray
    used: np.ndarray  # bool[k, scan component]
    component: np.ndarray
    tables: np.ndarray
    spectrum: np.ndarray  # Ss, Se, Ah << 4 | Al


def check_jpegs(starts: np.ndarray, stops: np.ndarray) -> tuple[JpegColumns, dict[int, str]]:
    """Check k JPEG files that begin with FF D8.

    Args:
      starts, stops: int64[k], the memory [start, stop) of each file, at least two bytes.

    Returns:
      The columns, and what is wrong with the files that are not good, row -> clause.
    """
    failures: dict[int, str] = {}
    long_enough = stops - starts >= _SHORTEST
    for row in (~long_enough).nonzero()[0].tolist():
        failures[row] = f"a JPEG header of only {stops[row] - starts[row]} bytes"
    segments = _walk(starts, stops, long_enough.nonzero()[0], failures)
    frame = _read_frame(segments, starts, stops, failures)
    scan = _read_scan(segments, starts, stops, frame, failures)
    quantisation = _read_quantisation(segments, starts.size, failures)
    huffman = _read_huffman(segments, starts.size, failures)
    _check_frame(frame, failures)
    _check_scan(frame, scan, quantisation, huffman, failures)
    _check_small(segments, failures)
    _check_end(scan, stops, frame, failures)
    packed = (frame.across << 4 | frame.down).astype(np.uint32)
    columns = JpegColumns(
        height=frame.height.astype(np.int32),
        width=frame.width.astype(np.int32),
        orientation=_read_orientation(segments, starts.size),
        coding=frame.coding.astype(np.uint8),
        precision=frame.precision.astype(np.uint8),
        components=frame.parts.astype(np.uint8),
        scan_components=scan.parts.astype(np.uint8),
        sampling=packed @ np.array([1 << 24, 1 << 16, 1 << 8, 1], np.uint32),
        color=_read_color(segments, frame),
        scan_offset=scan.start - starts,
    )
    return columns, failures


def first_segments(encoded: Encoded) -> list[tuple[int, int, int]]:
    """(marker, start, stop) of each segment of a good JPEG up to its first SOS; offsets of the payload."""
    starts = encoded.addresses.astype(np.int64)
    segments = _walk(starts, starts + encoded.lengths.astype(np.int64), np.zeros(1, np.int64), {})
    offsets = (segments.start - starts[0]).tolist(), (segments.stop - starts[0]).tolist()
    return list(zip(segments.marker.tolist(), *offsets))


# ---- the walk


def _walk(starts, stops, row, failures) -> _Segments:
    """All marker segments up to the first SOS; every step advances each unfinished file by one segment."""
    position = starts[row] + 2
    parts = [(np.zeros(0, np.int64),) * 4]
    for _ in range(_MOST_SEGMENTS):
        if not row.size:
            return _Segments(*(np.concatenate(column) for column in zip(*parts)))
        stop = stops[row]
        head = read_bytes(position, 4, stop).astype(np.int64)
        marker, length = head[:, 1], head[:, 2] << 8 | head[:, 3]
        after = position + 2 + length
        good = (head[:, 0] == 0xFF) & _HAS_LENGTH[marker] & (length >= 2) & (after <= stop)
        for odd in (~good).nonzero()[0].tolist():  # filling, rubbish between segments, or an error
            resumed = _resume(int(position[odd]), int(stop[odd]))
            if isinstance(resumed, str):
                failures[int(row[odd])] = resumed
            after[odd] = -1 if isinstance(resumed, str) else resumed
        kept = good.nonzero()[0]
        parts.append((row[kept], marker[kept], position[kept] + 4, after[kept]))
        going = ((after >= 0) & ~(good & (marker == _SOS))).nonzero()[0]
        row, position = row[going], after[going]
    for late in row.tolist():
        failures[late] = f"more than {_MOST_SEGMENTS} segments before the image data"
    return _Segments(*(np.concatenate(column) for column in zip(*parts)))


def _resume(position: int, stop: int) -> int | str:
    """Where a file whose next bytes are no well-formed segment goes on, or what is wrong with it."""
    data = memory_view(position, max(stop - position, 0))
    found = _NEXT_MARKER.search(data)
    if not found:
        return "the JPEG ends inside its header"
    marker, at = found[1][0], found.end() - 2
    if marker == 0x01 or 0xD0 <= marker <= 0xD7:  # TEM and RST have no segment
        return position + found.end()
    if marker == _EOI:
        return "the JPEG ends before any image data"
    if not _HAS_LENGTH[marker]:
        return f"a marker FF{marker:02X} in the JPEG header"
    if at > 0:
        return position + at
    return f"the JPEG segment FF{marker:02X} is cut or has a wrong length"


def _refuse(failures: dict[int, str], rows: np.ndarray, clause: str) -> None:
    """Note what is wrong with `rows`; what was found first stays."""
    for row in rows.tolist():
        failures.setdefault(row, clause)


# ---- frame and scan


def _place(segments: _Segments, starts, stops) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and stop of a segment of each file, and how many it has; without one, those of the file."""
    start, stop = starts.copy(), stops.copy()
    start[segments.row], stop[segments.row] = segments.start, segments.stop
    return start, stop, np.bincount(segments.row, minlength=starts.size)


def _read_frame(segments, starts, stops, failures) -> _Frame:
    frames = segments.where(_IS_FRAME[segments.marker])
    start, stop, found = _place(frames, starts, stops)
    _refuse(failures, (found == 0).nonzero()[0], "no JPEG frame header (SOF)")
    _refuse(failures, (found > 1).nonzero()[0], "more than one JPEG frame header (SOF)")
    marker = np.full(starts.size, _FRAMES[0])
    marker[frames.row] = frames.marker
    payload = read_bytes(start, 18, stop).astype(np.int64)
    count = payload[:, 5]
    _refuse(failures, (stop - start != 6 + 3 * count).nonzero()[0], "a JPEG frame header of the wrong length")
    parts = payload[:, 6:].reshape(-1, 4, 3) * (np.arange(4) < count[:, None])[:, :, None]
    return _Frame(
        coding=marker & 15,
        precision=payload[:, 0],
        height=payload[:, 1] << 8 | payload[:, 2],
        width=payload[:, 3] << 8 | payload[:, 4],
        parts=count,
        identity=parts[:, :, 0],
        across=parts[:, :, 1] >> 4,
        down=parts[:, :, 1] & 15,
        table=parts[:, :, 2],
    )


def _check_frame(frame: _Frame, failures) -> None:
    for row in (~_DECODABLE[frame.coding]).nonzero()[0].tolist():
        what = "a lossless" if frame.coding[row] in (3, 11) else "a hierarchical"
        failures.setdefault(row, f"{what} JPEG (SOF{frame.coding[row]})")
    for row in (frame.precision != 8).nonzero()[0].tolist():
        failures.setdefault(row, f"a JPEG of {frame.precision[row]} bits a sample, not 8")
    empty = (frame.height == 0) | (frame.width == 0)
    _refuse(failures, empty.nonzero()[0], "a JPEG without height or width")
    vast = np.maximum(frame.height, frame.width) > _LARGEST_SIDE
    _refuse(failures, vast.nonzero()[0], f"a JPEG side above {_LARGEST_SIDE} pixels")
    _refuse(failures, (~_COUNTABLE[frame.parts]).nonzero()[0], "a JPEG whose components are not 1, 3 or 4")
    present = np.arange(4) < frame.parts[:, None]
    factors = np.stack([frame.across, frame.down], -1)
    whole = (factors >= 1) & (factors <= 4)
    whole &= factors.max(1, keepdims=True) % np.maximum(factors, 1) == 0
    _refuse(failures, (~whole.all(2) & present).any(1).nonzero()[0], "JPEG sampling factors that do not fit")


def _read_scan(segments, starts, stops, frame, failures) -> _Scan:
    start, stop, found = _place(segments.pick(_SOS), starts, stops)
    _refuse(failures, (found == 0).nonzero()[0], "no JPEG scan (SOS)")
    payload = read_bytes(start, 12, stop).astype(np.int64)
    count = payload[:, 0]
    fits = (stop - start == 4 + 2 * count) & (count >= 1) & (count <= 4)
    _refuse(failures, (~fits).nonzero()[0], "a JPEG scan header of the wrong length")
    used = np.arange(4) < count[:, None]
    pairs = payload[:, 1:9].reshape(-1, 4, 2)
    matches = pairs[:, :, :1] == frame.identity[:, None, :]
    matches &= used[:, :, None] & (np.arange(4) < frame.parts[:, None])[:, None, :]
    unique = (matches.sum(2) == used).all(1) & (matches.sum(1) <= 1).all(1)
    _refuse(failures, (~unique).nonzero()[0], "a JPEG scan whose components are not those of the frame")
    tail = np.minimum(1 + 2 * count, 9)[:, None] + np.arange(3)
    return _Scan(stop, count, used, matches.argmax(2), pairs[:, :, 1], np.take_along_axis(payload, tail, 1))


def _check_scan(frame: _Frame, scan: _Scan, quantisation, huffman, failures) -> None:
    """What the first scan needs is defined."""
    rows = np.arange(scan.parts.size)[:, None]
    blocks = np.take_along_axis(frame.across * frame.down, scan.component, 1)
    crowded = ((blocks * scan.used).sum(1) > _MOST_BLOCKS) & (scan.parts > 1)
    _refuse(failures, crowded.nonzero()[0], "JPEG sampling factors too large for an interleaved scan")
    slots = np.take_along_axis(frame.table, scan.component, 1)
    missing = ~(quantisation[rows, np.minimum(slots, 3)] & (slots < 4)) & scan.used
    _refuse(failures, missing.any(1).nonzero()[0], "a JPEG component without its quantisation table")
    progressive = _PROGRESSIVE[frame.coding]
    first, last = scan.spectrum[:, 0], scan.spectrum[:, 1]
    high, low = scan.spectrum[:, 2] >> 4, scan.spectrum[:, 2] & 15
    good = np.where(first == 0, last == 0, (first <= last) & (last <= 63) & (scan.parts == 1))
    good &= ((high == 0) | (high - 1 == low)) & (low <= 13)
    _refuse(failures, (progressive & ~good).nonzero()[0], "a progressive JPEG scan with wrong parameters")
    coded = frame.coding < 8  # by Huffman; a progressive scan codes either DC or AC coefficients
    needs_dc, needs_ac = coded & ~(progressive & (first > 0)), coded & ~(progressive & (first == 0))
    for kind, needs, ids in ((0, needs_dc, scan.tables >> 4), (1, needs_ac, scan.tables & 15)):
        missing = ~(huffman[rows, kind, np.minimum(ids, 3)] & (ids < 4)) & scan.used & needs[:, None]
        _refuse(failures, missing.any(1).nonzero()[0], "a JPEG scan without its Huffman table")


def _check_end(scan: _Scan, stops, frame, failures) -> None:
    """The end marker is there. Behind it a file may hold what it likes: zeros, a second picture."""
    ends = read_bytes(stops - 2, 2, stops)
    ended = (ends[:, 0] == 0xFF) & (ends[:, 1] == _EOI) & (stops - scan.start >= 3)
    many = _PROGRESSIVE[frame.coding] | (scan.parts < frame.parts)
    for row in (~ended | many).nonzero()[0].tolist():
        if row in failures:
            continue
        data = bytes(memory_view(int(scan.start[row]), int(stops[row] - scan.start[row])))
        if data.find(b"\xff\xd9") < 1:
            failures[row] = "a truncated JPEG: no end marker behind its image data"
        elif data.count(b"\xff\xda") >= _MOST_SCANS:
            failures[row] = f"a JPEG of more than {_MOST_SCANS} scans"


# ---- tables


def _read_quantisation(segments, count, failures) -> np.ndarray:
    """bool[k, 4]: which quantisation tables each file defines."""
    row, _, position, stop = segments.pick(_DQT)
    defined = np.zeros((count, 4), bool)
    while (inside := (position < stop).nonzero()[0]).size:
        row, position, stop = row[inside], position[inside], stop[inside]
        head = read_bytes(position, 1, stop)[:, 0].astype(np.int64)
        wide, slot = head >> 4, head & 15
        position = position + 65 + 64 * wide
        good = (wide <= 1) & (slot < 4) & (position <= stop)
        _refuse(failures, row[~good], "a malformed JPEG quantisation table")
        defined[row[good], slot[good]] = True
        position = np.where(good, position, stop)
    return defined


def _read_huffman(segments, count, failures) -> np.ndarray:
    """bool[k, 2, 4]: which DC and AC Huffman tables each file defines."""
    row, _, position, stop = segments.pick(_DHT)
    defined = np.zeros((count, 2, 4), bool)
    while (inside := (position < stop).nonzero()[0]).size:
        row, position, stop = row[inside], position[inside], stop[inside]
        table = read_bytes(position, 17, stop).astype(np.int64)
        kind, slot, symbols = table[:, 0] >> 4, table[:, 0] & 15, table[:, 1:].sum(1)
        values, position = position + 17, position + 17 + symbols
        # A code of all ones is not allowed (T.81 C.2), so the codes never fill their space.
        good = (kind <= 1) & (slot < 4) & (symbols <= 256) & (position <= stop)
        good &= table[:, 1:] @ _CODE_SPACE < 1 << 16
        direct = (good & (kind == 0)).nonzero()[0]
        owner, lengths = read_ragged(values[direct], symbols[direct])
        good[direct[owner[lengths > 15]]] = False  # a DC symbol is a bit count, T.81 F.1.2.1
        _refuse(failures, row[~good], "a malformed JPEG Huffman table")
        defined[row[good], kind[good], slot[good]] = True
        position = np.where(good, position, stop)
    return defined


def _check_small(segments: _Segments, failures) -> None:
    """Restart intervals and arithmetic conditioning: only their form matters."""
    restart = segments.pick(_DRI)
    wrong = restart.stop - restart.start != 2
    _refuse(failures, restart.row[wrong], "a JPEG restart interval of the wrong length")
    conditioning = segments.pick(_DAC)
    pairs, odd = np.divmod(conditioning.stop - conditioning.start, 2)
    owner, data = read_ragged(conditioning.start, 2 * pairs)
    slot, value = data[::2], data[1::2]
    good = (slot < 16) & (value & 15 <= value >> 4) | (slot >= 16) & (slot < 32)  # T.81 B.2.4.3
    wrong = np.concatenate([odd.nonzero()[0], owner[::2][~good]])
    _refuse(failures, conditioning.row[wrong], "a malformed JPEG arithmetic conditioning table")


# ---- application segments


def _tagged(segments: _Segments, marker: int, tag: bytes, least: int) -> _Segments:
    """The segments of one marker whose payload begins with `tag` and has `least` bytes or more."""
    chosen = segments.pick(marker)
    head = read_bytes(chosen.start, len(tag), chosen.stop)
    return chosen.where((head == np.frombuffer(tag, np.uint8)).all(1) & (chosen.stop - chosen.start >= least))


def _read_color(segments: _Segments, frame: _Frame) -> np.ndarray:
    """The colour model, guessed as libjpeg does from JFIF, Adobe's transform flag and the component ids."""
    jfif = np.zeros(frame.parts.size, bool)
    jfif[_tagged(segments, _APP0, b"JFIF\0", 14).row] = True
    adobe = _tagged(segments, _APP14, b"Adobe", 12)
    transform = np.full(frame.parts.size, -1)
    transform[adobe.row] = read_bytes(adobe.start + 11, 1, adobe.stop)[:, 0]
    lettered = (frame.identity[:, :3] == np.frombuffer(b"RGB", np.uint8)).all(1)
    rgb = ~jfif & np.where(transform < 0, lettered, transform == 0)
    four = np.where(transform > 0, YCCK, CMYK)
    three = np.where(rgb, RGB, YCBCR)
    return np.select([frame.parts == 1, frame.parts == 3], [GRAY, three], four).astype(np.uint8)


def _read_orientation(segments: _Segments, count: int) -> np.ndarray:
    """uint8[k] 1..8: the orientation tag (0x0112) of the first image directory of the first EXIF segment."""
    orientation = np.ones(count, np.uint8)
    exif = _tagged(segments, _APP1, b"Exif\0", 14)
    if not exif.row.size:
        return orientation
    start, stop = exif.start + 6, exif.stop  # EXIF offsets count from the TIFF header
    head = read_bytes(start, 8, stop)
    little = (head[:, :4] == np.frombuffer(b"II*\0", np.uint8)).all(1)
    big = (head[:, :4] == np.frombuffer(b"MM\0*", np.uint8)).all(1)
    directory = start + _number(head[:, 4:8], little)
    usable = (little | big) & (directory + 2 <= stop)
    row, start, stop = exif.row[usable], directory[usable] + 2, stop[usable]
    little = little[usable]
    entries = np.minimum(_number(read_bytes(start - 2, 2, stop), little), (stop - start) // 12)
    owner, data = read_ragged(start, 12 * entries)
    entry, little = data.reshape(-1, 12), little[owner[::12]]
    short, value = _number(entry[:, 2:4], little) == 3, _number(entry[:, 8:10], little)
    value = np.where(short, value, _number(entry[:, 8:12], little))  # some writers store a LONG
    found = (_number(entry[:, :2], little) == 0x0112) & (value >= 1) & (value <= 8)
    # The first one of a file wins: assigned last.
    orientation[row[owner[::12]][found][::-1]] = value[found][::-1]
    return orientation


def _number(data: np.ndarray, little: np.ndarray) -> np.ndarray:
    """uint8[k, m] as unsigned integers int64[k], in the byte order of each row."""
    data = np.where(little[:, None], data[:, ::-1], data).astype(np.int64)
    return data @ (256 ** np.arange(data.shape[1] - 1, -1, -1))
