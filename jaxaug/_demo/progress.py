"""A progress bar where tqdm is installed, a line of text where it is not."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Return the items, with a progress bar on stderr if that is a terminal.

    Args:
      items: anything iterable.
      description: the text beside the bar.
      total: how many items there are, where `items` has no length.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        print(f"{description} ...", flush=True)
        return iter(items)

    # disable=None: where stderr is a pipe or a file, each refresh would stay as a line.
    return iter(tqdm(items, desc=description, total=total, leave=False, disable=None))
