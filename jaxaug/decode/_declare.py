"""The decoders of columns by their names, where neither source nor user says more."""

from jaxaug._typing import Values
from jaxaug.decode._column import ColumnDecoder
from jaxaug.decode._mask import Mask
from jaxaug.decode._points import Boxes, Keypoints
from jaxaug.decode._types import Encoded
from jaxaug.decode.audio.column import Audio
from jaxaug.decode.image.column import Image
from jaxaug.decode.video.column import Video
from jaxaug.decode.volume.column import Volume


def default_decoder(name: str, values: Values) -> ColumnDecoder | None:
    """Return the decoder of a column of that name; None for one that needs none.

    "image" is an `Image`, "video" of encoded bytes a `Video`, "audio" an `Audio`, "volume" a
    `Volume`, "mask" a `Mask`,
    "masks" [n, k, H, W] one of instances, "boxes" are `Boxes` and "keypoints" `Keypoints`.

    Args:
      name: of the column.
      values: of one record.

    Example:
      >>> default_decoder("boxes", [[0, 0, 8, 9]])
      Boxes(of='image', upright=False)
    """
    encoded = isinstance(values, Encoded)
    if name == "image":
        return Image()
    if name == "video" and encoded:
        return Video()
    if name == "audio" and encoded:
        return Audio()
    if name == "volume" and encoded:
        return Volume()
    if name == "mask":
        return Mask()
    if name == "masks" and not encoded and getattr(values, "ndim", 0) == 4:
        return Mask(fill=0, instances=True)
    if name == "boxes" and not encoded:
        return Boxes()
    if name == "keypoints" and not encoded:
        return Keypoints()
    return None
