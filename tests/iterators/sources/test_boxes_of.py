"""Boxes of turned images: annotated on the stored image, or on the upright one."""

import io
import json
import pickle
import tarfile

import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug import Loader
from jaxaug.errors import DecodeError
from jaxaug.iterators import (
    Coco,
    Concat,
    FromIterable,
    InMemory,
    Parquet,
    RandomAccess,
    WebDataset,
)
from jaxaug.sharding import batch_sharding
from tests.images import encode, picture

UPRIGHT = (40, 60)  # height, width
BOX = (5, 10, 30, 20)  # on the upright image


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def stored_size(orientation):
    return UPRIGHT[::-1] if orientation >= 5 else UPRIGHT


def stored_box(orientation, box):
    """Where `box` of the upright image lies in the file, by Pillow's own turns of a drawing."""
    drawing = np.zeros(UPRIGHT, np.uint8)
    left, top, right, bottom = box
    drawing[top:bottom, left:right] = 1
    turns = Image.Transpose
    back = {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_90,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_270,
    }
    turned = Image.fromarray(drawing)
    if orientation in back:
        turned = turned.transpose(back[orientation])
    rows, columns = np.nonzero(np.asarray(turned))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


def images(size=None):
    """The same picture in all eight orientations."""
    found = []
    for orientation in range(1, 9):
        pixels = picture(orientation, *(size or stored_size(orientation)))
        found.append(encode(pixels, exif=exif(orientation)))
    return found


def one_batch(source, count=8, **options):
    sharding = batch_sharding(jax.devices("cpu")[:1])
    with Loader(source, count, shuffle=False, sharding=sharding, **options) as loader:
        return jax.device_get(next(loader))


def write_coco(tmp_path, sizes, boxes, files=None):
    entries, annotations = [], []
    for number, data in enumerate(files or images()):
        (tmp_path / f"{number}.jpg").write_bytes(data)
        entries.append({"id": number, "file_name": f"{number}.jpg"})
        if sizes is not None:
            height, width = sizes[number]
            entries[-1] |= {"height": int(height), "width": int(width)}
        left, top, right, bottom = map(int, boxes[number])
        outline = [left, top, right, top, right, bottom, left, bottom]
        bbox = [left, top, right - left, bottom - top]
        annotations.append({"image_id": number, "category_id": 1, "bbox": bbox})
        annotations[-1] |= {"segmentation": [outline]}
    path = tmp_path / "instances.json"
    categories = [{"id": 1, "name": "car"}]
    found = {"images": entries, "annotations": annotations, "categories": categories}
    path.write_text(json.dumps(found))
    return path


STORED = [stored_box(orientation, BOX) for orientation in range(1, 9)]


@pytest.mark.parametrize("upright", [False, True])
def test_coco_decides_by_the_size_in_its_file(tmp_path, upright):
    """Orientations 5 to 8 change height and width; each image is decided by itself."""
    sizes = [stored_size(orientation) for orientation in range(1, 9)]
    boxes = list(STORED)
    if upright:
        sizes[4:] = [UPRIGHT] * 4
        boxes[4:] = [BOX] * 4
    path = write_coco(tmp_path, sizes, boxes)
    for mask in (None, "objects"):
        batch = one_batch(Coco(tmp_path, path, mask))
        np.testing.assert_array_equal(batch["boxes"][:, 0], [BOX] * 8)
        if mask:
            left, top, right, bottom = BOX
            inside = np.zeros(UPRIGHT, bool)
            inside[top:bottom, left:right] = True
            np.testing.assert_array_equal(batch["mask"] == 1, [inside] * 8)


@pytest.mark.parametrize("mask", [None, "objects"])
def test_what_sizes_leave_open_the_argument_decides(tmp_path, mask):
    """By default as stored: mirrored images have one size both ways, as squares do."""
    sizes = [UPRIGHT] * 8
    path = write_coco(tmp_path, sizes, [BOX] * 8)
    batch = one_batch(Coco(tmp_path, path, mask, boxes_of="upright"))
    np.testing.assert_array_equal(batch["boxes"][:, 0], [BOX] * 8)
    if mask:
        left, top, right, bottom = BOX
        assert batch["mask"][:, top:bottom, left:right].all()
        assert (batch["mask"] == 1).sum() == 8 * (right - left) * (bottom - top)
    default = one_batch(Coco(tmp_path, path))
    expected = [stored_box(1, BOX), *[stored_box(turn, BOX) for turn in (2, 3, 4)], *[BOX] * 4]
    np.testing.assert_array_equal(default["boxes"][:, 0], expected)


def test_a_size_that_is_neither_is_a_bad_record(tmp_path):
    sizes = [stored_size(orientation) for orientation in range(1, 9)]
    sizes[2] = (20, 30)
    path = write_coco(tmp_path, sizes, STORED)
    with pytest.raises(DecodeError, match=r"2\.jpg.*20 x 30.*40 x 60.*boxes_of"):
        one_batch(Coco(tmp_path, path))
    batch = one_batch(Coco(tmp_path, path), on_error="mask", max_bad=None)
    assert batch["valid"].tolist() == [row != 2 for row in range(8)]
    assert "20 x 30" in _described(Coco(tmp_path, path), 2)
    assert one_batch(Coco(tmp_path, path, boxes_of="stored"))["valid"].all()


def _described(source, index):
    source.read(np.array([index]))
    assert "error" not in source.describe(index + 1)
    return source.describe(index)["error"]


def test_files_without_sizes_are_as_stored(tmp_path):
    batch = one_batch(Coco(tmp_path, write_coco(tmp_path, None, STORED)))
    np.testing.assert_array_equal(batch["boxes"][:, 0], [BOX] * 8)


POINTS = np.array([[5, 10], [30, 20], [0, 40]], np.float32)


@pytest.mark.parametrize("flat", [False, True])
def test_boxes_and_keypoints_of_upright_images_stay_where_they_are(flat):
    boxes = np.tile(np.array([BOX, (0, 0, 0, 0)], np.float32), (8, 1, 1))
    points = np.tile(POINTS, (8, 1, 1))
    columns = {"boxes": boxes, "keypoints": points}
    if flat:
        columns = {name: column.reshape(8, -1) for name, column in columns.items()}
    items = [
        {"image": image, **{name: column[row] for name, column in columns.items()}}
        for row, image in enumerate(images())
    ]
    names = ["boxes", "keypoints"]
    sources = [
        InMemory(images(), columns, boxes_of="upright"),
        RandomAccess(items, label=None, features=names, boxes_of="upright"),
        FromIterable(items, label=None, features=names, boxes_of="upright"),
    ]
    sources.append(Concat(sources[:1]))
    for source in sources:
        batch = one_batch(source)
        np.testing.assert_array_equal(batch["boxes"], boxes)
        np.testing.assert_array_equal(batch["keypoints"], points)
    stored = one_batch(InMemory(images(), columns))
    assert not np.array_equal(stored["boxes"], boxes)


def test_visibilities_stay_and_points_of_zeros_are_padding():
    points = np.zeros((8, 2, 3, 3), np.float32)
    points[:, 0, :, :2] = POINTS
    points[:, 0, :, 2] = [1, 2, 2]
    for shape in ((8, 2, 3, 3), (8, 6, 3)):
        column = points.reshape(shape)
        upright = one_batch(InMemory(images(), {"keypoints": column}, boxes_of="upright"))
        np.testing.assert_array_equal(upright["keypoints"], column)

    stored = points.copy()
    for row in range(8):
        for joint in range(3):
            x, y = POINTS[joint]
            if row >= 4:
                stored[row, 0, joint, :2] = y, x
    batch = one_batch(InMemory(images(), {"keypoints": stored}))
    x, y = POINTS.T
    height, width = UPRIGHT
    # From EXIF's definition: rows are the sides of the stored image's first row and column.
    expected = [(x, y), (width - x, y), (width - x, height - y), (x, height - y)]
    for row, (right, down) in enumerate(expected):
        np.testing.assert_array_equal(batch["keypoints"][row, 0, :, 0], right)
        np.testing.assert_array_equal(batch["keypoints"][row, 0, :, 1], down)
        np.testing.assert_array_equal(batch["keypoints"][row + 4, 0, :, 2], [1, 2, 2])
    np.testing.assert_array_equal(batch["keypoints"][4, 0], points[0, 0])
    assert not batch["keypoints"][:, 1].any()


def test_an_unknown_frame_is_an_error(tmp_path):
    for wrong in ("Upright", None):
        with pytest.raises(ValueError, match="`boxes_of` must be one of"):
            InMemory(images(), boxes_of=wrong)
        with pytest.raises(ValueError, match="`boxes_of` must be one of"):
            Coco(tmp_path, "x.json", boxes_of=wrong)


def write_tar(path, boxes):
    with tarfile.open(path, "w") as tar:
        for number, image in enumerate(images()):
            text = json.dumps({"boxes": np.ravel(boxes[number]).tolist()})
            for extension, data in {"jpg": image, "json": text.encode()}.items():
                member = tarfile.TarInfo(f"{number}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def test_boxes_in_files_of_many_records_too(tmp_path):
    write_tar(tmp_path / "upright.tar", [BOX] * 8)
    write_tar(tmp_path / "stored.tar", STORED)
    options = {"label": None, "features": ["boxes"]}
    upright = WebDataset(tmp_path / "upright.tar", boxes_of="upright", **options)
    for source in (upright, WebDataset(tmp_path / "stored.tar", **options)):
        np.testing.assert_array_equal(one_batch(source)["boxes"][:, 0], [BOX] * 8)

    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"image": images(), "boxes": [list(map(float, BOX))] * 8})
    parquet.write_table(table, tmp_path / "a.parquet")
    source = Parquet(tmp_path / "a.parquet", label=None, boxes_of="upright")
    for copy in (source, pickle.loads(pickle.dumps(source))):
        np.testing.assert_array_equal(one_batch(copy)["boxes"][:, 0], [BOX] * 8)
