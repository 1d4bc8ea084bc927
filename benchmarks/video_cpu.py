"""Processor time of a clip of 16 frames, 4 apart, at random places: jaxaug beside other decoders.

    python benchmarks/video_cpu.py FILE... [--clips 40]

Printed for each file: milliseconds of processor time a clip, of all threads together, the median
of `--rounds`; and for jaxaug how many frames are decoded for one that is wanted. Each decoder opens
the file anew for each clip, as a loader of many files does, and gives RGB of the stored size:

- jaxaug: `Loader(decode=Video())` with its compiled conversion; "planes" is its host half alone;
- torchcodec, decord: one thread, torchcodec with `seek_mode="approximate"`, which scans no file;
- PyAV: seek, decode, `to_ndarray(format="rgb24")`.

Those that are not installed are left out.
"""

import argparse
import contextlib
import importlib
import io
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from jaxaug import Loader
from jaxaug.decode import Encoded, Video
from jaxaug.decode.video.stream import VideoFile
from jaxaug.iterators.loader.keys import decode_keys
from jaxaug.sharding import batch_sharding

FRAMES, STRIDE = 16, 4
BATCH = 8


class OneFile:
    """One file, again and again."""

    def __init__(self, data: bytes, count: int):
        self._data = data
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read(self, indices: np.ndarray) -> dict[str, Encoded]:
        return {"video": Encoded.from_bytes([self._data] * len(indices))}

    def describe(self, index: int) -> dict[str, int]:
        return {"record": index}

    def fingerprint(self) -> str:
        return "one file"


def by_jaxaug(data: bytes, starts: np.ndarray) -> Callable[[], None]:
    source = OneFile(data, len(starts))
    video = Video(FRAMES, STRIDE, num_threads=1)
    one = batch_sharding(jax.devices("cpu")[:1])
    loader = Loader(source, BATCH, decode=video, sharding=one, prefetch=1)
    next(loader)["video"].block_until_ready()

    def run() -> None:
        for _ in range(len(starts) // BATCH):
            next(loader)["video"].block_until_ready()

    return run


def by_planes(data: bytes, starts: np.ndarray) -> Callable[[], None]:
    reader = _reader(data)
    values = Encoded.from_bytes([data] * BATCH)
    wanted = np.ones(BATCH, bool)

    def run() -> None:
        for batch in range(len(starts) // BATCH):
            keys = decode_keys(0, batch, np.arange(BATCH))
            reader.decode_rows(values, None, {}, wanted, keys)

    return run


def _reader(data: bytes):
    with VideoFile(memoryview(data), 2**26) as file:
        context = file.stream.codec_context
        canvas = (context.height, context.width)
    return Video(FRAMES, STRIDE, canvas=canvas, num_threads=1).open([], False)


def by_torchcodec(data: bytes, starts: np.ndarray) -> Callable[[], None]:
    decoders = importlib.import_module("torchcodec.decoders")

    def run() -> None:
        for start in starts.tolist():
            decoder = decoders.VideoDecoder(
                data, num_ffmpeg_threads=1, dimension_order="NHWC", seek_mode="approximate"
            )
            decoder.get_frames_in_range(start, start + FRAMES * STRIDE, STRIDE)

    return run


def by_decord(data: bytes, starts: np.ndarray) -> Callable[[], None]:
    decord = importlib.import_module("decord")

    def run() -> None:
        for start in starts.tolist():
            reader = decord.VideoReader(io.BytesIO(data), num_threads=1)
            reader.get_batch(list(range(start, start + FRAMES * STRIDE, STRIDE))).asnumpy()

    return run


def by_pyav(data: bytes, starts: np.ndarray) -> Callable[[], None]:
    av = importlib.import_module("av")

    def clip(start: int) -> Iterator[np.ndarray]:
        with av.open(io.BytesIO(data)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            ticks = 1 / (stream.average_rate * stream.time_base)
            container.seek(int(start * ticks), stream=stream)
            for frame in container.decode(stream):
                number = round(frame.pts / ticks) - start
                if number >= 0 and number % STRIDE == 0:
                    yield frame.to_ndarray(format="rgb24")
                if number >= (FRAMES - 1) * STRIDE:
                    return

    def run() -> None:
        for start in starts.tolist():
            list(clip(start))

    return run


CONTESTANTS = {
    "jaxaug": by_jaxaug,
    "planes": by_planes,
    "torchcodec": by_torchcodec,
    "decord": by_decord,
    "pyav": by_pyav,
}


def milliseconds(run: Callable[[], None], clips: int, rounds: int) -> float:
    """Return the processor time of a clip, the median of some rounds."""
    run()
    times = []
    for _ in range(rounds):
        started = time.process_time()
        run()
        times.append(1e3 * (time.process_time() - started) / clips)
    return statistics.median(times)


def decoded_per_wanted(data: bytes) -> float:
    """Return how many frames jaxaug decodes for one that it shows."""
    values = Encoded.from_bytes([data] * 32)
    keys = decode_keys(0, 0, np.arange(32))
    decoded = _reader(data).decode_rows(values, None, {}, np.ones(32, bool), keys)
    return decoded.counts["frames_decoded"] / decoded.valid.sum() / FRAMES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--clips", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for path in arguments.files:
        data = path.read_bytes()
        with VideoFile(memoryview(data), 2**26) as file:
            count = len(file.frames)
        places = max(1, count - (FRAMES - 1) * STRIDE)
        starts = np.random.default_rng(0).integers(0, places, arguments.clips)
        figures = [f"{decoded_per_wanted(data):.2f} decoded a wanted frame"]
        for name, make in CONTESTANTS.items():
            with contextlib.suppress(ImportError, OSError):
                taken = milliseconds(make(data, starts), arguments.clips, arguments.rounds)
                figures.append(f"{name} {taken:.1f}")
        print(f"{path.name}: {', '.join(figures)} ms", flush=True)


if __name__ == "__main__":
    main()
