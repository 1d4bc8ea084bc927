"""The Decoder with its host backend: batches, errors, devices, threads."""

import gc
import io
import math
import os
import signal
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from PIL import Image

from jaxaug.decode import Decoder, Encoded, decode_image, read_headers
from jaxaug.decode.image import decoder as decoder_module
from jaxaug.decode.image.host import canvas_pool
from jaxaug.errors import DecodeError
from tests.decode.samples import JPEGS, PICTURE, exif_segment, insert, patch_sof
from tests.images import encode, jpegs, picture

FILES = [
    *jpegs(6),
    *JPEGS.values(),
    insert(JPEGS["4:2:0"], exif_segment(6, "<")),
    encode(PICTURE, "PNG"),
][:24]
UPSIDE_DOWN = Image.Exif()
UPSIDE_DOWN[0x0112] = 3
BAD = {
    "empty": b"",
    "text": b"not an image at all",
    "truncated": FILES[0][:-40],
    "vast": patch_sof(FILES[0], 5, b"\xea\x60\xea\x60"),
    "broken PNG": encode(PICTURE, "PNG", exif=UPSIDE_DOWN)[
        :600
    ],  # its header is good: only decoding tells
}


@pytest.fixture
def one():
    """A Decoder on one device, with its threads gone afterwards."""
    with Decoder((64, 64), "host", jax.devices("cpu")[:1], num_threads=2) as decoder:
        yield decoder


def threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("jaxaug-decode")}


# ---- pixels


def test_every_row_is_its_image_on_zeros(one):
    batch = one.decode(FILES)
    pixels = np.asarray(batch.pixels)
    assert pixels.shape == (len(FILES), 64, 64, 3) and pixels.dtype == np.uint8
    assert batch.valid.all() and batch.valid.dtype == np.bool_
    assert batch.size.dtype == batch.original_size.dtype == np.int32
    for row, file in enumerate(FILES):
        alone = decode_image(file)
        height, width = alone.shape[:2]
        assert batch.size[row].tolist() == batch.original_size[row].tolist() == [height, width]
        np.testing.assert_array_equal(pixels[row, :height, :width], alone)
        assert not pixels[row, height:].any() and not pixels[row, :, width:].any()


def test_images_larger_than_the_canvas_are_shrunk_and_counted(one):
    files = [
        encode(picture(0, 128, 96)),
        encode(picture(1, 30, 30)),
        encode(picture(2, 65, 64), "PNG"),
    ]
    batch = one.decode(files)
    assert batch.size.tolist() == [[64, 48], [30, 30], [64, 63]]
    assert batch.original_size.tolist() == [[128, 96], [30, 30], [65, 64]]
    assert one.stats == {"images": 3, "failed": 0, "shrunk": 2, "host": 3, "device_bytes": 0}


def test_an_image_of_which_one_side_is_shrunk_counts_as_shrunk(one):
    batch = one.decode([encode(picture(0, *sides)) for sides in ((1, 200), (200, 1), (64, 64))])
    assert batch.size.tolist() == [[1, 64], [64, 1], [64, 64]]
    assert one.stats["shrunk"] == 2


def test_the_layout_does_not_change_the_pixels(cpu_devices):
    layouts = {}
    for count in (1, 2, 8):
        with Decoder((32, 48), "host", cpu_devices[:count], num_threads=3) as decoder:
            pixels = decoder.decode(FILES).pixels
        shards = pixels if count > 1 else [pixels]
        assert [shard.devices() for shard in shards] == [{device} for device in cpu_devices[:count]]
        assert all(shard.shape == (24 // count, 32, 48, 3) for shard in shards)
        layouts[count] = np.concatenate([np.asarray(shard) for shard in shards])
    np.testing.assert_array_equal(layouts[1], layouts[2])
    np.testing.assert_array_equal(layouts[1], layouts[8])


def test_devices_are_all_local_ones_unless_given(cpu_devices):
    with Decoder((8, 8)) as decoder:
        assert decoder.devices == jax.local_devices() == cpu_devices
        assert decoder.backend == "host"


def test_devices_of_other_processes_are_refused(cpu_devices, monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(ValueError, match="`devices` must be local to this process, got"):
        Decoder((8, 8), devices=cpu_devices[:1])


def test_an_empty_batch(cpu_devices):
    with Decoder((16, 24), "host", cpu_devices[:2]) as decoder:
        batch = decoder.decode([])
    assert [shard.shape for shard in batch.pixels] == [(0, 16, 24, 3)] * 2
    assert batch.size.shape == (0, 2) and batch.valid.shape == (0,)


def test_encoded_may_lie_anywhere(one):
    buffer = b"".join(FILES)
    lengths = np.array([len(file) for file in FILES], np.uint64)
    starts = np.cumsum(lengths) - lengths + np.uint64(np.frombuffer(buffer, np.uint8).ctypes.data)
    order = np.arange(len(FILES))[::-1]
    batch = one.decode(Encoded(starts[order], lengths[order], buffer))
    np.testing.assert_array_equal(
        np.asarray(batch.pixels)[::-1], np.asarray(one.decode(FILES).pixels)
    )


def test_a_batch_survives_the_next_one(one):
    """Host memory is not written again while an array views it: on the CPU the array does."""
    first = one.decode(FILES).pixels
    kept = np.array(first)
    for seed in range(5):
        one.decode(jpegs(24, seed=seed * 100 + 50))
    np.testing.assert_array_equal(np.asarray(first), kept)


def test_the_canvas_is_taken_without_a_copy(one, monkeypatch):
    made = []
    original = canvas_pool.CanvasPool.take

    def take(pool, rows):
        made.append(original(pool, rows))
        return made[-1]

    monkeypatch.setattr(canvas_pool.CanvasPool, "take", take)
    pixels = one.decode(FILES).pixels
    assert pixels.unsafe_buffer_pointer() == made[0].pixels.ctypes.data


def test_nothing_moves_implicitly(one):
    with jax.transfer_guard("disallow"):
        one.decode(FILES)


# ---- errors


@pytest.mark.parametrize(
    "name, clause",
    [
        ("empty", "empty"),
        ("text", "not an image jaxaug knows"),
        ("truncated", "truncated"),
        ("vast", "60000 x 60000 pixels are more than max_pixels"),
        ("broken PNG", "PNG: "),
    ],
)
def test_raise_tells_the_first_bad_row(one, name, clause):
    files = [*FILES[:3], BAD[name], FILES[3], BAD["empty"]]
    with pytest.raises(DecodeError, match=clause) as caught:
        one.decode(files)
    assert caught.value.index == 3 and caught.value.byte_count == len(BAD[name])
    assert one.decode(FILES).valid.all()  # still usable


def test_mask_leaves_zeros_and_the_neighbors_alone(cpu_devices):
    files = [file for pair in zip(FILES, BAD.values()) for file in pair]
    with Decoder((64, 64), "host", cpu_devices[:2], on_error="mask") as decoder:
        batch = decoder.decode(files)
        decoded = decoder.decode_rows(Encoded.from_bytes(files))
        stats = decoder.stats
    pixels = np.concatenate([np.asarray(shard) for shard in batch.pixels])
    assert batch.valid.tolist() == [True, False] * 5
    assert not pixels[1::2].any()
    assert batch.size[1::2].tolist() == batch.original_size[1::2].tolist() == [[64, 64]] * 5
    for row in (0, 2, 4, 6, 8):
        alone = decode_image(files[row])
        np.testing.assert_array_equal(pixels[row, : alone.shape[0], : alone.shape[1]], alone)
    assert stats == {"images": 10, "failed": 10, "shrunk": 0, "host": 10, "device_bytes": 0}
    assert sorted(decoded.failures) == [1, 3, 5, 7, 9] and decoded.failures[1] == "empty"
    assert decoded.arrays["orientation"][1::2].tolist() == [1] * 5
    assert read_headers(Encoded.from_bytes(files)).kind[1::2].tolist() == [0, 0, 0, 0, 2]


def test_a_batch_of_nothing_but_bad_images(cpu_devices):
    with Decoder((8, 8), "host", cpu_devices[:1], on_error="mask") as decoder:
        batch = decoder.decode(list(BAD.values()))
    assert not batch.valid.any() and not np.asarray(batch.pixels).any()


def test_rows_for_the_loader_carry_the_orientation(one):
    files = [insert(FILES[0], exif_segment(value, ">")) for value in range(1, 9)]
    decoded = one.decode_rows(Encoded.from_bytes(files))
    assert decoded.arrays["orientation"].tolist() == list(range(1, 9)) and decoded.failures == {}
    assert decoded.arrays["original_size"].tolist() == [[40, 56]] * 4 + [[56, 40]] * 4
    decoded.release(decoded.arrays["pixels"])


def test_the_devices_divide_the_batch(cpu_devices):
    with Decoder((8, 8), "host", cpu_devices[:4]) as decoder:
        with pytest.raises(ValueError, match=r"`encoded` must have a multiple of 4 images.* got 6"):
            decoder.decode(FILES[:6])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"canvas": 224}, "`canvas` must be"),
        ({"canvas": (0, 5)}, "`canvas` must be"),
        ({"backend": "gpu"}, "`backend` must be one of"),
        ({"on_error": "skip"}, "`on_error` must be one of"),
        ({"num_threads": 0}, "`num_threads` must be"),
        ({"max_pixels": -1}, "`max_pixels` must be"),
        ({"devices": []}, "`devices` must be"),
        ({"devices": ["cpu"]}, "`devices` must be"),
        ({"devices": 3}, "`devices` must be a sequence"),
        ({"devices": jax.devices("cpu")[0]}, "`devices` must be a sequence.*wrap one in a list"),
        ({"deterministic": "no"}, "`deterministic` must be one of False, True"),
        ({"backend": "nvjpeg"}, "`devices` must be NVIDIA GPUs"),
    ],
)
def test_wrong_arguments_fail_at_construction(arguments, message):
    with pytest.raises(ValueError, match=message):
        Decoder(**arguments)


def test_what_is_not_a_sequence_of_bytes_is_a_type_error(one):
    with pytest.raises(TypeError, match="wrap it in a list"):
        one.decode(FILES[0])
    with pytest.raises(TypeError, match="`images` must be bytes-like"):
        one.decode([FILES[0], "path.jpg"])
    for wrong in (None, Path("a.jpg"), "a.jpg", io.BytesIO(FILES[0]), iter(FILES)):
        with pytest.raises(
            TypeError, match=rf"`encoded` must be .* got {type(wrong).__name__}: give the bytes"
        ):
            one.decode(wrong)
    for wrong in (Path("a.jpg"), io.BytesIO(FILES[0]), memoryview(FILES[0])[::2], None):
        with pytest.raises(
            TypeError, match=f"`images` must be bytes-like.*{type(wrong).__name__}.*read_bytes"
        ):
            one.decode([wrong])
        with pytest.raises(TypeError, match="must be bytes-like"):
            decode_image(wrong)


def test_addresses_and_lengths_belong_together(one):
    encoded = Encoded.from_bytes(FILES)
    for wrong in (encoded.lengths[:-1], encoded.lengths[None], encoded.lengths[:1]):
        for call in (one.decode, one.decode_rows, read_headers):
            with pytest.raises(
                ValueError, match="`encoded` must have one address and one length per image"
            ):
                call(encoded._replace(lengths=wrong))


def test_arguments_of_numpy_and_lists_will_do(cpu_devices):
    for canvas in ([64, 48], np.array([64, 48]), (np.int64(64), np.int32(48))):
        threads = np.int64(2)
        pixels = np.int64(9999)
        with Decoder(
            canvas, "host", cpu_devices[:1], num_threads=threads, max_pixels=pixels
        ) as decoder:
            assert decoder.canvas == (64, 48) and decoder.decode(FILES[:1]).pixels.shape == (
                1,
                64,
                48,
                3,
            )


def test_stats_have_their_names_before_the_first_batch(one):
    assert one.stats == {"images": 0, "failed": 0, "shrunk": 0, "host": 0, "device_bytes": 0}


# ---- inside of a mesh


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("shape", [(8,), (4, 2), (1, 1)])
def test_a_decoder_works_inside_of_any_mesh(cpu_devices, monkeypatch, kind, shape):
    names = ("x", "y")[: len(shape)]
    mesh = jax.make_mesh(
        shape, names, axis_types=(kind,) * len(shape), devices=cpu_devices[: math.prod(shape)]
    )
    with Decoder((32, 48), "host", cpu_devices[:2], num_threads=2) as decoder:
        expected = [np.asarray(pixels) for pixels in decoder.decode(FILES).pixels]
    returned = []
    with jax.set_mesh(mesh):
        with Decoder((32, 48), "host", cpu_devices[1:3], num_threads=2) as decoder:
            found = decoder.decode(FILES).pixels
            decode = decoder._backend.decode
            rows = decoder.decode_rows(Encoded.from_bytes(FILES))
            monkeypatch.setattr(
                decoder._backend,
                "decode",
                lambda *given: decode(*given)._replace(release=returned.append),
            )
            copies = decoder.decode(FILES).pixels  # as from a buffer of the backend
            assert len(returned) == 1
        assert jax.sharding.get_mesh() == mesh  # the user's is back
    for shards in (found, rows.arrays["pixels"], copies):
        assert [shard.devices() for shard in shards] == [{device} for device in cpu_devices[1:3]]
        for shard, pixels in zip(shards, expected):
            np.testing.assert_array_equal(np.asarray(shard), pixels)


# ---- threads


def test_decode_may_be_called_from_many_threads(one):
    batches = [jpegs(4, seed=10 * i) for i in range(6)]
    expected = [np.asarray(one.decode(batch).pixels) for batch in batches]
    wrong = []

    def work(number):
        for _ in range(5):
            if not np.array_equal(np.asarray(one.decode(batches[number]).pixels), expected[number]):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong and one.stats["images"] == 6 * 4 * 6


def test_close_leaves_no_thread(cpu_devices):
    before = threads()
    decoder = Decoder((8, 8), "host", cpu_devices[:1], num_threads=3)
    assert threads() <= before  # they start with the first batch
    decoder.decode(FILES)
    assert threads() - before
    decoder.close()
    decoder.close()
    assert threads() <= before
    with pytest.raises(ValueError, match="the Decoder is closed"):
        decoder.decode(FILES)


def test_concurrent_calls_check_their_headers_one_after_another(cpu_devices, monkeypatch):
    running = []
    most = []
    check = decoder_module.read_headers

    def read(*given):
        running.append(True)
        time.sleep(0.01)
        most.append(len(running))
        running.pop()
        return check(*given)

    monkeypatch.setattr(decoder_module, "read_headers", read)
    with Decoder((64, 64), "host", cpu_devices[:1]) as decoder, ThreadPoolExecutor(4) as callers:
        for batch in callers.map(decoder.decode, [FILES] * 8):
            assert batch.valid.all()
    assert most == [1] * 8


def test_close_waits_for_the_calls_that_run_and_refuses_later_ones(cpu_devices, monkeypatch):
    begun = threading.Event()
    held = threading.Event()
    order = []
    decoder = Decoder((64, 64), "host", cpu_devices[:1], num_threads=2)
    real = decoder._backend.decode
    end = decoder._backend.close
    monkeypatch.setattr(
        decoder._backend, "decode", lambda *a: begun.set() or (held.wait(30) and real(*a))
    )
    monkeypatch.setattr(decoder._backend, "close", lambda: order.append("engine closed") or end())
    with ThreadPoolExecutor(3) as callers:
        running = callers.submit(decoder.decode, FILES)
        assert begun.wait(30)
        closing = [callers.submit(decoder.close) for _ in range(2)]
        while not decoder._closed:
            time.sleep(0.001)
        with pytest.raises(ValueError, match="the Decoder is closed: make a new one"):
            decoder.decode(FILES)
        assert not order and not any(each.done() for each in closing)
        order.append("released")
        held.set()
        assert running.result(30).valid.all()
        for each in closing:
            each.result(30)
    assert order == ["released", "engine closed", "engine closed"]


def test_a_failed_call_does_not_keep_close_waiting(cpu_devices, monkeypatch):
    decoder = Decoder((64, 64), "host", cpu_devices[:1], num_threads=2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(decoder._backend, "decode", raise_interrupt)
        decoder.decode(FILES)
    assert decoder.decode(FILES).valid.all()
    decoder.close()


def raise_interrupt(*arguments):
    raise KeyboardInterrupt


def in_child(work) -> str:
    """Return the result of `work` in a forked child that has 60 seconds."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 and jax warn: other threads are lost
        child = os.fork()
    if not child:
        try:
            signal.alarm(60)
            os.write(writer, str(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_is_told_to_make_a_decoder_of_its_own(one):
    one.decode(FILES)

    def work():
        try:
            one.decode(FILES)
        except RuntimeError as error:
            one._calls.add("of a thread of the parent, which never ends here")
            one.close()  # returns at once
            return error

    assert "made before the process was forked" in in_child(work)
    assert one.decode(FILES).valid.all()


def test_a_dropped_decoder_leaves_no_thread(cpu_devices):
    before = threads()
    Decoder((8, 8), "host", cpu_devices[:1], num_threads=3).decode(FILES)
    gc.collect()
    deadline = time.monotonic() + 60
    while threads() - before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threads() <= before
