"""Several images in a record, and texts beside them."""

import io
import json
import pickle
import tarfile

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from jaxaug import Loader, augment
from jaxaug.decode import Encoded, Image, Ragged, Tokenized, decode_image
from jaxaug.errors import DecodeError, SourceError
from jaxaug.iterators import Concat, InMemory, Parquet, Renamed, WebDataset
from tests.images import encode, picture
from tests.iterators.loaders import named_sharding, one_device

COUNTS = [2, 0, 3, 1, 2, 3, 1, 1]


def images(counts, first=0):
    """Lists of PNGs of different sizes and content."""
    seeds = iter(range(first, first + sum(counts)))
    return [
        [encode(picture(k := next(seeds), 20 + k, 30), "PNG") for _ in range(count)]
        for count in counts
    ]


LISTS = images(COUNTS)
TEXTS = [f"record {k} has {count} images".encode() for k, count in enumerate(COUNTS)]


def source(lists=LISTS):
    return InMemory(lists, {"caption": Encoded.from_bytes(TEXTS[: len(lists)])})


def tokenize(text):
    return [len(word) for word in text.split()]


DECODE = {"image": Image(canvas=(40, 32)), "caption": Tokenized(tokenize, max_length=4)}


def test_a_record_has_as_many_images_as_it_has():
    """Each is what it is alone; zeros are behind them."""
    with Loader(source(), 8, decode=DECODE, shuffle=False, sharding=one_device()) as loader:
        batch = {name: np.asarray(array) for name, array in next(loader).items()}
        assert loader.element_spec["image"].shape == (8, 3, 40, 32, 3)
    assert batch["image_length"].tolist() == COUNTS
    for row, files in enumerate(LISTS):
        for place in range(3):
            found, size = batch["image"][row, place], batch["size"][row, place]
            if place >= len(files):
                assert not found.any() and size.tolist() == [40, 32]
                continue
            expected = decode_image(files[place])
            assert size.tolist() == list(expected.shape[:2])
            np.testing.assert_array_equal(found[: size[0], : size[1]], expected)
            assert not found[size[0] :].any() and not found[:, size[1] :].any()
    assert batch["caption"].tolist() == [tokenize(text.decode())[:4] for text in TEXTS]
    assert batch["caption_length"].tolist() == [4] * 8


def test_batches_are_the_same_for_every_layout_and_after_a_resume():
    """Of two and of eight devices, of parts of a data set, and from the second batch on."""
    options = {"decode": DECODE, "seed": 3, "epochs": 1}

    def rows(loader):
        found = {}
        for batch in loader:
            batch = {name: np.asarray(array) for name, array in batch.items()}
            for row, index in enumerate(batch["index"].tolist()):
                found[index] = {name: batch[name][row].tobytes() for name in sorted(batch)}
        return found

    with Loader(source(), 4, sharding=one_device(), **options) as loader:
        first = next(loader)
        state = loader.get_state()
        rest = rows(loader)
    alone = rows([first]) | rest
    with Loader(source(), 4, sharding=one_device(), **options) as loader:
        loader.set_state(state)
        assert rows(loader) == rest
    for layout, size in (("eight", 8), ("replicated", 8)):
        with Loader(source(), size, sharding=named_sharding(layout), **options) as loader:
            assert rows(loader) == alone
    parts = Concat([InMemory(LISTS[:3]), InMemory(LISTS[3:])])
    with Loader(parts, 8, decode=Image(canvas=(40, 32)), sharding=one_device(), seed=3) as loader:
        batch = next(loader)
    for row, index in enumerate(np.asarray(batch["index"]).tolist()):
        assert np.asarray(batch["image"][row]).tobytes() == alone[index]["image"]


def test_lists_without_an_image_have_a_canvas_all_the_same():
    with Loader(InMemory([[], []]), 2, sharding=one_device()) as loader:
        batch = next(loader)
    assert batch["image"].shape == (2, 1, 512, 512, 3)
    assert np.asarray(batch["image_length"]).tolist() == [0, 0]


def test_a_bad_image_makes_a_bad_record():
    lists = [list(each) for each in LISTS]
    lists[2][1] = lists[2][1][:60]
    with Loader(
        source(lists), 8, decode=DECODE, shuffle=False, on_error="mask", sharding=one_device()
    ) as loader:
        with pytest.warns(UserWarning, match="record 2: image 1: "):
            batch = next(loader)
    assert np.flatnonzero(~np.asarray(batch["valid"])).tolist() == [2]
    assert not np.asarray(batch["image"])[2].any()
    with Loader(
        source(lists), 4, decode=DECODE, shuffle=False, on_error="replace", sharding=one_device()
    ) as loader:
        with pytest.warns(UserWarning, match="replaced"):
            batch = next(loader)
    assert np.asarray(batch["index"]).tolist() == [0, 1, 3, 3]
    assert np.asarray(batch["image_length"]).tolist() == [2, 0, 1, 1]


@pytest.mark.parametrize("kind", ["bytes", "structs"])
def test_parquet_has_lists_of_images(tmp_path, kind):
    """Of bytes, or of structs as Hugging Face writes them; null is none."""
    lists = [None if not each else each for each in LISTS]
    if kind == "structs":
        lists = [each and [{"bytes": file, "path": None} for file in each] for each in lists]
    table = pyarrow.table({"image": lists, "label": list(range(8))})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    source = Parquet(tmp_path / "a.parquet", max_images=2)
    indices = np.array([2, 0, 7, 1, 5])
    found = pickle.loads(pickle.dumps(source)).read(indices)["image"]
    assert found.lengths.tolist() == [COUNTS[index] for index in indices] and found.max_length == 2
    files = [bytes(found.values.view(place)) for place in range(len(found.values.lengths))]
    assert files == [file for index in indices for file in LISTS[index]]
    image = Image(canvas=(40, 32))
    with Loader(source, 8, decode=image, shuffle=False, sharding=one_device()) as loader:
        batch = next(loader)
    assert np.asarray(batch["image_length"]).tolist() == [min(count, 2) for count in COUNTS]
    with Loader(InMemory(LISTS), 8, decode=image, shuffle=False, sharding=one_device()) as loader:
        expected = next(loader)["image"]
    np.testing.assert_array_equal(batch["image"], np.asarray(expected)[:, :2])
    with pytest.raises(SourceError, match=r"holds lists of images.* give `max_images`"):
        Parquet(tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"no column .photo. .* image=.image. and max_images="):
        Parquet(tmp_path / "a.parquet", image="photo")
    single = pyarrow.table({"image": [b"a"], "label": [0]})
    pyarrow.parquet.write_table(single, tmp_path / "b.parquet")
    with pytest.raises(SourceError, match="must hold lists of images, as `max_images` says"):
        Parquet(tmp_path / "b.parquet", max_images=2)


def test_an_interleaved_webdataset_has_lists_of_images(tmp_path):
    """`key.0.jpg`, `key.1.jpg`, ..., `key.json`: more than nine, in the order of their numbers."""
    counts = [2, 1, 11]
    lists = images(counts)
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for record, files in enumerate(lists):
            parts = {f"{k}.png": file for k, file in enumerate(files)}
            parts = dict(reversed(parts.items())) | {"json": b'{"label": %d}' % record}
            for extension, data in parts.items():
                member = tarfile.TarInfo(f"{record:03d}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    for source in (WebDataset(path, image="*.png"), WebDataset(path, image="*.png", mmap=False)):
        source = pickle.loads(pickle.dumps(source))
        found = source.read(np.array([2, 0, 1]))
        assert set(found) == {"image", "label"} and found["label"].tolist() == [2, 0, 1]
        assert found["image"].lengths.tolist() == [11, 2, 1]
        values = found["image"].values
        files = [bytes(values.view(place)) for place in range(len(values.lengths))]
        assert files == lists[2] + lists[0] + lists[1]
    cut = WebDataset(path, image="*.png", max_length=2).read(np.array([2, 0, 1]))["image"]
    assert cut.lengths.tolist() == [2, 2, 1] and cut.max_length == 2
    files = [bytes(cut.values.view(place)) for place in range(len(cut.values.lengths))]
    assert files == lists[2][:2] + lists[0] + lists[1]
    image = Image(canvas=(40, 32))
    with Loader(source, 3, decode=image, shuffle=False, sharding=one_device()) as loader:
        batch = next(loader)
    assert batch["image"].shape == (3, 11, 40, 32, 3)
    assert np.asarray(batch["image_length"]).tolist() == counts
    with pytest.raises(SourceError, match="has no image"):
        WebDataset(path, image="*.jpg")
    with pytest.raises(SourceError, match=r"no record has numbers called \['z'\]; found were \[\]"):
        WebDataset(path, image="*.png", features=["z"], label=None)
    with pytest.raises(ValueError, match="`image` must name single images beside `mask`"):
        WebDataset(path, image="*.png", mask="seg.png")


def tar_of_texts(path, files, texts):
    """Records of an image, a text of their own and one in JSON."""
    with tarfile.open(path, "w") as tar:
        for record, (file, text) in enumerate(zip(files, texts)):
            inside = json.dumps({"caption": text[::-1], "label": record}).encode()
            for extension, data in (("png", file), ("txt", text.encode()), ("json", inside)):
                member = tarfile.TarInfo(f"{record:03d}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize("container", ["tar", "tar json", "parquet", "memory"])
def test_texts_of_a_source_are_columns(tmp_path, container):
    texts = [f"Zeile {k} von über {10 * k} Wörtern" for k in range(6)]
    files = [encode(picture(k, 20, 30), "PNG") for k in range(6)]
    name = {"tar": "txt"}.get(container, "caption")
    if container.startswith("tar"):
        tar_of_texts(tmp_path / "a.tar", files, texts)
        source = WebDataset(tmp_path / "a.tar")
    elif container == "parquet":
        table = pyarrow.table({"image": files, "caption": texts})
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=4)
        source = Parquet(tmp_path / "a.parquet", label=None)
    else:
        source = InMemory(files, {"caption": np.array(texts)})
    expected = [text[::-1] if container == "tar json" else text for text in texts]
    source = pickle.loads(pickle.dumps(Renamed(source, texts={name: "words"})))
    code = {"words": Tokenized(lambda text: [ord(letter) for letter in text], 40)}
    options = {"decode": code | {"image": Image(canvas=(20, 30))}, "sharding": one_device()}
    batches = []
    with Loader(source, 2, seed=3, **options) as loader:
        for batch in loader:
            batches.append((loader.get_state(), jax.device_get(batch)))
    for _, batch in batches:
        for record, row, length in zip(batch["index"], batch["words"], batch["words_length"]):
            assert "".join(map(chr, row[:length])) == expected[record]
    assert sorted(int(r) for _, batch in batches for r in batch["index"]) == list(range(6))
    with Loader(source, 2, seed=3, **options) as loader:
        loader.set_state(batches[0][0])
        np.testing.assert_array_equal(next(loader)["words"], batches[1][1]["words"])


def test_wrong_texts_are_named():
    source = InMemory(LISTS, {"caption": np.array(["a"] * len(LISTS))})
    with pytest.raises(ValueError, match=r"names that no column has, got .'image'"):
        Renamed(source, texts={"caption": "image"}).read(np.arange(2))
    with pytest.raises(ValueError, match="`texts` must give different names"):
        Renamed(source, texts={"caption": "a", "title": "a"})
    with pytest.raises(SourceError, match="record 1 has no text 'title'"):
        Renamed(source, texts={"title": "words"}).read(np.array([1]))
    blank = Renamed(source, texts={"title": "words"}, missing="").read(np.array([1]))
    assert blank["words"].lengths.tolist() == [0]


def letters(text):
    return [ord(letter) for letter in text]


def test_records_kept_on_disk_are_those_of_the_names(tmp_path):
    """Others of the same form lay there under the fingerprint of the source."""
    source = InMemory(LISTS[:4], {"x": np.arange(4), "y": np.arange(4) + 10})
    for name, first in (("x", 0), ("y", 10)):
        renamed = Renamed(source, {name: "number"})
        options = {"decode": Image(canvas=(20, 30)), "shuffle": False, "keep": f"disk:{tmp_path}"}
        with Loader(renamed, 4, sharding=one_device(), **options) as loader:
            batch = jax.device_get(next(loader))
        assert batch["number"].tolist() == list(range(first, first + 4))


def test_half_of_a_surrogate_pair_is_no_error():
    """As json.loads gives it."""
    source = InMemory(LISTS[:1], {"caption": np.array(["a\ud800"])})
    found = Renamed(source, texts={"caption": "words"}).read(np.array([0]))
    assert bytes(found["words"].view(0)) == b"a?"


def test_one_draw_for_all_images_or_one_each():
    """A chain is mapped over them with one key or with several."""
    flip = augment.Compose([augment.Resize((16, 16)), augment.RandomHorizontalFlip(p=0.5)])
    same = [[encode(picture(0, 20, 30), "PNG")] * 3] * 8

    def apply(one):
        def transform(key, sample):
            keys = key if one else jax.random.split(key, 3)
            part = {"image": sample["image"], "size": sample["size"]}
            found = jax.vmap(flip, in_axes=(None if one else 0, 0))(keys, part)
            return {"image": found["image"]}

        with Loader(
            InMemory(same), 8, transform=transform, shuffle=False, sharding=one_device()
        ) as loader:
            batch = jnp.asarray(next(loader)["image"])
        return np.asarray((batch == batch[:, :1]).all(axis=(1, 2, 3, 4)))

    assert apply(one=True).all()
    assert not apply(one=False).all()


def test_wrong_texts_and_lists():
    with pytest.raises(TypeError, match="`tokenize` must be a function of a text, got int"):
        Tokenized(3, 4)
    with pytest.raises(ValueError, match="`max_length` must be an int of at least 1"):
        Tokenized(tokenize, 0)
    for wrong, words in (
        (lambda text: [0.5], r"sequence of ints of 32 bits by `tokenize`, got float64\[1\]"),
        (lambda text: [2**40], "sequence of ints of 32 bits"),
        (lambda text: {"input_ids": [1]}, "`tokenize`, got dict in record 0"),
        (lambda text: text.no, "cannot be tokenized in record 0: AttributeError"),
    ):
        decode = {"image": Image(canvas=(8, 8)), "caption": Tokenized(wrong, 4)}
        with pytest.raises(ValueError, match=f"feature 'caption' .*{words}"):
            with Loader(source(), 8, decode=decode, shuffle=False, sharding=one_device()) as loader:
                next(loader)
    bad = InMemory(LISTS[:1], {"caption": Encoded.from_bytes([b"\xff\xfe"])})
    with pytest.raises(DecodeError, match=r"its text is no UTF-8"):
        with Loader(bad, 1, decode=DECODE, sharding=one_device()) as loader:
            next(loader)
    ragged = Ragged(Encoded.from_bytes([b"a", b"bc", b"d"]), np.array([2, 1]), 2)
    taken = ragged.take(np.array([1, 0]))
    assert taken.values.lengths.tolist() == [1, 1, 2] and taken.lengths.tolist() == [1, 2]
