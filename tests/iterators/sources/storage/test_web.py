"""Ranges of files of web servers by sockets, from servers that do not answer as they should."""

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators.sources.storage import web
from jaxaug.iterators.sources.storage.files import DataFile
from jaxaug.iterators.sources.storage.remote import RemoteReader
from jaxaug.iterators.sources.storage.threads import abandoned
from jaxaug.iterators.sources.storage.web import Failed, WebStore
from tests.iterators.sources.packed.test_remote import Server, serving

SIZE = 300_000
CONTENT = np.random.default_rng(0).bytes(2 * SIZE)


@pytest.fixture
def server():
    """A handler with "/a.bin", and the root of its URLs."""
    with serving() as (handler, url):
        handler.contents["/a.bin"] = CONTENT
        yield handler, url


def read(store, path="a.bin", offset=1000, size=SIZE):
    found = bytearray(size)
    store.read(path, offset, memoryview(found), None)
    return found


def answer_with(monkeypatch, handler, send):
    """Have GET answered by `send(handler, bytes that were asked for)`, behind the first headers."""

    def answer(self, body):
        assert body
        first, last = (int(x) for x in self.headers["Range"].removeprefix("bytes=").split("-"))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(CONTENT)}")
        send(self, CONTENT[first : last + 1])

    monkeypatch.setattr(handler, "answer", answer)


def send_chunks(self, content):
    self.send_header("Transfer-Encoding", "chunked")
    self.end_headers()
    for start in range(0, len(content), 70_000):
        piece = content[start : start + 70_000]
        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    self.wfile.write(b"0\r\n\r\n")


def connections_of(monkeypatch, handler):
    """Return the set that gets the address of each connection."""
    found = set()
    setup = Server.setup
    monkeypatch.setattr(
        handler, "setup", lambda self: found.add(self.client_address) or setup(self), raising=False
    )
    return found


def test_threads_in_turn_share_a_connection(server, monkeypatch):
    """Each of 128 threads had its own for ever, so that a few sources took all descriptors."""
    handler, url = server
    found = connections_of(monkeypatch, handler)
    store = WebStore(url, 5.0)
    for _ in range(12):
        with ThreadPoolExecutor(1) as pool:  # a new thread
            assert pool.submit(read, store).result() == CONTENT[1000 : 1000 + SIZE]
    assert len(found) == 1
    both = threading.Barrier(2)
    answer = handler.answer
    monkeypatch.setattr(handler, "answer", lambda self, body: (both.wait(5), answer(self, body)))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(read, [store] * 8))
    assert len(found) == 2


def many(store, count=40, size=7_000, path="a.bin"):
    """Ranges by number, and what they must be."""
    offsets = np.random.default_rng(1).integers(0, len(CONTENT) - size, count).tolist()
    etag = store.facts(path).headers["etag"]
    ranges = {
        10 * number: web.Wanted(path, offset, memoryview(bytearray(size)), etag)
        for number, offset in enumerate(offsets)
    }
    return ranges, {10 * n: CONTENT[at : at + size] for n, at in enumerate(offsets)}


def open_connections(url, count):
    """Leave as many connections to wait."""
    both = [web._connection("http", url.removeprefix("http://"), 5.0) for _ in range(count)]
    for connection in both:
        web._idle.add(("http", url.removeprefix("http://")), connection)


def test_one_thread_reads_many_ranges_by_the_connections_that_wait(server, monkeypatch):
    handler, url = server
    found = connections_of(monkeypatch, handler)
    store = WebStore(url, 5.0)
    ranges, wanted = many(store)
    assert store.read_many(ranges, lambda size: 5.0) == {}  # one connection is too few for 40
    open_connections(url, 24)
    for _ in range(3):
        seconds = store.read_many(ranges, lambda size: 5.0)
        assert seconds.keys() == wanted.keys() and max(seconds.values()) < 5
        assert {number: bytes(each.destination) for number, each in ranges.items()} == wanted
        for each in ranges.values():
            each.destination[:] = bytes(len(each.destination))
    assert len(found) <= 25


def test_one_thread_leaves_out_what_does_not_come_as_it_should(server, monkeypatch):
    handler, url = server
    store = WebStore(url, 1.0)
    ranges, wanted = many(store)
    open_connections(url, 40)
    answer, over = handler.answer, threading.Event()
    bad = {each.offset: number for number, each in list(ranges.items())[::4]}

    def sometimes(self, body):
        first = int(self.headers["Range"].removeprefix("bytes=").split("-")[0])
        if first not in bad:
            return answer(self, body)
        if bad[first] % 80:
            return self.send(503, b"", body)
        over.wait(20)
        self.close_connection = True

    monkeypatch.setattr(handler, "answer", sometimes)
    try:
        seconds = store.read_many(ranges, lambda size: 2.0)
    finally:
        over.set()
    for number, each in ranges.items():
        if each.offset not in bad:
            assert seconds[number] < 5 and bytes(each.destination) == wanted[number]
        else:
            assert np.isnan(seconds[number]) if number % 80 else seconds[number] == np.inf


def test_a_server_that_trickles_does_not_hold_up_one_thread(server, monkeypatch):
    handler, url = server
    reader, over = RemoteReader(timeout=1.0), threading.Event()
    etag = WebStore(url, 1.0).facts("a.bin").headers["etag"]
    file = DataFile(f"{url}/a.bin", len(CONTENT), etag)
    parts = [memoryview(bytearray(7_000)) for _ in range(8)]
    assert reader.read(file, 0, parts[0]) == 7_000
    open_connections(url, 8)

    def trickle(self, content):
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        for start in range(len(content)):
            if over.wait(0.2):
                break
            self.wfile.write(content[start : start + 1])
        self.close_connection = True

    answer_with(monkeypatch, handler, trickle)
    with ThreadPoolExecutor(1) as pool:
        try:
            found = pool.submit(reader.read_many, [file] * 8, [0] * 8, parts)
            assert found.result(timeout=60) == [False] * 8
        finally:
            over.set()


def test_one_thread_waits_for_no_range_that_nobody_awaits(server, monkeypatch):
    handler, url = server
    store, over = WebStore(url, 600.0), threading.Event()
    ranges, _ = many(store)
    open_connections(url, 40)
    monkeypatch.setattr(handler, "answer", lambda self, body: over.wait(60))
    try:
        seen = contextvars.copy_context()
        seen.run(abandoned.set, lambda: True)
        with pytest.raises(SourceError, match="the Loader was closed before"):
            seen.run(store.read_many, ranges, lambda size: 600.0)
        assert not over.is_set()
    finally:
        over.set()


def test_one_thread_waits_for_no_server_that_asks_it_to_when_nobody_awaits_it(server, monkeypatch):
    handler, url = server
    store, failures = WebStore(url, 5.0), []
    ranges, _ = many(store)
    open_connections(url, 40)
    monkeypatch.setattr(handler, "answer", lambda self, body: self.send(503, b"", body))
    monkeypatch.setattr(web, "pause_after", lambda failure: failures.append(failure) or 2.0)
    seen = contextvars.copy_context()
    seen.run(abandoned.set, lambda: bool(failures))
    with pytest.raises(SourceError, match="the Loader was closed before"):
        seen.run(store.read_many, ranges, lambda size: 5.0)


def test_what_comes_unasked_is_no_answer_to_one_thread(server, monkeypatch):
    handler, url = server
    store = WebStore(url, 1.0)
    ranges, wanted = many(store, count=1)
    ranges = {number: ranges[0] for number in range(8)}  # all alike
    monkeypatch.setattr(web, "_MAX_AT_A_TIME", 1)  # one after the other
    answer = handler.answer

    def twice(self, body):
        answer(self, body)
        monkeypatch.setattr(handler, "contents", {"/a.bin": bytes(len(CONTENT))})
        answer(self, body)
        monkeypatch.setattr(handler, "contents", {"/a.bin": CONTENT})

    monkeypatch.setattr(handler, "answer", twice)
    monkeypatch.setattr(handler, "stamp", staticmethod(lambda content: {}))
    monkeypatch.setattr(handler, "wbufsize", -1)  # both are sent in one piece
    open_connections(url, 1)
    store.read_many(ranges, lambda size: 2.0)
    assert bytes(ranges[0].destination) == wanted[0]


def test_a_server_that_sends_on_is_left_to_threads(server, monkeypatch):
    handler, url = server
    answer = handler.answer
    store = WebStore(url, 5.0)
    ranges, _ = many(store)

    def moved(self, body):
        if self.path.startswith("/there/"):
            self.path = "/a.bin"
            return answer(self, body)
        return self.send(302, b"moved", body, {"Location": "/there/a.bin"})

    monkeypatch.setattr(handler, "answer", moved)
    assert read(store) == CONTENT[1000 : 1000 + SIZE]
    open_connections(url, 40)
    assert store.read_many(ranges, lambda size: 5.0) == {}


def test_connections_that_wait_for_long_are_closed(server, monkeypatch):
    handler, url = server
    found = connections_of(monkeypatch, handler)
    monkeypatch.setattr(web, "_IDLE_SECONDS", -1.0)
    for _ in range(3):
        read(WebStore(url, 5.0))
    assert len(found) == 3


def test_chunks_are_read_and_the_connection_goes_on(server, monkeypatch):
    handler, url = server
    found = connections_of(monkeypatch, handler)
    answer_with(monkeypatch, handler, send_chunks)
    for _ in range(3):
        assert read(WebStore(url, 5.0)) == CONTENT[1000 : 1000 + SIZE]
    assert len(found) == 1


def test_more_bytes_than_the_range_are_an_error(server, monkeypatch):
    """As of a proxy that compresses what does not get smaller."""
    handler, url = server
    answer_with(monkeypatch, handler, lambda self, content: send_chunks(self, b"gz" + content))
    with pytest.raises(OSError, match="more bytes"):
        read(WebStore(url, 5.0))


def test_what_comes_unasked_is_no_answer_to_the_next_request(server, monkeypatch):
    """Bytes of it were those of the next range, where it looked like an answer with them."""
    handler, url = server
    answer, sent = handler.answer, threading.Semaphore(0)

    def twice(self, body):
        answer(self, body)
        self.wfile.flush()
        monkeypatch.setattr(handler, "contents", {"/a.bin": bytes(len(CONTENT))})
        answer(self, body)
        monkeypatch.setattr(handler, "contents", {"/a.bin": CONTENT})
        self.wfile.flush()
        sent.release()

    monkeypatch.setattr(handler, "answer", twice)
    for _ in range(3):
        assert read(WebStore(url, 5.0), size=20_000) == CONTENT[1000:21_000]
        assert sent.acquire(timeout=5)


def test_early_answers_end(server, monkeypatch):
    handler, url = server
    answer, early = handler.answer, 2

    def late(self, body):
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n" * early)
        answer(self, body)

    monkeypatch.setattr(handler, "answer", late)
    assert read(WebStore(url, 5.0)) == CONTENT[1000 : 1000 + SIZE]
    early = 1000
    with pytest.raises(OSError, match="does not come"):
        read(WebStore(url, 5.0))


def test_an_answer_that_trickles_is_given_up_in_time(server, monkeypatch):
    handler, url = server
    over = threading.Event()

    def trickle(self, content):
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        for at in range(len(content)):
            if over.wait(0.1):
                return
            self.wfile.write(content[at : at + 1])
            self.wfile.flush()

    answer_with(monkeypatch, handler, trickle)
    pool = ThreadPoolExecutor(1)
    try:
        asked = pool.submit(read, WebStore(url, 2.0, whole=2.0))
        with pytest.raises(OSError, match=r"too long|timed out"):
            asked.result(30)
    finally:
        over.set()
        pool.shutdown()


@pytest.mark.parametrize("whole", [None, 2.0])
def test_a_head_that_trickles_is_given_up_in_time(server, monkeypatch, whole):
    """Each byte of it had a timeout of its own."""
    handler, url = server
    over = threading.Event()

    def trickle(self, body):
        for byte in b"HTTP/1.1 206 Partial Content\r\nX-Filling: " + b"x" * 60_000:
            if over.wait(0.1):
                return
            self.wfile.write(bytes([byte]))
            self.wfile.flush()

    monkeypatch.setattr(handler, "answer", trickle)
    pool = ThreadPoolExecutor(1)
    try:
        asked = pool.submit(read, WebStore(url, 2.0, whole))
        with pytest.raises(OSError, match="too long"):
            asked.result(30)
    finally:
        over.set()
        pool.shutdown()


@pytest.mark.parametrize("place", ["http://[::1/a.bin?sign=secret", "http://[secret]/a.bin", "//["])
def test_a_place_that_is_no_url_is_named(server, monkeypatch, place):
    handler, url = server
    monkeypatch.setattr(
        handler, "answer", lambda self, body: self.send(302, b"", body, {"Location": place})
    )
    with pytest.raises(OSError, match="redirects to what is no URL") as caught:
        read(WebStore(url, 5.0))
    assert "secret" not in str(caught.value) and caught.value.__cause__ is None


@pytest.mark.parametrize(
    "place",
    ["/there/a.bin?sign=a b", "/there/a.bin?sign=ä", "/there/a.bin?sign=%C3%A4#part"],
)
def test_a_place_may_be_written_carelessly(server, monkeypatch, place):
    handler, url = server
    answer = handler.answer
    seen = []

    def moved(self, body):
        if self.path.startswith("/there/"):
            seen.append(self.path)
            self.path = "/a.bin"
            return answer(self, body)
        sent = place.encode().decode("latin-1")  # as bytes, and as http.server encodes it
        return self.send(302, b"moved", body, {"Location": sent})

    monkeypatch.setattr(handler, "answer", moved)
    assert read(WebStore(url, 5.0)) == CONTENT[1000 : 1000 + SIZE]
    sign = "a%20b" if " " in place else "%C3%A4"
    assert seen == [f"/there/a.bin?sign={sign}"]


@pytest.mark.parametrize("place", ["http://user:secret@127.0.0.1:1/a.bin", "ftp://secret/a.bin"])
def test_where_sockets_do_not_follow(server, monkeypatch, place):
    handler, url = server
    monkeypatch.setattr(
        handler, "answer", lambda self, body: self.send(302, b"", body, {"Location": place})
    )
    with pytest.raises(OSError, match="redirects to") as caught:
        read(WebStore(url, 5.0))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
def test_proxies_are_left_to_others(server, monkeypatch, variable):
    _, url = server
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    monkeypatch.setattr(web, "_idle", web._Idle())
    with pytest.raises(OSError, match="proxy"):
        WebStore(url, 5.0).facts("a.bin")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert WebStore(url, 5.0).facts("a.bin").size == len(CONTENT)


def test_a_failure_leaves_no_connection_that_is_wrong(server, monkeypatch):
    """The rest of one answer would be the beginning of the next."""
    handler, url = server
    store = WebStore(url, 5.0)
    for ranges in (True, False, True):
        handler.ranges = ranges
        if ranges:
            assert read(store) == CONTENT[1000 : 1000 + SIZE]
            continue
        with pytest.raises(Failed, match="200 OK"):
            read(store)
    monkeypatch.setattr(handler, "protocol_version", "HTTP/1.0")
    assert read(store) == CONTENT[1000 : 1000 + SIZE]
