"""What jaxaug finds on this machine, and what to install for what is missing."""

import importlib.metadata
import os
from collections.abc import Iterator

import jax

import jaxaug
from jaxaug.decode import Decoder

_OPTIONAL = {
    "flax": "the examples: pip install jaxaug[examples]",
    "optax": "the examples: pip install jaxaug[examples]",
    "orbax-checkpoint": "checkpoints of the examples: pip install jaxaug[examples]",
    "tensorflow-datasets": "iterators.TFDS: pip install jaxaug[tfds]",
    "tqdm": "progress bars: pip install tqdm",
    "torch": "iterators.to_torch",
}


def report() -> Iterator[tuple[str, str]]:
    """(subject, finding) lines: versions, devices, the decoder chosen and why, GPU memory, optional packages.

    Example:
      >>> next(report())[0]
      'jaxaug'
    """
    yield "jaxaug", f"{jaxaug.__version__} on jax {jax.__version__}"
    for device in jax.local_devices():
        yield f"device {device.id}", f"{device.device_kind} ({device.platform})"
    with Decoder((64, 64)) as decoder:
        yield "decoder", f"{decoder.backend}, {decoder.in_flight} batches in flight"
    if jax.default_backend() == "gpu":
        yield from _nvidia()
    for package, use in _OPTIONAL.items():
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, f"missing; for {use}"


def _nvidia() -> Iterator[tuple[str, str]]:
    """The native side: library, engines, memory for canvases."""
    from jaxaug.decode.native import _cuda, _nvjpeg

    try:
        yield "nvJPEG", f"{_nvjpeg.version()} ({_nvjpeg.path()})"
        _cuda.core()
        handle = _nvjpeg.create_handle(_nvjpeg.HARDWARE)
        yield "engines", f"{_nvjpeg.engine_count(handle)} on the first GPU"
        queues = os.environ["CUDA_DEVICE_MAX_CONNECTIONS"]
        yield "hardware queues", f"{queues} (CUDA_DEVICE_MAX_CONNECTIONS; 32 are best, set before CUDA starts)"
        _nvjpeg.destroy("nvjpegDestroy", handle)
        free, total = (int(value) for value in _cuda.runtime().cudaMemGetInfo()[1:])
        yield "memory", f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB are free for canvases, beside what JAX reserves"
    except (ImportError, RuntimeError) as error:
        yield "nvJPEG", f"cannot be used: {error}"
