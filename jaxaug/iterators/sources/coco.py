"""COCO: a folder of images and a JSON file of boxes and regions."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug._checks import check_choice
from jaxaug._typing import Features, PathLike, Values
from jaxaug.decode import Encoded, Headers, read_headers, stored_points
from jaxaug.decode.image.orientation import upright
from jaxaug.decode.image.parse.headers import BAD
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import join_columns
from jaxaug.iterators.sources import _items, _regions
from jaxaug.iterators.sources._base import BOXES_OF
from jaxaug.iterators.sources.stamps import file_stamps, joined
from jaxaug.iterators.sources.storage.files import local_path
from jaxaug.iterators.sources.storage.loose import LooseFiles

_MAX_NUMBER = _regions.IGNORED - 1  # of a class or an object in a mask
# What turns upright pixels into those of a file with the orientation that is the index.
_BACK = (1, 1, 2, 3, 4, 5, 8, 7, 6)


class Coco:
    """Images with the boxes, and the regions, of a COCO instances file, or of one of LVIS.

    Features of each record, K being the most boxes that an image has:

    - "boxes" float32[n, K, 4]: (x_min, y_min, x_max, y_max) in pixels of the file, zeros after the
      last box. The Loader scales them with the image, and transforms move them.
    - "box_labels" int32[n, K]: ranks of the categories by id, so that they count from 0 without
      gaps; -1 after the last box.
    - "boxes_valid" bool[n, K], True for boxes; "box_count" int32[n], how many there are.
    - "mask" uint8[n, H, W] where `mask` asks for it: class or object numbers from 1 on, 0 where
      there is none, 255 in crowd regions.

    and those that `features` names:

    - "keypoints" float32[n, K, J, 3]: (x, y, visibility 0 to 2) of the J joints of each box, moved
      as boxes are; zeros without. `SanitizeBoxes(per_box=("box_labels", "keypoints"))` keeps them
      beside their boxes.
    - "box_area" float32[n, K]: "area", in square pixels of the file. "box_ids" int32[n, K]: "id",
      -1 after the last box. "box_crowd" bool[n, K]: True for crowd regions, which are then among
      the boxes. All follow their boxes.
    - "image_id" int32[n].

    Every image of the file is a record, with boxes or without. Crowd regions (`iscrowd`), unless
    "box_crowd" is asked for, and boxes without area are left out, as training code does.

    Args:
      images: the folder of the images; for LVIS the one that holds "train2017" and "val2017", as
        each of its files names images of both.
      annotations: the JSON file, such as `instances_train2017.json` or `lvis_v1_train.json`.
      mask: "classes" draws each object with 1 + its box label, and 255 where objects of two classes
        overlap. "objects" draws it with 1 + its place among the boxes, smaller boxes above larger
        ones: `mask == 1 + jnp.arange(K)[:, None, None]` is [K, H, W], a mask for each box. None for
        no masks. Polygons are drawn while a batch is read, pixel by pixel as pycocotools does.
      features: names of further features, of those above.
      boxes_of: the image that was annotated. "size": each image's "height" and "width" in the JSON
        file tell whether it was the file's or, turned by EXIF, the upright one; "stored" where they
        are both or missing. An image of neither size is a bad record: the Loader's `on_error`
        decides. "stored" and "upright" say it for all images, whatever the sizes.

    Attributes:
      classes: category names; `box_labels` count through them.
      image_ids: int64[n], the "id" of each image: `source.image_ids[batch["index"]]`.
      mask: the argument.

    Raises:
      SourceError: the file is missing, no COCO instances file, has no images, two of one id, names
        unknown ones, or has more than 254 classes or objects in an image, where the masks have
        numbers of them.

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
      >>> source.read(np.array([0]))["boxes"].tolist(), source.describe(0)["categories"]
      ([[[10.0, 20.0, 15.0, 22.0]]], ['zebra'])

    Reference: Lin et al., Microsoft COCO, ECCV 2014; https://cocodataset.org/#format-data.
    """

    def __init__(
        self,
        images: PathLike,
        annotations: PathLike,
        mask: str | None = None,
        *,
        features: Sequence[str] = (),
        boxes_of: str = "size",
    ):
        check_choice("mask", mask, (None, "classes", "objects"))
        check_choice("boxes_of", boxes_of, ("size", *BOXES_OF))
        for name in _items.new_names(features):
            check_choice("features", name, (*_EXTRA, "image_id"))
        self._boxes_of = boxes_of
        self.mask = mask
        self._annotations = local_path(annotations)
        found = _load(self._annotations)
        try:
            categories = sorted(
                (int(entry["id"]), str(entry["name"])) for entry in found["categories"]
            )
            self.image_ids = np.array([int(entry["id"]) for entry in found["images"]], np.int64)
            names = [_file_name(entry) for entry in found["images"]]
            if not names:
                raise SourceError(f"`annotations` {self._annotations!r} has no images.")
            category_ids = np.array([key for key, _ in categories], np.int64)
            _check_unique("images", self.image_ids)
            _check_unique("categories", category_ids)
            crowds = "box_crowd" in features
            objects = _objects(found["annotations"], self.image_ids, category_ids, crowds)
            self._features = _pad(objects, len(names))
            shape = self._features["box_labels"].shape
            for name in features:
                if name == "image_id":
                    self._features[name] = self.image_ids
                else:
                    values, fill = _EXTRA[name](objects.entries)
                    self._features[name] = np.full((*shape, *values.shape[1:]), fill, values.dtype)
                    self._features[name][objects.image, objects.place] = values
            # As the file says, zeros where it does not.
            sizes = [(entry.get("height"), entry.get("width")) for entry in found["images"]]
            self._sizes = np.array([[int(side or 0) for side in each] for each in sizes], np.int64)
            self._masks = None if mask is None else _Masks(mask, found, objects, self.image_ids)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            what = f"{type(error).__name__}: {error}"
            raise SourceError(
                f"`annotations` {self._annotations!r} is no COCO instances file: {what}."
            ) from error
        self.classes: tuple[str, ...] = tuple(name for _, name in categories)
        self._files = LooseFiles(local_path(images), names)
        self._misfits: dict[int, str] = {}  # by record, where a size was that of no image

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        boxes = int(self._features["box_count"].sum())
        found = f"{len(self)} images, {boxes} boxes, {len(self.classes)} classes"
        return f"Coco({self._annotations!r}: {found}, {sorted(self.features)})"

    def path(self, index: int) -> str:
        """Return the path of record `index`."""
        return self._files.path(index)

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return stamps of sizes and times of the images and of the JSON, see `Stamped`."""
        images = file_stamps(map(self.path, indices.tolist()))
        return joined(images, file_stamps([self._annotations]))

    @property
    def features(self) -> Features:
        """All columns of boxes by name, known without reading an image."""
        return dict(self._features)

    def read(self, indices: np.ndarray) -> dict[str, Values]:
        """Read the files' bytes (length 0: unreadable), draw the masks, and return the boxes.

        All are in pixels of the stored files.
        """
        images = self._files.read(indices)
        columns: dict[str, Values] = {}
        columns |= {name: column[indices] for name, column in self._features.items()}
        headers = read_headers(images)
        misfit, turned = self._frames(headers, indices)
        if misfit.any():
            images = images._replace(lengths=np.where(misfit, np.uint64(0), images.lengths))
        for name in columns.keys() & {"boxes", "keypoints"}:
            original_size, orientation = headers.original_size(), headers.orientation
            columns[name] = stored_points(name, columns[name], original_size, orientation, turned)
        encoded: dict[str, Values] = {"image": images}
        if self._masks is not None:
            back = np.where(turned, np.array(_BACK)[headers.orientation], 1)
            encoded["mask"] = self._masks.read(indices, back)
        return join_columns(encoded, columns)

    def _frames(self, headers: Headers, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which images have another size than the JSON file says, and which are annotated
        upright: bool[n] each.
        """
        rows = len(indices)
        if self._boxes_of != "size":
            return np.zeros(rows, bool), np.full(rows, self._boxes_of == "upright")
        said = self._sizes[indices]
        known = (headers.kind != BAD) & (said > 0).all(axis=1)
        as_stored = (said == np.stack([headers.height, headers.width], axis=1)).all(axis=1)
        as_upright = (said == headers.original_size()).all(axis=1)
        misfit = known & ~as_stored & ~as_upright
        for row in np.flatnonzero(misfit).tolist():
            wrong = _misfit(said[row], headers.height[row], headers.width[row])
            self._misfits[int(indices[row])] = wrong
        return misfit, known & as_upright & ~as_stored

    def describe(self, index: int) -> dict[str, Any]:
        """Return the path, image id, names of categories, and "error" if it cannot be read now."""
        labels = self._features["box_labels"][index][: self._features["box_count"][index]]
        categories = [self.classes[label] for label in labels.tolist()]
        found = {"image_id": int(self.image_ids[index]), "categories": categories}
        if index in self._misfits:
            found["error"] = self._misfits[index]
        return found | self._files.describe(index)

    def fingerprint(self) -> str:
        """Return a hash of the file names, of all boxes, and of the kind of masks."""
        kind = [] if self._masks is None else [np.frombuffer(self._masks.kind.encode(), np.uint8)]
        return self._files.fingerprint(*self._features.values(), *kind)


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


def _file_name(image: dict[str, Any]) -> str:
    """Return the path of an image; LVIS names it by the end of a URL, ".../train2017/1.jpg"."""
    if "file_name" not in image and "coco_url" in image:
        return "/".join(str(image["coco_url"]).split("/")[-2:])
    return str(image["file_name"])


def _misfit(said: np.ndarray, height: int, width: int) -> str:
    return (
        f"its annotations are of an image of {said[0]} x {said[1]} pixels (height x width), but "
        f'the file has {height} x {width}: correct "height" and "width", scale the annotations, '
        "or pass boxes_of='stored' or 'upright', which takes them as they are"
    )


def _check_unique(what: str, ids: np.ndarray) -> None:
    """Raise ValueError where two entries have one id: boxes could be of either."""
    found, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"two or more {what} have the id {int(found[counts > 1][0])}")


class _Objects(NamedTuple):
    """The objects of all images, image by image, in the file's order within one.

    Attributes:
      entries: as the file has them.
      image: int64[k], the number of the image.
      place: int64[k], the place among the image's objects.
      label: int64[k], the rank of the category.
      boxes: float64[k, 4], x, y, width, height.
    """

    entries: Sequence[dict[str, Any]]
    image: np.ndarray
    place: np.ndarray
    label: np.ndarray
    boxes: np.ndarray


def _objects(
    entries: Sequence[dict[str, Any]],
    image_ids: np.ndarray,
    category_ids: np.ndarray,
    crowds: bool,
) -> _Objects:
    """Return the objects whose boxes have an area, with `crowds` crowd regions too."""
    single = [entry for entry in entries if crowds or not entry.get("iscrowd")]
    boxes = np.array([_box(entry) for entry in single], np.float64).reshape(-1, 4)
    solid = np.flatnonzero((boxes[:, 2:] > 0).all(axis=1))
    chosen = [single[number] for number in solid.tolist()]
    label = _ranks(chosen, "category_id", category_ids)
    image = _ranks(chosen, "image_id", image_ids)

    order = np.argsort(image, kind="stable")
    image = image[order]
    count = np.bincount(image)
    place = np.arange(len(image)) - (np.cumsum(count) - count)[image]
    sorted_entries = [chosen[number] for number in order.tolist()]
    return _Objects(sorted_entries, image, place, label[order], boxes[solid][order])


def _box(entry: dict[str, Any]) -> tuple[float, float, float, float]:
    """Return x, y, width, height."""
    x, y, width, height = map(float, entry["bbox"])
    if not np.isfinite(x + y + width + height):
        raise ValueError(f"annotation {entry.get('id')} has the box {entry['bbox']}")
    return x, y, width, height


def _areas(entries: Sequence[dict[str, Any]]) -> tuple[np.ndarray, float]:
    return np.array([float(entry["area"]) for entry in entries], np.float32), 0.0


def _ids(entries: Sequence[dict[str, Any]]) -> tuple[np.ndarray, int]:
    return np.array([int(entry["id"]) for entry in entries], np.int64), -1


def _crowds(entries: Sequence[dict[str, Any]]) -> tuple[np.ndarray, bool]:
    return np.array([bool(entry.get("iscrowd")) for entry in entries], np.bool_), False


def _joints(entries: Sequence[dict[str, Any]]) -> tuple[np.ndarray, float]:
    """Return the keypoints float32[k, J, 3] of objects, zeros where one has none."""
    found = [np.array(entry.get("keypoints", ()), np.float32) for entry in entries]
    most = max((points.size for points in found), default=0)
    if not most:
        raise ValueError('no annotation has "keypoints"')
    for entry, points in zip(entries, found):
        if points.shape not in ((most,), (0,)) or most % 3:
            raise ValueError(
                f"annotation {entry.get('id')} has keypoints {list(points.shape)}, others "
                f"[{most}]: all must have x, y and visibility of the same joints"
            )
    joints = np.zeros((len(found), most // 3, 3), np.float32)
    for row, points in enumerate(found):
        joints[row] = points.reshape(-1, 3) if points.size else 0
    # A joint that is not labeled has visibility 0, and x and y of no meaning.
    joints[joints[:, :, 2] == 0] = 0
    return joints, 0.0


# By name, a function from objects to their values and to what stands after an image's last box.
_EXTRA: dict[str, Callable[[Sequence[dict[str, Any]]], tuple[np.ndarray, Any]]] = {
    "keypoints": _joints,
    "box_area": _areas,
    "box_ids": _ids,
    "box_crowd": _crowds,
}


def _pad(objects: _Objects, images: int) -> dict[str, np.ndarray]:
    """Return the features' columns."""
    count = np.bincount(objects.image, minlength=images)
    most = max(int(count.max()), 1)
    rows = (objects.image, objects.place)
    low = objects.boxes[:, :2]

    boxes = np.zeros((images, most, 4), np.float32)
    boxes[rows] = np.concatenate([low, low + objects.boxes[:, 2:]], axis=1)
    labels = np.full((images, most), -1, np.int32)
    labels[rows] = objects.label
    return {
        "boxes": boxes,
        "box_labels": labels,
        "boxes_valid": np.arange(most) < count[:, None],
        "box_count": count.astype(np.int32),
    }


class _Masks:
    """Draws the regions of an image's objects.

    Attributes:
      kind: "classes" or "objects".
    """

    def __init__(self, kind: str, found: dict[str, Any], objects: _Objects, image_ids: np.ndarray):
        self.kind = kind
        self._sizes = [(int(entry["height"]), int(entry["width"])) for entry in found["images"]]
        numbers = 1 + (objects.label if kind == "classes" else objects.place)
        most = int(numbers.max(initial=0))
        if most > _MAX_NUMBER:
            raise SourceError(
                f"`mask`={kind!r} numbers up to {_MAX_NUMBER} {kind}, and there are {most}: leave "
                "it out, or train on fewer."
            )

        crowds = [entry for entry in found["annotations"] if entry.get("iscrowd")]
        crowd_images = _ranks(crowds, "image_id", image_ids)
        # From below to above: crowds first, then large boxes before small ones.
        areas = objects.boxes[:, 2:].prod(axis=1)
        order = np.lexsort([-areas, objects.image]).tolist()
        self._objects: list[list[tuple[int, Any]]] = [[] for _ in self._sizes]
        for image, entry in zip(crowd_images.tolist(), crowds):
            self._add(image, _regions.IGNORED, entry)
        single = [not entry.get("iscrowd") for entry in objects.entries]
        for number in filter(single.__getitem__, order):
            self._add(int(objects.image[number]), int(numbers[number]), objects.entries[number])

    def _add(self, image: int, number: int, entry: dict[str, Any]) -> None:
        segmentation = entry.get("segmentation")
        if segmentation is None:
            raise SourceError(
                f'annotation {entry.get("id")} has no "segmentation", from which `mask` draws: '
                "leave `mask` out to read boxes alone."
            )
        if isinstance(segmentation, list):  # of Python's floats, which take four times the memory
            segmentation = [np.asarray(part, np.float64) for part in segmentation]
        try:
            _regions.check_segmentation(segmentation, self._sizes[image])
        except ValueError as error:
            raise ValueError(f"annotation {entry.get('id')}: {error}") from error
        self._objects[image].append((number, segmentation))

    def read(self, indices: np.ndarray, turns: np.ndarray) -> Encoded:
        """Return the masks of images `indices` as uncompressed files, turned by EXIF's numbers."""
        rows = zip(indices.tolist(), turns.tolist())
        return Encoded.from_bytes([self._draw(index, turn) for index, turn in rows])

    def _draw(self, index: int, turn: int) -> bytes:
        size = self._sizes[index]
        objects = []
        for number, segmentation in self._objects[index]:
            objects.append((number, _regions.read_region(segmentation, size)))
        mask = upright(_DRAW[self.kind](size, objects), turn)
        height, width = mask.shape
        return b"P5 %d %d 255\n" % (width, height) + mask.tobytes()  # PGM


_DRAW: dict[str, Callable] = {
    "classes": _regions.draw_classes,
    "objects": _regions.draw_objects,
}


def _ranks(entries: Sequence[dict[str, Any]], key: str, known: np.ndarray) -> np.ndarray:
    """Return the place of each entry's "image_id" or "category_id" in `known`."""
    ids = np.array([int(entry[key]) for entry in entries], np.int64)
    if not len(ids):
        return ids
    what = key.removesuffix("_id")
    if not len(known):
        raise ValueError(f"a box names {what} {int(ids[0])}, which is not listed")
    order = np.argsort(known)
    places = np.searchsorted(known, ids, sorter=order)
    found = order[np.minimum(places, len(known) - 1)]
    wrong = known[found] != ids
    if wrong.any():
        raise ValueError(f"a box names {what} {int(ids[wrong][0])}, which is not listed")
    return found
