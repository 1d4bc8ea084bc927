"""Several views of one image or video, each through a chain with draws of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array

from jaxaug._checks import check_positive_int
from jaxaug._typing import Key, Sample
from jaxaug.augment._base import store
from jaxaug.augment._chain.compose import Compose, as_transforms
from jaxaug.augment._chain.frames import Frames, frames_name
from jaxaug.augment._chain.progress import check_key
from jaxaug.augment._chain.transform import Transform
from jaxaug.augment._warp import Targets


@dataclass(frozen=True)
class MultiView:
    """Make stacks of random views of one image, or of one video.

    It is a whole chain, as for `Loader(transform=...)`, and cannot be part of a `Compose`. The
    chains of a video, the entry "video" of a sample, are `Frames`; of a sample with several clips
    each view has all of them.

    Args:
      views: {name: (chain, count)}; each of the `count` views goes through the chain with a key of
        its own. A chain must give every image the same size.

    Returns:
      On a call `(key, image)` or `(key, sample)` a dict: for each name the views [count, H, W, C],
      of a video [count, (clips,) T, H, W, C], and the other entries of the sample.

    Raises:
      ValueError: for a mask, boxes, keypoints or what a chain names in `targets`, for an entry of a
        view's name, and for a chain that leaves images of different sizes on a canvas.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> views = {
      ...     "global": (augment.RandomResizedCrop(8, scale=(0.4, 1.0)), 2),
      ...     "local": (augment.RandomResizedCrop(4, scale=(0.05, 0.4)), 6),
      ... }
      >>> out = MultiView(views)(jax.random.key(0), jnp.zeros((20, 30, 3), jnp.uint8))
      >>> out["global"].shape, out["local"].shape
      ((2, 8, 8, 3), (6, 4, 4, 3))
    """

    views: Any

    def __post_init__(self):
        rows = self.views
        if isinstance(rows, Mapping):
            pairs = (list, tuple)
            rows = [(name, *(v if isinstance(v, pairs) else [v])) for name, v in rows.items()]
        listed = isinstance(rows, (list, tuple)) and len(rows) > 0
        if not listed or not all(
            isinstance(row, (list, tuple)) and len(row) == 3 and isinstance(row[0], str)
            for row in rows
        ):
            raise ValueError(f"`views` must be {{name: (chain, count)}}, got {self.views!r}.")
        for name, chain, count in rows:
            as_transforms("transforms", [chain.transform if isinstance(chain, Frames) else chain])
            check_positive_int(f"views[{name!r}][1]", count)
        store(self, views=tuple(tuple(row) for row in rows))

    def __call__(self, key: Key, sample: Array | Sample) -> Sample:
        """Return the views of one image or one sample; see the class."""
        check_key(key, sample)
        if isinstance(sample, Mapping):
            sample = dict(sample)
            sample["image"] = sample.pop(frames_name(sample))
        given, result = image_alone(self, sample, [name for name, _, _ in self.views])
        for number, (name, chain, count) in enumerate(self.views):
            keys = jax.random.split(jax.random.fold_in(key, number), count)
            viewed = jax.vmap(chain, in_axes=(0, None))(keys, given)
            result[name] = stacked(name, viewed)
        return result

    @property
    def chains(self) -> tuple[Transform, ...]:
        """The chains of the views, of single images."""
        chains = (chain for _, chain, _ in self.views)
        return tuple(each.transform if isinstance(each, Frames) else each for each in chains)


def image_alone(
    views: Any, sample: Array | Sample, names: Iterable[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a sample as a dict, and what stays of it beside the stacks of views.

    Args:
      views: the transform that makes them, with its `chains`.
      sample: an image, or a sample.
      names: of the stacks.

    Raises:
      ValueError: for what would have to move along, and for an entry of a stack's name.
    """
    given = dict(sample) if isinstance(sample, Mapping) else {"image": sample}
    added = [pair for each in views.chains if isinstance(each, Compose) for pair in each.targets]
    refused = list(Targets(added=tuple(added)).kinds(given))
    if refused:
        shown = ", ".join(map(repr, refused))
        raise ValueError(f"{type(views).__name__} takes images alone, got {shown} beside one.")
    for name in names:
        if name in given:
            raise ValueError(f"the sample has an entry {name!r}: give the views another name.")
    return given, {name: value for name, value in given.items() if name not in ("image", "size")}


def stacked(name: str, viewed: Sample) -> Array:
    """Return the images of a chain's results; raise where they are of different sizes."""
    if "size" in viewed:
        raise ValueError(
            f"the chain of {name!r} leaves images of different sizes: let an op of fixed size such"
            " as RandomResizedCrop be in it."
        )
    return viewed["image"]
