"""The one resample, through the pure functions, against numpy, PIL and OpenCV."""

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxaug.augment import functional as F
from jaxaug.augment._resample import PADDING_MODES
from tests.images import picture
from tests.reference import warp as reference

NOISE = np.random.default_rng(0).uniform(0, 1, (11, 15, 3)).astype(np.float32)
QUAD = np.array([[-2.0, 1.0], [16.0, -1.0], [17.0, 12.0], [1.0, 14.0]])  # outwards: nothing shrinks
CORNERS = np.array([[0.0, 0.0], [15.0, 0.0], [15.0, 11.0], [0.0, 11.0]])


def run(function, image, *arguments, **options):
    """Compiled: op by op, most of a test's time would go into compiling the ops one by one."""
    return jax.jit(lambda image: function(image, *arguments, **options))(image)


@pytest.mark.parametrize("mode", PADDING_MODES)
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_rotation_reads_what_padding_would_give(mode, interpolation):
    fill = (0.2, 0.4, 0.6) if mode == "constant" else 0.0
    nearest = interpolation == "nearest"
    out = run(F.rotate, NOISE, 33.0, interpolation, mode, fill)
    pull = reference.rotation(33.0, 11, 15)
    if mode == "constant":
        planes = [
            reference.warp(NOISE[:, :, c : c + 1], pull, (11, 15), mode, fill[c], nearest)
            for c in range(3)
        ]
        expected = np.concatenate(planes, axis=2)
    else:
        expected = reference.warp(NOISE, pull, (11, 15), mode, nearest=nearest)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_perspective(mode):
    out = run(F.perspective, NOISE, jnp.float32(CORNERS), jnp.float32(QUAD), padding_mode=mode)
    pull = reference.homography(QUAD, CORNERS)
    np.testing.assert_allclose(out, reference.warp(NOISE, pull, (11, 15), mode), atol=2e-5)


def test_perspective_equals_opencv():
    # OpenCV puts pixel i at i, not at i + 1/2.
    push = cv2.getPerspectiveTransform(np.float32(CORNERS - 0.5), np.float32(QUAD - 0.5))
    expected = cv2.warpPerspective(NOISE, push, (15, 11), flags=cv2.INTER_LINEAR)
    out = run(F.perspective, NOISE, jnp.float32(CORNERS), jnp.float32(QUAD))
    np.testing.assert_allclose(out, expected, atol=0.02)  # OpenCV's weights have 5 bits


@pytest.mark.parametrize("size", [(7, 5), (33, 40), (3, 60), (1, 1)])
def test_resize(size):
    np.testing.assert_allclose(
        run(F.resize, NOISE, size), reference.resize(NOISE, *size), atol=2e-6
    )


@pytest.mark.parametrize("size", [(16, 9), (20, 100)])
def test_resize_equals_pil(size):
    image = picture(1, 40, 56)
    expected = Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR)
    difference = np.asarray(run(F.resize, image, size), int) - np.asarray(expected, int)
    assert np.abs(difference).max() <= 1


def test_nearest_resize_equals_pil():
    image = picture(1, 40, 56)
    expected = Image.fromarray(image).resize((25, 17), Image.Resampling.NEAREST)
    np.testing.assert_array_equal(run(F.resize, image, (17, 25), "nearest"), expected)


def test_resized_crop_equals_pil_and_does_not_look_past_the_crop():
    image = np.random.default_rng(3).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    expected = (
        Image.fromarray(image).crop((10, 4, 51, 33)).resize((9, 8), Image.Resampling.BILINEAR)
    )
    out = jax.jit(lambda *box: F.resized_crop(image, *box, (8, 9)))(4, 10, 29, 41)
    assert np.abs(np.asarray(out, int) - np.asarray(expected, int)).max() <= 1


@pytest.mark.parametrize("mode", PADDING_MODES)
def test_crop_past_the_border_is_padding(mode):
    expected = np.pad(NOISE, ((5, 3), (4, 6), (0, 0)), mode)
    np.testing.assert_array_equal(run(F.crop, NOISE, -5, -4, 19, 25, mode), expected)


@pytest.mark.parametrize("scale", [0.8, 0.3])
@pytest.mark.parametrize("mode", PADDING_MODES)
def test_antialiasing_reads_what_padding_would_give(mode, scale):
    fill = 0.7 if mode == "constant" else 0.0
    out = run(F.affine, NOISE, scale=scale, padding_mode=mode, fill=fill)
    expected = reference.antialiased(NOISE, reference.scaling(scale, 11, 15), (11, 15), mode, fill)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["constant", "symmetric"])
def test_antialiasing_of_a_turn(mode):
    out = run(F.affine, NOISE, 25.0, scale=0.6, padding_mode=mode, fill=0.4)
    pull = reference.scaling(0.6, 11, 15) @ reference.rotation(25.0, 11, 15)
    np.testing.assert_allclose(
        out, reference.antialiased(NOISE, pull, (11, 15), mode, 0.4), atol=1e-5
    )


# For most of these lengths k * length * float32(1 / length) falls below k for some k.
@pytest.mark.parametrize(
    "mode, length",
    [
        *(("wrap", length) for length in (1, 2, 41, 47, 82, 97)),
        ("reflect", 1),
        ("reflect", 42),
        ("symmetric", 41),
    ],
)
def test_padding_at_every_length(mode, length):
    line = np.arange(length, dtype=np.float32).reshape(1, length, 1)
    expected = np.pad(line[0, :, 0], 3 * length, mode)
    out = run(F.crop, line, 0, -3 * length, 1, 7 * length, mode)
    np.testing.assert_array_equal(out[0, :, 0], expected)


def test_identity_is_exact():
    for out in (
        run(F.rotate, NOISE, 0.0),
        run(F.rotate, NOISE, jnp.float32(0.0)),
        run(F.resize, NOISE, (11, 15)),
    ):
        np.testing.assert_array_equal(out, NOISE)


def test_quarter_turns_are_rot90():
    square = NOISE[:, :11]
    for turns in range(4):
        np.testing.assert_allclose(
            run(F.rotate, square, 90.0 * turns), np.rot90(square, turns), atol=1e-5
        )


def test_rotation_equals_pil():
    image = Image.fromarray(picture(2, 31, 44))
    out = run(F.rotate, np.asarray(image), 20.0, "nearest")
    expected = np.asarray(image.rotate(20, Image.Resampling.NEAREST))
    assert (np.asarray(out) == expected).all(axis=2).mean() > 0.99  # PIL works in fixed point
    out = run(F.rotate, np.asarray(image), 20.0, "bilinear", "edge")
    expected = image.rotate(20, Image.Resampling.BILINEAR)
    inside = np.asarray(Image.new("L", image.size, 255).rotate(20)) > 0
    inside = cv2.erode(inside.astype(np.uint8), np.ones((5, 5))) > 0
    assert np.abs(np.asarray(out, int) - np.asarray(expected, int))[inside].max() <= 1


def test_shrinking_is_antialiased_when_turned():
    """A checkerboard turned and halved is gray; without antialiasing it is a moire."""
    board = np.indices((64, 64)).sum(axis=0)[:, :, None] % 2 * np.ones((1, 1, 3), np.float32)
    middle = np.asarray(run(F.affine, board.astype(np.float32), 30.0, scale=0.4))[24:40, 24:40]
    assert middle.std() < 0.03 and abs(middle.mean() - 0.5) < 0.01


def test_gradients():
    def brightness_at(angle, image):
        return F.rotate(image, angle, padding_mode="edge")[2:9, 2:13].sum()

    angle_slope, image_slope = jax.grad(brightness_at, argnums=(0, 1))(
        jnp.float32(10.0), jnp.asarray(NOISE)
    )
    step = (
        brightness_at(jnp.float32(10.01), NOISE) - brightness_at(jnp.float32(9.99), NOISE)
    ) / 0.02
    np.testing.assert_allclose(angle_slope, step, rtol=0.05, atol=0.02)
    np.testing.assert_allclose(
        image_slope.sum(), 7 * 11 * 3, rtol=1e-5
    )  # a blend's weights sum to 1


def test_errors():
    with pytest.raises(
        ValueError, match=r"`padding_mode` must be one of 'constant', .* got 'mirror'"
    ):
        F.rotate(NOISE, 1.0, padding_mode="mirror")
    with pytest.raises(
        ValueError, match="`interpolation` must be one of 'bilinear', 'nearest', got 'cubic'"
    ):
        F.resize(NOISE, (3, 3), "cubic")
    with pytest.raises(
        ValueError, match=r"expected one image \(h, w, channels\), got \(2, 11, 15, 3\)"
    ):
        F.rotate(NOISE[None].repeat(2, 0), 1.0)
