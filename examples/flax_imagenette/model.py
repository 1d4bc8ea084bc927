"""A small residual network in Flax NNX, for images of 32 pixels as well as of 224.

Reference: He et al., "Deep residual learning for image recognition", CVPR 2016; the parameter-light
shortcut (average pooling, then a 1x1 convolution) is that of He et al., "Bag of tricks", CVPR 2019.
"""

import functools

import jax
import jax.numpy as jnp
from flax import nnx


class ConvNorm(nnx.Module):
    """A convolution without bias, then batch normalization over the global batch."""

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int, stride: int = 1, dtype, rngs: nnx.Rngs
    ):
        self.conv = nnx.Conv(
            inputs,
            outputs,
            (kernel, kernel),
            strides=stride,
            use_bias=False,
            kernel_init=nnx.initializers.he_normal(),
            dtype=dtype,
            rngs=rngs,
        )
        self.norm = nnx.BatchNorm(outputs, momentum=0.9, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        return self.norm(self.conv(x), use_running_average=not train)


class Block(nnx.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, dtype, rngs: nnx.Rngs):
        self.stride = stride
        self.first = ConvNorm(inputs, outputs, kernel=3, stride=stride, dtype=dtype, rngs=rngs)
        self.second = ConvNorm(outputs, outputs, kernel=3, dtype=dtype, rngs=rngs)
        same = inputs == outputs and stride == 1
        self.shortcut = (
            None if same else ConvNorm(inputs, outputs, kernel=1, dtype=dtype, rngs=rngs)
        )

    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        y = self.second(nnx.relu(self.first(x, train=train)), train=train)
        if self.stride > 1:
            x = nnx.avg_pool(
                x, (self.stride, self.stride), (self.stride, self.stride), padding="SAME"
            )
        return nnx.relu(y + (x if self.shortcut is None else self.shortcut(x, train=train)))


class ResNet(nnx.Module):
    """ResNet-18 with `blocks=(2, 2, 2, 2)` and `width=64`.

    Args:
      num_classes: length of the logits.
      blocks: residual blocks of each stage.
      width: channels of the first stage.
      image_size: below 96 pixels the stem keeps the resolution, from there on it quarters it.
      dtype: of the computation; parameters, statistics and logits are float32.
      rngs: the source of the parameters.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        blocks: tuple[int, ...],
        width: int,
        image_size: int,
        dtype=jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.large = image_size >= 96
        self.stem = ConvNorm(
            3, width, kernel=3, stride=2 if self.large else 1, dtype=dtype, rngs=rngs
        )
        make_block = functools.partial(Block, dtype=dtype, rngs=rngs)
        layers = []
        inputs = width
        for stage, count in enumerate(blocks):
            outputs = width * 2**stage
            for position in range(count):
                layers.append(
                    make_block(inputs, outputs, stride=2 if stage and not position else 1)
                )
                inputs = outputs
        self.layers = nnx.List(layers)
        self.head = nnx.Linear(inputs, num_classes, rngs=rngs)

    def __call__(self, image: jax.Array, *, train: bool) -> jax.Array:
        """Return logits float32[n, num_classes] of normalized images [n, size, size, 3]."""
        x = nnx.relu(self.stem(image, train=train))
        if self.large:
            x = nnx.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for layer in self.layers:
            x = layer(x, train=train)
        return self.head(x.mean(axis=(1, 2)).astype(jnp.float32))
