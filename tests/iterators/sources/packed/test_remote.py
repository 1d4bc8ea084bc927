"""Files of web servers and object stores, by fsspec."""

import base64
import http.server
import importlib
import socket
import sys
import threading
import traceback
import warnings
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import formatdate
from types import SimpleNamespace
from typing import ClassVar
from urllib.parse import unquote

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug._pack import pack_files
from jaxaug.decode import Image
from jaxaug.errors import SourceError
from jaxaug.iterators import (
    Blocks,
    Coco,
    Concat,
    FileList,
    ImageFolder,
    InMemory,
    PairedFolders,
    Subset,
)
from jaxaug.iterators.sources.packed.tfrecord import TFRecord
from jaxaug.iterators.sources.packed.webdataset import WebDataset
from jaxaug.iterators.sources.storage import files as files_module
from jaxaug.iterators.sources.storage import read, remote
from jaxaug.iterators.sources.storage.files import DataFile, list_files
from tests.iterators.loaders import one_device
from tests.iterators.sources import containers


class Server(http.server.BaseHTTPRequestHandler):
    """Files with ranges; every `fails`-th answer of content is a 503. `stamp` gives the header that
    tells a change.
    """

    contents: ClassVar[dict] = {}
    requests: ClassVar[list] = []
    stamp = staticmethod(lambda content: {"ETag": f'"{zlib.crc32(content)}"'})
    fails = 0
    ranges = True
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        content = self.contents.get(self.path)
        wanted = self.headers.get("Range") if self.ranges else None
        if body and content is not None:
            self.requests.append(wanted)
            if self.fails and len(self.requests) % self.fails == 0:
                return self.send(503, b"")
        if content is None:
            return self.send(404, b"")
        extra = self.stamp(content) | ({"Accept-Ranges": "bytes"} if self.ranges else {})
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            first = int(first)
            last = min(int(last or len(content) - 1), len(content) - 1)
            extra["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content = content[first : last + 1]
        self.send(206 if wanted else 200, content, body, extra)

    def send(self, status, content, body=True, extra=None):
        self.send_response(status)
        for name, value in ((extra or {}) | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format, *args):
        pass


@contextmanager
def serving(kind=Server, address="127.0.0.1"):
    """The handler of a server, whose attributes a test may set, and its URL."""
    handler = type("Handler", (kind,), {"contents": {}, "requests": []})
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = type("Running", (http.server.ThreadingHTTPServer,), {"address_family": family})
    running = made((address, 0), handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        host = f"[{address}]" if ":" in address else address
        yield handler, f"http://{host}:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()
        thread.join(10)


@pytest.fixture
def server(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving() as found:
        yield found


@pytest.mark.parametrize("fails", [0, 4])
def test_remote_files(server, monkeypatch, fails):
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    handler, url = server
    files = containers.labelled_files(8)
    names = list(files)
    for shard in range(2):
        handler.contents[f"/s-{shard}.tar"] = containers.tar(
            {name: files[name] for name in names[shard * 8 :][:8]}
        )
    handler.fails = fails
    source = WebDataset(url + "/s-{0..1}.tar")
    assert containers.images_by_label(source) == dict(enumerate(containers.jpegs(8)))
    handler.requests.clear()
    again = WebDataset(url + "/s-{0..1}.tar")  # the stored index serves: no content is asked for
    assert handler.requests == [] and again.fingerprint() == source.fingerprint()
    encoded = again.read(np.array([0, 5]))["image"]
    assert bytes(encoded.view(1)) == containers.jpegs(8)[5] and None not in handler.requests
    assert fails or len(handler.requests) == 2
    assert again.describe(5)["key"] == "0005"


def test_a_host_that_is_an_address_of_ipv6(server, monkeypatch):
    """fsspec took "http://[::1]/a.tar" for a chain of two."""
    handler, _ = server
    handler.contents["/a.tar"] = containers.tar(containers.labelled_files(4))
    with serving(address="::1") as (handler6, url):
        handler6.contents = handler.contents
        for client in ("sockets", "fsspec"):
            with monkeypatch.context() as patch:
                take_client(patch, client)
                source = WebDataset(url + "/a.tar")
                assert containers.images_by_label(source) == dict(enumerate(containers.jpegs(4)))


@pytest.mark.parametrize("user", ["me:word@", "a::b@"])
@pytest.mark.usefixtures("server")
def test_a_user_before_an_address_of_ipv6(monkeypatch, user):
    take_client(monkeypatch, "fsspec")
    asked = []

    class Guarded(Server):
        def answer(self, body):
            asked.append(self.headers["Authorization"])
            super().answer(body)

    with serving(Guarded, "::1") as (handler6, url):
        handler6.contents["/a.tar"] = containers.tar(containers.labelled_files(4))
        source = WebDataset(url.replace("//", f"//{user}") + "/a.tar")
        assert containers.images_by_label(source) == dict(enumerate(containers.jpegs(4)))
    name, word = (unquote(each) for each in user[:-1].split(":", 1))
    assert set(asked) == {"Basic " + base64.b64encode(f"{name}:{word}".encode()).decode()}


def test_a_server_that_hangs_holds_up_no_other(server, monkeypatch):
    handler, url = server
    take_client(monkeypatch, "sockets")
    handler.contents["/a.tar"] = containers.tar(containers.labelled_files(4))
    hanging, ended, answered = threading.Event(), threading.Event(), []

    def hang(self):
        hanging.set()
        answered.append(ended.wait(60))
        self.answer(body=False)

    with serving() as (other, other_url):
        other.contents["/a.tar"] = handler.contents["/a.tar"]
        sources = [WebDataset(each + "/a.tar", timeout=800) for each in (url, other_url)]
        remote._stores.found.clear()
        monkeypatch.setattr(other, "do_HEAD", hang)
        waiting = threading.Thread(target=sources[1].read, args=(np.array([0]),))
        waiting.start()
        assert hanging.wait(30)
        found = sources[0].read(np.array([3]))["image"]
        assert bytes(found.view(0)) == containers.jpegs(4)[3] and not answered
        ended.set()
        waiting.join(60)
        assert not waiting.is_alive()


@pytest.mark.parametrize("order", [False, Blocks(40, run=5, lanes=4)])
def test_close_does_not_wait_for_a_server_that_hangs(server, monkeypatch, order):
    """Neither for reads of threads nor for those ahead of their batches."""
    handler, url = server
    take_client(monkeypatch, "sockets")
    handler.contents["/a.tar"] = containers.tar(containers.labelled_files(40))
    hanging, ended = threading.Event(), threading.Event()
    source = WebDataset(url + "/a.tar", timeout=800)
    options = {"shuffle": order, "sharding": one_device(), "decode": Image((32, 48))}
    loader = Loader(source, 4, **options)
    answer = handler.answer

    def hang(self, body):
        hanging.set()
        assert ended.wait(60)
        answer(self, body)

    monkeypatch.setattr(handler, "answer", hang)
    try:
        with ThreadPoolExecutor(1) as pool:
            batch = pool.submit(next, loader)
            assert hanging.wait(30)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # of threads that have not ended
                loader.close()
            assert not ended.is_set()
            with pytest.raises(ValueError, match="closed"):
                batch.result(60)
    finally:
        ended.set()


@pytest.mark.parametrize("asked, seconds", [("2", 2.0), ("\u00b2", 0.0), ("soon", 0.0), ("", 0.0)])
def test_the_pause_that_a_server_asks_for(monkeypatch, asked, seconds):
    monkeypatch.setattr(files_module, "_FIRST_PAUSE", 0.0)
    error = OSError()
    error.headers = {"Retry-After": asked}
    assert files_module.pause_after(error) == seconds


def test_globs_of_a_remote_store(server):
    memory = importlib.import_module("fsspec").filesystem("memory")
    data = containers.tfrecord(containers.labelled_examples(3))
    for name in ("a", "b"):
        memory.pipe_file(f"/jaxaug-test/{name}.tfrecord", data)
    source = TFRecord("memory://jaxaug-test/*.tfrecord")
    assert len(source) == 6 and source.describe(3)["path"] == "memory:///jaxaug-test/b.tfrecord"
    encoded = source.read(np.array([4]))["image"]
    assert bytes(encoded.view(0)) == containers.jpegs(3)[1]
    with pytest.raises(SourceError, match="matches no file"):
        TFRecord("memory://jaxaug-test/*.tar")
    memory.rm("/jaxaug-test", recursive=True)


def test_a_listing_tells_the_facts_of_files(monkeypatch):
    """No file is asked for by itself."""
    pytest.importorskip("fsspec")
    listed = {
        f"bucket/{name}.tar": {"name": f"bucket/{name}.tar", "size": 5, "type": "file", "ETag": tag}
        for name, tag in (("b", '"2"'), ("a", '"1"'))
    }
    system = SimpleNamespace(
        invalidate_cache=lambda: None,
        glob=lambda path, detail: listed,
        unstrip_protocol=lambda name: f"s3://{name}",
    )
    monkeypatch.setattr(files_module, "file_system_of", lambda path: (system, path))
    found = [DataFile(f"s3://bucket/{name}.tar", 5, f'"{at}"') for name, at in (("a", 1), ("b", 2))]
    assert list_files("s3://bucket/*.tar") == found


def test_many_files_are_asked_for_at_a_time(server, monkeypatch):
    handler, url = server
    handler.contents |= {f"/{number}.tar": b"." for number in range(8)}
    together = threading.Barrier(8)
    answer = handler.answer
    monkeypatch.setattr(
        handler, "do_HEAD", lambda self: (together.wait(10), answer(self, body=False))
    )
    files = list_files(f"{url}/{{0..7}}.tar")
    assert [file.path[-5:] for file in files] == [f"{number}.tar" for number in range(8)]


def test_a_protocol_that_nobody_knows():
    pytest.importorskip("fsspec")
    with pytest.raises(
        SourceError, match=r"'nobody://a.tar' is remote, which needs fsspec: .*nobody"
    ):
        WebDataset("nobody://a.tar")


def test_remote_files_that_are_missing_or_changed(server):
    handler, url = server
    with pytest.raises(SourceError, match=r"none.tar' cannot be opened"):
        WebDataset(url + "/none.tar")
    handler.contents["/a.tar"] = containers.tar(containers.labelled_files(2))
    first = WebDataset(url + "/a.tar")
    handler.contents["/a.tar"] = containers.tar(containers.labelled_files(9))
    assert (len(first), len(WebDataset(url + "/a.tar"))) == (2, 9)


def test_a_server_without_ranges_is_refused_before_it_is_indexed(server):
    handler, url = server
    handler.ranges = False
    tar = containers.tar(containers.labelled_files(2))
    handler.contents |= {f"/{name}.tar": tar for name in "abc"}
    with pytest.raises(SourceError, match=r"the server of '.*a.tar' ignores ranges, .*: download"):
        WebDataset(url + "/{a,b,c}.tar")
    assert len(handler.requests) == 1


def test_a_server_that_cannot_be_reached_is_not_a_missing_file(server, monkeypatch):
    monkeypatch.setattr(files_module, "OPENING", files_module.Patience(retries=1))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(SourceError, match=r"a.tar' cannot be opened: Connection refused\."):
            WebDataset(f"http://127.0.0.1:{port}/a.tar")
    handler, url = server
    with pytest.raises(SourceError, match=r"a.tar' cannot be opened: No such file or directory\."):
        WebDataset(url + "/a.tar")
    monkeypatch.setattr(handler, "answer", lambda self, body: self.send(403, b"", body))
    with pytest.raises(SourceError, match=r"a.tar' cannot be opened: 403.*Forbidden"):
        WebDataset(url + "/a.tar")


@pytest.mark.parametrize(
    "error, tries",
    [(OSError, 4), (TimeoutError, 4), (PermissionError, 1), (ValueError, 1)],
)
def test_which_failures_may_pass(monkeypatch, error, tries):
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    monkeypatch.setattr(files_module, "OPENING", files_module.Patience(retries=3))
    asked = []

    def info(name):
        asked.append(name)
        raise error("no")

    system = SimpleNamespace(invalidate_cache=lambda: None, info=info)
    monkeypatch.setattr(files_module, "file_system_of", lambda path: (system, path))
    with pytest.raises(SourceError, match="'any://a' cannot be opened: no"):
        list_files("any://a")
    assert len(asked) == tries


@pytest.mark.parametrize("failures, opens", [(3, True), (1000, False)])
def test_a_server_that_fails_for_a_moment_is_asked_again(server, monkeypatch, failures, opens):
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    monkeypatch.setattr(files_module, "OPENING", files_module.Patience(retries=3))
    handler, url = server
    handler.contents["/a.tar"] = containers.tar(containers.labelled_files(2))
    answer = handler.answer
    asked = []

    def sometimes(self, body):
        asked.append(body)
        if len(asked) <= failures:
            return self.send(503, b"", body)
        return answer(self, body)

    monkeypatch.setattr(handler, "answer", sometimes)
    if opens:
        assert len(WebDataset(url + "/a.tar")) == 2
    else:
        with pytest.raises(SourceError, match=r"a.tar' cannot be opened: 503.*Unavailable"):
            WebDataset(url + "/a.tar")


STAMPS = {
    "ETag": lambda content: {"ETag": f'"{zlib.crc32(content)}"'},
    "Last-Modified": lambda content: {
        "Last-Modified": formatdate(zlib.crc32(content), usegmt=True)
    },
}


def two_versions(count=4):
    """A shard, and one of the same size with other images and labels."""
    images = containers.jpegs(2 * count)
    images = [image.ljust(max(map(len, images)), b"\0") for image in images]
    labelled = [
        (f"{i % count}", label, image) for i, (label, image) in enumerate(zip("01234567", images))
    ]
    shards = []
    for part in (labelled[:count], labelled[count:]):
        members = [
            {f"{key}.jpg": image, f"{key}.cls": label.encode()} for key, label, image in part
        ]
        shards.append(
            containers.tar({name: data for pair in members for name, data in pair.items()})
        )
    assert len(shards[0]) == len(shards[1])
    return images[:count], images[count:], *shards


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_remote_change_of_the_same_size_is_seen_when_opened_again(server, stamp):
    handler, url = server
    handler.stamp = staticmethod(STAMPS[stamp])
    _, images, before, after = two_versions()
    handler.contents["/a.tar"] = before
    WebDataset(url + "/a.tar")
    handler.contents["/a.tar"] = after
    assert containers.images_by_label(WebDataset(url + "/a.tar")) == dict(enumerate(images, 4))
    handler.requests.clear()
    WebDataset(url + "/a.tar")
    assert handler.requests == []


@pytest.mark.parametrize(
    "time", [0, *[pytest.param(k, marks=pytest.mark.slow) for k in range(1, 10)]]
)
@pytest.mark.parametrize("client", ["sockets", "obstore", "fsspec"])
@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("during", [True, False])
def test_a_remote_change_of_the_same_size_while_open_is_an_error(
    server, monkeypatch, client, stamp, during, time
):
    """Or the bytes that were indexed, where the answer with the bytes says that it is of them."""
    take_client(monkeypatch, client)
    handler, url = server
    handler.stamp = staticmethod(STAMPS[stamp])
    images, _, before, after = two_versions()
    handler.contents |= {"/a.tar": before, "/b.tar": before}
    source = WebDataset([url + "/a.tar", url + "/b.tar"], timeout=10)
    source.read(np.arange(8))
    answer = handler.answer

    def then_change(self, body):
        answer(self, body)
        if self.path == "/b.tar" and body:
            handler.contents["/b.tar"] = after

    if during:
        monkeypatch.setattr(handler, "answer", then_change)
    else:
        handler.contents["/b.tar"] = after
    if during and stamp == "ETag":
        encoded = source.read(np.arange(8))["image"]
        assert [bytes(encoded.view(row)) for row in range(8)] == images * 2
    with pytest.raises(SourceError, match=r"b.tar' changed since it was indexed: open"):
        source.read(np.arange(8))


def test_web_servers_are_read_by_sockets_also_where_obstore_is_there(server):
    pytest.importorskip("obstore")
    handler, url = server
    handler.contents["/a.bin"] = bytes(range(256)) * 8192
    (file,) = list_files(url + "/a.bin")
    for size in (1000, 2 << 20):
        found = bytearray(size)
        remote._stores.found.clear()
        assert remote.RemoteReader().read(file, 0, memoryview(found)) == size
        assert found == handler.contents["/a.bin"][:size]
        (store,) = remote._stores.found.values()
        assert isinstance(store, remote.WebStore)


@pytest.mark.parametrize("client", ["sockets", "obstore", "fsspec"])
def test_names_are_asked_for_as_they_are_written(server, monkeypatch, client):
    """Of "x%2Fa" the bytes of "x/a" came, where nothing but the name told them apart."""
    take_client(monkeypatch, client)
    handler, url = server
    handler.stamp = staticmethod(lambda content: {})
    names = ["x/a", "x%2Fa", "%E9", "a+b;c", "a%20b", "100%25", "%C3%A9"]
    handler.contents |= {f"/{name}": name.encode() * 1000 for name in names}
    same = max(map(len, handler.contents.values()))
    handler.contents |= {k: v.ljust(same) for k, v in handler.contents.items()}
    for name in names:
        (file,) = list_files(f"{url}/{name}")
        found = bytearray(same)
        assert remote.RemoteReader().read(file, 0, memoryview(found)) == same
        assert found == handler.contents[f"/{name}"], name


def no_sockets(*arguments):
    raise ImportError


def take_client(monkeypatch, client):
    """Have sockets read, or obstore, which must be there, or fsspec."""
    if client == "obstore":
        pytest.importorskip("obstore")
    else:
        monkeypatch.setitem(sys.modules, "obstore", None)
    if client != "sockets":
        monkeypatch.setattr(remote, "_find_web", no_sockets)
    remote._stores.found.clear()  # a port may have been that of another server


@pytest.mark.parametrize("client", ["sockets", "obstore", "fsspec"])
@pytest.mark.parametrize("stamp, asked", [("ETag", []), ("Last-Modified", ["/a.tar", "/b.tar"])])
def test_what_a_remote_batch_asks_beside_its_ranges(server, monkeypatch, client, stamp, asked):
    """Answers with an ETag say themselves of which state of the file they are."""
    take_client(monkeypatch, client)
    handler, url = server
    handler.stamp = staticmethod(STAMPS[stamp])
    handler.contents |= {"/a.tar": two_versions()[2], "/b.tar": two_versions()[3]}
    source = WebDataset([url + "/a.tar", url + "/b.tar"])
    source.read(np.arange(8))
    heads = []
    monkeypatch.setattr(
        handler, "do_HEAD", lambda self: heads.append(self.path) or self.answer(body=False)
    )
    handler.requests.clear()
    source.read(np.arange(8))
    assert sorted(heads) == asked and len(handler.requests) == 2


@pytest.mark.parametrize(
    "before, after",
    [
        ({"ETag": "a", "Last-Modified": "x"}, {"ETag": "b", "Last-Modified": "x"}),  # HTTP
        ({"Last-Modified": "x"}, {"Last-Modified": "y"}),  # HTTP without ETag
        ({"ETag": "a", "LastModified": 1}, {"ETag": "b", "LastModified": 1}),  # S3
        (
            {"etag": "m", "generation": "1", "updated": "x"},
            {"etag": "n", "generation": "2", "updated": "y"},
        ),  # GCS
        ({"created": 1}, {"created": 2}),  # memory
    ],
)
def test_the_stamps_of_file_systems(monkeypatch, before, after):
    system = SimpleNamespace(invalidate_cache=lambda: None)
    monkeypatch.setattr(files_module, "file_system_of", lambda path: (system, path))
    seen = []
    for facts in (before, before, after):
        system.info = lambda name, facts=facts: {"name": name, "size": 7} | facts
        seen += list_files("any://a")
    assert seen[0] == seen[1] != seen[2] and all(seen)


def test_a_remote_file_that_is_not_there_is_said_to_be_missing():
    pytest.importorskip("fsspec")
    with pytest.raises(SourceError, match=r"nothing\.tfrecord' cannot be opened: No such file"):
        TFRecord("memory://nothing.tfrecord")


def secret_url(url, token):
    return url.replace("://", "://user:SECRETWORD@") + f"/a.tar?token=SECRET{token}"


def test_credentials_are_neither_stored_nor_shown(server, monkeypatch):
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    handler, url = server
    tar = containers.tar(containers.labelled_files(3))
    handler.contents |= {"/a.tar?token=SECRETONE": tar, "/a.tar?token=SECRETTWO": tar}
    source = WebDataset(secret_url(url, "ONE"), timeout=30)
    said = [repr(source), str(source.describe(1)), source.index_path, source.fingerprint()]
    assert source.describe(1)["path"] == f"{url}/a.tar" and source.describe(1)["key"] == "0001"
    with open(source.index_path, "rb") as file:
        said.append(file.read().decode("latin1"))

    # A renewed token is the same data.
    handler.requests.clear()
    again = WebDataset(secret_url(url, "TWO"), timeout=30)
    assert again.fingerprint() == source.fingerprint() and handler.requests == []
    assert containers.images_by_label(again) == dict(enumerate(containers.jpegs(3)))

    del handler.contents["/a.tar?token=SECRETONE"]
    with pytest.raises(SourceError, match=r"a.tar' cannot be read .*: No such file") as caught:
        source.read(np.arange(3))
    said.append("".join(traceback.format_exception(caught.value)))
    said.append(source.describe(1)["error"])
    monkeypatch.setattr(handler, "answer", lambda self, body: self.send(403, b"", body))
    with pytest.raises(SourceError, match=r"a.tar' cannot be read .*: 403.*Forbidden") as caught:
        again.read(np.arange(3))
    said.append("".join(traceback.format_exception(caught.value)))
    said.append(again.describe(1)["error"])
    for name in ("ONE", "THREE"):
        with pytest.raises(SourceError) as caught:
            WebDataset(secret_url(url, name), timeout=30)
        said.append("".join(traceback.format_exception(caught.value)))
    assert not [text for text in said if "SECRET" in text]


@pytest.mark.parametrize(
    "text, shown",
    [
        ("http://u:p@w@host:1/a.tar?x=1&y=2", "http://host:1/a.tar"),
        (
            "'https://host/a.tar?sig=%2F' and 'gs://b/c-?.tar'",
            "'https://host/a.tar' and 'gs://b/c-?.tar'",
        ),
        ("s3://key:word@bucket/a@b.tar", "s3://bucket/a@b.tar"),
        ("/local/a@b.tar?c", "/local/a@b.tar?c"),
        ("401, url='http://host/a?t=1'", "401, url='http://host/a'"),
    ],
)
def test_secrets_of_urls(text, shown):
    assert files_module.hide_secrets(text) == shown


def test_files_that_only_a_query_tells_apart(server):
    handler, url = server
    handler.stamp = staticmethod(lambda content: {})
    for name, files in (("a", containers.labelled_files(3)), ("b", containers.labelled_files(3))):
        files = dict(reversed(files.items())) if name == "b" else files
        handler.contents[f"/get?file={name}"] = containers.tar(files)
    first, second = (WebDataset(f"{url}/get?file={name}") for name in "ab")
    assert first.index_path != second.index_path
    assert first.features["label"].tolist() == second.features["label"].tolist()[::-1]


@pytest.mark.parametrize(
    "use",
    [
        ImageFolder,
        FileList,
        lambda url: Coco("train", url),
        lambda url: PairedFolders(url, "masks"),
        lambda url: pack_files(ImageFolder("train"), url),
    ],
    ids=["folder", "list", "coco", "pairs", "pack"],
)
def test_a_url_is_no_folder_of_this_machine(tmp_path, monkeypatch, use):
    """It would be one named "gs:" in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.jpg").write_bytes(containers.jpegs(1)[0])
    (tmp_path / "a.tar").write_bytes(containers.tar(containers.labelled_files(2)))
    with pytest.raises(SourceError, match=r"'gs://bucket/a' must be a path on this machine: URLs"):
        use("gs://bucket/a")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.tar", "train"]


def test_patterns_of_chained_urls(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shard = containers.tar(containers.labelled_files(2))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("0.tar", "1.tar"):
            archive.writestr(f"in/{name}", shard)
            (tmp_path / name).write_bytes(shard)
    source = WebDataset(f"zip://in/*.tar::file://{tmp_path}/all.zip")
    encoded = source.read(np.array([3]))["image"]
    assert len(source) == 4 and bytes(encoded.view(0)) == containers.jpegs(2)[1]


@pytest.mark.parametrize("cache", ["simplecache", "filecache", "blockcache", "cached"])
@pytest.mark.parametrize("source", [WebDataset, TFRecord])
def test_caches_of_fsspec_are_refused(server, source, cache):
    """They hand out files that another thread has not written to their end: wrong bytes."""
    handler, url = server
    handler.contents["/a.tar"] = containers.tar(containers.labelled_files(2))
    secret = url.replace("://", "://user:SECRET@")
    with pytest.raises(SourceError, match=f"'{cache}::http.*: leave '{cache}::' out") as caught:
        source(f"{cache}::{secret}/a.tar")
    assert "SECRET" not in str(caught.value) and handler.requests == []


def test_a_remote_folder_is_no_file():
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe("/folder_of_shards/0.tar", b"...")
    with pytest.raises(SourceError, match=r"'memory://folder_of_shards/' is a folder; name its"):
        list_files("memory://folder_of_shards/")


def test_a_listing_that_a_file_system_keeps_hides_no_change(monkeypatch):
    """As those of S3 and GCS do, until they are told to forget it."""

    class System:
        etag = "first"
        kept = None

        def info(self, name):
            self.kept = self.kept or {"size": 3, "ETag": self.etag}
            return self.kept

        def invalidate_cache(self, name=None):
            self.kept = None

    system = System()
    for module in (files_module, remote):
        monkeypatch.setattr(module, "file_system_of", lambda path: (system, "bucket/a.tar"))
    file = files_module.stat_file("s3://bucket/a.tar")
    read.FileReader().check(file)
    system.etag = "second"
    with pytest.raises(SourceError, match="changed since it was indexed"):
        read.FileReader().check(file)


@pytest.mark.parametrize(
    "info, stamp",
    [
        ({"etag": "of the metadata too", "generation": 5, "updated": "now"}, "5"),
        ({"LastModified": "now", "ETag": '"abc"'}, '"abc"'),
        ({"ETag": None, "md5Hash": "", "mtime": 7.5}, "7.5"),
        ({"created": None}, ""),
    ],
)
def test_the_stamp_of_a_remote_file_is_of_its_content_where_it_can_be(monkeypatch, info, stamp):
    system = SimpleNamespace(info=lambda name: {"size": 3, **info})
    monkeypatch.setattr(files_module, "file_system_of", lambda path: (system, "bucket/a.tar"))
    assert files_module.stat_file("gs://bucket/a.tar").stamp == stamp


def test_views_of_earlier_blocks_stay_as_they_are(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(250)))
    (file,) = list_files(tmp_path / "a")
    reader = read.BlockReader(read.FileReader(), file, block=100)
    places = [(0, 30), (90, 20), (0, 120), (240, 30), (5, 1), (250, 9)]
    views = [reader.at(*place) for place in places]
    for (start, length), view in zip(places, views):
        assert view.tolist() == list(range(start, min(start + length, 250)))


def test_blocks_are_those_of_the_file_in_any_order_of_asking(tmp_path):
    content = np.random.default_rng(0).bytes(3000)
    (tmp_path / "a").write_bytes(content)
    (file,) = list_files(tmp_path / "a")
    generator = np.random.default_rng(1)
    for _ in range(20):
        reader = read.BlockReader(read.FileReader(), file, block=int(generator.integers(1, 300)))
        at = 0
        for _ in range(60):
            at = int(np.clip(at + generator.integers(-200, 300), 0, 3000))
            length = int(generator.integers(0, 400))
            assert reader.at(at, length).tobytes() == content[at : at + length]


@pytest.mark.parametrize("kind", [WebDataset, TFRecord])
def test_an_index_is_built_from_one_reading_of_each_byte(tmp_path, monkeypatch, kind):
    tar = containers.tar(containers.labelled_files(40))
    record = containers.tfrecord(containers.labelled_examples(40))
    (tmp_path / "a").write_bytes(tar if kind is WebDataset else record)
    ranges = []
    call = read.FileReader.__call__

    def counting(self, file, offset, destination):
        ranges.append((offset, len(destination)))
        return call(self, file, offset, destination)

    monkeypatch.setattr(read.FileReader, "__call__", counting)
    monkeypatch.setattr(read.BlockReader.__init__, "__defaults__", (12_000,))
    source = kind(tmp_path / "a")
    assert len(ranges) > 1
    stops = [offset + length for offset, length in ranges]
    assert [offset for offset, _ in ranges] == [0, *stops[:-1]]
    assert stops[-1] == (tmp_path / "a").stat().st_size
    assert containers.images_by_label(source) == dict(enumerate(containers.jpegs(40)))


def test_shards_of_a_store_that_are_named_one_by_one_cost_one_listing(monkeypatch):
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
    files = containers.labelled_files(20)
    names = list(files)
    for shard in range(20):
        part = {name: files[name] for name in names[2 * shard : 2 * shard + 2]}
        memory().pipe(f"/braces/s-{shard:02d}.tar", containers.tar(part))
    asked = []
    info, glob = memory.info, memory.glob
    monkeypatch.setattr(
        memory, "info", lambda *args, **more: asked.append("info") or info(*args, **more)
    )
    monkeypatch.setattr(
        memory, "glob", lambda *args, **more: asked.append("glob") or glob(*args, **more)
    )
    monkeypatch.setattr(
        files_module, "_listed", lambda path, facts: files_module._data_file(path, facts)
    )
    listed = list_files("memory://braces/s-{00..19}.tar")
    assert asked.count("glob") == 1
    singly = [files_module.stat_file(f"memory://braces/s-{shard:02d}.tar") for shard in range(20)]
    assert [file.size for file in listed] == [file.size for file in singly]
    assert [file.path for file in listed] == [file.path for file in singly]
    with pytest.raises(SourceError, match=r"s-20.tar' cannot be opened: No such file"):
        list_files("memory://braces/s-{00..20}.tar")


def test_an_index_that_is_trusted_costs_no_request(server):
    handler, url = server
    files = containers.labelled_files(8)
    names = list(files)
    for shard in range(4):
        part = {name: files[name] for name in names[4 * shard : 4 * shard + 4]}
        handler.contents[f"/s-{shard}.tar"] = containers.tar(part)
    heads = []
    handler.do_HEAD = lambda self: heads.append(self.path) or self.answer(body=False)
    pattern = url + "/s-{0..3}.tar"
    path = WebDataset(pattern).index_path
    heads.clear()
    handler.requests.clear()
    source = WebDataset(pattern, index=path, trust_index=True)
    assert len(source) == 8 and not heads and not handler.requests
    assert containers.images_by_label(source) == dict(enumerate(containers.jpegs(8)))
    handler.requests.clear()
    with pytest.raises(SourceError, match="or of other options"):
        WebDataset(pattern, index=path, trust_index=True, label=None)
    assert not heads and not handler.requests

    handler.contents["/s-2.tar"] = handler.contents["/s-1.tar"]
    with pytest.raises(SourceError, match=r"s-2.tar' changed since it was indexed"):
        WebDataset(pattern, index=path, trust_index=True).read(np.arange(8))
    for paths, what in ((url + "/s-{0..4}.tar", "5 files"), (url + "/s-*.tar", "patterns")):
        with pytest.raises(SourceError, match=what):
            WebDataset(paths, index=path, trust_index=True)
    with pytest.raises(SourceError, match="`trust_index` needs `index`"):
        WebDataset(pattern, trust_index=True)


def test_an_index_on_a_web_server_is_read_and_not_written(server):
    handler, url = server
    files = containers.labelled_files(8)
    handler.contents |= {"/s-0.tar": containers.tar(files), "/s-1.tar": containers.tar(files)}
    options = {"index": url + "/s.index?token=secret"}
    with pytest.raises(
        SourceError, match=r"s\.index' is not there, .*web servers take no"
    ) as caught:
        WebDataset(url + "/s-{0..1}.tar", **options)
    assert "secret" not in str(caught.value) and handler.requests == []
    made = WebDataset(url + "/s-{0..1}.tar")
    with open(made.index_path, "rb") as file:
        handler.contents["/s.index?token=secret"] = file.read()
    handler.requests.clear()
    source = WebDataset(url + "/s-{0..1}.tar", **options)
    assert handler.requests == [None] and "secret" not in source.index_path
    trusted = WebDataset(url + "/s-{0..1}.tar", **options, trust_index=True)
    for found in (source, trusted):
        assert found.fingerprint() == made.fingerprint()
        assert bytes(found.read(np.array([12]))["image"].view(0)) == containers.jpegs(8)[4]


@pytest.mark.parametrize("client", ["sockets", "obstore", "fsspec"])
def test_a_source_counts_what_it_asks_servers_for(server, tmp_path, monkeypatch, client):
    take_client(monkeypatch, client)
    monkeypatch.setattr("jaxaug.iterators.sources.storage.files._FIRST_PAUSE", 0.001)
    handler, url = server
    handler.contents |= {
        f"/{name}.tar": containers.tar(containers.labelled_files(20)) for name in "ab"
    }
    source = WebDataset([url + "/a.tar", url + "/b.tar"])
    handler.requests.clear()
    handler.fails = 2
    lengths = source.read(np.array([0, 4, 9, 33]))["image"].lengths
    traffic = dict(source.traffic)
    assert traffic.pop("bytes") >= traffic.pop("wanted_bytes") == lengths.sum()
    failed = len(handler.requests) // 2
    assert traffic == {"requests": len(handler.requests), "failed": failed, "slow": 0} and failed
    both = Concat([Subset(source, np.arange(40)), InMemory(containers.jpegs(1), {"label": [0]})])
    assert both.traffic == source.traffic

    handler.fails = 0
    kept = WebDataset([url + "/a.tar", url + "/b.tar"], cache=tmp_path / "kept")
    for hits in (0, 2):
        kept.read(np.array([0, 4, 9, 33]))
        kept._storage.flush(30)
        traffic = kept.traffic
        assert (traffic["hits"], traffic["misses"], traffic["requests"]) == (hits, 2, 2)
    assert traffic["wanted_bytes"] == 2 * lengths.sum()
    with Loader(kept, 8, sharding=one_device(), decode=Image((32, 48))) as loader:
        assert loader.stats["traffic"] == kept.traffic
