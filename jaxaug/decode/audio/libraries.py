"""The optional libraries that decode sound: miniaudio for FLAC and MP3, soundfile for Ogg."""

import importlib
from typing import Any

from jaxaug._install import install_command


def miniaudio() -> Any:
    """Return the module miniaudio: FLAC and MP3, twice as fast there as in libsndfile."""
    return _library("miniaudio", "FLAC and MP3")


def soundfile() -> Any:
    """Return the module soundfile: Ogg Vorbis and Opus."""
    return _library("soundfile", "Ogg Vorbis and Opus")


def _library(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} need {name}: {install_command('audio')}") from error
