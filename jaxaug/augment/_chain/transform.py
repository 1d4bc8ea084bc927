"""The kinds of transform: configurations that draw parameters and apply them to one image.

A transform is a frozen dataclass of settings. `make_params(key, info)` draws its parameters and
sees no pixels; the other half draws nothing. `Operator` draws the coin of `p`; each kind selects by
it. Each kind brings its own way to `run`; a chain only goes from one to the next.
"""

import abc
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import (
    LEVELS,
    NO_IMAGE,
    Color,
    Drawn,
    Epilogue,
    ImageInfo,
    Interpolation,
    Operator,
    PaddingMode,
    Parameters,
    chosen,
    chosen_alike,
    unit,
)
from jaxaug.augment._chain.levels import LevelStep
from jaxaug.augment._chain.progress import (
    Note,
    State,
    begin,
    check_key,
    check_values,
    finish,
    resampled,
    stored,
    without_boxes,
)
from jaxaug.augment._chain.progress import warped as warped_state
from jaxaug.augment._warp import (
    Resampling,
    Targets,
    Warp,
    check_box_columns,
    check_resampling,
    moved_info,
    select,
    with_kept_boxes,
)
from jaxaug.augment._xla import vary_alike


class Transform(Operator):
    """A random image transform: `transform(key, image)` or `transform(key, sample)`, one image per
    call.

    Derive an operator of your own from one of the kinds: `Geometric`, `Pointwise`, `ImageOp`,
    `SampleOp` or `Output`.

    Attributes:
      channels: the number of channels that the image must have; None for any.
      eight_bits: True where it is defined on 256 levels: a uint16 image is an error.
      needs: the entry of the sample that it works on; None for a sample with any entries.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> flip = augment.RandomHorizontalFlip(p=1.0)
      >>> flip(jax.random.key(0), jnp.array([[[0.0], [1.0]]])).ravel().tolist()
      [1.0, 0.0]
    """

    channels: ClassVar[int | None] = None
    eight_bits: ClassVar[bool] = False
    needs: ClassVar[str | None] = "image"

    @property
    def parts(self) -> tuple["Transform", ...] | None:
        """The transforms that it runs; None where it runs no others."""
        return None

    @property
    def geometric(self) -> bool:
        """True where it only moves pixels, in one resample: `drawn_warp` gives its map."""
        return False

    @property
    def entry(self) -> str:
        """The entry of a sample that an array given alone is: what the first of its parts needs."""
        return next((leaf.needs for leaf in leaves(self) if leaf.needs is not None), "image")

    @property
    def wanted_channels(self) -> int | None:
        """The number of channels of the images that its settings are for; None for any."""
        return self.channels

    def check(self) -> None:
        """Raise where no chain can run this transform."""
        if all(getattr(type(self), name) is getattr(Transform, name) for name in _HOOKS):
            kinds = "`augment.Geometric`, `augment.Pointwise`, `augment.ImageOp`"
            raise TypeError(
                f"{type(self).__name__} is a Transform of no kind that a chain can run: derive it"
                f" from {kinds} or `augment.SampleOp`."
            )

    def check_values(self, sample: Sample) -> None:
        """Raise ValueError for float images of a sample that are not in [0, 1].

        A call does so for all that it can read. In a Loader, which traces it, it can read nothing:
        it is given a few records.
        """
        check_values(sample, self._targets())

    def _targets(self) -> Targets:
        """Return what moves with the image."""
        return Targets()

    def draw(self, key: Key, info: Any) -> Drawn:
        """Draw the parameters and the coin of `p`, of a sample that has what it needs."""
        if self.parts is None and self.needs == "image" and info.canvas == NO_IMAGE:
            raise ValueError(
                f"{type(self).__name__} needs an 'image', and the sample has none: leave it out, or"
                " give the sample one."
            )
        return super().draw(key, info)

    def after(self, drawn: Drawn, info: ImageInfo) -> ImageInfo:
        """Return the `ImageInfo` afterwards; `Compose.make_params` asks for them.

        Override it in an `ImageOp` or `SampleOp` that changes them.
        """
        for step, inner in self.steps(drawn):
            info = step.after(inner, info)
        return info

    def drawn_warp(self, drawn: Drawn, info: ImageInfo) -> Warp:
        """Return the map of a transform that is `geometric`."""
        raise NotImplementedError(type(self).__name__)

    def steps(self, drawn: Drawn) -> Iterable[tuple["Transform", Drawn]]:
        """Return the transforms that it stands for, in their order, and what is drawn for each.

        Override it in a `Transform` that is no kind of its own; with a `p`, the coin is
        `drawn.applied`.
        """
        return ()

    def apply_rest(
        self, params: Parameters, rest: Sample, kinds: Mapping[str, str], info: ImageInfo
    ) -> Sample:
        """Return the entries beside the image: masks, boxes, labels and whatever else there is.

        Override it where they change, once those that follow the image have; no pixel is read for
        it. A `SampleOp` changes them in `apply`.

        Args:
          params: the parameters.
          rest: the sample without "image" and "size"; boxes are xyxy.
          kinds: "image", "map", "mask", "masks", "boxes" or "keypoints" for each of the entries
            that move with the image.
          info: of the image afterwards.
        """
        return rest

    def run(self, drawn: Drawn, state: State) -> State:
        """Return the state after this transform: after `steps`, where no kind brings its own."""
        for step, inner in self.steps(drawn):
            state = step.run(inner, state)
        return self._after_rest(drawn, state)

    def run_from(self, key: Key, state: State) -> State:
        """Return the state after this transform, drawn from `key`."""
        return self.run(self.draw(jax.random.fold_in(key, 0), state.info), state)

    def _after_rest(self, drawn: Drawn, state: State) -> State:
        """Return the state after `apply_rest`, which ends a run."""
        if type(self).apply_rest is Transform.apply_rest:
            return state
        state = resampled(state)
        kinds = state.targets.kinds(state.rest)
        rest = self.apply_rest(drawn.params, dict(state.rest), kinds, state.info)
        rest = chosen_alike(self, drawn, rest, state.rest)
        return state._replace(rest=rest, info=state.info._replace(boxes=rest.get("boxes")))

    @property
    def title(self) -> str:
        """Its name in messages and in `Compose.explain`."""
        return type(self).__name__

    def __call__(self, key: Key, sample: Array | Sample) -> Any:
        """Transform one image, or a sample {"image": ..., "size"?, "mask"?, "boxes"?, ...}.

        Args:
          key: a PRNG key; the same key gives the same result.
          sample: uint8 or uint16[H, W, C], or float[H, W, C] in [0, 1], or a dict with such an
            "image".
            Batches go through `jax.vmap`, with one key per image.

        Returns:
          An image for an image, a dict for a dict.
        """
        self.check()
        check_key(key, sample)
        key, sample = vary_alike(key, sample)
        result = finish(self.run_from(key, begin(sample, self._targets(), self.entry)))
        return result if isinstance(sample, Mapping) else result[self.entry]


_HOOKS = ("run", "steps", "apply_rest")


class Geometric(Transform):
    """A transform that moves pixels: it gives a `Warp`, and a run of them is one resample.

    Masks, boxes and keypoints follow by themselves.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> class Zoom(augment.Geometric):
      ...     def make_params(self, key, info):
      ...         return augment.random.uniform(key, 0.5, 1.0)
      ...     def warp(self, params, info):
      ...         return augment.Warp.centered(info, augment.matrix.scaling(params, params))
      >>> Zoom()(jax.random.key(0), jnp.zeros((8, 9, 3))).shape
      (8, 9, 3)
    """

    @property
    def geometric(self) -> bool:
        """True, but for those that change what is beside the image by more than a map."""
        own = type(self)
        if own.apply_rest is not Transform.apply_rest:
            return False
        return own.kept_boxes is Geometric.kept_boxes

    @abc.abstractmethod
    def warp(self, params: Parameters, info: ImageInfo) -> Warp:
        """Return the map from output to source that `params` stand for."""

    def resampling(self) -> Resampling:
        """Return the resampling that it asks for, by default by a field `interpolation`."""
        return Resampling(getattr(self, "interpolation", None))

    def kept_boxes(self, params: Parameters, info: ImageInfo) -> Array | None:
        """Return bool[n], the boxes that stay, or None for all of them, as by default.

        Those that stay stand first, in their order, and the other rows become zeros. What has a row
        for each box goes along, see `SanitizeBoxes`; a field `per_box` names more of it.

        Args:
          params: the parameters.
          info: of the image before, with its boxes.
        """
        return None

    def check(self) -> None:
        """Raise where `resampling` names something that does not exist."""
        super().check()
        check_resampling(self)

    def drawn_warp(self, drawn: Drawn, info: ImageInfo) -> Warp:
        """Return `warp`, or the identity where the coin of `p` says no."""
        warp = self.warp(drawn.params, info)
        if not isinstance(warp, Warp):
            raise TypeError(
                f"{type(self).__name__}.warp must return a Warp, got {type(warp).__name__}: make"
                " one of a matrix by `Warp.centered(info, matrix)`."
            )
        if drawn.applied is None:
            return warp
        if warp.canvas != info.canvas or (warp.size is None) != (info.size is None):
            raise ValueError(
                f"`p` of {type(self).__name__} must be 1: it changes the shape of the image from"
                f" {info.canvas} to {warp.canvas}, and all images need the same."
            )
        return select(drawn.applied.astype(jnp.int32), [Warp.identity(info), warp])

    def after(self, drawn: Drawn, info: ImageInfo) -> ImageInfo:
        """Return the `ImageInfo` afterwards."""
        info = with_kept_boxes(info, self._kept(drawn, info))
        return moved_info(info, self.drawn_warp(drawn, info))

    def run(self, drawn: Drawn, state: State) -> State:
        """Add the warp to the run that is pending."""
        kept = self._kept(drawn, state.info)
        if kept is not None:
            check_box_columns(self, state.rest)
            state = without_boxes(state, kept, getattr(self, "per_box", ()))
        warp = self.drawn_warp(drawn, state.info)
        return self._after_rest(drawn, warped_state(state, warp, self.resampling(), self))

    def _kept(self, drawn: Drawn, info: ImageInfo) -> Array | None:
        """Return `kept_boxes`, all of them where the coin of `p` says no."""
        kept = self.kept_boxes(drawn.params, info)
        return kept if kept is None or drawn.applied is None else kept | ~drawn.applied


@dataclass(frozen=True)
class Bordered(Geometric):
    """A geometric transform with a say in interpolation and border.

    Args:
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect" (1234|321), "symmetric" (1234|432) or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> from jaxaug import augment
      >>> augment.RandomRotation(10, padding_mode="reflect").resampling().padding_mode
      'reflect'
    """

    _: KW_ONLY
    interpolation: Interpolation = "bilinear"
    padding_mode: PaddingMode = "constant"
    fill: Color = 0.0

    def resampling(self) -> Resampling:
        """Return the resampling that the fields ask for."""
        return Resampling(self.interpolation, self.padding_mode, self.fill)


class Pointwise(Transform):
    """A transform of each pixel by itself: no neighbors, no sums.

    XLA computes it in one pass with its neighbors in the chain.

    Attributes:
      across_channels: True where a channel of the result reads more than one of the image's. What
        is costly to compute is stored before.
      by_value: True where a value of the result depends on that of the image, its channel and the
        parameters alone. On a GPU a uint8 image is then looked up in a table of its 256 levels.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> class Negative(augment.Pointwise):
      ...     def apply(self, params, image, info):
      ...         return 1.0 - image
      >>> Negative()(jax.random.key(0), jnp.ones((1, 2, 1))).ravel().tolist()
      [0.0, 0.0]
    """

    across_channels: ClassVar[bool] = False
    by_value: ClassVar[bool] = False

    @abc.abstractmethod
    def apply(self, params: Parameters, image: Array, info: ImageInfo) -> Array:
        """Transform float32[H, W, C] in [0, 1] into another of that shape; draw nothing."""

    def run(self, drawn: Drawn, state: State) -> State:
        """Apply it to the pixels, without a barrier unless a costly image is read repeatedly."""
        note = Note("pointwise", (type(self).__name__,), "fused with its neighbors", 0)
        if not (self.by_value and state.steps):
            state = resampled(state)
        state = state._replace(notes=(*state.notes, note))
        check_image(self, state)
        if self.by_value and state.image.dtype == jnp.uint8:
            step = LevelStep(self, drawn, state.info)
            return self._after_rest(drawn, state._replace(steps=(*state.steps, step)))

        if self.across_channels and state.costly:
            state = stored(state)
        image = self.apply_drawn(drawn, unit(state.image), state.info)
        return self._after_rest(drawn, state._replace(image=image))

    def apply_drawn(self, drawn: Drawn, image: Array, info: ImageInfo) -> Array:
        """Return float32[H, W, C] transformed, or as it is where the coin of `p` says no."""
        result = _checked(self, self.apply(drawn.params, image, info))
        if result.shape != image.shape:
            raise TypeError(
                f"{type(self).__name__}.apply must keep the shape of the image, {image.shape}, got"
                f" {result.shape}: derive it from `augment.ImageOp`."
            )
        return chosen(drawn.applied, result, image)


class ImageOp(Transform):
    """A transform of the image as a whole: neighbors and sums allowed.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> class Upwards(augment.ImageOp):
      ...     def make_params(self, key, info):
      ...         return augment.random.integers(key, 1, 2)
      ...     def apply(self, params, image, info):
      ...         return jnp.roll(image, -params, axis=0)
      >>> Upwards()(jax.random.key(0), jnp.array([[[0.0]], [[1.0]]])).ravel().tolist()
      [1.0, 0.0]
    """

    @abc.abstractmethod
    def apply(self, params: Parameters, image: Array, info: ImageInfo) -> Array:
        """Transform float32[H, W, C] in [0, 1]; draw nothing.

        The result may have another height and width, the same for all images, if the sample has no
        mask, boxes or keypoints. `after` must then return them.
        """

    def cost(self, params: Parameters) -> tuple[str, int]:
        """Return what `Compose.explain` says of it: a few words, and its passes over the pixels."""
        return "reads the stored image", 1

    def run(self, drawn: Drawn, state: State) -> State:
        """Apply it to the pixels, which are stored first: it may read them repeatedly."""
        # Without the barrier XLA would do the resample before it once for each reading.
        state = stored(resampled(state))
        check_image(self, state)
        image = unit(state.image)
        result = _checked(self, self.apply(drawn.params, image, state.info))
        note = Note("image op", (self.title,), *self.cost(drawn.params))
        state = state._replace(costly=True, notes=(*state.notes, note))
        if result.shape[:2] == state.info.canvas:
            picked = chosen_alike(self, drawn, {"image": result}, {"image": image})
            info = state.info._replace(channels=result.shape[2])
            return self._after_rest(drawn, state._replace(image=picked["image"], info=info))

        _check_alone(self, drawn, state, result)
        height, width, channels = result.shape
        info = state.info._replace(canvas=(height, width), size=None, boxes=None, channels=channels)
        return self._after_rest(drawn, state._replace(image=result, info=info))


class SampleOp(Transform):
    """A transform of the whole sample, with its masks, boxes and labels, or of one of sound alone.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> class WithMean(augment.SampleOp):
      ...     def apply(self, params, sample, info):
      ...         return {**sample, "mean": sample["image"].mean()}
      >>> float(WithMean()(jax.random.key(0), {"image": jnp.ones((2, 2, 1))})["mean"])
      1.0
    """

    needs = None

    @abc.abstractmethod
    def apply(self, params: Parameters, sample: Sample, info: ImageInfo) -> Sample:
        """Transform a sample whose "image", if it has one, is float32[H, W, C] in [0, 1].

        It draws nothing. The result has an "image" of the same kind. "size", the used (height,
        width), is there as in the input; where height or width of the array change, the result has
        a "size" of its own, or none, which says that all of the array is image. Masks, boxes and
        keypoints are changed here, too. With a `p`, the result must have the same entries in the
        same shapes. `after` must tell what of `info` it changes.
        """

    def run(self, drawn: Drawn, state: State) -> State:
        """Apply it to the sample, which ends a run."""
        if state.image is None:
            return self._run_without_image(drawn, state)
        state = stored(resampled(state))
        check_image(self, state)
        sample = {**state.rest, "image": state.image}
        for name in state.dtypes:
            sample[name] = unit(sample[name])
        if state.info.size is not None:
            sample["size"] = state.info.size
        result = self.apply(drawn.params, dict(sample), state.info)
        if not isinstance(result, Mapping) or "image" not in result:
            raise TypeError(f"{type(self).__name__}.apply must return a sample, got {result!r}.")
        result = {**result, "image": _checked(self, result["image"])}
        _check_frame(self, drawn, state.info, result)
        result = chosen_alike(self, drawn, result, sample)
        note = Note("sample op", (type(self).__name__,), "reads the stored image", 1)
        begun = begin(result, state.targets.inside)
        dtypes = {name: state.dtypes.get(name, dtype) for name, dtype in begun.dtypes.items()}
        begun = begun._replace(targets=state.targets, dtypes=dtypes)
        begun = begun._replace(info=_still_known(begun.info, state.info))
        return begun._replace(costly=True, notes=(*state.notes, note))

    def _run_without_image(self, drawn: Drawn, state: State) -> State:
        result = self.apply(drawn.params, dict(state.rest), state.info)
        if not isinstance(result, Mapping):
            raise TypeError(f"{type(self).__name__}.apply must return a sample, got {result!r}.")
        result = chosen_alike(self, drawn, dict(result), state.rest)
        begun = begin(result, state.targets)
        note = Note("sample op", (type(self).__name__,), "reads the sample", 1)
        info = _still_known(begun.info, state.info)
        return begun._replace(info=info, notes=(*state.notes, note))


class Output(Transform):
    """The last step of a chain: float32 values in [0, 1] to what the model takes.

    Attributes:
      dtype: the name of the output's floating dtype.
      layout: "HWC" or "CHW"; a leading N, the axis that `vmap` adds, may be written too.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> class Centered(augment.Output):
      ...     dtype = "bfloat16"
      ...     layout = "CHW"
      ...     def values(self, image):
      ...         return 2 * image - 1
      >>> Centered()(jax.random.key(0), jnp.zeros((8, 9, 3))).shape
      (3, 8, 9)
    """

    dtype: str
    layout: str

    @abc.abstractmethod
    def values(self, image: Array) -> Array:
        """Return float32[H, W, C] of [0, 1] values; dtype and layout are changed after it."""

    def epilogue(self, image: Array) -> Epilogue | None:
        """Return what `values` and `dtype` make of an image, where a resample can compute it.

        By default None: any function may be behind `values`. One that a class defines is of its own
        `values`, not of those of a subclass.
        """
        return None

    def run(self, drawn: Drawn, state: State) -> State:
        """Apply it to the pixels; the layout follows once the unused part is zero."""
        check_image(self, state)
        pending = state.pending is not None or state.steps
        epilogue = self.epilogue(state.image) if pending else None
        state = resampled(state, epilogue)
        image = state.image if epilogue is not None else self._finished(state.image)
        others = {
            name: self._finished(state.rest[name]) for name in state.targets.images(state.rest)
        }
        layout = self.layout.removeprefix("N")
        note = Note("output", (type(self).__name__,), f"{self.dtype} {layout}, fused", 0)
        rest = {**state.rest, **others}
        return state._replace(image=image, rest=rest, layout=layout, notes=(*state.notes, note))

    def _finished(self, image: Array) -> Array:
        """Return `values` of an image [H, W, C], or of a plane [H, W], in the output's dtype."""
        if image.ndim == 2:
            return self._finished(image[:, :, None])[:, :, 0]
        return self.values(unit(image)).astype(self.dtype)


def leaves(transform: Transform) -> list[Transform]:
    """Return the transforms inside of `transform`, at any depth; itself where it runs no others."""
    if transform.parts is None:
        return [transform]
    found = []
    for part in transform.parts:
        found.extend(leaves(part))
    return found


def check_image(transform: Transform, state: State, inside: Transform | None = None) -> None:
    """Raise where the image does not have the channels or the depth that `transform` needs.

    Args:
      transform: what is about to run.
      state: with the image [H, W, C].
      inside: the transform that runs it, where users may not know of it.
    """
    place = "" if inside is None else f" inside of {type(inside).__name__}"
    if transform.eight_bits and state.info.levels > LEVELS:
        raise ValueError(
            f"{transform.title}{place} is defined on 256 levels, got an image of uint16: give it"
            " uint8, or floats in [0, 1], which it takes at 8 bits, or leave it out."
        )
    shape = state.image.shape
    if transform.channels not in (None, shape[2]):
        raise ValueError(
            f"{transform.title}{place} needs an image of {transform.channels} channels, got"
            f" {shape}: give it red, green and blue alone, or leave it out."
        )


def _still_known(info: ImageInfo, before: ImageInfo) -> ImageInfo:
    """Return `info` in which features [T, bins] are not taken for a waveform of channels.

    Nor are the levels those of the floats that came between.
    """
    info = info._replace(levels=before.levels)
    audio, given = info.audio, before.audio
    if audio is None or given is None or given.bins is None or audio.bins is not None:
        return info
    return info._replace(audio=audio._replace(bins=audio.channels, channels=None))


def _check_alone(transform: Transform, drawn: Drawn, state: State, result: Array) -> None:
    """Raise where a new height and width would leave something behind."""
    name = type(transform).__name__
    change = f"{name} changed the image's height and width from {state.info.canvas} to"
    change = f"{change} {result.shape[:2]}"
    if drawn.applied is not None:
        raise ValueError(f"{change}: `p` must be 1 then, all images need the same shape.")
    left_behind = list(state.targets.kinds(state.rest))
    if left_behind:
        raise ValueError(
            f"{change}, but not those of {', '.join(map(repr, left_behind))} beside it: do this"
            " with a geometric transform such as Resize or CenterCrop, which moves them along."
        )
    told = transform.after(drawn, state.info).canvas
    if told != result.shape[:2]:
        raise ValueError(
            f"{change}, but {name}.after tells of {told}: override it to return"
            " ImageInfo((height, width))."
        )


def _check_frame(transform: Transform, drawn: Drawn, info: ImageInfo, result: Sample) -> None:
    """Raise where a `SampleOp` leaves a "size" that is not of its image, or tells of another."""
    name = type(transform).__name__
    canvas = result["image"].shape[:2]
    size = result.get("size")
    if canvas != info.canvas and size is not None and size is info.size:
        raise ValueError(
            f"{name}.apply changed the image's height and width from {info.canvas} to {canvas}, but"
            " not the 'size' beside it: return a 'size' of its own, the used (height, width), such"
            f" as jnp.minimum(sample['size'], jnp.array({canvas})), or leave 'size' out where all"
            " of the array is image."
        )
    told = transform.after(drawn, info)
    if told.canvas != canvas or (told.size is None) != (size is None):
        raise ValueError(
            f"{name}.apply returned an image of {canvas} {_with(size)} 'size', but {name}.after"
            f" tells of {told.canvas} {_with(told.size)} size: override it to return"
            " info._replace(canvas=(height, width), size=...), a `size` as in the sample, or None."
        )


def _with(size: Any) -> str:
    return "without" if size is None else "with a"


def _checked(transform: Transform, result: Any) -> Array:
    """Return the image that `apply` gave, as float32."""
    try:
        image = jnp.asarray(result)
        got = f"{image.dtype}{list(image.shape)}"
    except (TypeError, ValueError):  # None, where `return` was forgotten, or a dict
        image = None
        got = type(result).__name__
    if image is None or image.ndim != 3 or not jnp.issubdtype(image.dtype, jnp.floating):
        name = type(transform).__name__
        function = "`function` of Lambda" if name == "Lambda" else f"{name}.apply"
        raise TypeError(f"{function} must return a float image [h, w, c] in [0, 1], got {got}.")
    return image.astype(jnp.float32)
