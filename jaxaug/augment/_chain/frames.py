"""The frames of a video through one chain."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import Flag, Names, convert_fields
from jaxaug.augment._chain.compose import Compose, as_transforms
from jaxaug.augment._chain.progress import check_key
from jaxaug.augment._chain.transform import Transform
from jaxaug.augment._warp import USUAL_COLUMNS, Targets, box_columns
from jaxaug.augment._xla import vary_alike


@dataclass(frozen=True)
class Frames:
    """Apply a chain to every frame of a video, with one draw for all of them or one for each.

    It is a whole chain, and cannot be part of a `Compose`: `Loader(decode=Video(), transform=
    Frames(chain))`. The frames are the entry "video" of a sample or, where it has one, "image".
    Several clips [clips, T, H, W, C] have draws of their own, clip c those of `fold_in(key, c)`.

    Args:
      transform: a `Compose` or another transform, of single images.
      per_frame: False draws once, from the first frame, so that all frames change
        in the same way, including their noise. True draws for frame t with `fold_in(key, t)`.
      entries: the names of further entries with a row for each frame.

    Returns:
      On a call `(key, frames)`, [T, H, W, C], frames; on `(key, sample)` a sample. What moves along
      has a row for each frame of each clip, before and after: "mask" [T, H, W], "masks" [T, n, H,
      W], "boxes" [T, n, 4] and what they have beside them, such as "box_labels" or "labels" [T, n],
      "keypoints" [T, n, 2], and what `Compose(targets=)` names. "size" is int32[2] for all frames;
      after draws for each frame, and behind such, it is int32[T, 2], of several clips [clips, ...,
      2]. Other entries are kept.

    Raises:
      ValueError: for anything but frames (t, h, w, channels), for an entry without a row for each
        frame, and where the chain changes an entry that all frames share.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> clip = augment.Frames(augment.RandomHorizontalFlip())
      >>> frames = jnp.zeros((8, 20, 30, 3), jnp.uint8).at[:, 0, 0].set(1)
      >>> flipped = clip(jax.random.key(0), frames)[:, 0, 29, 0]
      >>> bool((flipped == flipped[0]).all())
      True
    """

    transform: Transform
    per_frame: Flag = False
    entries: Names = ()

    def __post_init__(self):
        as_transforms("transforms", [self.transform])
        convert_fields(self)

    def __call__(self, key: Key, sample: Array | Sample) -> Any:
        """Transform the frames of one video; see the class."""
        check_key(key, sample)
        key, sample = vary_alike(key, sample)
        given = dict(sample) if isinstance(sample, Mapping) else {"image": sample}
        name = frames_name(given)
        given["image"] = given.pop(name)
        rows, shared = self._split(given)
        result = over_clips(lambda key, rows: self._clip(key, rows, shared), key, rows)
        result = {name if entry == "image" else entry: row for entry, row in result.items()}
        kept = {name: value for name, value in shared.items() if name != "size"}
        return {**kept, **result} if isinstance(sample, Mapping) else result[name]

    @property
    def _chain(self) -> Compose:
        chain = self.transform
        return chain if isinstance(chain, Compose) else Compose([chain])

    def _clip(self, key: Key, rows: Sample, shared: Sample) -> Sample:
        """Return what one clip has of its own, from its entries with a row for each frame."""
        chain = self._chain
        if jnp.ndim(rows.get("size", 0)) == 1:  # of a clip, not of each frame
            shared = {**shared, "size": rows["size"]}
            rows = {name: row for name, row in rows.items() if name != "size"}
        if self.per_frame:
            numbers = jnp.arange(rows["image"].shape[0], dtype=jnp.int32)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
            return jax.vmap(lambda key, row: _with_shared(chain(key, {**shared, **row}), shared))(
                keys, rows
            )
        first = {name: row[0] for name, row in rows.items()}
        drawn = chain.make_params(key, {**shared, **first})
        result = jax.vmap(lambda row: _with_shared(chain.apply(drawn, {**shared, **row}), shared))(
            rows
        )
        if "size" in result and "size" not in rows:
            result["size"] = result["size"][0]
        return result

    def _split(self, given: Sample) -> tuple[Sample, Sample]:
        """Return the entries with a row for each frame, and those that all frames share."""
        chain = self._chain
        kinds = Targets(added=chain.targets).kinds(given)
        rows, shared = split_frames(given, {"image", *kinds, *self.entries})
        if jnp.ndim(shared.get("size", 0)) > 1:  # of each clip or frame, as another has left it
            rows["size"] = jnp.asarray(shared.pop("size"))
        return rows, shared


def frames_name(given: Sample) -> str:
    """Return the name of the entry that holds the frames: "image" or "video"."""
    for name in ("image", "video"):
        if name in given:
            return name
    raise ValueError(f"a sample must have an 'image' or a 'video', got the keys {sorted(given)}.")


def split_frames(given: Sample, named: Collection[str]) -> tuple[Sample, Sample]:
    """Return the entries with a row for each frame, and the others.

    Those have one that are `named`, or have a row for each box of each frame.

    Raises:
      ValueError: "image" is no frames, or one that is named has another number of rows.
    """
    shape = jnp.shape(given["image"])
    if len(shape) not in (4, 5) or 0 in shape[:-3]:
        hint = "a single image goes to the chain itself, and a batch of videos through jax.vmap"
        raise ValueError(
            f"expected frames (t, h, w, channels), or clips of them, got {shape}: {hint}."
        )
    counts = shape[:-3]
    named = {*named, *_beside_boxes(given)}
    rows = {name: jnp.asarray(value) for name, value in given.items() if name in named}
    for name, value in rows.items():
        if value.shape[: len(counts)] != counts:
            clips = "" if len(counts) == 1 else f" of each of {counts[0]} clips"
            raise ValueError(
                f"`{name}` must have a row for each of the {counts[-1]} frames{clips}, got "
                f"{value.shape}."
            )
    return rows, {name: value for name, value in given.items() if name not in named}


def _beside_boxes(sample: Sample) -> set[str]:
    """Return the names of what has a row for each box of each frame, and of a count by frame."""
    if "boxes" not in sample:
        return set()
    frames, boxes = jnp.shape(sample["boxes"])[:-2], jnp.shape(sample["boxes"])[:-1]
    columns = box_columns(sample, USUAL_COLUMNS)
    names = {name for name in columns if jnp.shape(sample[name])[: len(boxes)] == boxes}
    counted = jnp.shape(sample.get("box_count", 0)) == frames
    return names | {"box_count"} if counted else names


def over_clips(function: Callable[[Key, Sample], Sample], key: Key, rows: Sample) -> Sample:
    """Return `function(key, rows)` of one clip; of several, of each with a key of its own."""
    if rows["image"].ndim == 4:
        return function(key, rows)
    numbers = jnp.arange(rows["image"].shape[0], dtype=jnp.int32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
    return jax.vmap(function)(keys, rows)


def _with_shared(result: Sample, shared: Sample) -> Sample:
    """Return what a frame has of its own, checked to leave the rest as it was."""
    own = {}
    for name, value in result.items():
        if name == "size" or name not in shared:
            own[name] = value
        elif value is not shared[name]:
            raise ValueError(
                f"the chain changes {name!r}, which all frames share: give it a row for each frame"
                f" and name it, Frames(..., entries=({name!r},))."
            )
    return own
