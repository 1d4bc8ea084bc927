"""A window of one sound at hand, on the host."""

import math
import numbers

import numpy as np

from jaxaug._checks import check_choice, check_positive_int, check_seconds
from jaxaug.decode._types import view_of
from jaxaug.decode.audio.read import read_window, to_int16
from jaxaug.decode.audio.read_header import read_header
from jaxaug.decode.audio.stream import SoundStream
from jaxaug.errors import DecodeError

_CHECKED_SAMPLES = 2**24  # of all channels together, decoded at a time by a check
MAX_SAMPLES = 2**28  # of all channels together: 4.6 hours at 16 kHz, one GiB of floats


def decode_audio(
    data: "bytes | bytearray | memoryview | np.ndarray",
    *,
    start: float = 0.0,
    seconds: float | None = None,
    dtype: str = "float32",
    max_samples: int = MAX_SAMPLES,
) -> tuple[np.ndarray, int]:
    """Return a window of an encoded sound, at the rate of its file, and that rate.

    Only the window is decoded where the format can seek. Samples and verdicts are those of
    `decode.Audio`, which makes batches of clips at one rate.

    Args:
      data: the bytes of a file: WAV, AIFF, AU, CAF, SPHERE, FLAC, MP3, Ogg Vorbis, Opus, AAC,
        M4A, WMA, AC-3, AMR or a video, by content; see `decode.Audio` for what each needs.
      start: where the window begins, in seconds.
      seconds: its length, of which what lies behind the end of the sound is left out; None for all
        that follows.
      dtype: "float32" in [-1, 1], or "int16", to which what has more than 16 bits is rounded.
      max_samples: more, of all channels together, are refused before anything is allocated.

    Returns:
      float32 or int16[n, channels], in the order of WAV whatever the format, and the rate in Hz.

    Raises:
      DecodeError: it is no sound, or is damaged, or the window has too many samples.
      ValueError: an argument is wrong.
      IndexError: the sound ends before `start`.
      ImportError: the library of its format is not installed.

    Example:
      >>> import io, wave
      >>> file = io.BytesIO()
      >>> with wave.open(file, "wb") as writer:
      ...     writer.setparams((1, 2, 8000, 0, "NONE", ""))
      ...     writer.writeframes(bytes(2 * 8000))
      >>> samples, rate = decode_audio(file.getvalue(), start=0.5, seconds=0.1)
      >>> samples.shape, rate
      ((800, 1), 8000)

    Differs from `torchaudio.load` and `librosa.load` in the order of axes, channels last, from the
    latter in that neither rate nor channels change, and from libsndfile, which leaves three and
    more channels of Vorbis and Opus in Ogg in their own order.
    """
    if not isinstance(start, numbers.Real) or not 0 <= start < math.inf:
        raise ValueError(f"`start` must be seconds of at least 0, got {start!r}.")
    if seconds is not None:
        check_seconds("seconds", seconds)
    check_choice("dtype", dtype, ("float32", "int16"))
    check_positive_int("max_samples", max_samples)
    view = view_of(data)
    try:
        return _window(view, start, seconds, dtype, max_samples)
    except DecodeError as error:
        raise DecodeError(error.reason, medium="sound", byte_count=len(view)) from None


def check_audio(data: memoryview) -> None:
    """Decode all of a sound, a part at a time, and keep nothing.

    Raises:
      DecodeError: it is no sound, or decoding ends before its header tells.
      ImportError: the library of its format is not installed.
    """
    header = read_header(data)
    if header.kind == "av":  # some of its containers would be decoded from the start for each part
        with SoundStream(data) as stream:
            stream.check(header.frames)
        return
    step = _CHECKED_SAMPLES // header.channels
    for first in range(0, header.frames, step):
        read_window(data, header, first, min(first + step, header.frames), header.exact)


def _window(
    data: memoryview, start: float, seconds: float | None, dtype: str, max_samples: int
) -> tuple[np.ndarray, int]:
    header = read_header(data)
    rate, frames = header.rate, header.frames
    first = round(start * rate)
    if first >= frames:
        raise IndexError(f"`start` must be within [0, {frames / rate:g}) s, got {start:g}.")
    count = frames - first
    if seconds is not None:
        count = min(count, max(1, round(seconds * rate)))
    if count * header.channels > max_samples:
        raise DecodeError(
            f"the window has {count} samples of {header.channels} channels, more than"
            f" `max_samples`, {max_samples}: give a shorter `seconds`"
        )
    exact = dtype == "int16" and header.exact
    samples = read_window(data, header, first, first + count, exact)
    return (to_int16(samples) if samples.dtype != dtype else samples), rate
