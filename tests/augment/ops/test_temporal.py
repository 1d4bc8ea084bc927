"""Temporal operators: the numbers of the frames, and what follows them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxaug import augment as A

KEYS = jax.random.split(jax.random.key(0), 500)
FRAMES = np.arange(9 * 2 * 3 * 3, dtype=np.uint8).reshape(9, 2, 3, 3)


def orders(operator, count=9):
    """The frames that are shown, for each of KEYS, int[500, t]."""
    numbers = jnp.arange(count, dtype=jnp.float32)[:, None, None, None]
    shown = jax.jit(jax.vmap(operator, (0, None)))(KEYS, numbers)
    return np.asarray(shown)[:, :, 0, 0, 0].astype(int)


@pytest.mark.parametrize("count", [1, 2, 5, 9, 32])
@pytest.mark.parametrize("samples", [1, 2, 4, 9, 12])
def test_subsamples_are_those_of_torchvision(count, samples):
    """`torch.linspace(0, t - 1, num_samples).long()`; in floats a step may fall short of an int."""
    expected = np.floor(np.linspace(0, count - 1, samples) + 1e-9)
    found = orders(A.UniformTemporalSubsample(samples), count)
    assert (found == expected).all()


def test_a_video_is_reversed_half_of_the_time():
    found = orders(A.RandomTemporalReversal())
    backwards = (found == np.arange(9)[::-1]).all(axis=1)
    assert (backwards | (found == np.arange(9)).all(axis=1)).all()
    assert stats.binomtest(int(backwards.sum()), 500, 0.5).pvalue > 1e-3


def test_lost_frames_are_those_before_them():
    found = orders(A.FrameDropout(0.3))
    lost = found != np.arange(9)
    assert not lost[:, 0].any()
    assert stats.binomtest(int(lost[:, 1:].sum()), 500 * 8, 0.3).pvalue > 1e-3
    expected = np.maximum.accumulate(np.where(lost, 0, np.arange(9)), axis=1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "operator",
    [A.UniformTemporalSubsample(4), A.RandomTemporalReversal(1.0), A.FrameDropout(0.5)],
)
def test_what_has_a_row_for_each_frame_follows(operator):
    sample = {
        "video": FRAMES,
        "video_frame": np.arange(9, dtype=np.int32),
        "video_time": np.arange(9, dtype=np.float32) / 25,
        "mask": FRAMES[..., 0],
        "boxes": np.zeros((9, 2, 4), np.float32),
        "boxes_valid": np.arange(18).reshape(9, 2) % 3 > 0,
        "box_labels": np.arange(18).reshape(9, 2),
        "box_count": np.arange(9),
        "box_tracks": np.arange(2),  # that all frames share
        "gaze": np.arange(9),
        "size": np.array([2, 3], np.int32),
        "label": 4,
    }
    named = type(operator)(**{**vars(operator), "entries": ("gaze",)})
    out = named(KEYS[0], sample)
    order = out["video_frame"]
    assert set(out) == set(sample) and out["label"] == 4 and out["size"].tolist() == [2, 3]
    np.testing.assert_array_equal(out["box_tracks"], sample["box_tracks"])
    alone = ("label", "size", "box_tracks")
    for name in sample.keys() - set(alone):
        np.testing.assert_array_equal(out[name], sample[name][order])
    np.testing.assert_array_equal(operator(KEYS[0], FRAMES), FRAMES[order])


@pytest.mark.parametrize("clips", [(), (2,)])
def test_a_size_of_each_frame_follows(clips):
    turn = A.Frames(A.RandomRotate90(), per_frame=True)
    frames = np.ones((*clips, 8, 4, 4, 1), np.uint8)
    frames[..., 2:, :, :] = 0
    turned = turn(KEYS[1], {"video": frames, "size": np.array([2, 4], np.int32)})
    out = A.RandomTemporalReversal(1.0)(KEYS[0], turned)
    heights = np.asarray(out["video"]).any(axis=(-2, -1)).sum(axis=-1)
    np.testing.assert_array_equal(out["size"][..., 0], heights)
    assert A.UniformTemporalSubsample(3)(KEYS[0], turned)["size"].shape == (*clips, 3, 2)


def test_clips_draw_for_themselves():
    clips = np.stack([FRAMES] * 8)
    out = A.RandomTemporalReversal()(KEYS[0], {"video": clips})["video"]
    backwards = (np.asarray(out) == FRAMES[::-1]).all(axis=(1, 2, 3, 4))
    assert 0 < backwards.sum() < 8


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="`num_samples` must be an int of at least 1, got 0"):
        A.UniformTemporalSubsample(0)
    with pytest.raises(ValueError, match="`p` must be a probability"):
        A.FrameDropout(2.0)
    with pytest.raises(ValueError, match="`mask` must have a row for each of the 9 frames"):
        A.RandomTemporalReversal()(KEYS[0], {"video": FRAMES, "mask": FRAMES[:2, ..., 0]})
    with pytest.raises(ValueError, match="must have an 'image' or a 'video'"):
        A.FrameDropout()(KEYS[0], {"label": FRAMES})
