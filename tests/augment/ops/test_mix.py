"""MixUp and CutMix against numpy, draws against Beta and torchvision's windows, and a Loader."""

import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxaug import augment as A
from jaxaug.augment._ops.mix import uncovered
from jaxaug.iterators import InMemory, Loader
from jaxaug.sharding import batch_sharding
from tests.images import jpegs, picture

N = 4000
KEYS = jax.random.split(jax.random.key(2), N)
CLASSES = 5
INFO = A.ImageInfo((40, 60))
MIXES = [
    A.MixUp(CLASSES, 0.4),
    A.CutMix(CLASSES),
    A.MixUpOrCutMix(CLASSES),
    A.Mosaic((40, 60), num_classes=CLASSES),
    A.GroupCompose([A.Mosaic((40, 60), num_classes=CLASSES), A.MixUp(CLASSES)]),
]


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_images_of_different_sizes_are_mixed_in_a_frame_of_both(order):
    size = jnp.array([[14, 26], [30, 11]], jnp.int32)[order]
    info = A.ImageInfo((40, 60), size)
    window = A.MixUp(CLASSES).make_params(KEYS[0], info).window
    assert window.tolist() == [[0, 0, 26, 30]] * 2
    windows = jax.vmap(lambda key: A.CutMix(CLASSES).make_params(key, info).window)(KEYS[:500])
    assert windows.reshape(-1, 4).max(axis=0)[2:].tolist() == [26, 30]


@pytest.mark.parametrize("mix", [A.MixUp(p=0.0), A.CutMix(p=0.0), A.MixUp(), A.CutMix()])
def test_a_sample_that_is_not_mixed_has_its_own_boxes_alone(mix):
    given = {name: jnp.asarray(value) for name, value in group().items() if name != "label"}
    del given["mask"]
    valid = jnp.array([True, mix.p == 0])  # else only the first has no partner
    out = mix(KEYS[0], given | {"valid": valid})
    expected = np.zeros((6, 4), np.float32)
    expected[:2] = given["boxes"][0, :2]
    np.testing.assert_array_equal(out["boxes"][0], expected)
    assert out["boxes_valid"][0].tolist() == [True] * 2 + [False] * 4


def test_boxes_of_cutmix_weigh_one():
    given = {name: jnp.asarray(group()[name]) for name in ("image", "boxes")}
    out = jax.vmap(A.CutMix(), (0, None))(KEYS[:50], given)
    np.testing.assert_array_equal(out["box_weights"], np.asarray(out["boxes_valid"], np.float32))
    assert (np.asarray(out["boxes_valid"]).sum(axis=2) > 2).any()  # with some of the partner


def name_of(mix):
    return type(mix).__name__


def group(count=2, dtype=np.uint8):
    """`count` pictures with labels, masks and boxes, of which the last is padding."""
    image = np.stack([picture(i, 40, 60) for i in range(count)])
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 25, (count, 3, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(3, 14, (count, 3, 2))], axis=2)
    boxes[:, 2] = 0
    return {
        "image": (image / 255).astype(dtype) if dtype != np.uint8 else image,
        "label": np.arange(count, dtype=np.int32),
        "mask": rng.integers(0, 9, (count, 40, 60), dtype=np.uint8),
        "boxes": boxes.astype(np.float32),
        "box_labels": np.array([[10 * i, 10 * i + 1, -1] for i in range(count)], np.int32),
        "box_count": np.full(count, 2, np.int32),
    }


def without(entries, *names):
    return {name: value for name, value in entries.items() if name not in names}


def params(mix, info=INFO):
    return jax.device_get(jax.jit(jax.vmap(lambda key: mix.make_params(key, info)))(KEYS))


def p_of(result):
    return float(np.asarray(result[1]))


def covers(window, height=40, width=60):
    left, top, right, bottom = window
    inside = np.zeros((height, width), bool)
    inside[top:bottom, left:right] = True
    return inside


# ---- draws


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_mixup_weights_are_beta(alpha):
    weights = params(A.MixUp(CLASSES, alpha)).weight
    for column in weights.T:
        assert p_of(stats.kstest(column, stats.beta(alpha, alpha).cdf)) > 1e-4
    assert abs(np.corrcoef(weights.T)[0, 1]) < 0.06


@pytest.mark.parametrize("alpha", [1e-3, 1e3])
def test_mixup_weights_of_extreme_parameters(alpha):
    weights = params(A.MixUp(CLASSES, alpha)).weight
    assert ((weights >= 0) & (weights <= 1)).all()
    assert abs(weights.mean() - 0.5) < 0.05
    np.testing.assert_allclose(weights.var(), 1 / (4 * (2 * alpha + 1)), rtol=0.1)


def test_weights_are_drawn_without_loops():
    traced = jax.jit(lambda key: A.MixUpOrCutMix(CLASSES).make_params(key, INFO)).trace(KEYS[0])
    assert "while" not in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_cutmix_windows_are_those_of_torchvision(alpha):
    rng = np.random.default_rng(3)
    theirs = []
    for _ in range(N):
        r = 0.5 * math.sqrt(1 - rng.beta(alpha, alpha))
        x, y = rng.integers(60), rng.integers(40)
        half_x, half_y = int(r * 60), int(r * 40)
        theirs.append((max(x - half_x, 0), max(y - half_y, 0)))
        theirs[-1] += (min(x + half_x, 60), min(y + half_y, 40))
    windows = params(A.CutMix(CLASSES, alpha)).window
    for side, other in zip(windows[:, 1].T, np.array(theirs).T):
        assert p_of(stats.ks_2samp(side, other)) > 1e-4


def test_the_choice_is_one_for_each_sample():
    blend = params(A.MixUpOrCutMix(CLASSES, 0.8, 1.0, 0.3))
    cuts = blend.weight == 0
    assert stats.binomtest(int(cuts.sum()), 2 * N, 0.3).pvalue > 1e-4
    assert abs(np.corrcoef(cuts.T)[0, 1]) < 0.06
    assert (blend.window[~cuts] == (0, 0, 60, 40)).all()
    assert p_of(stats.kstest(blend.weight[~cuts], stats.beta(0.8, 0.8).cdf)) > 1e-4


# ---- results


@pytest.mark.parametrize(
    "mix, dtype, layout",
    [
        (MIXES[0], np.uint8, "HWC"),
        (MIXES[1], np.uint8, "HWC"),
        (MIXES[2], np.float32, "HWC"),
        (MIXES[2], jnp.bfloat16, "CHW"),
    ],
)
def test_pixels_and_labels_are_mixed_as_numpy_mixes_them(mix, dtype, layout):
    key = jax.random.key(4)
    whole = group(dtype=dtype)
    whole = {"image": whole["image"], "label": whole["label"]}
    given = dict(whole)
    if layout == "CHW":
        given["image"] = whole["image"].transpose(0, 3, 1, 2)
    out = jax.device_get(jax.jit(mix)(key, given))
    blend = jax.device_get(mix.make_params(key, INFO))
    pixels = whole["image"].astype(np.float64)
    for i in range(2):
        weight = float(blend.weight[i])
        inside = covers(blend.window[i])
        expected = np.where(
            inside[:, :, None], weight * pixels[i] + (1 - weight) * pixels[1 - i], pixels[i]
        )
        image = out["image"][i] if layout == "HWC" else out["image"][i].transpose(1, 2, 0)
        tolerance = {np.uint8: 0.501, np.float32: 1e-6}.get(dtype, 4e-3)
        np.testing.assert_allclose(image.astype(np.float64), expected, atol=tolerance)
        own = 1 - (1 - weight) * inside.mean()
        expected = own * np.eye(CLASSES)[i] + (1 - own) * np.eye(CLASSES)[1 - i]
        np.testing.assert_allclose(out["label"][i], expected, atol=1e-6)
    assert out["image"].dtype == dtype and out["label"].dtype == np.float32


@pytest.mark.parametrize("mix", [A.MixUp(2), A.Mosaic(8, num_classes=2)], ids=name_of)
def test_labels_that_are_bools_are_a_class_or_several(mix):
    image = group(mix.group_size)["image"]
    one = np.arange(mix.group_size) % 2 == 1
    out = mix(KEYS[0], {"image": image, "label": one})
    same = mix(KEYS[0], {"image": image, "label": one.astype(np.int32)})
    np.testing.assert_array_equal(out["label"], same["label"])
    several = np.stack([one, np.ones_like(one)], axis=1)
    out = mix(KEYS[0], {"image": image, "label": several})
    same = mix(KEYS[0], {"image": image, "label": several.astype(np.float32)})
    np.testing.assert_array_equal(out["label"], same["label"])


def test_masks_are_cut_with_the_image_and_only_floats_are_blended():
    key = jax.random.key(1)
    whole = group()
    out = A.CutMix(CLASSES)(key, whole)
    blend = A.CutMix(CLASSES).make_params(key, INFO)
    for i in range(2):
        inside = covers(np.asarray(blend.window[i]))
        assert inside.any()
        expected = np.where(inside, whole["mask"][1 - i], whole["mask"][i])
        np.testing.assert_array_equal(out["mask"][i], expected)
    for mix in (A.MixUp(CLASSES), A.MixUpOrCutMix(CLASSES)):
        with pytest.raises(ValueError, match=r"has no mean of the class indices of 'mask', got ui"):
            mix(key, whole)
    soft = np.eye(9, dtype=np.float32)[whole["mask"]]
    out = A.MixUp(CLASSES)(key, {**whole, "mask": soft})
    weight = np.asarray(A.MixUp(CLASSES).make_params(key, INFO).weight).reshape(2, 1, 1, 1)
    np.testing.assert_allclose(out["mask"], weight * soft + (1 - weight) * soft[::-1], atol=1e-6)


def test_boxes_of_both_are_kept_with_their_labels_and_weights():
    whole = without(group(), "mask")
    key = jax.random.key(1)
    weight = np.asarray(A.MixUp(CLASSES).make_params(key, INFO).weight)
    out = jax.device_get(A.MixUp(CLASSES)(key, whole))
    for i in range(2):
        np.testing.assert_allclose(out["boxes"][i][:2], whole["boxes"][i][:2])
        np.testing.assert_allclose(out["boxes"][i][2:4], whole["boxes"][1 - i][:2])
        assert not out["boxes"][i][4:].any()
        expected = [10 * i, 10 * i + 1, 10 * (1 - i), 10 * (1 - i) + 1, -1, -1]
        assert out["box_labels"][i].tolist() == expected
        shares = [weight[i]] * 2 + [1 - weight[i]] * 2 + [0, 0]
        np.testing.assert_allclose(out["box_weights"][i], shares, atol=1e-6)
    assert out["box_count"].tolist() == [4, 4]
    assert out["boxes_valid"].tolist() == [[True] * 4 + [False] * 2] * 2


def test_weights_follow_their_boxes_through_later_steps():
    """Dropped, mixed again or in a mosaic: a weight is that of its box in the first mix."""
    four = without(group(4), "mask", "label")
    pairs = jax.tree.map(lambda rows: rows.reshape(2, 2, *rows.shape[1:]), four)
    mixed = jax.jit(jax.vmap(A.MixUp()))(KEYS[:2], pairs)
    mixed = jax.device_get(jax.tree.map(lambda rows: rows.reshape(4, *rows.shape[2:]), mixed))
    weights = [dict(pairs_of(mixed, i)) for i in range(4)]

    left = jax.jit(jax.vmap(A.SanitizeBoxes(min_size=8)))(KEYS[:4], mixed)
    for i in range(4):
        found = pairs_of(left, i)
        assert 0 < len(found) < 4 and found == [(name, weights[i][name]) for name, _ in found]

    two = jax.tree.map(lambda rows: rows[:2], mixed)
    share = np.asarray(A.MixUp().make_params(KEYS[4], INFO).weight)
    again = jax.jit(A.MixUp())(KEYS[4], two)
    for i in range(2):
        expected = [(name, share[i] * weight) for name, weight in weights[i].items()]
        expected += [(name, (1 - share[i]) * weight) for name, weight in weights[1 - i].items()]
        np.testing.assert_allclose(pairs_of(again, i), expected, atol=1e-6)

    mosaic = jax.jit(A.Mosaic((40, 60)))(KEYS[5], mixed)
    known = {pair for each in weights for pair in each.items()}
    assert all(pairs_of(mosaic, i) and known.issuperset(pairs_of(mosaic, i)) for i in range(4))


def pairs_of(samples, i):
    """The labels and weights of the boxes of sample i."""
    valid = np.asarray(samples["boxes_valid"][i])
    columns = (np.asarray(samples[name][i])[valid] for name in ("box_labels", "box_weights"))
    return [*zip(*(column.tolist() for column in columns))]


def test_what_a_window_leaves_of_a_box_is_the_hull_of_its_pixels():
    rng = np.random.default_rng(5)
    for _ in range(300):
        (x0, x1), (y0, y1), (left, right), (top, bottom) = np.sort(rng.integers(0, 8, (4, 2)))
        seen = np.zeros((8, 8), bool)
        seen[y0:y1, x0:x1] = True
        seen[top:bottom, left:right] = False
        ys, xs = np.nonzero(seen)
        expected = [0] * 4
        if len(ys):
            expected = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
        box = np.array([[x0, y0, x1, y1]], np.float32)
        window = np.array([left, top, right, bottom], np.float32)
        np.testing.assert_array_equal(jax.jit(uncovered)(box, window)[0], expected)


@pytest.mark.parametrize("mix", MIXES[2:], ids=name_of)  # the first two share their code
def test_an_invalid_partner_means_no_mixing(mix):
    count = mix.group_size
    whole = {**group(count), "valid": np.arange(count) == 0}
    whole = without(whole, "mask", "boxes", "box_labels", "box_count")
    for key in KEYS[:5]:
        out = jax.device_get(jax.jit(mix)(key, whole))
        np.testing.assert_allclose(out["label"][0], np.eye(CLASSES)[0], atol=1e-6)
        if not isinstance(mix, (A.Mosaic, A.GroupCompose)):
            np.testing.assert_array_equal(out["image"][0], whole["image"][0])


def test_p_is_that_of_a_pair_and_labels_are_soft_without_mixing():
    mix = A.CutMix
    whole = without(group(), "mask")
    out = mix(CLASSES, p=0.0)(KEYS[0], whole)
    np.testing.assert_array_equal(out["image"], whole["image"])
    np.testing.assert_array_equal(out["label"], np.eye(CLASSES, dtype=np.float32)[:2])
    np.testing.assert_array_equal(out["boxes"][:, :2], whole["boxes"][:, :2])
    assert not np.asarray(out["boxes"])[:, 2:].any() and out["box_count"].tolist() == [2, 2]
    draws = jax.jit(jax.vmap(lambda key: mix(p=0.3).draw(key, INFO)))(KEYS).params.weight
    mixed = (np.asarray(draws) < 1).all(axis=1)
    assert stats.binomtest(int(mixed.sum()), N, 0.3).pvalue > 1e-4


def test_sizes_grow_to_hold_both_images():
    whole = {"image": group()["image"], "size": np.array([[30, 50], [40, 20]], np.int32)}
    out = A.MixUp()(KEYS[0], whole)
    assert out["size"].tolist() == [[40, 50]] * 2
    assert A.MixUp(p=0.0)(KEYS[0], whole)["size"].tolist() == whole["size"].tolist()


def test_labels_without_a_class():
    whole = {"image": group()["image"], "label": np.array([-1, 7], np.int32)}
    label = np.asarray(A.MixUp(CLASSES, p=0.0)(KEYS[0], whole)["label"])
    assert np.isnan(label[1]).all()
    zero = A.MixUp(CLASSES, p=0.0)(KEYS[0], {**whole, "label": np.array([-1, 2], np.int32)})
    assert np.asarray(zero["label"]).tolist() == [[0.0] * 5, [0.0, 0.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize("mix", MIXES, ids=name_of)
@pytest.mark.parametrize("layout", ["HWC", "CHW", "HW"])
def test_a_second_image_would_be_left_behind(mix, layout):
    images = group(mix.group_size)["image"]
    second = images[..., 0] if layout == "HW" else images
    if layout == "CHW":
        images, second = np.moveaxis(images.astype(np.float32), 3, 1), second.transpose(0, 3, 1, 2)
    with pytest.raises(ValueError, match=r"leave the pixels of 'right' \(.* further channels"):
        mix(KEYS[0], {"image": images, "right": second})


def test_columns_of_as_many_boxes_as_the_image_has_rows_are_no_pixels():
    given = {"image": np.zeros((2, 4, 4, 3), np.uint8), "boxes": np.zeros((2, 4, 4), np.float32)}
    out = A.MixUp()(KEYS[0], {**given, "box_corners": np.zeros((2, 4, 4), np.float32)})
    assert out["box_corners"].shape == (2, 8, 4)


def test_errors_are_named():
    whole = group()
    with pytest.raises(ValueError, match=r"CutMix makes soft labels of 'label', got num_classes=N"):
        A.CutMix()(KEYS[0], whole)
    with pytest.raises(ValueError, match=r"mixes 'image', .* got 'keypoints' beside them"):
        A.MixUp(3)(KEYS[0], {**whole, "keypoints": np.zeros((2, 1, 2), np.float32)})
    for name in ("audio", "video", "volume"):  # of the same record
        with pytest.raises(ValueError, match=rf"mixes 'image', .* got '{name}' beside them"):
            A.MixUp(3)(KEYS[0], {**whole, name: np.zeros((2, 4, 1), np.float32)})
    with pytest.raises(ValueError, match=r"mixes 'image', .* got 'about', 'views' beside them"):
        A.MixUp(3)(KEYS[0], {**whole, "views": [whole["image"]], "about": {"x": np.zeros(2)}})
    with pytest.raises(ValueError, match=r"mixes 'image', .* got 'masks' beside them"):
        A.CutMix(3)(KEYS[0], {**whole, "masks": np.zeros((2, 1, 40, 60), np.uint8)})
    with pytest.raises(
        ValueError, match=r"mixes 'image', 'label', .* 'labels' beside them: call a"
    ):
        A.MixUp(3)(KEYS[0], {"image": whole["image"], "labels": np.arange(2, dtype=np.int32)})
    with pytest.raises(ValueError, match=r"Mosaic mixes .* `per_box=\('labels',\)`"):
        A.Mosaic(8)(KEYS[0], {"image": group(4)["image"], "labels": np.zeros((4, 3), np.int32)})
    with pytest.raises(TypeError, match=r"MixUp needs a group of samples, a dict .* got float32\["):
        A.MixUp(3)(KEYS[0], whole["image"].astype(np.float32))
    with pytest.raises(ValueError, match=r"a group must have an 'image', got the keys \['pixels'"):
        A.MixUp(3)(KEYS[0], {"pixels": whole["image"]})
    with pytest.raises(ValueError, match=r"got the keys \['video'\]: mix the frames of videos thr"):
        A.MixUp(3)(KEYS[0], {"video": np.zeros((2, 4, 8, 8, 3), np.uint8)})
    lists = {"image": np.zeros((2, 3, 8, 8, 3), np.uint8), "size": np.full((2, 3, 2), 8)}
    with pytest.raises(
        ValueError, match=r"MixUp .* `size` int32\[2, 2\], got \[2, 3, 2\]: mix those"
    ):
        A.MixUp()(KEYS[0], lists)
    with pytest.raises(TypeError, match="arguments are swapped"):
        A.MixUp(3)(whole, KEYS[0])
    with pytest.raises(ValueError, match=r"groups of 2, got 4 images: .* Loader\(batch_transform="):
        A.MixUp(3)(KEYS[0], group(4))
    with pytest.raises(ValueError, match=r"`alpha` must be above 0"):
        A.MixUp(3, 0.0)
    with pytest.raises(ValueError, match=r"`num_classes` must be an int of at least 1, got 0"):
        A.CutMix(0)
    with pytest.raises(
        TypeError, match=r"`transforms` must be group operators .* got 3: wrap a function"
    ):
        A.GroupCompose([3])


def test_a_chain_of_groups_has_one_format_of_boxes():
    chain = A.Compose([A.RandomHorizontalFlip(1.0)], box_format="cxcywh")
    for steps in ([A.Mosaic(8), chain], [chain, A.MixUp()]):
        with pytest.raises(
            ValueError, match=r"boxes as xyxy, got .* box_format='cxcywh' beside it"
        ):
            A.GroupCompose(steps)
    alone = A.GroupCompose([chain])(
        KEYS[0],
        {"image": np.zeros((1, 8, 9, 3), np.uint8), "boxes": np.float32([[[2, 3, 2, 4]]])},
    )
    assert alone["boxes"].tolist() == [[[7, 3, 2, 4]]]


@pytest.mark.parametrize("mix", [A.MixUp(), A.CutMix(), A.Mosaic(8)], ids=name_of)
@pytest.mark.parametrize("shape", [(8, 9), (5, 8, 9, 3)])
def test_images_without_channels_and_videos_are_refused(mix, shape):
    images = np.zeros((mix.group_size, *shape), np.uint8)
    with pytest.raises(ValueError, match=r"mixes single images with channels, .* got \(\d, "):
        mix(KEYS[0], {"image": images})


def test_videos_are_mixed_frame_by_frame_with_one_key():
    videos = np.random.default_rng(0).uniform(0, 1, (2, 3, 8, 9, 3)).astype(np.float32)
    mix = A.MixUpOrCutMix(cutmix_share=1.0)
    by_frame = jax.vmap(mix, in_axes=(None, 1), out_axes=1)
    out = np.asarray(by_frame(KEYS[1], {"image": videos})["image"])
    for frame in range(3):
        alone = mix(KEYS[1], {"image": videos[:, frame]})["image"]
        np.testing.assert_array_equal(out[:, frame], alone)


@pytest.mark.parametrize("mix", MIXES, ids=name_of)
def test_config(mix):
    assert pickle.loads(pickle.dumps(mix)) == mix and hash(mix) == hash(
        pickle.loads(pickle.dumps(mix))
    )
    assert repr(mix).startswith(type(mix).__name__ + "(")


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
def test_both_layouts_of_any_number_of_channels(channels):
    image = np.random.default_rng(0).uniform(0, 1, (2, 40, 60, channels)).astype(np.float32)
    cut = jax.jit(A.CutMix())
    for key in KEYS[:5]:
        rows_last = cut(key, {"image": image})["image"]
        rows_first = cut(key, {"image": image.transpose(0, 3, 1, 2)})["image"]
        np.testing.assert_array_equal(np.asarray(rows_first).transpose(0, 2, 3, 1), rows_last)


@pytest.mark.parametrize("shape", [(3, 9, 4), (4, 4, 3)])
def test_images_of_either_layout_are_not_cut(shape):
    group = {"image": np.zeros((2, *shape), np.float32)}
    for cut in (A.CutMix(), A.MixUpOrCutMix()):
        with pytest.raises(
            ValueError, match=r"cuts windows .* got \(.*, which may be either: give"
        ):
            cut(KEYS[0], group)
    assert A.MixUp()(KEYS[0], group)["image"].shape == (2, *shape)


def test_a_chain_of_groups_without_room_for_boxes():
    group = {
        "image": jnp.zeros((4, 8, 9, 3)),
        "boxes": jnp.zeros((4, 0, 4)),
        "note": jnp.zeros((4, 0)),
    }
    two = {name: value[:2] for name, value in group.items()}
    out = jax.eval_shape(A.GroupCompose([A.MixUp()]), KEYS[0], two)
    assert out["boxes"].shape == (2, 0, 4) and out["image"].shape == (2, 8, 9, 3)
    assert out["note"].shape == (2, 0)

    eight = jax.tree.map(lambda value: jnp.concatenate([value, value]), group)
    eight["image"] = eight["image"].astype(jnp.uint8)
    in_two_parts = jax.jit(A.GroupCompose([A.Mosaic((8, 9)), A.MixUp()]))(KEYS[0], eight)
    assert in_two_parts["image"].shape == (8, 8, 9, 3) and in_two_parts["note"].shape == (8, 0)


# ---- in a Loader


def test_after_normalize_in_the_layout_of_the_model():
    source = InMemory(jpegs(8), {"label": np.arange(8) % CLASSES})
    chain = A.Compose([A.CenterCrop(32), A.Normalize(0.5, 0.5, "bfloat16", "NCHW")])
    loader = Loader(
        source,
        8,
        transform=chain,
        batch_transform=MIXES[2],
        sharding=batch_sharding(jax.devices()[:1]),
    )
    with loader:
        batch = next(loader)
    assert batch["image"].shape == (8, 3, 32, 32) and batch["image"].dtype == jnp.bfloat16
    for mix in (A.Mosaic(32, num_classes=CLASSES), MIXES[4]):
        with pytest.raises(
            ValueError, match=r"Mosaic needs images \[H, W, C\], got .* of layout CHW"
        ):
            mix(KEYS[0], {"image": jnp.zeros((mix.group_size, 3, 32, 32), jnp.bfloat16)})
    with pytest.raises(
        TypeError, match=r"Mosaic needs uint8 or uint16 images, got float32, which may be norm"
    ):
        A.Mosaic(32)(KEYS[0], {"image": jnp.zeros((4, 32, 32, 3))})


def test_boxes_go_through_a_loader_with_padded_rows():
    boxes = np.zeros((6, 2, 4), np.float32)
    boxes[:, 0] = [10, 8, 30, 32]
    columns = {
        "boxes": boxes,
        "box_labels": np.array([[i, -1] for i in range(6)], np.int32),
        "box_count": np.ones(6, np.int32),
    }
    mix = A.GroupCompose([A.Mosaic((80, 112)), A.Resize((40, 56)), A.SanitizeBoxes(2)])
    one = batch_sharding(jax.devices("cpu")[:1])
    source = InMemory(jpegs(6), columns)
    with Loader(source, 8, batch_transform=mix, last_batch="pad", sharding=one) as loader:
        batch = jax.device_get(next(loader))
    assert batch["boxes"].shape == (8, 8, 4) and batch["image"].shape == (8, 40, 56, 3)
    assert not batch["boxes"][6:].any() and not batch["boxes_valid"][6:].any()
    for row in range(6):
        count = batch["box_count"][row]
        assert count > 0 and batch["boxes_valid"][row].tolist() == [True] * count + [False] * (
            8 - count
        )
        assert (batch["box_labels"][row][:count] >= 0).all()
        assert set(batch["box_labels"][row]) <= {*batch["index"][row // 4 * 4 :][:4], -1}
        assert (batch["boxes"][row] >= 0).all() and (batch["boxes"][row] <= (56, 40) * 2).all()


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.uint16])
@pytest.mark.parametrize("mix", [A.MixUp(), A.CutMix(), A.Mosaic(8)])
def test_boxes_of_integers_are_refused(mix, dtype):
    """As by transforms: their padding would be -1, and unsigned ones would wrap when shifted."""
    boxes = jnp.ones((mix.group_size, 3, 4), dtype)
    images = jnp.zeros((mix.group_size, 8, 8, 3), jnp.uint8)
    with pytest.raises(ValueError, match=r"`boxes` must be float\[n, 4\]"):
        mix(jax.random.key(0), {"image": images, "boxes": boxes})


class ShowKey(A.GroupOp):
    """Puts its key into the group."""

    def __init__(self, group_size):
        self.group_size = group_size

    def make_params(self, key, info):
        return jax.random.key_data(key)

    def apply(self, params, group, info):
        keys = jnp.broadcast_to(params, (self.group_size, 2))
        return {**group, f"key {len(group)}": keys}


def test_each_part_of_each_step_has_a_key_of_its_own():
    chain = A.GroupCompose([ShowKey(2), ShowKey(2), ShowKey(2)])
    out = chain(KEYS[0], {"image": jnp.zeros((8, 2, 2, 3), jnp.uint8)})
    steps = ([0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 0, 1, 2, 3, 2, 3], [0, 1, 2, 3] * 2)
    for step, parts in enumerate(steps):
        key = jax.random.fold_in(KEYS[0], step)
        expected = [jax.random.key_data(jax.random.fold_in(key, part)) for part in parts]
        np.testing.assert_array_equal(out[f"key {step + 1}"], expected)


class Count(A.GroupOp):
    """Count how often each sample of the whole group is in a sample."""

    def __init__(self, group_size):
        self.group_size = group_size

    def make_params(self, key, info):
        return None

    def apply(self, params, group, info):
        counts = group["counts"].sum(axis=0)
        return {**group, "counts": jnp.broadcast_to(counts, group["counts"].shape)}


@pytest.mark.parametrize("sizes", [(2,), (4, 2), (2, 2, 2), (3, 1, 2, 2)])
def test_a_step_mixes_what_none_before_has_mixed(sizes):
    chain = A.GroupCompose([Count(size) for size in sizes])
    count = chain.group_size
    assert count == math.prod(sizes)
    group = {"image": jnp.zeros((count, 2, 2, 3)), "counts": jnp.eye(count, dtype=jnp.int32)}
    np.testing.assert_array_equal(chain(KEYS[0], group)["counts"], np.ones((count, count)))


def test_a_mix_of_mosaics_shows_eight_images():
    chain = A.GroupCompose([A.Mosaic(16, num_classes=8), A.ToFloat(), A.MixUp(8)])
    images = jnp.full((8, 16, 16, 3), 100, jnp.uint8)
    group = {"image": images, "label": jnp.arange(8, dtype=jnp.int32)}
    label = np.asarray(chain(KEYS[0], group)["label"])
    np.testing.assert_allclose(label.sum(axis=1), 1, atol=1e-6)
    assert (label > 0).all()


# ---- labels


@pytest.mark.parametrize("mix", [A.MixUp, A.CutMix, A.MixUpOrCutMix])
@pytest.mark.parametrize("shape", [(), (3,), (4, 1)])
def test_class_ids_in_floats_are_refused(mix, shape):
    whole = {"image": group()["image"], "label": np.zeros((2, *shape), np.float32)}
    with pytest.raises(ValueError, match=r"`label` of \w+\(num_classes=5\) .* \.astype\('int32'\)"):
        jax.eval_shape(mix(CLASSES), KEYS[0], whole)
    kept = jax.eval_shape(mix(), KEYS[0], whole)["label"]  # numbers, of a regression
    assert kept.shape == (2, *shape)
    soft = {**whole, "label": np.zeros((2, *shape, CLASSES), np.float32)}
    assert jax.eval_shape(mix(CLASSES), KEYS[0], soft)["label"].shape == (2, *shape, CLASSES)


@pytest.mark.parametrize("mix", [MIXES[0], A.GroupCompose([MIXES[0], MIXES[1]])], ids=name_of)
def test_soft_labels_of_padded_rows_are_zeros(mix):
    """So that a cross-entropy with them adds nothing to a sum."""
    source = InMemory(jpegs(5), {"label": np.arange(5) % CLASSES})
    options = {"batch_transform": mix, "last_batch": "pad", "shuffle": False, "epochs": 1}
    with Loader(source, 4, sharding=batch_sharding(jax.devices()[:1]), **options) as loader:
        *_, last = loader
    label, valid = np.asarray(last["label"]), np.asarray(last["valid"])
    assert valid.tolist() == [True, False, False, False]
    np.testing.assert_allclose(label[0], np.eye(CLASSES)[4], atol=1e-6)  # no partner is valid
    assert label.shape == (4, CLASSES) and not label[1:].any()
