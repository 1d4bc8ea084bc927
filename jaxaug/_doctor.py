"""The report of `python -m jaxaug doctor`."""

import os
import platform
import sysconfig
from collections.abc import Iterator

import jax

import jaxaug
from jaxaug._install import install_command, install_gpu_command, installed_versions
from jaxaug.augment._xla import cpu_advice
from jaxaug.decode import Decoder
from jaxaug.decode._cpus import has_gil
from jaxaug.iterators.loader.cpu_threads import deadlock_note
from jaxaug.iterators.loader.device_store import free_bytes
from jaxaug.iterators.loader.kept import free_host_bytes

_OPTIONAL = {
    "flax": f"the examples: {install_command('examples')}",
    "optax": f"the examples: {install_command('examples')}",
    "orbax-checkpoint": f"checkpoints of the examples: {install_command('examples')}",
    "tensorflow-datasets": f"iterators.TFDS: {install_command('tfds')}",
    "array-record": f"iterators.ArrayRecord: {install_command('tfds')}",
    "pyarrow": f"iterators.Parquet: {install_command('parquet')}",
    "av": f"decode.Video, decode.Audio of AAC, M4A and Opus: {install_command('video')}",
    "fsspec": f"gs://, s3://, http://: {install_command('remote')}",
    "obstore": f"the same in less time: {install_command('remote')}",
    "google-crc32c": f"TFRecord indexed, far data kept in less time: {install_command('remote')}",
    "miniaudio": f"decode.Audio of FLAC and MP3: {install_command('audio')}",
    "soundfile": f"decode.Audio of Ogg Vorbis and ADPCM: {install_command('audio')}",
    "imagecodecs": f"decode.Image of 16 bits and of other deep images: {install_command('deep')}",
    "tifffile": f"decode.Image of compressed TIFF with bands: {install_command('deep')}",
    "pillow-heif": f"decode.Image of HEIC: {install_command('deep')}",
    "pydicom": f"decode.Image of DICOM: {install_command('deep')}",
    "nibabel": f"decode.Volume of NIfTI: {install_command('volume')}",
    "zarr": f"decode.Volume of Zarr: {install_command('volume')}",
    "matplotlib": f"iterators.show: {install_command('show')}",
    "tqdm": "progress bars: pip install tqdm",
    "torch": "iterators.to_torch",
    "tensorflow": "iterators.to_tf",
    "grain": "iterators.grain",
}


def report() -> Iterator[tuple[str, str]]:
    """Yield (subject, finding): versions, devices, decoder, GPU memory, optional packages.

    Example:
      >>> next(report())[0]
      'jaxaug'
    """
    yield "jaxaug", f"{jaxaug.__version__} on jax {jax.__version__}"
    yield "python", _python()
    for device in jax.local_devices():
        yield f"device {device.id}", f"{device.device_kind} ({device.platform})"
    yield "decoder", _decoder()
    yield "keep", _keep()
    yield "data", "not looked at: `python -m jaxaug verify SOURCE` finds damaged records"
    if jax.default_backend() == "cpu":
        advice = (cpu_advice(), deadlock_note(jax.local_devices()))
        yield from (("jax", each) for each in advice if each is not None)
    if jax.default_backend() == "gpu":
        yield from _nvidia()
    for package, version in installed_versions(*_OPTIONAL).items():
        missing = version == "missing"
        yield package, f"missing; for {_OPTIONAL[package]}" if missing else version


def _python() -> str:
    """Return the version, and of a free-threaded Python whether its threads run at once."""
    version = platform.python_version()
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return version
    if not has_gil():
        return f"{version} without the GIL"
    return (
        f"{version}, free-threaded, but an extension such as simplejpeg has switched the GIL on: "
        "PYTHON_GIL=0 leaves it off"
    )


def _keep() -> str:
    """Return how many images `Loader(keep=)` has room for."""
    image = 3 * 224 * 224
    devices = jax.local_devices()
    places = {"device": free_bytes(devices), "host": free_host_bytes()}
    each = {"device": len(devices), "host": 1}
    found = [
        f"{free * each[place] // image:,} with {place!r}"
        for place, free in places.items()
        if free is not None
    ]
    return f"images of 224 x 224 that fit now: {', '.join(found) or 'not known'}"


def _decoder() -> str:
    """Return the decoder that `backend="auto"` takes, and the reason."""
    if jax.default_backend() != "gpu":
        return f"host threads, as jax sees no NVIDIA GPU: with one, {install_gpu_command()}"
    try:
        with Decoder((64, 64), "nvjpeg") as decoder:
            return f"nvjpeg, {decoder.in_flight} batches in flight"
    except (ImportError, RuntimeError, ValueError) as error:
        return f"host threads, as nvjpeg cannot be used: {error}"


def _nvidia() -> Iterator[tuple[str, str]]:
    """Yield findings about nvJPEG: library, hardware queues, engines, memory for canvases."""
    from jaxaug.decode.image.nvjpeg.canvas_buffers import buffer_budget
    from jaxaug.decode.native import cuda, libnvjpeg

    try:
        yield "nvJPEG", f"{libnvjpeg.version()} ({libnvjpeg.path()})"
        queues = os.environ["CUDA_DEVICE_MAX_CONNECTIONS"]
        yield (
            "hardware queues",
            f"{queues} (CUDA_DEVICE_MAX_CONNECTIONS; 32 are best, set before CUDA starts)",
        )
        for device in jax.local_devices():
            with cuda.on_device(device.local_hardware_id or 0):
                yield f"engines {device.id}", _engines()
                free, total = (int(value) for value in cuda.call("cudaMemGetInfo"))
                yield f"memory {device.id}", _memory(free, total, buffer_budget(total))
    except (ImportError, RuntimeError) as error:
        yield "nvJPEG", f"cannot be used: {error}"
    yield "NVDEC", _video_engines()
    yield from _deep_libraries()


def _deep_libraries() -> Iterator[tuple[str, str]]:
    """Yield which libraries help host threads with images of more than 8 bits."""
    from jaxaug.decode.native import libnvjpeg2k, libnvtiff

    for name, library in (("nvJPEG2000", libnvjpeg2k), ("nvTIFF", libnvtiff)):
        try:
            library.load()
            yield name, "found; decode.Image of deep images takes it"
        except ImportError as error:
            advice = str(error).splitlines()[-1]
            yield name, f"cannot be used, host threads decode without it: {advice}"


def _video_engines() -> str:
    """Return the library of the video engines, and which codecs they decode how many at once."""
    from jaxaug.decode.native import cuda, libnvcuvid
    from jaxaug.decode.video.nvdec.engines import REPORTED, Form, capabilities, engine_count
    from jaxaug.decode.video.nvdec.table_cache import MAX_BYTES

    try:
        with cuda.on_device(jax.local_devices()[0].local_hardware_id or 0):
            engines = {
                name: int(capabilities(Form(number, False, 8)).engines)
                for name, number in libnvcuvid.CODECS.items()
            }
            engine_count()
    except (ImportError, RuntimeError) as error:
        return f"cannot be used, host threads decode videos: {error}"
    found = ", ".join(f"{name} {count}" for name, count in engines.items() if count)
    auto = f'of them {" and ".join(REPORTED)} are taken by decode.Video\'s "auto"'
    kept = (
        "sessions keep surfaces of their own, and tables of videos without an index take at most"
        f" {MAX_BYTES >> 20} MiB of the host's memory"
    )
    return f"{libnvcuvid.path()}; engines: {found}; {auto}; {kept}"


def _memory(free: int, total: int, budget: int) -> str:
    """Return the memory of a device in words; all arguments are bytes."""
    gib = 2**30
    return (
        f"{free / gib:.1f} of {total / gib:.1f} GiB are free, besides what JAX reserves;"
        f" the buffers of a Decoder, and the canvases of a column of videos, take at most"
        f" {budget / gib:.1f}"
    )


def _engines() -> str:
    """Return the number of JPEG engines of the current device."""
    from jaxaug.decode.native import libnvjpeg

    try:
        handle = libnvjpeg.create_handle(libnvjpeg.HARDWARE)
    except libnvjpeg.NvjpegError as error:
        return f"none ({error}): the multiprocessors and the host decode"
    count = libnvjpeg.engine_count(handle)
    libnvjpeg.destroy("nvjpegDestroy", handle)
    return str(count)
