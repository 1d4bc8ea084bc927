"""A Loader's batches for `fit`, `evaluate` and `predict` of Keras 3."""

from collections.abc import Sequence
from typing import Any

from jaxaug.iterators.export.to_numpy import check_loader, check_names
from jaxaug.iterators.loader.loader import Loader


def to_keras(
    loader: Loader,
    *,
    x: str | Sequence[str] = "image",
    y: str | Sequence[str] | None = "label",
    sample_weight: str | None = "valid",
) -> Any:
    """Return a Loader's batches as a `keras.utils.PyDataset`, for any backend but TensorFlow's.

    Each pass of Keras is a whole epoch of the Loader, in its order: `fit(shuffle=True)` does not
    change it. After `set_state` Keras's epochs keep their length, and go on over the ends of the
    Loader's. With the backend "jax" Keras gets the JAX arrays themselves, with others NumPy arrays;
    for TensorFlow's there is `to_tf`.

    By "valid" the rows that pad the last batch have weight 0, and label 0 instead of -1. Keras
    weights what is in `weighted_metrics`, not what is in `metrics`; and it divides the loss by all
    rows of a batch.

    Args:
      loader: a `Loader`; its state and close stay its own. The Loader of a stream needs
        `fit(steps_per_epoch=...)`.
      x: the entry of a batch that the model takes, or several, which become a tuple.
      y: the entry of the targets, or several; None leaves them out, as for `predict`.
      sample_weight: an entry with a number or bool for each row, float32 for Keras; None leaves it
        out, as `fit(class_weight=...)` needs. Without `y` there is none.

    Raises:
      TypeError: `loader` is no Loader, a name is no string.
      ValueError: batches have no such entry; Keras computes with TensorFlow.

    Example:
      `model.fit(to_keras(train), epochs=10, validation_data=to_keras(test))`
    """
    check_loader(loader, "to_keras")
    names = (_as_names("x", x), None if y is None else _as_names("y", y))
    weights = None if y is None else sample_weight
    for name in (*names, weights):
        if name is not None:
            check_names(loader, (name,) if isinstance(name, str) else name)

    from jaxaug.iterators.export.keras_dataset import KerasDataset, check_backend

    check_backend()
    return KerasDataset(loader, (*names, weights))


def _as_names(argument: str, value: object) -> str | tuple[str, ...]:
    """Return one name, or several as a tuple.

    Raises:
      TypeError: neither.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise TypeError(
        f'`{argument}` must be the name of an entry such as "image", or a tuple of names, got '
        f"{value!r}."
    )
