"""Records that cannot be decoded: raised, masked, replaced, counted once."""

import contextlib
import dataclasses
import io
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

from jaxaug import Decoder, Loader
from jaxaug.decode import (
    Audio,
    ColumnDecoder,
    Decoded,
    Encoded,
    Image,
    Volume,
    decode_image,
)
from jaxaug.errors import DecodeError
from jaxaug.iterators import (
    ImageFolder,
    InMemory,
    RandomAccess,
    Renamed,
    Shuffled,
)
from jaxaug.iterators.loader.rows import RowSchema
from tests.images import jpegs
from tests.iterators.loaders import jitter, one_device, threads


@pytest.fixture
def broken_folder(tmp_path):
    good = jpegs(10)
    for i in range(100):
        path = tmp_path / f"class{i % 3}" / f"{i:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        data = good[i % 10]
        path.write_bytes(
            {0: b"", 1: b"just text", 2: data[: len(data) // 2]}[i % 3] if i % 10 == 7 else data
        )
    return tmp_path


def bad_names(loader):
    return sorted(int(record["file"][-7:-4]) for record in loader.stats["bad_records"])


BROKEN = list(range(7, 100, 10))


def test_mask_yields_the_90_good_ones(broken_folder):
    with Loader(
        ImageFolder(broken_folder), 20, on_error="mask", sharding=one_device(), epochs=1
    ) as loader:
        batches = list(loader.steps())
        assert sum(int(batch["valid"].sum()) for batch in batches) == 90
        assert all(not np.asarray(b["image"])[~np.asarray(b["valid"])].any() for b in batches)
        assert all((b["index"] >= 0).all() for b in batches)
        assert bad_names(loader) == BROKEN and loader.stats["masked"] == loader.stats["bad"] == 10
        reasons = {record["reason"] for record in loader.stats["bad_records"]}
        assert "empty" in reasons and any("b'just tex'" in reason for reason in reasons)


def test_replace_yields_100_from_the_same_order_for_any_batch_size(broken_folder):
    runs = []
    for batch_size in (20, 50):
        with Loader(
            ImageFolder(broken_folder),
            batch_size,
            on_error="replace",
            transform=jitter,
            sharding=one_device(),
            epochs=1,
        ) as loader:
            rows = [
                (int(i), np.asarray(im).tobytes())
                for b in loader
                for i, im in zip(b["index"], b["image"])
            ]
            assert bad_names(loader) == BROKEN and loader.stats["replaced"] == 10
            assert loader.stats["images"] == 100
        runs.append(rows)
    assert runs[0] == runs[1]
    assert len({image for _, image in runs[0]}) <= 90


def test_raise_names_the_first_and_leaves_the_loader_usable(broken_folder):
    source = ImageFolder(broken_folder)
    with Loader(
        source, 20, shuffle=False, on_error="raise", sharding=one_device(), epochs=1
    ) as loader:
        first = next(i for i in range(100) if int(source.path(i)[-7:-4]) in BROKEN)
        with pytest.raises(
            DecodeError, match=rf"record {first} \(.*{source.path(first)}, \d+ bytes\)"
        ) as caught:
            for _ in range(5):
                next(loader)
        assert caught.value.index == first and caught.value.file == source.path(first)
        assert [
            t.name for t in threads() if "decode" not in t.name
        ] == []  # the decoder's own end with close
        assert (
            loader.get_state()["position"] == first // 20 * 20
        )  # the batch that failed was not delivered
        with pytest.raises(DecodeError) as caught:
            next(loader)
        assert caught.value.index >= first // 20 * 20 + 20  # but the next one is behind it
    assert threads() == []


def test_all_records_broken_cannot_be_replaced():
    with Loader(InMemory([b"no"] * 40), 4, on_error="replace", sharding=one_device()) as loader:
        with pytest.raises(DecodeError, match="none of the next 32 records"):
            next(loader)


def test_the_record_that_cannot_be_replaced_is_named():
    source = InMemory([b"no"] * 40 + jpegs(8))
    options = {"shuffle": False, "on_error": "replace", "decode": Image(canvas=(8, 8))}
    with Loader(source, 4, sharding=one_device(), **options) as loader:
        with pytest.raises(DecodeError, match="cannot decode record 0 ") as caught:
            next(loader)
        assert caught.value.index == 0
        assert [record["index"] for record in loader.stats["bad_records"]] == [0, 1, 2, 3]


def test_the_last_record_of_an_epoch_is_replaced_by_the_first():
    source = InMemory([*jpegs(3), b"no"], {"label": np.arange(4)})
    with Loader(source, 4, shuffle=False, on_error="replace", sharding=one_device()) as loader:
        batch = next(loader)
    assert batch["index"].tolist() == batch["label"].tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("last", [[], [b"no"]])
def test_rows_that_fill_up_a_batch_are_not_replaced(last):
    source = InMemory([*jpegs(4), *last, *jpegs(1)])
    options = {"shuffle": False, "on_error": "replace", "last_batch": "pad", "epochs": 1}
    with Loader(source, 4, sharding=one_device(), **options) as loader:
        _, batch = loader
        assert batch["index"].tolist() == ([5, 5, -1, -1] if last else [4, -1, -1, -1])
        assert loader.stats["bad"] == len(last)


def test_a_replacement_is_the_next_record_of_its_own_epoch():
    images = jpegs(8)
    images[5] = b"no"
    order = Shuffled(8, seed=3)
    with Loader(
        InMemory(images), 8, shuffle=order, on_error="replace", sharding=one_device()
    ) as loader:
        for epoch in range(3):
            records = order.records(epoch, np.arange(8)).tolist()
            place = records.index(5)
            records[place] = records[(place + 1) % 8]
            assert next(loader)["index"].tolist() == records


@pytest.mark.parametrize("bad", [32, 33])
def test_thirty_two_other_records_are_tried(bad):
    source = InMemory([b"no"] * bad + jpegs(1))
    options = {"shuffle": False, "on_error": "replace", "decode": Image(canvas=(8, 8))}
    with Loader(source, 1, sharding=one_device(), **options) as loader:
        if bad == 32:
            assert next(loader)["index"].tolist() == [32]
            return
        with pytest.raises(DecodeError, match="none of the next 32 records"):
            next(loader)


def test_images_of_too_many_pixels_are_replaced_before_anything_is_decoded():
    source = InMemory([*jpegs(2, 40, 56), *jpegs(1, 8, 8)])
    options = {"shuffle": False, "on_error": "replace", "sharding": one_device()}
    with Decoder((64, 64), devices=jax.devices("cpu")[:1], max_pixels=100) as decoder:
        with Loader(source, 1, decode=decoder, **options) as loader:
            assert next(loader)["index"].tolist() == [2]
        assert decoder.stats["failed"] == 0


class Lent(InMemory):
    """Its reads give memory that is overwritten as soon as nothing refers to its owner."""

    def read(self, indices):
        columns = super().read(indices)
        encoded = columns["image"]
        data = [np.array(encoded.view(row)) for row in range(len(indices))]
        owner = Owner(data)
        return columns | {"image": Encoded.from_bytes(data)._replace(owner=owner)}


class Owner:
    memory = ()  # of all owners, never freed

    def __init__(self, arrays):
        self.arrays = arrays
        Owner.memory += (*arrays,)

    def __del__(self):
        for array in self.arrays:
            array[:] = 0


@pytest.mark.parametrize("on_error", ["mask", "replace"])
def test_the_bytes_of_a_batch_live_until_it_is_decoded(on_error):
    """Of the first batch, record 2 stands in for 1, and 5 for 3, as 4 is bad too."""
    images = jpegs(8)
    images[1] = images[3] = images[4] = b"no"
    source = Lent(images)
    with Loader(source, 4, shuffle=False, on_error=on_error, sharding=one_device()) as loader:
        for records in ([0, 2, 2, 5], [5, 5, 6, 7]):
            batch = next(loader)
            if on_error == "replace":
                assert batch["index"].tolist() == records
            for row in np.flatnonzero(batch["valid"]):
                image = decode_image(images[int(batch["index"][row])])
                np.testing.assert_array_equal(batch["image"][row], image)


class Lending(Decoder):
    """Notes for each batch how often its buffers are given back."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.batches = []

    def decode_rows(self, *given):
        decoded = super().decode_rows(*given)
        given_back = []
        self.batches.append(given_back)

        def release(readers):
            given_back.append(readers)
            decoded.release(readers)

        return decoded._replace(release=release)


class Failing(InMemory):
    """Record 1 is broken; one method fails from the second batch on."""

    def __init__(self, fails):
        super().__init__([*jpegs(1), b"no", *jpegs(6)], {"label": np.arange(8)})
        self.fails = fails
        self.reads = 0

    def read(self, indices):
        if self.fails == "read" and len(indices) == 1 and self.reads > 1:  # the replacement
            raise OSError("gone")
        self.reads += len(indices) > 1
        return super().read(indices)

    def describe(self, index):
        if self.fails == "describe":
            raise OSError("gone")
        return super().describe(index)


class Unable:
    """An order that cannot answer for replacements."""

    with_replacement = False
    length = 8

    def records(self, epoch, positions):
        if len(positions) == 1:
            raise OSError("gone")
        return positions


@pytest.mark.parametrize("on_error", ["raise", "mask", "replace"])
@pytest.mark.parametrize("fails", ["nothing", "read", "describe", "order", "transfer", "all"])
def test_every_decode_buffer_is_given_back_once(monkeypatch, on_error, fails):
    """On a GPU a batch that is not given back is a lane lost; after eight the next decode waits for
    ever.
    """
    source = InMemory([b"no"] * 8) if fails == "all" else Failing(fails)
    sampler = Unable() if fails == "order" else False
    with Lending((64, 64), devices=jax.devices("cpu")[:1]) as decoder:
        with Loader(
            source, 4, shuffle=sampler, on_error=on_error, decode=decoder, sharding=one_device()
        ) as loader:
            if fails == "transfer":
                monkeypatch.setattr(RowSchema, "arrays", lambda self, *given: 1 / 0)
            for _ in range(6):
                with contextlib.suppress(DecodeError, OSError, ZeroDivisionError):
                    next(loader)
        # "replace" looks at the headers first: where all are bad nothing is decoded
        assert (
            len(decoder.batches)
            >= {"raise": 6, "mask": 6, "replace": 0 if fails == "all" else 3}[on_error]
        )
        assert all(len(given_back) == 1 for given_back in decoder.batches)


def test_a_deleted_file_is_named(broken_folder):
    source = ImageFolder(broken_folder)
    (broken_folder / "class0" / "000.jpg").unlink()
    with Loader(source, 20, shuffle=False, sharding=one_device()) as loader:
        with pytest.raises(DecodeError, match=r"000\.jpg.*No such file"):
            next(loader)


def test_a_failed_batch_at_an_epochs_end_belongs_to_its_epoch(images):
    with Loader(InMemory([*images[:3], b"no"]), 2, shuffle=False, sharding=one_device()) as loader:
        with pytest.raises(DecodeError):
            list(loader)
        assert loader.get_state() | {"fingerprint": ""} == loader.get_state() | {
            "fingerprint": "",
            "position": 2,
            "epoch": 0,
        }
        assert next(loader)["index"].tolist() == [0, 1]  # of the next epoch


def test_bad_records_are_counted_once_however_far_ahead_they_were_read():
    images = jpegs(16)
    for bad in (6, 9, 11):
        images[bad] = b"no image"
    source = InMemory(images)
    with Loader(source, 4, shuffle=False, epochs=1, prefetch=4, sharding=one_device()) as loader:
        for _ in range(6):
            try:
                next(loader)
            except StopIteration:
                break
            except Exception as error:
                assert "record" in str(error)
        assert loader.stats["bad"] == 3
        assert [record["index"] for record in loader.stats["bad_records"]] == [6, 9, 11]


def test_replacing_bad_records_decodes_each_batch_once():
    images = jpegs(40)
    for bad in (3, 4, 17, 30):
        images[bad] = b"no image"
    with Loader(
        InMemory(images), 10, on_error="replace", epochs=1, sharding=one_device()
    ) as loader:
        rows = sum(len(batch["index"]) for batch in loader)
        assert loader.decoders["image"] is not None
        assert rows == loader.decoders["image"].stats["images"] == 40
        assert loader.stats["replaced"] >= 4


def test_damage_that_only_decoding_shows_is_replaced_too(monkeypatch):
    with Loader(
        InMemory(jpegs(8)), 4, shuffle=False, on_error="replace", sharding=one_device()
    ) as loader:
        decoder = loader.decoders["image"]
        assert decoder is not None
        decode_rows = decoder.decode_rows
        broken = {0}

        def breaks(*arguments):
            decoded = decode_rows(*arguments)
            rows = {row: "torn" for row in broken}
            broken.clear()
            return decoded._replace(failures=rows)

        monkeypatch.setattr(decoder, "decode_rows", breaks)
        batch = next(loader)
        assert batch["index"].tolist() == [1, 1, 2, 3]
        assert loader.stats["bad_records"][0] | {"file": None} == {
            "index": 0,
            "file": None,
            "reason": "torn",
            "action": "replaced",
        }
        assert np.asarray(batch["valid"]).all()


@pytest.mark.parametrize(
    "names, file",
    [
        ({"path": Path("/a/b.jpg")}, "/a/b.jpg"),
        ({"path": None, "key": 7}, "7"),
        ({"path": None}, None),
    ],
)
def test_a_bad_record_is_named_whatever_its_names_are(names, file):
    items = [{"image": image, **names} for image in (*jpegs(1), b"no")]
    source = RandomAccess(items, label=None, features=())
    options = {"shuffle": False, "on_error": "mask", "max_bad": None}
    with Loader(source, 2, sharding=one_device(), **options) as loader:
        assert next(loader)["valid"].tolist() == [True, False]
        assert [record["file"] for record in loader.stats["bad_records"]] == [file]


class Told(NamedTuple):
    """What a decoder may tell of its rows by columns."""

    numbers: np.ndarray


@dataclasses.dataclass(frozen=True)
class Digits(ColumnDecoder):
    """Numbers of text; what it tells of them are the numbers."""

    kind: str

    def forms(self):
        return {"number": jax.ShapeDtypeStruct((), np.int32)}

    def check_rows(self, values, stored):
        texts = [bytes(values.view(row)) for row in range(len(values.lengths))]
        failures = {row: "no number" for row, text in enumerate(texts) if not text.isdigit()}
        numbers = [int(text) if text.isdigit() else 0 for text in texts]
        return Told(np.array(numbers)) if self.kind == "columns" else numbers, failures

    def decode_rows(self, values, checked, siblings, wanted, keys):
        told, failures = self.check_rows(values, None)
        numbers = np.int32(getattr(checked, "numbers", checked))
        np.testing.assert_array_equal(numbers, getattr(told, "numbers", told))
        failures = {row: reason for row, reason in failures.items() if wanted[row]}
        good = wanted & ~np.isin(np.arange(len(wanted)), list(failures))
        return Decoded({"number": numbers}, good, failures)


@pytest.mark.parametrize("kind", ["list", "columns"])
@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_what_is_told_of_a_row_is_replaced_with_it(kind):
    files = [b"x" if i in (1, 2, 7) else b"%d" % (10 * i) for i in range(8)]
    source = Renamed(InMemory(files), {"image": "digits"})
    options = {"decode": {"digits": Digits(kind)}, "shuffle": False, "sharding": one_device()}
    with Loader(source, 4, on_error="replace", max_bad=None, **options) as loader:
        found = [np.asarray(batch["digits"]).tolist() for batch in loader]
    assert found == [[0, 30, 30, 30], [40, 50, 60, 0]]


@pytest.mark.parametrize("medium", ["sound", "volume"])
@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_sounds_and_volumes_are_replaced(medium):
    if medium == "sound":
        pytest.importorskip("soundfile")
        from tests.decode.audio.sounds import encoded, wave

        files = [encoded("wav16", wave(i, 800)) for i in range(6)]
        decoder = Audio(samples=800)
    else:
        files = []
        for number in range(6):
            np.save(file := io.BytesIO(), np.full((2, 3, 4), number, np.uint8))
            files.append(file.getvalue())
        decoder = Volume()
    files[2], files[5] = b"none", files[5][:-10]
    source = Renamed(InMemory(files), {"image": medium})
    options = {"decode": {medium: decoder}, "shuffle": False, "sharding": one_device()}
    with Loader(source, 3, on_error="replace", max_bad=None, **options) as loader:
        batches = [jax.device_get(batch) for batch in loader]
        assert loader.stats["replaced"] == 2
    assert [batch["index"].tolist() for batch in batches] == [[0, 1, 3], [3, 4, 0]]
    np.testing.assert_array_equal(batches[0][medium][2], batches[1][medium][0])
    np.testing.assert_array_equal(batches[0][medium][0], batches[1][medium][2])
