"""Batches for `fit`, `evaluate` and `predict` of Keras 3, which computes with JAX here."""

import importlib.util
import itertools
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.iterators import FromIterable, InMemory, to_keras
from tests.images import jpegs
from tests.iterators.loaders import N, one_device

if importlib.util.find_spec("tensorflow") is not None:  # whose tests need its own Keras
    pytest.skip("Keras is TensorFlow's here", allow_module_level=True)
os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras", reason="needs keras, which no extra of jaxaug installs")
pytestmark = pytest.mark.training

CHAIN = augment.Compose([augment.CenterCrop(16), augment.ToFloat()])
BATCH = 8
STEPS = N // BATCH


@pytest.fixture(scope="module")
def source():
    return InMemory(jpegs(N), {"label": np.arange(N) % 3})


def loader_of(source, batch=BATCH, **options):
    options = {"transform": CHAIN, "sharding": one_device()} | options
    return Loader(source, batch, **options)


@keras.saving.register_keras_serializable("jaxaug")
class Recorder(keras.Model):
    """A linear model that notes which records it was trained on."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)
        self.seen = []

    def call(self, x):
        image, index = x if isinstance(x, (tuple, list)) else (x, None)
        if index is not None:
            jax.debug.callback(lambda rows: self.seen.append(rows.tolist()), index, ordered=True)
        return self.dense(keras.ops.reshape(image, (image.shape[0], 16 * 16 * 3)))


def recorder(**compiled):
    model = Recorder()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, **({"weighted_metrics": ["accuracy"]} | compiled))
    return model


def joined(lists):
    return list(itertools.chain.from_iterable(lists))


def passes(model, per_pass=STEPS):
    """The records of each pass, one list each."""
    jax.effects_barrier()
    batches, model.seen = model.seen, []
    assert len(batches) % per_pass == 0
    starts = range(0, len(batches), per_pass)
    return [joined(batches[start : start + per_pass]) for start in starts]


def order(source, epochs, first=0):
    """The records of epochs in the order of a plain Loader."""
    with loader_of(source) as loader:
        found = [
            [int(i) for batch in loader for i in batch["index"]] for _ in range(first + epochs)
        ]
    return found[first:]


X = ("image", "index")


def test_each_epoch_of_fit_is_one_of_the_loader(source):
    model = recorder()
    with loader_of(source) as loader:
        model.fit(to_keras(loader, x=X), epochs=3, verbose=0)
        assert loader.get_state()["epoch"] == 3 and loader.get_state()["position"] == 0
    found = passes(model)
    assert found == order(source, 3)
    assert all(sorted(records) == list(range(N)) for records in found)
    assert found[0] != found[1] != found[2]


def test_fit_again_and_compile_again_leave_nothing_out(source):
    model = recorder()
    with loader_of(source) as loader:
        dataset = to_keras(loader, x=X)
        model.fit(dataset, epochs=1, verbose=0)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(dataset, epochs=2, verbose=0)
    assert passes(model) == order(source, 3)


def test_steps_per_epoch_go_on(source):
    model = recorder()
    with loader_of(source) as loader:
        model.fit(to_keras(loader, x=X), epochs=3, steps_per_epoch=1, verbose=0)
    assert [joined(passes(model, 1))] == order(source, 1)


def test_passes_of_one_step_are_no_builds(source):
    """Each began anew with the batch of the first, as if that had only built the model."""
    model = recorder()
    with loader_of(source) as loader:
        dataset = to_keras(loader, x=X)
        for _ in range(3):
            model.fit(dataset, steps_per_epoch=1, verbose=0)
    first, second, third = order(source, 3)
    assert passes(model, 1) == [first[:BATCH], second[:BATCH], third[:BATCH]]


def test_epochs_of_one_batch_go_on(source):
    model = recorder()
    with loader_of(source, N) as loader:
        dataset = to_keras(loader, x=X)
        model.fit(dataset, epochs=3, verbose=0)
        model.fit(dataset, epochs=2, verbose=0)
        assert loader.get_state()["epoch"] == 5
    assert passes(model, 1) == order(source, 5)


def test_a_saved_position_is_kept(source):
    with loader_of(source) as loader:
        next(loader)
        state = loader.get_state()
    model = recorder()
    with loader_of(source) as loader:
        loader.set_state(state)
        model.fit(to_keras(loader, x=X), epochs=2, verbose=0)
    flat = joined(passes(model))
    assert flat == joined(order(source, 3))[BATCH : BATCH + 2 * N]


def test_a_pass_that_was_left_begins_anew(source):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    model = recorder()
    with loader_of(source) as loader:
        dataset = to_keras(loader, x=X)
        model.fit(dataset, verbose=0, callbacks=[Stop()])
        assert passes(model, 2) == [order(source, 1)[0][: 2 * BATCH]]
        model.fit(dataset, verbose=0)
    assert passes(model) == order(source, 1, first=1)


def test_evaluate_counts_the_valid_rows(source):
    """24 images do not fill their last batch of 10."""
    model = recorder()
    with loader_of(source, 10, shuffle=False, last_batch="pad") as loader:
        dataset = to_keras(loader)
        found = [model.evaluate(dataset, verbose=0, return_dict=True) for _ in range(2)]
        right = 0
        for batch in loader:
            guess = np.argmax(model(batch["image"]), axis=1)
            right += int(((guess == batch["label"]) & batch["valid"]).sum())
    assert found[0]["accuracy"] == pytest.approx(right / N)
    assert found[0] == found[1]


def test_nested_labels_of_blank_rows_are_a_class(source):
    def target(key, sample):
        return {"image": sample["image"], "target": {"label": sample["label"] + 1}}

    options = {"transform": target, "shuffle": False, "last_batch": "pad"}
    with loader_of(source, 20, **options) as loader:
        dataset = to_keras(loader, y="target")
        _, target, weights = [dataset[i] for i in range(2)][1]
    assert target["label"].tolist() == [3, 1, 2, 3] + [0] * 16
    assert weights.tolist() == [1] * 4 + [0] * 16


def test_validation_data_is_whole_in_each_epoch(source):
    model = recorder()
    with loader_of(source) as train, loader_of(source, 10, last_batch="pad") as test:
        validation = to_keras(test)
        history = model.fit(to_keras(train), epochs=2, validation_data=validation, verbose=0)
        assert train.get_state()["epoch"] == test.get_state()["epoch"] == 2
        assert history.history["val_accuracy"][-1] == pytest.approx(
            model.evaluate(validation, verbose=0)[1]
        )


def test_predict_gives_the_rows_in_order(source):
    model = recorder()
    with loader_of(source, shuffle=False) as loader:
        found = model.predict(to_keras(loader, y=None), verbose=0)
        expected = np.concatenate([np.asarray(model(batch["image"])) for batch in loader])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_without_weights_keras_takes_class_weights(source):
    model = recorder()
    weights = {0: 1.0, 1: 2.0, 2: 0.5}
    with loader_of(source) as loader:
        model.fit(to_keras(loader, sample_weight=None), class_weight=weights, verbose=0)
        with pytest.raises(ValueError, match="class_weight"):
            model.fit(to_keras(loader), class_weight=weights, verbose=0)


def test_a_batch_on_eight_devices_trains(source):
    model = recorder()
    with loader_of(source, sharding=None) as loader:
        history = model.fit(to_keras(loader), epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_a_stream_needs_the_number_of_steps():
    images = jpegs(BATCH)
    stream = FromIterable([{"image": image, "label": 0} for image in images])
    with loader_of(stream, 4, shuffle=False) as loader:
        history = recorder().fit(to_keras(loader), epochs=2, steps_per_epoch=3, verbose=0)
    assert len(history.history["loss"]) == 2


def test_arguments(source):
    with pytest.raises(TypeError, match=r"to_keras\(Loader\(source, batch_size\)\)"):
        to_keras(source)
    with loader_of(source, epochs=1) as loader:
        with pytest.raises(ValueError, match="among the entries of a batch"):
            to_keras(loader, y="class")
        with pytest.raises(TypeError, match="`x` must be the name of an entry"):
            to_keras(loader, x=3)
        assert len(to_keras(loader)) == STEPS and "to_keras(Loader" in repr(to_keras(loader))
        with pytest.raises(RuntimeError, match="more batches than the Loader has"):
            recorder().fit(to_keras(loader), epochs=2, verbose=0)


def test_other_backends():
    """Torch's takes NumPy arrays, TensorFlow's is sent to `to_tf`."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    program = """
import numpy as np, keras
from jaxaug import Loader, augment
from jaxaug.iterators import InMemory, to_keras
from tests.images import jpegs
chain = augment.Compose([augment.CenterCrop(16), augment.ToFloat()])
source = InMemory(jpegs(12), {"label": np.arange(12) % 3})
layers = [keras.layers.Flatten(), keras.layers.Dense(3)]
model = keras.Sequential(layers)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("sgd", loss, weighted_metrics=["accuracy"])
with Loader(source, 5, transform=chain, last_batch="pad") as loader:
    model.fit(to_keras(loader), epochs=2, verbose=0, shuffle=True)
    assert loader.get_state()["epoch"] == 2, loader.get_state()
    accuracy = model.evaluate(to_keras(loader), verbose=0)[1]
    assert abs(accuracy * 12 - round(accuracy * 12)) < 1e-4
print("trained")
"""
    env = os.environ | {"KERAS_BACKEND": "torch"}
    run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert "trained" in run.stdout, run.stderr[-2000:]
