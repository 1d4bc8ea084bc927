"""Chains of transforms, in which a run of geometric ops is one resample."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import (
    LEVELS,
    NO_IMAGE,
    AudioInfo,
    Converter,
    Drawn,
    Flag,
    ImageInfo,
    VolumeInfo,
    as_class_index,
)
from jaxaug.augment._chain.group import GroupOp
from jaxaug.augment._chain.progress import Note, State, begin, check_key, finish, resampled
from jaxaug.augment._chain.transform import Geometric, Output, Pointwise, Transform, leaves
from jaxaug.augment._warp import (
    MASK_FILL,
    Resampling,
    Targets,
    Warp,
    agreed,
    as_added,
    as_box_format,
    as_swaps,
    moved_info,
)
from jaxaug.augment._xla import vary_alike


def as_transforms(name: str, value: Any) -> tuple[Transform, ...]:
    """Return the sequence of transforms that an argument is, checked, as a tuple."""
    if not isinstance(value, Sequence):
        raise TypeError(
            f"`{name}` must be a sequence of transforms, got {value!r}: put it in a list."
        )
    for transform in value:
        _check_kind(transform, name)
    return tuple(value)


Transforms: TypeAlias = Annotated[Sequence[Transform], Converter(as_transforms)]


@dataclass(frozen=True)
class Compose(Transform):
    """Transforms one after the other, of images, sounds (`augment.audio`), volumes, or several.

    Consecutive geometric transforms of equal interpolation, padding mode and fill are composed into
    one map and resampled once; inside such a run frames do not clip, and need no static shape:
    `Resize(256)` of images on a canvas may stand before `CenterCrop(224)`. Between levels and the
    last transform the image is float32 in [0, 1]. Transform k takes `fold_in(key, k)`, and nested
    chains fold again. `Frames` takes a chain for videos.

    Args:
      transforms: the transforms, of which only the last may be an output (`Normalize`, `ToFloat`).
        A nested `Compose` must have the same other settings.
      fuse: False resamples after every transform, as torchvision does; a choice is one transform.
      mask_fill: the value of an integer "mask" outside of the image: beyond "size", and where a
        warp or a crop with "constant" padding looks beyond the source. 255 is what losses ignore by
        custom. Boolean masks hold False there, floating ones 0.
      box_format: of "boxes" in and out: "xyxy", "xywh" or "cxcywh", of which transforms are given
        xyxy; or of oriented ones "cxcywhr", "xywhr" or "xyxyxyxy", of which they are given the
        corners; see `functional.convert_bounding_box_format`.
      targets: entries beside the usual ones that move along, {name: kind}: {"right": "image",
        "depth": "map", "labels": "mask"}. To an "image" [H, W, C] or [H, W], uint8, uint16
        or float in [0, 1], geometric transforms and the output do what they do to the first; color
        transforms leave it as it is. A "map" is interpolated like an image, 0 outside of it, and
        its numbers are left as they are. "polygons" float[..., k, 2] are points, of which an int
        "<name>_length" [...] beside them says how many each polygon has.
      swap: what changes sides where the image is mirrored: pairs of joints of "keypoints" [...,
        joints, 2 or 3], such as ((1, 2), (3, 4)) for left and right eyes and ears, which change
        places; or a dict that names pairs of classes of other entries, too: {"keypoints":
        ((1, 2),), "box_labels": ((5, 6),)}. A run of two mirrors is none.

    Returns:
      On a call `(key, image)` an image, on `(key, sample)` a sample: uint8 for uint8, uint16 for
      uint16, the input's float dtype for floats, unless the last transform is an output. "size"
      stays, moved, until a transform gives every image the same size; other entries are kept. What
      moves along: "mask" [H, W] or [H, W, C] of the image's H and W; "masks" [n, H, W], one per
      instance, 0 outside of the image; "boxes" float[n, 4] in pixels, oriented ones [n, 5] or
      [n, 8], of which all-zero rows are padding and stay zero; "keypoints" float[..., 2], (x, y) in
      pixels, or [..., 3] with a visibility that becomes 0 where they leave the frame. Boxes are
      clipped by `SanitizeBoxes` alone.

    Raises:
      TypeError: for something that is not a transform, an image that is neither uint8, uint16 nor
        floating, or a key that is none.
      ValueError: for an output that is not the last, a nested chain with other settings, anything
        but one image (h, w, channels) or a mask that does not fit it, float values beyond [0, 1]
        (seen outside of `jit` only), a `mask_fill` that the mask's dtype cannot hold, boxes named
        "bbox" or "bboxes" that would stay behind, and on tracing for a run whose output has no
        static shape.

    Example:
      >>> import jax
      >>> from jaxaug import augment
      >>> train = augment.Compose([augment.RandomResizedCrop(8), augment.RandomHorizontalFlip()])
      >>> keys = jax.random.split(jax.random.key(0), 2)
      >>> jax.vmap(train)(keys, jax.numpy.zeros((2, 20, 30, 3), jax.numpy.uint8)).shape
      (2, 8, 8, 3)
      >>> speech = augment.Compose([augment.audio.Gain(), augment.audio.LogMel()])
      >>> speech(keys[0], jax.numpy.zeros(16_000)).shape
      (101, 80)

    Differs from torchvision in resampling runs of geometric transforms once (`fuse=True`), and in
    what masks hold outside of the image (there 0).
    """

    transforms: Transforms
    _: KW_ONLY
    fuse: Flag = True
    mask_fill: Annotated[int, Converter(as_class_index)] = MASK_FILL
    box_format: Annotated[str, Converter(as_box_format)] = "xyxy"
    targets: Annotated[Any, Converter(as_added)] = ()
    swap: Annotated[Any, Converter(as_swaps)] = ()

    def __post_init__(self):
        super().__post_init__()
        for transform in self.transforms:
            self._check_settings(transform)
        for transform in leaves(self)[:-1]:
            if isinstance(transform, Output):
                raise ValueError(
                    f"{type(transform).__name__} must be the last transform: the others need values"
                    " in [0, 1] and layout HWC. Images need no ToFloat before Normalize: it makes"
                    " floats of them itself."
                )
        self._check_channels()

    @property
    def parts(self) -> tuple[Transform, ...]:
        """The transforms of the chain."""
        return tuple(self.transforms)

    def make_params(
        self, key: Key, info: ImageInfo | AudioInfo | VolumeInfo | Array | Sample
    ) -> tuple[Drawn, ...]:
        """Draw the parameters of every transform: the randomness of one call, which can be saved.

        `chain.apply(chain.make_params(key, sample), sample)` equals `chain(key, sample)`, as long
        as the transforms tell by `after` what they do to the `ImageInfo`.

        Args:
          key: a PRNG key.
          info: the image or the sample itself, of which no pixel is read, or its `ImageInfo`; of a
            sound alone its `AudioInfo`, of a volume its `VolumeInfo`.

        Returns:
          A pytree of arrays, one entry per transform; that of a `Lambda` is its key.

        Example:
          >>> import jax
          >>> from jaxaug import augment
          >>> chain = augment.Compose([augment.RandomRotation(10), augment.CenterCrop(8)])
          >>> image = jax.numpy.zeros((20, 30, 3), jax.numpy.uint8)
          >>> params = chain.make_params(jax.random.key(0), image)
          >>> chain.apply(params, image).shape
          (8, 8, 3)
          >>> again = chain.make_params(jax.random.key(0), augment.ImageInfo((20, 30)))
          >>> bool(params[0].params == again[0].params)
          True
        """
        check_key(key, info)
        if isinstance(info, AudioInfo):
            info = ImageInfo(NO_IMAGE, epoch=info.epoch, audio=info)
        if isinstance(info, VolumeInfo):
            info = ImageInfo(NO_IMAGE, epoch=info.epoch, volume=info)
        if not isinstance(info, ImageInfo):
            key, info = vary_alike(key, info)
            info = begin(info, self._targets(), self.entry).info
        drawn = []
        for number, transform in enumerate(self.transforms):
            drawn.append(transform.draw(jax.random.fold_in(key, number), info))
            info = transform.after(drawn[-1], info)
        return tuple(drawn)

    def apply(self, params: tuple[Drawn, ...], sample: Array | Sample) -> Any:
        """Transform one image or one sample with what `make_params` drew: a replay."""
        params, sample = vary_alike(params, sample)
        state = self.run(Drawn(params), begin(sample, self._targets(), self.entry))
        result = finish(state)
        return result if isinstance(sample, Mapping) else result[self.entry]

    def warp(self, params: tuple[Drawn, ...], info: ImageInfo) -> Warp:
        """Return the one map of a chain of geometric transforms, for what `make_params` drew.

        Raises:
          TypeError: for a chain with other transforms, or with different interpolation or padding.
        """
        if not self.geometric:
            names = [type(transform).__name__ for transform in leaves(self)]
            raise TypeError(
                "a chain has one map only where all its transforms are geometric and agree on"
                f" interpolation, padding mode and fill, got {', '.join(names)}."
            )
        total = Warp.identity(info)
        source = info
        geometric: Any = self.transforms  # chains among them, too
        for transform, drawn in zip(geometric, params, strict=True):
            total = total.then(transform.drawn_warp(drawn, info))
            info = moved_info(source, total)
        return total

    def explain(self, info: ImageInfo | AudioInfo | VolumeInfo) -> str:
        """Return the stages of the chain: its runs, their taps per pixel, its passes.

        Args:
          info: of the image: the canvas, and "size", "boxes" and "epoch" where it has them; of a
            sound its `AudioInfo`, of a volume its `VolumeInfo`. A transform of yours finds these
            entries in its sample and no others.

        Example:
          >>> from jaxaug import augment
          >>> chain = augment.Compose([augment.RandomRotation(9), augment.ToFloat()])
          >>> print(chain.explain(augment.ImageInfo((32, 32))))
          1 pass over the pixels of 32 x 32:
            resample   RandomRotation: bilinear, constant, to 32 x 32: 2 x 2 taps per pixel
            output     ToFloat: float32 HWC, fused
        """
        notes: list[Note] = []

        def trace(key: Key, sample: Sample) -> Sample:
            state = resampled(self.run_from(key, begin(sample, self._targets())))
            notes.extend(state.notes)
            return finish(state)

        sample, what = self._example(info)
        jax.eval_shape(trace, jax.eval_shape(lambda: jax.random.key(0)), sample)
        passes = sum(note.passes for note in notes)
        lines = [f"{passes} pass{'' if passes == 1 else 'es'} over {what}:"]
        for note in notes:
            lines.append(f"  {note.stage:<10} {', '.join(note.names)}: {note.detail}")
        return "\n".join(lines)

    def _example(self, info: ImageInfo | AudioInfo | VolumeInfo) -> tuple[Sample, str]:
        """Return a sample without values, and what it is."""
        if isinstance(info, VolumeInfo):
            channels = () if info.channels is None else (info.channels,)
            volume = jax.ShapeDtypeStruct((*info.shape, *channels), jnp.float32)
            entries = {"volume": volume, "spacing": info.spacing, "epoch": info.epoch}
            what = "the voxels of {} x {} x {}".format(*info.shape)
        elif isinstance(info, AudioInfo):
            audio = jax.ShapeDtypeStruct(info.shape, jnp.float32)
            entries = {"audio": audio, "audio_length": info.length, "epoch": info.epoch}
            what = f"the {info.samples} samples"
        else:
            channels = info.channels or self._channels()
            dtype = jnp.uint8 if info.levels == LEVELS else jnp.uint16
            image = jax.ShapeDtypeStruct((*info.canvas, channels), dtype)
            entries = {"image": image, "size": info.size, "boxes": info.boxes, "epoch": info.epoch}
            what = f"the pixels of {info.canvas[0]} x {info.canvas[1]}"
        return {name: value for name, value in entries.items() if value is not None}, what

    @property
    def geometric(self) -> bool:
        """True where the whole chain is one resample."""
        steps = leaves(self)
        if not all(step.geometric for step in steps):
            return False
        return (self.fuse or len(steps) < 2) and agreed(steps) is not None

    def resampling(self) -> Resampling:
        """Return the resampling of a chain that is `geometric`."""
        together = agreed(leaves(self))
        if together is None:
            raise TypeError("the transforms of this chain are not resampled alike.")
        return together

    def drawn_warp(self, drawn: Drawn, info: ImageInfo) -> Warp:
        """Return the map of a chain that is `geometric`."""
        return self.warp(drawn.params, info)

    def after(self, drawn: Drawn, info: ImageInfo) -> ImageInfo:
        """Return the `ImageInfo` after the whole chain."""
        for transform, inner in zip(self.transforms, drawn.params, strict=True):
            info = transform.after(inner, info)
        return info

    def run(self, drawn: Drawn, state: State) -> State:
        """Run the transforms one after the other."""
        for transform, inner in zip(self.transforms, drawn.params, strict=True):
            state = transform.run(inner, state)
            if not self.fuse:
                state = resampled(state)
        return state

    def run_from(self, key: Key, state: State) -> State:
        """Draw and run one after the other: each transform draws from what the one before left."""
        for number, transform in enumerate(self.transforms):
            drawn = transform.draw(jax.random.fold_in(key, number), state.info)
            state = transform.run(drawn, state)
            if not self.fuse:
                state = resampled(state)
        return state

    def _targets(self) -> Targets:
        return Targets(self.mask_fill, self.box_format, self.targets, self.swap)

    def _channels(self) -> int:
        """Return the number of channels that a transform needs, 3 where none does."""
        wanted = [leaf.wanted_channels for leaf in leaves(self)]
        return next((count for count in wanted if count is not None), 3)

    def _check_channels(self) -> None:
        """Raise where no image has the channels that two of the transforms need."""
        first = None
        for leaf in leaves(self):
            count = leaf.wanted_channels
            if first is None or not _keeps_channels(leaf):
                first = None if count is None else leaf
            elif count not in (None, first.wanted_channels):
                raise ValueError(
                    f"{first.title} needs images of {first.wanted_channels} channels, and"
                    f" {leaf.title} behind it of {count}: leave one of them out."
                )

    def _check_settings(self, transform: Transform) -> None:
        """Raise where a chain inside has other settings than this one."""
        if isinstance(transform, Compose):
            for name in ("fuse", "mask_fill", "box_format", "targets", "swap"):
                inner, outer = getattr(transform, name), getattr(self, name)
                if inner != outer:
                    raise ValueError(
                        f"a Compose inside another must have the same `{name}`, got {inner!r}"
                        f" inside {outer!r}: give both `{name}={inner!r}`, or put the inner"
                        " transforms in the outer list."
                    )
        for part in transform.parts or ():
            self._check_settings(part)


def _keeps_channels(transform: Transform) -> bool:
    """Return False for functions of users, which may return an image of other channels."""
    if isinstance(transform, Geometric | Pointwise | Output):
        return True
    own = type(transform).__module__.partition(".")[0] == __name__.partition(".")[0]
    return own and not hasattr(transform, "function")


def _check_kind(transform: Any, argument: str) -> None:
    """Raise where `transform` is none that a chain can run."""
    if isinstance(transform, type):
        name = transform.__name__
        raise TypeError(f"`{argument}` holds the class {name}: write {name}(...).")
    if isinstance(transform, GroupOp):
        name = type(transform).__name__
        choice = "GroupCompose makes a chain of such, MixUpOrCutMix chooses"
        raise TypeError(
            f"{name} mixes several images: give it to Loader(batch_transform=...); {choice}."
        )
    if isinstance(transform, list):
        raise TypeError(f"`{argument}` holds the list {transform!r}: make a `Compose` of it.")
    if not isinstance(transform, Transform):
        raise TypeError(
            f"`{argument}` must be jaxaug transforms, got {transform!r}: wrap a function in"
            " `Lambda`; MultiView and Frames stand for a whole chain, beside which operators in"
            " time are called, in a function of (key, sample)."
        )
    transform.check()
