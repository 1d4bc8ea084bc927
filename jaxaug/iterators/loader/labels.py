"""Labels that a batch transform has no class for, found before they make a loss NaN."""

from collections.abc import Iterator

import jax
import numpy as np

from jaxaug._mesh_context import no_mesh
from jaxaug.iterators.loader.batch_function import BatchFunction
from jaxaug.iterators.loader.reader import Reader, RecordReader
from jaxaug.iterators.loader.rows import RowSchema
from jaxaug.iterators.sources.split import known_labels

_NAME = "label"
_MAX_LOOKED_AT = 16  # records, where the source does not know the labels of all


def check_labels(function: BatchFunction, schema: RowSchema, reader: Reader, seed: int) -> None:
    """Have a batch transform look at labels, those that come to it as they were read.

    Raises:
      ValueError: its `check_labels` does, of the highest label of the source, or of some.
    """
    check = getattr(function.batch_transform, "check_labels", None)
    form = schema.forms.get(_NAME)
    if check is None or form is None or not isinstance(reader, RecordReader):
        return
    # An order that leaves records out may be that of the classes that are wanted.
    if reader.with_replacement or reader.length != len(reader.source):
        return
    if form.kind != "array" or form.shape or _NAME in schema.decoders:
        return
    if form.dtype is None or form.dtype.kind not in "biu":
        return
    try:
        for labels in _look_at(reader, seed):
            check(labels)
    except ValueError:
        if _passes(function, schema):
            raise


def _look_at(reader: RecordReader, seed: int) -> Iterator[np.ndarray]:
    """Yield labels as batches have them: the highest one, where the source knows which that is."""
    known = known_labels(reader.source)
    if known is None or len(known) != reader.length:
        yield from map(np.asarray, reader.read_sample(_NAME, _MAX_LOOKED_AT, seed))
    else:
        yield np.asarray(reader.read_rows(np.array([known.argmax()]))[_NAME])


def _passes(function: BatchFunction, schema: RowSchema) -> bool:
    """Return True where the transform of samples gives the label that it gets."""
    transform = function.transform
    if transform is None:
        return True
    found = []

    def look(key: jax.Array, sample: dict[str, jax.Array]) -> None:
        output = transform(key, sample)
        found.append(output.get(_NAME) is sample[_NAME])

    key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
    with no_mesh():
        jax.eval_shape(look, key, jax.eval_shape(function.sample_of, schema.shapes(1)))
    return found[0]
