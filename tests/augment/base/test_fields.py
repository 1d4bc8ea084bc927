"""Arguments: numbers of numpy are taken, and errors name the argument as it was written."""

import dataclasses
import inspect
import pickle
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.augment import functional as F
from jaxaug.augment._base.fields import Color, Converter, as_number

KEY = jax.random.key(0)
IMAGE = np.full((12, 15, 3), 100, np.uint8)


@pytest.mark.parametrize(
    "written, meant",
    [
        (lambda: A.Resize(np.int64(8)), A.Resize(8)),
        (lambda: A.Resize(np.array([8, 9])), A.Resize((8, 9))),
        (lambda: A.CenterCrop(np.int32(8)), A.CenterCrop(8)),
        (lambda: A.CenterCrop([8, 9]), A.CenterCrop((8, 9))),
        (
            lambda: A.RandomCrop((np.int64(8), 9), padding=np.int64(2)),
            A.RandomCrop((8, 9), padding=2),
        ),
        (lambda: A.RandomHorizontalFlip(np.float32(0.5)), A.RandomHorizontalFlip(0.5)),
        (lambda: A.RandomRotation(np.float64(10), p=np.float32(0.5)), A.RandomRotation(10, p=0.5)),
        (lambda: A.RandomRotation(10, fill=(0.5, 0.5, 0.5)), A.RandomRotation(10, fill=0.5)),
        (
            lambda: A.RandomAffine(0, translate=np.array([0.5, 0.25])),
            A.RandomAffine(0, translate=(0.5, 0.25)),
        ),
        (
            lambda: A.RandomAffine(0, shear=np.array([1.0, 2.0])),
            A.RandomAffine(0, shear=(1.0, 2.0)),
        ),
        (lambda: A.RandomPerspective(np.float32(0.5)), A.RandomPerspective(0.5)),
        (
            lambda: A.ColorJitter(np.float32(0.5), hue=np.float64(0.25)),
            A.ColorJitter(0.5, hue=0.25),
        ),
        (
            lambda: A.Normalize(np.array([0.5, 0.25, 0.5]), np.float32(0.5)),
            A.Normalize((0.5, 0.25, 0.5), 0.5),
        ),
    ],
)
def test_numpys_numbers_are_numbers(written, meant):
    assert written() == meant and hash(written()) == hash(meant) and repr(written()) == repr(meant)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (
            lambda: A.RandomAffine(0, translate=(1.5, 0)),
            r"`translate` must be \(x, y\), .* got \(1.5, 0\)",
        ),
        (
            lambda: A.RandomAffine(0, translate=(0.1,)),
            r"`translate` must be \(x, y\), .* got \(0.1,\)",
        ),
        (lambda: A.RandomAffine(0, translate=0.1), r"`translate` must be \(x, y\), .* got 0.1"),
        (
            lambda: A.RandomAffine(0, translate=(0.1, 0.2, 0.3)),
            r"`translate` .* got \(0.1, 0.2, 0.3\)",
        ),
        (lambda: A.RandomAffine(0, translate=("a", "b")), r"`translate` .* got \('a', 'b'\)"),
        (
            lambda: A.RandomAffine(0, shear="x"),
            "`shear` must be a number, a pair or four numbers, got 'x'",
        ),
        (
            lambda: A.RandomPerspective(1.5),
            r"`distortion_scale` must be a number in \[0.0, 1.0\], got 1.5",
        ),
        (
            lambda: A.RandomPerspective("a"),
            r"`distortion_scale` must be a number in \[0.0, 1.0\], got 'a'",
        ),
        (lambda: F.affine(IMAGE, scale=0), "`scale` must be above 0, got 0"),
        (lambda: F.affine(IMAGE, scale=-0.5), "`scale` must be above 0, got -0.5"),
        (lambda: A.RandomResizedCrop(224.0), r"two ints of at least 1, or one int, got 224.0"),
        (lambda: A.RandomCrop((8, 8, 8)), r"two ints of at least 1, or one int, got \(8, 8, 8\)"),
        (lambda: A.Resize(True), "or one int, got True"),
        (lambda: A.Normalize("x", 0.5), "`mean` must be a number or one per channel, got 'x'"),
        (lambda: A.Normalize((), 0.5), r"`mean` must be a number or one per channel, got \(\)"),
        (lambda: A.RandomRotation(5, fill=(0.1, 2)), r"`fill` must be a number .* got \(0.1, 2\)"),
    ],
)
def test_errors_name_what_was_written(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize(
    "function", [lambda image: image, lambda: 0, lambda key, image, more: image, np.sin]
)
def test_a_function_of_another_arity_is_refused_at_construction(function):
    if function is np.sin:
        A.Lambda(function)  # a ufunc of one or two arrays: its signature does not tell
        return
    with pytest.raises(
        TypeError, match=r"`function` must take two arguments, \(key, image\), .*lambda key, image"
    ):
        A.Lambda(function)


# ---- calls


@pytest.mark.parametrize("transform", [A.RandomHorizontalFlip(), A.Compose([A.CenterCrop(8)])])
@pytest.mark.parametrize("sample", [IMAGE, {"image": IMAGE}])
def test_swapped_arguments(transform, sample):
    with pytest.raises(TypeError, match=r"the arguments are swapped: call transform\(key, image\)"):
        transform(sample, KEY)


@pytest.mark.parametrize(
    "key, message",
    [
        (0, r"`key` must be a PRNG key such as jax.random.key\(0\), got int\.$"),
        (np.zeros(3, np.float32), r"got float32\[3\]"),
        (jax.random.split(KEY, 4), r"\[4\]. One image a call: batches go through jax.vmap"),
    ],
)
def test_what_is_no_key(key, message):
    with pytest.raises(TypeError, match=message):
        A.RandomHorizontalFlip()(key, IMAGE)


def test_raw_keys_are_keys():
    raw = jax.random.key_data(KEY)
    flip = A.RandomHorizontalFlip(1.0)
    np.testing.assert_array_equal(flip(raw, IMAGE), flip(KEY, IMAGE))


def test_floats_of_0_to_255_are_refused_where_they_can_be_seen():
    crop = A.CenterCrop(8)
    for image in (IMAGE.astype(np.float32), jnp.asarray(IMAGE, jnp.bfloat16)):
        with pytest.raises(
            ValueError, match=r"image in \[0, 1\], got values from .* to 100: .*divide by 255"
        ):
            crop(KEY, image)
    assert crop(KEY, np.ones((12, 15, 3), np.float32)).shape == (8, 8, 3)
    assert jax.eval_shape(crop, KEY, IMAGE.astype(np.float32)).shape == (8, 8, 3)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda t: jax.vmap(t, (None, 0))(KEY, IMAGE),
            ValueError,
            r"got \(15, 3\): under jax.vmap give a batch",
        ),
        (
            lambda t: jax.vmap(t, (None, 0))(KEY, IMAGE[None, None]),
            ValueError,
            r"\(1, 12, 15, 3\): batches go",
        ),
        (
            lambda t: t(KEY, IMAGE.astype(np.int32)),
            TypeError,
            r"got int32\[12, 15, 3\]: convert .*astype\('uint8'\)",
        ),
    ],
)
def test_wrong_images(call, error, message):
    with pytest.raises(error, match=message):
        call(A.RandomHorizontalFlip())


def test_integers_are_not_interpolated():
    image = IMAGE.astype(np.int32)
    with pytest.raises(
        TypeError, match=r"got int32\[12, 15, 3\]: .* or read it with interpolation='nearest'"
    ):
        F.resize(image, (5, 5))
    assert F.resize(image, (5, 5), "nearest").dtype == jnp.int32
    assert F.crop(image, 1, 1, 4, 4).dtype == jnp.int32


class _Invert(A.ImageOp):
    """A user's transform that returns what it is told to."""

    def __init__(self, result):
        self.result = result

    def make_params(self, key, info):
        """Nothing."""

    def apply(self, params, image, info):
        """The result."""
        return self.result(image)


@pytest.mark.parametrize(
    "result, got",
    [
        (lambda image: (255 * image).astype(jnp.int32), r"int32\[12, 15, 3\]"),
        (lambda image: image[0], r"float32\[15, 3\]"),
        (lambda image: None, "NoneType"),
        (lambda image: {"image": image}, "dict"),
    ],
)
def test_what_a_pixelwise_transform_may_return(result, got):
    with pytest.raises(
        TypeError, match=rf"_Invert.apply must return a float image \[h, w, c\] .* got {got}"
    ):
        _Invert(result)(KEY, IMAGE)
    with pytest.raises(TypeError, match=rf"`function` of Lambda must return .* got {got}"):
        A.Lambda(lambda key, image: result(image))(KEY, IMAGE)


def test_a_map_that_is_no_warp_is_named():
    class Turn(A.Geometric):
        def make_params(self, key, info):
            return A.matrix.rotation(0.3)

        def warp(self, params, info):
            return params

    message = r"Turn.warp must return a Warp, got \w+: .* `Warp.centered\(info, matrix\)`"
    with pytest.raises(TypeError, match=message):
        Turn()(KEY, IMAGE)


class _OfNoKind(A.Transform):
    """A user's transform that derives from the base alone."""

    def make_params(self, key, info):
        """Nothing."""

    def apply(self, params, image, info):
        """Never called."""


def test_a_transform_of_no_kind_is_refused():
    message = r"_OfNoKind is a Transform of no kind .* derive it from `augment.Geometric`"
    with pytest.raises(TypeError, match=message):
        A.Compose([_OfNoKind(), A.ToFloat()])
    with pytest.raises(TypeError, match=message):
        _OfNoKind()(KEY, IMAGE)


class _Asking(A.RandomRotation):
    """A rotation that asks for a given resampling."""

    def __init__(self, **wish):
        super().__init__(10)
        object.__setattr__(self, "wish", wish)

    def resampling(self):
        """As given."""
        return super().resampling()._replace(**self.wish)


@pytest.mark.parametrize(
    "wish, message",
    [
        (
            {"interpolation": "cubic"},
            r"`_Asking.resampling\(\).interpolation` must be one of 'bilinear', 'bicubic'",
        ),
        (
            {"padding_mode": "mirror"},
            r"`_Asking.resampling\(\).padding_mode` must be one of 'constant', .* got 'mirror'",
        ),
        ({"fill": 128}, r"`_Asking.resampling\(\).fill` must be a number in \[0, 1\]"),
    ],
)
def test_an_own_resampling_is_checked(wish, message):
    with pytest.raises(ValueError, match=message):
        A.Compose([_Asking(**wish)])
    with pytest.raises(ValueError, match=message):
        _Asking(**wish)(KEY, IMAGE)


def resamples(chain):
    return chain.explain(A.ImageInfo((12, 15))).count("resample ")


def runs(*transforms):
    return resamples(A.Compose(transforms))


def test_settings_that_mean_the_same_do_not_split_a_run():
    assert runs(A.RandomRotation(5, fill=0.0), A.RandomAffine(5, fill=(0, 0, 0))) == 1
    assert runs(_Asking(fill=0.5), _Asking(fill=(0.5, 0.5, 0.5))) == 1
    edge = {"padding_mode": "edge"}
    assert runs(A.RandomRotation(5, fill=0.5, **edge), A.RandomAffine(5, fill=0.0, **edge)) == 1
    assert runs(A.RandomRotation(5, fill=0.5), A.RandomAffine(5, fill=0.0)) == 2


# ---- nested chains


def test_a_nested_chain_of_other_settings_is_refused():
    flips = [A.RandomHorizontalFlip(), A.RandomVerticalFlip()]
    for fuse in (True, False):
        with pytest.raises(
            ValueError, match=rf"must have the same `fuse`, got {not fuse} inside {fuse}"
        ):
            A.Compose([A.Compose(flips, fuse=not fuse)], fuse=fuse)
    with pytest.raises(ValueError, match="must have the same `mask_fill`, got 0 inside 255"):
        A.Compose([A.Compose(flips, mask_fill=0)])
    assert runs(A.Compose(flips), A.CenterCrop(5)) == 1
    assert resamples(A.Compose([A.Compose(flips, fuse=False), A.CenterCrop(5)], fuse=False)) == 3


# ---- converters


@dataclass(frozen=True)
class Shade(A.Pointwise):
    amount: Annotated[Any, Converter(as_number, 0.0, 1.0)]
    fill: Color = (0.5, 0.5)
    p: float = 0.5

    def make_params(self, key, info):
        return None

    def apply(self, params, image, info):
        return image * self.amount


QUARTER = np.float32(0.25)


@dataclass(frozen=True)
class Dark(Shade):
    amount: Any = QUARTER


def test_a_field_keeps_what_its_converter_makes_of_the_argument():
    shade = Shade(np.float32(0.5), p=np.float64(1))
    assert repr(shade) == "Shade(amount=0.5, fill=0.5, p=1.0)"
    assert shade == Shade(0.5, p=1.0) and hash(shade) == hash(Shade(0.5, 0.5, 1.0))
    assert pickle.loads(pickle.dumps(shade)) == shade
    assert dataclasses.replace(shade, amount=1).amount == 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        shade.amount = 1.0
    traced = jax.eval_shape(lambda q: jnp.float32(Shade(q).amount), jnp.float32(0.5))
    assert traced.dtype == jnp.float32
    with pytest.raises(ValueError, match=r"`amount` must be a number in \[0.0, 1.0\], got 2"):
        Shade(2)


def test_a_subclass_with_another_default_keeps_the_converter():
    assert type(Dark().amount) is float and Dark().fill == 0.5
    with pytest.raises(ValueError, match=r"`amount` must be a number in \[0.0, 1.0\], got 'x'"):
        Dark("x")


def test_a_signature_shows_converters_by_name():
    shown = str(inspect.signature(A.RandomAffine))
    assert "as_symmetric_range()" in shown and "as_optional(_as_shear)" in shown
    assert " at 0x" not in shown
