"""What is known of a sound file before it is decoded."""

from typing import Any, NamedTuple

from jaxaug.errors import DecodeError

G711 = ("alaw", "ulaw")


class Header(NamedTuple):
    """What a file tells.

    Attributes:
      kind: "plain" for samples that lie in the file as they are, "blocks" for ADPCM, "flac", "mp3",
        "vorbis", "opus", or "av" for what FFmpeg reads.
      rate: samples a second.
      channels: of the file.
      frames: samples of each channel.
      bits: of a sample of integers, 0 for others.
      start: of plain samples, where they begin.
      coding: of plain samples: their dtype, "i3" for 3 bytes, or "alaw" or "ulaw".
      stream: of MP3 and Opus, where its parts are: `mp3.Stream`, `opus.Stream`.
    """

    kind: str
    rate: int
    channels: int
    frames: int
    bits: int = 0
    start: int = 0
    coding: str = ""
    stream: Any = None

    @property
    def exact(self) -> bool:
        """True where int16 holds every sample."""
        return 0 < self.bits <= 16

    @property
    def width(self) -> int:
        """The bytes of a plain sample."""
        return width_of(self.coding)


def width_of(coding: str) -> int:
    """Return the bytes of a plain sample.

    Example:
      >>> width_of("<i3"), width_of("alaw")
      (3, 1)
    """
    return 1 if coding in G711 else int(coding[-1])


def plain_header(
    coding: str,
    channels: int,
    rate: int,
    start: int,
    length: int | None,
    there: int,
    *,
    bits: int = 0,
) -> Header:
    """Return the header of a file of plain samples.

    Args:
      coding: as in `Header`.
      channels, rate: of the file.
      start, length: of the samples, in bytes; a length of None ends with the file.
      there: the bytes of the file.
      bits: of a sample, where that is not all of its bytes.

    Raises:
      DecodeError: the file ends before the samples do, or these before they begin.
    """
    if length is None:
        length = max(0, there - start)
    if length < 0:
        raise DecodeError(f"its header is damaged: its samples have {length} bytes")
    check_end(start, length, there)
    whole = {"f": 0}.get(coding[1], 16 if coding in G711 else 8 * width_of(coding))
    frames = length // (width_of(coding) * max(channels, 1))
    return Header("plain", rate, channels, frames, bits or whole, start, coding)


def check_end(start: int, length: int, there: int) -> None:
    """Raise DecodeError where a file ends before its samples do."""
    if start + length > there:
        found = max(0, there - start)
        raise DecodeError(f"it is cut off: {found} of {length} bytes of samples are there")
