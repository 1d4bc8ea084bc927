"""Boxes, of which JPEG 2000, JPEG XL, AVIF and HEIC files are made.

Reference: ISO/IEC 14496-12 4.2, ITU-T T.800 I.4.
"""

from collections.abc import Iterator


def boxes(
    data: memoryview, start: int = 0, stop: int | None = None
) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the name and the content of each box; one that is cut off ends them.

    Example:
      >>> [(name, bytes(content)) for name, content in boxes(memoryview(b"\\0\\0\\0\\x09abcd!"))]
      [(b'abcd', b'!')]
    """
    stop = len(data) if stop is None else stop
    while start + 8 <= stop:
        size = int.from_bytes(data[start : start + 4], "big")
        head = 8
        if size == 1:
            size = int.from_bytes(data[start + 8 : start + 16], "big")
            head = 16
        end = stop if size == 0 else start + size
        if (size != 0 and size < head) or end > stop:
            return
        yield bytes(data[start + 4 : start + 8]), data[start + head : end]
        start = end


def box(data: memoryview, name: bytes) -> memoryview | None:
    """Return the content of the first box of a name."""
    return next((content for found, content in boxes(data) if found == name), None)
