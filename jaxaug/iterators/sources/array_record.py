"""ArrayRecord files, as TFDS and Grain pipelines write them."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._install import install_command
from jaxaug._typing import PathLike
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.packed.tf_example import parse_example
from jaxaug.iterators.sources.random_access import RandomAccess
from jaxaug.iterators.sources.stamps import data_stamps, joined
from jaxaug.iterators.sources.storage.files import list_files


class ArrayRecord(RandomAccess):
    """Images in ArrayRecord files of tf.Example, or of records that a function of yours parses.

    The files have an index of their own, so they open at once. Single numbers become features; of
    lists of numbers, those of one length that `features` names; all else stays in `describe`.

    Args:
      paths: files, glob patterns or brace ranges.
      image: the bytes feature that holds the encoded image.
      mask: the bytes feature that holds the encoded mask; None for no masks. See `decode.Mask`.
      label: the feature that becomes "label"; None for none.
      features: names of further features, or {name: new name}; None for all single numbers.
      boxes_of: the image whose pixels "boxes" and "keypoints" are in: "stored", as the file has it,
        or "upright", as viewers show it, turned by EXIF.
      parse: a function from the bytes of a record to a dict or tuple, as items of `RandomAccess`;
        None for tf.Example.

    Raises:
      SourceError: array_record is missing, a file is missing or no ArrayRecord, or none of the
        first 100 records has such an image and label.

    Example:
      >>> ArrayRecord("train-*.arrayrecord", image="image", label="label")  # doctest: +SKIP
      ArrayRecord(50000 images in 8 files, ['label'])
    """

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        image: str = "image",
        mask: str | None = None,
        label: str | None = "label",
        features: Sequence[str] | Mapping[str, str] | None = None,
        boxes_of: str = "stored",
        parse: Callable[[bytes], Any] | None = None,
    ):
        self._files = list_files(paths)
        super().__init__(
            _open([file.path for file in self._files]),
            image=image,
            mask=mask,
            label=label,
            features=features,
            boxes_of=boxes_of,
            parse=parse_record if parse is None else parse,
        )

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return one stamp of sizes and times of all files for each record, see `Stamped`."""
        return np.broadcast_to(joined(*data_stamps(self._files)[:, None]), len(indices))

    def __repr__(self) -> str:
        found = f"{len(self)} images in {len(self._files)} files, {sorted(self._names.values())}"
        return f"ArrayRecord({found})"


def parse_record(record: bytes) -> dict[str, Any]:
    """Return the features of a tf.Example: numbers, lists of numbers, bytes, lists of bytes.

    Raises:
      ValueError: the bytes are no tf.Example.
    """
    data = memoryview(record)
    fields = {}
    for name, feature in parse_example(data, 0, len(data)).items():
        if isinstance(feature, np.ndarray):
            fields[name] = feature[0] if feature.size == 1 else feature.tolist()
            continue
        values = [bytes(data[start:stop]) for start, stop in feature]
        fields[name] = values[0] if len(values) == 1 else values
    return fields


def _open(paths: list[str]) -> Any:
    try:
        module = importlib.import_module("array_record.python.array_record_data_source")
    except ImportError as error:
        raise SourceError(f"ArrayRecord needs array_record: {install_command('tfds')}.") from error
    try:
        source = module.ArrayRecordDataSource(paths)
        len(source)  # opens the files
    except Exception as error:  # of its C++ part
        raise SourceError(
            f"`paths`: {paths[0]!r} cannot be read as ArrayRecord: {error}."
        ) from error
    return source
