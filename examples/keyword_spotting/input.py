"""From recordings to batches of log mel features: the source, the augmentations, the Loaders."""

import io
import wave
from pathlib import Path

import numpy as np

from jaxaug import Loader, augment, decode
from jaxaug.augment import audio
from jaxaug.iterators import InMemory, Renamed

RATE = 8000  # Hz
SECONDS = 0.8
BINS = 40
DIGITS = 10
# The frequencies of a telephone's keys, for where no recordings are given.
_ROWS = (697.0, 770.0, 852.0, 941.0)
_COLUMNS = (1209.0, 1336.0, 1477.0)

FEATURES = audio.LogMel(n_fft=256, hop=80, win=200, n_mels=BINS, rate=RATE)


def recordings(folder: Path) -> list[tuple[str, bytes]]:
    """Return (name, bytes) of the WAV files DIGIT_SPEAKER_TAKE.wav of a folder."""
    return [(path.name, path.read_bytes()) for path in sorted(folder.glob("*.wav"))]


def drawn_tones(takes: int = 40) -> list[tuple[str, bytes]]:
    """Return recordings of the keys of a telephone in noise, named as `recordings` are."""
    rng = np.random.default_rng(0)
    files = []
    for digit in range(DIGITS):
        for take in range(takes):
            files.append((f"{digit}_drawn_{take}.wav", _tone(digit, rng)))
    return files


def _tone(digit: int, rng: np.random.Generator) -> bytes:
    time = np.arange(round(RATE * rng.uniform(0.3, 0.7))) / RATE
    row, column = (3, 1) if digit == 0 else divmod(digit - 1, 3)
    tones = np.sin(2 * np.pi * _ROWS[row] * time) + np.sin(2 * np.pi * _COLUMNS[column] * time)
    samples = 0.2 * tones + 0.1 * rng.standard_normal(len(time))
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())
    return buffer.getvalue()


def split(files: list[tuple[str, bytes]], held_out: int, test: bool) -> Renamed:
    """Return the source of the takes below `held_out` of each speaker, or of the others."""
    chosen = []
    for name, data in files:
        digit, _, take = name.removesuffix(".wav").split("_")
        if (int(take) < held_out) == test:
            chosen.append((int(digit), data))
    labels = np.array([digit for digit, _ in chosen], np.int32)
    source = InMemory([data for _, data in chosen], {"label": labels})
    return Renamed(source, {"image": "audio"})


def train_loader(source: Renamed, batch_size: int, epochs: int, seed: int) -> Loader:
    """Return shuffled, augmented batches: shifted, faster or slower, noisy, masked."""
    transform = augment.Compose(
        [
            audio.Speed((0.85, 1.15)),
            audio.TimeShift((0.0, 0.15), mode="zero"),
            audio.AddNoise((10, 40)),
            FEATURES,
            audio.Standardize(),
            audio.SpecAugment(time_masks=1, time_width=10, frequency_masks=1, frequency_width=6),
        ]
    )
    clips = decode.Audio(rate=RATE, seconds=SECONDS)
    return Loader(
        source,
        batch_size,
        decode={"audio": clips},
        transform=transform,
        epochs=epochs,
        seed=seed,
    )


def test_loader(source: Renamed, batch_size: int) -> Loader:
    """Return ordered batches of one epoch; the last is padded."""
    return Loader(
        source,
        batch_size,
        decode={"audio": decode.Audio(rate=RATE, seconds=SECONDS, start=0)},
        transform=augment.Compose([FEATURES, audio.Standardize()]),
        shuffle=False,
        last_batch="pad",
        epochs=1,
    )
