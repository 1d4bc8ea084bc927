"""The hardware queues that CUDA gives the streams of a process; importing this asks for all.

nvJPEG decodes with 14 streams. Of CUDA's usual 8 queues some are then shared with JAX's compute
stream, and decodes and whole training steps wait for each other: 64 images take 134 ms instead of
6, a step of ResNet-50 1.24 instead of 1.03 times as long as alone (H200).
"""

import os
import sys
import warnings

_VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
_QUEUES = "32"  # CUDA's maximum


def warn_if_late() -> None:
    """Warn if CUDA had started, with its usual queues, before jaxaug was imported."""
    if not _IN_TIME:
        warnings.warn(
            "jaxaug was imported after CUDA had started with its usual 8 hardware queues, so "
            "decoding and training will wait for each other: import jaxaug before the first "
            f"operation on a GPU, or set {_VARIABLE}={_QUEUES} in the environment.",
            RuntimeWarning,
            stacklevel=2,
        )


def _cuda_may_have_started() -> bool:
    """Return True if JAX or PyTorch has its devices already."""
    bridge = sys.modules.get("jax._src.xla_bridge")  # jax has no public name for this
    jax_has = getattr(bridge, "backends_are_initialized", lambda: False)
    torch_cuda = sys.modules.get("torch.cuda")
    torch_has = getattr(torch_cuda, "is_initialized", lambda: False)
    return jax_has() or torch_has()


# CUDA reads the variable when it starts. What the user has set stays.
_IN_TIME = _VARIABLE in os.environ or not _cuda_may_have_started()
os.environ.setdefault(_VARIABLE, _QUEUES)
