"""The one resample, through the pure functions, against numpy, PIL and OpenCV."""

import functools

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxaug import augment as A
from jaxaug.augment import functional as F
from jaxaug.augment import matrix
from jaxaug.augment._base.axis import INTERPOLATIONS, PADDING_MODES
from jaxaug.augment._warp.interpolate import resample
from tests.images import picture
from tests.reference import warp as reference

NOISE = np.random.default_rng(0).uniform(0, 1, (11, 15, 3)).astype(np.float32)
QUAD = np.array([[-2.0, 1.0], [16.0, -1.0], [17.0, 12.0], [1.0, 14.0]])  # outwards: nothing shrinks
PIL_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
CORNERS = np.array([[0.0, 0.0], [15.0, 0.0], [15.0, 11.0], [0.0, 11.0]])


def run(function, image, *arguments, **options):
    """Compiled: op by op, most of a test's time would go into compiling the ops one by one."""
    return jax.jit(lambda image: function(image, *arguments, **options))(image)


# ---- every interpolation, padding mode, scale and size, on a canvas beside garbage

CANVAS = (67, 99)
FRAME = (31, 42)
SIZES = ((65, 97), (1, 1), (1, 9))
FILL = (0.2, 0.4, 0.6)
# The rest takes a minute; it differs in `fold` alone, which other tests here call in every mode.
MODES = [
    *("constant", "reflect"),
    *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("edge", "symmetric", "wrap")),
]


def on_canvas(size):
    """An image in the corner of a canvas of which nothing else may be read, and the image alone."""
    image = np.random.default_rng(size[1]).uniform(0, 1, (*size, 3)).astype(np.float32)
    canvas = np.full((*CANVAS, 3), np.nan, np.float32)
    canvas[: size[0], : size[1]] = image
    return canvas, image


def resampled(pulls, size, interpolation, mode, max_shrink, straight):
    """The image of `size` through each of the matrices, one compiled call; and numpy's answers."""
    canvas, image = on_canvas(size)
    used = jnp.float32(size)
    compiled = _resample_of(interpolation, mode, max_shrink, straight)
    fill = FILL if mode == "constant" else 0.0
    for pull in pulls:
        stretch = reference.footprint(pull)
        expected = reference.warp(image, pull, FRAME, mode, fill, interpolation, stretch)
        yield pull, np.asarray(compiled(canvas, used, jnp.float32(pull))), expected


@functools.cache
def _resample_of(interpolation, mode, max_shrink, straight):
    @jax.jit
    def compiled(canvas, used, pull):
        pull_map = matrix.Matrix(
            xx=pull[0, 0],
            xy=0.0 if straight else pull[0, 1],
            x1=pull[0, 2],
            yx=0.0 if straight else pull[1, 0],
            yy=pull[1, 1],
            y1=pull[1, 2],
        )
        warp = A.Warp(pull_map, FRAME, max_shrink=(max_shrink, max_shrink))
        fill = FILL if mode == "constant" else 0.0
        return resample(canvas, (used[0], used[1]), warp, interpolation, mode, fill)

    return compiled


def assert_equal_but_for_edges(out, expected, pull):
    """The nearest pixel: equal, but where a position lies on the edge of two pixels."""
    x, y = reference.places(pull, FRAME)
    from_edge = np.minimum(np.abs(x - np.round(x)), np.abs(y - np.round(y)))
    away = from_edge > 1e-3
    assert away.mean() > 0.5
    np.testing.assert_array_equal(out[away], expected.astype(np.float32)[away])


def assert_as_expected(out, expected, pull, interpolation):
    if interpolation == "nearest":
        assert_equal_but_for_edges(out, expected, pull)
    else:
        np.testing.assert_allclose(out, expected, atol=1e-4)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_scales_read_what_padding_would_give(interpolation, mode, size):
    """Windows that begin before the image; the smallest scale shows its end, too."""
    pulls = []
    for scale in (0.3, 0.8, 1.0, 1.3):
        pulls.append(reference.shift(-9.37, -7.61) @ np.diag([1 / scale, 1 / scale, 1.0]))
    pulls.append(reference.shift(90.4, 50.7) @ np.diag([-1.1, 2.2, 1.0]))
    for pull, out, expected in resampled(pulls, size, interpolation, mode, 1 / 0.3, True):
        assert_as_expected(out, expected, pull, interpolation)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_turns_and_mirrors_read_what_padding_would_give(interpolation, mode, size):
    """The symmetries of the square, then a scale; and turns with one."""
    pulls = []
    for mirror in (1.0, -1.0):
        for degrees in (0, 90, 180, 270, 33):
            for scale in (0.8, 1.3):
                turn = reference.rotation(degrees, *size) @ np.diag([mirror, 1.0, 1.0])
                window = reference.shift(-9.37, -7.61) @ np.diag([1 / scale, 1 / scale, 1.0])
                pulls.append(turn @ window)
    for pull, out, expected in resampled(pulls, size, interpolation, mode, 1 / 0.8, False):
        assert_as_expected(out, expected, pull, interpolation)


# ---- the pure functions


@pytest.mark.parametrize("mode", PADDING_MODES)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_rotation_reads_what_padding_would_give(mode, interpolation):
    fill = FILL if mode == "constant" else 0.0
    out = run(F.rotate, NOISE, 33.0, interpolation, mode, fill)
    pull = reference.rotation(33.0, 11, 15)
    expected = reference.warp(NOISE, pull, (11, 15), mode, fill, interpolation)
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


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(7, 5), (33, 40), (3, 60)])
def test_resize(size, interpolation):
    expected = reference.resize(NOISE, *size, interpolation)
    np.testing.assert_allclose(run(F.resize, NOISE, size, interpolation), expected, atol=2e-6)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resize_to_one_pixel_and_from_one(interpolation):
    small = NOISE[:4, :3]
    expected = reference.resize(small, 1, 1, interpolation)
    np.testing.assert_allclose(run(F.resize, small, 1, interpolation), expected, atol=2e-6)
    pixel = NOISE[:1, :1]
    out = run(F.resize, pixel, (3, 4), interpolation)
    np.testing.assert_array_equal(out, np.broadcast_to(pixel, (3, 4, 3)))


# Smaller, larger, both, odd, by less than a pixel, and one side alone.
SHAPES = [
    (16, 9), (20, 28), (11, 19), (13, 14), (80, 112), (100, 57), (41, 57), (39, 55), (20, 100),
    (77, 15), (10, 56), (40, 90),
]  # fmt: skip


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", SHAPES)
def test_resize_equals_pil(size, interpolation):
    image = picture(1, 40, 56)
    expected = Image.fromarray(image).resize(size[::-1], PIL_FILTERS[interpolation])
    difference = np.asarray(run(F.resize, image, size, interpolation), int)
    difference = difference - np.asarray(expected, int)
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("size", [(39, 55), (80, 112), (20, 100)])
def test_bicubic_overshoots_as_pil_does_on_floats(size):
    """PIL clips 8-bit images between its two passes, floats never."""
    image = np.random.default_rng(3).integers(0, 2, (40, 56)).astype(np.float32)
    expected = np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BICUBIC))
    out = run(F.resize, image[:, :, None], size, "bicubic")
    np.testing.assert_allclose(out[:, :, 0], expected, atol=1e-5)
    assert out.max() > 1.01 and out.min() < -0.01


def test_transforms_clip_what_overshoots():
    """As 8-bit images are clipped by torchvision and PIL; every transform takes [0, 1]."""
    image = np.random.default_rng(3).integers(0, 2, (20, 28, 3)).astype(np.float32)
    out = jax.jit(A.Resize((33, 41), interpolation="bicubic"))(jax.random.key(0), image)
    expected = run(F.resize, image, (33, 41), "bicubic")
    assert expected.max() > 1.01 and expected.min() < -0.01
    np.testing.assert_allclose(out, np.clip(expected, 0, 1), atol=1e-6)
    levels = jax.jit(A.Resize((33, 41), interpolation="bicubic"))(
        jax.random.key(0), (image * 255).astype(np.uint8)
    )
    rounded = np.round(np.clip(expected, 0, 1) * 255)
    assert np.abs(np.asarray(levels, int) - rounded).max() <= 1


def test_nearest_resize_equals_pil():
    image = picture(1, 40, 56)
    expected = Image.fromarray(image).resize((25, 17), Image.Resampling.NEAREST)
    np.testing.assert_array_equal(run(F.resize, image, (17, 25), "nearest"), expected)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resized_crop_equals_pil_and_does_not_look_past_the_crop(interpolation):
    image = np.random.default_rng(3).integers(64, 192, (40, 56, 3), dtype=np.uint8)

    @functools.partial(jax.jit, static_argnums=4)
    def cropped(top, left, height, width, size):
        return F.resized_crop(image, top, left, height, width, size, interpolation)

    pil = Image.fromarray(image)
    for size in ((8, 9), (50, 61)):
        for top, left, height, width in ((4, 10, 29, 41), (0, 0, 40, 56), (30, 51, 10, 5)):
            window = pil.crop((left, top, left + width, top + height))
            expected = window.resize(size[::-1], PIL_FILTERS[interpolation])
            out = cropped(top, left, height, width, size)
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
    pull = reference.scaling(scale, 11, 15)
    stretch = reference.footprint(pull)
    expected = reference.warp(NOISE, pull, (11, 15), mode, fill, stretch=stretch)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["constant", "symmetric"])
def test_antialiasing_of_a_turn(mode):
    out = run(F.affine, NOISE, 25.0, scale=0.6, padding_mode=mode, fill=0.4)
    pull = reference.scaling(0.6, 11, 15) @ reference.rotation(25.0, 11, 15)
    stretch = reference.footprint(pull)
    expected = reference.warp(NOISE, pull, (11, 15), mode, 0.4, stretch=stretch)
    np.testing.assert_allclose(out, expected, atol=1e-5)


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

    gradients = jax.jit(jax.grad(brightness_at, argnums=(0, 1)))
    angle_gradient, image_gradient = gradients(jnp.float32(10.0), jnp.asarray(NOISE))
    value = jax.jit(brightness_at)
    step = (value(jnp.float32(10.01), NOISE) - value(jnp.float32(9.99), NOISE)) / 0.02
    np.testing.assert_allclose(angle_gradient, step, rtol=0.05, atol=0.02)
    np.testing.assert_allclose(
        image_gradient.sum(), 7 * 11 * 3, rtol=1e-5
    )  # a blend's weights sum to 1


def test_errors():
    with pytest.raises(
        ValueError, match=r"`padding_mode` must be one of 'constant', .* got 'mirror'"
    ):
        F.rotate(NOISE, 1.0, padding_mode="mirror")
    with pytest.raises(
        ValueError,
        match=r"`interpolation` must be one of 'bilinear', 'bicubic', .* got 'cubic'",
    ):
        F.resize(NOISE, (3, 3), "cubic")
    with pytest.raises(
        ValueError, match=r"expected one image \(h, w, channels\), got \(2, 11, 15, 3\)"
    ):
        F.rotate(NOISE[None].repeat(2, 0), 1.0)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_windows_and_mirrors_are_the_gathers_of_a_canvas(dtype):
    """A whole image is sliced, one on a canvas with `size` gathered: the same pixels."""
    image = (picture(1, 24, 33) / (1 if dtype == np.uint8 else 255)).astype(dtype)
    flips = [A.RandomHorizontalFlip(), A.RandomVerticalFlip()]
    chain = A.Compose([flips[0], A.RandomCrop((17, 30)), *flips, A.CenterCrop((16, 29))])
    keys = jax.random.split(jax.random.key(0), 24)
    sliced = jax.jit(jax.vmap(chain, (0, None)))(keys, {"image": image, "mask": image[:, :, 0]})

    def gathered(key):
        warp = chain.warp(chain.make_params(key, A.ImageInfo((24, 33))), A.ImageInfo((24, 33)))
        used = (jnp.float32(24), jnp.float32(33))
        return resample(jnp.asarray(image), used, warp._replace(inside_source=False))

    expected = np.asarray(jax.jit(jax.vmap(gathered))(keys))
    np.testing.assert_array_equal(sliced["image"], expected)
    np.testing.assert_array_equal(sliced["mask"], expected[..., 0])
    assert len(np.unique(expected.reshape(24, -1), axis=0)) > 12


def test_windows_of_a_batch_on_an_explicit_mesh():
    explicit = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((4,), ("batch",), axis_types=explicit, devices=jax.devices()[:4])
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    chain = jax.vmap(A.Compose([A.RandomCrop((7, 9)), A.RandomHorizontalFlip()]))
    keys = jax.random.split(jax.random.key(0), 8)
    images = np.random.default_rng(0).integers(0, 256, (8, 12, 14, 3), dtype=np.uint8)
    expected = jax.jit(chain)(keys, images)
    with jax.set_mesh(mesh):
        out = jax.jit(chain)(*jax.device_put((keys, images), split))
    np.testing.assert_array_equal(out, expected)


def test_gradients_along_a_position_on_a_pixel_are_those_of_one_side():
    """A bilinear blend has kinks there; a bicubic one has none, one gradient is both sides'."""

    def moved(interpolation):
        return lambda x: F.affine(NOISE, translate=(x, 0.0), interpolation=interpolation)

    one = (jnp.float32(0.0),), (jnp.float32(1.0),)
    bilinear = jax.jit(lambda: jax.jvp(moved("bilinear"), *one)[1])()
    np.testing.assert_allclose(bilinear[:, 1:-1], NOISE[:, 1:-1] - NOISE[:, 2:], atol=1e-5)
    bicubic = jax.jit(lambda: jax.jvp(moved("bicubic"), *one)[1])()
    both = (NOISE[:, 1:-3] - NOISE[:, 3:-1]) / 2
    np.testing.assert_allclose(bicubic[:, 2:-2], both, atol=1e-5)
