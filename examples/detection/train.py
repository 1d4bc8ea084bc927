"""Train a small detector on a COCO folder, over all devices.

python examples/shapes.py shapes
python examples/detection/train.py --data shapes --augment ssd
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
from average_precision import Boxes, mean_average_precision
from centers import STRIDE, find_boxes, make_targets
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import jaxaug

MAX_FOUND = 32  # boxes of an image
IOUS = np.arange(0.5, 0.96, 0.05)  # COCO's


def train(options: argparse.Namespace) -> dict:
    """Train and evaluate; return the losses of the epochs and the metrics."""
    source = inputs.open_split(options.data, "train")
    num_classes = len(source.classes)
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
) -> tuple[models.Detector, nnx.Optimizer]:
    """Return a new model and its optimizer, replicated over all devices."""
    model = models.Detector(num_classes, width=options.width, rngs=nnx.Rngs(options.seed))
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, options.learning_rate, max(1, steps // 20), steps
    )
    optimizer = nnx.Optimizer(model, optax.adamw(schedule, weight_decay=1e-4), wrt=nnx.Param)
    replicated = NamedSharding(jaxaug.sharding.batch_sharding().mesh, PartitionSpec())
    for module in (model, optimizer):
        nnx.update(module, jax.device_put(nnx.state(module), replicated))
    return model, optimizer


@nnx.jit
def train_step(model: models.Detector, optimizer: nnx.Optimizer, batch: dict) -> jax.Array:
    """Make one step on a global batch; return its loss."""
    image = batch["image"]
    grid = (image.shape[1] // STRIDE, image.shape[2] // STRIDE)
    num_classes = model.heat.out_features

    def targets_of(boxes: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return make_targets(boxes, labels, grid, num_classes)

    targets = jax.vmap(targets_of)(batch["boxes"], batch["box_labels"])

    def mean_loss(model: models.Detector) -> jax.Array:
        return loss_of(*model(image, train=True), *targets)

    loss, gradients = nnx.value_and_grad(mean_loss)(model)
    optimizer.update(model, gradients)
    return loss


def loss_of(
    logits: jax.Array, distances: jax.Array, heat: jax.Array, true: jax.Array, own: jax.Array
) -> jax.Array:
    """Return the focal loss of the heat and the absolute error of the distances, for each box.

    Reference: Zhou et al., "Objects as Points", 2019, equation 1.
    """
    count = jnp.maximum(own.sum(), 1)
    chance = nnx.sigmoid(logits)
    hit = (1 - chance) ** 2 * nnx.log_sigmoid(logits)
    miss = (1 - heat) ** 4 * chance**2 * nnx.log_sigmoid(-logits)
    focal = -jnp.where(heat == 1, hit, miss).sum() / count
    error = jnp.abs(distances - true).mean(axis=-1)
    return focal + jnp.where(own, error, 0.0).sum() / count


@nnx.jit
def detect(model: models.Detector, image: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return boxes [n, k, 4], scores and labels [n, k] of a batch."""
    logits, distances = model(image, train=False)

    def best(heat: jax.Array, distances: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return find_boxes(heat, distances, MAX_FOUND)

    return jax.vmap(best)(nnx.sigmoid(logits), distances)


def evaluate(model: models.Detector, options: argparse.Namespace, num_classes: int) -> dict:
    """Return the mean average precision on the test split, at IoU 0.5 and over COCO's IoUs."""
    source = inputs.open_split(options.data, "test")
    found, given = [], []
    with inputs.test_loader(source, options.augment, options.size, options.batch_size) as loader:
        for batch in loader:
            boxes, scores, labels = map(np.asarray, detect(model, batch["image"]))
            for row in np.flatnonzero(np.asarray(batch["valid"])):
                found.append(Boxes(boxes[row], labels[row], scores[row]))
                count = int(batch["box_count"][row])
                true = np.asarray(batch["boxes"][row])[:count]
                given.append(Boxes(true, np.asarray(batch["box_labels"][row])[:count]))

    values = [mean_average_precision(found, given, num_classes, least) for least in IOUS]
    return {"ap50": values[0], "ap": float(np.mean(values)), "images": len(found)}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description="Train a small detector.")
    parser.add_argument("--data", type=Path, required=True, help="train/, train.json, test/, ...")
    parser.add_argument("--augment", choices=inputs.AUGMENTATIONS, default="ssd")
    parser.add_argument("--size", type=int, default=96, help="side of the network's input")
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="the highest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="a JSON file to write")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    results = train(options)
    print(f"AP50 {results['ap50']:.3f}  AP {results['ap']:.3f}  of {results['images']} images")
    if options.results:
        options.results.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
