"""Sounds from folders, lists and tars to batches: one draw a record on any layout."""

import tarfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("miniaudio")
pytest.importorskip("soundfile")

from jaxaug import augment, decode, iterators
from tests.decode.audio.sounds import decoded, encoded, wave

KINDS = ("wav16", "flac16", "vorbis", "wav24")
COUNT = 12
AUDIO = decode.Audio(seconds=0.1)
CHAIN = augment.Compose(
    [augment.audio.Gain(), augment.audio.AddNoise(), augment.audio.LogMel(n_mels=20)]
)


def file_of(number):
    """Return (name, bytes) of a record: formats, lengths, rates and channels differ."""
    kind = KINDS[number % 4]
    rate = (16_000, 44_100)[number % 3 == 1]
    samples = wave(number, 3000 + 900 * number, 1 + number % 2, rate)
    extension = {"vorbis": "ogg", "flac16": "flac"}.get(kind, "wav")
    return f"{number:03}.{extension}", encoded(kind, samples, rate)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sounds")
    for number in range(COUNT):
        name, data = file_of(number)
        path = folder / ("even", "odd")[number % 2] / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return folder


def batches(source, batch_size, devices=8, transform=CHAIN, **options):
    mesh = jax.make_mesh((devices,), ("batch",), devices=jax.devices()[:devices])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    options = {"decode": {"audio": AUDIO}, "seed": 3, "last_batch": "drop", **options}
    return iterators.Loader(source, batch_size, transform=transform, sharding=sharding, **options)


def by_record(loader, epochs=1):
    """Return {(epoch, record): the entries}, each of NumPy."""
    found = {}
    with loader:
        for epoch in range(epochs):
            for batch in loader:
                batch = jax.device_get(batch)
                for row, index in enumerate(batch["index"].tolist()):
                    found[epoch, index] = {name: value[row] for name, value in batch.items()}
    return found


def same(some, others):
    assert some and some.keys() <= others.keys()
    for record, entries in some.items():
        jax.tree.map(np.testing.assert_array_equal, entries, others[record])


def test_entries_of_a_batch(root):
    source = iterators.AudioFolder(root)
    assert source.classes == ("even", "odd") and len(source) == COUNT
    with batches(source, 8, transform=None) as loader:
        batch = next(loader)
        assert batch["audio"].shape == (8, 1600) and batch["audio"].dtype == jnp.float32
        assert {name: str(batch[name].dtype) for name in batch if name.startswith("audio_")} == {
            "audio_length": "int32",
            "audio_start": "float32",
            "audio_rate": "int32",
        }
        batch = jax.device_get(batch)
        for row, index in enumerate(batch["index"].tolist()):
            expected = decoded(open(source.path(index), "rb").read()).mean(axis=1)
            if batch["audio_rate"][row] == 16_000:
                start = round(float(batch["audio_start"][row]) * 16_000)
                clip = expected[start : start + 1600]
                np.testing.assert_allclose(batch["audio"][row, : len(clip)], clip, atol=1e-6)


@pytest.mark.bits
def test_a_record_becomes_the_same_on_any_layout(root):
    source = iterators.AudioFolder(root)
    whole = by_record(batches(source, 4, devices=1), epochs=2)
    same(by_record(batches(source, 8, devices=4), epochs=2), whole)
    first, second = (whole[epoch, 7]["audio_start"] for epoch in (0, 1))
    assert first != second


def test_resume_is_exact(root):
    source = iterators.AudioFolder(root)
    with batches(source, 4, devices=1) as loader:
        next(loader)
        state = loader.get_state()
        expected = jax.device_get([next(loader), next(loader), next(loader)])
    with batches(source, 4, devices=1) as loader:
        loader.set_state(state)
        again = jax.device_get([next(loader), next(loader), next(loader)])
    jax.tree.map(np.testing.assert_array_equal, again, expected)


def test_kept_sounds_take_no_more_than_their_lengths(root, tmp_path):
    source = iterators.AudioFolder(root)
    options = {
        # Some are resampled, with margins.
        "decode": {"audio": decode.Audio(rate=16_000, seconds=0.6, start=0)},
        "transform": None,
    }
    expected = by_record(batches(source, 4, devices=2, **options), epochs=2)
    taken = []
    for keep in ("device", "host", f"disk:{tmp_path}"):
        loader = batches(source, 4, devices=2, **options, keep=keep)
        same(by_record(loader, epochs=2), expected)
        taken.append(loader.stats["kept_bytes"])
    assert max(taken[1:]) < 0.8 * taken[0]


def test_bad_sounds_are_named(root, tmp_path):
    good = file_of(0)[1]
    for name, data in (("a.wav", good), ("b.wav", b""), ("c.flac", good[:3000]), ("d.mp3", good)):
        (tmp_path / name).write_bytes(data)
    loader = batches(iterators.AudioFolder(tmp_path), 4, devices=1, on_error="mask", shuffle=False)
    with loader:
        batch = next(loader)
        assert batch["valid"].tolist() == [True, False, False, True]
        assert np.isfinite(np.asarray(batch["audio"])).all() and not batch["audio"][1].any()
        assert batch["audio_length"].tolist()[1:3] == [0, 0]
        reasons = [bad["reason"] for bad in loader.stats["bad_records"]]
    assert "it is empty" in reasons[0] and "it is cut off" in reasons[1]


def test_tars_and_lists_give_what_the_folder_gives(root, tmp_path):
    folder = iterators.AudioFolder(root)
    with tarfile.open(tmp_path / "sounds.tar", "w") as tar:
        for index in range(COUNT):
            tar.add(folder.path(index), arcname=f"{index:03}.{folder.path(index).split('.')[-1]}")
    lines = [f"{folder.path(index)}\t{folder.labels[index]}" for index in range(COUNT)]
    (tmp_path / "list.tsv").write_text("\n".join(lines))
    shards = iterators.WebDataset(tmp_path / "sounds.tar", image=("wav", "flac", "ogg"))
    listed = iterators.FileList(tmp_path / "list.tsv", sep="\t")
    louder = augment.audio.Gain()  # draws, as CHAIN does, and compiles in no time
    expected = by_record(batches(folder, 4, devices=1, transform=louder))
    for source in (shards, listed):
        renamed = iterators.Renamed(source, {"image": "audio"})
        found = by_record(batches(renamed, 4, devices=1, transform=louder))
        for record, entries in found.items():
            np.testing.assert_array_equal(entries["audio"], expected[record]["audio"])


def test_a_renamed_source_is_its_source(root):
    source = iterators.AudioFolder(root)
    renamed = iterators.Renamed(source, {"label": "kind"})
    assert renamed.classes == source.classes and list(renamed.features) == ["kind"]
    assert list(renamed.read(np.array([1]))) == ["audio", "kind"]
    assert renamed.describe(3) == source.describe(3)
    with pytest.raises(ValueError, match="`names` must give different names"):
        iterators.Renamed(source, {"label": "audio"}).read(np.array([0]))


def test_what_int16_cannot_hold_warns_once(tmp_path):
    for number in range(8):
        kind = "wav24" if number == 5 else "wav16"
        (tmp_path / f"{number}.wav").write_bytes(encoded(kind, wave(number, 3000)))
    source = iterators.AudioFolder(tmp_path)
    audio = AUDIO.fit(_First(source), {})
    assert audio.exact
    reader = audio.open([], True)
    values = source.read(np.arange(8))["audio"]
    checked, _ = reader.check_rows(values, None)
    keys = np.arange(8, dtype=np.uint64)
    found = reader.decode_rows(values, checked, {}, np.ones(8, bool), keys)
    assert list(found.warnings) == [5] and found.valid.all()


class _First:
    """A column of which the first record alone is looked at."""

    name = "audio"

    def __init__(self, source):
        self.example = source.read(np.array([0]))["audio"]

    def sample(self, count):
        yield self.example


def test_an_audio_column_of_hugging_face(tmp_path):
    """Parquet with structs of bytes and path, as `datasets.Audio` writes it."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    files = [encoded("flac16", wave(number, 800)) for number in range(3)]
    column = [{"bytes": data, "path": f"{number}.flac"} for number, data in enumerate(files)]
    pq.write_table(
        pa.table({"audio": pa.array(column), "label": [0, 1, 0]}), tmp_path / "a.parquet"
    )
    table = iterators.Parquet(tmp_path / "a.parquet", image="audio")
    source = iterators.Renamed(table, {"image": "audio"})
    batch = source.read(np.array([2, 0]))
    assert [bytes(batch["audio"].view(row)) for row in range(2)] == [files[2], files[0]]
    audio = AUDIO.fit(_First(source), {})
    assert audio.exact and audio.rate == 16_000


def test_a_feature_for_another_rate_than_that_of_the_clips_is_refused(root):
    """It would take 200 Hz for 400 Hz, without a word."""
    source = iterators.AudioFolder(root)
    slow = {"audio": decode.Audio(rate=8000, seconds=0.1)}
    chosen = augment.OneOf([augment.audio.LowPass(), augment.audio.Gain()])
    for chain, name in ((CHAIN, "LogMel"), (augment.Compose([chosen]), "LowPass")):
        with pytest.raises(ValueError, match=f"`rate` of {name} must be .* 8000, got 16000: give"):
            batches(source, 8, decode=slow, transform=chain)
    right = augment.Compose([augment.audio.LogMel(n_mels=20, rate=8000)])
    with batches(source, 8, decode=slow, transform=right) as loader:
        assert next(loader)["audio"].shape == (8, 6, 20)
