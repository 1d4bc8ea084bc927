"""TIFF on a GPU for the threads of the host: the same numbers, and the host for all others."""

import contextlib
import ctypes
import gc
import io
import itertools
import types
from typing import Any

import imagecodecs
import jax
import numpy as np
import pytest
import tifffile

from jaxaug import decode
from jaxaug.decode.image import nvtiff_backend
from jaxaug.decode.image.deep import tiff as reader
from jaxaug.decode.image.deep.gpu import decode_by
from jaxaug.decode.image.host.host_backend import HostBackend
from jaxaug.decode.image.nvjpeg import canvas_buffers
from jaxaug.decode.native import cuda, libnvtiff, load_library, lzw_check
from jaxaug.decode.native.load_library import LibraryError
from jaxaug.decode.native.lzw_check import PART
from jaxaug.decode.native.tiff_pages import Page
from tests.decode.fake_gpu import MEMORY, HostBuffer
from tests.decode.image.deep.files import numbers, tiff

IMAGE = numbers(410, 450, 3)  # large enough for a GPU


@pytest.fixture(autouse=True)
def no_decoder():
    yield
    decode_by()


class Stand:
    """In place of a `TiffDecoder`, which needs a GPU."""

    def __init__(self, answer=None):
        self.answer = answer
        self.asked = []

    def decode_to_host(self, form, page):
        self.asked.append((form, page))
        return self.answer


def decoded(file, page=0):
    data = memoryview(file)
    return reader.decode(data, reader.read_layout(data, page))


def page_of(file, place) -> Page:
    page = reader.page_alone(memoryview(file), place)
    assert page is not None
    return page


@pytest.mark.parametrize("answer", [None, IMAGE[::-1]])
def test_a_thread_asks_its_decoder_first(answer):
    stand = Stand(answer)
    decode_by(TIFF=stand)
    file = tiff(IMAGE, compression="lzw", rowsperstrip=100)
    np.testing.assert_array_equal(decoded(file), IMAGE if answer is None else answer)
    ((form, page),) = stand.asked
    assert (*form[:3], form.stored.name, form.part) == (*IMAGE.shape, "uint16", (100, 450))
    place = reader.read_layout(memoryview(file), 0).place
    assert (page.offsets, page.counts) == (place.offsets, place.counts)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": None},  # lies in the file as it is
        {"compression": "zlib"},
        {"predictor": 3, "dtype": "float32"},
        {"dtype": "float16"},
        {"dtype": "float64"},
        {"samples": 17},
        {"predictor": 2, "samples": 13},
        {"shape": (380, 450)},
    ],
)
def test_headers_say_what_the_gpu_is_not_asked_for(options):
    """What nvTIFF refuses, and what it has no advantage in."""
    options = {"compression": "lzw"} | options
    shape = (*options.pop("shape", (410, 450)), options.pop("samples", 3))
    pixels = numbers(*shape, dtype=options.pop("dtype", "uint16"))
    stand = Stand()
    decode_by(TIFF=stand)
    np.testing.assert_array_equal(decoded(tiff(pixels, **options)), pixels)
    assert stand.asked == []


class FakeLibrary:
    """nvTIFF in the host's memory, by tifffile; it counts what is open."""

    def __init__(self):
        self.open = {}
        self.made = 0
        self.regions = {}  # of each params
        self.decoded: list[int] = []  # pages of each call
        self.refuses = False

    def _make(self, out, thing):
        self.made += 1
        self.open[self.made] = thing
        out._obj.value = self.made

    def nvtiffDecoderCreateSimple(self, out, stream):
        self._make(out, "decoder")

    def nvtiffDecodeParamsCreate(self, out):
        self._make(out, "params")

    def nvtiffDecodeParamsSetRegions(self, params, regions, count):
        assert count == len(regions)
        assert not any((each.x, each.y, each.width, each.height) != (0,) * 4 for each in regions)
        self.regions[params.value] = [each.directory for each in regions]

    def nvtiffStreamOpen(self, address, size, out):
        self._make(out, ctypes.string_at(address, size))

    def nvtiffDecode(self, opened, decoder, params, images, stream):
        self.decoded.append(len(images))
        if self.refuses:
            raise load_library.NotDecodedError("status 3")
        with tifffile.TiffFile(io.BytesIO(self.open[opened.value])) as file:
            pages = {page.offset: page for page in file.pages}
            found = [pages[start].asarray() for start in self.regions[params.value]]
        for pixels, page, image in zip(found, self.regions[params.value], images):
            planes = pages[page].axes.startswith("S")
            pixels = np.moveaxis(pixels, 0, -1) if planes else pixels
            pixels = pixels.astype(pixels.dtype.newbyteorder("="))
            for row, line in enumerate(pixels):
                to = image.planes[0] + row * image.pitches[0]
                ctypes.memmove(to, line.tobytes(), line.nbytes)

    def close(self, handle, *stream):
        del self.open[handle.value]

    nvtiffStreamClose = nvtiffDecodeParamsDestroy = nvtiffDecoderDestroy = close


class FakeKernel:
    """The check of LZW, by imagecodecs in the host's memory."""

    def launch(self, stream, grid, block, table, data):
        count = grid[0]
        parts = np.frombuffer((ctypes.c_char * (32 * count)).from_address(int(table)), PART)
        assert int(data) == int(table) + 32 * count
        for part in parts:
            stored = ctypes.string_at(int(data) + int(part["at"]), int(part["count"]))
            try:
                found = imagecodecs.lzw_decode(stored)
            except RuntimeError:
                found = b""
            part["whole"] = len(found) == part["size"]


class FakeCuda:
    """CUDA's memory, which is the host's."""

    def __init__(self):
        self.memory = {}

    def allocate(self, size, purpose=""):
        memory = np.zeros(size, np.uint8)
        self.memory[memory.ctypes.data] = memory
        return memory.ctypes.data

    def call(self, function, *arguments):
        if function == "cudaMemcpyAsync":
            ctypes.memmove(*arguments[:3])
        if function.startswith("cudaFree"):
            del self.memory[arguments[0]]

    def pinned_array(self, shape):
        address = self.allocate(*shape)
        return self.memory[address], address


@pytest.fixture
def fakes(monkeypatch):
    library, memory = FakeLibrary(), FakeCuda()
    monkeypatch.setattr(libnvtiff, "load", lambda: library)
    for name in ("allocate", "call", "pinned_array"):
        monkeypatch.setattr(cuda, name, getattr(memory, name))
    monkeypatch.setattr(cuda, "set_device", lambda ordinal: None)
    monkeypatch.setattr(cuda, "create_stream", lambda: 1)
    monkeypatch.setattr(lzw_check, "compile_check", FakeKernel)
    kinds = types.SimpleNamespace(cudaMemcpyDeviceToHost=2, cudaMemcpyHostToDevice=1)
    monkeypatch.setattr(cuda, "runtime", lambda: types.SimpleNamespace(cudaMemcpyKind=kinds))
    yield library, memory
    decode_by()  # frees a decoder while the fakes are there


@pytest.mark.parametrize(
    "shape, dtype, options",
    [
        ((410, 450, 3), "uint16", {"rowsperstrip": 100}),
        ((410, 450, 3), ">u2", {"byteorder": ">", "predictor": 2}),
        ((600, 500), "float32", {"tile": (64, 64)}),
        ((5, 500, 300), "int16", {"planarconfig": "separate", "photometric": "minisblack"}),
        ((300, 300, 13), "uint8", {"bigtiff": True, "rowsperstrip": 300}),
        ((410, 450, 4), "uint16", {"photometric": "separated"}),
    ],
)
def test_pages_of_any_files_become_one_file(fakes, shape, dtype, options):
    """As tifffile reads it; damage in one leaves the others whole."""
    library, memory = fakes
    decoder = libnvtiff.TiffDecoder(0)
    images = [numbers(*shape, dtype=np.dtype(dtype).name, seed=seed) for seed in range(3)]
    files = [bytearray(tiff(each.astype(dtype), compression="lzw", **options)) for each in images]
    places = [reader.read_layout(memoryview(file), 0).place for file in files]
    files[1][places[1].offsets[0]] ^= 0x40
    pages = [page_of(file, each) for file, each in zip(files, places)]
    form = places[0].form
    assert form is not None and [each.form for each in places] == [form] * 3
    pitch = form.pitch + 24
    canvases = np.full((3, form.height, pitch), 7, np.uint8)
    pointers = [each.ctypes.data for each in canvases]
    assert decoder.decode(form, pages, pointers, pitch).tolist() == [True, False, True]
    for number in (0, 2):
        expected = images[number] if form.planes == 1 else np.moveaxis(images[number], 0, -1)
        found = np.ascontiguousarray(canvases[number, :, : form.pitch]).view(images[number].dtype)
        np.testing.assert_array_equal(found.reshape(form[:3]), expected.reshape(form[:3]))
    assert (canvases[1] == 7).all() and (canvases[..., form.pitch :] == 7).all()
    assert library.decoded == [2] and set(library.open.values()) == {"decoder", "params"}
    library.refuses = True
    assert not decoder.decode(form, pages[:1], pointers[:1], pitch).any()
    assert set(library.open.values()) == {"decoder", "params"}
    del decoder
    gc.collect()
    assert not library.open and not memory.memory


def test_a_thread_decodes_what_is_whole(fakes):
    library, _ = fakes
    decode_by(TIFF=libnvtiff.TiffDecoder(0))
    data = tiff(IMAGE, compression="lzw")
    np.testing.assert_array_equal(decoded(data), IMAGE)
    assert library.decoded == [1]
    damaged = bytearray(data)
    damaged[reader.read_layout(memoryview(data), 0).place.offsets[0]] ^= 0x40
    with pytest.raises(Exception, match=r"(?i)lzw"):
        decoded(bytes(damaged))
    assert library.decoded == [1]
    library.refuses = True
    np.testing.assert_array_equal(decoded(data), IMAGE)


def test_a_page_among_many_goes_alone(fakes):
    library, memory = fakes
    decode_by(TIFF=libnvtiff.TiffDecoder(0))
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for number in range(3):
            page = IMAGE[..., number]
            writer.write(np.repeat(page, 4, 0), photometric="minisblack", compression="lzw")
    for number in range(3):
        found = decoded(file.getvalue(), number)
        np.testing.assert_array_equal(found[::4, :, 0], IMAGE[..., number])
    assert library.decoded == [1, 1, 1]
    assert max(each.nbytes for each in memory.memory.values()) < len(file.getvalue()) / 2


@pytest.fixture
def backend(fakes, monkeypatch):
    """A `Decoder` whose backend takes CPUs for GPUs."""
    monkeypatch.setattr(
        cuda, "call", lambda name, *given: fakes[1].call(name, *given) or (0, 2**30)
    )
    monkeypatch.setattr(cuda, "core", lambda: None)
    monkeypatch.setattr(cuda, "on_device", contextlib.nullcontext)
    monkeypatch.setattr(canvas_buffers, "CanvasBuffer", HostBuffer)
    monkeypatch.setattr(reader, "_LEAST_ON_GPU", 1)
    reader._layout.cache_clear()
    MEMORY.kept.clear()

    def make(backend, devices, canvas, form, num_threads, deterministic):
        host = HostBackend(devices, canvas, num_threads, form)
        return "host", nvtiff_backend.NvtiffBackend(devices, canvas, form, host)

    monkeypatch.setattr("jaxaug.decode.image.decoder._make_backend", make)
    yield fakes[0]
    reader._layout.cache_clear()


def batch_of(files, devices=1, **form):
    options = {"devices": jax.devices("cpu")[:devices], "num_threads": 2, "on_error": "mask"}
    with decode.Decoder((24, 32), **options, **form) as decoder:
        found = decoder.decode(files)
        pixels = found.pixels if devices > 1 else [found.pixels]
        pixels = np.concatenate([np.asarray(each) for each in pixels])
        return pixels, found.valid.tolist(), decoder.stats


def lzw(*shape, dtype="uint16", seed=0, **options):
    return tiff(numbers(*shape, dtype=dtype, seed=seed), compression="lzw", **options)


def damaged(file):
    changed = bytearray(file)
    changed[reader.read_layout(memoryview(file), 0).place.offsets[0]] ^= 0x40
    return bytes(changed)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_a_batch_is_that_of_the_host(backend, monkeypatch, devices, dtype):
    """Pages of two layouts, of another size, turned, larger, damaged, and other files."""
    files = [lzw(24, 32, 5, dtype=dtype, seed=seed) for seed in range(7)]
    files += [lzw(20, 30, 5, dtype=dtype, seed=seed, tile=(16, 16)) for seed in range(2)]
    files += [damaged(files[0]), lzw(40, 32, 5, dtype=dtype), b"no image"]
    files += [tiff(numbers(24, 32, 5, dtype=dtype)), lzw(24, 32, 5, dtype="float16")]
    files += [lzw(24, 32, 5, dtype=dtype, extratags=[(274, 3, 1, 3, True)]), files[2]]
    form = {"channels": 5, "dtype": dtype}
    pixels, valid, stats = batch_of(files, devices, **form)
    assert stats["nvtiff"] == 10
    assert sum(backend.decoded) == 10 and len(backend.decoded) < 10
    MEMORY.check_guards()
    monkeypatch.undo()
    expected, told, _ = batch_of(files, devices, **form)
    np.testing.assert_array_equal(pixels, expected)
    assert valid == told


def test_canvases_of_pages_alone_are_those_of_the_device(backend, monkeypatch):
    """Nothing is copied from the host, and rows without an image are zeros."""
    images = [numbers(20, 32, 3, seed=seed) for seed in range(6)]
    files = [tiff(each, compression="lzw") for each in images]
    monkeypatch.setattr(HostBackend, "decode", None)
    pixels, valid, stats = batch_of([*files, b""], channels=3, dtype="uint16")
    np.testing.assert_array_equal(pixels[:6, :20], images)
    assert not pixels[6].any() and not pixels[:, 20:].any()
    assert valid == [True] * 6 + [False]
    assert stats["nvtiff"] == 6


def test_canvases_that_are_given_back_late_are_freed(backend, monkeypatch):
    closed = []
    monkeypatch.setattr(HostBuffer, "close", lambda buffer: closed.append(buffer))
    decoder = decode.Decoder((24, 32), devices=jax.devices("cpu")[:1], channels=3, dtype="uint16")
    rows = decoder.decode_rows(decode.Encoded.from_bytes([lzw(20, 30, 3)]))
    decoder.close()
    assert not closed
    rows.release(None)
    del decoder, rows
    gc.collect()
    assert len(closed) == 1


@pytest.mark.parametrize("taken", [(1, 0), (0, 0, 1), None])
def test_colors_are_what_they_are_converted_to(backend, monkeypatch, taken):
    """What the canvas shows in other numbers than the file, or in another order, is the host's."""
    form: dict[str, Any] = {"dtype": "uint16"}
    form |= {"bands": taken} if taken else {"channels": "rgb"}
    files = [lzw(20, 30, 3, photometric="rgb", seed=seed) for seed in range(2)]
    files += [] if taken else [lzw(20, 30, photometric="miniswhite"), lzw(20, 30)]
    pixels, _, stats = batch_of(files, **form)
    assert stats["nvtiff"] == (0 if taken else 2)
    monkeypatch.undo()
    np.testing.assert_array_equal(pixels, batch_of(files, **form)[0])


@pytest.mark.parametrize("what", ["library", "memory"])
def test_without_the_library_or_memory_the_host_decodes(backend, monkeypatch, what):
    def missing(*given):
        raise LibraryError("no nvTIFF") if what == "library" else MemoryError("full")

    owner, name = (libnvtiff, "load") if what == "library" else (HostBuffer, "prepare")
    monkeypatch.setattr(owner, name, missing)
    image = numbers(20, 30, 3)
    pixels, _, stats = batch_of([tiff(image, compression="lzw")], channels=3, dtype="uint16")
    np.testing.assert_array_equal(pixels[0, :20, :30], image)
    assert (stats["host"], stats["nvtiff"]) == (1, 0)


def test_the_library_has_what_is_declared():
    """Without a GPU, too: a file is opened, a page of it chosen."""
    try:
        library = libnvtiff.load()
    except LibraryError:
        pytest.skip("needs nvTIFF")
    data = np.frombuffer(tiff(IMAGE), np.uint8)
    opened = load_library.create(libnvtiff.load().nvtiffStreamOpen, data.ctypes.data, data.size)
    params = load_library.create(libnvtiff.load().nvtiffDecodeParamsCreate)
    library.nvtiffDecodeParamsSetRegions(params, libnvtiff._Region(8, 0, 0, 0, 0), 1)
    library.nvtiffDecodeParamsDestroy(params)
    library.nvtiffStreamClose(opened)
    with pytest.raises(RuntimeError, match="nvtiffStreamOpen: status"):
        load_library.create(libnvtiff.load().nvtiffStreamOpen, data[8:].ctypes.data, 8)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("samples", [1, 3, 5, 13])
def test_the_numbers_are_those_of_the_host(dtype, samples):
    if jax.default_backend() != "gpu":
        pytest.skip("needs an NVIDIA GPU")
    decoder = libnvtiff.TiffDecoder(0)
    pixels = numbers(1300, 850, samples, dtype=dtype)
    parts = ({"rowsperstrip": 70}, {"tile": (160, 320)})
    predictors = (None,) if dtype == "float32" or samples == 13 else (None, 2)
    for predictor, part, (order, big) in itertools.product(
        predictors, parts, (("<", False), (">", False), ("<", True))
    ):
        options = {"byteorder": order, "bigtiff": big, "predictor": predictor, **part}
        data = memoryview(tiff(pixels, compression="lzw", **options))
        layout = reader.read_layout(data, 0)
        page = page_of(data, layout.place)
        found = decoder.decode_to_host(layout.place.form, page)
        assert found is not None, options  # what headers let through is not refused
        np.testing.assert_array_equal(found, pixels)


@pytest.mark.gpu
def test_a_decoder_gives_the_same_batch():
    """Good and damaged files in one: the same pixels and verdicts as on the host."""
    if jax.default_backend() != "gpu":
        pytest.skip("needs an NVIDIA GPU")
    good = tiff(IMAGE, compression="lzw", predictor=2, rowsperstrip=100)
    place = reader.read_layout(memoryview(good), 0).place
    damages = []
    for number in range(20):
        bad = bytearray(good)
        at = place.offsets[number % 4] + number * 1000
        bad[at : at + 40] = bytes(40) if number % 2 else b"\xff" * 40
        damages.append(bytes(bad))
    files = decode.Encoded.from_bytes([good, *damages, good, good[:-900]])
    found = []
    for backend in ("auto", "host"):
        options = {"channels": 3, "dtype": "uint16", "on_error": "mask", "backend": backend}
        with decode.Decoder((410, 450), devices=jax.devices()[:1], **options) as decoder:
            batch = decoder.decode(files)
        found.append((np.asarray(batch.pixels), batch.valid))
    np.testing.assert_array_equal(found[0][1], found[1][1])
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][0][0], IMAGE)
