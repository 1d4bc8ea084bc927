"""nvJPEG without a library around it: the limit of the hardware."""

import ctypes

import numpy as np
from rate import rate

from jaxaug.decode import Encoded, read_headers
from jaxaug.decode.native import cuda, libnvjpeg


def by_sampling(images: list[bytes]) -> list[list[bytes]]:
    """Return the baseline JPEGs, grouped by chroma sampling."""
    headers = read_headers(Encoded.from_bytes(images))
    baseline = headers.coding == 0
    return [
        [
            image
            for image, s, good in zip(images, headers.sampling, baseline)
            if s == sampling and good
        ]
        for sampling in np.unique(headers.sampling[baseline])
        if sampling != 0
    ]


def raw_engines(groups: list[list[bytes]], canvas: tuple[int, int]):
    """Return the work of a thread that drives the batched engines, for `rate`."""
    row = canvas[0] * canvas[1] * 3

    def work(thread, running, count):
        cuda.set_device(0)
        handle = libnvjpeg.create_handle(libnvjpeg.HARDWARE)
        calls = []
        for group in groups:
            encoded = Encoded.from_bytes(group)
            buffer = int(cuda.call("cudaMalloc", row * len(group)))
            pointers = np.arange(len(group), dtype=np.uint64) * np.uint64(row) + np.uint64(buffer)
            state = libnvjpeg.create("nvjpegJpegStateCreate", handle)
            calls.append(
                (
                    state,
                    encoded,
                    libnvjpeg.destinations(pointers, canvas[1] * 3),
                    cuda.create_stream(),
                    buffer,
                )
            )
        while running():
            for state, encoded, images, stream, _ in calls:
                libnvjpeg.decode_batched(
                    handle, state, encoded.addresses, encoded.lengths, images, stream, 3
                )
            for *_, stream, _ in calls:
                cuda.call("cudaStreamSynchronize", stream)
            count(sum(map(len, groups)))
        for state, _, _, stream, buffer in calls:
            libnvjpeg.destroy("nvjpegJpegStateDestroy", state)
            cuda.call("cudaStreamDestroy", stream)
            cuda.call("cudaFree", buffer)
        libnvjpeg.destroy("nvjpegDestroy", handle)

    return work


def raw_hybrid(images: list[bytes], canvas: tuple[int, int]):
    """Return the work of a thread that drives nvJPEG's HYBRID decoder, for `rate`.

    The calling thread does the Huffman decoding, the GPU the rest.
    """
    encoded = Encoded.from_bytes(images)
    items = list(
        zip(
            map(ctypes.c_void_p, encoded.addresses.tolist()),
            map(ctypes.c_size_t, encoded.lengths.tolist()),
        )
    )
    hybrid = ctypes.c_int(1)
    zero = ctypes.c_int(0)
    library = ctypes.CDLL(libnvjpeg.path())  # a handle of its own: jaxaug's has prototypes

    def make(function: str, *arguments) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        assert getattr(library, function)(*arguments, ctypes.byref(made)) == 0, function
        return made

    def work(thread, running, count):
        cuda.set_device(0)
        handle = make("nvjpegCreateEx", hybrid, None, None, ctypes.c_uint(1 << 1 | 1 << 5))
        decoder = make("nvjpegDecoderCreate", handle, hybrid)
        device = make("nvjpegBufferDeviceCreate", handle, None)
        pinned = []
        turns = []
        for _ in range(2):  # two states take turns: the thread goes on while the GPU finishes
            state = make("nvjpegDecoderStateCreate", handle, decoder)
            pinned.append(make("nvjpegBufferPinnedCreate", handle, None))
            library.nvjpegStateAttachPinnedBuffer(state, pinned[-1])
            library.nvjpegStateAttachDeviceBuffer(state, device)
            turns.append((state, make("nvjpegJpegStreamCreate", handle)))
        parameters = make("nvjpegDecodeParamsCreate", handle)
        library.nvjpegDecodeParamsSetOutputFormat(parameters, ctypes.c_int(libnvjpeg.OUTPUTS[3]))
        buffer = int(cuda.call("cudaMalloc", canvas[0] * canvas[1] * 3))
        stream = cuda.create_stream()
        image = libnvjpeg.destinations(np.array([buffer], np.uint64), canvas[1] * 3)
        where = ctypes.c_void_p(image.ctypes.data)
        on = ctypes.c_void_p(stream)
        number = thread * 7
        while running():
            number += 1
            state, parsed = turns[number % 2]
            library.nvjpegJpegStreamParse(handle, *items[number % len(items)], zero, zero, parsed)
            assert not library.nvjpegDecodeJpeg(
                handle, decoder, state, parsed, where, parameters, on
            )
            count(1)
        cuda.call("cudaStreamSynchronize", stream)
        for state, parsed in turns:
            library.nvjpegJpegStateDestroy(state)
            library.nvjpegJpegStreamDestroy(parsed)
        for each in pinned:
            library.nvjpegBufferPinnedDestroy(each)
        library.nvjpegBufferDeviceDestroy(device)
        library.nvjpegDecodeParamsDestroy(parameters)
        library.nvjpegDecoderDestroy(decoder)
        library.nvjpegDestroy(handle)
        cuda.call("cudaFree", buffer)
        cuda.call("cudaStreamDestroy", stream)

    return work


def raw_together(
    images: list[bytes], groups: list[list[bytes]], canvas, threads: int, seconds: float
) -> float:
    """Return images/s of the engines, one batch at a time, and HYBRID threads at once."""
    engines = raw_engines(groups, canvas)
    hybrid = raw_hybrid(images, canvas)

    def work(thread, running, count):
        (engines if thread < 1 else hybrid)(thread, running, count)

    return rate(work, threads, seconds)
