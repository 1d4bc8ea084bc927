"""CopyAndPaste, crops and dropouts about boxes, schedules by the epoch; oracles in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.augment import functional
from tests.images import picture

KEY = jax.random.key(0)
rng = np.random.default_rng(0)


def objects(count, seed, size=(20, 24)):
    """`count` rectangles on a picture, of which the last is padding."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 12, (count, 2))
    boxes = np.concatenate([corner, corner + rng.integers(3, 9, (count, 2))], axis=1)
    boxes[-1] = 0
    masks = np.zeros((count, *size), np.uint8)
    for mask, (x0, y0, x1, y1) in zip(masks, boxes):
        mask[y0:y1, x0:x1] = 1
    labels = np.int32(np.append(np.arange(count - 1) + 10 * seed, -1))
    image = picture(seed, *size)
    return {"image": image, "masks": masks, "boxes": np.float32(boxes), "box_labels": labels}


def pasted(own, partner, taken, min_visibility):
    """The oracle: one sample with some of its partner's objects, in loops."""
    image = own["image"].copy()
    covered = np.zeros(image.shape[:2], bool)
    for mask, one in zip(partner["masks"], taken):
        covered |= (mask != 0) & one
    image[covered] = partner["image"][covered]
    rows = []
    for mask, box, label in zip(own["masks"], own["boxes"], own["box_labels"]):
        left = (mask != 0) & ~covered
        if not box.any() or left.sum() < max(min_visibility * mask.sum(), 1):
            continue
        if left.sum() < mask.sum():
            y, x = np.nonzero(left)
            box = np.float32([x.min(), y.min(), x.max() + 1, y.max() + 1])
        rows.append((left.astype(np.uint8), box, label))
    for mask, box, label, one in zip(
        *(partner[k] for k in ("masks", "boxes", "box_labels")), taken
    ):
        if one and box.any():
            rows.append((mask, box, label))
    return image, rows


def test_objects_are_pasted_as_in_loops():
    paste = A.CopyAndPaste(min_visibility=0.6)
    pairs = [(objects(5, 2 * i), objects(5, 2 * i + 1)) for i in range(8)]
    group = {
        name: np.stack([np.stack([a[name], b[name]]) for a, b in pairs]) for name in pairs[0][0]
    }
    keys = jax.random.split(KEY, len(pairs))

    def both(key, group):
        info = A.ImageInfo((20, 24), None, group["boxes"])
        return paste(key, group), paste.draw(key, info).params

    out, taken = jax.device_get(jax.jit(jax.vmap(both))(keys, group))
    dropped = 0
    for i, pair in enumerate(pairs):
        for k in range(2):
            image, rows = pasted(pair[k], pair[1 - k], taken[i, k], 0.6)
            np.testing.assert_array_equal(out["image"][i, k], image)
            count = len(rows)
            assert out["boxes_valid"][i, k].tolist() == [True] * count + [False] * (10 - count)
            for name, values in zip(("masks", "boxes", "box_labels"), zip(*rows)):
                np.testing.assert_array_equal(out[name][i, k][:count], np.stack(values))
            assert not out["masks"][i, k][count:].any()
            dropped += 4 + np.sum(taken[i, k][:4]) - count
    assert dropped > 5


def test_what_cannot_be_pasted_is_refused():
    pair = [objects(3, 0), objects(3, 1)]
    group = {name: np.stack([each[name] for each in pair]) for name in pair[0]}
    with pytest.raises(ValueError, match=r"needs 'masks' .*, got none"):
        A.CopyAndPaste()(KEY, {k: v for k, v in group.items() if k != "masks"})
    with pytest.raises(ValueError, match="cannot cut 'keypoints'"):
        A.CopyAndPaste()(KEY, {**group, "keypoints": np.zeros((2, 3, 5, 2), np.float32)})
    invalid = {**group, "valid": np.array([True, False])}
    out = A.CopyAndPaste(share=1.0)(KEY, invalid)
    np.testing.assert_array_equal(out["image"][0], group["image"][0])
    assert out["boxes_valid"].sum(axis=1).tolist()[0] == 2


def test_an_object_without_pixels_is_not_pasted_and_lengths_go_along():
    masks = np.zeros((2, 2, 8, 9), np.uint8)
    masks[:, 0, 2:5, 3:7] = 1
    boxes = np.tile(np.float32([[3, 2, 7, 5], [0, 6, 1, 8]]), (2, 1, 1))
    words = {"words": np.ones((2, 2, 4), np.int32), "words_length": np.int32([[1, 2], [3, 4]])}
    group = {"image": np.zeros((2, 8, 9, 3), np.uint8), "masks": masks, "boxes": boxes, **words}
    out = jax.jit(A.CopyAndPaste(share=1.0, per_box=("words",)))(KEY, group)
    assert out["boxes"][0].tolist() == [[0, 6, 1, 8], [3, 2, 7, 5], [0] * 4, [0] * 4]
    assert out["words_length"].tolist() == [[2, 3, -1, -1], [4, 1, -1, -1]]


def windows(transform, boxes, count=500):
    info = A.ImageInfo((40, 60), None, jnp.asarray(boxes, jnp.float32))
    draw = jax.jit(jax.vmap(lambda key: transform.make_params(key, info)))
    drawn = jax.device_get(draw(jax.random.split(KEY, count)))
    return np.stack([drawn.left, drawn.top, drawn.left + drawn.width, drawn.top + drawn.height], 1)


def test_a_safe_crop_holds_all_boxes_and_reaches_every_edge():
    boxes = [[20, 10, 30, 18], [0, 0, 0, 0], [25, 12, 41, 30]]
    found = windows(A.RandomSizedBoxSafeCrop(8), boxes)
    assert (found[:, :2] <= [20, 10]).all() and (found[:, 2:] >= [41, 30]).all()
    assert (found.min(axis=0) <= [1, 1, 42, 31]).all()
    assert (found.max(axis=0) >= [19, 9, 59, 39]).all() and (found[:, 2:] <= [60, 40]).all()
    eroded = windows(A.RandomSizedBoxSafeCrop(8, erosion_rate=0.5), boxes)
    assert eroded[:, 0].max() in (24, 25) and eroded[:, 2].min() in (36, 37)
    none = windows(A.RandomSizedBoxSafeCrop(8), np.zeros((2, 4)))
    assert (none[:, 2:] > none[:, :2]).all() and np.ptp(none, axis=0).min() > 20


def test_a_crop_near_a_box_shifts_its_sides():
    found = windows(A.RandomCropNearBox(8, (0.2, 0.5)), [[0] * 4, [10, 10, 20, 30], [40, 5, 44, 9]])
    first = found[np.abs(found - [10, 10, 20, 30]).max(axis=1) <= 6]
    second = found[np.abs(found - [40, 5, 44, 9]).max(axis=1) <= 3]
    assert len(first) + len(second) == len(found) and 200 < len(first) < 300
    assert np.abs(first - [10, 10, 20, 30]).max(axis=0).tolist() == [5, 4, 5, 4]
    assert windows(A.RandomCropNearBox(8), np.zeros((1, 4))).max(axis=0).tolist()[2:] == [60, 40]


def test_holes_lie_inside_of_their_boxes():
    boxes = np.float32([[3, 4, 13, 16], [0, 0, 0, 0], [20, 2, 28, 10]])
    dropout = A.ConstrainedCoarseDropout((1, 3), (0.2, 0.5), (0.2, 0.5), value=1.0, p=1.0)
    sample = {"image": np.zeros((20, 30, 3), np.uint8), "boxes": boxes}
    run = jax.jit(jax.vmap(dropout, (0, None)))
    painted = np.asarray(run(jax.random.split(KEY, 40), sample)["image"])[..., 0] == 255
    inside = np.zeros((20, 30), bool)
    inside[4:16, 3:13] = inside[2:10, 20:28] = True
    assert not painted[:, ~inside].any() and painted.any(axis=0)[inside].mean() > 0.9
    sizes = painted[:, 4:16, 3:13].sum(axis=(1, 2))
    assert sizes.min() >= 2 * 2 and sizes.max() <= 3 * 6 * 5


def test_bands_cross_the_whole_image():
    mask = A.XYMasking((1, 2), (0, 1), (0.1, 0.2), (0.1, 0.2), value=1.0, p=1.0)
    run = jax.jit(jax.vmap(mask, (0, None)))
    out = np.asarray(run(jax.random.split(KEY, 60), np.zeros((20, 30, 1), np.uint8)))[..., 0] == 255
    columns, rows = out.all(axis=1).sum(axis=1), out.all(axis=2).sum(axis=1)
    assert set(columns) <= set(range(3, 13)) and columns.max() > 6
    assert set(rows) <= {0, 2, 3, 4} and 10 < (rows == 0).sum() < 50
    np.testing.assert_array_equal(out.sum(axis=(1, 2)), 20 * columns + 30 * rows - columns * rows)


def test_crop_and_pad_is_a_window_resized():
    transform = A.CropAndPad((0.25, 0.25), fill=1.0)
    image = picture(0, 16, 24)
    padded = np.pad(image, ((4, 4), (6, 6), (0, 0)), constant_values=255)
    sample = {"image": image, "boxes": np.float32([[4, 2, 8, 6]])}
    out = jax.jit(transform)(KEY, sample)
    expected = jax.jit(functional.resize, static_argnums=1)(padded, (16, 24))
    assert np.abs(np.int32(out["image"]) - np.int32(expected)).max() <= 1
    np.testing.assert_allclose(out["boxes"], [[20 / 3, 4, 28 / 3, 20 / 3]], rtol=1e-6)


def test_nodes_move_by_the_standard_deviation():
    bend = A.PiecewiseAffine((0.02, 0.02), (3, 5))
    params = jax.vmap(lambda key: bend.make_params(key, A.ImageInfo((40, 60))))(
        jax.random.split(KEY, 200)
    )
    assert np.std(params.displacements) == pytest.approx(0.02, rel=0.05)
    still = np.zeros((2, 3, 5), np.float32)
    still[0, 1, 2] = 0.05
    points = jnp.array([[30.0, 20.0], [22.5, 10.0], [50.0, 20.0]])
    nodes = type(params)(jnp.asarray(still))
    x, y = bend.warp(nodes, A.ImageInfo((40, 60))).pull(points[:, 0], points[:, 1])
    np.testing.assert_allclose(x - points[:, 0], [3.0, 0.75, 0.0], atol=1e-5)
    np.testing.assert_allclose(y, points[:, 1], atol=1e-5)


def test_a_schedule_takes_the_branch_of_the_epoch():
    steps = [A.RandomHorizontalFlip(p) for p in (0.0, 1.0)]
    chain = A.Compose([A.ByEpoch([*steps, A.RandomInvert(1.0)], (2, 5))])
    image = picture(1, 6, 7)
    run = jax.jit(lambda epoch: chain(KEY, {"image": image, "epoch": epoch})["image"])
    wanted = [image] * 2 + [image[:, ::-1]] * 3 + [255 - image] * 2
    for epoch, expected in enumerate(wanted):
        np.testing.assert_array_equal(run(jnp.int32(epoch)), expected)
    with pytest.raises(ValueError, match="needs the 'epoch'"):
        chain(KEY, image)
    with pytest.raises(ValueError, match="`starts` must be rising"):
        A.ByEpoch(steps, (0,))
    with pytest.raises(ValueError, match="an epoch for each transform but the first, got 2 for 2"):
        A.ByEpoch(steps, (1, 2))


def test_late_mosaics_are_single_images_in_the_middle():
    images = np.stack([picture(i, 8, 10) for i in range(4)])
    boxes = np.tile(np.float32([[1, 2, 6, 7], [0, 0, 0, 0]]), (4, 1, 1))
    mosaic = A.Mosaic((20, 24), until=3)
    run = jax.jit(mosaic)
    group = {"image": images, "boxes": boxes, "size": np.int32([[8, 10], [6, 9]] * 2)}
    out = jax.device_get(run(KEY, {**group, "epoch": np.full(4, 3, np.int32)}))
    expected = np.zeros((4, 20, 24, 3), np.uint8)
    expected[::2, 6:14, 7:17] = images[::2]
    expected[1::2, 7:13, 7:16] = images[1::2, :6, :9]
    np.testing.assert_array_equal(out["image"], expected)
    assert out["boxes_valid"].sum(axis=1).tolist() == [1] * 4
    np.testing.assert_array_equal(out["boxes"][:2, 0], [[8, 8, 13, 13], [8, 9, 13, 13]])
    early = run(KEY, {**group, "epoch": np.full(4, 2, np.int32)})
    plain = jax.jit(A.Mosaic((20, 24)))(KEY, group)
    np.testing.assert_array_equal(early["image"], plain["image"])
