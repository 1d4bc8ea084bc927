"""Masks of sources of items, of tf.Examples and in memory."""

import io
import pickle
import warnings

import numpy as np
import pytest
from PIL import Image

from jaxaug import Loader
from jaxaug.decode import decode_image
from jaxaug.errors import SourceError
from jaxaug.iterators import FromIterable, InMemory, Parquet, RandomAccess, TFRecord
from jaxaug.iterators.sources import _items
from tests.images import encode, picture
from tests.iterators.loaders import one_device
from tests.iterators.sources import containers

COUNT = 4


def numbers(record: int) -> np.ndarray:
    return np.random.default_rng(record).integers(0, 200, (40, 56), np.uint8)


def palette(record: int) -> Image.Image:
    image = Image.fromarray(numbers(record), "P")
    image.putpalette(bytes(range(255, -1, -1)) * 3)
    return image


def png(record: int) -> bytes:
    file = io.BytesIO()
    palette(record).save(file, "PNG")
    return file.getvalue()


IMAGES = [encode(picture(i, 40, 56)) for i in range(COUNT)]


def masks_of(source, **options):
    with Loader(source, COUNT, shuffle=False, sharding=one_device(), **options) as loader:
        return np.asarray(next(loader)["mask"])


EXPECTED = np.stack([numbers(i) for i in range(COUNT)])


def test_masks_in_memory():
    masks = [png(i) for i in range(COUNT)]
    source = InMemory(IMAGES, {"label": np.arange(COUNT)}, masks=masks)
    np.testing.assert_array_equal(masks_of(source), EXPECTED)
    assert source.fingerprint() != InMemory(IMAGES, {"label": np.arange(COUNT)}).fingerprint()
    with pytest.raises(ValueError, match="`masks` must be one for each image, 4 in all, got 2"):
        InMemory(IMAGES, masks=masks[:2])
    with pytest.raises(ValueError, match="`masks` must be left out where the images are pixels"):
        InMemory(np.zeros((4, 8, 8, 3), np.uint8), masks=masks)


def test_masks_in_tf_examples(tmp_path):
    records = []
    for i in range(COUNT):
        fields = {"image": IMAGES[i], "segmentation": png(i), "label": i, "name": b"x"}
        records.append(containers.example(fields))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(containers.tfrecord(records))
    source = TFRecord(path, image="image", mask="segmentation", label="label")
    np.testing.assert_array_equal(masks_of(source), EXPECTED)
    found = source.read(np.arange(COUNT))
    assert [bytes(found["mask"].view(i)) for i in range(COUNT)] == [png(i) for i in range(COUNT)]
    assert [bytes(found["image"].view(i)) for i in range(COUNT)] == IMAGES[:COUNT]
    about = source.describe(2)
    assert about["name"] == "x" and "segmentation" not in about and "image" not in about
    read = source._storage.read
    source._storage.read = lambda *given: (read(*given)[0], {3: "its disk is gone"})
    source.read(np.array([2, 0]))  # two images, then their masks
    assert source.describe(0)["error"] == "its disk is gone" and "error" not in source.describe(2)
    plain = TFRecord(path, image="image", label="label")
    assert plain.fingerprint() != source.fingerprint()
    with pytest.raises(SourceError, match="record 0 has no mask 'mask'; its features are"):
        TFRecord(path, image="image", mask="mask", label="label")


@pytest.mark.parametrize(
    "make, dtype",
    [
        (png, np.uint8),
        (lambda i: {"bytes": png(i), "path": None}, np.uint8),
        (palette, np.uint8),
        (numbers, np.uint8),
        (lambda i: numbers(i)[..., None], np.uint8),
        (lambda i: numbers(i).astype(np.int64), np.int32),
        (lambda i: Image.fromarray(numbers(i).astype(np.int32)), np.int32),
    ],
)
def test_masks_of_items(make, dtype):
    items = [{"image": IMAGES[i], "annotation": make(i), "label": i} for i in range(COUNT)]
    source = RandomAccess(items, mask="annotation")
    masks = masks_of(source)
    assert masks.dtype == dtype
    np.testing.assert_array_equal(masks, EXPECTED)
    assert "annotation" not in source.describe(0) and "annotation" not in source.read(np.arange(2))


def test_masks_of_tuples():
    source = RandomAccess(
        [(IMAGES[i], palette(i)) for i in range(COUNT)], image=0, mask=1, label=None
    )
    np.testing.assert_array_equal(masks_of(source), EXPECTED)


def test_masks_of_one_bit_are_zero_and_one():
    binary = [numbers(i) > 99 for i in range(COUNT)]
    for make in (np.asarray, Image.fromarray):
        items = [{"image": IMAGES[i], "mask": make(binary[i])} for i in range(COUNT)]
        masks = masks_of(RandomAccess(items, mask="mask", label=None))
        np.testing.assert_array_equal(masks, np.stack(binary))


@pytest.mark.parametrize(
    "mask, message",
    [
        (None, "record 0 must hold a mask under 'mask', encoded bytes, .* got NoneType"),
        (picture(0, 40, 56), r"must hold a mask of integers \[h, w\] under 'mask', got uint8\[40"),
        (np.zeros((40, 56)), r"must hold a mask of integers \[h, w\] under 'mask', got float64"),
        (np.full((40, 56), -1), "must hold a mask of 0 to 65535 under 'mask', got -1 to -1"),
        (np.full((40, 56), -1, np.int8), "must hold a mask of 0 to 65535 under 'mask', got -1"),
        ({"path": "/nowhere.png"}, "'/nowhere.png' cannot be read"),
    ],
)
def test_items_without_such_a_mask_are_refused(mask, message):
    with pytest.raises(SourceError, match=message):
        RandomAccess([{"image": IMAGES[0], "mask": mask}], mask="mask", label=None)


@pytest.mark.filterwarnings("ignore:1 of 4 records could not be decoded")
def test_a_later_item_without_a_mask_is_a_bad_record():
    items = [{"image": IMAGES[i], "mask": numbers(i)} for i in range(COUNT)]
    items[2] = {"image": IMAGES[2], "mask": None}
    source = RandomAccess(items, mask="mask", label=None)
    masks = masks_of(source, on_error="mask")
    assert (masks[2] == 255).all() and np.array_equal(masks[3], EXPECTED[3])
    assert "record 2 must hold a mask under 'mask'" in source.describe(2)["error"]


@pytest.mark.parametrize("struct", [True, False])
@pytest.mark.parametrize("memory", [1, 4 << 30])  # of the first, each group drives out the other
def test_masks_in_a_column_of_parquet(tmp_path, struct, memory, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.delattr(pa, "compute", raising=False)  # as where nobody has imported it

    def column(images):
        return pa.array([{"bytes": each, "path": None} for each in images] if struct else images)

    masks = [png(i) for i in range(COUNT)]
    names = pa.array([f"name {i}" for i in range(COUNT)])
    table = pa.table({"image": column(IMAGES), "annotation": column(masks), "name": names})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    options = {"label": None, "memory": memory}
    source = Parquet(tmp_path / "a.parquet", mask="annotation", **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the decompressed images take more than")
        np.testing.assert_array_equal(masks_of(source), EXPECTED)
        found = pickle.loads(pickle.dumps(source)).read(np.array([3, 0]))
    assert bytes(found["mask"].view(0)) == masks[3] and bytes(found["image"].view(1)) == IMAGES[0]
    about = source.describe(1)
    assert about["name"] == "name 1" and not {"image", "annotation"} & set(about)
    plain = Parquet(tmp_path / "a.parquet", **options)
    assert plain.fingerprint() != source.fingerprint()
    with pytest.raises(SourceError, match="column 'name' must hold the bytes of images, got str"):
        Parquet(tmp_path / "a.parquet", mask="name", **options)
    with pytest.raises(SourceError, match="has no column 'seg' but"):
        Parquet(tmp_path / "a.parquet", mask="seg", **options)


@pytest.mark.filterwarnings("ignore:1 of 6 records could not be decoded")
@pytest.mark.parametrize("form", ["items", "pairs", "pairs, None"])
def test_masks_of_streams(form):
    if form == "items":
        items = [{"image": IMAGES[i], "annotation": palette(i), "label": i} for i in range(COUNT)]
        items[1] = items[1] | {"annotation": None}
    else:
        items = [(IMAGES[i], {"mask": png(i), "label": i}) for i in range(COUNT)]
        items[1] = (IMAGES[1], {"mask": b"" if form == "pairs" else None, "label": 1})
    mask = "annotation" if form == "items" else None
    stream = FromIterable(items + items[2:], mask=mask)
    options = {"shuffle": False, "on_error": "mask", "last_batch": "pad", "epochs": 1}
    with Loader(stream, 4, sharding=one_device(), **options) as loader:
        first, last = (np.asarray(batch["mask"]) for batch in loader)
        reason = loader.stats["bad_records"][0]["reason"]
    assert "mask" in reason and loader.stats["bad"] == 1
    np.testing.assert_array_equal(first[[0, 2, 3]], EXPECTED[[0, 2, 3]])
    np.testing.assert_array_equal(last[:2], EXPECTED[2:])
    assert (first[1] == 255).all() and (last[2:] == 255).all()


def test_a_mask_of_pillow_is_turned_upright():
    """As an image of Pillow is: its bytes say nothing of an orientation any more."""
    mask = Image.fromarray(numbers(0))
    mask.getexif()[0x0112] = 6
    upright = np.rot90(numbers(0), -1)
    np.testing.assert_array_equal(
        decode_image(_items.encode_mask(mask, "mask", 0), "unchanged"), upright
    )
