"""A small detector of centers in Flax NNX."""

import jax
import jax.numpy as jnp
from flax import nnx

# The share of cells with a box before training, as RetinaNet's bias has it.
_PRIOR = 0.01


class Layer(nnx.Module):
    """A 3x3 convolution, batch normalization, ReLU."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1, rngs: nnx.Rngs):
        self.conv = nnx.Conv(inputs, outputs, (3, 3), strides=stride, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(outputs, momentum=0.9, rngs=rngs)

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        return nnx.relu(self.norm(self.conv(x), use_running_average=not train))


def make_stage(inputs: int, outputs: int, stride: int, *, rngs: nnx.Rngs) -> nnx.List:
    """Return two layers, of which the first strides."""
    first = Layer(inputs, outputs, stride=stride, rngs=rngs)
    return nnx.List([first, Layer(outputs, outputs, rngs=rngs)])


class Detector(nnx.Module):
    """Features of stride 4 that know those of stride 8 and 16, and two heads.

    Args:
      num_classes: of all boxes.
      width: channels of the first layer.
      rngs: the source of the parameters.
    """

    def __init__(self, num_classes: int, *, width: int, rngs: nnx.Rngs):
        first = Layer(3, width, stride=2, rngs=rngs)
        self.stem = nnx.List([first, Layer(width, 2 * width, stride=2, rngs=rngs)])
        stages = (
            (2 * width, 2 * width, 1),
            (2 * width, 4 * width, 2),
            (4 * width, 4 * width, 2),
        )
        self.down = nnx.List([make_stage(*stage, rngs=rngs) for stage in stages])
        coarser = Layer(8 * width, 4 * width, rngs=rngs)
        self.up = nnx.List([coarser, Layer(6 * width, 4 * width, rngs=rngs)])
        bias = nnx.initializers.constant(-jnp.log((1 - _PRIOR) / _PRIOR))
        self.heat = nnx.Conv(4 * width, num_classes, (1, 1), bias_init=bias, rngs=rngs)
        self.distances = nnx.Conv(4 * width, 4, (1, 1), rngs=rngs)

    def __call__(self, x: jax.Array, *, train: bool) -> tuple[jax.Array, jax.Array]:
        """Return logits [n, H / 4, W / 4, classes] and log distances [n, H / 4, W / 4, 4]."""
        for layer in self.stem:
            x = layer(x, train=train)
        scales = []
        for stage in self.down:
            for layer in stage:
                x = layer(x, train=train)
            scales.append(x)

        for layer, finer in zip(self.up, scales[-2::-1]):
            x = jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
            x = layer(jnp.concatenate([x, finer], axis=3), train=train)
        return self.heat(x), self.distances(x)
