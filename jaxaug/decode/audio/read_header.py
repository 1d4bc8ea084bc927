"""What the first bytes of a sound file tell: format, rate, channels, length. Nothing is decoded."""

import struct
from collections.abc import Callable

from jaxaug.decode._memory_file import MemoryFile
from jaxaug.decode.audio import chunks, mp3, ogg, opus
from jaxaug.decode.audio.header import Header
from jaxaug.decode.audio.libraries import soundfile
from jaxaug.decode.audio.raw import raw_stream
from jaxaug.decode.audio.stream import stream_header
from jaxaug.decode.video.container import container_at
from jaxaug.errors import DecodeError

_W64 = b"riff" + bytes.fromhex("2e91cf11a5d628db04c10000")
_BITS_OF_MINIAUDIO = 24  # that it decodes of FLAC
_MAX_CHANNELS = 64
_MAX_RATE = 1_000_000
_MAX_FRAMES = 1 << 48  # nine years at the highest rate; places are drawn among 2^53


def read_header(data: memoryview) -> Header:
    """Return what a file's bytes tell.

    Raises:
      DecodeError: it is no sound, or tells of one that cannot be.
    """
    header = _parse(data)
    if not 0 < header.channels <= _MAX_CHANNELS:
        raise DecodeError(f"it has {header.channels} channels, not 1 to {_MAX_CHANNELS}")
    if not 0 < header.rate <= _MAX_RATE:
        raise DecodeError(f"its rate is {header.rate} Hz, not 1 to {_MAX_RATE}")
    if header.frames <= 0:
        raise DecodeError("it holds no samples")
    if header.frames > _MAX_FRAMES:
        raise DecodeError(f"its header tells of {header.frames} samples, more than {_MAX_FRAMES}")
    return header


def is_sound(data: memoryview) -> bool:
    """Return whether the first bytes are of a sound, or of a container that may have one."""
    return _reader_of(data) is not None


def _parse(data: memoryview) -> Header:
    if not len(data):
        raise DecodeError("it is empty or could not be read")
    try:
        header = _read(data)
    except (struct.error, IndexError):
        raise DecodeError(f"its header is cut off after {len(data)} bytes") from None
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"its header is damaged: {error}") from None
    if header.kind == "av":
        return stream_header(data)
    return _blocks(data, header) if header.kind == "blocks" else header


def _read(data: memoryview) -> Header:
    read = _reader_of(data)
    if read is not None:
        return read(data)
    start = bytes(data[:4])
    for begin, kind in _NOT_READ.items():
        if start.startswith(begin):
            raise DecodeError(f"it is {kind}, which is not read: convert it, to FLAC as an example")
    raise DecodeError(
        "it is no WAV, RF64, W64, AIFF, AU, CAF, SPHERE, FLAC, MP3, Ogg Vorbis, Opus, AAC, M4A,"
        f" AC-3 or AMR: it begins with {start!r}"
    )


def _reader_of(data: memoryview) -> Callable[[memoryview], Header] | None:
    """Return what reads the header, by the first bytes of a file; None for no sound."""
    start = bytes(data[:16])
    name, form = start[:4], start[8:12]
    if name in (b"RIFF", b"RF64", b"BW64") and form == b"WAVE":
        return chunks.wav
    if name == b"FORM" and form in (b"AIFF", b"AIFC"):
        return chunks.aiff
    if start == _W64:
        return chunks.w64
    for begin, read in _BY_NAME.items():
        if start.startswith(begin):
            return read
    behind = data[mp3.behind_tags(data) :]
    if bytes(behind[:4]) == b"fLaC":
        return _flac
    if raw_stream(bytes(behind[:16])):
        return stream_header  # AAC, AC-3, AMR
    if start[:3] == b"ID3" or (start[0] == 0xFF and len(start) > 1 and start[1] & 0xE0 == 0xE0):
        return _mp3
    if container_at(data) is not None:
        return stream_header
    return _mp3 if mp3.find_run(data) >= 0 else None


def _mp3(data: memoryview) -> Header:
    stream = mp3.find_frames(data)
    # miniaudio decodes to 16 bits.
    return Header("mp3", stream.rate, stream.channels, stream.frames, 16, stream=stream)


def _flac(data: memoryview) -> Header:
    data = data[mp3.behind_tags(data) :]
    if bytes(data[4:5])[0] & 0x7F:
        raise DecodeError("its first block is no STREAMINFO")
    packed = int.from_bytes(data[18:26], "big")
    if len(data) < 42:
        raise DecodeError(f"its header is cut off after {len(data)} bytes")
    rate, channels = packed >> 44, (packed >> 41 & 7) + 1
    bits, frames = (packed >> 36 & 31) + 1, packed & (1 << 36) - 1
    if not frames or bits > _BITS_OF_MINIAUDIO:
        return stream_header(data)
    return Header("flac", rate, channels, frames, bits)


def _ogg(data: memoryview) -> Header:
    first = 27 + data[26]
    packet = bytes(data[first : first + 30])
    serial = bytes(data[14:18])
    if packet.startswith(b"\x01vorbis"):
        channels, rate = struct.unpack_from("<BI", packet, 11)
        return Header("vorbis", rate, channels, ogg.last_position(data, serial))
    if packet.startswith(b"OpusHead"):
        stream = opus.find_stream(data)
        return Header("opus", stream.rate, stream.channels, stream.frames, stream=stream)
    return stream_header(data)  # of a video, or of another codec


def _blocks(data: memoryview, header: Header) -> Header:
    """Return the header of ADPCM with the length that libsndfile finds."""
    library = soundfile()
    try:
        with library.SoundFile(MemoryFile(data)) as file:
            return header._replace(frames=file.frames)
    except library.LibsndfileError as error:
        raise DecodeError(f"it is damaged: {error.error_string}") from None


_BY_NAME = {
    b"OggS": _ogg,
    b".snd": chunks.au,
    b"dns.": chunks.au,
    b"caff": chunks.caf,
    b"NIST_1A\n": chunks.sphere,
}
_NOT_READ = {
    b"ADIF": "AAC in ADIF",
    b"\xac\x40": "AC-4",
    b"\xac\x41": "AC-4",
    b"wvpk": "WavPack",
    b"MAC ": "Monkey's Audio",
    b"MThd": "MIDI",
}
