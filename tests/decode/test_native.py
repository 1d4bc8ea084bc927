"""Finding the library and choosing the backend, where there is no GPU."""

import jax
import pytest

from jaxaug.decode import Decoder
from jaxaug.decode.native import _load, _nvjpeg


def test_a_missing_library_names_what_was_tried(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXAUG_TEST_LIBRARY", str(tmp_path / "libnone.so"))
    with pytest.raises(ImportError, match=r"(?s)libx\.so.*libnone\.so.*install this"):
        _load.load_library(("libx.so",), (), "JAXAUG_TEST_LIBRARY", "install this")


def test_a_library_without_the_functions_is_too_old(choose_nvjpeg):
    choose_nvjpeg("libc.so.6")  # a library that is surely there, and surely has none of them
    with pytest.raises(ImportError, match=r"too old: it has no nvjpegGetProperty.*cuda13"):
        _nvjpeg.load()


def test_nvjpeg_wants_gpus_and_auto_does_not(cpu_devices):
    with pytest.raises(ValueError, match=r"must be NVIDIA GPUs for backend='nvjpeg'.*'auto' or 'host'"):
        Decoder((64, 64), "nvjpeg", cpu_devices[:1])
    with Decoder((64, 64), "auto", cpu_devices[:1]) as decoder:
        assert decoder.backend == "host"


def test_status_codes_have_names():
    assert str(_nvjpeg.NvjpegError("nvjpegDecode", 4)) == "nvjpegDecode: JPEG_NOT_SUPPORTED (4)"
    assert "unknown" in str(_nvjpeg.NvjpegError("nvjpegDecode", 99))
    assert jax.devices("cpu")
