"""Which videos the engines decode, by their headers: what they refuse goes to the host."""

import functools
from ctypes import byref
from typing import NamedTuple

from jaxaug.decode.native import libnvcuvid as nv
from jaxaug.decode.video.planes import BITS, quarter_turns
from jaxaug.decode.video.table import Codec

# By FFmpeg's names of decoders. Their standards say what each pixel is; those of MPEG-1, 2 and 4
# leave the inverse cosine transform a tolerance, and other decoders give other levels.
_CODECS = {"h264": "h264", "hevc": "hevc", "vp8": "vp8", "vp9": "vp9"}
_CODECS |= {name: "av1" for name in ("av1", "libdav1d", "libaom-av1")}
# Those that "auto" gives them: of the others they do not tell which pictures they found errors in.
REPORTED = ("h264", "hevc")
_HALVED, _WHOLE = 1, 3  # cudaVideoChromaFormat_420 and _444
_BLOCK = 16  # pixels of a macroblock's side


class EngineError(Exception):
    """The engines did not decode a video, or not without errors: the host tells what is wrong."""


class Form(NamedTuple):
    """What a session is made for.

    Attributes:
      codec: one of `libnvcuvid.CODECS`.
      whole: True where chroma has the size of luma.
      bits: of a sample.
    """

    codec: int
    whole: bool
    bits: int


def engine_form(codec: Codec, whole_chroma: bool, silent: bool) -> Form | None:
    """Return what the engines of the current device decode a video as; None if they do not.

    Args:
      codec: of the video, with what its frames tell.
      whole_chroma: the canvases have chroma of the size of luma.
      silent: codecs are decoded, too, of whose errors the engines do not tell.
    """
    if codec.name not in (_CODECS if silent else REPORTED) or codec.pixels not in BITS:
        return None
    form = Form(nv.CODECS[_CODECS[codec.name]], "444" in codec.pixels, BITS[codec.pixels])
    if form.whole != whole_chroma:  # the host interpolates chroma
        return None
    odd = codec.height % 2 or codec.width % 2
    # Those that are mirrored are the host's, and so are odd ones that it turns with whole chroma.
    if codec.mirrored or (odd and quarter_turns(codec.rotation or 0)):
        return None
    if codec.message:  # FFmpeg alone decodes what its encoder wrote otherwise than the standard
        return None
    return form if _fits(codec, capabilities(form)) else None


def _fits(codec: Codec, able: nv.Capabilities) -> bool:
    """Return True where the sides of a frame are in the limits of the engines."""
    width, height = (-(-side // _BLOCK) * _BLOCK for side in (codec.width, codec.height))
    return (
        bool(able.supported)
        and able.min_width <= codec.width
        and able.min_height <= codec.height
        and width <= able.max_width
        and height <= able.max_height
        and width * height // _BLOCK**2 <= able.max_macroblocks
    )


@functools.cache
def capabilities(form: Form) -> nv.Capabilities:
    """Return what the engines of the current device can do; all devices of a process are alike."""
    able = nv.Capabilities(
        codec=form.codec, chroma_format=_WHOLE if form.whole else _HALVED, bits_minus8=form.bits - 8
    )
    nv.load().cuvidGetDecoderCaps(byref(able))
    return able


def engine_count() -> int:
    """Return the number of engines of the current device, those that decode H.264.

    Raises:
      CuvidError: it has none, as some parts of a divided GPU.
    """
    able = capabilities(Form(nv.CODECS["h264"], False, 8))
    if not (able.supported or able.engines):
        raise nv.CuvidError("cuvidGetDecoderCaps", nv.NOT_SUPPORTED)
    return max(1, int(able.engines))  # old drivers do not count them
