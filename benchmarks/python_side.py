"""The Python side of a Loader on eight GPUs, without a GPU: how much of a step the GIL is held.

    python benchmarks/python_side.py TAR [--gpus 8] [--batch 256] [--steps 40] [--rounds 5]

jaxaug runs as it is, from a tar to the compiled call, with a stand-in for each native function of
CUDA and nvJPEG that sleeps as long as the native one takes, and so gives up the GIL. The compiled
call copies one pixel of each row. Counted is the time that the process's Python threads are on a
CPU, without the threads of XLA: an upper bound of the time that one of them holds the GIL, as part
of it (memory copies, NumPy's loops) does not need it. A busy machine changes it little, as waiting
does not count. Divided by the time that the engines take for a step, it is the share of the GIL.
"""

import argparse
import ctypes
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from images import write_tar

ENGINE_SECONDS = 12.5e-3 / 256  # of one image on the engines of an H200
CANVAS = (640, 704)
RECORDS = 8_192
SUCCESS = 0


class Engines:
    """The JPEG engines of all GPUs: each GPU decodes one call after the other."""

    def __init__(self, gpus: int):
        self._ready = [0.0] * gpus
        self._streams: dict[int, float] = {}
        self._lock = threading.Lock()
        self.sleeps = 0

    def start(self, gpu: int, stream: int, images: int) -> None:
        with self._lock:
            begin = max(self._ready[gpu], time.perf_counter())
            self._ready[gpu] = begin + images * ENGINE_SECONDS
            self._streams[stream] = self._ready[gpu]

    def wait(self, stream: int) -> None:
        left = self._streams.get(stream, 0.0) - time.perf_counter()
        if left > 0:
            self.sleeps += 1
            time.sleep(left)


class Runtime:
    """The functions of cuda.bindings.runtime that jaxaug calls; memory is that of the host."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2)

    def __init__(self, engines: Engines):
        self._engines = engines
        self._current = threading.local()
        self._streams = itertools.count(1)
        self._memory: list[np.ndarray] = []
        self.owners: dict[int, int] = {}  # address -> GPU
        self.calls = Counter()

    @property
    def gpu(self) -> int:
        return getattr(self._current, "gpu", 0)

    def __getattr__(self, name: str) -> Any:
        """Return a function that does nothing: the others are fills, copies and frees."""
        return lambda *arguments: (SUCCESS,)

    def cudaSetDevice(self, gpu: int) -> tuple:
        self._current.gpu = gpu
        return (SUCCESS,)

    def cudaGetDevice(self) -> tuple:
        return SUCCESS, self.gpu

    def cudaMalloc(self, size: int) -> tuple:
        self._memory.append(np.empty(size, np.uint8))  # pages that nobody touches are never there
        address = self._memory[-1].ctypes.data
        self.owners[address] = self.gpu
        return SUCCESS, address

    cudaMallocHost = cudaMalloc

    def cudaMemGetInfo(self) -> tuple:
        return SUCCESS, 140 * 2**30, 140 * 2**30

    def cudaDeviceGetStreamPriorityRange(self) -> tuple:
        return SUCCESS, 0, -5

    def cudaStreamCreateWithPriority(self, flags: int, priority: int) -> tuple:
        return SUCCESS, next(self._streams)

    def cudaStreamSynchronize(self, stream: int) -> tuple:
        self._engines.wait(stream)
        return (SUCCESS,)

    def cudaMemcpy2DAsync(self, to, to_pitch, source, pitch, width, rows, kind, stream):
        if kind == self.cudaMemcpyKind.cudaMemcpyDeviceToHost:
            ctypes.memset(to, 0, to_pitch * rows)  # no sentinel: everything was decoded
        return (SUCCESS,)


class Nvjpeg:
    """The functions of libnvjpeg that a batch calls."""

    def __init__(self, engines: Engines, runtime: Runtime):
        self._engines = engines
        self._runtime = runtime

    def nvjpegDecodeBatchedInitialize(self, handle, state, images, *options) -> None:
        self._runtime._current.images = images

    def nvjpegDecodeBatched(self, handle, state, data, lengths, images, stream) -> None:
        self._runtime.calls["nvjpegDecodeBatched"] += 1
        self._engines.start(self._runtime.gpu, stream, self._runtime._current.images)


def put_stand_ins(gpus: int) -> tuple[Engines, Runtime]:
    """Replace the native functions in this process."""
    import jax

    from jaxaug.decode.image import decoder
    from jaxaug.decode.image.nvjpeg import nvjpeg_backend
    from jaxaug.decode.native import cuda, libnvjpeg
    from jaxaug.iterators.loader import plan
    from jaxaug.iterators.loader.rows import RowSchema

    engines = Engines(gpus)
    runtime = Runtime(engines)
    library = Nvjpeg(engines, runtime)
    nothing = SimpleNamespace(
        write_sentinels=lambda *arguments: None, fill_canvases=lambda *arguments: None
    )
    shown: Any = libnvjpeg
    shown.load = lambda: library
    shown.create = lambda function, *arguments: object()
    shown.destroy = lambda function, made: None
    devices: Any = cuda
    devices.runtime = lambda: runtime
    devices.core = lambda: (None, None)
    devices.import_buffer = lambda pointer, shape, dtype: jax.device_put(
        np.zeros((shape[0], 1, 1, 3), np.uint8), jax.devices()[runtime.owners[pointer]]
    )
    used: Any = nvjpeg_backend
    used._make_handle = lambda deterministic: None
    used.compile_resampler = lambda channels: nothing

    def make_backend(backend, devices, canvas, form, *options):
        shape = (*canvas, form.count)
        return "nvjpeg", nvjpeg_backend.NvjpegBackend(devices, shape, *options)

    decoder._make_backend = make_backend
    compile_batch = plan.compile_batch

    class SmallCanvases(RowSchema):
        """The form of rows whose canvases are the stand-ins' arrays of one pixel."""

        def shapes(self, count: int) -> dict[str, Any]:
            rows = super().shapes(count)
            image = rows["decoded"]["image"]
            image["pixels"] = jax.ShapeDtypeStruct((count, 1, 1, 3), image["pixels"].dtype)
            return rows

    def compile_small(function, schema, *rest, **options):
        return compile_batch(function, SmallCanvases(**vars(schema)), *rest, **options)

    plan.compile_batch = compile_small
    return engines, runtime


class Usage(NamedTuple):
    """The seconds that Python threads were on a CPU, and how often they gave it up."""

    seconds: dict[str, float]
    waits: int


def python_usage() -> Usage:
    """Return the usage of all Python threads, by their kind."""
    seconds: defaultdict[str, float] = defaultdict(float)
    waits = 0
    for thread in threading.enumerate():
        folder = Path(f"/proc/self/task/{thread.native_id}")
        on_cpu = int((folder / "schedstat").read_text().split()[0]) / 1e9
        seconds[thread.name.rstrip("0123456789_")] += on_cpu
        for line in (folder / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                waits += int(line.split()[1])
    return Usage(dict(seconds), waits)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tar", type=Path)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--batch", type=int, default=256, help="for each GPU")
    parser.add_argument("--steps", type=int, default=40, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", args.gpus)
    from jaxaug import Decoder, Loader, sharding
    from jaxaug.iterators import WebDataset

    engines, runtime = put_stand_ins(args.gpus)
    images = args.gpus * args.batch
    step_seconds = args.batch * ENGINE_SECONDS
    print(f"jax {jax.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} CPUs")
    print(f"a step: {images} images, {step_seconds * 1e3:.1f} ms on the engines")

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        tar = f"{folder}/images.tar"
        write_tar(args.tar, Path(tar), "", RECORDS)
        decoder = Decoder(CANVAS, devices=jax.devices(), num_threads=16 * args.gpus)
        options = {"decode": decoder, "sharding": sharding.batch_sharding(jax.devices())}
        with decoder, Loader(WebDataset(tar), images, **options) as loader:
            for _ in range(10):
                next(loader)
            shares = []
            for _ in range(args.rounds):
                before, sleeps, started = python_usage(), engines.sleeps, time.perf_counter()
                calls = runtime.calls.total()
                for _ in range(args.steps):
                    next(loader)
                after = python_usage()
                kinds = {
                    name: (seconds - before.seconds.get(name, 0.0)) / args.steps * 1e3
                    for name, seconds in after.seconds.items()
                }
                held = sum(kinds.values())
                shares.append(held / 1e3 / step_seconds)
                waits = (after.waits - before.waits - (engines.sleeps - sleeps)) / args.steps
                took = (time.perf_counter() - started) / args.steps * 1e3
                native = (runtime.calls.total() - calls) / args.steps
                detail = ", ".join(f"{name} {ms:.2f}" for name, ms in kinds.items() if ms > 0.01)
                print(
                    f"{held:.2f} ms a step ({shares[-1]:.0%} of it): {detail}; {waits:.0f} waits,"
                    f" {native:.0f} batched calls; {took:.1f} ms passed here"
                )
    print(
        f"GIL held, at most: {statistics.median(shares):.0%}"
        f" ({min(shares):.0%} to {max(shares):.0%}) of a step"
    )


if __name__ == "__main__":
    main()
