"""COCO: a folder of images and a JSON file of boxes."""

import json
from typing import Any

import numpy as np

from jaxaug._typing import Features, PathLike
from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators.sources._files import local_path
from jaxaug.iterators.sources._loose import LooseFiles


class Coco:
    """Images with the boxes of a COCO instances file.

    Features of each record, K being the most boxes that an image has:

    - "boxes" float32[n, K, 4]: (x_min, y_min, x_max, y_max) in pixels of the file, zeros behind the
      last box. The Loader scales them with the image, and transforms move them.
    - "box_labels" int32[n, K]: ranks of the categories by id, so that they count from 0 without
      gaps; -1 behind the last box.
    - "box_count" int32[n].

    Every image of the file is a record, with boxes or without. Crowd regions (`iscrowd`) and boxes
    without area are left out, as training code does.

    Args:
      images: the folder of the images.
      annotations: the JSON file, such as `instances_train2017.json`.

    Attributes:
      classes: category names; `box_labels` count through them.

    Raises:
      SourceError: the file is missing, no COCO instances file, has no images, or names unknown
        ones.

    Example:
      >>> import tempfile
      >>> image = {"id": 9, "file_name": "a.jpg"}
      >>> box = {"image_id": 9, "category_id": 3, "bbox": [10, 20, 5, 2]}
      >>> category = {"id": 3, "name": "zebra"}
      >>> found = {"images": [image], "annotations": [box], "categories": [category]}
      >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
      ...     json.dump(found, file)
      ...     file.flush()
      ...     source = Coco("images", file.name)
      >>> source.read(np.array([0]))[1]["boxes"].tolist(), source.describe(0)["categories"]
      ([[[10.0, 20.0, 15.0, 22.0]]], ['zebra'])

    Reference: Lin et al., Microsoft COCO, ECCV 2014; https://cocodataset.org/#format-data.
    """

    def __init__(self, images: PathLike, annotations: PathLike):
        self._annotations = local_path(annotations)
        found = _load(self._annotations)
        try:
            categories = sorted(
                (int(entry["id"]), str(entry["name"])) for entry in found["categories"]
            )
            self._ids = np.array([int(entry["id"]) for entry in found["images"]], np.int64)
            names = [str(entry["file_name"]) for entry in found["images"]]
            if not names:
                raise SourceError(f"`annotations` {self._annotations!r} has no images.")
            boxes = [_box(entry) for entry in found["annotations"] if not entry.get("iscrowd")]
            self._features = _pad(
                boxes, self._ids, np.array([number for number, _ in categories], np.int64)
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            what = f"{type(error).__name__}: {error}"
            raise SourceError(
                f"`annotations` {self._annotations!r} is no COCO instances file: {what}."
            ) from error
        self.classes: tuple[str, ...] = tuple(name for _, name in categories)
        self._files = LooseFiles(local_path(images), names)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        boxes = int(self._features["box_count"].sum())
        found = f"{len(self)} images, {boxes} boxes, {len(self.classes)} classes"
        return f"Coco({self._annotations!r}: {found}, {sorted(self.features)})"

    def path(self, index: int) -> str:
        """Return the path of record `index`."""
        return self._files.path(index)

    @property
    def features(self) -> Features:
        """All columns of boxes by name, known without reading an image."""
        return dict(self._features)

    def read(self, indices: np.ndarray) -> tuple[Encoded, Features]:
        """Read the files' bytes (length 0: unreadable), "boxes", "box_labels" and "box_count"."""
        columns = {name: column[indices] for name, column in self._features.items()}
        return self._files.read(indices), columns

    def describe(self, index: int) -> dict[str, Any]:
        """Return the path, image id, names of categories, and "error" if it cannot be read now."""
        labels = self._features["box_labels"][index][: self._features["box_count"][index]]
        categories = [self.classes[label] for label in labels.tolist()]
        return self._files.describe(index) | {
            "image_id": int(self._ids[index]),
            "categories": categories,
        }

    def fingerprint(self) -> str:
        """Return a hash of the file names and of all boxes."""
        return self._files.fingerprint(*self._features.values())


def _load(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        raise SourceError(f"`annotations` {path!r} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise SourceError(
            f"`annotations` {path!r} is no COCO instances file: it holds a {type(found).__name__}."
        )
    return found


def _box(entry: dict[str, Any]) -> tuple[int, int, float, float, float, float]:
    """Return (image id, category id, x, y, width, height)."""
    x, y, width, height = map(float, entry["bbox"])
    return int(entry["image_id"]), int(entry["category_id"]), x, y, width, height


def _pad(
    boxes: list[tuple], image_ids: np.ndarray, category_ids: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the features' columns; boxes keep the file's order within their image."""
    table = np.array(boxes, np.float64).reshape(-1, 6)
    table = table[(table[:, 4] > 0) & (table[:, 5] > 0)]
    image = _ranks(table[:, 0], image_ids, "image")
    label = _ranks(table[:, 1], category_ids, "category")
    order = np.argsort(image, kind="stable")
    table = table[order]
    image = image[order]
    label = label[order]
    count = np.bincount(image, minlength=len(image_ids))
    place = np.arange(len(image)) - (np.cumsum(count) - count)[image]
    most = max(int(count.max()), 1)
    corners = np.concatenate([table[:, 2:4], table[:, 2:4] + table[:, 4:6]], axis=1)

    boxes_of = np.zeros((len(image_ids), most, 4), np.float32)
    boxes_of[image, place] = corners
    labels_of = np.full((len(image_ids), most), -1, np.int32)
    labels_of[image, place] = label
    return {"boxes": boxes_of, "box_labels": labels_of, "box_count": count.astype(np.int32)}


def _ranks(ids: np.ndarray, known: np.ndarray, what: str) -> np.ndarray:
    """Return the place of each id in `known`."""
    if not len(ids):
        return np.zeros(0, np.int64)
    if not len(known):
        raise ValueError(f"a box names {what} {int(ids[0])}, which is not listed")
    order = np.argsort(known)
    places = np.searchsorted(known, ids, sorter=order)
    found = order[np.minimum(places, len(known) - 1)]
    wrong = known[found] != ids
    if wrong.any():
        raise ValueError(f"a box names {what} {int(ids[wrong][0])}, which is not listed")
    return found
