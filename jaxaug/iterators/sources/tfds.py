"""Data sets of tensorflow_datasets."""

import hashlib
import importlib
import os
from collections.abc import Sequence
from typing import Any

from jaxaug._install import install_command
from jaxaug._typing import PathLike
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.random_access import RandomAccess


class TFDS(RandomAccess):
    """A tensorflow_datasets split, images undecoded; no tensorflow needed.

    The data set must be stored as ArrayRecord or Parquet, which `tfds.data_source` reads; TFDS's
    default of TFRecord is read by `TFRecord(".../*.tfrecord*", image="image", label="label")` at
    full speed instead.

    Args:
      name: a name such as "imagenette/160px-v2", or the folder of a prepared data set (with
        dataset_info.json).
      split: a TFDS split, such as "train" or, of ArrayRecord, "train[:90%]".
      data_dir: where named data sets lie; TFDS's default when None. They are not downloaded or
        prepared.
      image, mask, label, features, boxes_of: as `RandomAccess` says, by TFDS's names.

    Attributes:
      classes: the label's class names, or None.

    Raises:
      SourceError: tensorflow_datasets is missing, the data set is not there, or TFDS gives other
        records than those of `split`, as of slices of Parquet.

    Example:
      >>> TFDS("imagenette/160px-v2", split="train")  # doctest: +SKIP
      TFDS('imagenette/160px-v2', 'train': 9469 images, ['label'])
    """

    def __init__(
        self,
        name: PathLike,
        *,
        split: str,
        data_dir: PathLike | None = None,
        image: str = "image",
        mask: str | None = None,
        label: str | None = "label",
        features: Sequence[str] | None = None,
        boxes_of: str = "stored",
    ):
        builder = _builder(os.fspath(name), data_dir)
        skip = importlib.import_module("tensorflow_datasets").decode.SkipDecoding()
        undecoded = {name: skip for name in (image, mask) if name is not None}
        try:
            source = builder.as_data_source(split, decoders=undecoded)
            count = builder.info.splits[split].num_examples
        except Exception as error:  # TFDS raises its own of many kinds; each says what is missing
            raise SourceError(
                f"{os.fspath(name)!r}, split {split!r}, cannot be opened: {error}"
            ) from error
        if len(source) != count:  # it takes no slices of Parquet
            raise SourceError(
                f"{os.fspath(name)!r}, split {split!r}, has {count} records, but TFDS gives "
                f"{len(source)}: open whole splits, and take parts of them by "
                "jaxaug.iterators.split or Subset."
            )
        self._what = f"{builder.info.full_name}:{split}"
        known = builder.info.features
        names = getattr(known[label], "names", None) if label in known else None
        self.classes: tuple[str, ...] | None = tuple(names) if names else None
        fields = {"image": image, "mask": mask, "label": label, "features": features}
        super().__init__(source, **fields, boxes_of=boxes_of)

    def __repr__(self) -> str:
        found = f"{len(self)} images, {sorted(self._names.values())}"
        return f"TFDS({self._what!r}: {found})"

    def fingerprint(self) -> str:
        """Return a hash of the data set's full name, its split, and of three records."""
        return hashlib.blake2b(
            (self._what + super().fingerprint()).encode(), digest_size=8
        ).hexdigest()


def _builder(name: str, data_dir: PathLike | None) -> Any:
    try:
        tfds = importlib.import_module("tensorflow_datasets")
    except ImportError as error:
        raise SourceError(f"TFDS needs tensorflow_datasets: {install_command('tfds')}.") from error
    try:
        if os.path.exists(os.path.join(name, "dataset_info.json")):
            return tfds.builder_from_directory(name)
        builder = tfds.builder(name, data_dir=data_dir)
    except Exception as error:
        if os.path.isabs(name) or os.path.isdir(name):
            raise SourceError(
                f"`name`: the folder {name!r} has no dataset_info.json: give the folder of one "
                "version of a prepared data set, such as '.../imagenette/160px-v2/1.0.0'."
            ) from error
        raise SourceError(f"{name!r} is no data set that TFDS knows: {error}") from error
    if not os.path.isdir(builder.data_dir):
        how = 'prepare it by TFDS\'s `download_and_prepare(file_format="array_record")`'
        raise SourceError(
            f"{name!r} is not prepared: there is no {str(builder.data_dir)!r}; "
            f"give the `data_dir` where it lies, or {how}."
        )
    return builder
