"""The threads of decoders, in a child that was forked while one of them was given a row."""

import os
import signal

import pytest

from jaxaug.decode._row_threads import RowThreads


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:")
def test_a_forked_child_waits_for_no_lock_of_the_pool():
    threads = RowThreads(2, "test")
    assert list(threads.map(abs, [-1, 2, -3])) == [1, 2, 3]

    def in_child():
        signal.alarm(60)
        status = 1
        try:
            with pytest.raises(RuntimeError, match="before this process was forked"):
                threads.submit(abs, -1)
            threads.shutdown(cancel_futures=True)
            status = 0
        finally:
            os._exit(status)

    with threads._shutdown_lock:  # as a thread holds it that submits a row
        child = os.fork()
        if child == 0:
            in_child()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    threads.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        threads.submit(abs, -1)
