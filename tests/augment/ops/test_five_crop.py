"""Five and ten crops, against slices of NumPy as torchvision takes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from tests.images import picture

KEY = jax.random.key(0)


def five(pixels, height, width):
    """Return torchvision's five windows of [H, W, C]."""
    bottom, right = pixels.shape[0] - height, pixels.shape[1] - width
    middle = (round(bottom / 2), round(right / 2))
    corners = [(0, 0), (0, right), (bottom, 0), (bottom, right), middle]
    return np.stack([pixels[y : y + height, x : x + width] for y, x in corners])


@pytest.mark.parametrize("size", [(5, 8), (4, 7), (12, 17), (1, 1)])
def test_five_crops(size):
    pixels = picture(0, 12, 17)
    out = jax.jit(augment.FiveCrop(size))(KEY, {"image": pixels, "label": 3})
    assert sorted(out) == ["crops", "label"]
    np.testing.assert_array_equal(out["crops"], five(pixels, *size))


@pytest.mark.parametrize("vertical", [False, True])
def test_ten_crops(vertical):
    pixels = picture(1, 12, 17)
    mirrored = pixels[::-1] if vertical else pixels[:, ::-1]
    expected = np.concatenate([five(pixels, 5, 5), five(mirrored, 5, 5)])
    np.testing.assert_array_equal(augment.TenCrop(5, vertical)(KEY, pixels)["crops"], expected)


def test_crops_of_the_used_part_of_a_canvas():
    pixels = np.full((20, 24, 3), 200, np.uint8)
    pixels[:12, :17] = picture(0, 12, 17)
    sample = {"image": pixels, "size": jnp.array([12, 17], jnp.int32)}
    out = augment.TenCrop((4, 6))(KEY, sample)
    part = pixels[:12, :17]
    expected = np.concatenate([five(part, 4, 6), five(part[:, ::-1], 4, 6)])
    assert sorted(out) == ["crops"]
    np.testing.assert_array_equal(out["crops"], expected)


def test_all_crops_have_the_draws_of_one_image():
    pixels = np.full((12, 17, 3), 90, np.uint8)
    crops = augment.TenCrop(
        5, before=[augment.ColorJitter(0.5)], after=[augment.RandomGamma(), augment.ToFloat()]
    )
    out = np.asarray(crops(KEY, pixels)["crops"])
    assert out.dtype == np.float32 and out[0, 0, 0, 0] != 90 / 255
    np.testing.assert_allclose(out, out[0, 0, 0, 0], atol=1e-6)


def test_a_resize_before_is_that_of_the_whole_image():
    pixels = picture(2, 30, 44)
    whole = np.asarray(augment.Resize(12)(KEY, pixels))
    out = np.asarray(augment.FiveCrop(9, before=[augment.Resize(12)])(KEY, pixels)["crops"])
    assert np.abs(out.astype(int) - five(whole, 9, 9)).max() <= 1


def test_what_crops_refuse():
    pixels = picture(0, 12, 17)
    with pytest.raises(ValueError, match=r"`size` must be at most \(12, 17\).* got \(13, 4\)"):
        augment.FiveCrop((13, 4))(KEY, pixels)
    with pytest.raises(ValueError, match="TenCrop takes images alone, got 'boxes' beside"):
        augment.TenCrop(4)(KEY, {"image": pixels, "boxes": jnp.zeros((1, 4))})
    with pytest.raises(ValueError, match="an entry 'crops'"):
        augment.FiveCrop(4)(KEY, {"image": pixels, "crops": 1})
    with pytest.raises(TypeError, match="`before` holds the class Resize"):
        augment.FiveCrop(4, before=[augment.Resize])
    with pytest.raises(TypeError, match="`after` must be a sequence of transforms"):
        augment.FiveCrop(4, after=augment.ToFloat())
    with pytest.raises(ValueError, match="`vertical_flip` must be"):
        augment.TenCrop(4, vertical_flip=2)
    resized = augment.FiveCrop(4, after=[augment.Pad(1)])(KEY, pixels)
    assert resized["crops"].shape == (5, 6, 6, 3)
