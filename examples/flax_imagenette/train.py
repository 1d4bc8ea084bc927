"""Train a residual network on class folders or a data set of TFDS, over all devices.

    python examples/flax_imagenette/train.py --data imagenette2-160
    python examples/flax_imagenette/train.py --data tfds:imagenette/160px-v2 --test-split validation
    python examples/flax_imagenette/train.py --data cifar10 --preset cifar10 --checkpoint runs/cifar

With `--resume` a run goes on from its newest checkpoint. Every field of `config.Config` is an
option.
"""

import argparse
import functools
from pathlib import Path

import config as configs
import input as inputs
import jax
import jax.numpy as jnp
import model as models
import optax
import orbax.checkpoint as ocp
from config import Config
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from tqdm import tqdm

import jaxaug


def train(config: Config, resume: bool = False) -> float:
    """Train by `config` and return the test accuracy after the last epoch.

    Args:
      config: the settings of the run.
      resume: go on from the newest checkpoint in `config.checkpoint`, in the middle of an epoch
        too.
    """
    images = inputs.open_split(config, config.train_split)
    test_images = inputs.open_split(config, config.test_split, images.classes)
    with (
        inputs.train_loader(config, images) as loader,
        inputs.test_loader(config, test_images) as test_loader,
    ):
        steps = config.epochs * len(loader)
        model, optimizer = create(config, inputs.count_classes(images), steps)
        checkpoints = open_checkpoints(config, resume)
        if checkpoints is not None and resume:
            restore(checkpoints, model, optimizer, loader)
        say(f"{images}, {len(loader)} batches an epoch; the first step is compiled")
        accuracy = evaluate(model, test_loader) if resume else 0.0
        while (epoch := loader.get_state()["epoch"]) < config.epochs:
            loss = train_epoch(model, optimizer, loader, checkpoints)
            accuracy = evaluate(model, test_loader)
            say(f"epoch {epoch + 1:3}  loss {loss:.3f}  test accuracy {accuracy:.2%}")
        if checkpoints is not None:
            if checkpoints.latest_step() != steps:
                save(checkpoints, steps, model, optimizer, loader)
            checkpoints.close()
    return accuracy


def say(text: str) -> None:
    """Print a line, at once, in the first process."""
    if jax.process_index() == 0:
        print(text, flush=True)


def create(config: Config, num_classes: int, steps: int) -> tuple[models.ResNet, nnx.Optimizer]:
    """Return a new model and its optimizer, replicated over all devices."""
    model = models.ResNet(
        num_classes,
        blocks=config.blocks,
        width=config.width,
        image_size=config.image_size,
        dtype=jnp.dtype(config.dtype),
        rngs=nnx.Rngs(config.seed),
    )
    tx = make_tx(config.learning_rate, config.momentum, config.weight_decay, steps)
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    replicated = NamedSharding(jaxaug.sharding.batch_sharding().mesh, PartitionSpec())
    for module in (model, optimizer):
        nnx.update(module, jax.device_put(nnx.state(module), replicated))
    return model, optimizer


# equal numbers give the same object, so that runs with other seeds share one compilation
@functools.cache
def make_tx(
    learning_rate: float, momentum: float, weight_decay: float, steps: int
) -> optax.GradientTransformation:
    """Return SGD with Nesterov momentum, warm-up, a cosine, and weight decay on kernels."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, max(1, steps // 20), steps)
    is_kernel = functools.partial(jax.tree.map, lambda parameter: parameter.ndim > 1)
    return optax.chain(
        optax.add_decayed_weights(weight_decay, mask=is_kernel),
        optax.sgd(schedule, momentum, nesterov=True),
    )


@nnx.jit
def train_step(
    model: models.ResNet,
    optimizer: nnx.Optimizer,
    image: jax.Array,
    label: jax.Array,
    valid: jax.Array,
) -> jax.Array:
    """Make one step of SGD on a global batch; XLA sums the gradients over the devices.

    Returns:
      The mean loss of the valid images: padding and masked records have label -1 and count nowhere.
    """

    def mean_loss(model):
        logits = model(image, train=True)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, label)
        return jnp.where(valid, losses, 0.0).sum() / jnp.maximum(valid.sum(), 1)

    loss, gradients = nnx.value_and_grad(mean_loss)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def count_correct(
    model: models.ResNet, image: jax.Array, label: jax.Array, valid: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the number of valid images that are classified correctly, and of valid images."""
    correct = (model(image, train=False).argmax(axis=-1) == label) & valid
    return correct.sum(), valid.sum()


def train_epoch(model, optimizer, loader: jaxaug.Loader, checkpoints) -> float:
    """Train for the rest of the epoch; return the mean loss."""
    losses = []
    # Counted on the host from here on: reading the step would wait for it.
    start = 1 + int(optimizer.step[...])
    # None: no bar where stderr is no terminal
    hidden = True if jax.process_index() > 0 else None
    bar = tqdm(loader, "training", len(loader), leave=False, disable=hidden)
    for step, batch in enumerate(bar, start):
        losses.append(train_step(model, optimizer, batch["image"], batch["label"], batch["valid"]))
        if checkpoints is not None and checkpoints.should_save(step):
            save(checkpoints, step, model, optimizer, loader)
    return float(jnp.mean(jnp.stack(losses)))


def evaluate(model: models.ResNet, loader: jaxaug.Loader) -> float:
    """Return the share of the images that are classified correctly."""
    counts = [count_correct(model, b["image"], b["label"], b["valid"]) for b in loader]
    correct, total = (int(sum(column)) for column in zip(*counts))
    return correct / total


def open_checkpoints(config: Config, resume: bool) -> ocp.CheckpointManager | None:
    """Return the checkpoints of the run; None if it keeps none."""
    if not config.checkpoint:
        if resume:
            raise SystemExit(
                "--resume needs --checkpoint FOLDER, the folder of the run to go on with."
            )
        return None
    options = ocp.CheckpointManagerOptions(
        max_to_keep=2, save_interval_steps=config.checkpoint_every
    )
    manager = ocp.CheckpointManager(Path(config.checkpoint).absolute(), options=options)
    if resume and manager.latest_step() is None:
        raise SystemExit(f"--resume: {config.checkpoint} holds no checkpoint.")
    if not resume and manager.latest_step() is not None:
        raise SystemExit(
            f"{config.checkpoint} holds checkpoints: give --resume, or another --checkpoint."
        )
    return manager


def save(
    checkpoints: ocp.CheckpointManager, step: int, model, optimizer, loader: jaxaug.Loader
) -> None:
    """Write model, optimizer and the place in the data as one checkpoint."""
    state = nnx.to_pure_dict(nnx.state((model, optimizer)))
    items = {"state": ocp.args.StandardSave(state), "loader": ocp.args.JsonSave(loader.get_state())}
    checkpoints.save(step, args=ocp.args.Composite(**items), force=True)


def restore(checkpoints: ocp.CheckpointManager, model, optimizer, loader: jaxaug.Loader) -> None:
    """Restore the newest checkpoint into the given objects."""
    state = nnx.state((model, optimizer))
    items = {
        "state": ocp.args.StandardRestore(nnx.to_pure_dict(state)),
        "loader": ocp.args.JsonRestore(),
    }
    restored = checkpoints.restore(checkpoints.latest_step(), args=ocp.args.Composite(**items))
    nnx.replace_by_pure_dict(state, restored["state"])
    nnx.update((model, optimizer), state)
    loader.set_state(restored["loader"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train a residual network on class folders or a data set of TFDS."
    )
    configs.add_arguments(parser)
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    arguments = parser.parse_args()
    train(configs.from_arguments(arguments), arguments.resume)


if __name__ == "__main__":
    main()
