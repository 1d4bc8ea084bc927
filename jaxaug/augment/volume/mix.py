"""Groups of volumes: what is labeled in one, put into another."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import Converter, plain
from jaxaug.augment._chain import GroupOp
from jaxaug.augment.random import uniform
from jaxaug.augment.volume._kind import LABELS


def _as_classes(name: str, value: Any) -> tuple[int, ...]:
    """Return labels above 0, each once."""
    classes = plain(value)
    classes = (classes,) if isinstance(classes, int) else classes
    good = isinstance(classes, tuple) and len(classes) > 0 and len(set(classes)) == len(classes)
    if not good or not all(type(label) is int and label > 0 for label in classes):
        raise ValueError(f"`{name}` must be labels, ints above 0, each once, got {value!r}.")
    return classes


@dataclass(frozen=True)
class Transplantation(GroupOp):
    """Put the voxels of one class of another volume into each, at the same places.

    Of two volumes each takes from the other the voxels, and their labels, of a class that is drawn
    from those of `classes` which the other shows; nothing where it shows none. Volumes of a group
    have one shape, and the same scale of values.

    Args:
      classes: labels that may be taken, ints above 0.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> labels = jnp.array([[0, 1, 0], [0, 0, 2]]).reshape(2, 1, 1, 3)
      >>> group = {"volume": 10.0 * labels + jnp.arange(3.0), "labels": labels}
      >>> mixed = Transplantation((1, 2), p=1.0)(jax.random.key(0), group)
      >>> mixed["labels"].reshape(2, 3).tolist(), mixed["volume"][0].ravel().tolist()
      ([[0, 1, 2], [0, 1, 2]], [0.0, 11.0, 22.0])

    Reference: `kornia.augmentation.RandomTransplantation3D`.
    """

    classes: Annotated[Any, Converter(_as_classes)]
    _: KW_ONLY
    p: float = 0.5

    group_size: ClassVar[int] = 2  # pyright: ignore[reportIncompatibleVariableOverride]
    needs: ClassVar[str] = "volume"

    def make_params(self, key: Key, info: Any) -> Array:
        """Draw a number of each class for both volumes, float32[2, n]: the highest is taken."""
        return uniform(key, shape=(2, len(self.classes)))

    def apply(self, params: Array, group: Sample, info: Any) -> Sample:
        """Return the group with the voxels of a class from each other."""
        volume, labels = group["volume"], group.get(LABELS)
        if labels is None or labels.shape != volume.shape[:4]:
            found = "none" if labels is None else str(labels.shape)
            raise ValueError(
                f"Transplantation needs 'labels' [2, D, H, W] beside volumes {volume.shape}, got"
                f" {found}."
            )
        donors, given = labels[::-1], volume[::-1]
        classed = donors.astype(jnp.int32)  # which holds all classes
        shown = jnp.stack([jnp.any(classed == c, axis=(1, 2, 3)) for c in self.classes], axis=1)
        number = jnp.argmax(jnp.where(shown, params, -1.0), axis=1)
        taken = jnp.asarray(self.classes, jnp.int32)[number]
        here = classed == taken[:, None, None, None]
        voxels = here.reshape(here.shape + (1,) * (volume.ndim - 4))
        volume = jnp.where(voxels, given, volume)
        return {**group, "volume": volume, LABELS: jnp.where(here, donors, labels)}
