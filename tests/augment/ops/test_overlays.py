"""Rain, shadows, flares, gravel and spatter against NumPy, Pillow and Python."""

import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageDraw

from jaxaug import augment as A
from jaxaug.augment import functional
from jaxaug.augment._ops.overlays import Ghosts
from tests.images import picture

IMAGE = picture(0, 24, 31).astype(np.float32) / 255
HEIGHT, WIDTH = IMAGE.shape[:2]
Y, X = (np.mgrid[0:HEIGHT, 0:WIDTH] + 0.5).astype(np.float64)
RANDOM = np.random.default_rng(3)


def test_rain_is_that_of_a_loop_over_drops():
    drops = RANDOM.uniform(size=(5, 2)).astype(np.float32)
    cover = np.zeros((HEIGHT, WIDTH))
    for x, y in drops.astype(float):
        down = Y - y * HEIGHT * 0.75
        aside = np.abs(X - x * WIDTH - down * np.tan(np.deg2rad(20)))
        streak = np.clip(1.5 - aside, 0, 1) * ((down >= 0) & (down <= HEIGHT * 0.25))
        cover = np.maximum(cover, streak)
    out = functional.rain(IMAGE, drops, 20.0, length=0.25, width=2.0, color=0.8)
    wanted = IMAGE + cover[:, :, None] * (0.8 - IMAGE)
    np.testing.assert_allclose(out, wanted, atol=1e-5)
    assert cover.max() == 1


def test_a_shadow_is_pillows_polygon():
    """But for pixels on its outline, by the even-odd rule."""
    corners = np.array([[[0.1, 0.2], [0.9, 0.1], [0.3, 0.9], [0.5, 0.05], [0.8, 0.8]]], np.float32)
    scale = 40
    drawn = Image.new("L", (WIDTH * scale, HEIGHT * scale))
    points = [(x * WIDTH * scale, y * HEIGHT * scale) for x, y in corners[0].tolist()]
    ImageDraw.Draw(drawn).polygon(points, fill=1)
    at_centers = np.asarray(drawn)[scale // 2 :: scale, scale // 2 :: scale]
    out = np.asarray(functional.shadow(IMAGE, corners, np.array([0.25], np.float32)))
    wanted = IMAGE * (1 - 0.25 * at_centers[:, :, None])
    differs = np.abs(out - wanted).max(axis=2) > 1e-6
    assert 0.05 < at_centers.mean() < 0.95 and differs.sum() <= 2


def test_a_sun_flare_is_that_of_numpy():
    numbers = RANDOM.uniform(size=(4, 3)).astype(np.float32)
    colors = RANDOM.uniform(size=(3, 3)).astype(np.float32)
    ghosts = Ghosts(numbers[0], numbers[1], numbers[2] / 4, numbers[3], colors)
    wanted = IMAGE.astype(float)
    for x, y, radius, alpha, color in zip(*ghosts):
        away = np.hypot(X - x * WIDTH, Y - y * HEIGHT)
        soft = np.clip(radius * WIDTH - away + 0.5, 0, 1)[:, :, None]
        wanted = wanted * (1 - alpha * soft) + alpha * soft * color
    light = np.clip(1 - np.hypot(X - 0.3 * WIDTH, Y - 0.2 * HEIGHT) / (0.4 * WIDTH), 0, 1) ** 3
    wanted += light[:, :, None] * (0.9 - wanted)
    out = functional.sun_flare(IMAGE, (0.3, 0.2), 0.4, 0.9, ghosts)
    np.testing.assert_allclose(out, wanted, atol=1e-5)


def test_gravel_has_pythons_lightness():
    stones = np.array([[0.3, 0.4], [0.35, 0.45], [0.99, 0.01]], np.float32)
    half, lightness = np.array([2, 1, 3], np.int32), np.array([0.9, 0.2, 0.5], np.float32)
    wanted = IMAGE.astype(float)
    for (x, y), reach, light in zip(stones, half, lightness):
        row, column = int(y * HEIGHT), int(x * WIDTH)
        for i in range(max(row - reach, 0), min(row + reach, HEIGHT)):
            for j in range(max(column - reach, 0), min(column + reach, WIDTH)):
                hue, _, saturation = colorsys.rgb_to_hls(*IMAGE[i, j].astype(float))
                wanted[i, j] = colorsys.hls_to_rgb(hue, light, saturation)
    np.testing.assert_allclose(functional.gravel(IMAGE, stones, half, lightness), wanted, atol=1e-4)


def test_no_array_has_all_drops_or_stones():
    """XLA's GPU backend compiles a reduction of [75, 224, 224] for four minutes."""
    numbers = jnp.zeros((60, 2), jnp.float32)

    def wet(image):
        return functional.rain(image, numbers, 20.0)

    def strewn(image):
        return functional.gravel(image, numbers, jnp.ones(60, jnp.int32), numbers[:, 0])

    for function in (wet, strewn):
        program = jax.jit(function).lower(IMAGE).as_text()
        assert f"{HEIGHT}x{WIDTH}xf32" in program and f"60x{HEIGHT}x{WIDTH}x" not in program


def test_spatter_is_a_blend_by_the_noise():
    noise = RANDOM.uniform(size=(HEIGHT, WIDTH)).astype(np.float32)
    alpha = 0.6 * np.clip((noise.astype(float) - 0.5) / 0.1, 0, 1)[:, :, None]
    color = np.array([0.1, 0.2, 0.3])
    out = functional.spatter(IMAGE, noise, 0.5, 0.6, tuple(color))
    np.testing.assert_allclose(out, IMAGE * (1 - alpha) + alpha * color, atol=1e-5)


def test_mud_is_darker_than_rain_and_both_cover_a_part():
    gray = np.full((64, 64, 3), 0.5, np.float32)
    shares = []
    for mode in ("rain", "mud"):
        out = jax.jit(A.Spatter(mode, p=1.0))(jax.random.key(1), gray)
        shares.append(float(jnp.mean(jnp.abs(out - gray) > 0.05)))
        assert (out.mean() > 0.5) == (mode == "rain")
    assert all(0.05 < share < 0.8 for share in shares)


def test_regions_are_checked():
    for region in [(0, 0, 1), (0.5, 0, 0.2, 1), (0, 0, 1, 1.5), "all"]:
        with pytest.raises(ValueError, match="`shadow_roi` must be"):
            A.RandomShadow(region)


def test_shadows_and_flares_lie_in_their_regions():
    keys = jax.random.split(jax.random.key(0), 300)
    info = A.ImageInfo((8, 9))
    shadows = jax.vmap(lambda key: A.RandomShadow().make_params(key, info))(keys)
    corners = np.asarray(shadows.vertices)
    assert corners[..., 1].min() >= 0.5 and corners.max() <= 1 and corners[..., 0].min() < 0.1
    shown = (np.asarray(shadows.intensity) > 0).sum(axis=1)
    assert set(shown) == {1, 2}
    flares = jax.vmap(lambda key: A.RandomSunFlare().make_params(key, info))(keys)
    assert np.asarray(flares.center)[:, 1].max() <= 0.5
    assert set((np.asarray(flares.ghosts.alpha) > 0).sum(axis=1)) == {6, 7, 8, 9, 10}


def test_colors_of_other_channels_are_refused():
    color = (0.1, 0.2, 0.3)
    rain, sun = A.RandomRain(drop_color=color, p=1.0), A.RandomSunFlare(color=color, p=1.0)
    for channels in (1, 13):
        image = np.zeros((20, 25, channels), np.uint8)
        for transform in (rain, sun, A.Colorize(black=color, p=1.0)):
            with pytest.raises(ValueError, match="must be one number, or one for each channel"):
                transform(jax.random.key(0), image)
        replay = A.Compose([A.RandomSunFlare(p=1.0)])
        params = replay.make_params(jax.random.key(0), A.ImageInfo((20, 25)))
        with pytest.raises(ValueError, match="the disks have 3 channels"):
            replay.apply(params, image)
        with pytest.raises(TypeError, match="needs three channels"):
            functional.chromatic_aberration(np.float32(image), (0, 0), (0, 0))
