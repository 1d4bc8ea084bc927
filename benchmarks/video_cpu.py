"""Processor time of a clip of 16 frames, 4 apart, at random places: jaxaug beside other decoders.

    python benchmarks/video_cpu.py FILE... [--gops 12 250] [--clips 40]

Printed for each file: milliseconds of processor time a clip, of all threads together, the median
of `--rounds`, in each of which all decoders have their turn; jaxaug's over torchcodec's and
decord's, the median of the ratios of a round; and for jaxaug how many frames are decoded for one
that is wanted. Each decoder opens the file anew for each clip, as a loader of many files does, and
gives RGB of the stored size, of the clips that jaxaug draws:

- jaxaug: `Loader(decode=Video())` with its compiled conversion; "planes" is its host half alone;
  "indexed" is jaxaug with the table that `python -m jaxaug index` stores;
- torchcodec, decord: one thread, torchcodec with `seek_mode="approximate"`, which scans no file;
- PyAV: seek, decode, `to_ndarray(format="rgb24")`.

Those that are not installed are left out. `--gops` encodes each file anew, by x264 with a key frame
each so many frames. `--first` prints instead the seconds on the clock from the start of a process
to its first clip.
"""

import argparse
import contextlib
import importlib
import io
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from jaxaug import Loader
from jaxaug.decode import Encoded, Video
from jaxaug.decode.video.stored import StoredVideos, read_videos
from jaxaug.decode.video.stream import VideoFile
from jaxaug.iterators.loader.keys import decode_keys
from jaxaug.sharding import batch_sharding

FRAMES, STRIDE = 16, 4
BATCH = 8
Run = Callable[[], None]


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


class NewFiles(OneFile):
    """The same with a box behind it that has the number of the record: no two are equal."""

    def read(self, indices: np.ndarray) -> dict[str, Encoded]:
        boxes = [struct.pack(">I4sQ", 16, b"free", index) for index in indices.tolist()]
        return {"video": Encoded.from_bytes([self._data + box for box in boxes])}


class OneIndexed(OneFile):
    """The same with its table, as an index has it."""

    def __init__(self, data: bytes, count: int):
        super().__init__(data, count)
        (self._table,) = read_videos(Encoded.from_bytes([data])).tables

    def headers(self, indices: np.ndarray) -> dict[str, StoredVideos]:
        return {"video": StoredVideos(np.full(len(indices), self._table, object))}


def epoch(source: OneFile) -> Loader:
    video = Video(FRAMES, STRIDE, num_threads=1)
    one = batch_sharding(jax.devices("cpu")[:1])
    return Loader(source, BATCH, decode=video, sharding=one, epochs=1, shuffle=False)


def drawn_starts(data: bytes, clips: int) -> np.ndarray:
    """Return the first frame int64[clips] of each clip that jaxaug draws."""
    with epoch(OneIndexed(data, clips)) as loader:
        return np.concatenate(
            [np.asarray(batch["video_frame"][:, 0], np.int64) for batch in loader]
        )


def by_jaxaug(data: bytes, starts: np.ndarray, make: type[OneFile] = OneFile) -> Run:
    loader = epoch(make(data, len(starts)))

    def run() -> None:
        with loader:  # an epoch, so that nothing is read ahead while others have their turn
            for batch in loader:
                batch["video"].block_until_ready()

    return run


def by_index(data: bytes, starts: np.ndarray) -> Run:
    return by_jaxaug(data, starts, OneIndexed)


def by_planes(data: bytes, starts: np.ndarray) -> Run:
    def run() -> None:
        for first in range(0, len(starts), BATCH):
            decode_planes(data, np.arange(first, first + BATCH))

    return run


def decode_planes(data: bytes, records: np.ndarray):
    """Return what the host half gives of records of the first epoch, all of one file."""
    count = len(records)
    values = Encoded.from_bytes([data] * count)
    reader = _reader(data)
    checked, _ = reader.check_rows(values, None)
    keys = decode_keys(0, 0, records)
    found = reader.decode_rows(values, checked, {}, np.ones(count, bool), keys)
    reader.close()
    return found


def _reader(data: bytes):
    with VideoFile(memoryview(data), 2**26) as file:
        canvas = (file.table.codec.height, file.table.codec.width)
    return Video(FRAMES, STRIDE, canvas=canvas, num_threads=1).open([], False)


def by_torchcodec(data: bytes, starts: np.ndarray) -> Run:
    decoders = importlib.import_module("torchcodec.decoders")
    importlib.import_module("torch").set_num_threads(1)  # others wait for work by spinning

    def run() -> None:
        for start in starts.tolist():
            decoder = decoders.VideoDecoder(
                data, num_ffmpeg_threads=1, dimension_order="NHWC", seek_mode="approximate"
            )
            decoder.get_frames_in_range(start, start + FRAMES * STRIDE, STRIDE)

    return run


def by_decord(data: bytes, starts: np.ndarray) -> Run:
    decord = importlib.import_module("decord")

    def run() -> None:
        for start in starts.tolist():
            reader = decord.VideoReader(io.BytesIO(data), num_threads=1)
            reader.get_batch(list(range(start, start + FRAMES * STRIDE, STRIDE))).asnumpy()

    return run


def by_pyav(data: bytes, starts: np.ndarray) -> Run:
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
    "indexed": by_index,
    "planes": by_planes,
    "torchcodec": by_torchcodec,
    "decord": by_decord,
    "pyav": by_pyav,
}


def rounds_of(data: bytes, starts: np.ndarray, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of processor time a clip of each, in each round behind the first."""
    taken: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for _ in range(1 + rounds):
        for name, make in CONTESTANTS.items():
            with contextlib.suppress(ImportError, OSError, RuntimeError):  # not installed
                run = make(data, starts)
                started = time.process_time()
                run()
                taken[name].append(1e3 * (time.process_time() - started) / len(starts))
    return {name: times[1:] for name, times in taken.items() if times}


def decoded_per_wanted(data: bytes) -> float:
    """Return how many frames jaxaug decodes for one that it shows."""
    decoded = decode_planes(data, np.arange(32))
    return decoded.counts["frames_decoded"] / decoded.valid.sum() / FRAMES


def with_gop(data: bytes, gop: int) -> bytes:
    """Return a video encoded anew, with a key frame each so many frames."""
    av = importlib.import_module("av")
    file = io.BytesIO()
    options = {"g": str(gop), "x264-params": "scenecut=0"}
    with av.open(io.BytesIO(data)) as source, av.open(file, "w", "mp4") as output:
        stream = source.streams.video[0]
        made = output.add_stream("libx264", stream.average_rate, options=options)
        made.width, made.height, made.pix_fmt = stream.width, stream.height, "yuv420p"
        for frame in source.decode(stream):
            frame.pict_type = 0  # as the encoder likes
            output.mux(made.encode(frame))
        output.mux(made.encode(None))
    return file.getvalue()


def compare(name: str, data: bytes, clips: int, rounds: int) -> None:
    """Print the figures of one video."""
    starts = drawn_starts(data, clips)
    taken = rounds_of(data, starts, rounds)
    figures = [f"{each} {statistics.median(times):.1f}" for each, times in taken.items()]
    for ours in ("jaxaug", "indexed"):
        for peer in ("torchcodec", "decord"):
            if peer in taken:
                ratio = statistics.median(a / b for a, b in zip(taken[ours], taken[peer]))
                figures.append(f"{ours} / {peer} {ratio:.2f}")
    wanted = f"{decoded_per_wanted(data):.2f} decoded a wanted frame"
    print(f"{name}: {', '.join(figures)}; ms; {wanted}", flush=True)


def first_clip(name: str, path: Path) -> None:
    """Do one clip; for a process of its own."""
    data = path.read_bytes()
    CONTESTANTS[name](data, np.zeros(BATCH, np.int64))()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--gops", type=int, nargs="*", default=[])
    parser.add_argument("--clips", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--once", choices=CONTESTANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for path in arguments.files:
        if arguments.once:
            first_clip(arguments.once, path)
        elif arguments.first:
            print(f"{path.name}: {', '.join(first_seconds(path, arguments.rounds))}", flush=True)
        else:
            data = path.read_bytes()
            for gop in arguments.gops:
                name = f"{path.name} GOP {gop}"
                compare(name, with_gop(data, gop), arguments.clips, arguments.rounds)
            if not arguments.gops:
                compare(path.name, data, arguments.clips, arguments.rounds)


def first_seconds(path: Path, rounds: int) -> list[str]:
    """Return the seconds of a process that does a batch of eight clips, for each that runs."""
    found = []
    for name in ("jaxaug", "torchcodec", "decord"):
        times = []
        for _ in range(rounds):
            started = time.perf_counter()
            command = [sys.executable, __file__, str(path), "--once", name]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                times.append(time.perf_counter() - started)
        if times:
            found.append(f"{name} {statistics.median(times):.2f} s")
    return found


if __name__ == "__main__":
    main()
