"""Manifests of NeMo and Lhotse: parts and channels of files, and texts."""

import gzip
import json
import math
import tracemalloc

import jax
import numpy as np
import pytest

pytest.importorskip("soundfile")

from jaxaug import decode, iterators
from jaxaug.errors import SourceError
from tests.decode.audio.sounds import decoded, encoded, wave

RATE = 16_000


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    for name, seconds, channels in (("a", 4, 1), ("b", 2, 2)):
        data = encoded("wav16", wave(ord(name), seconds * RATE, channels))
        (folder / f"{name}.wav").write_bytes(data)
    return folder


def written(folder, lines, name="list.jsonl", opener=open):
    path = folder / name
    with opener(path, "wt") as file:
        file.write("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def recording(name, seconds=4.0, channels=(0,), **more):
    source = {"type": "file", "channels": list(channels), "source": f"{name}.wav"}
    facts = {"sampling_rate": RATE, "num_samples": int(seconds * RATE), "duration": seconds}
    return {"id": name, "sources": [source], **facts, **more}


def cut(name, start, duration, channel=0, kind="MonoCut", supervisions=(), **more):
    parts = {"start": start, "duration": duration, "channel": channel}
    whole = {"id": f"{name}-{start}", "type": kind, "supervisions": list(supervisions)}
    return {**whole, **parts, "recording": recording(name, **more)}


def clips(source, seconds=1.0, **options):
    """Return the batch of a source, in its order, as numpy."""
    mesh = jax.make_mesh((1,), ("batch",), devices=jax.devices()[:1])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    audio = decode.Audio(seconds=seconds, start=0)
    options = {"decode": {"audio": audio}, "shuffle": False, "sharding": sharding, **options}
    with iterators.Loader(source, len(source), **options) as loader:
        return jax.device_get(next(loader)), loader.stats["bad_records"]


def test_nemo(root):
    lines = [
        {"audio_filepath": "a.wav", "duration": 4.0, "text": "all"},
        {"audio_filepath": "a.wav", "offset": 1.25, "duration": 0.5, "text": "part"},
        "",
        {"audio_filepath": str(root / "b.wav"), "offset": 1.5, "text": "end"},
        {"audio_filepath": "a.wav", "offset": 3.3, "duration": 0.7},  # (3.3 + 0.7) - 3.3 > 0.7
    ]
    source = iterators.Manifest(written(root, lines))
    assert source.durations.tolist() == [4.0, 0.5, np.inf, 0.7]
    assert source.texts([2, 0], ["text"]) == {"text": ["end", "all"]}
    assert source.describe(1)["span"] == "1.25 to 1.75 seconds"
    batch, _ = clips(source)
    a = decoded((root / "a.wav").read_bytes())[:, 0]
    b = decoded((root / "b.wav").read_bytes()).mean(axis=1)
    np.testing.assert_array_equal(batch["audio"][0], a[:RATE])
    part = a[RATE * 5 // 4 : RATE * 7 // 4]
    np.testing.assert_array_equal(batch["audio"][1], np.pad(part, (0, RATE // 2)))
    np.testing.assert_allclose(batch["audio"][2][: RATE // 2], b[RATE * 3 // 2 :], atol=1e-7)
    assert batch["audio_length"].tolist() == [RATE, RATE // 2, RATE // 2, RATE * 7 // 10]
    assert batch["audio_start"][:3].tolist() == [0.0, 1.25, 1.5]


def test_random_clips_stay_in_their_part(root):
    line = {"audio_filepath": "a.wav", "offset": 1.0, "duration": 1.5}
    source = iterators.Manifest(written(root, [line] * 64, "many.jsonl"))
    audio = decode.Audio(seconds=0.5, num_threads=1)
    with iterators.Loader(source, 64, decode={"audio": audio}, seed=1) as loader:
        starts = np.asarray(next(loader)["audio_start"])
    assert 1.0 <= starts.min() < 1.2 and 1.8 < starts.max() <= 2.0


def test_cuts_of_lhotse_and_channels_of_a_telephone(root):
    said = [
        {"id": "s2", "start": 0.6, "duration": 0.2, "text": "there", "speaker": "y"},
        {"id": "s1", "start": 0.1, "duration": 0.2, "text": "hello", "speaker": "x"},
    ]
    lines = [
        cut("a", 2.0, 1.0, supervisions=said),
        cut("b", 0.5, 1.0, channel=1, seconds=2.0, channels=(0, 1)),
        cut("b", 0.5, 1.0, channel=[0, 1], kind="MultiCut", seconds=2.0, channels=(0, 1)),
    ]
    source = iterators.Manifest(written(root, lines, "cuts.jsonl.gz", gzip.open))
    assert source.texts([0], ["text", "speaker", "id"]) == {
        "text": ["hello there"],
        "speaker": ["x"],
        "id": ["a-2.0"],
    }
    batch, _ = clips(source)
    a = decoded((root / "a.wav").read_bytes())[2 * RATE : 3 * RATE, 0]
    b = decoded((root / "b.wav").read_bytes())[RATE // 2 : 3 * RATE // 2]
    np.testing.assert_array_equal(batch["audio"][0], a)
    np.testing.assert_array_equal(batch["audio"][1], b[:, 1])
    np.testing.assert_allclose(batch["audio"][2], b.mean(axis=1), atol=1e-7)


def test_supervisions_and_recordings(root):
    recordings = written(root, [recording("a"), recording("b", 2.0, (0, 1))], "recordings.jsonl")
    lines = [
        {"id": "1", "recording_id": "a", "start": 1.0, "duration": 2.0, "channel": 0, "text": "no"},
        {"id": "2", "recording_id": "b", "start": 0.5, "duration": 0.5, "channel": 1, "text": "on"},
    ]
    path = written(root, lines, "supervisions.jsonl")
    source = iterators.Manifest(path, recordings=recordings, label="text")
    assert source.classes == ("no", "on") and source.labels.tolist() == [0, 1]
    assert source.durations.tolist() == [2.0, 0.5]
    assert iterators.Manifest(recordings).durations.tolist() == [4.0, 2.0]
    assert iterators.Manifest(recordings).fingerprint() != source.fingerprint()
    with pytest.raises(SourceError, match=r"recording 'a', which is not known: give Manifest\("):
        iterators.Manifest(path)


WRONG = {
    "MixedCut": ({"type": "MixedCut", "tracks": []}, "got MixedCut"),
    "PaddingCut": ({"type": "PaddingCut"}, "got PaddingCut"),
    "features": ({"type": "MonoCut", "features": {}}, "the cut has no recording"),
    "shar": (
        {"type": "MonoCut", "recording": {"sources": [{"type": "shar", "source": ""}]}},
        r"must be one file, got sources \['shar'\]",
    ),
    "transforms": (
        {**cut("a", 0, 1), "recording": recording("a", transforms=[{"name": "Speed"}])},
        "changed on the fly",
    ),
    "channels": (
        cut("a", 0, 1, channel=[0, 2], kind="MultiCut", channels=(0, 1, 2)),
        r"one channel of its file or all of \[0, 1, 2\], got \[0, 2\]",
    ),
    "json": ("{", "each line must be a JSON object"),
    "array": ("[]", "each line must be a JSON object, got list"),
    "offset": ({"audio_filepath": "a.wav", "offset": -1}, "'offset' must be seconds of at least 0"),
    "duration": ({"audio_filepath": "a.wav", "duration": 0}, "'duration' must be above 0"),
    "infinite": ({"audio_filepath": "a.wav", "offset": math.inf}, "'offset' must be seconds"),
    "endless": ({"audio_filepath": "a.wav", "duration": math.inf}, "'duration' must be seconds"),
    "nul": ({"audio_filepath": "a\0.wav"}, "a path must have no byte of 0"),
    "url": ({"audio_filepath": "s3://b/a.wav"}, "'s3://b/a.wav' must be a path on this machine"),
    "paths": ({"audio_filepath": ["a", "b"]}, "must be one path"),
    "tarred": ({"audio_filepath": "a", "shard_id": 3}, "member of shard 3: read the tars"),
    "sources": (recording("a", sources={"type": "file"}), "are not as NeMo or Lhotse write them"),
    "source": (recording("a", sources=[{"type": "file", "source": None}]), "are not as"),
    "supervisions": (cut("a", 0, 1, supervisions=["text"]), "are not as"),
    "seconds": ({"audio_filepath": "a.wav", "offset": 10**400}, "are not as"),
    "unknown": ({"wav": "a.wav"}, r"got an object with \['wav'\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_line_is_named(root, name):
    line, message = WRONG[name]
    path = written(root, [{"audio_filepath": "a.wav"}, line], f"wrong-{name}.jsonl")
    with pytest.raises(SourceError, match=f"line 2: .*{message}"):
        iterators.Manifest(path)


def test_parts_that_are_not_there_are_bad_records(root):
    lines = [
        {"audio_filepath": "a.wav", "offset": 0.0, "duration": 4.05},  # rounded
        {"audio_filepath": "a.wav", "offset": 3.0, "duration": 2.0},
        {"audio_filepath": "a.wav", "offset": 9.0},
        cut("a", 0.0, 1.0, channel=1, channels=(0, 1)),
    ]
    source = iterators.Manifest(written(root, lines, "ends.jsonl"))
    with pytest.warns(UserWarning, match="could not be decoded"):
        batch, bad = clips(source, on_error="mask", max_bad=1.0)
    assert batch["valid"].tolist() == [True, False, False, False]
    reasons = " ".join(each["reason"] for each in bad)
    assert "it ends after 4 seconds, before the part 3 to 5 seconds" in reasons
    assert "it has 1 channels, none of number 1" in reasons


def test_long_files_are_mapped(tmp_path):
    seconds = 300
    samples = wave(1, seconds * RATE)
    path = tmp_path / "long.wav"
    path.write_bytes(encoded("wav16", samples))
    lines = [{"audio_filepath": "long.wav", "offset": 2.0 * k, "duration": 1.0} for k in range(8)]
    source = iterators.Manifest(written(tmp_path, lines))
    tracemalloc.start()
    try:
        files = source.read(np.arange(8))["audio"]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1_000_000 and (files.lengths == path.stat().st_size).all()
    batch, _ = clips(source)
    whole = decoded(path.read_bytes())[:, 0]
    for k in range(8):
        np.testing.assert_array_equal(batch["audio"][k], whole[2 * k * RATE :][:RATE])
