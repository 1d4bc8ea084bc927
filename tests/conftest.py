"""The strict session: 8 CPU devices, no implicit dtype or rank promotion, jaxaug's warnings are
errors.
"""

import gc
import os
import re
import signal

import jax
import pytest

# Against deadlocks of jax before 0.12, see `iterators/loader/cpu_threads.py`.
os.environ.setdefault("NPROC", "64")
jax.config.update("jax_num_cpu_devices", 8)
# Tracing allocates so much that the collector, behind which JAX cleans up each time, took a seventh
# of the processor time of tests that compile. Tests of what must be collected call it.
gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True)
def strict(request):
    """jaxaug must not lean on promotions that a user may have switched off; optax does, so training
    is exempt.
    """
    if request.node.get_closest_marker("training"):
        yield
        return
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


def pytest_configure(config):
    # A shell has what it runs in the background ignore Ctrl-C, which some tests send to themselves.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("filterwarnings", "error:::jaxaug")


def scope(nodeid: str) -> str:
    """Return the file of a test, and in the tables of laws its transform, too.

    The laws of one transform share programs: one process runs them, and one after another, as JAX
    keeps no more than some thousand programs at hand.
    """
    laws = re.match(r"(.*/test_(?:contract|draws)\.py)::\w+(\[\w+)", nodeid)
    return "".join(laws.groups()) if laws else nodeid.split("::", 1)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadfile` the tables of laws are given to processes transform by transform."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByTransform(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return scope(nodeid)

    return ByTransform(config, log)


def pytest_collection_modifyitems(items):
    """Tests of one scope follow each other, and a GPU test without a GPU is skipped with that
    reason, never silently passed.
    """
    order = {}
    items.sort(key=lambda item: order.setdefault(scope(item.nodeid), len(order)))
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_tests and jax.default_backend() != "gpu":
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU; jax sees none here"))


@pytest.fixture
def cpu_devices():
    """The 8 CPU devices of the session."""
    return jax.devices("cpu")
