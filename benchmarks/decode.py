"""Images/s and latency from JPEG bytes in memory to arrays on one GPU: jaxaug beside its rivals, in one run.

    python benchmarks/decode.py --images FOLDER [--quality-420 90] [--rounds 5] [--latency 1 32] [--beside 3]

The contestants take turns, round after round; the table gives medians and the spread (min to max). Rivals that are
not installed are left out: nvidia-dali-cuda130, nvidia-nvimgcodec-cu13. "raw" is nvJPEG itself, driven by the
thinnest loop there is: the limit.
"""

import argparse
import contextlib
import ctypes
import io
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from jaxaug.decode import Decoder, Encoded
from jaxaug.decode.native import _cuda, _nvjpeg


def read(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg")]


def reencode(image: bytes, quality: int) -> bytes:
    out = io.BytesIO()
    Image.open(io.BytesIO(image)).convert("RGB").save(out, "JPEG", quality=quality, subsampling=2)
    return out.getvalue()


def rate(work: Callable[[int, Callable[[], bool], Callable[[int], None]], None], threads: int, seconds: float) -> float:
    """Images/s of `threads` threads that run `work(thread, running, count)` together, warm-up left out."""
    counts, stop = [0] * threads, threading.Event()
    barrier = threading.Barrier(threads + 1)

    def run(thread: int) -> None:
        waiting = True

        def running() -> bool:  # the first call ends the warm-up
            nonlocal waiting
            if waiting:
                waiting = False
                barrier.wait()
            return not stop.is_set()

        def count(images: int) -> None:
            counts[thread] += images

        work(thread, running, count)

    pool = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in pool:
        thread.start()
    barrier.wait()
    time.sleep(0.4)
    before, started = sum(counts), time.perf_counter()
    time.sleep(seconds)
    images, elapsed = sum(counts) - before, time.perf_counter() - started
    stop.set()
    for thread in pool:
        thread.join()
    return images / elapsed


def jaxaug_rate(canvas: tuple[int, int], encoded: Encoded, callers: int, seconds: float, **options) -> float:
    decoder = Decoder(canvas, **{"backend": "nvjpeg", "devices": jax.local_devices()[:1]} | options)

    def work(thread, running, count):
        jax.block_until_ready(decoder.decode(encoded).pixels)
        while running():
            decoder.decode(encoded)
            count(len(encoded.lengths))

    with decoder:
        return rate(work, callers, seconds)


def pinned(encoded: Encoded) -> Encoded:
    """The same images in page-locked memory, which stays allocated."""
    memory, address = _cuda.pinned_array((int(encoded.lengths.sum()),))
    offsets = np.cumsum(encoded.lengths) - encoded.lengths
    for row, offset in enumerate(offsets.tolist()):
        data = encoded.view(row)
        memory[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
    return Encoded(offsets + np.uint64(address), encoded.lengths, memory)


def raw_engines(groups: list[list[bytes]], canvas: tuple[int, int]):
    """The raw batched engines on images grouped by chroma sampling."""
    row = canvas[0] * canvas[1] * 3

    def work(thread, running, count):
        _cuda.set_device(0)
        handle = _nvjpeg.create_handle(_nvjpeg.HARDWARE)
        calls = []
        for group in groups:
            encoded = Encoded.from_bytes(group)
            buffer = int(_cuda.call("cudaMalloc", row * len(group)))
            pointers = np.arange(len(group), dtype=np.uint64) * np.uint64(row) + np.uint64(buffer)
            state = _nvjpeg.create("nvjpegJpegStateCreate", handle)
            calls.append((state, encoded, _nvjpeg.destinations(pointers, canvas[1] * 3), _cuda.create_stream(), buffer))
        while running():
            for state, encoded, images, stream, _ in calls:
                _nvjpeg.decode_batched(handle, state, encoded.addresses, encoded.lengths, images, stream)
            for *_, stream, _ in calls:
                _cuda.call("cudaStreamSynchronize", stream)
            count(sum(map(len, groups)))
        for state, _, _, stream, buffer in calls:
            _nvjpeg.library().nvjpegJpegStateDestroy(state)
            _cuda.call("cudaStreamDestroy", stream)
            _cuda.call("cudaFree", buffer)
        _nvjpeg.library().nvjpegDestroy(handle)

    return work


def raw_hybrid(images: list[bytes], canvas: tuple[int, int]):
    """nvJPEG's decoupled HYBRID decoder: Huffman decoding on the calling thread, the rest on the GPU."""
    encoded = Encoded.from_bytes(images)
    items = list(zip(map(ctypes.c_void_p, encoded.addresses.tolist()), map(ctypes.c_size_t, encoded.lengths.tolist())))
    hybrid, zero = ctypes.c_int(1), ctypes.c_int(0)
    library = ctypes.CDLL(_nvjpeg.path())  # functions of our own: jaxaug's have prototypes

    def make(function: str, *arguments) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        assert getattr(library, function)(*arguments, ctypes.byref(made)) == 0, function
        return made

    def work(thread, running, count):
        _cuda.set_device(0)
        handle = make("nvjpegCreateEx", hybrid, None, None, ctypes.c_uint(1 << 1 | 1 << 5))
        decoder = make("nvjpegDecoderCreate", handle, hybrid)
        device, pinned = make("nvjpegBufferDeviceCreate", handle, None), []
        turns = []
        for _ in range(2):  # two states take turns: the thread goes on while the GPU finishes
            state = make("nvjpegDecoderStateCreate", handle, decoder)
            pinned.append(make("nvjpegBufferPinnedCreate", handle, None))
            library.nvjpegStateAttachPinnedBuffer(state, pinned[-1])
            library.nvjpegStateAttachDeviceBuffer(state, device)
            turns.append((state, make("nvjpegJpegStreamCreate", handle)))
        parameters = make("nvjpegDecodeParamsCreate", handle)
        library.nvjpegDecodeParamsSetOutputFormat(parameters, ctypes.c_int(_nvjpeg.RGB_INTERLEAVED))
        buffer, stream = int(_cuda.call("cudaMalloc", canvas[0] * canvas[1] * 3)), _cuda.create_stream()
        image = _nvjpeg.destinations(np.array([buffer], np.uint64), canvas[1] * 3)
        where, on = ctypes.c_void_p(image.ctypes.data), ctypes.c_void_p(stream)
        number = thread * 7
        while running():
            number += 1
            state, parsed = turns[number % 2]
            library.nvjpegJpegStreamParse(handle, *items[number % len(items)], zero, zero, parsed)
            assert not library.nvjpegDecodeJpeg(handle, decoder, state, parsed, where, parameters, on)
            count(1)
        _cuda.call("cudaStreamSynchronize", stream)
        for state, parsed in turns:
            library.nvjpegJpegStateDestroy(state)
            library.nvjpegJpegStreamDestroy(parsed)
        for each in pinned:
            library.nvjpegBufferPinnedDestroy(each)
        library.nvjpegBufferDeviceDestroy(device)
        library.nvjpegDecodeParamsDestroy(parameters)
        library.nvjpegDecoderDestroy(decoder)
        library.nvjpegDestroy(handle)
        _cuda.call("cudaFree", buffer)
        _cuda.call("cudaStreamDestroy", stream)

    return work


def raw_together(images: list[bytes], groups: list[list[bytes]], canvas, threads: int, seconds: float) -> float:
    """The engines, one batch at a time, and HYBRID threads at once."""
    engines, hybrid = raw_engines(groups, canvas), raw_hybrid(images, canvas)

    def work(thread, running, count):
        (engines if thread < 1 else hybrid)(thread, running, count)

    return rate(work, threads, seconds)


def dali_rate(images: list[bytes], batch: int, threads: int, load: float, seconds: float) -> float:
    from nvidia.dali import fn, pipeline_def

    arrays = [np.frombuffer(image, np.uint8) for image in images]
    batches = [[arrays[(start + i) % len(arrays)] for i in range(batch)] for start in range(0, len(arrays), batch)]

    @pipeline_def
    def pipeline():
        import itertools

        source = itertools.cycle(batches)
        data = fn.external_source(source=source, batch=True, no_copy=True)
        return fn.decoders.image(data, device="mixed", hw_decoder_load=load)

    built = pipeline(batch_size=batch, num_threads=threads, device_id=0, prefetch_queue_depth=2)
    built.build()
    for _ in range(8):
        built.run()
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        built.run()
        done += batch
    return done / (time.perf_counter() - started)


DALI_CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
import decode
images = decode.images_of(decode.arguments(sys.argv[2:]))
print("ready", flush=True)
for line in sys.stdin:
    batch, threads, load, seconds = line.split()
    print(decode.dali_rate(images, int(batch), int(threads), float(load), float(seconds)), flush=True)
"""


class DaliProcess:
    """DALI as its users run it: without the hardware queues that importing jaxaug asks CUDA for."""

    def __init__(self):
        environment = os.environ | {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}  # CUDA's own choice
        command = [sys.executable, "-c", DALI_CHILD, str(Path(__file__).parent), *sys.argv[1:]]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._child = subprocess.Popen(command, env=environment, text=True, **pipes)
        self._answer("ready")

    def rate(self, batch: int, threads: int, load: float, seconds: float) -> float:
        assert self._child.stdin
        self._child.stdin.write(f"{batch} {threads} {load} {seconds}\n")
        self._child.stdin.flush()
        return float(self._answer(""))

    def _answer(self, begins: str) -> str:
        assert self._child.stdout
        while line := self._child.stdout.readline():
            if line.startswith(begins):
                return line
        raise RuntimeError("DALI's process has ended")


def dali_latency(images: list[bytes], batch: int, threads: int, load: float, rounds: int) -> list[float]:
    """Seconds from bytes to arrays on the GPU, nothing in flight before."""
    from nvidia.dali import fn, pipeline_def

    @pipeline_def
    def pipeline():
        data = fn.external_source(name="data", batch=True, no_copy=True)
        return fn.decoders.image(data, device="mixed", hw_decoder_load=load)

    built = pipeline(
        batch_size=batch,
        num_threads=threads,
        device_id=0,
        prefetch_queue_depth=1,
        exec_async=False,
        exec_pipelined=False,
    )
    built.build()
    arrays = [np.frombuffer(image, np.uint8) for image in images]
    times = []
    for number in range(rounds):
        rows = [arrays[(number * batch + i) % len(arrays)] for i in range(batch)]
        started = time.perf_counter()
        built.feed_input("data", rows)
        output = built.run()[0]
        _cuda.call("cudaDeviceSynchronize")
        times.append(time.perf_counter() - started)
        del output
    return times[rounds // 10 :]


def jaxaug_latency(decoder: Decoder, images: list[bytes], batch: int, rounds: int) -> list[float]:
    times = []
    for number in range(rounds):
        rows = [images[(number * batch + i) % len(images)] for i in range(batch)]
        started = time.perf_counter()
        jax.block_until_ready(decoder.decode(rows).pixels)
        times.append(time.perf_counter() - started)
    return times[rounds // 10 :]


def nvimgcodec_rate(images: list[bytes], batch: int, threads: int, seconds: float) -> float:
    from nvidia import nvimgcodec

    decoder = nvimgcodec.Decoder(max_num_cpu_threads=threads)
    arrays = [np.frombuffer(images[i % len(images)], np.uint8) for i in range(batch)]
    for _ in range(4):
        decoder.decode(arrays)
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        decoder.decode(arrays)
        done += batch
    _cuda.call("cudaDeviceSynchronize")
    return done / (time.perf_counter() - started)


def simplejpeg_rate(images: list[bytes], threads: int, seconds: float) -> float:
    import simplejpeg

    def work(thread, running, count):
        number = thread * 7
        while running():
            number = (number + 1) % len(images)
            simplejpeg.decode_jpeg(images[number])
            count(1)

    return rate(work, threads, seconds)


def several_gpus(encoded: Encoded, canvas: tuple[int, int], counts: list[int], seconds: float, rounds: int) -> None:
    """One process, its rate with the first n GPUs over that with one; 16 host threads a GPU."""
    cases = {(fixed, count): [] for fixed in (False, True) for count in counts}
    for _ in range(rounds):
        for (fixed, count), rates in cases.items():
            rows = np.tile(np.arange(len(encoded.lengths)), count)
            devices = jax.local_devices()[:count]
            options = {"devices": devices, "num_threads": 16 * count, "deterministic": fixed}
            rates.append(jaxaug_rate(canvas, encoded.take(rows), 3, seconds, **options))
    for (fixed, count), rates in cases.items():
        ratio = statistics.median(rates) / statistics.median(cases[fixed, counts[0]])
        name = f"jaxaug{', deterministic' * fixed}, {count} GPUs"
        print(
            f"{name:36s} {statistics.median(rates):8.0f} {min(rates):8.0f} {max(rates):8.0f}  {ratio:5.2f} x",
            flush=True,
        )


class Training:
    """A context in which the GPU multiplies bf16 matrices all the time, two calls of some 33 ms always in flight."""

    def __init__(self):
        self._matrix = jnp.full((8192, 8192), 1e-3, jnp.bfloat16)
        self._step(self._matrix).block_until_ready()

    @staticmethod
    @jax.jit
    def _step(matrix):
        for _ in range(24):
            matrix = jnp.tanh(matrix @ matrix)
        return matrix

    def _run(self) -> None:
        before = self._step(self._matrix)
        while not self._stop:
            after = self._step(self._matrix)
            before.block_until_ready()
            before, self._steps = after, self._steps + 1
        before.block_until_ready()

    def __enter__(self) -> "Training":
        self._stop, self._steps, self._started = False, 0, time.perf_counter()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.steps_per_second = self._steps / (time.perf_counter() - self._started)
        self._stop = True
        self._thread.join()


def beside_training(table: dict[str, Callable[[], float]], rounds: int) -> None:
    """Each contestant's rate alone and beside a training."""
    training, found = Training(), {name: ([], [], []) for name in table}
    with training:
        time.sleep(1)
    print(f"\ntraining alone: {training.steps_per_second:.1f} steps/s")
    for _ in range(rounds):
        for name, measure in table.items():
            found[name][0].append(measure())
            with training:
                measure()  # a while to get used to it
                found[name][1].append(measure())
            found[name][2].append(training.steps_per_second)
    print(f"{'images/s':36s} {'alone':>8s} {'beside':>8s} {'share':>6s} {'steps/s':>8s}")
    for name, values in found.items():
        alone, beside, steps = map(statistics.median, values)
        print(f"{name:36s} {alone:8.0f} {beside:8.0f} {beside / alone:6.2f} {steps:8.1f}")


def by_sampling(images: list[bytes]) -> list[list[bytes]]:
    from jaxaug.decode import read_headers

    headers = read_headers(Encoded.from_bytes(images))
    baseline = headers.coding == 0
    return [
        [image for image, s, good in zip(images, headers.sampling, baseline) if s == sampling and good]
        for sampling in np.unique(headers.sampling[baseline])
        if sampling != 0
    ]


def contestants(images: list[bytes], args) -> dict[str, Callable[[], float]]:
    canvas, threads, batch = tuple(args.canvas), os.cpu_count() or 1, args.batch
    repeated = (images * -(-batch // len(images)))[:batch]
    encoded = Encoded.from_bytes(repeated)
    groups = by_sampling(repeated)
    seconds = args.seconds
    table = {
        "jaxaug, 1 caller": lambda: jaxaug_rate(canvas, encoded, 1, seconds),
        "jaxaug, 2 callers": lambda: jaxaug_rate(canvas, encoded, 2, seconds),
        "jaxaug, 3 callers": lambda: jaxaug_rate(canvas, encoded, 3, seconds),
        "jaxaug, 3 callers, pinned input": lambda: jaxaug_rate(canvas, pinned(encoded), 3, seconds),
        "jaxaug deterministic, 3 callers": lambda: jaxaug_rate(canvas, encoded, 3, seconds, deterministic=True),
        "raw engines, 1 in flight": lambda: rate(raw_engines(groups, canvas), 1, seconds),
        "raw engines, 3 in flight": lambda: rate(raw_engines(groups, canvas), 3, seconds),
        "raw HYBRID": lambda: rate(raw_hybrid(images, canvas), threads - 2, seconds),
        "raw engines + HYBRID together": lambda: raw_together(images, groups, canvas, threads, seconds),
        "simplejpeg": lambda: simplejpeg_rate(images, threads, seconds),
    }
    try:
        import nvidia.dali  # noqa: F401

        process = DaliProcess()
        for load in (0.65, 0.9, 1.0):
            table[f"DALI, hw_decoder_load {load}"] = lambda load=load: process.rate(batch, threads, load, seconds)
            table[f"DALI in this process, load {load}"] = lambda load=load: dali_rate(
                images, batch, threads, load, seconds
            )
    except ImportError:
        print("DALI is not installed")
    try:
        from nvidia import nvimgcodec  # noqa: F401

        table["nvImageCodec"] = lambda: nvimgcodec_rate(images, batch, threads, seconds)
    except ImportError:
        print("nvImageCodec is not installed")
    return table


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--quality-420", type=int, default=0, help="re-encode as 4:2:0 with this quality first")
    parser.add_argument("--canvas", type=int, nargs=2, default=(512, 512))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[""], help="contestants whose names begin so")
    parser.add_argument("--latency", type=int, nargs="*", default=[], help="also measure latency at these batch sizes")
    parser.add_argument("--beside", type=int, default=0, help="rounds beside a loop of bf16 matrix products")
    parser.add_argument("--gpus", type=int, nargs="*", default=[], help="compare these numbers of GPUs, nothing else")
    return parser.parse_args(given)


def images_of(args: argparse.Namespace) -> list[bytes]:
    images = read(args.images)
    return [reencode(image, args.quality_420) for image in images] if args.quality_420 else images


def tell_latency(images: list[bytes], args: argparse.Namespace) -> None:
    for batch in args.latency:
        with Decoder(tuple(args.canvas), backend="nvjpeg", devices=jax.local_devices()[:1]) as decoder:
            rows = {"jaxaug": jaxaug_latency(decoder, images, batch, 300)}
        with contextlib.suppress(ImportError):
            for load in (0.65, 1.0):
                rows[f"DALI {load}"] = dali_latency(images, batch, os.cpu_count() or 1, load, 300)
        for name, times in rows.items():
            p50, p99 = np.percentile(times, [50, 99]) * 1e3
            print(f"latency, batch {batch:3d}, {name:10s} median {p50:7.2f} ms, 99th percentile {p99:7.2f} ms")


def main() -> None:
    args = arguments()
    images = images_of(args)
    connections = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS")
    print(f"{len(images)} images, mean {np.mean([len(i) for i in images]) / 1000:.0f} KB, {os.cpu_count()} CPUs,")
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, nvJPEG {_nvjpeg.version()}, {connections=}")
    if args.gpus:
        encoded = Encoded.from_bytes((images * -(-args.batch // len(images)))[: args.batch])
        return several_gpus(encoded, tuple(args.canvas), args.gpus, args.seconds, args.rounds)
    table = {n: measure for n, measure in contestants(images, args).items() if n.startswith(tuple(args.only))}
    results: dict[str, list[float]] = {name: [] for name in table}
    for _ in range(args.rounds):
        for name, measure in table.items():
            try:
                results[name].append(measure())
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    print(f"\n{'images/s':36s} {'median':>8s} {'min':>8s} {'max':>8s}")
    for name, values in results.items():
        if values:
            print(f"{name:36s} {statistics.median(values):8.0f} {min(values):8.0f} {max(values):8.0f}", flush=True)
    if args.beside:
        beside_training(table, args.beside)
    tell_latency(images, args)


if __name__ == "__main__":
    main()
