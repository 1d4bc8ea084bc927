"""Masks, boxes and keypoints lie on the canvas as their images do: turned, shrunk, filled."""

import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageOps

from jaxaug import Decoder, Loader, augment, decode
from jaxaug.decode import Image as Images
from jaxaug.decode import Mask, Ragged
from jaxaug.decode._mask import place_mask
from jaxaug.iterators import InMemory
from tests.images import encode, jpegs, picture
from tests.iterators.loaders import one_device, threads


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def oriented(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Pillow's own idea of upright."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", exif=exif(orientation))
    return np.asarray(ImageOps.exif_transpose(Image.open(file)))


def expected_mask(mask, orientation, size, canvas, fill):
    upright = oriented(mask, orientation)
    shrunk = np.asarray(Image.fromarray(upright).resize(size[::-1], Image.Resampling.NEAREST))
    placed = np.full(canvas, fill, mask.dtype)
    placed[: size[0], : size[1]] = shrunk
    return placed


def one_batch(images, features, **options):
    with Loader(
        InMemory(images, features), len(images), shuffle=False, sharding=one_device(), **options
    ) as loader:
        batch = next(loader)
        assert loader.element_spec["mask"].shape == batch["mask"].shape
        return {name: np.asarray(array) for name, array in batch.items()}


@pytest.mark.parametrize("canvas", [(60, 90), (80, 80), (24, 40), (17, 19)])
def test_masks_follow_exif_and_shrinking_as_pillow_does(canvas):
    rng = np.random.default_rng(0)
    masks = rng.integers(0, 7, (8, 60, 70), np.uint8)
    images = [encode(picture(i, 45, 61), exif=exif(i + 1)) for i in range(8)]
    batch = one_batch(images, {"mask": masks}, decode=Images(canvas=canvas))
    assert batch["mask"].shape == (8, *canvas) and batch["mask"].dtype == np.uint8
    for row in range(8):
        size = tuple(batch["size"][row].tolist())
        expected = expected_mask(masks[row, :45, :61], row + 1, size, canvas, 255)
        np.testing.assert_array_equal(batch["mask"][row], expected)


@pytest.mark.parametrize("canvas", [(60, 90), (24, 40), (17, 19)])
@pytest.mark.parametrize("encoded", [False, True])
def test_masks_of_instances_follow_exif_and_shrinking_too(canvas, encoded):
    masks = np.random.default_rng(0).integers(0, 2, (8, 3, 60, 70), np.uint8)
    images = [encode(picture(i, 45, 61), exif=exif(i + 1)) for i in range(8)]
    classes = [encode(mask[1, :45, :61], "PNG") for mask in masks] if encoded else None
    source = InMemory(images, {"masks": masks}, masks=classes)
    options = {"shuffle": False, "sharding": one_device()}
    columns = {"image": Images(canvas=canvas)} | ({"mask": Mask(fill=0)} if encoded else {})
    with Loader(source, 8, decode=columns, **options) as loader:
        batch = jax.device_get(next(loader))
        assert loader.element_spec["masks"].shape == batch["masks"].shape == (8, 3, *canvas)
    for row in range(8):
        size = tuple(batch["size"][row].tolist())
        for plane, mask in zip(batch["masks"][row], masks[row]):
            expected = expected_mask(mask[:45, :61], row + 1, size, canvas, 0)
            np.testing.assert_array_equal(plane, expected)
        if encoded:
            np.testing.assert_array_equal(batch["mask"][row], batch["masks"][row, 1])


def test_masks_of_instances_smaller_than_their_image_are_named():
    source = InMemory(jpegs(4), {"masks": np.zeros((4, 2, 28, 28), np.bool_)})
    with Loader(source, 4, shuffle=False, sharding=one_device()) as loader:
        with pytest.raises(ValueError, match=r"'masks' must be at least .* 40 x 56 .* got 28 x 28"):
            next(loader)


@pytest.mark.parametrize("shape", [(), (5,), (5, 6)])
def test_what_else_is_called_masks_stays(shape):
    column = np.random.default_rng(0).integers(0, 2, (4, *shape), np.uint8)
    source = InMemory(jpegs(4), {"masks": column})
    with Loader(source, 4, shuffle=False, sharding=one_device()) as loader:
        np.testing.assert_array_equal(next(loader)["masks"], column)


def test_the_mask_of_an_image_is_on_its_pixels():
    """A picture whose mask is its own brightness: both are shrunk and turned alike."""
    half = np.zeros((96, 64, 3), np.uint8)
    half[48:, 32:] = 255
    images = [encode(half, quality=95, exif=exif(orientation)) for orientation in range(1, 9)]
    masks = np.repeat((half[None, ..., 0] > 128).astype(np.int32), 8, 0)
    batch = one_batch(images, {"mask": masks}, decode=Images(canvas=(48, 48)))
    inside = batch["mask"] != 255
    agreement = (batch["image"][..., 0] > 128) == (batch["mask"] == 1)
    assert agreement[inside].mean() > 0.98
    assert inside.sum() == 8 * 48 * 32


@pytest.mark.parametrize(
    "dtype, fill, expected",
    [
        (np.uint8, 255, 255),
        (np.uint8, 0, 0),
        (np.int32, -1, -1),
        (np.int64, 255, 255),
        (np.bool_, 255, False),
        (np.float32, 255, 0.0),
    ],
)
def test_what_lies_outside_is_filled_by_dtype(dtype, fill, expected):
    images = [encode(picture(0, 20, 30)), encode(picture(1, 30, 20))]
    masks = np.ones((2, 30, 30, 2), dtype)
    batch = one_batch(
        images, {"mask": masks}, decode={"image": Images(canvas=(32, 32)), "mask": Mask(fill=fill)}
    )
    for row, (height, width) in enumerate([(20, 30), (30, 20)]):
        inside = np.zeros((32, 32), bool)
        inside[:height, :width] = True
        assert (batch["mask"][row][inside] == 1).all()
        assert (batch["mask"][row][~inside] == expected).all()


def test_a_fill_that_the_dtype_cannot_hold_is_refused():
    source = InMemory(jpegs(2), {"mask": np.ones((2, 40, 56), np.int8)})
    with pytest.raises(
        ValueError, match=r"`fill` of Mask must fit the mask's int8, -128 to 127, got 255"
    ):
        Loader(source, 2, sharding=one_device())
    Loader(source, 2, decode={"mask": Mask(fill=-1)}, sharding=one_device()).close()
    with pytest.raises(ValueError, match="`fill` must be an int"):
        Mask(fill=0.5)


def test_a_mask_smaller_than_its_stored_image_is_named():
    images = [encode(picture(0, 20, 30)), encode(picture(1, 30, 20), exif=exif(6))]
    masks = np.ones((2, 20, 30), np.uint8)  # as the files are stored the second is 30 x 20
    source = InMemory(images, {"mask": masks})
    with Loader(
        source, 2, shuffle=False, decode=Images(canvas=(32, 32)), sharding=one_device()
    ) as loader:
        with pytest.raises(
            ValueError,
            match=r"'mask' must be at least as large.*30 x 20 pixels in record 1, got 20 x 30",
        ):
            next(loader)


@pytest.mark.parametrize("shape", [(2, 40), (2,), (2, 3, 40, 56, 1)])
def test_masks_of_impossible_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"feature 'mask' must be \[n, height, width\]"):
        Loader(InMemory(jpegs(2), {"mask": np.ones(shape)}), 2, sharding=one_device())


def test_rows_that_are_not_valid_hold_the_fill():
    source = InMemory([*jpegs(1), b"no image"], {"mask": np.ones((2, 40, 56), np.uint8)})
    options = {"on_error": "mask", "last_batch": "pad", "shuffle": False, "sharding": one_device()}
    for transform in (None, lambda key, sample: dict(sample)):
        for canvas in ((40, 56), (64, 64)):  # the second is larger than the masks
            with Loader(
                source, 4, transform=transform, decode=Images(canvas=canvas), **options
            ) as loader:
                mask = np.asarray(next(loader)["mask"])
            assert (mask[0, :40, :56] == 1).all() and (mask == 1).sum() == 40 * 56
            assert (mask[1:] == 255).all()


def test_masks_reach_the_transform_on_the_canvas():
    masks = np.zeros((4, 80, 112), np.uint8)
    masks[:, 40:, 56:] = 1
    images = [encode(picture(i, 80, 112)) for i in range(4)]
    flip = augment.Compose([augment.RandomHorizontalFlip(1.0)])
    batch = one_batch(images, {"mask": masks}, decode=Images(canvas=(40, 56)), transform=flip)
    assert batch["mask"].shape == (4, 40, 56)
    assert (batch["mask"][:, 20:, :28] == 1).all() and batch["mask"].mean() == 0.25


def test_pixel_sources_have_masks_too():
    pixels = np.zeros((2, 10, 12, 3), np.uint8)
    masks = np.arange(2 * 12 * 12, dtype=np.int32).reshape(2, 12, 12)
    batch = one_batch(pixels, {"mask": masks})
    np.testing.assert_array_equal(batch["mask"], masks[:, :10, :12])
    with pytest.raises(ValueError, match="at least as large as its image, 10 x 12"):
        Loader(InMemory(pixels, {"mask": masks[:, :9]}), 2, sharding=one_device())


def test_boxes_that_are_padding_rows_stay():
    boxes = np.zeros((2, 3, 4), np.float32)
    boxes[0, 0] = [10, 5, 20, 15]
    images = [encode(picture(i, 40, 80), exif=exif(3)) for i in range(2)]
    with Loader(
        InMemory(images, {"boxes": boxes}),
        2,
        decode=Images(canvas=(20, 40)),
        shuffle=False,
        sharding=one_device(),
    ) as loader:
        found = np.asarray(next(loader)["boxes"])
    np.testing.assert_allclose(found[0, 0], [30, 12.5, 35, 17.5])
    assert not found[0, 1:].any() and not found[1].any()


def test_nearest_is_exact_where_floats_would_round():
    """Pixel centers that fall on a pixel's edge: 3 of 7 and large sides."""
    for original, size in [(7, 3), (65535, 16383), (4000, 512), (513, 512), (1, 1)]:
        mask = jnp.arange(original, dtype=jnp.int32)[None, :]
        placed = place_mask(
            mask,
            size=jnp.array([1, size]),
            original_size=jnp.array([1, original]),
            orientation=jnp.uint8(1),
            canvas=(1, size),
            fill=-1,
        )
        exact = [(2 * i + 1) * original // (2 * size) for i in range(size)]
        np.testing.assert_array_equal(np.asarray(placed)[0], exact)


def test_boxes_follow_exif_and_shrinking():
    boxes = np.array([[[10.0, 4.0, 30.0, 12.0]]])
    image = encode(
        picture(0, 40, 80),
        exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0",
    )
    source = InMemory([image], {"boxes": boxes})
    with Decoder((40, 40), devices=jax.devices("cpu")[:1]) as decoder:
        with Loader(source, 1, decode=decoder, sharding=one_device()) as loader:
            batch = next(loader)
    assert batch["size"].tolist() == [[40, 20]]  # 80 x 40 stands upright as 40 x 80, shrunk by 2
    np.testing.assert_allclose(batch["boxes"][0, 0], [(40 - 12) / 2, 10 / 2, (40 - 4) / 2, 30 / 2])


@pytest.mark.parametrize(
    "name, shape, k",
    [
        ("boxes", (12,), 3),  # as TFRecord has them
        ("boxes", (3, 4), 3),
        ("boxes", (4,), 1),
        ("boxes", (0, 4), 0),
        ("keypoints", (6,), 3),
        ("keypoints", (3, 2), 3),
        ("keypoints", (2,), 1),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_element_spec_of_boxes_and_keypoints_is_what_comes(name, shape, k, dtype):
    numbers = np.random.default_rng(0).integers(0, 40, (4, k, 2)).astype(dtype)
    if name == "boxes":
        numbers = np.concatenate([numbers, numbers + 1], axis=-1)
    source = InMemory(jpegs(4), {name: numbers.reshape(4, *shape)})
    with Loader(source, 4, shuffle=False, sharding=one_device()) as loader:
        spec = loader.element_spec[name]
        batch = next(loader)[name]
    assert (
        (spec.shape, spec.dtype)
        == (batch.shape, batch.dtype)
        == ((4, k, numbers.shape[2]), np.float32)
    )
    np.testing.assert_array_equal(batch, numbers)  # upright and not shrunk


@pytest.mark.parametrize(
    "name, shape",
    [("boxes", (5,)), ("boxes", (4, 3)), ("boxes", ()), ("boxes", (1, 3, 4))]
    + [("keypoints", (3,)), ("keypoints", (5, 4)), ("keypoints", (2, 5, 4))],
)
def test_boxes_and_keypoints_of_impossible_shapes_are_refused(name, shape):
    source = InMemory(jpegs(4), {name: np.zeros((4, *shape))})
    with pytest.raises(
        ValueError,
        match=rf"feature '{name}' must have \d numbers.*got {re.escape(str([1, *shape]))}",
    ):
        Loader(source, 4, sharding=one_device())
    assert threads() == []


def test_the_length_of_flat_boxes_is_one_of_boxes():
    """As sources of lists of numbers have them: flat, and counted by their numbers."""
    boxes = np.float32([[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 0, 0, 0, 0]])
    points = np.float32([[1, 2, 3, 4], [1, 2, 0, 0]])
    features = {"boxes": Ragged.from_padded(boxes, np.array([8, 4]))}
    features["keypoints"] = Ragged.from_padded(points, np.array([4, 2]))
    with Loader(
        InMemory(jpegs(2), features),
        2,
        shuffle=False,
        sharding=one_device(),
        decode=Images(canvas=(40, 56)),
    ) as loader:
        batch = next(loader)
    assert batch["boxes"].shape == (2, 2, 4) and batch["boxes_length"].tolist() == [2, 1]
    assert batch["keypoints"].shape == (2, 2, 2) and batch["keypoints_length"].tolist() == [2, 1]

    features["boxes"] = Ragged.from_padded(boxes, np.array([8, 6]))
    with Loader(InMemory(jpegs(2), features), 2, shuffle=False, sharding=one_device()) as loader:
        with pytest.raises(ValueError, match=r"'boxes' must have 4 numbers .* with 6 in all"):
            next(loader)
    whole = {"boxes": Ragged.from_padded(boxes.reshape(2, 2, 4), np.array([2, 1]))}
    with Loader(InMemory(jpegs(2), whole), 2, shuffle=False, sharding=one_device()) as loader:
        assert next(loader)["boxes_length"].tolist() == [2, 1]


def test_the_original_size_is_that_of_the_upright_image():
    images = [
        encode(picture(0, 120, 90)),
        encode(picture(1, 40, 60), exif=exif(6)),
        encode(picture(2, 20, 30)),
        b"no image",
    ]
    chain = augment.Compose([augment.CenterCrop(16), augment.ToFloat()])
    options = {
        "decode": decode.Image(canvas=(60, 60)),
        "transform": chain,
        "on_error": "mask",
        "shuffle": False,
    }
    with Loader(InMemory(images), 4, sharding=one_device(), **options) as loader:
        with pytest.warns(UserWarning, match="could not be decoded"):
            batch = next(loader)

    assert batch["original_size"].tolist() == [[120, 90], [60, 40], [20, 30], [0, 0]]
    assert "size" not in batch  # the crop has given all images one
