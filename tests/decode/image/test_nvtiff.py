"""TIFF on a GPU for the threads of the host: the same numbers, and the host for all others."""

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
from jaxaug.decode.image.deep import tiff as reader
from jaxaug.decode.image.deep.gpu import decode_by
from jaxaug.decode.native import cuda, libnvtiff, load_library, lzw_check
from jaxaug.decode.native.load_library import LibraryError
from jaxaug.decode.native.lzw_check import PART
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

    def decode(self, data, shape, dtype, *, start, parts):
        self.asked.append((shape, dtype.name, {"start": start, "parts": parts}))
        return self.answer


def decoded(file, page=0):
    data = memoryview(file)
    return reader.decode(data, reader.read_layout(data, page))


@pytest.mark.parametrize("answer", [None, IMAGE[::-1]])
def test_a_thread_asks_its_decoder_first(answer):
    stand = Stand(answer)
    decode_by(TIFF=stand)
    file = tiff(IMAGE, compression="lzw", rowsperstrip=100)
    np.testing.assert_array_equal(decoded(file), IMAGE if answer is None else answer)
    ((shape, dtype, where),) = stand.asked
    assert (shape, dtype) == (IMAGE.shape, "uint16")
    assert where["start"] == int.from_bytes(file[4:8], "little")
    place = reader.read_layout(memoryview(file), 0).place
    assert where["parts"][:, 0].tolist() == list(place.offsets)
    assert where["parts"][:, 1].tolist() == list(place.counts)
    assert where["parts"][:, 2].tolist() == [rows * 450 * 6 for rows in (100, 100, 100, 100, 10)]


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
        {"samples": 4, "photometric": "separated"},
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
        self.region = libnvtiff._Region()
        self.taller = self.decoded = 0

    def _make(self, out, thing):
        self.made += 1
        self.open[self.made] = thing
        out._obj.value = self.made

    def nvtiffDecoderCreateSimple(self, out, stream):
        self._make(out, "decoder")

    def nvtiffDecodeParamsCreate(self, out):
        self._make(out, "params")

    def nvtiffDecodeParamsSetRegions(self, params, regions, count):
        assert count == 1
        self.region = regions._obj

    def nvtiffStreamOpen(self, address, size, out):
        self._make(out, ctypes.string_at(address, size))

    def _page(self, opened, start) -> Any:
        file = tifffile.TiffFile(io.BytesIO(self.open[opened.value]))
        return next(page for page in file.pages if page.offset == start)

    def nvtiffStreamGetImageInfo(self, opened, start, info):
        page, info = self._page(opened, start), info._obj
        info.height, info.width = page.imagelength + self.taller, page.imagewidth
        info.samples = page.samplesperpixel
        info.bits = page.samplesperpixel * page.bitspersample

    def nvtiffDecode(self, opened, decoder, params, image, stream):
        self.decoded += 1
        try:
            pixels = self._page(opened, self.region.directory).asarray()
        except Exception:
            raise load_library.NotDecodedError("status 3") from None
        image = image._obj
        assert image.pitches[0] == pixels.nbytes // len(pixels)
        ctypes.memmove(image.planes[0], pixels.ctypes.data, pixels.nbytes)

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


def test_layouts_of_any_size_and_damage_leave_nothing_open(fakes):
    library, memory = fakes
    decoder = libnvtiff.TiffDecoder(0)
    decode_by(TIFF=decoder)
    kept = {"decoder", "params"}
    for pixels, options in (
        (IMAGE, {"rowsperstrip": 100}),
        (numbers(600, 500, dtype="float32"), {"tile": (64, 64)}),
        (IMAGE.astype(">u2"), {"byteorder": ">", "predictor": 2}),
    ):
        found = decoded(tiff(pixels, compression="lzw", **options))
        np.testing.assert_array_equal(found, pixels.reshape(found.shape))
    assert library.decoded == 3
    assert set(library.open.values()) == kept and len(memory.memory) == 4
    data = tiff(IMAGE, compression="lzw")
    damaged = bytearray(data)
    damaged[reader.read_layout(memoryview(data), 0).place.offsets[0]] ^= 0x40
    with pytest.raises(Exception, match=r"(?i)lzw"):
        decoded(bytes(damaged))
    library.taller = 1  # it would write behind the memory
    np.testing.assert_array_equal(decoded(data), IMAGE)
    assert library.decoded == 3
    assert set(library.open.values()) == kept
    del decoder
    decode_by()
    gc.collect()
    assert not library.open and not memory.memory


def test_a_page_among_many_is_left_to_the_host(fakes):
    """Of the file as many bytes would go to the GPU as it has."""
    library, _ = fakes
    decode_by(TIFF=libnvtiff.TiffDecoder(0))
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for number in range(3):
            page = IMAGE[..., number]
            writer.write(np.repeat(page, 2, 0), photometric="minisblack", compression="lzw")
    for number in range(3):
        found = decoded(file.getvalue(), number)
        np.testing.assert_array_equal(found[::2, :, 0], IMAGE[..., number])
    assert library.decoded == 0


def test_the_library_has_what_is_declared():
    """Without a GPU, too: a file is opened, a page of it chosen."""
    try:
        library = libnvtiff.load()
    except LibraryError:
        pytest.skip("needs nvTIFF")
    data = np.frombuffer(tiff(IMAGE), np.uint8)
    opened = load_library.create(libnvtiff.load().nvtiffStreamOpen, data.ctypes.data, data.size)
    libnvtiff._check_info(opened, int(data[4:8].view("<u4")[0]), IMAGE.shape, IMAGE.dtype)
    with pytest.raises(RuntimeError, match="450 x 410 pixels of 48 bits"):
        libnvtiff._check_info(opened, 0, (32, 450, 3), IMAGE.dtype)
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
        stand = Stand()
        decode_by(TIFF=stand)
        np.testing.assert_array_equal(reader.decode(data, layout), pixels)
        ((shape, _, where),) = stand.asked
        found = decoder.decode(data, shape, layout.dtype, **where)
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
