"""The split of a batch over devices."""

from jaxaug.sharding._assemble import assemble
from jaxaug.sharding._mesh import batch_sharding

__all__ = ["assemble", "batch_sharding"]
