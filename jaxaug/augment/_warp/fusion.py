"""What forms a run: consecutive geometric ops that ask for the same resampling share one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from jaxaug._checks import check_choice
from jaxaug.augment._base import (
    INTERPOLATIONS,
    KERNELS,
    PADDING_MODES,
    Color,
    ImageInfo,
    as_color,
    tap_count,
)
from jaxaug.augment._warp.warp import Warp, has_static_shape


class SettledResampling(NamedTuple):
    """A `Resampling` of which nothing is left open."""

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
            if mine is not None and theirs is not None and not alike(mine, theirs):
                return None
            settings.append(theirs if mine is None else mine)
        return Resampling(*settings)

    def settled(self) -> "SettledResampling":
        """Return the settings with the defaults for what is left open."""
        return SettledResampling(
            self.interpolation or "bilinear",
            self.padding_mode or "constant",
            0.0 if self.fill is None else self.fill,
        )

    def _plain(self) -> "Resampling":
        """Return the settings with the fill in one form, and without one where no mode reads it."""
        if self.fill is None or self.padding_mode not in (None, "constant"):
            return self._replace(fill=None)
        return self._replace(fill=as_color("fill", self.fill))


class Run(NamedTuple):
    """Geometric ops that wait for their one resample.

    Attributes:
      warp: the map of all of them.
      resampling: what they ask for together.
      source: of the image before the first.
      names: of the ops.
      shapeless: the first of the ops since which the output has no static shape.
    """

    warp: Warp
    resampling: Resampling
    source: ImageInfo
    names: tuple[str, ...] = ()
    shapeless: Any = None

    def then(self, warp: Warp, resampling: Resampling, transform: Any) -> "Run":
        """Return the run with one more op.

        Args:
          warp: the map of the op.
          resampling: that of the run and the op, see `Resampling.joined`.
          transform: the op.
        """
        total = self.warp.then(warp)
        return Run(
            warp=total,
            resampling=resampling,
            source=self.source,
            names=(*self.names, transform.title),
            shapeless=None if has_static_shape(total.canvas) else self.shapeless or transform,
        )

    def explain(self) -> tuple[str, int]:
        """Return a line on the resample, and its passes over the pixels."""
        interpolation, padding_mode, _ = self.resampling.settled()
        warp = self.warp
        detail = "1 read per pixel"
        passes = 1
        if interpolation in KERNELS and not warp.integer_aligned:
            kernel = KERNELS[interpolation]
            rows, columns = (tap_count(shrink, kernel) for shrink in warp.max_shrink)
            detail = f"{rows} x {columns} taps per pixel"
            if warp.axis_aligned:
                detail = f"{rows} + {columns} taps per pixel, rows then columns"
                passes = 2
        canvas = f"to {warp.canvas[0]} x {warp.canvas[1]}"
        return f"{interpolation}, {padding_mode}, {canvas}: {detail}", passes

    def check_shape(self) -> None:
        """Raise where the output has no static shape."""
        if self.shapeless is not None:
            raise ValueError(
                f"{type(self.shapeless).__name__} keeps the aspect of images whose `size` differs,"
                " so its output needs a static shape: let an op of fixed size such as CenterCrop"
                " follow in the same run (with fuse=True), or give Resize `canvas=(height, width)`"
                " or both sides, `size=(height, width)`."
            )


def alike(mine: Any, theirs: Any) -> bool:
    """Return True for equal settings; arrays are equal where they are one."""
    if isinstance(mine, tuple) and isinstance(theirs, tuple) and len(mine) == len(theirs):
        return all(map(alike, mine, theirs))
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
