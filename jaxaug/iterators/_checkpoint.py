"""A Loader's state in Orbax checkpoints.

The state is the same on every process and knows neither batch size nor devices, so the first
process writes it and a run with any other number of processes reads it. There are three ways, all
with the same outcome:

- Orbax v1: the Loader is a `StatefulCheckpointable`; name it beside the model in
`save_checkpointables`.
- Orbax v0: `LoaderState(loader)` of `jaxaug.iterators.orbax` as the arguments of an item, to save
and to restore.
- Orbax v0: `ocp.args.JsonSave(loader.get_state())`, and `set_state` of what
  `ocp.args.JsonRestore()` gives.
"""

import json
from pathlib import Path
from typing import Any, Protocol

import jax

from jaxaug.errors import StateError

_FILE = "loader.json"


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
