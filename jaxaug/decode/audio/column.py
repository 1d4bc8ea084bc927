"""The decoder of a column of sounds: clips of one length at one rate."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._checks import check_choice, check_positive_int, check_seconds
from jaxaug._install import installed_versions
from jaxaug._sinc import RESAMPLE, resample, resampled_length
from jaxaug._typing import Device, Values
from jaxaug.decode._column import Column, ColumnDecoder, Decoded, decode_each, valid_rows
from jaxaug.decode._cpus import usable_cpus
from jaxaug.decode._draw import draw_integers
from jaxaug.decode._row_threads import RowThreads
from jaxaug.decode._types import Encoded
from jaxaug.decode.audio.part import Part, find_part
from jaxaug.decode.audio.read import read_window, to_floats, to_int16
from jaxaug.decode.audio.stream import SoundStream
from jaxaug.decode.video.column import Video
from jaxaug.errors import DecodeError, PrecisionWarning

_SAMPLED_RECORDS = 1000  # looked at where a setting is left to the data
_SAMPLED_VIDEOS = 32
_INT32 = 2**31 - 1  # what `resample` computes places in
_LONGEST = 30.0  # seconds of a clip whose length is left to the data


@dataclasses.dataclass(frozen=True)
class Audio(ColumnDecoder):
    """Clips of sounds: the description that `Loader(decode=)` takes, and sources declare.

    A column of encoded sounds, WAV (also RF64 and W64, A-law, mu-law, ADPCM), AIFF, AU, CAF,
    SPHERE, FLAC, MP3, Ogg Vorbis, Opus, AAC, M4A, WMA, AC-3, AMR, or videos in any container of
    `decode_video`, by content, becomes `<name>` float32[B, N] in [-1, 1], or [B, N,
    channels], "<name>_length" int32[B], how many of the N samples are sound, "<name>_start"
    float32[B], where the clip begins in seconds, and "<name>_rate" int32[B], the rate of the
    file. Where that is another one, the clip is
    resampled on the device. With a `count` of clips, [B, count, N] and [B, count].

    Where the source gives spans (`Manifest`, `FileList(spans="seconds")`, `Encoded.span`), a record
    is that part of its file, or of one channel of it; clips lie in it and `start` counts from
    there, while "<name>_start" is that of the file.

    Only the clip is decoded, of MP3 and AAC with a few frames before it. Integers of at most 16
    bits, and MP3, which is decoded to them, go to the device as such. A file of 24 hours takes no
    more memory than its clip.

    Args:
      rate: of the clips, in Hz.
      seconds: of a clip; None for the longest of 1,000 records, at most 30.
      samples: of a clip, in place of `seconds`.
      start: where a clip begins: "random", drawn for each record and epoch; "uniform", so that
        `count` clips lie evenly from the first to the last, one in the middle; or seconds.
      count: clips of each record; None for one without an axis of its own.
      channels: "mono", the mean of all; "stereo", of which a mono file has two alike; "as stored",
        an axis even for one, the same number in all files, in the order of WAV whatever the format.
      pad: what follows a sound that is shorter than its clip: "zero", or "repeat", the sound again
        (its length is N then).
      max_rate: the highest rate of a file; None for that of 1,000 records.
      of: the column of videos whose sound it is, `decode={"video": Video(), "audio":
        Audio(of="video", seconds=2.0)}`: each clip begins at the time of the first frame of the
        video's clip, and `start` and `count` are those of the video. It ends with the part of the
        video that the record is. Where the sound begins later than the video, zeros come first.
      num_threads: that decode; None for one for each CPU.

    Raises:
      ValueError: an argument is wrong.
      ImportError: FLAC and MP3 without miniaudio, Vorbis and ADPCM without soundfile, AAC, M4A and
        Opus without PyAV.

    Example:
      >>> import io, jax, wave
      >>> from jaxaug.iterators import InMemory, Loader, Renamed
      >>> buffer = io.BytesIO()
      >>> with wave.open(buffer, "wb") as file:
      ...     file.setparams((1, 2, 8000, 0, "NONE", ""))
      ...     file.writeframes(bytes(2 * 8000))
      >>> files = InMemory([buffer.getvalue()] * jax.device_count())
      >>> source = Renamed(files, {"image": "audio"})
      >>> decode = {"audio": Audio(rate=16_000, seconds=0.5)}
      >>> with Loader(source, jax.device_count(), decode=decode) as loader:
      ...     next(loader)["audio"].shape[1:]
      (8000,)
    """

    rate: int = 16_000
    seconds: float | None = None
    samples: int | None = None
    start: "str | float" = "random"
    count: int | None = None
    channels: str = "mono"
    pad: str = "zero"
    max_rate: int | None = None
    of: str | None = None
    num_threads: int | None = dataclasses.field(default=None, repr=False)
    # Set by `fit`: channels of the arrays, int16 or float32, and whether rates differ.
    width: int = dataclasses.field(default=1, repr=False)
    exact: bool = dataclasses.field(default=False, repr=False)
    resampled: bool = dataclasses.field(default=True, repr=False)

    def __post_init__(self):
        check_positive_int("rate", self.rate)
        check_choice("channels", self.channels, ("mono", "stereo", "as stored"))
        check_choice("pad", self.pad, ("zero", "repeat"))
        for name in ("samples", "count", "max_rate", "num_threads"):
            if getattr(self, name) is not None:
                check_positive_int(name, getattr(self, name))
        if self.seconds is not None:
            check_seconds("seconds", self.seconds)
        if self.seconds is not None and self.samples is not None:
            raise ValueError("`seconds` and `samples` say the same: give one of them.")
        number = isinstance(self.start, (int, float)) and not isinstance(self.start, bool)
        seconds = float(self.start) if number else -1.0
        if self.start not in ("random", "uniform") and not seconds >= 0:
            raise ValueError(
                f'`start` must be "random", "uniform" or seconds of at least 0, got {self.start!r}.'
            )
        if self.of is not None and self.start != "random":
            raise ValueError(
                f"`start` must be left out beside `of`={self.of!r}, got {self.start!r}: the sound"
                " begins where the clip of its video does, by Video(start=)."
            )

    @property
    def draws(self) -> bool:
        """True if clips begin at random."""
        return self.start == "random" and self.of is None

    @property
    def reads(self) -> str | None:
        """The column of videos whose sound it is."""
        return self.of

    def fit(self, column: Column, siblings: Mapping[str, ColumnDecoder]) -> "Audio":
        """Return the decoder with what the first records tell: rates, channels, lengths."""
        if not isinstance(column.example, Encoded):
            raise TypeError(
                f"column {column.name!r} must be encoded sounds, got"
                f" {type(column.example).__name__}: arrays of samples need no decoder."
            )
        span = column.example.span if self.of is None else None
        if span is not None and span.unit != "seconds":
            raise ValueError(f"column {column.name!r}: spans of sounds must be in seconds.")
        count = self.count
        if self.of is not None:
            count = _clips_of(self.of, siblings)
            if self.count not in (None, count):
                raise ValueError(
                    f"`count` must be left out beside `of`={self.of!r}, got {self.count}: clips are"
                    f" those of its video, Video(count={count or 1})."
                )
            if self.seconds is None and self.samples is None:
                raise ValueError(f"`seconds` must be given with `of`={self.of!r}.")
        found = self._look_at(column)
        rates = {part.header.rate for part in found} | {self.max_rate or self.rate}
        stored = max((part.channels for part in found), default=1)
        width = {"mono": 1, "stereo": 2}.get(self.channels, stored)
        kept = all(part.header.exact and part.channels in (1, width) for part in found)
        return dataclasses.replace(
            self,
            seconds=None,
            samples=self._samples(found),
            count=count,
            max_rate=self.max_rate or max(rates),
            width=width,
            exact=bool(found) and kept,
            resampled=rates != {self.rate},
        )

    def within(self, bound: float) -> "Audio":
        """Return the decoder of sounds of at most `bound` seconds."""
        assert self.samples is not None
        # Lengths are rounded as seconds: less than a thousandth of a sample is none.
        samples = max(1, math.ceil(bound * self.rate - 1e-3))
        return dataclasses.replace(self, samples=min(samples, self.samples))

    def exceeds(self, arrays: Mapping[str, Any]) -> np.ndarray:
        """Return where a sound, or a clip of it, has more samples than there is room for."""
        assert self.samples is not None
        rates = np.maximum(arrays["rate"].astype(np.int64), 1)
        window = -(-self.samples * rates // self.rate)
        lengths = arrays["length"].reshape(len(rates), -1)
        return (lengths > window[:, None]).any(axis=1)

    def check_transform(self, name: str, transform: Any) -> None:
        """Raise ValueError for a filter or a feature of a chain that is meant for another rate."""
        if name != "audio":
            return
        parts = getattr(transform, "parts", None)
        for each in parts or ():
            self.check_transform(name, each)
        rate = getattr(transform, "rate", self.rate)
        if parts is None and hasattr(transform, "takes") and rate != self.rate:
            kind = type(transform).__name__
            raise ValueError(
                f"`transform`: the `rate` of {kind} must be that of the clips, {self.rate}, got"
                f" {rate}: give {kind}(rate={self.rate}), or decode.Audio(rate={rate})."
            )

    def part(self, values: Encoded, row: int) -> Part:
        """Return what a record is of its file; of a video, all of its sound.

        Raises:
          DecodeError: the file cannot be decoded, or has no such part.
        """
        return find_part(values.view(row), values.span if self.of is None else None, row)

    def _look_at(self, column: Column) -> list[Part]:
        """Return what is known of some records of a column."""
        count = _SAMPLED_VIDEOS if self.of is not None else _SAMPLED_RECORDS
        return [part for values in column.sample(count) for part in self._good(values)]

    def _good(self, values: Values) -> list[Part]:
        """Return what is known of the records that can be read."""
        assert isinstance(values, Encoded)
        found = []
        for row in range(len(values.lengths)):
            try:
                found.append(self.part(values, row))
            except DecodeError:
                continue
        return found

    def _samples(self, found: Sequence[Part]) -> int:
        if self.samples is not None:
            return self.samples
        longest = max((part.frames / part.header.rate for part in found), default=1.0)
        seconds = min(longest, _LONGEST) if self.seconds is None else self.seconds
        return max(1, round(seconds * self.rate))

    @property
    def margin(self) -> int:
        """Samples of the file on each side of a clip that resampling reads."""
        return math.ceil(RESAMPLE.zeros * max(1.0, self.shrink)) if self.resampled else 0

    @property
    def shrink(self) -> float:
        """The highest rate of a file over that of the clips."""
        return (self.max_rate or self.rate) / self.rate

    def window(self, rate: int) -> int:
        """Return the samples of a file of `rate` that a clip takes, without margins."""
        assert self.samples is not None
        return -(-self.samples * rate // self.rate)

    def ratio(self, rate: int) -> tuple[int, int]:
        """Return the rate of the clips over another one, without a common divisor."""
        divisor = math.gcd(rate, self.rate)
        return self.rate // divisor, rate // divisor

    def extents(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return the samples of the sounds, with their margins, where there is a clip of each."""
        if self.count is not None:
            return {}
        return {"samples": (arrays["length"] + 2 * self.margin)[:, None]}

    def expected_extents(self, column: Column) -> dict[str, np.ndarray]:
        """Return those of a sample of the records."""
        if self.count is not None:
            return {}
        lengths = [
            min(each.frames, self.window(each.header.rate)) for each in self._look_at(column)
        ]
        return {"samples": np.array(lengths, np.int64)[:, None] + 2 * self.margin}

    def made_by(self, platform: str) -> dict[str, str]:
        """Return the versions of the libraries of the formats."""
        return installed_versions("miniaudio", "soundfile", "av")

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the forms of the samples, of their number, and of where they are from."""
        assert self.samples is not None
        clips = () if self.count is None else (self.count,)
        rows = self.window(max(self.max_rate or 0, self.rate)) + 2 * self.margin
        channels = () if self.channels == "mono" else (self.width,)
        dtype = np.int16 if self.exact else np.float32
        return {
            "samples": jax.ShapeDtypeStruct((*clips, rows, *channels), dtype),
            "length": jax.ShapeDtypeStruct(clips, np.int32),
            "start": jax.ShapeDtypeStruct(clips, np.float32),
            "rate": jax.ShapeDtypeStruct((), np.int32),
            "ratio": jax.ShapeDtypeStruct((2,), np.int32),
        }

    def entries(self, name: str) -> tuple[str, ...]:
        """Return the names of the clip, of its length and start, and of the file's rate."""
        return (name, f"{name}_length", f"{name}_start", f"{name}_rate")

    def open(self, devices: Sequence[Device], deterministic: bool) -> "AudioReader":
        """Return the threads that decode."""
        return AudioReader(self)

    def place(
        self, name: str, row: Mapping[str, Array], siblings: Mapping[str, Any], valid: Array
    ) -> dict[str, Array]:
        """Return the clips at their rate, and what is known of them."""

        def clip(samples: Array, length: Array) -> tuple[Array, Array]:
            return self._clip(samples, length, row["ratio"])

        clips = jax.vmap(clip) if self.count is not None else clip
        audio, length = clips(row["samples"], row["length"])
        return dict(zip(self.entries(name), (audio, length, row["start"], row["rate"])))

    def _clip(self, samples: Array, length: Array, ratio: Array) -> tuple[Array, Array]:
        """Return one clip [N, ...] at its rate, and its length."""
        assert self.samples is not None
        count = self.samples
        if samples.dtype == jnp.int16:
            samples = samples.astype(jnp.float32) * 2.0**-15
        audio = samples[self.margin : self.margin + count]
        if self.resampled:
            up, down = ratio[0], ratio[1]

            def resampled() -> Array:
                shrink, margin = self.shrink, self.margin
                return resample(samples, up, down, samples=count, shrink=shrink, first=margin)

            audio = lax.cond(up == down, lambda: audio, resampled)
            length = jnp.minimum(resampled_length(length, up, down), count)
        return self._padded(audio, length)

    def _padded(self, audio: Array, length: Array) -> tuple[Array, Array]:
        place = jnp.arange(audio.shape[0], dtype=jnp.int32)
        if self.pad == "repeat":
            repeated = jnp.take(audio, place % jnp.maximum(length, 1), axis=0)
            full = jnp.where(length > 0, jnp.int32(audio.shape[0]), 0)
            return repeated, full
        used = (place < length).reshape(-1, *(1 for _ in audio.shape[1:]))
        return jnp.where(used, audio, 0.0), length

    def original(self, values: Values) -> np.ndarray:
        """Return the sound of one record, float32[frames, channels], up to 30 seconds."""
        assert isinstance(values, Encoded)
        data = values.view(0)
        part = self.part(values, 0)
        stop = min(part.end, part.begin + round(_LONGEST * part.header.rate))
        return part.of(read_window(data, part.header, part.begin, stop, exact=False))


class AudioReader:
    """The host half of `Audio`: threads that decode the clips of a batch."""

    in_flight = 2

    def __init__(self, audio: Audio):
        self.running = audio
        self._threads = RowThreads(audio.num_threads or usable_cpus(), "jaxaug-audio")

    def check_rows(self, values: Encoded, stored: Any) -> tuple[list[Any], dict[int, str]]:
        """Return the headers of n sounds; see `ColumnDecoder`."""
        parts = [self._part(values, row) for row in range(len(values.lengths))]
        errors = [(row, each) for row, each in enumerate(parts) if isinstance(each, DecodeError)]
        return parts, {row: error.reason for row, error in errors}

    def _part(self, values: Encoded, row: int) -> Part | DecodeError:
        """Return what a record is of its file, or why it cannot be decoded."""
        try:
            part = self.running.part(values, row)
            self._check(part)
        except DecodeError as error:
            return error
        return part

    def _check(self, part: Part) -> None:
        """Raise DecodeError where a sound does not fit into the arrays of the column."""
        audio = self.running
        rate, channels = part.header.rate, part.channels
        highest = audio.max_rate or audio.rate
        if rate > highest or not (audio.resampled or rate == audio.rate):
            raise DecodeError(
                f"its rate is {rate} Hz, those of the records looked at are at most"
                f" {highest}: give Audio(max_rate={rate})"
            )
        up, down = audio.ratio(rate)
        if (up + 1) * down > _INT32:
            raise DecodeError(
                f"its rate, {rate} Hz, has no small ratio to {audio.rate}, that of the clips:"
                " resample the file"
            )
        if audio.channels == "as stored" and channels != audio.width:
            raise DecodeError(f"it has {channels} channels, others {audio.width}")
        if audio.channels == "stereo" and channels > 2:
            raise DecodeError(f'it has {channels} channels: take them to "mono"')

    def decode_rows(
        self,
        values: Encoded,
        checked: list[Any],
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the clips of n sounds; see `ColumnDecoder`."""
        forms = self.running.forms().items()
        video = None if self.running.of is None else siblings[self.running.of].arrays
        arrays = {key: np.zeros((len(wanted), *f.shape), f.dtype) for key, f in forms}
        arrays["ratio"][:] = 1

        def decode(row: int) -> None:
            part = checked[row]
            if isinstance(part, DecodeError):
                raise part
            if video is None:
                starts = self._starts(part, keys[row : row + 1])
            else:
                times, end = video["time"][row], float(video["end"][row])
                part, starts = self._beside_video(part, values.view(row), times, end)
            self._decode(values.view(row), part, starts, arrays, row)

        failures = decode_each(self._threads, decode, wanted)
        for row in failures:
            for array in arrays.values():
                array[row] = 0
        arrays["ratio"][list(failures)] = 1
        valid = valid_rows(failures, wanted)
        warnings = self._warnings(checked, np.flatnonzero(valid).tolist())
        return Decoded(arrays, valid, failures, warnings)

    def _warnings(self, checked: list[Any], rows: list[int]) -> dict[int, Warning]:
        """Return a warning for each sound that loses what int16 cannot hold."""
        if not self.running.exact:
            return {}
        lossy = PrecisionWarning(
            "its samples are rounded to 16 bits, which the records looked at have at most"
        )
        kept = (1, self.running.width)
        return {
            row: lossy
            for row in rows
            if not checked[row].header.exact or checked[row].channels not in kept
        }

    def _decode(
        self, data: memoryview, part: Part, starts: np.ndarray, arrays: dict[str, Any], row: int
    ) -> None:
        """Write the clips of one sound that begin at some of its samples into the arrays."""
        audio, header = self.running, part.header
        window = audio.window(header.rate)
        lengths = np.clip(part.end - starts, 0, window)
        arrays["ratio"][row] = audio.ratio(header.rate)
        arrays["rate"][row] = header.rate
        single = audio.count is None
        arrays["length"][row] = lengths[0] if single else lengths
        seconds = starts / header.rate
        arrays["start"][row] = seconds[0] if single else seconds
        clips = arrays["samples"][row : row + 1] if single else arrays["samples"][row]
        for clip, start in zip(clips, starts.tolist()):
            # Where all of them fit, the file's integers go to the device as they are.
            exact = audio.exact and header.exact
            last = start + window + audio.margin
            samples = part.of(read_window(data, header, start - audio.margin, last, exact))
            clip[: len(samples)] = self._mixed(samples, clip)

    def _beside_video(
        self, part: Part, data: memoryview, times: np.ndarray, end: float
    ) -> tuple[Part, np.ndarray]:
        """Return a sound up to a time, and the first samples int64[count] of its clips.

        Args:
          part: all of the sound.
          data: the file.
          times: of the frames of the video's clips, in seconds.
          end: that of the video's part, in seconds; may be `inf`.
        """
        with SoundStream(data) as stream:
            begin = stream.first
        rate = part.header.rate
        first = times.reshape(self.running.count or 1, -1)[:, 0].astype(np.float64)
        starts = np.round((first - begin) * rate).astype(np.int64)
        last = min(float(part.end), (end - begin) * rate)
        return part._replace(end=round(last)), starts

    def _starts(self, part: Part, key: np.ndarray) -> np.ndarray:
        """Return the first samples of the clips of one sound, int64[count]."""
        start, count = self.running.start, self.running.count or 1
        last = max(0, part.frames - self.running.window(part.header.rate))
        if start == "random":
            return part.begin + draw_integers(key, np.arange(count), high=last + 1)
        if start == "uniform":
            parts = np.array([0.5]) if count == 1 else np.linspace(0, 1, count)
            return part.begin + np.round(parts * last).astype(np.int64)
        first = round(float(start) * part.header.rate)
        if first >= part.frames:
            seconds = part.frames / part.header.rate
            raise DecodeError(f"it ends after {seconds:g} seconds, before `start`, {start:g}")
        return np.full(count, part.begin + first, np.int64)

    def _mixed(self, samples: np.ndarray, clip: np.ndarray) -> np.ndarray:
        """Return samples [n, stored channels] in the channels and the dtype of a clip."""
        if samples.dtype != clip.dtype:
            samples = to_floats(samples) if clip.dtype == np.float32 else to_int16(samples)
        if clip.ndim == 2:
            return np.broadcast_to(samples, (len(samples), clip.shape[1]))
        if samples.shape[1] == 1:
            return samples[:, 0]
        mixed = samples.mean(axis=1, dtype=np.float32)
        return mixed if clip.dtype == np.float32 else np.round(mixed).astype(np.int16)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def _clips_of(name: str, siblings: Mapping[str, ColumnDecoder]) -> int | None:
    """Return the clips of a video, None for one without an axis of its own."""
    video = siblings.get(name)
    if not isinstance(video, Video):
        raise ValueError(f"`of` must name a column that Video decodes, got {name!r}.")
    return None if video.count == 1 else video.count
