"""Recipes: the chains of well-known trainings, with the values that their authors published.

Each returns a configuration that can be looked at, changed and called. Inputs are uint8 images,
outputs float arrays for the model; `dtype` and `layout` are those of `Normalize`. A recipe with
boxes moves "boxes" and "masks" along, one with label maps "mask".
"""

from jaxaug.augment.recipes._statistics import (
    CIFAR10_MEAN,
    CIFAR10_STD,
    IMAGENET_MEAN,
    IMAGENET_STD,
)
from jaxaug.augment.recipes.augreg import augreg_train
from jaxaug.augment.recipes.classification import (
    cifar_train,
    convnext_train,
    deit3_train,
    imagenet_eval,
    imagenet_train,
)
from jaxaug.augment.recipes.detection import (
    copy_paste_train,
    detr_train,
    lsj_train,
    multiscale_eval,
    multiscale_train,
    rtdetr_train,
    ssd_eval,
    ssd_train,
    yolo_eval,
    yolo_train,
)
from jaxaug.augment.recipes.segmentation import segmentation_eval, segmentation_train
from jaxaug.augment.recipes.self_supervised import (
    byol,
    dino,
    mae_train,
    siglip,
    simclr,
    vjepa_train,
)

__all__ = [
    "CIFAR10_MEAN",
    "CIFAR10_STD",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "augreg_train",
    "byol",
    "cifar_train",
    "convnext_train",
    "copy_paste_train",
    "deit3_train",
    "detr_train",
    "dino",
    "imagenet_eval",
    "imagenet_train",
    "lsj_train",
    "mae_train",
    "multiscale_eval",
    "multiscale_train",
    "rtdetr_train",
    "segmentation_eval",
    "segmentation_train",
    "siglip",
    "simclr",
    "ssd_eval",
    "ssd_train",
    "vjepa_train",
    "yolo_eval",
    "yolo_train",
]
