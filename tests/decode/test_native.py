"""Finding the library and choosing the backend, where there is no GPU."""

import jax
import numpy as np
import pytest

from jaxaug.decode import Decoder
from jaxaug.decode._nvjpeg import Balance
from jaxaug.decode.native import _load, _nvjpeg


def _forget_library():
    _nvjpeg.library.cache_clear()
    _nvjpeg._find.cache_clear()


def test_a_missing_library_names_what_was_tried(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXAUG_TEST_LIBRARY", str(tmp_path / "libnone.so"))
    with pytest.raises(ImportError, match=r"(?s)libx\.so.*libnone\.so.*install this"):
        _load.load_library(("libx.so",), (), "JAXAUG_TEST_LIBRARY", "install this")


def test_a_library_without_the_functions_is_too_old(monkeypatch):
    monkeypatch.setenv("JAXAUG_NVJPEG", "libc.so.6")  # a library that is surely there, and surely has none of them
    _forget_library()
    try:
        with pytest.raises(ImportError, match=r"too old: it has no nvjpegGetProperty.*cuda13"):
            _nvjpeg.library()
    finally:
        _forget_library()


def test_nvjpeg_wants_gpus_and_auto_does_not(cpu_devices):
    with pytest.raises(ValueError, match=r"must be NVIDIA GPUs for backend='nvjpeg'.*'auto' or 'host'"):
        Decoder((64, 64), "nvjpeg", cpu_devices[:1])
    with Decoder((64, 64), "auto", cpu_devices[:1]) as decoder:
        assert decoder.backend == "host"


def test_status_codes_have_names():
    assert str(_nvjpeg.NvjpegError("nvjpegDecode", 4)) == "nvjpegDecode: JPEG_NOT_SUPPORTED (4)"
    assert "unknown" in str(_nvjpeg.NvjpegError("nvjpegDecode", 99))
    assert jax.devices("cpu")


def simulate(balance, engine, thread, batches, images=256):
    """Let the two sides decode at these seconds an image, engine(count) and thread(count); the shares they took."""
    shares = []
    for _ in range(batches):
        ways = balance.divide(np.zeros(images, np.uint8), np.full(images, 0x11111100))
        count = int((ways == 1).sum())
        shares.append(count / images)
        if 0 < count < images:
            balance.learn(engine(images - count), thread(count))
    return np.array(shares)


def test_the_balance_makes_both_sides_finish_together():
    shares = simulate(Balance(), lambda n: n / 24000, lambda n: n / 6000, 300)
    assert abs(shares[-50:].mean() - 0.2) < 0.02  # 6,000 of 30,000 images a second
    shares = simulate(Balance(), lambda n: n / 24000, lambda n: n / 1000, 300)
    assert shares[-50:].mean() < 0.08


def test_engines_that_wait_for_a_training_are_left_alone_and_tried_again():
    balance = Balance()
    busy = simulate(balance, lambda n: 0.05 + n / 24000, lambda n: n / 6000, 300)
    assert (busy[-200:] == 1).mean() > 0.95 and (busy[-200:] < 1).any()
    free = simulate(balance, lambda n: n / 24000, lambda n: n / 6000, 400)
    assert abs(free[-50:].mean() - 0.2) < 0.03
