"""Rates and latencies of DALI, nvImageCodec and simplejpeg, each with its best settings."""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from child import Child
from rate import rate

from jaxaug.decode.native import cuda


def dali_rate(images: list[bytes], batch: int, threads: int, load: float, seconds: float) -> float:
    """Return images/s of a DALI pipeline that decodes to tensors of its own."""
    from nvidia.dali import fn, pipeline_def

    arrays = [np.frombuffer(image, np.uint8) for image in images]
    batches = [
        [arrays[(start + i) % len(arrays)] for i in range(batch)]
        for start in range(0, len(arrays), batch)
    ]

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
    for _ in ("warm-up", "measured"):
        started = time.perf_counter()
        done = 0
        while time.perf_counter() - started < seconds:
            built.run()
            done += batch
    return done / (time.perf_counter() - started)


DALI_CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
import decode, rivals
images = decode.images_of(decode.arguments(sys.argv[2:]))
print("ready", flush=True)
for line in sys.stdin:
    batch, threads, load, seconds = line.split()
    rate = rivals.dali_rate(images, int(batch), int(threads), float(load), float(seconds))
    print("rate", rate, flush=True)
"""


class DaliProcess:
    """DALI in a process of its own, without the hardware queues that jaxaug asks CUDA for."""

    def __init__(self):
        command = [sys.executable, "-c", DALI_CHILD, str(Path(__file__).parent), *sys.argv[1:]]
        self._child = Child(command, {"CUDA_DEVICE_MAX_CONNECTIONS": "8"})  # CUDA's own choice
        self._child.answer("ready")

    def rate(self, batch: int, threads: int, load: float, seconds: float) -> float:
        self._child.send(f"{batch} {threads} {load} {seconds}")
        return float(self._child.answer("rate").split()[1])


def dali_latency(
    images: list[bytes],
    batch: int,
    threads: int,
    load: float,
    rounds: int,
    canvas: tuple[int, int] | None,
) -> list[float]:
    """Return seconds from bytes to images on the GPU, with nothing in flight before.

    Without `canvas` they end as tensors of DALI, each of its own size, after a wait for the device.
    With it they end as jaxaug's do: one JAX array, zero around the images, made by a copy as in
    DALI's iterator for JAX.
    """
    from nvidia.dali import fn, pipeline_def

    @pipeline_def
    def pipeline():
        data = fn.external_source(name="data", batch=True, no_copy=True)
        images = fn.decoders.image(data, device="mixed", hw_decoder_load=load)
        return fn.pad(images, axes=(0, 1), shape=canvas) if canvas else images

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
        if canvas:
            jnp.copy(jax.dlpack.from_dlpack(output.as_tensor())).block_until_ready()
        else:
            cuda.call("cudaDeviceSynchronize")
        times.append(time.perf_counter() - started)
        del output
    return times[rounds // 10 :]


def nvimgcodec_rate(images: list[bytes], batch: int, threads: int, seconds: float) -> float:
    """Return images/s of nvImageCodec."""
    from nvidia import nvimgcodec

    decoder = nvimgcodec.Decoder(max_num_cpu_threads=threads)
    arrays = [np.frombuffer(images[i % len(images)], np.uint8) for i in range(batch)]
    for _ in range(4):
        decoder.decode(arrays)
    started = time.perf_counter()
    done = 0
    while time.perf_counter() - started < seconds:
        decoder.decode(arrays)
        done += batch
    cuda.call("cudaDeviceSynchronize")
    return done / (time.perf_counter() - started)


def simplejpeg_rate(images: list[bytes], threads: int, seconds: float) -> float:
    """Return images/s of libjpeg-turbo in host threads."""
    import simplejpeg

    def work(thread, running, count):
        number = thread * 7
        while running():
            number = (number + 1) % len(images)
            simplejpeg.decode_jpeg(images[number])
            count(1)

    return rate(work, threads, seconds)
