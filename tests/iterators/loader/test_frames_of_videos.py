"""Boxes, keypoints and masks with a row for each frame of a video follow its clips."""

import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.decode import Boxes, Encoded, Keypoints, Mask, Ragged, Video
from tests.iterators.loaders import one_device
from tests.videos import kind, turned, video

COUNTS = (30, 30, 6)


def boxes_of(count):
    """[count, 2, 4] by frame: one moves to the right, the other is padding."""
    boxes = np.zeros((count, 2, 4), np.float32)
    boxes[:, 0] = [[n, 4, n + 10, 20] for n in range(count)]
    return boxes


BOXES = [boxes_of(count) for count in COUNTS]
MASKS = [np.broadcast_to(np.arange(n, dtype=np.uint8)[:, None, None], (n, 48, 64)) for n in COUNTS]


class Annotated:
    """Videos of 48 x 64 pixels, the second turned by a quarter, with a row for each frame."""

    files = (kind("h264"), turned(kind("h264"), 90), video(6))

    def __len__(self):
        return 3

    def read(self, indices):
        chosen = indices.tolist()

        def ragged(values):
            lengths = np.array([len(values[k]) for k in chosen])
            return Ragged(np.concatenate([values[k] for k in chosen]), lengths, max_length=30)

        return {
            "video": Encoded.from_bytes([self.files[k] for k in chosen]),
            "boxes": ragged(BOXES),
            "keypoints": ragged([each[..., :2] for each in BOXES]),
            "mask": ragged(MASKS),
        }

    def describe(self, index):
        return {"record": index}

    def fingerprint(self):
        return "annotated"


def batch_of(video, source=None, transform=None):
    decode = {
        "video": video,
        "boxes": Boxes(of="video"),
        "keypoints": Keypoints(of="video"),
        "mask": Mask(of="video"),
    }
    options = {"decode": decode, "shuffle": False, "sharding": one_device(), "transform": transform}
    with Loader(source or Annotated(), 3, **options) as loader:
        return {name: np.asarray(array) for name, array in next(loader).items()}


@pytest.mark.parametrize("pad", ["last", "mask"])
def test_rows_are_those_of_the_frames_shown(pad):
    batch = batch_of(Video(frames=4, stride=2, canvas=(32, 32), pad=pad))
    assert batch["boxes"].shape == (3, 4, 2, 4) and batch["mask"].shape == (3, 4, 32, 32)
    for row in range(3):
        frames = batch["video_frame"][row]
        for place, frame in enumerate(frames.tolist()):
            if frame < 0 and pad == "mask":
                assert not batch["boxes"][row, place].any()
                assert (batch["mask"][row, place] == 255).all()
                continue
            box = BOXES[row][frame if frame >= 0 else frames.max(), 0]
            if row == 1:  # 64 x 48 upright, clockwise: (x, y) -> (48 - y, x)
                left, top, right, bottom = box
                box = np.array([48 - bottom, left, 48 - top, right])
            found = batch["boxes"][row, place]
            np.testing.assert_allclose(found[0], box / 2, atol=1e-5)
            assert not found[1].any()
            height, width = batch["size"][row]
            number = frame if frame >= 0 else frames.max()
            assert (batch["mask"][row, place, :height, :width] == number).all()
            assert (batch["mask"][row, place, height:] == 255).all()
    assert (batch["video_frame"][2] == [0, 2, 4, -1]).all()


def test_they_follow_the_chain_of_each_clip():
    chain = augment.Compose([augment.RandomHorizontalFlip(1.0), augment.RandomCrop(32)])
    clips = Video(frames=3, stride=1, count=2, canvas=(64, 64))
    plain = batch_of(clips)
    batch = batch_of(clips, transform=augment.Frames(chain))
    assert batch["boxes"].shape == (3, 2, 3, 2, 4) and batch["mask"].shape == (3, 2, 3, 32, 32)
    np.testing.assert_array_equal(batch["video_frame"], plain["video_frame"])
    keypoints = batch["keypoints"][0, :, :, 0, 0]
    # in the mirrored frames they run to the left, from one frame to the next
    np.testing.assert_allclose(np.diff(keypoints, axis=1), -1, atol=1e-4)
    for clip in range(2):
        for place, frame in enumerate(batch["video_frame"][0, clip].tolist()):
            assert set(np.unique(batch["mask"][0, clip, place])) <= {frame, 255}


def test_too_few_rows_are_named(monkeypatch):
    monkeypatch.setitem(globals(), "BOXES", [BOXES[0][:3], *BOXES[1:]])
    with pytest.raises(
        ValueError, match=r"'boxes' must have a row for each frame .* got 3 rows in record 0"
    ):
        batch_of(Video(frames=4, stride=2, start="center"))
