"""Raw images, spaces of color and anchors against OpenCV, Pillow and loops."""

import cv2
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxaug.augment import functional
from tests.images import picture

PIXELS = picture(0, 24, 32)
OPENCV = {"rggb": "BG", "bggr": "RG", "grbg": "GB", "gbrg": "GR"}


@pytest.mark.parametrize("pattern", sorted(OPENCV))
def test_debayer_is_opencvs_inside(pattern):
    raw = PIXELS[:, :, 0]
    code = getattr(cv2, f"COLOR_BAYER_{OPENCV[pattern]}2RGB")
    wanted = cv2.cvtColor(raw, code)
    out = functional.debayer(raw[:, :, None].astype(np.float32) / 255, pattern)
    difference = np.abs(np.asarray(out) * 255 - wanted)[1:-1, 1:-1]
    assert difference.max() <= 0.76  # OpenCV rounds


def test_colors_are_pillows():
    image = PIXELS.astype(np.float32) / 255
    out = functional.convert_color_space(image, "rgb", "ycbcr")
    wanted = np.asarray(Image.fromarray(PIXELS).convert("YCbCr")).astype(float)
    shift = np.array([0, 0.5, 0.5])  # 128 stands for 1/2
    assert np.abs((np.asarray(out) - shift) * 255 + shift * 256 - wanted).max() <= 1
    back = functional.convert_color_space(out, "ycbcr", "rgb")
    np.testing.assert_allclose(back, image, atol=1e-5)
    np.testing.assert_array_equal(
        functional.convert_color_space(image, "rgb", "bgr"), image[:, :, ::-1]
    )
    assert functional.convert_color_space(image, "bgr", "gray").shape == (24, 32, 1)


def test_boxes_are_encoded_as_by_a_loop():
    random = np.random.default_rng(2)
    low = random.uniform(0, 60, (40, 2))
    anchors = np.concatenate([low, low + random.uniform(5, 40, (40, 2))], axis=1)
    boxes = np.concatenate([anchors[[3, 17]] + 2, np.zeros((1, 4))])
    labels = np.array([4, 0, -1])
    offsets, found = functional.encode_boxes(
        jnp.asarray(boxes, jnp.float32), jnp.asarray(labels), anchors
    )

    def overlap(a, b):
        sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
        common = np.prod(np.maximum(sides, 0))
        return common / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - common)

    shares = np.array([[overlap(box, anchor) for anchor in anchors] for box in boxes[:2]])
    for number, anchor in enumerate(anchors):
        best = int(shares[:, number].argmax())
        forced = [row for row in range(2) if shares[row].argmax() == number]
        best = forced[-1] if forced else best
        if not forced and shares[best, number] <= 0.5:
            assert found[number] == 0 and not np.asarray(offsets[number]).any()
            continue
        assert found[number] == labels[best] + 1
        side, own = boxes[best, 2:] - boxes[best, :2], anchor[2:] - anchor[:2]
        moved = ((boxes[best, 2:] + boxes[best, :2]) - (anchor[2:] + anchor[:2])) / 2 / own / 0.1
        wanted = [*moved, *(np.log(side / own) / 0.2)]
        np.testing.assert_allclose(offsets[number], wanted, rtol=1e-4, atol=1e-4)
    assert (np.asarray(found) > 0).sum() >= 2


@pytest.mark.parametrize("source", ["rgb", "bgr", "gray", "ycbcr"])
def test_images_of_other_channels_are_refused(source):
    for target, channels in (("rgb", 4), ("ycbcr", 13), (source, 2)):
        with pytest.raises(ValueError, match=f"`image` in {source!r} must be"):
            functional.convert_color_space(np.zeros((2, 2, channels), np.float32), source, target)


def test_boxes_that_fit_no_anchor_have_none_and_the_last_of_two_has_theirs():
    anchors = np.float32([[0, 0, 4, 4], [10, 10, 20, 20]])
    none = functional.encode_boxes(jnp.zeros((0, 4)), jnp.zeros(0, jnp.int32), anchors)
    assert not np.asarray(none[0]).any() and none[1].tolist() == [0, 0]
    far_or_flat = np.float32([[0, 0, 4, 4], [50, 50, 60, 60], [11, 11, 11, 15]])
    offsets, found = functional.encode_boxes(far_or_flat, np.arange(3), anchors)
    assert found.tolist() == [1, 0] and not np.asarray(offsets).any()
    both = functional.encode_boxes(anchors[[1, 1, 1]], np.arange(3), anchors)[1]
    assert both.tolist() == [0, 3]
