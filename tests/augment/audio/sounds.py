"""Sounds for tests."""

import numpy as np


def sound(seed, samples, channels=None):
    """Return a gliding tone with some noise, float32 [N] or [N, channels] within [-1, 1]."""
    rng = np.random.default_rng(seed)
    shape = (samples,) if channels is None else (samples, channels)
    time = np.arange(samples).reshape(-1, *(1 for _ in shape[1:])) / 16_000
    tone = 0.4 * np.sin(2 * np.pi * (300 + 90 * seed) * (time + 2 * time**2))
    return (tone + 0.05 * rng.standard_normal(shape)).astype(np.float32)
