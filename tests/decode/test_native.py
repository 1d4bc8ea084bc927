"""Finding the library and choosing the backend, where there is no GPU."""

import jax
import numpy as np
import pytest

from jaxaug.decode import Decoder
from jaxaug.decode._routes import Balance
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


def simulate(balance, engines, threads, batches, images=256, calls=1):
    """Let the two sides decode at these seconds for n images, `calls` batches at a time; the shares of the threads."""
    shares, now = [], balance._last_end + 1.0
    for _ in range(batches):
        ways = balance.divide(np.zeros(images, np.uint8), np.full(images, 0x11111100))
        count = int((ways == 1).sum())
        shares.append(count / images)
        if count < images:
            started, now = now, now + engines(images - count)
            balance.learn_engines(started - (calls - 1) * engines(images - count), now, images - count)
        if count:
            balance.learn_threads(threads(count) * 14, count)
    return np.array(shares)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("rate", [6000, 12000])
def test_the_balance_makes_both_sides_finish_together(rate, calls):
    shares = simulate(Balance(14), lambda n: n / 24000, lambda n: n / rate, 300, calls=calls)
    assert abs(shares[-50:].mean() - rate / (24000 + rate)) < 0.01


def test_what_only_the_threads_decode_counts_for_their_share():
    divided = Balance(8).divide(np.repeat(np.array([0, 1], np.uint8), (200, 56)), np.full(256, 0x11111100))
    assert (divided == 0).sum() == 200  # they begin with a fifth: 51 of 256
    divided = Balance(8).divide(np.repeat(np.array([0, 1], np.uint8), (240, 16)), np.full(256, 0x11111100))
    assert (divided == 1).sum() == 51


def test_a_small_batch_is_not_delayed_by_the_threads():
    shares = simulate(Balance(14), lambda n: n / 24000, lambda n: n / 6000, 63, images=32)
    assert (shares == 0).all()


@pytest.mark.parametrize("images", [32, 256])
def test_engines_that_wait_for_a_training_are_left_alone_and_tried_again(images):
    balance = Balance(14)
    busy = simulate(balance, lambda n: 0.13 + n / 24000, lambda n: n / 6000, 600, images)
    assert (busy[-200:] == 1).mean() > 0.9 and (busy[-200:] < 1).any()
    free = simulate(balance, lambda n: n / 24000, lambda n: n / 6000, 1500, images)
    assert abs(free[-50:].mean() - (0.2 if images == 256 else 0)) < 0.05
