"""A Loader's batches in the arrays of other libraries: the parts that the exports share, and NumPy.

The exports for PyTorch, TensorFlow and `jax.pmap` are in files of their own.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax

from jaxaug.iterators.loader.loader import Loader
from jaxaug.sharding._assemble import local_array

Batch = dict[str, Any]


class Export:
    """A Loader's batches, each converted by a function.

    A loop yields the rest of the Loader's current epoch, a whole one at its start, as the Loader
    itself does; with `restart` each loop begins with `Loader.restart()`.

    Args:
      loader: a `Loader`; its state, length and close stay its own.
      name: the name of the function that made this.
      convert: returns what is yielded instead of a batch.
      restart: begin a new epoch in each loop.

    Raises:
      TypeError: `loader` is no Loader, `restart` is no bool.
    """

    def __init__(
        self,
        loader: Loader,
        name: str,
        convert: Callable[[Batch], Any],
        *,
        restart: bool = False,
    ):
        check_loader(loader, name)
        check_bool("restart", restart)
        self._loader = loader
        self._name = name
        self._convert = convert
        self._restart = restart

    def __repr__(self) -> str:
        return f"{self._name}({self._loader!r})"

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if self._restart:
            self._loader.restart()
        return self._converted(iter(self._loader))

    def _converted(self, batches: Iterator[Batch]) -> Iterator[Any]:
        for batch in batches:
            converted = self._convert(batch)
            del batch  # so that the consumer alone keeps it alive
            yield converted
            del converted


def check_loader(loader: object, name: str) -> None:
    """Raise TypeError unless `loader` is a Loader; `name` is the function that it was given to."""
    if not isinstance(loader, Loader):
        raise TypeError(
            f"`loader` must be a jaxaug.Loader, got {type(loader).__name__}: write "
            f"{name}(Loader(source, batch_size))."
        )


def check_bool(name: str, value: object) -> None:
    """Raise TypeError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"`{name}` must be True or False, got {value!r}.")


def check_names(loader: Loader, names: object) -> None:
    """Raise unless `names` is None or a sequence of names of entries of the Loader's batches.

    Raises:
      TypeError: no list or tuple.
      ValueError: a name that a batch does not have.
    """
    if names is None:
        return
    if not isinstance(names, (list, tuple)):
        raise TypeError(
            '`names` must be a tuple such as ("image", "label"), or None for a dict, '
            f"got {names!r}."
        )
    for name in names:
        if name not in loader.element_spec:
            raise ValueError(
                f"`names` must be among the entries of a batch, {sorted(loader.element_spec)}, "
                f"got {name!r}."
            )


def to_numpy(loader: Loader) -> Export:
    """Return a Loader's batches as dicts of numpy arrays: the rows of this process, in order.

    Iterating yields the rest of the current epoch. The arrays may be read-only: on the CPU they
    share the JAX arrays' memory.

    Args:
      loader: a `Loader`; its state, length and close stay its own.

    Raises:
      TypeError: `loader` is no Loader.

    Example:
      >>> import io, jax, PIL.Image
      >>> import numpy as np
      >>> from jaxaug.iterators import InMemory, Loader
      >>> file = io.BytesIO()
      >>> PIL.Image.new("RGB", (40, 30), "red").save(file, "JPEG")
      >>> source = InMemory([file.getvalue()] * 4, {"label": np.arange(4)})
      >>> with Loader(source, 2 * jax.device_count(), shuffle=False, last_batch="pad") as loader:
      ...     [batch["label"][:2].tolist() for batch in to_numpy(loader)][0]
      [0, 1]
    """
    return Export(loader, "to_numpy", lambda batch: jax.tree.map(local_array, batch))
