"""What the first bytes of a sound file tell: format, rate, channels, length. Nothing is decoded."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_UNTIL_THE_END = (0, 0xFFFFFFFF)  # what recorders to a pipe write for a length
_MAX_CHANNELS = 64
_MAX_RATE = 1_000_000
_OPUS_RATES = (8000, 12_000, 16_000, 24_000, 48_000)  # that Opus decodes to; it counts at the last


class AudioError(ValueError):
    """Why a file is no sound that can be decoded: its text is the reason of a bad record."""


class Header(NamedTuple):
    """What a file tells.

    Attributes:
      kind: "wav", "flac", "mp3", "vorbis" or "opus".
      rate: samples a second.
      channels: of the file.
      frames: samples of each channel.
      bits: of a sample of integers, 0 for others.
      start, width: of a WAV file's samples: where they begin, and bytes of each.
    """

    kind: str
    rate: int
    channels: int
    frames: int
    bits: int = 0
    start: int = 0
    width: int = 0

    @property
    def exact(self) -> bool:
        """True where int16 holds every sample."""
        return 0 < self.bits <= 16


def read_header(data: memoryview) -> Header:
    """Return what a file's bytes tell.

    Raises:
      AudioError: it is no sound, or tells of one that cannot be.
    """
    header = _parse(data)
    if not 0 < header.channels <= _MAX_CHANNELS:
        raise AudioError(f"it has {header.channels} channels, not 1 to {_MAX_CHANNELS}")
    if not 0 < header.rate <= _MAX_RATE:
        raise AudioError(f"its rate is {header.rate} Hz, not 1 to {_MAX_RATE}")
    if header.frames <= 0:
        raise AudioError("it holds no samples")
    return header


def _parse(data: memoryview) -> Header:
    start = bytes(data[:12])
    if not start:
        raise AudioError("it is empty or could not be read")
    try:
        if start[:4] in (b"RIFF", b"RF64") and start[8:12] == b"WAVE":
            return _wav(data)
        if start[:4] == b"fLaC":
            return _flac(data)
        if start[:4] == b"OggS":
            return _ogg(data)
    except (struct.error, IndexError):
        raise AudioError(f"its header is cut off after {len(data)} bytes") from None
    if start[:3] == b"ID3" or (start[0] == 0xFF and len(start) > 1 and start[1] & 0xE0 == 0xE0):
        return _mp3(data)
    raise AudioError(f"it is no WAV, FLAC, MP3, Ogg Vorbis or Opus: it begins with {start[:4]!r}")


def _chunks(data: memoryview) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, start, length) of the chunks of a RIFF file."""
    place = 12
    while place + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, place)
        yield name, place + 8, length
        place += 8 + length + length % 2


def _wav(data: memoryview) -> Header:
    found = None
    for name, start, length in _chunks(data):
        if name == b"fmt ":
            found = struct.unpack_from("<HHIIHH", data, start)
            if found[0] == _EXTENSIBLE:
                found = (struct.unpack_from("<H", data, start + 24)[0], *found[1:])
        if name != b"data":
            continue
        if found is None:
            raise AudioError("its samples come before their format")
        return _wav_header(found, start, length, len(data) - start)
    raise AudioError("it is a WAV file without samples")


def _wav_header(found: tuple[int, ...], start: int, length: int, there: int) -> Header:
    encoding, channels, rate, _, block, bits = found
    good = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64)}.get(encoding, ())
    if bits not in good or block != channels * bits // 8 or block == 0:
        raise AudioError(
            f"its encoding {encoding:#x} of {bits} bits is not read: PCM and float are"
        )
    if length in _UNTIL_THE_END:
        length = there
    if length > there:
        raise AudioError(f"it is cut off: {there} of {length} bytes of samples are there")
    integers = bits if encoding == _PCM else 0
    return Header("wav", rate, channels, length // block, integers, start, bits // 8)


def _flac(data: memoryview) -> Header:
    if bytes(data[4:5])[0] & 0x7F:
        raise AudioError("its first block is no STREAMINFO")
    packed = int.from_bytes(data[18:26], "big")
    if len(data) < 26:
        raise AudioError(f"its header is cut off after {len(data)} bytes")
    rate, channels = packed >> 44, (packed >> 41 & 7) + 1
    bits, frames = (packed >> 36 & 31) + 1, packed & (1 << 36) - 1
    return Header("flac", rate, channels, frames, bits)


def _ogg(data: memoryview) -> Header:
    first = 27 + data[26]
    packet = bytes(data[first : first + 30])
    serial = bytes(data[14:18])
    if packet.startswith(b"\x01vorbis"):
        channels, rate = struct.unpack_from("<BI", packet, 11)
        return Header("vorbis", rate, channels, _last_position(data, serial))
    if packet.startswith(b"OpusHead"):
        skipped, given = struct.unpack_from("<HI", packet, 10)
        # The lowest rate that holds what was encoded, as libsndfile decodes it.
        rate = next((rate for rate in _OPUS_RATES if rate >= given), _OPUS_RATES[-1])
        frames = (_last_position(data, serial) - skipped) * rate // _OPUS_RATES[-1]
        return Header("opus", rate, packet[9], frames)
    raise AudioError("it is Ogg, but neither Vorbis nor Opus")


def _last_position(data: memoryview, serial: bytes) -> int:
    """Return the number of samples at the end of the last page of a stream."""
    end = len(data)
    while end > 0:
        # Pages have at most 65,307 bytes; a part of two of them holds a whole one.
        start = max(0, end - 131_072)
        part = bytes(data[start:end])
        place = part.rfind(b"OggS")
        while place >= 0:
            if part[place + 14 : place + 18] == serial and len(part) >= place + 14:
                position = struct.unpack_from("<q", part, place + 6)[0]
                if position >= 0:
                    return position
            place = part.rfind(b"OggS", 0, place)
        end = start
    return 0


def _mp3(data: memoryview) -> Header:
    from jaxaug.decode.audio.libraries import miniaudio

    library = miniaudio()
    try:
        info = library.mp3_get_info(bytes(data))
    except library.DecodeError as error:
        raise AudioError(f"it is no MP3 that can be decoded: {error}") from None
    return Header("mp3", info.sample_rate, info.nchannels, info.num_frames)
