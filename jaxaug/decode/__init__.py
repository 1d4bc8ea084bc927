"""From the columns of a source to entries of a batch: encoded bytes to arrays on the devices."""

from jaxaug.decode._column import Column, ColumnDecoder, Decoded, RowError
from jaxaug.decode._declare import default_decoder
from jaxaug.decode._draw import draw_integers, draw_uniform
from jaxaug.decode._mask import Mask
from jaxaug.decode._points import Boxes, Keypoints, stored_points
from jaxaug.decode._tokens import Tokenized
from jaxaug.decode._types import Encoded, ImageBatch, Ragged, Span
from jaxaug.decode.audio.column import Audio
from jaxaug.decode.audio.decode_audio import decode_audio
from jaxaug.decode.image.canvas import Sides
from jaxaug.decode.image.column import Image, describe
from jaxaug.decode.image.decoder import Decoder
from jaxaug.decode.image.host.decode_image import decode_image
from jaxaug.decode.image.parse.headers import Headers, read_headers
from jaxaug.decode.video.column import Video
from jaxaug.decode.video.decode_video import decode_video
from jaxaug.decode.volume.column import Volume
from jaxaug.decode.volume.stored import zarr_reference

__all__ = [
    "Audio",
    "Boxes",
    "Column",
    "ColumnDecoder",
    "Decoded",
    "Decoder",
    "Encoded",
    "Headers",
    "Image",
    "ImageBatch",
    "Keypoints",
    "Mask",
    "Ragged",
    "RowError",
    "Sides",
    "Span",
    "Tokenized",
    "Video",
    "Volume",
    "decode_audio",
    "decode_image",
    "decode_video",
    "default_decoder",
    "describe",
    "draw_integers",
    "draw_uniform",
    "read_headers",
    "stored_points",
    "zarr_reference",
]
