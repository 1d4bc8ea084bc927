"""Images/s of deep images in memory to arrays: jaxaug's Decoder beside DALI and torchvision.

    python benchmarks/deep.py [FORMAT...] [--rounds 5] [--seconds 1] [--threads 16] [--clock cpu]

Each format is made of eight drawn images again and again, batches of 64: TIFF of 13 bands without
compression, LZW, in tiles, Deflate; 16 bits with a predictor, floats; PNG of 16 bits; JPEG 2000 of
12 and 16. On a machine with a GPU all of them end there: "jaxaug" is the Decoder's own choice,
"host" its threads alone; DALI is "mixed" and "cpu" (with the copy), torchvision reads PNG alone, on
the host. Every contestant has a process of its own; they take turns, round after round. With
`--clock cpu` a second is one of processor time, which other processes on a machine disturb less.
Before it is measured each contestant's pixels are compared with those that were drawn.
"""

import argparse
import collections
import functools
import io
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from contestant import Contestant, measure_in_turn

BATCH = 64
AHEAD = 2  # batches that are decoded while one is taken, as a Loader and DALI's pipelines do
TIFF_OPTIONS: dict[str, tuple[tuple[int, int, int], str, dict[str, Any]]] = {
    "64 none": ((64, 64, 13), "uint16", {}),
    "64 lzw": ((64, 64, 13), "uint16", {"compression": "lzw"}),
    "256 lzw": ((256, 256, 13), "uint16", {"compression": "lzw"}),
    "256 lzw tiles": ((256, 256, 13), "uint16", {"compression": "lzw", "tile": (128, 128)}),
    "256 deflate": ((256, 256, 13), "uint16", {"compression": "zlib"}),
    "1024 lzw+predictor": ((1024, 1024, 1), "uint16", {"compression": "lzw", "predictor": 2}),
    "1024 float": ((1024, 1024, 1), "float32", {}),
}
OTHERS = {"png": ((512, 512, 3), 16), "jpeg2000 12": ((512, 512, 3), 12)}
OTHERS |= {"jpeg2000 16": ((1024, 1024, 1), 16)}
NAMES = ("jaxaug", "host", "dali mixed", "dali cpu", "torchvision")

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def drawn(shape: tuple[int, int, int], bits: int, seed: int) -> np.ndarray:
    """Return smooth bands with noise in their lower bits, float64."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    bands = [np.sin(x / (7 + k) + seed) + np.cos(y / (9 + k)) for k in range(shape[2])]
    full = 2**bits - 1
    noise = rng.normal(0, full / 300, shape)
    return np.clip((np.stack(bands, -1) + 2) * full / 4 + noise, 0, full)


@functools.cache
def files(format: str) -> tuple[list[bytes], list[np.ndarray]]:
    """Return eight files and their pixels."""
    made = [_file(format, seed) for seed in range(8)]
    return [data for data, _ in made], [pixels for _, pixels in made]


def _file(format: str, seed: int) -> tuple[bytes, np.ndarray]:
    import imagecodecs
    import tifffile

    if format in OTHERS:
        shape, bits = OTHERS[format]
        pixels = drawn(shape, bits, seed).astype(np.uint16)
        stored = pixels if shape[2] > 1 else pixels[..., 0]
        if format == "png":
            return bytes(imagecodecs.png_encode(stored)), pixels
        options = {"codecformat": "jp2", "reversible": True, "bitspersample": bits}
        return bytes(imagecodecs.jpeg2k_encode(stored, **options)), pixels
    shape, dtype, options = TIFF_OPTIONS[format]
    pixels = drawn(shape, 14, seed).astype(dtype)
    file = io.BytesIO()
    planar = {"planarconfig": "contig"} if shape[2] > 1 else {}
    stored = pixels if shape[2] > 1 else pixels[..., 0]
    tifffile.imwrite(file, stored, photometric="minisblack", **planar, **options)
    return file.getvalue(), pixels


def open_jaxaug(format: str, threads: int, backend: str) -> Callable[[], Any]:
    import jax

    from jaxaug.decode import Decoder, Encoded

    data, pixels = files(format)
    batch = Encoded.from_bytes([data[row % 8] for row in range(BATCH)])
    height, width, samples = pixels[0].shape
    form = {"channels": samples, "dtype": pixels[0].dtype.name, "backend": backend}
    devices = jax.devices()[:1]
    decoder = Decoder((height, width), devices=devices, num_threads=threads, **form)
    pool = ThreadPoolExecutor(AHEAD)
    waiting = collections.deque(pool.submit(decoder.decode, batch) for _ in range(AHEAD))

    def step():
        waiting.append(pool.submit(decoder.decode, batch))
        return jax.block_until_ready(waiting.popleft().result().pixels)

    return step


def open_dali(format: str, threads: int, device: str) -> Callable[[], Any]:
    from nvidia.dali import fn, pipeline_def, types

    data, pixels = files(format)
    batch = [np.frombuffer(data[row % 8], np.uint8) for row in range(BATCH)]
    kinds = {"uint16": types.UINT16, "float32": types.FLOAT}
    gpu = has_gpu()
    if device == "mixed" and not gpu:
        raise RuntimeError("needs a GPU")

    options = {"num_threads": threads, "prefetch_queue_depth": AHEAD}

    @pipeline_def(batch_size=BATCH, device_id=0 if gpu else None, **options)
    def pipeline():
        encoded = fn.external_source(lambda: batch, batch=True)
        options = {"output_type": types.ANY_DATA, "dtype": kinds[pixels[0].dtype.name]}
        decoded = fn.decoders.image(encoded, device=device, **options)
        return decoded.gpu() if gpu else decoded

    built = pipeline()
    built.build()
    return lambda: built.run()[0]


def open_torchvision(format: str, threads: int) -> Callable[[], Any]:
    import torch
    from torchvision.io import ImageReadMode, decode_image

    if format != "png":
        raise RuntimeError("torchvision reads no such format")
    torch.set_num_threads(1)
    data, _ = files(format)
    batch = [torch.frombuffer(bytearray(data[row % 8]), dtype=torch.uint8) for row in range(BATCH)]
    pool = ThreadPoolExecutor(threads)
    one = functools.partial(decode_image, mode=ImageReadMode.UNCHANGED)
    gpu = has_gpu()

    def step():
        found = torch.stack(list(pool.map(one, batch))).permute(0, 2, 3, 1)
        if gpu:
            found = found.cuda()
            torch.cuda.synchronize()
        return found

    return step


def has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def row_of(batch: Any, row: int) -> np.ndarray:
    """Return the pixels of an image of any contestant's batch."""
    if hasattr(batch, "at") and not hasattr(batch, "devices"):  # DALI
        tensor = batch.as_cpu() if hasattr(batch, "as_cpu") else batch
        return np.asarray(tensor.at(row))
    one = batch[row]
    return np.asarray(one.cpu() if hasattr(one, "cpu") else one)


OPENERS: dict[str, Callable[[str, int], Callable[[], Any]]] = {
    "jaxaug": functools.partial(open_jaxaug, backend="auto"),
    "host": functools.partial(open_jaxaug, backend="host"),
    "dali mixed": functools.partial(open_dali, device="mixed"),
    "dali cpu": functools.partial(open_dali, device="cpu"),
    "torchvision": open_torchvision,
}


def serve(name: str, format: str, threads: int, clock: str) -> None:
    """Open a contestant and answer each line of seconds with its images/s."""
    now = time.process_time if clock == "cpu" else time.perf_counter
    try:
        step = OPENERS[name](format, threads)
        expected = files(format)[1][3]
        found = row_of(step(), 3).reshape(expected.shape)
        print("ready", json.dumps({"equal": bool((found == expected).all())}), flush=True)
        for line in sys.stdin:
            started = now()
            count = 0
            while now() - started < float(line):
                step()
                count += BATCH
            print("rate", count / (now() - started), flush=True)
    except Exception as error:  # of any library: the contestant is left out
        print("failed", repr(error)[:160].replace("\n", " "), flush=True)


def open_all(format: str, args: argparse.Namespace) -> dict[str, Contestant]:
    """Return the contestants of a format, opened at once; a line tells of each that cannot be."""

    def one(name: str) -> Contestant | RuntimeError:
        task = {"name": name, "format": format, "threads": args.threads, "clock": args.clock}
        try:
            return Contestant(__file__, task, args.seconds / 2)
        except RuntimeError as error:
            return error

    with ThreadPoolExecutor(len(args.names)) as pool:
        found = dict(zip(args.names, pool.map(one, args.names)))
    for name, each in found.items():
        if isinstance(each, RuntimeError):
            print(f"  left out: {format}: {name}: {each}", flush=True)
    return {name: each for name, each in found.items() if isinstance(each, Contestant)}


def compare(format: str, args: argparse.Namespace) -> None:
    """Measure the contestants in turn, print a line for each."""
    contestants = open_all(format, args)
    try:
        rates = measure_in_turn(contestants, args.rounds, args.seconds)
    finally:
        for each in contestants.values():
            each.close()
    ours = rates.get("jaxaug", [])
    for name, found in rates.items():
        ratios = [a / b for a, b in zip(ours, found)]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else "-"
        equal = "" if contestants[name].ready["equal"] else ", other pixels"
        spread = f"({min(found):,.0f} to {max(found):,.0f})"
        median = f"{statistics.median(found):>9,.0f}"
        print(f"{format:20}{name:12}{median} {spread:20} jaxaug / it {ratio}{equal}", flush=True)


def main() -> None:
    """Parse the arguments, measure in turn, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    formats = [*TIFF_OPTIONS, *OTHERS]
    parser.add_argument("formats", nargs="*", help=f"of {formats}; all by default")
    parser.add_argument("--names", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--serve", type=json.loads)
    args = parser.parse_args()
    if args.serve:
        serve(**args.serve)
        return
    for format in args.formats or formats:
        compare(format, args)


if __name__ == "__main__":
    main()
