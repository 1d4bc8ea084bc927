"""From records on disk or in memory to batches in a training loop."""

from jaxaug.iterators._export import for_pmap as for_pmap
from jaxaug.iterators._export import to_numpy as to_numpy
from jaxaug.iterators._export import to_tf as to_tf
from jaxaug.iterators._export import to_torch as to_torch
from jaxaug.iterators._loader import Loader as Loader
from jaxaug.iterators._order import Order as Order
from jaxaug.iterators._order import Sequential as Sequential
from jaxaug.iterators._order import Shuffled as Shuffled
from jaxaug.iterators._order import Weighted as Weighted
from jaxaug.iterators._order import balanced_weights as balanced_weights
from jaxaug.iterators._progress import progress as progress
from jaxaug.iterators._protocol import Indexed as Indexed
from jaxaug.iterators._protocol import Pixels as Pixels
from jaxaug.iterators._protocol import Source as Source
from jaxaug.iterators._protocol import Stream as Stream
from jaxaug.iterators.sources.coco import Coco as Coco
from jaxaug.iterators.sources.filelist import FileList as FileList
from jaxaug.iterators.sources.folder import ImageFolder as ImageFolder
from jaxaug.iterators.sources.iterable import FromIterable as FromIterable
from jaxaug.iterators.sources.memory import InMemory as InMemory
from jaxaug.iterators.sources.packed.tfrecord import TFRecord as TFRecord
from jaxaug.iterators.sources.packed.webdataset import WebDataset as WebDataset
from jaxaug.iterators.sources.random_access import RandomAccess as RandomAccess
from jaxaug.iterators.sources.split import split as split
from jaxaug.iterators.sources.subset import Subset as Subset
from jaxaug.iterators.sources.tfds import TFDS as TFDS
