"""Sources of records, and the Loader that makes batches of them for a training loop."""

import importlib

from jaxaug.iterators.export.for_pmap import for_pmap
from jaxaug.iterators.export.progress import progress
from jaxaug.iterators.export.show import show
from jaxaug.iterators.export.to_keras import to_keras
from jaxaug.iterators.export.to_numpy import to_numpy
from jaxaug.iterators.export.to_tf import to_tf
from jaxaug.iterators.export.to_torch import to_torch
from jaxaug.iterators.loader.keys import sample_keys
from jaxaug.iterators.loader.loader import Loader
from jaxaug.iterators.samplers.buckets import Buckets
from jaxaug.iterators.samplers.mix import Mix, Repeat
from jaxaug.iterators.samplers.sampler import (
    Blocks,
    Sampler,
    Sequential,
    Shuffled,
    Weighted,
    balanced_weights,
)
from jaxaug.iterators.sources.array_record import ArrayRecord
from jaxaug.iterators.sources.arrays import Arrays
from jaxaug.iterators.sources.coco import Coco
from jaxaug.iterators.sources.concat import Concat
from jaxaug.iterators.sources.filelist import FileList
from jaxaug.iterators.sources.files import Files
from jaxaug.iterators.sources.folder import AudioFolder, ImageFolder, VideoFolder
from jaxaug.iterators.sources.iterable import FromIterable
from jaxaug.iterators.sources.manifest import Manifest
from jaxaug.iterators.sources.memory import InMemory
from jaxaug.iterators.sources.packed.litdata import LitData
from jaxaug.iterators.sources.packed.mds import MDS
from jaxaug.iterators.sources.packed.tfrecord import TFRecord
from jaxaug.iterators.sources.packed.webdataset import WebDataset
from jaxaug.iterators.sources.paired import PairedFolders
from jaxaug.iterators.sources.parquet import Parquet
from jaxaug.iterators.sources.protocol import (
    Far,
    Indexed,
    Parted,
    Partial,
    Source,
    Stamped,
    Stream,
    Summarized,
)
from jaxaug.iterators.sources.random_access import RandomAccess
from jaxaug.iterators.sources.renamed import Renamed
from jaxaug.iterators.sources.split import split
from jaxaug.iterators.sources.subset import Subset
from jaxaug.iterators.sources.tfds import TFDS

__all__ = [
    "MDS",
    "TFDS",
    "ArrayRecord",
    "Arrays",
    "AudioFolder",
    "Blocks",
    "Buckets",
    "Coco",
    "Concat",
    "Far",
    "FileList",
    "Files",
    "FromIterable",
    "ImageFolder",
    "InMemory",
    "Indexed",
    "LitData",
    "Loader",
    "Manifest",
    "Mix",
    "PairedFolders",
    "Parquet",
    "Parted",
    "Partial",
    "RandomAccess",
    "Renamed",
    "Repeat",
    "Sampler",
    "Sequential",
    "Shuffled",
    "Source",
    "Stamped",
    "Stream",
    "Subset",
    "Summarized",
    "TFRecord",
    "VideoFolder",
    "WebDataset",
    "Weighted",
    "balanced_weights",
    "for_pmap",
    "progress",
    "sample_keys",
    "show",
    "split",
    "to_keras",
    "to_numpy",
    "to_tf",
    "to_torch",
]


def __getattr__(name: str):
    """Import the modules that need Orbax and Grain when they are asked for."""
    if name in ("grain", "orbax"):
        return importlib.import_module(f"jaxaug.iterators.{name}")
    raise AttributeError(f"module 'jaxaug.iterators' has no attribute {name!r}")
