"""Opus in Ogg: what its first packet tells, and windows of its samples.

A window is decoded from a second before it. By then what is coded as music (CELT) has the bits of
the whole file; what is coded as speech (SILK) keeps differences of about 1e-3 until a pause, as
after a seek of libsndfile. The 80 ms of RFC 7845 leave up to 2e-2 and 2e-3. Damage is named: pages
have checksums and numbers, and their positions must be those of the samples of their packets.

References: RFC 6716 section 3.1 and RFC 7845.
"""

import struct
from typing import NamedTuple

import numpy as np

from jaxaug.decode.audio import ogg
from jaxaug.decode.native.libopus import Decoder, OpusError
from jaxaug.errors import DecodeError

_RATES = (8000, 12_000, 16_000, 24_000, 48_000)  # that Opus decodes to; it counts at the last
_LEAD = 48_000  # samples before a window that are decoded, too
_LONGEST = 5760  # samples of a packet: 120 ms
_FAMILIES = (0, 1, 255)  # of channels: mono and stereo, those of Vorbis, and without a meaning


class Stream(NamedTuple):
    """What a file tells. Positions count samples of 48 kHz.

    Attributes:
      rate, channels, frames: of the sound.
      first: the first page of sound.
      begin: the position of its first sample.
      skipped: samples of `rate` that the encoder put before the sound.
      gain: a factor of all samples.
      layout: streams, coupled streams and the mapping of channels, as libopus takes them; those of
        Vorbis in the order of WAV.
    """

    rate: int
    channels: int
    frames: int
    first: ogg.Page
    begin: int
    skipped: int
    gain: float
    layout: tuple[int, int, bytes]


def find_stream(data: memoryview) -> Stream:
    """Return what a file tells.

    Raises:
      DecodeError: it is damaged, or holds several streams.
    """
    first = ogg.read_page(data, 0)
    head = first.parts[0]
    version, channels, skipped, given, gain, family = struct.unpack_from("<BBHIhB", head, 8)
    if version >= 16 or not channels:
        raise DecodeError(f"its header is damaged: version {version}, {channels} channels")
    if family not in _FAMILIES:
        raise DecodeError(
            f"its channels are of family {family}, which is not read: {_FAMILIES} are"
        )
    # The lowest rate that holds what was encoded.
    rate = next((rate for rate in _RATES if rate >= given), _RATES[-1])
    end = ogg.last_position(data, first.stream)
    sound = _first_of_sound(data)
    begin = 0 if sound is None else max(0, sound.position - _samples_of(sound))
    return Stream(
        rate,
        channels,
        (end - begin - skipped) * rate // _RATES[-1],
        sound or first,
        begin,
        skipped * rate // _RATES[-1],
        10.0 ** (gain / (20 * 256)),
        _layout(head, channels, family),
    )


def _layout(head: bytes, channels: int, family: int) -> tuple[int, int, bytes]:
    if family == 0:
        return 1, channels - 1, bytes(range(channels))
    if len(head) < 21 + channels:
        raise DecodeError("its header is damaged: it does not tell of each channel")
    mapping = head[21 : 21 + channels]
    if family == 1:
        mapping = bytes(mapping[channel] for channel in ogg.channel_order(channels))
    return head[19], head[20], mapping


def _first_of_sound(data: memoryview) -> ogg.Page | None:
    """Return the page behind that in which the tags end, None where there is none."""
    told = False
    for page in ogg.pages(data, 0):
        if told:
            return page
        told = page.start > 0 and page.position >= 0
    return None


def _samples_of(page: ogg.Page) -> int:
    """Return how many samples the packets that end in a page have."""
    return sum(map(_duration, page.parts[: len(page.parts) - page.open]))


def _duration(packet: bytes) -> int:
    """Return the samples of a packet by its first bytes."""
    if not packet:
        return 0
    kind, code = packet[0] >> 3, packet[0] & 3
    if kind < 12:
        frame = (480, 960, 1920, 2880)[kind & 3]
    else:
        frame = (480, 960)[kind & 1] if kind < 16 else 120 << (kind & 3)
    return frame * ((1, 2, 2)[code] if code < 3 else (*packet[1:], 0)[0] & 63)


def read_window(data: memoryview, stream: Stream, first: int, count: int) -> np.ndarray:
    """Return samples float32[count, channels] from one on; fewer where packets are missing.

    Raises:
      DecodeError: pages or packets are damaged.
    """
    step = _RATES[-1] // stream.rate
    wanted = first + stream.skipped  # of all that is decoded at `rate`
    start = stream.first
    lead = stream.begin + wanted * step - _LEAD
    if lead >= start.position:
        start = ogg.page_at_or_before(data, start, lead)
    whole = start is stream.first and lead < start.position
    position = stream.begin if whole else start.position
    skipped = wanted - (position - stream.begin) // step
    samples = np.empty((skipped + count + _LONGEST // step, stream.channels), np.float32)
    found = _decode(data, stream, (start.start, whole, position), samples, skipped + count)
    window = samples[min(skipped, found) : min(skipped + count, found)]
    return window if stream.gain == 1 else window * np.float32(stream.gain)


def _decode(
    data: memoryview,
    stream: Stream,
    begin: tuple[int, bool, int],
    samples: np.ndarray,
    count: int,
) -> int:
    """Decode packets into an array until it has `count` samples; return how many it has.

    Args:
      data: the file.
      stream: what it tells.
      begin: the place of the first page, whether its packets are decoded, and the position of the
        first one that is.
      samples: of which some more than `count` may be written.
      count: samples that are wanted.
    """
    start, whole, position = begin
    step = _RATES[-1] // stream.rate
    address, stride = samples.ctypes.data, samples.strides[0]
    found = 0
    try:
        with Decoder(stream.rate, stream.channels, *stream.layout) as decoder:
            for page, packets in ogg.packets(data, start, whole=whole):
                for packet in packets:
                    place = address + found * stride
                    found += decoder.decode(packet, place, len(samples) - found)
                    if found >= count:
                        return found
                if packets:
                    _check_position(page, position + found * step)
    except OpusError as error:
        raise DecodeError(f"it is damaged: libopus says, {error}") from None
    return found


def _check_position(page: ogg.Page, position: int) -> None:
    """Raise DecodeError where samples are missing before the end of a page."""
    if page.position > position or (page.position < position and not page.last):
        raise DecodeError(
            f"it is damaged: its page of Ogg at byte {page.start} ends at sample {page.position},"
            f" and what was decoded at {position}"
        )
