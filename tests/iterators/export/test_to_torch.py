"""Batches as PyTorch tensors. Those on GPUs are ordered with the streams of both libraries."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.iterators import InMemory, to_torch
from jaxaug.iterators.export import to_torch as to_torch_module
from jaxaug.sharding import batch_sharding
from tests.images import jpegs, picture
from tests.iterators.loaders import N, named_sharding, one_device

torch = pytest.importorskip("torch", reason="needs torch, which no extra of jaxaug installs")


@pytest.fixture(scope="module")
def source():
    return InMemory(jpegs(N), {"label": np.arange(N)})


def labels(batches):
    return [label for batch in batches for label in batch["label"].tolist()]


def test_a_tensor_is_the_memory_of_the_array(source):
    with Loader(source, 8, sharding=one_device()) as loader:
        batch = next(loader)
        tensors = to_torch_module._ToTensors(None, False)(batch)
    for name in ("image", "size", "index", "valid"):
        assert tensors[name].data_ptr() == batch[name].unsafe_buffer_pointer()
        np.testing.assert_array_equal(tensors[name], batch[name])


def test_types_are_those_that_losses_take(source):
    features = {"label": np.arange(N), "weight": np.ones(N), "count": np.arange(N)}
    with Loader(InMemory(jpegs(N), features), 8, sharding=one_device(), shuffle=False) as loader:
        batch = next(iter(to_torch(loader)))
    found = {name: tensor.dtype for name, tensor in batch.items()}
    assert found == {
        "image": torch.uint8,
        "size": torch.int32,
        "original_size": torch.int32,
        "label": torch.int64,
        "weight": torch.float32,
        "count": torch.int32,
        "valid": torch.bool,
        "index": torch.int32,
    }
    loss = torch.nn.functional.cross_entropy(torch.zeros(8, N), batch["label"])
    assert loss == pytest.approx(np.log(N))


def test_several_local_devices_give_a_tensor_each(source):
    with Loader(source, 8, sharding=named_sharding("eight"), shuffle=False) as loader:
        batch = next(iter(to_torch(loader)))
        image, label = next(iter(to_torch(loader, names=("image", "label"))))
    assert [tensor.tolist() for tensor in batch["label"]] == [[i] for i in range(8)]
    assert len(image) == 8 and image[0].shape == (1, 40, 56, 3)
    assert [tensor.tolist() for tensor in label] == [[i] for i in range(8)]


def test_names_give_a_tuple_in_their_order(source):
    with Loader(source, 8, sharding=one_device(), shuffle=False) as loader:
        batch = next(iter(to_torch(loader, names=("label", "image"))))
        assert type(batch) is tuple
        assert batch[0].tolist() == list(range(8)) and batch[1].shape == (8, 40, 56, 3)


def test_channels_last_is_a_view_of_the_rows(source):
    with Loader(source, 8, sharding=one_device()) as loader:
        batch = next(loader)
        image = to_torch_module._ToTensors(None, True)(batch)["image"]
        assert next(iter(to_torch(loader, channels_last=True)))["image"].shape == (8, 3, 40, 56)
    assert image.data_ptr() == batch["image"].unsafe_buffer_pointer()
    assert image.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_array_equal(image, np.asarray(batch["image"]).transpose(0, 3, 1, 2))


def test_channels_last_refuses_what_has_its_channels_elsewhere(source):
    chain = augment.Compose([augment.CenterCrop(32), augment.ToFloat(layout="NCHW")])
    with Loader(source, 8, transform=chain, sharding=one_device()) as loader:
        with pytest.raises(ValueError, match=r"`channels_last` needs .* got \(8, 3, 32, 32\)"):
            to_torch(loader, channels_last=True)
        with pytest.raises(TypeError, match=r"`channels_last` must be True or False, got 'NCHW'"):
            to_torch(loader, channels_last="NCHW")


@pytest.mark.filterwarnings("ignore:1 of 12 records could not be decoded")
@pytest.mark.parametrize("kind", ["one", "eight"])
def test_labels_of_blank_rows_are_ignored_by_torch(kind):
    images = [*jpegs(11), b"no image"]
    source = InMemory(images, {"label": np.arange(12), "weight": np.ones(12)})
    options = {"shuffle": False, "last_batch": "pad", "on_error": "mask"}
    with Loader(source, 8, sharding=named_sharding(kind), **options) as loader:
        _, last = to_torch(loader)
    label = last["label"] if kind == "one" else torch.cat(last["label"])
    weight = last["weight"] if kind == "one" else torch.cat(last["weight"])
    assert label.tolist() == [8, 9, 10] + [-100] * 5
    assert weight.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_nested_labels_are_those_that_losses_take(source):
    def target(key, sample):
        label = sample["label"]
        return {"target": {"labels": label, "size": label}, "label": {"fine": label}}

    options = {"transform": target, "shuffle": False, "last_batch": "pad"}
    with Loader(source, 20, sharding=one_device(), **options) as loader:
        _, last = to_torch(loader, names=("target", "label"))
    expected = [20, 21, 22, 23] + [-100] * 16
    for labels in (last[0]["labels"], last[1]["fine"]):
        assert labels.dtype == torch.int64 and labels.tolist() == expected
    assert last[0]["size"].dtype == torch.int32


def test_each_loop_is_a_whole_epoch(source):
    with Loader(source, 8, sharding=one_device()) as loader:
        tensors = to_torch(loader)
        assert len(tensors) == 3
        for _ in range(2):  # a trainer's check before the first validation
            next(iter(tensors))
        for _ in range(2):
            assert sorted(labels(tensors)) == list(range(N))


def test_a_new_loop_ends_the_one_before(source):
    with Loader(source, 8, sharding=one_device()) as loader:
        first = iter(to_torch(loader))
        next(first)
        second = iter(to_torch(loader))
        assert sorted(labels(second)) == list(range(N))
        with pytest.raises(RuntimeError, match="as a newer one was made"):
            next(first)


def test_without_restart_a_loop_goes_on(source):
    with Loader(source, 8, sharding=one_device()) as loader:
        tensors = to_torch(loader, restart=False)
        first = labels([next(iter(tensors))])
        assert sorted(first + labels(tensors)) == list(range(N))


def test_a_state_goes_on_behind_the_last_batch(source):
    with Loader(source, 8, sharding=one_device(), seed=3) as loader:
        tensors = to_torch(loader)
        first = labels([next(iter(tensors))])
        state = tensors.state_dict()
    with Loader(source, 8, sharding=one_device(), seed=3) as loader:
        tensors = to_torch(loader)
        tensors.load_state_dict(state)
        assert sorted(first + labels(tensors)) == list(range(N))
        assert sorted(labels(tensors)) == list(range(N))


PIXELS = np.stack([picture(i, 40, 56) for i in range(N)])


@pytest.mark.parametrize("images", [jpegs(N), PIXELS], ids=["encoded", "pixels"])
@pytest.mark.parametrize("transform", [None, lambda key, sample: {**sample, "flag": True}])
def test_writing_into_tensors_changes_no_later_batch(images, transform):
    features = {"label": np.arange(N), "boxes": np.ones((N, 2, 4), np.float32)}
    source = InMemory(images, features)
    options = {"shuffle": False, "sharding": one_device(), "transform": transform}
    with Loader(source, 8, **options) as loader:
        expected = [jax.tree.map(np.array, batch) for batch in loader.steps(12)]
    with Loader(source, 8, **options) as loader:
        for _ in range(3):
            for batch in to_torch(loader):
                for tensor in batch.values():
                    tensor.zero_()
        found = [jax.tree.map(np.array, batch) for batch in loader]
    jax.tree.map(np.testing.assert_array_equal, found, expected[9:])


class _Event:
    """A CUDA event that is passed when the test says so."""

    passed = False

    def record(self, stream):
        assert stream == "stream of cpu"

    def query(self):
        return self.passed


def test_an_array_is_kept_until_torch_has_read_it(monkeypatch):
    """On the CPU, with events that a test can pass."""
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    with jax.default_device(jax.devices("cpu")[0]):
        array = jnp.arange(12.0) + 1
    tensor = to_torch_module._to_tensor(array)
    to_torch_module._hold_until_read(tensor, array)
    array = weakref.ref(array)

    view = tensor[2:]
    del tensor
    assert not to_torch_module._unread
    del view
    gc.collect()
    assert len(to_torch_module._unread) == 1 and array() is not None

    to_torch_module._release_read()
    assert array() is not None
    _Event.passed = True
    to_torch_module._release_read()
    gc.collect()
    assert not to_torch_module._unread and array() is None


def _numbered(count):
    """Images of 128 x 128 pixels, each filled with its own number."""
    numbers = np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1)
    return InMemory(np.tile(numbers, (1, 128, 128, 3)), {"label": np.arange(count)})


def _need_cuda():
    if not torch.cuda.is_available():
        pytest.skip("needs a build of torch for CUDA")


@pytest.mark.gpu
def test_cuda_tensors_lie_on_the_gpus_of_their_rows():
    _need_cuda()
    devices = jax.local_devices()
    with Loader(_numbered(64), 8 * len(devices), shuffle=False) as loader:
        batch = next(loader)
        tensors = to_torch_module._ToTensors(None, False)(batch)
    images = tensors["image"] if len(devices) > 1 else [tensors["image"]]
    shards = to_torch_module.local_shards(batch["image"])
    assert [image.device.index for image in images] == [d.local_hardware_id for d in devices]
    for number, (image, shard) in enumerate(zip(images, shards, strict=True)):
        assert image.data_ptr() == shard.unsafe_buffer_pointer()
        assert image[:, 0, 0, 0].tolist() == list(range(8 * number, 8 * number + 8))


def _slow(key, sample):
    """Add 1, after a long time; a cyclic shift of a plain image changes nothing."""
    image = sample["image"].astype(jnp.float32)
    image = jax.lax.fori_loop(0, 3000, lambda _, x: jnp.roll(x, 1, axis=0), image)
    return {"image": image + jnp.float32(1), "label": sample["label"]}


def _sums(batch):
    return batch["image"].sum(dim=(1, 2, 3))


def test_torch_waits_for_jax_on_the_cpu():
    source = InMemory(np.full((16, 32, 32, 3), 7, np.uint8))
    slow = lambda key, sample: {"image": _slow(key, sample | {"label": 0})["image"]}  # noqa: E731
    with Loader(source, 4, sharding=one_device(), transform=slow) as loader:
        sums = [_sums(batch) for batch in to_torch(loader)]
    assert torch.cat(sums).tolist() == [8 * 32 * 32 * 3] * 16


@pytest.mark.gpu
def test_torch_waits_for_jax():
    """Batches of some 50 ms, read at once on a stream that waits for no other by itself."""
    _need_cuda()
    options = {"shuffle": False, "sharding": batch_sharding(jax.devices()[:1]), "transform": _slow}
    with Loader(_numbered(128), 64, **options) as loader:
        with torch.cuda.stream(torch.cuda.Stream()):
            sums = [_sums(batch).cpu() for batch in to_torch(loader)]
    np.testing.assert_array_equal(torch.cat(sums) / 128**2, 3 * np.arange(1, 129))


@pytest.mark.gpu
def test_jax_waits_for_torch_before_it_uses_memory_again():
    """torch's stream sleeps before each reading, while JAX makes the next batches.

    Without `_hold_until_read` they are written into the memory that torch has yet to read.
    """
    _need_cuda()
    convert = lambda key, sample: {"image": sample["image"].astype(jnp.float32)}  # noqa: E731
    options = {
        "shuffle": False,
        "sharding": batch_sharding(jax.devices()[:1]),
        "transform": convert,
    }
    with Loader(_numbered(240), 16, **options) as loader:
        sums = []
        for batch in to_torch(loader):
            torch.cuda._sleep(50_000_000)  # cycles, some 30 ms
            sums.append(_sums(batch))
            del batch
        found = torch.cat(sums).cpu()
    # Exact: the sums are below 2^24.
    np.testing.assert_array_equal(found / 128**2, 3 * np.arange(240))
