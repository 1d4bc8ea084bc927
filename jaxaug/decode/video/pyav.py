"""FFmpeg by PyAV: contexts and packets, what bounds their memory, and the errors of both."""

from typing import Any

from jaxaug.decode._ffmpeg import decode_error, open_container
from jaxaug.decode._libraries import needed
from jaxaug.decode.video.table import Codec
from jaxaug.errors import DecodeError

# Of libavcodec/mpegpicture.c: 4 x 70 rows, of at most 2**15 pixels.
_WORK_PIXELS = 4 * 70 * 2**15


def import_av() -> Any:
    """Return PyAV.

    Raises:
      ImportError: it is not installed.
    """
    return needed("av", "videos", "video")


def open_file(data: memoryview, container: str, max_pixels: int, decodes: bool) -> Any:
    """Return a file, opened by PyAV.

    Args:
      data: its bytes, which must stay as they are until it is closed.
      container: FFmpeg's name of it.
      max_pixels: see `limits`.
      decodes: FFmpeg may decode what it wants to, to know more of the streams.
    """
    options: dict[str, Any] = {"options": limits(max_pixels)}
    if not decodes:
        options["container_options"] = {"codec_whitelist": "none"}
    return open_container(import_av(), data, container, **options)


def make_context(codec: Codec, max_pixels: int) -> Any:
    """Return a context of PyAV for packets of a codec, as the container would have made it.

    Raises:
      DecodeError: this FFmpeg has no such decoder.
    """
    av = import_av()
    try:
        context = av.CodecContext.create(codec.name, "r")
    except ValueError as error:
        raise DecodeError(f"FFmpeg has no decoder {codec.name!r}") from error
    if codec.extradata:
        context.extradata = codec.extradata
    context.width, context.height = codec.width, codec.height
    if codec.tag:
        context.codec_tag = codec.tag
    if codec.pixels:
        context.pix_fmt = codec.pixels
    context.colorspace, context.color_range = codec.space, codec.range
    context.thread_count = 1  # rows are decoded side by side
    context.options = limits(max_pixels)
    return context


def make_packet(content: bytes | memoryview) -> Any:
    """Return a packet of PyAV, behind which are the zeros that FFmpeg's decoders may read.

    One of PyAV's that refers to the content is followed by what follows that.
    """
    packet = import_av().Packet(len(content))
    packet.update(content)
    return packet


def limits(max_pixels: int) -> dict[str, str]:
    """Return FFmpeg's options by which a stream cannot ask for much more memory than a frame has.

    FFmpeg counts rows that are padded to its alignment, and what some decoders work on, so that it
    would refuse small frames of as many pixels as are allowed: `check_pixels` is exact.
    """
    return {"max_pixels": str(2 * max_pixels + _WORK_PIXELS)}


def check_pixels(height: int, width: int, max_pixels: int) -> None:
    """Raise DecodeError where a frame has more pixels than are allowed."""
    if height * width > max_pixels:
        raise DecodeError(f"{height} x {width} pixels are more than max_pixels={max_pixels}")


def as_decode_error(error: BaseException) -> BaseException:
    """Return an error of FFmpeg as what it says about the bytes."""
    if isinstance(error, import_av().FFmpegError):
        return decode_error(error)
    return error
