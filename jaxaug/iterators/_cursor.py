"""Where a Loader stands: which positions of which epoch the next batch takes. Pure arithmetic."""

from typing import Any, NamedTuple

from jaxaug.errors import StateError

STATE_VERSION = 1
_FIELDS = {"seed": int, "epoch": int, "position": int, "fingerprint": str, "order": str}


class Cursor(NamedTuple):
    """The next batch begins at `position` of `epoch`; at an epoch's end it is (epoch + 1, 0)."""

    epoch: int
    position: int


class Step(NamedTuple):
    """One batch: positions [start, start + rows) of `epoch`, and the cursor once it is delivered."""

    epoch: int
    start: int
    rows: int
    after: Cursor


def next_step(cursor: Cursor, length: int, batch_size: int, drop: bool) -> Step:
    """The batch at `cursor`; batches never span epochs, a dropped tail counts as delivered.

    Example:
      >>> next_step(Cursor(0, 8), length=10, batch_size=4, drop=False)
      Step(epoch=0, start=8, rows=2, after=Cursor(epoch=1, position=0))
    """
    epoch, start = start_of_batch(cursor, length, batch_size, drop)
    rows = min(batch_size, length - start)
    stop = start + rows
    done = length - stop < (batch_size if drop else 1)
    return Step(epoch, start, rows, Cursor(epoch + 1, 0) if done else Cursor(epoch, stop))


def start_of_batch(cursor: Cursor, length: int, batch_size: int, drop: bool) -> Cursor:
    """Return where the batch at `cursor` begins: in the next epoch if the rest of this one makes
    none.

    Example:
      >>> start_of_batch(Cursor(0, 8), length=10, batch_size=4, drop=True)
      Cursor(epoch=1, position=0)
    """
    if length - cursor.position < (batch_size if drop else 1):
        return Cursor(cursor.epoch + 1, 0)
    return cursor


def batches_per_epoch(length: int, batch_size: int, drop: bool) -> int:
    """How many batches a whole epoch has."""
    return length // batch_size if drop else -(-length // batch_size)


def to_state(cursor: Cursor, seed: int, fingerprint: str, order: str) -> dict[str, Any]:
    """The JSON state of a Loader: the same on every process, whatever the batch size and the
    devices.
    """
    return {
        "version": STATE_VERSION,
        "seed": seed,
        "epoch": cursor.epoch,
        "position": cursor.position,
        "fingerprint": fingerprint,
        "order": order,
    }


def from_state(state: Any, seed: int, fingerprint: str, order: str, length: int | None) -> Cursor:
    """The cursor of a saved state.

    Raises:
      StateError: damaged, from a newer jaxaug, or saved with another data set, seed or order.
    """
    if not isinstance(state, dict):
        raise StateError(
            f"a state must be the dict that `get_state()` gave, got {type(state).__name__}."
        )
    version = state.get("version")
    if type(version) is not int or version < 1:
        raise StateError(f"damaged state: `version` must be an int of at least 1, got {version!r}.")
    if version > STATE_VERSION:  # before the fields: a newer version may have others
        raise StateError(
            f"the state has version {version}, this jaxaug reads up to {STATE_VERSION}: update jaxaug."
        )
    for name, kind in _FIELDS.items():
        if type(state.get(name)) is not kind:
            raise StateError(
                f"damaged state: `{name}` must be {kind.__name__}, got {state.get(name)!r}."
            )
    if state["fingerprint"] != fingerprint:
        raise StateError(
            f"the state belongs to another data set: its fingerprint is {state['fingerprint']}, "
            f"this source's is {fingerprint}."
        )
    if state["seed"] != seed:
        raise StateError(
            f"the state was saved with seed={state['seed']}, this Loader has seed={seed}: make it with the same seed."
        )
    # Older states name the kind alone: such a run goes on, its order's parameters unchecked.
    if state["order"] not in (order, order.partition("(")[0]):
        raise StateError(
            f"the state was saved with the order {state['order']}, this Loader has {order}: give it the same `shuffle`."
        )
    if (
        state["epoch"] < 0
        or state["position"] < 0
        or (length is not None and state["position"] > length)
    ):
        raise StateError(
            f"damaged state: epoch {state['epoch']}, position {state['position']} of {length} records."
        )
    return Cursor(state["epoch"], state["position"])
