"""Boxes and keypoints that were annotated on stored or on upright images."""

from jaxaug.decode import Boxes, ColumnDecoder, Keypoints

BOXES_OF = ("stored", "upright")


def annotated_on(image: str) -> dict[str, ColumnDecoder]:
    """Return the decoders of boxes and keypoints that are of the "stored" or "upright" image."""
    if image == "stored":
        return {}
    return {"boxes": Boxes(upright=True), "keypoints": Keypoints(upright=True)}
