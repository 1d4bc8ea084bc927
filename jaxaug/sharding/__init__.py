"""The split of a batch over devices, and the keys of its samples."""

from jaxaug.sharding._assemble import assemble as assemble
from jaxaug.sharding._keys import sample_keys as sample_keys
from jaxaug.sharding._mesh import batch_sharding as batch_sharding

__all__ = ["assemble", "batch_sharding", "sample_keys"]
