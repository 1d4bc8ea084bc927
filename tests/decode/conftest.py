"""What several of the decoder's tests need."""

import pytest

from jaxaug.decode.native import nvjpeg


@pytest.fixture
def choose_nvjpeg(monkeypatch):
    """Gives a function that says which library is to be nvJPEG until the test ends."""

    def forget():
        nvjpeg.load.cache_clear()
        nvjpeg._find.cache_clear()

    def choose(path: str) -> None:
        monkeypatch.setenv("JAXAUG_NVJPEG", path)
        forget()

    yield choose
    forget()
