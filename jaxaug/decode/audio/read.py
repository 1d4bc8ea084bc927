"""Windows of the samples of files: only what is needed is decoded where the format can seek."""

import functools
from typing import Any

import numpy as np

from jaxaug.decode._memory_file import MemoryFile
from jaxaug.decode.audio import mp3, ogg, opus
from jaxaug.decode.audio.header import G711, Header
from jaxaug.decode.audio.libraries import miniaudio, soundfile
from jaxaug.decode.audio.stream import SoundStream
from jaxaug.errors import DecodeError

_S16, _F32 = 2, 5  # of miniaudio's ma_format
_ZERO_OF_8_BITS = 128


def read_window(data: memoryview, header: Header, start: int, stop: int, exact: bool) -> np.ndarray:
    """Return samples [stop - start, channels] of a file, zero where it has none.

    Args:
      data: the file.
      header: what it tells.
      start, stop: of the window, in samples of the file; may lie outside of it.
      exact: int16, for files of at most 16 bits; else float32 in [-1, 1].

    Raises:
      DecodeError: the file is damaged.
    """
    first, last = max(start, 0), min(stop, header.frames)
    if last <= first:
        return _silence(stop - start, header, exact)
    read = _READERS[header.kind]
    samples = read(data, header, first, last - first, exact)
    if len(samples) != last - first:
        end = first + len(samples)
        raise DecodeError(f"it is damaged: decoding ended at sample {end} of {header.frames}")
    if (first, last) == (start, stop):
        return samples
    window = _silence(stop - start, header, exact)
    window[first - start : last - start] = samples
    return window


def _silence(count: int, header: Header, exact: bool) -> np.ndarray:
    return np.zeros((count, header.channels), np.int16 if exact else np.float32)


def _plain(data: memoryview, header: Header, first: int, count: int, exact: bool) -> np.ndarray:
    block = header.width * header.channels
    raw = np.frombuffer(data, np.uint8, count * block, header.start + first * block)
    numbers = _numbers(raw, header.coding)
    if numbers.dtype.kind == "f":
        if not (np.abs(numbers) <= np.finfo(np.float32).max).all():
            raise DecodeError("it is damaged: it holds values that are no numbers of float32")
        numbers = numbers.astype(np.float32)
    numbers = numbers.astype(np.int16) if exact else to_floats(numbers)
    return numbers.reshape(count, header.channels)


def _numbers(raw: np.ndarray, coding: str) -> np.ndarray:
    """Return the numbers that bytes hold: floats, or integers of 16 or 32 bits, the upper ones."""
    if coding in G711:
        return _g711(coding)[raw]
    if coding == "|u1":
        return (raw.astype(np.int16) - _ZERO_OF_8_BITS) * 256
    if coding[1:] == "i1":
        return raw.view(np.int8).astype(np.int16) * 256
    if coding[1:] == "i3":
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, slice(0, 3) if coding[0] == ">" else slice(1, 4)] = raw.reshape(-1, 3)
        return wide.view(f"{coding[0]}i4")[:, 0]
    return raw.view(coding)


@functools.cache
def _g711(coding: str) -> np.ndarray:
    """Return the int16[256] of ITU-T G.711: a sign, three bits of exponent and four of mantissa."""
    code = np.arange(256) ^ (0x55 if coding == "alaw" else 0xFF)
    exponent, mantissa = code >> 4 & 7, code & 15
    if coding == "ulaw":
        size = (((mantissa << 3) + 132) << exponent) - 132
        return np.where(code & 0x80, -size, size).astype(np.int16)
    line = (mantissa << 4) + 8
    size = np.where(exponent == 0, line, (line + 256) << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, size, -size).astype(np.int16)


def to_floats(numbers: np.ndarray) -> np.ndarray:
    """Return integers as float32 in [-1, 1)."""
    if numbers.dtype.kind == "f":
        return numbers
    return numbers.astype(np.float32) * np.float32(2.0 ** (1 - 8 * numbers.dtype.itemsize))


def to_int16(samples: np.ndarray) -> np.ndarray:
    """Return floats in [-1, 1] rounded to 16 bits."""
    return np.clip(np.round(samples * 2.0**15), -(2**15), 2**15 - 1).astype(np.int16)


def _mp3(data: memoryview, header: Header, first: int, count: int, exact: bool) -> np.ndarray:
    samples = mp3.read_window(data, header.stream, first, count)
    return samples if exact else to_floats(samples)


def _opus(data: memoryview, header: Header, first: int, count: int, exact: bool) -> np.ndarray:
    del exact  # it is decoded to floats
    return opus.read_window(data, header.stream, first, count)


def _vorbis(data: memoryview, header: Header, first: int, count: int, exact: bool) -> np.ndarray:
    # libsndfile takes the end of the last page for that of its last packet, which it cuts: what it
    # seeks there comes too early by what was cut.
    begin = min(first, ogg.begin_of_last_page(data))
    samples = _soundfile(data, header, begin, count + first - begin, exact)[first - begin :]
    if header.channels < 3:  # alike in both orders: no copy
        return samples
    return np.take(samples, ogg.channel_order(header.channels), axis=1)


def _stream(data: memoryview, header: Header, first: int, count: int, exact: bool) -> np.ndarray:
    with SoundStream(data) as stream:
        samples = stream.read(first, count)
    return to_int16(samples) if exact else samples


def _flac(data: memoryview, header: Header, first: int, count: int, exact: bool) -> np.ndarray:
    library = miniaudio()
    lib, ffi = library.lib, library.ffi
    decoder = ffi.new("ma_decoder *")
    config = lib.ma_decoder_config_init(_S16 if exact else _F32, 0, 0)
    config.encodingFormat = lib.ma_encoding_format_flac  # else what fails is tried as MP3
    config_place = ffi.new("ma_decoder_config *", config)
    source = ffi.from_buffer(data)
    if lib.ma_decoder_init_memory(source, len(data), config_place, decoder):
        raise DecodeError(f"it is no {header.kind.upper()} that can be decoded")
    try:
        if decoder.outputChannels != header.channels:
            raise DecodeError(f"it is damaged: it has {decoder.outputChannels} channels inside")
        if first and lib.ma_decoder_seek_to_pcm_frame(decoder, first):
            raise DecodeError(f"it is damaged: sample {first} of {header.frames} cannot be reached")
        return _read_all(lib, ffi, decoder, header.channels, count, exact)
    finally:
        lib.ma_decoder_uninit(decoder)


def _read_all(
    lib: Any, ffi: Any, decoder: Any, channels: int, count: int, exact: bool
) -> np.ndarray:
    samples = np.empty((count, channels), np.int16 if exact else np.float32)
    there = ffi.new("ma_uint64 *")
    done = 0
    while done < count:
        place = ffi.cast("void *", samples.ctypes.data + done * samples.strides[0])
        failed = lib.ma_decoder_read_pcm_frames(decoder, place, count - done, there)
        done += there[0]
        if failed or there[0] == 0:
            break
    return samples[:done]


def _soundfile(data: memoryview, header: Header, first: int, count: int, exact: bool) -> np.ndarray:
    library = soundfile()
    try:
        with library.SoundFile(MemoryFile(data)) as file:
            found = file.channels, file.samplerate, file.frames
            if found != (header.channels, header.rate, header.frames):
                raise DecodeError(
                    f"its stream, {found[2]} samples of {found[0]} channels at {found[1]} Hz, is"
                    f" not what its header tells, {header.frames} of {header.channels} at"
                    f" {header.rate}"
                )
            file.seek(first)
            return file.read(count, dtype="int16" if exact else "float32", always_2d=True)
    except library.LibsndfileError as error:
        raise DecodeError(f"it is damaged: {error.error_string}") from None


_READERS = {
    "plain": _plain,
    "flac": _flac,
    "mp3": _mp3,
    "vorbis": _vorbis,
    "opus": _opus,
    "blocks": _soundfile,
    "av": _stream,
}
