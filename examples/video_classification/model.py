"""A factorized vision transformer in Flax NNX: space within frames, then time over frames.

Reference: Arnab et al., "ViViT: A Video Vision Transformer", 2021, model 2.
"""

import jax
import jax.numpy as jnp
from flax import nnx


class Block(nnx.Module):
    """A layer of a transformer, with normalization before each half."""

    def __init__(self, width: int, heads: int, *, rngs: nnx.Rngs):
        self.before = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.between = nnx.LayerNorm(width, rngs=rngs)
        self.wide = nnx.Linear(width, 4 * width, rngs=rngs)
        self.narrow = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return [n, tokens, width] of as much."""
        x = x + self.attention(self.before(x))
        return x + self.narrow(nnx.gelu(self.wide(self.between(x))))


class FactorizedViT(nnx.Module):
    """Logits of clips.

    Args:
      num_classes: of the videos.
      frames, side, patch: of the clips, in frames and pixels.
      width, heads, depth: of the tokens, and layers of either transformer.
      rngs: the source of the parameters.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        frames: int,
        side: int,
        patch: int,
        width: int,
        heads: int = 4,
        depth: int = 2,
        rngs: nnx.Rngs,
    ):
        size = (2, patch, patch)  # tubelets: motion shows within one
        self.tubelets = nnx.Conv(3, width, size, size, padding="VALID", rngs=rngs)
        scale = nnx.initializers.normal(0.02)
        tokens = (side // patch) ** 2
        self.places = nnx.Param(scale(rngs.params(), (tokens, width)))
        self.times = nnx.Param(scale(rngs.params(), (frames // 2, tokens, width)))
        self.space = nnx.List([Block(width, heads, rngs=rngs) for _ in range(depth)])
        self.time = nnx.List([Block(width, heads, rngs=rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, num_classes, rngs=rngs)

    def __call__(self, video: jax.Array) -> jax.Array:
        """Return logits [n, num_classes] of clips [n, T, h, w, 3] in [0, 1]."""
        x = self.tubelets(video - 0.5)
        count, frames = x.shape[:2]
        x = x.reshape(count * frames, -1, x.shape[-1]) + self.places[...][None]
        for block in self.space:
            x = block(x)
        weights = self.times[...][None]  # where a frame is looked at, and when
        x = x.reshape(count, frames, *x.shape[1:]) * (1 + weights) + weights
        x = jnp.mean(x, axis=2)
        for block in self.time:
            x = block(x)
        return self.head(self.norm(jnp.mean(x, axis=1)))
