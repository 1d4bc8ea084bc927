"""Distortions against numpy, OpenCV and scipy."""

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import interpolate, ndimage, stats

from jaxaug import augment as A
from tests.augment.targets import check_targets
from tests.images import picture

KEY = jax.random.key(0)
SHAPES = [(65, 97), (1, 9), (1, 1)]
GRID = A.GridDistortion(4, 0.25, 1.0, padding_mode="reflect")
LENS = A.OpticalDistortion((0.1, 0.14), 1.0, padding_mode="reflect")
PLATE = A.ThinPlateSpline((0.2, 0.3), 4, 1.0, padding_mode="reflect")
WATER = A.WaterRefraction((0.05, 0.06), (0.6, 1.0), 3, 1.0, padding_mode="reflect")
FAINT_LENS = A.OpticalDistortion((0.01, 0.03), 1.0)
FAINT_PLATE = A.ThinPlateSpline((0.01, 0.02), 4, 1.0)
ALL = pytest.mark.parametrize(
    "transform", [GRID, LENS, PLATE, WATER], ids=lambda t: type(t).__name__
)


def pull_of(transform, height, width):
    """The function of points [n, 2] that `transform(KEY, ...)` draws, in float64."""
    params = transform.make_params(jax.random.fold_in(KEY, 0), A.ImageInfo((height, width)))
    size = np.array([width, height], np.float64)
    values, *others = (np.float64(each) for each in jax.device_get(params))
    if isinstance(transform, A.GridDistortion):
        even = np.linspace(0, 1, 5)
        ends = [np.append(0, np.cumsum(steps) / steps.sum()) for steps in values]

        def pull(points):
            x, y = np.clip(points / size, 0, 1).T
            moved = np.column_stack([np.interp(x, even, ends[1]), np.interp(y, even, ends[0])])
            return points + (moved - np.column_stack([x, y])) * size

    elif isinstance(transform, A.OpticalDistortion):

        def pull(points):
            centered = np.clip(points / size, 0, 1) - 0.5
            squared = (centered**2).sum(axis=1, keepdims=True)
            return points + centered * size * values * (squared + squared**2)

    elif isinstance(transform, A.WaterRefraction):
        wavelength, angle, phase = others
        along = np.array([np.cos(angle), np.sin(angle)])

        def pull(points):
            place = np.clip(points / size, 0, 1) * size / size.min()
            wave = values * np.sin(2 * np.pi * (place @ along) / wavelength + phase)
            return points + wave @ along.T * size.min()

    else:
        y, x = np.mgrid[0:1:4j, 0:1:4j]
        control = np.column_stack([x.ravel(), y.ravel()])
        spline = interpolate.RBFInterpolator(
            control, values.reshape(2, 16).T, kernel="thin_plate_spline", degree=1
        )

        def pull(points):
            return points + spline(np.clip(points / size, 0, 1)) * size

    return pull


@ALL
def test_the_image_is_scipys_map(transform):
    image = picture(0, 65, 97).astype(np.float32) / 255
    pull = pull_of(transform, 65, 97)
    y, x = np.mgrid[:65, :97] + 0.5
    source = pull(np.column_stack([x.ravel(), y.ravel()])) - 0.5
    out = jax.jit(transform)(KEY, image)
    expected = ndimage.map_coordinates(
        image[:, :, 0].astype(np.float64), source.T[::-1], order=1, mode="mirror"
    )
    np.testing.assert_allclose(out[:, :, 0].ravel(), expected, atol=2e-3)
    assert np.abs(np.asarray(out) - image).max() > 0.05


@ALL
@pytest.mark.parametrize("shape", SHAPES)
def test_the_targets_move(transform, shape):
    if shape == (1, 9):  # where a share of the width is many heights
        transform = {LENS: FAINT_LENS, PLATE: FAINT_PLATE}.get(transform, transform)
    check_targets(transform, KEY, shape, pull_of(transform, *shape), 0.05, 0.5)


def test_the_lens_is_opencvs():
    height, width, k = 65, 97, 0.12
    focal = np.array([[width, 0, width / 2 - 0.5], [0, height, height / 2 - 0.5], [0, 0, 1]])
    coefficients = np.array([k, k, 0, 0, 0])
    maps = cv2.initUndistortRectifyMap(
        focal, coefficients, None, focal, (width, height), cv2.CV_32FC1
    )
    info = A.ImageInfo((height, width))
    warp = A.OpticalDistortion().warp(type(LENS.make_params(KEY, info))(jnp.float32(k)), info)
    x = jnp.arange(width, dtype=jnp.float32)[None, :] + 0.5
    y = jnp.arange(height, dtype=jnp.float32)[:, None] + 0.5
    for ours, theirs in zip(warp.pull(x, y), maps):
        np.testing.assert_allclose(ours - 0.5, theirs, atol=5e-3)


@pytest.mark.parametrize(
    "transform, side",
    [(A.GridDistortion(5), 6), (LENS, 65), (PLATE, 65)],
    ids=["grid", "lens", "plate"],
)
def test_nodes_are_no_pixels_where_their_numbers_agree(transform, side):
    """The same draw bends an image of twice the side in the same shares."""
    places = jnp.linspace(0.0, 1.0, 9)
    shares = []
    for length in (side, 2 * side):
        info = A.ImageInfo((length, length))
        warp = transform.warp(transform.make_params(KEY, info), info)
        shares.append(jnp.stack(warp.pull(places * length, places[::-1] * length)) / length)
    np.testing.assert_allclose(shares[0], shares[1], atol=1e-5)


def test_what_is_drawn():
    keys = jax.random.split(KEY, 20_000)
    info = A.ImageInfo((40, 60))
    steps, k, shifts = (
        np.asarray(jax.vmap(lambda key, t=t: t.make_params(key, info)[0])(keys))
        for t in (A.GridDistortion(), A.OpticalDistortion(), A.ThinPlateSpline((0.3, 0.3)))
    )
    assert stats.kstest(steps[:, 0, 0], stats.uniform(0.7, 0.6).cdf).pvalue > 1e-4
    assert stats.kstest(k, stats.uniform(-0.05, 0.1).cdf).pvalue > 1e-4
    assert stats.kstest(shifts[:, 1, 2, 3], stats.norm(0, 0.03).cdf).pvalue > 1e-4
    scales = jax.vmap(lambda key: A.ThinPlateSpline().make_params(key, info).displacements)(keys)
    assert abs(np.std(scales) - np.sqrt(0.09 + 0.2**2 / 12) / 10) < 1e-3
    together = np.corrcoef(steps.reshape(len(keys), -1).T)
    assert np.abs(together - np.eye(10)).max() < 0.03


@pytest.mark.parametrize(
    "transform",
    [A.GridDistortion(9, 0.9), A.OpticalDistortion((1.0, 1.0)), A.ThinPlateSpline((1.0, 1.0), 7)],
    ids=lambda t: type(t).__name__,
)
def test_however_strong_points_come_back(transform):
    info = A.ImageInfo((65, 97))
    points = np.random.default_rng(1).uniform(5, 60, (2, 50)).astype(np.float32)

    def error(key):
        warp = transform.warp(transform.make_params(key, info), info)
        back = jnp.stack(warp.pull(*warp.push(*jnp.asarray(points))))
        return jnp.abs(back - points).max()

    assert np.max(jax.jit(jax.vmap(error))(jax.random.split(KEY, 8))) < 0.05


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"`distort_limit` must be a pair .* within \[-0.9, 0.9\]"):
        A.GridDistortion(5, 1.0)
    with pytest.raises(ValueError, match="`num_control_points` must be an int of at least 2"):
        A.ThinPlateSpline(num_control_points=1)
