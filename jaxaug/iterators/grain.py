"""A Loader as the first stage of a Grain pipeline. Needs grain."""

import threading
from typing import Any

import grain

from jaxaug.iterators.export.to_numpy import check_loader
from jaxaug.iterators.loader.loader import Loader


class LoaderDataset(grain.IterDataset):  # pyright: ignore[reportAttributeAccessIssue]
    """The batches of a Loader, across epochs, as a `grain.IterDataset`.

    Iterators begin at the position that the Loader had when this was made. Their state is the
    Loader's, so a saved pipeline continues after the last batch, also with another batch size or
    number of processes. Each iterator has its own position, also where several threads have one
    each, as Grain's prefetching does; taking turns between two of them moves the Loader each time,
    which throws away what was read ahead.

    Args:
      loader: a `Loader`; closing it is left to you.

    Raises:
      TypeError: `loader` is no Loader.

    Example:
      `dataset = LoaderDataset(loader).map(lambda batch: (batch["image"], batch["label"]))`
    """

    def __init__(self, loader: Loader):
        check_loader(loader, "LoaderDataset")
        super().__init__()
        self._loader = loader
        self._start = loader.get_state()
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        return f"LoaderDataset({self._loader!r})"

    def __iter__(self) -> "LoaderIterator":
        return LoaderIterator(self._loader, self._start, self._turn)


class LoaderIterator(grain.DatasetIterator):  # pyright: ignore[reportAttributeAccessIssue]
    """An iterator over a Loader, with a place of its own.

    Args:
      loader: the Loader.
      state: the place.
      turn: held while the Loader is moved and used, by one of its iterators at a time.
    """

    def __init__(self, loader: Loader, state: dict[str, Any], turn: threading.Lock):
        super().__init__()
        self._loader = loader
        self._state = state
        self._turn = turn

    def __next__(self) -> dict[str, Any]:
        with self._turn:
            if self._loader.get_state() != self._state:  # another iterator has used the Loader
                self._loader.set_state(self._state)
            batch = next(self._loader)
            self._state = self._loader.get_state()
        return batch

    def get_state(self) -> dict[str, Any]:
        """Return the state of the Loader at the place of this iterator, as JSON scalars."""
        return dict(self._state)

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on after the last batch that was delivered before `state` was taken."""
        with self._turn:
            self._loader.set_state(state)
            self._state = self._loader.get_state()
