"""A progress bar where tqdm is installed, a line of text where it is not."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """The same items, with their progress shown on stderr.

    Args:
      items: what to go through.
      description: what is being done.
      total: how many items there are, where `items` has no length.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        print(f"{description} ...", flush=True)
        return iter(items)
    return iter(tqdm(items, desc=description, total=total, leave=False))
