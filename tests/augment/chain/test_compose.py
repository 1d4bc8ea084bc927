"""Chains: one resample a run, the oracle `fuse=False`, what moves along, what comes out, what is
refused.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.augment.matrix import Matrix
from tests.images import picture

KEY = jax.random.key(0)
IMAGE = picture(0, 44, 60)
SIZE = jnp.array([36, 55], jnp.int32)


def run(transform, sample=IMAGE):
    """Compiled: op by op, most of a test's time would go into compiling the ops one by one."""
    return jax.jit(transform)(KEY, sample)


def gathers(transform, image=IMAGE):
    return str(jax.make_jaxpr(transform)(KEY, image)).count(" gather[")


def with_and_without(*transforms, sample=IMAGE):
    fused = run(A.Compose(transforms), sample)
    return fused, run(A.Compose(transforms, fuse=False), sample)


def test_whole_pixel_runs_are_one_exact_read():
    chain = (
        A.RandomCrop(32, 4, padding_mode="reflect"),
        A.RandomHorizontalFlip(1.0),
        A.CenterCrop(20),
    )
    fused, separate = with_and_without(*chain)
    np.testing.assert_array_equal(fused, separate)
    assert gathers(A.Compose(chain)) == 2  # rows, columns


@pytest.mark.parametrize(
    "chain",
    [
        (
            A.RandomHorizontalFlip(1.0),
            A.RandomRotation(30),
            A.CenterCrop((32, 40)),
            A.RandomVerticalFlip(1.0),
        ),
        (A.RandomResizedCrop(20), A.RandomHorizontalFlip(1.0)),
        (A.CenterCrop((33, 50)), A.Resize((17, 19)), A.RandomVerticalFlip(1.0)),
        (A.RandomVerticalFlip(1.0), A.RandomPerspective(0.4, p=1.0, padding_mode="reflect")),
        (A.RandomAffine(20, scale=(0.6, 0.8), padding_mode="wrap"), A.CenterCrop(0.5)),
        (
            A.Pad(3),
            A.RandomCrop(40),
            A.RandomHorizontalFlip(1.0),
            A.RandomD4(),
            A.RandomResizedCrop(20, interpolation="bicubic"),
        ),
        (
            A.Pad((0, 8)),
            A.RandomD4(),
            A.RandomVerticalFlip(1.0),
            A.RandomAffine(25, scale=(0.7, 0.8), interpolation="bicubic"),
        ),
    ],
)
def test_a_run_with_one_resample_equals_its_parts(chain):
    """Flips and crops move whole pixels: fusing them into the one interpolation changes nothing."""
    noise = np.random.default_rng(0).uniform(0, 1, (44, 60, 3)).astype(np.float32)
    sample = {"image": jnp.asarray(noise), "size": SIZE}
    fused, separate = with_and_without(*chain, sample=sample)
    np.testing.assert_allclose(fused["image"], separate["image"], atol=3e-5)
    assert fused.keys() == separate.keys()


def test_a_run_with_several_resamples_is_close_to_its_parts_on_a_smooth_image():
    chain = (A.RandomResizedCrop(40, (0.5, 1.0)), A.RandomRotation(20), A.RandomAffine(0, shear=10))
    fused, separate = with_and_without(*chain)
    difference = np.abs(np.asarray(fused, int) - np.asarray(separate, int))[10:30, 10:30]
    assert difference.max() <= 3
    assert gathers(A.Compose(chain)) < gathers(A.Compose(chain, fuse=False))


def test_frames_inside_a_run_do_not_clip():
    """Pushed out to the right and brought back: nothing was lost on the way."""
    chain = A.Compose([_Shift(20.0), _Shift(-20.0)])
    np.testing.assert_array_equal(run(chain, IMAGE), IMAGE)
    separate = run(A.Compose(chain.transforms, fuse=False), IMAGE)
    assert not separate[:, -20:].any()


def test_a_turned_crop_shows_what_lay_beyond_it():
    """The window of a crop bounds a resize after it, but no rotation."""
    turned = run(A.Compose([A.CenterCrop(24), A.RandomRotation((45, 45))]))
    whole = run(A.Compose([A.RandomRotation((45, 45)), A.CenterCrop(24)]))
    np.testing.assert_allclose(np.asarray(turned, int), np.asarray(whole, int), atol=1)
    assert turned[0, 0].any()


@dataclasses.dataclass(frozen=True)
class _QuarterTurn(A.Geometric):
    """A known number of quarter turns onto a canvas of the turned shape, pixel for pixel."""

    turns: int

    def make_params(self, key, info):
        """The turns as traced numbers, as a random one would have."""
        del key, info
        return jnp.asarray([[1, 0], [0, -1], [-1, 0], [0, 1]], jnp.float32)[self.turns]

    def warp(self, params, info):
        """About the origin, then moved back into the frame."""
        cos, sin = params
        height, width = info.canvas if self.turns % 2 == 0 else info.canvas[::-1]
        corners = (cos * width + sin * height, -sin * width + cos * height)
        x1, y1 = (jnp.maximum(0.0, -corner) for corner in corners)
        matrix = Matrix(xx=cos, xy=sin, x1=x1, yx=-sin, yy=cos, y1=y1)
        return A.Warp(matrix, (height, width), None, integer_aligned=True, inside_source=True)


@pytest.mark.parametrize("turns", range(4))
def test_a_quarter_turn_takes_the_window_of_a_crop_along(turns):
    chain = (_QuarterTurn(turns), A.CenterCrop((12, 16)), A.Resize((5, 6)))
    noise = np.random.default_rng(0).uniform(0, 1, (40, 56, 3)).astype(np.float32)
    turned = run(A.Compose(chain[:1]), noise)
    np.testing.assert_array_equal(turned, np.rot90(noise, turns))
    fused, separate = with_and_without(*chain, sample=noise)
    np.testing.assert_allclose(fused, separate, atol=1e-5)


def test_the_taps_of_a_run_follow_its_scale_alone():
    """Turns and shears read as many pixels as the crop before them would: five a side.

    The canvas is too small for branches, whose gathers would be counted, too.
    """
    image = jax.ShapeDtypeStruct((500, 500, 3), jnp.uint8)
    crop = A.RandomResizedCrop(224)
    turn = A.RandomRotation(7)
    shear = A.RandomAffine(7, shear=(-5.0, 5.0, -5.0, 5.0))
    drawing = gathers(crop, image) - 5 - 5
    assert gathers(A.Compose([crop, turn]), image) - drawing == 25
    assert gathers(A.Compose([crop, turn, *[shear] * 7]), image) - drawing == 25
    assert gathers(A.Compose([turn, shear]), image) == 4
    smaller = A.RandomAffine(7, scale=(0.7, 1.0), shear=(-5.0, 5.0, -5.0, 5.0))
    assert gathers(A.Compose([turn, smaller]), image) == 9


class _Shift(A.RandomAffine):
    """A known shift along x."""

    def __init__(self, pixels):
        super().__init__(0)
        object.__setattr__(self, "pixels", pixels)

    def make_params(self, key, info):
        del key, info
        return (0.0, (jnp.float32(self.pixels), 0.0), 1.0, (0.0, 0.0))


def test_runs_end_where_the_border_changes():
    same = [A.RandomRotation(10, padding_mode="edge"), A.RandomAffine(10, padding_mode="edge")]
    other = [A.RandomRotation(10, padding_mode="edge"), A.RandomAffine(10, padding_mode="reflect")]
    assert gathers(A.Compose(same)) == 4 and gathers(A.Compose(other)) == 8
    assert gathers(A.Compose([A.RandomRotation(10), A.RandomAffine(10, fill=0.5)])) == 8


def test_keys():
    """Transform k takes fold_in(key, k), nested ones fold again; a lone transform is a chain of
    one.
    """
    jitter = A.ColorJitter(0.5)
    nested = A.Compose(
        [A.RandomHorizontalFlip(0.0), A.Compose([A.RandomVerticalFlip(0.0), jitter])]
    )
    key = jax.random.fold_in(jax.random.fold_in(KEY, 1), 1)
    factor = jitter.make_params(key, A.ImageInfo((44, 60))).brightness
    expected = np.clip(IMAGE.astype(np.float32) * float(factor), 0, 255)
    np.testing.assert_allclose(run(nested, IMAGE), expected, atol=0.51)
    np.testing.assert_array_equal(run(jitter, IMAGE), run(A.Compose([jitter]), IMAGE))


# ---- what moves along


def blob(x, y, height=61, width=83):
    """A Gaussian dot at (x, y) in edge coordinates."""
    rows, columns = np.arange(height)[:, None] + 0.5, np.arange(width)[None] + 0.5
    dot = np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / 8)
    return np.repeat(dot[:, :, None], 3, axis=2).astype(np.float32)


def centroid(image):
    plane = np.asarray(image, np.float64)[:, :, 0]
    rows, columns = np.arange(plane.shape[0])[:, None] + 0.5, np.arange(plane.shape[1])[None] + 0.5
    return np.array([(plane * columns).sum(), (plane * rows).sum()]) / plane.sum()


@pytest.mark.parametrize(
    "transform, tolerance",
    [
        (A.Compose([A.RandomHorizontalFlip(1.0), A.RandomVerticalFlip(1.0)]), 1e-3),
        (A.CenterCrop((50, 70)), 1e-2),
        (A.Resize((90, 77)), 1e-2),
        (A.RandomRotation((25, 25)), 1e-2),
        (A.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 8), 0.02),
        # A homography moves the center of a dot only nearly as it moves its centroid.
        (A.RandomPerspective(0.3, 1.0), 0.15),
        (A.Compose([A.RandomCrop(50), A.RandomRotation(20), A.Resize(64)]), 0.02),
        (A.Compose([A.RandomCrop(50), A.RandomRotation(20), A.Resize(64)], fuse=False), 0.02),
    ],
)
def test_keypoints_go_where_the_image_goes(transform, tolerance):
    x, y = 41.3, 29.8
    sample = {"image": blob(x, y), "keypoints": jnp.array([[x, y]], jnp.float32)}
    out = run(transform, sample)
    np.testing.assert_allclose(out["keypoints"][0], centroid(out["image"]), atol=tolerance)


def test_boxes_are_hulls_of_their_corners():
    boxes = jnp.array([[10.0, 5.0, 30.0, 25.0]], jnp.float32)
    flipped = run(A.RandomHorizontalFlip(1.0), {"image": IMAGE, "boxes": boxes})["boxes"]
    assert flipped.tolist() == [[30.0, 5.0, 50.0, 25.0]]
    turned = run(A.RandomRotation((90, 90)), {"image": IMAGE, "boxes": boxes})["boxes"]
    # About (30, 22), counter-clockwise: (x, y) -> (30 + (y - 22), 22 - (x - 30)).
    np.testing.assert_allclose(turned, [[13.0, 22.0, 33.0, 42.0]], atol=1e-4)


@pytest.mark.parametrize("fuse", [True, False])
def test_masks_go_where_the_image_goes(fuse):
    mask = np.random.default_rng(0).integers(1, 200, (44, 60), dtype=np.int32)
    image = np.repeat(mask[:, :, None], 3, axis=2).astype(np.uint8)
    chain = A.Compose(
        [
            A.RandomResizedCrop(30, interpolation="nearest"),
            A.RandomRotation(40, interpolation="nearest"),
        ],
        fuse=fuse,
        mask_fill=0,
    )
    out = run(chain, {"image": image, "mask": mask, "label": jnp.int32(3)})
    assert out["mask"].dtype == jnp.int32 and out["label"] == 3
    np.testing.assert_array_equal(out["mask"], out["image"][:, :, 0])
    planes = run(chain, {"image": image, "mask": np.stack([mask, mask + 1], axis=2)})["mask"]
    np.testing.assert_array_equal(planes[:, :, 0], out["mask"])


# ---- what comes out


def test_dtypes_and_layouts():
    jitter = A.ColorJitter(0.3)
    assert run(jitter, IMAGE).dtype == jnp.uint8
    for dtype in (jnp.float16, jnp.bfloat16, jnp.float32):
        assert (
            run(A.Compose([jitter, A.RandomRotation(5)]), jnp.zeros((8, 9, 3), dtype)).dtype
            == dtype
        )
    out = run(A.Normalize((0.1, 0.2, 0.3), 0.5, "bfloat16", "NCHW"), IMAGE)
    expected = (IMAGE.astype(np.float32) / 255 - np.float32([0.1, 0.2, 0.3])) / 0.5
    assert out.dtype == jnp.bfloat16 and out.shape == (3, 44, 60)
    np.testing.assert_allclose(out.astype(jnp.float32), expected.transpose(2, 0, 1), atol=0.01)
    np.testing.assert_allclose(run(A.ToFloat(), IMAGE), IMAGE.astype(np.float32) / 255, rtol=2e-7)


def test_size_stays_until_every_image_has_the_same():
    sample = {"image": IMAGE, "size": SIZE, "label": jnp.int32(1)}
    kept = run(
        A.Compose([A.RandomRotation(10), A.ColorJitter(0.1), A.RandomHorizontalFlip()]), sample
    )
    assert kept["size"].tolist() == SIZE.tolist()
    assert not kept["image"][36:].any() and not kept["image"][:, 55:].any()
    ended = run(A.Compose([A.RandomRotation(10), A.Normalize(0.5, 0.5)]), sample)
    assert not ended["image"][36:].any()
    assert "size" not in run(A.Compose([A.CenterCrop(20), A.RandomRotation(10)]), sample)
    assert "size" not in run(A.RandomRotation(10), {"image": IMAGE})


@pytest.mark.parametrize(
    "interpolation, image",
    [("bilinear", IMAGE), ("bicubic", IMAGE.astype(np.float32) / 255), ("nearest", IMAGE)],
)
def test_a_resample_that_ends_in_an_output_gives_its_values(interpolation, image):
    """The resample computes them itself: as the output does after a resample of its own."""
    geometric = [
        A.RandomResizedCrop(24, (0.3, 1.0), interpolation=interpolation),
        A.RandomRotation(50, interpolation=interpolation, fill=0.3),
    ]
    unit = run(A.Compose([*geometric, A.ToFloat()]), image)
    normalize = A.Normalize((0.1, 0.2, 0.3), (0.5, 0.25, 0.2), layout="CHW")
    normalized = run(A.Compose([*geometric, normalize]), image)
    apart = A.Compose([normalize])(jax.random.key(0), unit)
    np.testing.assert_allclose(normalized, apart, rtol=0, atol=1e-6)
    for output, together in ((normalize, normalized), (A.ToFloat(), unit)):
        half = dataclasses.replace(output, dtype="bfloat16")
        halved = run(A.Compose([*geometric, half]), image)
        assert halved.dtype == jnp.bfloat16
        np.testing.assert_allclose(halved.astype(jnp.float32), together, rtol=2**-8, atol=1e-6)


def test_an_output_with_values_of_its_own_is_not_taken_for_its_parent():
    class Inverted(A.Normalize):
        def values(self, image):
            return 1 - image

    class Mixin:
        def values(self, image):
            return 1 - image

    class Mixed(Mixin, A.Normalize):
        """Values from elsewhere than its own body."""

    expected = 1 - run(A.Compose([A.RandomRotation(50), A.ToFloat()]), IMAGE)
    for output in (Inverted(0.5, 0.5), Mixed(0.5, 0.5)):
        found = run(A.Compose([A.RandomRotation(50), output]), IMAGE)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_lambda_is_any_function_of_key_and_image():
    def noise(key, image):
        return image + 0.1 * jax.random.normal(key, image.shape, jnp.float32)

    out = run(A.Lambda(noise), IMAGE)
    expected = noise(jax.random.fold_in(KEY, 0), jnp.float32(IMAGE) / 255)
    np.testing.assert_allclose(out, np.clip(np.round(expected * 255), 0, 255), atol=1)
    halved = run(A.Lambda(lambda key, image: image[::2]), {"image": IMAGE, "size": SIZE})
    assert halved["image"].shape == (22, 60, 3) and "size" not in halved


def test_explain_of_an_image_with_other_than_three_channels():
    chain = A.Compose([A.RandomRotation(9), A.Normalize([0.5] * 6, [0.2] * 6)])
    text = chain.explain(A.ImageInfo((32, 32), channels=6))
    assert text == A.Compose([A.RandomRotation(9), A.Normalize(0.5, 0.2)]).explain(
        A.ImageInfo((32, 32))
    )


# ---- what is refused


@pytest.mark.parametrize(
    "image, error, message",
    [
        (
            np.zeros((8, 224, 224, 3), np.uint8),
            ValueError,
            r"\(8, 224, 224, 3\): batches go through jax.vmap, groups .* GroupCompose, clips .*F",
        ),
        (
            np.zeros((224, 224), np.uint8),
            ValueError,
            r"got \(224, 224\): give a gray image its channel",
        ),
        (
            np.zeros((3, 224, 224), np.uint8),
            ValueError,
            r"\(h, w, channels\), got \(3, 224, 224\): put channels last",
        ),
        (
            np.zeros((8, 8, 3), np.int32),
            TypeError,
            r"uint16 image, or a float image .*, got int32\[8, 8, 3\]",
        ),
        (
            np.zeros((8, 8, 3), np.uint32),
            TypeError,
            r"got uint32\[8, 8, 3\]: convert 0 to 255 with .*uint8.*, 0 to 65535 ",
        ),
        (
            np.linspace(-1, 1, 192, dtype=np.float32).reshape(8, 8, 3),
            ValueError,
            r"float image in \[0, 1\], got values from -1 ",
        ),
        (
            {"pixels": 1},
            ValueError,
            r"a sample must have an 'image', an 'audio' or a 'volume', got the keys \['pixels'\]",
        ),
        (
            {"image": IMAGE, "size": np.zeros(2, np.float32)},
            ValueError,
            r"`size` must be int32\[2\], .* got float32",
        ),
        (
            {"image": IMAGE, "boxes": jnp.zeros((2, 5))},
            ValueError,
            r"`boxes` must be float\[n, 4\]",
        ),
    ],
)
def test_wrong_samples(image, error, message):
    with pytest.raises(error, match=message):
        A.RandomHorizontalFlip()(KEY, image)


def test_normalize_takes_floats_and_keeps_their_dtype():
    with pytest.raises(TypeError, match=r"got uint8\[44, 60, 3\]: call `to_float` first"):
        A.functional.normalize(jnp.asarray(IMAGE), 0.5, 0.25)
    half = jnp.asarray(IMAGE / 255, jnp.float16)
    expected = (half.astype(jnp.float32) - 0.485) / 0.229
    found = A.functional.normalize(half, 0.485, 0.229)
    np.testing.assert_array_equal(found, expected.astype(jnp.float16))


def test_wrong_chains():
    with pytest.raises(ValueError, match=r"Normalize must be the last transform"):
        A.Compose([A.Normalize(0.5, 0.5), A.CenterCrop(8)])
    with pytest.raises(ValueError, match=r"ToFloat must be the last .* no ToFloat before"):
        A.Compose([A.Compose([A.ToFloat()]), A.Normalize(0.5, 0.5)])
    with pytest.raises(TypeError, match="wrap a function in `Lambda`"):
        A.Compose([lambda key, image: image])  # pyright: ignore
    with pytest.raises(ValueError, match=r"`mean` must lie in \[0, 1\], .* divide by 255"):
        A.Normalize(127.5, 0.5)
    with pytest.raises(ValueError, match=r"`std` must be above 0, got \(0.0,\)"):
        A.Normalize(0.5, 0.0)
    with pytest.raises(ValueError, match=r"`dtype` must be a floating dtype .* got 'uint8'"):
        A.ToFloat("uint8")
    with pytest.raises(ValueError, match=r"`layout` must be one of 'HWC', .* got 'CWH'"):
        A.ToFloat(layout="CWH")
    with pytest.raises(TypeError, match=r"`function` of Lambda must return a float image"):
        A.Lambda(lambda key, image: image[0])(KEY, IMAGE)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (
            lambda: A.Compose([A.RandomHorizontalFlip]),
            r"the class RandomHorizontalFlip: write RandomHorizontalFlip\(",
        ),
        (
            lambda: A.Compose(A.RandomHorizontalFlip()),
            r"`transforms` must be a sequence .* put it in a list",
        ),
        (lambda: A.Compose([A.RandomCrop(8)], A.Grayscale()), "positional"),
        (
            lambda: A.Lambda(A.RandomHorizontalFlip),
            r"`function` must be a function of \(key, image\)",
        ),
    ],
)
def test_what_is_no_chain_is_refused(wrong, message):
    with pytest.raises(TypeError, match=message):
        wrong()


def test_fuse_is_true_or_false():
    with pytest.raises(ValueError, match="`fuse` must be one of True, False, got 'no'"):
        A.Compose([A.RandomCrop(8)], fuse="no")


def test_a_chain_inside_of_a_choice_has_the_settings_of_the_chain_around_it():
    inner = A.Compose([A.RandomHorizontalFlip()], mask_fill=0)
    for around in (A.RandomApply([inner]), A.RandomChoice([A.RandomInvert(), inner])):
        with pytest.raises(ValueError, match="must have the same `mask_fill`, got 0 inside 255"):
            A.Compose([around])
        A.Compose([around], mask_fill=0)
