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
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxaug.errors import StateError

STATE_VERSION = 1
_FIELDS = {"seed": int, "epoch": int, "position": int, "fingerprint": str, "order": str}
_FILE_NAME = "loader.json"


class Cursor(NamedTuple):
    """A place in the data: the next batch begins at `position` of `epoch`.

    The end of an epoch is (epoch + 1, 0).
    """

    epoch: int
    position: int


class BatchSpan(NamedTuple):
    """The positions of one batch.

    Attributes:
      epoch: the epoch of the batch; batches never span epochs.
      start: its first position.
      rows: how many positions it has.
      after: the cursor once it is delivered.
    """

    epoch: int
    start: int
    rows: int
    after: Cursor


class RunIdentity(NamedTuple):
    """The facts that a state and the Loader that resumes from it must share.

    Attributes:
      seed: the seed of the order and of every key.
      fingerprint: of the source.
      sampler: the sampler's name, with its parameters.
      length: positions in an epoch; None for a stream.
    """

    seed: int
    fingerprint: str
    sampler: str
    length: int | None


def next_span(cursor: Cursor, length: int, batch_size: int, drop: bool) -> BatchSpan:
    """Return the span of the batch at `cursor`; a dropped tail counts as delivered.

    Example:
      >>> next_span(Cursor(0, 8), length=10, batch_size=4, drop=False)
      BatchSpan(epoch=0, start=8, rows=2, after=Cursor(epoch=1, position=0))
    """
    epoch, start = start_of_batch(cursor, length, batch_size, drop)
    rows = min(batch_size, length - start)
    after = start_of_batch(Cursor(epoch, start + rows), length, batch_size, drop)
    return BatchSpan(epoch, start, rows, after)


def start_of_batch(cursor: Cursor, length: int, batch_size: int, drop: bool) -> Cursor:
    """Return the start of the batch at `cursor`, in the next epoch if this one has none left.

    Example:
      >>> start_of_batch(Cursor(0, 8), length=10, batch_size=4, drop=True)
      Cursor(epoch=1, position=0)
    """
    needed = batch_size if drop else 1
    if length - cursor.position < needed:
        return Cursor(cursor.epoch + 1, 0)
    return cursor


def batches_per_epoch(length: int, batch_size: int, drop: bool) -> int:
    """Return the number of batches of a whole epoch."""
    if drop:
        return length // batch_size
    return -(-length // batch_size)


def to_state(cursor: Cursor, run: RunIdentity) -> dict[str, Any]:
    """Return the state of a Loader at `cursor`, as a dict of JSON scalars."""
    return {
        "version": STATE_VERSION,
        "seed": run.seed,
        "epoch": cursor.epoch,
        "position": cursor.position,
        "fingerprint": run.fingerprint,
        "order": run.sampler,
    }


def from_state(state: Any, run: RunIdentity) -> Cursor:
    """Return the cursor of a saved state.

    Args:
      state: what `to_state` returned.
      run: the identity of the Loader that resumes.

    Raises:
      StateError: damaged, from a newer jaxaug, or saved with another data set, seed or sampler.
    """
    _check_fields(state)
    _check_run(state, run)

    epoch = state["epoch"]
    position = state["position"]
    beyond = run.length is not None and position > run.length
    if epoch < 0 or position < 0 or beyond:
        raise StateError(
            f"damaged state: epoch {epoch}, position {position} of {run.length} records."
        )
    return Cursor(epoch, position)


def _check_fields(state: Any) -> None:
    """Refuse a state whose version or fields are not those that `to_state` writes."""
    if isinstance(state, StateError):  # of `read_state`
        raise state
    if not isinstance(state, dict):
        raise StateError(
            f"a state must be the dict that `get_state()` gave, got {type(state).__name__}."
        )

    version = state.get("version")
    if type(version) is not int or version < 1:
        raise StateError(f"damaged state: `version` must be an int of at least 1, got {version!r}.")
    if version > STATE_VERSION:  # before the fields: a newer version may have others
        raise StateError(
            f"the state has version {version}, this jaxaug reads up to {STATE_VERSION}: "
            "update jaxaug."
        )

    for name, kind in _FIELDS.items():
        if type(state.get(name)) is not kind:
            raise StateError(
                f"damaged state: `{name}` must be {kind.__name__}, got {state.get(name)!r}."
            )


def _check_run(state: dict[str, Any], run: RunIdentity) -> None:
    """Refuse a state that was saved with another data set, seed or sampler."""
    if state["fingerprint"] != run.fingerprint:
        raise StateError(
            f"the state belongs to another data set: its fingerprint is {state['fingerprint']}, "
            f"this source's is {run.fingerprint}."
        )
    if state["seed"] != run.seed:
        raise StateError(
            f"the state was saved with seed={state['seed']}, this Loader has seed={run.seed}: "
            "make it with the same seed."
        )

    # Older states name the sampler's kind alone; they resume without a check of its parameters.
    kind = run.sampler.partition("(")[0]
    if state["order"] not in (run.sampler, kind):
        raise StateError(
            f"the state was saved with the order {state['order']}, this Loader has {run.sampler}: "
            "give it the same `shuffle`."
        )


class Checkpointable:
    """A base class that makes an object with a state Orbax v1's `StatefulCheckpointable`."""

    def get_state(self) -> dict[str, Any]:
        """Return the state, as JSON scalars."""
        raise NotImplementedError

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        raise NotImplementedError

    async def save(self, directory: Any) -> Awaitable[None]:
        """Write the state of now into a checkpoint of Orbax v1, which awaits the result.

        The first process writes: the state is that of all.
        """
        return _write_when_created(self.get_state(), directory)

    async def load(self, directory: Any) -> Awaitable[None]:
        """Set the state that `save` wrote; Orbax v1 awaits the result."""
        return self._load(directory)

    async def _load(self, directory: Path) -> None:
        self.set_state(read_state(directory))


async def _write_when_created(state: dict[str, Any], directory: Any) -> None:
    """Write a state once Orbax has made `directory`."""
    folder = await directory.await_creation()
    if jax.process_index() == 0:
        write_state(state, folder)


def write_state(state: dict[str, Any], folder: Path) -> None:
    """Write a state into a folder."""
    (folder / _FILE_NAME).write_text(json.dumps(state))


def read_state(folder: Path) -> Any:
    """Return the state that lies in a folder, or why none can be read.

    `from_state` raises that, where other processes are told instead of waiting for this one.
    """
    file = folder / _FILE_NAME
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        return StateError(f"no state of a Loader can be read from {str(file)!r}: {error}")
