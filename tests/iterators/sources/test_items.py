"""Images and numbers in the forms in which Hugging Face and torch hand them over."""

import io

import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug import Loader
from jaxaug.decode import decode_image
from jaxaug.errors import SourceError
from jaxaug.iterators import FromIterable, RandomAccess, Renamed
from jaxaug.sharding import batch_sharding
from tests.images import encode, picture
from tests.iterators.loaders import one_device
from tests.iterators.sources import containers

BOXES = np.array([[3, 2, 20, 10]], np.float32)


def pixels_of(source, row=0):
    encoded = source.read(np.array([row]))["image"]
    return decode_image(bytes(encoded.view(0)))


def columns_of(source):
    features = dict(source.read(np.arange(len(source))))
    del features["image"]
    return features


@pytest.mark.parametrize("form", [lambda p: p, Image.fromarray], ids=["array", "Pillow"])
@pytest.mark.parametrize("shape", [(5, 7, 3), (5, 7), (6, 3, 3)])
def test_pixels_and_pillow_images_are_images(form, shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    source = RandomAccess([{"image": form(pixels), "label": 1}])
    color = pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, 2)
    np.testing.assert_array_equal(pixels_of(source), color)


def test_pixels_of_one_channel_and_those_of_torch():
    torch = pytest.importorskip("torch")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 1), np.uint8)
    source = RandomAccess([{"image": torch.from_numpy(pixels), "label": torch.tensor(1)}])
    np.testing.assert_array_equal(pixels_of(source), np.repeat(pixels, 3, 2))
    with pytest.raises(SourceError, match=r"got uint8\[3, 8, 9\]: move the channels to the end"):
        RandomAccess([{"image": torch.zeros((3, 8, 9), dtype=torch.uint8), "label": 1}])


def test_encoded_bytes_may_be_a_vector():
    """As HDF5 and OpenCV give files, and `torchvision.io.read_file`."""
    torch = pytest.importorskip("torch")
    image = containers.jpegs(1)[0]
    vector = np.frombuffer(image, np.uint8)
    for each in (vector, torch.from_numpy(vector.copy())):
        source = RandomAccess([{"image": each, "mask": each, "label": 1}], mask="mask")
        found = source.read(np.array([0]))
        assert bytes(found["image"].view(0)) == bytes(found["mask"].view(0)) == image
    with pytest.raises(SourceError, match=r"must hold pixels .* got float32\[9\]"):
        RandomAccess([{"image": np.zeros(9, np.float32), "label": 1}])


@pytest.mark.parametrize("mode", ["1", "P", "RGBA", "CMYK", "LA", "I;16"])
def test_pillow_images_of_other_modes(mode):
    gray = np.random.default_rng(0).integers(0, 256, (5, 7), np.uint8)
    if mode == "I;16":
        image = Image.fromarray(gray.astype(np.uint16) * 257)
        expected = np.repeat(gray[:, :, None], 3, 2)
    else:
        image = Image.fromarray(np.stack([gray, 255 - gray, gray // 2], 2)).convert(mode)
        expected = np.asarray(image.convert("RGB"))
    assert image.mode == mode
    np.testing.assert_array_equal(pixels_of(RandomAccess([(image, 0)], image=0, label=1)), expected)


def test_pillow_images_are_turned_upright():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    exif = Image.Exif()
    exif[274] = 6
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", exif=exif)
    source = RandomAccess([{"image": Image.open(buffer), "label": 0}])
    np.testing.assert_array_equal(pixels_of(source), np.rot90(pixels, -1))


def opened(pixels, orientation):
    """A PNG as bytes, and as Pillow opens it."""
    exif = Image.Exif()
    exif[274] = orientation
    data = encode(pixels, "PNG", exif=exif)
    return data, Image.open(io.BytesIO(data))


@pytest.mark.parametrize("mask_orientation", [1, 3])
def test_what_belongs_to_a_pillow_image_turns_with_it(mask_orientation):
    """As it does beside the bytes of the same file."""
    numbers = (np.arange(40 * 56) % 251).astype(np.uint8).reshape(40, 56)
    batches = []
    for form in (0, 1):
        mask = opened(numbers, mask_orientation)[form]
        images = [opened(picture(i, 40, 56), i + 1)[form] for i in range(4)]
        items = [{"image": image, "mask": mask, "boxes": BOXES} for image in images]
        source = RandomAccess(items, mask="mask", label=None)
        with Loader(source, 4, shuffle=False, sharding=one_device()) as loader:
            batches.append(next(loader))
    for name in ("image", "mask", "boxes"):
        np.testing.assert_array_equal(*(np.asarray(batch[name]) for batch in batches))
    assert not np.array_equal(batches[1]["boxes"][2], BOXES)


def test_a_pillow_mask_that_cannot_be_decoded_is_a_bad_record():
    whole = encode(np.zeros((40, 56), np.uint8), "PNG")
    masks = [Image.open(io.BytesIO(data)) for data in (whole, whole[:-40])]
    items = [{"image": containers.jpegs(1)[0], "mask": mask} for mask in masks]
    source = RandomAccess(items, mask="mask", label=None)
    assert (source.read(np.arange(2))["mask"].lengths > 0).tolist() == [True, False]
    assert "record 1: the mask cannot be decoded" in source.describe(1)["error"]


def test_a_pillow_image_that_cannot_be_decoded_is_a_bad_record():
    whole = encode(picture(0, 40, 56), "JPEG")
    images = [Image.open(io.BytesIO(data)) for data in (whole, whole[:-40])]
    source = RandomAccess([{"image": image, "label": 0} for image in images])
    assert source.read(np.arange(2))["image"].lengths.tolist()[1] == 0
    assert "cannot be decoded" in source.describe(1)["error"]


def test_tuples_have_places_for_keys():
    items = [(image, 10 + i, i / 2, "text") for i, image in enumerate(containers.jpegs(3))]
    source = RandomAccess(items, image=0, label=1)
    assert {name: column.tolist() for name, column in columns_of(source).items()} == {
        "label": [10, 11, 12],
        "2": [0.0, 0.5, 1.0],
    }
    assert source.describe(2) == {"record": 2, "3": "text"}
    renamed = RandomAccess(items, image=0, label=1, features={2: "weight"})
    assert columns_of(renamed)["weight"].tolist() == [0.0, 0.5, 1.0]


def test_tuples_without_places_are_told_which():
    with pytest.raises(SourceError, match=r"tuple of \(int, bytes\). Pass image=1, label=0"):
        RandomAccess([(3, containers.jpegs(1)[0])])


@pytest.mark.parametrize("make", [list, tuple])
def test_torch_datasets_are_sources(make):
    data = pytest.importorskip("torch.utils.data")

    class Pairs(data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return make([Image.fromarray(picture(0, 40, 56)), index])

    source = RandomAccess(Pairs(), image=0, label=1)
    sharding = batch_sharding(jax.devices("cpu")[:1])
    with Loader(source, 2, shuffle=False, sharding=sharding) as loader:
        batch = next(loader)
    assert batch["label"].tolist() == [0, 1]
    np.testing.assert_array_equal(np.asarray(batch["image"][0]), picture(0, 40, 56))


def test_features_are_renamed_and_never_share_a_name():
    item = {"image": b"x", "class": 3, "index": 7, "size": 9, "tokens": [1, 2, 3]}
    names = {"index": "number", "tokens": "tokens"}
    source = RandomAccess([item], label="class", features=names)
    found = {name: column.tolist() for name, column in columns_of(source).items()}
    assert found == {"number": [7], "tokens": [[1, 2, 3]], "label": [3]}
    with pytest.raises(SourceError, match="'class' and 'label' would both be called 'label'"):
        RandomAccess([{**item, "label": 1}], label="class")


def test_lists_of_numbers_stay_out_unless_they_are_named():
    rows = [{"image": b"x", "label": 0, "boxes": [1] * count} for count in (2, 3)]
    assert sorted(columns_of(RandomAccess(rows))) == ["label"]
    source = RandomAccess(rows, features=["boxes"])
    assert source.describe(1)["error"].startswith("record 1 must have float32[2] under 'boxes'")


def test_records_in_formats_of_their_own_are_parsed():
    rows = [b"7" + image for image in containers.jpegs(2)] + [b"no"]
    parse = lambda row: {"image": row[1:], "label": int(row[:1])}  # noqa: E731
    source = RandomAccess(rows, parse=parse)
    features = dict(source.read(np.arange(3)))
    encoded = features.pop("image")
    assert bytes(encoded.view(1)) == containers.jpegs(2)[1]
    assert features["label"].tolist() == [7, 7, 0]
    assert source.describe(2)["error"].startswith("ValueError: invalid literal")


def stream_batches(items, count, **options):
    sharding = batch_sharding(jax.devices("cpu")[:1])
    stream = FromIterable(items, **options)
    with Loader(stream, count, shuffle=False, sharding=sharding, on_error="mask") as loader:
        return [jax.device_get(batch) for batch in loader], loader.stats


@pytest.mark.parametrize(
    "wrap, options",
    [
        (
            lambda image, i: {"jpg": image, "cls": i, "name": "text"},
            {"image": "jpg", "label": "cls"},
        ),
        (lambda image, i: (i, {"bytes": image, "path": None}), {"image": 1, "label": 0}),
        (lambda image, i: (image, {"label": i}), {}),
    ],
    ids=["dicts", "tuples", "pairs"],
)
def test_streams_of_items(wrap, options):
    items = [wrap(image, i) for i, image in enumerate(containers.jpegs(4))]
    batches, _ = stream_batches(lambda: iter(items), 2, **options)
    assert [batch["label"].tolist() for batch in batches] == [[0, 1], [2, 3]]
    assert all(batch["valid"].all() for batch in batches)


@pytest.mark.parametrize("pairs", [False, True])
def test_a_stream_names_the_column_of_its_bytes_and_no_feature_like_it(pairs):
    image = containers.jpegs(1)[0]
    items = [(image, {"sound": 1})] if pairs else [{"image": image, "sound": 1, "label": 2}]
    record = next(FromIterable(items, column="audio").iterate())
    assert record["audio"] == image and record["sound"] == 1 and "image" not in record
    with pytest.raises(ValueError, match="must not have a feature named 'sound'"):
        next(FromIterable(items, column="sound").iterate())
    with pytest.raises(TypeError, match=r"random access, got FromIterable: .* by its `column`"):
        Renamed(FromIterable(items), {"image": "audio"})  # type: ignore


def test_an_odd_item_of_a_stream_is_a_bad_record():
    items = [{"image": image, "label": i} for i, image in enumerate(containers.jpegs(4))]
    del items[2]["label"]
    batches, stats = stream_batches(items, 4)
    assert batches[0]["valid"].tolist() == [True, True, False, True]
    reason = stats["bad_records"][0]["reason"]
    assert "record 2 must have int64[] under 'label', got None" in reason


def test_a_stream_without_a_good_item():
    with pytest.raises(SourceError, match=r"record 0 must hold the encoded image.*it has \['a'\]"):
        next(FromIterable([{"a": 1}] * 3).iterate())


def hugging_face(count):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = {
        "image": [{"bytes": image, "path": None} for image in containers.jpegs(count)],
        "label": list(range(count)),
    }
    return datasets, datasets.Dataset.from_dict(rows, features=features)


@pytest.mark.parametrize("decode", [False, True])
def test_data_sets_of_hugging_face(decode):
    datasets, data = hugging_face(5)
    source = RandomAccess(data.cast_column("image", datasets.Image(decode=decode)))
    assert columns_of(source)["label"].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(pixels_of(source, 3), decode_image(containers.jpegs(5)[3]), atol=3)


def test_image_folders_of_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets")
    for number, image in enumerate(containers.jpegs(4)):
        path = tmp_path / "images" / "train" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    data = datasets.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "images"), cache_dir=str(tmp_path / "cache")
    )["train"]
    source = RandomAccess(data.cast_column("image", datasets.Image(decode=False)))
    assert sorted(columns_of(source)["label"].tolist()) == [0, 0, 1, 1]
    found = {bytes(source.read(np.array([row]))["image"].view(0)) for row in range(4)}
    assert found == set(containers.jpegs(4))


@pytest.mark.parametrize("decode", [False, True])
def test_streams_of_hugging_face(decode):
    datasets, data = hugging_face(4)
    stream = data.to_iterable_dataset().cast_column("image", datasets.Image(decode=decode))
    batches, _ = stream_batches(stream, 2)
    assert [batch["label"].tolist() for batch in batches] == [[0, 1], [2, 3]]
    assert all(batch["valid"].all() for batch in batches)
