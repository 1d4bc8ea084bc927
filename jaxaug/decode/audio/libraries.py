"""The optional libraries that decode sound."""

from typing import Any

from jaxaug.decode._libraries import needed


def miniaudio() -> Any:
    """Return the module miniaudio: FLAC and MP3, twice as fast there as in libsndfile."""
    return needed("miniaudio", "FLAC and MP3", "audio")


def soundfile() -> Any:
    """Return the module soundfile: Ogg Vorbis and ADPCM."""
    return needed("soundfile", "Ogg Vorbis and ADPCM", "audio")


def av() -> Any:
    """Return the module av, PyAV: AAC and what else FFmpeg reads, the sound of videos."""
    return needed("av", "AAC, M4A and the sound of a video", "audio")
