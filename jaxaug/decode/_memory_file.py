"""Bytes in memory as a file, for libraries that read files."""

import os


class MemoryFile:
    """A file of some bytes, without a copy of all of them.

    Args:
      data: the bytes, which must stay as they are.

    Example:
      >>> file = MemoryFile(memoryview(b"abcdef"))
      >>> file.seek(-2, os.SEEK_END), file.read(8), file.tell()
      (4, b'ef', 6)
    """

    def __init__(self, data: memoryview):
        self._data = data
        self._place = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, up to `size` of them."""
        end = len(self._data) if size < 0 else self._place + size
        chunk = bytes(self._data[self._place : end])
        self._place += len(chunk)
        return chunk

    def readinto(self, buffer: memoryview) -> int:
        """Fill a buffer with the next bytes; return how many there were."""
        chunk = self._data[self._place : self._place + len(buffer)]
        buffer[: len(chunk)] = chunk
        self._place += len(chunk)
        return len(chunk)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place, and return it."""
        start = (0, self._place, len(self._data))[whence]
        self._place = max(0, start + offset)
        return self._place

    def tell(self) -> int:
        """Return the place."""
        return self._place
