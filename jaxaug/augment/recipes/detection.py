"""Recipes of detectors: SSD, large-scale jitter, multiple scales, YOLO.

Samples hold "boxes" float[n, 4], xyxy in pixels, of which rows of zeros are padding, and perhaps
"box_labels" int[n] and "masks" [n, H, W]. Boxes of which too little is left are dropped, and those
that are left stand first; "boxes_valid" bool[n] marks them.
"""

from typing import Any

from jaxaug._checks import check_positive_int
from jaxaug.augment import (
    ByEpoch,
    CenterCrop,
    ColorJitter,
    Compose,
    CopyAndPaste,
    GroupCompose,
    LetterBox,
    Mosaic,
    Normalize,
    RandomAffine,
    RandomApply,
    RandomChoice,
    RandomCrop,
    RandomHorizontalFlip,
    RandomIoUCrop,
    RandomPhotometricDistort,
    RandomShortestSize,
    RandomZoomOut,
    Resize,
    SanitizeBoxes,
    ScaleJitter,
    ToFloat,
    Transform,
)
from jaxaug.augment.recipes._statistics import IMAGENET_MEAN, IMAGENET_STD

# torchvision's mean=(123, 117, 104), Caffe's of ImageNet.
_FILL = (123 / 255, 117 / 255, 104 / 255)
_YOLO_FILL = 114 / 255
_PER_BOX = ("masks",)  # beside "box_labels" and whatever begins with "box_"


def ssd_train(size: int = 300, dtype: Any = "float32", layout: str = "HWC") -> Compose:
    """Return photometric distortion, zoom out, IoU crop, flip, resize, sanitized boxes,
    normalization.

    Zoom out, crop, flip and resize are one resample; the large frame is never made.

    Args:
      size: of the square output, in pixels.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[10.0, 10.0, 40.0, 30.0], [0.0, 0.0, 0.0, 0.0]])
      >>> sample = {"image": jnp.zeros((40, 60, 3), jnp.uint8), "boxes": boxes}
      >>> out = ssd_train(32)(jax.random.key(0), sample)
      >>> out["image"].shape, out["boxes_valid"].tolist()
      ((32, 32, 3), [True, False])

    Reference: torchvision, references/detection/presets.py, `data_augmentation="ssd"`, and
      SSD300's resize.

    Differs from it in the normalization: there (123, 117, 104) is subtracted from 0 to 255.
    """
    return Compose(
        [
            RandomPhotometricDistort(),
            RandomZoomOut(_FILL),
            RandomIoUCrop(per_box=_PER_BOX),
            RandomHorizontalFlip(),
            Resize((size, size)),
            SanitizeBoxes(per_box=_PER_BOX),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def ssd_eval(size: int = 300, dtype: Any = "float32", layout: str = "HWC") -> Compose:
    """Return resize, aspect not kept, and normalization.

    Args:
      size: of the square output, in pixels.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ssd_eval(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: see `ssd_train`.
    """
    return Compose([Resize((size, size)), Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout)])


def lsj_train(
    size: int = 1024,
    scale: tuple[float, float] = (0.1, 2.0),
    dtype: Any = "float32",
    layout: str = "HWC",
) -> Compose:
    """Return large-scale jitter: resize to a random share of `size`, a window of `size`, flip.

    Args:
      size: of the square output, in pixels.
      scale: (low, high) of the factor; an image that becomes smaller than `size` gets a border.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[10.0, 10.0, 40.0, 30.0]])
      >>> sample = {"image": jnp.zeros((40, 60, 3), jnp.uint8), "boxes": boxes}
      >>> lsj_train(32)(jax.random.key(0), sample)["image"].shape
      (32, 32, 3)

    Reference: G. Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method", 2021;
      torchvision, references/detection/presets.py, `data_augmentation="lsj"`.

    Differs from torchvision in where a small image is placed, there at the top left, here at
    random.
    """
    return Compose(
        [
            ScaleJitter(size, scale),
            RandomCrop(size, pad_if_needed=True, fill=_FILL),
            RandomHorizontalFlip(),
            SanitizeBoxes(per_box=_PER_BOX),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def multiscale_train(
    sizes: tuple[int, ...] = tuple(range(480, 801, 32)),
    max_size: int = 1333,
    dtype: Any = "float32",
    layout: str = "HWC",
) -> Compose:
    """Return resize of the shorter side to one of `sizes`, flip, normalization.

    Images on a canvas come out on a square one of `max_size`, each with its "size".

    Args:
      sizes: of the shorter side, in pixels, each as likely.
      max_size: the bound of the longer side, in pixels.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[10.0, 10.0, 40.0, 30.0]])
      >>> sample = {"image": jnp.zeros((50, 60, 3), jnp.uint8), "boxes": boxes}
      >>> sample["size"] = jnp.array([40, 60], jnp.int32)
      >>> out = multiscale_train((20,), 32)(jax.random.key(0), sample)
      >>> out["image"].shape, out["size"].tolist()
      ((32, 32, 3), [20, 30])

    Reference: torchvision, references/detection/presets.py, `data_augmentation="multiscale"`.
    """
    return Compose(
        [
            RandomShortestSize(sizes, max_size),
            RandomHorizontalFlip(),
            SanitizeBoxes(per_box=_PER_BOX),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def multiscale_eval(
    size: int = 800, max_size: int = 1333, dtype: Any = "float32", layout: str = "HWC"
) -> Compose:
    """Return resize of the shorter side, normalization.

    Images on a canvas come out on a square one of `max_size`, each with its "size".

    Args:
      size: of the shorter side, in pixels.
      max_size: the bound of the longer side, in pixels.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> multiscale_eval(20, 32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (20, 30, 3)

    Reference: torchvision, `fasterrcnn_resnet50_fpn`, `min_size` and `max_size`.
    """
    normalize = Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout)
    return Compose([RandomShortestSize(size, max_size), normalize])


def copy_paste_train(
    size: int = 1024,
    scale: tuple[float, float] = (0.1, 2.0),
    dtype: Any = "float32",
    layout: str = "HWC",
) -> tuple[Compose, GroupCompose]:
    """Return a transform of single images, large-scale jitter and flip, and one of groups of two:
    objects of each are pasted onto the other, then normalization.

    Both go to the Loader: `Loader(..., transform=transform, batch_transform=batch_transform)`. For
    Mask R-CNN; samples have "masks" [n, H, W], a row for each of the boxes.

    Args:
      size: of the square output, in pixels.
      scale: (low, high) of the factor; an image that becomes smaller than `size` gets a border.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> transform, batch_transform = copy_paste_train(32)
      >>> masks = jnp.zeros((2, 1, 40, 60), jnp.uint8).at[:, 0, 10:30, 10:40].set(1)
      >>> boxes = jnp.tile(jnp.array([10.0, 10.0, 40.0, 30.0]), (2, 1, 1))
      >>> group = {"image": jnp.zeros((2, 40, 60, 3), jnp.uint8), "masks": masks, "boxes": boxes}
      >>> group = jax.jit(jax.vmap(transform))(jax.random.split(jax.random.key(0), 2), group)
      >>> out = jax.jit(batch_transform)(jax.random.key(1), group)
      >>> out["image"].shape, out["masks"].shape
      ((2, 32, 32, 3), (2, 2, 32, 32))

    Reference: G. Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method", 2021.

    Differs from it in where a small image is placed, see `lsj_train`, and in hard edges.
    """
    jitter = lsj_train(size, scale).transforms[:-1]
    normalize = Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout)
    return Compose(jitter), GroupCompose([CopyAndPaste(), Compose([normalize])])


def detr_train(
    max_size: int = 1333,
    sizes: tuple[int, ...] = tuple(range(480, 801, 32)),
    dtype: Any = "float32",
    layout: str = "HWC",
) -> Compose:
    """Return flip, resize of the shorter side to one of `sizes`, for half of the images behind a
    random crop, normalization.

    Images come out on a square canvas of `max_size`, each with its "size".

    Args:
      max_size: the bound of the longer side, in pixels.
      sizes: of the shorter side, in pixels, each as likely.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[10.0, 10.0, 40.0, 30.0]])
      >>> sample = {"image": jnp.zeros((50, 60, 3), jnp.uint8), "boxes": boxes}
      >>> sample["size"] = jnp.array([40, 60], jnp.int32)
      >>> jax.jit(detr_train(32, (20, 24)))(jax.random.key(0), sample)["image"].shape
      (32, 32, 3)

    Reference: N. Carion et al., "End-to-End Object Detection with Transformers", 2020;
      facebookresearch/detr, datasets/coco.py, `make_coco_transforms`: sizes 480 to 800 by 32,
      max_size 1333, in the second branch a crop of 384 to 600 pixels of the image at 400, 500 or
      600.

    Differs from it in the crop, there of a height and a width that are uniform in pixels: here
    `RandomIoUCrop` of 0.5 to 1 of the sides, without a least overlap. So a crop has at least the
    center of one box.
    """
    crop = RandomIoUCrop(0.5, 1.0, 0.5, 2.0, sampler_options=(0.0,), per_box=_PER_BOX)
    resize = RandomShortestSize(sizes, max_size, canvas=(max_size, max_size))
    return Compose(
        [
            RandomHorizontalFlip(),
            RandomChoice([resize, Compose([crop, resize])]),
            SanitizeBoxes(per_box=_PER_BOX),
            Normalize(IMAGENET_MEAN, IMAGENET_STD, dtype, layout),
        ]
    )


def rtdetr_train(
    size: int = 640, stop_epoch: int = 71, dtype: Any = "float32", layout: str = "HWC"
) -> Compose:
    """Return photometric distortion, zoom out, IoU crop until an epoch; flip, resize, sanitized
    boxes, values in [0, 1].

    Args:
      size: of the square output, in pixels.
      stop_epoch: from this epoch on images are flipped and resized alone; "epoch" is the sample's,
        which the Loader gives.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> boxes = jnp.array([[10.0, 10.0, 40.0, 30.0]])
      >>> sample = {"image": jnp.zeros((40, 60, 3), jnp.uint8), "boxes": boxes}
      >>> sample["epoch"] = jnp.int32(71)
      >>> jax.jit(rtdetr_train(32))(jax.random.key(0), sample)["image"].shape
      (32, 32, 3)

    Reference: Y. Zhao et al., "DETRs Beat YOLOs on Real-time Object Detection", 2024;
      lyuwenyu/RT-DETR, rtdetrv2_pytorch/configs/rtdetrv2/include/dataloader.yml: distortion 0.5,
      fill 0, crop 0.8, stop_epoch 71.

    Differs from it in one size: there each batch is resized to one of 480 to 800 until that epoch.
    """
    resize = Resize((size, size))
    early: list[Transform] = [
        RandomPhotometricDistort(),
        RandomZoomOut(0.0),
        RandomApply([RandomIoUCrop(per_box=_PER_BOX)], p=0.8),
        resize,
    ]
    return Compose(
        [
            ByEpoch([Compose(early), resize], (stop_epoch,)),
            RandomHorizontalFlip(),
            SanitizeBoxes(min_size=1.0, per_box=_PER_BOX),
            ToFloat(dtype, layout),
        ]
    )


def yolo_train(
    size: int = 640,
    dtype: Any = "float32",
    layout: str = "HWC",
    close_mosaic: int | None = None,
) -> tuple[Compose, GroupCompose]:
    """Return a transform of single images, and one of groups of four: mosaic, affine map, flip,
    jitter.

    Both go to the Loader: `Loader(..., transform=transform, batch_transform=batch_transform)`. The
    first resizes the longer side to `size`; the second makes mosaics of twice the size, and scales,
    shifts and crops each to `size` in one resample. The output has 4 n rows of boxes.

    Args:
      size: of the square output, in pixels.
      dtype, layout: of the output, in [0, 1].
      close_mosaic: from this epoch on images stand alone: the number of epochs less ultralytics'
        10; None for mosaics in all epochs.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> transform, batch_transform = yolo_train(32)
      >>> boxes = jnp.tile(jnp.array([10.0, 10.0, 40.0, 30.0]), (4, 2, 1))
      >>> group = {"image": jnp.zeros((4, 40, 60, 3), jnp.uint8), "boxes": boxes}
      >>> group = jax.jit(jax.vmap(transform))(jax.random.split(jax.random.key(0), 4), group)
      >>> out = jax.jit(batch_transform)(jax.random.key(1), group)
      >>> out["image"].shape, out["boxes"].shape
      ((4, 32, 32, 3), (4, 8, 4))

    Reference: ultralytics, cfg/default.yaml (scale 0.5, translate 0.1, fliplr 0.5, hsv_h 0.015,
      hsv_s 0.7, hsv_v 0.4, close_mosaic 10) and data/augment.py.

    Differs from it in the jitter, there of HSV: here brightness, saturation and hue by the same
    shares, each clipped.
    """
    check_positive_int("size", size)
    steps: list[Transform] = [
        # The mosaic is twice as large, so that a tenth of `size` is a twentieth of its sides.
        RandomAffine(0, translate=(0.05, 0.05), scale=(0.5, 1.5), fill=_YOLO_FILL),
        CenterCrop(size),
        RandomHorizontalFlip(),
        SanitizeBoxes(min_size=2.0, min_area=0.0, min_visibility=0.1),
        ColorJitter(brightness=0.4, saturation=0.7, hue=0.015),
        ToFloat(dtype, layout),
    ]
    mosaic = Mosaic(2 * size, fill=_YOLO_FILL, min_visibility=0.0, until=close_mosaic)
    return Compose([ScaleJitter(size, (1.0, 1.0))]), GroupCompose([mosaic, Compose(steps)])


def yolo_eval(size: int = 640, dtype: Any = "float32", layout: str = "HWC") -> Compose:
    """Return resize of the longer side and an even border, values in [0, 1].

    Args:
      size: of the square output, in pixels.
      dtype, layout: of the output.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> yolo_eval(32)(jax.random.key(0), jnp.zeros((40, 60, 3), jnp.uint8)).shape
      (32, 32, 3)

    Reference: see `yolo_train`; there `LetterBox`.
    """
    return Compose([LetterBox(size, fill=_YOLO_FILL), ToFloat(dtype, layout)])
