"""Masks in files of their own: their numbers, their places on the canvas, and bad ones."""

import io
import re
import tarfile

import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug import Decoder, Loader, augment
from jaxaug.decode import Encoded, Mask
from jaxaug.decode import Image as Images
from jaxaug.decode._mask import EncodedMask
from jaxaug.errors import DecodeError, SourceError
from jaxaug.iterators import Concat, PairedFolders, Subset, WebDataset, split
from jaxaug.sharding import batch_sharding
from tests.images import encode, picture
from tests.iterators.loader.test_place import exif, expected_mask
from tests.iterators.loaders import one_device

PALETTE = np.random.default_rng(5).integers(0, 256, (256, 3), np.uint8)
CELL = 32  # pixels of a square of the checkerboard


def palette_png(numbers: np.ndarray) -> bytes:
    """A mask as Pascal VOC stores it: indices into colors that mean nothing."""
    file = io.BytesIO()
    image = Image.fromarray(numbers, "P")
    image.putpalette(PALETTE.tobytes())
    image.save(file, "PNG")
    return file.getvalue()


def numbers(seed: int, height: int, width: int) -> np.ndarray:
    mask = np.random.default_rng(seed).integers(0, 21, (height, width), np.uint8)
    mask[:3] = 255  # ignored
    return mask


class Pairs:
    """A source of pairs of encoded images and masks."""

    def __init__(self, images, masks):
        self.images, self.masks = images, masks

    def __len__(self):
        return len(self.images)

    def read(self, indices):
        images = Encoded.from_bytes([self.images[i] for i in indices])
        masks = Encoded.from_bytes([self.masks[i] for i in indices])
        return {"image": images, "mask": masks, **{"label": np.asarray(indices, np.int32)}}

    def describe(self, index):
        return {"record": index, "path": f"{index}.jpg", "mask_path": f"{index}.png"}

    def fingerprint(self):
        return "pairs"


def one_batch(source, **options):
    options = {
        "shuffle": False,
        "sharding": one_device(),
        "decode": Images(canvas=(64, 64)),
    } | options
    with Loader(source, len(source), **options) as loader:
        batch = {name: np.asarray(array) for name, array in next(loader).items()}
        assert loader.element_spec["mask"].shape == batch["mask"].shape
        assert loader.element_spec["mask"].dtype == batch["mask"].dtype
        return batch | {"bad": loader.stats["bad_records"]}


@pytest.mark.parametrize("canvas", [(60, 90), (80, 80), (24, 40), (17, 19)])
def test_masks_are_turned_and_shrunk_as_pillow_does(canvas):
    masks = [numbers(i, 45, 61) for i in range(8)]
    images = [encode(picture(i, 45, 61), exif=exif(i + 1)) for i in range(8)]
    batch = one_batch(
        Pairs(images, [palette_png(mask) for mask in masks]), decode=Images(canvas=canvas)
    )
    assert batch["mask"].dtype == np.uint8
    for row in range(8):
        size = tuple(batch["size"][row].tolist())
        expected = expected_mask(masks[row], row + 1, size, canvas, 255)
        np.testing.assert_array_equal(batch["mask"][row], expected)


def checkerboard(height: int, width: int) -> np.ndarray:
    """Class numbers as a function of the position."""
    y, x = np.mgrid[:height, :width] // CELL
    return ((3 * y + 5 * x) % 7).astype(np.uint8)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("height, width", [(400, 300), (211, 333), (160, 160)])
def test_a_mask_lies_on_the_pixels_of_its_image(height, width, orientation):
    """The image shows its own classes; whatever the decoder does to it shows in its colors."""
    mask = checkerboard(height, width)
    colors = np.stack([mask * 36, 255 - mask * 36, mask * 0], -1).astype(np.uint8)
    image = encode(colors, quality=95, subsampling=0, exif=exif(orientation))
    batch = one_batch(Pairs([image], [encode(mask, "PNG")]), decode=Images(canvas=(150, 170)))
    h, w = batch["size"][0]
    assert max(h / 150, w / 170) == 1 or (height, width) == (160, 160)
    assert_on_its_pixels(batch, 0)


def assert_on_its_pixels(batch, row):
    """Compare the classes of a mask with those that its image shows."""
    h, w = batch["size"][row]
    seen = np.round(batch["image"][row, :h, :w, 0] / 36)
    placed = batch["mask"][row, :h, :w]

    same = np.ones((h, w), bool)  # pixels whose neighbors are of their class
    for shift in [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1)]:
        same &= np.roll(placed, shift, (0, 1)) == placed
    assert same.mean() > 0.6
    np.testing.assert_array_equal(placed[same], seen[same])
    assert (placed == seen).mean() > 0.85
    assert (batch["mask"][row, h:] == 255).all() and (batch["mask"][row, :, w:] == 255).all()


@pytest.mark.gpu
def test_a_mask_lies_on_the_pixels_of_an_image_that_a_gpu_decodes():
    mask = checkerboard(1200, 900)
    colors = np.stack([mask * 36, 255 - mask * 36, mask * 0], -1).astype(np.uint8)
    images = [encode(colors, quality=95, subsampling=0, exif=exif(i + 1)) for i in range(8)] * 4
    source = Pairs(images, [encode(mask, "PNG")] * 32)
    gpu = jax.devices("gpu")[:1]
    with Decoder((450, 500), "nvjpeg", gpu) as decoder:
        options = {"decode": decoder, "sharding": batch_sharding(gpu)}
        batch = one_batch(source, **options)
    for row in range(32):
        assert_on_its_pixels(batch, row)


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_a_mask_of_the_upright_size_is_not_turned(orientation):
    upright = numbers(orientation, 61, 45)
    image = encode(picture(0, 45, 61), exif=exif(orientation))
    batch = one_batch(Pairs([image], [encode(upright, "PNG")]))
    np.testing.assert_array_equal(batch["mask"][0, :61, :45], upright)


@pytest.mark.parametrize("orientation", [2, 3, 6, 8])
def test_a_mask_with_an_orientation_of_its_own_is_turned_by_that(orientation):
    stored = numbers(orientation, 45, 61)
    image = encode(picture(0, 45, 61), exif=exif(orientation))
    mask = encode(stored, "PNG", exif=exif(orientation))
    batch = one_batch(Pairs([image], [mask]))
    size = tuple(batch["size"][0].tolist())
    expected = expected_mask(stored, orientation, size, (64, 64), 255)
    np.testing.assert_array_equal(batch["mask"][0], expected)


@pytest.mark.parametrize(
    "stored, dtype",
    [
        (np.arange(0, 65536, 41, dtype=np.uint16)[:1500].reshape(30, 50), np.int32),
        (numbers(0, 30, 50), np.uint8),
        (numbers(0, 30, 50) > 9, np.uint8),
    ],
)
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_class_numbers_stay(kind, stored, dtype):
    image = encode(picture(0, 30, 50))
    batch = one_batch(Pairs([image], [encode(stored, kind)]), decode=Images(canvas=(30, 50)))
    assert batch["mask"].dtype == dtype
    np.testing.assert_array_equal(batch["mask"][0], stored)


@pytest.mark.filterwarnings("ignore:1 of 3 records could not be decoded")
def test_the_first_good_mask_decides_the_dtype():
    deep = encode(np.full((30, 50), 300, np.uint16), "PNG")
    shallow = encode(numbers(0, 30, 50), "PNG")
    images = [encode(picture(0, 30, 50))] * 3
    batch = one_batch(Pairs(images, [b"no mask", deep, shallow]), on_error="mask")
    assert batch["mask"].dtype == np.int32 and batch["valid"].tolist() == [False, True, True]
    assert (batch["mask"][0] == 255).all() and (batch["mask"][1, :30, :50] == 300).all()

    with pytest.raises(DecodeError, match="number 300 does not fit uint8, which the first mask"):
        one_batch(Pairs(images, [shallow, shallow, deep]))


@pytest.mark.parametrize("number", [-7, 256])
def test_the_number_that_does_not_fit_is_named(number):
    """Beside numbers that do."""
    shallow = encode(numbers(0, 30, 50), "PNG")
    deep = np.full((30, 50), 3, np.int32)
    deep[4, 5] = number
    source = Pairs([encode(picture(0, 30, 50))] * 2, [shallow, encode(deep, "TIFF")])
    with pytest.raises(DecodeError, match=f"'mask': number {number} does not fit uint8"):
        one_batch(source)


@pytest.mark.filterwarnings("ignore:1 of 2 records could not be decoded")
def test_a_mask_is_held_to_the_decoders_max_pixels():
    images = [encode(picture(i, 20, 30)) for i in range(2)]
    masks = [encode(numbers(0, 20, 30), "PNG"), encode(numbers(1, 60, 90), "PNG")]
    with Decoder((20, 30), devices=jax.devices("cpu")[:1], max_pixels=1000) as decoder:
        batch = one_batch(Pairs(images, masks), decode=decoder, on_error="mask")
    (bad,) = batch["bad"]
    assert bad["index"] == 1 and "are more than max_pixels=1000" in bad["reason"]


def test_a_batch_whose_masks_raise_is_given_back(monkeypatch):
    """On a GPU its buffer would be lost."""
    lent = []
    released = []

    class Lending(Decoder):
        def decode_rows(self, *given):
            lent.append(())
            return super().decode_rows(*given)._replace(release=released.append)

    monkeypatch.setattr(EncodedMask, "decode_rows", lambda self, *given: 1 / 0)
    source = Pairs([encode(picture(0, 30, 50))], [encode(numbers(0, 30, 50), "PNG")])
    with Lending((30, 50), devices=jax.devices("cpu")[:1]) as decoder:
        with pytest.raises(ZeroDivisionError):
            one_batch(source, decode=decoder)
    assert lent and released == lent


@pytest.mark.parametrize("fill, kind", [(0, "uint8"), (254, "uint8"), (-1, "int32")])
def test_the_unused_part_holds_the_fill(fill, kind):
    dtype = np.uint16 if kind == "int32" else np.uint8
    mask = encode(numbers(0, 30, 50).astype(dtype), "PNG")
    batch = one_batch(
        Pairs([encode(picture(0, 30, 50))], [mask]),
        decode={"image": Images(canvas=(64, 64)), "mask": Mask(fill=fill)},
    )
    assert batch["mask"].dtype == kind
    assert (batch["mask"][0, 30:] == fill).all() and (batch["mask"][0, :, 50:] == fill).all()


def test_a_fill_that_the_masks_cannot_hold_is_refused():
    source = Pairs([encode(picture(0, 30, 50))], [encode(numbers(0, 30, 50), "PNG")])
    with pytest.raises(
        ValueError, match="`fill` of Mask must fit the mask's uint8, 0 to 255, got -1"
    ):
        Loader(source, 1, decode={"mask": Mask(fill=-1)}, sharding=one_device())


def test_transforms_move_the_mask_with_its_image():
    mask = checkerboard(200, 260)
    colors = np.repeat(mask[..., None] * 36, 3, -1).astype(np.uint8)
    source = Pairs([encode(colors, quality=95)] * 4, [encode(mask, "PNG")] * 4)
    chain = augment.Compose(
        [
            augment.RandomHorizontalFlip(1.0),
            augment.RandomCrop(64),
        ]
    )
    batch = one_batch(source, transform=chain, decode=Images(canvas=(200, 260)))
    assert batch["mask"].shape == (4, 64, 64)
    seen = np.round(batch["image"][..., 0] / 36)
    assert (seen == batch["mask"]).mean() > 0.9
    assert not np.array_equal(batch["mask"][0], batch["mask"][1])


BAD_MASKS = [
    (b"", "'mask': empty"),
    (b"GIF8", "'mask': "),
    (palette_png(numbers(0, 40, 56))[:150], "'mask': PNG: "),
    (
        encode(numbers(0, 56, 40), "PNG"),
        "'mask': it must have the size of its image, 40 x 56, got 56 x 40: store it with",
    ),
    (
        encode(picture(0, 40, 56), "PNG"),
        "'mask': it must hold one class number for each pixel, got uint8[40, 56, 3]: convert",
    ),
    (
        encode(np.zeros((40, 56), np.float32), "TIFF"),
        "'mask': it must hold one class number for each pixel, got float32[40, 56]",
    ),
]


@pytest.mark.filterwarnings("ignore:1 of 6 records could not be decoded")
@pytest.mark.parametrize("bad, reason", BAD_MASKS)
def test_bad_masks_follow_on_error(bad, reason):
    images = [encode(picture(i, 40, 56)) for i in range(6)]
    masks = [encode(numbers(i, 40, 56), "PNG") for i in range(6)]
    masks[2] = bad
    source = Pairs(images, masks)
    with pytest.raises(DecodeError, match=re.escape(reason)) as raised:
        one_batch(source)
    assert raised.value.index == 2 and raised.value.file == "2.jpg, 2.png"

    masked = one_batch(source, on_error="mask")
    assert masked["valid"].tolist() == [True, True, False, True, True, True]
    assert (masked["mask"][2] == 255).all() and not masked["image"][2].any()
    assert masked["size"][2].tolist() == [64, 64] and masked["label"][2] == -1
    assert [record["index"] for record in masked["bad"]] == [2]

    replaced = one_batch(source, on_error="replace")
    assert replaced["index"].tolist() == [0, 1, 3, 3, 4, 5] and replaced["valid"].all()
    np.testing.assert_array_equal(replaced["mask"][2], replaced["mask"][3])
    np.testing.assert_array_equal(replaced["mask"][2, :40, :56], numbers(3, 40, 56))


@pytest.mark.filterwarnings("ignore:1 of 2 records could not be decoded")
def test_a_bad_image_needs_no_mask():
    source = Pairs([encode(picture(0, 40, 56)), b"bad"], [encode(numbers(0, 40, 56), "PNG"), b""])
    batch = one_batch(source, on_error="mask")
    assert batch["valid"].tolist() == [True, False] and len(batch["bad"]) == 1
    assert "'mask'" not in batch["bad"][0]["reason"]


def test_rows_that_fill_up_a_batch_are_blank():
    images = [encode(picture(i, 40, 56)) for i in range(3)]
    source = Pairs(images, [encode(numbers(i, 40, 56), "PNG") for i in range(3)])
    with Loader(
        source, 2, shuffle=False, last_batch="pad", sharding=one_device(), epochs=1
    ) as loader:
        last = list(loader)[1]
        assert last["valid"].tolist() == [True, False]
        assert (np.asarray(last["mask"][1]) == 255).all()
        assert loader.stats["bad"] == 0


def test_a_sample_has_its_mask():
    source = Pairs([encode(picture(0, 40, 56))], [encode(numbers(0, 40, 56), "PNG")])
    with Loader(source, 1, sharding=one_device()) as loader:
        sample = loader.sample(0)["sample"]
        np.testing.assert_array_equal(sample["mask"], next(loader)["mask"][0])


def test_several_devices_have_the_masks_of_their_rows():
    images = [encode(picture(i, 40, 56)) for i in range(8)]
    source = Pairs(images, [encode(numbers(i, 40, 56), "PNG") for i in range(8)])
    with Loader(source, 8, shuffle=False) as loader:
        batch = next(loader)
        assert batch["mask"].sharding == batch["image"].sharding
    for row in range(8):
        np.testing.assert_array_equal(batch["mask"][row], numbers(row, 40, 56))


def test_subset_and_concat_keep_the_masks():
    images = [encode(picture(i, 40, 56)) for i in range(4)]
    source = Pairs(images, [encode(numbers(i, 40, 56), "PNG") for i in range(4)])
    both = Concat([Subset(source, [3, 1]), split(source, "[:2]")])
    batch = one_batch(both, decode=Images(canvas=(40, 56)))
    for row, record in enumerate([3, 1, 0, 1]):
        np.testing.assert_array_equal(batch["mask"][row], numbers(record, 40, 56))


def test_concat_refuses_sources_with_and_without_masks():
    class Plain(Pairs):
        def read(self, indices):
            columns = dict(super().read(indices))
            del columns["mask"]
            return columns

    pair = [encode(picture(0, 40, 56))], [encode(numbers(0, 40, 56), "PNG")]
    with pytest.raises(ValueError, match="source 1 has no column 'mask', source 0 has one"):
        Concat([Pairs(*pair), Plain(*pair)])


def test_a_source_has_as_many_masks_as_images():
    class Fewer(Pairs):
        def read(self, indices):
            columns = super().read(indices)
            return columns | {"mask": columns["mask"].take(slice(0))}

    pair = [encode(picture(0, 40, 56))], [encode(numbers(0, 40, 56), "PNG")]
    with pytest.raises(ValueError, match="one row of column 'mask' for each of 1 records, got 0"):
        Loader(Fewer(*pair), 1, sharding=one_device())


@pytest.mark.parametrize("first", ["masks", "none"])
def test_a_source_has_masks_in_every_read_or_in_none(first):
    class Sometimes(Pairs):
        def read(self, indices):
            columns = super().read(indices)
            if (first == "masks") != (0 in indices):
                del columns["mask"]
            return columns

    images = [encode(picture(i, 40, 56)) for i in range(4)]
    source = Sometimes(images, [encode(numbers(0, 40, 56), "PNG")] * 4)
    options = {"shuffle": False, "sharding": one_device(), "decode": Images(canvas=(40, 56))}
    with Loader(source, 2, **options) as loader:
        next(loader)
        with pytest.raises(ValueError, match="must give the same columns in every read"):
            next(loader)


def test_a_chain_that_fills_masks_otherwise_is_refused():
    source = Pairs([encode(picture(0, 30, 50))], [encode(numbers(0, 30, 50), "PNG")])
    chain = augment.Compose([augment.RandomCrop(16)], mask_fill=0)
    with pytest.raises(ValueError, match=r"`mask_fill` of the transform must be .* 255, got 0"):
        Loader(source, 1, transform=chain, sharding=one_device())
    Loader(source, 1, transform=chain, decode={"mask": Mask(fill=0)}, sharding=one_device()).close()


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("suffix", ["seg.png", "png", ".Mask.PNG"])
def test_a_tar_has_masks_beside_its_images(tmp_path, suffix, mmap):
    members = {}
    for i in range(5):
        members[f"{i}.jpg"] = encode(picture(i, 40, 56))
        members[f"{i}.cls"] = str(i).encode()
        members[f"{i}.{suffix.lstrip('.')}"] = palette_png(numbers(i, 40, 56))
    path = write_tar(tmp_path / "a.tar", members)
    source = WebDataset(path, mask=suffix, mmap=mmap)
    batch = one_batch(source, decode=Images(canvas=(40, 56)))
    assert batch["label"].tolist() == [0, 1, 2, 3, 4]
    for row in range(5):
        np.testing.assert_array_equal(batch["mask"][row], numbers(row, 40, 56))

    again = WebDataset(path, mask=suffix, mmap=mmap)  # from its index
    assert again.fingerprint() == source.fingerprint()
    assert again.fingerprint() != WebDataset(path).fingerprint()
    assert "mask" not in WebDataset(path).read(np.array([0]))


def test_a_tar_without_a_mask_for_a_record_is_refused(tmp_path):
    image, mask = encode(picture(0, 40, 56)), encode(numbers(0, 40, 56), "PNG")
    path = write_tar(tmp_path / "a.tar", {"a.jpg": image, "a.seg.png": mask, "b.jpg": image})
    with pytest.raises(SourceError, match=r"a.tar': 'b' has no mask \['seg.png'\]; it has \['jpg"):
        WebDataset(path, mask="seg.png")


def test_an_image_and_its_mask_have_two_extensions(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"a.png": encode(picture(0, 40, 56), "PNG")})
    with pytest.raises(ValueError, match="`image` must have an extension that `mask` has not"):
        WebDataset(path, image="png", mask=".PNG")


def test_a_mask_in_a_tar_that_was_cut_is_a_bad_record(tmp_path):
    members = {}
    for i in range(3):
        members[f"{i}.jpg"] = encode(picture(i, 40, 56))
        members[f"{i}.seg.png"] = encode(numbers(i, 40, 56), "PNG")
    path = write_tar(tmp_path / "a.tar", members)
    source = WebDataset(path, mask="seg.png", mmap=False, retries=0)
    with open(path, "r+b") as file:
        file.truncate(2000)
    with pytest.raises(DecodeError, match="changed since it was indexed"):
        one_batch(source)


@pytest.fixture
def voc(tmp_path):
    """A folder as Pascal VOC has it: more images than masks, and lists."""
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (tmp_path / folder).mkdir(parents=True)
    for i in range(6):
        image = encode(picture(i, 40 + i, 56))
        (tmp_path / "JPEGImages" / f"2007_{i:06}.jpg").write_bytes(image)
    for i in (1, 3, 4):
        mask = palette_png(numbers(i, 40 + i, 56))
        (tmp_path / "SegmentationClass" / f"2007_{i:06}.png").write_bytes(mask)
    (tmp_path / "ImageSets/Segmentation/train.txt").write_text("2007_000004\n2007_000001\n\n")
    return tmp_path


def pairs_of(voc, **options):
    return PairedFolders(voc / "JPEGImages", voc / "SegmentationClass", **options)


def test_paired_folders_by_a_list_of_names(voc):
    source = pairs_of(voc, names=voc / "ImageSets/Segmentation/train.txt")
    assert source.names == ("2007_000004", "2007_000001") and len(source) == 2
    about = source.describe(0)
    assert about["path"].endswith("2007_000004.jpg")
    assert about["mask_path"].endswith("2007_000004.png") and about["name"] == "2007_000004"
    batch = one_batch(source)
    for row, i in enumerate((4, 1)):
        np.testing.assert_array_equal(batch["mask"][row, : 40 + i, :56], numbers(i, 40 + i, 56))
    other = pairs_of(voc, names=["2007_000004", "2007_000003"])
    assert other.fingerprint() != source.fingerprint()


def test_paired_folders_by_suffix(tmp_path):
    """As Cityscapes has them: in folders of cities, several files for each image."""
    for i, city in enumerate(["aachen", "bonn"]):
        for folder in ("images", "masks"):
            (tmp_path / folder / city).mkdir(parents=True)
        image = encode(picture(i, 40, 56), "PNG")
        (tmp_path / "images" / city / f"{i}_leftImg8bit.png").write_bytes(image)
        masks = tmp_path / "masks" / city
        (masks / f"{i}_gtFine_labelIds.png").write_bytes(encode(numbers(i, 40, 56), "PNG"))
        (masks / f"{i}_gtFine_color.png").write_bytes(encode(picture(i, 40, 56), "PNG"))
    source = PairedFolders(
        tmp_path / "images",
        tmp_path / "masks",
        image_suffix="_leftImg8bit.png",
        mask_suffix="_gtFine_labelIds.png",
    )
    assert source.names == ("aachen/0", "bonn/1")
    batch = one_batch(source, decode=Images(canvas=(40, 56)))
    np.testing.assert_array_equal(batch["mask"][1], numbers(1, 40, 56))
    compared = "'aachen/0', 'bonn/1'. Its images are named 'aachen/0_leftImg8bit'"
    with pytest.raises(SourceError, match=f"2 of 2 .* no image .*: {compared}.* `image_suffix`"):
        PairedFolders(tmp_path / "images", tmp_path / "masks", mask_suffix="_gtFine_labelIds.png")


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "`masks`: 3 of 6 records have no mask below '.*Class': '2007_000000', .*`names`"),
        ({"names": ["2007_000009"]}, "`images`: 1 of 1 records have no image below"),
        ({"names": ["2007_000002"]}, "`masks`: 1 of 1 records have no mask below"),
        ({"names": []}, "`names` must hold at least one name"),
        ({"names": "/nowhere.txt"}, "`names` '/nowhere.txt' cannot be read"),
        ({"image_suffix": ".png"}, "`images`: no files that end in '.png' below"),
    ],
)
def test_pairs_that_are_not_whole_are_refused(voc, options, message):
    with pytest.raises(SourceError, match=message):
        pairs_of(voc, **options)


def test_masks_without_images_and_missing_folders_are_refused(voc):
    (voc / "JPEGImages/2007_000003.jpg").unlink()
    for i in (0, 2, 5):
        (voc / f"JPEGImages/2007_{i:06}.jpg").unlink()
    with pytest.raises(SourceError, match="`images`: 1 of 3 records have no image below"):
        pairs_of(voc)
    with pytest.raises(SourceError, match="`masks` must be a folder, got '/nowhere'"):
        PairedFolders(voc / "JPEGImages", "/nowhere")
    (voc / "SegmentationClass/2007_000001.bmp").write_bytes(b"...")
    with pytest.raises(SourceError, match="have one name: choose one kind by mask_suffix"):
        pairs_of(voc)


def test_a_mask_that_was_deleted_is_a_bad_record(voc):
    source = pairs_of(voc, names=["2007_000001", "2007_000003"])
    (voc / "SegmentationClass/2007_000003.png").unlink()
    assert source.describe(1)["error"] == "its mask cannot be read: No such file or directory"
    with pytest.raises(DecodeError, match="its mask cannot be read: No such file") as raised:
        one_batch(source)
    assert raised.value.file.endswith("2007_000003.png")
    (voc / "JPEGImages/2007_000003.jpg").unlink()
    assert source.describe(1)["error"] == "cannot be read: No such file or directory"
