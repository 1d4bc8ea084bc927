"""A small convolutional network of features [T, bins], in Flax NNX."""

import jax
import jax.numpy as jnp
from flax import nnx


class Spotter(nnx.Module):
    """Logits of log mel features.

    Args:
      num_classes: of the words.
      widths: channels of the convolutions, each of which halves time and frequency.
      rngs: the source of the parameters.
    """

    def __init__(self, num_classes: int, *, widths: tuple[int, ...], rngs: nnx.Rngs):
        pairs = list(zip((1, *widths), widths))
        self.convs = nnx.List(
            [nnx.Conv(*pair, (3, 3), use_bias=False, rngs=rngs) for pair in pairs]
        )
        self.norms = nnx.List([nnx.BatchNorm(width, momentum=0.9, rngs=rngs) for width in widths])
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.head = nnx.Linear(widths[-1], num_classes, rngs=rngs)

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Return logits [n, num_classes] of features [n, T, bins]."""
        x = x[..., None]
        for conv, norm in zip(self.convs, self.norms):
            x = nnx.relu(norm(conv(x), use_running_average=not train))
            x = nnx.max_pool(x, (2, 2), (2, 2))
        x = jnp.mean(x, axis=(1, 2))
        return self.head(self.dropout(x, deterministic=not train))
