"""FFmpeg by PyAV, for videos and sounds: how a file is opened, and what its errors say."""

from typing import Any

from jaxaug.decode._memory_file import MemoryFile
from jaxaug.errors import DecodeError

_IO_BYTES = 1 << 18  # read at a time


def open_container(av: Any, data: memoryview, container: str, **options: Any) -> Any:
    """Return a file, opened by PyAV.

    Args:
      av: PyAV.
      data: the bytes of the file, which must stay as they are until it is closed.
      container: FFmpeg's name of it.
      options: further ones of `av.open`.
    """
    if int(av.__version__.split(".")[0]) < 19:  # later ones decode metadata when asked for it
        options["metadata_errors"] = "replace"
    return av.open(MemoryFile(data), format=container, buffer_size=_IO_BYTES, **options)


def decode_error(error: BaseException, task: str = "read") -> DecodeError:
    """Return what an error of FFmpeg says about the bytes, that it cannot read or decode them."""
    reason = getattr(error, "strerror", None) or error
    return DecodeError(f"FFmpeg cannot {task} it: {reason}")
