"""Images/s of several threads together."""

import threading
import time
from collections.abc import Callable


def rate(
    work: Callable[[int, Callable[[], bool], Callable[[int], None]], None],
    threads: int,
    seconds: float,
) -> float:
    """Return images/s of threads that run `work(thread, running, count)`.

    Args:
      work: loops while `running()` is True and calls `count(images)`; what comes before its first
        `running()` is not measured.
      threads: how many run it at once.
      seconds: the length of the measurement, and of the warm-up before it.
    """
    counts = [0] * threads
    stop = threading.Event()
    barrier = threading.Barrier(threads + 1)

    def run(thread: int) -> None:
        waiting = True

        def running() -> bool:  # the first call ends the warm-up
            nonlocal waiting
            if waiting:
                waiting = False
                barrier.wait()
            return not stop.is_set()

        def count(images: int) -> None:
            counts[thread] += images

        work(thread, running, count)

    pool = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in pool:
        thread.start()
    barrier.wait()
    time.sleep(seconds)
    before = sum(counts)
    started = time.perf_counter()
    time.sleep(seconds)
    images = sum(counts) - before
    elapsed = time.perf_counter() - started
    stop.set()
    for thread in pool:
        thread.join()
    return images / elapsed
