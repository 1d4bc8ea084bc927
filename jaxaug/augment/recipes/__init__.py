"""Recipes: the chains of well-known trainings, with the values that their authors published.

Each returns a configuration that can be looked at, changed and called. Inputs are uint8 images,
outputs float arrays for the model; `dtype` and `layout` are those of `Normalize`. A recipe with
boxes moves "boxes" and "masks" along, one with label maps "mask".
"""

from jaxaug.augment.recipes._statistics import CIFAR10_MEAN as CIFAR10_MEAN
from jaxaug.augment.recipes._statistics import CIFAR10_STD as CIFAR10_STD
from jaxaug.augment.recipes._statistics import IMAGENET_MEAN as IMAGENET_MEAN
from jaxaug.augment.recipes._statistics import IMAGENET_STD as IMAGENET_STD
from jaxaug.augment.recipes.augreg import augreg_train as augreg_train
from jaxaug.augment.recipes.classification import cifar_train as cifar_train
from jaxaug.augment.recipes.classification import deit3_train as deit3_train
from jaxaug.augment.recipes.classification import imagenet_eval as imagenet_eval
from jaxaug.augment.recipes.classification import imagenet_train as imagenet_train
from jaxaug.augment.recipes.detection import lsj_train as lsj_train
from jaxaug.augment.recipes.detection import multiscale_eval as multiscale_eval
from jaxaug.augment.recipes.detection import multiscale_train as multiscale_train
from jaxaug.augment.recipes.detection import ssd_eval as ssd_eval
from jaxaug.augment.recipes.detection import ssd_train as ssd_train
from jaxaug.augment.recipes.detection import yolo_eval as yolo_eval
from jaxaug.augment.recipes.detection import yolo_train as yolo_train
from jaxaug.augment.recipes.segmentation import segmentation_eval as segmentation_eval
from jaxaug.augment.recipes.segmentation import segmentation_train as segmentation_train
from jaxaug.augment.recipes.self_supervised import byol as byol
from jaxaug.augment.recipes.self_supervised import dino as dino
from jaxaug.augment.recipes.self_supervised import simclr as simclr
