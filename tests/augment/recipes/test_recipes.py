"""Recipes of classifiers and of trainings on views: their numbers, and what they give."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.augment import recipes
from jaxaug.augment._cuda.operation import NAMES
from tests.images import picture

IMAGE = jnp.asarray(picture(0, 40, 60))
KEY = jax.random.key(3)
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
NORMALIZE = augment.Normalize(MEAN, STD)
CHAINS = {
    "imagenet_train": recipes.imagenet_train(24, augment.RandAugment()),
    "deit3_train": recipes.deit3_train(24),
    "cifar_train": recipes.cifar_train(24),
}


@pytest.mark.parametrize("name", CHAINS)
def test_training_chains_normalize_and_vary(name):
    chain = CHAINS[name]
    assert pickle.loads(pickle.dumps(chain)) == chain
    out = jax.jit(jax.vmap(chain, in_axes=(0, None)))(jax.random.split(KEY, 4), IMAGE)
    assert out.shape == (4, 24, 24, 3) and out.dtype == jnp.float32
    assert (np.asarray(out) < -0.2).any() and np.abs(out).max() < 3
    assert not np.array_equal(out[0], out[1])


# The published code, read line by line: torchvision's presets.py, DeiT's augment.py.
def test_numbers_of_the_classifiers():
    crop = augment.RandomResizedCrop(224, (0.08, 1.0), (3 / 4, 4 / 3))
    flip = augment.RandomHorizontalFlip(0.5)
    assert recipes.imagenet_train().transforms == (crop, flip, NORMALIZE)

    policy = augment.TrivialAugmentWide(interpolation="bilinear")
    erasing = augment.RandomErasing(0.1, (0.02, 0.33), (0.3, 3.3), value=MEAN)
    small = augment.RandomResizedCrop(176)
    expected = (small, flip, policy, erasing, NORMALIZE)
    assert recipes.imagenet_train(176, policy, erase=0.1).transforms == expected

    expected = (augment.Resize(256), augment.CenterCrop(224), NORMALIZE)
    assert recipes.imagenet_eval().transforms == expected

    crop = augment.RandomResizedCrop(224, interpolation="bicubic")
    jitter = augment.ColorJitter(0.3, 0.3, 0.3, 0.0)
    expected = (crop, flip, augment.ThreeAugment(), jitter, NORMALIZE)
    assert recipes.deit3_train().transforms == expected
    border = augment.RandomCrop(224, padding=4, padding_mode="reflect")
    expected = (augment.Resize(224, interpolation="bicubic"), border, *expected[1:])
    assert recipes.deit3_train(simple_crop=True).transforms == expected

    expected = (augment.RandomCrop(32, padding=4), flip)
    assert recipes.cifar_train().transforms[:2] == expected


# big_vision's configs/vit_i1k.py: RANDAUG_DEF and MIXUP_DEF; pp/ops_image.py for the crop.
@pytest.mark.parametrize(
    ("strength", "magnitude", "alpha"),
    [
        ("none", None, None),
        ("light1", 0, None),
        ("light2", 10, 0.2),
        ("medium1", 15, 0.2),
        ("medium2", 15, 0.5),
        ("strong1", 20, 0.5),
        ("strong2", 20, 0.8),
    ],
)
def test_numbers_of_augreg(strength, magnitude, alpha):
    chain, mixup = recipes.augreg_train(strength, num_classes=1000)
    crop, flip, *operations, normalize = chain.transforms
    assert crop == augment.RandomResizedCrop(224, (0.05, 1.0), (0.75, 1.33))
    assert flip == augment.RandomHorizontalFlip(0.5)
    assert normalize == augment.Normalize(0.5, 0.5)
    assert mixup == (None if alpha is None else augment.MixUp(1000, alpha))
    assert len(operations) == (0 if magnitude is None else 2)
    for operation in operations:
        policy, cutout = operation.transforms
        assert operation.weights == (15, 1)
        fill = 128 / 255
        options = {"variant": "big_vision", "interpolation": "nearest", "fill": fill}
        assert policy == augment.RandAugment(1, magnitude, **options)
        assert cutout.reach == int(magnitude / 10 * 40)
    assert pickle.loads(pickle.dumps(chain)) == chain and hash(chain) == hash(chain)


# level_to_arg of big_vision's pp/archive/autoaugment.py; ours hold one less than an enhancement's
# factor, Solarize's threshold as a share of 255.
@pytest.mark.parametrize("level", [0, 10, 15, 20])
def test_operations_of_augreg(level):
    share = level / 10
    factor = share * 1.8 + 0.1
    expected = {
        "AutoContrast": 0,
        "Equalize": 0,
        "Invert": 0,
        "Rotate": share * 30,
        "Posterize": int(share * 4),
        "Solarize": {0: 0, 10: 0, 15: 128, 20: 0}[level] / 255,  # as TensorFlow 2.21 computes
        "SolarizeAdd": int(share * 110),
        **dict.fromkeys(("Color", "Contrast", "Brightness", "Sharpness"), factor - 1),
        **dict.fromkeys(("ShearX", "ShearY"), share * 0.3),
        **dict.fromkeys(("TranslateX", "TranslateY"), share * 100),
    }
    policy = augment.RandAugment(1, level, variant="big_vision")
    keys = jax.random.split(KEY, 6000)
    info = augment.ImageInfo((224, 224))
    slots = jax.jit(jax.vmap(lambda key: policy.make_params(key, info)))(keys)
    codes, magnitudes = (np.asarray(leaf)[:, 0] for leaf in slots)
    names = [NAMES[code] for code in codes]
    assert set(names) == set(expected)
    for name, magnitude in expected.items():
        found = magnitudes[np.array(names) == name]
        assert 300 < len(found) < 500  # 400 of each
        signed = name in ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")
        if signed:
            assert level == 0 or 0.35 < (found > 0).mean() < 0.65
            found = np.abs(found)
        np.testing.assert_allclose(found, magnitude, rtol=1e-6, atol=1e-6)


def test_the_cutout_of_augreg_is_a_gray_square_around_a_pixel():
    """Its center is any pixel; at magnitude 10 it reaches 40 pixels to each side."""
    cutout = recipes.augreg_train("light2")[0].transforms[2].transforms[1]
    image = jnp.full((100, 120, 3), 255, jnp.uint8)
    keys = jax.random.split(KEY, 200)
    out = np.asarray(jax.jit(jax.vmap(augment.Compose([cutout]), in_axes=(0, None)))(keys, image))
    covered = (out == 128).all(axis=-1)
    assert (covered | (out == 255).all(axis=-1)).all()
    heights, widths = covered.any(axis=2).sum(axis=1), covered.any(axis=1).sum(axis=1)
    assert heights.max() == widths.max() == 80 and heights.min() < 50 and widths.min() < 50
    assert (heights * widths == covered.sum(axis=(1, 2))).all()


def test_augreg_trains_on_values_from_minus_one_to_one():
    chain, _ = recipes.augreg_train("medium1", 24)
    out = jax.jit(jax.vmap(chain, in_axes=(0, None)))(jax.random.split(KEY, 8), IMAGE)
    assert out.shape == (8, 24, 24, 3) and np.abs(out).max() <= 1 + 1e-5
    assert (np.asarray(out) < -0.5).any() and (np.asarray(out) > 0.5).any()
    with pytest.raises(ValueError, match="`strength` must be one of 'none', 'light1'"):
        recipes.augreg_train("medium")
    with pytest.raises(ValueError, match="`magnitude_std` must be 0 for big_vision's"):
        augment.RandAugment(variant="big_vision", magnitude_std=0.5)


# SimCLR's data_util.py, BYOL's augmentations.py, DINO's main_dino.py with its utils.py.
def test_numbers_of_the_views():
    crop = augment.RandomResizedCrop(224, (0.08, 1.0), (3 / 4, 4 / 3), "bicubic")
    flip = augment.RandomHorizontalFlip(0.5)
    gray = augment.RandomGrayscale(p=0.2)
    jitter = augment.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8)
    blur = augment.GaussianBlur(23, (0.1, 2.0), p=0.5)
    expected = (crop, flip, jitter, gray, blur, augment.ToFloat())
    assert recipes.simclr().views == (("view", augment.Compose(expected), 2),)

    cifar = dict_of(recipes.simclr(32, strength=0.5, blur=0.0))["view"].transforms
    assert cifar[2] == augment.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8)
    assert cifar[3:] == (gray, augment.ToFloat())

    jitter = augment.ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8)
    views = dict_of(recipes.byol())
    expected = (crop, flip, jitter, gray, augment.GaussianBlur(23), NORMALIZE)
    assert views["view_1"].transforms == expected
    seldom = (augment.GaussianBlur(23, p=0.1), augment.RandomSolarize(0.5, p=0.2))
    assert views["view_2"].transforms == (*expected[:4], *seldom, NORMALIZE)
    blurs = [dict_of(recipes.byol(size))["view_1"].transforms[4] for size in (96, 32)]
    assert [blur.kernel_size for blur in blurs] == [9, 3]

    views = dict_of(recipes.dino())
    assert [count for _, _, count in recipes.dino().views] == [1, 1, 8]
    crop = augment.RandomResizedCrop(224, (0.4, 1.0), interpolation="bicubic")
    expected = (crop, flip, jitter, gray, augment.GaussianBlur(17), NORMALIZE)
    assert views["global_1"].transforms == expected
    seldom = (augment.GaussianBlur(17, p=0.1), augment.RandomSolarize(128 / 255, p=0.2))
    assert views["global_2"].transforms == (crop, *expected[1:4], *seldom, NORMALIZE)
    crop = augment.RandomResizedCrop(96, (0.05, 0.4), interpolation="bicubic")
    often = augment.GaussianBlur(17, p=0.5)
    assert views["local"].transforms == (crop, *expected[1:4], often, NORMALIZE)


def dict_of(recipe):
    """The chains of a recipe of views by name."""
    return {name: chain for name, chain, _ in recipe.views}


@pytest.mark.parametrize("recipe", [recipes.imagenet_train, recipes.cifar_train])
def test_erasing_leaves_zeros_after_the_normalization(recipe):
    """torchvision erases behind the normalization, with 0."""
    bright = jnp.full((40, 60, 3), 255, jnp.uint8)
    keys = jax.random.split(KEY, 64)
    chain = jax.jit(jax.vmap(recipe(24, erase=0.5), in_axes=(0, None)))
    out = np.asarray(chain(keys, bright[:24, :24]))
    center = out[:, 8:16, 8:16]
    erased = (np.abs(center) < 1e-6).all(axis=-1)
    shown = (center > 1.5).all(axis=-1)
    assert (erased | shown).all()
    # Half of the images are touched; the window misses the center of some.
    assert 0.2 < erased.any(axis=(1, 2)).mean() < 0.6
    assert (np.asarray(recipe(24)(KEY, bright[:24, :24]))[8:16, 8:16] > 1.5).all()


def test_evaluation_is_a_normalized_center_crop():
    out = recipes.imagenet_eval(24, 30, "bfloat16", "CHW")(KEY, IMAGE)
    assert out.shape == (3, 24, 24) and out.dtype == jnp.bfloat16
    cropped = augment.Compose([augment.Resize(30), augment.CenterCrop(24)])(KEY, IMAGE / 255)
    cropped = np.asarray(cropped)
    mean = np.array(recipes.IMAGENET_MEAN)
    std = np.array(recipes.IMAGENET_STD)
    np.testing.assert_allclose(
        np.asarray(out, np.float32).transpose(1, 2, 0), (cropped - mean) / std, atol=0.02
    )


@pytest.mark.parametrize(
    ("recipe", "shapes"),
    [
        (recipes.simclr(24), {"view": (2, 24, 24, 3)}),
        (recipes.byol(24), {"view_1": (1, 24, 24, 3), "view_2": (1, 24, 24, 3)}),
        (
            recipes.dino(24, 12, 5, layout="CHW"),
            {"global_1": (1, 3, 24, 24), "global_2": (1, 3, 24, 24), "local": (5, 3, 12, 12)},
        ),
    ],
)
def test_views_of_one_image(recipe, shapes):
    assert pickle.loads(pickle.dumps(recipe)) == recipe and hash(recipe) == hash(recipe)
    sample = {"image": IMAGE, "size": jnp.array([30, 44], jnp.int32), "label": jnp.int32(7)}
    out = jax.eval_shape(recipe, KEY, sample)
    assert {name: out[name].shape for name in shapes} == shapes
    assert set(out) == {*shapes, "label"}


def test_views_are_those_of_the_chain():
    chain = augment.RandomResizedCrop(8)
    views = augment.MultiView({"a": (chain, 2), "b": (chain, 2)})
    out = jax.jit(views)(KEY, {"image": IMAGE, "label": 1})
    crop = jax.jit(chain)
    for number, name in enumerate("ab"):
        keys = jax.random.split(jax.random.fold_in(KEY, number), 2)
        np.testing.assert_array_equal(out[name], jnp.stack([crop(key, IMAGE) for key in keys]))
    assert out["label"] == 1
    assert not np.array_equal(out["a"], out["b"]) and not np.array_equal(out["a"][0], out["a"][1])


def test_arguments_of_views():
    crop = augment.RandomResizedCrop(8)
    with pytest.raises(ValueError, match=r"`views` must be \{name: \(chain, count\)\}"):
        augment.MultiView([crop])
    with pytest.raises(ValueError, match=r"`views` must be \{name: \(chain, count\)\}"):
        augment.MultiView({"a": crop})
    with pytest.raises(ValueError, match=r"`views\['a'\]\[1\]` must be an int of at least 1"):
        augment.MultiView({"a": (crop, 0)})
    with pytest.raises(TypeError, match="holds the class RandomResizedCrop"):
        augment.MultiView({"a": (augment.RandomResizedCrop, 1)})
    views = augment.MultiView({"a": (crop, 1)})
    with pytest.raises(ValueError, match="got 'mask' beside"):
        views(KEY, {"image": IMAGE, "mask": IMAGE[:, :, 0]})
    chain = augment.Compose([crop], targets={"depth": "image"})
    views_of_depth = augment.MultiView({"b": (crop, 1), "a": (chain, 1)})
    with pytest.raises(ValueError, match="got 'depth' beside"):
        views_of_depth(KEY, {"image": IMAGE, "depth": IMAGE[:, :, 0]})
    with pytest.raises(ValueError, match="entry 'a'"):
        views(KEY, {"image": IMAGE, "a": 1})
    flips = augment.MultiView({"a": (augment.RandomHorizontalFlip(), 1)})
    with pytest.raises(ValueError, match="images of different sizes"):
        flips(KEY, {"image": IMAGE, "size": jnp.array([30, 44], jnp.int32)})


# facebookresearch/mae, jepa, dinov2, ConvNeXt, google-research/big_vision: see the recipes.
def test_numbers_of_the_newer_recipes():
    crop, flip, normalize = recipes.mae_train().transforms
    assert (crop.size, crop.scale, crop.interpolation) == ((224, 224), (0.2, 1.0), "bicubic")
    assert flip.p == 0.5 and normalize == recipes.imagenet_eval().transforms[-1]
    crop = recipes.vjepa_train().transform.transforms[0]
    assert (crop.scale, crop.ratio, crop.interpolation) == ((0.3, 1.0), (0.75, 1.35), "bilinear")
    resize, normalize = recipes.siglip().transforms
    assert (resize.size, normalize.mean, normalize.std) == ((224, 224), (0.5,), (0.5,))
    crops = [view[1].transforms[0] for view in recipes.dino(share=0.32).views]
    assert [crop.scale for crop in crops] == [(0.32, 1.0), (0.32, 1.0), (0.05, 0.32)]
    crop, _, policy, erase, _ = recipes.convnext_train().transforms
    assert crop.interpolation == "bicubic" and (erase.p, erase.value) == (0.25, "random")
    assert (policy.variant, policy.num_ops, policy.magnitude, policy.magnitude_std) == (
        "timm",
        2,
        9.0,
        0.5,
    )
