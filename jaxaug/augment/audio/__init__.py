"""Random transforms of sound, and features of it, as pure functions of (key, sample).

A sample has an "audio", float32 [N] or [N, channels] in [-1, 1], and, where that is padded, its
"audio_length". One sound a call, batches through `jax.vmap`; `Compose` and the choices take these
transforms as they take those of images. A spectrogram takes the place of the waveform, frames
first, and "audio_length" counts frames then. What lies beyond the length is never read.

The functions in lower case are the pure halves. An operator of your own derives from `AudioOp`.
"""

from jaxaug.augment.audio._kind import AudioOp as AudioOp
from jaxaug.augment.audio.filters import HighPass as HighPass
from jaxaug.augment.audio.filters import LowPass as LowPass
from jaxaug.augment.audio.filters import Preemphasis as Preemphasis
from jaxaug.augment.audio.filters import RoomImpulse as RoomImpulse
from jaxaug.augment.audio.filters import convolve as convolve
from jaxaug.augment.audio.filters import high_pass as high_pass
from jaxaug.augment.audio.filters import low_pass as low_pass
from jaxaug.augment.audio.filters import low_pass_taps as low_pass_taps
from jaxaug.augment.audio.filters import preemphasis as preemphasis
from jaxaug.augment.audio.level import Clip as Clip
from jaxaug.augment.audio.level import Gain as Gain
from jaxaug.augment.audio.level import Normalize as Normalize
from jaxaug.augment.audio.level import PolarityInversion as PolarityInversion
from jaxaug.augment.audio.level import Standardize as Standardize
from jaxaug.augment.audio.level import clip as clip
from jaxaug.augment.audio.level import gain as gain
from jaxaug.augment.audio.masks import SpecAugment as SpecAugment
from jaxaug.augment.audio.masks import mask_bands as mask_bands
from jaxaug.augment.audio.masks import warp_time as warp_time
from jaxaug.augment.audio.noise import AddNoise as AddNoise
from jaxaug.augment.audio.noise import add_noise as add_noise
from jaxaug.augment.audio.noise import white_noise as white_noise
from jaxaug.augment.audio.spectrum import MFCC as MFCC
from jaxaug.augment.audio.spectrum import AmplitudeToDB as AmplitudeToDB
from jaxaug.augment.audio.spectrum import LogMel as LogMel
from jaxaug.augment.audio.spectrum import MelSpectrogram as MelSpectrogram
from jaxaug.augment.audio.spectrum import Spectrogram as Spectrogram
from jaxaug.augment.audio.spectrum import amplitude_to_db as amplitude_to_db
from jaxaug.augment.audio.spectrum import cepstrum as cepstrum
from jaxaug.augment.audio.spectrum import frame_count as frame_count
from jaxaug.augment.audio.spectrum import mel_scale as mel_scale
from jaxaug.augment.audio.spectrum import spectrogram as spectrogram
from jaxaug.augment.audio.timing import Speed as Speed
from jaxaug.augment.audio.timing import TimeMask as TimeMask
from jaxaug.augment.audio.timing import TimeShift as TimeShift
from jaxaug.augment.audio.timing import shift as shift
from jaxaug.augment.audio.timing import silence as silence
from jaxaug.augment.audio.timing import speed as speed
