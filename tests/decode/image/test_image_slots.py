"""Images that are decoded whole before they are shrunk or oriented."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jaxaug.decode.image.nvjpeg import canvas_buffers, image_slots, nvjpeg_backend
from jaxaug.decode.native import cuda
from jaxaug.decode.native.load_library import LibraryError
from tests.decode.fake_gpu import WHOLE, HostResampler, check, check_fitted, decoder, free_permits
from tests.images import encode, jpegs, picture


@pytest.mark.parametrize("options", [{"deterministic": True}, {}])
def test_larger_and_turned_images_are_decoded_by_the_engines(gpu, options):
    images = [*jpegs(30, 40, 50), *WHOLE, *jpegs(30, 40, 50, seed=50)]
    with decoder(**options) as one:
        check_fitted(one, images)
        check_fitted(one, images[::-1])
        if options:
            assert one.stats["engines"] == 2 * len(images) and one.stats["host"] == 0
            assert gpu.calls == [len(images)] * 2  # one call each: all fit a region


def test_regions_are_filled_one_after_another(gpu, monkeypatch):
    monkeypatch.setattr(nvjpeg_backend, "_MAX_REGION", 100_000)
    with decoder(deterministic=True) as one:
        check_fitted(one, [*jpegs(10, 40, 50), *WHOLE])
        assert one.stats["engines"] == 10 + len(WHOLE)
        assert len(gpu.calls) > 3 and sum(gpu.calls) == 10 + len(WHOLE) and gpu.calls[-1] > 10


def test_a_region_takes_the_memory_that_its_calls_need(gpu, monkeypatch):
    monkeypatch.setattr(image_slots, "MIN_REGION", 4096)
    with decoder(deterministic=True) as one:
        check_fitted(one, jpegs(10, 40, 50))
        canvases = one.stats["device_bytes"]
        check_fitted(one, [*jpegs(9, 40, 50), WHOLE[0]])
        first = one.stats["device_bytes"] - canvases
        assert 4096 <= first <= 65536 and first.bit_count() == 1
        check_fitted(one, WHOLE[:10])
        assert one.stats["device_bytes"] - canvases > first


def test_a_longer_table_is_made_a_few_times_only(gpu, monkeypatch):
    """Freeing the old one stops a training."""
    monkeypatch.setattr(image_slots, "_MIN_RECORDS", 4)
    tables = []

    def allocate(size, purpose=""):
        if "table" in purpose:
            tables.append(size // image_slots.RECORD.itemsize)
        return gpu.memory.allocate(size)

    monkeypatch.setattr(cuda, "allocate", allocate)
    with decoder(deterministic=True) as one:
        for count in range(1, len(WHOLE)):
            check_fitted(one, [*jpegs(9, 40, 50), *WHOLE[:count]])
    assert tables == [4, 8, 16, 32]


def test_a_table_without_page_locked_memory_leaves_the_region_usable(gpu, monkeypatch):
    """What is freed twice is an error of CUDA, in every later batch."""
    monkeypatch.setattr(image_slots, "_MIN_RECORDS", 4)
    freed = []
    failing = []

    def call(name, *given):
        if name == "cudaFreeHost":
            freed.append(given[0])
        return gpu.memory.call(name, *given)

    def pinned_array(shape):
        if failing:
            raise MemoryError(failing.pop())
        return gpu.memory.pinned_array(shape)

    with decoder(deterministic=True) as one:
        check_fitted(one, WHOLE[:3])
        monkeypatch.setattr(cuda, "call", call)
        monkeypatch.setattr(cuda, "pinned_array", pinned_array)
        failing.append("no page-locked memory")
        with pytest.raises(MemoryError, match="page-locked"):
            one.decode(WHOLE)
        check_fitted(one, WHOLE)
    assert freed and len(set(freed)) == len(freed) and 0 not in freed


def test_an_image_larger_than_a_region_goes_to_the_host(gpu, monkeypatch):
    monkeypatch.setattr(nvjpeg_backend, "_MAX_REGION", 100_000)
    large = encode(picture(0, 200, 300), quality=95)
    with decoder(deterministic=True) as one:
        check_fitted(one, [large, *WHOLE])
        assert one.stats["host"] == 1 and one.stats["engines"] == len(WHOLE)


def test_canvases_and_all_slots_together_take_what_they_may(gpu, monkeypatch):
    """Those of the host threads, too, however many there are."""
    budgets = []

    class Pool(nvjpeg_backend.BufferPool):
        def __init__(self, ordinal, canvas_shape, budget):
            super().__init__(ordinal, canvas_shape, budget)
            budgets.append(budget)

    region = 100_000
    monkeypatch.setattr(nvjpeg_backend, "_MAX_REGION", region)
    monkeypatch.setattr(nvjpeg_backend, "BufferPool", Pool)
    gpu.thread_slot = lambda most: most
    progressive = [encode(picture(i, 40, 50), quality=95, progressive=True) for i in range(30)]
    with decoder(deterministic=True) as one:
        check(one, progressive)
        threads = one.stats["device_bytes"]  # nothing else has memory here
        assert 0 < threads <= region
        assert budgets[0] + 3 * region + threads <= canvas_buffers.buffer_budget(
            2**35
        )  # of `HostMemory`


@pytest.mark.filterwarnings("ignore:images larger than the canvas")
@pytest.mark.parametrize("sizes", [(2**20, 100_000), (100_000, 2**20), (2**20, 0)])
def test_the_smallest_gpu_decides_which_images_fit_a_region(gpu, monkeypatch, sizes):
    """GPUs of one host may have different memory, or be too old for NVRTC: then it has none."""
    left = list(sizes)

    def compile_resampler(channels):
        size = left.pop(0)
        if not size:
            raise LibraryError("no NVRTC here")
        monkeypatch.setattr(nvjpeg_backend, "_MAX_REGION", size)
        return HostResampler(channels)

    monkeypatch.setattr(nvjpeg_backend, "compile_resampler", compile_resampler)
    large = encode(picture(0, 200, 300), quality=95)
    with decoder(2, deterministic=True) as two:
        assert two.decode([large, *WHOLE[:2], large]).valid.all()
        assert two.stats["host"] == (2 if min(sizes) else 4)


@pytest.mark.parametrize("fault", ["refused", "skipped"])
def test_whole_images_that_the_engines_do_not_decode_go_to_the_host(gpu, fault):
    setattr(gpu, fault, set(WHOLE[3:12:4]))
    with decoder(deterministic=True) as one:
        check_fitted(one, [*jpegs(9, 40, 50), *WHOLE])
        assert one.stats["host"] == 3 and one.stats["refused"] == 3


def test_without_the_kernel_larger_images_go_to_the_host_with_a_warning(gpu, monkeypatch):
    def fails(channels):
        raise LibraryError("no NVRTC here")

    monkeypatch.setattr(nvjpeg_backend, "compile_resampler", fails)
    told = r"larger than the canvas, .* on the host: no NVRTC here"
    # By the thread in which a GPU starts, for which the first batch waits.
    with pytest.warns(RuntimeWarning, match=told), decoder(deterministic=True) as one:
        check_fitted(one, [*jpegs(9, 40, 50), *WHOLE], levels=0.1)
        assert one.stats["host"] == len(WHOLE) - 1 and one.stats["engines"] == 10  # one is direct


def test_engines_decode_while_images_are_resampled(gpu, monkeypatch):
    """A call that only resamples has no permit: three calls, each of which waits for the next."""
    arrived = []
    all_here = threading.Event()
    real = HostResampler.fill_canvases

    def fill_canvases(self, *given):
        arrived.append(threading.get_ident())
        if len(set(arrived)) == 3:
            all_here.set()
        assert all_here.wait(60)
        real(self, *given)

    monkeypatch.setattr(HostResampler, "fill_canvases", fill_canvases)
    with decoder(deterministic=True) as one, ThreadPoolExecutor(3) as pool:
        batches = [WHOLE[:7], WHOLE[8:15], WHOLE[15:]]
        for batch in pool.map(one.decode, batches):
            assert batch.valid.all()
        assert one.stats["engines"] == sum(map(len, batches))


def test_many_callers_with_few_regions_do_not_wait_for_each_other(gpu, monkeypatch):
    """Several groups a call: between them, a call keeps its permit."""
    monkeypatch.setattr(nvjpeg_backend, "_MAX_REGION", 60_000)
    with decoder(deterministic=True) as one, ThreadPoolExecutor(8) as pool:
        running = [pool.submit(one.decode, WHOLE[number % 3 :]) for number in range(24)]
        for each in running:
            assert each.result(timeout=120).valid.all()
        engines = one._backend._gpus[0]._batched
        assert free_permits(engines) == 2 and engines.has_free_permit()
