"""ElasticTransform against scipy in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage, stats

from jaxaug import augment as A
from jaxaug.augment import functional as F
from tests.augment.targets import check_targets

KEY = jax.random.key(0)
SHAPE = (65, 97)
INFO = A.ImageInfo(SHAPE)
NOISE = np.random.default_rng(0).uniform(0, 1, (*SHAPE, 3)).astype(np.float32)
MILD = A.ElasticTransform((30.0, 20.0), (5.0, 3.0), padding_mode="reflect")


def field(transform, noise):
    """The pull of points that `transform` stands for, not scaled down: scipy, float64."""
    sigma = np.array(transform.sigma)
    spacing = np.maximum(1.0, sigma / 2)
    radius = np.ceil(4 * sigma / spacing).astype(int)
    fields = []
    for axis in range(2):
        smooth = np.float64(noise[axis]) * transform.alpha[axis] / 2 / np.sqrt(spacing.prod())
        for along, i in ((1, 0), (0, 1)):
            smooth = ndimage.gaussian_filter1d(
                smooth, sigma[i] / spacing[i], along, radius=int(radius[i])
            )
        fields.append(smooth[radius[1] : -radius[1] or None, radius[0] : -radius[0] or None])

    def pull(points):
        at = (points / spacing)[:, ::-1].T
        shifts = [ndimage.map_coordinates(f, at, order=1, mode="nearest") for f in fields]
        return points + np.stack(shifts, axis=1)

    return pull, fields, spacing


def drawn_noise(transform, canvas=SHAPE):
    """What `transform(KEY, ...)` draws for an image on a canvas."""
    return transform.make_params(jax.random.fold_in(KEY, 0), A.ImageInfo(canvas)).noise


def test_the_displacement_is_scipys_gaussian_of_the_noise():
    pull, _, _ = field(MILD, drawn_noise(MILD))
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]] + 0.5
    source = pull(np.column_stack([x.ravel(), y.ravel()])) - 0.5
    out = jax.jit(MILD)(KEY, NOISE)
    for channel in range(3):
        expected = ndimage.map_coordinates(
            NOISE[:, :, channel].astype(np.float64), source.T[::-1], order=1, mode="mirror"
        )
        np.testing.assert_allclose(out[:, :, channel].ravel(), expected, atol=1e-4)


@pytest.mark.parametrize("size", [(65, 97), (1, 9), (1, 1)])
def test_the_targets_move(size):
    canvas = (size[0] + 12, size[1] + 9)
    pull, _, _ = field(MILD, drawn_noise(MILD, canvas))
    check_targets(MILD, KEY, size, pull, 0.05, 0.5)


@pytest.mark.parametrize("sigma", [1.632, 6.0])
def test_a_canvas_displaces_nothing(sigma):
    """Steep ones, which are scaled down: by the gradient of the image's nodes, not of the canvas's.

    Also beyond the border, where another transform of the run may look.
    """
    transform = A.ElasticTransform(300.0, sigma)
    points = jnp.asarray(np.random.default_rng(3).uniform(-20, 60, (2, 50)), jnp.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def pulled(canvas, size):
        info = A.ImageInfo(canvas, size)
        return jnp.stack(transform.warp(transform.make_params(KEY, info), info).pull(*points))

    tight = pulled((36, 49), None)
    for canvas in ((36, 49), (37, 64), (90, 120)):
        on_canvas = pulled(canvas, jnp.array([36, 49], jnp.int32))
        np.testing.assert_allclose(on_canvas, tight, rtol=0, atol=2e-5)


def test_strength_and_smoothness_are_those_of_noise_in_every_pixel():
    """In all of the image alike: what scipy gives for white noise per pixel, far from a border."""
    transform = A.ElasticTransform(10.0, 4.0)
    info = A.ImageInfo((61, 61))
    keys = jax.random.split(KEY, 400)
    grid = jnp.arange(0.5, 61, 5, dtype=jnp.float32)

    def displacement(key):
        x, y = transform.warp(transform.make_params(key, info), info).pull(
            grid[None, :], grid[:, None]
        )
        return x - grid[None, :], y - grid[:, None]

    dx, dy = map(np.asarray, jax.jit(jax.vmap(displacement))(keys))
    white = np.random.default_rng(0).uniform(-1, 1, (800, 800))
    per_pixel = ndimage.gaussian_filter(white, 4.0, mode="wrap") * 5
    for values in (dx, dy):
        assert abs(values.std() / per_pixel.std() - 1) < 0.05
        assert np.abs(values.std(axis=0) / per_pixel.std() - 1).max() < 0.2
        neighbors = np.corrcoef(values[:, :, 1:].ravel(), values[:, :, :-1].ravel())[0, 1]
        expected = np.corrcoef(per_pixel[:, 5:].ravel(), per_pixel[:, :-5].ravel())[0, 1]
        assert abs(neighbors - expected) < 0.05
    assert abs(np.corrcoef(dx.ravel(), dy.ravel())[0, 1]) < 0.05


def test_the_noise_is_uniform():
    noise = np.asarray(drawn_noise(A.ElasticTransform(), (300, 300))).ravel()
    assert stats.kstest(noise, stats.uniform(-1, 2).cdf).pvalue > 1e-4


@pytest.mark.parametrize("alpha, sigma", [(50.0, 5.0), (500.0, 5.0), (50.0, 0.0)])
def test_no_fold_at_torchvisions_defaults_and_beyond(alpha, sigma):
    transform = A.ElasticTransform(alpha, sigma)
    points = np.random.default_rng(1).uniform(5, 60, (50, 2)).astype(np.float32)

    def gradients(key):
        warp = transform.warp(transform.make_params(key, INFO), INFO)
        displacement, _ = warp.displacements[0]
        x, y = warp.push(*jnp.asarray(points).T)
        back = jnp.stack(warp.pull(x, y), axis=1)
        return displacement.dx, displacement.dy, jnp.abs(back - points).max()

    dx, dy, error = jax.device_get(jax.jit(jax.vmap(gradients))(jax.random.split(KEY, 8)))
    spacing = max(1.0, sigma / 2)
    steepest = [np.abs(np.diff(f, axis=axis)).max() for f in (dx, dy) for axis in (1, 2)]
    assert max(steepest) / spacing <= 0.6 + 1e-5
    assert error.max() < 0.05


def test_sigma_and_alpha_are_checked():
    for bad in ({"alpha": -1.0}, {"sigma": (1.0, 2.0, 3.0)}, {"alpha": "50"}):
        with pytest.raises(ValueError, match="must be a number of at least 0 or a pair"):
            A.ElasticTransform(**bad)


def test_the_pure_half_is_scipys_map():
    rng = np.random.default_rng(2)
    shifts = [ndimage.gaussian_filter(rng.normal(size=SHAPE), 5) * 10 for _ in range(2)]
    out = F.elastic(NOISE, np.stack(shifts, axis=2), padding_mode="reflect")
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    expected = ndimage.map_coordinates(
        NOISE[:, :, 1].astype(np.float64), [y + shifts[1], x + shifts[0]], order=1, mode="mirror"
    )
    np.testing.assert_allclose(out[:, :, 1], expected, atol=1e-4)


@pytest.mark.parametrize("nodes", [(5, 6), (3, 3)])
def test_the_gradient_at_no_displacement_is_that_of_the_image(nodes):
    """It is where whoever optimizes a displacement begins."""
    ramp = jnp.broadcast_to(0.125 * jnp.arange(6.0)[None, :, None], (5, 6, 1))

    def shown(displacement):
        return F.elastic(ramp, displacement, padding_mode="edge")[2, 3, 0]

    gradient = np.asarray(jax.jit(jax.grad(shown))(jnp.zeros((*nodes, 2))))
    np.testing.assert_allclose(gradient.sum(axis=(0, 1)), [0.125, 0.0], atol=1e-6)
