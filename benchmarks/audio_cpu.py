"""Decode sound files in memory without a GPU: jaxaug's readers and those of the peers.

    python benchmarks/audio_cpu.py --seconds 30 --rounds 5

Contestants, as far as they are installed: soundfile (int16), miniaudio, PyAV, torchcodec (which
torchaudio's `load` calls since 2.9), and DALI's `decoders.audio`, whole files alone. Prints seconds
of sound for each second of processor time, "times real time" of one core, and in a second table of
two threads by the clock: medians, minima and maxima of rounds in which all take turns. Two more
tables have clips of 2 s from the middle of files of ten minutes, where seeking counts.

FFmpeg, so PyAV and torchcodec, gives Opus at 48 kHz, libsndfile at the 16 kHz that went in; "at 16
kHz" are PyAV and torchcodec with their own resampling to that.
"""

import argparse
import importlib
import importlib.util
import io
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import miniaudio
import numpy as np
import soundfile

from jaxaug.decode.audio.read import read_window
from jaxaug.decode.audio.read_header import read_header

RATE = 16_000
THREADS = 2
KINDS = {
    "WAV": ("WAV", "PCM_16"),
    "FLAC": ("FLAC", "PCM_16"),
    "MP3": ("MP3", "MPEG_LAYER_III"),
    "Vorbis": ("OGG", "VORBIS"),
    "Opus": ("OGG", "OPUS"),
}


class Part(NamedTuple):
    """What is decoded of a file: [start, start + seconds); `whole` where that is all of it."""

    start: float
    seconds: float
    whole: bool


Clip = Callable[[bytes, Part], Any]


def encoded(kind: str, seconds: int) -> bytes:
    """Return a file of a gliding tone in noise."""
    rng = np.random.default_rng(0)
    clock = np.arange(seconds * RATE) / RATE
    tone = 0.3 * np.sin(2 * np.pi * 300 * clock * (1 + clock % 2))
    samples = tone + 0.02 * rng.standard_normal(len(clock))
    container, subtype = KINDS[kind]
    buffer = io.BytesIO()
    soundfile.write(buffer, samples.astype(np.float32), RATE, format=container, subtype=subtype)
    return buffer.getvalue()


def jaxaug_clip(data: bytes, part: Part) -> Any:
    """Return a clip as `decode.Audio` reads it."""
    view = memoryview(data)
    header = read_header(view)
    first = round(part.start * header.rate)
    stop = min(first + round(part.seconds * header.rate), header.frames)
    return read_window(view, header, first, stop, header.exact)


def soundfile_clip(data: bytes, part: Part) -> Any:
    """Return a clip by libsndfile, at 16 bits as the others."""
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        file.seek(round(part.start * file.samplerate))
        return file.read(round(part.seconds * file.samplerate), dtype="int16")


def miniaudio_clip(data: bytes, part: Part) -> Any:
    """Return a clip by miniaudio's own functions."""
    if part.whole:
        return miniaudio.decode(data, nchannels=1, sample_rate=RATE).samples
    count, first = round(part.seconds * RATE), round(part.start * RATE)
    # It cannot seek in memory.
    first, count = round(part.start * RATE), round(part.seconds * RATE)
    return miniaudio.decode(data, nchannels=1, sample_rate=RATE).samples[first : first + count]


def pyav_clip(data: bytes, part: Part, rate: int | None = None) -> Any:
    """Return a clip by PyAV."""
    av = importlib.import_module("av")
    found = []
    with av.open(io.BytesIO(data)) as file:
        stream = file.streams.audio[0]
        if part.start:
            file.seek(round(part.start / stream.time_base), stream=stream)
        resampler = av.AudioResampler(rate=rate) if rate else None
        for frame in file.decode(stream):
            if frame.time > part.start + part.seconds:
                break
            frames = resampler.resample(frame) if resampler else [frame]
            found += [each.to_ndarray() for each in frames]
    return np.concatenate(found, axis=1)


def torchcodec_clip(data: bytes, part: Part, rate: int | None = None) -> Any:
    """Return a clip by torchcodec."""
    decoder = importlib.import_module("torchcodec.decoders").AudioDecoder(data, sample_rate=rate)
    if part.whole:
        return decoder.get_all_samples().data
    return decoder.get_samples_played_in_range(part.start, part.start + part.seconds).data


CLIPS: dict[str, tuple[str, Clip]] = {
    "jaxaug": ("jaxaug", jaxaug_clip),
    "soundfile": ("soundfile", soundfile_clip),
    "miniaudio": ("miniaudio", miniaudio_clip),
    "PyAV": ("av", pyav_clip),
    "PyAV at 16 kHz": ("av", lambda data, part: pyav_clip(data, part, RATE)),
    "torchcodec": ("torchcodec", torchcodec_clip),
    "torchcodec at 16 kHz": ("torchcodec", lambda data, part: torchcodec_clip(data, part, RATE)),
}


def by_threads(clip: Clip, data: bytes, part: Part) -> Callable[[int], None]:
    """Return a function that decodes a number of files."""
    threads = ThreadPoolExecutor(THREADS)

    def run(count: int) -> None:
        for _ in threads.map(lambda _: clip(data, part), range(count)):
            pass

    return run


def by_dali(data: bytes) -> Callable[[int], None]:
    """Return a function that decodes a number of whole files by DALI."""
    dali = importlib.import_module("nvidia.dali")
    files = [np.frombuffer(data, np.uint8)]
    size = 8
    # What it decodes ahead would be counted to others.
    pipeline = dali.Pipeline(
        size, THREADS, None, exec_pipelined=False, exec_async=False, prefetch_queue_depth=1
    )
    with pipeline:
        source = dali.fn.external_source(lambda: files * size, device="cpu")
        sound, _ = dali.fn.decoders.audio(source, dtype=dali.types.INT16)
        pipeline.set_outputs(sound)
    pipeline.build()

    def run(count: int) -> None:
        for _ in range(max(1, count // size)):
            pipeline.run()

    return run


def contestants(kind: str, data: bytes, part: Part) -> dict[str, Callable[[int], None]]:
    """Return what decodes files of a kind, by name."""
    found = {}
    for name, (module, clip) in CLIPS.items():
        resampled = name.endswith("kHz")
        unknown = name == "miniaudio" and kind == "Opus"
        if unknown or importlib.util.find_spec(module) is None or (resampled and kind != "Opus"):
            continue
        found[name] = by_threads(clip, data, part)
    if part.whole and kind not in ("MP3", "Opus") and importlib.util.find_spec("nvidia.dali"):
        found["DALI"] = by_dali(data)
    return found


def processor_time() -> float:
    """Return the seconds that all threads of this process have computed."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rates(run: Callable[[int], None], seconds: float, count: int) -> tuple[float, float]:
    """Return seconds of sound for a second of processor time, and for one of the clock."""
    clock, work = time.perf_counter(), processor_time()
    run(count)
    clock, work = time.perf_counter() - clock, processor_time() - work
    return count * seconds / max(work, 1e-9), count * seconds / clock


def files_in(run: Callable[[int], None], least: float) -> int:
    """Return how many files, a multiple of 8, take some seconds of processor time."""
    count = 8
    while True:
        work = processor_time()
        run(count)
        if processor_time() - work > least:
            return count
        count *= 2


def tables(title: str, length: int, part: Part, rounds: int) -> None:
    """Print the rates of all contestants, which take turns."""
    print(f"{title}: of one core's time; of {THREADS} threads by the clock")
    for kind in KINDS:
        data = encoded(kind, length)
        runs = contestants(kind, data, part)
        counts = {name: files_in(run, 0.2) for name, run in runs.items()}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                found[name].append(rates(run, part.seconds, counts[name]))
        best = max(statistics.median(w for w, _ in f) for n, f in found.items() if n != "jaxaug")
        for name, values in found.items():
            work, clock = zip(*values)
            share = statistics.median(work) / best
            print(f"{kind:8}{name:22}{_cell(work):>32}{share:8.2f}{_cell(clock):>32}", flush=True)


def _cell(values: Any) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} - {max(values):,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Decode sound on the host.")
    parser.add_argument("--seconds", type=int, default=30, help="of a whole file")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    tables("whole files", options.seconds, Part(0.0, options.seconds, True), options.rounds)
    tables("clips of 2 s at 300 s of 600", 600, Part(300.0, 2.0, False), options.rounds)


if __name__ == "__main__":
    main()
