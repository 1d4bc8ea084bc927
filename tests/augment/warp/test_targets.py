"""Entries beside the image: kinds, formats, visibility, boxes that are left, and the way back."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.augment import functional, random
from tests.images import picture

KEY = jax.random.key(0)
IMAGE = picture(0, 24, 30)
WARPS = [A.RandomRotation((25, 25)), A.RandomHorizontalFlip(1.0), A.RandomAffine(0, (0.2, 0.2))]
rng = np.random.default_rng(0)


def run(chain, sample, key=KEY):
    return jax.device_get(jax.jit(chain)(key, sample))


# ---- kinds


@pytest.mark.parametrize("size", [None, (20, 26)])
def test_instance_masks_move_as_masks_do_and_are_zero_outside(size):
    masks = rng.integers(0, 2, (5, 24, 30)).astype(np.uint8)
    sample = {"image": IMAGE, "masks": masks, "mask": masks[0]}
    if size:
        sample["size"] = np.array(size, np.int32)
    out = run(A.Compose(WARPS, mask_fill=0), sample)
    assert out["masks"].shape == (5, 24, 30) and out["masks"].any()
    for i in range(5):
        alone = run(A.Compose(WARPS, mask_fill=0), {**sample, "mask": masks[i]})
        np.testing.assert_array_equal(out["masks"][i], alone["mask"])
    filled = run(A.Compose(WARPS, mask_fill=255), sample)
    np.testing.assert_array_equal(filled["masks"], out["masks"])
    assert (filled["mask"] == 255).any()


def test_a_map_is_resampled_as_the_image_and_left_as_it_is():
    depth = (IMAGE[:, :, 0] / 25).astype(np.float32)
    steps = [*WARPS, A.ColorJitter(0.5), A.Normalize((0.1, 0.2, 0.3), 0.5)]
    chain = A.Compose(steps, targets={"depth": "map", "ids": "mask"})
    ids = rng.integers(0, 9, (24, 30), dtype=np.int32)
    out = run(chain, {"image": IMAGE, "depth": depth, "ids": ids})
    alone = run(A.Compose(WARPS), {"image": (depth / 10.2)[:, :, None], "mask": ids})
    np.testing.assert_allclose(out["depth"], alone["image"][:, :, 0] * 10.2, atol=1e-4)
    np.testing.assert_array_equal(out["ids"], alone["mask"])
    bytes_ = run(A.Compose(WARPS, targets={"other": "map"}), {"image": IMAGE, "other": IMAGE})
    np.testing.assert_array_equal(bytes_["other"], bytes_["image"])


OUTPUTS = [A.Normalize((0.1, 0.2, 0.3), 0.5), A.ToFloat("bfloat16", "CHW"), A.Resize((9, 11))]
SECOND = [
    [],
    WARPS,
    [A.RandomRotation(30, interpolation="bicubic", fill=(0.2, 0.5, 1.0))],
    [A.RandomRotation((20, 20)), A.RandomZoomOut(0.5, p=1.0), A.Resize((18, 20))],
    [A.RandomApply([WARPS[0]], p=0.5), A.RandomCrop(20, padding=4, fill=1.0)],
    [A.RandomChoice([WARPS[0], A.RandomRotation((20, 20), interpolation="nearest")]), WARPS[2]],
]


@pytest.mark.parametrize("last", OUTPUTS, ids=lambda last: type(last).__name__)
@pytest.mark.parametrize("steps", SECOND, ids=range(len(SECOND)))
@pytest.mark.parametrize("size", [None, (20, 26)])
def test_geometry_and_output_do_to_a_second_image_what_they_do_to_the_first(steps, last, size):
    chain = A.Compose([*steps, last], fuse=size is None, targets={"right": "image"})
    sample = {"image": IMAGE, "right": IMAGE}
    if size is not None:
        sample["size"] = np.array(size, np.int32)
    out = run(chain, sample)
    assert out["right"].dtype == out["image"].dtype and out["right"].shape == out["image"].shape
    left, right = (out[name].astype(np.float32) for name in ("image", "right"))
    np.testing.assert_allclose(right, left, atol=1e-5)
    assert left.std() > 0.05


def test_a_plane_is_a_second_image_too():
    chain = A.Compose([A.ToFloat(layout="CHW")], targets={"near": "image"})
    out = run(chain, {"image": IMAGE, "near": IMAGE[:, :, 0]})
    np.testing.assert_allclose(out["near"], IMAGE[:, :, 0] / np.float32(255), atol=1e-6)
    with pytest.raises(ValueError, match=r'`near`, a float image, in .* got values from .*a "map"'):
        chain(KEY, {"image": IMAGE, "near": np.full((24, 30), 9.0, np.float32)})


def test_a_second_image_has_barriers_as_the_first_has():
    """Without them a chain of choices took 20 minutes to compile for a CPU."""
    chain = A.Compose([WARPS[0], A.GaussianBlur(3), WARPS[0]], targets={"depth": "image"})
    sample = {"image": jnp.asarray(IMAGE), "depth": jnp.zeros(IMAGE.shape[:2])}

    def barriers(*names):
        given = {name: sample[name] for name in names}
        return str(jax.make_jaxpr(chain)(KEY, given)).count("optimization_barrier")

    assert barriers("image", "depth") > barriers("image")


def test_targets_are_part_of_a_config_that_can_be_hashed():
    chain = A.Compose(WARPS, targets={"depth": "image"})
    assert hash(chain) == hash(A.Compose(WARPS, targets=[("depth", "image")]))
    assert chain != A.Compose(WARPS)


@pytest.mark.parametrize("name", ["bbox", "bboxes"])
def test_boxes_by_another_name_do_not_stay_behind(name):
    sample = {"image": IMAGE, name: np.array([[1, 2, 3, 4]], np.float32)}  # 30 pixels wide
    flip = A.RandomHorizontalFlip(1.0)
    with pytest.raises(ValueError, match=f"'{name}' would stay .*: name it 'boxes', give"):
        run(A.Compose([flip]), sample)
    moved = run(A.Compose([flip], targets={name: "boxes"}), sample)
    assert moved[name].tolist() == [[27, 2, 29, 4]]
    assert run(A.RandomInvert(1.0), sample)[name].tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("mix", [A.MixUp(), A.CutMix(), A.Mosaic(8)])
@pytest.mark.parametrize("name", ["bbox", "bboxes"])
def test_boxes_by_another_name_are_not_left_behind_by_a_mix(name, mix):
    count = mix.group_size
    group = {
        "image": np.zeros((count, 8, 9, 3), np.uint8),
        name: np.ones((count, 1, 4), np.float32),
    }
    with pytest.raises(ValueError, match=rf"would leave '{name}' as they are .* call them 'boxes'"):
        mix(KEY, group)


def test_wrong_targets_are_named():
    with pytest.raises(ValueError, match=r"`targets\['depth'\]` must be one of 'image', 'map', .*"):
        A.Compose(WARPS, targets={"depth": "bilinear"})
    with pytest.raises(ValueError, match=r"`targets` must be a dict of names .* got \{'image'"):
        A.Compose(WARPS, targets={"image": "mask"})
    with pytest.raises(ValueError, match=r"`masks` must be \[n, H, W\] .* got \(24, 30, 5\)"):
        run(A.Compose(WARPS), {"image": IMAGE, "masks": np.zeros((24, 30, 5), np.uint8)})
    chain = A.Compose(WARPS, targets={"depth": "image"})
    with pytest.raises(
        TypeError, match=r"`depth` is interpolated and must be uint8, uint16 or .* got uint32"
    ):
        run(chain, {"image": IMAGE, "depth": np.zeros((24, 30), np.uint32)})
    with pytest.raises(ValueError, match="`box_format` must be one of 'xyxy', 'xywh', 'cxcywh'"):
        A.Compose(WARPS, box_format="yolo")
    with pytest.raises(ValueError, match="must have the same `box_format`"):
        A.Compose([A.Compose(WARPS)], box_format="xywh")


# ---- boxes


@pytest.mark.parametrize("new", ["xyxy", "xywh", "cxcywh"])
@pytest.mark.parametrize("old", ["xyxy", "xywh", "cxcywh"])
def test_formats_are_those_of_their_names(old, new):
    x, y, w, h = rng.uniform(1, 9, (4, 7))
    rows = {
        "xyxy": [x, y, x + w, y + h],
        "xywh": [x, y, w, h],
        "cxcywh": [x + w / 2, y + h / 2, w, h],
    }
    given = jnp.asarray(np.stack(rows[old], axis=1), jnp.float32)
    out = functional.convert_bounding_box_format(given, old, new)
    np.testing.assert_allclose(out, np.stack(rows[new], axis=1), atol=1e-5)


@dataclass(frozen=True)
class Look(A.SampleOp):
    """Note the boxes that a SampleOp sees, and those that it is told."""

    def make_params(self, key, info):
        return info.boxes

    def apply(self, params, sample, info):
        return {**sample, "seen": sample["boxes"], "told": params}


@pytest.mark.parametrize("box_format", ["xywh", "cxcywh"])
def test_a_chain_takes_and_gives_boxes_in_its_format(box_format):
    xyxy = jnp.array([[2.0, 3.0, 9.0, 8.0], [0.0] * 4], jnp.float32)
    given = functional.convert_bounding_box_format(xyxy, "xyxy", box_format)
    steps = [*WARPS, Look(), A.RandomVerticalFlip(1.0)]
    plain = run(A.Compose(steps), {"image": IMAGE, "boxes": xyxy})
    out = run(A.Compose(steps, box_format=box_format), {"image": IMAGE, "boxes": given})
    back = functional.convert_bounding_box_format(out["boxes"], box_format, "xyxy")
    np.testing.assert_allclose(back, plain["boxes"], atol=1e-4)
    assert not out["boxes"][1].any()
    for name in ("seen", "told"):
        np.testing.assert_allclose(out[name], plain[name], atol=1e-4)


@pytest.mark.parametrize("count_name", ["box_count", "boxes_length", None])
def test_boxes_are_clipped_dropped_and_packed(count_name):
    height, width = 20, 26
    corner = rng.uniform(-8, 26, (200, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.2, 12, (200, 2))], axis=1)
    boxes = boxes.astype(np.float32)
    boxes[150:160] = 0
    sample = {
        "image": IMAGE,
        "size": np.array([height, width], np.int32),
        "boxes": boxes,
        "box_labels": np.arange(200, dtype=np.int32),
        "score": rng.uniform(size=(200, 2)).astype(np.float32),
    }
    rows = 200
    if count_name:
        sample[count_name] = np.int32(180)
        rows = 180
    expected = []
    for i, (x0, y0, x1, y1) in enumerate(boxes[:rows].astype(np.float64)):
        left, right = np.clip([x0, x1], 0, width)
        top, bottom = np.clip([y0, y1], 0, height)
        area = (right - left) * (bottom - top)
        whole = (x1 - x0) * (y1 - y0)
        if min(right - left, bottom - top) >= 2 and area >= 9 and area >= 0.3 * whole > 0:
            expected.append((i, left, top, right, bottom))
    expected = np.array(expected)
    out = run(A.SanitizeBoxes(2, 9, 0.3, ("box_labels", "score")), sample)
    count = len(expected)
    assert 20 < count < 150 and out["boxes_valid"].tolist() == [True] * count + [False] * (
        200 - count
    )
    np.testing.assert_allclose(out["boxes"][:count], expected[:, 1:], atol=1e-5)
    kept = expected[:, 0].astype(int)
    assert out["box_labels"].tolist() == [*kept] + [-1] * (200 - count)
    np.testing.assert_array_equal(out["score"][:count], sample["score"][kept])
    assert not out["boxes"][count:].any() and not out["score"][count:].any()
    if count_name:
        assert out[count_name] == count and out[count_name].dtype == np.int32
    again = run(A.SanitizeBoxes(2, 9), out)
    np.testing.assert_array_equal(again["boxes"], out["boxes"])


TWO_OF_THREE = np.array([[0, 0, 0, 0], [1, 2, 9, 8], [3, 3, 9, 9]], np.float32)


@pytest.mark.parametrize("name", ["scores", "areas", "difficult", "track_ids"])
def test_columns_of_detectors_and_trackers_are_refused(name):
    sample = {"image": IMAGE, "boxes": TWO_OF_THREE, name: np.arange(3, dtype=np.float32)}
    with pytest.raises(ValueError, match=f"`{name}` has a row for each box"):
        jax.eval_shape(A.SanitizeBoxes(), jax.random.key(0), sample)


@pytest.mark.parametrize("transform", [A.SanitizeBoxes, A.RandomIoUCrop])
@pytest.mark.parametrize("name", ["scores", "labels"])
def test_numbers_by_class_beside_boxes_are_refused_or_go_along(transform, name):
    scores = np.arange(12, dtype=np.float32).reshape(3, 4)
    sample = {"image": IMAGE, "boxes": TWO_OF_THREE, name: scores}
    with pytest.raises(ValueError, match=rf"`{name}` has a row for each box .*per_box=\('{name}',"):
        jax.eval_shape(transform(), jax.random.key(0), sample)
    out = run(A.SanitizeBoxes(per_box=[name]), sample)
    np.testing.assert_array_equal(out[name], [scores[1], scores[2], np.zeros(4)])


def test_entries_that_would_not_follow_their_boxes_are_refused():
    sample = {"image": IMAGE, "boxes": TWO_OF_THREE, "labels": np.arange(3, dtype=np.int32)}
    with pytest.raises(ValueError, match=r"`labels` has a row for each box .* per_box=\('labels',"):
        run(A.SanitizeBoxes(), sample)
    named = run(A.SanitizeBoxes(per_box=["labels"]), sample)
    assert named["labels"].tolist() == [1, 2, -1]
    planes = {**sample, "labels": np.zeros(IMAGE.shape[:2], np.int32)}
    assert run(A.SanitizeBoxes(), planes)["labels"].shape == IMAGE.shape[:2]

    masks = {
        **sample,
        "masks": np.arange(3, dtype=np.uint8)[:, None, None] * np.ones(IMAGE.shape[:2], np.uint8),
    }
    with pytest.raises(ValueError, match=r"`masks` has a row for each box .* per_box=\('masks',"):
        run(A.SanitizeBoxes(per_box=["labels"]), masks)
    named = run(A.SanitizeBoxes(per_box=["labels", "masks"]), masks)
    assert named["masks"].max((1, 2)).tolist() == [1, 2, 0]

    points = {**sample, "keypoints": TWO_OF_THREE[:, :2]}
    with pytest.raises(ValueError, match=r"`keypoints` has a row .* per_box=\('keypoints',"):
        run(A.SanitizeBoxes(per_box=["labels"]), points)
    named = run(A.SanitizeBoxes(per_box=["labels", "keypoints"]), points)
    assert named["keypoints"].tolist() == [[1, 2], [3, 3], [0, 0]]
    apart = {**points, "keypoints": TWO_OF_THREE[:2, :2]}
    np.testing.assert_array_equal(
        run(A.SanitizeBoxes(per_box=["labels"]), apart)["keypoints"], apart["keypoints"]
    )

    with pytest.raises(ValueError, match=r"`labels` must have a row for each of the 3 boxes, got"):
        run(A.SanitizeBoxes(per_box=["labels"]), {**sample, "labels": np.arange(2)})


@pytest.mark.parametrize("build", [A.SanitizeBoxes, A.MixUp, A.CutMix, A.MixUpOrCutMix, A.Mosaic])
def test_names_are_a_list(build):
    with pytest.raises(ValueError, match=r"`per_box` must be a list of names .* got 'labels'"):
        build(**{"size": 8} if build is A.Mosaic else {}, per_box="labels")


def test_areas_of_half_precision_do_not_overflow():
    boxes = np.array([[0, 0, 300, 300]], np.float16)  # 90,000, of at most 65,504
    sample = {"image": np.zeros((320, 320, 1), np.uint8), "boxes": boxes}
    out = run(A.SanitizeBoxes(), sample)
    np.testing.assert_array_equal(out["boxes"], boxes)
    assert out["boxes"].dtype == np.float16


def test_visibility_is_that_after_the_whole_run():
    boxes = np.array([[0.0, 0.0, 4.0, 4.0]], np.float32)
    there_and_back = [A.RandomAffine(0, (0.9, 0.9)), A.CenterCrop((200, 200))]
    out = run(
        A.Compose([*there_and_back, A.SanitizeBoxes(min_visibility=1.0)]),
        {"image": IMAGE, "boxes": boxes},
    )
    assert out["boxes_valid"].all()
    with pytest.raises(
        ValueError, match=r"SanitizeBoxes needs 'boxes' in the sample, got \['image"
    ):
        A.SanitizeBoxes()(KEY, {"image": IMAGE})


# ---- keypoints


def test_keypoints_lose_their_visibility_outside_of_the_frame():
    points = np.array([[2, 3, 2], [28, 20, 1], [15, 12, 2], [15, 12, 0], [0, 0, 0]], np.float32)
    out = run(A.Compose([A.CenterCrop((12, 14))]), {"image": IMAGE, "keypoints": points})
    expected = points - [8, 6, 0]
    np.testing.assert_allclose(out["keypoints"][:4, :2], expected[:4, :2], atol=1e-5)
    assert out["keypoints"][:, 2].tolist() == [0, 0, 2, 0, 0]
    assert not out["keypoints"][4].any()
    inside_a_run = [A.CenterCrop((12, 14)), A.CenterCrop((24, 30))]
    out = run(A.Compose(inside_a_run), {"image": IMAGE, "keypoints": points})
    np.testing.assert_allclose(out["keypoints"], points, atol=1e-5)


# ---- the way back


@dataclass(frozen=True)
class Elastic(A.Geometric):
    def make_params(self, key, info):
        return random.uniform(key, -3, 3, shape=(2, 4, 4))

    def warp(self, params, info):
        return A.Warp.displaced(info, params[0], params[1])


@pytest.mark.parametrize(
    "steps",
    [WARPS, [A.RandomPerspective(0.4, 1.0)], [Elastic(), A.RandomRotation((9, 9))]],
    ids=["affine", "perspective", "elastic"],
)
def test_what_a_warp_shows_comes_back_to_its_place(steps):
    """A linear ramp is read without error, so that its value tells where it was read."""
    y, x = np.mgrid[:48, :60].astype(np.float32) + 0.5
    ramp = np.stack([x, y], axis=2) / 60
    chain = A.Compose(steps)
    info = A.ImageInfo((48, 60))
    warp = chain.warp(chain.make_params(KEY, info), info)
    warped_x, warped_y = warp.pull(*map(jnp.asarray, (x, y)))
    warped = jnp.stack([warped_x, warped_y], axis=2) / 60
    back = np.asarray(A.unwarp(warped, warp, info, fill=-1e6))
    shown = (back > -1).all(axis=2)
    assert shown.mean() > 0.4
    np.testing.assert_allclose(back[shown] * 60, ramp[shown] * 60, atol=0.25)
    with pytest.raises(ValueError, match=r"`image` must be \[H, W, C\] of the warp's output"):
        A.unwarp(warped[1:], warp, info)


def test_boxes_beside_an_image_are_cut_to_nothing():
    """On each of its sides, and where they touch it."""
    inside = [1.0, 2.0, 5.0, 4.0]
    beside = [[-3, 1, 0, 2], [6, 0, 9, 2], [1, -5, 2, -1], [1, 4, 2, 9], [7, 7, 8, 8]]
    boxes = jnp.array([inside, *beside, [-2, 1, 5, 9]], jnp.float32)
    cut = functional.clamp_bounding_boxes(boxes, 4, 6)
    assert cut.tolist() == [inside, *[[0.0] * 4] * 5, [0.0, 1.0, 5.0, 4.0]]
