"""The fields that geometric transforms share which may look beyond the image."""

from dataclasses import KW_ONLY, dataclass

from jaxaug._checks import check_choice
from jaxaug.augment._border import PADDING_MODES
from jaxaug.augment._fields import Color, as_color, store
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
    interpolation: str = "bilinear"
    padding_mode: str = "constant"
    fill: Color = 0.0

    def __post_init__(self):
        super().__post_init__()
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_choice("padding_mode", self.padding_mode, PADDING_MODES)
        store(self, fill=as_color("fill", self.fill))

    def resampling(self) -> Resampling:
        """Return the resampling that the fields ask for."""
        return Resampling(self.interpolation, self.padding_mode, self.fill)
