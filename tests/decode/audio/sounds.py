"""Sound files for tests, as bytes."""

import io

import numpy as np
import soundfile

SUBTYPES = {
    "wav8": ("WAV", "PCM_U8"),
    "wav16": ("WAV", "PCM_16"),
    "wav24": ("WAV", "PCM_24"),
    "wav32": ("WAV", "PCM_32"),
    "wavf32": ("WAV", "FLOAT"),
    "wavf64": ("WAV", "DOUBLE"),
    "wavex": ("WAVEX", "PCM_16"),
    "rf64": ("RF64", "PCM_16"),
    "flac16": ("FLAC", "PCM_16"),
    "flac24": ("FLAC", "PCM_24"),
    "vorbis": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
EXACT = ("wav8", "wav16", "wavex", "rf64", "flac16")


def wave(seed, frames, channels=1, rate=16_000):
    """Return tones [frames, channels] within [-1, 1], one of each channel."""
    time = np.arange(frames)[:, None] / rate
    tones = 200 + 50 * seed + 100 * np.arange(channels)
    return 0.6 * np.sin(2 * np.pi * tones * time + seed)


def encoded(kind, samples, rate=16_000):
    """Return the bytes of a file of samples [frames, channels]."""
    container, subtype = SUBTYPES[kind]
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=container, subtype=subtype)
    return buffer.getvalue()


def decoded(data):
    """Return what libsndfile reads, float32[frames, channels]."""
    return soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)[0]


def checksum(page):
    """Return the checksum of a page of Ogg, RFC 3533, bit by bit."""
    value = 0
    for byte in page:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1 ^ (0x04C11DB7 if value >> 31 else 0)) & 0xFFFFFFFF
    return value
