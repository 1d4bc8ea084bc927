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


class Detector(nnx.Module):
    """Features of stride 4 that know those of stride 8 and 16, and two heads.

    Args:
      num_classes: of all boxes.
      width: channels of the first layer.
      rngs: the source of the parameters.
    """

    def __init__(self, num_classes: int, *, width: int, rngs: nnx.Rngs):
        self.stem = nnx.List(
            [Layer(3, width, stride=2, rngs=rngs), Layer(width, 2 * width, stride=2, rngs=rngs)]
        )
        down = []
        for outputs in (2 * width, 4 * width, 4 * width):
            inputs = down[-1][1].conv.out_features if down else 2 * width
            stride = 2 if down else 1
            down.append(
                nnx.List(
                    [
                        Layer(inputs, outputs, stride=stride, rngs=rngs),
                        Layer(outputs, outputs, rngs=rngs),
                    ]
                )
            )
        self.down = nnx.List(down)
        self.up = nnx.List(
            [
                Layer(8 * width, 4 * width, rngs=rngs),
                Layer(6 * width, 4 * width, rngs=rngs),
            ]
        )
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
