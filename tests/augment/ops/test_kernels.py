"""functional's kernels of boxes, keypoints, masks and videos, under torchvision's names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug.augment import functional
from tests.images import picture

SIZE = (12, 16)
# Of torchvision 0.29, transforms.v2.functional; those that are missing are not of geometry.
MAPS = (
    "affine center_crop crop elastic horizontal_flip pad perspective resize resized_crop rotate"
    " vertical_flip"
)
PIXELS = (
    "adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_saturation adjust_sharpness"
    " autocontrast equalize erase gaussian_blur invert jpeg normalize permute_channels posterize"
    " solarize"
)
SQUARE = np.float32([[0, 0], [16, 0], [16, 12], [0, 12]])
ARGUMENTS = {
    "affine": (20.0,),
    "center_crop": ((8, 10),),
    "crop": (2, 3, 7, 9),
    "elastic": (np.full((*SIZE, 2), 2, np.float32),),
    "horizontal_flip": (),
    "pad": ((1, 2, 3, 4),),
    "perspective": (SQUARE, SQUARE * 0.75 + 1),
    "resize": ((6, 20),),
    "resized_crop": (2, 3, 7, 9, (5, 6)),
    "rotate": (30.0,),
    "vertical_flip": (),
}


def test_names_are_torchvisions():
    for name in MAPS.split():
        for kind in ("bounding_boxes", "keypoints", "mask", "video"):
            kernel = getattr(functional, f"{name}_{kind}")
            assert kernel.__name__ == f"{name}_{kind}"
            assert f"functional.{name}" in kernel.__doc__
    for name in PIXELS.split():
        assert callable(getattr(functional, f"{name}_video"))
    with pytest.raises(AttributeError, match="no attribute 'resize_sound'"):
        functional.resize_sound  # noqa: B018


def test_what_is_marked_in_the_image_is_found_where_the_kernels_say():
    """A white rectangle, moved as an image: its hull, its points and its mask."""
    mask = np.zeros(SIZE, np.uint8)
    mask[4:9, 5:11] = 1
    box = np.float32([[5, 4, 11, 9]])
    points = np.float32([[5, 4], [11, 4], [11, 9], [5, 9]])

    def every():
        outs = {}
        for name, arguments in ARGUMENTS.items():
            image = mask[:, :, None].astype(np.float32)
            outs[name] = (
                getattr(functional, name)(image, *arguments)[:, :, 0],
                getattr(functional, f"{name}_bounding_boxes")(box, SIZE, *arguments),
                getattr(functional, f"{name}_keypoints")(points, SIZE, *arguments),
                getattr(functional, f"{name}_mask")(mask, *arguments),
                getattr(functional, f"{name}_mask")(mask[None], *arguments, fill=7),
            )
        return outs

    for name, (image, boxes, moved, plane, planes) in jax.device_get(jax.jit(every)()).items():
        assert plane.dtype == np.uint8 and plane.shape == image.shape
        assert (plane == (image > 0.5)).mean() > 0.95, name
        np.testing.assert_array_equal(np.where(planes[0] == 7, 0, planes[0]), plane)
        hull = [*moved.min(axis=0), *moved.max(axis=0)]
        np.testing.assert_allclose(boxes[0], hull, atol=1e-3, err_msg=name)
        y, x = np.nonzero(plane)
        height, width = plane.shape
        seen = np.clip(hull, 0, [width, height] * 2)
        found = [x.min(), y.min(), x.max() + 1, y.max() + 1]
        np.testing.assert_allclose(found, seen, atol=1.0, err_msg=name)


def test_oriented_boxes_and_formats():
    boxes = np.float32([[6, 5, 4, 2, 30]])
    flipped = functional.horizontal_flip_bounding_boxes(boxes, SIZE, format="CXCYWHR")
    np.testing.assert_allclose(flipped, [[10, 5, 4, 2, -30]], atol=1e-4)
    xywh = functional.crop_bounding_boxes(
        np.float32([[6, 5, 4, 2]]), SIZE, 1, 2, 8, 8, format="xywh"
    )
    assert xywh.tolist() == [[4, 4, 4, 2]]


def test_a_video_is_its_frames():
    video = np.stack([picture(i, *SIZE) for i in range(3)])
    out = jax.jit(lambda v: functional.rotate_video(v, 20.0))(video)
    frames = jax.jit(lambda v: jnp.stack([functional.rotate(v[i], 20.0) for i in range(3)]))(video)
    np.testing.assert_array_equal(out, frames)
    bright = functional.adjust_brightness_video(video.astype(np.float32) / 255, 0.5)
    np.testing.assert_allclose(bright, video.astype(np.float32) / 510, atol=1e-6)
