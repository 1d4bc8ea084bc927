"""Threads that decode the rows of a batch, and what a forked child makes of them."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class RowThreads(ThreadPoolExecutor):
    """A pool that a forked child neither uses nor waits for.

    The child has none of the threads, and a lock of the pool is never free again if a thread held
    it meanwhile.

    Args:
      count: the number of threads.
      name: what their names begin with.
    """

    def __init__(self, count: int, name: str):
        super().__init__(count, name)
        self._process = os.getpid()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in a thread.

        Raises:
          RuntimeError: the pool was made before this process was forked.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "these threads were started before this process was forked, and did not come "
                "along: make the Loader, or the decoder, anew."
            )
        return super().submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads; in a forked child there are none."""
        if os.getpid() == self._process:
            super().shutdown(wait, cancel_futures=cancel_futures)
