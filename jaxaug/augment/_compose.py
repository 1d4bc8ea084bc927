"""Chains of transforms, in which a run of geometric ops is one resample."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxaug._checks import check_choice
from jaxaug._typing import Array, Key, Sample
from jaxaug.augment._base import Geometric, ImageInfo, ImageOp, Output, Resampling, Transform
from jaxaug.augment._boundary import computed_once
from jaxaug.augment._boxes import TARGETS, move_targets
from jaxaug.augment._fields import as_color
from jaxaug.augment._resample import INTERPOLATIONS, PADDING_MODES, resample
from jaxaug.augment._state import State, begin, check_key, finish, unit
from jaxaug.augment._warp import is_static, unchanged


class _Step(NamedTuple):
    """A transform and its place in the chain: the numbers that are folded into the key, outermost
    first.
    """

    transform: Any
    path: tuple[int, ...]

    def key(self, key: Key) -> Key:
        return reduce(jax.random.fold_in, self.path, key)


@dataclass(frozen=True)
class Compose(Transform):
    """Transforms one after the other.

    Consecutive geometric transforms of equal interpolation, padding mode and fill are composed into
    one map and resampled once; inside such a run frames do not clip, and need no static shape:
    `Resize(256)` of images on a canvas may stand before `CenterCrop(224)`. Between uint8 and the
    last transform the image is float32 in [0, 1]. Transform k takes `fold_in(key, k)`, and nested
    chains fold again.

    Args:
      transforms: the transforms, of which only the last may be an ending one (`Normalize`,
        `ToFloat`). A nested `Compose` must have the same `fuse` and `mask_fill`.
      fuse: False resamples after every transform, as torchvision does.
      mask_fill: what an integer "mask" holds outside of the image: beyond "size", and where a warp
        or a crop with "constant" padding looks beyond the source. 255 is what losses ignore by
        custom. Boolean masks hold False there, floating ones 0.

    Returns:
      On a call `(key, image)` an image, on `(key, sample)` a sample: uint8 for uint8 and the
      input's float dtype for floats, unless the last transform is an ending one. "size" stays,
      moved, until a transform gives every image the same size; other entries are kept. What moves
      along: "mask" [H, W] or [H, W, C] of the image's H and W; "boxes" float[n, 4], xyxy in pixels,
      of which all-zero rows are padding and stay zero; "keypoints" float[n, 2], (x, y) in pixels.
      Boxes and keypoints are not clipped.

    Raises:
      TypeError: for something that is not a transform, an image that is neither uint8 nor floating,
        or a key that is none.
      ValueError: for an ending transform that is not the last, a nested chain with other settings,
        anything but one image (h, w, 3) or a mask that does not fit it, float values above 1 (seen
        outside of `jit` only), a `mask_fill` that the mask's dtype cannot hold, and on tracing for
        a run whose output has no static shape.

    Example:
      >>> import jax
      >>> from jaxaug import augment
      >>> train = augment.Compose([augment.RandomResizedCrop(8), augment.RandomHorizontalFlip()])
      >>> keys = jax.random.split(jax.random.key(0), 2)
      >>> jax.vmap(train)(keys, jax.numpy.zeros((2, 20, 30, 3), jax.numpy.uint8)).shape
      (2, 8, 8, 3)

    Differs from torchvision in resampling runs of geometric transforms once (`fuse=True`), and in
    what masks hold outside of the image (there 0).
    """

    transforms: Sequence[Transform]
    _: KW_ONLY
    fuse: bool = True
    mask_fill: int = 255

    def __post_init__(self):
        if not isinstance(self.transforms, Sequence):
            raise TypeError(
                f"`transforms` must be a sequence of transforms, got {self.transforms!r}: put it in a list."
            )
        check_choice("fuse", self.fuse, (True, False))
        if not isinstance(self.mask_fill, int) or isinstance(self.mask_fill, bool):
            expected = "an int, the class index to ignore"
            raise ValueError(f"`mask_fill` must be {expected}, got {self.mask_fill!r}.")
        object.__setattr__(self, "transforms", tuple(self.transforms))
        for transform in self.transforms:
            self._check(transform)
        steps = [*self._steps()]
        for step in steps[:-1]:
            if isinstance(step.transform, Output):
                raise ValueError(
                    f"{type(step.transform).__name__} must be the last transform: the others need values in"
                    " [0, 1] and layout HWC."
                )

    def sample(self, key: Key, info: ImageInfo) -> None:
        """Nothing: each transform of the chain samples when its turn comes."""
        del key, info

    def __call__(self, key: Key, sample: Array | Sample) -> Any:
        """Transform one image or one sample; see the class."""
        check_key(key, sample)
        state = begin(sample)
        dtype = state.image.dtype
        ending = None
        for run in self._runs():
            first = run[0].transform
            if isinstance(first, Geometric):
                state = _move(run, key, state, self.mask_fill)
            elif isinstance(first, ImageOp):
                state = _recolor(run[0], key, state)
            else:
                ending = first
        result = finish(state, ending, dtype, self.mask_fill)
        return result if isinstance(sample, Mapping) else result["image"]

    def _check(self, transform: Any) -> None:
        """Raise where `transform` cannot be part of this chain."""
        if isinstance(transform, type):
            name = transform.__name__
            raise TypeError(f"`transforms` holds the class {name}: write {name}(...).")
        if not isinstance(transform, Transform):
            got = f"got {transform!r}: wrap a function in `Lambda`"
            raise TypeError(f"`transforms` must be jaxaug transforms, {got}.")
        if not isinstance(transform, (Geometric, ImageOp, Output, Compose)):
            name = type(transform).__name__
            expected = "`augment.Geometric`, `augment.ImageOp` or `augment.Output`"
            raise TypeError(
                f"{name} is a Transform of no kind that a chain can run: derive it from {expected}."
            )
        if isinstance(transform, Geometric):
            _check_sampling(transform)
        if isinstance(transform, Compose):
            for name in ("fuse", "mask_fill"):
                inner = getattr(transform, name)
                outer = getattr(self, name)
                if inner != outer:
                    raise ValueError(
                        f"a Compose inside another must have the same `{name}`, got {inner!r}"
                        f" inside {outer!r}: give both `{name}={inner!r}`, or put the inner"
                        " transforms in the outer list."
                    )

    def _steps(self, path: tuple[int, ...] = ()) -> Iterator[_Step]:
        """Yield the transforms with nested chains flattened."""
        for position, transform in enumerate(self.transforms):
            if isinstance(transform, Compose):
                yield from transform._steps((*path, position))
            else:
                yield _Step(transform, (*path, position))

    def _runs(self) -> list[list[_Step]]:
        """Return the steps, grouped so that every group is one pass over the pixels."""
        runs: list[list[_Step]] = []
        for step in self._steps():
            together = runs and self.fuse and _agreement([*runs[-1], step])
            if together:
                runs[-1].append(step)
            else:
                runs.append([step])
        return runs


def _agreement(steps: list[_Step]) -> dict[str, Any] | None:
    """Return how a run of geometric steps is resampled; None if they differ or others are there."""
    if not all(isinstance(step.transform, Geometric) for step in steps):
        return None
    wishes = [_wishes(step.transform.resampling()) for step in steps]
    agreed = {"interpolation": "bilinear", "padding_mode": "constant", "fill": 0.0}
    for name in agreed:
        values = {getattr(wish, name) for wish in wishes} - {None}
        if len(values) > 1:
            return None
        agreed[name] = values.pop() if values else agreed[name]
    return agreed


def _wishes(resampling: Resampling) -> Resampling:
    """Return `resampling` with its fill in one form, and without one where no mode reads it."""
    if resampling.fill is None or resampling.padding_mode not in (None, "constant"):
        return resampling._replace(fill=None)
    return resampling._replace(fill=as_color("fill", resampling.fill))


def _check_sampling(transform: Geometric) -> None:
    """Raise where `resampling()` names something that does not exist."""
    wish = transform.resampling()
    name = type(transform).__name__
    if wish.interpolation is not None:
        check_choice(f"{name}.resampling().interpolation", wish.interpolation, INTERPOLATIONS)
    if wish.padding_mode is not None:
        check_choice(f"{name}.resampling().padding_mode", wish.padding_mode, PADDING_MODES)
    if wish.fill is not None:
        as_color(f"{name}.resampling().fill", wish.fill)


def _move(run: list[_Step], key: Key, state: State, mask_fill: int) -> State:
    """Return the state after a run of geometric steps: one resample."""
    warp = unchanged(*state.info)
    shapeless = None
    for step in run:
        info = ImageInfo(warp.canvas, warp.size)
        params = step.transform.sample(step.key(key), info)
        warp = warp.then(step.transform.warp(params, info))
        shapeless = None if is_static(warp.canvas) else shapeless or step.transform
    if shapeless is not None:
        raise ValueError(_no_static_shape(shapeless))
    agreed = _agreement(run) or {}
    extent = state.info.extent
    image = resample(state.image, extent, warp, **agreed)
    rest = move_targets(state.rest, extent, warp, agreed["padding_mode"], mask_fill)
    return State(image, ImageInfo(warp.canvas, warp.size), rest)


def _no_static_shape(resize: Any) -> str:
    size = resize.size
    return (
        f"Resize({size}) keeps the aspect of images whose `size` differs, so its output needs a"
        " static shape: let an op of fixed size such as CenterCrop follow in the same run (with"
        f" fuse=True), or give `canvas=(height, width)`, or `size=({size}, {size})`."
    )


def _recolor(step: _Step, key: Key, state: State) -> State:
    """Return the state after one pixelwise step."""
    # These read a pixel more than once (its other channels, a mean): without the boundary XLA would
    # do the resample before them once for each reading.
    image = unit(computed_once(state.image))
    params = step.transform.sample(step.key(key), state.info)
    image = _checked(step.transform, step.transform.apply(params, image, state.info))
    if image.shape[:2] == state.info.canvas:
        return State(image, state.info, state.rest)

    left_behind = [name for name in TARGETS if name in state.rest]
    if left_behind:
        raise ValueError(
            f"{type(step.transform).__name__} changed the image's height and width from"
            f" {state.info.canvas} to {image.shape[:2]}, but not those of"
            f" {', '.join(map(repr, left_behind))} beside it: do this with a geometric transform such"
            " as Resize or CenterCrop, which moves them along."
        )
    return State(image, ImageInfo((image.shape[0], image.shape[1])), state.rest)


def _checked(transform: ImageOp, result: Any) -> Array:
    """Return what a pixelwise transform gave, as float32."""
    result = jnp.asarray(result)
    if result.ndim != 3 or result.shape[2] != 3 or not jnp.issubdtype(result.dtype, jnp.floating):
        got = f"{result.dtype}{list(result.shape)}"
        name = type(transform).__name__
        what = "`function` of Lambda" if name == "Lambda" else f"{name}.apply"
        raise TypeError(f"{what} must return a float image [h, w, 3] in [0, 1], got {got}.")
    return result.astype(jnp.float32)
