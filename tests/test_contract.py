"""Every transform that `jaxaug.augment` exports, against every law. A new export enters by itself.

Each needs one line in CASES, with the arguments under which it does something. For a second
environment only the first transform of each module is tested with JAXAUG_LAWS=families, and with
JAXAUG_LAWS=bits without its gradients, which are half of what is compiled and compare no bits.
"""

import collections
import dataclasses
import functools
import inspect
import os
import pickle
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from tests.images import picture

ROWS = 8
CANVAS = (16, 20)
FIXED = (9, 11)
# The first is small, so that it may be dropped, and the last is padding.
BOXES = jnp.array(
    [[0.0, 0.0, 2.0, 2.0], [2.0, 3.0, 9.0, 8.0], [1.0, 1.0, 4.0, 5.0], [0.0] * 4], jnp.float32
)
BOX_COLUMNS = {
    "boxes": BOXES,
    "box_count": jnp.int32(3),
    "boxes_valid": jnp.array([True, True, True, False]),
    "box_labels": jnp.array([5, 6, 7, -1], jnp.int32),
    "box_area": jnp.array([50.0, 60.0, 70.0, 0.0], jnp.float32),
    "box_ids": jnp.array([105, 106, 107, -1], jnp.int32),
    "box_crowd": jnp.array([False, True, False, False]),
}


class Case(NamedTuple):
    """The arguments of a transform, and what its laws must know.

    Attributes:
      arguments: with which it does something to every image.
      random: False where another key gives the same result once it is applied.
      canvas: of the output; where it is another, "size" ends with it.
      sized: True where "size" goes on into another canvas.
      square: True where the input must lie on a square array; `canvas` is left as it is then.
      boxes: True where it needs "boxes", False where it refuses them.
      mask: True where it needs a "mask".
      local: False where a user's function may read the unused part of a canvas.
      gradients: False where the image has no influence that a gradient could see.
      one_coin: False where `p` is tossed for each part of it.
    """

    arguments: Mapping[str, Any] = MappingProxyType({})
    random: bool = True
    canvas: tuple[int, int] = CANVAS
    sized: bool = False
    square: bool = False
    boxes: bool | None = None
    mask: bool = False
    local: bool = True
    gradients: bool = True
    one_coin: bool = True


def darken(key, image):
    """Return the image times a random number: a function for Lambda."""
    return image * jax.random.uniform(key, (), jnp.float32, 0.2, 0.9)


CHAIN = (
    augment.RandomResizedCrop(FIXED),
    augment.RandomRotation(20),
    augment.ColorJitter(0.3),
)
BRANCHES = (
    augment.RandomRotation((20, 40)),
    augment.ColorJitter((0.3, 0.6)),
    augment.Compose([augment.RandomHorizontalFlip(1.0), augment.RandomAffine((5, 25))]),
)
BANK = np.stack([picture(11, 12, 10), picture(12, 12, 10) // 2])  # of references
ELEMENTS = np.stack([picture(seed, 5, 6)[..., [0, 1, 2, 0]] for seed in (13, 14)])
NEGATIVE = tuple(np.linspace(1, 0, 256).tolist())
MEAN = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}

CASES = {
    "OverlayElements": Case({"elements": ELEMENTS}),
    "WaterRefraction": Case(),
    "PixelDistributionAdaptation": Case({"references": BANK}),
    "HistogramMatching": Case({"references": BANK}),
    "FDA": Case({"references": BANK, "beta_range": (0.2, 0.3)}),
    "MaskDropout": Case(mask=True),
    "CropNonEmptyMaskIfExists": Case({"size": FIXED}, canvas=FIXED, mask=True),
    "Superpixels": Case({"p_replace": (0.5, 0.9), "segments": 9}),
    "Halftone": Case(),
    "ExposureMatching": Case(),
    "Dithering": Case({"colors": 3, "grayscale": True}, random=False),
    "Colorize": Case({"black": (0.1, 0.0, 0.4), "white": (1.0, 0.9, 0.5)}, random=False),
    "KSpaceSpikeNoise": Case({"num_spikes": (1, 2), "waves": 4}),
    "HEStain": Case(),
    "BiasField": Case(),
    "Spatter": Case({"threshold": (0.5, 0.6)}),
    "RandomSunFlare": Case({"num_ghosts": (2, 3)}),
    "RandomShadow": Case(),
    "RandomRain": Case({"drops": 8, "blur": 3}),
    "RandomGravel": Case(),
    "ZoomBlur": Case({"max_factor": (1.2, 1.5), "enlargements": 3}),
    "RingingOvershoot": Case({"blur_limit": (5, 7)}),
    "PixelSpread": Case(),
    "KernelFilter": Case(
        {"kernel": ((0.0, 0.5, 0.0), (0.5, -1.0, 0.5), (0.0, 0.5, 0.0))}, random=False
    ),
    "GlassBlur": Case({"max_delta": 2}),
    "ChromaticAberration": Case({"primary": 0.5, "secondary": 0.4}),
    "AdvancedBlur": Case({"sigma_x": (1.0, 2.0)}),
    "AtmosphericFog": Case(),
    "AugMix": Case({"mixture_width": 2, "chain_depth": 2}, boxes=False),
    "AutoAugment": Case({"policy": "svhn"}),
    "BandGain": Case({"offset": (-0.1, 0.1)}),
    "BoxBlur": Case(),
    "CLAHE": Case({"clip_limit": (1, 40), "tile_grid_size": (1, 1)}, gradients=False),
    "ByEpoch": Case({"transforms": BRANCHES[:2], "starts": (4,)}),
    "CenterCrop": Case({"size": FIXED}, random=False, canvas=FIXED),
    "ChannelDropout": Case(),
    "CoarseDropout": Case({"holes": (1, 3), "height": (0.2, 0.4), "width": (0.2, 0.4)}),
    "ColorJitter": Case({"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}),
    "Compose": Case({"transforms": CHAIN}, canvas=FIXED),
    "ConstrainedCoarseDropout": Case({"height": (0.4, 0.6), "width": (0.4, 0.6)}, boxes=True),
    "CropAndPad": Case(),
    "Defocus": Case({"radius": (1, 3)}),
    "Downscale": Case({"scale_range": (0.2, 0.8)}),
    "ElasticTransform": Case({"alpha": 150, "sigma": 8}),
    "Emboss": Case(),
    "FilmGrain": Case(),
    "GaussianBlur": Case({"kernel_size": 5}),
    "GaussianNoise": Case(),
    "Grayscale": Case(random=False),
    "GridDistortion": Case(),
    "GridDropout": Case({"cell": (0.2, 0.4), "degrees": 30}),
    "HueSaturationValue": Case(),
    "ISONoise": Case(),
    "Illumination": Case(),
    "JPEG": Case({"quality": (30, 90)}),
    "Lambda": Case({"function": darken}, local=False),
    "LetterBox": Case({"size": FIXED}, random=False, canvas=FIXED),
    "LookupTable": Case({"table": NEGATIVE}, random=False, gradients=False),
    "MedianBlur": Case(random=False),
    "Morphological": Case(random=False),
    "MotionBlur": Case(),
    "MultiplicativeNoise": Case(),
    "Normalize": Case(MEAN, random=False),
    "OneOf": Case({"transforms": BRANCHES}),
    "OpticalDistortion": Case({"distort_limit": (0.05, 0.15)}),
    "PCALighting": Case(),
    "Pad": Case({"padding": (1, 2, 3, 4)}, random=False, canvas=(22, 24), sized=True),
    "PiecewiseAffine": Case(),
    "PixelDropout": Case({"rate": 0.3}),
    "PlanckianJitter": Case(),
    "PlasmaBrightnessContrast": Case(),
    "PlasmaShadow": Case(),
    "RandAugment": Case({"magnitude": 20}),
    "RandomAdjustSharpness": Case({"sharpness_factor": 1.9}, random=False),
    "RandomAffine": Case({"degrees": 25, "scale": (0.7, 1.2)}),
    "RandomApply": Case({"transforms": BRANCHES}),
    "RandomAutocontrast": Case(random=False),
    "RandomChannelPermutation": Case(),
    "RandomChoice": Case({"transforms": BRANCHES}),
    "RandomCrop": Case({"size": FIXED}, canvas=FIXED),
    "RandomCropNearBox": Case({"size": FIXED}, canvas=FIXED),
    "RandomD4": Case(square=True),
    "RandomEqualize": Case(random=False, gradients=False),
    "RandomErasing": Case({"value": "random", "mean": (0.5, 0.4, 0.6), "std": (0.2, 0.3, 0.1)}),
    "RandomGamma": Case(),
    "RandomGrayscale": Case({"p": 0.5}, random=False),
    "RandomGridShuffle": Case(boxes=False),
    "RandomHorizontalFlip": Case(random=False),
    "RandomHueYIQ": Case(),
    "RandomInvert": Case(random=False),
    "RandomIoUCrop": Case({"sampler_options": (0.3,)}, boxes=True),
    "RandomOrder": Case({"transforms": BRANCHES}),
    "RandomPerspective": Case(),
    "RandomPhotometricDistort": Case(one_coin=False),
    "RandomPosterize": Case({"bits": 3}, random=False, gradients=False),
    "RandomRGBShift": Case(),
    "RandomResize": Case(
        {"min_size": 5, "max_size": 12, "canvas": FIXED}, canvas=FIXED, sized=True
    ),
    "RandomResizedCrop": Case({"size": FIXED}, canvas=FIXED),
    "RandomRotate90": Case(square=True),
    "RandomRotation": Case({"degrees": 25}),
    "RandomShear": Case({"shear": (5, 25, -20, 20)}),
    "RandomShortestSize": Case({"min_size": (6, 8), "canvas": FIXED}, canvas=FIXED, sized=True),
    "RandomSizedBoxSafeCrop": Case({"size": FIXED}, canvas=FIXED),
    "RandomSnow": Case(),
    "RandomSolarize": Case({"threshold": 0.5}, random=False),
    "RandomToneCurve": Case(),
    "RandomTranslate": Case({"translate": (0.3, 0.2)}),
    "RandomTranspose": Case(random=False, square=True),
    "RandomVerticalFlip": Case(random=False),
    "RandomZoomOut": Case({"side_range": (1.2, 2.0)}, canvas=(32, 40), sized=True),
    "Resize": Case({"size": FIXED}, random=False, canvas=FIXED),
    "RicianNoise": Case(),
    "SaltAndPepper": Case(),
    "SanitizeBoxes": Case({"min_size": 3.0}, random=False, boxes=True),
    "ScaleJitter": Case(
        {"target_size": (8, 9), "scale_range": (0.5, 2.0)}, canvas=(16, 18), sized=True
    ),
    "ShotNoise": Case(),
    "SomeOf": Case({"transforms": BRANCHES, "n": 2}),
    "ThinPlateSpline": Case(),
    "ThreeAugment": Case(),
    "ToSepia": Case(random=False),
    "ToFloat": Case(random=False),
    "TrivialAugmentWide": Case(),
    "UnsharpMask": Case({"kernel_size": 5}),
    "Vignetting": Case(),
    "XYMasking": Case(),
}


@dataclasses.dataclass(frozen=True)
class Nothing(augment.Pointwise):
    """A transform without arguments."""

    def make_params(self, key, info):
        return None

    def apply(self, params, image, info):
        return image


# Those that hold others, whose own arguments would be shown, too.
WITH_PARTS = (
    "ByEpoch",
    "Compose",
    "OneOf",
    "RandomApply",
    "RandomChoice",
    "RandomOrder",
    "SomeOf",
    "ThreeAugment",
)
BARE = {name: {"transforms": (Nothing(),)} for name in WITH_PARTS} | {
    "ByEpoch": {"transforms": (Nothing(),), "starts": ()},
    "SomeOf": {"transforms": (Nothing(),), "n": 1},
}


def exported(kind):
    """Return the names of the classes of `kind` that users can build."""
    names = {name: getattr(augment, name) for name in dir(augment) if name != "Transform"}
    return sorted(
        name
        for name, value in names.items()
        if inspect.isclass(value) and issubclass(value, kind) and not inspect.isabstract(value)
    )


def build(name, **changes):
    return getattr(augment, name)(**{**CASES[name].arguments, **changes})


def has_p(name):
    return "p" in {field.name for field in dataclasses.fields(getattr(augment, name))}


def always(name):
    return build(name, p=1.0) if has_p(name) else build(name)


def needs_more_than_an_image(name):
    return CASES[name].boxes or CASES[name].mask or name == "ByEpoch"


def input_canvas(name):
    return (CANVAS[1], CANVAS[1]) if CASES[name].square else CANVAS


def output_canvas(name):
    return input_canvas(name) if CASES[name].canvas == CANVAS else CASES[name].canvas


def batch(name, rest=0):
    """Eight different images of different sizes on one canvas, one of them a pixel, one a line."""
    sizes = np.array(
        [[16, 20], [12, 20], [1, 1], [13, 14], [15, 19], [16, 16], [1, 9], [14, 12]], np.int32
    )
    pixels = np.full((ROWS, *input_canvas(name), 3), rest, np.uint8)
    for row, (height, width) in enumerate(sizes):
        pixels[row, :height, :width] = picture(row, height, width)
    sample = {
        "image": jnp.asarray(pixels),
        "size": jnp.asarray(sizes),
        "label": jnp.arange(ROWS, dtype=jnp.int32),
        "epoch": jnp.arange(ROWS, dtype=jnp.int32),
    }
    if CASES[name].boxes is not False:
        for column, value in BOX_COLUMNS.items():
            sample[column] = jnp.repeat(value[None], ROWS, axis=0)
    if CASES[name].mask:
        mask = np.full(pixels.shape[:3], 255 - rest, np.uint8)  # as a Loader fills it
        for row, (height, width) in enumerate(sizes):
            mask[row, :height, :width] = pixels[row, :height, :width, 0] % 7
        sample["mask"] = jnp.asarray(mask)
    return sample


def info_of(sample):
    canvas = sample["image"].shape[:2]
    return augment.ImageInfo(canvas, sample["size"], sample.get("boxes"), sample["epoch"])


def rows(tree, which):
    """Return some rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf[which], tree)


def on_input_canvas(images):
    """Return the part of [N, H, W, C] that the input of most has."""
    return np.asarray(images)[:, : CANVAS[0], : CANVAS[1]]


def equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


KEYS = jax.random.split(jax.random.key(7), ROWS)
OTHER_KEYS = jax.random.split(jax.random.key(8), ROWS)
DEVICES = jax.devices()[:4]  # a GPU may be alone
MESH = jax.make_mesh(
    (len(DEVICES),), ("batch",), axis_types=(jax.sharding.AxisType.Explicit,), devices=DEVICES
)
SPLIT = jax.sharding.NamedSharding(MESH, jax.sharding.PartitionSpec("batch"))


def one_per_family(names):
    """Return the first name of each module."""
    families = {}
    for name in names:
        families.setdefault(getattr(augment, name).__module__, name)
    return sorted(families.values())


EXPORTED = exported(augment.Transform)
FAMILIES = one_per_family(EXPORTED)
LAWS = os.environ.get("JAXAUG_LAWS", "all")
NAMES = EXPORTED if LAWS == "all" else FAMILIES
WITH_P = [name for name in NAMES if has_p(name)]
everything = pytest.mark.parametrize("name", NAMES)


def mostly_slow(names):
    """Return the names as parameters, those that are not the first of their module marked slow."""
    return [
        name if name in FAMILIES else pytest.param(name, marks=pytest.mark.slow) for name in names
    ]


def laws(transform, key, sample):
    """Return what the laws compare: compiling is what costs, so it is compiled as one."""
    image = sample["image"].astype(jnp.float32) / 255
    image = image.at[:2].set(0.5)  # gray: hue and saturation have their corners there

    def total(image):
        rest = {name: sample[name] for name in ("boxes", "epoch", "mask") if name in sample}
        return transform(key, {"image": image, **rest})["image"].sum()

    gradients = {} if LAWS == "bits" else {"gradients": jax.grad(total)(image)}
    return {"called": transform(key, sample), **gradients}


traced = collections.Counter()  # how often JAX has called the function of each name


@functools.cache
def compiled(name):
    """Return a function of (transform, keys, batch), split over four devices, two rows on each.

    The axis of the mesh is Explicit: what cannot be split is an error.
    """

    def run(transform, keys, samples):
        traced[name] += 1
        return jax.vmap(functools.partial(laws, transform))(keys, samples)

    return jax.jit(run)


def applied(name, p):
    """Return a transform with its probability as an array, so that 0 and 1 are compiled once."""
    return build(name, p=jnp.float32(p)) if has_p(name) else build(name)


def on_mesh(name, *arguments):
    """Return the results of `compiled` for (transform, keys, batch)."""
    transform, *arrays = arguments
    with jax.set_mesh(MESH):
        return compiled(name)(transform, *jax.device_put(arrays, SPLIT))


@functools.cache
def split_results(name):
    return on_mesh(name, applied(name, 1), KEYS, batch(name))


@functools.cache
def results(name):
    return jax.device_get(split_results(name))


def test_the_table_is_that_of_the_exports():
    assert sorted(CASES) == EXPORTED


@everything
def test_config(name):
    transform = always(name)
    assert hash(transform) == hash(always(name)) and transform == always(name)
    assert pickle.loads(pickle.dumps(transform)) == transform
    some = next((field.name for field in dataclasses.fields(transform)), "a_field")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(transform, some, 0)


@everything
def test_lists_become_tuples(name):
    arguments = CASES[name].arguments
    lists = {k: list(v) for k, v in arguments.items() if isinstance(v, tuple)}
    assert hash(build(name, **lists)) == hash(build(name))


@everything
def test_the_repr_has_the_arguments_in_their_order(name):
    names = list(inspect.signature(getattr(augment, name)).parameters)
    shown = re.findall(r"[(, ](\w+)=", repr(build(name, **BARE.get(name, {}))))
    own = [each for each in shown if each != "dtype" or each in names]  # else that of an array
    assert own == names


@everything
def test_dtype_shape_and_rest(name):
    out = results(name)["called"]
    equal(out["label"], batch(name)["label"])
    output = issubclass(getattr(augment, name), augment.Output)
    assert out["image"].dtype == (jnp.float32 if output else jnp.uint8)
    assert out["image"].shape == (ROWS, *output_canvas(name), 3)
    assert ("size" in out) == (CASES[name].canvas == CANVAS or CASES[name].sized)
    if needs_more_than_an_image(name):
        return
    bare = jax.eval_shape(always(name), KEYS[0], batch(name)["image"][0])
    assert bare.shape == out["image"].shape[1:] and bare.dtype == out["image"].dtype


def check_box_columns(out):
    """Raise where the columns of boxes tell of different boxes: [rows, n, ...] of NumPy."""
    valid = out["boxes_valid"]
    np.testing.assert_array_equal(valid.sum(axis=1), out["box_count"])
    np.testing.assert_array_equal(valid, np.sort(valid, axis=1)[:, ::-1])  # they stand first
    np.testing.assert_array_equal(valid, (out["boxes"] != 0).any(axis=2))
    np.testing.assert_array_equal(out["box_labels"][~valid], -1)
    np.testing.assert_array_equal(out["box_area"], np.where(valid, 10 * out["box_labels"], 0))
    np.testing.assert_array_equal(out["box_ids"], np.where(valid, 100 + out["box_labels"], -1))
    np.testing.assert_array_equal(out["box_crowd"], valid & (out["box_labels"] == 6))


@everything
def test_columns_of_boxes_tell_of_the_same_boxes(name):
    if CASES[name].boxes is False:
        pytest.skip("it refuses boxes")
    out = results(name)["called"]
    check_box_columns(out)
    drops = name in ("RandomIoUCrop", "SanitizeBoxes")
    assert (out["box_count"] < 3).any() == drops
    assert drops or (out["box_labels"] == [5, 6, 7, -1]).all()


GEOMETRY_AND_OUTPUT = [
    name
    for name in NAMES
    if issubclass(getattr(augment, name), (augment.Geometric, augment.Output))
]


@pytest.mark.parametrize("name", mostly_slow(GEOMETRY_AND_OUTPUT))
def test_a_second_image_becomes_what_the_first_becomes(name):
    chain = augment.Compose([always(name)], targets={"second": "image"})
    given = batch(name)
    out = jax.device_get(jax.jit(jax.vmap(chain))(KEYS, {**given, "second": given["image"]}))
    assert out["second"].dtype == out["image"].dtype
    np.testing.assert_allclose(out["second"], out["image"], atol=1e-5)


GROUP_OPS = {
    "CutMix": {},
    "GroupCompose": {"transforms": [augment.Mosaic((16, 20)), augment.SanitizeBoxes(2.0)]},
    "MixUp": {},
    "MixUpOrCutMix": {},
    "Mosaic": {"size": (16, 20)},
}


@pytest.mark.parametrize("name", sorted(GROUP_OPS))
def test_columns_of_mixed_boxes_tell_of_the_same_boxes(name):
    mix = getattr(augment, name)(**GROUP_OPS[name])
    groups = {k: v for k, v in batch("Compose").items() if k != "label"}
    groups = jax.tree.map(lambda v: v.reshape(-1, mix.group_size, *v.shape[1:]), groups)
    keys = KEYS[: len(groups["image"])]
    out = jax.device_get(jax.jit(jax.vmap(mix))(keys, groups))
    out = jax.tree.map(lambda v: v.reshape(ROWS, *v.shape[2:]), out)
    check_box_columns(out)
    assert out["boxes"].shape[1] == 4 * mix.group_size and out["box_count"].max() > 1


@everything
def test_floats_keep_their_dtype_and_odd_sides_their_length(name):
    if needs_more_than_an_image(name):
        pytest.skip("it needs boxes, or the epoch")
    side = (17, 17) if CASES[name].square else (17, 13)
    image = jnp.zeros((*side, 3), jnp.bfloat16)
    out = jax.eval_shape(always(name), KEYS[0], image)
    output = issubclass(getattr(augment, name), augment.Output)
    assert out.dtype == (jnp.float32 if output else jnp.bfloat16)
    if output_canvas(name) == input_canvas(name):
        assert out.shape == image.shape


@pytest.mark.parametrize("name", ["BoxBlur", "RandomGamma", "RandomRotation"])
def test_bfloat16_is_the_rounded_result_of_float32(name):
    """Of one transform of each kind, as the kind casts."""
    sample = batch(name)
    sample["image"] = (sample["image"].astype(jnp.float32) / 255).astype(jnp.bfloat16)
    wide = {**sample, "image": sample["image"].astype(jnp.float32)}
    run = jax.vmap(always(name))
    narrow, expected = jax.jit(lambda: (run(KEYS, sample), run(KEYS, wide)))()
    equal(narrow["image"], expected["image"].astype(jnp.bfloat16))


@everything
def test_another_key_another_result(name):
    other = on_mesh(name, applied(name, 1), OTHER_KEYS, batch(name))["called"]
    same = np.array_equal(results(name)["called"]["image"], other["image"])
    assert same == (not CASES[name].random)


@everything
def test_compiled_once(name):
    """For other keys, other sizes and an equal second instance."""
    samples = batch(name)
    third = {**samples, "size": samples["size"][::-1]}
    results(name)
    on_mesh(name, applied(name, 1), OTHER_KEYS, samples)
    on_mesh(name, pickle.loads(pickle.dumps(applied(name, 1))), KEYS, third)
    assert traced[name] == 1


@pytest.mark.parametrize("name", mostly_slow(NAMES))
def test_a_replay_on_one_device_has_the_bits_of_the_call_on_several(name):
    """And in a larger batch, and under x64: what differs from the call is compiled as one.

    So that the other laws hold there, too. Gradients have the same type.
    """

    def replayed(transform, key, sample):
        nested = isinstance(transform, augment.Compose)
        chain = transform if nested else augment.Compose([transform])
        return chain.apply(chain.make_params(key, info_of(sample)), sample)

    given = applied(name, 1), KEYS, batch(name)
    with jax.enable_x64(True):
        out = jax.jit(jax.vmap(replayed, (None, 0, 0)))(*given)
        forms = jax.eval_shape(jax.vmap(laws, (None, 0, 0)), *given)
    equal(jax.device_get(out), results(name)["called"])
    same_types = jax.tree.map(lambda form, value: form.dtype == value.dtype, forms, results(name))
    assert all(jax.tree.leaves(same_types))


@everything
def test_rows_do_not_depend_on_their_place(name):
    """Nor on their device."""
    backwards = on_mesh(name, applied(name, 1), *rows((KEYS, batch(name)), slice(None, None, -1)))
    equal(results(name)["called"], rows(jax.device_get(backwards["called"]), slice(None, None, -1)))


@everything
def test_a_batch_stays_split(name):
    for path, leaf in jax.tree_util.tree_leaves_with_path(split_results(name)):
        assert leaf.sharding.spec[:1] == ("batch",), path


@everything
def test_the_unused_part_is_not_read(name):
    if not CASES[name].local:
        pytest.skip("a user's function sees the whole canvas")
    beside = on_mesh(name, applied(name, 1), KEYS, batch(name, rest=255))["called"]
    equal(beside, results(name)["called"])


# No side is odd: at XLA's optimization level 0 the center of an image that is a pixel's, too, may
# fall on either side of it, in one computation twice.
TIGHT = (14, 18)
LARGER = [(40, 31)]  # more than twice as high, so that no side is another's by chance
# XLA folds a size that it knows into constants, and contracts what follows in another way: points
# move by an ulp or two, and so do values that stay floats. Other values and masks are the same but
# for those of a blend of pixels, of which one in 500 may be rounded to the level beside it.
POINT_TOLERANCE = 1e-5
FLOAT_TOLERANCE = {"Normalize": 1e-6}
BLENDED_SHARE = 1 / 500
BLENDED = {
    "AugMix",
    "ByEpoch",
    "ChromaticAberration",
    "Compose",
    "CropAndPad",
    "ElasticTransform",
    "FDA",
    "GridDistortion",
    "LetterBox",
    "OneOf",
    "OpticalDistortion",
    "PiecewiseAffine",
    "RandomAffine",
    "RandomApply",
    "RandomChoice",
    "RandomCropNearBox",
    "RandomOrder",
    "RandomPerspective",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShear",
    "RandomShortestSize",
    "RandomSizedBoxSafeCrop",
    "Resize",
    "ScaleJitter",
    "SomeOf",
    "ThinPlateSpline",
    "WaterRefraction",
    "ZoomBlur",
}


def on_canvas(name, canvas):
    """The same image on a canvas, or without one: `canvas` is None."""
    height, width = (TIGHT[0], TIGHT[0]) if CASES[name].square else TIGHT
    rows, columns = (height, width) if canvas is None else canvas
    sides = (max(rows, columns),) * 2 if CASES[name].square else (rows, columns)
    pixels = np.full((*sides, 3), 200, np.uint8)
    pixels[:height, :width] = picture(3, height, width)
    sample: dict[str, np.ndarray] = {"image": pixels, "epoch": np.int32(3)}
    if canvas is not None:
        sample["size"] = np.array([height, width], np.int32)
    if CASES[name].boxes is not False:
        mask = np.full(sides, 200, np.uint8)
        mask[:height, :width] = picture(5, height, width)[:, :, 0] % 7
        points = np.array([[1.0, 2.0], [4.5, 3.25], [-3.0, 30.0]], np.float32)
        sample |= {"mask": mask, "boxes": np.asarray(BOXES), "keypoints": points}
    return jax.tree.map(lambda leaf: np.stack([leaf] * ROWS), sample)


def used_parts(out, row):
    """Return the used part of what came out for a row, and where it has one its size."""
    height, width = out["size"][row] if "size" in out else out["image"].shape[1:3]
    frames = {k: out[k][row, :height, :width] for k in ("image", "mask") if k in out}
    return (height, width), frames, {k: out[k][row] for k in ("boxes", "keypoints") if k in out}


def check_frame(name, entry, frame, expected):
    """Raise where pixels are not those that are expected, for the reason above."""
    difference = np.abs(np.float32(frame) - np.float32(expected))
    if entry == "image" and name in BLENDED:
        assert difference.max() <= 1 and (difference != 0).mean() < BLENDED_SHARE
    else:
        assert difference.max() <= FLOAT_TOLERANCE.get(name, 0), entry


def check_canvases(name, transform):
    """Raise unless the transform of an image is that of the image on a canvas, with its `size`."""
    run = jax.jit(jax.vmap(transform))
    tight, *others = (
        jax.device_get(run(KEYS, on_canvas(name, canvas))) for canvas in (None, *LARGER)
    )
    for other in others:
        for row in range(ROWS):
            size, frames, points = used_parts(other, row)
            sized = {"size": other["size"]} if "size" in other else {}
            expected = used_parts({**tight, **sized}, row)
            if "size" in tight:
                np.testing.assert_array_equal(size, tight["size"][row])
            for entry, frame in frames.items():
                check_frame(name, entry, frame, expected[1][entry])
            for entry, places in points.items():
                np.testing.assert_allclose(
                    places, expected[2][entry], rtol=0, atol=POINT_TOLERANCE, err_msg=entry
                )


@pytest.mark.parametrize("name", mostly_slow(NAMES))
def test_the_canvas_changes_nothing(name):
    check_canvases(name, always(name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, options",
    [
        ("AutoAugment", {"policy": "imagenet"}),
        ("AutoAugment", {"policy": "cifar10"}),
        ("RandAugment", {"variant": "timm", "magnitude": 9.0, "magnitude_std": 0.5}),
    ],
    ids=["imagenet", "cifar10", "timm"],
)
def test_the_canvas_changes_no_policy(name, options):
    """Of the tables that CASES does not choose."""
    check_canvases(name, build(name, **options))


MIXES = {
    "CutMix": {"num_classes": ROWS},
    "GroupCompose": {"transforms": (augment.MixUp(ROWS),)},
    "MixUp": {"num_classes": ROWS},
    "MixUpOrCutMix": {"num_classes": ROWS},
    "Mosaic": {"size": (24, 22), "num_classes": ROWS},
}


def test_the_mixes_are_those_of_the_exports():
    with_masks = {"CopyAndPaste"}  # which has tests of its own
    assert sorted(MIXES) == sorted(GROUP_OPS) == sorted({*exported(augment.GroupOp)} - with_masks)


@pytest.mark.parametrize("name", sorted(MIXES))
def test_the_canvas_changes_no_mix(name):
    """Of images of one size; mixed ones of several have the frame of all of them."""
    mix = getattr(augment, name)(**MIXES[name])
    run = jax.jit(jax.vmap(mix))
    outs = []
    for canvas in (None, *LARGER):
        group = {
            entry: leaf[:, None].repeat(mix.group_size, axis=1)
            for entry, leaf in on_canvas("Resize", canvas).items()
            if entry in ("image", "size")
        }
        shift = np.arange(mix.group_size, dtype=np.uint8) * 40
        group["image"] = group["image"] ^ shift[None, :, None, None, None]
        group["label"] = np.tile(np.arange(mix.group_size, dtype=np.int32), (ROWS, 1))
        outs.append(jax.device_get(run(KEYS, group)))
    tight, *others = outs
    for other in others:
        height, width = tight["image"].shape[2:4]
        equal(other["image"][:, :, :height, :width], tight["image"])
        np.testing.assert_allclose(other["label"], tight["label"], rtol=0, atol=1e-6)


def test_the_canvas_changes_no_paste():
    """Of two images of different sizes: what is pasted is cut off where the other image ends."""
    sizes = np.array([[14, 12], [10, 18]], np.int32)

    def group(canvas):
        """Their smallest common canvas, or a larger one, which is full of pixels and masks."""
        image = np.full((2, *canvas, 3), 200, np.uint8)
        masks = np.ones((2, 2, *canvas), np.uint8)
        for row, (height, width) in enumerate(sizes):
            image[row, :height, :width] = picture(row, height, width)
            masks[row, :, :height, :width] = 0
            masks[row, 0, 2:8, 3 : width - 1] = masks[row, 1, 6:height, 1:5] = 1
        right, bottom = sizes[:, 1] - 1, sizes[:, 0]
        boxes = [[[3, 2, x, 8], [1, 6, 5, y]] for x, y in zip(right, bottom)]
        group = {"image": image, "masks": masks, "boxes": np.float32(boxes), "size": sizes}
        return jax.tree.map(lambda leaf: np.stack([leaf] * ROWS), group)

    run = jax.jit(jax.vmap(augment.CopyAndPaste()))
    tight, *others = (jax.device_get(run(KEYS, group(canvas))) for canvas in (TIGHT, *LARGER))
    assert tight["boxes_valid"][:, :, 2:].any()  # something is pasted
    for other in others:
        equal({**other, "image": 0, "masks": 0}, {**tight, "image": 0, "masks": 0})
        for row, (height, width) in enumerate(sizes):
            used = np.s_[:, row, ..., :height, :width]
            equal(other["masks"][used], tight["masks"][used])
            pixels = np.s_[:, row, :height, :width]
            equal(other["image"][pixels], tight["image"][pixels])


@pytest.mark.parametrize("name", WITH_P)
def test_never_is_the_identity(name):
    never = jax.device_get(on_mesh(name, applied(name, 0), KEYS, batch(name))["called"])
    given = batch(name)
    equal(
        {**never, "image": on_input_canvas(never["image"])},
        {**given, "image": on_input_canvas(given["image"])},
    )
    assert np.count_nonzero(never["image"]) == np.count_nonzero(batch(name)["image"])


@pytest.mark.parametrize("name", WITH_P)
def test_always_changes_the_image(name):
    changed = on_input_canvas(results(name)["called"]["image"]) != on_input_canvas(
        batch(name)["image"]
    )
    assert changed.any(axis=3).mean() > 0.01


@pytest.mark.parametrize("name", WITH_P)
def test_p_is_a_probability(name):
    with pytest.raises(ValueError, match=r"`p` must be a probability in \[0, 1\], got 1.5"):
        build(name, p=1.5)


@everything
def test_no_dots_and_no_doubles_under_x64(name):
    transform = always(name)
    sample = rows(batch(name), 3)
    info = info_of(sample)
    with jax.enable_x64(True):
        text = str(jax.make_jaxpr(transform)(KEYS[3], sample))
        wide = jax.eval_shape(lambda key: transform.draw(key, info), KEYS[3])
    narrow = jax.eval_shape(lambda key: transform.draw(key, info), KEYS[3])
    assert "dot_general" not in text
    # Python numbers are f64[] under x64, before they meet an array.
    assert not re.search(r"f64\[\d", text)
    arrays = zip(jax.tree.leaves(narrow), jax.tree.leaves(wide), strict=True)
    assert all(a.dtype == b.dtype or a.weak_type for a, b in arrays)


# Settings that cannot be arrays of JAX, and why.
OF_A_SHAPE = {
    ("ElasticTransform", "sigma"): "the grid of the noise",
    ("JPEG", "quality"): "integers",
    ("RandomZoomOut", "side_range"): "the output array",
    ("ScaleJitter", "scale_range"): "the output array",
}
# Ranges whose upper end cannot be an array, for the taps of the kernel depend on it.
UP_TO_A_NUMBER = {("BoxBlur", "blur_limit"), ("Defocus", "radius"), ("MotionBlur", "blur_limit")}
# With these, too, the law of traced settings has something to trace.
MORE_SETTINGS = {
    "RandAugment": {"variant": "timm", "magnitude": 9.0, "magnitude_std": 0.5},
    "RandomAffine": {"translate": (0.2, 0.1), "shear": (3.0, 9.0, -5.0, 5.0), "center": (8, 7)},
    "RandomChoice": {"weights": (1.0, 2.0, 3.0)},
    "RandomErasing": {"value": (0.2, 0.4, 0.6)},
    "RandomRotation": {"center": (8, 7)},
}


def numbers_of(name):
    """Return the settings of a transform that are Python floats, {field: a number or a tuple}."""
    transform = build(name, **({"p": 1.0} if has_p(name) else {}), **MORE_SETTINGS.get(name, {}))
    settings = {}
    for field in dataclasses.fields(transform):
        value = getattr(transform, field.name)
        numbers = jax.tree.leaves(value)
        if numbers and all(isinstance(number, float) for number in numbers):
            settings[field.name] = value
    return transform, settings


def as_arrays(name, settings):
    """Return the settings that may be arrays of JAX, as such."""
    arrays = {}
    for field, value in settings.items():
        if (name, field) in UP_TO_A_NUMBER:
            arrays[field] = (jnp.float32(value[0]), value[1])
        elif (name, field) not in OF_A_SHAPE:
            arrays[field] = jax.tree.map(jnp.float32, value)
    return arrays


@pytest.mark.parametrize("name", mostly_slow(NAMES))
def test_traced_settings_give_what_numbers_give_and_have_finite_gradients(name):
    transform, settings = numbers_of(name)
    sample = rows(batch(name), 3)
    del sample["size"]
    sample["image"] = sample["image"].astype(jnp.float32) / 255

    def image_of(transform):
        return transform(KEYS[3], sample)["image"].astype(jnp.float32)

    def total(transform):
        image = image_of(transform)
        return jnp.sum(image * image), image

    traced = dataclasses.replace(transform, **as_arrays(name, settings))
    assert bool(jax.tree.leaves(traced)) == bool(as_arrays(name, settings))
    # Compiled as one: what both compute alike is computed once.
    run = jax.jit(lambda traced: (jax.grad(total, has_aux=True)(traced), image_of(transform)))
    (gradients, image), expected = run(traced)
    np.testing.assert_allclose(image, expected, atol=1e-3)
    assert all(np.isfinite(gradient).all() for gradient in jax.tree.leaves(gradients))


@pytest.mark.parametrize("name, field", sorted([*OF_A_SHAPE, *UP_TO_A_NUMBER]))
def test_settings_that_decide_a_shape_are_not_traced(name, field):
    value = getattr(build(name), field)

    def trace(value):
        build(name, **{field: value})

    with pytest.raises(TypeError, match=rf"`{field}` must .* number"):
        jax.eval_shape(trace, jax.tree.map(jnp.float32, value))


@pytest.mark.parametrize("name", mostly_slow(NAMES))
def test_it_lowers_for_every_accelerator(name):
    sample = rows(batch(name), 3)
    platforms = ("cuda", "rocm", "tpu")
    lowered = export(always(name), platforms)(KEYS[3], sample)
    assert lowered.platforms == platforms


def export(transform, platforms):
    """Return the transform as a program for platforms, where NVRTC is installed with its kernels.

    JAX promises nothing for the call of a kernel in a program that is stored.
    """
    kernels = jax.export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.ptx")
    return jax.export.export(jax.jit(transform), platforms=platforms, disabled_checks=[kernels])


def test_a_program_for_several_platforms_runs_on_this_one():
    """A warp is a kernel on CUDA devices."""
    sample = rows(batch("RandomRotation"), 3)
    program = export(always("RandomRotation"), ("cpu", "cuda", "tpu"))(KEYS[3], sample)
    expected = jax.jit(always("RandomRotation"))(KEYS[3], sample)
    equal(program.call(KEYS[3], sample), expected)


@everything
def test_what_is_drawn_is_arrays(name):
    transform = always(name)
    info = info_of(rows(batch(name), 3))
    leaves = []

    def draw(key):
        leaves.extend(jax.tree.leaves(transform.draw(key, info)))

    jax.eval_shape(draw, KEYS[3])
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)


@everything
def test_gradients_are_finite_and_reach_the_image(name):
    if LAWS == "bits":
        pytest.skip("they compare no bits")
    gradients = np.asarray(results(name)["gradients"])
    assert np.isfinite(gradients).all()
    assert (gradients != 0).any() == CASES[name].gradients
