"""Cropping and resizing transforms: what they read, and what they draw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxaug.augment import (
    CenterCrop,
    Compose,
    Grayscale,
    ImageInfo,
    Normalize,
    RandomApply,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    Resize,
)
from jaxaug.augment._warp.interpolate import PADDING_MODES
from tests.images import picture

KEY = jax.random.key(0)


def on_canvas(image, canvas=(48, 64), rest=0):
    """`image` at the top left of a canvas whose unused part is `rest`."""
    pixels = np.full((*canvas, 3), rest, np.uint8)
    pixels[: image.shape[0], : image.shape[1]] = image
    return {"image": jnp.asarray(pixels), "size": jnp.asarray(image.shape[:2], jnp.int32)}


def largest_difference(a, b):
    return np.abs(np.asarray(a, int) - np.asarray(b, int)).max()


def run(transform, sample):
    return jax.jit(transform)(KEY, sample)


def windows(transform, info, count=2000):
    draw = jax.jit(jax.vmap(lambda key: transform.make_params(key, info)))
    return [np.asarray(side) for side in draw(jax.random.split(KEY, count))]


@pytest.mark.parametrize("size", [(14, 18), (41, 33)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_random_resized_crop_equals_pil_on_canvases(interpolation, size):
    transform = RandomResizedCrop(size, interpolation=interpolation)
    shapes = [(40, 56), (48, 20), (33, 64), (15, 17), (48, 64), (9, 63)]
    images = [picture(i, height, width) for i, (height, width) in enumerate(shapes)]
    batch = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *[on_canvas(im, rest=255) for im in images]
    )
    keys = jax.random.split(KEY, len(images))
    out = jax.jit(jax.vmap(transform))(keys, batch)
    assert "size" not in out
    drawn = jax.vmap(
        lambda key, size: transform.make_params(
            jax.random.fold_in(key, 0), ImageInfo((48, 64), size)
        )
    )
    for image, pixels, *box in zip(images, out["image"], *drawn(keys, batch["size"])):
        top, left, height, width = map(int, box)
        assert 0 <= top <= image.shape[0] - height and 0 <= left <= image.shape[1] - width
        window = Image.fromarray(image).crop((left, top, left + width, top + height))
        expected = window.resize(size[::-1], Image.Resampling[interpolation.upper()])
        assert largest_difference(pixels, expected) <= 1


def test_random_resized_crop_draws_area_and_aspect_as_asked():
    top, left, height, width = windows(
        RandomResizedCrop(8, (0.2, 0.5), (0.5, 2.0)), ImageInfo((1000, 1000))
    )
    area = height * width / 1e6
    aspect = width / height
    assert 0.199 < area.min() < 0.21 and 0.49 < area.max() < 0.501  # nothing near is ever refused
    assert abs(area.mean() - 0.35) < 0.01
    assert 0.499 < aspect.min() < 0.51 and 1.96 < aspect.max() < 2.003
    assert abs(np.log(aspect).mean()) < 0.03  # log-uniform: as often wide as tall
    for begin, length in ((top, height), (left, width)):
        place = begin / (1000 - length)
        assert place.min() < 0.01 and place.max() > 0.99 and abs(place.mean() - 0.5) < 0.02
    pairs = np.corrcoef([area, np.log(aspect), top / (1000 - height), left / (1000 - width)])
    assert np.abs(pairs - np.eye(4)).max() < 0.08


@pytest.mark.parametrize(
    "shape, expected", [((10, 400), (10, 13)), ((400, 10), (13, 10)), ((400, 440), (400, 440))]
)
def test_random_resized_crop_falls_back_to_the_center(shape, expected):
    top, left, height, width = windows(RandomResizedCrop(8, (1.0, 1.0)), ImageInfo(shape), 20)
    for side, length in ((height, expected[0]), (width, expected[1])):
        assert (side == length).mean() > 0.9  # one in hundreds fits after all, by rounding
    whole = (height == expected[0]) & (width == expected[1])
    assert (top[whole] == (shape[0] - expected[0]) // 2).all()
    assert (left[whole] == (shape[1] - expected[1]) // 2).all()


def test_resize_of_the_shorter_side_on_a_canvas():
    resize = jax.jit(Resize(16, canvas=(24, 30)))
    for shape in [(40, 56), (47, 33), (20, 60), (48, 64)]:
        image = picture(1, *shape)
        out = resize(KEY, on_canvas(image, rest=255))
        height, width = map(int, out["size"])
        scale = min(16 / min(shape), 24 / shape[0], 30 / shape[1])
        assert abs(height - scale * shape[0]) <= 1 and abs(width - scale * shape[1]) <= 1
        expected = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(out["image"])
        assert largest_difference(pixels[:height, :width], expected) <= 1
        assert not pixels[height:].any() and not pixels[:, width:].any()


def test_a_shorter_side_beyond_every_canvas_fills_it():
    """Also where its product with the other side does not fit an int32."""
    sample = on_canvas(picture(1, 40, 60))
    for shorter in (30, 10**8, 2**31 - 1):
        out = run(Resize(shorter, canvas=(24, 30)), sample)
        assert out["size"].tolist() == [20, 30]
        np.testing.assert_array_equal(
            out["image"], run(Resize(29, canvas=(24, 30)), sample)["image"]
        )


def test_resize_of_plain_images():
    image = picture(1, 40, 57)
    assert run(Resize(16), image).shape == (16, 22, 3)  # int(16 * 57 / 40)
    assert run(Resize((9, 7)), image).shape == (9, 7, 3)
    assert "size" not in run(Resize(16), {"image": image})
    with pytest.raises(ValueError, match=r"Resize keeps .* give Resize `canvas=\(height, width\)`"):
        run(Resize(16), on_canvas(image))


def test_center_crop_on_a_canvas_equals_that_of_the_image():
    crop = jax.jit(CenterCrop(20))
    for shape in [(40, 56), (10, 56), (9, 13), (20, 20)]:
        image = picture(1, *shape)
        out = crop(KEY, on_canvas(image, rest=255))
        np.testing.assert_array_equal(out["image"], crop(KEY, image))
        assert "size" not in out


def test_center_crop_by_share():
    image = picture(1, 40, 57)
    out = run(CenterCrop(0.5), on_canvas(image, rest=255))
    assert out["image"].shape == (24, 32, 3) and out["size"].tolist() == [20, 28]
    np.testing.assert_array_equal(out["image"][:20, :28], image[10:30, 14:42])
    np.testing.assert_array_equal(run(CenterCrop(0.5), image), image[10:30, 14:42])


def test_a_share_of_few_pixels_is_at_least_one():
    image = picture(1, 3, 20)
    out = run(CenterCrop(0.1), on_canvas(image, rest=255))
    assert out["size"].tolist() == [1, 2]
    np.testing.assert_array_equal(out["image"][:1, :2], image[1:2, 9:11])
    np.testing.assert_array_equal(run(CenterCrop(0.1), image), image[1:2, 9:11])


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_random_crop_is_a_window_of_the_padded_image(mode):
    image = np.random.default_rng(0).integers(0, 256, (12, 15, 3), dtype=np.uint8)
    transform = RandomCrop(
        (10, 16), padding=(4, 3), fill=0.2 if mode == "constant" else 0.0, padding_mode=mode
    )
    options = {"constant_values": 51} if mode == "constant" else {}
    padded = np.pad(image, ((3, 3), (4, 4), (0, 0)), mode, **options)
    keys = jax.random.split(KEY, 40)
    plain = jax.jit(jax.vmap(transform, (0, None)))(keys, image)
    canvas = jax.jit(jax.vmap(transform, (0, None)))(keys, on_canvas(image, rest=255))["image"]
    np.testing.assert_array_equal(plain, canvas)
    corners = set()
    for crop in np.asarray(plain):
        found = [
            (top, left)
            for top in range(9)
            for left in range(8)
            if (padded[top : top + 10, left : left + 16] == crop).all()
        ]
        assert found
        corners.add(found[0])
    assert {top for top, _ in corners} == set(range(9)) and {left for _, left in corners} == set(
        range(8)
    )


def test_random_crop_pads_if_needed():
    image = picture(1, 12, 15)
    with pytest.raises(
        ValueError, match=r"RandomCrop\(20, 10\) does not fit an image of \(12, 15\)"
    ):
        run(RandomCrop((20, 10)), image)
    tops, _, _, _ = windows(RandomCrop((20, 10), pad_if_needed=True), ImageInfo((12, 15)), 300)
    assert tops.min() == -8 and tops.max() == 0
    out = np.asarray(run(RandomCrop((20, 10), pad_if_needed=True), image))
    assert (out.reshape(20, -1).any(axis=1)).sum() == 12


def test_a_canvas_too_small_for_every_window_is_refused():
    """That of smaller images on a larger canvas is known when it runs: they are padded."""
    image = picture(0, 30, 40)
    sample = {"image": jnp.asarray(image), "size": jnp.array([20, 25], jnp.int32)}
    with pytest.raises(
        ValueError, match=r"not fit any image on a canvas of \(30, 40\): .*`canvas`"
    ):
        jax.eval_shape(RandomCrop((10, 41)), KEY, sample)
    for fits in (RandomCrop(41, pad_if_needed=True), RandomCrop(42, padding=6), RandomCrop(30)):
        assert jax.eval_shape(fits, KEY, sample)["image"].shape[:2] == fits.size
    shapeless = Compose([Resize(50), RandomCrop(45)])
    assert jax.eval_shape(shapeless, KEY, sample)["image"].shape == (45, 45, 3)
    out = np.asarray(jax.jit(RandomCrop(28))(KEY, sample)["image"])
    rows, columns = np.nonzero(out.any(axis=2))
    assert (np.ptp(rows) + 1, np.ptp(columns) + 1) == (20, 25)


def test_crop_then_resize_is_a_resized_crop():
    """The window of an unscaled crop bounds what the resize reads."""
    image = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    chain = Compose([CenterCrop((30, 41)), Resize((7, 9))])
    expected = Image.fromarray(image[5:35, 8:49]).resize((9, 7), Image.Resampling.BILINEAR)
    assert largest_difference(run(chain, image), expected) <= 1
    random = Compose([RandomCrop((30, 41)), Resize((7, 9))])
    fused = run(random, image)
    separate = run(Compose(random.transforms, fuse=False), image)
    assert largest_difference(fused, separate) <= 1


@pytest.mark.parametrize(
    "mode, target",
    [*((mode, (19, 23)) for mode in PADDING_MODES), ("constant", (70, 70)), ("reflect", (70, 70))],
)
def test_a_padded_crop_then_a_resize_equals_its_parts(mode, target):
    noise = np.random.default_rng(0).uniform(0, 1, (40, 56, 3)).astype(np.float32)
    chain = (RandomCrop(48, padding=8, padding_mode=mode, fill=0.3), Resize(target))
    fused, separate = (run(Compose(chain, fuse=fuse), noise) for fuse in (True, False))
    np.testing.assert_allclose(fused, separate, atol=1e-5)


@pytest.mark.parametrize("target", [(20, 28), (57, 70)])
def test_a_resize_then_a_crop_beyond_it_equals_its_parts(target):
    """Also around the resized image: filled from its edge on, as sharply as a crop does."""
    noise = np.random.default_rng(0).uniform(0.2, 1, (40, 56, 3)).astype(np.float32)
    chain = (Resize(target), RandomCrop(80, padding=8, pad_if_needed=True, fill=0.6))
    fused, separate = (run(Compose(chain, fuse=fuse), noise) for fuse in (True, False))
    np.testing.assert_allclose(fused, separate, atol=2e-5)
    filled = np.abs(np.asarray(fused) - 0.6).max(axis=2) < 1e-5
    assert filled.sum() == 80 * 80 - target[0] * target[1]


@pytest.mark.parametrize("mode", ["constant", "reflect", "wrap"])
def test_a_resize_before_a_turn_that_is_not_applied_is_the_resize(mode):
    noise = np.random.default_rng(0).uniform(0, 1, (40, 56, 3)).astype(np.float32)
    turn = RandomRotation(20, p=0.0, padding_mode=mode)
    expected = run(Resize((15, 21)), noise)
    np.testing.assert_allclose(run(Compose([Resize((15, 21)), turn]), noise), expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["wrap", "reflect", "symmetric", "edge"])
def test_padding_never_reads_the_unused_canvas(mode):
    """Every length on one canvas, in one program."""
    lengths = np.arange(1, 104)
    canvas = np.full((len(lengths), 2, 128, 3), 255, np.uint8)
    for row, length in enumerate(lengths):
        canvas[row, :, :length] = np.arange(length)[None, :, None]
    sizes = np.stack([np.full_like(lengths, 2), lengths], axis=1).astype(np.int32)
    crop = RandomCrop((2, 300), padding=(100, 0), pad_if_needed=True, padding_mode=mode)
    keys = jax.random.split(KEY, len(lengths))
    out = jax.jit(jax.vmap(crop))(keys, {"image": canvas, "size": sizes})["image"]
    place = jax.vmap(
        lambda key, size: (
            crop.make_params(jax.random.fold_in(key, 0), ImageInfo((2, 128), size)).left
        )
    )
    for length, left, pixels in zip(lengths, np.asarray(place(keys, sizes)), np.asarray(out)):
        padded = np.pad(np.arange(length), 400, mode)
        np.testing.assert_array_equal(pixels[0, :, 0], padded[400 + left : 700 + left])


SIZES = [
    (375, 500),
    (500, 333),
    (188, 500),
    (500, 188),
    (10, 13),
    (300, 301),
    (512, 512),
    (224, 260),
]


def torchvision_crop(image, shorter, size):
    """Resize of the shorter side, then the central crop, by PIL and torchvision's rounding."""
    height, width = image.shape[:2]
    short = min(height, width)
    height, width = shorter * height // short, shorter * width // short
    resized = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    top = round((height - size) / 2)
    left = round((width - size) / 2)
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def test_the_evaluation_chain_needs_no_canvas():
    images = [picture(i, h, w) for i, (h, w) in enumerate(SIZES)]
    batch = [on_canvas(image, (512, 512), rest=255) for image in images]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batch)
    chain = Compose([Resize(256), CenterCrop(224), Normalize(0.5, 0.5)])
    out = jax.jit(jax.vmap(chain))(jax.random.split(KEY, len(images)), batch)
    assert out["image"].shape == (len(images), 224, 224, 3) and "size" not in out
    for image, pixels in zip(images, np.asarray(out["image"])):
        difference = np.abs((pixels * 0.5 + 0.5) * 255 - torchvision_crop(image, 256, 224))
        assert difference.mean() < 0.6 and difference.max() < 2  # PIL rounds to whole levels, twice


@pytest.mark.parametrize(
    "chain, canvas",
    [
        ((Resize(20), RandomHorizontalFlip(1.0), CenterCrop(0.5), Resize((9, 12))), None),
        ((Resize(24), Resize(12), RandomCrop(12)), None),
        ((Resize(20), RandomResizedCrop(10, (0.3, 0.6))), None),
        ((Resize(20), Resize(10, canvas=(20, 24))), (20, 24)),
    ],
)
def test_frames_without_a_static_shape_are_read_right(chain, canvas):
    """On a canvas, with the shape of the image traced, as for the image itself."""
    image = picture(3, 41, 62)
    expected = run(Compose(chain), image)
    out = run(Compose(chain), on_canvas(image, (64, 128), rest=255))
    assert ("size" in out) == (canvas is not None)
    assert largest_difference(out["image"], expected) <= 1


def test_a_run_without_a_static_shape_is_refused():
    sample = on_canvas(picture(1, 40, 57))
    message = "keeps the aspect .* let an op of fixed size such as CenterCrop follow"
    for name, chain in (
        ("Resize", Resize(16)),
        ("Resize", Compose([Resize(16), RandomHorizontalFlip()])),
        ("Resize", Compose([Resize(16), Grayscale(), CenterCrop(9)])),
        ("Resize", Compose([Resize(16), CenterCrop(9)], fuse=False)),
        ("RandomApply", Compose([RandomApply([Resize(16)], p=1.0), Grayscale()])),
    ):
        with pytest.raises(ValueError, match=f"^{name} {message}"):
            jax.eval_shape(chain, KEY, sample)


def test_errors():
    with pytest.raises(
        ValueError,
        match=r"`size` must be .height, width., two ints of at least 1, or one int, got 0",
    ):
        RandomCrop(0)
    with pytest.raises(
        ValueError, match=r"`scale` must be a pair .* within \[0.0, 1.0\], got \(0.5, 2\)"
    ):
        RandomResizedCrop(8, scale=(0.5, 2))
    with pytest.raises(ValueError, match=r"share in \(0, 1\], got 1.5"):
        CenterCrop(1.5)
    with pytest.raises(ValueError, match="`padding` must be 1, 2 or 4 ints of at least 0, got -1"):
        RandomCrop(8, padding=-1)
    with pytest.raises(ValueError, match="`canvas` goes with an int `size`"):
        Resize((8, 8), canvas=(9, 9))
