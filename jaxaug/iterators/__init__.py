"""From records on disk or in memory to batches in a training loop."""

from jaxaug.iterators._loader import Loader as Loader
from jaxaug.iterators._order import Order as Order
from jaxaug.iterators._order import Sequential as Sequential
from jaxaug.iterators._order import Shuffled as Shuffled
from jaxaug.iterators._order import Weighted as Weighted
from jaxaug.iterators._order import balanced_weights as balanced_weights
from jaxaug.iterators._protocol import Source as Source
from jaxaug.iterators._protocol import Stream as Stream
from jaxaug.iterators.export.torch import to_torch as to_torch
from jaxaug.iterators.sources.folder import ImageFolder as ImageFolder
from jaxaug.iterators.sources.memory import FromIterable as FromIterable
from jaxaug.iterators.sources.memory import InMemory as InMemory
