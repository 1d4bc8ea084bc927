"""A video at hand: its table, and the packets that some of its frames need."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxaug.decode.video.container import find_container
from jaxaug.decode.video.demux import read_table
from jaxaug.decode.video.mp4_boxes import is_encrypted, is_mirrored
from jaxaug.decode.video.mp4_headers import read_headers
from jaxaug.decode.video.pyav import (
    as_decode_error,
    check_pixels,
    import_av,
    limits,
    make_context,
    open_file,
)
from jaxaug.decode.video.references import References
from jaxaug.decode.video.table import Codec, Table
from jaxaug.errors import DecodeError


class VideoFile:
    """The main video stream of a file, that which FFmpeg finds best; a context manager.

    Args:
      data: the bytes of the file, which must stay as they are until `close`.
      max_pixels: more in a frame are refused.
      table: what is known of it; None to have it read from the file.
      begin: the byte of the file that `data` begins with; another than 0 needs a table.
      cached: the table is that of an opening before, not of an index.

    Attributes:
      max_pixels: see above; what decodes the packets must see to it, too.
      completed: its codec with what its first frame tells; None where nobody has asked.
      table: of its packets.
      packets_read: how many `packets` gave, all in all.
      whole: False where the file does not hold the packets as they are decoded.

    Raises:
      DecodeError: no video, more pixels or packets than allowed, or none.
      ImportError: PyAV is not installed.
    """

    def __init__(
        self,
        data: memoryview,
        max_pixels: int,
        table: Table | None = None,
        begin: int = 0,
        cached: bool = False,
    ):
        self.packets_read = 0
        self.completed: Codec | None = None
        self.max_pixels = max_pixels
        self.whole = True
        self._data = data
        self._begin = begin
        self._probed = not cached
        self._container: Any = None
        self._context: Any = None
        try:
            if table is None:
                table = self._read(max_pixels)
            else:
                check_pixels(table.codec.height, table.codec.width, max_pixels)
            self.table = table
        except BaseException as error:
            self.close()
            raise as_decode_error(error) from None

    def __enter__(self) -> "VideoFile":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free what FFmpeg holds."""
        self._context = None
        if self._container is not None:
            self._container.close()

    @property
    def context(self) -> Any:
        """PyAV's context that decodes the packets, the same each time."""
        if self._context is None:
            self._context = make_context(self.table.codec, self.max_pixels)
        return self._context

    def reopen(self) -> bool:
        """Have FFmpeg open the file and probe it; return False where it has, or the table is given.

        Its context may know more then, as how many pictures come late, where the stream itself says
        it wrong.

        Raises:
          DecodeError: it cannot be opened.
        """
        if self._probed:
            return False
        try:
            self.table = self._read(self.max_pixels, probe=True)
        except Exception as error:
            raise as_decode_error(error) from None
        return True

    def packets(self, run: np.ndarray) -> Iterator[tuple[int, memoryview]]:
        """Yield the packets of a run of `Table.runs`, with their numbers.

        Raises:
          DecodeError: the bytes end before one of them.
        """
        starts = self.table.offsets[run] - self._begin
        stops = starts + self.table.sizes[run]
        for number, start, stop in zip(run.tolist(), starts.tolist(), stops.tolist()):
            if start < 0 or stop > len(self._data):
                raise DecodeError("its bytes are not those that were indexed")
            self.packets_read += 1
            yield number, self._data[start:stop]

    def _read(self, max_pixels: int, probe: bool = False) -> Table:
        """Open the file and return its table.

        Args:
          max_pixels: see the class.
          probe: let FFmpeg decode what it wants to, whatever the headers tell.
        """
        kind = find_container(self._data)
        if kind == "mov" and is_encrypted(self._data):
            raise DecodeError("it is encrypted: decrypt it, as by `ffmpeg -decryption_key`")
        headers = read_headers(self._data) if kind == "mov" and not probe else None
        self._probed = headers is None
        stream = self._open(kind, max_pixels)
        found = read_table(self._container, stream, kind, self._data, headers)
        if found is None:
            return self._read(max_pixels, probe=True)
        table, packets = found
        first = packets[0] if packets else self._data[table.offsets[0] :][: table.sizes[0]]
        references = References(table.codec.name, table.codec.extradata)
        message = references.encoder_message(first, "444" in table.codec.pixels)
        mirrored = kind == "mov" and is_mirrored(self._data, stream.id)
        codec = dataclasses.replace(table.codec, mirrored=mirrored, message=message)
        if headers is not None:
            codec = headers.sited(codec)
        table = dataclasses.replace(table, codec=codec)
        self.completed = headers.turned(table.codec, first) if headers else None
        if packets:  # the container changes them: Matroska may leave out how each of them begins
            self.whole = False
            self._data = memoryview(b"".join(packets))
        return table

    def _open(self, kind: str, max_pixels: int) -> Any:
        """Have FFmpeg open the file, and return the stream.

        Raises:
          DecodeError: no video, or more pixels than allowed.
        """
        self.close()
        self._container = open_file(self._data, kind, max_pixels, decodes=self._probed)
        stream = self._container.streams.best("video")
        if stream is None or stream.codec_context is None:
            raise DecodeError("it has no video stream that can be decoded")
        if stream.disposition & import_av().stream.Disposition.attached_pic:
            raise DecodeError("it is a sound with a picture attached, not a video")
        self._context = stream.codec_context
        self._context.thread_count = 1  # rows are decoded side by side
        self._context.options = limits(max_pixels)  # the stream may say more later
        check_pixels(self._context.height, self._context.width, max_pixels)
        return stream
