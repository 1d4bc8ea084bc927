"""The NVDEC backend: with engines made of FFmpeg, and on a real GPU, which CI does not have."""

import ctypes
import functools
import io
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug import Loader
from jaxaug.decode import Encoded, Video
from jaxaug.decode.native import cuda
from jaxaug.decode.native import libnvcuvid as nv
from jaxaug.decode.native import nvcuvid_loop as loop
from jaxaug.decode.native.load_library import LibraryError
from jaxaug.decode.video import column
from jaxaug.decode.video.host import HostFrames
from jaxaug.decode.video.nvdec import engines as engines_module
from jaxaug.decode.video.nvdec import nvdec_frames, placer, table_cache
from jaxaug.decode.video.nvdec.bitstream import Bitstream
from jaxaug.decode.video.nvdec.engines import EngineError
from jaxaug.decode.video.nvdec.nvdec_frames import Worker
from jaxaug.decode.video.nvdec.place_planes import Kernels, pillow_weights
from jaxaug.decode.video.stored import StoredVideos, read_videos
from jaxaug.decode.video.stream import VideoFile
from jaxaug.decode.video.table import Codec
from jaxaug.sharding import batch_sharding
from tests.decode.current_device import CurrentDevice
from tests.decode.video.fake_nvcuvid import FakeKernel, FakeNvcuvid
from tests.iterators.loaders import one_device
from tests.videos import GOPS, KINDS, kind, turned, video

av = pytest.importorskip("av")
MAX_PIXELS = 2**20


class FakeCuda:
    """Memory of a device on the host: what is freed must have been allocated, once."""

    def __init__(self):
        self.memory = {}
        self.current = CurrentDevice()
        self.streams = self.current.streams

    def allocate(self, size, purpose=""):
        memory = np.full(size, 55, np.uint8)
        self.memory[memory.ctypes.data] = memory
        return memory.ctypes.data

    def pinned_array(self, shape):
        address = self.allocate(int(np.prod(shape)))
        return self.memory[address].reshape(shape), address

    def call(self, name, *given):
        if name.startswith("cudaMemcpy"):
            ctypes.memmove(*(int(each) for each in given[:3]))
        elif name in ("cudaFree", "cudaFreeHost"):
            del self.memory[given[0]]
        return (2**35, 2**35) if name == "cudaMemGetInfo" else self.current.call(name, *given)


class FakeBuffer:
    """A `CanvasBuffer` in host memory, with what another batch has left."""

    bytes_held = 0

    def __init__(self, shape, dtype):
        assert dtype == "uint8"
        self.shape = shape
        self.readers = ()
        self.device = cuda.call("cudaGetDevice")

    def prepare(self, rows):
        assert cuda.call("cudaGetDevice") == self.device
        self.pixels = np.full((rows, *self.shape), 66, np.uint8)
        first = self.pixels.ctypes.data
        return np.array([first + row * self.pixels[0].nbytes for row in range(rows)], np.uint64)

    def view(self, rows):  # where there is a GPU, it is the default device, not the Loader's
        return jax.device_put(np.array(self.pixels), jax.devices("cpu")[0])

    def is_idle(self):
        return True

    def close(self):
        assert cuda.call("cudaGetDevice") == self.device


@pytest.fixture(params=["C", "Python"])
def engines(monkeypatch, request):
    """The engines that the tests configure, with callbacks in C, or in Python."""
    if request.param == "Python":
        monkeypatch.setattr(loop, "compiled", lambda: None)
    elif loop.compiled() is None:
        pytest.skip("no C compiler")
    device = FakeCuda()
    fake = FakeNvcuvid(device.current)
    fake.device = device
    kernels = Kernels(*(FakeKernel(name, device.current) for name in ("place", "shrink")))
    kinds = SimpleNamespace(cudaMemcpyHostToDevice=1)
    monkeypatch.setattr(nv, "load", lambda: fake)
    monkeypatch.setattr(nvdec_frames, "compile_place_kernels", lambda: kernels)
    monkeypatch.setattr(nvdec_frames, "is_available", lambda: True)
    monkeypatch.setattr("jaxaug.decode.image.nvjpeg.canvas_buffers.CanvasBuffer", FakeBuffer)
    monkeypatch.setattr(cuda, "runtime", lambda: SimpleNamespace(cudaMemcpyKind=kinds))
    monkeypatch.setattr(cuda, "core", lambda: None)
    for name in ("allocate", "pinned_array", "call"):
        monkeypatch.setattr(cuda, name, getattr(device, name))
    engines_module.capabilities.cache_clear()
    yield fake
    engines_module.capabilities.cache_clear()


def rows(description, backend, files, tables=False):
    """Return what a backend makes of the rows of a batch."""
    encoded = Encoded.from_bytes(files)
    reader = column.VideoReader(description, backend)
    stored = read_videos(encoded) if tables else None
    try:
        checked, _ = reader.check_rows(encoded, stored)
        wanted = np.ones(len(files), bool)
        found = reader.decode_rows(
            encoded, checked, {}, wanted, np.arange(len(files), dtype=np.uint64)
        )
        arrays = {name: joined(array) for name, array in found.arrays.items()}
        found.release(())
        return arrays, found
    finally:
        reader.close()


def joined(array):
    return np.concatenate(array) if isinstance(array, list) else array


def fitted(canvas, whole=False, **options):
    options = {"frames": 5, "stride": 3, **options}
    return Video(canvas=canvas, whole_chroma=whole, engines=True, **options)


def on_host(description):
    return HostFrames(description.forms(), 2)


def on_engines(description, devices=1):
    return nvdec_frames.NvdecFrames(description.forms(), jax.devices("cpu")[:devices])


def assert_same(found, expected):
    """Compare the used parts of the canvases, and what is said of them."""
    for name in expected.keys() - {"luma", "chroma"}:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    sizes = expected["size"].tolist()
    whole = expected["chroma"].shape[-2:] == expected["luma"].shape[-2:]
    for row, (height, width) in enumerate(sizes):
        luma = (..., slice(height), slice(width))
        edges = (height, width) if whole else (height // 2 + 1, width // 2 + 1)
        chroma = (..., slice(edges[0]), slice(edges[1]))
        for name, used in (("luma", luma), ("chroma", chroma)):
            np.testing.assert_array_equal(found[name][row][used], expected[name][row][used])


HALVED = tuple(name for name in KINDS if name not in ("4:4:4",))


@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize("canvas", [(48, 64), (31, 40), (70, 90)])
def test_engines_give_the_planes_of_the_host(engines, canvas, tables):
    description = fitted(canvas)
    files = [kind(name) for name in HALVED]
    files += [turned(kind("h264"), degrees) for degrees in (90, 180, 270)]
    files += [re.sub(rb"(x264 - core )\d+", rb"\g<1>033", kind("h264"))]  # not for engines
    expected, _ = rows(description, on_host(description), files, tables)
    found, decoded = rows(description, on_engines(description), files, tables)
    assert_same(found, expected)
    assert decoded.valid.all()
    by_codec = sum(KINDS[name].get("codec", "libx264") in ("libx264", "libx265") for name in HALVED)
    web = 2  # of VP9
    not_for_engines = {"4:2:2"}
    assert by_codec - len(not_for_engines) + web + 3 == decoded.counts["on_engines"] > 5


def test_clips_that_repeat_frames_and_end_early(engines):
    files = [video(7), kind("h264"), video(1)]
    for options in ({"count": 2}, {"pad": "mask", "stride": 2}, {"fps": 50.0}, {"start": 4}):
        options = {"stride": None if "fps" in options else 3} | options
        description = fitted((48, 64), **options)
        expected, _ = rows(description, on_host(description), files)
        found, decoded = rows(description, on_engines(description), files)
        shown = expected["frame"] >= 0
        if options.get("pad") == "mask":  # other canvases hold whatever was there
            for name in ("luma", "chroma"):
                found[name][~shown] = expected[name][~shown]
        valid = decoded.valid
        assert_same(*({n: a[valid] for n, a in each.items()} for each in (found, expected)))
        assert decoded.failures.keys() == ({2} if "start" in options else set())


@pytest.mark.parametrize("canvas, most", [((48, 64), 2**24), ((20, 30), 2**24), ((20, 30), 2**14)])
def test_a_launch_writes_all_frames_that_it_may(engines, monkeypatch, canvas, most):
    """Also more than there are records of, of one surface, and as many as the scratch holds."""
    monkeypatch.setattr(placer, "_SCRATCH_BYTES", most)
    launched = []
    run = FakeKernel.launch

    def launch(kernel, stream, grid, *given):
        launched.append(grid[2] // 3)
        run(kernel, stream, grid, *given)

    monkeypatch.setattr(FakeKernel, "launch", launch)
    description = fitted(canvas, frames=70, stride=1)
    files = [video(7), kind("h264")]
    expected, _ = rows(description, on_host(description), files)
    found, _ = rows(description, on_engines(description), files)
    assert_same(found, expected)
    kernels = 1 if canvas == (48, 64) else 3  # two more passes where frames are shrunk
    assert sum(launched) == 2 * 70 * kernels
    assert max(launched) == (16 if most == 2**24 else 2)


def test_whole_chroma_of_hevc(engines):
    options = {"codec": "libx265", "x265-params": "log-level=none"}
    whole = [video(12, (37, 53), pix_fmt=f"yuv444p{deep}", **options) for deep in ("", "10le")]
    for canvas in ((37, 53), (20, 30)):
        description = fitted(canvas, whole=True)
        files = [*whole, kind("h264")]  # its chroma is interpolated, by the host
        expected, _ = rows(description, on_host(description), files)
        found, decoded = rows(description, on_engines(description), files)
        assert_same(found, expected)
        assert decoded.counts["on_engines"] == 2


def test_each_device_has_its_rows(engines):
    description = fitted((48, 64))
    files = [kind("h264"), kind("hevc"), kind("h264 open"), kind("later start")]
    expected, _ = rows(description, on_host(description), files)
    found, decoded = rows(description, on_engines(description, 2), files)
    assert [len(part) for part in decoded.arrays["luma"]] == [2, 2]
    assert_same(found, expected)


def test_videos_that_come_again_are_the_same_and_not_opened(engines, monkeypatch):
    files = [turned(kind("h264"), 90), *map(kind, ("hevc", "mpeg4", "10 bits", "h264 mkv"))]
    files += [kind("vp9"), kind("h264")[:900]]
    encoded, description = Encoded.from_bytes(files), fitted((48, 64))
    opened, read = [], VideoFile._read
    monkeypatch.setattr(VideoFile, "_read", lambda *a, **k: opened.append(a) or read(*a, **k))
    reader = column.VideoReader(description, on_engines(description))
    found, counts = [], []
    for _ in range(3):
        opened.clear()
        checked, _ = reader.check_rows(encoded, None)
        wanted, keys = np.ones(len(files), bool), np.arange(len(files), dtype=np.uint64)
        decoded = reader.decode_rows(encoded, checked, {}, wanted, keys)
        found.append({name: np.copy(joined(each)) for name, each in decoded.arrays.items()})
        counts.append((decoded.failures, decoded.counts))
        decoded.release(())
    reader.close()
    assert len(opened) == 2  # that which is cut, and that which the host decodes
    assert counts[0] == counts[1] == counts[2] and counts[0][0].keys() == {6}
    for again in found[1:]:
        assert_same(again, found[0])


def test_cached_tables_have_so_much_room(monkeypatch):
    files = [memoryview(kind(name)) for name in ("h264", "hevc")]
    changed = bytearray(files[0])
    changed[-1] ^= 1
    monkeypatch.setattr(table_cache, "MAX_BYTES", 1)  # the first one
    cache = table_cache.TableCache()
    opened, read = [], VideoFile._read
    monkeypatch.setattr(VideoFile, "_read", lambda *a, **k: opened.append(a) or read(*a, **k))
    for _ in range(2):
        for data in (*files, memoryview(changed)):
            cache.open(data, MAX_PIXELS).close()
    assert len(opened) == 5


def test_two_new_videos_are_opened_at_once(monkeypatch):
    files = [kind("h264") + bytes(8 * number) for number in range(6)]
    cache, read = table_cache.TableCache(), VideoFile._read
    both = threading.Barrier(2, timeout=60)
    opening, most = [], []

    def slow_read(*arguments, **options):
        opening.append(None)
        both.wait()
        most.append(len(opening))
        time.sleep(0.05)  # in which a third might begin
        most.append(len(opening))
        opening.pop()
        return read(*arguments, **options)

    monkeypatch.setattr(VideoFile, "_read", slow_read)
    with ThreadPoolExecutor(len(files)) as threads:
        for found in threads.map(lambda data: cache.open(memoryview(data), MAX_PIXELS), files):
            found.close()
    assert len(most) == 2 * len(files) and max(most) == 2


def test_what_the_engines_refuse_goes_to_the_host(engines):
    description = fitted((48, 64))
    odd = video(13, (37, 53), codec="libvpx-vp9", container="mp4", deadline="realtime")
    files = [turned(odd, 90), kind("mpeg4"), kind("4:2:2"), kind("h264")]
    files.append(kind("vp9"))
    expected, _ = rows(description, on_host(description), files)
    for supported, silent, number in ((0, True, 0), (1, True, 2), (1, False, 1)):
        engines.supported = supported
        engines_module.capabilities.cache_clear()
        backend = nvdec_frames.NvdecFrames(
            description.forms(), jax.devices("cpu")[:1], silent=silent
        )
        found, decoded = rows(description, backend, files)
        assert decoded.counts["on_engines"] == number
        assert_same(found, expected)


@pytest.mark.parametrize("status", [nv.ERROR, nv.CONCEALED])
def test_the_host_decodes_what_the_engines_find_errors_in(engines, status):
    description = fitted((48, 64), start=0)
    files = [kind("h264"), kind("later start")]
    expected, _ = rows(description, on_host(description), files)
    engines.status = {0: status}
    found, decoded = rows(description, on_engines(description), files)
    assert decoded.counts["on_engines"] == 0
    assert engines.calls["parser"] == 2  # a session with an error is not used again
    assert_same(found, expected)


def test_damaged_videos_are_bad_for_the_same_reasons(engines):
    whole = kind("h264")
    (table,) = read_videos(Encoded.from_bytes([whole])).tables
    with VideoFile(memoryview(whole), MAX_PIXELS) as opened:
        first = int(opened.table.offsets[0])
    longer = bytearray(whole)
    longer[first : first + 4] = b"\x7f\xff\xff\xff"  # the length of the first NAL unit
    files = [bytes(longer), whole, whole[: first + 40]]
    description = fitted((48, 64), start=0)
    stored = StoredVideos(np.array([table] * 3, object))
    reasons = []
    for backend in (on_host(description), on_engines(description)):
        reader = column.VideoReader(description, backend)
        encoded = Encoded.from_bytes(files)
        found = reader.decode_rows(encoded, stored, {}, np.ones(3, bool), np.zeros(3, np.uint64))
        found.release(())
        reader.close()
        reasons.append(found.failures)
    assert reasons[0] == reasons[1]
    assert reasons[0].keys() == {0, 2}


def test_threads_start_beside_what_their_maker_does_next(engines, monkeypatch):
    made, started = threading.Event(), []

    def beside(function):
        value = function()
        return lambda: started.append(made.wait(60)) or value

    monkeypatch.setattr(loop, "compiled", beside(loop.compiled))
    kernels = beside(nvdec_frames.compile_place_kernels)
    monkeypatch.setattr(nvdec_frames, "compile_place_kernels", kernels)
    backend = on_engines(fitted((48, 64)))
    pool = backend._gpus[0]._pool
    deadline = time.monotonic() + 60
    while pool._work_queue.qsize() > 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    made.set()  # which two of six threads wait for, and the others for these
    backend._gpus[0].submit(lambda row: None, 0).result(60)  # behind what was begun before
    while len(engines.device.streams) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(engines.device.streams) >= 4 and started == [True, True]
    backend.close()
    assert not engines.device.memory and not engines.device.streams


def test_a_session_is_kept_for_all_sizes_and_closing_frees_everything(engines, monkeypatch):
    monkeypatch.setattr(nvdec_frames, "_AT_ONCE", 1)
    engines.engines = 1
    description = fitted((32, 32), frames=2)
    files = [video(6, size) for size in ((96, 128), (48, 64), (64, 48), (48, 64), (96, 128))]
    backend = on_engines(description)
    rows(description, backend, files)
    assert engines.calls["parser"] == engines.calls["create"] == 1
    assert engines.calls["reconfigure"] == 4
    assert not engines.live and not engines.mapped
    assert not engines.device.memory and not engines.device.streams
    backend.close()  # once more is nothing


def test_threads_that_have_a_decoder_take_rows_while_others_are_made(engines, monkeypatch):
    """The driver makes them one after the other."""
    description = fitted((48, 64))
    backend = on_engines(description)
    decoded, enough, made = [], threading.Event(), engines.cuvidCreateDecoder

    def create(out, info):
        assert not engines.calls["create"] or enough.wait(20)
        return made(out, info)

    def decode(row):
        with VideoFile(memoryview(kind("h264")), MAX_PIXELS) as video:
            canvases.decode(row, video, np.arange(5))
        decoded.append(row)
        if len(decoded) == 5:
            enough.set()

    monkeypatch.setattr(engines, "cuvidCreateDecoder", create)
    canvases = backend.take(6)
    try:
        canvases.map(decode, range(6))
        assert canvases.on_engines == 6 and engines.calls["create"] <= 2
    finally:
        enough.set()
        canvases.release(())
        backend.close()


def test_a_thread_has_its_turn_once_the_decoder_before_is_made(engines, monkeypatch):
    """It does not wait for the rest of the row for which that is made."""
    backend = on_engines(fitted((48, 64)))
    both, finish = threading.Event(), placer.Placer.finish

    def create(out, info, made=engines.cuvidCreateDecoder):
        if engines.calls["create"]:
            both.set()
        return made(out, info)

    def wait_for_both(self):
        assert both.wait(20)
        finish(self)

    def decode(row):
        with VideoFile(memoryview(kind("h264")), MAX_PIXELS) as video:
            canvases.decode(row, video, np.arange(5))

    monkeypatch.setattr(engines, "cuvidCreateDecoder", create)
    monkeypatch.setattr(placer.Placer, "finish", wait_for_both)
    canvases = backend.take(2)
    try:
        canvases.map(decode, range(2))
        assert canvases.on_engines == 2
    finally:
        canvases.release(())
        backend.close()


def test_closing_ends_the_wait_for_rows_that_no_thread_takes(engines):
    backend = on_engines(fitted((48, 64)))
    gpu = backend._gpus[0]
    gpu._pool.shutdown()
    with pytest.raises(RuntimeError):
        gpu.submit(lambda row: None, 0)
    ((future, *_),) = gpu._rows
    backend.close()
    done, _ = wait([future], timeout=20)
    assert done and future.cancelled()


def test_a_batch_waits_for_canvases_where_others_wait_to_be_read(engines):
    """Two are decoded at once, and two wait for the compiled call."""
    backend = on_engines(fitted((16, 16)))
    try:
        assert backend.in_flight == 2
        assert backend._gpus[0]._pool._max_workers == engines.engines * 2
        taken = [backend.take(1) for _ in range(4)]
        later = []
        thread = threading.Thread(target=lambda: later.append(backend.take(1)))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        for canvases in taken:
            canvases.release(())
        thread.join()
        later[0].release(())
    finally:
        backend.close()


def test_the_memory_of_surfaces_and_of_cached_tables_is_told(engines):
    description = fitted((48, 64))
    backend = on_engines(description)
    encoded = Encoded.from_bytes([kind("h264"), kind("mpeg4")])
    reader = column.VideoReader(description, backend)
    assert reader.memory == {"host_bytes": 0, "device_bytes": 0}
    checked, _ = reader.check_rows(encoded, None)
    reader.decode_rows(encoded, checked, {}, np.ones(2, bool), np.zeros(2, np.uint64))
    (made,) = (each for each in engines.live.values() if isinstance(each, nv.CreateInfo))
    surfaces = (made.surfaces + made.outputs) * 64 * 48 * 3 // 2
    canvases = sum(np.prod(description.forms()[name].shape) for name in ("luma", "chroma"))
    tables = sum(len(table) + table_cache._ENTRY_BYTES for table in read_videos(encoded).tables)
    assert reader.memory == {"host_bytes": canvases + tables, "device_bytes": surfaces}
    reader.close()
    assert reader.memory == {"host_bytes": 0, "device_bytes": 0}


def test_an_error_of_the_library_is_the_hosts_to_explain(engines):
    engines.decode_error = 999
    description = fitted((48, 64))
    found, decoded = rows(description, on_engines(description), [kind("h264")])
    expected, _ = rows(description, on_host(description), [kind("h264")])
    assert decoded.valid.all() and decoded.counts["on_engines"] == 0
    assert_same(found, expected)
    assert not engines.live and not engines.device.memory


def test_page_locked_memory_that_is_half_there_is_taken_and_freed(engines, monkeypatch):
    left = iter([True, True, False])  # of the placer, of luma and of chroma

    def pinned(shape, take=cuda.pinned_array):
        if not next(left, True):
            raise MemoryError("none left")
        return take(shape)

    monkeypatch.setattr(nvdec_frames, "_AT_ONCE", 1)
    monkeypatch.setattr(cuda, "pinned_array", pinned)
    engines.engines = 1
    description = fitted((48, 64))
    backend = on_engines(description)
    reader = column.VideoReader(description, backend)
    encoded = Encoded.from_bytes([kind("mpeg4")])
    checked, _ = reader.check_rows(encoded, None)
    asked = (encoded, checked, {}, np.ones(1, bool), np.zeros(1, np.uint64))
    with pytest.raises(MemoryError, match="none left"):
        reader.decode_rows(*asked)
    reader.decode_rows(*asked).release(())
    reader.close()
    assert not engines.device.memory


def test_an_exception_within_a_callback_is_raised(engines, monkeypatch):
    def fail(*given):
        raise MemoryError("none left")

    monkeypatch.setattr("jaxaug.decode.video.nvdec.placer.Placer.start", fail)
    description = fitted((48, 64))
    with pytest.raises(MemoryError, match="none left"):
        rows(description, on_engines(description), [kind("h264")])
    assert not engines.live and not engines.device.memory


def batches(files, backend, canvas=(48, 64), batch_size=2, sharding=None):
    """Return the batches of a Loader over some videos, and its stats."""

    class Videos:
        def __len__(self):
            return len(files)

        def read(self, indices):
            return {"video": Encoded.from_bytes([files[index] for index in indices])}

        def describe(self, index):
            return {"record": index}

        def fingerprint(self):
            return "videos"

    decode = Video(frames=4, canvas=canvas, backend=backend)
    sharding = sharding or one_device()
    with Loader(Videos(), batch_size, decode=decode, seed=5, sharding=sharding) as loader:
        found = [{n: np.asarray(a) for n, a in batch.items()} for batch in loader]
        return found, loader.stats


@pytest.fixture
def on_gpus(monkeypatch):
    """The devices of Loaders taken for GPUs when they make a backend."""
    make = column._make_backend

    def made(described, devices):
        gpus = [SimpleNamespace(platform="gpu", local_hardware_id=0) for _ in devices]
        return make(described, gpus)

    monkeypatch.setattr(column, "_make_backend", made)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


@pytest.mark.parametrize(
    "backend, names, number",
    [
        ("nvdec", ("h264", "hevc", "mpeg4", "vp9"), 3),
        ("auto", ("h264", "hevc", "mpeg4", "10 bits"), 3),
        ("auto", ("h264", "hevc", "hevc", "vp9"), 3),  # nobody tells errors of VP9
        ("auto", ("h264", "mpeg4"), 0),  # for most of which all of the host's threads are needed
    ],
)
def test_clips_of_a_loader_are_those_of_the_host(engines, on_gpus, backend, names, number):
    files = [kind(name) for name in names]
    expected, stats = batches(files, "host")
    assert stats["on_engines"] == 0
    found, stats = batches(files, backend)
    assert len(found) == len(names) // 2 and stats["on_engines"] == number
    for one, other in zip(found, expected):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_auto_warns_where_engines_cannot_be_used_and_nvdec_fails(engines, on_gpus, monkeypatch):
    engines.supported = engines.engines = 0  # as in some parts of a divided GPU
    where = jax.devices("cpu")[:1]
    monkeypatch.setattr(column, "HostFrames", lambda *given: HostFrames(*given[:2], where))
    with pytest.raises(nv.CuvidError, match="cuvidGetDecoderCaps: CUresult 801"):
        batches([kind("h264")] * 2, "nvdec")
    column.warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="decodes videos on the host.*cuvidGetDecoderCaps"):
        _, stats = batches([kind("h264")] * 2, "auto")
    assert stats["on_engines"] == 0
    monkeypatch.setattr(nvdec_frames, "is_available", lambda: False)
    with pytest.raises(LibraryError, match="NVRTC is missing"):
        batches([kind("h264")] * 2, "nvdec")


def test_without_gpus_auto_is_the_host_and_nvdec_is_refused():
    _, stats = batches([kind("h264")] * 2, "auto")
    assert stats["on_engines"] == 0
    with pytest.raises(ValueError, match=r"must be NVIDIA GPUs for backend='nvdec'.*or 'host'"):
        batches([kind("h264")] * 2, "nvdec")


@pytest.mark.parametrize("name", ["h264", "hevc", "h264 avi", "vp9", "mpeg4"])
def test_packets_are_those_of_ffmpegs_filters(name):
    with av.open(io.BytesIO(kind(name))) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        codec = Codec(
            name=stream.codec_context.name, extradata=stream.codec_context.extradata or b""
        )
        contents = [(bytes(packet), packet.is_keyframe) for packet in packets]
        joined, sizes = Bitstream(codec).packets(*zip(*contents))
        found = [part.tobytes() for part in np.split(joined, np.cumsum(sizes)[:-1])]
        if name in ("h264", "hevc"):
            filters = av.bitstream.BitStreamFilterContext(f"{name}_mp4toannexb", stream)
            expected = [bytes(each) for packet in packets for each in filters.filter(packet)]
            for ours, theirs, (_, key) in zip(found, expected, contents, strict=True):
                ours, theirs = _units_of(ours), _units_of(theirs)
                if key:  # FFmpeg leaves messages in front of sets, and also those of "hvcC"
                    ours, theirs = _sorted(ours, name), _sorted(theirs, name)
                assert ours == theirs
        else:
            header = codec.extradata
            assert found == [header * key + content for content, key in contents]


def _units_of(data):
    """Return the NAL units between start codes, of three or four bytes."""
    parts = data.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1")
    assert parts[0] == b""
    return parts[1:]


def _sorted(units, name):
    """Return the units that are no messages, in an order of their own."""
    message = {"h264": lambda unit: unit[0] & 31 == 6, "hevc": lambda unit: unit[0] >> 1 & 63 == 39}
    return sorted(unit for unit in units if not message[name](unit))


@pytest.mark.parametrize("length_bytes", [1, 2, 4])
def test_lengths_of_any_size_become_start_codes(length_bytes):
    extradata = bytes([1, 100, 0, 13, 0xFC | length_bytes - 1, 0xE1, 0, 3]) + b"SPS"
    stream = Bitstream(Codec(name="h264", extradata=extradata + b"\1\0\2PP"))
    units = [b"abc", b"d" * 200]
    content = b"".join(len(unit).to_bytes(length_bytes, "big") + unit for unit in units)
    start = b"\0\0\0\1"
    bare = b"".join(start + each for each in units)
    whole = b"".join(start + each for each in (b"SPS", b"PP")) + bare
    joined, sizes = stream.packets([content, content, b""], [False, True, False])
    assert joined.tobytes() == bare + whole and sizes.tolist() == [len(bare), len(whole), 0]
    for cut in (content[:-1], content[: length_bytes + 2]):
        with pytest.raises(EngineError, match="packet is cut"):
            stream.packets([content, cut], [True, False])
    for cut in range(5, len(extradata)):
        with pytest.raises(EngineError, match="header of its codec is cut"):
            Bitstream(Codec(name="h264", extradata=extradata[:cut]))


@pytest.mark.parametrize(
    "inside, out", [(50, 31), (400, 73), (64, 63), (7, 1), (3, 2), (1080, 224)]
)
def test_weights_are_pillows(inside, out):
    values = np.random.default_rng(inside).integers(0, 256, inside, np.uint8)
    first, weights = pillow_weights(inside, out)
    padded = np.pad(values, (0, weights.shape[1])).astype(np.int64)
    sums = [row @ padded[start : start + len(row)] for start, row in zip(first, weights)]
    expected = Image.fromarray(values[None]).resize((out, 1), Image.Resampling.BILINEAR)
    assert ((np.array(sums) + (1 << 21) >> 22) == np.asarray(expected)[0]).all()


SIZE = (160, 192)  # above the least of the engines: 144 of HEVC, 128 of VP9
X265 = {"codec": "libx265", "x265-params": "log-level=none", "g": "10"}
WEB = {"codec": "libvpx-vp9", "container": "webm", "g": "9", "deadline": "realtime"}
FILMS = {
    **{name: {"size": SIZE, **KINDS[name]} for name in ("h264", "variable rate")},
    "full range": {"size": SIZE, "pix_fmt": "yuvj420p"},
    "cropped": {"size": (162, 198)},
    "hevc": {"size": SIZE, **X265, "x265-params": "log-level=none:open-gop=0"},
    "hevc 10 bits": {"size": SIZE, "pix_fmt": "yuv420p10le", **X265},
    "vp9": {"size": SIZE, **WEB},
    "vp9 odd": {"size": (161, 195), **WEB},
    "turned 90": {"size": SIZE, **GOPS},
    "turned 180": {"size": SIZE, **GOPS},
    "turned 270": {"size": SIZE, **GOPS},
}
# Pictures shown before a key frame cannot be decoded from it on: a parser leaves them out, or an
# engine tells of errors and the host decodes the clip.
OPEN = {"h264 open": {"size": SIZE, **KINDS["h264 open"]}, "hevc open": {"size": SIZE, **X265}}
# What this chip's engines do not decode, or not in this size.
REFUSED = {
    "mpeg4": {"size": SIZE, "codec": "mpeg4"},
    "10 bits": {"size": SIZE, "pix_fmt": "yuv420p10le"},
    "small": {"size": (16, 16)},
}


@functools.cache
def film(name):
    """Return a video of a size that engines take."""
    data = video(30, **(FILMS | OPEN | REFUSED)[name])
    return turned(data, int(name.split()[1])) if name.startswith("turned") else data


def gpus():
    return jax.devices("gpu")[:1]


@pytest.fixture
def refusals(monkeypatch):
    """Why sessions gave clips back to the host, to be told where a test of real engines fails."""
    told = []
    decode = Worker.decode

    def watched(*given):
        try:
            return decode(*given)
        except BaseException as error:
            told.append(repr(error))
            raise

    monkeypatch.setattr(Worker, "decode", watched)
    return told


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*FILMS, *OPEN, *REFUSED])
def test_real_engines_give_the_planes_of_the_host(name, refusals):
    """Clips at twelve places, larger than the canvas and smaller, with and without a table."""
    files = [film(name)] * 12
    for canvas, tables in (((200, 224), False), (SIZE, True), ((97, 81), True)):
        description = fitted(canvas)
        expected, _ = rows(description, on_host(description), files, tables)
        backend = nvdec_frames.NvdecFrames(description.forms(), gpus())
        found, decoded = rows(description, backend, files, tables)
        assert decoded.failures == {}, (canvas, refusals)
        assert_same(found, expected)
        if name not in OPEN:
            number = 0 if name in REFUSED else len(files)
            assert decoded.counts["on_engines"] == number, (canvas, refusals)


@pytest.mark.gpu
def test_real_engines_decode_kinds_in_turn(refusals):
    """Threads keep sessions of several codecs and sizes, and reconfigure them."""
    names = [*FILMS, *REFUSED]
    files = [film(name) for name in names] * 2
    description = fitted(SIZE)
    expected, _ = rows(description, on_host(description), files)
    backend = nvdec_frames.NvdecFrames(description.forms(), gpus())
    found, decoded = rows(description, backend, files)
    assert decoded.counts["on_engines"] == 2 * len(FILMS), refusals
    assert_same(found, expected)


@pytest.mark.gpu
def test_real_engines_and_whole_chroma(refusals):
    quiet = {"codec": "libx265", "x265-params": "log-level=none"}
    files = [video(12, (162, 198), pix_fmt=f"yuv444p{deep}", **quiet) for deep in ("", "10le")]
    for canvas in ((162, 198), (80, 90)):
        description = fitted(canvas, whole=True)
        expected, _ = rows(description, on_host(description), files)
        backend = nvdec_frames.NvdecFrames(description.forms(), gpus())
        found, decoded = rows(description, backend, files)
        assert_same(found, expected)
        assert decoded.counts["on_engines"] == 2, refusals


@pytest.mark.gpu
@pytest.mark.parametrize("number", [1, 2])
def test_a_loader_of_real_gpus_gives_the_clips_of_the_host(number, refusals):
    devices = jax.devices("gpu")[:number]
    if len(devices) < number:
        pytest.skip("it needs two GPUs")
    files = [film(name) for name in [*FILMS, *OPEN, *REFUSED]] * 2
    given = {"canvas": SIZE, "batch_size": 8, "sharding": batch_sharding(devices)}
    expected, _ = batches(files, "host", **given)
    found, stats = batches(files, "auto", **given)
    assert stats["on_engines"] > 0, refusals
    for one, other in zip(found, expected, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["h264", "hevc"])
def test_damage_is_judged_as_on_the_host(name, refusals):
    whole = film(name)
    rng = np.random.default_rng(len(name))
    (table,) = read_videos(Encoded.from_bytes([whole])).tables
    with VideoFile(memoryview(whole), MAX_PIXELS) as opened:
        places = opened.table.offsets, opened.table.sizes
    files = []
    for packet in rng.integers(0, 30, 24).tolist():
        start, size = (int(each[packet]) for each in places)
        at = start + int(rng.integers(size // 4, size))
        changed = bytearray(whole)
        changed[at : at + 9] = rng.bytes(len(changed[at : at + 9]))
        files.append(bytes(changed))
    description = fitted(SIZE, frames=30, stride=1)
    stored = StoredVideos(np.array([table] * len(files), object))
    results = []
    for backend in (on_host(description), nvdec_frames.NvdecFrames(description.forms(), gpus())):
        reader = column.VideoReader(description, backend)
        encoded, wanted = Encoded.from_bytes(files), np.ones(len(files), bool)
        found = reader.decode_rows(encoded, stored, {}, wanted, np.zeros(len(files), np.uint64))
        results.append(({n: joined(a) for n, a in found.arrays.items()}, found.failures))
        found.release(())
        reader.close()
    assert results[1][1] == results[0][1], refusals
    (found, failures), (expected, _) = results[1], results[0]
    good = [row for row in range(len(files)) if row not in failures]
    differing = [row for row in good if (found["luma"][row] != expected["luma"][row]).any()]
    assert good and len(differing) <= len(files) // 6  # what neither of them reports


@pytest.mark.gpu
@pytest.mark.slow
def test_more_batches_leave_no_more_memory():
    """Threads keep other sessions at other times: what is closed is compared."""
    description = fitted(SIZE)
    files = [film(name) for name in FILMS]
    encoded, free = Encoded.from_bytes(files), []
    for batches in (10, 10, 300):
        reader = column.VideoReader(
            description, nvdec_frames.NvdecFrames(description.forms(), gpus())
        )
        stored, _ = reader.check_rows(encoded, read_videos(encoded))
        for number in range(batches):
            keys = np.full(len(files), number, np.uint64)
            reader.decode_rows(encoded, stored, {}, np.ones(len(files), bool), keys).release(())
        reader.close()
        free.append(cuda.call("cudaMemGetInfo")[0])
    print("free bytes:", free)
    assert free[2] >= free[1] - 2**24
