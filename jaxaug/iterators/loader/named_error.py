"""The error of a record, with the files that its source tells of."""

from collections.abc import Mapping
from typing import Any

from jaxaug.errors import DecodeError


def named_error(
    index: int, reason: str, about: Mapping[str, Any], byte_count: int | None = None
) -> DecodeError:
    """Return the error of a record that cannot be decoded.

    Args:
      index: of the record.
      reason: the fault of its bytes.
      about: what `Source.describe` tells of it.
      byte_count: the length of its bytes; None if they are several, or were not read.

    Example:
      >>> print(named_error(3, "it is cut off", {"path": "cat.jpg", "mask_path": "cat.png"}))
      cannot decode record 3 (cat.jpg, cat.png): it is cut off
    """
    others = [name for name in about if name.endswith("_path")]
    found = [about.get(name) for name in ("path", "key", *others)]
    file = ", ".join(str(each) for each in found if each is not None)
    return DecodeError(reason, index=index, file=file or None, byte_count=byte_count)
