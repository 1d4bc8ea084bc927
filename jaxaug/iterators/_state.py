"""The state of a Loader: the place in the data, checked on resume, and its file in a checkpoint.

The state is the same on every process and knows neither batch size nor devices, so the first
process writes it and a run with any other number of processes reads it. It is saved in one of three
ways, all with the same outcome:

- Orbax v1: the Loader is a `StatefulCheckpointable`; name it beside the model in
  `save_checkpointables`.
- Orbax v0: `LoaderState(loader)` of `jaxaug.iterators.orbax` as the arguments of an item, to save
  and to restore.
- Orbax v0: `ocp.args.JsonSave(loader.get_state())`, and `set_state` of what
  `ocp.args.JsonRestore()` gives.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax

from jaxaug.errors import StateError

STATE_VERSION = 1
_FILE = "loader.json"
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


class Stateful(Protocol):
    """What can be saved: a Loader."""

    def get_state(self) -> dict[str, Any]:
        """Where it stands."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on there."""
        ...


def write_file(state: dict[str, Any], folder: Path) -> None:
    """Write a state, on the first process."""
    if jax.process_index() == 0:
        (folder / _FILE).write_text(json.dumps(state))


def read_file(folder: Path) -> dict[str, Any]:
    """The state in a folder.

    Raises:
      StateError: the file is missing or no JSON.
    """
    try:
        return json.loads((folder / _FILE).read_text())
    except (OSError, ValueError) as error:
        raise StateError(
            f"no state of a Loader can be read from {str(folder / _FILE)!r}: {error}"
        ) from error


async def write_state(state: dict[str, Any], directory: Any) -> None:
    """Write a state once Orbax has made `directory`."""
    write_file(state, await directory.await_creation())


async def load_state(loader: Stateful, directory: Path) -> None:
    """Set `loader` to the state in `directory`."""
    loader.set_state(read_file(directory))
