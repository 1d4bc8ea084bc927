"""Decode whole sound files in memory without a GPU: jaxaug's readers, soundfile and miniaudio.

    python benchmarks/audio_cpu.py --seconds 30 --rounds 5

Prints seconds of sound a second of two threads, "times real time": medians,
minima and maxima. A second table has clips of 2 s from files of ten minutes, where seeking counts.
"""

import argparse
import io
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import miniaudio
import numpy as np
import soundfile

from jaxaug.decode.audio.headers import read_header
from jaxaug.decode.audio.read import read_window

RATE = 16_000
KINDS = {
    "WAV": ("WAV", "PCM_16"),
    "FLAC": ("FLAC", "PCM_16"),
    "MP3": ("MP3", "MPEG_LAYER_III"),
    "Vorbis": ("OGG", "VORBIS"),
    "Opus": ("OGG", "OPUS"),
}


def encoded(kind: str, seconds: int) -> bytes:
    """Return a file of a gliding tone in noise."""
    rng = np.random.default_rng(0)
    clock = np.arange(seconds * RATE) / RATE
    samples = 0.3 * np.sin(2 * np.pi * 300 * clock * (1 + clock % 2)) + 0.02 * rng.standard_normal(
        len(clock)
    )
    container, subtype = KINDS[kind]
    buffer = io.BytesIO()
    soundfile.write(buffer, samples.astype(np.float32), RATE, format=container, subtype=subtype)
    return buffer.getvalue()


def jaxaug_clip(data: bytes, start: float, seconds: float) -> np.ndarray:
    """Return a clip as `decode.Audio` reads it."""
    view = memoryview(data)
    header = read_header(view)
    first = round(start * header.rate)
    stop = min(first + round(seconds * header.rate), header.frames)
    return read_window(view, header, first, stop, header.exact)


def soundfile_clip(data: bytes, start: float, seconds: float) -> np.ndarray:
    """Return a clip by libsndfile, at 16 bits as the others."""
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        file.seek(round(start * file.samplerate))
        return file.read(round(seconds * file.samplerate), dtype="int16")


def miniaudio_clip(data: bytes, start: float, seconds: float) -> np.ndarray:
    """Return a clip of the whole file, decoded by miniaudio's own function."""
    sound = miniaudio.decode(data, nchannels=1, sample_rate=RATE)
    first = round(start * RATE)
    return np.asarray(sound.samples)[first : first + round(seconds * RATE)]


CONTESTANTS: dict[str, Callable[[bytes, float, float], np.ndarray]] = {
    "jaxaug": jaxaug_clip,
    "soundfile": soundfile_clip,
    "miniaudio": miniaudio_clip,
}


def times_real_time(
    clip: Callable[[bytes, float, float], np.ndarray],
    data: bytes,
    start: float,
    seconds: float,
    threads: ThreadPoolExecutor,
) -> float:
    """Return seconds of sound in a second of two threads, measured for about a third of one."""
    count = 2
    while True:
        begin = time.perf_counter()
        done = list(threads.map(lambda _: len(clip(data, start, seconds)), range(count)))
        passed = time.perf_counter() - begin
        if passed > 0.3:
            return sum(done) / RATE / passed
        count *= 2


def table(title: str, length: int, start: float, seconds: float, rounds: int) -> None:
    """Print the rates of all contestants, which take turns."""
    print(f"{title}\n{'':8}" + "".join(f"{name:>28}" for name in CONTESTANTS))
    with ThreadPoolExecutor(2) as threads:
        for kind in KINDS:
            data = encoded(kind, length)
            found: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
            for _ in range(rounds + 1):
                for name, clip in CONTESTANTS.items():
                    if name == "miniaudio" and kind == "Opus":
                        continue  # it has no decoder of it
                    found[name].append(times_real_time(clip, data, start, seconds, threads))
            cells = [_cell(values[1:]) for values in found.values()]
            print(f"{kind:8}" + "".join(f"{cell:>28}" for cell in cells), flush=True)


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    middle = statistics.median(values)
    return f"{middle:,.0f} ({min(values):,.0f} - {max(values):,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Decode sound on the host.")
    parser.add_argument("--seconds", type=int, default=30, help="of a whole file")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    table("whole files, times real time", options.seconds, 0.0, options.seconds, options.rounds)
    table("clips of 2 s at 300 s of 600, times real time", 600, 300.0, 2.0, options.rounds)


if __name__ == "__main__":
    main()
