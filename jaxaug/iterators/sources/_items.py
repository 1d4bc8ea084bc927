"""Items of data sets in Python objects: their image, their label, their numbers."""

import io
import os
import reprlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxaug._typing import PathLike
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import holds_numbers, round_floats
from jaxaug.iterators.sources.storage.files import local_path, reason

Key: TypeAlias = Hashable  # a name in a dict, a place in a tuple
Wanted: TypeAlias = "Sequence[Any] | Mapping[Any, str] | None"

# What to do about text where numbers are expected.
TEXTS = (
    "columns hold numbers, text is in `loader.texts(batch, names)`, `source.texts(indices, names)` "
    "and `source.describe(index)`"
)

_MAX_UINT16 = 2**16 - 1
# Columns of places in pixels: the first record may have whole ones, which `Boxes` gives as floats.
_POINTS = ("boxes", "keypoints")
_ORIENTATION = 274  # EXIF's tag
# Kinds of numpy's dtypes that fit into a column, by the kind of the column.
_FITTING = {"b": "b", "i": "biu", "u": "biu", "f": "biuf"}


class Item(NamedTuple):
    """An item, the bytes of its image and its mask, and its features by the item's keys."""

    fields: Mapping[Any, Any]
    image: bytes
    numbers: Mapping[Any, np.ndarray]
    mask: bytes = b""


def fields_of(item: Any) -> Mapping[Any, Any] | None:
    """Return the fields of a dict by name, of a tuple or a list by place; None for all else."""
    if isinstance(item, Mapping):
        return item
    if isinstance(item, (tuple, list)):
        return dict(enumerate(item))
    return None


def read_item(
    item: Any,
    image: Key,
    blanks: Mapping[Any, np.ndarray],
    number: int,
    mask: Key | None = None,
    lists: Collection[Key] = (),
) -> Item:
    """Return an item with its image and mask encoded and its features in the form of `blanks`.

    Args:
      item: a dict, tuple or list.
      image: the key of the image.
      blanks: an array of the wanted form for each feature, by key.
      number: the record, for messages.
      mask: the key of the mask; None if items have none.
      lists: the keys of features whose first axis has any length.

    Raises:
      SourceError: no image or mask, or a feature that is missing or of another form.
    """
    fields = fields_of(item)
    if fields is None:
        raise _no_image(item, image, number)
    encoded = _encode(fields.get(image), number)
    if encoded is None:
        raise _no_image(item, image, number)
    numbers = {}
    for key, blank in blanks.items():
        numbers[key] = _fit(key, fields.get(key), blank, number, is_list=key in lists)
    encoded_mask = b"" if mask is None else encode_mask(fields.get(mask), mask, number)
    return Item(fields, encoded, numbers, encoded_mask)


def choose_features(
    item: Item,
    image: Key,
    label: Key | None,
    wanted: Wanted,
    mask: Key | None = None,
    lists: Collection[Key] = (),
) -> dict[Any, str]:
    """Return the names of the columns, by the key of their field.

    Args:
      item: the first good item.
      image, mask: the keys of fields that are none.
      label: the key of the field that becomes "label".
      wanted: keys of further features, or their new names by key; None for all numbers, but no
        lists, which may differ in length.
      lists: the keys of features whose first axis has any length, which are wanted, too.

    Raises:
      SourceError: a wanted one is no number, or two would get one name.
    """
    found = []
    for key, value in item.fields.items():
        listed = wanted is not None or key == label
        numbers = list_of(value) if key in lists else number(value, lists=listed)
        if key not in (image, mask) and numbers is not None:
            found.append(key)

    names = {key: str(key) for key in found}
    missing = sorted(set(lists) - set(found), key=str)
    if missing:
        what = f"no lists of numbers called {missing}; found were {sorted(found, key=str)}"
        raise SourceError(f"`max_length`: the first good record has {what}.")
    if wanted is not None:
        unknown = sorted(set(wanted) - set(found), key=str)
        if unknown:
            what = f"no numbers called {unknown}; found were {sorted(found, key=str)}"
            raise SourceError(f"`features`: the first good record has {what}; {TEXTS}.")
        chosen = {key: str(key) for key in lists} | new_names(wanted)
        names = {key: chosen[key] for key in found if key in chosen}
    if label is not None:
        names[label] = "label"
    check_different(names)
    return names


def new_names(wanted: "Sequence[Any] | Mapping[Any, str]") -> dict[Any, str]:
    """Return the names of wanted features by key.

    Raises:
      ValueError: a single text, of which the letters would count.
    """
    if isinstance(wanted, (str, bytes)):
        raise ValueError(f"`features` must be names, or new names by name, got {wanted!r}.")
    if isinstance(wanted, Mapping):
        return dict(wanted)
    return {key: str(key) for key in wanted}


def blank_numbers(
    item: Item, names: Mapping[Any, str], lists: Collection[Key] = ()
) -> dict[Any, np.ndarray]:
    """Return zeros in the form of an item's features, by key; no rows of `lists`.

    Raises:
      SourceError: no list of numbers under a key of `lists`, or an empty Python list.
    """
    blanks = {}
    for key in names:
        value = item.fields[key]
        numbers = list_of(value) if key in lists else number(value)
        if numbers is None or is_empty_list(value):
            raise SourceError(
                f"`max_length`: the first records have no rows under {key!r} that tell their form, "
                f"got {reprlib.repr(value)}: give arrays, such as np.zeros((0, 4), np.float32) for "
                "no boxes."
            )
        dtype = np.float32 if names[key] in _POINTS and numbers.dtype.kind in "iu" else None
        blanks[key] = np.zeros_like(numbers[:0] if key in lists else numbers, dtype)
    return blanks


def check_different(names: Mapping[Any, str]) -> None:
    """Raise SourceError where two fields would get one name."""
    keys = {}
    for key, name in names.items():
        if name in keys:
            raise SourceError(
                f"`features`: {keys[name]!r} and {key!r} would both be called {name!r}: "
                "rename one by features={key: name}, or leave it out."
            )
        keys[name] = key


def check_label(item: Item, label: Key | None, record: int) -> None:
    """Raise SourceError unless the item has a number for its label."""
    if label is None:
        return
    if label not in item.fields:
        what = f"items have no {label!r} but {sorted(item.fields, key=str)}"
        raise SourceError(f"`label`: {what}; pass label=None for none.")
    value = item.fields[label]
    if number(value) is None:
        raise SourceError(
            f"`label`: record {record} has {reprlib.repr(value)} under {label!r}, "
            "which is no number: store the class's number, or pass label=None for none."
        )


def number(value: Any, lists: bool = True) -> np.ndarray | None:
    """Return a number or an array of numbers, of any library, as numpy's; None for all else.

    Args:
      lists: take lists of numbers too.
    """
    foreign = hasattr(value, "__array__") and hasattr(value, "dtype")  # torch, jax, tensorflow
    listed = lists and isinstance(value, list) and bool(value)
    listed = listed and all(isinstance(each, (int, float)) for each in value)
    if not foreign and not listed and not isinstance(value, (int, float)):
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # on another device, ragged, with a gradient
        return None
    return array if holds_numbers(array.dtype) else None


def is_empty_list(value: Any) -> bool:
    """Return True for a Python list without items, which does not tell the form of its rows."""
    return isinstance(value, list) and not value


def list_of(value: Any) -> np.ndarray | None:
    """Return an array of any length, or a list of numbers or of rows of them; None for all else."""
    array = number(value)
    if array is None and isinstance(value, list):
        try:
            array = np.asarray(value)
        except ValueError:  # rows of different lengths
            return None
    known = array is not None and array.ndim and holds_numbers(array.dtype)
    return array if known else None


def _fit(
    key: Key, value: Any, blank: np.ndarray, record: int, *, is_list: bool = False
) -> np.ndarray:
    """Return a feature of one record as the first record has it, a list in any length.

    Integers must keep their value; floats are rounded, but neither to infinity nor whole numbers.
    """
    found = list_of(value) if is_list else number(value)
    sides = [str(side) for side in blank.shape]
    form = ", ".join(["n", *sides[1:]] if is_list else sides)
    wanted = f"record {record} must have {blank.dtype}[{form}] under {key!r}"
    if found is None:
        raise SourceError(f"{wanted}, got {reprlib.repr(value)}.")
    if is_list and not found.size:
        return blank
    if found.shape[is_list:] != blank.shape[is_list:]:
        hint = "pad it to one shape, or leave it out by naming the `features` that you need"
        if found.ndim == blank.ndim and found.shape[1:] == blank.shape[1:]:
            hint += f"; RandomAccess pads it where max_length={{{key!r}: 100}} says how far"
        raise SourceError(f"{wanted}, got {found.dtype}{list(found.shape)}: {hint}.")
    kind = _kind(blank)
    if _kind(found) not in _FITTING[kind]:
        raise SourceError(f"{wanted}, got {found.dtype}{list(found.shape)}.")
    if kind == "f":
        fitted, infinite, changed = round_floats(found, blank.dtype)
        damaged = infinite | changed
    else:
        fitted = found.astype(blank.dtype, copy=False)
        damaged = fitted != found
    if damaged.any():
        raise SourceError(f"{wanted}, got {found.tolist()}.")
    return fitted


def _kind(numbers: np.ndarray) -> str:
    """Return "b", "i", "u" or "f", which floats are that NumPy does not know, as bfloat16."""
    kind = numbers.dtype.kind
    return kind if kind in _FITTING else "f"


def encode_mask(mask: Any, key: Key, record: int) -> bytes:
    """Return the encoded bytes of a mask in any of its forms, its numbers unchanged.

    Raises:
      SourceError: it is none.
    """
    encoded = _stored_bytes(mask, record)
    if encoded is not None:
        return encoded
    exif = None
    if _is_pillow(mask):
        exif = _load_pillow(mask, "mask", record)
        mask = np.asarray(mask)
    if not hasattr(mask, "__array__") or not hasattr(mask, "dtype"):
        raise SourceError(
            f"record {record} must hold a mask under {key!r}, encoded bytes, a Pillow image or "
            f"integers [h, w], got {type(mask).__name__}."
        )
    numbers = np.asarray(mask)
    if numbers.ndim == 3 and numbers.shape[2] == 1:
        numbers = numbers[:, :, 0]
    if numbers.ndim != 2 or numbers.dtype.kind not in "biu" or not numbers.size:
        raise SourceError(
            f"record {record} must hold a mask of integers [h, w] under {key!r}, got "
            f"{numbers.dtype}{list(numbers.shape)}."
        )
    return _encode_numbers(numbers, key, record, exif)


def _encode_numbers(numbers: np.ndarray, key: Key, record: int, exif: Any) -> bytes:
    """Return class numbers [h, w] as an uncompressed file of 8 bits, or of 16 for wider dtypes."""
    from PIL import Image

    if numbers.min() < 0 or numbers.max() > _MAX_UINT16:
        raise SourceError(
            f"record {record} must hold a mask of 0 to {_MAX_UINT16} under {key!r}, got "
            f"{numbers.min()} to {numbers.max()}."
        )
    dtype = np.uint8 if numbers.dtype.itemsize == 1 else np.uint16
    return _save(Image.fromarray(numbers.astype(dtype)), exif)


def _stored_bytes(image: Any, record: int) -> bytes | None:
    """Return the bytes of an image that is encoded already; None if it is not."""
    if isinstance(image, Mapping):  # as Hugging Face stores them
        path = image.get("path")
        image = image.get("bytes")
        if image is None and isinstance(path, (str, os.PathLike)):
            return _read_file(path, record)
    numpy = getattr(image, "numpy", None)
    if numpy is not None and getattr(image, "shape", None) == ():
        image = numpy()  # a string of TensorFlow
    if hasattr(image, "__array__") and getattr(image, "ndim", None) == 1:
        data = np.asarray(image)  # as HDF5 and `torchvision.io.read_file` give files
        image = data.tobytes() if data.dtype == np.uint8 else None
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    return None


def _encode(image: Any, record: int) -> bytes | None:
    """Return the encoded bytes of an image in any of its forms; None if it is none."""
    encoded = _stored_bytes(image, record)
    if encoded is not None:
        return encoded
    if _is_pillow(image):
        return _encode_pillow(image, record)
    if hasattr(image, "__array__") and hasattr(image, "dtype"):
        return _encode_array(np.asarray(image), record)
    return None


def _read_file(path: PathLike, record: int) -> bytes:
    try:
        with open(local_path(path), "rb") as file:
            return file.read()
    except OSError as error:
        name = os.fspath(path)
        raise SourceError(f"record {record}: {name!r} cannot be read: {reason(error)}.") from error


def _is_pillow(image: Any) -> bool:
    return hasattr(image, "getexif") and hasattr(image, "mode") and hasattr(image, "tobytes")


def _encode_pillow(image: Any, record: int) -> bytes:
    """Return the pixels of a Pillow image, uncompressed, with its orientation.

    The Loader turns it, and the masks and boxes that belong to its pixels with it.
    """
    exif = _load_pillow(image, "image", record)
    if image.mode in ("I", "F"):
        what = f"has a Pillow image of mode {image.mode!r}, which has no agreed range"
        raise SourceError(f"record {record} {what}: convert it to 'RGB' or 'L'.")
    known = image.mode in ("L", "RGB") or image.mode.startswith("I;16")
    return _save(image if known else image.convert("RGB"), exif)


def _load_pillow(image: Any, what: str, record: int) -> Any:
    """Load the pixels of a Pillow image; return EXIF with its orientation, None if it is upright.

    Raises:
      SourceError: its file is damaged.
    """
    from PIL import Image

    try:
        image.load()  # before the orientation: a TIFF turns itself here
        orientation = image.getexif().get(_ORIENTATION)
    except (OSError, ValueError, SyntaxError) as error:
        raise SourceError(f"record {record}: the {what} cannot be decoded: {error}.") from error
    if orientation not in range(2, 9):
        return None
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    return exif


def _encode_array(pixels: np.ndarray, record: int) -> bytes:
    """Return pixels uint8[h, w], [h, w, 1] or [h, w, 3] as an uncompressed file."""
    from PIL import Image

    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    color = pixels.ndim == 3 and pixels.shape[2] == 3
    if pixels.dtype != np.uint8 or not pixels.size or not (color or pixels.ndim == 2):
        hint = "convert it, channels last and 0 to 255"
        if pixels.ndim == 3 and pixels.shape[0] in (1, 3):
            hint = "move the channels to the end, as by `permute(1, 2, 0)`, and keep 0 to 255"
        raise SourceError(
            f"record {record} must hold pixels as uint8[h, w, 3] or [h, w], got "
            f"{pixels.dtype}{list(pixels.shape)}: {hint}."
        )
    return _save(Image.fromarray(pixels))


def _save(image: Any, exif: Any = None) -> bytes:
    """Return a Pillow image as an uncompressed file; BMP has neither 16 bits nor EXIF."""
    buffer = io.BytesIO()
    if exif is None and image.mode in ("L", "RGB"):
        image.save(buffer, "BMP")
    else:
        image.save(buffer, "PNG", compress_level=0, exif=exif)
    return buffer.getvalue()


def _no_image(item: Any, image: Key, record: int) -> SourceError:
    """Return the error for an item without an image under that key."""
    fields = fields_of(item)
    if fields is None:
        kind = "None"
        content = type(item).__name__
    else:
        kind = type(fields.get(image)).__name__
        content = str(sorted(fields, key=str))
    if isinstance(item, (tuple, list)):
        kinds = ", ".join(type(part).__name__ for part in item)
        content = f"{type(item).__name__} of ({kinds})"
    return SourceError(
        f"record {record} must hold the encoded image as bytes under {image!r}, got {kind}; "
        f"it has {content}. {_hint(item, fields, image)}"
    )


def _hint(item: Any, fields: Mapping[Any, Any] | None, image: Key) -> str:
    """Return the advice for an item whose image was not found."""
    found = {} if fields is None or image in fields else fields
    images = [key for key, value in found.items() if _may_be_image(value)]
    if not images:
        return "Give bytes, a Pillow image, or pixels uint8[h, w, 3]."
    labels = [key for key in found if key != images[0] and number(found[key]) is not None]
    if isinstance(item, Mapping) or not labels:
        return f"Pass image={images[0]!r}."
    return f"Pass image={images[0]!r}, label={labels[0]!r}."


def _may_be_image(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "bytes" in value or "path" in value
    array = hasattr(value, "__array__") and getattr(value, "ndim", 0) in (2, 3)
    return isinstance(value, (bytes, bytearray, memoryview)) or _is_pillow(value) or array
