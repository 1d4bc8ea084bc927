import contextlib
import gc
import json
import re
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug import Decoder, Loader, augment
from jaxaug.decode import decode_image
from jaxaug.errors import DecodeError, SourceError, StateError
from jaxaug.iterators import (
    FromIterable,
    ImageFolder,
    InMemory,
    Sequential,
    Shuffled,
    Weighted,
    _builder,
    _plan,
)
from jaxaug.iterators._sampler import sampler_name
from jaxaug.sharding import batch_sharding
from tests.images import encode, jpegs, picture

N = 24


def jitter(key, sample):
    """A stand-in transform: per-sample noise and a fixed output size, so that `size` leaves."""
    image = sample["image"][:32, :48].astype(jnp.float32) / jnp.float32(255)
    noise = jax.random.uniform(key, (), jnp.float32)
    return {"image": image * noise, "label": sample["label"]}


@pytest.fixture(scope="module")
def images():
    return jpegs(N)


@pytest.fixture(scope="module")
def source(images):
    return InMemory(images, {"label": np.arange(N)})


def one_device():
    return batch_sharding(jax.devices("cpu")[:1])


def by_index(loader, batches):
    """{(epoch, index): image bytes} of the next `batches` batches."""
    seen = {}
    for _ in range(batches):
        batch = {name: np.asarray(array) for name, array in next(loader).items()}
        for row in np.flatnonzero(batch["valid"]):
            seen[int(batch["index"][row])] = batch["image"][row].tobytes()
    return seen


def threads():
    return [t for t in threading.enumerate() if t.name.startswith("jaxaug")]


def no_threads_soon():
    """A Loader that is collected tells its threads to end, without waiting for them."""
    deadline = time.monotonic() + 20
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == []


def test_a_batch_holds_the_decoded_records(source, images):
    with Loader(source, 4, shuffle=False, sharding=one_device(), seed=3) as loader:
        batch = next(loader)
    assert batch["index"].tolist() == batch["label"].tolist() == [0, 1, 2, 3]
    assert batch["image"].shape == (4, 40, 56, 3) and batch["image"].dtype == jnp.uint8
    assert batch["size"].tolist() == [[40, 56]] * 4 and batch["valid"].all()
    for row in range(4):
        np.testing.assert_array_equal(batch["image"][row], decode_image(images[row]))


def test_element_spec_is_what_comes(source):
    with Loader(source, 8, transform=jitter) as loader:
        spec = loader.element_spec
        batch = next(loader)
    assert {k: (v.shape, v.dtype, v.sharding) for k, v in spec.items()} == {
        k: (v.shape, v.dtype, v.sharding) for k, v in batch.items()
    }


def mesh(shape, names, kind):
    count = int(np.prod(shape))
    return jax.make_mesh(
        shape, names, axis_types=(kind,) * len(names), devices=jax.devices("cpu")[:count]
    )


LAYOUTS = {
    "batch 6, one device": (6, one_device),
    "batch 12, one device": (12, one_device),
    "batch 24, 8 devices": (24, lambda: batch_sharding(jax.devices("cpu"))),
    "Auto": (8, lambda: NamedSharding(mesh((4,), ("data",), AxisType.Auto), P("data"))),
    "Explicit": (8, lambda: NamedSharding(mesh((4,), ("data",), AxisType.Explicit), P("data"))),
    "replicated axis": (
        8,
        lambda: NamedSharding(mesh((4, 2), ("data", "model"), AxisType.Auto), P("data")),
    ),
    "two axes": (
        24,
        lambda: NamedSharding(mesh((2, 4), ("a", "b"), AxisType.Explicit), P(("a", "b"))),
    ),
    "reversed axes": (
        24,
        lambda: NamedSharding(mesh((2, 4), ("a", "b"), AxisType.Auto), P(("b", "a"))),
    ),
}


@pytest.fixture(scope="module")
def reference(source):
    with Loader(source, 4, transform=jitter, sharding=one_device(), seed=1) as loader:
        return by_index(loader, N // 4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_bits(name, source, reference):
    batch_size, make = LAYOUTS[name]
    sharding = make()
    with Loader(source, batch_size, transform=jitter, sharding=sharding, seed=1) as loader:
        batch = next(loader)
        assert batch["image"].sharding == sharding
        for shard in batch["image"].addressable_shards:  # replicas hold the same rows
            np.testing.assert_array_equal(shard.data, np.asarray(batch["image"])[shard.index])
        loader.set_state(loader.get_state() | {"epoch": 0, "position": 0})
        assert by_index(loader, N // batch_size) == reference


@pytest.mark.parametrize("batch_size, resumed", [(6, 6), (6, 4), (4, 10)])
def test_resume_after_every_step_gives_exactly_the_rest(source, reference, batch_size, resumed):
    options = {
        "transform": jitter,
        "sharding": one_device(),
        "seed": 1,
        "last_batch": "pad",
        "epochs": 1,
    }
    with (
        Loader(source, batch_size, **options) as loader,
        Loader(source, resumed, **options) as other,
    ):
        delivered: dict = {}
        for _ in range(len(loader) - 1):
            delivered |= by_index(loader, 1)
            other.set_state(json.loads(json.dumps(loader.get_state())))
            rest: dict = {}
            for batch in other:
                rest |= {
                    int(i): np.asarray(batch["image"][r]).tobytes()
                    for r, i in enumerate(batch["index"])
                    if i >= 0
                }
            assert delivered.keys().isdisjoint(rest)
            assert delivered | rest == reference


def test_epochs_differ_and_end(source):
    with Loader(source, 4, sharding=one_device(), epochs=2) as loader:
        orders = [[int(i) for batch in loader for i in batch["index"]] for _ in range(2)]
        assert sorted(orders[0]) == sorted(orders[1]) == list(range(N)) and orders[0] != orders[1]
        with pytest.warns(UserWarning, match=r"epochs=2 are used up"):
            assert list(loader) == []
        with pytest.raises(StopIteration):
            next(loader)
        assert loader.get_state()["epoch"] == 2


def test_pad_fills_the_tail_with_marked_rows(source):
    with Loader(
        source, 10, shuffle=False, transform=jitter, last_batch="pad", sharding=one_device()
    ) as loader:
        assert len(loader) == 3
        last = list(loader)[-1]
    assert last["index"].tolist() == [20, 21, 22, 23] + [-1] * 6
    assert last["valid"].tolist() == [True] * 4 + [False] * 6
    assert not np.asarray(last["image"][4:]).any() and last["label"].tolist()[4:] == [-1] * 6


def test_padding_rows_without_transform_have_the_size_of_the_canvas(source):
    with Loader(source, 16, shuffle=False, last_batch="pad", sharding=one_device()) as loader:
        last = list(loader)[-1]
    assert last["size"][-1].tolist() == [40, 56]


def test_with_replacement_the_position_is_part_of_the_key(source):
    sampler = Weighted(np.eye(N)[5], num_samples=8)  # record 5 alone, eight times
    with Loader(source, 8, shuffle=sampler, transform=jitter, sharding=one_device()) as loader:
        batch = next(loader)
    assert batch["index"].tolist() == [5] * 8
    assert len({np.asarray(image).tobytes() for image in batch["image"]}) == 8


def test_batch_transform_mixes_consecutive_samples(source):
    def swap(key, group):
        return {"image": group["image"][::-1], "label": group["label"][::-1]}

    with Loader(
        source,
        8,
        shuffle=False,
        batch_transform=swap,
        sharding=batch_sharding(jax.devices("cpu")[:2]),
    ) as loader:
        assert next(loader)["label"].tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
    with pytest.raises(ValueError, match="multiple of 2 rows"):
        Loader(source, 8, batch_transform=swap, sharding=batch_sharding(jax.devices("cpu")))


def test_boxes_follow_exif_and_shrinking():
    boxes = np.array([[[10.0, 4.0, 30.0, 12.0]]])
    image = encode(
        picture(0, 40, 80),
        exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0",
    )
    source = InMemory([image], {"boxes": boxes})
    with Decoder((40, 40), devices=jax.devices("cpu")[:1]) as decoder:
        with Loader(source, 1, decoder=decoder, sharding=one_device()) as loader:
            batch = next(loader)
    assert batch["size"].tolist() == [[40, 20]]  # 80 x 40 stands upright as 40 x 80, shrunk by 2
    np.testing.assert_allclose(batch["boxes"][0, 0], [(40 - 12) / 2, 10 / 2, (40 - 4) / 2, 30 / 2])


@pytest.mark.parametrize(
    "name, shape, k",
    [
        ("boxes", (12,), 3),  # as TFRecord has them
        ("boxes", (3, 4), 3),
        ("boxes", (4,), 1),
        ("boxes", (0, 4), 0),
        ("keypoints", (6,), 3),
        ("keypoints", (3, 2), 3),
        ("keypoints", (2,), 1),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_element_spec_of_boxes_and_keypoints_is_what_comes(name, shape, k, dtype):
    numbers = np.random.default_rng(0).integers(0, 40, (4, k, 2)).astype(dtype)
    if name == "boxes":
        numbers = np.concatenate([numbers, numbers + 1], axis=-1)
    source = InMemory(jpegs(4), {name: numbers.reshape(4, *shape)})
    with Loader(source, 4, shuffle=False, sharding=one_device()) as loader:
        spec = loader.element_spec[name]
        batch = next(loader)[name]
    assert (
        (spec.shape, spec.dtype)
        == (batch.shape, batch.dtype)
        == ((4, k, numbers.shape[2]), np.float32)
    )
    np.testing.assert_array_equal(batch, numbers)  # upright and not shrunk


@pytest.mark.parametrize(
    "name, shape",
    [("boxes", (5,)), ("boxes", (4, 3)), ("boxes", ()), ("boxes", (1, 3, 4))]
    + [("keypoints", (3,)), ("keypoints", (5, 3)), ("keypoints", (2, 5, 2))],
)
def test_boxes_and_keypoints_of_impossible_shapes_are_refused(name, shape):
    source = InMemory(jpegs(4), {name: np.zeros((4, *shape))})
    with pytest.raises(
        ValueError,
        match=rf"feature '{name}' must have \d numbers.*got {re.escape(str([1, *shape]))}",
    ):
        Loader(source, 4, sharding=one_device())
    assert threads() == []


@pytest.fixture
def broken_folder(tmp_path):
    good = jpegs(10)
    for i in range(100):
        path = tmp_path / f"class{i % 3}" / f"{i:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        data = good[i % 10]
        path.write_bytes(
            {0: b"", 1: b"just text", 2: data[: len(data) // 2]}[i % 3] if i % 10 == 7 else data
        )
    return tmp_path


def bad_names(loader):
    return sorted(int(record["file"][-7:-4]) for record in loader.stats["bad_records"])


BROKEN = list(range(7, 100, 10))


def test_mask_yields_the_90_good_ones(broken_folder):
    with Loader(
        ImageFolder(broken_folder), 20, on_error="mask", sharding=one_device(), epochs=1
    ) as loader:
        batches = list(loader.steps())
        assert sum(int(batch["valid"].sum()) for batch in batches) == 90
        assert all(not np.asarray(b["image"])[~np.asarray(b["valid"])].any() for b in batches)
        assert all((b["index"] >= 0).all() for b in batches)
        assert bad_names(loader) == BROKEN and loader.stats["masked"] == loader.stats["bad"] == 10
        reasons = {record["reason"] for record in loader.stats["bad_records"]}
        assert "empty" in reasons and any("b'just tex'" in reason for reason in reasons)


def test_replace_yields_100_from_the_same_order_for_any_batch_size(broken_folder):
    runs = []
    for batch_size in (20, 50):
        with Loader(
            ImageFolder(broken_folder),
            batch_size,
            on_error="replace",
            transform=jitter,
            sharding=one_device(),
            epochs=1,
        ) as loader:
            rows = [
                (int(i), np.asarray(im).tobytes())
                for b in loader
                for i, im in zip(b["index"], b["image"])
            ]
            assert bad_names(loader) == BROKEN and loader.stats["replaced"] == 10
            assert loader.stats["images"] == 100
        runs.append(rows)
    assert runs[0] == runs[1]
    assert len({image for _, image in runs[0]}) <= 90


def test_raise_names_the_first_and_leaves_the_loader_usable(broken_folder):
    source = ImageFolder(broken_folder)
    with Loader(
        source, 20, shuffle=False, on_error="raise", sharding=one_device(), epochs=1
    ) as loader:
        first = next(i for i in range(100) if int(source.path(i)[-7:-4]) in BROKEN)
        with pytest.raises(
            DecodeError, match=rf"record {first} \(.*{source.path(first)}, \d+ bytes\)"
        ) as caught:
            for _ in range(5):
                next(loader)
        assert caught.value.index == first and caught.value.file == source.path(first)
        assert [
            t.name for t in threads() if "decode" not in t.name
        ] == []  # the decoder's own end with close
        assert (
            loader.get_state()["position"] == first // 20 * 20
        )  # the batch that failed was not delivered
        with pytest.raises(DecodeError) as caught:
            next(loader)
        assert caught.value.index >= first // 20 * 20 + 20  # but the next one is behind it
    assert threads() == []


def test_all_records_broken_cannot_be_replaced():
    with Loader(InMemory([b"no"] * 40), 4, on_error="replace", sharding=one_device()) as loader:
        with pytest.raises(DecodeError, match="none of the next 32 records"):
            next(loader)


class Lending(Decoder):
    """Notes for each batch how often its buffers are given back."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.batches = []

    def decode_rows(self, encoded, headers=None):
        decoded = super().decode_rows(encoded, headers)
        given_back = []
        self.batches.append(given_back)

        def release(readers):
            given_back.append(readers)
            decoded.release(readers)

        return decoded._replace(release=release)


class Failing(InMemory):
    """Record 1 is broken; one method fails from the second batch on."""

    def __init__(self, fails):
        super().__init__([*jpegs(1), b"no", *jpegs(6)], {"label": np.arange(8)})
        self.fails = fails
        self.reads = 0

    def read(self, indices):
        if self.fails == "read" and len(indices) == 1 and self.reads > 1:  # the replacement
            raise OSError("gone")
        self.reads += len(indices) > 1
        return super().read(indices)

    def describe(self, index):
        if self.fails == "describe":
            raise OSError("gone")
        return super().describe(index)


class Unable:
    """An order that cannot answer for replacements."""

    with_replacement = False
    length = 8

    def records(self, epoch, positions):
        if len(positions) == 1:
            raise OSError("gone")
        return positions


@pytest.mark.parametrize("on_error", ["raise", "mask", "replace"])
@pytest.mark.parametrize("fails", ["nothing", "read", "describe", "order", "transfer", "all"])
def test_every_decode_buffer_is_given_back_once(monkeypatch, on_error, fails):
    """On a GPU a batch that is not given back is a lane lost; after eight the next decode waits for
    ever.
    """
    source = InMemory([b"no"] * 8) if fails == "all" else Failing(fails)
    sampler = Unable() if fails == "order" else False
    with Lending((64, 64), devices=jax.devices("cpu")[:1]) as decoder:
        with Loader(
            source, 4, shuffle=sampler, on_error=on_error, decoder=decoder, sharding=one_device()
        ) as loader:
            if fails == "transfer":
                monkeypatch.setattr(_builder, "place_points", lambda *facts: 1 / 0)
            for _ in range(6):
                with contextlib.suppress(DecodeError, OSError, ZeroDivisionError):
                    next(loader)
        # "replace" looks at the headers first: where all are bad nothing is decoded
        assert (
            len(decoder.batches)
            >= {"raise": 6, "mask": 6, "replace": 0 if fails == "all" else 3}[on_error]
        )
        assert all(len(given_back) == 1 for given_back in decoder.batches)


def test_a_deleted_file_is_named(broken_folder):
    source = ImageFolder(broken_folder)
    (broken_folder / "class0" / "000.jpg").unlink()
    with Loader(source, 20, shuffle=False, sharding=one_device()) as loader:
        with pytest.raises(DecodeError, match=r"000\.jpg.*No such file"):
            next(loader)


def test_stream_yields_in_order_pads_and_resumes(images):
    source = FromIterable(lambda: ((image, {"label": i}) for i, image in enumerate(images[:10])))
    options = {"shuffle": False, "sharding": one_device(), "last_batch": "pad", "transform": jitter}
    with Loader(source, 4, epochs=2, **options) as loader:
        labels = [batch["index"].tolist() for batch in loader]
        assert labels == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, -1, -1]]
        assert loader.get_state()["epoch"] == 1
        next(loader)
        state = loader.get_state()
    with Loader(source, 3, epochs=2, **options) as loader:
        loader.set_state(state)
        assert [batch["index"].tolist() for batch in loader] == [[4, 5, 6], [7, 8, 9]]
    with Loader(source, 4, epochs=1, **(options | {"last_batch": "drop"})) as loader:
        assert len(list(loader)) == 2


def test_transform_exceptions_reach_the_user_at_construction(source):
    def wrong(key, sample):
        raise RuntimeError("my bug")

    with pytest.raises(RuntimeError, match="my bug"):
        Loader(source, 8, transform=wrong)
    with pytest.raises(TypeError, match="must return a dict"):
        Loader(source, 8, transform=lambda key, sample: sample["image"])
    assert threads() == []


def test_no_thread_outlives_a_dropped_loader(source):
    loader = Loader(source, 4, sharding=one_device())
    next(loader)
    assert threads()
    del loader
    gc.collect()
    no_threads_soon()


def test_a_closed_loader_says_so(source):
    loader = Loader(source, 4, sharding=one_device())
    next(loader)
    loader.close()
    loader.close()
    assert threads() == []
    with pytest.raises(ValueError, match="closed"):
        next(loader)


def test_transfer_guard_and_thread_guard_pass(source):
    jax.config.update("jax_transfer_guard", "disallow")
    try:
        with jax.thread_guard(True), Loader(source, 8, transform=jitter) as loader:
            next(loader), next(loader)
    finally:
        jax.config.update("jax_transfer_guard", "allow")


def test_a_shared_decoder_stays_open(source):
    with Decoder((64, 64), devices=jax.devices("cpu")[:1]) as decoder:
        for _ in range(2):
            with Loader(source, 4, decoder=decoder, sharding=one_device()) as loader:
                next(loader)
    with (
        Decoder((64, 64), devices=jax.devices("cpu")[:2]) as decoder,
        pytest.raises(ValueError, match="one device for each"),
    ):
        Loader(source, 4, decoder=decoder, sharding=one_device())


@pytest.mark.parametrize("shared", [False, True])
def test_the_own_decoder_is_deterministic_where_processes_share_rows(source, monkeypatch, shared):
    monkeypatch.setattr(_plan, "spans_processes", lambda sharding: shared)
    with Loader(source, 4, sharding=one_device()) as loader:
        assert loader.decoder.deterministic is shared


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "backend, deterministic", [("host", False), ("nvjpeg", False), ("nvjpeg", True)]
)
def test_shared_rows_need_a_deterministic_decoder(
    source, monkeypatch, shared, backend, deterministic
):
    monkeypatch.setattr(_plan, "spans_processes", lambda sharding: shared)
    with Decoder((64, 64), devices=jax.devices("cpu")[:1], deterministic=deterministic) as decoder:
        decoder.backend = backend
        if shared and backend == "nvjpeg" and not deterministic:
            with pytest.raises(
                ValueError, match=r"`decoder` must be deterministic.*deterministic=True"
            ):
                Loader(source, 4, decoder=decoder, sharding=one_device())
        else:
            Loader(source, 4, decoder=decoder, sharding=one_device()).close()


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (
            {"batch_size": 12, "sharding": "eight"},
            ValueError,
            "multiple of 8.*got 12: take 8 or 16",
        ),
        ({"batch_size": 0}, ValueError, "`batch_size` must be an int of at least 1"),
        ({"batch_size": 25}, ValueError, "at most 24"),
        (
            {"last_batch": "fill"},
            ValueError,
            "`last_batch` must be one of 'drop', 'pad', got 'fill'",
        ),
        ({"on_error": "skip"}, ValueError, "`on_error`"),
        ({"epochs": 0}, ValueError, "`epochs`"),
        ({"seed": -1}, ValueError, "`seed`"),
        ({"prefetch": 0}, ValueError, "`prefetch`"),
        ({"sharding": P("data")}, TypeError, "NamedSharding"),
        ({"sharding": "image"}, ValueError, "split the batch axis alone"),
        ({"sharding": "pinned_host"}, ValueError, "memory_kind='pinned_host'"),
        (
            {"shuffle": Weighted(np.ones(N + 8))},
            ValueError,
            r"`shuffle` .* one weight for each of 24 records, got 32",
        ),
        (
            {"shuffle": Weighted(np.ones(N - 8))},
            ValueError,
            r"`shuffle` .* one weight for each of 24 records, got 16",
        ),
        (
            {"shuffle": Sequential(N + 1)},
            ValueError,
            r"`shuffle` .* at most 24 records.*Sequential\(length=25\)",
        ),
        (
            {"shuffle": Shuffled(N + 1)},
            ValueError,
            r"`shuffle` .* at most 24 records.*Shuffled\(length=25",
        ),
        ({"source": [1, 2]}, TypeError, "see jaxaug.iterators.Source"),
        ({"source": FromIterable([])}, ValueError, "`shuffle` must be False"),
        ({"source": FromIterable([]), "shuffle": False}, ValueError, "at least one record"),
    ],
)
def test_wrong_arguments_fail_at_construction(source, arguments, error, words):
    if arguments.get("sharding") == "image":
        arguments = arguments | {
            "sharding": NamedSharding(mesh((2,), ("data",), AxisType.Auto), P(None, "data"))
        }
    if arguments.get("sharding") == "eight":
        arguments = arguments | {"sharding": batch_sharding(jax.devices("cpu"))}
    if arguments.get("sharding") == "pinned_host":
        arguments = arguments | {"sharding": one_device().with_memory_kind("pinned_host")}
    options = {"source": source, "batch_size": 4, "sharding": one_device()} | arguments
    with pytest.raises(error, match=words):
        Loader(options.pop("source"), options.pop("batch_size"), **options)
    assert threads() == []


def test_a_state_of_another_data_set_is_refused(source, images):
    with Loader(source, 4, sharding=one_device()) as loader:
        state = loader.get_state()
    with Loader(InMemory(images[:-1]), 4, sharding=one_device()) as loader:
        with pytest.raises(StateError, match="another data set"):
            loader.set_state(state)


def test_numbers_of_numpy_are_numbers(source):
    options = {
        "batch_size": np.int64(4),
        "epochs": np.int32(1),
        "seed": np.uint8(3),
        "prefetch": np.int16(1),
    }
    with Loader(source, **options, sharding=one_device()) as loader:
        assert len(list(loader)) == len(loader) == 6
        assert json.loads(json.dumps(loader.get_state()))["seed"] == 3


def test_missing_and_empty_folders_are_named(tmp_path):
    with pytest.raises(SourceError, match="missing"):
        ImageFolder(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no images below"):
        ImageFolder(tmp_path / "empty")


def test_text_features_are_refused(images):
    with pytest.raises(TypeError, match="'name' must be numbers"):
        Loader(InMemory(images, {"name": np.array(["x"] * N)}), 4, sharding=one_device())


def test_sequential_order_is_an_order(source):
    with Loader(source, 4, shuffle=Sequential(N), sharding=one_device()) as loader:
        assert next(loader)["index"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"shuffle": "yes"}, r"`shuffle` must be True, False or a `Sampler`, got 'yes'"),
        ({"decoder": "host"}, r"`decoder` must be a jaxaug.Decoder"),
        (
            {"transform": augment.RandomHorizontalFlip},
            r"the class RandomHorizontalFlip: write RandomHorizontalFlip\(",
        ),
        (
            {"transform": [augment.RandomHorizontalFlip()]},
            r"`transform` must be a function .* `Compose` makes one",
        ),
    ],
)
def test_wrong_kinds_of_arguments_are_named(images, wrong, message):
    with pytest.raises(TypeError, match=message):
        Loader(InMemory(images), 8, **wrong)


def test_a_state_of_another_order_is_refused(images):
    with (
        Loader(InMemory(images), 8) as shuffled,
        Loader(InMemory(images), 8, shuffle=False) as sequential,
    ):
        with pytest.raises(
            StateError, match=r"saved with the order Shuffled\(.*\), this Loader has Sequential"
        ):
            sequential.set_state(shuffled.get_state())


@pytest.mark.parametrize(
    "saved, other",
    [
        (Weighted(np.ones(N), seed=1), Weighted(np.ones(N), seed=2)),
        (Weighted(np.ones(N)), Weighted(np.arange(N))),
        (Weighted(np.ones(N)), Weighted(np.ones(N), num_samples=12)),
        (Shuffled(N, seed=1), Shuffled(N, seed=2)),
    ],
)
def test_a_state_of_other_parameters_of_the_order_is_refused(source, saved, other):
    with Loader(source, 4, shuffle=saved, sharding=one_device()) as loader:
        next(loader)
        state = json.loads(json.dumps(loader.get_state()))
        loader.set_state(state)
    with Loader(source, 4, shuffle=other, sharding=one_device()) as loader:
        with pytest.raises(
            StateError,
            match=re.escape(f"{sampler_name(saved)}, this Loader has {sampler_name(other)}"),
        ):
            loader.set_state(state)
        loader.set_state(state | {"order": type(saved).__name__})


class Listed:
    """An order of one's own: the records of its list."""

    with_replacement = False

    def __init__(self, records):
        self.listed = np.array(records)
        self.length = len(records)

    def records(self, epoch, positions):
        return self.listed[positions] if self.listed.ndim == 1 else self.listed


@pytest.mark.parametrize(
    "wrong, words",
    [
        ([3, -1], r"-1 to 3 in epoch 0"),
        ([3, N], r"3 to 24 in epoch 0"),
        ([3.0, 1.0], r"float64\[2\] in epoch 0"),
        ([[3], [1]], r"int64\[2, 1\] in epoch 0"),
    ],
)
def test_an_order_of_wrong_records_is_named_and_delivers_none(source, wrong, words):
    with Loader(source, 2, shuffle=Listed(wrong), sharding=one_device()) as loader:
        with pytest.raises(
            ValueError, match=rf"Listed.records must give int64\[2\] in \[0, 24\).* got {words}"
        ):
            next(loader)


def test_a_wrong_record_among_replacements_is_named():
    source = InMemory([*jpegs(2), b"no", *jpegs(1)])
    with Loader(
        source, 2, shuffle=Listed([0, 2, -1, 1]), on_error="replace", sharding=one_device()
    ) as loader:
        with pytest.raises(
            ValueError, match=r"Listed.records must give int64\[1\] in \[0, 4\).* got -1 to -1"
        ):
            next(loader)


def test_an_order_may_leave_records_out(source):
    with Loader(source, 2, shuffle=Listed([7, 3]), sharding=one_device()) as loader:
        assert next(loader)["index"].tolist() == [7, 3]
    with Loader(source, 4, shuffle=Shuffled(4), sharding=one_device()) as loader:
        assert sorted(next(loader)["index"].tolist()) == [0, 1, 2, 3]


class Huge(InMemory):
    """2^33 records: the same image over and over."""

    def __len__(self):
        return 2**33

    def read(self, indices):
        return super().read(indices % super().__len__())


def test_indices_of_huge_sources_are_two_words_whatever_the_orders_length():
    sampler = Listed([2**32 + 7, 5, 2**33 - 1])
    options = {"sharding": one_device(), "last_batch": "pad"}
    with Decoder((64, 64), devices=jax.devices("cpu")[:1]) as decoder:
        with Loader(Huge(jpegs(1)), 4, shuffle=sampler, decoder=decoder, **options) as loader:
            batch = next(loader)["index"]
            spec = loader.element_spec["index"]
    assert batch.tolist() == [[1, 7], [0, 5], [1, 2**32 - 1], [2**32 - 1, 2**32 - 1]]
    assert (spec.shape, spec.dtype) == (batch.shape, batch.dtype) == ((4, 2), np.uint32)


def test_indices_of_a_source_are_int32_however_long_its_order(source):
    with Loader(
        source, 4, shuffle=Weighted(np.ones(N), num_samples=2**32), sharding=one_device()
    ) as loader:
        assert next(loader)["index"].dtype == loader.element_spec["index"].dtype == np.int32


def test_a_failed_batch_at_an_epochs_end_belongs_to_its_epoch(images):
    with Loader(InMemory([*images[:3], b"no"]), 2, shuffle=False, sharding=one_device()) as loader:
        with pytest.raises(DecodeError):
            list(loader)
        assert loader.get_state() | {"fingerprint": ""} == loader.get_state() | {
            "fingerprint": "",
            "position": 2,
            "epoch": 0,
        }
        assert next(loader)["index"].tolist() == [0, 1]  # of the next epoch
