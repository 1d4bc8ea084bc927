"""Transforms that choose among others for each image: apply, choice, order, some of.

Each is a row of choices, and a choice has one mechanism. Its geometric branches are one `select` of
warps, so that together they cost one resample; the others are computed and selected, so that they
cost their sum. Of a choice among branches of both kinds the warp comes first, and is the identity
where another branch was drawn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Scalar
from jaxaug.augment import random
from jaxaug.augment._base import (
    Converter,
    Drawn,
    ImageInfo,
    PositiveInt,
    floating,
    is_number,
    ordered,
    plain,
    setting,
    store,
    unit,
)
from jaxaug.augment._chain.compose import Compose, as_transforms
from jaxaug.augment._chain.progress import Note, State, resampled, stored
from jaxaug.augment._chain.progress import warped as warped_state
from jaxaug.augment._chain.transform import Output, Pointwise, Transform, check_image, leaves
from jaxaug.augment._warp import Resampling, Warp, agreed, check_one_frame, moved_info, select
from jaxaug.augment.matrix import is_static

_NOTHING = Compose(())


class Branches(NamedTuple):
    """Drawn parameters of a transform that chooses.

    Attributes:
      chosen: the index of the branch, the order of the branches, or a flag for each; None where
        the coin of `p` alone decides.
      drawn: of every branch, the chosen ones and the others.
    """

    chosen: Array | None
    drawn: tuple[Drawn, ...]


class Choice(NamedTuple):
    """One of several transforms: a traced index, and the branches with what each drew."""

    chosen: Array
    pairs: tuple[tuple[Transform, Drawn], ...]

    @property
    def branches(self) -> tuple[Transform, ...]:
        """The transforms."""
        return tuple(branch for branch, _ in self.pairs)

    def warps(self, info: ImageInfo) -> list[Warp]:
        """Return the map of each branch; the identity for one that is not geometric."""
        return [
            branch.drawn_warp(drawn, info) if branch.geometric else Warp.identity(info)
            for branch, drawn in self.pairs
        ]


def _as_branches(name: str, value: Any) -> tuple[Transform, ...]:
    """Return at least one transform."""
    transforms = as_transforms(name, value)
    if not transforms:
        raise ValueError(f"`{name}` must hold at least one transform, got none.")
    return transforms


@dataclass(frozen=True)
class Control(Transform):
    """A transform that runs some of several others.

    Args:
      transforms: the branches: transforms, chains of them (`Compose`), or choices again. None may
        be an output. They draw for the image as it is before.
    """

    transforms: Annotated[Sequence[Transform], Converter(_as_branches)]

    def __post_init__(self):
        super().__post_init__()
        for leaf in leaves(self):
            if isinstance(leaf, Output):
                raise ValueError(
                    f"{type(leaf).__name__} cannot be a branch: put it at the end of the chain."
                )

    @property
    def parts(self) -> tuple[Transform, ...]:
        """The branches."""
        return tuple(self.transforms)

    @property
    def geometric(self) -> bool:
        """True where all branches are, and are resampled alike."""
        return all(part.geometric for part in self.parts) and agreed(self.parts) is not None

    def resampling(self) -> Resampling:
        """Return the resampling of branches that are all geometric."""
        return agreed(self.parts) or Resampling()

    def choices(self, drawn: Drawn) -> list[Choice]:
        """Return the choices, one after the other; by default one, of the branch that was drawn."""
        chosen, branches = drawn.params
        return [_choice(chosen, self.parts, branches, drawn.applied)]

    def drawn_warp(self, drawn: Drawn, info: ImageInfo) -> Warp:
        """Return the map of branches that are all geometric."""
        total = Warp.identity(info)
        source = info
        for choice in self.choices(drawn):
            total = total.then(select(choice.chosen, choice.warps(info)))
            info = moved_info(source, total)
        return total

    def after(self, drawn: Drawn, info: ImageInfo) -> ImageInfo:
        """Return the `ImageInfo` afterwards."""
        for choice in self.choices(drawn):
            infos = [branch.after(each, info) for branch, each in choice.pairs]
            info = _chosen_info(choice.chosen, infos)
        return info

    def run(self, drawn: Drawn, state: State) -> State:
        """Run the choices one after the other."""
        for part in self.parts:
            # What a branch begins with is given the image as it is before the choice.
            while isinstance(part, Compose) and part.parts:
                part = part.parts[0]
            if state.image is not None:
                check_image(part, state, inside=self)
        for choice in self.choices(drawn):
            state = _run(choice, state, self)
        return state

    def _draw_branches(self, key: Key, info: ImageInfo) -> tuple[Drawn, ...]:
        keys = jax.random.split(key, len(self.transforms))
        return tuple(part.draw(k, info) for part, k in zip(self.transforms, keys, strict=True))


@dataclass(frozen=True)
class RandomApply(Control):
    """Apply the chain of `transforms`, all of them or none, with probability `p`.

    Args:
      transforms: the chain.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> jitter = RandomApply([augment.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8)
      >>> jitter(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    p: float = 0.5

    def make_params(self, key: Key, info: ImageInfo) -> Branches:
        """Draw for the chain."""
        return Branches(None, (self._chain.draw(key, info),))

    def choices(self, drawn: Drawn) -> list[Choice]:
        """Return one: nothing, or the chain."""
        return [_choice(jnp.int32(0), (self._chain,), drawn.params.drawn, drawn.applied)]

    @property
    def geometric(self) -> bool:
        """True where the whole chain is one resample."""
        return self._chain.geometric

    @property
    def _chain(self) -> Transform:
        """The chain; that of a single transform is the transform, with settings of its own."""
        if len(self.transforms) == 1:
            return self.transforms[0]
        # Chains inside have the settings of the one around, which this one shares.
        like = next(_chains(self), _NOTHING)
        return replace(like, transforms=self.transforms)


@dataclass(frozen=True)
class RandomChoice(Control):
    """Apply one of `transforms`.

    Args:
      transforms: the branches.
      weights: one number of at least 0 per branch, in proportion to its probability; None for equal
        ones.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> turn_or_shear = RandomChoice(
      ...     [augment.RandomRotation(20), augment.RandomAffine(0, shear=15)]
      ... )
      >>> turn_or_shear(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Differs from torchvision in `weights`, there `p`.
    """

    weights: Any = None

    def __post_init__(self):
        super().__post_init__()
        store(self, weights=_as_weights(self.weights, len(self.transforms)))

    def make_params(self, key: Key, info: ImageInfo) -> Branches:
        """Draw the branch, and for all of them."""
        index_key, branches_key = jax.random.split(key)
        weights = len(self.transforms) if self.weights is None else self.weights
        return Branches(random.choice(index_key, weights), self._draw_branches(branches_key, info))


@dataclass(frozen=True)
class OneOf(RandomChoice):
    """Apply one of `transforms`, with probability `p`: `RandomChoice` with a coin.

    Args:
      transforms: the branches.
      weights: one number of at least 0 per branch, in proportion to its probability; None for equal
        ones.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> noise = OneOf([augment.GaussianNoise(), augment.ShotNoise()], p=0.3)
      >>> noise(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.OneOf`.

    Differs from albumentations in `weights`, there the `p` of the branches.
    """

    p: float = 0.5


@dataclass(frozen=True)
class ByEpoch(Control):
    """Apply one of `transforms`, by the epoch: a schedule of the training.

    The Loader gives samples their "epoch". Of all transforms the results have one shape.

    Args:
      transforms: the branches.
      starts: the first epoch of each of them but the first, rising.

    Raises:
      ValueError: for another number of `starts`, and on tracing for a sample without an "epoch".

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> calm = ByEpoch([augment.RandomInvert(1.0), augment.RandomHorizontalFlip(0.0)], (10,))
      >>> sample = {"image": jnp.zeros((1, 1, 3), jnp.uint8)}
      >>> early, late = ({**sample, "epoch": jnp.int32(epoch)} for epoch in (9, 10))
      >>> [calm(jax.random.key(0), each)["image"].max().item() for each in (early, late)]
      [255, 0]
    """

    starts: Any

    def __post_init__(self):
        super().__post_init__()
        starts = plain(self.starts)
        starts = (starts,) if isinstance(starts, int) else starts
        rising = isinstance(starts, tuple) and all(isinstance(start, int) for start in starts)
        if not rising or list(starts) != sorted({0, *starts} - {0}):
            raise ValueError(f"`starts` must be rising epochs, ints above 0, got {self.starts!r}.")
        if len(starts) != len(self.transforms) - 1:
            raise ValueError(
                f"`starts` must have an epoch for each transform but the first, got {len(starts)}"
                f" for {len(self.transforms)} transforms."
            )
        store(self, starts=starts)

    def make_params(self, key: Key, info: ImageInfo) -> Branches:
        """Draw for all branches, and find the one of the epoch."""
        if info.epoch is None:
            raise ValueError(
                "ByEpoch needs the 'epoch' of a sample, int32: a Loader gives it, elsewhere write"
                " it into the sample."
            )
        epoch = jnp.asarray(info.epoch, jnp.int32)
        branch = jnp.zeros_like(epoch)
        for start in self.starts:
            branch = branch + (epoch >= start).astype(jnp.int32)
        return Branches(branch, self._draw_branches(key, info))


@dataclass(frozen=True)
class RandomOrder(Control):
    """Apply all of `transforms`, in a random order.

    n transforms that are not geometric cost n * n: each place in the order may be any of them.

    Args:
      transforms: all of them are applied, each once.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> shuffled = RandomOrder([augment.RandomRotation(20), augment.RandomHorizontalFlip()])
      >>> shuffled(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)
    """

    def make_params(self, key: Key, info: ImageInfo) -> Branches:
        """Draw the order, and for all branches."""
        order_key, branches_key = jax.random.split(key)
        order = random.permutation(order_key, len(self.transforms))
        return Branches(order, self._draw_branches(branches_key, info))

    def choices(self, drawn: Drawn) -> list[Choice]:
        """Return one per place in the order."""
        order, branches = drawn.params
        return [_choice(order[i], self.parts, branches) for i in range(len(self.parts))]


@dataclass(frozen=True)
class SomeOf(Control):
    """Apply `n` of `transforms`, each at most once and in the given order, with probability `p`.

    Args:
      transforms: the branches.
      n: how many of them.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxaug import augment
      >>> flips = [augment.RandomHorizontalFlip(1.0), augment.RandomVerticalFlip(1.0)]
      >>> SomeOf(flips, 1)(jax.random.key(0), jnp.zeros((8, 9, 3), jnp.uint8)).shape
      (8, 9, 3)

    Reference: `albumentations.SomeOf`.
    """

    n: PositiveInt = 1
    p: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        if self.n > len(self.transforms):
            count = len(self.transforms)
            raise ValueError(
                f"`n` must be at most the number of transforms, {count}, got {self.n}."
            )

    def make_params(self, key: Key, info: ImageInfo) -> Branches:
        """Draw a flag for each branch, and for all of them."""
        rank_key, branches_key = jax.random.split(key)
        chosen = random.permutation(rank_key, len(self.transforms)) < self.n
        return Branches(chosen, self._draw_branches(branches_key, info))

    def choices(self, drawn: Drawn) -> list[Choice]:
        """Return one per branch: nothing, or the branch."""
        flags, branches = drawn.params
        if drawn.applied is not None:
            flags = flags & drawn.applied
        return [
            _choice(jnp.int32(0), (part,), (branch,), flags[i])
            for i, (part, branch) in enumerate(zip(self.parts, branches, strict=True))
        ]


def _chains(transform: Transform) -> Iterator[Compose]:
    """Yield the chains inside of a transform, at any depth."""
    for part in transform.parts or ():
        if isinstance(part, Compose):
            yield part
        yield from _chains(part)


def _choice(
    chosen: Array,
    branches: tuple[Transform, ...],
    drawn: tuple[Drawn, ...],
    applied: Array | None = None,
) -> Choice:
    """Return the choice of a branch; of nothing, which then comes first, where a coin says no."""
    pairs = tuple(zip(branches, drawn, strict=True))
    if applied is None:
        return Choice(chosen, pairs)
    return Choice(jnp.where(applied, chosen + 1, 0), ((_NOTHING, Drawn(())), *pairs))


def _run(choice: Choice, state: State, control: Control) -> State:
    """Return the state after the chosen branch."""
    geometric = [b for b in choice.branches if b.geometric and b != _NOTHING]
    together = agreed(geometric)
    if geometric and together is not None:
        warps = choice.warps(state.info)
        keeps_frame = all(warp.canvas == state.info.canvas for warp in warps)
        if keeps_frame or len(geometric) == len(choice.branches):
            warp = select(choice.chosen, warps)
            state = warped_state(state, warp, together, control)
        else:
            together = None  # the other branches have no map to the new frame
    if together is not None and all(branch.geometric for branch in choice.branches):
        return state

    state = resampled(state)
    if state.image is None:
        results = [resampled(branch.run(drawn, state)) for branch, drawn in choice.pairs]
        return _chosen_state(choice, results, state)

    steps = [leaf for branch in choice.branches for leaf in leaves(branch)]
    if state.costly or not all(isinstance(step, Pointwise) for step in steps):
        state = stored(state)
    results = []
    for branch, drawn in choice.pairs:
        moved = branch.geometric and together is not None
        results.append(state if moved else resampled(branch.run(drawn, state)))
    return _chosen_state(choice, results, state)


def _chosen_state(choice: Choice, results: Sequence[State], before: State) -> State:
    """Return the state of a traced index, of states that are computed already."""
    images = [result.image for result in results]
    images = images if before.image is None else _of_one_dtype(images)
    shapes = {jnp.shape(image) for image in images if image is not None}
    shapes |= {result.info.audio.shape for result in results if result.info.audio is not None}
    shapes |= {result.info.volume.shape for result in results if result.info.volume is not None}
    entries = {tuple(sorted(result.rest)) for result in results}
    media = (before.image, before.info.audio, before.info.volume)
    count = sum(medium is not None for medium in media)
    if len(shapes) > count or len(entries) > 1:
        raise ValueError(
            f"a choice needs branches to images of one shape and samples of the same entries, got"
            f" {sorted(shapes)} and {sorted(entries)}."
        )

    def pick(*values: Any) -> Any:
        same = all(value is values[0] for value in values)
        return values[0] if same else select(choice.chosen, values)

    rests = [dict(result.rest) for result in results]
    for name in before.targets.images(before.rest):
        for rest, image in zip(rests, _of_one_dtype([rest[name] for rest in rests]), strict=True):
            rest[name] = image

    names = tuple(type(branch).__name__ for branch in choice.branches if branch != _NOTHING)
    notes = [*before.notes, Note("choice", names, "computed and selected", 0)]
    for result in results:
        notes.extend(result.notes[len(before.notes) :])
    return before._replace(
        image=pick(*images),
        info=_chosen_info(choice.chosen, [result.info for result in results]),
        rest=jax.tree.map(pick, *rests),
        costly=True,
        notes=tuple(notes),
    )


def _of_one_dtype(images: Sequence[Array]) -> list[Array]:
    """Return the images as they are where they agree in their dtype, else as floats."""
    if len({image.dtype for image in images}) == 1:
        return list(images)
    return [unit(image) for image in images]


def _chosen_info(index: Array, infos: Sequence[ImageInfo]) -> ImageInfo:
    """Return the `ImageInfo` of a traced index."""
    first = infos[0]
    check_one_frame(infos)
    size = None if first.size is None else select(index, [info.size for info in infos])
    boxes = None if first.boxes is None else select(index, [info.boxes for info in infos])
    audio = first.audio
    if audio is not None and audio.length is not None:
        lengths = [info.audio.length for info in infos if info.audio is not None]
        audio = audio._replace(length=select(index, lengths))
    return first._replace(size=size, boxes=boxes, audio=audio)


def _as_weights(weights: Any, count: int) -> tuple[Scalar, ...] | None:
    """Return the weights as a tuple of floats, or None."""
    numbers = setting(weights)
    if numbers is None:
        return None
    good = isinstance(numbers, tuple) and len(numbers) == count
    if not good or not all(is_number(v) and ordered(0, v) for v in numbers):
        raise ValueError(
            f"`weights` must be {count} numbers of at least 0, one per transform, got {weights!r}."
        )
    if all(is_static(number) and number == 0 for number in numbers):
        raise ValueError(f"`weights` must not all be 0, got {weights!r}.")
    return tuple(map(floating, numbers))
