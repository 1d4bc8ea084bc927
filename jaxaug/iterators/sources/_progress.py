"""A progress bar over bytes, if tqdm is installed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def byte_progress(total: int, description: str) -> Iterator[Callable[[int], None]]:
    """A function to call, from any thread, with the bytes done since its last call.

    The bar appears after a second. Without tqdm nothing is drawn.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda count: None
        return
    lock = threading.Lock()
    with tqdm(total=total, unit="B", unit_scale=True, desc=description, delay=1) as bar:

        def advance(count: int) -> None:
            with lock:
                bar.update(count)

        yield advance
