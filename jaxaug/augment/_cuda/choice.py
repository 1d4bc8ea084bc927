"""The one place where a program for CUDA devices is chosen, mostly a kernel instead of XLA."""

from collections.abc import Callable
from typing import Any

from jax import Array, lax

from jaxaug._nvrtc import is_available
from jaxaug.augment._xla import split_arrays, with_jvp_of


def on_gpu(kernel: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """Return `kernel(*operands)` where the program runs on a CUDA device, else `otherwise`.

    Args:
      kernel: computes what `otherwise` does, by a CUDA kernel or another program of XLA. It needs
        no derivative: that of `otherwise` is taken.
      otherwise: a function of the operands for all devices. Neither closes over traced values.
      operands: pytrees. Their arrays are traced; numbers and strings stay what they are.
    """
    if not is_available():
        return otherwise(*operands)

    arrays, join = split_arrays(operands)

    def plain(*arrays: Array) -> Any:
        return otherwise(*join(arrays))

    @with_jvp_of(plain)
    def by_cuda(*arrays: Array) -> Any:
        return kernel(*join(arrays))

    return lax.platform_dependent(*arrays, cuda=by_cuda, default=plain)
