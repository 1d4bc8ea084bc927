"""Chains of transforms, in which a run of geometric ops is one resample."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxaug._checks import check_choice
from jaxaug._typing import Array, Key, Sample
from jaxaug.augment._base import Ending, Geometric, Info, Pixelwise, Transform
from jaxaug.augment._factor import unchanged
from jaxaug.augment._resample import resample
from jaxaug.augment._targets import move_targets


class _Step(NamedTuple):
    """A transform and its place in the chain: the numbers that are folded into the key, outermost first."""

    transform: Any
    path: tuple[int, ...]

    def key(self, key: Key) -> Key:
        return reduce(jax.random.fold_in, self.path, key)


class _State(NamedTuple):
    """What flows through a chain: the image (uint8, or float in [0, 1]), its frame, and the rest."""

    image: Array
    info: Info
    rest: Sample


@dataclass(frozen=True)
class Compose(Transform):
    """Transforms one after the other.

    Consecutive geometric transforms of equal interpolation, padding mode and fill are composed into one map
    and resampled once; inside such a run frames do not clip. Between uint8 and the last transform the image
    is float32 in [0, 1]. Transform k takes `fold_in(key, k)`, and nested chains fold again.

    Args:
      transforms: the transforms, of which only the last may be an ending one (`Normalize`, `ToFloat`).
      fuse: False resamples after every transform, as torchvision does.

    Returns:
      On a call `(key, image)` an image, on `(key, sample)` a sample: uint8 for uint8 and the input's float
      dtype for floats, unless the last transform is an ending one. "size" stays, moved, until a transform
      gives every image the same size; "mask", "boxes" and "keypoints" move along; other entries are kept.

    Raises:
      TypeError: for something that is not a transform, or an image that is neither uint8 nor floating.
      ValueError: for an ending transform that is not the last, and for anything but one image (h, w, 3).

    Example:
      >>> import jax
      >>> from jaxaug import augment
      >>> train = augment.Compose([augment.RandomResizedCrop(8), augment.RandomHorizontalFlip()])
      >>> keys = jax.random.split(jax.random.key(0), 2)
      >>> jax.vmap(train)(keys, jax.numpy.zeros((2, 20, 30, 3), jax.numpy.uint8)).shape
      (2, 8, 8, 3)

    Differs from torchvision in resampling runs of geometric transforms once (`fuse=True`).
    """

    transforms: Sequence[Transform]
    _: KW_ONLY
    fuse: bool = True

    def __post_init__(self):
        if not isinstance(self.transforms, Sequence):
            raise TypeError(
                f"`transforms` must be a sequence of transforms, got {self.transforms!r}: put it in a list."
            )
        check_choice("fuse", self.fuse, (True, False))
        object.__setattr__(self, "transforms", tuple(self.transforms))
        for transform in self.transforms:
            if isinstance(transform, type):
                raise TypeError(f"`transforms` holds the class {transform.__name__}: write {transform.__name__}(...).")
            if not isinstance(transform, Transform):
                raise TypeError(
                    f"`transforms` must be jaxaug transforms, got {transform!r}: wrap a function in `Lambda`."
                )
        for step in [*self._steps()][:-1]:
            if isinstance(step.transform, Ending):
                raise ValueError(
                    f"{type(step.transform).__name__} must be the last transform: the others need values in"
                    " [0, 1] and layout HWC."
                )

    def sample(self, key: Key, info: Info) -> None:
        """Nothing: each transform of the chain samples when its turn comes."""
        del key, info

    def __call__(self, key: Key, sample: Array | Sample) -> Any:
        """Transform one image or one sample; see the class."""
        given = dict(sample) if isinstance(sample, Mapping) else {"image": sample}
        state = _begin(given)
        dtype, ending = state.image.dtype, None
        for run in self._runs():
            first = run[0].transform
            if isinstance(first, Geometric):
                state = _move(run, key, state)
            elif isinstance(first, Pixelwise):
                state = _recolour(run[0], key, state)
            else:
                ending = first
        image = _finish(state, ending, dtype)
        if not isinstance(sample, Mapping):
            return image
        size = {} if state.info.size is None else {"size": state.info.size}
        return {**state.rest, "image": image, **size}

    def _steps(self, path: tuple[int, ...] = ()) -> Iterator[_Step]:
        """The transforms with nested chains flattened."""
        for position, transform in enumerate(self.transforms):
            if isinstance(transform, Compose):
                yield from transform._steps((*path, position))
            else:
                yield _Step(transform, (*path, position))

    def _runs(self) -> list[list[_Step]]:
        """The steps, grouped so that every group is one pass over the pixels."""
        runs: list[list[_Step]] = []
        for step in self._steps():
            together = runs and self.fuse and _agreement([*runs[-1], step])
            if together:
                runs[-1].append(step)
            else:
                runs.append([step])
        return runs


def _agreement(steps: list[_Step]) -> dict[str, Any] | None:
    """How a run of geometric steps is resampled; None if they differ, or are not all geometric."""
    if not all(isinstance(step.transform, Geometric) for step in steps):
        return None
    wishes = [step.transform.sampling() for step in steps]
    agreed = {"interpolation": "bilinear", "padding_mode": "constant", "fill": 0.0}
    for name in agreed:
        values = {getattr(wish, name) for wish in wishes} - {None}
        if len(values) > 1:
            return None
        agreed[name] = values.pop() if values else agreed[name]
    return agreed


def _move(run: list[_Step], key: Key, state: _State) -> _State:
    """A run of geometric steps: one resample."""
    factor = unchanged(*state.info)
    for step in run:
        info = Info(factor.canvas, factor.size)
        params = step.transform.sample(step.key(key), info)
        factor = factor.then(step.transform.factor(params, info))
    agreed, extent = _agreement(run) or {}, state.info.extent
    image = resample(state.image, extent, factor, **agreed)
    rest = move_targets(state.rest, extent, factor, agreed["padding_mode"])
    return _State(image, Info(factor.canvas, factor.size), rest)


def _recolour(step: _Step, key: Key, state: _State) -> _State:
    """One pixelwise step."""
    # These read a pixel more than once (its other channels, a mean): without the barrier XLA would do the
    # resample before them once for each reading.
    image = _unit(lax.optimization_barrier(state.image))
    params = step.transform.sample(step.key(key), state.info)
    image = step.transform.apply(params, image, state.info)
    info = state.info if image.shape[:2] == state.info.canvas else Info((image.shape[0], image.shape[1]))
    return _State(image, info, state.rest)


def _finish(state: _State, ending: Ending | None, dtype) -> Array:
    """Zero what is unused, and give the image its final dtype and layout."""
    image = state.image
    if ending is not None:
        image = ending.values(_unit(image)).astype(ending.dtype)
    elif dtype == jnp.uint8 and image.dtype != jnp.uint8:
        image = jnp.round(jnp.clip(image, 0.0, 1.0) * 255).astype(jnp.uint8)
    else:
        image = image.astype(dtype)
    used = state.info.used()
    if used is not None:
        image = jnp.where(used[:, :, None], image, jnp.zeros_like(image))
    return image.transpose(2, 0, 1) if ending is not None and ending.layout.endswith("CHW") else image


def _begin(sample: Sample) -> _State:
    """Check a sample and take it apart."""
    if "image" not in sample:
        raise ValueError(f"a sample must have an 'image', got the keys {sorted(sample)}.")
    rest = dict(sample)
    image, size = jnp.asarray(rest.pop("image")), rest.pop("size", None)
    shape = tuple(image.shape)
    if image.ndim != 3 or shape[2] != 3:
        batch = ": batches go through jax.vmap" if image.ndim == 4 else ""
        raise ValueError(f"expected one image (h, w, 3), got {shape}{batch}.")
    if image.dtype != jnp.uint8 and not jnp.issubdtype(image.dtype, jnp.floating):
        raise TypeError(f"expected a uint8 image, or a float image in [0, 1], got {image.dtype}{list(shape)}.")
    if size is not None:
        size = jnp.asarray(size)
        if size.shape != (2,) or not jnp.issubdtype(size.dtype, jnp.integer):
            got = f"{size.dtype}{list(size.shape)}"
            raise ValueError(f"`size` must be int32[2], the used (height, width), got {got}.")
        size = size.astype(jnp.int32)
    return _State(image, Info((shape[0], shape[1]), size), rest)


def _unit(image: Array) -> Array:
    """float32 in [0, 1]."""
    return image.astype(jnp.float32) / 255 if image.dtype == jnp.uint8 else image.astype(jnp.float32)
