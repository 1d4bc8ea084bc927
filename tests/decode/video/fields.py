"""Interlaced H.264 whose pictures are fields, drawn bit by bit: no free encoder makes it."""

import functools
import io
from collections.abc import Iterable
from fractions import Fraction

import av
import numpy as np

SIDE = 4  # of a frame, in macroblocks of 16 pixels
KEYS = 6  # frames from one key frame to the next


class Bits:
    """Writes the syntax of ITU-T H.264 section 7.3."""

    def __init__(self):
        self._bits: list[int] = []

    def fixed(self, count: int, value: int) -> None:
        self._bits += [value >> place & 1 for place in reversed(range(count))]

    def codes(self, *values: int) -> None:
        for value in values:
            length = (value + 1).bit_length()
            self.fixed(2 * length - 1, value + 1)

    def samples(self, values: np.ndarray) -> None:
        self._bits += [0] * (-len(self._bits) % 8)
        self._bits += np.unpackbits(values.astype(np.uint8)).tolist()

    def unit(self, header: int) -> bytes:
        """Return a NAL unit; zeros that would look like a start code are kept apart."""
        bits = [*self._bits, 1]
        content = np.packbits(np.array(bits + [0] * (-len(bits) % 8))).tobytes()
        unit = bytearray()
        for byte in content:
            if byte <= 3 and unit.endswith(b"\0\0"):
                unit.append(3)
            unit.append(byte)
        return b"\0\0\0\1" + bytes([header]) + bytes(unit)


def parameters(high: bool) -> bytes:
    """Return the parameter sets of a stream of fields."""
    sequence = Bits()
    sequence.fixed(24, (100 if high else 77) << 16 | 30)
    sequence.codes(0)
    if high:
        sequence.codes(1, 0, 0)
        sequence.fixed(2, 1)  # with scales, of which the first are told
        sequence.fixed(1, 1)
        sequence.codes(*[0] * 16)
        sequence.fixed(7, 0)
    sequence.codes(0, 0, 4, 2)  # frame_num of 4 bits, order of 8 bits, two references
    sequence.fixed(1, 0)
    sequence.codes(SIDE - 1, SIDE // 2 - 1)
    sequence.fixed(5, 0b00100)  # fields; none of macroblocks
    picture = Bits()
    picture.codes(0, 0)
    picture.fixed(2, 0)
    picture.codes(0, 0, 0)
    picture.fixed(3, 0)
    picture.codes(0, 0, 0)
    picture.fixed(3, 0b100)
    return sequence.unit(0x67) + picture.unit(0x68)


def slices(number: int, bottom: int) -> bytes:
    """Return a field: key frames begin with macroblocks of samples, others repeat most of them."""
    within = number % KEYS
    key = within == 0 and not bottom
    needed = within % 2 == 0
    bits = Bits()
    bits.codes(0, 7 if key else 5, 0)
    bits.fixed(6, (within + 1) // 2 % 16 << 2 | 2 | bottom)
    if key:
        bits.codes(0)
    bits.fixed(8, 4 * within + bottom)
    if not key:
        bits.fixed(2, 0)
    if needed:
        bits.fixed(2 if key else 1, 0)
    bits.codes(0, 1)
    skipped = 0
    for block in range(SIDE * SIDE // 2):
        if not key and (block + number) % 4:
            skipped += 1
            continue
        bits.codes(25) if key else bits.codes(skipped, 30)
        skipped = 0
        places = np.arange(256)
        luma = 20 + (number * 9 + block * 5 + 40 * bottom + places // 16 + places % 16 // 2) % 200
        bits.samples(np.concatenate([luma, np.full(128, 90 + 3 * number)]))
    if not key and skipped:
        bits.codes(skipped)
    return bits.unit((0x60 if needed else 0) | (5 if key else 1))


@functools.cache
def fields(container: str, together: bool, high: bool = False) -> bytes:
    """Return a video of 18 frames, with both fields of each in one packet or in one each."""
    packets = []
    for number in range(18):
        before = parameters(high) if number % KEYS == 0 else b""
        first, second = before + slices(number, 0), slices(number, 1)
        parts = [first + second] if together else [first, second]
        packets += [(part, 40 * number + 20 * k) for k, part in enumerate(parts)]
    stream = written("mpegts", packets)
    return stream if container == "mpegts" else copied(container, stream)


def written(container: str, packets: Iterable[tuple[bytes, int]], codec: str = "libx264") -> bytes:
    """Return a file of packets and the time of each, in milliseconds."""
    file = io.BytesIO()
    with av.open(file, "w", container) as output:
        stream = output.add_stream(codec, 25)
        stream.width = stream.height = 16 * SIDE
        stream.pix_fmt = "yuv420p"
        for content, time in packets:
            packet = av.Packet(content)
            packet.pts = packet.dts = time
            packet.time_base = Fraction(1, 1000)
            packet.stream = stream
            output.mux(packet)
    return file.getvalue()


def copied(container: str, data: bytes, **options: str) -> bytes:
    """Return the packets of a file, which has times for all of them, in another container.

    Its writer has the options.
    """
    file = io.BytesIO()
    with (
        av.open(io.BytesIO(data)) as source,
        av.open(file, "w", container, options=options) as output,
    ):
        stream = output.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                output.mux(packet)
    return file.getvalue()
