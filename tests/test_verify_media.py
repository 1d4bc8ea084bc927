"""The command `verify` on videos and sounds, and what Loaders make of its findings."""

import io
import re
import sys
import tracemalloc
from typing import Any

import av
import numpy as np
import pytest
from av.error import FFmpegError

from jaxaug import Loader, _verify
from jaxaug.__main__ import main
from jaxaug._verify import find_fault, verify
from jaxaug.decode import Audio, Encoded, Video
from jaxaug.decode.audio import decode_audio
from jaxaug.decode.video.stream import VideoFile
from jaxaug.errors import DecodeError
from jaxaug.iterators import AudioFolder, FileList, ImageFolder, Renamed, VideoFolder, WebDataset
from tests.decode.audio.sounds import SUBTYPES, decoded, encoded, wave
from tests.decode.samples import JPEGS
from tests.images import encode
from tests.iterators.loaders import one_device
from tests.iterators.sources import containers
from tests.pieces import killed_behind_a_piece
from tests.videos import CONTAINERS, KINDS, all_frames, kind

GOOD = {"video": kind("h264"), "audio": encoded("flac16", wave(1, 16_000))}
CLIP = {"video": Video(frames=2, stride=1, start=0), "audio": Audio(seconds=0.1, start=0.0)}
FOLDERS = {"video": (VideoFolder, "mp4"), "audio": (AudioFolder, "flac")}


def late_damage(data: bytes) -> bytes:
    """Return an MP4 of H.264 whose last packet but two begins with a length that cannot be."""
    with VideoFile(memoryview(data), 2**24) as video:
        place = int(video.table.offsets[-3])
    return data[:place] + b"\xff" * 8 + data[place + 8 :]


# A Loader takes clips of their first parts.
BAD = {"video": late_damage(GOOD["video"]), "audio": GOOD["audio"][:-2000]}
REASONS = {"video": "FFmpeg cannot decode it: ", "audio": "it is damaged: decoding ended at sample"}


def folder(root, medium, files):
    for number, file in enumerate(files):
        path = root / "abc"[number % 3] / f"{number:03d}.{FOLDERS[medium][1]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file)
    return root


def valid(source, medium, count, decode=None):
    options = {"shuffle": False, "on_error": "mask", "sharding": one_device(), "max_bad": None}
    decode = {medium: CLIP[medium]} if decode is None else decode
    with Loader(source, count, decode=decode, **options) as loader:
        batch = next(loader)
        reasons = [bad["reason"] for bad in loader.stats["bad_records"]]
        return np.asarray(batch["valid"]).tolist(), reasons


def test_the_damage_is_some():
    """By the libraries themselves."""
    assert len(all_frames(GOOD["video"])) == 30
    with pytest.raises(FFmpegError):
        all_frames(BAD["video"])
    assert len(decoded(GOOD["audio"])) == 16_000


@pytest.mark.parametrize("medium", FOLDERS)
def test_a_folder_keeps_it_until_a_file_changes(tmp_path, medium, capsys):
    make, extension = FOLDERS[medium]
    root = folder(tmp_path, medium, [GOOD[medium], BAD[medium], GOOD[medium], GOOD[medium][:40]])
    before, reasons = valid(make(root), medium, 4)
    assert before == [True, False, True, True] and REASONS[medium] not in reasons[0]

    assert main(["verify", str(root), "--processes", "2"]) == 1
    said = capsys.readouterr().out
    assert f"001.{extension}  {REASONS[medium]}" in said and "2 of 4 records" in said
    if medium == "video":  # of an index, too, by which parts of files are read
        assert main(["index", str(root)]) == 0
    after, reasons = valid(make(root), medium, 4)
    assert after == [True, False, False, True]
    assert any(reason.startswith(REASONS[medium]) for reason in reasons)

    (root / "b" / f"001.{extension}").write_bytes(GOOD[medium])
    assert valid(make(root), medium, 4)[0] == [True, False, True, True]


@pytest.mark.parametrize(
    "medium, option", [("video", "image"), ("video", "video"), ("audio", "image")]
)
def test_a_tar_keeps_it_in_its_index(tmp_path, medium, option):
    extension = FOLDERS[medium][1]
    files = {}
    for number in range(3):
        files |= {f"{number}.{extension}": GOOD[medium], f"{number}.json": b'{"label": 1}'}
    tar = tmp_path / "a.tar"
    tar.write_bytes(containers.tar(files | {f"1.{extension}": BAD[medium]}))
    source = Renamed(WebDataset(tar, **{option: extension}), {option: medium})
    assert valid(source, medium, 3)[0] == [True] * 3

    assert main(["verify", str(tar), f"--{option}", extension, "--processes", "1"]) == 1
    source = Renamed(WebDataset(tar, **{option: extension}), {option: medium})
    flags, reasons = valid(source, medium, 3)
    assert flags == [True, False, True]
    assert reasons[0].startswith(REASONS[medium])


def test_images_videos_and_sounds_of_one_folder(tmp_path, capsys):
    jpeg = JPEGS["4:2:0"]
    for number, (medium, (_, extension)) in enumerate(FOLDERS.items()):
        (tmp_path / medium).mkdir()
        (tmp_path / medium / f"good.{extension}").write_bytes(GOOD[medium])
        (tmp_path / medium / f"bad.{extension}").write_bytes(BAD[medium])
        (tmp_path / f"{number}.jpg").write_bytes(jpeg[: 300 if number else None])
    assert main(["verify", str(tmp_path), "--processes", "1"]) == 1
    said = capsys.readouterr().out
    assert said.count("1 of 2 records are bad") == 3
    for medium, (make, _) in FOLDERS.items():
        classes = [".", "audio", "video"]
        assert valid(make(tmp_path, classes), medium, 2)[0] == [False, True]
    assert ImageFolder(tmp_path, classes=["."]).describe(1)["error"]


@pytest.mark.parametrize("medium", FOLDERS)
def test_a_run_that_was_killed_goes_on(tmp_path, medium):
    make, _ = FOLDERS[medium]
    root = folder(tmp_path, medium, [GOOD[medium], BAD[medium]] * 3)
    with killed_behind_a_piece(_verify):
        verify(make(root), 1)
    result = verify(make(root), 2)
    assert result.checked == 2 and len(result.findings) == 3


def test_statistics_say_that_they_are_of_images(tmp_path, capsys):
    root = folder(tmp_path, "video", [GOOD["video"]])
    assert main(["statistics", str(root)]) == 1
    assert "there are videos, which VideoFolder reads" in capsys.readouterr().err
    (tmp_path / "list.txt").write_text("a/000.mp4 1\n")
    assert main(["statistics", str(tmp_path / "list.txt"), "--processes", "1"]) == 1
    assert (
        "no image could be read, as which videos and sounds do not count" in capsys.readouterr().err
    )


def test_all_records_of_a_bad_file_are_bad(tmp_path):
    """Of a list, which may name parts of one."""
    (tmp_path / "good.mp4").write_bytes(GOOD["video"])
    (tmp_path / "bad.mp4").write_bytes(BAD["video"])
    listed = tmp_path / "list.txt"
    listed.write_text("bad.mp4 1 0 10\ngood.mp4 0 0 10\nbad.mp4 2 5 15\n")
    assert main(["verify", str(listed), "--processes", "1"]) == 1
    source = FileList(listed, column="video", spans="frames")
    assert valid(source, "video", 3)[0] == [False, True, False]


@pytest.mark.parametrize("name", [*KINDS, *CONTAINERS])
def test_whole_videos_have_no_fault(name):
    data = Encoded.from_bytes([kind(name)])
    assert find_fault(data, "video") == find_fault(data, "image") == ""


@pytest.mark.parametrize("name", SUBTYPES)
def test_whole_sounds_have_no_fault(name, monkeypatch):
    data = Encoded.from_bytes([encoded(name, wave(2, 48_000, channels=2, rate=48_000), 48_000)])
    assert find_fault(data, "audio") == find_fault(data, "image") == ""
    monkeypatch.setattr(decode_audio, "_CHECKED_SAMPLES", 20_000)
    assert find_fault(data, "audio") == ""  # in five parts


def test_every_part_of_a_sound_is_decoded(monkeypatch):
    monkeypatch.setattr(decode_audio, "_CHECKED_SAMPLES", 3_000)
    assert find_fault(Encoded.from_bytes([BAD["audio"]]), "audio").startswith(REASONS["audio"])


def sound(container: str, codec: str) -> bytes:
    """Return a sound that FFmpeg has written."""
    file = io.BytesIO()
    with av.open(file, "w", container) as output:
        stream: Any = output.add_stream(codec, 48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(wave(1, 48_000).T.astype(np.float32), "fltp", "mono")
        frame.sample_rate = 48_000
        for part in (frame, None):
            output.mux(stream.encode(part))
    return file.getvalue()


@pytest.mark.parametrize("container, codec", [("mp4", "aac"), ("matroska", "aac"), ("adts", "aac")])
def test_sounds_in_containers_of_videos_are_sounds(container, codec):
    record = Encoded.from_bytes([sound(container, codec)])
    assert find_fault(record) == find_fault(record, "audio") == ""
    assert "no video" in find_fault(record, "video")


@pytest.mark.parametrize("container", ["mp4", "matroska", "adts"])
def test_sounds_that_ffmpeg_reads_are_judged_as_they_are_decoded(container):
    data = sound(container, "aac")
    generator = np.random.default_rng(3)
    faults = 0
    for _ in range(40):
        damaged = containers.mutate(data, generator)
        fault = find_fault(Encoded.from_bytes([damaged]), "audio")
        try:
            decode_audio.decode_audio(damaged)
            assert not fault
        except DecodeError as error:
            assert fault == error.reason
            faults += 1
    assert 0 < faults < 40


@pytest.mark.parametrize("format_", ["AVIF", "PNG", "TIFF"])
def test_images_are_no_videos(format_):
    assert find_fault(Encoded.from_bytes([encode(np.zeros((16, 16, 3), np.uint8), format_)])) == ""


def test_a_header_that_tells_too_much_takes_no_memory():
    """Of FLAC: 36 bits of STREAMINFO, at bit 4 of byte 21."""
    data = bytearray(GOOD["audio"])
    data[21:26] = bytes([data[21] | 15]) + b"\xff" * 4
    tracemalloc.start()
    fault = find_fault(Encoded.from_bytes([bytes(data)]), "audio")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fault == f"it is damaged: decoding ended at sample 16000 of {2**36 - 1}"
    assert peak < 2**27


@pytest.mark.parametrize("command", ["verify", "preview"])
def test_an_empty_folder_is_said_to_have_none_of_all_media(tmp_path, capsys, command):
    assert main([command, str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "no images, videos or sounds below" in said
    assert all(name in said for name in (".jpg", ".mp4", ".wav"))


@pytest.mark.parametrize("command", ["verify", "index"])
def test_a_missing_library_is_told_in_one_line(tmp_path, monkeypatch, capsys, command):
    root = folder(tmp_path / "data", "video", [GOOD["video"]])
    (tmp_path / "av.py").write_text("raise ModuleNotFoundError('No module named av', name='av')")
    monkeypatch.syspath_prepend(tmp_path)  # of the processes that decode, too
    monkeypatch.delitem(sys.modules, "av")
    assert main([command, str(root)]) == 1
    assert re.fullmatch(r"jaxaug: videos need av: pip install .*\n", capsys.readouterr().err)
