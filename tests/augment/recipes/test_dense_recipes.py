"""Recipes of detection and segmentation: their numbers, and boxes and masks that follow."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment import recipes

KEYS = jax.random.split(jax.random.key(5), 16)
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
NORMALIZE = augment.Normalize(MEAN, STD)
CAFFE = (123 / 255, 117 / 255, 104 / 255)
FLIP = augment.RandomHorizontalFlip(0.5)
PER_BOX = ("masks",)
SANITIZE = augment.SanitizeBoxes(1.0, 1.0, 0.0, PER_BOX)


# torchvision's references/detection/presets.py and references/segmentation/presets.py.
def test_numbers_of_torchvision():
    expected = (
        augment.RandomPhotometricDistort((0.875, 1.125), (0.5, 1.5), (0.5, 1.5), (-0.05, 0.05)),
        augment.RandomZoomOut(CAFFE, (1.0, 4.0), 0.5),
        augment.RandomIoUCrop(0.3, 1.0, 0.5, 2.0, (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0), 40, PER_BOX),
        FLIP,
        augment.Resize((300, 300)),
        SANITIZE,
        NORMALIZE,
    )
    assert recipes.ssd_train().transforms == expected
    assert recipes.ssd_eval().transforms == (expected[4], NORMALIZE)

    crop = augment.RandomCrop(1024, pad_if_needed=True, fill=CAFFE)
    expected = (augment.ScaleJitter(1024, (0.1, 2.0)), crop, FLIP, SANITIZE, NORMALIZE)
    assert recipes.lsj_train().transforms == expected

    sides = (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
    resize = augment.RandomShortestSize(sides, 1333)
    assert recipes.multiscale_train().transforms == (resize, FLIP, SANITIZE, NORMALIZE)

    resize = augment.RandomShortestSize(800, 1333)
    assert recipes.multiscale_eval().transforms == (resize, NORMALIZE)

    distort = augment.RandomPhotometricDistort()
    resize, *rest = recipes.segmentation_train(policy=distort).transforms
    assert (resize.min_size, resize.max_size) == (260, 1040)
    assert rest == [FLIP, augment.RandomCrop(480, pad_if_needed=True), distort, NORMALIZE]
    assert recipes.segmentation_eval().transforms == (augment.Resize(520), NORMALIZE)


# ultralytics' cfg/default.yaml and data/augment.py.
def test_numbers_of_yolo():
    transform, batch_transform = recipes.yolo_train()
    assert pickle.loads(pickle.dumps(batch_transform)) == batch_transform
    assert transform.transforms == (augment.ScaleJitter(640, (1.0, 1.0)),)
    mosaic, chain = batch_transform.transforms
    assert mosaic.size == (1280, 1280) and mosaic.center == (0.25, 0.75)
    affine, crop, flip, sanitize, jitter, output = chain.transforms
    shift = np.array(affine.translate) * mosaic.size
    np.testing.assert_allclose(shift, 0.1 * 640)
    assert affine.scale == (0.5, 1.5) and affine.degrees == (0.0, 0.0) and affine.shear is None
    assert mosaic.fill == affine.fill and round(255 * np.ravel(affine.fill)[0]) == 114
    assert (crop, flip, output) == (augment.CenterCrop(640), FLIP, augment.ToFloat())
    assert sanitize == augment.SanitizeBoxes(2.0, 0.0, 0.1)
    assert jitter == augment.ColorJitter(0.4, 0.0, 0.7, 0.015)
    letterbox = augment.LetterBox(640, fill=114 / 255)
    assert recipes.yolo_eval().transforms == (letterbox, augment.ToFloat())


def bright_box(count=16, canvas=(44, 64)):
    """Samples of one white box on black, on a canvas with garbage, and a padding row."""
    rng = np.random.default_rng(0)
    image = np.full((count, *canvas, 3), 255, np.uint8)
    size = np.stack([rng.integers(30, 45, count), rng.integers(40, 65, count)], axis=1)
    boxes = np.zeros((count, 2, 4), np.float32)
    for row, (height, width) in enumerate(size):
        y, x = rng.integers(0, (height - 14, width - 16))
        image[row, :height, :width] = 0
        image[row, y : y + 14, x : x + 16] = 255
        boxes[row, 0] = x, y, x + 16, y + 14
    labels = np.tile(np.int32([3, -1]), (count, 1))
    sample = {"image": image, "size": size.astype(np.int32), "boxes": boxes, "box_labels": labels}
    return jax.tree.map(jnp.asarray, sample)


def check_boxes(out, least):
    """Check that boxes hold white pixels, that most white ones are in boxes, and the labels."""
    inside = 0
    white = 0
    for row, image in enumerate(np.asarray(out["image"])):
        valid = np.asarray(out["boxes_valid"][row])
        assert (np.asarray(out["box_labels"][row]) == np.where(valid, 3, -1)).all()
        assert (np.asarray(out["boxes"][row])[~valid] == 0).all()
        covered = np.zeros(image.shape[:2], bool)
        for x0, y0, x1, y1 in np.asarray(out["boxes"][row])[valid]:
            core = image[int(np.ceil(y0 + 1)) : int(y1 - 1), int(np.ceil(x0 + 1)) : int(x1 - 1)]
            assert core.size == 0 or core.min() > 0.9
            covered[int(y0) : int(np.ceil(y1)), int(x0) : int(np.ceil(x1))] = True
        white += (image[:, :, 0] > 0.9).sum()
        inside += (image[:, :, 0] > 0.9)[covered].sum()
    assert np.asarray(out["boxes_valid"]).any(axis=1).mean() >= least
    assert inside > 0.9 * white > 0


def geometry(chain):
    """The chain without what changes colors, and with values in [0, 1]."""
    steps = [step for step in chain.transforms[:-1] if not recolors(step)]
    return augment.Compose([*steps, augment.ToFloat()])


def recolors(step):
    return isinstance(step, (augment.RandomPhotometricDistort, augment.ColorJitter))


def test_boxes_of_ssd_follow():
    out = jax.jit(jax.vmap(geometry(recipes.ssd_train(40))))(KEYS, bright_box())
    assert out["image"].shape == (16, 40, 40, 3) and "size" not in out
    check_boxes(out, least=0.9)


def test_boxes_and_masks_of_large_scale_jitter_follow():
    sample = bright_box()
    sample["masks"] = (sample["image"][:, None, :, :, 0] > 0).astype(jnp.uint8)
    sample["masks"] = jnp.concatenate([sample["masks"], 0 * sample["masks"]], axis=1)
    out = jax.jit(jax.vmap(geometry(recipes.lsj_train(40))))(KEYS, sample)
    check_boxes(out, least=0.5)
    masks = np.asarray(out["masks"])
    valid = np.asarray(out["boxes_valid"])
    shown = np.asarray(out["image"])[..., 0] > 0.9
    assert masks.shape == (16, 2, 40, 40) and (masks[~valid] == 0).all()
    assert (masks[:, 0] > 0)[valid[:, 0]][shown[valid[:, 0]]].mean() > 0.97


def test_boxes_of_mosaics_follow():
    transform, batch_transform = recipes.yolo_train(40)
    mosaic, chain = batch_transform.transforms
    batch_transform = augment.GroupCompose([mosaic, geometry(chain)])
    samples = jax.jit(jax.vmap(transform))(KEYS, bright_box())
    assert samples["image"].shape == (16, 40, 40, 3) and samples["image"].dtype == jnp.uint8
    assert (np.asarray(samples["size"]).max(axis=1) == 40).all()
    groups = jax.tree.map(lambda value: value.reshape(4, 4, *value.shape[1:]), samples)
    out = jax.jit(jax.vmap(batch_transform))(KEYS[:4], groups)
    out = jax.tree.map(lambda value: value.reshape(16, *value.shape[2:]), out)
    assert out["image"].shape == (16, 40, 40, 3) and out["boxes"].shape == (16, 8, 4)
    check_boxes(out, least=0.9)
    assert np.asarray(out["boxes_valid"]).sum() > 16  # several boxes in some


def test_masks_of_segmentation_follow():
    """A gray image with mask 3: 255 stands where the crop looks beyond it."""
    count = len(KEYS)
    size = jnp.tile(jnp.array([20, 28], jnp.int32), (count, 1))
    sample = {
        "image": jnp.full((count, 24, 32, 3), 200, jnp.uint8),
        "mask": jnp.full((count, 24, 32), 3, jnp.uint8),
        "size": size,
    }
    out = jax.jit(jax.vmap(recipes.segmentation_train(24, 20)))(KEYS, sample)
    mask = np.asarray(out["mask"])
    values = np.asarray(out["image"]) * STD + MEAN
    assert mask.shape == (count, 24, 24) and set(np.unique(mask)) == {3, 255}
    beyond = mask == 255
    gray = np.abs(values - 200 / 255).max(axis=-1) < 1e-3
    black = np.abs(values).max(axis=-1) < 1e-3
    assert 0.1 < beyond.mean() < 0.7
    assert black[beyond].mean() > 0.9 and gray[~beyond].mean() > 0.9
    assert not black[~beyond].any() and not gray[beyond].any()

    evaluated = jax.vmap(recipes.segmentation_eval(10, (16, 16)))(
        KEYS[:2], jax.tree.map(lambda v: v[:2], sample)
    )
    assert evaluated["size"].tolist() == [[10, 14]] * 2
    expected = np.full((16, 16), 255)
    expected[:10, :14] = 3
    np.testing.assert_array_equal(evaluated["mask"][0], expected)


def test_one_resample_for_all_geometry():
    boxes = jnp.zeros((5, 4))
    info = augment.ImageInfo((512, 640), jnp.array([400, 600], jnp.int32), boxes)
    stages = recipes.ssd_train().explain(info)
    assert "RandomZoomOut, RandomIoUCrop, RandomHorizontalFlip, Resize: " in stages
    stages = recipes.segmentation_train().explain(info)
    assert "RandomResize, RandomHorizontalFlip, RandomCrop: " in stages
    chain = recipes.yolo_train()[1].transforms[1]
    stages = chain.explain(augment.ImageInfo((1280, 1280), None, boxes))
    assert "RandomAffine, CenterCrop, RandomHorizontalFlip: " in stages


# facebookresearch/detr, lyuwenyu/RT-DETR, Ghiasi et al., ultralytics: see the recipes.
def test_numbers_of_detr_rtdetr_and_copy_paste():
    flip, choice, sanitize, normalize = recipes.detr_train().transforms
    assert (flip, sanitize, normalize) == (FLIP, SANITIZE, NORMALIZE)
    plain, behind = choice.transforms
    assert plain == behind.transforms[1]
    assert plain.min_size == tuple(range(480, 801, 32)) and plain.max_size == 1333

    schedule, flip, sanitize, _ = recipes.rtdetr_train().transforms
    assert schedule.starts == (71,) and (flip, sanitize) == (FLIP, SANITIZE)
    distort, zoom, crop, resize = schedule.transforms[0].transforms
    assert resize == schedule.transforms[1] == augment.Resize((640, 640))
    assert (distort.p, zoom.p, zoom.fill, zoom.side_range, crop.p) == (
        0.5,
        0.5,
        0.0,
        (1.0, 4.0),
        0.8,
    )

    transform, batch_transform = recipes.copy_paste_train()
    assert transform.transforms == recipes.lsj_train().transforms[:-1]
    assert batch_transform.transforms[0] == augment.CopyAndPaste()
    assert recipes.yolo_train(close_mosaic=490)[1].transforms[0].until == 490


@pytest.mark.slow
def test_rtdetr_stops_by_the_epoch():
    boxes = jnp.array([[4.0, 4.0, 20.0, 16.0], [0.0] * 4])
    image = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    chain = jax.jit(recipes.rtdetr_train(16, stop_epoch=3))
    late = augment.Compose([augment.Resize((16, 16)), augment.ToFloat()])
    expected = late(KEYS[0], {"image": image, "boxes": boxes})
    for epoch in (2, 3):
        out = chain(KEYS[0], {"image": image, "boxes": boxes, "epoch": jnp.int32(epoch)})
        pixels = (out["image"], out["image"][:, ::-1])
        same = min(float(jnp.abs(each - expected["image"]).max()) for each in pixels) < 1e-5
        assert same == (epoch == 3) and out["boxes_valid"].tolist()[0]
