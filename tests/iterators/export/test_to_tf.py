"""Batches as TensorFlow tensors, and as a `tf.data.Dataset` that Keras trains on."""

import time

import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.decode import Ragged
from jaxaug.iterators import Buckets, FromIterable, InMemory, to_tf
from jaxaug.iterators.export.to_tf import _to_tensor
from tests.images import jpegs
from tests.iterators.loaders import N, named_sharding, one_device

tf = pytest.importorskip("tensorflow", reason="needs tensorflow, which no extra of jaxaug installs")

CHAIN = augment.Compose([augment.CenterCrop(16), augment.ToFloat()])


@pytest.fixture(scope="module")
def source():
    return InMemory(jpegs(N), {"label": np.arange(N) % 3})


def indices(batches):
    return [index for batch in batches for index in batch["index"].numpy().tolist()]


@pytest.mark.parametrize("kind", ["one", "eight", "replicated"])
def test_tensors_hold_the_rows_of_this_process(source, kind):
    with Loader(source, 8, sharding=named_sharding(kind), shuffle=False) as loader:
        exported = to_tf(loader)
        batch = next(iter(exported))
        loader.set_state(loader.get_state() | {"position": 0})
        plain = next(loader)
    assert len(exported) == 3 and batch.keys() == plain.keys()
    for name, tensor in batch.items():
        assert isinstance(tensor, tf.Tensor) and tensor.dtype == tf.as_dtype(plain[name].dtype)
        np.testing.assert_array_equal(tensor.numpy(), np.asarray(plain[name]))


def test_a_tensor_of_one_cpu_device_is_the_memory_of_the_array(source):
    with Loader(source, 8, sharding=one_device()) as loader:
        image = next(loader)["image"]
    tensor = _to_tensor(image)
    assert np.from_dlpack(tensor).ctypes.data == image.unsafe_buffer_pointer()


@pytest.mark.parametrize("form", ["eager", "dataset"])
def test_each_loop_is_a_whole_epoch(source, form):
    with Loader(source, 8, sharding=one_device()) as loader:
        batches = to_tf(loader) if form == "eager" else to_tf(loader).dataset()
        for _ in range(2):
            next(iter(batches))
        for _ in range(2):
            assert sorted(indices(batches)) == list(range(N))


def test_without_restart_a_loop_goes_on(source):
    with Loader(source, 8, sharding=one_device()) as loader:
        first = indices([next(iter(to_tf(loader, restart=False)))])
        assert sorted(first + indices(to_tf(loader, restart=False).dataset())) == list(range(N))


@pytest.mark.parametrize("kind", ["one", "eight"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_dataset_has_the_form_of_the_batches(source, kind, dtype):
    chain = augment.Compose([augment.CenterCrop(16), augment.ToFloat(dtype=dtype)])
    with Loader(source, 8, transform=chain, sharding=named_sharding(kind)) as loader:
        dataset = to_tf(loader, names=("image", "label")).dataset()
        image, label = next(iter(dataset))
        expected = loader.element_spec
    assert dataset.element_spec == (
        tf.TensorSpec(expected["image"].shape, tf.as_dtype(jnp.dtype(dtype))),
        tf.TensorSpec((8,), tf.int32),
    )
    assert image.shape == (8, 16, 16, 3) and label.shape == (8,)


def test_a_dataset_takes_no_batch_ahead(source):
    """A state that is saved behind a step is that of its batch."""
    with Loader(source, 8, sharding=one_device()) as loader:
        dataset = to_tf(loader, names=("image", "label")).dataset().map(lambda *entries: entries)
        batches = iter(dataset)
        next(batches)
        time.sleep(0.3)  # in which TensorFlow's thread would take another
        reached = [loader.get_state()["position"]]
        reached += [loader.get_state()["position"] for _ in batches]
    assert reached == [8, 16, 0]


def test_a_dataset_has_the_forms_of_all_buckets():
    """What has one size in all of them keeps it."""
    values = [np.arange(4 * n, dtype=np.float32).reshape(n, 4) for n in (1, 2, 5, 1, 2, 5)]
    lengths = np.array([len(each) for each in values])
    numbers = Ragged(np.concatenate(values), lengths, 5)
    source = InMemory(jpegs(6), {"numbers": numbers})
    order = Buckets(lengths, [1, 2, 5], 2, of="numbers")
    with Loader(source, 2, shuffle=order, sharding=one_device()) as loader:
        dataset = to_tf(loader).dataset()
        shapes = sorted(tuple(batch["numbers"].shape) for batch in dataset)
    assert shapes == [(2, 1, 4), (2, 2, 4), (2, 5, 4)]
    assert dataset.element_spec["numbers"].shape.as_list() == [2, None, 4]
    assert dataset.element_spec["image"].shape.as_list() == [2, 40, 56, 3]


def test_a_dataset_has_tuples_for_the_lists_of_a_transform(source):
    def views(key, sample):
        return {"views": [sample["image"], {"half": sample["image"][::2]}]}

    with Loader(source, 8, transform=views, sharding=one_device()) as loader:
        whole, half = next(iter(to_tf(loader).dataset()))["views"]
    assert whole.shape == (8, 40, 56, 3) and half["half"].shape == (8, 20, 56, 3)


@pytest.mark.training
@pytest.mark.parametrize("repeated", [False, True])
def test_keras_goes_on_behind_a_state_within_an_epoch(source, repeated):
    """Keras takes the length of its first pass for that of all, and would cut the later ones."""
    with Loader(source, 4, transform=CHAIN, sharding=one_device()) as loader:
        expected = [np.asarray(batch["index"]).tolist() for batch in loader.steps(16)][4:]
        loader.set_state(loader.get_state() | {"epoch": 0, "position": 16})
        seen = []

        def note(image, label, index):
            tf.py_function(lambda rows: seen.append(rows.numpy().tolist()), [index], [])
            return image, label

        dataset = to_tf(loader, names=("image", "label", "index")).dataset().map(note)
        model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)])
        model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        if repeated:
            model.fit(dataset.repeat(), epochs=3, steps_per_epoch=4, verbose=0)
        else:
            model.fit(dataset, epochs=2, verbose=0)
    assert seen == expected


@pytest.mark.training
def test_keras_trains_and_evaluates_on_whole_epochs(source):
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Flatten(), layers.Dense(3)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, weighted_metrics=["accuracy"])

    options = {"transform": CHAIN, "sharding": one_device()}
    train = Loader(source, 8, **options)
    # 24 images do not fill their last batch of 10.
    test = Loader(source, 10, shuffle=False, last_batch="pad", **options)
    with train, test:
        names = ("image", "label", "valid")
        validation = to_tf(test, names=names).dataset()
        validation = validation.map(
            lambda image, label, valid: (image, tf.maximum(label, 0), tf.cast(valid, "float32"))
        )
        data = to_tf(train, names=("image", "label")).dataset()
        model.fit(data, epochs=2, validation_data=validation, verbose=0)
        assert train.get_state()["epoch"] == test.get_state()["epoch"] == 2

        accuracy = model.evaluate(validation, verbose=0)[1]
        right = 0
        for batch in to_tf(test):
            guess = model(batch["image"]).numpy().argmax(axis=1)
            right += int(((guess == batch["label"]) & batch["valid"]).numpy().sum())
    assert accuracy == pytest.approx(right / N)


def test_a_dataset_of_encoded_images_is_a_stream():
    images = jpegs(N)
    dataset = tf.data.Dataset.from_tensor_slices({"image": images, "label": np.arange(N)})
    options = {"shuffle": False, "sharding": one_device()}
    with Loader(FromIterable(dataset), 8, **options) as loader:
        found = next(loader)
    with Loader(InMemory(images, {"label": np.arange(N)}), 8, **options) as loader:
        expected = next(loader)
    for name in ("image", "label"):
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(expected[name]))
