"""Cropping and resizing transforms: what they read, and what they draw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxaug.augment import CenterCrop, Compose, Info, RandomCrop, RandomResizedCrop, Resize
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
    draw = jax.jit(jax.vmap(lambda key: transform.sample(key, info)))
    return [np.asarray(side) for side in draw(jax.random.split(KEY, count))]


def test_random_resized_crop_equals_pil_on_canvases():
    transform = RandomResizedCrop((14, 18))
    images = [picture(i, h, w) for i, (h, w) in enumerate([(40, 56), (48, 20), (33, 64), (15, 17)])]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[on_canvas(im, rest=255) for im in images])
    keys = jax.random.split(KEY, len(images))
    out = jax.jit(jax.vmap(transform))(keys, batch)
    assert "size" not in out
    drawn = jax.vmap(lambda key, size: transform.sample(jax.random.fold_in(key, 0), Info((48, 64), size)))
    for image, pixels, *box in zip(images, out["image"], *drawn(keys, batch["size"])):
        top, left, height, width = map(int, box)
        assert 0 <= top <= image.shape[0] - height and 0 <= left <= image.shape[1] - width
        window = Image.fromarray(image).crop((left, top, left + width, top + height))
        expected = window.resize((18, 14), Image.Resampling.BILINEAR)
        assert largest_difference(pixels, expected) <= 1


def test_random_resized_crop_draws_area_and_aspect_as_asked():
    top, left, height, width = windows(RandomResizedCrop(8, (0.2, 0.5), (0.5, 2.0)), Info((1000, 1000)))
    area, aspect = height * width / 1e6, width / height
    assert 0.199 < area.min() < 0.21 and 0.49 < area.max() < 0.501  # nothing near is ever refused
    assert abs(area.mean() - 0.35) < 0.01
    assert 0.499 < aspect.min() < 0.51 and 1.96 < aspect.max() < 2.003
    assert abs(np.log(aspect).mean()) < 0.03  # log-uniform: as often wide as tall
    for begin, length in ((top, height), (left, width)):
        place = begin / (1000 - length)
        assert place.min() < 0.01 and place.max() > 0.99 and abs(place.mean() - 0.5) < 0.02
    pairs = np.corrcoef([area, np.log(aspect), top / (1000 - height), left / (1000 - width)])
    assert np.abs(pairs - np.eye(4)).max() < 0.08


@pytest.mark.parametrize("shape, expected", [((10, 400), (10, 13)), ((400, 10), (13, 10)), ((400, 440), (400, 440))])
def test_random_resized_crop_falls_back_to_the_centre(shape, expected):
    top, left, height, width = windows(RandomResizedCrop(8, (1.0, 1.0)), Info(shape), 20)
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


def test_resize_of_plain_images():
    image = picture(1, 40, 57)
    assert run(Resize(16), image).shape == (16, 22, 3)  # int(16 * 57 / 40)
    assert run(Resize((9, 7)), image).shape == (9, 7, 3)
    assert "size" not in run(Resize(16), {"image": image})
    with pytest.raises(ValueError, match=r"give `canvas=\(height, width\)`, or `size=\(16, 16\)`"):
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


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_random_crop_is_a_window_of_the_padded_image(mode):
    image = np.random.default_rng(0).integers(0, 256, (12, 15, 3), dtype=np.uint8)
    transform = RandomCrop((10, 16), padding=(4, 3), fill=0.2 if mode == "constant" else 0.0, padding_mode=mode)
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
    assert {top for top, _ in corners} == set(range(9)) and {left for _, left in corners} == set(range(8))


def test_random_crop_pads_if_needed():
    image = picture(1, 12, 15)
    with pytest.raises(ValueError, match=r"RandomCrop\(20, 10\) does not fit an image of \(12, 15\)"):
        run(RandomCrop((20, 10)), image)
    tops, _, _, _ = windows(RandomCrop((20, 10), pad_if_needed=True), Info((12, 15)), 300)
    assert tops.min() == -8 and tops.max() == 0
    out = np.asarray(run(RandomCrop((20, 10), pad_if_needed=True), image))
    assert (out.reshape(20, -1).any(axis=1)).sum() == 12


def test_crop_then_resize_is_a_resized_crop():
    """The window of an unscaled crop bounds what the resize reads."""
    image = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    chain = Compose([CenterCrop((30, 41)), Resize((7, 9))])
    expected = Image.fromarray(image[5:35, 8:49]).resize((9, 7), Image.Resampling.BILINEAR)
    assert largest_difference(run(chain, image), expected) <= 1
    random = Compose([RandomCrop((30, 41)), Resize((7, 9))])
    fused, separate = run(random, image), run(Compose(random.transforms, fuse=False), image)
    assert largest_difference(fused, separate) <= 1


def test_errors():
    with pytest.raises(ValueError, match=r"`size` must be .height, width., two ints of at least 1, got .0, 0."):
        RandomCrop(0)
    with pytest.raises(ValueError, match=r"`scale` must be a pair .* within \[0.0, 1.0\], got \(0.5, 2\)"):
        RandomResizedCrop(8, scale=(0.5, 2))
    with pytest.raises(ValueError, match=r"share in \(0, 1\], got 1.5"):
        CenterCrop(1.5)
    with pytest.raises(ValueError, match="`padding` must be 1, 2 or 4 ints of at least 0, got -1"):
        RandomCrop(8, padding=-1)
    with pytest.raises(ValueError, match="`canvas` goes with an int `size`"):
        Resize((8, 8), canvas=(9, 9))
