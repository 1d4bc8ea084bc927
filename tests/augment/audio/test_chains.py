"""Sounds in chains and choices, alone and beside images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment import audio
from tests.augment.audio.sounds import sound
from tests.images import picture

KEY = jax.random.key(0)
WAVE = jnp.asarray(sound(0, 1600))


class Meter(augment.SampleOp):
    """Notes the largest sample."""

    def make_params(self, key, info):
        """Nothing."""

    def apply(self, params, sample, info):
        return {**sample, "peak": jnp.max(jnp.abs(sample["audio"]))}


def test_operators_draw_from_their_places():
    chain = augment.Compose([audio.Gain(), audio.PolarityInversion(), audio.Gain((3, 9))])
    out = chain(KEY, WAVE)
    first, _, third = (jax.random.fold_in(KEY, k) for k in range(3))
    factor = 1.0
    for key, (low, high) in ((first, (-6, 6)), (third, (3, 9))):
        factor *= 10 ** (float(augment.random.uniform(key, low, high)) / 20)
    np.testing.assert_allclose(np.abs(out), factor * np.abs(WAVE), rtol=1e-5)


def test_a_clip_and_its_sound_go_through_one_chain():
    """Neither changes what the other becomes."""
    image = picture(0, 20, 26)
    steps = [augment.RandomCrop((8, 9)), audio.Gain(), augment.ColorJitter(0.4), audio.LogMel()]
    both = augment.Compose(steps)(KEY, {"image": image, "audio": WAVE, "label": 3})
    assert both["image"].shape == (8, 9, 3) and both["audio"].shape == (11, 80)
    silent = augment.Compose(steps)(KEY, {"image": image, "audio": WAVE * 0})
    dark = augment.Compose(steps)(KEY, {"image": image * 0, "audio": WAVE})
    np.testing.assert_array_equal(silent["image"], both["image"])
    np.testing.assert_array_equal(dark["audio"], both["audio"])


def test_a_replay_of_both_equals_the_call():
    sample = {"image": picture(0, 20, 26), "audio": WAVE, "audio_length": jnp.int32(1500)}
    chain = augment.Compose(
        [augment.RandomResizedCrop(8), audio.Speed(), audio.LogMel(), audio.SpecAugment()]
    )

    @jax.jit
    def both(key, sample):
        return chain(key, sample), chain.apply(chain.make_params(key, sample), sample)

    jax.tree.map(np.testing.assert_array_equal, *both(KEY, sample))


def test_a_choice_gives_what_its_branch_gives():
    branches = [audio.Gain((6, 6)), audio.PolarityInversion(1.0), audio.TimeShift((0.5, 0.5))]
    choice = augment.RandomChoice(branches)
    sample = {"audio": WAVE, "audio_length": jnp.int32(1500)}
    expected = [branch(KEY, sample)["audio"] for branch in branches]
    seen = set()
    for seed in range(12):
        out = choice(jax.random.key(seed), sample)["audio"]
        alike = [bool(jnp.allclose(out, each, atol=1e-6)) for each in expected]
        assert sum(alike) == 1
        seen.add(alike.index(True))
    assert seen == {0, 1, 2}


def test_a_choice_of_speeds_knows_the_length_of_the_chosen():
    maybe = augment.RandomApply([audio.Speed((2.0, 2.0))], p=0.5)
    chain = augment.Compose([maybe, audio.TimeMask((0.5, 0.5))])
    sample = {"audio": jnp.ones(800), "audio_length": jnp.int32(800)}
    lengths = {int(chain(jax.random.key(seed), sample)["audio_length"]) for seed in range(8)}
    assert lengths == {400, 800}


def test_branches_of_two_shapes_are_an_error():
    choice = augment.RandomChoice([audio.LogMel(), audio.Gain()])
    with pytest.raises(ValueError, match="branches to images of one shape"):
        choice(KEY, WAVE)


def test_a_sample_op_works_without_an_image():
    chain = augment.Compose([audio.LogMel(), Meter(), audio.SpecAugment()])
    out = chain(KEY, {"audio": WAVE})
    assert "image" not in out and out["peak"] > 1 and out["audio"].shape == (11, 80)


@pytest.mark.parametrize(
    "chain, sample, message",
    [
        ([augment.RandomRotation(9)], {"audio": WAVE}, "RandomRotation needs an 'image'"),
        ([augment.OneOf([augment.ColorJitter(0.1)])], {"audio": WAVE}, "ColorJitter needs an"),
        ([audio.Gain()], {"image": picture(0, 9, 9)}, "Gain needs an 'audio'"),
        ([audio.Gain()], {"label": 3}, "must have an 'image', an 'audio' or a 'volume'"),
        ([audio.LogMel(), audio.Gain()], {"audio": WAVE}, "Gain needs a waveform .* got features"),
        ([audio.SpecAugment()], {"audio": WAVE}, r"SpecAugment needs features \[T, bins\]"),
        ([audio.Gain()], {"audio": WAVE.astype(jnp.int16)}, "divide by 32768"),
        ([audio.Gain()], {"audio": jnp.zeros((2, 900))}, r"got \[2, 900\]: put channels last"),
        ([audio.Gain()], {"video": WAVE}, r"got the keys \['video'\]: clips go through Frames"),
    ],
)
def test_what_a_transform_lacks_is_named(chain, sample, message):
    with pytest.raises((ValueError, TypeError), match=message):
        augment.Compose(chain)(KEY, sample)


def test_an_array_of_another_name_stays_as_it_is():
    """A feature called "audio" beside images is nobody's business."""
    sample = {"image": picture(0, 9, 9), "audio": np.arange(5, dtype=np.int16)}
    out = augment.Compose([augment.RandomHorizontalFlip()])(KEY, sample)
    np.testing.assert_array_equal(out["audio"], sample["audio"])


def test_explain_counts_passes_over_a_sound():
    text = augment.Compose([audio.Gain(), audio.LogMel()]).explain(augment.AudioInfo(16_000))
    assert text.splitlines() == [
        "2 passes over the 16000 samples:",
        "  audio op   Gain: to [16000]",
        "  audio op   LogMel: to [101, 80]",
    ]


def test_an_operator_tells_the_shape_that_it_makes():
    class Half(audio.AudioOp):
        def make_params(self, key, info):
            """Nothing."""

        def apply(self, params, audio, info):
            return audio[::2]

    with pytest.raises(ValueError, match=r"Half.apply returned audio \[800\], but Half.heard"):
        Half()(KEY, WAVE)
