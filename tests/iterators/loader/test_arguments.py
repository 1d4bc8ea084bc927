"""Wrong arguments of a Loader fail at its construction, by name."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug import Decoder, Loader, augment
from jaxaug.errors import SourceError
from jaxaug.iterators import (
    FromIterable,
    ImageFolder,
    InMemory,
    Sequential,
    Shuffled,
    Weighted,
)
from jaxaug.iterators.loader import plan as plan_module
from jaxaug.sharding import batch_sharding
from tests.images import jpegs
from tests.iterators.loaders import N, one_device, threads


def mesh(shape, names, kind):
    count = int(np.prod(shape))
    return jax.make_mesh(
        shape, names, axis_types=(kind,) * len(names), devices=jax.devices("cpu")[:count]
    )


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
            r"`shuffle` must be for 24 records, .* got Weighted for 32",
        ),
        (
            {"shuffle": Weighted(np.ones(N - 8))},
            ValueError,
            r"`shuffle` must be for 24 records, .* got Weighted for 16",
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
        ({"source": "train"}, TypeError, r"got str: .* such as ImageFolder\(path\)"),
        ({"source": Path("a.tar")}, TypeError, r"got \w*Path: .* such as ImageFolder\(path\)"),
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


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"shuffle": "yes"}, r"`shuffle` must be True, False or a `Sampler`, got 'yes'"),
        ({"decode": "host"}, r"`decode` must be a decoder such as"),
        (
            {"transform": augment.RandomHorizontalFlip},
            r"the class RandomHorizontalFlip: write RandomHorizontalFlip\(",
        ),
        (
            {"transform": [augment.RandomHorizontalFlip()]},
            r"`transform` must be a function .* `Compose` makes one",
        ),
        (
            {"transform": lambda image: image},
            r"`transform` must take two arguments, \(key, sample\)",
        ),
        (
            {"batch_transform": lambda group: group},
            r"`batch_transform` must take two arguments, \(key, group\)",
        ),
        ({"drop_last": True}, r"no argument `drop_last`: write last_batch='drop'"),
        ({"num_workers": 4}, r"no argument `num_workers`: leave it out"),
        ({"shufle": True}, r"no argument `shufle`: it has source, .*, shuffle, .* and sharding"),
    ],
)
def test_wrong_kinds_of_arguments_are_named(images, wrong, message):
    with pytest.raises(TypeError, match=message):
        Loader(InMemory(images), 8, **wrong)


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


def test_a_shared_decoder_stays_open(source):
    with Decoder((64, 64), devices=jax.devices("cpu")[:1]) as decoder:
        for _ in range(2):
            with Loader(source, 4, decode=decoder, sharding=one_device()) as loader:
                next(loader)
    with (
        Decoder((64, 64), devices=jax.devices("cpu")[:2]) as decoder,
        pytest.raises(ValueError, match="one device for each"),
    ):
        Loader(source, 4, decode=decoder, sharding=one_device())


@pytest.mark.parametrize("shared", [False, True])
def test_the_own_decoder_is_deterministic_where_processes_share_rows(source, monkeypatch, shared):
    monkeypatch.setattr(plan_module, "spans_processes", lambda sharding: shared)
    with Loader(source, 4, sharding=one_device()) as loader:
        assert loader.decoders["image"].deterministic is shared


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "backend, deterministic", [("host", False), ("nvjpeg", False), ("nvjpeg", True)]
)
def test_shared_rows_need_a_deterministic_decoder(
    source, monkeypatch, shared, backend, deterministic
):
    monkeypatch.setattr(plan_module, "spans_processes", lambda sharding: shared)
    with Decoder((64, 64), devices=jax.devices("cpu")[:1], deterministic=deterministic) as decoder:
        decoder.backend = backend
        if shared and backend == "nvjpeg" and not deterministic:
            with pytest.raises(
                ValueError, match=r"`decode` must be a deterministic Decoder.*deterministic=True"
            ):
                Loader(source, 4, decode=decoder, sharding=one_device())
        else:
            Loader(source, 4, decode=decoder, sharding=one_device()).close()


def test_transform_exceptions_reach_the_user_at_construction(source):
    def wrong(key, sample):
        raise RuntimeError("my bug")

    with pytest.raises(RuntimeError, match="my bug"):
        Loader(source, 8, transform=wrong)
    with pytest.raises(TypeError, match="must return a dict"):
        Loader(source, 8, transform=lambda key, sample: sample["image"])
    assert threads() == []


def test_text_features_are_refused(images):
    class Named(InMemory):
        def read(self, indices):
            return super().read(indices) | {"name": np.array(["x"] * len(indices))}

    with pytest.raises(TypeError, match="'name' must be numbers"):
        Loader(Named(images), 4, sharding=one_device())


def test_missing_and_empty_folders_are_named(tmp_path):
    with pytest.raises(SourceError, match="missing"):
        ImageFolder(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no images below"):
        ImageFolder(tmp_path / "empty")


def test_a_folder_of_other_files_names_what_reads_them(tmp_path):
    for name in ("a/x.mp4", "a/y.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"...")
    told = "; there are videos, which VideoFolder reads, and sounds, which AudioFolder reads[.]"
    with pytest.raises(SourceError, match=told):
        ImageFolder(tmp_path)


@pytest.mark.parametrize("name", ["image", "size", "valid", "index"])
def test_features_with_the_names_of_a_batch_are_refused(name):
    with pytest.raises(
        ValueError, match=f"`source` must not have a feature named '{name}'.*Rename it"
    ):
        Loader(InMemory(jpegs(4), {name: np.arange(4)}), 4, sharding=one_device())


def test_names_of_features_are_texts():
    with pytest.raises(TypeError, match="must return a dict of columns by name"):
        Loader(
            InMemory(jpegs(4), {"label": np.arange(4), 3: np.arange(4)}), 4, sharding=one_device()
        )  # type: ignore


def test_a_fingerprint_that_no_state_can_hold_is_named():
    class Numbered(InMemory):
        def fingerprint(self):
            return 5

    with pytest.raises(TypeError, match=r"`source.fingerprint` must return a str, got 5"):
        Loader(Numbered(jpegs(4)), 4, sharding=one_device())
