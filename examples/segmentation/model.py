"""A small U-Net in Flax NNX. Reference: Ronneberger et al., "U-Net", 2015."""

import jax
import jax.numpy as jnp
from flax import nnx


class Pair(nnx.Module):
    """Two 3x3 convolutions, each with batch normalization and ReLU."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        self.convs = nnx.List(
            [
                nnx.Conv(inputs, outputs, (3, 3), use_bias=False, rngs=rngs),
                nnx.Conv(outputs, outputs, (3, 3), use_bias=False, rngs=rngs),
            ]
        )
        norms = [nnx.BatchNorm(outputs, momentum=0.9, rngs=rngs) for _ in range(2)]
        self.norms = nnx.List(norms)

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        for conv, norm in zip(self.convs, self.norms):
            x = nnx.relu(norm(conv(x), use_running_average=not train))
        return x


class UNet(nnx.Module):
    """Logits for each pixel of images whose sides are multiples of 2 ** (levels - 1).

    Args:
      num_classes: the background included.
      width: channels of the finest level; each coarser one has twice as many.
      levels: of resolution.
      rngs: the source of the parameters.
    """

    def __init__(self, num_classes: int, *, width: int, levels: int, rngs: nnx.Rngs):
        widths = [width * 2**level for level in range(levels)]
        self.down = nnx.List(
            [Pair(*pair, rngs=rngs) for pair in zip([3, *widths[:-1]], widths, strict=True)]
        )
        finer = widths[-2::-1]
        self.up = nnx.List([Pair(3 * own, own, rngs=rngs) for own in finer])
        self.head = nnx.Conv(width, num_classes, (1, 1), rngs=rngs)

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Return logits [n, H, W, num_classes] of normalized images."""
        kept = []
        for pair in self.down:
            if kept:
                x = nnx.max_pool(x, (2, 2), (2, 2))
            x = pair(x, train=train)
            kept.append(x)

        for pair, finer in zip(self.up, kept[-2::-1], strict=True):
            x = jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
            x = pair(jnp.concatenate([x, finer], axis=3), train=train)
        return self.head(x)
