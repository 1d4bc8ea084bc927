"""Policies: every operation at every magnitude against PIL, and the frequencies of the draws."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxaug import augment
from jaxaug.augment._base.operator import Drawn
from jaxaug.augment._cuda.operation import NAMES
from jaxaug.augment._ops.policy_slot import Slot
from jaxaug.augment._ops.policy_tables import SUB_POLICIES
from tests.images import picture
from tests.reference.policies import (
    between_two_pixels,
    operate,
    timm_magnitude,
    torchvision_magnitudes,
)

HEIGHT, WIDTH = 40, 52
IMAGE = picture(5, HEIGHT, WIDTH) // 4 * 3 + 20  # not all of the range: autocontrast has work
INFO = augment.ImageInfo((HEIGHT, WIDTH))
POLICIES = {
    "RandAugment": augment.RandAugment(),
    "TrivialAugmentWide": augment.TrivialAugmentWide(),
    "timm": augment.RandAugment(variant="timm"),
}


@functools.cache
def applied(policy):
    """Return a jitted function of operations [n] that gives n images after one operation each."""
    chain = augment.Compose([policy])

    def one(slot):
        return chain.apply(
            (Drawn(jax.tree.map(lambda leaf: leaf[None], slot)),), jnp.asarray(IMAGE)
        )

    return jax.jit(jax.vmap(one))


def slots(rows):
    """Return the operations of (name, magnitude) rows."""
    codes = [NAMES.index(name) for name, _ in rows]
    return Slot(jnp.array(codes, jnp.int32), jnp.array([m for _, m in rows], jnp.float32))


def draw(policy, count, info=INFO):
    keys = jax.random.split(jax.random.key(0), count)
    return jax.device_get(jax.jit(jax.vmap(lambda key: policy.make_params(key, info)))(keys))


def check_close_to_pil(policy, rows):
    out = np.asarray(applied(policy)(slots(rows)), int)
    for (name, magnitude), ours in zip(rows, out, strict=True):
        clear = ~between_two_pixels(name, magnitude, HEIGHT, WIDTH)
        apart = clear & (np.abs(ours - operate(IMAGE, name, magnitude)).max(axis=2) > 1)
        assert clear.mean() > 0.75
        assert apart.mean() <= 0.005, (name, magnitude, apart.mean())


def with_both_signs(magnitudes, signed):
    return [*magnitudes, *(-magnitudes)] if signed else list(magnitudes)


@pytest.mark.parametrize("name", ["RandAugment", "TrivialAugmentWide"])
def test_every_operation_and_bin_is_that_of_pil(name):
    table = torchvision_magnitudes(name, 31, HEIGHT, WIDTH)
    rows = []
    for operation, (magnitudes, signed) in table.items():
        if operation != "Invert":
            rows.extend((operation, m) for m in with_both_signs(magnitudes, signed))
    check_close_to_pil(POLICIES[name], rows)


def test_every_operation_of_auto_augment_is_that_of_pil():
    table = torchvision_magnitudes("RandAugment", 10, HEIGHT, WIDTH)
    rows = []
    for operation, (magnitudes, signed) in table.items():
        rows.extend((operation, m) for m in with_both_signs(magnitudes, signed))
    check_close_to_pil(augment.AutoAugment(), rows)


def test_every_operation_of_timm_is_that_of_pil():
    rows = []
    for operation in [name for name in NAMES if name != "Identity"]:
        rows.extend(
            (operation, timm_magnitude(operation, level, HEIGHT, WIDTH)) for level in range(11)
        )
    check_close_to_pil(POLICIES["timm"], rows)


def test_two_operations_are_one_after_the_other():
    rows = [("Rotate", 9.0), ("Posterize", 3.0)]
    out = augment.Compose([augment.RandAugment()]).apply((Drawn(slots(rows)),), jnp.asarray(IMAGE))
    expected = IMAGE
    for row in rows:
        expected = operate(expected, *row)
    assert (np.abs(np.asarray(out, int) - expected).max(axis=2) > 1).mean() <= 0.005


# ---- draws


def check_uniform(counts):
    assert stats.chisquare(counts).pvalue > 1e-4


def check_magnitudes(drawn, table, bins):
    """Each magnitude is one of `bins` of its operation, with both signs where it has one."""
    for name, (magnitudes, signed) in table.items():
        ours = drawn.magnitude[drawn.code == NAMES.index(name)]
        if len(ours) == 0:
            continue
        expected = np.unique(with_both_signs(magnitudes[bins], signed))
        near = np.abs(ours[:, None] - expected[None]) < 1e-4
        assert near.any(axis=1).all(), (name, np.unique(ours), expected)
        assert near.any(axis=0).all(), (name, np.unique(ours), expected)


@pytest.mark.parametrize("magnitude", [0, 9, 30])
def test_rand_augment_draws_with_replacement_from_14(magnitude):
    drawn = draw(augment.RandAugment(magnitude=magnitude), 4000)
    pairs = np.unique(drawn.code, axis=0, return_counts=True)[1]
    assert len(pairs) == 14 * 14
    check_uniform(pairs)
    table = torchvision_magnitudes("RandAugment", 31, HEIGHT, WIDTH)
    check_magnitudes(drawn, table, [magnitude])


def test_signs_are_as_likely():
    drawn = draw(augment.RandAugment(), 4000)
    turned = drawn.magnitude[drawn.code == NAMES.index("Rotate")]
    assert stats.binomtest(int((turned > 0).sum()), len(turned)).pvalue > 1e-4


def test_trivial_augment_draws_from_14_and_31():
    drawn = draw(augment.TrivialAugmentWide(), 40000)
    assert drawn.code.shape == (40000, 1)
    check_uniform(np.unique(drawn.code, return_counts=True)[1])
    turned = np.abs(drawn.magnitude[drawn.code == NAMES.index("Rotate")])
    counts = np.unique(turned.round(3), return_counts=True)[1]
    assert len(counts) == 31
    check_uniform(counts)
    table = torchvision_magnitudes("TrivialAugmentWide", 31, HEIGHT, WIDTH)
    check_magnitudes(drawn, table, list(range(31)))


@pytest.mark.parametrize("policy", SUB_POLICIES)
def test_auto_augment_draws_one_of_25_pairs(policy):
    drawn = draw(augment.AutoAugment(policy), 20000)
    table = torchvision_magnitudes("RandAugment", 10, HEIGHT, WIDTH)
    for place in range(2):
        expected = np.zeros(len(NAMES))
        for pair in SUB_POLICIES[policy]:
            name, p, _ = pair[place]
            expected[NAMES.index(name)] += p / 25
            expected[0] += (1 - p) / 25
        counts = np.bincount(drawn.code[:, place], minlength=len(NAMES))
        assert (counts[expected < 1e-9] == 0).all()
        present = expected > 1e-9
        shares = expected[present] / expected[present].sum()
        assert stats.chisquare(counts[present], shares * len(drawn.code)).pvalue > 1e-4
    for place in range(2):
        bins = {}
        for pair in SUB_POLICIES[policy]:
            name, p, bin_ = pair[place]
            if p > 0:
                bins.setdefault(name, set()).add(bin_)
        for name, numbers in bins.items():
            one = Slot(drawn.code[:, place], drawn.magnitude[:, place])
            check_magnitudes(one, {name: table[name]}, sorted(numbers))


def test_auto_augments_pairs():
    assert [len(pairs) for pairs in SUB_POLICIES.values()] == [25, 25, 25]
    assert SUB_POLICIES["imagenet"][0] == (("Posterize", 0.4, 8), ("Rotate", 0.6, 9))
    assert SUB_POLICIES["cifar10"][3] == (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9))
    assert SUB_POLICIES["svhn"][24] == (("ShearX", 0.7, 2), ("Invert", 0.1, 0))


def test_timm_skips_half_and_varies_the_magnitude():
    drawn = draw(augment.RandAugment(variant="timm", magnitude_std=0.5), 20000)
    counts = np.bincount(drawn.code.ravel(), minlength=len(NAMES))
    assert stats.binomtest(int(counts[0]), drawn.code.size).pvalue > 1e-4
    check_uniform(counts[1:])
    levels = np.abs(drawn.magnitude[drawn.code == NAMES.index("Rotate")]) / 3
    free = levels[levels < 10]
    assert abs(np.median(levels) - 9) < 0.1 and (levels <= 10).all()
    assert abs(1 - len(free) / len(levels) - stats.norm.sf(2)) < 0.03
    steady = draw(POLICIES["timm"], 2000)
    turned = np.abs(steady.magnitude[steady.code == NAMES.index("Rotate")])
    np.testing.assert_allclose(turned, 27, rtol=1e-5)


def test_shares_are_those_of_the_used_part():
    info = augment.ImageInfo((100, 100), jnp.array([50, 80], jnp.int32))
    drawn = draw(augment.RandAugment(), 500, info)
    across = drawn.magnitude[drawn.code == NAMES.index("TranslateX")]
    assert set(np.abs(across).tolist()) == {np.trunc(150 / 331 * 80 * 0.3)}


# ---- AugMix


def test_augmix_draws():
    drawn = draw(augment.AugMix(), 5000)
    assert drawn.weights.shape == (5000, 4) and drawn.slots.code.shape == (5000, 3, 3)
    np.testing.assert_allclose(drawn.weights.sum(axis=1), 1, rtol=1e-5)
    assert stats.kstest(drawn.weights[:, 0], "uniform").pvalue > 1e-4
    shares = drawn.weights[:, 1] / (1 - drawn.weights[:, 0])
    assert stats.kstest(shares, stats.beta(1, 2).cdf).pvalue > 1e-4
    depths = (drawn.slots.code != 0).sum(axis=2)
    check_uniform(np.unique(depths, return_counts=True)[1])
    counts = np.bincount(drawn.slots.code.ravel())[1:]
    assert (counts > 0).sum() == 13
    check_uniform(counts[counts > 0])
    table = torchvision_magnitudes("AugMix", 10, HEIGHT, WIDTH)
    check_magnitudes(drawn.slots, table, [0, 1, 2])
    partial = draw(augment.AugMix(all_ops=False, chain_depth=2), 500).slots.code
    assert partial.shape == (500, 3, 2)
    assert not np.isin(partial, [NAMES.index("Color"), NAMES.index("Sharpness"), 0]).any()


def test_augmix_is_the_weighted_sum_of_its_chains():
    policy = augment.AugMix(mixture_width=2, chain_depth=2, interpolation="nearest")
    chains = [[("Rotate", 6.0), ("Solarize", 0.8)], [("Equalize", 0.0), ("Identity", 0.0)]]
    mixture = policy.make_params(jax.random.key(0), INFO)
    flat = slots([row for chain in chains for row in chain])
    mixture = mixture._replace(
        weights=jnp.array([0.5, 0.2, 0.3]), slots=jax.tree.map(lambda x: x.reshape(2, 2), flat)
    )
    out = jax.jit(augment.Compose([policy]).apply)((Drawn(mixture),), jnp.asarray(IMAGE))
    expected = 0.5 * IMAGE
    for weight, chain in zip((0.2, 0.3), chains, strict=True):
        pixels = IMAGE
        for row in chain:
            pixels = operate(pixels, *row)
        expected = expected + weight * pixels
    assert (np.abs(np.asarray(out) - expected).max(axis=2) > 1.5).mean() <= 0.005


def test_augmix_refuses_targets():
    sample = {"image": IMAGE, "mask": np.zeros((HEIGHT, WIDTH), np.uint8)}
    with pytest.raises(ValueError, match="'mask' cannot follow"):
        jax.eval_shape(augment.AugMix(), jax.random.key(0), sample)


# ---- targets, three, arguments


def test_masks_and_boxes_follow():
    rows = [("TranslateX", 7.0), ("Invert", 0.0)]
    mask = np.arange(HEIGHT * WIDTH, dtype=np.uint8).reshape(HEIGHT, WIDTH) % 17
    sample = {"image": IMAGE, "mask": mask, "boxes": jnp.array([[2.0, 3, 8, 9]])}
    chain = augment.Compose([augment.AutoAugment()])
    out = chain.apply((Drawn(slots(rows)),), sample)
    np.testing.assert_array_equal(out["mask"][:, 7:], mask[:, :-7])
    np.testing.assert_array_equal(out["image"][:, 7:], 255 - IMAGE[:, :-7])
    np.testing.assert_allclose(out["boxes"], [[9, 3, 15, 9]], atol=1e-4)


def test_fill_and_interpolation():
    policy = augment.RandAugment(interpolation="bilinear", fill=0.5)
    out = augment.Compose([policy]).apply(
        (Drawn(slots([("TranslateX", 7.0)] * 1)),), jnp.asarray(IMAGE)
    )
    assert (np.asarray(out[:, :7]) == 128).all()


def test_operations_are_resampled_as_asked():
    chain = augment.Compose([augment.RandAugment(interpolation="bicubic")])
    assert chain.explain(INFO).count(f"bicubic, constant, to {HEIGHT} x {WIDTH}: 4 x 4 taps") == 2


def test_three_augment_is_one_of_three():
    keys = jax.random.split(jax.random.key(0), 300)
    chosen = jax.vmap(lambda key: augment.ThreeAugment().draw(key, INFO))(keys).params.chosen
    check_uniform(np.bincount(chosen, minlength=3))


def test_arguments():
    with pytest.raises(ValueError, match=r"`magnitude` must be an int of 0 to 30, a bin, got 31"):
        augment.RandAugment(magnitude=31)
    with pytest.raises(ValueError, match=r"`magnitude_std` must be 0"):
        augment.RandAugment(magnitude_std=0.5)
    with pytest.raises(
        ValueError, match=r"`variant` must be one of 'torchvision', 'timm', 'big_vision'"
    ):
        augment.RandAugment(variant="dali")
    with pytest.raises(ValueError, match=r"`policy` must be one of 'imagenet'"):
        augment.AutoAugment("coco")
    with pytest.raises(ValueError, match=r"`severity` must be an int of 1 to 10, got 11"):
        augment.AugMix(severity=11)
    with pytest.raises(ValueError, match="needs an image of 3 channels"):
        augment.RandAugment()(jax.random.key(0), jnp.zeros((8, 8, 1)))


def test_only_the_drawn_operation_is_computed_for_one_image():
    image = jnp.zeros((8, 8, 3), jnp.uint8)
    text = str(jax.make_jaxpr(augment.RandAugment(1))(jax.random.key(0), image))
    branches = text.index("branches=")
    assert "scatter-add" in text[branches:]  # of the histogram
    assert "scatter-add" not in text[:branches]
