"""Policies: random operations at set strengths, drawn anew for each image.

Geometric operations move masks, boxes and keypoints along. An operation costs one resample and one
pass, whichever it is. Values stay float32 from one operation to the next.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import (
    PADDING_MODES,
    Color,
    Converter,
    Drawn,
    Flag,
    ImageInfo,
    Interpolation,
    PositiveInt,
    as_choice,
    as_int,
    as_number,
    as_optional,
    setting,
)
from jaxaug.augment._chain import Geometric, ImageOp, RandomChoice, Transform
from jaxaug.augment._ops.blur import GaussianBlur
from jaxaug.augment._ops.color import Grayscale
from jaxaug.augment._ops.policy_slot import Slot, only_where, picked, slot_color, slot_of, slot_warp
from jaxaug.augment._ops.policy_tables import (
    AUGMIX,
    AUGMIX_PARTIAL,
    AUTO_AUGMENT,
    RAND_AUGMENT,
    RAND_AUGMENT_TIMM,
    SUB_POLICIES,
    TRIVIAL_AUGMENT_WIDE,
    Space,
    rand_augment_big_vision,
)
from jaxaug.augment._ops.tone import RandomSolarize
from jaxaug.augment._warp import Resampling, Warp, in_range, resample
from jaxaug.augment._xla import barrier
from jaxaug.augment.matrix import is_static
from jaxaug.augment.random import beta, dirichlet, integer, uniform

_BINS = 10  # of AutoAugment and AugMix
_STRENGTH = 10  # the magnitude of timm and big_vision that is strength 1
_LARGEST = {"timm": 10, "big_vision": 20}
_VARIANTS = ("torchvision", "timm", "big_vision")
_TIMM_PROBABILITY = 0.5  # of each operation
_MIN_ALPHA = 1e-2
_MAX_ALPHA = 1e3
_MAX_DEPTH = 3


def _as_magnitude(name: str, value: Any) -> Any:
    """Return the bin of torchvision, or the number of others: their bounds differ."""
    return setting(value)


@dataclass(frozen=True)
class Policy(Transform):
    """Operations one after the other; a subclass draws them as a `Slot` of arrays [n].

    Args:
      interpolation: "bilinear", "bicubic" or "nearest".
      fill: the color beyond the image in [0, 1], a number or one per channel.
    """

    channels = 3
    eight_bits = True
    _: KW_ONLY
    interpolation: Interpolation = "nearest"
    fill: Color = 0.0

    @property
    def space(self) -> Space:
        """The operations that it draws from."""
        raise NotImplementedError(type(self).__name__)

    def steps(self, drawn: Drawn) -> Iterator[tuple[Transform, Drawn]]:
        """Yield a map and a change of the values for each operation."""
        codes, magnitudes = drawn.params
        for slot in [Slot(codes[i], magnitudes[i]) for i in range(codes.shape[0])]:
            yield _Moved(self), Drawn(slot)
            yield _Recolored(self), Drawn(slot)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operations."""
        return tuple(operation.name for operation in self.space)


@dataclass(frozen=True)
class RandAugment(Policy):
    """Apply `num_ops` random operations, all of one magnitude.

    Args:
      num_ops: how many, drawn with replacement.
      magnitude: "torchvision": the bin, an int from 0 to num_magnitude_bins - 1; "timm": a number
        in [0, 10]; "big_vision": a number in [0, 20].
      num_magnitude_bins: the bins of "torchvision".
      variant: "torchvision", with 14 operations; "timm", with 15 of its increasing ones, each
        applied with probability 1/2 (rand-m9-inc1); or "big_vision", with 15 of its 16: without
        Cutout, which `recipes.augreg_train` adds.
      magnitude_std: of "timm": the standard deviation of the magnitude, which is then cut off to
        [0, 10].
      interpolation: "bilinear", "bicubic" or "nearest".
      fill: the color beyond the image in [0, 1], a number or one per channel; timm's is the mean of
        the dataset.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> RandAugment()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: E. D. Cubuk et al., "RandAugment: Practical automated data augmentation with a
      reduced search space", 2019.

    Differs from torchvision in float32 values between the operations, which it rounds to 8 bits;
    and from timm also in one interpolation, there bilinear or bicubic at random.
    """

    num_ops: PositiveInt = 2
    magnitude: Annotated[float, Converter(_as_magnitude)] = 9
    num_magnitude_bins: Annotated[int, Converter(as_int, 2)] = 31
    _: KW_ONLY
    variant: Annotated[str, Converter(as_choice, _VARIANTS)] = "torchvision"
    magnitude_std: Annotated[float, Converter(as_number, 0.0, 100.0)] = 0.0

    def __post_init__(self):
        super().__post_init__()
        steady = is_static(self.magnitude_std) and self.magnitude_std == 0
        if not steady and self.variant != "timm":
            raise ValueError(
                f"`magnitude_std` must be 0 for {self.variant}'s magnitudes, got "
                f'{self.magnitude_std!r}: use variant="timm".'
            )
        if self.variant in _LARGEST:
            as_number("magnitude", self.magnitude, 0.0, _LARGEST[self.variant])
            return
        if not isinstance(self.magnitude, int) or not 0 <= self.magnitude < self.num_magnitude_bins:
            bound = f"an int of 0 to {self.num_magnitude_bins - 1}, a bin"
            raise ValueError(f"`magnitude` must be {bound}, got {self.magnitude!r}.")

    @property
    def space(self) -> Space:
        """The operations of the variant."""
        if self.variant == "big_vision":
            return rand_augment_big_vision(self.magnitude)
        return RAND_AUGMENT if self.variant == "torchvision" else RAND_AUGMENT_TIMM

    def make_params(self, key: Key, info: ImageInfo) -> Slot:
        """Draw the operations and their signs; for timm their magnitudes and coins, too."""
        numbers = uniform(key, shape=(self.num_ops, 3))
        if self.variant != "timm":
            in_bins = self.variant == "torchvision"
            strength = self.magnitude / (self.num_magnitude_bins - 1 if in_bins else _STRENGTH)
            strengths = jnp.full(self.num_ops, strength, jnp.float32)
            return _drawn_slots(self.space, numbers[:, 0], strengths, numbers[:, 1], info)
        noise = jax.random.normal(jax.random.fold_in(key, 0), (self.num_ops,), jnp.float32)
        magnitudes = self.magnitude + self.magnitude_std * noise
        strengths = jnp.clip(magnitudes / _STRENGTH, 0.0, 1.0)
        slots = _drawn_slots(self.space, numbers[:, 0], strengths, numbers[:, 1], info)
        return only_where(numbers[:, 2] < _TIMM_PROBABILITY, slots)


@dataclass(frozen=True)
class TrivialAugmentWide(Policy):
    """Apply one random operation of random magnitude.

    Args:
      num_magnitude_bins: how many magnitudes there are, from none to the largest.
      interpolation: "bilinear", "bicubic" or "nearest".
      fill: the color beyond the image in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> TrivialAugmentWide()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: S. G. Müller and F. Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data
      Augmentation", 2021.
    """

    num_magnitude_bins: Annotated[int, Converter(as_int, 2)] = 31

    @property
    def space(self) -> Space:
        """The operations, with wide ranges."""
        return TRIVIAL_AUGMENT_WIDE

    def make_params(self, key: Key, info: ImageInfo) -> Slot:
        """Draw the operation, its bin and its sign."""
        numbers = uniform(key, shape=(1, 3))
        strengths = _strengths(numbers[:, 2], self.num_magnitude_bins, self.num_magnitude_bins)
        return _drawn_slots(self.space, numbers[:, 0], strengths, numbers[:, 1], info)


@dataclass(frozen=True)
class AutoAugment(Policy):
    """Apply one of 25 learned pairs of operations, each with its learned probability.

    Args:
      policy: "imagenet", "cifar10" or "svhn".
      interpolation: "bilinear", "bicubic" or "nearest".
      fill: the color beyond the image in [0, 1], a number or one per channel.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> AutoAugment("svhn")(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: E. D. Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data", 2018.

    Differs from torchvision in float32 values between the operations, which it rounds to 8 bits.
    """

    policy: Annotated[str, Converter(as_choice, tuple(SUB_POLICIES))] = "imagenet"

    @property
    def space(self) -> Space:
        """The operations."""
        return AUTO_AUGMENT

    def make_params(self, key: Key, info: ImageInfo) -> Slot:
        """Draw the pair, and for each of its operations the coin and the sign."""
        names = self.names
        rows = [
            [(names.index(name), p, bin_) for name, p, bin_ in pair]
            for pair in SUB_POLICIES[self.policy]
        ]
        numbers = uniform(key, shape=(5,))
        row = integer(numbers[0], 0, len(rows))
        indices, probabilities, bins = picked(row, jnp.asarray(rows, jnp.float32)).T
        strengths = bins / (_BINS - 1)
        signs = numbers[1:3] < 0.5
        slots = _slots(self.space, indices.astype(jnp.int32), strengths, signs, info)
        return only_where(numbers[3:] < probabilities, slots)


class Mixture(NamedTuple):
    """Drawn parameters of `AugMix`.

    Attributes:
      weights: float32[width + 1], of the image and of the chains; their sum is 1.
      slots: the operations of the chains, arrays [width, depth].
    """

    weights: Array
    slots: Slot


@dataclass(frozen=True)
class AugMix(Policy):
    """Mix the image with several chains of random operations on it, by random weights.

    The chains get weights of a Dirichlet distribution; the image and their mixture those of a beta
    distribution.

    Args:
      severity: 1 to 10, how many of ten magnitudes are drawn from.
      mixture_width: how many chains.
      chain_depth: the operations of a chain; None draws 1 to 3.
      alpha: above 0, of both distributions.
      all_ops: False leaves out brightness, color, contrast and sharpness, which the test set of
        corruptions has.
      interpolation: "bilinear", "bicubic" or "nearest".
      fill: the color beyond the image in [0, 1], a number or one per channel.

    Raises:
      ValueError: for a mask, boxes or keypoints, which cannot follow several moved images.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> AugMix()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: D. Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness
      and Uncertainty", 2019.

    Differs from torchvision in `chain_depth=None`, there -1.
    """

    severity: Annotated[int, Converter(as_int, 1, _BINS)] = 3
    mixture_width: PositiveInt = 3
    chain_depth: Annotated[int | None, Converter(as_optional, as_int, 1)] = None
    alpha: Annotated[float, Converter(as_number, _MIN_ALPHA, _MAX_ALPHA)] = 1.0
    all_ops: Flag = True
    _: KW_ONLY
    interpolation: str = "bilinear"

    @property
    def space(self) -> Space:
        """The operations."""
        return AUGMIX if self.all_ops else AUGMIX_PARTIAL

    def make_params(self, key: Key, info: ImageInfo) -> Mixture:
        """Draw the weights, the depths and the operations with their bins and signs."""
        weights_key, numbers_key = jax.random.split(key)
        depth = self.chain_depth or _MAX_DEPTH
        count = self.mixture_width * depth
        numbers = uniform(numbers_key, shape=(3 * count + self.mixture_width,))
        which, bins, signs = numbers[: 3 * count].reshape(3, count)
        strengths = _strengths(bins, self.severity, _BINS)
        slots = _drawn_slots(self.space, which, strengths, signs, info)
        slots = jax.tree.map(lambda leaf: leaf.reshape(self.mixture_width, depth), slots)
        if self.chain_depth is None:
            depths = integer(numbers[3 * count :], 1, _MAX_DEPTH + 1)
            slots = only_where(jnp.arange(depth, dtype=jnp.int32)[None] < depths[:, None], slots)
        return Mixture(self._draw_weights(weights_key), slots)

    def steps(self, drawn: Drawn) -> Iterator[tuple[Transform, Drawn]]:
        """Yield the one step that runs all chains."""
        yield _Mixed(self), drawn

    def apply_rest(
        self, params: Mixture, rest: Sample, kinds: Mapping[str, str], info: ImageInfo
    ) -> Sample:
        """Raise for what cannot follow several moved images."""
        if kinds:
            names = ", ".join(map(repr, kinds))
            raise ValueError(f"AugMix mixes moved images, which {names} cannot follow.")
        return rest

    def _draw_weights(self, key: Key) -> Array:
        """Draw the weights of the image and of the chains."""
        image_key, chains_key = jax.random.split(key)
        mixed = beta(image_key, self.alpha)
        shares = dirichlet(chains_key, self.alpha, self.mixture_width)
        return jnp.concatenate([1 - mixed[None], mixed * shares])


@dataclass(frozen=True)
class ThreeAugment(RandomChoice):
    """Turn the image gray, solarize it or blur it: one of the three, each as likely.

    Args:
      transforms: the three, or others in their place.
      weights: one number of at least 0 per transform, in proportion to its probability; None for
        equal ones.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> ThreeAugment()(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: H. Touvron et al., "DeiT III: Revenge of the ViT", 2022; there a ColorJitter of 0.3
      follows.
    """

    transforms: Sequence[Transform] = (
        Grayscale(),
        RandomSolarize(128 / 255, p=1.0),
        GaussianBlur(17, (0.1, 2.0)),
    )


@dataclass(frozen=True)
class _Step(Transform):
    """A step of a policy, which draws for it and gives it its name and settings."""

    channels = 3
    eight_bits = True
    policy: Any

    @property
    def title(self) -> str:
        return type(self.policy).__name__


class _Moved(_Step, Geometric):
    """The map of an operation."""

    def resampling(self) -> Resampling:
        """Return the resampling of the policy."""
        return Resampling(self.policy.interpolation, PADDING_MODES[0], self.policy.fill)

    def warp(self, params: Slot, info: ImageInfo) -> Warp:
        """Return the map, the identity for an operation that moves nothing."""
        return slot_warp(params, info)


class _Recolored(_Step, ImageOp):
    """The values after an operation."""

    def cost(self, params: Slot) -> tuple[str, int]:
        """Return one pass."""
        return f"one of {len(self.policy.space)}, reads the stored image", 1

    def apply(self, params: Slot, image: Array, info: ImageInfo) -> Array:
        """Return the image, as it is after an operation that moves pixels."""
        return slot_color(params, image, info, self.policy.names)


class _Mixed(_Step, ImageOp):
    """The sum of the image and the chains of `AugMix`."""

    def cost(self, params: Mixture) -> tuple[str, int]:
        """Return two passes for each operation."""
        width, depth = params.slots.code.shape
        return f"{width} chains of up to {depth} operations", 2 * width * depth

    def apply(self, params: Mixture, image: Array, info: ImageInfo) -> Array:
        """Return the sum."""
        weights, slots = params

        # Loops, not their unrolled bodies: these would take minutes to compile.
        def step(carried: Array, slot: Slot) -> tuple[Array, None]:
            return self._operated(slot, carried, info), None

        def add(total: Array, chain: tuple[Array, Slot]) -> tuple[Array, None]:
            weight, chain_slots = chain
            return total + weight * lax.scan(step, image, chain_slots)[0], None

        return lax.scan(add, weights[0] * image, (weights[1:], slots))[0]

    def _operated(self, slot: Slot, image: Array, info: ImageInfo) -> Array:
        """Return the image after one operation."""
        policy = self.policy
        warp = slot_warp(slot, info)
        moved = resample(
            image, info.extent, warp, policy.interpolation, PADDING_MODES[0], policy.fill
        )
        moved = barrier(in_range(moved, policy.interpolation))
        return slot_color(slot, moved, info, policy.names)


def _drawn_slots(
    space: Space, which: Array, strengths: Array, signs: Array, info: ImageInfo
) -> Slot:
    """Return operations of numbers of [0, 1) [n] that say which one and which sign."""
    return _slots(space, integer(which, 0, len(space)), strengths, signs < 0.5, info)


def _slots(
    space: Space, indices: Array, strengths: Array, negative: Array, info: ImageInfo
) -> Slot:
    """Return operations of arrays [n]."""

    def one(index: Array, strength: Array, sign: Array) -> Slot:
        return slot_of(space, index, strength, sign, info)

    return jax.vmap(one)(indices, strengths, negative)


def _strengths(numbers: Array, drawn: int, bins: int) -> Array:
    """Return the strengths of one of the first `drawn` of `bins`, for numbers of [0, 1)."""
    return integer(numbers, 0, drawn).astype(jnp.float32) / (bins - 1)
