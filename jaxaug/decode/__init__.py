"""From the columns of a source to entries of a batch: encoded bytes to arrays on the devices."""

from jaxaug.decode._column import Column as Column
from jaxaug.decode._column import ColumnDecoder as ColumnDecoder
from jaxaug.decode._column import Decoded as Decoded
from jaxaug.decode._column import RowError as RowError
from jaxaug.decode._declare import default_decoder as default_decoder
from jaxaug.decode._decoder import Decoder as Decoder
from jaxaug.decode._draw import draw_integers as draw_integers
from jaxaug.decode._draw import draw_uniform as draw_uniform
from jaxaug.decode._image import Image as Image
from jaxaug.decode._image import share as share
from jaxaug.decode._mask import Mask as Mask
from jaxaug.decode._points import Boxes as Boxes
from jaxaug.decode._points import Keypoints as Keypoints
from jaxaug.decode._points import stored_points as stored_points
from jaxaug.decode._types import Encoded as Encoded
from jaxaug.decode._types import ImageBatch as ImageBatch
from jaxaug.decode._types import Ragged as Ragged
from jaxaug.decode.audio.column import Audio as Audio
from jaxaug.decode.host.decode_image import decode_image as decode_image
from jaxaug.decode.parse.headers import Headers as Headers
from jaxaug.decode.parse.headers import read_headers as read_headers
