"""A Loader's batches as a `keras.utils.PyDataset`. It needs Keras: `to_keras` imports it."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras  # the user's, never ours  # pyright: ignore[reportMissingImports]

from jaxaug.iterators.export.to_numpy import Batch, local_array
from jaxaug.iterators.loader.columns import LABELS, name_on_path
from jaxaug.iterators.loader.loader import Loader

Names = str | tuple[str, ...]


class KerasDataset(keras.utils.PyDataset):
    """A Loader's batches (x,), (x, y) or (x, y, weights), in the Loader's own order.

    Keras asks for `num_batches` and at once for a batch where it begins a pass. Before the first
    `fit` it takes one batch to build the model, and throws it away: the next pass gets that batch
    again, so that no record is left out. Where it builds, Keras begins an epoch at once; where it
    does not, it ends one before.

    Args:
      loader: a `Loader`.
      names: of x, y and the weights; None leaves out.
    """

    def __init__(self, loader: Loader, names: tuple[Names, Names | None, str | None]):
        super().__init__(workers=1)  # one consumer: the Loader has threads of its own
        self._loader = loader
        self._names = names
        self._in_place = keras.backend.backend() == "jax"
        self._begins = True  # whether the next batch is the first of a pass
        self._builds = False  # whether this pass may build the model
        self._taken = 0  # in this pass
        self._first: Any = None  # the batch that may have built it
        self._state_behind: dict[str, Any] | None = None  # where the Loader stood after `_first`

    def __repr__(self) -> str:
        return f"to_keras({self._loader!r})"

    def __len__(self) -> int:
        return len(self._loader)

    @property
    # Keras takes None, and says so in its docstring, but annotates an int.
    def num_batches(self) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The batches of an epoch; None for a stream, where `fit` needs `steps_per_epoch`."""
        self._begins = True
        return self._length()

    def on_epoch_begin(self) -> None:
        """Go on with the pass: Keras calls this also between the parts of one."""
        self._builds = self._begins
        self._begins = False

    def on_epoch_end(self) -> None:
        """Go on with the pass: Keras calls this also between the parts of one."""
        self._begins = False

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return the next batch, whichever `index` Keras has shuffled."""
        if self._begins:
            self._begins = False
            first, self._first = self._first, None
            if first is not None and self._loader.get_state() == self._state_behind:
                return first
            self._begin_pass()

        batch = self._converted(self._next_batch())
        self._taken += 1
        may_be_thrown_away = self._builds and self._taken == 1
        self._first = batch if may_be_thrown_away else None
        self._state_behind = self._loader.get_state() if may_be_thrown_away else None
        return batch

    def _begin_pass(self) -> None:
        """Begin a new epoch if the last pass was left early."""
        if self._taken == 0 or self._taken != self._length():
            self._loader.restart()
        self._taken = 0

    def _length(self) -> int | None:
        try:
            return len(self._loader)
        except TypeError:
            return None

    def _next_batch(self) -> Batch:
        try:
            return next(self._loader)
        except StopIteration:
            raise RuntimeError(
                "Keras asks for more batches than the Loader has: leave out `epochs` of the "
                "Loader, and give fit(epochs=...)."
            ) from None

    def _converted(self, batch: Batch) -> tuple[Any, ...]:
        """Return what Keras takes: the arrays themselves where it computes with JAX, else NumPy."""
        x, y, weights = self._names
        parts = [_picked(batch, x)]
        if weights is not None:
            batch = _without_blanks(batch)
        if y is not None:
            parts.append(_picked(batch, y))
        if weights is not None:
            parts.append(batch[weights].astype("float32"))
        return tuple(parts) if self._in_place else jax.tree.map(local_array, tuple(parts))


def check_backend() -> None:
    """Raise ValueError where Keras computes with TensorFlow, which takes `to_tf`."""
    if keras.backend.backend() == "tensorflow":
        raise ValueError(
            "Keras computes with TensorFlow here: set the environment variable KERAS_BACKEND=jax "
            'before Keras is imported, or take to_tf(loader, names=("image", "label")).dataset().'
        )


def _picked(batch: Batch, names: Names) -> Any:
    if isinstance(names, str):
        return batch[names]
    return tuple(batch[name] for name in names)


def _without_blanks(batch: Batch) -> Batch:
    """Return a batch with labels of 0 in rows that are not valid: losses of torch refuse -1."""

    def shown(path: Sequence[Any], values: Any) -> Any:
        if not name_on_path(path, LABELS) or not jnp.issubdtype(values.dtype, jnp.integer):
            return values
        valid = batch["valid"].reshape(-1, *[1] * (values.ndim - 1))
        return jnp.where(valid, values, 0)

    return jax.tree_util.tree_map_with_path(shown, batch)
