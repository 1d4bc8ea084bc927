"""The pure halves against oracles: NumPy in float64, SciPy; librosa and soxr where installed."""

import importlib.util
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from jaxaug import augment
from jaxaug._sinc import RESAMPLE, resample, resampled_length
from jaxaug.augment import audio
from tests.augment.audio.sounds import sound
from tests.reference import sound as reference

KEY = jax.random.key(0)
WAVE = sound(0, 6000)
LIKE = ("librosa", "torchaudio", "dali", "kaldi")
SMALL = {"n_fft": 512, "hop": 160, "win": 400}


def close(values, expected, tolerance):
    """Compare elementwise, relative to the peak."""
    assert values.shape == expected.shape
    np.testing.assert_allclose(
        np.asarray(values, np.float64), expected, rtol=0, atol=tolerance * np.abs(expected).max()
    )


def test_bands_that_no_frequency_reaches_are_told():
    with pytest.warns(RuntimeWarning, match="8 of the 80 mel bands from 0 to 12000 Hz are always"):
        mel = audio.MelSpectrogram(n_mels=80, high=12_000.0)(KEY, WAVE)
    assert int((np.asarray(mel) == 0).all(axis=0).sum()) == 8


@pytest.mark.parametrize("like", LIKE)
def test_features_are_those_of_the_library(like):
    spectrum, mel, logarithms = reference.log_mel(WAVE, like)
    features = {
        "spectrum": audio.Spectrogram(like=like),
        "mel": audio.MelSpectrogram(n_mels=40, like=like),
        "logarithms": audio.LogMel(n_mels=40, like=like),
        "cepstra": audio.MFCC(n_mels=40, like=like),
    }
    found = jax.jit(lambda wave: {name: each(KEY, wave) for name, each in features.items()})(WAVE)
    close(found["spectrum"], spectrum, 2e-6)
    close(found["mel"], mel, 5e-6)
    close(found["logarithms"], logarithms, 1e-5)
    if like == "torchaudio":
        logarithms = np.maximum(logarithms, logarithms.max() - 80)
    expected = reference.cepstra(logarithms, 13, like)
    close(found["cepstra"], expected, 1e-5)


@pytest.mark.parametrize("length, win", [(1, 400), (2, 399), (150, 400), (900, 399)])
def test_short_sounds_are_reflected_about_both_ends(length, win):
    """As np.pad folds them, several times where they are shorter than half of a window."""
    given = np.zeros(900, np.float32)
    given[:length] = WAVE[:length]
    padded = np.zeros(1300)
    folded = np.pad(WAVE[:length].astype(np.float64), 200, mode="reflect")
    padded[: len(folded)] = folded
    frames = np.stack([padded[start : start + win] for start in range(0, 901, 160)])
    expected = reference.powers(frames, reference.windows("torchaudio", win), 512)
    sample = {"audio": given, "audio_length": jnp.int32(length)}
    out = audio.Spectrogram(win=win, like="torchaudio")(KEY, sample)
    used = int(out["audio_length"])
    assert used == 1 + length // 160
    close(out["audio"][:used], expected[:used], 2e-6)


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize(
    "n_fft, hop, win",
    [
        (128, 64, 102),
        (128, 100, 100),
        (128, 120, 50),
        (128, 64, 101),
        (101, 50, 101),
    ],
)
def test_windows_of_any_width_and_step(like, n_fft, hop, win):
    """The last of the 960 samples is the middle of a window where `hop` divides them."""
    size = {"n_fft": n_fft, "hop": hop, "win": win}
    expected, _, _ = reference.log_mel(WAVE[:960], like, **size, n_mels=10)
    spectrogram = jax.jit(lambda wave: audio.spectrogram(wave, like=like, **size))
    close(spectrogram(WAVE[:960]), expected, 2e-6)


def test_frames_of_a_sound_shorter_than_one():
    assert audio.spectrogram(WAVE[:9], like="torchaudio", **SMALL).shape == (1, 257)
    assert audio.spectrogram(WAVE[:9], like="kaldi", **SMALL).shape == (0, 257)


def test_magnitudes_and_decibels_of_them():
    spectrum, *_ = reference.log_mel(WAVE, "librosa")
    magnitudes = audio.Spectrogram(power=1)(KEY, WAVE)
    close(magnitudes, np.sqrt(spectrum), 2e-6)
    decibels = 10 * np.log10(np.maximum(spectrum, 1e-10))
    decibels = np.maximum(decibels, decibels.max() - 80)
    close(audio.AmplitudeToDB(power=1)(KEY, magnitudes), decibels, 1e-5)


def test_features_are_those_of_librosa():
    librosa = pytest.importorskip("librosa")
    mel = librosa.feature.melspectrogram(
        y=WAVE, sr=16_000, n_fft=512, hop_length=160, win_length=400, n_mels=80
    )
    decibels = librosa.power_to_db(mel)
    close(audio.MelSpectrogram()(KEY, WAVE), mel.T, 5e-6)
    close(audio.LogMel()(KEY, WAVE), decibels.T, 1e-5)
    close(audio.MFCC()(KEY, WAVE), librosa.feature.mfcc(S=decibels, n_mfcc=13).T, 1e-5)
    emphasized = librosa.effects.preemphasis(WAVE)
    close(audio.Preemphasis(like="librosa")(KEY, WAVE), emphasized, 1e-7)


@pytest.mark.parametrize("like, first", [("torchaudio", 1.0), ("kaldi", 0.03), ("dali", 0.03)])
def test_preemphasis_begins_as_the_library(like, first):
    expected = scipy.signal.lfilter([1, -0.97], [1], WAVE.astype(np.float64))
    expected[0] = first * WAVE[0]
    close(audio.Preemphasis(like=like)(KEY, WAVE), expected, 1e-6)


@pytest.mark.parametrize("cutoff", [300.0, 2500.0])
def test_filters_are_those_of_scipy(cutoff):
    taps = scipy.signal.firwin(255, cutoff / 8000)
    low = scipy.signal.fftconvolve(WAVE.astype(np.float64), taps)[127:-127]
    close(audio.low_pass(jnp.asarray(WAVE), cutoff), low, 1e-6)
    close(audio.high_pass(jnp.asarray(WAVE), cutoff), WAVE - low, 1e-5)


def test_a_stopped_band_is_that_of_two_filters_of_scipy():
    low, high = (scipy.signal.firwin(255, cutoff / 8000) for cutoff in (500, 1500))
    band = scipy.signal.fftconvolve(WAVE.astype(np.float64), high - low)[127:-127]
    transform = audio.BandStop((1000, 1000), (1, 1))
    close(transform(KEY, WAVE), WAVE - band, 1e-6)


def test_a_band_above_half_of_the_rate_stops_nothing():
    transform = audio.BandStop((6000, 6000), (0.5, 0.5), rate=8000)
    close(transform(KEY, WAVE), WAVE, 1e-7)


def test_a_room_is_a_convolution():
    impulse = sound(3, 700) * np.exp(-np.arange(700) / 100).astype(np.float32)
    expected = np.convolve(WAVE.astype(np.float64), impulse)[: len(WAVE)]
    close(audio.RoomImpulse(impulse, normalize=False)(KEY, WAVE), expected, 1e-6)
    expected /= np.sqrt((impulse.astype(np.float64) ** 2).sum())
    close(audio.RoomImpulse(impulse)(KEY, WAVE), expected, 1e-6)


@pytest.mark.parametrize("snr", [-3.0, 20.0])
@pytest.mark.parametrize("bank", [None, sound(5, 999)])
def test_noise_has_its_ratio(snr, bank):
    sample = {"audio": np.pad(WAVE, (0, 500)), "audio_length": jnp.int32(len(WAVE))}
    noisy = audio.AddNoise((snr, snr), bank)(KEY, sample)["audio"]
    noise = np.asarray(noisy, np.float64)[: len(WAVE)] - WAVE
    measured = 10 * np.log10((WAVE.astype(np.float64) ** 2).mean() / (noise**2).mean())
    assert abs(measured - snr) < 1e-3


def test_recorded_noise_is_repeated_from_a_random_place():
    bank = sound(5, 999)
    noise = np.asarray(audio.AddNoise((0, 0), bank)(KEY, np.ones(3000, np.float32))) - 1
    shifts = [np.corrcoef(noise[:999], np.roll(bank, -k))[0, 1] for k in range(999)]
    assert max(shifts) > 0.9999
    np.testing.assert_allclose(noise[:999], noise[999:1998], atol=1e-6)


def test_levels():
    loud = audio.Normalize(db=-6)(KEY, WAVE)
    assert abs(20 * np.log10(np.abs(loud).max()) + 6) < 1e-4
    even = audio.Normalize("rms", db=-20)(KEY, WAVE)
    assert abs(10 * np.log10((np.asarray(even, np.float64) ** 2).mean()) + 20) < 1e-4
    spectrum, *_ = reference.log_mel(WAVE, "librosa")
    features = spectrum.astype(np.float32)
    expected = (spectrum - spectrum.mean(axis=0)) / spectrum.std(axis=0)
    close(audio.Standardize("bins", epsilon=0)(KEY, features), expected, 2e-5)
    expected = (spectrum - spectrum.mean()) / spectrum.std()
    close(audio.Standardize(epsilon=0)(KEY, features), expected, 2e-5)
    assert not np.asarray(audio.Normalize()(KEY, WAVE * 0)).any()


def tone(frequency, rate, samples):
    return np.sin(2 * np.pi * frequency * np.arange(samples) / rate)


MORE_RATES = [pytest.param(rate, marks=pytest.mark.slow) for rate in (11_025, 32_000, 96_000)]


@pytest.mark.parametrize("rate", [8000, 22_050, 44_100, 48_000, *MORE_RATES])
def test_resampling_passes_what_fits_and_stops_the_rest(rate):
    """0.1 dB up to 0.91 of the lower Nyquist frequency, -90 dB from it on."""
    divisor = math.gcd(rate, 16_000)
    up, down = 16_000 // divisor, rate // divisor

    @jax.jit
    def resampled(given):
        return resample(given, up, down, samples=8000, shrink=down / up)

    def heard(frequency):
        given = tone(frequency, rate, rate // 2).astype(np.float32)
        return np.asarray(resampled(given), np.float64)[500:-500]

    lower = min(rate, 16_000) / 2
    for part in (0.1, 0.5, 0.91):
        expected = tone(part * lower, 16_000, 8000)[500:-500]
        assert np.abs(heard(part * lower) - expected).max() < 1e-4
    if rate > 16_000:
        for frequency in (1.001 * lower, 1.2 * lower):
            assert 10 * np.log10(2 * (heard(frequency) ** 2).mean()) < -90


@pytest.mark.parametrize("up, down", [(1, 3), (160, 441), (1, 1), (2, 1)])
def test_resampling_is_its_formula(up, down):
    """In float64, tap by tap; room for a higher rate adds none."""
    given = sound(2, 600)
    scale = min(1, up / down)
    places = np.arange(50) * down / up + 250
    t = np.arange(600) - places[:, None]
    width = RESAMPLE.zeros / scale
    window = np.i0(RESAMPLE.beta * np.sqrt(np.clip(1 - (t / width) ** 2, 0, 1)))
    window *= (np.abs(t) < width) / np.i0(RESAMPLE.beta)
    cutoff = scale * RESAMPLE.cutoff
    expected = (cutoff * np.sinc(cutoff * t) * window) @ np.asarray(given, np.float64)

    got = resample(given, up, down, samples=50, shrink=4.0, first=250)
    close(got, expected, 2e-6)


def test_resampling_is_that_of_soxr():
    soxr = pytest.importorskip("soxr")
    low = audio.low_pass(jnp.asarray(sound(1, 24_000)), 6000.0, rate=48_000)
    expected = soxr.resample(np.asarray(low), 48_000, 16_000, quality="HQ")
    got = resample(low, 1, 3, samples=len(expected), shrink=3.0)
    close(got[200:-200], expected[200:-200], 10 ** (-90 / 20))


def test_the_filter_ends_at_the_half_of_the_lower_rate():
    transition = 2 * (1 - RESAMPLE.cutoff)
    assert 1 - transition > 0.913


@pytest.mark.parametrize("length, up, down", [(0, 3, 7), (1, 1, 3), (10**9, 160, 441), (5, 2, 1)])
def test_the_length_at_another_rate(length, up, down):
    expected = -(-length * up // down)
    assert int(resampled_length(length, up, down)) == expected


def test_a_speed_is_a_rate():
    given = tone(440, 16_000, 16_000).astype(np.float32)
    fast = audio.Speed((1.25, 1.25))(KEY, {"audio": given})
    assert int(fast["audio_length"]) == 12_800
    expected = tone(550, 16_000, 12_800)
    got = np.asarray(fast["audio"], np.float64)[:12_800]
    np.testing.assert_allclose(got[200:-200], expected[200:-200], atol=2e-4)


@pytest.mark.parametrize("thousandths", [800, 1000, 1370])
def test_a_tempo_is_that_of_a_phase_vocoder_in_doubles(thousandths):
    given = sound(2, 3000)
    got = audio.stretch(jnp.asarray(given), 1000, thousandths, samples=3000 * 1000 // thousandths)
    expected = reference.stretched(given, thousandths / 1000, 512)
    close(got, expected[: len(got)], 2e-4)


def test_a_pitch_is_a_ratio_of_frequencies():
    given = tone(440, 16_000, 8000).astype(np.float32)
    out = np.asarray(audio.PitchShift((7, 7))(KEY, given), np.float64)
    assert out.shape == given.shape
    spectrum = np.abs(np.fft.rfft(out[1000:-1000] * np.hanning(6000), 65536))
    assert abs(spectrum.argmax() * 16_000 / 65536 - 440 * 2 ** (7 / 12)) < 0.5
    assert 0.8 < np.abs(out[1000:-1000]).max() < 1.1


@pytest.mark.parametrize("before, after", [(0, 900), (1234, 0), (777, 1500)])
def test_silence_is_cut_off_where_librosa_does(before, after):
    quiet = 1e-4 * np.random.default_rng(0).standard_normal(6000 + before + after)
    given = quiet.astype(np.float32)
    given[before : before + 6000] += WAVE
    padded = {"audio": np.pad(given, (0, 700)), "audio_length": jnp.int32(len(given))}
    out = audio.TrimSilence(40, hop=128)(KEY, padded)
    start, length = reference.loud_region(given, 40, 128)
    assert int(out["audio_length"]) == length
    np.testing.assert_array_equal(out["audio"][:length], given[start : start + length])
    assert not np.asarray(out["audio"])[length:].any()
    if importlib.util.find_spec("librosa"):
        import librosa

        _, (first, last) = librosa.effects.trim(given, top_db=40, frame_length=512, hop_length=128)
        assert (first, last - first) == (start, length)


def test_silence_alone_is_cut_to_nothing():
    out = audio.TrimSilence()(KEY, {"audio": np.zeros(3000, np.float32)})
    assert int(out["audio_length"]) == 0


def test_draws_behind_a_trim_see_what_is_left():
    """A shift by half of the length, of a sound of which a third is silence."""
    given = np.concatenate([WAVE, 0 * WAVE[:3000]])
    chain = augment.Compose([audio.TrimSilence(60, hop=100), audio.TimeShift((0.5, 0.5))])
    out = chain(KEY, {"audio": given})
    length = int(out["audio_length"])
    assert 6000 <= length <= 6200
    np.testing.assert_array_equal(out["audio"][length // 2 : length // 2 + 2000], WAVE[:2000])


def test_sounds_and_labels_are_mixed_by_one_weight():
    group = {"audio": jnp.stack([jnp.asarray(WAVE), 2 * WAVE[::-1]]), "label": jnp.array([0, 2])}
    group["audio_length"] = jnp.array([4000, 6000])
    mixed = audio.MixUp(3)(KEY, group)
    share = np.asarray(mixed["label"])[[0, 1], [0, 2]]
    assert ((share > 0) & (share < 1)).all() and share[0] != share[1]
    np.testing.assert_allclose(mixed["label"].sum(axis=1), 1, rtol=1e-6)
    close(mixed["audio"][0], share[0] * WAVE + (1 - share[0]) * 2 * WAVE[::-1], 1e-6)
    close(mixed["audio"][1], share[1] * 2 * WAVE[::-1] + (1 - share[1]) * WAVE, 1e-6)
    assert mixed["audio_length"].tolist() == [6000, 6000]

    alone = audio.MixUp(3)(KEY, {**group, "valid": jnp.array([True, False])})
    np.testing.assert_array_equal(alone["audio"][0], WAVE)
    assert alone["audio_length"][0] == 4000 and alone["label"][0].tolist() == [1, 0, 0]
    never = audio.MixUp(3, p=0.0)(KEY, group)
    np.testing.assert_array_equal(never["audio"], group["audio"])
    with pytest.raises(ValueError, match="a group must have an 'audio', got the keys"):
        audio.MixUp(3)(KEY, {"image": jnp.zeros((2, 8, 8, 3))})


def test_each_of_several_clips_is_mixed_with_its_partners():
    clips = np.random.default_rng(0).normal(size=(2, 3, 40)).astype(np.float32)
    group = {"audio": clips, "audio_length": np.array([[40, 10, 5], [30, 20, 0]])}
    mixed = audio.MixUp()(KEY, group)
    weights = (np.asarray(mixed["audio"]) - clips[::-1])[:, 0, 0] / (clips - clips[::-1])[:, 0, 0]
    share = weights[:, None, None]
    np.testing.assert_allclose(mixed["audio"], share * clips + (1 - share) * clips[::-1], atol=1e-6)
    assert (weights < 1).all()
    np.testing.assert_array_equal(mixed["audio_length"], [[40, 20, 5], [40, 20, 5]])


def test_chains_of_groups_take_sounds():
    chain = augment.GroupCompose([audio.MixUp(), audio.LogMel(n_mels=20)])
    group = {"audio": jnp.stack([jnp.asarray(WAVE), 2 * WAVE])}
    assert chain(KEY, group)["audio"].shape == (2, 38, 20)


def test_masks_are_drawn_within_what_is_used():
    transform = audio.SpecAugment(time_masks=1, frequency_masks=1, time_width=10)
    sample = {"audio": np.ones((60, 30), np.float32), "audio_length": jnp.int32(40)}
    keys = jax.random.split(KEY, 500)
    out = np.asarray(jax.jit(jax.vmap(transform, (0, None)))(keys, sample)["audio"])
    hidden = (out[:, :40] == 0).all(axis=2)
    assert hidden.sum(axis=1).max() == 10 and (hidden.sum(axis=1) == 0).any()
    assert hidden.any(axis=0).all()  # every frame is hidden by some key
    bins = (out[:, :40] == 0).all(axis=1)
    assert bins.sum(axis=1).max() == 27 and bins.any(axis=0).all()


def test_a_warp_moves_one_frame_and_keeps_the_ends():
    ramp = np.arange(50, dtype=np.float32)[:, None]
    transform = audio.SpecAugment(0, 0, 0, 0, warp=5)
    out = np.asarray(jax.jit(jax.vmap(transform, (0, None)))(jax.random.split(KEY, 50), ramp))[
        ..., 0
    ]
    assert (np.diff(out, axis=1) > 0).all()
    assert (out[:, 0] == 0).all() and (out[:, -1] == 49).all()
    largest = np.abs(out - ramp[:, 0]).max(axis=1)
    assert largest.max() <= 5.01 and largest.max() > 4


def test_nothing_drawn_depends_on_the_waveform():
    other = audio.AddNoise((0, 0))(KEY, WAVE) - WAVE
    more = audio.AddNoise((0, 0))(KEY, WAVE * 2) - WAVE * 2
    close(np.asarray(more), 2 * np.asarray(other, np.float64), 1e-5)
