"""The sound of a video beside its clip, aligned by time."""

import fractions
import io

import jax
import numpy as np
import pytest

pytest.importorskip("av")

import av

from jaxaug import decode, iterators

RATE, FPS, SECONDS = 16_000, 25, 6


def made(late=0.0, sound=True):
    """Return a video whose frames are gray 2 n, and whose sound rises from 0 to 0.9.

    Args:
      late: seconds of the first sample.
      sound: False for a video without.
    """
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as file:
        video = file.add_stream("mpeg4", rate=FPS)
        video.width, video.height, video.pix_fmt = 32, 32, "yuv420p"
        audio = file.add_stream("pcm_s16le", rate=RATE, layout="mono") if sound else None
        for number in range(FPS * SECONDS):
            frame = av.VideoFrame.from_ndarray(np.full((48, 32), number, np.uint8), "yuv420p")
            frame.pts = number
            file.mux(video.encode(frame))
            if audio is None:
                continue
            size = RATE // FPS
            first = number * size
            ramp = np.round((first + np.arange(size)) / (RATE * SECONDS) * 0.9 * 32768)
            chunk = av.AudioFrame.from_ndarray(ramp.astype(np.int16)[None], "s16", "mono")
            chunk.sample_rate, chunk.time_base = RATE, fractions.Fraction(1, RATE)
            chunk.pts = first + round(late * RATE)
            file.mux(audio.encode(chunk))
        for stream in filter(None, (video, audio)):
            file.mux(stream.encode(None))
    return buffer.getvalue()


def batch_of(files, video, audio, **options):
    source = iterators.Renamed(iterators.InMemory(files), {"image": "video"})
    mesh = jax.make_mesh((1,), ("batch",), devices=jax.devices()[:1])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    options = {"decode": {"video": video, "audio": audio}, "sharding": sharding, **options}
    with iterators.Loader(source, len(files), **options) as loader:
        return jax.device_get(next(loader)), loader.stats["bad_records"]


def test_the_sound_begins_with_the_clip():
    files = [made(), made(late=0.5)] * 4
    video = decode.Video(frames=4, stride=2, canvas=(32, 32))
    audio = decode.Audio(of="video", seconds=0.4, rate=RATE)
    batch, _ = batch_of(files, video, audio, seed=3)
    assert batch["audio"].shape == (8, 6400) and len(set(batch["video_time"][:, 0])) > 4
    for row, record in enumerate(batch["index"]):
        time = batch["video_time"][row, 0]
        assert abs(batch["audio_start"][row] - (time - 0.5 * (record % 2))) < 2 / RATE
        since = time - 0.5 * (record % 2) + np.arange(6400) / RATE
        expected = np.where(since < 0, 0, 0.9 * since / SECONDS)
        np.testing.assert_allclose(batch["audio"][row], expected, atol=0.9 * 0.002 / SECONDS)


def test_several_clips_and_another_rate():
    video = decode.Video(frames=2, stride=1, count=3, start="uniform", canvas=(32, 32))
    audio = decode.Audio(of="video", samples=800, rate=8000)
    batch, _ = batch_of([made()] * 2, video, audio)
    assert batch["audio"].shape == (2, 3, 800)
    since = batch["video_time"][0, :, 0, None] + np.arange(800) / 8000
    np.testing.assert_allclose(batch["audio"][0], 0.9 * since / SECONDS, atol=2e-3)


class Parts:
    """Parts of one video, of some frames each."""

    def __init__(self, data, start, end, unit):
        self.data = data
        self.span = decode.Span(np.array(start, float), np.array(end, float), unit)

    def __len__(self):
        return len(self.span.start)

    def read(self, indices):
        encoded = decode.Encoded.from_bytes([self.data] * len(indices))
        return {"video": encoded._replace(span=self.span.take(np.asarray(indices)))}

    def describe(self, index):
        return {"record": index}

    def fingerprint(self):
        return "parts"


@pytest.mark.parametrize("unit", ["seconds", "frames"])
@pytest.mark.parametrize("late", [0.0, 0.5])
@pytest.mark.parametrize("count", [1, 2])
def test_the_sound_ends_with_the_part_of_its_video(unit, late, count):
    start, end = np.array([1.0, 2.0, 0.0, 5.0]), np.array([1.2, 4.0, 0.04, np.inf])
    scale = FPS if unit == "frames" else 1
    source = Parts(made(late), start * scale, end * scale, unit)
    video = decode.Video(frames=3, stride=2, start="uniform", count=count, canvas=(32, 32))
    audio = decode.Audio(of="video", seconds=1.5, rate=8000)
    mesh = jax.make_mesh((1,), ("batch",), devices=jax.devices()[:1])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    columns = {"video": video, "audio": audio}
    with iterators.Loader(source, 4, decode=columns, shuffle=False, sharding=sharding) as loader:
        batch = jax.device_get(next(loader))

    times = batch["video_time"].reshape(4, count, 3)[:, :, 0]
    last = np.minimum(end, SECONDS + late)[:, None]
    expected = np.clip(last - times, 0, 1.5) * 8000
    lengths = batch["audio_length"].reshape(4, count)
    np.testing.assert_allclose(lengths, expected, atol=2)
    sounds = batch["audio"].reshape(4, count, -1)
    for sound, length in zip(sounds.reshape(4 * count, -1), lengths.ravel()):
        assert not sound[length:].any()


def test_a_video_without_sound_is_named():
    video = decode.Video(frames=2, canvas=(32, 32))
    audio = decode.Audio(of="video", seconds=0.1)
    with pytest.warns(UserWarning, match="could not be decoded"):
        batch, bad = batch_of(
            [made(), made(sound=False)], video, audio, on_error="mask", max_bad=1.0, shuffle=False
        )
    assert batch["valid"].tolist() == [True, False]
    assert "it has no sound that can be decoded" in bad[0]["reason"]


def test_wrong_arguments():
    video = decode.Video(frames=2, canvas=(32, 32))
    with pytest.raises(ValueError, match="`seconds` must be given with `of`='video'"):
        batch_of([made()], video, decode.Audio(of="video"))
    with pytest.raises(ValueError, match=r"`count` must be left out .* got 3: .*Video\(count=1"):
        batch_of([made()], video, decode.Audio(of="video", seconds=0.1, count=3))
    with pytest.raises(ValueError, match=r"`start` must be left out .* got 0: .*Video\(start="):
        decode.Audio(of="video", seconds=0.1, start=0)
    assert decode.Audio().draws and not decode.Audio(start=0).draws
