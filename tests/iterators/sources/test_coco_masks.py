"""Masks of COCO files: polygons and runs, drawn as pycocotools draws them."""

import json

import numpy as np
import pytest

from jaxaug import Loader, decode
from jaxaug.decode import Image
from jaxaug.errors import SourceError
from jaxaug.iterators import Coco
from jaxaug.iterators.sources._regions import draw_classes, read_counts, read_region
from tests.images import encode, picture
from tests.iterators.loader.test_place import exif, expected_mask
from tests.iterators.loaders import one_device

SIZE = (40, 56)
# Of pycocotools 2.0.11: merge(frPyObjects([polygon(seed)], 40, 56))["counts"]
GOLDEN = [
    "V12S13M3M3L4M3M3M3M3M3M3M3Mi31XL1N2O1N2O1N2O1N3M5L3L4M3L5Lk5MYJ00000O100000000IOVO2j0OUO1l00RO0"
    "n01QOOo01QOOP10QOOo01401N1000^1",
    "W61V11O1O0010O0001O001O010O001O001O010O7I3M1O1O100O1O1O100000O1O1O1O001O1O1O1O1O1O1O001O0000000"
    "00000000000K",
    "=1W1001\\OOO101O001OO03ONO40L05NON223HN8KEO0:;GEN1O3470EL1O8124EL2Nf06YOKk05UOK0Og07ZOIO0g07ZOIN"
    "2g05]OKc05\\OLd04[OIN2g05[OIN3f04[OJO2e09\\OFd0:\\OFd06[OJ20b05]OK10b05]OK2Oa05^OL10`03@M1O?4@M1"
    "O>4BM1N=4CN0O<3DN1N;3FNOO;3FNb01_OOOO91I0`00@0K67JO1=N?0Xa0",
    "]42V17I8H2N01O000O1O1G@L74Oc0O1OYOFb09]OJb05]OOb0O]O5a0J_O9?EB><@Ec09[OHh05XOKk01WOMm0OTO0m06NLU"
    "OOi00\\OOa01CO81M1MN84BLb0680OO2N2N00O00000O010000O01000O10V10jN0]20[N",
    "l41X10X10hN0Yg04dXO5K1NO2N2N2L3ON3N2N1N2OO001O1O001O001O00100O001O001OX2",
]
HALF = [10.5, 10.5, 20.5, 10.5, 20.5, 20.5, 10.5, 20.5]  # "S>:n000000000000000000][1"


def polygon(seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    count = rng.integers(3, 12)
    return np.round(rng.uniform(-4, 60, (count, 2)), 2).ravel().tolist()


def drawn(segmentation, size=SIZE) -> np.ndarray:
    if isinstance(segmentation, list):
        segmentation = [np.array(part, np.float64) for part in segmentation]
    return draw_classes(size, [(1, read_region(segmentation, size))])


@pytest.mark.parametrize("seed", range(len(GOLDEN)))
def test_polygons_cover_the_pixels_that_pycocotools_gives(seed):
    runs = read_counts(GOLDEN[seed])
    expected = np.repeat(np.arange(len(runs)) % 2, runs).reshape(SIZE[::-1]).T
    np.testing.assert_array_equal(drawn([polygon(seed)]), expected)
    for counts in (GOLDEN[seed], runs):
        mask = drawn({"size": list(SIZE), "counts": counts})
        np.testing.assert_array_equal(mask, expected)


def test_a_square_on_pixel_edges_is_that_square():
    expected = np.zeros(SIZE, np.uint8)
    expected[10:20, 10:20] = 1
    np.testing.assert_array_equal(drawn([[10, 10, 20, 10, 20, 20, 10, 20]]), expected)
    runs = read_counts("S>:n000000000000000000][1")
    half = np.repeat(np.arange(len(runs)) % 2, runs).reshape(SIZE[::-1]).T
    np.testing.assert_array_equal(drawn([HALF]), half)


def test_the_parts_of_a_region_are_united():
    both = drawn([polygon(0), polygon(1)])
    np.testing.assert_array_equal(both, drawn([polygon(0)]) | drawn([polygon(1)]))


def square(left, top, side):
    right, bottom = left + side, top + side
    return [[left, top, right, top, right, bottom, left, bottom]]


def annotations(**changes):
    """Two images; objects that overlap, a crowd, and one without a box."""
    objects = [
        (9, 3, [0, 0, 10, 10], square(0, 0, 10), 0),
        (9, 3, [2, 2, 4, 4], square(2, 2, 4), 0),  # of the same class, within the first
        (9, 8, [8, 0, 20, 20], square(8, 0, 20), 0),  # larger, and of another class
        (9, 8, [0, 30, 5, 5], {"size": [40, 56], "counts": [30, 5, 2205]}, 1),
        (9, 8, [0, 0, 0, 9], square(30, 30, 9), 0),
    ]
    entries = []
    for number, (image, category, box, segmentation, crowd) in enumerate(objects):
        entries.append(
            {
                "id": number,
                "image_id": image,
                "category_id": category,
                "bbox": box,
                "segmentation": segmentation,
                "iscrowd": crowd,
            }
        )
    images = [
        {"id": 7, "file_name": "a.jpg", "height": 40, "width": 56},
        {"id": 9, "file_name": "b.jpg", "height": 40, "width": 56},
    ]
    categories = [{"id": 8, "name": "dog"}, {"id": 3, "name": "cat"}]
    return {"images": images, "annotations": entries, "categories": categories} | changes


@pytest.fixture
def coco(tmp_path):
    def make(mask, orientation=1, **changes):
        for name in "ab":
            image = encode(picture(0, 40, 56), exif=exif(orientation))
            (tmp_path / f"{name}.jpg").write_bytes(image)
        (tmp_path / "instances.json").write_text(json.dumps(annotations(**changes)))
        return Coco(tmp_path, tmp_path / "instances.json", mask=mask)

    return make


def batch_of(source, **options):
    options = {
        "decode": Image(canvas=(40, 56)),
        "shuffle": False,
        "sharding": one_device(),
    } | options
    with Loader(source, len(source), **options) as loader:
        return {name: np.asarray(array) for name, array in next(loader).items()}


CLASSES = np.zeros(SIZE, np.uint8)
CLASSES[0:20, 8:28] = 2
CLASSES[0:10, 0:10] = 1
CLASSES[0:10, 8:10] = 255
CLASSES[30:35, 0] = 255

OBJECTS = np.zeros(SIZE, np.uint8)
OBJECTS[0:20, 8:28] = 3
OBJECTS[0:10, 0:10] = 1
OBJECTS[2:6, 2:6] = 2
OBJECTS[30:35, 0] = 255


@pytest.mark.parametrize("mask, expected", [("classes", CLASSES), ("objects", OBJECTS)])
def test_objects_are_drawn_into_one_mask(coco, mask, expected):
    batch = batch_of(coco(mask))
    assert batch["mask"].dtype == np.uint8 and not batch["mask"][0].any()
    np.testing.assert_array_equal(batch["mask"][1], expected)


def test_object_numbers_are_places_among_the_boxes(coco):
    batch = batch_of(coco("objects"))
    assert batch["boxes_valid"].tolist() == [[False] * 3, [True] * 3]
    masks = batch["mask"][1] == 1 + np.arange(3)[:, None, None]
    for mask, box in zip(masks, batch["boxes"][1]):
        y, x = np.nonzero(mask)
        found = [x.min(), y.min(), x.max() + 1, y.max() + 1]
        assert all(box[:2] <= found[:2]) and all(found[2:] <= box[2:])
    assert batch["boxes"][1].tolist() == [[0, 0, 10, 10], [2, 2, 6, 6], [8, 0, 28, 20]]


@pytest.mark.parametrize("orientation", [3, 6])
def test_masks_follow_their_images(coco, orientation):
    batch = batch_of(coco("classes", orientation), decode=decode.Image(canvas=(28, 28)))
    size = tuple(batch["size"][1].tolist())
    assert max(size) == 28
    expected = expected_mask(CLASSES, orientation, size, (28, 28), 255)
    np.testing.assert_array_equal(batch["mask"][1], expected)


def test_image_ids_and_fingerprints(coco):
    source = coco("classes")
    assert source.image_ids.tolist() == [7, 9]
    assert len({coco(mask).fingerprint() for mask in (None, "classes", "objects")}) == 3


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"segmentation": [[1, 2, 3, 4]]}, "annotation 0: a polygon must be 3 or more pairs"),
        ({"segmentation": [[1, 2, 3, 4, 5, float("nan")]]}, "annotation 0: a polygon has .* nan"),
        ({"segmentation": [[1, 2, 3, 4, 5, 1e9]]}, r"annotation 0: a polygon has .*00.0\]"),
        ({"segmentation": [[1, 2, 3, 4, 5, 6, 7]]}, "annotation 0: a polygon must be 3 or more"),
        ({"segmentation": {"size": [4, 5], "counts": "0"}}, r"a region of \(4, 5\) pixels in an"),
        *[
            ({"segmentation": {"size": [40, 56], "counts": runs}}, "annotation 0: runs of")
            for runs in ([9, -3, 9], [9, 3000], [9, 0.5], None, [[9]])
        ],
        ({"segmentation": 1.5}, "no COCO instances file: "),
        ({"segmentation": None}, 'annotation 0 has no "segmentation".*: leave `mask` out'),
    ],
)
def test_regions_that_will_not_do(coco, changed, message):
    entries = annotations()["annotations"]
    entries[0] |= changed
    with pytest.raises(SourceError, match=message):
        coco("classes", annotations=entries)
    assert len(coco(None, annotations=entries)) == 2


def test_more_classes_than_a_mask_has_numbers_are_refused(coco):
    categories = [{"id": number, "name": str(number)} for number in range(300)]
    entries = annotations()["annotations"]
    entries[0]["category_id"] = 299
    with pytest.raises(SourceError, match="'classes' numbers up to 254 classes, and there are 300"):
        coco("classes", categories=categories, annotations=entries)
    assert len(coco("objects", categories=categories, annotations=entries)) == 2


def test_a_wrong_kind_is_named(coco):
    with pytest.raises(ValueError, match="`mask` must be one of None, 'classes', 'objects'"):
        coco("semantic")


def test_runs_end_where_their_image_does():
    region = read_region({"size": [2, 3], "counts": [1, 2, 1, 100]}, (2, 3))
    assert draw_classes((2, 3), [(7, region)]).tolist() == [[0, 7, 7], [7, 0, 7]]
