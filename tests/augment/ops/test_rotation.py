"""Rotation and affine maps about a center, rotation into a larger frame, shears and shifts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy import stats

from jaxaug import augment as A
from jaxaug.augment import functional as F
from tests.augment.targets import check_targets, on_canvas
from tests.images import picture
from tests.reference import warp as reference
from tests.reference.points import matrix_pull

KEY = jax.random.key(0)
SHAPES = [(65, 97), (1, 9), (1, 1)]
IMAGE = {
    shape: np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8) for shape in SHAPES
}


def drawn(transform, shape):
    """What `transform(KEY, ...)` draws."""
    return transform.make_params(jax.random.fold_in(KEY, 0), A.ImageInfo(shape))


def turn(degrees, shape, frame):
    """The pull of a turn from the middle of an image to that of a frame, float64."""
    about_origin = reference.rotation(degrees, 0, 0)
    back = reference.shift(shape[1] / 2, shape[0] / 2)
    return back @ about_origin @ reference.shift(-frame[1] / 2, -frame[0] / 2)


def frame_of(degrees, shape):
    cos, sin = abs(np.cos(np.radians(degrees))), abs(np.sin(np.radians(degrees)))
    sides = (shape[0] * cos + shape[1] * sin, shape[1] * cos + shape[0] * sin)
    return tuple(max(1, int(np.ceil(side - 1e-3))) for side in sides)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_expanded_rotation_holds_all_of_the_image(shape):
    transform = A.RandomRotation((20, 70), expand=True)
    angle = float(drawn(transform, shape).angle)
    frame = frame_of(angle, shape)
    pull = turn(angle, shape, frame)
    expected = reference.warp(IMAGE[shape], pull, frame) / 255
    for sample in ({"image": IMAGE[shape]}, on_canvas(IMAGE[shape], 200)):
        floats = jnp.asarray(sample["image"], jnp.float32) / 255
        out = jax.jit(transform)(KEY, {**sample, "image": floats})
        assert out["size"].tolist() == list(frame)
        used = np.asarray(out["image"])[: frame[0], : frame[1]]
        np.testing.assert_allclose(used, expected, atol=1e-4)
    check_targets(transform, KEY, shape, matrix_pull(pull), 1e-3, 1e-3)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270, -90])
@pytest.mark.parametrize("shape", SHAPES)
def test_right_angles_are_pils(degrees, shape):
    expected = np.asarray(Image.fromarray(IMAGE[shape]).rotate(degrees, expand=True))
    transform = A.RandomRotation((degrees, degrees), expand=True)

    @jax.jit
    def both(image, sample):
        return F.rotate(image, degrees, expand=True), transform(KEY, sample)

    rotated, out = both(IMAGE[shape], on_canvas(IMAGE[shape], 200))
    np.testing.assert_array_equal(rotated, expected)
    height, width = out["size"]
    np.testing.assert_array_equal(out["image"][:height, :width], expected)


@pytest.mark.parametrize("degrees", [(-10, 25), (30, 75), (-200, 160), (44, 44)])
def test_the_array_holds_every_frame_and_no_more(degrees):
    transform = A.RandomRotation(degrees, expand=True)
    out = jax.eval_shape(transform, KEY, jnp.zeros((65, 97, 3), jnp.uint8))
    frames = np.array([frame_of(angle, (65, 97)) for angle in np.linspace(*degrees, 5001)])
    np.testing.assert_array_equal(out.shape[:2], frames.max(axis=0))


def test_expand_with_a_probability():
    sample = {"image": jnp.asarray(IMAGE[65, 97])}
    out = A.RandomRotation((30, 40), p=0.0, expand=True)(KEY, sample)
    assert out["size"].tolist() == [65, 97]
    np.testing.assert_array_equal(out["image"][:65, :97], IMAGE[65, 97])


def test_an_angle_that_is_traced_cannot_decide_the_shape():
    with pytest.raises(TypeError, match="`angle` must be static with `expand`"):
        jax.jit(lambda angle: F.rotate(IMAGE[65, 97], angle, expand=True))(30.0)


CENTER = (20.0, 50.0)


@pytest.mark.parametrize(
    "transform",
    [
        A.RandomRotation((20, 40), center=CENTER, padding_mode="reflect"),
        A.RandomAffine((20, 40), (0.1, 0.1), (1.1, 1.3), 8, center=CENTER, padding_mode="reflect"),
    ],
    ids=lambda t: type(t).__name__,
)
def test_the_center_is_the_fixed_point(transform):
    params = drawn(transform, (65, 97))
    pull = reference.rotation(float(params.angle), 0, 0)
    shear = (getattr(params, "shear", (None, None))[0] or 0.0, 0.0)  # along y it is not drawn
    to_center = reference.shift(*CENTER)
    shift = np.eye(3)
    if isinstance(transform, A.RandomAffine):
        pull = (
            reference.shear(*map(float, shear))
            @ np.diag([1 / float(params.scale)] * 2 + [1])
            @ pull
        )
        shift = reference.shift(*(-float(value) for value in params.translate))
    pull = to_center @ pull @ np.linalg.inv(to_center) @ shift
    image = IMAGE[65, 97].astype(np.float32) / 255
    expected = reference.warp(image, pull, (65, 97), "reflect")
    np.testing.assert_allclose(jax.jit(transform)(KEY, image), expected, atol=1e-4)
    half = F.affine if isinstance(transform, A.RandomAffine) else F.rotate
    arguments = [params.angle]
    if half is F.affine:
        arguments += [params.translate, float(params.scale), shear]
    ours = half(image, *arguments, padding_mode="reflect", center=CENTER)
    np.testing.assert_allclose(ours, expected, atol=1e-4)
    check_targets(transform, KEY, (65, 97), matrix_pull(pull), 1e-3, 1e-3)


def test_a_center_is_two_numbers():
    for bad in (5, (1, 2, 3), ("a", "b")):
        with pytest.raises(ValueError, match=r"`center` must be \(x, y\)"):
            A.RandomRotation(10, center=bad)


@pytest.mark.parametrize("shape", SHAPES)
def test_shear_and_translate_are_affine(shape):
    for special, general in (
        (A.RandomShear((5, 20, -9, 9)), A.RandomAffine(0, shear=(5, 20, -9, 9))),
        (A.RandomTranslate((0.3, 0.4)), A.RandomAffine(0, (0.3, 0.4))),
    ):
        np.testing.assert_array_equal(special(KEY, IMAGE[shape]), general(KEY, IMAGE[shape]))
    shift = drawn(A.RandomTranslate((0.3, 0.4)), shape).translate
    pull = matrix_pull(reference.shift(*(-float(value) for value in shift)))
    check_targets(A.RandomTranslate((0.3, 0.4)), KEY, shape, pull, 1e-3, 1e-3)


def test_shear_and_translate_draw_uniformly():
    keys = jax.random.split(KEY, 20_000)
    info = A.ImageInfo((100, 200))
    shear = jax.vmap(lambda key: A.RandomShear((5, 20, -9, 9)).make_params(key, info).shear)(keys)
    assert stats.kstest(shear[0], stats.uniform(5, 15).cdf).pvalue > 1e-4
    assert stats.kstest(shear[1], stats.uniform(-9, 18).cdf).pvalue > 1e-4
    shift = jax.vmap(lambda key: A.RandomTranslate((0.1, 0.5)).make_params(key, info).translate)(
        keys
    )
    for values, most in zip(shift, (20, 50)):
        assert abs(np.std(values) - most / 3**0.5) < most / 50 and np.max(values) == most


def test_a_translation_is_one_read_per_pixel():
    chain = A.Compose([A.RandomTranslate((0.3, 0.4))])
    assert "1 read per pixel" in chain.explain(A.ImageInfo((65, 97)))


def test_a_resize_without_a_static_shape_leaves_the_expanded_frame_without_one():
    sample = {"image": picture(0, 40, 60), "size": np.array([30, 45], np.int32)}
    turn = A.RandomRotation((30, 30), expand=True)
    with pytest.raises(ValueError, match=r"Resize keeps the aspect .* a static shape"):
        A.Compose([A.Resize(10), turn])(KEY, sample)
    chains = [
        A.Compose([first, turn, A.Resize((8, 8))])
        for first in (A.Resize(10), A.Resize(10, (16, 16)))
    ]
    open_, bounded = (chain(KEY, sample)["image"].astype(np.int32) for chain in chains)
    assert np.abs(open_ - bounded).max() <= 1
