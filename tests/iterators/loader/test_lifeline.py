"""The thread that watches over the other processes is out of JAX when Python ends."""

import threading
import time

from jaxaug.iterators.loader.lifeline import Lifeline

SECONDS = 60


class Client:
    """A key-value store whose requests last until `answer` is set.

    A request that comes back from C++ to a Python that ends makes the process abort.
    """

    def __init__(self):
        self.asked = threading.Event()
        self.answer = threading.Event()
        self.requests = 0

    def key_value_set(self, key, value):
        pass

    def key_value_try_get(self, key):
        self.requests += 1
        self.asked.set()
        assert self.answer.wait(SECONDS)
        raise RuntimeError("not there")


def test_the_end_waits_for_a_request_and_none_follows(monkeypatch):
    """Of the second of two processes, of which the first has not come."""
    monkeypatch.setattr("jaxaug.iterators.loader.lifeline._TICK_SECONDS", 0.01)
    monkeypatch.setattr("jaxaug.iterators.loader.lifeline._FLUSH_SECONDS", 0.0)
    monkeypatch.setattr("jaxaug.iterators.loader.lifeline._REQUEST_SECONDS", SECONDS)
    client = Client()
    lifeline = Lifeline(client, "key", 1, (0, 1), host=str, watch=lambda lifeline: None).start()
    assert client.asked.wait(SECONDS)
    end = threading.Thread(target=lifeline.leave, args=("has ended", False))
    end.start()
    end.join(0.2)
    assert end.is_alive()

    client.answer.set()
    end.join(SECONDS)
    requests = client.requests
    time.sleep(0.2)
    assert not end.is_alive() and client.requests == requests
