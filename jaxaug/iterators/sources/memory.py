"""Images that are in memory already."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._checks import checked_indices
from jaxaug._typing import Values
from jaxaug.decode import Encoded, Ragged
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import count_rows, hash_features, join_columns, take_rows
from jaxaug.iterators.sources._base import TableSource, check_boxes_of
from jaxaug.iterators.sources.stamps import row_stamps

_MAX_HASHED_IMAGES = 256  # rows of a pixel array that enter its fingerprint: an array may be huge


class InMemory(TableSource):
    """Images held in memory, encoded or as pixels, with columns of features.

    Args:
      images: the bytes of each image, or a list of them for each record; or pixels [N, H, W, C], or
        of one channel [N, H, W], of any dtype, an array of any library or an `np.memmap`, which
        must not change. Pixels go to the devices as they are, through no Decoder; gray uint8 is
        repeated to three channels there.
      features: arrays with one row for each image, such as {"label": int[N]}, or `decode.Ragged`
        ones, or `decode.Encoded` bytes; a DataFrame of pandas is its columns. Columns of str are no
        features, but in `texts`.
      masks: the encoded mask of each encoded image, see `decode.Mask`; None for no masks. Those of
        pixels are a feature "mask", an array [N, H, W].
      boxes_of: the image whose pixels "boxes" and "keypoints" are in: "stored", as the file has it,
        or "upright", as viewers show it, turned by EXIF.

    Raises:
      SourceError: no images.
      TypeError: `images` is neither a sequence of bytes nor an array of pixels.
      ValueError: an array of another dtype or shape; a feature without one row, or no mask, for
        each image; masks of pixels.

    Example:
      >>> source = InMemory([b"first", b"second"], {"label": np.array([7, 8])})
      >>> columns = source.read(np.array([1]))
      >>> bytes(columns["image"].view(0)), columns["label"].tolist()
      (b'second', [8])
      >>> InMemory(np.zeros((10, 32, 32, 3), np.uint8))
      InMemory(10 images of 32 x 32 pixels, features [])
    """

    def __init__(
        self,
        images: "Sequence[bytes] | np.ndarray",
        features: Mapping[str, Any] | None = None,
        *,
        masks: Sequence[bytes] | None = None,
        boxes_of: str = "stored",
    ):
        check_boxes_of(boxes_of)
        self._boxes_of = boxes_of
        if getattr(images, "ndim", 1) > 1:
            images = np.asanyarray(images)  # of any library; a memory map stays one
        if isinstance(images, np.ndarray) and images.dtype.kind not in "OS":
            _check_pixels(images)
        elif not isinstance(images, (Sequence, np.ndarray)) or isinstance(images, (bytes, str)):
            raise TypeError(
                "`images` must be a sequence of bytes or an array uint8[N, H, W, 3], got "
                f"{type(images).__name__}: make a list of it, or use FromIterable."
            )

        if not len(images):
            raise SourceError("`images` must hold at least one image, got none.")
        if not isinstance(images, np.ndarray) and getattr(images[0], "ndim", 1) > 1:
            raise ValueError(
                "`images` must be encoded bytes, or pixels in one array, got a list of arrays "
                f"{list(np.shape(images[0]))}: join those of one size by `numpy.stack`, or use "
                "RandomAccess."
            )

        self._images: Encoded | Ragged | np.ndarray
        if isinstance(images, np.ndarray) and images.dtype.kind not in "OS":
            self._images = images
        else:
            self._images = _encoded(list(images))

        self._count = len(images)
        self._masks = None if masks is None else self._check_masks(masks)
        self._features, self._texts = split_features(features, self._count)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        sides = ""
        if isinstance(self._images, np.ndarray):
            sides = f" of {self._images.shape[1]} x {self._images.shape[2]} pixels"
        return f"InMemory({len(self)} images{sides}, features {sorted(self._features)})"

    def read(self, indices: np.ndarray) -> dict[str, Values]:
        """Return rows of the images and of the columns; no encoded bytes are copied."""
        return self._columns(checked_indices(indices, len(self)))

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return checksums of all bytes that the records hold, at 1 to 2 GB/s; see `Stamped`."""
        texts = {
            f"text {name}": Encoded.from_bytes([column[i].encode() for i in indices.tolist()])
            for name, column in self._texts.items()
        }
        return row_stamps(self._columns(indices) | texts, len(indices))

    def _columns(self, indices: np.ndarray) -> dict[str, Values]:
        columns = {name: take_rows(column, indices) for name, column in self._features.items()}
        images: dict[str, Values] = {"image": take_rows(self._images, indices)}
        if self._masks is not None:
            images["mask"] = self._masks.take(indices)
        return join_columns(images, columns)

    def _check_masks(self, masks: Sequence[bytes]) -> Encoded:
        if isinstance(self._images, np.ndarray):
            raise ValueError(
                "`masks` must be left out where the images are pixels: give {'mask': uint8[N, H, "
                "W]} among the `features`."
            )
        if len(masks) != self._count:
            raise ValueError(
                f"`masks` must be one for each image, {self._count} in all, got {len(masks)}."
            )
        return Encoded.from_bytes(list(masks))

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's number."""
        return {"record": index}

    def _rows_of_texts(self, indices: np.ndarray, names: Sequence[str]) -> list[dict[str, str]]:
        return [{name: column[i] for name, column in self._texts.items()} for i in indices.tolist()]

    def fingerprint(self) -> str:
        """Return a hash of the features and of the images' lengths, or of up to 256 of the pixel
        images.
        """
        digest = hashlib.blake2b(digest_size=8)
        if isinstance(self._images, np.ndarray):
            chosen = np.linspace(0, self._count - 1, min(self._count, _MAX_HASHED_IMAGES)).astype(
                np.int64
            )
            digest.update(repr(self._images.shape).encode() + self._images[chosen].tobytes())
        else:
            digest.update(self._images.lengths.tobytes())
            if isinstance(self._images, Ragged):
                digest.update(self._images.values.lengths.tobytes())
        if self._masks is not None:
            digest.update(self._masks.lengths.tobytes())

        hash_features(digest, self._features)
        return digest.hexdigest()


def _encoded(images: list[Any]) -> Encoded | Ragged:
    """Return encoded images, or lists of them where the first is one."""
    if not isinstance(images[0], (list, tuple)):
        return Encoded.from_bytes(images)
    lengths = np.array([len(each) for each in images], np.int64)
    values = Encoded.from_bytes([image for each in images for image in each])
    return Ragged(values, lengths, max(1, int(lengths.max())))


def split_features(
    features: Mapping[str, Any] | None, count: int
) -> tuple[dict[str, Values], dict[str, list[str]]]:
    """Return the columns of numbers and those of texts, each with one row for each of `count`.

    Raises:
      TypeError: `features` is no dict.
      ValueError: a column has other rows.
    """
    if features is not None and not isinstance(features, Mapping):
        got = type(features).__name__
        raise TypeError(
            f'`features` must be a dict of arrays, got {got}: write {{"label": labels}}.'
        )
    columns = {} if features is None else features
    found = {name: _feature(name, column, count) for name, column in columns.items()}
    texts = {name: column.tolist() for name, column in found.items() if _is_text(column)}
    return {name: found[name] for name in found if name not in texts}, texts


def _check_pixels(images: np.ndarray) -> None:
    if images.ndim not in (3, 4) or images.dtype.kind not in "biuf":
        raise ValueError(
            "`images` must be pixels [N, H, W, C], or of one channel [N, H, W], got "
            f"{images.dtype}{list(images.shape)}: convert the array, channels last."
        )
    if len(images) and not images.size:
        raise ValueError(f"`images` must have pixels, got shape {list(images.shape)}.")


def _is_text(column: Values) -> bool:
    """Return True for a column [n] of str."""
    if isinstance(column, (Ragged, Encoded)):
        return False
    if column.dtype.kind == "O":
        return column.ndim == 1 and all(isinstance(value, str) for value in column.tolist())
    return column.dtype.kind == "U" and column.ndim == 1


def _feature(name: str, column: Any, count: int) -> Values:
    if isinstance(column, (Ragged, Encoded)):
        _check_count(name, column, count)
        return column
    try:
        column = np.asarray(column)
    except ValueError as error:  # numpy on rows of different lengths
        raise ValueError(
            f"`features[{name!r}]` must have rows of one shape: {error}. Pad them to the longest."
        ) from error
    _check_count(name, np.atleast_1d(column), count)
    return column


def _check_count(name: str, column: Values, count: int) -> None:
    if count_rows(column) != count:
        raise ValueError(
            f"`features[{name!r}]` must have one row for each image, {count} in all, "
            f"got {count_rows(column)}."
        )
