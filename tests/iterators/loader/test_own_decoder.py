"""A medium that jaxaug does not know, through the Loader: what its decoder may rely on."""

import dataclasses
import threading
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import Loader, decode
from jaxaug.errors import DecodeError
from tests.iterators.loaders import by_index, one_device

LENGTH = 12


def wave(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(-(2**15), 2**15, rng.integers(3, LENGTH), np.int16)


@dataclasses.dataclass(frozen=True)
class Wave(decode.ColumnDecoder):
    """Samples of 16 bits; an odd number of bytes is damage that the bytes tell before."""

    length: int | None = None
    calls: Counter = dataclasses.field(default_factory=Counter, compare=False)

    def fit(self, column, siblings):
        longest = max(int(values.lengths.max()) for values in column.sample(1000)) // 2
        return dataclasses.replace(self, length=longest)

    def forms(self):
        return {"samples": jax.ShapeDtypeStruct((self.length,), np.int16)}

    def open(self, devices, deterministic):
        self.calls["open"] += 1
        return self

    def check_rows(self, values, stored):
        self.calls["check"] += 1
        odd = np.flatnonzero(values.lengths % 2 == 1)
        return None, {row: "an odd number of bytes" for row in odd.tolist()}

    def decode_rows(self, values, checked, siblings, wanted, keys):
        self.calls["decode"] += 1
        samples = np.zeros((len(wanted), self.length), np.int16)
        failures = {}
        for row in np.flatnonzero(wanted).tolist():
            data = np.frombuffer(values.view(row), np.uint8)
            if data.size % 2 or data.size == 0:
                failures[row] = "an odd number of bytes" if data.size else "empty"
                continue
            samples[row, : data.size // 2] = data.view(np.int16)
        valid = wanted.copy()
        valid[list(failures)] = False
        return decode.Decoded(
            {"samples": samples},
            valid,
            failures,
            release=lambda readers: self.calls.update(["release"]),
        )

    def close(self):
        self.calls["close"] += 1


@dataclasses.dataclass(frozen=True)
class Peak(decode.ColumnDecoder):
    """A number beside a wave, in units of its first sample."""

    of: str = "wave"

    def forms(self):
        return {"peak": jax.ShapeDtypeStruct((), np.float32)}

    def decode_rows(self, values, checked, siblings, wanted, keys):
        first = siblings[self.of].arrays["samples"][:, 0]
        return decode.Decoded({"peak": values - first.astype(np.float32)}, wanted, {})

    def place(self, name, row, siblings, valid):
        return {name: row["peak"] + siblings[self.of]["samples"][0].astype(jnp.float32)}


class Waves:
    def __init__(self, count, broken=()):
        self.files = [wave(seed).tobytes() for seed in range(count)]
        for index in broken:
            self.files[index] = b"odd"

    def __len__(self):
        return len(self.files)

    def read(self, indices):
        chosen = [self.files[index] for index in indices]
        peaks = indices.astype(np.float32)
        return {"wave": decode.Encoded.from_bytes(chosen), "peak": peaks, "label": indices}

    def describe(self, index):
        return {"record": index, "path": f"{index}.pcm"}

    def fingerprint(self):
        return "waves"


def expected(index: int) -> np.ndarray:
    samples = np.zeros(11, np.int16)
    found = wave(index)
    samples[: len(found)] = found
    return samples


def test_a_column_is_decoded_placed_and_given_back():
    decoder = Wave()
    with Loader(
        Waves(10),
        4,
        shuffle=False,
        last_batch="pad",
        epochs=1,
        sharding=one_device(),
        decode={"wave": decoder, "peak": Peak()},
    ) as loader:
        batches = list(loader)
    rows = [row for batch in batches for row in np.asarray(batch["wave"])]
    for index in range(10):
        np.testing.assert_array_equal(rows[index], expected(index))
    assert not any(row.any() for row in rows[10:])
    assert np.concatenate([batch["peak"] for batch in batches])[:10].tolist() == list(range(10))
    assert decoder.calls == {"open": 1, "check": 3, "decode": 3, "release": 3, "close": 1}


@dataclasses.dataclass(frozen=True)
class SlowWave(Wave):
    """One that takes as long to open as the transform takes to be traced."""

    traced: threading.Event = dataclasses.field(default_factory=threading.Event, compare=False)
    error: Exception | None = None

    def open(self, devices, deterministic):
        assert self.traced.wait(60)
        if self.error is not None:
            raise self.error
        return super().open(devices, deterministic)


@pytest.mark.parametrize("fails", ["nothing", "open", "transform", "both"])
def test_decoders_open_while_the_transform_is_compiled(fails):
    decoder = SlowWave(error=OSError("no engines") if fails in ("open", "both") else None)

    def transform(key, sample):
        decoder.traced.set()
        if fails in ("transform", "both"):
            raise ZeroDivisionError("of the transform")
        return sample

    options = {"sharding": one_device(), "decode": {"wave": decoder}, "transform": transform}
    if fails == "nothing":
        with Loader(Waves(4), 4, **options) as loader:
            assert sorted(next(loader)["index"].tolist()) == [0, 1, 2, 3]
    else:
        error = OSError if fails == "open" else ZeroDivisionError
        with pytest.raises(error, match=r"no engines|of the transform"):
            Loader(Waves(4), 4, **options)
    opened = int(fails in ("nothing", "transform"))
    assert (decoder.calls["open"], decoder.calls["close"]) == (opened, opened)


@pytest.mark.parametrize("on_error", ["raise", "mask", "replace"])
def test_bad_records_are_treated_as_those_of_images(on_error):
    decoder = Wave()
    options = {"shuffle": False, "sharding": one_device(), "on_error": on_error, "epochs": 1}
    with Loader(Waves(8, broken=[2]), 4, decode={"wave": decoder}, **options) as loader:
        if on_error == "raise":
            with pytest.raises(DecodeError, match=r"record 2 \(2.pcm, 3 bytes\): an odd number"):
                next(loader)
            return
        batch = next(loader)
        if on_error == "replace":
            assert batch["index"].tolist() == [0, 1, 3, 3]
            np.testing.assert_array_equal(batch["wave"][2], expected(3))
        else:
            assert batch["valid"].tolist() == [True, True, False, True]
            assert not np.asarray(batch["wave"][2]).any() and batch["label"][2] == -1
        assert loader.stats["bad_records"][0]["reason"] == "an odd number of bytes"
        next(loader)
    # what the bytes tell is replaced before anything is decoded
    assert decoder.calls["decode"] == decoder.calls["release"] == 2


def test_the_same_records_on_any_batch_size_and_number_of_devices():
    def transform(key, sample):
        noise = jax.random.uniform(key, (), jnp.float32)
        return {"image": sample["wave"].astype(jnp.float32) * noise}

    seen = []
    for batch_size, sharding in ((4, one_device()), (8, None)):
        with Loader(
            Waves(16), batch_size, transform=transform, decode={"wave": Wave()}, sharding=sharding
        ) as loader:
            seen.append(by_index(loader, 32 // batch_size))
    assert seen[0] == seen[1]


def test_an_encoded_column_without_a_decoder_is_named():
    with pytest.raises(
        ValueError, match=r"`decode` must say how column 'wave' is decoded.* Mask\(\)"
    ):
        Loader(Waves(4), 4, sharding=one_device())


def test_a_source_declares_its_decoders_and_the_loader_overrules_them():
    source = Waves(4)
    source.decoders = {"wave": Wave()}
    with Loader(source, 4, shuffle=False, sharding=one_device()) as loader:
        np.testing.assert_array_equal(next(loader)["wave"][1], expected(1)[:10])
    with pytest.raises(TypeError, match="`decode` must be a decoder"):
        Loader(source, 4, decode={"wave": 3}, sharding=one_device())
    with pytest.raises(
        ValueError, match=r"columns of the source, .* got \['sound'\]: .*{'wave': 'sound'}.*texts"
    ):
        Loader(source, 4, decode={"sound": Wave()}, sharding=one_device())
    with pytest.raises(ValueError, match="column 'peak' follows column 'image', which has no"):
        Loader(source, 4, decode={"peak": Peak(of="image")}, sharding=one_device())
