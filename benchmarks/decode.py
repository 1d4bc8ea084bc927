"""Decode JPEG bytes in memory to arrays on one GPU: jaxaug and others, images/s and latency.

    python benchmarks/decode.py --images FOLDER --rounds 5 --latency 1 32 --beside 3

The contestants take turns, round after round; the table gives medians, minima and maxima. Libraries
that are not installed are left out: nvidia-dali-cuda130, nvidia-nvimgcodec-cu13. "raw" is nvJPEG
without any library around it, which is the limit.
"""

import argparse
import contextlib
import io
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from images import jpegs_below
from PIL import Image
from rate import rate
from raw_nvjpeg import by_sampling, raw_engines, raw_hybrid, raw_together
from rivals import DaliProcess, dali_latency, dali_rate, nvimgcodec_rate, simplejpeg_rate

from jaxaug.decode import Decoder, Encoded, read_headers
from jaxaug.decode.native import cuda, libnvjpeg

WARM_UP_BATCHES = 8


def reencode(image: bytes, quality: int) -> bytes:
    """Return the image as a JPEG with chroma sampling 4:2:0."""
    out = io.BytesIO()
    Image.open(io.BytesIO(image)).convert("RGB").save(out, "JPEG", quality=quality, subsampling=2)
    return out.getvalue()


def repeat(images: list[bytes], count: int) -> list[bytes]:
    """Return `count` images, the given ones again and again."""
    return [images[number % len(images)] for number in range(count)]


def decoder_rate(decoder: Decoder, encoded: Encoded, callers: int, seconds: float) -> float:
    """Return images/s of an open Decoder that several threads call."""

    def work(thread, running, count):
        # nvJPEG makes its states with the first batches, 0.1 s each, more with several GPUs.
        for _ in range(WARM_UP_BATCHES):
            jax.block_until_ready(decoder.decode(encoded).pixels)
        while running():
            decoder.decode(encoded)
            count(len(encoded.lengths))

    return rate(work, callers, seconds)


def jaxaug_rate(
    canvas: tuple[int, int], encoded: Encoded, callers: int, seconds: float, **options
) -> float:
    """Return images/s of a new Decoder on one GPU."""
    options = {"backend": "nvjpeg", "devices": jax.local_devices()[:1]} | options
    with Decoder(canvas, **options) as decoder:
        return decoder_rate(decoder, encoded, callers, seconds)


def pinned(encoded: Encoded) -> Encoded:
    """Return the images in page-locked memory, which stays allocated."""
    memory, address = cuda.pinned_array((int(encoded.lengths.sum()),))
    offsets = np.cumsum(encoded.lengths) - encoded.lengths
    for row, offset in enumerate(offsets.tolist()):
        data = encoded.view(row)
        memory[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
    return Encoded(offsets + np.uint64(address), encoded.lengths, memory)


def jaxaug_latency(decoder: Decoder, images: list[bytes], batch: int, rounds: int) -> list[float]:
    """Return seconds from bytes to a ready array, with nothing in flight before."""
    times = []
    for number in range(rounds):
        rows = [images[(number * batch + i) % len(images)] for i in range(batch)]
        started = time.perf_counter()
        jax.block_until_ready(decoder.decode(rows).pixels)
        times.append(time.perf_counter() - started)
    return times[rounds // 10 :]


def several_gpus(encoded: Encoded, args: argparse.Namespace) -> None:
    """Print the rate of one process with n GPUs, and its ratio to that with the fewest.

    All Decoders stay open; the first round is left out.
    """
    cases = {(fixed, count): [] for fixed in (False, True) for count in args.gpus}
    with contextlib.ExitStack() as stack:
        decoders = {}
        for fixed, count in cases:
            options = {"num_threads": args.threads * count, "deterministic": fixed}
            decoder = Decoder(tuple(args.canvas), "nvjpeg", jax.local_devices()[:count], **options)
            decoders[fixed, count] = stack.enter_context(decoder)
        for _ in range(1 + args.rounds):
            for (fixed, count), rates in cases.items():
                rows = np.tile(np.arange(len(encoded.lengths)), count)
                rates.append(
                    decoder_rate(decoders[fixed, count], encoded.take(rows), 3, args.seconds)
                )
    medians = {case: statistics.median(rates[1:]) for case, rates in cases.items()}
    for (fixed, count), (_, *rates) in cases.items():
        median = medians[fixed, count]
        name = f"jaxaug{', deterministic' * fixed}, {count} GPUs"
        ratio = median / medians[fixed, args.gpus[0]]
        print(
            f"{name:36s} {median:8.0f} {min(rates):8.0f} {max(rates):8.0f}  {ratio:5.2f} x",
            flush=True,
        )


class Training:
    """A context in which the GPU multiplies matrices, two calls of 33 ms always in flight."""

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
            before = after
            self._steps = self._steps + 1
        before.block_until_ready()

    def __enter__(self) -> "Training":
        self._stop = False
        self._steps = 0
        self._started = time.perf_counter()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.steps_per_second = self._steps / (time.perf_counter() - self._started)
        self._stop = True
        self._thread.join()


def beside_training(table: dict[str, Callable[[], float]], rounds: int) -> None:
    """Print the rate of each contestant alone and beside a training."""
    training = Training()
    found = {name: ([], [], []) for name in table}
    with training:
        time.sleep(1)
    print(f"\ntraining alone: {training.steps_per_second:.1f} steps/s")
    for _ in range(rounds):
        for name, measure in table.items():
            found[name][0].append(measure())
            with training:
                found[name][1].append(measure())
            found[name][2].append(training.steps_per_second)
            print(f"{name}: {found[name][0][-1]:.0f}, then {found[name][1][-1]:.0f}", flush=True)
    print(f"{'images/s':36s} {'alone':>8s} {'beside':>8s} {'share':>6s} {'steps/s':>8s}")
    for name, values in found.items():
        alone, beside, steps = map(statistics.median, values)
        print(f"{name:36s} {alone:8.0f} {beside:8.0f} {beside / alone:6.2f} {steps:8.1f}")


def contestants(images: list[bytes], args) -> dict[str, Callable[[], float]]:
    """Return a function for each contestant that measures its images/s."""
    canvas = tuple(args.canvas)
    threads = len(os.sched_getaffinity(0))
    batch = args.batch
    repeated = repeat(images, batch)
    encoded = Encoded.from_bytes(repeated)
    groups = by_sampling(repeated)
    seconds = args.seconds
    table = {
        "jaxaug, 1 caller": lambda: jaxaug_rate(canvas, encoded, 1, seconds),
        "jaxaug, 2 callers": lambda: jaxaug_rate(canvas, encoded, 2, seconds),
        "jaxaug, 3 callers": lambda: jaxaug_rate(canvas, encoded, 3, seconds),
        "jaxaug pinned input, 3 callers": lambda: jaxaug_rate(canvas, pinned(encoded), 3, seconds),
        "jaxaug deterministic, 3 callers": lambda: jaxaug_rate(
            canvas, encoded, 3, seconds, deterministic=True
        ),
        "raw engines, 1 in flight": lambda: rate(raw_engines(groups, canvas), 1, seconds),
        "raw engines, 3 in flight": lambda: rate(raw_engines(groups, canvas), 3, seconds),
        "raw HYBRID": lambda: rate(raw_hybrid(images, canvas), threads - 2, seconds),
        "raw engines + HYBRID together": lambda: raw_together(
            images, groups, canvas, threads, seconds
        ),
        "simplejpeg": lambda: simplejpeg_rate(images, threads, seconds),
    }
    try:
        import nvidia.dali  # noqa: F401

        process = DaliProcess()
        for load in (0.65, 0.9, 1.0):
            table[f"DALI, hw_decoder_load {load}"] = lambda load=load: process.rate(
                batch, threads, load, seconds
            )
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True, help="a folder of JPEGs")
    parser.add_argument(
        "--quality-420", type=int, default=0, help="re-encode as 4:2:0 with this quality first"
    )
    parser.add_argument("--canvas", type=int, nargs=2, default=(512, 512))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[""], help="beginnings of contestants' names")
    parser.add_argument(
        "--latency",
        type=int,
        nargs="*",
        default=[],
        help="also measure latency at these batch sizes",
    )
    parser.add_argument(
        "--beside", type=int, default=0, help="rounds beside bf16 matrix products (--seconds 2)"
    )
    parser.add_argument(
        "--gpus",
        type=int,
        nargs="*",
        default=[],
        help="compare these numbers of GPUs, nothing else",
    )
    parser.add_argument(
        "--threads", type=int, default=16, help="`num_threads` for each of those GPUs"
    )
    return parser.parse_args(given)


def images_of(args: argparse.Namespace) -> list[bytes]:
    images = jpegs_below(args.images)
    return [reencode(image, args.quality_420) for image in images] if args.quality_420 else images


def within(canvas: tuple[int, int], images: list[bytes]) -> list[bytes]:
    """Return the images that fit the canvas as they are."""
    headers = read_headers(Encoded.from_bytes(images))
    fits = (headers.original_size() <= canvas).all(axis=1)
    return list(itertools.compress(images, fits))


def keep_busy(seconds: float) -> None:
    """Multiply matrices, as a device that has stood still has slower clocks."""
    matrix = jnp.ones((4096, 4096))
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        (matrix @ matrix).block_until_ready()


def print_latency(images: list[bytes], args: argparse.Namespace) -> None:
    """Print the latency of jaxaug and DALI at each batch size.

    They get the images that fit the canvas: others DALI does not shrink to it as jaxaug does.
    """
    if not args.latency:
        return
    canvas = tuple(args.canvas)
    images = within(canvas, images)
    print(f"latency with the {len(images)} images of at most {args.canvas}")
    # jaxaug first: what a process of DALI's leaves behind, such as its streams, slows others.
    rows: dict[tuple[int, str], list[float]] = {}
    for batch in args.latency:
        keep_busy(2.0)
        with Decoder(canvas, backend="nvjpeg", devices=jax.local_devices()[:1]) as decoder:
            rows[batch, "jaxaug"] = jaxaug_latency(decoder, images, batch, 300)
    threads = len(os.sched_getaffinity(0))
    with contextlib.suppress(ImportError):
        cases = itertools.product(args.latency, (0.65, 1.0), (None, canvas))
        for batch, load, shape in cases:
            name = f"DALI {load}, {'one JAX array' if shape else 'its own tensors'}"
            keep_busy(2.0)
            rows[batch, name] = dali_latency(images, batch, threads, load, 300, shape)
    for (batch, name), times in sorted(rows.items(), key=lambda row: row[0][0]):
        p50, p99 = np.percentile(times, [50, 99]) * 1e3
        print(
            f"latency, batch {batch:3d}, {name:28s} median {p50:7.2f} ms,"
            f" 99th percentile {p99:7.2f} ms"
        )


def main() -> None:
    args = arguments()
    images = images_of(args)
    connections = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS")
    kilobytes = np.mean([len(image) for image in images]) / 1000
    kind = jax.devices()[0].device_kind
    print(f"{len(images)} images, mean {kilobytes:.0f} KB, {os.cpu_count()} CPUs,")
    print(f"{kind}, jax {jax.__version__}, nvJPEG {libnvjpeg.version()}, {connections=}")
    if args.gpus:
        encoded = Encoded.from_bytes(repeat(images, args.batch))
        return several_gpus(encoded, args)
    print_latency(images, args)  # before anything else leaves its threads behind
    table = {
        n: measure
        for n, measure in contestants(images, args).items()
        if n.startswith(tuple(args.only))
    }
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
            median = statistics.median(values)
            print(f"{name:36s} {median:8.0f} {min(values):8.0f} {max(values):8.0f}", flush=True)
    if args.beside:
        beside_training(table, args.beside)


if __name__ == "__main__":
    main()
