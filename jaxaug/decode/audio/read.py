"""Windows of the samples of files: only what is needed is decoded where the format can seek."""

import io
from typing import Any

import numpy as np

from jaxaug.decode.audio.headers import AudioError, Header
from jaxaug.decode.audio.libraries import miniaudio, soundfile

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
      AudioError: the file is damaged.
    """
    window = np.zeros((stop - start, header.channels), np.int16 if exact else np.float32)
    first, last = max(start, 0), min(stop, header.frames)
    if last <= first:
        return window
    read = {"wav": _wav, "flac": _miniaudio, "mp3": _miniaudio}.get(header.kind, _soundfile)
    samples = read(data, header, first, last - first, exact)
    if len(samples) != last - first:
        end = first + len(samples)
        raise AudioError(f"it is damaged: decoding ended at sample {end} of {header.frames}")
    window[first - start : last - start] = samples
    return window


def _wav(data: memoryview, header: Header, first: int, count: int, exact: bool) -> np.ndarray:
    block = header.width * header.channels
    raw = np.frombuffer(data, np.uint8, count * block, header.start + first * block)
    values = _numbers(raw, header.width, header.bits == 0, exact)
    return values.reshape(count, header.channels)


def _numbers(raw: np.ndarray, width: int, floating: bool, exact: bool) -> np.ndarray:
    """Return the numbers that bytes hold: integers of up to 16 bits at 16 where `exact`."""
    if floating:
        numbers = raw.view(f"<f{width}")
        if not (np.abs(numbers) <= np.finfo(np.float32).max).all():
            raise AudioError("it is damaged: it holds values that are no numbers of float32")
        return numbers.astype(np.float32)
    if width == 1:
        numbers = (raw.astype(np.int16) - _ZERO_OF_8_BITS) * 256
    elif width == 2:
        numbers = raw.view("<i2")
    elif width == 3:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = raw.reshape(-1, 3)
        numbers = wide.view("<i4")[:, 0]
    else:
        numbers = raw.view("<i4")
    return numbers if exact else to_floats(numbers)


def to_floats(numbers: np.ndarray) -> np.ndarray:
    """Return integers as float32 in [-1, 1)."""
    if numbers.dtype.kind == "f":
        return numbers
    return numbers.astype(np.float32) * np.float32(2.0 ** (1 - 8 * numbers.dtype.itemsize))


def _miniaudio(data: memoryview, header: Header, first: int, count: int, exact: bool) -> np.ndarray:
    library = miniaudio()
    lib, ffi = library.lib, library.ffi
    decoder = ffi.new("ma_decoder *")
    config = lib.ma_decoder_config_init(_S16 if exact else _F32, 0, 0)
    config_place = ffi.new("ma_decoder_config *", config)
    source = ffi.from_buffer(data)
    if lib.ma_decoder_init_memory(source, len(data), config_place, decoder):
        raise AudioError(f"it is no {header.kind.upper()} that can be decoded")
    try:
        if first and lib.ma_decoder_seek_to_pcm_frame(decoder, first):
            raise AudioError(f"it is damaged: sample {first} of {header.frames} cannot be reached")
        return _read_all(lib, ffi, decoder, header.channels, count, exact)
    finally:
        lib.ma_decoder_uninit(decoder)


def _read_all(
    lib: Any, ffi: Any, decoder: Any, channels: int, count: int, exact: bool
) -> np.ndarray:
    samples = np.zeros((count, channels), np.int16 if exact else np.float32)
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
    del exact
    library = soundfile()
    try:
        with library.SoundFile(io.BytesIO(data)) as file:
            if file.channels != header.channels or file.samplerate != header.rate:
                raise AudioError("its stream differs from its header")
            file.seek(first)
            return file.read(count, dtype="float32", always_2d=True)
    except library.LibsndfileError as error:
        raise AudioError(f"it is damaged: {error}") from None
