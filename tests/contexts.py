"""A plugin of pytest for tests that lower programs in one thread: they share contexts of MLIR.

JAX makes one, with all dialects, for each program: a fifth of the processor time of an eager
operation. Nothing promises that threads, as those of a Loader, may share one.
"""

import functools
import itertools

from jax._src.interpreters import mlir

PROGRAMS = 64  # of a context, which is then freed with what it holds


def pytest_configure():
    if make := getattr(mlir, "make_ir_context", None):
        number = itertools.count()
        latest = functools.lru_cache(1)(lambda _: make())
        mlir.make_ir_context = lambda: latest(next(number) // PROGRAMS)
