"""Two sounds in one."""

from dataclasses import dataclass
from typing import Annotated

import jax.numpy as jnp
from jax import Array

from jaxaug._typing import Key, Sample
from jaxaug.augment._base import (
    SMALLEST,
    Converter,
    ImageInfo,
    as_int,
    as_number,
    as_optional,
)
from jaxaug.augment._chain import GroupOp, with_soft_labels
from jaxaug.augment.random import beta


@dataclass(frozen=True)
class MixUp(GroupOp):
    """Blend each sound with its partner: weight * audio + (1 - weight) * partner.

    For `Loader(batch_transform=...)`: samples 2k and 2k + 1 of the global batch are partners, of
    waveforms or of features. Each has its own weight, drawn from Beta(alpha, alpha). Where the
    partner is not "valid", and where the coin of `p` says no, nothing is mixed. An "audio_length"
    becomes that of the longer one. Of several clips each is blended with the partner's clip of its
    number, by one weight. Images beside the sounds stay as they are.

    Args:
      num_classes, alpha, p: see `augment.MixUp`; so are soft labels.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> group = {"audio": jnp.zeros((2, 800)), "label": jnp.array([0, 2])}
      >>> MixUp(3)(jax.random.key(0), group)["label"].shape
      (2, 3)

    Reference: Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018.
    """

    group_size = 2
    needs = "audio"

    num_classes: Annotated[int | None, Converter(as_optional, as_int, 1)] = None
    alpha: Annotated[float, Converter(as_number, SMALLEST, 1e3)] = 1.0
    p: float = 1.0

    def make_params(self, key: Key, info: ImageInfo) -> Array:
        """Draw the weights."""
        return beta(key, self.alpha, (2,))

    def neutral(self, params: Array) -> Array:
        """Return the weights that change nothing."""
        return jnp.ones_like(params)

    def apply(self, params: Array, group: Sample, info: ImageInfo) -> Sample:
        """Blend sounds and labels."""
        mixed = dict(with_soft_labels(self, group))
        weight = jnp.where(group["valid"][::-1], params, 1.0) if "valid" in group else params

        def share_of(own: Array) -> Array:
            return weight.reshape(2, *(1 for _ in own.shape[1:]))

        for name in ("audio", "label"):
            if name in mixed:
                own, share = mixed[name], share_of(mixed[name])
                mixed[name] = (share * own + (1 - share) * own[::-1]).astype(own.dtype)
        if "audio_length" in group:
            lengths = group["audio_length"]
            mixed["audio_length"] = jnp.where(share_of(lengths) < 1, lengths.max(0), lengths)
        return mixed
