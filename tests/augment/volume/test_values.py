"""Volumes against scipy.ndimage and NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage
from scipy.interpolate import BSpline

from jaxaug import augment
from jaxaug.augment import volume as vol
from jaxaug.augment.volume import intensity

SHAPE = (18, 20, 22)
KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
SMOOTH = ndimage.gaussian_filter(RNG.random(SHAPE), 1.0)
VOLUME = ((SMOOTH - SMOOTH.min()) / np.ptp(SMOOTH)).astype(np.float32)
LABELS = (VOLUME > 0.5).astype(np.int32) + 2 * (VOLUME > 0.7)
SAMPLE = {"volume": jnp.asarray(VOLUME), "labels": jnp.asarray(LABELS)}
ATOL = 1e-3  # of the range, 1


def drawn(transform, info=None):
    """Return what a transform draws for the sample."""
    info = augment.VolumeInfo(SHAPE) if info is None else info
    return jax.tree.map(np.float64, transform.make_params(KEY, info))


def turned(degrees, axis):
    """Return the counter-clockwise turn on the slices across an axis, for (z, y, x)."""
    i, j = [other for other in range(3) if other != axis]
    angle = np.deg2rad(degrees)
    matrix = np.eye(3)
    matrix[i, i] = matrix[j, j] = np.cos(angle)
    matrix[i, j], matrix[j, i] = -np.sin(angle), np.sin(angle)
    return matrix


def affine_of(params, spacing=(1, 1, 1)):
    """Return the inverse matrix, and the place of the output's origin, in voxel indices."""
    shear = np.eye(3)
    shear[~np.eye(3, dtype=bool)] = params.shear
    turn = (
        turned(params.degrees[2], 2) @ turned(params.degrees[1], 1) @ turned(params.degrees[0], 0)
    )
    forward = turn @ shear @ np.diag(params.scale)
    forward = np.diag(1 / np.array(spacing)) @ forward @ np.diag(spacing)
    back = np.linalg.inv(forward)
    center = (np.array(SHAPE) - 1) / 2
    return back, center - back @ (center + params.translate)


def displaced(control, index):
    """Return the places that a spline of displacements shows, index float64[3, ...]."""
    control = np.float64(control)
    weights = []
    for axis in range(3):
        cells = control.shape[1 + axis] - 3
        knots = np.arange(-3, cells + 4)
        place = (np.arange(SHAPE[axis]) + 0.5) * cells / SHAPE[axis]
        basis = [BSpline.basis_element(knots[k : k + 5], False)(place) for k in range(cells + 3)]
        weights.append(np.nan_to_num(np.array(basis)))
    return index + np.einsum("dabc,az,by,cx->dzyx", control, *weights)


def grid():
    return np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij")).astype(np.float64)


def check(out, places, mode="grid-constant"):
    """Raise where a sample is not that of scipy at places [3, ...] of voxel indices."""
    expected = ndimage.map_coordinates(np.float64(VOLUME), places, order=1, mode=mode)
    np.testing.assert_allclose(out["volume"], expected, rtol=0, atol=ATOL)
    labels = ndimage.map_coordinates(LABELS, places, order=0, mode="grid-constant")
    near = np.abs((places + 0.5) - np.round(places + 0.5)).min(axis=0) < 1e-3
    np.testing.assert_array_equal(np.asarray(out["labels"])[~near], labels[~near])
    assert near.mean() < 0.05


AFFINE = vol.Affine(25, (0.8, 1.2), 0.2, 3, isotropic=False)


@pytest.mark.parametrize("spacing", [None, (3.0, 1.0, 0.5)])
def test_affine_is_that_of_scipy(spacing):
    sample = SAMPLE if spacing is None else {**SAMPLE, "spacing": jnp.array(spacing)}
    info = augment.VolumeInfo(SHAPE, spacing=None if spacing is None else jnp.array(spacing))
    params = augment.Compose([AFFINE]).make_params(KEY, info)
    back, first = affine_of(jax.tree.map(np.float64, params[0].params), spacing or (1, 1, 1))
    out = jax.jit(augment.Compose([AFFINE]))(KEY, sample)
    places = np.einsum("ij,jzyx->izyx", back, grid()) + first[:, None, None, None]
    check(out, places)


def test_a_run_of_affine_and_elastic_is_one_resample_of_scipy():
    elastic = vol.Elastic(6, (1.5, 2.4))
    for chain in (augment.Compose([AFFINE, elastic]), augment.Compose([elastic, AFFINE])):
        params = chain.make_params(KEY, augment.VolumeInfo(SHAPE))
        places = grid()
        for drawing in reversed(params):
            if hasattr(drawing.params, "control"):
                control = np.asarray(drawing.params.control)
                field = displaced(control, grid()) - grid()
                read = [ndimage.map_coordinates(f, places, order=1, mode="nearest") for f in field]
                places = places + np.stack(read)
            else:
                back, first = affine_of(jax.tree.map(np.float64, drawing.params))
                places = np.einsum("ij,jzyx->izyx", back, places) + first[:, None, None, None]
        check(jax.jit(chain)(KEY, SAMPLE), places)
        assert chain.explain(augment.VolumeInfo(SHAPE)).startswith("1 pass over the voxels")


@pytest.mark.parametrize("first", [True, False])
def test_a_perspective_in_a_run_is_that_of_scipy_and_comes_back(first):
    steps = [vol.Perspective((0.3, 0.1, 0.2)), AFFINE]
    chain = augment.Compose(steps if first else steps[::-1])
    params = chain.make_params(KEY, augment.VolumeInfo(SHAPE))
    center = (np.array(SHAPE)[:, None, None, None] - 1) / 2
    places = grid()
    for drawing in reversed(params):
        if hasattr(drawing.params, "shear"):
            back, start = affine_of(jax.tree.map(np.float64, drawing.params))
            places = np.einsum("ij,jzyx->izyx", back, places) + start[:, None, None, None]
        else:
            away = places - center
            tilt = 2 * np.float64(drawing.params) / SHAPE
            places = center + away / (1 + np.einsum("i,izyx->zyx", tilt, away))
    check(jax.jit(chain)(KEY, SAMPLE), places)
    assert chain.explain(augment.VolumeInfo(SHAPE)).startswith("1 pass over the voxels")
    warp = vol.warp_of(chain, params, augment.VolumeInfo(SHAPE))
    again = warp.push(tuple(jnp.asarray(each + 0.5, jnp.float32) for each in places))
    for each, wanted in zip(again, grid()):
        np.testing.assert_allclose(each, wanted + 0.5, atol=2e-3)


def test_what_lies_behind_the_viewer_of_a_perspective_is_outside():
    large, small = vol.Affine(scale=(2.0, 2.0)), vol.Affine(scale=(0.25, 0.25))
    chain = augment.Compose([large, vol.Perspective(((0.3, 0.3),) * 3), small])
    sides = np.array(SHAPE)[:, None, None, None]
    away = 4 * grid() - 2 * (sides - 1)
    depth = 1 + 0.6 * (away / sides).sum(axis=0)
    places = np.where(depth > 0, (sides - 1) / 2 + away / (2 * depth), -100.0)
    check(jax.jit(chain)(KEY, SAMPLE), places)


@pytest.mark.parametrize("mode, theirs", [("edge", "nearest"), ("reflect", "mirror")])
def test_borders_are_those_of_scipy(mode, theirs):
    shift = vol.Affine(translate=((4.3, 4.3), (-3.6, -3.6), (2.2, 2.2)), padding_mode=mode)
    out = shift(KEY, SAMPLE["volume"])
    moved = ndimage.shift(np.float64(VOLUME), (4.3, -3.6, 2.2), order=1, mode=theirs)
    np.testing.assert_allclose(out, moved, rtol=0, atol=ATOL)


def test_a_fill_may_be_learned():
    def total(fill):
        steps = [vol.Affine(20, translate=(3.0, 3.0), fill=fill), vol.Affine(9, fill=fill)]
        return augment.Compose(steps)(KEY, VOLUME[:2, :3, :4]).sum()

    two, three = jax.jit(lambda: (total(2.0), total(3.0)))()
    found, slope = jax.jit(jax.value_and_grad(total))(jnp.float32(2.0))
    np.testing.assert_allclose([found, slope], [two, three - two], rtol=1e-4)


def test_whole_voxels_are_kept_to_the_bit():
    chain = augment.Compose(
        [
            vol.Flip((0, 2), p=1.0),
            vol.CropOrPad((20, 20, 20)),
            vol.QuarterTurn((1, 2)),
            vol.Crop(17),
        ]
    )
    params = chain.make_params(KEY, augment.VolumeInfo(SHAPE))
    turns, first = int(params[2].params), np.asarray(params[3].params)
    for name, given in (("volume", VOLUME), ("labels", LABELS)):
        expected = np.flip(given, (0, 2))
        expected = np.pad(expected, ((1, 1), (0, 0), (0, 0)))[:, :, 1:21]
        expected = np.rot90(expected, turns, (1, 2))
        expected = expected[tuple(slice(start, start + 17) for start in first)]
        np.testing.assert_array_equal(chain(KEY, SAMPLE)[name], expected)


def test_resize_grows_as_scipy_and_shrinks_antialiased():
    out = jax.jit(vol.Resize((36, 30, 40)))(KEY, SAMPLE)
    zoom = np.array((36, 30, 40)) / SHAPE
    expected = ndimage.zoom(np.float64(VOLUME), zoom, order=1, mode="nearest", grid_mode=True)
    np.testing.assert_allclose(out["volume"], expected, rtol=0, atol=ATOL)

    spaced = {**SAMPLE, "spacing": jnp.array([1.0, 2.0, 3.0])}
    out = jax.jit(vol.Resize((5, 20, 11)))(KEY, spaced)
    expected = np.float64(VOLUME)
    for axis, side in ((0, 5), (2, 11)):
        expected = antialiased(expected, axis, side)
    np.testing.assert_allclose(out["volume"], expected, rtol=0, atol=ATOL)
    np.testing.assert_allclose(out["spacing"], [3.6, 2.0, 6.0], rtol=1e-6)
    assert set(np.unique(out["labels"])) <= set(np.unique(LABELS))


def antialiased(volume, axis, side):
    """Return the volume with another length of an axis, by the triangles of PIL."""
    length = volume.shape[axis]
    shrink = length / side
    offset = (np.arange(length) + 0.5) - ((np.arange(side) + 0.5) * shrink)[:, None]
    weights = np.maximum(0, 1 - np.abs(offset) / max(shrink, 1))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.moveaxis(np.tensordot(weights, volume, (1, axis)), 0, axis)


def test_resized_crops_are_crops_that_are_resized():
    crop = vol.ResizedCrop((7, 30, 6), (0.2, 0.6))
    info = augment.VolumeInfo(SHAPE)
    keys = jax.random.split(KEY, 200)
    parts = jax.vmap(lambda key: crop.make_params(key, info))(keys)
    first, size = np.asarray(parts.first), np.asarray(parts.size)
    assert (first >= 0).all() and (size >= 1).all() and (first + size <= SHAPE).all()
    shares = size.prod(axis=1) / np.prod(SHAPE)
    assert 0.12 < shares.min() < 0.25 and 0.5 < shares.max() < 0.7
    spaced = {**SAMPLE, "spacing": jnp.array([1.0, 2.0, 3.0])}
    out = jax.jit(crop)(KEY, spaced)
    part = crop.make_params(jax.random.fold_in(KEY, 0), info)
    window = tuple(slice(int(a), int(a + n)) for a, n in zip(part.first, part.size))
    expected = np.float64(VOLUME)[window]
    for axis, side in enumerate(crop.size):
        expected = antialiased(expected, axis, side)
    np.testing.assert_allclose(out["volume"], expected, rtol=0, atol=ATOL)
    factors = np.float64(part.size) / crop.size
    lines = [np.floor((np.arange(n) + 0.5) * f).astype(int) for n, f in zip(crop.size, factors)]
    np.testing.assert_array_equal(out["labels"], LABELS[window][np.ix_(*lines)])
    np.testing.assert_allclose(out["spacing"], [1, 2, 3] * factors, rtol=1e-6)


def test_tiles_of_a_grid_are_moved_to_the_bit():
    shuffle = vol.GridShuffle((2, 3, 4))
    out = jax.jit(shuffle)(KEY, SAMPLE)
    order = shuffle.make_params(jax.random.fold_in(KEY, 0), augment.VolumeInfo(SHAPE))
    assert sorted(order.tolist()) == list(range(24)) != order.tolist()
    d, h, w = (side // count for side, count in zip(SHAPE, (2, 3, 4)))

    def tile(number):
        z, y, x = np.unravel_index(number, (2, 3, 4))
        return np.s_[z * d : (z + 1) * d, y * h : (y + 1) * h, x * w : (x + 1) * w]

    for name, given in (("volume", VOLUME), ("labels", LABELS)):
        expected = given.copy()
        for goal, source in enumerate(order.tolist()):
            expected[tile(goal)] = given[tile(source)]
        np.testing.assert_array_equal(out[name], expected)
    with pytest.raises(
        ValueError, match=r"`grid` of GridShuffle must have at most a tile for each"
    ):
        vol.GridShuffle(19)(KEY, SAMPLE)


@pytest.mark.parametrize("nonzero", [False, True])
def test_a_flat_histogram_is_that_of_its_formula(nonzero):
    given = np.where(VOLUME > 0.4, 900 * VOLUME - 100, 0).astype(np.float32)
    counted = given != 0 if nonzero else np.ones(SHAPE, bool)
    out = jax.jit(vol.Equalize(64, nonzero=nonzero))(KEY, given)
    counts, edges = np.histogram(given[counted], 64)
    ranks = (np.cumsum(counts) - counts[0]) / (counted.sum() - counts[0])
    expected = np.interp(np.float64(given), (edges[:-1] + edges[1:]) / 2, ranks)
    np.testing.assert_allclose(out, np.where(counted, expected, 0), rtol=0, atol=ATOL)
    np.testing.assert_array_equal(vol.Equalize()(KEY, jnp.full((2, 3, 4), 7.0)), 0)


@pytest.mark.parametrize("nonzero", [False, True])
@pytest.mark.parametrize("kind", [vol.Equalize, vol.Standardize])
def test_voxels_that_are_no_numbers_stay_and_are_not_counted(kind, nonzero):
    """As of a mean of several images, where none has a value."""
    given = np.where(VOLUME > 0.4, 900 * VOLUME - 100, 0).astype(np.float32)
    odd = np.zeros(SHAPE, bool)
    odd[1, 2, :3] = True
    with_odd = np.where(odd, np.nan, given)
    with_odd[1, 2, 0] = np.inf
    op = jax.jit(kind(nonzero=nonzero))
    out = np.asarray(op(KEY, with_odd))
    np.testing.assert_array_equal(out[odd], with_odd[odd])
    alone = op(KEY, given[~odd].reshape(1, 1, -1))
    np.testing.assert_allclose(out[~odd], np.ravel(alone), rtol=0, atol=ATOL)


def test_the_power_of_no_number_is_none():
    out = np.asarray(vol.Gamma()(KEY, jnp.array([[[np.nan, 0.5, 0.0]]])))
    np.testing.assert_array_equal(np.isnan(out), [[[True, False, False]]])


def test_counts_by_order_are_counts():
    index = jnp.asarray(RNG.integers(0, 9, (5, 6, 7)))
    expected = np.bincount(np.ravel(index), minlength=9)[:8]
    for count in (intensity._counts_added, intensity._counts_sorted):
        np.testing.assert_array_equal(count(index, 8), expected)


def test_a_blur_along_a_line_is_the_mean_of_shifts():
    blur = vol.MotionBlur((2.0, 5.0))
    info = augment.VolumeInfo(SHAPE)
    half = np.float64(blur.make_params(jax.random.fold_in(KEY, 0), info))
    shifts = [half * share for share in np.linspace(-1, 1, 7)]
    moved = [ndimage.shift(np.float64(VOLUME), -s, order=1, mode="nearest") for s in shifts]
    out = jax.jit(blur)(KEY, VOLUME)
    np.testing.assert_allclose(out, np.mean(moved, axis=0), rtol=0, atol=ATOL)
    lines = jax.vmap(lambda key: blur.make_params(key, info))(jax.random.split(KEY, 500))
    lengths = 2 * np.linalg.norm(lines, axis=1)
    assert 2 <= lengths.min() < 2.2 and 4.8 < lengths.max() <= 5.001
    assert np.abs(np.mean(lines / lengths[:, None], axis=0)).max() < 0.06


def test_a_class_comes_from_the_other_volume():
    other = np.flip(LABELS, 2).copy()
    other[other == 3] = 0
    group = {
        "volume": jnp.stack([VOLUME, -VOLUME]),
        "labels": jnp.asarray(np.stack([LABELS, other])),
    }
    transplant = vol.Transplantation((1, 3), p=1.0)
    keys = jax.random.split(KEY, 20)
    out = jax.jit(jax.vmap(transplant, (0, None)))(keys, group)
    taken = set()
    for row in range(len(keys)):
        for here, donor in ((0, 1), (1, 0)):
            volume, labels = (np.asarray(out[name][row][here]) for name in ("volume", "labels"))
            given, theirs = (np.asarray(group[name][donor]) for name in ("volume", "labels"))
            mine = np.asarray(group["labels"][here])
            fits = [c for c in (1, 3) if (labels == np.where(theirs == c, c, mine)).all()]
            assert len(fits) == 1
            taken.add((donor, fits[0]))
            own = np.asarray(group["volume"][here])
            np.testing.assert_array_equal(volume, np.where(theirs == fits[0], given, own))
    assert taken == {(0, 1), (0, 3), (1, 1)}  # the second shows no 3
    never = vol.Transplantation(2, p=1.0)(KEY, group)
    jax.tree.map(np.testing.assert_array_equal, never, group)
    for dtype in (np.uint8, bool):  # which do not hold 300
        narrow = {**group, "labels": group["labels"].astype(dtype)}
        out = vol.Transplantation((1, 300), p=1.0)(KEY, narrow)
        same = vol.Transplantation(1, p=1.0)(KEY, narrow)
        jax.tree.map(np.testing.assert_array_equal, out, same)
        jax.tree.map(
            np.testing.assert_array_equal, vol.Transplantation(300, p=1.0)(KEY, narrow), narrow
        )
    with pytest.raises(ValueError, match=r"needs 'labels' \[2, D, H, W\].*got none"):
        transplant(KEY, {"volume": group["volume"]})
    with pytest.raises(ValueError, match=r"`classes` must be labels, ints above 0, .*got \(0, 1\)"):
        vol.Transplantation((0, 1))


def test_inverse_brings_a_prediction_back():
    chain = augment.Compose([vol.Flip(p=1.0), vol.Affine(20, (0.9, 1.1), 0.1), vol.Elastic(5, 1.0)])
    info = augment.VolumeInfo(SHAPE)
    params = chain.make_params(KEY, info)
    out = chain.apply(params, SAMPLE)
    warp = vol.warp_of(chain, params, info)
    back = vol.inverse(out["volume"], warp, info)
    inner = (slice(6, -6),) * 3
    assert np.abs(back - VOLUME)[inner].mean() < 0.02  # two interpolations of a rough volume
    places = warp.pull(warp.push(tuple(jnp.asarray(each + 0.5, jnp.float32) for each in grid())))
    for place, each in zip(places, grid()):
        np.testing.assert_allclose(np.asarray(place)[inner], (each + 0.5)[inner], atol=2e-2)
    labels = vol.inverse(out["labels"], warp, info)
    assert (np.asarray(labels) == LABELS)[inner].mean() > 0.9


def test_foreground_crops_hold_the_labeled_voxel_and_each_is_as_likely():
    labels = np.zeros(SHAPE, np.int32)
    marked = [(0, 0, 0), (9, 10, 11), (17, 19, 21), (9, 10, 12)]
    labels[tuple(np.transpose(marked))] = [1, 2, 3, 4]
    sample = {"volume": jnp.asarray(VOLUME), "labels": jnp.asarray(labels)}
    keys = jax.random.split(KEY, 400)
    cut = jax.jit(jax.vmap(vol.ForegroundCrop((5, 5, 1), 1.0), (0, None)))(keys, sample)
    found = np.asarray(cut["labels"]).reshape(400, -1).max(axis=1)
    counts = np.bincount(found, minlength=5)
    assert counts[0] == 0 and counts[1:].min() > 60
    np.testing.assert_array_equal(
        cut["volume"][found == 1], np.tile(VOLUME[:5, :5, :1], (counts[1], 1, 1, 1))
    )
    nothing = {**sample, "labels": jnp.zeros(SHAPE, jnp.int32)}
    assert vol.ForegroundCrop(5, 1.0)(KEY, nothing)["volume"].shape == (5, 5, 5)


@pytest.mark.parametrize("axis, factor", [(0, 1.0), (0, 2.0), (1, 3.3), (2, 30.0)])
def test_between_slices_that_are_kept_all_is_linear(axis, factor):
    out = jax.jit(vol.Anisotropy((factor, factor), axis))(KEY, VOLUME)
    length = SHAPE[axis]
    factor = float(np.float32(factor))
    centers = (np.arange(np.ceil(length / factor)) + 0.5) * factor
    kept = np.take(np.float64(VOLUME), np.minimum(np.floor(centers), length - 1).astype(int), axis)
    places = np.arange(length) + 0.5
    expected = np.apply_along_axis(lambda line: np.interp(places, centers, line), axis, kept)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)
    if factor == 1:
        np.testing.assert_array_equal(out, VOLUME)


def test_what_is_not_finite_stays_in_its_line_across_slices():
    given = VOLUME.copy()
    given[1, 1, 1] = np.inf
    anisotropy = vol.Anisotropy((2.0, 2.0))
    params = anisotropy.make_params(KEY, augment.VolumeInfo(SHAPE))
    changed = np.argwhere(~np.isfinite(anisotropy.apply(params, given, augment.VolumeInfo(SHAPE))))
    others = np.delete(changed, int(params.axis), axis=1)
    assert len(changed) > 0
    assert (others == 1).all()


def test_boxes_of_any_number_are_filled():
    dropout = vol.CoarseDropout((0, 3), (0.2, 0.5), fill=-1.0)
    run = jax.jit(jax.vmap(dropout, (0, None)))
    keys = jax.random.split(KEY, 40)
    counts = set()
    for key, out in zip(keys, np.asarray(run(keys, VOLUME))):
        params = dropout.make_params(jax.random.fold_in(key, 0), augment.VolumeInfo(SHAPE))
        expected = VOLUME.copy()
        for first, size in list(zip(params.first.tolist(), params.size.tolist()))[: params.holes]:
            assert all(0.2 * side - 1 <= one <= 0.5 * side + 1 for one, side in zip(size, SHAPE))
            assert all(0 <= a and a + n <= side for a, n, side in zip(first, size, SHAPE))
            z, y, x = (slice(a, a + n) for a, n in zip(first, size))
            expected[z, y, x] = -1
        np.testing.assert_array_equal(out, expected)
        counts.add(int(params.holes))
    assert counts == {0, 1, 2, 3}


def test_values_are_those_of_their_formulas():
    given = np.float64(VOLUME)
    blur = vol.Blur((0.3, 1.7))
    out = jax.jit(blur)(KEY, VOLUME)
    key = jax.random.fold_in(KEY, 0)
    sigma = float(blur.make_params(key, augment.VolumeInfo(SHAPE)))
    expected = ndimage.gaussian_filter(given, sigma, mode="nearest", truncate=4.0)
    np.testing.assert_allclose(out, expected, rtol=0, atol=ATOL)

    bias = vol.BiasField(0.4, 2)
    numbers = np.float64(bias.make_params(key, augment.VolumeInfo(SHAPE)))
    z, y, x = np.meshgrid(*(np.linspace(-1, 1, side) for side in SHAPE), indexing="ij")
    powers = [(i, j, k) for i in range(3) for j in range(3) for k in range(3) if i + j + k <= 2]
    field = sum(c * z**i * y**j * x**k for c, (i, j, k) in zip(numbers, powers, strict=True))
    np.testing.assert_allclose(jax.jit(bias)(KEY, VOLUME), given * np.exp(field), atol=1e-5)

    masked = np.where(given > 0.4, 1000 * given, 0.0)
    inside = masked[masked != 0]
    out = vol.Standardize(nonzero=True)(KEY, masked.astype(np.float32))
    expected = np.where(masked != 0, (masked - inside.mean()) / inside.std(), 0)
    np.testing.assert_allclose(out, expected, rtol=0, atol=2e-3)

    ct = np.int16([[[-1000, -100, 40, 1200]]])
    out = vol.Window(-100, 300)(KEY, ct)
    np.testing.assert_allclose(out, [[[0, 0, 0.35, 1]]], atol=1e-6)
    noisy = vol.Noise((0.1, 0.1), rician=True)(KEY, np.zeros(SHAPE, np.float32))
    assert noisy.mean() == pytest.approx(0.1 * np.sqrt(np.pi / 2), rel=0.02)


def test_a_volume_of_one_value_has_slopes():
    slope = jax.grad(lambda value: vol.Standardize()(KEY, jnp.full((2, 3, 4), value)).sum())(3.0)
    assert slope == 0.0


def test_wrong_volumes_and_settings_say_so():
    with pytest.raises(
        ValueError, match=r"`labels` must have the depth.*\(18, 20, 22\), got \(2, 2"
    ):
        AFFINE(KEY, {**SAMPLE, "labels": jnp.zeros((2, 2, 2), jnp.int32)})
    with pytest.raises(ValueError, match=r"at most 0.4 of a cell, 1\.2 voxels"):
        vol.Elastic(9, 4.0)(KEY, SAMPLE)
    with pytest.raises(ValueError, match=r"`size` of Crop must fit .*put CropOrPad before it"):
        vol.Crop(19)(KEY, SAMPLE)
    with pytest.raises(ValueError, match="one length along the axes"):
        vol.QuarterTurn()(KEY, SAMPLE)
    with pytest.raises(ValueError, match="Affine needs a 'volume', and the sample has none"):
        AFFINE(KEY, {"image": jnp.zeros((8, 8, 3))})
    with pytest.warns(UserWarning, match=r"'mask' .* stays where it is.*'mask': 'labels'"):
        AFFINE(KEY, {"volume": SAMPLE["volume"], "mask": SAMPLE["labels"]})
    assert AFFINE(KEY, {**SAMPLE, "label": jnp.int32(3)})["label"] == 3  # of the whole volume
    with pytest.raises(ValueError, match=r"`axes` must be some of 0 .*got \(3,\)"):
        vol.Flip((3,))
    with pytest.raises(ValueError, match=r"`low` of Window must be below `high`, got 3\.0 and 3"):
        vol.Window(3, 3)


@pytest.mark.parametrize(
    "moving", [vol.Flip((0,), p=1.0), vol.ForegroundCrop(2, 1.0), vol.GridShuffle((1, 1, 3))]
)
def test_a_second_volume_of_labels_that_would_stay_is_named(moving):
    voxels = jnp.arange(27.0).reshape(3, 3, 3)
    name = f"organs_{type(moving).__name__}"  # each is told once
    sample = {"volume": voxels, "labels": voxels.astype(int), name: voxels.astype(int)}
    with pytest.warns(UserWarning, match=f"'{name}' .* stays where it is while the volume moves"):
        moving(jax.random.key(0), sample)


def test_channels_of_labels_move_with_their_volume():
    voxels = jnp.arange(27.0).reshape(3, 3, 3)
    organs = np.arange(27).reshape(3, 3, 3)
    labels = jnp.stack([organs, organs % 2], -1)
    moved = vol.Flip((0,), p=1.0)(jax.random.key(0), {"volume": voxels, "labels": labels})
    np.testing.assert_array_equal(moved["labels"][..., 0], organs[::-1])
    np.testing.assert_array_equal(moved["labels"][..., 1], organs[::-1] % 2)


def test_what_stays_beside_a_change_of_values_is_not_named(recwarn):
    voxels = jnp.full((3, 3, 3), 0.5)
    sample = {"volume": voxels, "weights_of_voxels": voxels}
    vol.Gamma(2.0)(jax.random.key(0), sample)
    assert not recwarn.list
