"""The pure function of a batch: masks placed, samples transformed, groups mixed, rows blanked."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxaug._checks import is_int
from jaxaug._typing import Array, Key
from jaxaug.iterators._features import (
    FeatureSpec,
    blank_value,
    feature_spec,
    mask_blank_value,
)
from jaxaug.iterators._place import (
    check_mask_shape,
    mask_names,
    place_mask,
    place_masks,
    place_points,
)
from jaxaug.iterators._reader import RecordForm
from jaxaug.sharding._keys import BATCH_TRANSFORM, TRANSFORM, sample_keys, seed_key, split_words

Transform = Callable[[Key, dict[str, Any]], dict[str, Any]]

# On CPUs the values between two operators of one image stay in the cache, where those of a batch go
# through the memory. For smaller images the steps of the loop would take longer than that.
_MIN_PIXELS_IN_TURN = 2**14

_OWN_NAMES = ("index", "valid")  # entries of a batch that only the Loader may set


class BatchFunction(NamedTuple):
    """A pure function of the rows of one device.

    Attributes:
      transform, batch_transform: see `Loader`.
      mask_fill: the value of masks outside of the image.
      canvas: (H, W) of the images.
      channels: of the images.
      in_turn: the rows are computed one after the other, each by all cores, not all at once.
    """

    transform: Transform | None
    batch_transform: Transform | None
    mask_fill: int
    canvas: tuple[int, int]
    channels: int
    in_turn: bool

    def __call__(self, seed: Array, rows: dict[str, Any]) -> tuple[dict[str, Any], Array]:
        """Return the batch, and a small array that is ready when the batch is.

        Args:
          seed: uint32[2], the words of the seed.
          rows: arrays of the form of `row_shapes`.
        """
        keys = row_keys(seed, TRANSFORM, rows["words"])
        epochs = rows["words"][:, 0].astype(jnp.int32)
        batch = self._mapped(self._transform_row)(
            keys, epochs, rows["valid"], rows["sample"], rows["placement"]
        )
        if self.batch_transform is not None:
            batch = self._transform_groups(seed, rows, batch)
        return batch, jnp.logical_not(rows["valid"])

    def _mapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of one row as a function of all rows."""
        if not self.in_turn:
            return jax.vmap(function)
        return lambda *rows: lax.map(lambda row: function(*row), rows)

    def _transform_row(
        self,
        key: Key,
        epoch: Array,
        valid: Array,
        sample: dict[str, Array],
        placement: dict[str, dict[str, Array]],
    ) -> dict[str, Any]:
        sample = dict(sample)
        sample["image"] = _with_channels(sample["image"], self.channels)
        for name, place in placement.items():
            if name == "mask":
                fill = mask_blank_value(sample[name].dtype, self.mask_fill)
                sample[name] = place_mask(sample[name], **place, canvas=self.canvas, fill=fill)
            else:
                sample[name] = place_masks(sample[name], **place, canvas=self.canvas, fill=0)

        output = sample
        if self.transform is not None:
            output = self.transform(key, {"epoch": epoch, **sample})
            if isinstance(output, dict) and "epoch" not in sample:
                output = {name: value for name, value in output.items() if name != "epoch"}
        _check_output("transform", output)
        # The selection also makes the output a fresh buffer where there is no transform.
        return self._blank_unless(valid, output)

    def _transform_groups(
        self, seed: Array, rows: dict[str, Any], batch: dict[str, Any]
    ) -> dict[str, Any]:
        assert self.batch_transform is not None
        size = group_size(self.batch_transform)
        batch = batch | {"valid": rows["valid"]}
        count = len(rows["valid"]) // size
        groups = jax.tree.map(lambda x: x.reshape(count, size, *x.shape[1:]), batch)
        words = rows["words"][::size]  # of the first row of each group
        keys = row_keys(seed, BATCH_TRANSFORM, words)
        mixed = self._mapped(self.batch_transform)(keys, groups)
        if isinstance(mixed, dict):
            mixed.pop("valid", None)
        _check_output("batch_transform", mixed)
        _check_group(mixed, size)

        mixed = jax.tree.map(lambda x: x.reshape(count * size, *x.shape[2:]), mixed)
        return self._mapped(self._blank_unless)(rows["valid"], mixed)

    def _blank_unless(self, valid: Array, output: dict[str, Any]) -> dict[str, Any]:
        """Return the output of a valid row, else blank values; "size" is the canvas's already."""

        def blank(name: str, value: Any) -> Array:
            value = jnp.asarray(value)
            fill = blank_value(name, value.dtype, self.mask_fill)
            return jnp.where(valid, value, jnp.full_like(value, fill))

        blanked = {}
        for name, value in output.items():
            if name != "size":
                value = jax.tree.map(functools.partial(blank, name), value)
            blanked[name] = value
        return blanked


def computes_in_turn(platform: str, canvas: tuple[int, int]) -> bool:
    """Return True where rows of this canvas are computed faster one after the other."""
    return platform == "cpu" and canvas[0] * canvas[1] >= _MIN_PIXELS_IN_TURN


def key_words(epoch: int, indices: np.ndarray, positions: np.ndarray | None) -> np.ndarray:
    """Return the words that make the keys of rows, in the form that `row_keys` takes.

    Args:
      epoch: the epoch of all rows.
      indices: int64[n], the records.
      positions: int64[n], their positions in the epoch where records repeat, else None.

    Returns:
      uint32[n, 3], or uint32[n, 5] with positions.
    """
    words = np.empty((len(indices), 3 if positions is None else 5), np.uint32)
    words[:, 0] = epoch & 0xFFFFFFFF
    words[:, 1], words[:, 2] = split_words(indices)
    if positions is not None:
        words[:, 3], words[:, 4] = split_words(positions)
    return words


def row_keys(seed: Array, purpose: int, words: Array) -> Key:
    """Return the key of each row, from the seed's words uint32[2] and those of `key_words`."""
    key = jax.random.fold_in(seed_key(seed), purpose)
    position = words[:, 3:5] if words.shape[1] == 5 else None
    return sample_keys(key, words[:, 0], words[:, 1:3], position)


def row_shapes(
    count: int,
    with_replacement: bool,
    wide_index: bool,
    form: RecordForm,
    canvas: tuple[int, int],
    channels: int,
) -> dict[str, Any]:
    """Return the shapes of the rows that a `BatchFunction` takes, and of their entry "index".

    Args:
      count: local rows.
      with_replacement: positions are part of the keys.
      wide_index: see `Reader`.
      form: the form of a record.
      canvas: (H, W) of decoded images.
      channels: of decoded images.

    Raises:
      ValueError: boxes, keypoints or a mask of an impossible shape.
    """
    shape = functools.partial(_row_shape, count)
    sample = {name: shape(*column) for name, column in _placed_spec(form.features).items()}
    if form.image is None:
        sample["image"] = shape(np.uint8, (*canvas, channels))
        sample["size"] = shape(np.int32, (2,))
        sample["original_size"] = shape(np.int32, (2,))
    else:
        sample["image"] = shape(*form.image)

    placement = {}
    for name in mask_names(sample):
        if name == "mask":
            check_mask_shape(sample[name].shape)
        placement[name] = {
            "size": shape(np.int32, (2,)),
            "original_size": shape(np.int32, (2,)),
            "orientation": shape(np.uint8, ()),
        }
    if form.mask is not None:
        sample["mask"] = shape(form.mask, canvas)  # the host has placed it

    return {
        "words": shape(np.uint32, (5 if with_replacement else 3,)),
        "valid": shape(np.bool_, ()),
        "index": shape(np.uint32, (2,)) if wide_index else shape(np.int32, ()),
        "sample": sample,
        "placement": placement,
    }


def _row_shape(count: int, dtype: Any, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count, *shape), dtype)


def _placed_spec(features: FeatureSpec) -> FeatureSpec:
    """Return the form of the features once boxes and keypoints are placed on the canvas."""
    one = np.ones((1, 2), np.int32)
    blank = {}
    for name, column in features.items():
        blank[name] = np.zeros((1, *column.shape), column.dtype)
    return feature_spec(place_points(blank, one, one, np.ones(1, np.uint8)))


def _with_channels(image: Array, channels: int) -> Array:
    """Return an image with so many channels; those of a gray one, [H, W] or [H, W, 1], repeated."""
    if image.ndim == 2:
        image = image[..., None]
    return jnp.broadcast_to(image, (*image.shape[:2], channels))


def _check_output(name: str, output: Any) -> None:
    """Refuse what is no dict of arrays, or sets an entry that belongs to the Loader."""
    if not isinstance(output, dict):
        got = "an array" if isinstance(output, jax.Array) else type(output).__name__
        raise TypeError(
            f"`{name}` must return a dict, as it is given one, got {got}: what is changed goes into"
            ' it, as in {**sample, "image": image}.'
        )
    if not output or not all(isinstance(key, str) for key in output):
        raise TypeError(f"`{name}` must return a dict of names and arrays, got {output!r}.")
    for key in _OWN_NAMES:
        if key in output:
            raise ValueError(
                f"`{name}` must not return {key!r}, which the Loader itself puts into a batch: "
                "give it another name."
            )

    for path, leaf in jax.tree_util.tree_leaves_with_path(output):
        where = f"output{jax.tree_util.keystr(path)}"
        if jnp.issubdtype(getattr(leaf, "dtype", bool), jax.dtypes.prng_key):
            raise TypeError(
                f"`{name}` must return arrays and numbers, got a key as {where}: return "
                "`jax.random.key_data(key)`."
            )
        try:
            jax.dtypes.canonicalize_dtype(jnp.result_type(leaf))
        except TypeError:
            raise TypeError(
                f"`{name}` must return arrays and numbers, got {leaf!r} as {where}."
            ) from None


def _check_group(mixed: Mapping[str, Any], size: int) -> None:
    """Refuse outputs [groups, ...] of a batch transform that do not keep the rows of a group."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(mixed):
        if leaf.ndim < 2 or leaf.shape[1] != size:
            raise ValueError(
                f"`batch_transform` must return as many rows as it gets, `group_size` = {size}, "
                f"got shape {list(leaf.shape[1:])} as output{jax.tree_util.keystr(path)}."
            )


def group_size(batch_transform: Transform) -> int:
    """Return the number of consecutive samples that a batch transform mixes.

    It is the attribute `group_size`, 2 where there is none.

    Raises:
      ValueError: the attribute is no int of at least 1.
    """
    size = getattr(batch_transform, "group_size", 2)
    if not is_int(size) or size < 1:
        raise ValueError(
            f"`batch_transform.group_size` must be an int of at least 1, got {size!r}."
        )
    return int(size)
