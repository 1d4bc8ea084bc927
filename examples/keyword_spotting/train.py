"""Train a small network on spoken digits, over all devices.

python examples/keyword_spotting/train.py                   # drawn tones
python examples/keyword_spotting/train.py --data recordings # DIGIT_SPEAKER_TAKE.wav
"""

import argparse
import json
from pathlib import Path

import input as inputs
import jax
import jax.numpy as jnp
import model as models
import optax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import jaxaug


def train(options: argparse.Namespace) -> dict:
    """Train and evaluate; return the losses of the epochs and the accuracy."""
    files = inputs.recordings(options.data) if options.data else inputs.drawn_tones()
    source = inputs.split(files, options.held_out, test=False)
    with inputs.train_loader(source, options.batch_size, options.epochs, options.seed) as loader:
        model, optimizer = create(options, options.epochs * len(loader))
        losses = []
        for epoch in range(options.epochs):
            steps = [train_step(model, optimizer, batch) for batch in loader]
            losses.append(float(jnp.mean(jnp.stack(steps))))
            print(f"epoch {epoch + 1:3}  loss {losses[-1]:.3f}", flush=True)

    test = inputs.split(files, options.held_out, test=True)
    return {"losses": losses, "accuracy": evaluate(model, test, options), "sounds": len(test)}


def create(options: argparse.Namespace, steps: int) -> tuple[models.Spotter, nnx.Optimizer]:
    """Return a new model and its optimizer, replicated over all devices."""
    rngs = nnx.Rngs(options.seed)
    widths = tuple(options.width * 2**level for level in range(4))
    model = models.Spotter(inputs.DIGITS, widths=widths, rngs=rngs)
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, options.learning_rate, max(1, steps // 20), steps
    )
    optimizer = nnx.Optimizer(model, optax.adamw(schedule, weight_decay=1e-3), wrt=nnx.Param)
    replicated = NamedSharding(jaxaug.sharding.batch_sharding().mesh, PartitionSpec())
    for module in (model, optimizer):
        nnx.update(module, jax.device_put(nnx.state(module), replicated))
    return model, optimizer


@nnx.jit
def train_step(model: models.Spotter, optimizer: nnx.Optimizer, batch: dict) -> jax.Array:
    """Make one step on a global batch; return the mean loss."""

    def mean_loss(model: models.Spotter) -> jax.Array:
        logits = model(batch["audio"], train=True)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return losses.mean()

    loss, gradients = nnx.value_and_grad(mean_loss)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def count_right(model: models.Spotter, batch: dict) -> jax.Array:
    """Return how many valid rows of a batch are classified right."""
    guess = model(batch["audio"], train=False).argmax(axis=-1)
    return jnp.sum((guess == batch["label"]) & batch["valid"])


def evaluate(model: models.Spotter, source: inputs.Renamed, options: argparse.Namespace) -> float:
    """Return the accuracy on a source."""
    with inputs.test_loader(source, options.batch_size) as loader:
        right = sum(int(count_right(model, batch)) for batch in loader)
    return right / len(source)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description="Train a small network on spoken digits.")
    parser.add_argument("--data", type=Path, help="DIGIT_SPEAKER_TAKE.wav; drawn tones without")
    parser.add_argument("--held-out", type=int, default=2, help="takes of each speaker to test on")
    parser.add_argument("--width", type=int, default=24, help="channels of the first convolution")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--learning-rate", type=float, default=5e-3, help="the highest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="a JSON file to write")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    results = train(options)
    print(f"accuracy {results['accuracy']:.3f}  of {results['sounds']} sounds")
    if options.results:
        options.results.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
