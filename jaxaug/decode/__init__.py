"""From encoded bytes to uint8 canvases on the devices."""

from jaxaug.decode._backend import DecodedBatch as DecodedBatch
from jaxaug.decode._decoder import Decoder as Decoder
from jaxaug.decode._types import Encoded as Encoded
from jaxaug.decode._types import ImageBatch as ImageBatch
from jaxaug.decode.host.decode_image import decode_image as decode_image
from jaxaug.decode.parse.headers import Headers as Headers
from jaxaug.decode.parse.headers import read_headers as read_headers
