"""Choices among transforms: laws and frequencies."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from tests.images import picture

IMAGE = jnp.asarray(picture(0, 12, 14))
INFO = augment.ImageInfo((12, 14))
KEYS = jax.random.split(jax.random.key(0), 2000)

LEFT = augment.RandomHorizontalFlip(1.0)
DOWN = augment.RandomVerticalFlip(1.0)
NEGATIVE = augment.RandomInvert(1.0)
DARK = augment.ColorJitter(brightness=(0.5, 0.5))
TURN = augment.RandomRotation((90, 90))
BRANCHES = [LEFT, NEGATIVE, DARK, augment.Compose([DOWN, NEGATIVE])]


@dataclass(frozen=True)
class Factor(augment.Pointwise):
    """The image times a number."""

    factor: float

    def make_params(self, key, info):
        return None

    def apply(self, params, image, info):
        return image * self.factor


def draw(transform):
    return jax.device_get(jax.jit(jax.vmap(lambda key: transform.draw(key, INFO)))(KEYS))


def forced(transform, chosen):
    """Return the image of `transform` with a choice of ours."""
    drawn = transform.draw(jax.random.key(0), INFO)
    params = drawn.params._replace(chosen=jnp.asarray(chosen))
    chain = augment.Compose([transform])
    return jax.jit(lambda image: chain.apply((drawn._replace(params=params),), image))(IMAGE)


def apply(*transforms):
    return augment.Compose(transforms)(jax.random.key(0), IMAGE)


@pytest.mark.parametrize("number", range(len(BRANCHES)))
def test_a_choice_among_all_kinds_is_the_branch(number):
    out = forced(augment.RandomChoice(BRANCHES), jnp.int32(number))
    np.testing.assert_array_equal(out, apply(BRANCHES[number]))


def test_an_order_is_that_of_its_places():
    transforms = [TURN, Factor(0.5), augment.RandomSolarize(0.4, p=1.0)]
    square = IMAGE[:, :12]
    shuffled = augment.RandomOrder(transforms)
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        drawn = shuffled.draw(jax.random.key(0), INFO)
        params = drawn.params._replace(chosen=jnp.asarray(order))
        out = augment.Compose([shuffled]).apply((drawn._replace(params=params),), square)
        expected = augment.Compose([transforms[i] for i in order])(jax.random.key(0), square)
        np.testing.assert_array_equal(out, expected)


def test_some_of_keeps_the_given_order():
    transforms = [Factor(0.5), LEFT, augment.RandomSolarize(0.4, p=1.0)]
    out = forced(augment.SomeOf(transforms, 2), [True, False, True])
    np.testing.assert_array_equal(out, apply(transforms[0], transforms[2]))


def test_a_chain_is_applied_whole_or_not_at_all():
    chain = augment.RandomApply([LEFT, NEGATIVE], p=0.4)
    out = np.asarray(jax.jit(jax.vmap(chain, in_axes=(0, None)))(KEYS[:400], IMAGE))
    applied = (out == np.asarray(apply(LEFT, NEGATIVE))).all(axis=(1, 2, 3))
    untouched = (out == np.asarray(IMAGE)).all(axis=(1, 2, 3))
    assert (applied | untouched).all()
    assert abs(applied.mean() - 0.4) < 0.1


@pytest.mark.parametrize("deeper", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{"mask_fill": 0}, {"fuse": False}, {"box_format": "xywh"}, {"targets": {"depth": "image"}}],
    ids=lambda settings: next(iter(settings)),
)
def test_chains_inside_an_applied_one_have_the_settings_of_the_one_around(settings, deeper):
    inner = augment.Compose([augment.RandomRotation((30, 30))], **settings)
    first = augment.OneOf([inner], p=1.0) if deeper else inner
    chain = augment.Compose([augment.RandomApply([first, LEFT], p=1.0)], **settings)
    plain = augment.Compose([*inner.transforms, LEFT], **settings)
    sample = {
        "image": IMAGE,
        "depth": IMAGE[:, :, 0],
        "mask": jnp.ones(IMAGE.shape[:2], jnp.uint8),
        "boxes": jnp.array([[3.0, 2.0, 5.0, 4.0]]),
    }
    found, expected = (jax.jit(each)(KEYS[0], sample) for each in (chain, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, expected)


def test_frequencies():
    chosen = draw(augment.RandomChoice([LEFT, DOWN, TURN], weights=[1, 0, 3])).params.chosen
    np.testing.assert_allclose(np.bincount(chosen) / len(KEYS), [0.25, 0, 0.75], atol=0.04)
    chosen = draw(augment.RandomChoice([LEFT, DOWN, TURN])).params.chosen
    np.testing.assert_allclose(np.bincount(chosen) / len(KEYS), 1 / 3, atol=0.04)
    assert abs(draw(augment.OneOf([LEFT, DOWN], p=0.3)).applied.mean() - 0.3) < 0.04
    flags = draw(augment.SomeOf([LEFT, DOWN, TURN], 2)).params.chosen
    assert (flags.sum(axis=1) == 2).all()
    np.testing.assert_allclose(flags.mean(axis=0), 2 / 3, atol=0.04)
    orders = draw(augment.RandomOrder([LEFT, DOWN, TURN])).params.chosen
    numbers = orders @ [9, 3, 1]
    np.testing.assert_allclose(
        np.unique(numbers, return_counts=True)[1] / len(KEYS), 1 / 6, atol=0.03
    )


@pytest.mark.parametrize(
    "choice",
    [
        augment.RandomChoice([TURN, augment.RandomAffine(9), augment.Compose([LEFT, TURN])]),
        augment.RandomApply([TURN, LEFT]),
        augment.RandomOrder([TURN, LEFT, DOWN]),
        augment.SomeOf([TURN, augment.OneOf([LEFT, DOWN])], 1),
    ],
)
def test_geometric_branches_are_one_resample_with_their_neighbors(choice):
    chain = augment.Compose([augment.RandomResizedCrop(8), choice, LEFT, augment.ToFloat()])
    text = chain.explain(INFO)
    assert text.count("resample") == 1 and "choice" not in text
    assert augment.Compose([choice, TURN]).geometric


def test_explain_shows_the_branches_and_their_sum():
    blur = augment.GaussianBlur(3)
    chain = augment.Compose([augment.RandomChoice([LEFT, NEGATIVE, blur, blur]), LEFT])
    lines = chain.explain(INFO).splitlines()
    assert lines[0].startswith("4 passes")
    stages = [line.split()[0] for line in lines[1:]]
    assert stages == ["resample", "choice", "pointwise", "image", "image", "resample"]


def test_boxes_masks_and_sizes_follow_the_branch():
    sample = {
        "image": IMAGE,
        "size": jnp.array([10, 9], jnp.int32),
        "mask": jnp.arange(12 * 14, dtype=jnp.uint8).reshape(12, 14) % 7,
        "boxes": jnp.array([[1.0, 2.0, 4.0, 7.0], [0, 0, 0, 0]]),
        "label": jnp.int32(3),
    }
    choice = augment.RandomChoice(
        [LEFT, NEGATIVE, augment.Compose([DOWN, augment.GaussianBlur(3)])]
    )
    for number, branch in enumerate(choice.transforms):
        info = augment.ImageInfo((12, 14), sample["size"], sample["boxes"])
        drawn = choice.draw(jax.random.key(1), info)
        params = drawn.params._replace(chosen=jnp.int32(number))
        out = augment.Compose([choice]).apply((drawn._replace(params=params),), sample)
        branch_chain = branch if isinstance(branch, augment.Compose) else augment.Compose([branch])
        inner = drawn.params.drawn[number]
        branch_drawn = inner.params if branch_chain is branch else (inner,)
        expected = branch_chain.apply(branch_drawn, sample)
        jax.tree.map(np.testing.assert_array_equal, out, expected)


def test_crops_of_one_size_may_be_branches():
    crops = [
        augment.RandomResizedCrop(6),
        augment.Compose([augment.Resize(8), augment.CenterCrop(6)]),
    ]
    out = augment.RandomChoice(crops)(jax.random.key(0), IMAGE)
    assert out.shape == (6, 6, 3)
    with pytest.raises(ValueError, match="images of one shape"):
        augment.RandomChoice([augment.CenterCrop(6), NEGATIVE])(jax.random.key(0), IMAGE)
    with pytest.raises(ValueError, match="images of one shape"):
        augment.RandomApply([augment.CenterCrop(6)])(jax.random.key(0), IMAGE)


def test_branches_of_which_some_give_a_size_are_refused():
    sized = augment.ScaleJitter(IMAGE.shape[:2], (1.0, 1.0))
    assert sized(jax.random.key(0), {"image": IMAGE})["image"].shape == IMAGE.shape
    for choice in (augment.RandomApply([sized]), augment.OneOf([sized, augment.GaussianBlur(3)])):
        with pytest.raises(ValueError, match='some of which have a "size" of their own: give the'):
            choice(jax.random.key(0), IMAGE)


def test_arguments():
    no_list: Any = LEFT
    a_class: Any = augment.RandomInvert
    with pytest.raises(ValueError, match="Normalize cannot be a branch"):
        augment.RandomApply([augment.Normalize(0.5, 0.5)])
    with pytest.raises(TypeError, match=r"`transforms` must be a sequence"):
        augment.OneOf(no_list)
    with pytest.raises(TypeError, match=r"holds the class RandomInvert"):
        augment.SomeOf([a_class])
    with pytest.raises(ValueError, match="at least one transform"):
        augment.RandomOrder([])
    with pytest.raises(ValueError, match=r"`n` must be at most the number of transforms, 1, got 2"):
        augment.SomeOf([LEFT], 2)
    with pytest.raises(ValueError, match=r"`weights` must be 2 numbers"):
        augment.RandomChoice([LEFT, DOWN], weights=[1])
    with pytest.raises(ValueError, match="same `mask_fill`"):
        augment.Compose([augment.OneOf([augment.Compose([LEFT], mask_fill=3)])])


@pytest.mark.parametrize(
    "transform, name",
    [
        (augment.Grayscale(), "Grayscale"),
        (augment.Compose([augment.RandomInvert(), augment.ColorJitter(0.3)]), "ColorJitter"),
        (augment.ThreeAugment(), "Grayscale inside of ThreeAugment"),
        (
            augment.SomeOf([augment.RandomInvert(), augment.ThreeAugment()], 1),
            "Grayscale inside of ThreeAugment",
        ),
        (
            augment.OneOf([augment.Compose([augment.PCALighting(), augment.RandomInvert()])]),
            "PCALighting inside of OneOf",
        ),
        (augment.RandomApply([augment.RandAugment()]), "RandAugment inside of RandomApply"),
        (augment.AutoAugment(), "AutoAugment"),
    ],
)
def test_what_needs_three_channels_says_so_wherever_it_stands(transform, name):
    """The same words by a call, while tracing, and inside of what chooses."""
    image = jnp.zeros((9, 8, 4), jnp.uint8)
    expected = (
        rf"^{name} needs an image of 3 channels, got \(9, 8, 4\): give it red, green and blue"
    )
    for call in (transform, jax.jit(transform)):
        with pytest.raises(ValueError, match=expected):
            call(jax.random.key(0), image)
