"""ResNet-50 and ViT-B/16 in Flax NNX, and one step of training: what a GPU does beside the input.

References: He et al., "Deep residual learning for image recognition", CVPR 2016, with the stride in
the 3 x 3 convolution as torchvision has it; Dosovitskiy et al., "An image is worth 16 x 16 words",
ICLR 2021.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

CLASSES = 1_000
DTYPE = jnp.bfloat16


class ConvNorm(nnx.Module):
    """A convolution, then batch normalization."""

    def __init__(self, inputs: int, outputs: int, side: int, rngs: nnx.Rngs, stride: int = 1):
        sides, strides = (side, side), (stride, stride)
        self.conv = nnx.Conv(
            inputs, outputs, sides, strides, use_bias=False, dtype=DTYPE, rngs=rngs
        )
        self.norm = nnx.BatchNorm(outputs, momentum=0.9, dtype=DTYPE, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.conv(x))


class Bottleneck(nnx.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, rngs: nnx.Rngs):
        self.first = ConvNorm(inputs, width, 1, rngs)
        self.second = ConvNorm(width, width, 3, rngs, stride)
        self.third = ConvNorm(width, 4 * width, 1, rngs)
        changes = stride > 1 or inputs != 4 * width
        self.shortcut = ConvNorm(inputs, 4 * width, 1, rngs, stride) if changes else None

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.third(nnx.relu(self.second(nnx.relu(self.first(x)))))
        return nnx.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nnx.Module):
    """A residual network of bottlenecks."""

    def __init__(self, blocks: tuple[int, ...], width: int, rngs: nnx.Rngs):
        self.stem = ConvNorm(3, width, 7, rngs, stride=2)
        channels, stages = width, []
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                stages.append(Bottleneck(channels, width << stage, stride, rngs))
                channels = 4 * width << stage
        self.blocks = nnx.List(stages)
        self.head = nnx.Linear(channels, CLASSES, dtype=DTYPE, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.max_pool(nnx.relu(self.stem(x)), (3, 3), (2, 2), padding="SAME")
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=(1, 2)))


class EncoderBlock(nnx.Module):
    """Attention, then two dense layers, each behind a layer normalization."""

    def __init__(self, width: int, heads: int, rngs: nnx.Rngs):
        self.norms = nnx.List([nnx.LayerNorm(width, dtype=DTYPE, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, dtype=DTYPE, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, dtype=DTYPE, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, dtype=DTYPE, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norms[0](x))
        return x + self.down(nnx.gelu(self.up(self.norms[1](x))))


class VisionTransformer(nnx.Module):
    """An encoder over square patches, whose mean is classified."""

    def __init__(self, side: int, patch: int, width: int, depth: int, heads: int, rngs: nnx.Rngs):
        sides = (patch, patch)
        self.patches = nnx.Conv(3, width, sides, sides, padding="VALID", dtype=DTYPE, rngs=rngs)
        count = (side // patch) ** 2
        self.position = nnx.Param(0.02 * jax.random.normal(rngs.params(), (1, count, width)))
        self.blocks = nnx.List([EncoderBlock(width, heads, rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, dtype=DTYPE, rngs=rngs)
        self.head = nnx.Linear(width, CLASSES, dtype=DTYPE, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.patches(x)
        x = x.reshape(len(x), -1, x.shape[-1]) + self.position[...].astype(DTYPE)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(axis=1)))


def make_model(name: str, side: int) -> nnx.Module:
    """Return "resnet50", "vit_b16", or "small", a model for trials without a GPU."""
    rngs = nnx.Rngs(0)
    if name == "vit_b16":
        return VisionTransformer(side, 16, 768, 12, 12, rngs)
    blocks, width = {"resnet50": ((3, 4, 6, 3), 64), "small": ((1, 1), 8)}[name]
    return ResNet(blocks, width, rngs)


def make_step(name: str, side: int) -> tuple[Callable[[Any, Any, Any], tuple[Any, jax.Array]], Any]:
    """Return (state, image, label) -> (state, loss), compiled, and the first state.

    Args:
      name: of `make_model`.
      side: of the images, pixels.
    """
    graph, parameters, rest = nnx.split(make_model(name, side), nnx.Param, ...)
    tx = optax.sgd(0.01, momentum=0.9)

    def mean_loss(parameters, rest, image, label):
        model = nnx.merge(graph, parameters, rest, copy=True)
        logits = model(image).astype(jnp.float32)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, label % CLASSES)
        return losses.mean(), nnx.split(model, nnx.Param, ...)[2]

    def step(state, image, label):
        parameters, rest, momentum = state
        gradient = jax.value_and_grad(mean_loss, has_aux=True)
        (loss, rest), slopes = gradient(parameters, rest, image, label)
        updates, momentum = tx.update(slopes, momentum, parameters)
        return (optax.apply_updates(parameters, updates), rest, momentum), loss

    return jax.jit(step, donate_argnums=0), (parameters, rest, tx.init(parameters))
