"""Decoders on a GPU that a thread of the host asks before it decodes itself."""

import threading
from typing import Any

_thread = threading.local()


def decode_by(**decoders: Any) -> None:
    """Have this thread ask decoders, by the names of the formats they decode.

    Each has decode(data, shape, dtype, ...): the pixels of `shape`, or None for those that the host
    must decode, or tell the damage of.
    """
    _thread.decoders = decoders


def decoder_of(format: str) -> Any:
    """Return the decoder that this thread asks for files of a format, None without one."""
    return getattr(_thread, "decoders", {}).get(format)
