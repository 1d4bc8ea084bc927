"""Random transforms of sound, and features of it, as pure functions of (key, sample).

A sample has an "audio", float32 [N] or [N, channels] in [-1, 1], and, where that is padded, its
"audio_length". One sound a call, batches through `jax.vmap`; `Compose` and the choices take these
transforms as they take those of images. A spectrogram takes the place of the waveform, frames
first, and "audio_length" counts frames then. What lies beyond the length is never read.

The functions in lower case are the pure halves. An operator of your own derives from `AudioOp`.
"""

from jaxaug.augment.audio._kind import AudioOp
from jaxaug.augment.audio.filters import (
    BandStop,
    HighPass,
    LowPass,
    Preemphasis,
    RoomImpulse,
    band_stop,
    convolve,
    high_pass,
    low_pass,
    low_pass_taps,
    preemphasis,
)
from jaxaug.augment.audio.level import (
    Clip,
    Gain,
    Normalize,
    PolarityInversion,
    Standardize,
    clip,
    gain,
)
from jaxaug.augment.audio.masks import SpecAugment, mask_bands, warp_time
from jaxaug.augment.audio.mix import MixUp
from jaxaug.augment.audio.noise import AddNoise, add_noise, white_noise
from jaxaug.augment.audio.pitch import PitchShift, TimeStretch, pitch_shift, stretch
from jaxaug.augment.audio.spectrum import (
    MFCC,
    AmplitudeToDB,
    LogMel,
    MelSpectrogram,
    Spectrogram,
    amplitude_to_db,
    cepstrum,
    frame_count,
    mel_scale,
    spectrogram,
)
from jaxaug.augment.audio.timing import Speed, TimeMask, TimeShift, shift, silence, speed
from jaxaug.augment.audio.trim import TrimSilence, nonsilent_region

__all__ = [
    "MFCC",
    "AddNoise",
    "AmplitudeToDB",
    "AudioOp",
    "BandStop",
    "Clip",
    "Gain",
    "HighPass",
    "LogMel",
    "LowPass",
    "MelSpectrogram",
    "MixUp",
    "Normalize",
    "PitchShift",
    "PolarityInversion",
    "Preemphasis",
    "RoomImpulse",
    "SpecAugment",
    "Spectrogram",
    "Speed",
    "Standardize",
    "TimeMask",
    "TimeShift",
    "TimeStretch",
    "TrimSilence",
    "add_noise",
    "amplitude_to_db",
    "band_stop",
    "cepstrum",
    "clip",
    "convolve",
    "frame_count",
    "gain",
    "high_pass",
    "low_pass",
    "low_pass_taps",
    "mask_bands",
    "mel_scale",
    "nonsilent_region",
    "pitch_shift",
    "preemphasis",
    "shift",
    "silence",
    "spectrogram",
    "speed",
    "stretch",
    "warp_time",
    "white_noise",
]
