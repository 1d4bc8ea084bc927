"""JPEG files taken apart into fields, changed by meaning and put together again."""

import random
import struct
from typing import NamedTuple

SOF = 0xC0
DHT = 0xC4
SOS = 0xDA
DQT = 0xDB
DNL = 0xDC
DRI = 0xDD
DAC = 0xCC
FRAMES = (0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC9, 0xCA)
FACTORS = (0x11, 0x11, 0x12, 0x21, 0x22, 0x41, 0x14, 0x44, 0x33, 0x31, 0x24, 0x42, 0x01, 0x55)
SIDES = (1, 2, 7, 8, 9, 15, 16, 17, 24, 37, 50, 64, 100, 255, 0, 65501)


class Segment(NamedTuple):
    """A marker segment and the bytes up to the next marker: image data after an SOS."""

    marker: int
    payload: bytes
    data: bytes = b""


def parse(file: bytes) -> list[Segment]:
    """The segments of a whole JPEG without fillings."""
    segments = []
    at = 2
    while file[at + 1] != 0xD9:
        marker = file[at + 1]
        (length,) = struct.unpack_from(">H", file, at + 2)
        payload = file[at + 4 : at + 2 + length]
        at = start = at + 2 + length
        while file[at] != 0xFF or file[at + 1] == 0 or 0xD0 <= file[at + 1] <= 0xD7:
            at += 1
        segments.append(Segment(marker, payload, file[start:at]))
    return segments


def write(segments: list[Segment]) -> bytes:
    """The file of these segments."""
    parts = [
        b"\xff" + bytes([marker]) + struct.pack(">H", len(payload) + 2) + payload + data
        for marker, payload, data in segments
    ]
    return b"\xff\xd8" + b"".join(parts) + b"\xff\xd9"


def change(file: bytes, rng: random.Random) -> bytes:
    """One to three changes of a JPEG's fields."""
    segments = parse(file)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        if segments:
            rng.choices(_CHANGES, _WEIGHTS)[0](segments, rng)
    return write(segments)


# ---- lists of any items


def _rearrange(items: list, rng: random.Random) -> None:
    """Swap, duplicate, drop, move, or shuffle."""
    if not items:
        return
    kind = rng.randrange(5)
    at = rng.randrange(len(items))
    to = rng.randrange(len(items))
    if kind == 0:
        items[at], items[to] = items[to], items[at]
    elif kind == 1:
        items.insert(to, items[at])
    elif kind == 2:
        del items[at]
    elif kind == 3:
        items.insert(to, items.pop(at))
    else:
        rng.shuffle(items)


def _pick(segments: list[Segment], markers: tuple[int, ...], rng: random.Random) -> int | None:
    found = [at for at, segment in enumerate(segments) if segment.marker in markers]
    return rng.choice(found) if found else None


def _replace(segments: list[Segment], at: int, payload: bytes) -> None:
    segments[at] = segments[at]._replace(payload=payload)


# ---- segments


def _rearrange_segments(segments: list[Segment], rng: random.Random) -> None:
    _rearrange(segments, rng)


def _insert_segment(segments: list[Segment], rng: random.Random) -> None:
    """A segment that is harmless, or odd, or wrong."""
    choices = [
        Segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([rng.randrange(3)])),
        Segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"),
        Segment(0xE0 + rng.randrange(16), rng.randbytes(rng.randrange(20))),
        Segment(0xFE, b"\xff\xd9\xff\xda\xff\xc0\0\x0b\x08\0\x09\0\x09\x01\x01\x11\0"),
        Segment(DRI, struct.pack(">H", rng.choice((0, 1, 2, 3, 5, 1000, 65535)))),
        Segment(DNL, struct.pack(">H", rng.choice(SIDES))),
        Segment(DAC, bytes([rng.choice((0, 1, 0x10, 0x11, 0x20)), rng.choice((0x10, 1, 5, 0xFF))])),
        Segment(DQT, bytes([rng.randrange(4)]) + bytes(rng.randrange(256) for _ in range(64))),
        Segment(SOF, b"\x08" + struct.pack(">HHB", 9, 9, 1) + bytes([1, 0x11, 0])),
    ]
    segments.insert(rng.randrange(len(segments) + 1), rng.choice(choices))


def _insert_bytes(segments: list[Segment], rng: random.Random) -> None:
    """Fillings, markers without a length, rubbish, behind any segment."""
    at = rng.randrange(len(segments))
    odd = rng.choice(
        (b"\xff" * rng.randrange(1, 5), b"\xff\x01", b"\xff\xd3", b"\0rubbish\xff\0", b"\0")
    )
    segments[at] = segments[at]._replace(data=segments[at].data + odd)


def _change_coding(segments: list[Segment], rng: random.Random) -> None:
    if (at := _pick(segments, FRAMES, rng)) is not None:
        segments[at] = segments[at]._replace(marker=rng.choice(FRAMES))


def _change_restart(segments: list[Segment], rng: random.Random) -> None:
    if (at := _pick(segments, (DRI,), rng)) is not None:
        _replace(segments, at, struct.pack(">H", rng.choice((0, 1, 2, 4, 7, 63, 65535))))


# ---- frame and scan


def _change_frame(segments: list[Segment], rng: random.Random) -> None:
    if (at := _pick(segments, FRAMES, rng)) is None or len(segments[at].payload) < 6:
        return
    precision, height, width, _ = struct.unpack_from(">BHHB", segments[at].payload)
    kind = rng.randrange(8)
    if kind == 0:
        precision = rng.choice((2, 8, 12, 16))
    elif kind == 1:
        height, width = rng.choice(SIDES), rng.choice(SIDES)
    elif kind == 2:
        height, width = width, height
    components = _triples(segments[at].payload[6:])
    if kind > 2:
        _change_components(components, rng)
    head = struct.pack(">BHHB", precision, height, width, len(components))
    _replace(segments, at, head + b"".join(map(bytes, components)))


def _triples(payload: bytes) -> list[list[int]]:
    return [list(payload[at : at + 3]) for at in range(0, len(payload), 3)]


def _change_components(components: list[list[int]], rng: random.Random) -> None:
    if not components or rng.random() < 0.4:
        return _rearrange(components, rng)
    component = rng.choice(components)
    field = rng.randrange(3)
    component[field] = (
        rng.choice((0, 1, 2, 3, 4, 82, 71, 66)),
        rng.choice(FACTORS),
        rng.randrange(5),
    )[field]


def _renumber(segments: list[Segment], rng: random.Random) -> None:
    """Give a component another number in the frame and in all scans."""
    if (at := _pick(segments, FRAMES, rng)) is None or not (
        components := _triples(segments[at].payload[6:])
    ):
        return
    old = rng.choice(components)[0]
    new = rng.choice((0, 1, 2, 3, 9, 82, 255))
    for each in components:
        each[0] = new if each[0] == old else each[0]
    _replace(segments, at, segments[at].payload[:6] + b"".join(map(bytes, components)))
    for number, segment in enumerate(segments):
        if segment.marker == SOS and segment.payload:
            scan = bytearray(segment.payload)
            for place in range(1, 1 + 2 * scan[0], 2):
                if place < len(scan) and scan[place] == old:
                    scan[place] = new
            _replace(segments, number, bytes(scan))


def _change_scan(segments: list[Segment], rng: random.Random) -> None:
    if (at := _pick(segments, (SOS,), rng)) is None or len(segments[at].payload) < 4:
        return
    payload = segments[at].payload
    pairs = [list(payload[place : place + 2]) for place in range(1, len(payload) - 3, 2)]
    band = list(payload[-3:])
    kind = rng.randrange(6)
    if kind < 3:
        _rearrange(pairs, rng)
    elif kind == 3 and pairs:
        rng.choice(pairs)[0] = rng.choice((0, 1, 2, 3, 4))
    elif kind == 4 and pairs:
        rng.choice(pairs)[1] = rng.choice((0x00, 0x11, 0x01, 0x10, 0x22, 0x33, 0x40))
    else:
        band[rng.randrange(3)] = rng.choice((0, 1, 2, 5, 6, 7, 62, 63, 64, 0x10, 0x21, 0x12, 255))
    _replace(segments, at, bytes([len(pairs)]) + b"".join(map(bytes, pairs)) + bytes(band))


# ---- tables


def _change_quantization(segments: list[Segment], rng: random.Random) -> None:
    if (at := _pick(segments, (DQT,), rng)) is None:
        return
    payload = segments[at].payload
    tables = []
    place = 0
    while place < len(payload):
        size = 65 + 64 * (payload[place] >> 4 > 0)
        tables.append(bytearray(payload[place : place + size]))
        place += size
    table = rng.choice(tables) if tables else bytearray(65)
    kind = rng.randrange(5)
    if kind == 0:
        table[0] = table[0] & 0xF0 | rng.randrange(5)
    elif kind == 1 and table[0] < 16:
        table[:] = bytes([table[0] | 16]) + b"".join(
            bytes([rng.randrange(2), value]) for value in table[1:]
        )
    elif kind == 2:
        table[rng.randrange(len(table))] = rng.choice((0, 1, 255))
    else:
        _rearrange(tables, rng)
    _replace(segments, at, b"".join(tables))


def _change_huffman(segments: list[Segment], rng: random.Random) -> None:
    if (at := _pick(segments, (DHT,), rng)) is None:
        return
    payload = segments[at].payload
    tables = []
    place = 0
    while place < len(payload):
        size = 17 + sum(payload[place + 1 : place + 17])
        tables.append(bytearray(payload[place : place + size]))
        place += size
    table = rng.choice(tables) if tables else bytearray(17)
    kind = rng.randrange(6)
    if kind < 2:
        table[0] = rng.choice((0, 1, 2, 3, 0x10, 0x11, 0x12, 0x13, 4, 0x20))
    elif kind == 2:  # a code more or less, with its symbol
        length = rng.randrange(1, 17)
        if rng.random() < 0.5:
            table[length] += table[length] < 255
            table.append(rng.randrange(256))
        elif table[length]:
            table[length] -= 1
            table.pop()
    elif kind == 3:
        table[rng.randrange(1, len(table))] = rng.randrange(256)
    else:
        _rearrange(tables, rng)
    _replace(segments, at, b"".join(tables))


_WEIGHTS = (4, 2, 1, 1, 1, 4, 2, 4, 2, 3)
_CHANGES = (
    _rearrange_segments,
    _insert_segment,
    _insert_bytes,
    _change_coding,
    _change_restart,
    _change_frame,
    _renumber,
    _change_scan,
    _change_quantization,
    _change_huffman,
)
