"""The fields that geometric transforms share which may look beyond the image."""

from dataclasses import KW_ONLY, dataclass, field

from jaxaug.augment._border import PADDING_MODES
from jaxaug.augment._fields import Color, as_choice, as_color, converter
from jaxaug.augment._kernels import INTERPOLATIONS
from jaxaug.augment._resampling import Resampling
from jaxaug.augment._transform import Geometric


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
    interpolation: str = field(default="bilinear", metadata=converter(as_choice, INTERPOLATIONS))
    padding_mode: str = field(default="constant", metadata=converter(as_choice, PADDING_MODES))
    fill: Color = field(default=0.0, metadata=converter(as_color))

    def resampling(self) -> Resampling:
        """Return the resampling that the fields ask for."""
        return Resampling(self.interpolation, self.padding_mode, self.fill)
