"""Train a small U-Net on images with masks, over all devices.

python examples/shapes.py shapes
python examples/segmentation/train.py --data shapes
"""

import argparse
import json
from pathlib import Path

import input as inputs
import jax
import jax.numpy as jnp
import model as models
import numpy as np
import optax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import jaxaug


def train(options: argparse.Namespace) -> dict:
    """Train and evaluate; return the losses of the epochs and the metrics."""
    source = inputs.open_split(options.data, "train")
    num_classes = inputs.count_classes(options.data, "train")
    with inputs.train_loader(
        source, options.augment, options.size, options.batch_size, options.epochs, options.seed
    ) as loader:
        model, optimizer = create(options, num_classes, options.epochs * len(loader))
        losses = []
        for epoch in range(options.epochs):
            steps = [train_step(model, optimizer, batch) for batch in loader]
            losses.append(float(jnp.mean(jnp.stack(steps))))
            print(f"epoch {epoch + 1:3}  loss {losses[-1]:.3f}", flush=True)

    return {"losses": losses, **evaluate(model, options, num_classes)}


def create(
    options: argparse.Namespace, num_classes: int, steps: int
) -> tuple[models.UNet, nnx.Optimizer]:
    """Return a new model and its optimizer, replicated over all devices."""
    rngs = nnx.Rngs(options.seed)
    model = models.UNet(num_classes, width=options.width, levels=options.levels, rngs=rngs)
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, options.learning_rate, max(1, steps // 20), steps
    )
    optimizer = nnx.Optimizer(model, optax.adamw(schedule, weight_decay=1e-4), wrt=nnx.Param)
    replicated = NamedSharding(jaxaug.sharding.batch_sharding().mesh, PartitionSpec())
    for module in (model, optimizer):
        nnx.update(module, jax.device_put(nnx.state(module), replicated))
    return model, optimizer


@nnx.jit
def train_step(model: models.UNet, optimizer: nnx.Optimizer, batch: dict) -> jax.Array:
    """Make one step on a global batch; return the mean loss of the pixels that count."""
    mask = batch["mask"].astype(jnp.int32)
    counts = mask != inputs.IGNORED

    def mean_loss(model: models.UNet) -> jax.Array:
        logits = model(batch["image"], train=True)
        labels = jnp.where(counts, mask, 0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return jnp.where(counts, losses, 0.0).sum() / jnp.maximum(counts.sum(), 1)

    loss, gradients = nnx.value_and_grad(mean_loss)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def count_pixels(model: models.UNet, batch: dict) -> jax.Array:
    """Return the confusion matrix int32[classes, classes]: rows are true classes."""
    logits = model(batch["image"], train=False)
    classes = logits.shape[-1]
    mask = batch["mask"].astype(jnp.int32)
    # What does not count goes to a cell beyond the matrix.
    cell = jnp.where(mask != inputs.IGNORED, mask * classes + logits.argmax(axis=-1), classes**2)
    return jnp.bincount(cell.ravel(), length=classes**2 + 1)[:-1].reshape(classes, classes)


def intersection_over_union(confusion: np.ndarray) -> np.ndarray:
    """Return the IoU of each class, of a confusion matrix."""
    right = np.diag(confusion).astype(np.float64)
    either = confusion.sum(axis=0) + confusion.sum(axis=1) - right
    return right / np.maximum(either, 1)


def evaluate(model: models.UNet, options: argparse.Namespace, num_classes: int) -> dict:
    """Return the IoU of each class on the test split, and their mean."""
    source = inputs.open_split(options.data, "test")
    confusion = np.zeros((num_classes, num_classes), np.int64)
    with inputs.test_loader(source, options.size, options.batch_size) as loader:
        for batch in loader:
            confusion += np.asarray(count_pixels(model, batch))
    values = intersection_over_union(confusion)
    return {"iou": values.tolist(), "mean_iou": float(values.mean()), "images": len(source)}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description="Train a small U-Net.")
    parser.add_argument("--data", type=Path, required=True, help="train/, train_masks/, test/, ...")
    parser.add_argument("--augment", choices=inputs.AUGMENTATIONS, default="scale")
    parser.add_argument("--size", type=int, default=96, help="side of the crops")
    parser.add_argument("--width", type=int, default=16, help="channels of the finest level")
    parser.add_argument("--levels", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="the highest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="a JSON file to write")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    results = train(options)
    print(f"mean IoU {results['mean_iou']:.3f}  of {results['images']} images")
    if options.results:
        options.results.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
