"""Classify land cover from drawn scenes of 13 bands, 16 bits each, as GeoTIFF has them.

python examples/land_cover/train.py
"""

import argparse
import io
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tifffile

from jaxaug import Loader, augment, decode, iterators

BANDS, SIDE, COVERS = 13, 24, 4


def drawn_scenes(count: int, seed: int) -> iterators.InMemory:
    """Return scenes of four covers: each reflects the bands in its own way, with some texture."""
    spectra = np.random.default_rng(0).uniform(1000, 4000, (COVERS, BANDS))
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % COVERS
    files = []
    for label in labels:
        light = rng.uniform(0.6, 1.4)  # one band alone tells nothing
        scene = light * spectra[label] + rng.normal(0, 300, (SIDE, SIDE, BANDS))
        file = io.BytesIO()
        bands = scene.clip(0, 65535).astype(np.uint16)
        tifffile.imwrite(file, bands, photometric="minisblack", planarconfig="contig")
        files.append(file.getvalue())
    return iterators.InMemory(files, {"label": labels.astype(np.int32)})


def chain() -> augment.Compose:
    """Return the augmentation; `python -m jaxaug statistics` gives the numbers for `Normalize`."""
    return augment.Compose(
        [
            augment.RandomHorizontalFlip(),
            augment.RandomVerticalFlip(),
            augment.ChannelDropout((1, 2), p=0.2),
            augment.Normalize([0.038] * BANDS, [0.02] * BANDS),
        ]
    )


def loader(source: iterators.InMemory, options: argparse.Namespace) -> Loader:
    """Return batches at full depth: no number passes through 8 bits."""
    image = decode.Image(canvas=(SIDE, SIDE), channels=BANDS, dtype="uint16")
    return Loader(
        source,
        options.batch_size,
        transform=chain(),
        decode={"image": image},
        epochs=options.epochs,
        seed=options.seed,
    )


def logits(params: dict, images: jax.Array) -> jax.Array:
    """Return a score for each cover, from the mean spectrum of a scene."""
    hidden = jax.nn.relu(images.mean(axis=(1, 2)) @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def train(options: argparse.Namespace) -> dict:
    """Train; return the losses of the epochs and the accuracy of the last one."""
    first, second = jax.random.split(jax.random.key(options.seed))
    params = {
        "w1": jax.random.normal(first, (BANDS, 32)) * 0.3,
        "b1": jnp.zeros(32),
        "w2": jax.random.normal(second, (32, COVERS)) * 0.2,
        "b2": jnp.zeros(COVERS),
    }
    optimizer = optax.adam(options.learning_rate)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, batch):
        def mean_loss(params):
            scores = logits(params, batch["image"])
            losses = optax.softmax_cross_entropy_with_integer_labels(scores, batch["label"])
            return losses.mean(), (scores.argmax(-1) == batch["label"]).mean()

        (loss, right), slopes = jax.value_and_grad(mean_loss, has_aux=True)(params)
        updates, state = optimizer.update(slopes, state)
        return optax.apply_updates(params, updates), state, loss, right

    losses, accuracy = [], 0.0
    with loader(drawn_scenes(options.scenes, seed=1), options) as batches:
        for epoch in range(options.epochs):
            found = []
            for batch in batches:
                params, state, loss, right = step(params, state, batch)
                found.append((float(loss), float(right)))
            loss, accuracy = np.mean(found, axis=0).tolist()
            losses.append(loss)
            print(f"epoch {epoch + 1:3}  loss {loss:.3f}  accuracy {accuracy:.2f}", flush=True)
    return {"losses": losses, "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    found = train(options)
    if options.results:
        options.results.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
