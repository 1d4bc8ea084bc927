"""Values of voxels: windows, levels, histograms, gamma, bias fields, noise, boxes."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxaug._typing import Key, Scalar
from jaxaug.augment._base import (
    LARGEST,
    Converter,
    Flag,
    Range,
    SymmetricRange,
    UnitRange,
    VolumeInfo,
    as_int,
    as_int_range,
    as_number,
    as_range_of,
)
from jaxaug.augment._cuda import choice
from jaxaug.augment._xla import barrier, exact_sum
from jaxaug.augment.matrix import is_static
from jaxaug.augment.random import integers, normal_field, uniform
from jaxaug.augment.volume._kind import Intensity

_SILENT = 1e-12  # of a deviation: below it a volume is one value


@dataclass(frozen=True)
class Window(Intensity):
    """Bring the values of a window to [0, 1], and clip the others: (v - low) / (high - low).

    Args:
      low, high: in the units of the volume, such as -160 and 240 Hounsfield units for soft tissue.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Window(-100.0, 100.0)(jax.random.key(0), jnp.array([[[-999, 0, 50]]])).tolist()
      [[[0.0, 0.5, 0.75]]]

    Reference: `monai.transforms.ScaleIntensityRange`, `torchio.RescaleIntensity`.
    """

    low: Annotated[Scalar, Converter(as_number, -LARGEST, LARGEST)]
    high: Annotated[Scalar, Converter(as_number, -LARGEST, LARGEST)]

    def __post_init__(self):
        super().__post_init__()
        if is_static(self.low) and is_static(self.high) and self.high <= self.low:
            raise ValueError(
                f"`low` of Window must be below `high`, got {self.low} and {self.high}."
            )

    def apply(self, params: None, volume: Array, info: VolumeInfo) -> Array:
        """Return the values of the window."""
        return jnp.clip((volume - self.low) / (self.high - self.low), 0.0, 1.0)


@dataclass(frozen=True)
class Standardize(Intensity):
    """Bring every volume to a mean of 0 and a standard deviation of 1; of channels, each.

    Voxels that are NaN or infinite are not counted, and stay.

    Args:
      nonzero: True takes the mean and the deviation of the voxels that are not 0, and leaves the
        others 0: those of a head without the air about it.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Standardize()(jax.random.key(0), jnp.array([[[1.0, 3.0]]])).tolist()
      [[[-1.0, 1.0]]]

    Reference: `monai.transforms.NormalizeIntensity`, `torchio.ZNormalization`.
    """

    nonzero: Flag = False

    def apply(self, params: None, volume: Array, info: VolumeInfo) -> Array:
        """Return the standardized volume."""
        if volume.ndim == 3:
            return self._standardized(volume)
        return jnp.stack([self._standardized(volume[..., c]) for c in range(volume.shape[3])], 3)

    def _standardized(self, volume: Array) -> Array:
        finite = jnp.isfinite(volume)
        counted = finite & (volume != 0) if self.nonzero else finite
        share = _mean(counted.astype(jnp.float32))
        mean = _mean(jnp.where(counted, volume, 0.0)) / jnp.maximum(share, _SILENT)
        centered = jnp.where(counted, volume - mean, 0.0)
        variance = _mean(centered * centered) / jnp.maximum(share, _SILENT)
        varies = variance > _SILENT**2
        # The slope of a root at 0 is infinite: it is taken where there is a deviation alone.
        deviation = jnp.sqrt(jnp.where(varies, variance, 1.0))
        return jnp.where(finite, jnp.where(varies, centered / deviation, 0.0), volume)


@dataclass(frozen=True)
class Equalize(Intensity):
    """Bring the values to [0, 1] by their ranks: the histogram becomes flat; of channels, each.

    The range of the values is cut into `bins`. The center of each becomes its share in the order of
    the voxels, (n - n0) / (N - n0) of those up to it, with n0 in the first of N, and between two
    centers it is linear. A volume of one value becomes 0. Voxels that are NaN or infinite are not
    counted, and stay.

    Args:
      bins: of the histogram, at least 2.
      nonzero: True counts the voxels that are not 0, and leaves the others 0: those of a head
        without the air about it.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> volume = jnp.array([[[0.0, 1.05, 10.05, 100.0]]])  # between edges of bins
      >>> equalized = Equalize(1000)(jax.random.key(0), volume)
      >>> [round(value, 2) for value in equalized.ravel().tolist()]
      [0.0, 0.33, 0.67, 1.0]

    Reference: `monai.transforms.HistogramNormalize`; `kornia.enhance.equalize3d` on 256 levels.
    """

    bins: Annotated[int, Converter(as_int, 2)] = 256
    nonzero: Flag = False
    _: KW_ONLY
    p: float = 1.0

    def apply(self, params: None, volume: Array, info: VolumeInfo) -> Array:
        """Return the ranks."""
        if volume.ndim == 3:
            return self._equalized(volume)
        return jnp.stack([self._equalized(volume[..., c]) for c in range(volume.shape[3])], 3)

    def _equalized(self, volume: Array) -> Array:
        finite = jnp.isfinite(volume)
        counted = finite & (volume != 0) if self.nonzero else finite
        low = lax.stop_gradient(jnp.min(jnp.where(counted, volume, jnp.inf)))
        high = lax.stop_gradient(jnp.max(jnp.where(counted, volume, -jnp.inf)))
        varies = high > low
        width = jnp.where(varies, high - low, 1.0) / self.bins
        place = jnp.where(varies, (volume - low) / width, 0.0)
        index = lax.stop_gradient(jnp.clip(jnp.floor(place), 0, self.bins - 1)).astype(jnp.int32)
        index = jnp.where(counted, index, self.bins)
        counts = choice.on_gpu(_counts_sorted, _counts_added, index, self.bins)
        ranks = jnp.cumsum(counts, dtype=jnp.int32) - counts[0]
        shares = ranks.astype(jnp.float32) / jnp.maximum(ranks[-1], 1).astype(jnp.float32)
        equalized = jnp.where(counted, _between_bins(barrier(shares), place - 0.5), 0.0)
        return jnp.where(finite, jnp.where(varies, equalized, 0.0), volume)


def _counts_added(index: Array, bins: int) -> Array:
    """Return int32[bins], how many numbers of `index` are each of 0, ..., bins - 1."""
    return jnp.zeros(bins, jnp.int32).at[index.ravel()].add(1, mode="drop")


def _counts_sorted(index: Array, bins: int) -> Array:
    """Return what `_counts_added` does; on GPUs XLA adds one number after the other there."""
    edges = jnp.arange(bins + 1, dtype=jnp.int32)
    return jnp.diff(jnp.searchsorted(jnp.sort(index.ravel()), edges)).astype(jnp.int32)


def _between_bins(table: Array, place: Array) -> Array:
    """Return the entries of a table at places between them, those of its ends beyond."""
    last = table.shape[0] - 1
    place = barrier(jnp.clip(place, 0.0, last))
    first = jnp.minimum(lax.stop_gradient(jnp.floor(place)), last - 1)
    index = first.astype(jnp.int32)
    before, behind = (jnp.take(table, index + k, mode="clip") for k in range(2))
    return before + (place - first) * (behind - before)


@dataclass(frozen=True)
class Gamma(Intensity):
    """Raise the values of [0, 1] to a random power; negative ones keep their sign.

    Args:
      gamma: (low, high), above 0, or one number; below 1 dark values become lighter.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Gamma((2.0, 2.0))(jax.random.key(0), jnp.array([[[0.5, -0.5]]])).round(4).tolist()
      [[[0.25, -0.25]]]

    Reference: `torchio.RandomGamma`, there by the logarithm of gamma.
    """

    gamma: Annotated[Range, Converter(as_range_of, 1e-3)] = (0.74, 1.35)
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> Array:
        """Draw the power."""
        return uniform(key, *self.gamma)

    def apply(self, params: Array, volume: Array, info: VolumeInfo) -> Array:
        """Return the powers."""
        size = jnp.abs(volume)
        power = jnp.exp(params * jnp.log(jnp.where(size > 0, size, 1.0)))
        return jnp.where(size > 0, jnp.sign(volume) * power, size)  # 0, or no number


@dataclass(frozen=True)
class BiasField(Intensity):
    """Multiply the volume by the exponential of a random polynomial, as the coils of an MRI do.

    The polynomial sum c_ijk z^i y^j x^k, i + j + k <= order, is of places in [-1, 1], the corner
    voxels at its ends; of channels all have one field.

    Args:
      coefficients: v, of which each c is uniform on [-v, v], or a pair (low, high).
      order: of the polynomial.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> BiasField()(jax.random.key(0), jnp.ones((4, 5, 6))).shape
      (4, 5, 6)

    Reference: K. Van Leemput et al., "Automated model-based tissue classification of MR images of
      the brain", 1999; `torchio.RandomBiasField`.
    """

    coefficients: SymmetricRange = 0.5
    order: Annotated[int, Converter(as_int, 0)] = 3
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> Array:
        """Draw the coefficients, float32[n], in the order of (i, j, k)."""
        return uniform(key, *self.coefficients, shape=(len(self._powers()),))

    def apply(self, params: Array, volume: Array, info: VolumeInfo) -> Array:
        """Multiply by the field."""
        lines = []
        for axis in range(3):
            line = np.linspace(-1, 1, volume.shape[axis], dtype=np.float64)
            along = [1, 1, 1]
            along[axis] = -1
            lines.append(
                [(line**n).astype(np.float32).reshape(along) for n in range(self.order + 1)]
            )
        # Horner-like: what depends on x alone is summed first, on lines.
        total = jnp.zeros((), jnp.float32)
        for i in range(self.order + 1):
            plane = jnp.zeros((1, 1, 1), jnp.float32)
            for j in range(self.order + 1 - i):
                row = jnp.zeros((1, 1, 1), jnp.float32)
                for k in range(self.order + 1 - i - j):
                    row = row + params[self._powers().index((i, j, k))] * lines[2][k]
                plane = plane + row * lines[1][j]
            total = total + plane * lines[0][i]
        bias = jnp.exp(total)
        return volume * (bias if volume.ndim == 3 else bias[..., None])

    def _powers(self) -> list[tuple[int, int, int]]:
        top = range(self.order + 1)
        return [(i, j, k) for i in top for j in top for k in top if i + j + k <= self.order]


class NoiseDraw(NamedTuple):
    """Drawn parameters of noise: the key of its voxels, and the standard deviation."""

    key: Key
    sigma: Array


@dataclass(frozen=True)
class Noise(Intensity):
    """Add normal numbers to each value, or, of a magnitude in MRI, make it Rician.

    Args:
      sigma: (low, high), at least 0, the range of the standard deviation; one number for both.
      rician: True takes sqrt((v + a)^2 + b^2) with a and b normal, False v + a.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> Noise(0.1)(jax.random.key(0), jnp.zeros((4, 5, 6))).shape
      (4, 5, 6)

    Reference: `monai.transforms.RandGaussianNoise`, `torchio.RandomNoise`.
    """

    sigma: Annotated[Range, Converter(as_range_of, 0.0)] = (0.0, 0.1)
    rician: Flag = False
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> NoiseDraw:
        """Draw the key of the voxels and the standard deviation."""
        voxels, size = jax.random.split(key)
        return NoiseDraw(voxels, uniform(size, *self.sigma))

    def apply(self, params: NoiseDraw, volume: Array, info: VolumeInfo) -> Array:
        """Add the noise."""
        if not self.rician:
            return volume + params.sigma * _normal(params.key, volume.shape)
        first, second = jax.random.split(params.key)
        real = volume + params.sigma * _normal(first, volume.shape)
        square = real * real + (params.sigma * _normal(second, volume.shape)) ** 2
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


class DropoutDraw(NamedTuple):
    """Drawn parameters of `CoarseDropout`: how many, int32; first voxels and sides, int32[n, 3]."""

    holes: Array
    first: Array
    size: Array


@dataclass(frozen=True)
class CoarseDropout(Intensity):
    """Fill random boxes of the volume; labels are left.

    Args:
      holes: (low, high), or one int: how many boxes.
      size: (low, high), the range of each side, as a share of the volume's; at least one voxel.
      fill: in the units of the volume.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> out = CoarseDropout(1, (0.5, 0.5))(jax.random.key(0), jnp.ones((4, 6, 8)))
      >>> float(out.sum())  # without 2 x 3 x 4 voxels
      168.0

    Reference: `albumentations.CoarseDropout3D`, `monai.transforms.RandCoarseDropout`.
    """

    holes: Annotated[Any, Converter(as_int_range, 0)] = (1, 3)
    size: UnitRange = (0.1, 0.2)
    fill: Annotated[Scalar, Converter(as_number, -LARGEST, LARGEST)] = 0.0
    _: KW_ONLY
    p: float = 1.0

    def make_params(self, key: Key, info: VolumeInfo) -> DropoutDraw:
        """Draw the number of boxes, their sides and their places."""
        keys = jax.random.split(key, 3)
        low, high = self.holes
        sides = jnp.asarray([info.shape], jnp.int32)
        share = uniform(keys[1], *self.size, shape=(high, 3))
        size = jnp.clip(jnp.round(share * sides.astype(jnp.float32)).astype(jnp.int32), 1, sides)
        first = integers(keys[2], 0, sides - size + 1, (high, 3))
        return DropoutDraw(holes=integers(keys[0], low, high + 1), first=first, size=size)

    def apply(self, params: DropoutDraw, volume: Array, info: VolumeInfo) -> Array:
        """Return the volume with its boxes filled."""
        filled = jnp.zeros(volume.shape[:3], bool)
        for number in range(self.holes[1]):
            inside = jnp.asarray(number < params.holes)
            for axis in range(3):
                line = jnp.arange(volume.shape[axis]) - params.first[number, axis]
                within = (line >= 0) & (line < params.size[number, axis])
                inside = inside & within.reshape([-1 if each == axis else 1 for each in range(3)])
            filled = filled | inside
        filled = filled.reshape(filled.shape + (1,) * (volume.ndim - 3))
        return jnp.where(filled, self.fill, volume)


def _mean(volume: Array) -> Array:
    """Return the mean, the same for any size of a batch: sums in fixed point, slice by slice."""
    largest = lax.stop_gradient(jnp.maximum(jnp.max(jnp.abs(volume)), 1e-30))
    depth, height, width = volume.shape
    sums = jax.vmap(exact_sum)(volume / largest) / (height * width)
    return exact_sum(sums[None]) / depth * largest


def _normal(key: Key, shape: tuple[int, ...]) -> Array:
    """Return normal numbers for voxels."""
    depth, height, *rest = shape
    return normal_field(key, (depth * height, *rest)).reshape(shape)
