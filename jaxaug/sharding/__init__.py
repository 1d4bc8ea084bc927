"""Where the rows of a batch live, and the keys that go with them."""

from jaxaug.sharding._assemble import assemble as assemble
from jaxaug.sharding._keys import sample_keys as sample_keys
from jaxaug.sharding._mesh import batch_sharding as batch_sharding

__all__ = ["assemble", "batch_sharding", "sample_keys"]
