"""A plugin of pytest: programs that are lowered one after another share contexts of MLIR.

JAX makes one, with all dialects, for each program: a fifth of the processor time of an eager
operation. Nothing promises that threads may share one: where a Loader's run, each program has its
own.
"""

import functools
import itertools
import threading

from jax._src.interpreters import mlir

PROGRAMS = 64  # of a context, which is then freed with what it holds


def is_alone() -> bool:
    """Tell whether no thread but the main one can lower a program; Timers are those of timeouts."""
    return all(
        thread is threading.main_thread() or isinstance(thread, threading.Timer)
        for thread in threading.enumerate()
    )


def pytest_configure():
    if make := getattr(mlir, "make_ir_context", None):
        number = itertools.count()
        latest = functools.lru_cache(1)(lambda _: make())
        mlir.make_ir_context = lambda: latest(next(number) // PROGRAMS) if is_alone() else make()
