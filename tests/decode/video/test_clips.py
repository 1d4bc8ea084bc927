"""Which frames a row shows: inside of the video, by number and by time, drawn uniformly."""

import numpy as np
import pytest
from scipy import stats

from jaxaug.decode import Video
from jaxaug.decode.video.clips import shown_until
from jaxaug.iterators.loader.keys import decode_keys

KEYS = decode_keys(0, 0, np.arange(4000))
SECONDS = np.arange(100) / 25


def shown(video, seconds=SECONDS, key=0):
    return video.clips.numbers(seconds, KEYS[key : key + 1], shown_until(seconds))


def test_a_random_clip_lies_in_the_video_and_begins_anywhere_in_it():
    video = Video(frames=8, stride=4)
    clips = np.concatenate([shown(video, key=k) for k in range(4000)])
    assert (np.diff(clips) == 4).all() and clips.min() == 0 and clips.max() == 99
    assert stats.chisquare(np.bincount(clips[:, 0], minlength=72)).pvalue > 1e-3


def test_clips_of_a_row_are_drawn_apart():
    pairs = np.stack([shown(Video(count=2), key=k)[:, 0] for k in range(4000)])
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.05


def test_clips_without_overlap_lie_in_parts_of_the_video():
    video = Video(frames=6, stride=5, count=3, overlap=False)
    for key in range(200):
        clips = shown(video, key=key)
        for number, clip in enumerate(clips):
            assert number * 33 <= clip[0] and clip[-1] < (number + 1) * 33 + 1
    short = shown(Video(frames=6, stride=8, count=3, overlap=False))  # 41 frames in 33
    assert short[:, 0].tolist() == [0, 33, 66] and (short[:2, 5] == -1).all()


def test_parts_of_a_video_with_fewer_frames_have_one_each():
    for count in (1, 2, 3):
        clips = shown(Video(frames=2, stride=1, count=4, overlap=False), SECONDS[:count])
        assert clips[:, 0].tolist() == [number * count // 4 for number in range(4)]


def test_fixed_starts():
    assert shown(Video(frames=2, stride=1, start="center"))[0].tolist() == [49, 50]
    assert shown(Video(frames=2, stride=1, start="center"), SECONDS[:99])[0].tolist() == [48, 49]
    assert shown(Video(frames=2, stride=1, start=7))[0].tolist() == [7, 8]
    uniform = shown(Video(frames=10, stride=1, start="uniform", count=3))[:, 0]
    assert uniform.tolist() == [15, 45, 75]  # the middles of three parts of 91 places
    parts = Video(frames=10, stride=1, start="uniform", count=2, overlap=False)
    assert shown(parts)[:, 0].tolist() == [20, 70]  # the middles of 41 places in each half
    assert shown(Video(frames=2, start=100))[0].tolist() == [-1, -1]
    assert shown(Video(frames=2, fps=25, start=100))[0].tolist() == [-1, -1]


def test_a_short_video_ends_in_padding():
    assert shown(Video(frames=4, stride=2), SECONDS[:5])[0].tolist() == [0, 2, 4, -1]
    assert shown(Video(frames=4, stride=2, start=0), SECONDS[:6])[0].tolist() == [0, 2, 4, -1]
    assert shown(Video(frames=3, fps=25, start=0), SECONDS[:1])[0].tolist() == [0, -1, -1]


def test_the_last_frame_is_shown_as_long_as_the_one_before():
    assert shown(Video(frames=5, fps=50, start=98))[0].tolist() == [98, 98, 99, 99, -1]


def test_the_last_frame_of_a_part_is_shown_until_the_next_one():
    uneven = np.array([0, 0.1, 0.2, 1.0, 1.1, 1.2])
    video = Video(frames=6, fps=5, start="uniform", count=2, overlap=False)
    assert shown(video, uneven).tolist() == [[0, 2, 2, 2, 2, -1], [3, 5, -1, -1, -1, -1]]


def test_a_clip_by_time_begins_at_each_place_where_it_fits():
    firsts = [shown(Video(frames=3, fps=25), SECONDS[:5], key)[0, 0] for key in range(50)]
    assert set(firsts) == {0, 1, 2}


def test_frames_by_time_are_those_that_are_shown_then():
    native = shown(Video(frames=16, fps=25, start=3))
    assert native[0].tolist() == list(range(3, 19))
    assert shown(Video(frames=5, fps=12.5, start=0))[0].tolist() == [0, 2, 4, 6, 8]
    assert shown(Video(frames=5, fps=50, start=0))[0].tolist() == [0, 0, 1, 1, 2]
    uneven = np.array([0, 0.1, 0.5, 0.6, 2.0])
    for key in range(50):
        clip = shown(Video(frames=4, fps=4), uneven, key)[0]
        times = uneven[clip[0]] + np.arange(4) / 4
        expected = [max(k for k in range(5) if uneven[k] <= time + 1e-6) for time in times]
        assert clip.tolist() == expected and times[-1] <= 2.0


@pytest.mark.parametrize("seconds", [SECONDS, np.sort(np.random.default_rng(0).random(77)) * 3])
@pytest.mark.parametrize("fps", [3, 24, 30, 29.97])
def test_clips_by_time_that_fit_are_whole(seconds, fps):
    for key in range(50):
        clip = shown(Video(frames=8, fps=fps), seconds, key)[0]
        assert (clip >= 0).all() and (np.diff(clip) >= 0).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"frames": 0}, "`frames` must be an int of at least 1"),
        ({"stride": 0}, "`stride` must be an int of at least 1"),
        ({"fps": -1.0}, "`fps` must be a number of frames a second above 0"),
        ({"stride": 2, "fps": 8}, "`stride` must be left out beside `fps`=8"),
        ({"start": "end"}, "`start` must be one of 'random', 'uniform', 'center'"),
        ({"start": -1}, "`start` must be an int of at least 0"),
        ({"start": 3, "count": 2}, "`start` must be 'random' or 'uniform' with `count`=2"),
        ({"pad": "zero"}, "`pad` must be one of 'last', 'mask'"),
        ({"canvas": (0, 3)}, r"`canvas` must be \(height, width\)"),
        ({"overlap": False}, "`count` must be at least 2 with overlap=False"),
        ({"overlap": 2}, "`overlap` must be one of True, False"),
        ({"num_threads": 0}, "`num_threads` must be an int of at least 1"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Video(**options)
