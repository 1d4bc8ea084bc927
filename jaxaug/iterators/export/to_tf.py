"""A Loader's batches as TensorFlow tensors, one by one or as a `tf.data.Dataset`."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array

from jaxaug.iterators.export.to_numpy import Batch, Export, check_names
from jaxaug.iterators.loader.loader import Loader
from jaxaug.sharding._assemble import local_array, local_shards


class TFExport(Export):
    """A Loader's batches as eager TensorFlow tensors."""

    def __init__(self, loader: Loader, names: Sequence[str] | None, restart: bool):
        super().__init__(loader, "to_tf", _Convert(_to_tensor, names), restart=restart)
        check_names(loader, names)
        self._names = names

    def dataset(self) -> Any:
        """Return a `tf.data.Dataset` of the same batches, for `model.fit` and `model.evaluate`.

        TensorFlow copies them on the host. One loop at a time may run over it.
        """
        import tensorflow as tf  # the user's, never ours  # pyright: ignore[reportMissingImports]

        arrays = Export(
            self._loader, "to_tf", _Convert(local_array, self._names), restart=self._restart
        )
        signature = _Convert(_to_tensor_spec, self._names)(self._loader.element_spec)
        return tf.data.Dataset.from_generator(lambda: iter(arrays), output_signature=signature)


def to_tf(loader: Loader, *, restart: bool = True, names: Sequence[str] | None = None) -> TFExport:
    """Return a Loader's batches as TensorFlow tensors with the rows of this process, in order.

    Each `for` is a whole epoch, as trainers expect: it begins the next one if the last loop was
    left early, and after `set_state` it is the rest of that epoch. Keras takes
    `to_tf(loader, names=("image", "label")).dataset()`.

    Rows that are not valid have label -1: ignore_class=-1 of Keras's losses leaves them out, and
    names=("image", "label", "valid") gives it the weights of its weighted metrics.

    On one CPU device the tensors share the JAX arrays' memory (DLPack). TensorFlow cannot be told
    to wait for a GPU's other streams, so batches of GPUs are copied through the host.

    Args:
      loader: a `Loader`; its state, length and close stay its own.
      restart: False: after a loop that was left early, the next one continues from there, as loops
        over the Loader do.
      names: the entries to yield as a tuple, such as ("image", "label"); None yields dicts of all.

    Raises:
      TypeError: `loader` is no Loader, `names` no tuple.
      ValueError: batches have no such entry.

    Example:
      `model.fit(to_tf(loader, names=("image", "label")).dataset(), epochs=10)`
    """
    return TFExport(loader, names, restart)


@dataclasses.dataclass(frozen=True)
class _Convert:
    """Converts the arrays of a batch, or of those named, which become a tuple."""

    convert: Callable[[Any], Any]
    names: Sequence[str] | None

    def __call__(self, batch: Batch) -> Any:
        if self.names is None:
            return jax.tree.map(self.convert, batch)
        return tuple(jax.tree.map(self.convert, batch[name]) for name in self.names)


def _to_tensor(array: Array) -> Any:
    import tensorflow as tf  # pyright: ignore[reportMissingImports]

    shards = local_shards(array)
    platforms = [device.platform for device in shards[0].devices()]
    if len(shards) == 1 and platforms == ["cpu"]:
        return tf.experimental.dlpack.from_dlpack(shards[0].__dlpack__())
    return tf.convert_to_tensor(local_array(array))


def _to_tensor_spec(spec: jax.ShapeDtypeStruct) -> Any:
    """Return the form of the local rows of an entry."""
    import tensorflow as tf  # pyright: ignore[reportMissingImports]

    sharding: Any = spec.sharding
    indices = sharding.addressable_devices_indices_map(spec.shape).values()
    starts = {index[0].start for index in indices}
    rows = len(starts) * sharding.shard_shape(spec.shape)[0]
    return tf.TensorSpec((rows, *spec.shape[1:]), tf.as_dtype(spec.dtype))
