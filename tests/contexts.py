"""Contexts of MLIR that several programs of the tests share."""

import functools
import itertools

from jax._src.interpreters import mlir

PROGRAMS = 64  # of a context, which is then freed with what it holds


def share_contexts() -> None:
    """JAX makes a context, with all dialects, for each program that it lowers: a fifth of the
    processor time of an eager operation.
    """
    if make := getattr(mlir, "make_ir_context", None):
        number = itertools.count()
        latest = functools.lru_cache(1)(lambda _: make())
        mlir.make_ir_context = lambda: latest(next(number) // PROGRAMS)
