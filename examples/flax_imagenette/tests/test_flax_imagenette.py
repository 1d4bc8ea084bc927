"""The example on tiny data: a step, padded evaluation, resume in an epoch, the comparison."""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import compare  # pyright: ignore[reportMissingImports]
import config as configs  # pyright: ignore[reportMissingImports]
import input as inputs  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import model as models  # pyright: ignore[reportMissingImports]
import numpy as np
import pytest
import train  # pyright: ignore[reportMissingImports]
import train_cifar  # pyright: ignore[reportMissingImports]
from flax import nnx
from PIL import Image

import jaxaug
from jaxaug.decode import Encoded
from jaxaug.iterators import TFDS, ImageFolder

pytestmark = pytest.mark.training
# images of each class; 22 validation images do not fill their last batch of 16
COUNTS = {"train": 20, "val": 11}
STEPS = 8  # of a whole run: two full batches of 16 in each of four epochs


def write_images(root, blue, red, suffix, side=12, test="val"):
    """Two classes of small images, one bluish and one reddish."""
    rng = np.random.default_rng(0)
    for split, count in {"train": COUNTS["train"], test: COUNTS["val"]}.items():
        for name, tint in {blue: (0, 0, 90), red: (90, 0, 0)}.items():
            (root / split / name).mkdir(parents=True)
            for k in range(count):
                pixels = rng.integers(60, 160, (side, side, 3)) + np.array(tint)
                Image.fromarray(pixels.astype(np.uint8)).save(
                    root / split / name / f"{name}_{k}{suffix}", quality=95
                )


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    write_images(root, "blue", "red", ".jpg")
    return configs.Config(
        data=str(root),
        augment="flip_crop_jitter",
        image_size=8,
        blocks=(1, 1),
        width=8,
        batch_size=16,
        epochs=4,
    )


@pytest.fixture(scope="module")
def whole_run(config):
    """A run without a break: its accuracy and parameters."""
    return run(config)


def run(config, resume=False):
    """Train, and return the accuracy with the parameters at the end."""
    kept = []

    def create(*args):
        kept.append(original(*args))
        return kept[-1]

    original = train.create
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "create", create)
        accuracy = train.train(config, resume)
    return accuracy, jax.device_get(nnx.to_pure_dict(nnx.state(kept[-1][0])))


def test_one_step_changes_all_parameters_and_keeps_them_replicated(config):
    images = inputs.open_split(config, "train")
    with inputs.train_loader(config, images) as loader:
        batch = next(loader)
        assert batch["image"].shape == (16, 8, 8, 3)
        assert batch["image"].sharding == jaxaug.sharding.batch_sharding()
        model, optimizer = train.create(config, 2, STEPS)
        before = jax.device_get(nnx.state(model, nnx.Param))
        arguments = (batch["image"], batch["label"], batch["valid"])
        train.train_step(model, optimizer, *arguments)  # the warm-up begins at rate 0
        loss = train.train_step(model, optimizer, *arguments)
    assert 0 < float(loss) < 5
    after = nnx.state(model, nnx.Param)
    assert all(
        (a != np.asarray(b)).any() for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after))
    )
    assert all(
        leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(nnx.state((model, optimizer)))
    )


def test_padding_does_not_count(config):
    """Counted over padded batches and image by image, the accuracy is the same."""
    model, _ = train.create(config, 2, STEPS)
    images = ImageFolder(Path(config.data) / "val")
    assert len(images) % config.batch_size
    with inputs.test_loader(config, images) as loader:
        accuracy = train.evaluate(model, loader)
    transform = inputs.test_transform(config)
    pixels = np.stack([np.asarray(Image.open(images.path(k))) for k in range(len(images))])
    keys = jax.random.split(jax.random.key(0), len(pixels))
    normalized = jax.jit(jax.vmap(transform))(keys, jnp.asarray(pixels))
    predicted = np.asarray(model(normalized, train=False).argmax(axis=-1))
    assert accuracy == pytest.approx(np.mean(predicted == images.labels))


def test_the_classes_of_the_test_images_are_those_of_the_training(config, tmp_path, monkeypatch):
    write_images(tmp_path, "blue", "red", ".jpg")
    shutil.rmtree(tmp_path / "val" / "blue")  # red would be class 0 of what is left
    found = set()

    def labels(model, loader):
        found.update(np.concatenate([batch["label"][batch["valid"]] for batch in loader]).tolist())
        return 0.0

    monkeypatch.setattr(train, "evaluate", labels)
    train.train(dataclasses.replace(config, data=str(tmp_path), epochs=1))
    assert found == {1}


def test_an_augmentation_that_is_none_is_named(config):
    with pytest.raises(SystemExit, match=r"--augment must be one of none, .*, got 'flip'"):
        inputs.train_transform(dataclasses.replace(config, augment="flip"))


def test_learns_and_resumes_to_the_same_parameters(config, whole_run, tmp_path, monkeypatch):
    """Cut in the middle of an epoch and resumed, a run ends where the unbroken one does."""
    accuracy, parameters = whole_run
    assert accuracy > 0.8
    config = dataclasses.replace(
        config, checkpoint=str(tmp_path / "checkpoints"), checkpoint_every=1
    )
    # the cut comes within the second epoch
    steps_before_cut = STEPS // 2 - 1
    original = train.save

    def cut(checkpoints, step, *args):
        original(checkpoints, step, *args)
        if step == steps_before_cut:
            checkpoints.close()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train, "save", cut)
        with pytest.raises(KeyboardInterrupt):
            train.train(config)
    with pytest.raises(SystemExit, match="holds checkpoints"):
        train.train(config)
    resumed_accuracy, resumed = run(config, resume=True)
    assert resumed_accuracy == accuracy
    jax.tree.map(np.testing.assert_array_equal, resumed, parameters)
    assert run(config, resume=True)[0] == accuracy  # a finished run resumes to its end


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """What the archive of Imagenette unpacks to, but for two classes alone and tiny."""
    root = tmp_path_factory.mktemp("archive") / "imagenette2-160"
    write_images(root, "n01440764", "n03888257", ".JPEG")
    return root


@pytest.fixture(scope="module")
def prepared(archive, tmp_path_factory):
    """The folder that the recipe writes."""
    for package in ("tensorflow_datasets", "importlib_resources"):
        pytest.importorskip(package, reason=f'needs {package}: pip install "jaxaug[tfds]"')
    import prepare_tfds  # pyright: ignore[reportMissingImports]

    return prepare_tfds.prepare(archive, str(tmp_path_factory.mktemp("tfds")))


def test_the_recipe_keeps_images_and_classes_without_tensorflow(archive, prepared):
    for split, folder in {"train": "train", "validation": "val"}.items():
        source = TFDS("imagenette/160px-v2", split=split, data_dir=prepared.parents[2])
        features = dict(source.read(np.arange(len(source))))
        encoded = features.pop("image")
        assert source.classes is not None and isinstance(encoded, Encoded)
        written = [
            (source.classes[label], bytes(encoded.view(row)))
            for row, label in enumerate(features["label"])
        ]
        assert sorted(written) == sorted(
            (p.parent.name, p.read_bytes()) for p in (archive / folder).glob("*/*")
        )
    assert "tensorflow" not in sys.modules


def test_learns_from_tfds(config, prepared):
    """Ten classes, as Imagenette has them, of which two come."""
    config = dataclasses.replace(config, data=f"tfds:{prepared}", test_split="validation")
    accuracy, parameters = run(config)
    assert accuracy > 0.8
    assert parameters["head"]["bias"].shape == (10,)


def test_the_recipe_needs_an_unpacked_archive(prepared, tmp_path):
    import prepare_tfds  # pyright: ignore[reportMissingImports]

    with pytest.raises(SystemExit, match=r"photos: the folder must be called .* imagenette2-160"):
        prepare_tfds.prepare(tmp_path / "photos")
    with pytest.raises(SystemExit, match=r"train must hold class folders with \.JPEG files"):
        prepare_tfds.prepare(tmp_path / "imagenette2")


def test_labels_without_a_number_of_classes(prepared):
    source = TFDS(prepared, split="train")
    assert inputs.count_classes(source) == 10
    source.classes = None
    with pytest.raises(SystemExit, match="must be a ClassLabel"):
        inputs.count_classes(source)


def test_resume_needs_a_checkpoint(config, tmp_path):
    with pytest.raises(SystemExit, match="--checkpoint"):
        train.train(config, resume=True)
    with pytest.raises(SystemExit, match="holds no checkpoint"):
        train.train(dataclasses.replace(config, checkpoint=str(tmp_path / "empty")), resume=True)


def test_comparison_writes_lines_and_a_table(config, tmp_path, monkeypatch):
    known = {("none", 0): 0.5, ("flips", 0): 0.7, ("none", 1): 0.6, ("flips", 1): 0.8}
    monkeypatch.setattr(compare, "train", lambda config: known[config.augment, config.seed])
    results = tmp_path / "results.jsonl"
    accuracies = compare.compare(config, ["none", "flips"], [0, 1], results)
    runs = [json.loads(line) for line in results.read_text().splitlines()]
    assert {(run["augment"], run["seed"]): run["accuracy"] for run in runs} == known
    table = compare.table(accuracies)
    assert "| `none` | 55.00% | 50.00%, 60.00% |" in table
    assert "| `flips` | 75.00% | 70.00%, 80.00% |" in table


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """A tar as `train_cifar` takes it: two classes of 32 pixel images."""
    root = tmp_path_factory.mktemp("cifar")
    write_images(root / "cifar", "blue", "red", ".jpg", side=32, test="test")
    with tarfile.open(root / "cifar.tar.gz", "w:gz") as tar:
        tar.add(root / "cifar", "cifar")
    return root / "cifar.tar.gz"


def test_cifar_learns_and_writes_its_runs(cifar, tmp_path):
    options = train_cifar.parse(
        ["--data", str(cifar), "--arms", "none", "trivial", "--seeds", "1", "--epochs", "6"]
        + ["--batch-size", "8", "--blocks", "1", "--width", "4", "--dtype", "float32"]
        + ["--learning-rate", "0.1", "--results", str(tmp_path / "runs.json")]
    )
    runs = train_cifar.compare(options)
    assert [run["arm"] for run in runs] == ["none", "trivial"]
    assert runs[0]["loss"][1] < runs[0]["loss"][0]
    assert runs[0]["accuracy"] > 0.8
    written = json.loads((tmp_path / "runs.json").read_text())
    assert written["runs"] == runs and written["images"] == [40, 22]
    assert "| `trivial` |" in train_cifar.table(runs)


def test_the_table_has_the_difference_to_torchvision_and_its_standard_error():
    """The error is sqrt(0.0008 / 2 + 0.0002 / 2) = 0.0224."""
    values = {"trivial": (0.80, 0.84), "torchvision_trivial": (0.80, 0.82)}
    runs = [
        {"arm": name, "accuracy": accuracy, "images_per_second": 1000}
        for name, accuracies in values.items()
        for accuracy in accuracies
    ]
    *_, own, other = train_cifar.table(runs).splitlines()
    assert own == "| `trivial` | 82.00% | 80.00%, 84.00% | 1,000 |  |"
    assert other == "| `torchvision_trivial` | 81.00% | 80.00%, 82.00% |  | +1.00 ± 2.24 |"


def test_cifar_trains_on_the_epochs_of_torchvision(cifar, tmp_path, monkeypatch):
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    options = train_cifar.parse(
        ["--data", str(cifar), "--arms", "torchvision_flip_crop", "torchvision_rand"]
        + ["--seeds", "1", "2", "--epochs", "2", "--ahead", "3"]
        + ["--batch-size", "8", "--blocks", "1", "--width", "4", "--dtype", "float32"]
        + ["--results", str(tmp_path / "runs.json")]
    )
    runs = train_cifar.compare(options)
    assert [(run["arm"], run["seed"]) for run in runs] == [
        ("torchvision_flip_crop", 1),
        ("torchvision_flip_crop", 2),
        ("torchvision_rand", 1),
        ("torchvision_rand", 2),
    ]
    assert all(np.isfinite(run["loss"]).all() for run in runs)


def test_epochs_of_torchvision_come_in_order_and_depend_on_seed_and_epoch(tmp_path):
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    import torchvision_epochs  # pyright: ignore[reportMissingImports]

    images = np.random.default_rng(0).integers(1, 256, (6, 32, 32, 3), np.uint8)
    names = ("flip_crop", "trivial", "trivial", "trivial", "rand")
    numbers = ((0, 0), (0, 0), (0, 1), (1, 0), (0, 0))
    jobs = [torchvision_epochs.Job(name, *each) for name, each in zip(names, numbers)]
    np.save(tmp_path / "images.npy", images)
    torchvision_epochs.begin(tmp_path / "images.npy")
    expected = [torchvision_epochs.augmented(job) for job in jobs]
    for first, second in itertools.combinations(expected, 2):
        assert (first != second).any()

    with contextlib.closing(torchvision_epochs.Epochs(images, jobs, ahead=2)) as epochs:
        made = list(epochs)
    np.testing.assert_array_equal(made, expected)


def test_torchvision_crops_and_flips_as_the_recipe_does(tmp_path):
    """Each image is found as it was or mirrored, moved by at most 4 pixels, black around."""
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    import torchvision_epochs  # pyright: ignore[reportMissingImports]

    images = np.random.default_rng(1).integers(1, 256, (8, 32, 32, 3), np.uint8)
    np.save(tmp_path / "images.npy", images)
    torchvision_epochs.begin(tmp_path / "images.npy")
    augmented = torchvision_epochs.augmented(torchvision_epochs.Job("flip_crop", 0, 0))
    border = ((4, 4), (4, 4), (0, 0))
    for image, result in zip(images, augmented):
        windows = [
            np.lib.stride_tricks.sliding_window_view(np.pad(either, border), (32, 32, 3))
            for either in (image, image[:, ::-1])
        ]
        same = np.concatenate(windows).reshape(-1, 32, 32, 3) == result
        assert same.all(axis=(1, 2, 3)).sum() == 1


def test_cifar_mixes_neighbors_alone(cifar):
    """Each soft label is of the sample and its partner, and of the arm without mixing its own."""
    data, _, count = train_cifar.load(cifar)
    assert count == 2 and data.image.shape == (40, 32, 32, 3)
    options = train_cifar.parse(["--data", str(cifar), "--blocks", "1", "--width", "4"])
    labels = jnp.array([0, 1, 0, 0, 1, 1, 1, 0], jnp.int32)
    images = data.image[:8]
    for name in ("flip_crop", "trivial"):
        trainer = train_cifar.Trainer(train_cifar.make_arm(name, 2), options, 2, 5)
        image, soft = jax.jit(trainer.augmented)(jax.random.key(0), images, labels)
        assert image.shape == images.shape
        assert soft.sum(axis=1) == pytest.approx(1)
        np.testing.assert_allclose(soft[2:6], jax.nn.one_hot(labels[2:6], 2), atol=1e-6)
        mixed = (np.asarray(soft[:2]).max(axis=1) < 0.9999).any()
        assert mixed == (name == "trivial")


@pytest.mark.parametrize("image_size, first_stage_side", [(32, 32), (160, 40)])
def test_network_shapes(image_size, first_stage_side, monkeypatch):
    sides = []
    call = models.Block.__call__

    def record(self, x, *, train):
        sides.append(x.shape[1])
        return call(self, x, train=train)

    def logits(image):
        rngs = nnx.Rngs(0)
        return models.ResNet(10, blocks=(1, 1, 1), width=4, image_size=image_size, rngs=rngs)(
            image, train=False
        )

    monkeypatch.setattr(models.Block, "__call__", record)
    image = jax.ShapeDtypeStruct((2, image_size, image_size, 3), "float32")
    assert nnx.eval_shape(logits, image).shape == (2, 10)
    assert sides == [first_stage_side, first_stage_side, first_stage_side // 2]


def test_options_override_the_preset():
    parser = argparse.ArgumentParser()
    configs.add_arguments(parser)
    given = [
        "--data",
        "here",
        "--preset",
        "cifar10",
        "--blocks",
        "1",
        "2",
        "--learning-rate",
        "0.05",
    ]
    parsed = configs.from_arguments(parser.parse_args(given))
    expected = dataclasses.replace(
        configs.PRESETS["cifar10"], data="here", blocks=(1, 2), learning_rate=0.05
    )
    assert parsed == expected and parsed.test_split == "test"
