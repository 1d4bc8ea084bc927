"""Tables of videos that have come before, by their bytes: these are not opened again."""

import dataclasses
import hashlib
import threading

from jaxaug.decode.video.host import completed_codec
from jaxaug.decode.video.stored import table_of
from jaxaug.decode.video.stream import VideoFile

MAX_BYTES = 2**26  # of tables: some 40,000 of 300 packets
_ENTRY_BYTES = 200  # beside each
# Videos opened at once. Opening is Python, which goes back and forth between libraries: many
# threads hand the GIL to each other for longer than they hold it.
_AT_ONCE = 2


class TableCache:
    """Tables of whole files, as `Table.to_bytes`; several threads may ask.

    Those that came first stay where no more have room, so that each epoch finds as many.

    Attributes:
      bytes_held: about what they take of the host's memory.
    """

    def __init__(self):
        self._tables: dict[bytes, bytes] = {}
        self._opening = threading.Semaphore(_AT_ONCE)
        self.bytes_held = 0

    def open(self, data: memoryview, max_pixels: int) -> VideoFile:
        """Return a video, with what is known of it; `VideoFile.reopen` is for its host decoder.

        Raises:
          DecodeError: of `VideoFile`, or its first frame cannot be decoded.
        """
        name = hashlib.sha256(data).digest()
        stored = self._tables.get(name, b"")
        if stored:
            return VideoFile(data, max_pixels, table_of(stored), cached=True)
        with self._opening:
            video = VideoFile(data, max_pixels)
            try:
                self._keep(name, video)
            except BaseException:
                video.close()
                raise
        return video

    def _keep(self, name: bytes, video: VideoFile) -> None:
        if not video.whole or self.bytes_held >= MAX_BYTES:
            return
        stored = dataclasses.replace(video.table, codec=completed_codec(video)).to_bytes()
        self.bytes_held += len(stored) + _ENTRY_BYTES
        self._tables[name] = stored
