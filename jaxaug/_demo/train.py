"""A small convolutional network in Flax, trained from one Loader and evaluated on another."""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug._demo.progress import progress
from jaxaug.iterators import Loader
from jaxaug.sharding import batch_sharding

_LAYERS = ((32, 2), (64, 2), (128, 2), (256, 1))  # (channels, stride) of each 3x3 convolution
_LEARNING_RATE = 4e-3


class Result(NamedTuple):
    """The result of an epoch.

    Attributes:
      epoch: its number, from 1.
      loss: the mean over its batches.
      accuracy: the share of the validation images that are classified correctly.
    """

    epoch: int
    loss: float
    accuracy: float


class Net(nnx.Module):
    """Four normalized convolutions, mean and maximum over the plane, and a linear layer."""

    def __init__(self, num_classes: int, rngs: nnx.Rngs):
        inputs = [3] + [channels for channels, _ in _LAYERS]
        self.convs = nnx.List(
            nnx.Conv(inputs[k], channels, (3, 3), strides=stride, use_bias=False, rngs=rngs)
            for k, (channels, stride) in enumerate(_LAYERS)
        )
        self.norms = nnx.List(
            nnx.BatchNorm(channels, momentum=0.9, rngs=rngs) for channels, _ in _LAYERS
        )
        self.head = nnx.Linear(2 * inputs[-1], num_classes, rngs=rngs)

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Return logits [n, num_classes] of normalized images [n, H, W, 3]."""
        for conv, norm in zip(self.convs, self.norms):
            x = nnx.relu(norm(conv(x), use_running_average=not train))
        return self.head(jnp.concatenate([x.mean(axis=(1, 2)), x.max(axis=(1, 2))], axis=-1))


def train(
    train_loader: Loader, val_loader: Loader, num_classes: int, epochs: int
) -> Iterator[Result]:
    """Train a new network and yield a result after each epoch.

    Args:
      train_loader: endless, or of at least `epochs` epochs.
      val_loader: endless; `last_batch="pad"`, so that every image counts once.
      num_classes: labels are below it.
      epochs: epochs to train.
    """
    model = Net(num_classes, nnx.Rngs(0))
    schedule = optax.cosine_onecycle_schedule(max(2, epochs * len(train_loader)), _LEARNING_RATE)
    optimizer = nnx.Optimizer(model, optax.adamw(schedule, weight_decay=0.02), wrt=nnx.Param)
    replicated = NamedSharding(batch_sharding().mesh, PartitionSpec())
    for module in (model, optimizer):
        nnx.update(module, jax.device_put(nnx.state(module), replicated))

    for epoch in range(1, epochs + 1):
        batches = progress(train_loader, f"epoch {epoch} of {epochs}", len(train_loader))
        losses = [_step(model, optimizer, b["image"], b["label"], b["valid"]) for b in batches]
        counts = [_count(model, b["image"], b["label"], b["valid"]) for b in val_loader]
        correct, total = (int(sum(column)) for column in zip(*counts))
        yield Result(epoch, float(sum(losses)) / len(losses), correct / total)


@nnx.jit
def _step(
    model: Net, optimizer: nnx.Optimizer, image: jax.Array, label: jax.Array, valid: jax.Array
) -> jax.Array:
    """Make one step; return the loss before it, the mean over valid images."""

    def mean_loss(model):
        logits = model(image, train=True)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, label)
        return jnp.where(valid, losses, 0.0).sum() / jnp.maximum(valid.sum(), 1)

    loss, gradients = nnx.value_and_grad(mean_loss)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def _count(
    model: Net, image: jax.Array, label: jax.Array, valid: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the number of valid images that are classified correctly, and of valid images."""
    correct = (model(image, train=False).argmax(axis=-1) == label) & valid
    return correct.sum(), valid.sum()
