"""The settings of a resample, which decide the ops that share one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from jaxaug._checks import check_choice
from jaxaug.augment._border import PADDING_MODES
from jaxaug.augment._fields import Color, as_color
from jaxaug.augment._kernels import INTERPOLATIONS


class Settings(NamedTuple):
    """The settings of one resample, see `Resampling`."""

    interpolation: str
    padding_mode: str
    fill: Color


class Resampling(NamedTuple):
    """The resampling that a geometric op asks for; None where it joins any run.

    Attributes:
      interpolation: "bilinear", "bicubic" or "nearest".
      padding_mode: "constant", "edge", "reflect", "symmetric" or "wrap".
      fill: the color of "constant" in [0, 1], a number or one per channel.

    Example:
      >>> Resampling("nearest").joined(Resampling(padding_mode="edge"))
      Resampling(interpolation='nearest', padding_mode='edge', fill=None)
    """

    interpolation: str | None = None
    padding_mode: str | None = None
    fill: Color | None = None

    def joined(self, other: "Resampling") -> "Resampling | None":
        """Return the settings of a run of both, None where they differ."""
        settings = []
        for mine, theirs in zip(self._plain(), other._plain()):
            if mine is not None and theirs is not None and not _alike(mine, theirs):
                return None
            settings.append(theirs if mine is None else mine)
        return Resampling(*settings)

    def settled(self) -> "Settings":
        """Return the settings with the defaults for what is left open."""
        return Settings(
            self.interpolation or "bilinear",
            self.padding_mode or "constant",
            0.0 if self.fill is None else self.fill,
        )

    def _plain(self) -> "Resampling":
        """Return the settings with the fill in one form, and without one where no mode reads it."""
        if self.fill is None or self.padding_mode not in (None, "constant"):
            return self._replace(fill=None)
        return self._replace(fill=as_color("fill", self.fill))


def _alike(mine: Any, theirs: Any) -> bool:
    """Return True for equal settings; arrays are equal where they are one."""
    if isinstance(mine, tuple) and isinstance(theirs, tuple) and len(mine) == len(theirs):
        return all(map(_alike, mine, theirs))
    if isinstance(mine, jax.Array) or isinstance(theirs, jax.Array):
        return mine is theirs
    return mine == theirs


def agreed(transforms: Sequence[Any]) -> Resampling | None:
    """Return the settings that geometric transforms agree on; None where they differ."""
    joined = Resampling()
    for transform in transforms:
        joined = joined.joined(transform.resampling())
        if joined is None:
            return None
    return joined


def check_resampling(transform: Any) -> None:
    """Raise where `resampling()` of a geometric transform names something that does not exist."""
    settings = transform.resampling()
    name = f"{type(transform).__name__}.resampling()"
    if settings.interpolation is not None:
        check_choice(f"{name}.interpolation", settings.interpolation, INTERPOLATIONS)
    if settings.padding_mode is not None:
        check_choice(f"{name}.padding_mode", settings.padding_mode, PADDING_MODES)
    if settings.fill is not None:
        as_color(f"{name}.fill", settings.fill)
