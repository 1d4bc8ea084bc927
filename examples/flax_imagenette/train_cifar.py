"""Train on CIFAR-10 with the pixels on the device: decoded once, augmented inside of each step.

    python examples/flax_imagenette/train_cifar.py --data cifar10_12k.tar.gz

Each arm is a way of augmenting, trained with several seeds; everything else is the same. An epoch
is one compiled call: order, augmentation, mixing and SGD. The arms of torchvision take the images
of each epoch augmented on the CPU instead. A table is printed, the runs are written as JSON.
"""

import argparse
import contextlib
import functools
import itertools
import json
import math
import statistics
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import model as models
import numpy as np
import optax
from flax import nnx

import jaxaug
from jaxaug import augment
from jaxaug.augment import recipes
from jaxaug.decode import decode_image

SIDE = 32
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4  # on kernels only


class Split(NamedTuple):
    """Images uint8[n, 32, 32, 3] and labels int32[n]."""

    image: jax.Array
    label: jax.Array


class Arm(NamedTuple):
    """A transform of single images, and one of pairs of samples, or None."""

    transform: Callable
    mix: Callable | None = None


class State(NamedTuple):
    """The network's parameters and statistics, and the optimizer's state."""

    params: Any
    statistics: Any
    optimizer: optax.OptState


PLAIN = augment.Compose([augment.Normalize(recipes.CIFAR10_MEAN, recipes.CIFAR10_STD)])


def make_arm(name: str, num_classes: int) -> Arm:
    """Return the arm of a name: for one of torchvision what is left to do on the device."""
    mix = augment.MixUp(num_classes, alpha=0.2)
    if name in ("none", "torchvision_flip_crop"):
        return Arm(PLAIN)
    if name.startswith(TORCHVISION):
        return Arm(PLAIN, mix)
    if name == "flip_crop":
        return Arm(recipes.cifar_train())
    if name == "trivial":
        policy = augment.TrivialAugmentWide(interpolation="bilinear")
        return Arm(recipes.cifar_train(policy=policy, erase=0.25), mix)
    policy = augment.RandAugment(2, 9, interpolation="bilinear")
    return Arm(recipes.cifar_train(policy=policy, erase=0.25), mix)


AUGMENTED = ("flip_crop", "trivial", "rand")
TORCHVISION = "torchvision_"
ARMS = ("none", *AUGMENTED, *(TORCHVISION + name for name in AUGMENTED))


def load(path: Path) -> tuple[Split, Split, int]:
    """Return the splits "train" and "test" of a tar of split/class/name.jpg, and the classes."""
    found: dict[str, list[tuple[str, np.ndarray]]] = {"train": [], "test": []}
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isfile() and member.name.endswith(".jpg"):
                split, label = member.name.split("/")[-3:-1]
                file = tar.extractfile(member)
                assert file is not None
                found[split].append((label, decode_image(file.read())))

    classes = sorted({label for label, _ in found["train"]})
    splits = []
    for records in (found["train"], found["test"]):
        images = np.stack([image for _, image in records])
        labels = np.array([classes.index(label) for label, _ in records], np.int32)
        splits.append(Split(jnp.asarray(images), jnp.asarray(labels)))
    return splits[0], splits[1], len(classes)


class Trainer:
    """The compiled epoch and evaluation of one arm, for any seed.

    Args:
      arm: how images are augmented.
      options: the parsed arguments of the command.
      num_classes: length of the logits.
      steps: of an epoch.
    """

    def __init__(self, arm: Arm, options: argparse.Namespace, num_classes: int, steps: int):
        self.arm = arm
        self.num_classes = num_classes
        self.batch_size = options.batch_size
        self.steps = steps
        self._make_model = functools.partial(
            models.ResNet,
            num_classes,
            blocks=tuple(options.blocks),
            width=options.width,
            image_size=SIDE,
            dtype=jnp.dtype(options.dtype),
        )
        self.tx = make_tx(options.learning_rate, steps * options.epochs)
        self.graph = nnx.split(self._make_model(rngs=nnx.Rngs(0)))[0]
        self.epoch = jax.jit(self._epoch, donate_argnums=0)
        self.accuracy = jax.jit(self._accuracy)

    def begin(self, seed: int) -> State:
        """Return new parameters."""
        model = self._make_model(rngs=nnx.Rngs(seed))
        _, params, rest = nnx.split(model, nnx.Param, ...)
        return State(params, rest, self.tx.init(params))

    def _epoch(self, state: State, key: jax.Array, data: Split) -> tuple[State, jax.Array]:
        """Train on each image once; return the mean loss."""
        order_key, step_key = jax.random.split(key)
        order = jax.random.permutation(order_key, len(data.label))
        rows = order[: self.steps * self.batch_size].reshape(self.steps, self.batch_size)
        keys = jax.random.split(step_key, self.steps)

        def step(state: State, inputs: tuple[jax.Array, jax.Array]) -> tuple[State, jax.Array]:
            rows, key = inputs
            return self._step(state, *self.augmented(key, data.image[rows], data.label[rows]))

        state, losses = jax.lax.scan(step, state, (rows, keys))
        return state, losses.mean()

    def augmented(
        self, key: jax.Array, image: jax.Array, label: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return a batch augmented and mixed, with soft labels."""
        sample_key, group_key = jax.random.split(key)
        keys = jax.random.split(sample_key, len(label))
        image = jax.vmap(self.arm.transform)(keys, image)
        if self.arm.mix is None:
            return image, jax.nn.one_hot(label, self.num_classes)
        groups = len(label) // 2
        pairs = {
            "image": image.reshape(groups, 2, *image.shape[1:]),
            "label": label.reshape(groups, 2),
        }
        mixed = jax.vmap(self.arm.mix)(jax.random.split(group_key, groups), pairs)
        return mixed["image"].reshape(image.shape), mixed["label"].reshape(-1, self.num_classes)

    def _step(self, state: State, image: jax.Array, label: jax.Array) -> tuple[State, jax.Array]:
        """Make one step of SGD."""

        def mean_loss(params: Any) -> tuple[jax.Array, Any]:
            model = nnx.merge(self.graph, params, state.statistics, copy=True)
            losses = optax.softmax_cross_entropy(model(image, train=True), label)
            return losses.mean(), nnx.split(model, nnx.Param, ...)[2]

        (loss, rest), gradients = jax.value_and_grad(mean_loss, has_aux=True)(state.params)
        updates, optimizer = self.tx.update(gradients, state.optimizer, state.params)
        return State(optax.apply_updates(state.params, updates), rest, optimizer), loss

    def _accuracy(self, state: State, data: Split) -> jax.Array:
        """Return the share of images that are classified correctly."""
        model = nnx.merge(self.graph, state.params, state.statistics)
        keys = jax.random.split(jax.random.key(0), len(data.label))
        logits = model(jax.vmap(PLAIN)(keys, data.image), train=False)
        return (logits.argmax(axis=-1) == data.label).mean()


def make_tx(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """Return SGD with Nesterov momentum, a warm-up over a twentieth of the steps, a cosine."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, max(1, steps // 20), steps)
    is_kernel = functools.partial(jax.tree.map, lambda parameter: parameter.ndim > 1)
    return optax.chain(
        optax.add_decayed_weights(WEIGHT_DECAY, mask=is_kernel),
        optax.sgd(schedule, MOMENTUM, nesterov=True),
    )


def train(
    trainer: Trainer, seed: int, epochs: int, data: Iterator[Split], test_data: Split
) -> dict:
    """Train once, on the next of `data` in each epoch, and return what came of it."""
    started = time.perf_counter()
    state = trainer.begin(seed)
    key = jax.random.key(seed)
    state, loss = trainer.epoch(state, jax.random.fold_in(key, 0), next(data))
    first_loss = float(loss)  # waits
    compiled = time.perf_counter()
    for epoch in range(1, epochs):
        state, loss = trainer.epoch(state, jax.random.fold_in(key, epoch), next(data))
    last_loss = float(loss)
    trained = time.perf_counter()

    images = (epochs - 1) * trainer.steps * trainer.batch_size
    return {
        "seed": seed,
        "accuracy": float(trainer.accuracy(state, test_data)),
        "loss": [first_loss, last_loss],
        "first_epoch_seconds": round(compiled - started, 2),
        "other_epochs_seconds": round(trained - compiled, 2),
        "images_per_second": round(images / (trained - compiled)),
    }


@contextlib.contextmanager
def made_by_torchvision(options: argparse.Namespace, data: Split) -> Iterator[Iterator[Split]]:
    """Yield the epochs of torchvision's arms in the order of training; they are begun at once."""
    names = [name for name in options.arms if name.startswith(TORCHVISION)]
    if not names:
        yield iter(())
        return

    from torchvision_epochs import Epochs, Job

    product = itertools.product(names, options.seeds, range(options.epochs))
    jobs = [Job(name.removeprefix(TORCHVISION), seed, epoch) for name, seed, epoch in product]
    with contextlib.closing(Epochs(np.asarray(data.image), jobs, options.ahead)) as epochs:
        yield (Split(jnp.asarray(images), data.label) for images in epochs)


def compare(options: argparse.Namespace) -> list[dict]:
    """Train all arms and seeds; print and write each run as it ends."""
    train_data, test_data, num_classes = load(options.data)
    steps = len(train_data.label) // options.batch_size
    if steps == 0:
        raise SystemExit(f"--batch-size must be at most {len(train_data.label)} images.")
    described = {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "jaxaug": jaxaug.__version__,
        "settings": {name: str(value) for name, value in vars(options).items()},
        "images": [len(train_data.label), len(test_data.label)],
    }
    trainers: dict[Arm, Trainer] = {}
    runs = []
    with made_by_torchvision(options, train_data) as augmented:
        for name in options.arms:
            arm = make_arm(name, num_classes)
            if arm not in trainers:
                trainers[arm] = Trainer(arm, options, num_classes, steps)
            data = augmented if name.startswith(TORCHVISION) else itertools.repeat(train_data)
            for seed in options.seeds:
                run = train(trainers[arm], seed, options.epochs, data, test_data)
                runs.append({"arm": name, **run})
                print(json.dumps(runs[-1]), flush=True)
                options.results.write_text(json.dumps({**described, "runs": runs}, indent=1) + "\n")
    return runs


def table(runs: list[dict]) -> str:
    """Return the accuracies in percent, as a table in Markdown."""
    lines = [
        "| augmentation | test accuracy, mean | each seed | images/s | jaxaug's less this |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(run["arm"] for run in runs):
        own = accuracies(runs, name)
        each = ", ".join(f"{accuracy:.2%}" for accuracy in own)
        rate, difference = "", ""
        if name.startswith(TORCHVISION):  # the rate says how long the images were made ahead
            difference = less(accuracies(runs, name.removeprefix(TORCHVISION)), own)
        else:
            rates = [run["images_per_second"] for run in runs if run["arm"] == name]
            rate = f"{statistics.median(rates):,.0f}"
        lines.append(f"| `{name}` | {statistics.mean(own):.2%} | {each} | {rate} | {difference} |")
    return "\n".join(lines)


def accuracies(runs: list[dict], name: str) -> list[float]:
    """Return the accuracies of an arm, one for each seed."""
    return [run["accuracy"] for run in runs if run["arm"] == name]


def less(accuracies: list[float], others: list[float]) -> str:
    """Return the difference of two means in points, and its standard error."""
    if min(len(accuracies), len(others)) < 2:
        return ""
    difference = statistics.mean(accuracies) - statistics.mean(others)
    error = math.sqrt(sum(statistics.variance(own) / len(own) for own in (accuracies, others)))
    return f"{100 * difference:+.2f} ± {100 * error:.2f}"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description="Compare augmentations on CIFAR-10.")
    parser.add_argument("--data", type=Path, required=True, help="tar of split/class/name.jpg")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["flip_crop", "trivial"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--learning-rate", type=float, default=0.2, help="the highest")
    parser.add_argument("--blocks", nargs="+", type=int, default=[1, 1, 1])
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--dtype", default="bfloat16", help="of the network's computation")
    parser.add_argument("--ahead", type=int, default=100, help="epochs of torchvision in memory")
    parser.add_argument("--results", type=Path, default=Path("cifar.json"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    print(table(compare(parse())))
