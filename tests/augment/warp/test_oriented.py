"""Oriented boxes, polygons, and what changes sides at a mirror."""

import itertools

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.augment import functional
from tests.images import picture
from tests.test_contract import CASES, always

KEY = jax.random.key(3)
IMAGE = picture(0, 24, 30)
# The one drops boxes, while points stay; the other needs a mask.
ALONE = ("RandomIoUCrop", "CropNonEmptyMaskIfExists")
rng = np.random.default_rng(0)
RECTANGLES = np.array(
    [[9, 8, 8, 4, 30], [20, 12, 6, 9, -75], [15, 15, 5, 5, 170], [0] * 5], np.float32
)


convert = jax.jit(functional.convert_bounding_box_format, static_argnums=(1, 2))


def corners(rectangles):
    """The corners [n, 4, 2] of (cx, cy, w, h, degrees), float64."""
    cx, cy, w, h, degrees = rectangles.astype(float).T
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    signs = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    points = [
        (cx + (i * w * cos + j * h * sin) / 2, cy + (-i * w * sin + j * h * cos) / 2)
        for i, j in signs
    ]
    return np.moveaxis(np.array(points), 2, 0)


def run(chain, sample):
    """All that comes out but the image, which then costs nothing."""

    def rest(key, sample):
        return {name: value for name, value in chain(key, sample).items() if name != "image"}

    return jax.device_get(jax.jit(rest)(KEY, jax.tree.map(jnp.asarray, sample)))


def test_formats_are_corners_and_back():
    """The corners by the angle, counter-clockwise, in float64; lengths and order as OpenCV's."""
    expected = corners(RECTANGLES)
    points = convert(RECTANGLES, "CXCYWHR", "XYXYXYXY")
    np.testing.assert_allclose(points.reshape(-1, 4, 2), expected, atol=1e-5)
    hulls = convert(points, "xyxyxyxy", "xyxy")
    np.testing.assert_allclose(hulls[:, :2], expected.min(axis=1), atol=1e-5)
    np.testing.assert_allclose(hulls[:, 2:], expected.max(axis=1), atol=1e-5)
    first = convert(RECTANGLES, "cxcywhr", "xywhr")
    np.testing.assert_allclose(first[:, :2], expected[:, 0], atol=1e-5)
    for old, new in itertools.permutations(("xyxyxyxy", "xywhr", "cxcywhr"), 2):
        given = convert(RECTANGLES, "cxcywhr", old)
        other = convert(given, old, new)
        back = convert(other, new, "cxcywhr")
        np.testing.assert_allclose(back, RECTANGLES, atol=1e-4)
    flat = convert(np.float32([[1, 2, 3, 4]]), "xywh", "cxcywhr")
    assert flat.tolist() == [[2.5, 4, 3, 4, 0]]


GEOMETRIC = [
    name
    for name in CASES
    if isinstance(always(name), A.Geometric) and name not in ALONE and not CASES[name].square
]


def test_corners_are_points_moved_by_every_geometric_operator():
    """The law: a box moves as its corners do, in an order that a mirror does not change."""
    sides = jnp.asarray([20, 24], jnp.int32)
    points = jnp.asarray(corners(RECTANGLES), jnp.float32)
    sample = {
        "image": jnp.asarray(IMAGE),
        "size": sides,
        "boxes": points.reshape(-1, 8),
        "keypoints": points,
        "polygons": points,
        "polygons_length": jnp.array([4, 2, 0, 4], jnp.int32),
    }

    def every(key):
        outs = {}
        for name in GEOMETRIC:
            chain = A.Compose([always(name)], box_format="xyxyxyxy")
            out = chain(key, sample)
            outs[name] = {entry: out[entry] for entry in ("boxes", "keypoints", "polygons")}
        return outs

    mirrored = 0
    for name, out in jax.device_get(jax.jit(every)(KEY)).items():
        places, expected = out["boxes"].reshape(-1, 4, 2), out["keypoints"].copy()
        expected[3] = 0  # padding, of boxes
        turned = expected[:, [1, 0, 3, 2]]
        sign = signed_area(out["keypoints"][:3])
        mirrored += sign.max() < 0
        np.testing.assert_allclose(
            places, turned if sign.max() < 0 else expected, atol=1e-4, err_msg=name
        )
        polygons = np.array(points)
        for row, count in enumerate((4, 2, 0, 4)):
            polygons[row, :count] = out["keypoints"][row, :count]
        np.testing.assert_allclose(out["polygons"], polygons, atol=1e-4, err_msg=name)
    assert mirrored >= 2 and len(GEOMETRIC) > 15


def signed_area(points):
    """Of [n, 4, 2], positive where they run clockwise on the screen."""
    x, y = points[..., 0].astype(float), points[..., 1].astype(float)
    return np.sum(x * np.roll(y, -1, 1) - y * np.roll(x, -1, 1), axis=1) / 2


def test_a_turn_adds_to_the_angle_and_a_mirror_turns_it_about():
    turn = A.Compose([A.RandomRotation((25, 25))], box_format="cxcywhr")
    out = run(turn, {"image": IMAGE, "boxes": RECTANGLES})["boxes"]
    np.testing.assert_allclose(out[:3, 2:4], RECTANGLES[:3, 2:4], atol=1e-4)
    np.testing.assert_allclose(out[:2, 4], RECTANGLES[:2, 4] + 25, atol=1e-3)
    assert out[2, 4] == pytest.approx(170 + 25 - 360, abs=1e-3) and not out[3].any()
    flip = A.Compose([A.RandomHorizontalFlip(1.0)], box_format="cxcywhr")
    out = run(flip, {"image": IMAGE, "boxes": RECTANGLES})["boxes"]
    np.testing.assert_allclose(out[:3, 0], 30 - RECTANGLES[:3, 0], atol=1e-4)
    np.testing.assert_allclose(out[:3, 4], -RECTANGLES[:3, 4], atol=1e-3)
    shear = A.Compose([A.RandomShear((20, 20))], box_format="cxcywhr")
    sheared = run(shear, {"image": IMAGE, "boxes": RECTANGLES, "keypoints": corners(RECTANGLES)})
    held = corners(sheared["boxes"])
    for box, points in zip(held[:3], sheared["keypoints"]):
        far = [cv2.pointPolygonTest(np.float32(box), tuple(map(float, p)), True) for p in points]
        assert min(far) > -1e-3  # the rectangle holds all that the shear has made of it


def test_sanitized_by_the_area_inside_of_the_image():
    """Areas by OpenCV's intersection of convex polygons; boxes are dropped, and not cut."""
    boxes = np.concatenate(
        [
            rng.uniform(-6, 36, (60, 2)),
            rng.uniform(2, 20, (60, 2)),
            rng.uniform(-180, 180, (60, 1)),
        ],
        axis=1,
    ).astype(np.float32)
    frame = np.float32([[0, 0], [30, 0], [30, 24], [0, 24]])
    inside = [cv2.intersectConvexConvex(np.float32(c), frame)[0] for c in corners(boxes)]
    share = np.array(inside) / (boxes[:, 2] * boxes[:, 3])
    assert np.abs(share - 0.4).min() > 1e-3
    chain = A.Compose([A.SanitizeBoxes(0.0, 0.0, 0.4)], box_format="cxcywhr")
    labels = np.arange(60, dtype=np.int32)
    out = run(chain, {"image": IMAGE, "boxes": boxes, "box_labels": labels})
    kept = np.flatnonzero(share >= 0.4)
    assert 10 < len(kept) < 50
    np.testing.assert_array_equal(out["box_labels"][: len(kept)], kept)
    assert (out["box_labels"][len(kept) :] == -1).all() and not out["boxes"][len(kept) :].any()
    np.testing.assert_allclose(corners(out["boxes"])[: len(kept)], corners(boxes)[kept], atol=1e-3)


def test_mixes_keep_oriented_boxes_whole():
    points = convert(RECTANGLES, "cxcywhr", "xyxyxyxy")
    for mix in (A.MixUp(), A.CutMix(), A.Mosaic(40)):
        images = jnp.stack([jnp.asarray(IMAGE)] * mix.group_size)
        group = {"image": images, "boxes": jnp.stack([points] * mix.group_size)}
        out = run(mix, group)
        boxes = out["boxes"].reshape(-1, 8)
        sides = convert(boxes, "xyxyxyxy", "cxcywhr")[:, 2:4]
        shown = sides[(boxes != 0).any(axis=1)]
        distance = np.abs(shown[:, None] - RECTANGLES[None, :3, 2:4]).max(axis=2).min(axis=1)
        assert len(shown) > 3 and distance.max() < 1e-3
        assert out["boxes_valid"].sum() == len(shown)


FLIPS = [A.RandomHorizontalFlip(1.0), A.RandomVerticalFlip(1.0)]
MIRRORS = [  # steps, whether they mirror, and whether they are fused
    (FLIPS[1:], True, True),
    ([A.RandomRotation((180, 180))], False, True),
    (FLIPS, False, True),
    (FLIPS, False, False),
]


def test_joints_and_classes_change_sides_at_every_mirror():
    swap = {"keypoints": ((1, 2), (3, 4)), "box_labels": ((5, 6),), "parts": ((1, 2),)}
    joints = rng.uniform(0, 24, (3, 5, 3)).astype(np.float32)
    joints[..., 2] = np.arange(5) + 1
    parts = rng.integers(0, 4, IMAGE.shape[:2]).astype(np.uint8)
    given = {
        "image": IMAGE,
        "keypoints": joints,
        "boxes": np.float32([[2, 3, 8, 9]] * 3),
        "box_labels": np.int32([5, 6, 7]),
        "parts": parts,
    }
    for steps, mirrors, fuse in MIRRORS:
        settings = {"targets": {"parts": "mask"}, "fuse": fuse}

        plain = run(A.Compose(steps, **settings), given)
        out = run(A.Compose(steps, **settings, swap=swap), given)
        order = [0, 2, 1, 4, 3] if mirrors else [0, 1, 2, 3, 4]
        np.testing.assert_allclose(out["keypoints"], plain["keypoints"][:, order], atol=1e-4)
        assert out["box_labels"].tolist() == ([6, 5, 7] if mirrors else [5, 6, 7])
        classes = np.array([0, 2, 1, 3] if mirrors else [0, 1, 2, 3])
        np.testing.assert_array_equal(out["parts"], classes[plain["parts"]])


def test_a_coin_swaps_where_it_flips():
    chain = A.Compose([A.RandomHorizontalFlip(0.5)], swap=((0, 1),))
    points = np.float32([[1, 2], [3, 4]])
    keys = jax.random.split(KEY, 16)
    out = jax.vmap(lambda key: chain(key, {"image": jnp.asarray(IMAGE), "keypoints": points}))(keys)
    flipped = (np.asarray(out["image"]) != IMAGE).any(axis=(1, 2, 3))
    expected = np.where(flipped[:, None, None], [[27, 4], [29, 2]], points)
    assert 2 < flipped.sum() < 14
    np.testing.assert_allclose(out["keypoints"], expected)
    still = A.Compose([A.RandomHorizontalFlip(1.0)], swap={"keypoints": ()})
    moved = run(still, {"image": IMAGE, "keypoints": points})["keypoints"]
    np.testing.assert_array_equal(moved[:, 1], points[:, 1])


def test_polygons_go_along_with_their_boxes():
    sample = {
        "image": IMAGE,
        "boxes": np.float32([[40, 0, 50, 9], [2, 3, 8, 9]]),
        "polygons": np.float32([[[40, 0], [50, 0], [50, 9]], [[2, 3], [8, 9], [0, 0]]]),
        "polygons_length": np.int32([3, 2]),
    }
    with pytest.raises(ValueError, match="`polygons` has a row for each box"):
        run(A.SanitizeBoxes(), sample)
    out = run(A.SanitizeBoxes(per_box=("polygons",)), sample)
    assert out["polygons"].tolist() == [[[2, 3], [8, 9], [0, 0]], [[0, 0]] * 3]
    assert out["polygons_length"].tolist() == [2, -1]


def test_wrong_arguments_are_named():
    boxes = np.zeros((2, 8), np.float32)
    with pytest.raises(ValueError, match=r"float\[n, 4\].*got float32\[2, 8\]: name the format"):
        run(A.Compose([A.RandomHorizontalFlip()]), {"image": IMAGE, "boxes": boxes})
    with pytest.raises(ValueError, match="`swap` must be pairs of joints"):
        A.Compose([], swap=((1, 2), (2, 3)))
    with pytest.raises(ValueError, match=r"names joint 7.*with 5 joints"):
        points = np.zeros((5, 2), np.float32)
        run(A.Compose([], swap=((1, 7),)), {"image": IMAGE, "keypoints": points})
    with pytest.raises(TypeError, match="exchanges classes of 'box_area', integers"):
        sample = {"image": IMAGE, "box_area": np.zeros(2, np.float32)}
        run(A.Compose([], swap={"box_area": ((1, 7),)}), sample)
    with pytest.raises(ValueError, match="`polygons_length` must count the points"):
        sample = {"image": IMAGE, "polygons": np.zeros((3, 4, 2)), "polygons_length": np.int32([1])}
        run(A.RandomHorizontalFlip(1.0), sample)
