"""Finding the library and choosing the backend, where there is no GPU."""

import warnings
from types import SimpleNamespace

import jax
import pytest

from jaxaug import _doctor
from jaxaug._warn import warn_once
from jaxaug.decode import Decoder
from jaxaug.decode.image import decoder as decoder_module
from jaxaug.decode.native import cuda, libnvjpeg, load_library


def test_a_missing_library_names_what_was_tried(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXAUG_TEST_LIBRARY", str(tmp_path / "libnone.so"))
    with pytest.raises(ImportError, match=r"(?s)libx\.so.*libnone\.so.*install this"):
        load_library.load_library(("libx.so",), (), "JAXAUG_TEST_LIBRARY", "install this")


def test_a_library_without_the_functions_is_too_old(choose_nvjpeg):
    choose_nvjpeg("libc.so.6")  # a library that is surely there, and surely has none of them
    with pytest.raises(ImportError, match=r"too old: it has no nvjpegGetProperty.*CUDA 13"):
        libnvjpeg.load()


def test_nvjpeg_wants_gpus_and_auto_does_not(cpu_devices):
    with pytest.raises(
        ValueError, match=r"must be NVIDIA GPUs for backend='nvjpeg'.*'auto' or 'host'"
    ):
        Decoder((64, 64), "nvjpeg", cpu_devices[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # there is nothing to warn of where no GPU is
        for backend in ("auto", "host"):
            with Decoder((64, 64), backend, cpu_devices[:1]) as decoder:
                assert decoder.backend == "host"


def test_a_gpu_whose_engines_cannot_be_used_is_a_warning_at_the_callers_line(
    monkeypatch, cpu_devices
):
    from jaxaug.decode.image.nvjpeg import nvjpeg_backend

    def fails(*arguments):
        raise load_library.LibraryError("there is no library")

    monkeypatch.setattr(nvjpeg_backend, "NvjpegBackend", fails)
    monkeypatch.setattr(
        decoder_module, "_check_devices", lambda devices: [SimpleNamespace(platform="gpu")]
    )
    warn_once.cache_clear()
    through_a_loader = {"__name__": "jaxaug.iterators.loader.loader", "Decoder": Decoder}
    exec("def make(*arguments):\n    return Decoder(*arguments)", through_a_loader)
    for make in (Decoder, through_a_loader["make"]):
        warn_once.cache_clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                make((64, 64)).close()
        (warning,) = caught
        assert warning.filename == __file__ and "there is no library" in str(warning.message)
    with pytest.raises(ImportError, match="there is no library"):
        Decoder((64, 64), "nvjpeg")


def test_status_codes_have_names():
    assert str(libnvjpeg.NvjpegError("nvjpegDecode", 4)) == "nvjpegDecode: JPEG_NOT_SUPPORTED (4)"
    assert "unknown" in str(libnvjpeg.NvjpegError("nvjpegDecode", 99))
    assert jax.devices("cpu")


def test_wheels_that_lack_the_library_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(
        load_library.importlib.util,
        "find_spec",
        lambda name: SimpleNamespace(submodule_search_locations=[tmp_path]),
    )
    with pytest.raises(ImportError, match=str(tmp_path / "cu13/lib/libx.so")):
        load_library.load_library(
            ("libx.so",), ("cu13/lib",), "JAXAUG_TEST_LIBRARY", "install this"
        )


def test_the_doctor_says_why_the_host_decodes():
    assert dict(_doctor.report())["decoder"].startswith("host threads, as jax sees no NVIDIA GPU")


def test_the_doctor_knows_gpus_without_engines(monkeypatch, cpu_devices):
    def create_handle(backend):
        raise libnvjpeg.NvjpegError("nvjpegCreateEx", 7)

    gpus = [SimpleNamespace(id=each, local_hardware_id=each) for each in (0, 1)]
    current = []
    monkeypatch.setattr(libnvjpeg, "version", lambda: "13.3")
    monkeypatch.setattr(libnvjpeg, "path", lambda: "somewhere")
    monkeypatch.setattr(libnvjpeg, "create_handle", create_handle)

    def call(name, *given):
        current.append((name, *given))
        return (2**30, 2**31) if name == "cudaMemGetInfo" else 5

    monkeypatch.setattr(cuda, "call", call)
    monkeypatch.setattr(jax, "local_devices", lambda: gpus)
    found = dict(_doctor._nvidia())
    assert (
        found["engines 1"]
        == "none (nvjpegCreateEx: ARCH_MISMATCH (7)): the multiprocessors and the host decode"
    )
    assert found["memory 0"].startswith("1.0 of 2.0 GiB")
    current = [each for each in current if each != ("cudaMemGetInfo",)]
    assert current[3:6] == [("cudaGetDevice",), ("cudaSetDevice", 1), ("cudaSetDevice", 5)]
    assert current[-1] == ("cudaSetDevice", 5)
