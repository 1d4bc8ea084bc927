"""Segment drawn balls in volumes: patches of NPY files, augmented in one resample.

python examples/volume_segmentation/train.py
"""

import argparse
import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxaug import Loader, augment, decode, iterators
from jaxaug.augment import volume

PATCH = (16, 16, 16)


def drawn_scans(folder: Path, count: int) -> iterators.Arrays:
    """Write scans of balls and their labels; return the source of their files."""
    for number in range(count):
        rng = np.random.default_rng(number)
        z, y, x = np.indices((24, 26, 28))
        center = rng.uniform(9, 16, 3)
        ball = (z - center[0]) ** 2 + (y - center[1]) ** 2 + (x - center[2]) ** 2 < 36
        scan = 0.2 + 0.6 * ball + rng.normal(0, 0.05, ball.shape)
        np.save(folder / f"scan{number:03d}.npy", scan.astype(np.float32))
        np.save(folder / f"labels{number:03d}.npy", ball.astype(np.uint8))
    scans, labels = (sorted(folder.glob(f"{name}*.npy")) for name in ("scan", "labels"))
    return iterators.Arrays({"volume": scans, "labels": labels})


def chain() -> augment.Compose:
    """Return the augmentation: the two spatial ones read the voxels once."""
    return augment.Compose(
        [volume.Flip(), volume.Affine(degrees=15, scale=(0.9, 1.1)), volume.Standardize()]
    )


def loader(source: iterators.Arrays, options: argparse.Namespace) -> Loader:
    """Return patches, drawn from (seed, epoch, record), with their labels."""
    decoders = {
        "volume": decode.Volume(PATCH, window="random"),
        "labels": decode.Volume(of="volume"),
    }
    return Loader(
        source,
        options.batch_size,
        transform=chain(),
        decode=decoders,
        epochs=options.epochs,
        seed=options.seed,
    )


def scores(params: list, volumes: jax.Array) -> jax.Array:
    """Return a score for each voxel, by two convolutions of 3 x 3 x 3."""
    values = volumes[..., None]
    for number, (kernel, bias) in enumerate(params):
        layout = ("NDHWC", "DHWIO", "NDHWC")
        values = jax.lax.conv_general_dilated(
            values, kernel, (1, 1, 1), "SAME", dimension_numbers=layout
        )
        values = values + bias
        values = jax.nn.relu(values) if number + 1 < len(params) else values
    return values[..., 0]


def train(options: argparse.Namespace) -> dict:
    """Train; return the losses of the epochs and the overlap (Dice) of the last one."""
    keys = jax.random.split(jax.random.key(options.seed))
    sides = ((1, 8), (8, 1))
    params = [
        (jax.random.normal(key, (3, 3, 3, *side)) * 0.1, jnp.zeros(side[1]))
        for key, side in zip(keys, sides)
    ]
    optimizer = optax.adam(options.learning_rate)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, batch):
        truth = (batch["labels"] > 0).astype(jnp.float32)

        def mean_loss(params):
            found = scores(params, batch["volume"])
            return optax.sigmoid_binary_cross_entropy(found, truth).mean(), found

        (loss, found), slopes = jax.value_and_grad(mean_loss, has_aux=True)(params)
        updates, state = optimizer.update(slopes, state)
        inside = (found > 0).astype(jnp.float32)
        dice = 2 * (inside * truth).sum() / jnp.maximum(inside.sum() + truth.sum(), 1)
        return optax.apply_updates(params, updates), state, loss, dice

    losses, dice = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        source = drawn_scans(Path(folder), options.scans)
        with loader(source, options) as batches:
            for epoch in range(options.epochs):
                found = []
                for batch in batches:
                    params, state, loss, overlap = step(params, state, batch)
                    found.append((float(loss), float(overlap)))
                loss, dice = np.mean(found, axis=0).tolist()
                losses.append(loss)
                print(f"epoch {epoch + 1:3}  loss {loss:.3f}  Dice {dice:.2f}", flush=True)
    return {"losses": losses, "dice": dice}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scans", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    found = train(options)
    if options.results:
        options.results.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
