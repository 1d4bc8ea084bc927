"""Videos: one draw for all frames, or one for each, against single images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.iterators import InMemory, Loader
from jaxaug.sharding import batch_sharding
from tests.images import picture

KEY = jax.random.key(3)
COUNT, HEIGHT, WIDTH = 3, 20, 28
FRAMES = np.stack([picture(seed, HEIGHT, WIDTH) for seed in range(COUNT)])
CHAIN = A.Compose(
    [A.RandomRotation(30), A.RandomErasing(1.0), A.ColorJitter(0.5), A.GaussianNoise()]
)


def sample():
    """A video with everything that moves along, and entries that do not."""
    boxes = np.zeros((COUNT, 2, 4), np.float32)
    boxes[:, 0] = [[3, 4, 9, 11], [5, 4, 11, 11], [7, 4, 13, 11]]
    return {
        "image": FRAMES,
        "size": np.array([18, 25], np.int32),
        "mask": (FRAMES[..., 0] // 50),
        "boxes": boxes,
        "keypoints": boxes[:, :, :2] + 1,
        "label": np.int32(4),
    }


def frame(video, number):
    """Frame `number` as a sample of its own."""
    moving = ("image", "mask", "boxes", "keypoints")
    return {name: row[number] if name in moving else row for name, row in video.items()}


@pytest.mark.parametrize("per_frame", [False, True])
def test_frames_are_those_of_single_images(per_frame):
    video = sample()
    out = jax.jit(A.Frames(CHAIN, per_frame))(KEY, video)
    chain = jax.jit(CHAIN)
    for number in range(COUNT):
        key = jax.random.fold_in(KEY, number) if per_frame else KEY
        expected = chain(key, frame(video, number))
        difference = np.asarray(out["image"][number], int) - np.asarray(expected["image"], int)
        assert np.abs(difference).max() <= 1
        np.testing.assert_array_equal(out["mask"][number], expected["mask"])
        for name in ("boxes", "keypoints"):
            np.testing.assert_allclose(out[name][number], expected[name], atol=1e-4)
    assert out["label"] == 4 and set(out) == set(video)
    shape = (COUNT, 2) if per_frame else (2,)
    np.testing.assert_array_equal(out["size"], np.broadcast_to([18, 25], shape))


def test_one_draw_or_one_for_each_frame():
    same = np.broadcast_to(FRAMES[0], FRAMES.shape)
    together = np.asarray(jax.jit(A.Frames(CHAIN))(KEY, same))
    assert (together == together[0]).all()
    apart = np.asarray(jax.jit(A.Frames(CHAIN, per_frame=True))(KEY, same))
    assert (apart[0] != apart[1]).mean() > 0.3 and (apart[1] != apart[2]).mean() > 0.3


def test_one_draw_looks_at_the_boxes_of_the_first_frame():
    """A crop about boxes: those of the frames differ, the window does not."""
    chain = A.Compose([A.RandomIoUCrop(), A.Resize((12, 16))])
    ramp = np.broadcast_to(np.arange(WIDTH, dtype=np.uint8)[None, :, None], FRAMES.shape)
    boxes = np.array([[[3, 4, 9, 11]], [[15, 8, 25, 19]], [[0, 0, 4, 4]]], np.float32)
    crop = jax.jit(A.Frames(chain))
    for seed in range(8):
        key = jax.random.key(seed)
        out = np.asarray(crop(key, {"image": ramp, "boxes": boxes})["image"])
        assert (out == out[0]).all()
        alone = jax.jit(chain)(key, {"image": ramp[0], "boxes": boxes[0]})
        np.testing.assert_array_equal(out[0], alone["image"])


def test_a_crop_drops_the_boxes_of_each_frame_by_their_own_centers():
    """One that enters later stays, one that leaves the window is dropped there."""
    boxes = np.zeros((4, 2, 4), np.float32)
    boxes[:, 0] = [[4 + 5 * t, 4, 8 + 5 * t, 11] for t in range(4)]
    boxes[1:, 1] = [10, 8, 18, 14]
    crop = jax.jit(A.Frames(A.RandomIoUCrop(sampler_options=(0.0,), max_scale=0.8)))
    seen = set()
    for seed in range(6):
        # Where in a video a pixel comes from: its column, its row.
        place = np.stack([*np.mgrid[:HEIGHT, :WIDTH][::-1], np.zeros((HEIGHT, WIDTH))], axis=2)
        video = {"image": np.broadcast_to(place, (4, *place.shape)).astype(np.uint8)}
        out = jax.device_get(crop(jax.random.key(seed), {**video, "boxes": boxes}))
        left, top = out["image"][0, 0, 0, :2].astype(int)
        height, width = out["size"]
        x, y = boxes[:, :, 0::2].mean(2), boxes[:, :, 1::2].mean(2)
        kept = (left < x) & (x < left + width) & (top < y) & (y < top + height)
        kept &= boxes.any(axis=2)
        expected = np.where(kept[:, :, None], boxes - [left, top, left, top], 0)
        expected[kept[:, 1] & ~kept[:, 0]] = expected[kept[:, 1] & ~kept[:, 0]][:, ::-1]  # first
        np.testing.assert_allclose(out["boxes"], expected, atol=1e-4)
        seen |= set(map(tuple, kept.T.tolist()))
    assert (False, True, True, True) in seen and len(seen) > 3


@pytest.mark.parametrize("channels", [1, 6])
def test_a_function_gets_frames_of_their_number_of_channels(channels):
    """Drawing for the first frame traces it, without pixels, to learn the shape of its result."""
    gains = jnp.linspace(0.2, 1.0, channels)[None, None]
    gain = A.Lambda(lambda key, image: image * gains)
    twice = A.Lambda(lambda key, image: jnp.concatenate([image, image], axis=2))
    both = A.Lambda(lambda key, image: image * jnp.concatenate([gains, gains], axis=2))
    video = np.random.default_rng(0).random((COUNT, 8, 9, channels)).astype(np.float32)
    out = A.Frames(A.Compose([A.RandomHorizontalFlip(1.0), gain, twice, both]))(KEY, video)
    once = video[:, :, ::-1] * np.asarray(gains)
    expected = np.concatenate([once, once], axis=3) * np.tile(np.asarray(gains), 2)
    np.testing.assert_allclose(out, expected, atol=1e-6)


def test_a_batch_of_videos():
    flip = A.Frames(A.RandomHorizontalFlip())
    videos = np.stack([FRAMES] * 6)
    out = np.asarray(jax.vmap(flip)(jax.random.split(KEY, 6), videos))
    flipped = (out == FRAMES[:, :, ::-1]).all(axis=(1, 2, 3, 4))
    kept = (out == FRAMES).all(axis=(1, 2, 3, 4))
    assert (flipped | kept).all() and flipped.any() and kept.any()


def test_a_loader_has_videos_as_features():
    videos = np.stack([FRAMES, FRAMES[:, ::-1]])
    flip = A.Frames(A.RandomHorizontalFlip(1.0))

    def transform(key, sample):
        return flip(key, {**sample, "image": sample["video"]})

    source = InMemory(videos[:, 0], {"video": videos})
    one = batch_sharding(jax.devices("cpu")[:1])
    with Loader(source, 2, transform=transform, shuffle=False, sharding=one) as loader:
        batch = next(loader)
    np.testing.assert_array_equal(batch["image"], videos[:, :, :, ::-1])
    np.testing.assert_array_equal(batch["video"], videos)


def test_columns_of_boxes_have_a_row_for_each_frame():
    boxes = np.array([[[-9, -9, -5, -5], [3, 4, 9, 11]]] * COUNT, np.float32)
    labels = np.array([[1, 2]] * COUNT, np.int32)
    video = {"image": FRAMES, "boxes": boxes, "box_labels": labels, "name": "clip"}
    out = A.Frames(A.SanitizeBoxes())(KEY, {**video, "box_count": np.full(COUNT, 2)})
    np.testing.assert_array_equal(out["box_labels"], [[2, -1]] * COUNT)
    np.testing.assert_array_equal(out["boxes_valid"], [[True, False]] * COUNT)
    np.testing.assert_array_equal(out["box_count"], [1] * COUNT)
    assert out["name"] == "clip"
    with pytest.raises(ValueError, match=r"changes 'box_labels', .* entries=\('box_labels',\)"):
        A.Frames(A.SanitizeBoxes())(KEY, {**video, "box_labels": labels[0]})


def test_labels_of_boxes_are_not_left_behind():
    boxes = np.array([[[-9, -9, -5, -5], [3, 4, 9, 11]]] * COUNT, np.float32)
    labels = np.array([[1, 2]] * COUNT, np.int32)
    video = {"image": FRAMES, "boxes": boxes, "labels": labels}
    with pytest.raises(ValueError, match="`labels` has a row for each box"):
        A.Frames(A.SanitizeBoxes())(KEY, video)
    out = A.Frames(A.SanitizeBoxes(per_box=["labels"]))(KEY, video)
    np.testing.assert_array_equal(out["labels"], [[2, -1]] * COUNT)
    shared = {**video, "labels": labels[:, 0]}  # of the frames themselves
    np.testing.assert_array_equal(A.Frames(A.SanitizeBoxes())(KEY, shared)["labels"], [1] * COUNT)


def test_views_of_clips_are_those_of_frames_with_keys_of_their_own():
    clips = np.stack([FRAMES, FRAMES[::-1]])
    small, large = A.Frames(A.RandomCrop((8, 9))), A.Frames(A.RandomCrop((12, 10)))
    views = A.MultiView({"small": (small, 3), "large": (large, 1)})
    times = np.arange(2.0)
    out = jax.jit(views)(KEY, {"video": clips, "size": np.array([20, 28]), "video_time": times})
    assert out.keys() == {"small", "large", "video_time"}
    assert out["small"].shape == (3, 2, len(FRAMES), 8, 9, 3)
    assert out["large"].shape == (1, 2, len(FRAMES), 12, 10, 3)
    keys = jax.random.split(jax.random.fold_in(KEY, 0), 3)
    crop = jax.jit(small)
    for view, key in zip(out["small"], keys):
        np.testing.assert_array_equal(view, crop(key, clips))
    assert (out["small"][0] != out["small"][1]).any()
    with pytest.raises(ValueError, match="takes images alone, got 'boxes' beside one"):
        views(KEY, {"video": clips, "boxes": np.zeros((2, len(FRAMES), 1, 4), np.float32)})


def test_what_is_refused():
    clip = A.Frames(CHAIN)
    with pytest.raises(
        ValueError, match=r"expected frames \(t, h, w, channels\), .* got \(20, 28, 3"
    ):
        clip(KEY, FRAMES[0])
    with pytest.raises(ValueError, match="`boxes` must have a row for each of the 3 frames"):
        clip(KEY, {"image": FRAMES, "boxes": np.zeros((2, 4), np.float32)})
    with pytest.raises(
        ValueError, match=r"must have an 'image' or a 'video', got the keys \['mask'\]"
    ):
        clip(KEY, {"mask": FRAMES})
    with pytest.raises(TypeError, match="holds the class RandomRotation"):
        A.Frames(A.RandomRotation)
    with pytest.raises(ValueError, match="`per_frame` must be one of True, False, got 2"):
        A.Frames(CHAIN, per_frame=2)
    with pytest.raises(ValueError, match=r"`entries` must be a list of names .* got 'labels'"):
        A.Frames(CHAIN, entries="labels")
    for beside in (clip, A.RandomTemporalReversal()):
        with pytest.raises(TypeError, match="Frames stand for a whole chain, beside which operat"):
            A.Compose([beside])
    with pytest.raises(TypeError, match=r"holds the list .*: make a `Compose` of it"):
        A.Frames([A.RandomHorizontalFlip()])  # pyright: ignore[reportArgumentType]


def test_a_coin_leaves_what_all_frames_share_alone():
    class Darker(A.SampleOp):
        p = 0.5

        def make_params(self, key, info):
            return None

        def apply(self, params, sample, info):
            return {**sample, "image": sample["image"] / 2}

    video = {"image": jnp.ones((3, 8, 9, 3)), "label": jnp.int32(7)}
    out = A.Frames(Darker())(KEY, video)
    assert out["label"] == 7 and out["image"].shape == (3, 8, 9, 3)


def test_a_video_is_what_an_image_of_frames_is():
    frames = jax.jit(A.Frames(CHAIN))
    expected = frames(KEY, sample())
    video = {"video" if name == "image" else name: row for name, row in sample().items()}
    found = frames(KEY, video)
    assert set(found) == set(video)
    np.testing.assert_array_equal(found["video"], expected["image"])
    np.testing.assert_array_equal(found["boxes"], expected["boxes"])


@pytest.mark.parametrize("per_frame", [False, True])
def test_each_clip_has_draws_of_its_own(per_frame):
    chain = A.Compose([A.RandomRotation(30), A.ColorJitter(0.5)])
    clips = np.stack([FRAMES, FRAMES[::-1]])
    masks = clips[..., 0] // 50
    frames = jax.jit(A.Frames(chain, per_frame))
    out = frames(KEY, {"video": clips, "mask": masks, "label": np.int32(3)})
    assert out["label"] == 3
    for number in range(2):
        clip = {"image": clips[number], "mask": masks[number]}
        expected = frames(jax.random.fold_in(KEY, number), clip)
        difference = np.asarray(out["video"][number], int) - np.asarray(expected["image"], int)
        assert np.abs(difference).max() <= 1
        np.testing.assert_array_equal(out["mask"][number], expected["mask"])
    with pytest.raises(ValueError, match="for each of the 3 frames of each of 2 clips"):
        A.Frames(chain)(KEY, {"video": clips, "mask": masks[0]})


def test_clips_pass_one_chain_after_another():
    """The first leaves a size of each clip, within which the second mirrors."""
    upward, sideways = (
        A.Frames(flip(1.0)) for flip in (A.RandomVerticalFlip, A.RandomHorizontalFlip)
    )
    clips = np.stack([FRAMES, FRAMES[::-1]])
    given = {"video": clips, "size": np.int32([5, 6])}
    found = jax.jit(lambda given: sideways(KEY, upward(KEY, given)))(given)
    np.testing.assert_array_equal(found["size"], [[5, 6]] * 2)
    expected = clips[:, :, 4::-1, 5::-1]
    np.testing.assert_array_equal(found["video"][:, :, :5, :6], expected)


@pytest.mark.parametrize("clips", [(), (2,)])
@pytest.mark.parametrize("per_frame", [False, True])
def test_a_chain_behind_draws_for_each_frame_keeps_to_the_size_of_each(per_frame, clips):
    mirror = A.Frames(A.RandomHorizontalFlip(1.0), per_frame)
    sizes = np.broadcast_to(np.int32([[18, 25], [20, 28], [7, 9]]), (*clips, COUNT, 2))
    frames = np.broadcast_to(FRAMES, (*clips, *FRAMES.shape))
    found = jax.jit(mirror)(KEY, {"video": frames, "size": sizes})
    np.testing.assert_array_equal(found["size"], sizes)
    for place in np.ndindex(*clips, COUNT):
        height, width = sizes[place]
        expected = frames[place][:height, :width][:, ::-1]
        np.testing.assert_array_equal(found["video"][place][:height, :width], expected)
