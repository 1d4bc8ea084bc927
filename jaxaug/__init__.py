"""jaxaug: JPEG bytes to sharded, augmented JAX batches.

Importing it touches no device and loads no native library; the parts are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING

from jaxaug import _hardware_queues as _hardware_queues

if TYPE_CHECKING:
    from jaxaug import augment as augment
    from jaxaug import decode as decode
    from jaxaug import errors as errors
    from jaxaug import iterators as iterators
    from jaxaug import sharding as sharding
    from jaxaug.decode import Decoder as Decoder
    from jaxaug.iterators import Loader as Loader

__version__ = "0.1.0"

__all__ = [
    "Decoder",
    "Loader",
    "augment",
    "decode",
    "errors",
    "iterators",
    "sharding",
]

_MODULES = ("augment", "decode", "errors", "iterators", "sharding")
_NAMES = {"Decoder": "jaxaug.decode", "Loader": "jaxaug.iterators"}


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f"jaxaug.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'jaxaug' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_MODULES, *_NAMES])
