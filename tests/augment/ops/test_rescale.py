"""ScaleJitter, RandomShortestSize and RandomResize against torchvision's rule and PIL."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy import stats

from jaxaug import augment as A
from tests.augment.targets import check_targets, on_canvas
from tests.images import picture
from tests.reference.points import matrix_pull

KEY = jax.random.key(0)
SHAPES = [(65, 97), (1, 1), (1, 9)]
JITTER = A.ScaleJitter((40, 60), (0.3, 1.7))
SHORTEST = A.RandomShortestSize((20, 30, 70), max_size=80)
BETWEEN = A.RandomResize(10, 50, canvas=(60, 64))


def drawn(transform, shape):
    """What `run(transform, ...)` draws."""
    (value,) = transform.make_params(jax.random.fold_in(KEY, 0), A.ImageInfo(shape))
    return float(value)


def floor(height, width, scale):
    """The sides in float64, rounded down but for the last bits of a whole number."""
    return tuple(max(1, int(side * scale + 1e-3)) for side in (height, width))


def expected_size(transform, height, width):
    """The rule of torchvision, and the canvas."""
    value = drawn(transform, (height, width))
    if transform is JITTER:
        return floor(height, width, min(40 / height, 60 / width) * value)
    if transform is SHORTEST:
        return floor(height, width, min(value / min(height, width), 80 / max(height, width)))
    return floor(height, width, min(value / min(height, width), 60 / height, 64 / width))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transform", [JITTER, SHORTEST, BETWEEN], ids=lambda t: type(t).__name__)
def test_the_image_is_pils_resize_to_torchvisions_size(transform, shape):
    image = picture(0, *shape)
    height, width = expected_size(transform, *shape)
    pil = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    for sample in ({"image": image}, on_canvas(image, 200)):
        out = jax.jit(transform)(KEY, jax.tree.map(jnp.asarray, sample))
        assert out["size"].tolist() == [height, width]
        difference = np.asarray(out["image"])[:height, :width].astype(int) - np.asarray(pil)
        assert np.abs(difference).max() <= 1
        assert np.asarray(out["image"])[height:].max(initial=0) == 0


@pytest.mark.parametrize("transform", [JITTER, SHORTEST, BETWEEN], ids=lambda t: type(t).__name__)
def test_the_targets_move(transform):
    height, width = expected_size(transform, 65, 97)
    pull = matrix_pull(np.diag([97 / width, 65 / height, 1]))
    check_targets(transform, KEY, (65, 97), pull, 1e-3, 1e-3)


def test_what_is_drawn():
    keys = jax.random.split(KEY, 20_000)
    info = A.ImageInfo((65, 97))
    transforms = (JITTER, SHORTEST, BETWEEN)
    samples = [jax.vmap(lambda key, t=t: t.make_params(key, info)[0])(keys) for t in transforms]
    scale, side, length = map(np.asarray, samples)
    assert stats.kstest(scale, stats.uniform(0.3, 1.4).cdf).pvalue > 1e-4
    values, counts = np.unique(side, return_counts=True)
    assert values.tolist() == [20, 30, 70] and stats.chisquare(counts).pvalue > 1e-4
    values, counts = np.unique(length, return_counts=True)
    assert values.tolist() == list(range(10, 51)) and stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("side", [7, 49, 97, 103])
def test_whole_numbers_are_not_rounded_down(side):
    """49 * (1 / 49) is below 1 in floats."""
    transform = A.RandomResize(side, side, canvas=(256, 256))

    def resized(size):
        return transform(KEY, {"image": jnp.zeros((120, 120, 3), jnp.uint8), "size": size})["size"]

    sizes = jnp.arange(1, 120, 7, dtype=jnp.int32)[:, None].repeat(2, axis=1)
    assert (jax.jit(jax.vmap(resized))(sizes) == side).all()
    for height in range(1, 120, 7):
        info = A.ImageInfo((height, height))
        size = transform.drawn_warp(transform.draw(KEY, info), info).size
        assert np.asarray(size).tolist() == [side, side]


def test_without_a_canvas_the_array_has_the_shape_of_the_largest_result():
    image = jnp.zeros((20, 40, 3), jnp.uint8)
    assert A.RandomResize(5, 15)(KEY, image).shape == (15, 30, 3)
    assert A.RandomShortestSize((5, 15), 24)(KEY, image).shape == (12, 24, 3)
    with pytest.raises(ValueError, match=r"RandomResize keeps the aspect .* give `canvas="):
        A.RandomResize(5, 15)(KEY, {"image": image, "size": jnp.array([20, 40], jnp.int32)})


def test_scale_jitter_and_a_crop_of_fixed_size_are_one_resample():
    crop = A.RandomCrop((40, 60), pad_if_needed=True)
    text = A.Compose([JITTER, crop]).explain(A.ImageInfo((65, 97)))
    assert "ScaleJitter, RandomCrop" in text and "to 40 x 60" in text


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="`scale_range` must be above 0"):
        A.ScaleJitter(5, (0.0, 1.0))
    with pytest.raises(ValueError, match="`max_size` must be at least `min_size`"):
        A.RandomResize(5, 4)
    with pytest.raises(ValueError, match="`min_size` must be an int of at least 1"):
        A.RandomShortestSize((5, 0))
