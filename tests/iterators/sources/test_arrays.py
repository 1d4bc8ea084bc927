"""`iterators.Arrays`: rows of arrays of any library, and files beside them."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import decode, iterators
from jaxaug.decode.volume import stored as stored_volumes
from jaxaug.errors import DecodeError, SourceError
from tests.iterators.loaders import one_device

RNG = np.random.default_rng(0)
VALUES = RNG.integers(0, 60_000, (20, 3, 4, 13)).astype(np.uint16)
LABELS = np.arange(20, dtype=np.int32)


def stored(kind, folder):
    if kind == "memory":
        return VALUES
    if kind == "memmap":
        np.save(folder / "a.npy", VALUES)
        return np.load(folder / "a.npy", mmap_mode="r")
    if kind == "npz":
        np.savez(folder / "a.npz", x=VALUES)
        return np.load(folder / "a.npz")["x"]
    if kind == "h5py":
        file = pytest.importorskip("h5py").File(folder / "a.h5", "w")
        return file.create_dataset("x", data=VALUES, chunks=(2, 3, 4, 13))
    array = pytest.importorskip("zarr").create_array(
        folder / "a.zarr", shape=VALUES.shape, chunks=(3, 3, 4, 13), dtype=VALUES.dtype
    )
    array[...] = VALUES
    return array


@pytest.mark.parametrize("kind", ["memory", "memmap", "npz", "h5py", "zarr"])
def test_rows_are_those_of_the_array(kind, tmp_path):
    source = iterators.Arrays({"image": stored(kind, tmp_path), "label": LABELS})
    for indices in ([3], [7, 2, 19, 2], [5, 6, 7], [7, 6, 5]):
        found = source.read(np.array(indices))
        np.testing.assert_array_equal(found["image"], VALUES[indices])
        np.testing.assert_array_equal(found["label"], indices)
    size = jax.device_count()
    with iterators.Loader(source, size, seed=1, epochs=1) as loader:
        for batch in loader:
            batch = jax.device_get(batch)
            np.testing.assert_array_equal(batch["image"], VALUES[batch["index"]])
            np.testing.assert_array_equal(batch["label"], batch["index"])


@pytest.mark.parametrize("kind", ["memory", "h5py", "zarr"])
def test_no_row_is_an_array_too(kind, tmp_path):
    found = iterators.Arrays({"x": stored(kind, tmp_path)}).read(np.zeros(0, np.int64))["x"]
    assert found.shape == (0, *VALUES.shape[1:]) and found.dtype == VALUES.dtype


def test_a_copy_in_another_process_may_open_its_folders(tmp_path, monkeypatch):
    stored("zarr", tmp_path)
    data = pickle.dumps(iterators.Arrays({"volume": [tmp_path / "a.zarr"]}))
    monkeypatch.setattr(stored_volumes, "_folders", set())  # as that process begins
    values = pickle.loads(data).read(np.zeros(1, np.int64))["volume"]
    assert stored_volumes.open_volume(values.view(0), True).shape == VALUES.shape


def test_other_numbers_have_another_fingerprint():
    other = VALUES.copy()
    other[19, 2, 3, 12] ^= 1
    prints = {iterators.Arrays({"x": each}).fingerprint() for each in (VALUES, VALUES.copy())}
    assert len(prints) == 1
    for columns in ({"x": other}, {"y": VALUES}, {"x": VALUES[:19]}):
        assert iterators.Arrays(columns).fingerprint() not in prints


def test_wrong_columns_are_told():
    with pytest.raises(TypeError, match="`columns` must be a dict"):
        iterators.Arrays(VALUES)  # pyright: ignore
    with pytest.raises(ValueError, match="one row for each record"):
        iterators.Arrays({"x": VALUES, "label": LABELS[:3]})
    with pytest.raises(SourceError, match="at least one record"):
        iterators.Arrays({"x": VALUES[:0]})
    with pytest.raises(TypeError, match="must be numbers"):
        iterators.Arrays({"x": np.array(["a", "b"])})


def test_bfloat16_is_a_number():
    embeddings = (VALUES[:, 0, 0] / 512).astype(jnp.bfloat16)
    source = iterators.Arrays({"embedding": embeddings})
    with iterators.Loader(source, 20, shuffle=False, sharding=one_device()) as loader:
        found = next(loader)["embedding"]
    assert found.dtype == jnp.bfloat16
    assert (np.asarray(found) == embeddings).all()


def test_files_that_are_missing_are_described(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    source = iterators.Arrays({"volume": [tmp_path / "a", tmp_path / "b"], "label": LABELS[:2]})
    found = source.read(np.array([1, 0]))
    assert found["volume"].lengths.tolist() == [0, 3]
    assert source.describe(0) == {"record": 0, "path": str(tmp_path / "a")}
    reason = "cannot be read: No such file or directory"
    assert source.describe(1) == {"record": 1, "path": str(tmp_path / "b"), "error": reason}


def test_errors_name_the_file_of_the_column_that_has_it(tmp_path):
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.zeros((2, 3, 4), np.int16))
    volumes = [tmp_path / "a.npy", tmp_path / "b.npy"]
    labels = [tmp_path / "a.npy", tmp_path / "c.npy"]
    source = iterators.Arrays({"volume": volumes, "labels": labels})
    decoders = {"volume": decode.Volume(), "labels": decode.Volume(of="volume")}
    options = {"shuffle": False, "sharding": one_device(), "decode": decoders}
    words = r"record 1 \(.*b.npy, .*c.npy, 0 bytes\): its labels cannot be read: No such file"
    with iterators.Loader(source, 2, **options) as loader, pytest.raises(DecodeError, match=words):
        next(loader)
    missing = iterators.Arrays({"volume": labels[1:], "labels": labels[1:]})
    words = r"a volume that can be read .* record 0 \(.*c.npy.*\): cannot be read: No such file"
    with pytest.raises(ValueError, match=words):
        iterators.Loader(missing, 1, **options)
