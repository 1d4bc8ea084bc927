"""The optional libraries that decode sound."""

import importlib
from typing import Any

from jaxaug._install import install_command


def miniaudio() -> Any:
    """Return the module miniaudio: FLAC and MP3, twice as fast there as in libsndfile."""
    return _library("miniaudio", "FLAC and MP3 need")


def soundfile() -> Any:
    """Return the module soundfile: Ogg Vorbis and ADPCM."""
    return _library("soundfile", "Ogg Vorbis and ADPCM need")


def av() -> Any:
    """Return the module av, PyAV: AAC and what else FFmpeg reads, the sound of videos."""
    return _library("av", "AAC, M4A and the sound of a video need")


def _library(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} {name}: {install_command('audio')}") from error
