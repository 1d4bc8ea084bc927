"""Which frames of a clip are shown, and in which order."""

import abc
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import Converter, Names, PositiveInt, as_probability, convert_fields
from jaxaug.augment._chain import check_key, frames_name, over_clips, split_frames
from jaxaug.augment._warp import Targets
from jaxaug.augment._xla import vary_alike


@dataclass(frozen=True)
class _FrameOrder(abc.ABC):
    """Take frames of a video by their numbers: the base of temporal operators.

    As `Frames` it is no part of a `Compose`, but a function of (key, frames) or (key, sample).
    What has a row for each frame follows: "mask", "masks", "boxes" with what they have beside them
    ("boxes_valid", "box_labels" [T, n], "box_count" [T]), "keypoints", "video_frame", "video_time",
    and a "size" of each. Each of several clips [clips, T, ...] draws for itself.

    Args:
      entries: the names of further entries with a row for each frame.
    """

    _: KW_ONLY
    entries: Names = ()

    def __post_init__(self):
        convert_fields(self)

    @abc.abstractmethod
    def order(self, key: Key, count: int) -> Array:
        """Return the numbers int32[t] of the frames to show, of `count`."""

    def __call__(self, key: Key, sample: Array | Sample) -> Any:
        """Return the frames of one video in their new order; see the class."""
        check_key(key, sample)
        key, sample = vary_alike(key, sample)
        given = dict(sample) if isinstance(sample, Mapping) else {"image": sample}
        name = frames_name(given)
        given["image"] = given.pop(name)
        known = {"image", f"{name}_frame", f"{name}_time", *Targets().kinds(given)}
        if jnp.ndim(given.get("size", 0)) == jnp.ndim(given["image"]) - 2:
            known.add("size")  # of each frame, as Frames(per_frame=True) leaves it
        rows, shared = split_frames(given, {*known, *self.entries})
        result = over_clips(self._ordered, key, rows)
        result = {name if entry == "image" else entry: row for entry, row in result.items()}
        return {**shared, **result} if isinstance(sample, Mapping) else result[name]

    def _ordered(self, key: Key, rows: Sample) -> Sample:
        """Return the entries of one clip."""
        order = self.order(key, rows["image"].shape[0])
        return {name: row[order] for name, row in rows.items()}


@dataclass(frozen=True)
class UniformTemporalSubsample(_FrameOrder):
    """Take so many frames at equal steps from the first to the last.

    Frame k of n is floor(k (T - 1) / (n - 1)), as in torchvision; the first one alone for n = 1.

    Args:
      num_samples: n, how many; more than T repeat frames.
      entries: the names of further entries with a row for each frame, beside masks, boxes
        and their columns, keypoints, and the frames' numbers and times.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> frames = jnp.arange(10.0).reshape(10, 1, 1, 1)
      >>> UniformTemporalSubsample(4)(jax.random.key(0), frames).ravel().tolist()
      [0.0, 3.0, 6.0, 9.0]
    """

    num_samples: PositiveInt

    def order(self, key: Key, count: int) -> Array:
        """Return the numbers int32[num_samples] of frames at equal steps."""
        steps = jnp.arange(self.num_samples, dtype=jnp.int32)
        return steps * (count - 1) // max(1, self.num_samples - 1)


@dataclass(frozen=True)
class RandomTemporalReversal(_FrameOrder):
    """Show a video backwards, with a probability.

    Args:
      p: the probability.
      entries: the names of further entries with a row for each frame, beside masks, boxes
        and their columns, keypoints, and the frames' numbers and times.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> frames = jnp.arange(3.0).reshape(3, 1, 1, 1)
      >>> RandomTemporalReversal(p=1.0)(jax.random.key(0), frames).ravel().tolist()
      [2.0, 1.0, 0.0]
    """

    p: Annotated[float, Converter(as_probability)] = 0.5

    def order(self, key: Key, count: int) -> Array:
        """Return the numbers int32[count] of all frames, from the first or from the last on."""
        numbers = jnp.arange(count, dtype=jnp.int32)
        backwards = jax.random.uniform(key, (), jnp.float32) < self.p
        return jnp.where(backwards, count - 1 - numbers, numbers)


@dataclass(frozen=True)
class FrameDropout(_FrameOrder):
    """Lose frames: each but the first, with a probability, for which the one before it stays.

    As a stream stutters that loses frames. "video_frame" and "video_time" tell which are shown.

    Args:
      p: the probability of each frame.
      entries: the names of further entries with a row for each frame, beside masks, boxes
        and their columns, keypoints, and the frames' numbers and times.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> frames = jnp.arange(3.0).reshape(3, 1, 1, 1)
      >>> FrameDropout(p=1.0)(jax.random.key(0), frames).ravel().tolist()
      [0.0, 0.0, 0.0]
    """

    p: Annotated[float, Converter(as_probability)] = 0.1

    def order(self, key: Key, count: int) -> Array:
        """Return the numbers int32[count] of the frames that stay, each as long as it is shown."""
        lost = jax.random.uniform(key, (count,), jnp.float32) < self.p
        kept = jnp.where(lost, 0, jnp.arange(count, dtype=jnp.int32))
        return jax.lax.cummax(kept)
