"""Train a small video transformer, over all devices.

python examples/video_classification/train.py               # drawn discs that move
python examples/video_classification/train.py --data videos # videos/train/CLASS, videos/test/CLASS
"""

import argparse
import json
import tempfile
from pathlib import Path

import input as inputs
import jax
import jax.numpy as jnp
import model as models
import optax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import jaxaug


def train(options: argparse.Namespace, data: Path) -> dict:
    """Train and evaluate; return the losses of the epochs and the accuracy."""
    batches = (options.batch_size, options.epochs, options.seed)
    with inputs.train_loader(data / "train", *batches) as loader:
        classes = len(list((data / "train").iterdir()))
        model, optimizer = create(options, classes, options.epochs * len(loader))
        losses = []
        for epoch in range(options.epochs):
            steps = [train_step(model, optimizer, batch) for batch in loader]
            losses.append(float(jnp.mean(jnp.stack(steps))))
            print(f"epoch {epoch + 1:3}  loss {losses[-1]:.3f}", flush=True)

    right = videos = 0
    with inputs.test_loader(data / "test", options.batch_size) as loader:
        for batch in loader:
            right += int(count_right(model, batch))
            videos += int(batch["valid"].sum())
    return {"losses": losses, "accuracy": right / videos, "videos": videos}


def create(
    options: argparse.Namespace, classes: int, steps: int
) -> tuple[models.FactorizedViT, nnx.Optimizer]:
    """Return a new model and its optimizer, replicated over all devices."""
    model = models.FactorizedViT(
        classes,
        frames=inputs.FRAMES,
        side=inputs.SIDE,
        patch=8,
        width=options.width,
        rngs=nnx.Rngs(options.seed),
    )
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, options.learning_rate, max(1, steps // 10), steps
    )
    optimizer = nnx.Optimizer(model, optax.adamw(schedule, weight_decay=1e-3), wrt=nnx.Param)
    replicated = NamedSharding(jaxaug.sharding.batch_sharding().mesh, PartitionSpec())
    for module in (model, optimizer):
        nnx.update(module, jax.device_put(nnx.state(module), replicated))
    return model, optimizer


@nnx.jit
def train_step(model: models.FactorizedViT, optimizer: nnx.Optimizer, batch: dict) -> jax.Array:
    """Make one step on a global batch; return the mean loss."""

    def mean_loss(model: models.FactorizedViT) -> jax.Array:
        logits = model(batch["video"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    loss, gradients = nnx.value_and_grad(mean_loss)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def count_right(model: models.FactorizedViT, batch: dict) -> jax.Array:
    """Return how many valid rows of a batch are classified right."""
    guess = model(batch["video"]).argmax(axis=-1)
    return jnp.sum((guess == batch["label"]) & batch["valid"])


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description="Train a small video transformer.")
    parser.add_argument("--data", type=Path, help="with train/CLASS and test/CLASS; drawn without")
    parser.add_argument("--drawn", type=int, default=60, help="videos drawn of each class")
    parser.add_argument("--width", type=int, default=64, help="of the tokens")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="the highest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="a JSON file to write")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        data = options.data
        if data is None:
            data = Path(folder)
            inputs.draw_videos(data / "train", options.drawn, seed=0)
            inputs.draw_videos(data / "test", max(1, options.drawn // 3), seed=1)
        results = train(options, data)
    print(f"accuracy {results['accuracy']:.3f}  of {results['videos']} videos")
    if options.results:
        options.results.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
