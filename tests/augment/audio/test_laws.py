"""Every transform that `jaxaug.augment.audio` exports, against every law of transforms.

A new export needs one line in CASES. What is said of bits holds for programs as users compile them,
whatever XLA_FLAGS the tests have: see `optimized`.
"""

import dataclasses
import functools
import inspect
import os
import pickle
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment import audio
from tests.augment.audio.sounds import sound

ROWS = 8
SAMPLES = 1500
LENGTHS = (1500, 1400, 1, 700, 1499, 640, 0, 1000)
BINS = 20
FRAMES = 30


class Case(NamedTuple):
    """The arguments of a transform, and what its laws must know.

    Attributes:
      arguments: with which it does something to every sound.
      random: False where another key gives the same result.
      features: True where it takes features in place of a waveform.
      tolerance: by which a larger array may change what is used: an FFT of another size rounds
        otherwise.
    """

    arguments: Mapping[str, Any] = MappingProxyType({})
    random: bool = True
    features: bool = False
    tolerance: float = 0.0


BANK = np.stack([sound(seed, 300) for seed in range(3)])
SMALL = {"n_fft": 128, "hop": 64, "win": 100}

CASES = {
    "AddNoise": Case({"snr": (5, 10)}),
    "AmplitudeToDB": Case(random=False, features=True),
    "BandStop": Case({"taps": 63, "center": (500, 900)}, tolerance=1e-5),
    "Clip": Case({"db": (-12, -6)}),
    "Gain": Case({"db": (3, 6)}),
    "HighPass": Case({"cutoff": (500, 900), "taps": 63}, tolerance=1e-5),
    "LogMel": Case({**SMALL, "n_mels": BINS}, random=False, tolerance=1e-3),
    "LowPass": Case({"taps": 63, "cutoff": (500, 900)}, tolerance=1e-5),
    "MFCC": Case({**SMALL, "n_mels": BINS}, random=False, tolerance=1e-3),
    "MelSpectrogram": Case({**SMALL, "n_mels": BINS}, random=False, tolerance=1e-4),
    "Normalize": Case({"to": "rms"}, random=False),
    "PitchShift": Case({"semitones": (2, 4), "n_fft": 128}),
    "PolarityInversion": Case(random=False),
    "Preemphasis": Case(random=False),
    "RoomImpulse": Case({"bank": BANK}, tolerance=1e-5),
    "SpecAugment": Case({"warp": 3, "time_width": 8, "frequency_width": 6}, features=True),
    "Spectrogram": Case(SMALL, random=False, tolerance=1e-4),
    "Speed": Case({"factor": (0.8, 0.9)}),
    "Standardize": Case(random=False),
    "TimeMask": Case({"width": (0.2, 0.3)}),
    "TimeShift": Case(),
    "TimeStretch": Case({"factor": (0.8, 0.9), "n_fft": 128}),
    "TrimSilence": Case({"hop": 64, "db": 3}, random=False),
}
LONGER = ("Speed", "TimeStretch")  # a sound may become longer than its array
# Levels and noise are of all channels together, or features are given.
TOGETHER = ("AddNoise", "Standardize", "Normalize", "SpecAugment", "AmplitudeToDB", "TrimSilence")
KEYS = jax.random.split(jax.random.key(7), ROWS)
OTHER_KEYS = jax.random.split(jax.random.key(8), ROWS)


def exported():
    names = {name: getattr(audio, name) for name in dir(audio)}
    return sorted(
        name
        for name, value in names.items()
        if inspect.isclass(value)
        and issubclass(value, audio.AudioOp)
        and value is not audio.AudioOp
    )


NAMES = exported()
everything = pytest.mark.parametrize("name", NAMES)


def has_p(name):
    return "p" in {field.name for field in dataclasses.fields(getattr(audio, name))}


WITH_P = [name for name in NAMES if has_p(name)]


def build(name, **changes):
    return getattr(audio, name)(**{**CASES[name].arguments, **changes})


def always(name):
    return build(name, p=1.0) if has_p(name) else build(name)


def batch(name, samples=None, rest=0.0):
    """Return eight sounds of different lengths, one of them empty, with `rest` behind each."""
    features = CASES[name].features
    samples = samples or (FRAMES if features else SAMPLES)
    most = FRAMES if features else SAMPLES
    shape = (ROWS, samples, BINS) if features else (ROWS, samples)
    array = np.full(shape, rest, np.float32)
    lengths = np.array(LENGTHS, np.int32) * most // SAMPLES
    for row, length in enumerate(lengths):
        given = sound(row, length, BINS if features else None)
        array[row, :length] = np.abs(given) if features else given
    label = jnp.arange(ROWS, dtype=jnp.int32)
    return {"audio": jnp.asarray(array), "audio_length": jnp.asarray(lengths), "label": label}


def rows(tree, which):
    return jax.tree.map(lambda leaf: leaf[which], tree)


def equal(a, b, tolerance=0.0):
    def check(first, second):
        scale = max(np.abs(np.asarray(second, np.float64)).max(initial=0.0), 1e-30)
        np.testing.assert_allclose(first, second, rtol=0, atol=tolerance * scale)

    jax.tree.map(check, a, b)


@functools.cache
def optimized(name):
    """Return the transform of a batch as users compile it: without optimizations bits agree."""
    options = {"xla_backend_optimization_level": 3}
    if "xla_cpu_use_fusion_emitters" in os.environ.get("XLA_FLAGS", ""):  # newer ones know it not
        options["xla_cpu_use_fusion_emitters"] = True
    transform = always(name)
    batches = jax.vmap(lambda key, sample: transform(key, sample))
    return jax.jit(batches, compiler_options=options)


@functools.cache
def results(name):
    return jax.device_get(optimized(name)(KEYS, batch(name)))


@functools.cache
def laws(name):
    """Return what the other laws compare: compiling is what costs, so it is compiled as one."""
    transform = always(name)
    chain = augment.Compose([transform])
    never = build(name, p=0.0) if has_p(name) and name not in LONGER else None

    def of_one(key, sample):
        def total(audio):
            given = {"audio": audio, "audio_length": sample["audio_length"]}
            return transform(key, given)["audio"].sum()

        return {
            "called": transform(key, sample),
            "replayed": chain.apply(chain.make_params(key, sample), sample),
            "never": None if never is None else never(key, sample),
            "slopes": jax.grad(total)(sample["audio"]),
        }

    return jax.device_get(jax.jit(jax.vmap(of_one))(KEYS, batch(name)))


def test_the_table_is_that_of_the_exports():
    assert sorted(CASES) == NAMES


@everything
def test_config(name):
    transform = build(name)
    assert transform == build(name) and hash(transform) == hash(build(name))
    assert pickle.loads(pickle.dumps(transform)) == transform
    with pytest.raises(dataclasses.FrozenInstanceError):
        transform.like = "other"


@everything
def test_form_and_rest(name):
    out = results(name)
    assert set(out) == {"audio", "audio_length", "label"}
    assert out["audio"].dtype == np.float32 and out["audio_length"].dtype == np.int32
    assert np.isfinite(out["audio"]).all()
    equal(out["label"], np.arange(ROWS))
    for audio_, length in zip(out["audio"], out["audio_length"]):
        assert 0 <= length <= len(audio_) and not audio_[length:].any()


@everything
def test_a_replay_equals_the_call(name):
    equal(laws(name)["replayed"], laws(name)["called"])


@everything
def test_another_key_another_result(name):
    other = optimized(name)(OTHER_KEYS, batch(name))
    changed = (np.asarray(other["audio"]) != results(name)["audio"]).any()
    assert changed == CASES[name].random


# The padding of the others has the same bits, in a batch of three.
ROUNDED = [name for name in NAMES if CASES[name].tolerance or name in LONGER]


@pytest.mark.parametrize("name", ROUNDED)
def test_the_bits_do_not_depend_on_the_batch(name):
    part = optimized(name)(KEYS[:2], rows(batch(name), slice(2)))
    equal(jax.device_get(part), rows(results(name), slice(2)))


@everything
def test_what_lies_beyond_the_length_is_not_read(name):
    dirty = optimized(name)(KEYS, batch(name, rest=0.7))
    equal(jax.device_get(dirty), results(name))


@everything
def test_padding_changes_nothing(name):
    """Tight audio gives what it gives in a larger array with its length, in a batch of three."""
    larger = batch(name, samples=(FRAMES + 9 if CASES[name].features else SAMPLES + 300))
    padded = jax.device_get(optimized(name)(KEYS[:3], rows(larger, slice(3))))
    tight = rows(results(name), slice(3))
    count = tight["audio"].shape[1]
    if name in LONGER:  # slower sounds have room there
        assert (padded["audio_length"] >= tight["audio_length"]).all()
        count -= 1
    else:
        equal(padded["audio_length"], tight["audio_length"])
    for one, other in zip(padded["audio"], tight["audio"]):
        equal(one[:count], other[:count], CASES[name].tolerance)


@everything
def test_alone_and_in_two_channels_it_is_as_in_a_batch(name):
    """What [N] becomes, both channels of [N, 2] with the same sound become."""
    sample = rows(batch(name), 0)
    assert CASES[name].features or len(sample["audio"]) == sample["audio_length"]
    stereo = jnp.stack([sample["audio"]] * 2, axis=-1)
    given = [sample["audio"]] if name in TOGETHER else [sample["audio"], stereo]
    out = jax.jit(lambda key, given: [always(name)(key, each) for each in given])(KEYS[0], given)
    expected = results(name)["audio"][0]
    tolerance = max(CASES[name].tolerance, 1e-5)
    equal(np.asarray(out[0]), expected, tolerance)
    for channel in (0, 1) if name not in TOGETHER else ():
        equal(np.asarray(out[1][..., channel]), expected, tolerance)


@pytest.mark.parametrize("name", [name for name in WITH_P if name not in LONGER])
def test_never_is_the_identity(name):
    equal(laws(name)["never"], jax.device_get(batch(name)))


@pytest.mark.parametrize("name", WITH_P)
def test_p_is_a_probability(name):
    with pytest.raises(ValueError, match=r"`p` must be a probability in \[0, 1\], got 1.5"):
        build(name, p=1.5)


@everything
def test_no_dots_and_no_doubles_under_x64(name):
    transform = always(name)
    sample = rows(batch(name), 3)
    with jax.enable_x64(True):
        text = str(jax.make_jaxpr(transform)(KEYS[3], sample))
    assert "dot_general" not in text and "conv_general" not in text
    assert not re.search(r"f64\[\d|c128\[\d", text)


@everything
def test_what_is_drawn_is_arrays_and_slopes_are_finite(name):
    chain = augment.Compose([always(name)])
    drawn = chain.make_params(KEYS[3], rows(batch(name), 3))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(drawn))
    assert np.isfinite(laws(name)["slopes"]).all()


def numbers_of(name):
    transform = always(name)
    settings = {}
    for field in dataclasses.fields(transform):
        numbers = jax.tree.leaves(getattr(transform, field.name))
        if numbers and all(isinstance(number, float) for number in numbers):
            settings[field.name] = getattr(transform, field.name)
    static = {"power", "low", "high", "factor", "semitones"}
    return transform, {key: value for key, value in settings.items() if key not in static}


@pytest.mark.parametrize("name", [name for name in NAMES if numbers_of(name)[1]])
def test_traced_settings_give_what_numbers_give(name):
    transform, settings = numbers_of(name)
    traced = dataclasses.replace(transform, **jax.tree.map(jnp.float32, settings))
    sample = rows(batch(name), 3)

    def total(transform):
        out = transform(KEYS[3], sample)["audio"]
        return jnp.sum(out * out), out

    slopes, out = jax.jit(jax.grad(total, has_aux=True, allow_int=True))(traced)
    equal(np.asarray(out), results(name)["audio"][3], 1e-5)
    for slope in jax.tree.leaves(slopes):
        assert slope.dtype != np.float32 or np.isfinite(slope).all()
