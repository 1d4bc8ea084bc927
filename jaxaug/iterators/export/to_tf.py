"""A Loader's batches as TensorFlow tensors, one by one or as a `tf.data.Dataset`."""

import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
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
        self._pass_end: dict[str, Any] | None = None  # the state behind the last whole pass

    def dataset(self) -> Any:
        """Return a `tf.data.Dataset` of the same batches, for `model.fit` and `model.evaluate`.

        TensorFlow copies them on the host. One loop at a time may run over it. It takes no batch
        before it is asked for one, so that `Loader.get_state` in a callback is the position behind
        the step; with a `prefetch` or `cache` of your own it is not. After `set_state` within an
        epoch the passes keep their length and go on over the ends of the Loader's epochs, since
        Keras takes the length of its first pass for that of all; with restart=False the first is
        the rest of the epoch. Where Keras computes with JAX or PyTorch give it `to_keras`: there it
        takes a batch and leaves the pass before it begins, which begins the next epoch. Where
        `Buckets` give batches of several forms, axes that differ are None. Lists that a transform
        nests are tuples.
        """
        import tensorflow as tf  # the user's, never ours  # pyright: ignore[reportMissingImports]

        specs = [self._loader.element_spec, *self._loader.bucket_specs.values()]
        signatures = [_with_tuples(_Convert(_to_tensor_spec, self._names)(each)) for each in specs]
        signature = tf.nest.map_structure(_common_spec, *signatures)
        dataset = tf.data.Dataset.from_generator(self._one_pass, output_signature=signature)

        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False  # a Loader reads ahead itself
        return dataset.with_options(options)

    def _one_pass(self) -> Iterator[Any]:
        """Yield the arrays of a pass over the data, which begins anew if the last one was left."""
        if self._restart and self._loader.get_state() != self._pass_end:
            self._loader.restart()

        convert = _Convert(local_array, self._names)
        for batch in self._batches():
            yield _with_tuples(convert(batch))
        self._pass_end = self._loader.get_state()

    def _batches(self) -> Iterator[Batch]:
        """Yield the rest of the epoch; with `restart` as many batches as a whole one has."""
        taken = 0
        for batch in self._loader:
            taken += 1
            yield batch
        if self._restart:
            whole = operator.length_hint(self._loader, taken)  # a stream has no length
            yield from self._loader.steps(whole - taken)


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


def _common_spec(spec: Any, *others: Any) -> Any:
    """Return the form of the tensors of all specs: None for an axis in which they differ."""
    return spec.most_specific_common_supertype(others)


def _with_tuples(tree: Any) -> Any:
    """Return a tree with tuples in place of lists, which `tf.data` would stack."""
    if isinstance(tree, dict):
        return {name: _with_tuples(each) for name, each in tree.items()}
    return tuple(map(_with_tuples, tree)) if type(tree) in (list, tuple) else tree
