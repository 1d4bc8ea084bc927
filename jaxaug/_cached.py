"""A property that is computed once for each instance."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

T = TypeVar("T")


class cached_property(functools.cached_property[T]):
    """`functools.cached_property` as Python 3.12 has it, without a lock.

    That of Python 3.11 is one for all instances: threads wait for each other's, and in a process
    that is forked while one of them computes it is never free again.
    """

    def __init__(self, func: Callable[[Any], T]):
        super().__init__(func)
        self.lock = nullcontext()
