"""What several of the decoder's tests need."""

import pytest

from jaxaug.decode.native import libnvjpeg


@pytest.fixture
def choose_nvjpeg(monkeypatch):
    """Gives a function that says which library is to be nvJPEG until the test ends."""

    def forget():
        libnvjpeg.load.cache_clear()
        libnvjpeg._find.cache_clear()

    def choose(path: str) -> None:
        monkeypatch.setenv("JAXAUG_NVJPEG", path)
        forget()

    yield choose
    forget()
