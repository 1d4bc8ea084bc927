"""A Loader's batches as PyTorch tensors that share the memory of the JAX arrays."""

import collections
import contextlib
import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any

import jax
from jax import Array

from jaxaug.iterators.export.to_numpy import Batch, Export, check_bool, check_names
from jaxaug.iterators.loader.columns import LABELS, name_on_path
from jaxaug.iterators.loader.loader import Loader
from jaxaug.sharding._assemble import local_shards

_IGNORED_LABEL = -100  # torch's `ignore_index`: its losses leave such rows out
_MAX_CHANNELS = 4

# (event, array): arrays whose tensors are gone, until the GPU has passed the event
_unread: collections.deque[tuple[Any, Array]] = collections.deque()


class TorchExport(Export):
    """A Loader's batches as torch tensors, with the state that PyTorch's trainers save."""

    def state_dict(self) -> dict[str, Any]:
        """Return `Loader.get_state()`; Lightning saves it in its checkpoints."""
        return self._loader.get_state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the Loader to a state; the next loop is the rest of its epoch."""
        self._loader.set_state(state_dict)


def to_torch(
    loader: Loader,
    *,
    restart: bool = True,
    names: Sequence[str] | None = None,
    channels_last: bool = False,
) -> TorchExport:
    """Return a Loader's batches as torch tensors on the devices where the rows are.

    They share the JAX arrays' memory (DLPack). Each `for` is a whole epoch, as trainers expect: it
    begins the next one if the last loop was left early, and after `set_state` it is the rest of
    that epoch. The result has the `state_dict` and `load_state_dict` that Lightning saves and
    restores.

    Integer "label" and "labels", also in nested dicts, are int64, and -100 in rows that are not
    valid, which torch's losses leave out; the other integers are int32, as JAX has them. Where this
    process has several local shards, each value is a list with one tensor for each, on its own
    device, in row order.

    On GPUs PyTorch's current stream waits for JAX. When the last reference to a tensor is dropped,
    its memory is reused only after the work that was queued on that stream by then. If you read a
    tensor on another stream, wait for that stream before you drop the tensor. Writing into a tensor
    changes no later batch.

    Args:
      loader: a `Loader`; its state, length and close stay its own.
      restart: False: after a loop that was left early, the next one continues from there, as loops
        over the Loader do.
      names: the entries to yield as a tuple, such as ("image", "label"); None yields dicts of all.
      channels_last: give "image" as [B, C, H, W] in torch's `channels_last` memory format, a view
        of the rows [B, H, W, C] that the transform makes.

    Raises:
      TypeError: `loader` is no Loader, `names` no tuple.
      ValueError: batches have no such entry; the image's channels are not the last axis.

    Example:
      `for image, label in to_torch(loader, names=("image", "label")):
      loss = cross_entropy(model(image), label)`
    """
    export = TorchExport(loader, "to_torch", _ToTensors(names, channels_last), restart=restart)
    check_names(loader, names)
    check_bool("channels_last", channels_last)
    if channels_last:
        shape = getattr(loader.element_spec.get("image"), "shape", None)
        if shape is None or len(shape) != 4 or shape[-1] > _MAX_CHANNELS:
            raise ValueError(
                f'`channels_last` needs "image" as [B, H, W, C], got {shape}: leave it out where '
                'the transform ends with layout="NCHW".'
            )
    return export


@dataclasses.dataclass(frozen=True)
class _ToTensors:
    """Converts batches as the arguments of `to_torch` say."""

    names: Sequence[str] | None
    channels_last: bool

    def __call__(self, batch: Batch) -> Any:
        _release_read()
        leaves, structure = jax.tree.flatten(batch)
        shards = zip(*map(local_shards, leaves))
        parts = [self._convert(structure.unflatten(shard)) for shard in shards]
        if len(parts) == 1:
            return parts[0]
        return jax.tree.map(lambda *tensors: list(tensors), *parts)

    def _convert(self, part: Batch) -> Any:
        """Return the tensors of one shard."""
        tensors = jax.tree.map(_to_tensor, part)
        valid = tensors["valid"]
        tensors = jax.tree_util.tree_map_with_path(
            lambda path, each: _to_labels(each, valid) if name_on_path(path, LABELS) else each,
            tensors,
        )
        if self.channels_last:
            tensors["image"] = tensors["image"].permute(0, 3, 1, 2)

        if self.names is None:
            return tensors
        return tuple(tensors[name] for name in self.names)


def _to_labels(labels: Any, valid: Any) -> Any:
    """Return integer labels as int64, -100 in the rows that are not valid; others stay."""
    if labels.is_floating_point():
        return labels
    blank = ~valid.reshape(-1, *[1] * (labels.dim() - 1))
    return labels.long().masked_fill(blank, _IGNORED_LABEL)


def _to_tensor(array: Array) -> Any:
    """Return a tensor on the memory of a single-device array."""
    from torch.utils.dlpack import from_dlpack  # torch is the user's, never ours

    tensor = from_dlpack(array)  # makes torch's current stream wait for the array
    if tensor.is_cuda:
        _hold_until_read(tensor, array)
    return tensor


def _hold_until_read(tensor: Any, array: Array) -> None:
    """Keep the array below a CUDA tensor until torch has read it.

    JAX would use the memory again as soon as the last tensor on it is gone, while torch's stream
    may still have to read it.
    """
    finalizer = weakref.finalize(tensor.untyped_storage(), _mark_end, array, tensor.device)
    finalizer.atexit = False


def _mark_end(array: Array, device: Any) -> None:
    """Keep an array until its device has ended what is queued on torch's stream now."""
    import torch

    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    _unread.append((event, array))
    _release_read()


def _release_read() -> None:
    """Let go of the arrays that torch has read."""
    for _ in range(len(_unread)):
        with contextlib.suppress(IndexError):  # another thread may have taken it
            event, array = _unread.popleft()
            if not event.query():
                _unread.append((event, array))
