"""Warps with displacements, and choices among warps, against numpy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from jaxaug import augment as A
from jaxaug.augment import matrix
from jaxaug.augment._warp.warp import MAX_GRADIENT, Displacement
from tests.images import picture

KEY = jax.random.key(0)
HEIGHT, WIDTH = 41, 57
INFO = A.ImageInfo((HEIGHT, WIDTH))
NOISE = np.random.default_rng(0).uniform(0, 1, (HEIGHT, WIDTH, 3)).astype(np.float32)


def waves(amplitude=2.0, seed=0, shape=(HEIGHT, WIDTH)):
    """A smooth field of displacements, float64 (dx, dy) per pixel."""
    rng = np.random.default_rng(seed)
    fields = [ndimage.gaussian_filter(rng.normal(size=shape), 5) for _ in range(2)]
    return [field / np.abs(field).max() * amplitude for field in fields]


class _Fixed(A.Geometric):
    """A warp that is given."""

    def __init__(self, make, **resampling):
        self.make = make
        self.settings = A.Resampling(**resampling)

    def make_params(self, key, info):
        """Nothing."""

    def warp(self, params, info):
        return self.make(info)

    def resampling(self):
        return self.settings


def bend(dx, dy, **resampling):
    fields = jnp.float32(dx), jnp.float32(dy)
    return _Fixed(lambda info: A.Warp.displaced(info, *fields), **resampling)


def turn(degrees, **resampling):
    return _Fixed(lambda info: A.Warp.centered(info, matrix.rotation(degrees)), **resampling)


def run(transform, sample):
    return jax.jit(transform)(KEY, sample)


def test_a_displacement_per_pixel_is_scipys_map():
    dx, dy = waves()
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    out = run(bend(dx, dy, padding_mode="reflect"), NOISE)
    for channel in range(3):
        expected = ndimage.map_coordinates(
            NOISE[:, :, channel].astype(np.float64), [y + dy, x + dx], order=1, mode="mirror"
        )
        np.testing.assert_allclose(out[:, :, channel], expected, atol=1e-5)


def test_a_grid_of_nodes_reaches_from_edge_to_edge():
    """Linear in x and y: bilinear interpolation between any nodes is exact."""
    nodes_y, nodes_x = np.mgrid[0:HEIGHT:4j, 0:WIDTH:6j]
    pixels_y, pixels_x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    coarse = bend(0.1 * nodes_x - 0.05 * nodes_y, 0.02 * nodes_x)
    fine = bend(0.1 * pixels_x - 0.05 * pixels_y, 0.02 * pixels_x)
    inside = np.s_[2:-2, 2:-2]
    np.testing.assert_allclose(run(coarse, NOISE)[inside], run(fine, NOISE)[inside], atol=1e-4)


@pytest.mark.parametrize("amplitude", [1.0, 60.0])
def test_points_come_back(amplitude):
    """However strong the displacement: it is scaled down before it folds the image."""
    displaced = A.Warp.displaced(INFO, *map(jnp.float32, waves(amplitude)))
    chain = A.Warp.centered(INFO, matrix.rotation(30.0)).then(displaced)
    chain = chain.then(A.Warp.centered(INFO, matrix.scaling(1.2, 0.9))).then(displaced)
    x, y = np.random.default_rng(1).uniform([[5], [5]], [[WIDTH - 5], [HEIGHT - 5]], (2, 50))
    x, y = jnp.float32(x), jnp.float32(y)
    back = jax.jit(lambda x, y: chain.pull(*chain.push(x, y)))(x, y)
    np.testing.assert_allclose(back, (x, y), atol=0.01)


def test_a_steep_displacement_is_scaled_to_the_largest_gradient():
    dx, dy = (jnp.float32(field) for field in waves(60.0))
    steep = Displacement(dx, dy)
    bounded = steep.bounded()
    ratio = np.asarray(bounded.dx) / np.asarray(dx)
    assert ratio.std() < 1e-4 and 0 < ratio.mean() < 0.3
    gradients = np.stack(
        [*np.gradient(np.asarray(bounded.dx)), *np.gradient(np.asarray(bounded.dy))]
    )
    largest = np.sqrt((gradients**2).sum(axis=0)).max()
    assert 0.5 * MAX_GRADIENT < largest <= MAX_GRADIENT
    gentle = Displacement(dx / 1000, dy / 1000)
    np.testing.assert_array_equal(gentle.bounded().dx, gentle.dx)


@pytest.mark.parametrize("shapes", [((1, 1), (1, 1)), ((3, 1), (3, 1)), ((3, 3), (4, 4))])
def test_displacements_that_are_no_grid_are_refused(shapes):
    dx, dy = map(jnp.zeros, shapes)
    with pytest.raises(ValueError, match=r"`dx` and `dy` must have one shape, .* at least 2 by 2"):
        A.Warp.displaced(A.ImageInfo((12, 14)), dx, dy)
    assert A.Warp.displaced(A.ImageInfo((3, 1)), jnp.zeros((3, 1)), jnp.zeros((3, 1))).displacements


def test_targets_follow_a_displacement():
    labels = np.random.default_rng(0).integers(1, 200, (HEIGHT, WIDTH), dtype=np.uint8)
    drawn = np.repeat(labels[:, :, None], 3, axis=2)
    chain = A.Compose(
        [turn(20.0, interpolation="nearest"), bend(*waves(3.0)), A.RandomHorizontalFlip(1.0)],
        mask_fill=0,
    )
    assert chain.explain(INFO).count("resample ") == 1
    out = run(chain, {"image": drawn, "mask": labels})
    np.testing.assert_array_equal(out["mask"], out["image"][:, :, 0])
    assert (np.asarray(out["mask"]) != labels).mean() > 0.5

    points = jnp.array([[20.3, 14.1], [33.0, 25.5]], jnp.float32)
    moved = np.asarray(run(chain, {"image": drawn, "keypoints": points})["keypoints"])
    warp = chain.warp(chain.make_params(KEY, INFO), INFO)
    np.testing.assert_allclose(np.stack(warp.pull(*moved.T), axis=1), points, atol=0.01)


def test_boxes_through_a_displacement_are_hulls_of_their_sides():
    dx, dy = waves(4.0, seed=3)
    warp = A.Warp.displaced(INFO, jnp.float32(dx), jnp.float32(dy))
    box = np.array([12.0, 10.0, 40.0, 31.0])
    moved = run(bend(dx, dy), {"image": NOISE, "boxes": jnp.float32(box)[None]})["boxes"][0]
    share = np.linspace(0, 1, 200)
    x = box[0] + (box[2] - box[0]) * share
    y = box[1] + (box[3] - box[1]) * share
    sides_x = np.concatenate([x, x, np.full(200, box[0]), np.full(200, box[2])])
    sides_y = np.concatenate([np.full(200, box[1]), np.full(200, box[3]), y, y])
    pushed = np.array(warp.push(jnp.float32(sides_x), jnp.float32(sides_y)))
    hull = [*pushed.min(axis=1), *pushed.max(axis=1)]
    np.testing.assert_allclose(moved, hull, atol=0.05)
    corners = np.array(warp.push(jnp.float32(box[[0, 2, 2, 0]]), jnp.float32(box[[1, 1, 3, 3]])))
    cornered = np.array([*corners.min(axis=1), *corners.max(axis=1)])
    assert np.abs(np.asarray(moved) - cornered).max() > 0.2


# ---- choices


BRANCHES = (
    A.Warp.identity(INFO),
    A.Warp.centered(INFO, matrix.rotation(25.0)),
    A.Warp.centered(INFO, matrix.scaling(1.5, 1.5), max_shrink=1.5),
    A.Warp.displaced(INFO, *map(jnp.float32, waves())),
    A.Warp.centered(INFO, matrix.rotation(10.0)).then(
        A.Warp.displaced(INFO, *map(jnp.float32, waves(seed=1)))
    ),
)


@pytest.mark.parametrize("number", range(len(BRANCHES)))
def test_a_choice_is_the_branch(number):
    x = jnp.float32([3.0, 20.5, 50.0])
    y = jnp.float32([7.0, 20.0, 1.0])

    @jax.jit
    def pulled(index):
        return A.select(index, BRANCHES).pull(x, y)

    np.testing.assert_allclose(pulled(jnp.int32(number)), BRANCHES[number].pull(x, y), atol=1e-4)


def test_a_choice_of_crops_and_resizes_keeps_their_windows():
    def crop_and_resize(number, image):
        crops = (A.CenterCrop((20, 30)), A.CenterCrop((33, 21)))
        chains = [A.Compose([crop, A.Resize((16, 16))]) for crop in crops]
        warps = [chain.warp(chain.make_params(KEY, INFO), INFO) for chain in chains]
        chosen = _Fixed(lambda info: A.select(number, warps))
        return [chosen(KEY, image), *(chain(KEY, image) for chain in chains)]

    for number in range(2):
        chosen, *each = jax.jit(crop_and_resize)(jnp.int32(number), NOISE)
        np.testing.assert_allclose(chosen, each[number], atol=1e-5)


def test_a_choice_keeps_what_all_branches_have_in_common():
    moves = [A.Warp.framing(INFO, matrix.translation(x, 0)) for x in (1, 2.5)]
    chosen = A.select(jnp.int32(1), moves)
    assert chosen.matrix.axis_aligned and chosen.max_shrink == (1.0, 1.0)
    np.testing.assert_array_equal(A.select(jnp.int32(1), [jnp.zeros(3), jnp.ones(3)]), jnp.ones(3))


def test_a_choice_among_frames_of_different_shapes_is_refused():
    other = A.Warp.identity(A.ImageInfo((8, 8)))
    with pytest.raises(ValueError, match=r"frames of one shape, got canvases \[\(41, 57\), \(8"):
        A.select(jnp.int32(0), [BRANCHES[0], other])


def test_a_choice_among_displacements_of_different_grids():
    shift = jnp.linspace(0, 3, 9).reshape(3, 3)
    coarse = A.Warp.displaced(INFO, shift, -shift)
    warps = [BRANCHES[3], coarse, BRANCHES[0]]

    def moved(number, image):
        chosen = A.select(number, warps)
        return [_Fixed(lambda info, warp=warp: warp)(KEY, image) for warp in (chosen, *warps)]

    for number in range(3):
        chosen, *each = jax.jit(moved)(jnp.int32(number), NOISE)
        np.testing.assert_allclose(chosen, each[number], atol=1e-4)


def test_one_map_of_a_chain():
    chain = A.Compose(
        [A.RandomRotation(30), A.Compose([A.CenterCrop(30), A.RandomAffine(9, p=0.5)])]
    )
    params = chain.make_params(KEY, INFO)
    warp = chain.warp(params, INFO)
    points = jnp.array([[20.0, 14.0]], jnp.float32)
    image = picture(0, HEIGHT, WIDTH)
    moved = chain.apply(params, {"image": image, "keypoints": points})["keypoints"]
    np.testing.assert_allclose(np.stack(warp.push(*points.T), axis=1), moved, atol=1e-4)
    assert warp.canvas == (30, 30)
    for other in (A.ColorJitter(0.1), A.RandomRotation(3, fill=0.5)):
        with pytest.raises(TypeError, match="a chain has one map only where all its transforms"):
            A.Compose([chain, other]).warp((), INFO)
