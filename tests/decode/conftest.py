"""Fixtures of the decoder's tests."""

import pytest

from jaxaug.decode.native import libnvjpeg
from tests.decode.fake_gpu import gpu as gpu


@pytest.fixture
def choose_nvjpeg(monkeypatch):
    """A function that sets the path of nvJPEG's library until the test ends."""

    def forget():
        libnvjpeg.load.cache_clear()
        libnvjpeg._find.cache_clear()

    def choose(path: str) -> None:
        monkeypatch.setenv("JAXAUG_NVJPEG", path)
        forget()

    yield choose
    forget()
