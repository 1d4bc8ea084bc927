"""A progress bar over bytes, where tqdm is installed and stderr is a terminal."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def byte_progress(total: int, description: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that any thread calls with the bytes done since its last call.

    The bar appears after a second. Without tqdm, and where stderr is no terminal, nothing is drawn.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda count: None
        return
    lock = threading.Lock()
    options = {"unit": "B", "unit_scale": True, "desc": description, "delay": 1}
    with tqdm(total=total, disable=None, **options) as bar:  # None: where nobody would see it

        def advance(count: int) -> None:
            with lock:
                bar.update(count)

        yield advance
