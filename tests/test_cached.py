"""Properties that are computed once, where threads and forks meet."""

import os
import signal
import threading

import pytest

from jaxaug._cached import cached_property


class Slow:
    def __init__(self, wait=lambda: None):
        self.wait, self.calls = wait, 0

    @cached_property
    def value(self):
        self.calls += 1
        self.wait()
        return 3


def test_a_value_is_computed_once():
    slow = Slow()
    assert [slow.value, slow.value, slow.calls] == [3, 3, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork:")
def test_a_fork_amid_another_threads_computation_computes_its_own():
    begun, go_on = threading.Event(), threading.Event()
    other = Slow(lambda: begun.set() or go_on.wait(60))
    thread = threading.Thread(target=lambda: other.value)
    thread.start()
    try:
        assert begun.wait(60)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(Slow().value)
        _, status = os.waitpid(child, 0)
    finally:
        go_on.set()
        thread.join()
    assert os.waitstatus_to_exitcode(status) == 3
