"""A Loader as an item of a checkpoint of Orbax v0. Needs orbax-checkpoint."""

import dataclasses
from pathlib import Path

import orbax.checkpoint as ocp

from jaxaug.iterators.loader.loader import Loader
from jaxaug.iterators.loader.state import read_state, write_state


class LoaderHandler(ocp.CheckpointHandler):
    """Saves and restores the state of the Loader in a `LoaderState`; Orbax makes it itself.

    Where each process saves in a folder of its own, on a disk of its host, Orbax asks for
    `item_handlers`: give it `LoaderHandler(multiprocessing_options=...)`.

    Args:
      multiprocessing_options: those of the CheckpointManager; its `primary_host` writes.
    """

    def __init__(
        self,
        *,
        multiprocessing_options: ocp.options.MultiprocessingOptions | None = None,
    ):
        options = multiprocessing_options or ocp.options.MultiprocessingOptions()
        self._primary_host = options.primary_host

    def save(self, directory: Path, args: "LoaderState") -> None:
        """Write the Loader's state at the time of the call, also in an asynchronous save."""
        if ocp.utils.is_primary_host(self._primary_host):
            write_state(args.loader.get_state(), directory)

    def restore(self, directory: Path, args: "LoaderState") -> Loader:
        """Set the Loader to the saved state."""
        args.loader.set_state(read_state(directory))
        return args.loader


@ocp.args.register_with_handler(LoaderHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class LoaderState(ocp.args.CheckpointArgs):
    """The arguments of an item that holds a Loader's state, to save it and to restore it in place.

    Args:
      loader: the Loader.

    Example:
      `manager.save(step, args=ocp.args.Composite(model=ocp.args.StandardSave(state),
      data=LoaderState(loader)))` and `manager.restore(step,
      args=ocp.args.Composite(model=ocp.args.StandardRestore(state), data=LoaderState(loader)))`
    """

    loader: Loader
