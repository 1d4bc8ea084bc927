"""Streams of sound without a container: which one some bytes are, and whether all are there.

References: ETSI TS 102 366 (AC-3 and E-AC-3); RFC 4867 section 5 (AMR); ID3 tag version 2.4.0,
section 3.
"""

import re
from collections.abc import Iterator

from jaxaug.decode.audio.mp3 import end_of_tag
from jaxaug.errors import DecodeError

_BEGINNINGS = {b"caff": "caf", b"fLaC": "flac", b"#!AMR": "amr"}
_AC3_SYNC = b"\x0bw"
_TAG = rb"ID3[\x02-\x04][^\xff].[\0-\x7f]{4}"  # name, version, flags, length in sevens of bits
_HEAD = 6  # bytes that tell the length of a frame
_AC3 = 10  # the last version of AC-3; later ones are E-AC-3
_SAMPLES_OF_AC3 = 256  # in a block
_BLOCKS = (1, 2, 3, 6)  # in a frame of E-AC-3, by its code; of AC-3 the last
# Of AMR: samples in a frame, and its bytes by its mode, of those that hold sound.
_AMR = {
    b"#!AMR\n": (160, (13, 14, 16, 18, 20, 21, 27, 32)),
    b"#!AMR-WB\n": (320, (18, 24, 33, 37, 41, 47, 51, 59, 61)),
}
_KILOBITS = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640)


def raw_stream(start: bytes) -> str:
    """Return FFmpeg's name of a stream of sound by its first bytes, "" for none.

    Example:
      >>> raw_stream(b"#!AMR-WB"), raw_stream(b"RIFF")
      ('amr', '')
    """
    for begin, name in _BEGINNINGS.items():
        if start.startswith(begin):
            return name
    if len(start) > 1 and start[0] == 0xFF and start[1] & 0xF6 == 0xF0:
        return "aac"
    if start[:2] == _AC3_SYNC and len(start) > 5:
        return "ac3" if start[5] >> 3 <= _AC3 else "eac3"
    return ""


def check_last_frame(data: memoryview, name: str) -> None:
    """Raise DecodeError where the last frame of AC-3 or E-AC-3 is cut, which FFmpeg would not tell.

    Args:
      data: the file.
      name: as `raw_stream` has it.
    """
    if name not in ("ac3", "eac3"):
        return
    for place, _, size in _ac3_frames(data):
        if place + size > len(data):
            raise DecodeError(f"it is cut off: its frame at byte {place} has {size} bytes")


def count_samples(data: memoryview, name: str) -> int | None:
    """Return the samples of AC-3, E-AC-3 or AMR by its frames; None where not all of it is such
    frames of one stream.

    Args:
      data: the file.
      name: as `raw_stream` has it.
    """
    if name == "amr":
        return _count_amr(data)
    if name not in ("ac3", "eac3"):
        return None
    end = blocks = 0
    kinds = set()
    for place, head, size in _ac3_frames(data):
        end = place + size
        if end > len(data):
            return None
        kinds.add(_ac3_kind(head))
        blocks += _ac3_blocks(head)
    known = len(kinds) == 1 and None not in kinds
    return blocks * _SAMPLES_OF_AC3 if end == len(data) and known else None


def _ac3_kind(head: bytes) -> tuple[int, ...] | None:
    """Return what tells the rate of a frame; None of a stream beside the first one."""
    version, rate = head[5] >> 3, head[4] >> 6
    if version <= _AC3:
        return rate, version  # which halves it
    if head[2] >> 3:
        return None
    return (rate, head[4] >> 4 & 3) if rate == 3 else (rate,)


def _ac3_blocks(head: bytes) -> int:
    """Return the blocks of a frame."""
    is_old = head[5] >> 3 <= _AC3 or head[4] >> 6 == 3
    return _BLOCKS[-1] if is_old else _BLOCKS[head[4] >> 4 & 3]


def _ac3_frames(data: memoryview) -> Iterator[tuple[int, bytes, int]]:
    """Yield where each frame of AC-3 or E-AC-3 begins, its first six bytes, and how many it has."""
    place = 0
    while bytes(data[place : place + 2]) == _AC3_SYNC:
        head = bytes(data[place : place + _HEAD])
        size = _ac3_bytes(head) if len(head) == _HEAD else _HEAD
        yield place, head, size
        place += size


def _count_amr(data: memoryview) -> int | None:
    for begin, (samples, sizes) in _AMR.items():
        if bytes(data[: len(begin)]) != begin:
            continue
        values = bytes(data)
        place = len(begin)
        frames = 0
        while place < len(values) and (mode := values[place] >> 3 & 15) < len(sizes):
            place += sizes[mode]
            frames += 1
        return frames * samples if place == len(values) else None
    return None


def _ac3_bytes(head: bytes) -> int:
    """Return the bytes of a frame by its first six."""
    if head[5] >> 3 > _AC3:
        return 2 * (((head[2] & 7) << 8 | head[3]) + 1)
    rate, code = head[4] >> 6, head[4] & 63
    if rate == 3 or code >> 1 >= len(_KILOBITS):
        raise DecodeError("it is damaged: a header of AC-3 tells of no rate")
    kilobits = _KILOBITS[code >> 1]
    return 2 * (2 * kilobits, kilobits * 320 // 147 + (code & 1), 3 * kilobits)[rate]


def without_tags(data: memoryview) -> memoryview:
    """Return ADTS without the tags of ID3v2 between its frames, behind which FFmpeg would seek to
    other places.
    """
    parts = []
    begin = 0
    for found in re.finditer(_TAG, data, re.DOTALL):
        start, end = found.start(), end_of_tag(data, found.start())
        behind = bytes(data[end : end + 3])
        if start >= begin and (end == len(data) or behind == b"ID3" or raw_stream(behind) == "aac"):
            parts.append(data[begin:start])
            begin = end
    return memoryview(b"".join([*parts, data[begin:]])) if parts else data
