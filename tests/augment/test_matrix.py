"""The written-out matrices against numpy's."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug.augment import matrix as m
from tests.reference.warp import homography


def as_numpy(matrix):
    return np.array([float(entry) for entry in matrix]).reshape(3, 3)


def random_matrix(seed):
    rng = np.random.default_rng(seed)
    entries = rng.uniform(-1, 1, 9) * [1, 1, 5, 1, 1, 5, 0.01, 0.01, 0] + [
        2,
        0,
        0,
        0,
        2,
        0,
        0,
        0,
        1,
    ]
    return m.Matrix(*(jnp.float32(entry) for entry in entries))


def test_product_and_inverse():
    a, b = random_matrix(0), random_matrix(1)
    np.testing.assert_allclose(
        as_numpy(m.product(a, b)), as_numpy(a) @ as_numpy(b), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        as_numpy(m.inverse(a)), np.linalg.inv(as_numpy(a)), rtol=1e-4, atol=1e-5
    )
    affine = m.product(m.rotation(jnp.float32(20)), m.translation(3.0, 4.0))
    np.testing.assert_allclose(
        as_numpy(m.inverse(affine)), np.linalg.inv(as_numpy(affine)), atol=1e-6
    )


def test_structure_survives_products():
    axis_aligned = m.product(m.scaling(jnp.float32(2), 3.0), m.translation(jnp.float32(1), 0.0))
    assert axis_aligned.axis_aligned and m.inverse(axis_aligned).axis_aligned
    turned = m.product(axis_aligned, m.rotation(jnp.float32(1)))
    assert turned.affine and m.inverse(turned).affine and not turned.axis_aligned
    assert not m.product(turned, random_matrix(0)).affine


def test_integers_are_static_too():
    shift = m.Matrix(xx=1, yy=1, x1=jnp.float32(2))
    assert shift.axis_aligned and m.product(shift, m.scaling(2, jnp.float32(3))).axis_aligned
    assert m.rotation(0) == m.Matrix() and m.shearing(0, 0) == m.Matrix()
    traced = m.translation(jnp.int32(3), np.int64(2))
    assert traced.x1.dtype == jnp.float32 and traced.axis_aligned
    np.testing.assert_array_equal(as_numpy(traced), [[1, 0, 3], [0, 1, 2], [0, 0, 1]])


def test_homography_takes_points_to_points():
    start = np.array([[1.0, 2.0], [9.0, 1.0], [8.0, 7.0], [0.0, 9.0]])
    end = start[[1, 2, 3, 0]] * 1.5
    pull = as_numpy(m.homography(jnp.float32(start), jnp.float32(end)))
    np.testing.assert_allclose(pull / pull[2, 2], homography(end, start), atol=2e-4)


def test_square_to():
    corners = np.array([[1.0, 2.0], [9.0, 1.0], [8.0, 7.0], [0.0, 9.0]])
    expected = homography([(0, 0), (1, 0), (1, 1), (0, 1)], corners)
    np.testing.assert_allclose(as_numpy(m.square_to(jnp.float32(corners))), expected, atol=1e-5)


def test_points_beyond_the_horizon_stay_finite():
    matrix = m.Matrix(wx=jnp.float32(-1.0))  # w = 1 - x
    x, y, w = m.transform_points(matrix, jnp.float32([0.5, 1.0, 3.0]), jnp.float32([1.0, 1.0, 1.0]))
    assert np.isfinite(x).all() and np.isfinite(y).all() and (np.asarray(w) > 0).all()
    assert x[0] == 1.0


@pytest.mark.parametrize("x, y", [(30.0, 0.0), (0.0, -20.0), (15.0, 25.0)])
def test_shearing_inverts_torchvisions(x, y):
    tan_x, tan_y = np.tan(np.radians([x, y]))
    push = np.array([[1, 0, 0], [-tan_y, 1, 0], [0, 0, 1]]) @ np.array(
        [[1, -tan_x, 0], [0, 1, 0], [0, 0, 1]]
    )
    np.testing.assert_allclose(as_numpy(m.shearing(x, y)), np.linalg.inv(push), atol=1e-6)
