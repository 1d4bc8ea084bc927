"""The nvJPEG backend on a real GPU.

`python -m pytest tests/decode/image/test_nvjpeg.py`, and `-m slow` for the long ones.
"""

import gc
import io
import random
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from jaxaug import Loader, augment
from jaxaug._warn import warn_once
from jaxaug.decode import Decoder, Encoded, decode_image, read_headers
from jaxaug.decode.image.nvjpeg import canvas_buffers, image_slots, nvjpeg_backend
from jaxaug.decode.image.nvjpeg.batched_decoder import BatchedDecoder
from jaxaug.decode.image.nvjpeg.canvas_buffers import CanvasBuffer
from jaxaug.decode.native import cuda, libnvjpeg
from jaxaug.errors import DecodeError
from jaxaug.iterators import InMemory
from jaxaug.sharding import batch_sharding
from tests.decode import fields
from tests.decode.image.test_stored_headers import lying_headers
from tests.decode.samples import patch_sof
from tests.images import encode, jpegs, picture

pytestmark = pytest.mark.gpu
CANVAS = (128, 160)


@pytest.fixture
def gpu():
    return jax.devices("gpu")[:1]


@pytest.fixture
def engines(gpu):
    with Decoder(CANVAS, "nvjpeg", gpu, on_error="mask", deterministic=True) as decoder:
        yield decoder


@pytest.fixture
def balanced(gpu):
    with Decoder(CANVAS, "nvjpeg", gpu, on_error="mask") as decoder:
        yield decoder


def noisy(seed: int, height: int = 97, width: int = 131) -> np.ndarray:
    """Return a picture with edges and grain, which show the upsampling of chroma."""
    grain = np.random.default_rng(seed).normal(0, 12, (height, width, 1))
    return np.clip(picture(seed, height, width) + grain, 0, 255).astype(np.uint8)


def variants() -> dict[str, bytes]:
    """One image in every form of JPEG, and in two other formats."""
    pixels = noisy(3)
    made = {
        s: simplejpeg.encode_jpeg(pixels, 90, colorsubsampling=s)
        for s in ("444", "422", "420", "440", "411")
    }
    made["gray"] = encode(pixels[..., 0], quality=90)
    made["progressive"] = encode(pixels, quality=90, progressive=True)
    made["restart"] = encode(pixels, quality=90, restart_marker_blocks=5)
    made["cmyk"] = _saved(Image.fromarray(pixels).convert("CMYK"), "JPEG")
    made["rgb"] = encode(pixels, quality=90, keep_rgb=True)
    made["larger"] = encode(noisy(4, 300, 200), quality=90)
    made["one pixel"] = encode(noisy(5, 1, 1))
    made["exif"] = encode(
        pixels, exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0"
    )
    made["png"] = encode(pixels, "PNG")
    return made


def _saved(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def host_pixels(images: list[bytes], canvas: tuple[int, int] = CANVAS) -> np.ndarray:
    with Decoder(canvas, "host", jax.devices("cpu")[:1], on_error="mask") as decoder:
        return np.asarray(decoder.decode(images).pixels)


# The engines' chroma is interpolated as libjpeg-turbo's, up to one rounding; the host's share is
# libjpeg-turbo's own. nvJPEG 12 rounds more coarsely.
def most() -> int:
    """Return how many levels the engines may differ from libjpeg-turbo."""
    return 1 if libnvjpeg.version() >= "13" else 3


ON_ENGINES = ("444", "422", "420", "440", "gray", "restart", "larger", "exif")


@pytest.mark.parametrize("count", [2, 4, 8])
def test_the_shards_of_several_gpus_are_those_of_one(count):
    devices = jax.devices("gpu")
    if len(devices) < count:
        pytest.skip(f"needs {count} GPUs")
    source = InMemory([image for _ in range(8) for image in variants().values()])
    chain = [augment.RandomResizedCrop(64), augment.ColorJitter(0.4, 0.4, 0.4, 0.1)]

    def batches(devices, transform):
        split = batch_sharding(devices)
        with (
            Decoder(CANVAS, "nvjpeg", devices, deterministic=True) as decoder,
            Loader(source, 32, transform=transform, decode=decoder, sharding=split) as loader,
        ):
            return [jax.device_get(batch) for batch in loader.steps(5)]

    for transform in (None, augment.Compose(chain)):
        for one, many in zip(batches(devices[:1], transform), batches(devices[:count], transform)):
            jax.tree.map(np.testing.assert_array_equal, one, many)


def test_each_form_of_jpeg_goes_its_way_and_looks_the_same(engines):
    forms = variants()
    batch = engines.decode(list(forms.values()))
    stats = engines.stats
    assert batch.valid.all()
    assert (stats["engines"], stats["host"]) == (len(ON_ENGINES), len(forms) - len(ON_ENGINES))
    difference = np.abs(np.asarray(batch.pixels).astype(int) - host_pixels(list(forms.values())))
    for name, d in zip(forms, difference):
        if name != "larger":  # the host shrinks in two steps, the first by the DCT
            assert d.max() <= most() * (name in ON_ENGINES), name
        assert d.mean() < (1.0 if name == "larger" else 0.5), name


def test_a_batch_that_host_threads_share_agrees_too(gpu):
    canvas = (640, 800)  # large enough for the help of host threads
    images = [
        simplejpeg.encode_jpeg(noisy(i, *canvas), 90, colorsubsampling=("444", "420")[i % 2])
        for i in range(8)
    ]
    expected = host_pixels(images, canvas).astype(np.int16)

    with Decoder(canvas, "nvjpeg", gpu) as decoder:
        pixels = np.asarray(decoder.decode(images * 20).pixels)
        stats = decoder.stats

    assert stats["host"] > 0 and stats["engines"] > 0
    for start in range(0, len(pixels), len(images)):
        assert np.abs(pixels[start : start + len(images)] - expected).max() <= most()


def test_deterministic_bits_do_not_depend_on_the_batch(engines):
    images = [*variants().values(), *jpegs(50)]
    whole = np.asarray(engines.decode(images).pixels)
    np.testing.assert_array_equal(np.asarray(engines.decode(images).pixels), whole)
    for size in (1, 7, 32):
        parts = [
            np.asarray(engines.decode(images[i : i + size]).pixels)
            for i in range(0, len(images), size)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_what_is_outside_the_image_is_zero_even_in_a_used_buffer(engines):
    for _ in range(4):  # every buffer once with large images
        engines.decode([encode(np.full((*CANVAS, 3), 255, np.uint8))] * 8)
    batch = engines.decode([encode(np.full((20, 30, 3), 255, np.uint8))] * 4 + [b"broken"] * 4)
    pixels = np.asarray(batch.pixels)
    assert pixels[:4, :20, :30].min() > 250
    assert not pixels[:, 20:].any() and not pixels[:, :, 30:].any() and not pixels[4:].any()


def test_a_refused_batch_is_decoded_one_by_one(engines, monkeypatch):
    assign = nvjpeg_backend.assign_backends
    monkeypatch.setattr(
        nvjpeg_backend,
        "assign_backends",
        lambda h, s, b, c: np.where(h.coding == 2, 0, assign(h, s, b, c)),
    )
    images = [*jpegs(6), encode(noisy(9), quality=90, progressive=True)]
    batch = engines.decode(images)
    assert batch.valid.all() and engines.stats["engines"] == 6 and engines.stats["host"] == 1
    assert np.abs(np.asarray(batch.pixels).astype(int) - host_pixels(images)).max() <= most()


def test_an_image_that_the_engines_skip_is_noticed(engines, monkeypatch):
    decode = BatchedDecoder.decode

    def skip_third(self, encoded, sampling, pointers, pitches):
        kept = np.arange(len(pointers)) != 2
        return decode(self, encoded.take(kept), sampling[kept], pointers[kept], pitches[kept])

    images = jpegs(6)
    expected = np.asarray(engines.decode(images).pixels)
    monkeypatch.setattr(BatchedDecoder, "decode", skip_third)
    np.testing.assert_array_equal(np.asarray(engines.decode(images).pixels), expected)


def test_all_broken_none_and_too_large(engines):
    batch = engines.decode([b"no", b"", jpegs(1)[0][:200]])
    assert not batch.valid.any() and not np.asarray(batch.pixels).any()
    assert engines.decode([]).pixels.shape == (0, *CANVAS, 3)
    large = engines.decode([encode(noisy(0, 2000, 3000))])
    assert large.size.tolist() == [[107, 160]] and large.original_size.tolist() == [[2000, 3000]]


def test_raise_names_the_row(gpu):
    with Decoder(CANVAS, "nvjpeg", gpu) as decoder:
        with pytest.raises(DecodeError, match="record 1"):
            decoder.decode([jpegs(1)[0], b"text"])
        assert decoder.decode(jpegs(2)).valid.all()


# ---- lifetimes


@jax.jit
def slow_checksum(pixels, work):
    """Sums over `pixels` that are read only after a long computation."""
    for _ in range(
        24
    ):  # not a loop of XLA's: the host would take part in it, and the call not return at once
        work = jnp.tanh(work @ work)
    zero = jnp.isnan(work[0, 0]).astype(jnp.uint32)  # known only when the work is done
    weights = jnp.arange(1, 252, dtype=jnp.uint32) + zero
    flat = pixels.reshape(pixels.shape[0], -1).astype(jnp.uint32)
    flat = flat * jnp.resize(weights, flat.shape[1])[None]
    return flat.sum(axis=1), work[0, 0]  # the work must be needed, or XLA leaves it out


def stress(monkeypatch, gpu, rounds: int = 8, **form) -> int:
    """Return how many batches were read wrong while later ones were decoded into one buffer."""
    monkeypatch.setattr(canvas_buffers, "MAX_BUFFERS", 1)
    batches = [
        Encoded.from_bytes([encode(noisy(100 * b + i), **form) for i in range(32)])
        for b in range(4)
    ]
    work = jnp.full((8192, 8192), 1e-3, jnp.bfloat16)  # some 30 ms on an H200
    nothing = jnp.zeros((8, 8), jnp.bfloat16)
    with Decoder(CANVAS, "nvjpeg", gpu, deterministic=True) as decoder:
        expected = [
            np.asarray(slow_checksum(decoder.decode(batch).pixels, nothing)[0]) for batch in batches
        ]
        jax.block_until_ready(slow_checksum(decoder.decode(batches[0]).pixels, work))
        sums = []
        for number in range(rounds):
            decoded = decoder.decode_rows(batches[number % 4])
            checksum, done = slow_checksum(decoded.arrays["pixels"][0], work)
            decoded.release(done)
            sums.append(checksum)
        return sum(not np.array_equal(np.asarray(s), expected[n % 4]) for n, s in enumerate(sums))


def test_buffers_are_not_written_while_they_are_read(monkeypatch, gpu):
    assert stress(monkeypatch, gpu) == 0


def test_the_stress_test_fails_without_the_wait(monkeypatch, gpu):
    monkeypatch.setattr(CanvasBuffer, "_wait_for_readers", lambda self: None)
    assert stress(monkeypatch, gpu) > 0


def test_the_stress_test_fails_when_the_wait_is_an_event_of_the_device(monkeypatch, gpu):
    def prepare(self, rows):
        if rows > self._rows:
            self._resize(rows)
            cuda.call("cudaMemset", self._pointer, 0, rows * self._row_bytes)
        for array in jax.tree.leaves(self.readers):
            array.__dlpack__(
                stream=self._stream
            )  # makes the stream wait for the array on the device
        return np.arange(rows, dtype=np.uint64) * np.uint64(self._row_bytes) + np.uint64(
            self._pointer
        )

    def on_its_stream(self, sampling):
        return state_of(self, sampling)._replace(stream=made[0]._stream)

    monkeypatch.setattr(CanvasBuffer, "prepare", prepare)
    monkeypatch.setattr(
        CanvasBuffer, "take_unwritten_rows", lambda self, rows, kept: np.zeros(0, np.int64)
    )
    state_of = BatchedDecoder._take_state
    made = []
    create = CanvasBuffer.__init__
    monkeypatch.setattr(BatchedDecoder, "_take_state", on_its_stream)
    monkeypatch.setattr(
        CanvasBuffer, "__init__", lambda self, *args: (create(self, *args), made.append(self))[0]
    )
    assert stress(monkeypatch, gpu) > 0


def free_memory() -> int:
    return int(cuda.runtime().cudaMemGetInfo()[1])


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_opened_and_closed_decoders_leave_nothing(gpu, count):
    import psutil

    def once():
        with Decoder(CANVAS, "nvjpeg", gpu, num_threads=3) as decoder:
            jax.block_until_ready(decoder.decode(list(variants().values())).pixels)

    for _ in range(5):
        once()
    gc.collect()
    device = free_memory()
    host = psutil.Process().memory_info().rss
    threads = threading.active_count()
    for _ in range(count):
        once()
    gc.collect()
    print(
        "device and host bytes lost:",
        device - free_memory(),
        psutil.Process().memory_info().rss - host,
    )
    assert threading.active_count() == threads
    assert device - free_memory() < 64 * 2**20
    assert psutil.Process().memory_info().rss - host < 128 * 2**20


@pytest.mark.slow
def test_ten_thousand_batches_leave_memory_flat(balanced):
    import psutil

    batch = Encoded.from_bytes((list(variants().values()) * 3)[:32])
    readings = []
    for number in range(10_000):
        jax.block_until_ready(balanced.decode(batch).pixels)
        if number in (999, 9_999):
            gc.collect()
            readings.append((free_memory(), psutil.Process().memory_info().rss))
    print("free device memory and resident memory after 1,000 and 10,000 batches:", readings)
    assert readings[0][0] - readings[1][0] < 32 * 2**20
    assert readings[1][1] - readings[0][1] < 64 * 2**20


# ---- robustness


def mutate(rng: np.random.Generator, data: bytes) -> bytes:
    """One of the damages that files suffer."""
    image = bytearray(data)
    kind = rng.integers(6)
    if kind == 0:  # bits
        for position in rng.integers(0, len(image), rng.integers(1, 20)):
            image[position] ^= 1 << rng.integers(8)
    elif kind == 1:  # tail
        del image[rng.integers(1, len(image)) :]
    elif kind == 2:  # markers
        markers = [
            i for i in range(len(image) - 1) if image[i] == 0xFF and image[i + 1] not in (0, 0xFF)
        ]
        a, b = rng.choice(markers, 2)
        image[a + 1], image[b + 1] = image[b + 1], image[a + 1]
    elif kind == 3:  # a segment's length
        markers = [
            i for i in range(min(len(image) - 3, 700)) if image[i] == 0xFF and image[i + 1] >= 0xC0
        ]
        image[rng.choice(markers) + 3] ^= int(rng.integers(1, 256))
    elif kind == 4:  # size in the header
        frame = next(
            i for i in range(len(image)) if image[i] == 0xFF and image[i + 1] in (0xC0, 0xC1, 0xC2)
        )
        image[frame + 5 + rng.integers(4)] = int(rng.integers(256))
    else:  # header bits
        for position in rng.integers(2, 620, rng.integers(1, 4)):
            image[position] ^= 1 << rng.integers(8)
    return bytes(image)


def mutated(rng: np.random.Generator) -> bytes:
    forms = [v for k, v in variants().items() if k not in ("png", "cmyk", "one pixel")]
    return mutate(rng, forms[rng.integers(len(forms))])


def with_changed_fields(rng: np.random.Generator) -> bytes:
    forms = [v for k, v in variants().items() if k != "png"]
    return fields.change(forms[rng.integers(len(forms))], random.Random(int(rng.integers(2**32))))


def fuzz(
    gpu, count: int, damaged=mutated, batch_size: int = 64, guard_rows: int = 220
) -> dict[str, int]:
    """Damaged images between good ones, through both backends: verdicts, neighbors and guard bytes
    are checked.

    The guard behind the canvases is larger than the largest image that `max_pixels` allows.
    """
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print("seed", seed)
    rng = np.random.default_rng(seed)
    good = jpegs(8)
    good_pixels = host_pixels(good)
    outcomes = {"images": 0, "errors": 0, "differences": 0}
    with (
        Decoder(
            CANVAS, "nvjpeg", gpu, on_error="mask", deterministic=True, max_pixels=2**22
        ) as ours,
        Decoder(CANVAS, "host", jax.devices("cpu")[:1], on_error="mask", max_pixels=2**22) as host,
    ):
        ours._backend._gpus[0].buffers._max_count = 1
        ours.decode(good[:1] * (batch_size + guard_rows))
        (buffer,) = ours._backend._gpus[0].buffers._buffers
        row_bytes = CANVAS[0] * CANVAS[1] * 3
        guard = np.empty(guard_rows * row_bytes, np.uint8)
        assert guard.size > 3 * ours.max_pixels
        guarded = buffer._pointer + batch_size * row_bytes
        for _ in range(-(-count // (batch_size - 8))):
            images = [damaged(rng) for _ in range(batch_size - 8)]
            images = [*images[: batch_size // 2], *good, *images[batch_size // 2 :]]
            cuda.call("cudaMemset", guarded, 0xA5, guard.size)
            cuda.call("cudaDeviceSynchronize")
            a, b = ours.decode(images), host.decode(images)
            np.testing.assert_array_equal(a.valid, b.valid)
            np.testing.assert_array_equal(a.size, b.size)
            pixels = np.asarray(a.pixels)
            at = batch_size // 2
            assert np.abs(pixels[at : at + 8].astype(int) - good_pixels).max() <= most()
            for row, (height, width) in enumerate(a.size.tolist()):
                assert not pixels[row, height:].any() and not pixels[row, :, width:].any()
            assert not pixels[~a.valid].any()
            kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyDeviceToHost
            cuda.call("cudaMemcpy", guard.ctypes.data, guarded, guard.size, kind)
            assert (guard == 0xA5).all()
            difference = np.abs(pixels.astype(int) - np.asarray(b.pixels)).max(axis=(1, 2, 3))
            outcomes["images"] += int(a.valid.sum()) - 8
            outcomes["errors"] += int((~a.valid).sum())
            outcomes["differences"] += int((difference > 4).sum())
    return outcomes


def test_damaged_images_get_the_same_verdict_from_both_backends(gpu):
    print(fuzz(gpu, 600))


def test_changed_header_fields_get_the_same_verdict_from_both_backends(gpu):
    print(fuzz(gpu, 600, with_changed_fields))


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [mutated, with_changed_fields])
def test_ten_thousand_damaged_images(gpu, damaged):
    print(fuzz(gpu, 10_000, damaged))


# ---- indexes that lie


def test_indexes_that_lie_move_no_byte_out_of_its_slot(gpu, monkeypatch):
    """nvJPEG writes by the file's own frame: neither the memory behind the canvases nor that behind
    the slots changes, and the pixels are those of the files.
    """
    images = [*jpegs(20), *whole_images()[:40], *jpegs(20, *CANVAS)]
    encoded = Encoded.from_bytes(images)
    guard = np.empty(2**24, np.uint8)
    monkeypatch.setattr(image_slots, "MIN_REGION", 2**29)  # the guard lies behind all slots
    with Decoder(CANVAS, "nvjpeg", gpu, deterministic=True) as decoder:
        (one,) = decoder._backend._gpus
        one.buffers._max_count = 1
        decoder.decode(images + jpegs(1) * 300)
        expected = decoder.decode_rows(encoded)
        pixels = np.asarray(expected.arrays["pixels"][0])
        expected.release(())
        (buffer,) = one.buffers._buffers
        ends = [buffer._pointer + len(images) * CANVAS[0] * CANVAS[1] * 3]
        for region in one._regions._regions:
            if region._pointer:
                ends.append(region._pointer + region.bytes_held - guard.size)
        for seed in range(20):
            for end in ends:
                cuda.call("cudaMemset", end, 0xA5, guard.size)
            cuda.call("cudaDeviceSynchronize")
            decoded = decoder.decode_rows(
                encoded, decoder.check_rows(encoded, lying_headers(encoded, seed))[0]
            )
            np.testing.assert_array_equal(np.asarray(decoded.arrays["pixels"][0]), pixels)
            decoded.release(())
            for end in ends:
                kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyDeviceToHost
                cuda.call("cudaMemcpy", guard.ctypes.data, end, guard.size, kind)
                assert (guard == 0xA5).all()


# ---- a sweep of valid files


def sweep() -> dict[str, bytes]:
    """Valid JPEGs: gray factors, sizes, restart intervals, samplings, qualities, 16-bit tables."""
    made: dict[str, bytes] = {}
    gray = encode(noisy(1)[..., 0], quality=90)
    for factors in (h << 4 | v for h in range(1, 5) for v in range(1, 5)):
        made[f"gray {factors:x}"] = patch_sof(gray, 11, bytes([factors]))
    sizes = [
        *((side, side) for side in range(1, 41)),
        (512, 1),
        (1, 512),
        (16, 500),
        (3, 2),
        (15, 17),
        (17, 15),
    ]
    for height, width in sizes:
        pixels = noisy(height + width, height, width)
        made[f"gray {height}x{width}"] = encode(pixels[..., 0], quality=90)
        for name in ("444", "422", "420", "440", "411"):
            made[f"{name} {height}x{width}"] = simplejpeg.encode_jpeg(
                pixels, 90, colorsubsampling=name
            )
    for interval in (1, 2, 3, 7, 8, 9, 63, 1000):
        for subsampling in (0, 1, 2):
            options = {"subsampling": subsampling, "restart_marker_blocks": interval}
            made[f"restart {interval} {subsampling}"] = encode(noisy(7), quality=90, **options)
    for rows in (1, 2):
        made[f"restart {rows} rows"] = encode(noisy(8), quality=90, restart_marker_rows=rows)
    for quality in range(1, 101):
        name = ("444", "422", "420", "440")[quality % 4]
        made[f"quality {quality}"] = simplejpeg.encode_jpeg(
            noisy(quality), quality, colorsubsampling=name
        )
    for name in ("444", "422", "420", "440"):
        plain = simplejpeg.encode_jpeg(noisy(9), 90, colorsubsampling=name)
        for coding in (0xC0, 0xC1):
            made[f"16-bit tables {name} {coding:x}"] = with_wide_tables(plain, coding)
    return made


def with_wide_tables(file: bytes, coding: int) -> bytes:
    """The file with quantization tables of 16 bits; it becomes an extended one with coding 0xC1."""
    segments = []
    for segment in fields.parse(file):
        if segment.marker == fields.DQT:
            tables = np.frombuffer(segment.payload, np.uint8).reshape(-1, 65)
            wide = [
                bytes([0x10 | table[0]]) + table[1:].astype(">u2").tobytes() for table in tables
            ]
            segment = segment._replace(payload=b"".join(wide))
        if segment.marker == fields.SOF:
            segment = segment._replace(marker=coding)
        segments.append(segment)
    return fields.write(segments)


def test_valid_files_of_every_kind_look_as_from_the_host(gpu):
    files = sweep()
    canvas = (512, 512)
    names = list(files)
    images = list(files.values())
    worst = {}
    with (
        Decoder(canvas, "nvjpeg", gpu, deterministic=True) as ours,
        Decoder(canvas, "host", jax.devices("cpu")[:1]) as host,
    ):
        for first in range(0, len(images), 64):
            part = slice(first, first + 64)
            a, b = ours.decode(images[part]), host.decode(images[part])
            np.testing.assert_array_equal(a.size, b.size)
            difference = np.abs(np.asarray(a.pixels).astype(int) - np.asarray(b.pixels)).max(
                axis=(1, 2, 3)
            )
            worst |= dict(zip(names[part], difference.tolist()))
        print(ours.stats, "worst", max(worst.values()))
        assert ours.stats["engines"] > len(images) // 3 and ours.stats["refused"] == 0
    assert {name: levels for name, levels in worst.items() if levels > 3} == {}


# ---- larger than the canvas, or turned


def with_orientation(data: bytes, orientation: int) -> bytes:
    """A JPEG with an EXIF orientation put in, its image data untouched."""
    tags = Image.Exif()
    tags[0x0112] = orientation
    payload = tags.tobytes()
    segment = b"\xff\xe1" + (len(payload) + 2).to_bytes(2, "big") + payload
    return data[:2] + segment + data[2:]


WHOLE_SIZES = [
    (97, 131),
    (40, 60),
    (129, 17),
    (300, 200),
    (161, 161),
    (1000, 733),
    (64, 1500),
    (2000, 3000),
]


def whole_images() -> list[bytes]:
    return [
        with_orientation(
            simplejpeg.encode_jpeg(
                noisy(n, *size), 90, colorsubsampling=("444", "422", "420", "440")[n % 4]
            ),
            orientation,
        )
        for n, size in enumerate(WHOLE_SIZES)
        for orientation in range(1, 9)
    ]


def resampled(
    image: bytes, size: tuple[int, int], orientation: int, colors: str = "RGB"
) -> np.ndarray:
    """The image decoded whole, shrunk and turned by Pillow."""
    stored = size[::-1] if orientation >= 5 else size
    pixels = simplejpeg.decode_jpeg(image, colors)
    if colors == "GRAY":
        pixels = pixels[..., 0]
    shrunk = Image.fromarray(pixels).resize(stored[::-1], Image.Resampling.BILINEAR)
    methods = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # of PIL.Image.Transpose
    if orientation > 1:
        shrunk = shrunk.transpose(Image.Transpose(methods[orientation]))
    return np.asarray(shrunk)


@pytest.mark.parametrize("canvas", [CANVAS, (64, 64), (500, 300)])
def test_larger_and_turned_images_are_resampled_as_pillow_does(gpu, canvas):
    images = whole_images()
    with Decoder(canvas, "nvjpeg", gpu, deterministic=True) as decoder:
        for _ in range(2):  # memory that was used before
            batch = decoder.decode(images)
            pixels = np.asarray(batch.pixels)
            worst = 0
            mean = 0.0
            for row, (image, size) in enumerate(zip(images, batch.size.tolist())):
                height, width = size
                expected = resampled(image, (height, width), row % 8 + 1)
                difference = np.abs(pixels[row, :height, :width].astype(int) - expected)
                # turned alone, it shows nvJPEG's own rounding, that of version 12 in full
                assert difference.mean() < (0.5 if most() == 1 else 1), (
                    WHOLE_SIZES[row // 8],
                    row % 8 + 1,
                )
                assert not pixels[row, height:].any() and not pixels[row, :, width:].any()
                worst = max(worst, int(difference.max()))
                mean = max(mean, float(difference.mean()))
            print(canvas, decoder.stats, "worst", worst, "largest mean", mean)
            assert worst <= 1 + most()
        assert decoder.stats["host"] == decoder.stats["refused"] == 0


def test_slots_are_filled_again_and_again(gpu, monkeypatch):
    """Regions of two or three images: every image lies on its own canvas, whatever lay in the slot
    before.
    """
    monkeypatch.setattr(nvjpeg_backend, "_MAX_REGION", 20 * 2**20)
    images = [simplejpeg.encode_jpeg(noisy(n, 500 + 40 * n, 900 - 30 * n), 90) for n in range(12)]
    with Decoder(CANVAS, "nvjpeg", gpu, deterministic=True) as decoder:
        expected = np.asarray(decoder.decode(images).pixels)
        with ThreadPoolExecutor(4) as pool:
            orders = [np.random.default_rng(seed).permutation(12) for seed in range(40)]
            results = pool.map(
                lambda order: np.asarray(decoder.decode([images[i] for i in order]).pixels), orders
            )
            for order, pixels in zip(orders, results):
                np.testing.assert_array_equal(pixels, expected[order])
        assert decoder.stats["host"] == 0


@pytest.mark.parametrize("output", ["rgb", "gray"])
@pytest.mark.parametrize("canvas", [CANVAS, (64, 64), (500, 300)])
def test_host_threads_shrink_and_turn_as_the_host_does(gpu, canvas, output):
    """Progressive images, which the engines do not decode; the kernel shrinks and turns them."""
    images = [
        with_orientation(
            encode(noisy(n, *size), quality=90, progressive=True, subsampling=n % 3), orientation
        )
        for n, size in enumerate(WHOLE_SIZES)
        for orientation in range(1, 9)
    ]
    cpu = jax.devices("cpu")[:1]
    with Decoder(canvas, "nvjpeg", gpu, channels=output) as decoder:
        held = decoder.stats["device_bytes"]
        for _ in range(2):  # memory that was used before
            found = decoder.decode(images)
            with Decoder(canvas, "host", cpu, channels=output) as host:
                expected = host.decode(images)
            np.testing.assert_array_equal(found.size, expected.size)
            difference = np.asarray(found.pixels).astype(int) - np.asarray(expected.pixels)
            assert np.abs(difference).max() <= 1
        assert decoder.stats["host"] == 2 * len(images)
        assert decoder.stats["device_bytes"] > held


def test_a_card_of_24_gb_keeps_to_a_tenth_of_it(gpu, monkeypatch):
    call = cuda.call

    def small(name, *given):
        return (2**34, 24 * 2**30) if name == "cudaMemGetInfo" else call(name, *given)

    monkeypatch.setattr(cuda, "call", small)
    images = [simplejpeg.encode_jpeg(noisy(n, 700 + n, 900), 90) for n in range(4)] * 64
    with Decoder((640, 832), "nvjpeg", gpu, deterministic=True) as decoder:
        free = call("cudaMemGetInfo")[0]
        with ThreadPoolExecutor(6) as pool:
            list(
                pool.map(lambda _: jax.block_until_ready(decoder.decode(images).pixels), range(12))
            )
        held = decoder.stats["device_bytes"]
        assert held <= 24 * 2**30 // 10 and decoder.stats["host"] == 0, (held, decoder.stats)
        print("held", held, "less free", free - call("cudaMemGetInfo")[0])


# ---- gray canvases


def gray_host_pixels(images: list[bytes], canvas: tuple[int, int]) -> np.ndarray:
    cpu = jax.devices("cpu")[:1]
    with Decoder(canvas, "host", cpu, on_error="mask", channels="gray") as decoder:
        return np.asarray(decoder.decode(images).pixels)


def test_the_engines_y_is_libjpeg_turbos(gpu):
    """All forms, then sizes, samplings and qualities: no color is converted, so one rounding."""
    forms = variants()
    del forms["larger"]
    images = [*forms.values(), *sweep().values()]
    canvas = (512, 512)
    worst = 0
    with Decoder(canvas, "nvjpeg", gpu, deterministic=True, channels="gray") as decoder:
        for first in range(0, len(images), 64):
            part = images[first : first + 64]
            batch = decoder.decode(part)
            pixels = np.asarray(batch.pixels)
            assert pixels.shape == (len(part), *canvas, 1) and batch.valid.all()
            difference = np.abs(pixels.astype(int) - gray_host_pixels(part, canvas))
            worst = max(worst, int(difference.max()))
        stats = decoder.stats
    print(stats, "worst", worst)
    assert worst <= most() and stats["refused"] == 0 and stats["engines"] > len(images) // 3


@pytest.mark.parametrize("canvas", [CANVAS, (64, 64), (500, 300)])
def test_larger_and_turned_gray_images_are_resampled_as_pillow_does(gpu, canvas):
    images = whole_images()
    worst = 0
    with Decoder(canvas, "nvjpeg", gpu, deterministic=True, channels="gray") as decoder:
        for _ in range(2):
            batch = decoder.decode(images)
            pixels = np.asarray(batch.pixels)
            for row, (image, size) in enumerate(zip(images, batch.size.tolist())):
                height, width = size
                expected = resampled(image, (height, width), row % 8 + 1, "GRAY")
                found = pixels[row, :height, :width, 0].astype(int)
                worst = max(worst, int(np.abs(found - expected).max()))
                assert not pixels[row, height:].any() and not pixels[row, :, width:].any()
        print(canvas, decoder.stats, "worst", worst)
        assert decoder.stats["refused"] == 0 and worst <= 1 + most()


def test_narrow_and_bad_images_leave_nothing_on_gray_canvases(gpu):
    sizes = [(1, 1), (9, 1), (9, 2), (9, 3), (1, 3), (300, 2), (1000, 9)]
    images = [encode(noisy(n, *size)[..., 0]) for n, size in enumerate(sizes)]
    images = [*images, b"no image", encode(noisy(9), "PNG")[:300]]
    with Decoder((64, 64), "nvjpeg", gpu, on_error="mask", channels="gray") as decoder:
        for _ in range(3):
            decoder.decode([encode(np.full((64, 64), 255, np.uint8))] * len(images))
            batch = decoder.decode(images)
            pixels = np.asarray(batch.pixels)
            assert batch.valid.tolist() == [True] * len(sizes) + [False] * 2
            assert np.abs(pixels[:4].astype(int) - gray_host_pixels(images[:4], (64, 64))).max() < 4
            for row, (height, width) in enumerate(batch.size.tolist()):
                assert not pixels[row, height:].any() and not pixels[row, :, width:].any()
            assert not pixels[-2:].any()


# ---- without the library


def test_auto_falls_back_to_the_host_and_says_so_once(gpu, choose_nvjpeg, tmp_path):
    choose_nvjpeg(str(tmp_path / "missing.so"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with Decoder(CANVAS, devices=gpu) as decoder:
                assert decoder.backend == "host" and decoder.decode(jpegs(2)).valid.all()
    assert len([w for w in caught if "jaxaug decodes on the host" in str(w.message)]) == 1
    with pytest.raises(ImportError, match=r"missing\.so.*\n.*pip install.*cuda13"):
        Decoder(CANVAS, "nvjpeg", gpu)


def test_memory_that_does_not_suffice_is_explained(gpu):
    with Decoder((2**14, 2**14), "nvjpeg", gpu) as decoder:
        with pytest.raises(MemoryError, match="XLA_CLIENT_MEM_FRACTION"):
            decoder.decode(Encoded.from_bytes(jpegs(1) * 256))
        assert decoder.decode(jpegs(1)).valid.all()


def test_gpus_without_engines_use_their_multiprocessors(gpu, monkeypatch):
    create = libnvjpeg.create_handle

    def no_engines(backend):
        if backend == libnvjpeg.HARDWARE:
            raise libnvjpeg.NvjpegError("nvjpegCreateEx", 7)
        return create(backend)

    monkeypatch.setattr(libnvjpeg, "create_handle", no_engines)
    images = [*jpegs(60), *variants().values()]
    with Decoder(CANVAS, "nvjpeg", gpu) as decoder:
        batch = decoder.decode(images)
    assert batch.valid.all()
    assert (
        np.abs(np.asarray(batch.pixels).astype(int) - host_pixels(images))
        .mean(axis=(1, 2, 3))
        .max()
        < 1
    )


def test_deterministic_pixels_without_engines_do_not_depend_on_the_batch(gpu, monkeypatch):
    """The other decoder's would (2 levels between 64 and 128 images), so that the host decodes."""
    create = libnvjpeg.create_handle

    def no_engines(backend):
        if backend == libnvjpeg.HARDWARE:
            raise libnvjpeg.NvjpegError("nvjpegCreateEx", 7)
        return create(backend)

    monkeypatch.setattr(libnvjpeg, "create_handle", no_engines)
    with pytest.raises(ImportError, match=r"no JPEG engines.*'auto' or 'host'"):
        Decoder(CANVAS, "nvjpeg", gpu, deterministic=True)
    warn_once.cache_clear()
    images = [encode(noisy(seed), quality=90, subsampling=seed % 3) for seed in range(128)]
    with pytest.warns(RuntimeWarning, match="jaxaug decodes on the host.*no JPEG engines"):
        decoder = Decoder(CANVAS, "auto", gpu, deterministic=True)
    with decoder:
        assert decoder.backend == "host"
        whole = np.asarray(decoder.decode(images).pixels)
        for size in (1, 16, 32, 64):
            parts = [
                np.asarray(decoder.decode(images[i : i + size]).pixels) for i in range(0, 128, size)
            ]
            np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_callers_device_stays_current(gpu):
    """As far as jaxaug makes calls: an operation of JAX makes its device the current one."""
    device = jax.devices("gpu")[-1]
    ones = jax.device_put(np.ones(3), device)
    cuda.set_device(0)
    jax.block_until_ready(ones + ones)
    after_jax = int(cuda.call("cudaGetDevice"))
    cuda.set_device(0)
    with Decoder(CANVAS, "nvjpeg", [device]) as decoder:
        decoder.decode(jpegs(4))
        assert int(cuda.call("cudaGetDevice")) in (0, after_jax)
        cuda.set_device(0)
    assert int(cuda.call("cudaGetDevice")) == 0


@pytest.mark.parametrize("kind", [jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit])
def test_a_decoder_works_inside_of_a_mesh(gpu, kind):
    with jax.set_mesh(jax.make_mesh((1,), ("x",), axis_types=(kind,), devices=gpu)):
        with Decoder(CANVAS, "nvjpeg", gpu) as decoder:
            assert decoder.decode(jpegs(40)).valid.all()


def test_close_waits_for_the_engines(gpu):
    images = jpegs(8) * 64
    expected = host_pixels(images)
    for _ in range(20):
        decoder = Decoder(CANVAS, "nvjpeg", gpu)
        with ThreadPoolExecutor(1) as caller:
            running = caller.submit(decoder.decode, images)
            time.sleep(0.01)
            decoder.close()
            try:
                pixels = np.asarray(running.result().pixels)
            except ValueError as error:  # it came after `close`
                assert "closed" in str(error)
            else:
                assert np.abs(pixels.astype(int) - expected).max() <= most()


def test_real_headers_are_read_alike(engines):
    headers = read_headers(Encoded.from_bytes(list(variants().values())))
    assert [decode_image(image).shape[:2] for image in variants().values()] == [
        tuple(size) for size in headers.original_size().tolist()
    ]
