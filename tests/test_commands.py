"""The commands `index` and `pack`."""

import gc
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time

import jax
import numpy as np
import pytest

from jaxaug.__main__ import _sigterm_raises, _Terminated, main
from jaxaug._demo.sheet import Row, contact_sheet
from jaxaug._pack import pack_files
from jaxaug._statistics import Statistics, write
from jaxaug._verify import write_list
from jaxaug.decode import Image
from jaxaug.iterators import ImageFolder, Loader, WebDataset
from jaxaug.iterators.sources.storage.byte_progress import byte_progress
from jaxaug.sharding import batch_sharding
from tests.iterators.sources import containers


def test_index_tells_the_format_by_content_and_names_features(tmp_path, capsys):
    records = [containers.example({"image": image, "class": 7}) for image in containers.jpegs(3)]
    (tmp_path / "a.bin").write_bytes(containers.tfrecord(records))
    assert main(["index", str(tmp_path / "*.bin"), "--image", "image", "--label", "class"]) == 0
    assert "TFRecord(3 images in 1 files, ['label'])" in capsys.readouterr().out
    assert main(["index", str(tmp_path / "a.bin"), "--image", "image", "--label", ""]) == 0
    assert "['class']" in capsys.readouterr().out
    assert len(list(tmp_path.glob("*.index"))) == 2

    (tmp_path / "b.dat").write_bytes(containers.tar(containers.labelled_files(2)))
    assert main(["index", str(tmp_path / "b.dat"), "--image", "jpg"]) == 0
    assert "WebDataset(2 images in 1 files, ['label'])" in capsys.readouterr().out


def test_index_reports_errors_without_a_traceback(tmp_path, capsys):
    (tmp_path / "b.tar").write_bytes(containers.tar(containers.labelled_files(2)))
    assert main(["index", str(tmp_path / "b.tar"), "--label", "class"]) == 1
    assert "has no label 'class'" in capsys.readouterr().err
    assert main(["index", str(tmp_path / "missing-*.tar")]) == 1
    assert "matches no file" in capsys.readouterr().err


def test_index_tells_where_it_wrote(tmp_path, capsys):
    (tmp_path / "b.tar").write_bytes(containers.tar(containers.labelled_files(2)))
    assert main(["index", str(tmp_path / "b.tar")]) == 0
    (path,) = tmp_path.glob("*.index")
    assert f"index: {path}\n" in capsys.readouterr().out
    assert WebDataset(tmp_path / "b.tar").index_path == str(path)


def test_a_folder_whose_name_is_no_text_is_printed(tmp_path, capsys):
    folder = tmp_path / os.fsdecode(b"\xe4")  # a letter in Latin-1, no UTF-8
    folder.mkdir()
    (folder / "b.tar").write_bytes(containers.tar(containers.labelled_files(2)))
    assert main(["index", str(folder / "b.tar")]) == 0
    assert rf"index: {tmp_path}/\udce4/jaxaug-" in capsys.readouterr().out


def test_whoever_reads_the_output_may_leave(tmp_path):
    (tmp_path / "b.tar").write_bytes(containers.tar(containers.labelled_files(2)))
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "jaxaug", "index", str(tmp_path / "b.tar")]
    child = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(writing)
    assert child.returncode == 128 + signal.SIGPIPE and child.stderr == ""


def test_index_writes_where_it_is_told(tmp_path, capsys):
    (tmp_path / "b.tar").write_bytes(containers.tar(containers.labelled_files(2)))
    out = tmp_path / "elsewhere" / "b.idx"
    assert main(["index", str(tmp_path / "b.tar"), "--out", str(out)]) == 0
    assert f"index: {out}\n" in capsys.readouterr().out
    assert os.listdir(tmp_path / "elsewhere") == ["b.idx"] and not list(tmp_path.glob("*.index"))
    before = out.stat()
    source = WebDataset(tmp_path / "b.tar", index=out)
    assert source.index_path == str(out) and len(source) == 2
    assert os.stat(out) == before and not list(tmp_path.glob("*.index"))


def test_index_does_not_write_over_what_is_no_index(tmp_path, capsys):
    tar = tmp_path / "a.tar"
    pack_files(ImageFolder(images(tmp_path / "images")), tar)
    whole = tar.read_bytes()
    for options in ([], ["--part", "0/2"]):
        assert main(["index", str(tar), "--out", str(tar), *options]) == 1
        said = capsys.readouterr().err
        assert said == f"jaxaug: `index` {str(tar)!r} is a file, and no index: name another one.\n"
    assert tar.read_bytes() == whole
    for _ in range(2):  # an index, as one of other options, is replaced
        assert main(["index", str(tar), "--out", str(tmp_path / "a.index"), "--label", ""]) == 0
        assert main(["index", str(tar), "--out", str(tmp_path / "a.index")]) == 0


def test_index_takes_features_as_sources_do(tmp_path, capsys):
    files = {"a.jpg": containers.jpegs(1)[0], "a.json": b'{"index": 7, "x": 1, "y": 2}'}
    (tmp_path / "b.tar").write_bytes(containers.tar(files))
    assert main(["index", str(tmp_path / "b.tar"), "--features", "index=uid,x"]) == 0
    assert "['uid', 'x']" in capsys.readouterr().out
    (path,) = tmp_path.glob("*.index")
    source = WebDataset(tmp_path / "b.tar", features={"index": "uid", "x": "x"})
    assert source.index_path == str(path) and len(list(tmp_path.glob("*.index"))) == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_bars_are_drawn_for_terminals_alone(monkeypatch, capsys, terminal):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    clock = itertools.count(0, 10)
    monkeypatch.setattr("tqdm.std.time", lambda: next(clock))
    with byte_progress(100, "index") as advance:
        advance(50)
        advance(50)
    assert ("index" in capsys.readouterr().err) == terminal


def images(folder):
    (folder / "cat").mkdir(parents=True)
    for number, image in enumerate(containers.jpegs(4)):
        (folder / "cat" / f"{number}.jpg").write_bytes(image)
    return folder


def test_pack_to_a_full_disk_says_so_in_one_line(tmp_path):
    source = images(tmp_path / "images")
    code = """
import resource, sys
from jaxaug.__main__ import main
from jaxaug._demo.sheet import Row, contact_sheet
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
sys.exit(main(sys.argv[1:]))
"""
    out = tmp_path / "out" / "packed.tar"
    command = [sys.executable, "-c", code, "pack", str(source), str(out)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert child.returncode == 1
    assert child.stderr == f"jaxaug: `out` {str(out)!r} cannot be written: File too large.\n"
    assert os.listdir(tmp_path / "out") == []


def test_pack_to_where_nothing_can_be_written_says_so(tmp_path, capsys):
    source = images(tmp_path / "images")
    (tmp_path / "file").write_text("no folder")
    assert main(["pack", str(source), str(tmp_path / "file" / "packed.tar")]) == 1
    said = capsys.readouterr().err
    assert re.fullmatch(r"jaxaug: `out` '.*packed.tar' cannot be written: .*\.\n", said)


@pytest.mark.parametrize(
    "number, status, said",
    [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")],
)
def test_a_signal_leaves_nothing_of_a_pack(tmp_path, number, status, said):
    source = images(tmp_path / "images")
    code = """
import sys, time
from jaxaug.__main__ import main
from jaxaug._demo.sheet import Row, contact_sheet
from jaxaug import _pack
_pack.add_file = lambda *arguments: print("writes", flush=True) or time.sleep(60)
sys.exit(main(sys.argv[1:]))
"""
    out = str(tmp_path / "out" / "packed.tar")
    command = [sys.executable, "-c", code, "pack", str(source), out]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as child:
        assert child.stdout.readline() == "writes\n"
        child.send_signal(number)
        _, printed = child.communicate(timeout=300)
    assert child.returncode == status and printed == f"jaxaug: {said}.\n"
    assert os.listdir(tmp_path / "out") == []


def test_what_a_killed_pack_left_goes_with_the_next(tmp_path):
    source = images(tmp_path / "images")
    code = """
import sys, time
from jaxaug.__main__ import main
from jaxaug._demo.sheet import Row, contact_sheet
from jaxaug import _pack
_pack.add_file = lambda *arguments: print("writes", flush=True) or time.sleep(60)
sys.exit(main(sys.argv[1:]))
"""
    out = tmp_path / "out" / "packed.tar"
    command = [sys.executable, "-c", code, "pack", str(source), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "writes\n"
        (running,) = os.listdir(tmp_path / "out")
        pack_files(ImageFolder(source), out)
        assert running in os.listdir(tmp_path / "out")  # of a pack that still runs
        out.unlink()
        child.kill()
        child.wait(60)
    pack_files(ImageFolder(source), out)
    assert sorted(name.rpartition(".")[2] for name in os.listdir(tmp_path / "out")) == [
        "index",
        "tar",
    ]


class Garbage:
    """A cycle that SIGTERM meets as it is collected."""

    def __init__(self):
        self.cycle = self

    def __del__(self):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("where", ["callback", "finalizer"])
def test_a_signal_amid_a_collection_is_not_lost(where):
    """An exception there is printed and ignored: in callbacks, such as JAX's, and finalizers."""

    def callback(phase, info):
        if where == "callback" and not called:
            called.append(phase)
            signal.raise_signal(signal.SIGTERM)

    called = []

    gc.disable()  # until the signal is waited for
    try:
        with pytest.raises(_Terminated), _sigterm_raises():
            gc.callbacks.insert(0, callback)
            if where == "finalizer":
                Garbage()
            gc.collect()
            time.sleep(20)
    finally:
        gc.callbacks.remove(callback)
        gc.enable()


def test_commands_leave_signals_as_they_were(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    assert main(["index", str(tmp_path / "missing.tar")]) == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_sheet_on_a_full_disk_is_told_without_a_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "sheet.png").symlink_to("/dev/full")
    rows = [Row("", "", [np.zeros((2, 2, 3), np.uint8)])]
    monkeypatch.setattr(
        "jaxaug._demo.preview.draw_sheet", lambda _, out, *others: contact_sheet(rows, out, "")
    )
    assert main(["preview", "--out", str(tmp_path / "sheet.png")]) == 1
    assert capsys.readouterr().err == "jaxaug: No space left on device.\n"


def test_a_file_that_is_in_the_way_is_named_without_a_traceback(tmp_path, capsys):
    (tmp_path / "file").write_text("no folder")
    assert main(["demo", "--data-cache", str(tmp_path / "file" / "cache")]) == 1
    assert re.fullmatch(r"jaxaug: '.*/file/cache.*': Not a directory\.\n", capsys.readouterr().err)


def test_doctor_says_in_a_sentence_that_there_is_no_gpu(monkeypatch, capsys):
    monkeypatch.setattr("jax.default_backend", lambda: "cpu")
    assert main(["doctor"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("decoder")]
    assert "host threads, as jax sees no NVIDIA GPU" in line and "`" not in line


@pytest.mark.parametrize(
    "free_threaded, gil, says",
    [(0, True, r"python +[\d.]+\n"), (1, False, "without the GIL"), (1, True, "PYTHON_GIL=0")],
)
def test_doctor_says_whether_threads_of_python_run_at_once(
    free_threaded, gil, says, monkeypatch, capsys
):
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: free_threaded)
    monkeypatch.setattr("sys._is_gil_enabled", lambda: gil, raising=False)
    assert main(["doctor"]) == 0
    assert re.search(says, capsys.readouterr().out)


def test_doctor_says_why_a_gpu_is_not_used(monkeypatch, capsys):
    def refuse(*arguments):
        raise RuntimeError("no engine")

    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    monkeypatch.setattr("jaxaug._doctor.Decoder", refuse)
    monkeypatch.setattr("jaxaug._doctor._nvidia", lambda: ())
    assert main(["doctor"]) == 0
    assert "host threads, as nvjpeg cannot be used: no engine" in capsys.readouterr().out


def test_pack_says_what_it_gained(tmp_path, capsys):
    for number, image in enumerate(containers.jpegs(4)):
        path = tmp_path / "images" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    assert main(["pack", str(tmp_path / "images"), str(tmp_path / "out.tar")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"[\d,]+ records/s from the files, [\d,]+ from the tar: \d+\.\d x", said)
    packed = WebDataset(tmp_path / "out.tar")
    folder = ImageFolder(tmp_path / "images")
    features = packed.read(np.arange(4))
    wanted = folder.read(np.arange(4))
    assert all(features["image"].view(row) == wanted["image"].view(row) for row in range(4))
    assert features["label"].tolist() == wanted["label"].tolist()
    assert main(["pack", str(tmp_path / "images"), str(tmp_path / "out.tar")]) == 1
    assert "exists" in capsys.readouterr().err


def test_pack_takes_a_list(tmp_path, capsys):
    for number, image in enumerate(containers.jpegs(2)):
        (tmp_path / f"{number}.jpg").write_bytes(image)
    (tmp_path / "list.csv").write_text("0.jpg,4,2\n1.jpg,7,0\n")
    assert main(["pack", str(tmp_path / "list.csv"), str(tmp_path / "out.tar"), "--sep", ","]) == 0
    assert "from the files" in capsys.readouterr().out
    assert WebDataset(tmp_path / "out.tar").features["label"].tolist() == [[4, 2], [7, 0]]


def test_pack_takes_pairs_of_images_and_masks(tmp_path, capsys):
    for folder in ("images/a", "masks/a"):
        (tmp_path / folder).mkdir(parents=True)
    for number, image in enumerate(containers.jpegs(3)):
        (tmp_path / f"images/a/{number}.jpeg").write_bytes(image)
        if number != 1:
            (tmp_path / f"masks/a/{number}.PNG").write_bytes(b"mask %d" % number)
    (tmp_path / "list.txt").write_text("a/2\na/0\n")
    out = tmp_path / "out.tar"
    command = ["pack", str(tmp_path / "images"), str(out), "--masks", str(tmp_path / "masks")]
    assert main(command) == 1
    assert "1 of 3 records have no mask" in capsys.readouterr().err
    assert main([*command, "--names", str(tmp_path / "list.txt")]) == 0
    said = capsys.readouterr().out
    assert "2 images with masks in 1 files" in said and "from the tar" in said

    with tarfile.open(out) as tar:
        names = tar.getnames()
    assert names == ["0-2.jpeg", "0-2.seg.png", "1-0.jpeg", "1-0.seg.png"]
    found = WebDataset(out, mask="seg.png").read(np.arange(2))
    assert bytes(found["mask"].view(0)) == b"mask 2" and bytes(found["mask"].view(1)) == b"mask 0"
    assert bytes(found["image"].view(0)) == containers.jpegs(3)[2] and len(found) == 2


@pytest.mark.parametrize("options, what", [([], "' is none"), (["--masks", "."], "--masks")])
def test_pack_refuses_a_separator_that_would_separate_nothing(tmp_path, capsys, options, what):
    with pytest.raises(SystemExit, match="2"):
        main(["pack", str(images(tmp_path / "x")), str(tmp_path / "x.tar"), "--sep", ",", *options])
    assert re.search(f"--sep goes with a text file .*: .*{what}", capsys.readouterr().err)
    assert not (tmp_path / "x.tar").exists()


@pytest.mark.parametrize(
    "arguments, status, said",
    [
        (["pack", "images", "a.tar", "--shards", "9"], 2, "--shards must be at most 4"),
        (
            ["pack", "images", "file", "--decoded"],
            1,
            "`folder` 'file' cannot be written: Not a dir",
        ),
        (
            ["pack", "images", "cut.tar", "--shards", "2"],
            1,
            "cut-of-00002.json' is damaged: .* rem",
        ),
        (["preview", "--seed", "9223372036854775808"], 2, "--seed: must be an int of 64 bits"),
        (["preview", "--out", "folder/.png"], 2, "must end in .png, .jpg or .webp"),
        (["verify", "list.txt", "--sep", ""], 2, "--sep: must not be empty"),
        (["verify", "fil*", "images", "--out", "./file"], 2, "got './file', one of the sources"),
        (["statistics", "file", "--out", "file"], 2, "--out must be a file of its own"),
    ],
)
def test_odd_arguments_are_told_without_a_traceback(
    tmp_path, monkeypatch, capsys, arguments, status, said
):
    monkeypatch.chdir(tmp_path)
    images(tmp_path / "images")
    for name in ("file", "cut-of-00002.json"):
        (tmp_path / name).touch()
    try:
        found = main(arguments)
    except SystemExit as error:
        found = error.code
    assert found == status and re.search(said, capsys.readouterr().err)


def test_what_memory_is_short_for_is_told_without_a_traceback(tmp_path, monkeypatch, capsys):
    def fail(*arguments):
        raise MemoryError("9 bytes are free")

    monkeypatch.setattr("jaxaug._pack._pack_decoded", fail)
    assert main(["pack", str(images(tmp_path)), str(tmp_path / "out"), "--decoded"]) == 1
    assert capsys.readouterr().err == "jaxaug: 9 bytes are free\n"


def test_lists_are_written_to_folders_that_are_not_there_yet(tmp_path):
    write_list(str(tmp_path / "a" / "bad.json"), [])
    assert json.loads((tmp_path / "a" / "bad.json").read_text()) == []
    sums = Statistics((0.5,), (0.1,), (9,), 1, 0)
    write(str(tmp_path / "b" / "sums.json"), sums)
    assert json.loads((tmp_path / "b" / "sums.json").read_text())["pixels"] == [9]


def test_pack_refuses_names_that_would_choose_nothing(tmp_path, capsys):
    (tmp_path / "train" / "cat").mkdir(parents=True)
    for number, image in enumerate(containers.jpegs(3)):
        (tmp_path / "train" / "cat" / f"{number}.jpg").write_bytes(image)
    (tmp_path / "names.txt").write_text("0\n")
    arguments = ["pack", str(tmp_path / "train"), str(tmp_path / "train.tar")]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--names", str(tmp_path / "names.txt")])
    assert ended.value.code == 2
    assert "--names goes with --masks" in capsys.readouterr().err
    assert not (tmp_path / "train.tar").exists()


def test_index_takes_the_extension_of_masks(tmp_path, capsys):
    image = containers.jpegs(1)[0]
    (tmp_path / "a.tar").write_bytes(containers.tar({"a.jpg": image, "a.seg.png": b"mask"}))
    assert main(["index", str(tmp_path / "a.tar"), "--mask", "seg.png"]) == 0
    assert "WebDataset(1 images with masks in 1 files, [])" in capsys.readouterr().out
    (path,) = tmp_path.glob("*.index")
    assert WebDataset(tmp_path / "a.tar", mask="seg.png").index_path == str(path)


@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_decoded_images_are_found_by_a_loader(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "train" / "cat"
    folder.mkdir(parents=True)
    for number, image in enumerate([*containers.jpegs(5), b"no image"]):
        (folder / f"{number}.jpg").write_bytes(image)
    kept = str(tmp_path / "kept")
    command = ["pack", str(tmp_path / "train"), kept, "--decoded", "--size", "32"]
    assert main(command) == 0
    assert f"5 of 6 images in {kept!r}" in capsys.readouterr().out

    options = {
        "decode": Image(canvas=(32, 32)),
        "sharding": batch_sharding(jax.devices("cpu")[:1]),
        "on_error": "mask",
        "max_bad": None,
    }
    source = ImageFolder(tmp_path / "train")
    with Loader(source, 2, **options) as plain:
        expected = [np.asarray(batch["image"]) for batch in plain]
    asked = []
    read = ImageFolder.read
    monkeypatch.setattr(
        ImageFolder, "read", lambda self, records: asked.extend(records) or read(self, records)
    )
    with Loader(source, 2, **options, keep=f"disk:{kept}") as loader:
        asked.clear()  # of the first record, whose columns are looked at
        found = [np.asarray(batch["image"]) for batch in loader]
    assert set(asked) == {5}
    np.testing.assert_array_equal(found, expected)


def test_decoded_goes_with_a_size_and_without_shards(tmp_path, capsys):
    for options in (["--size", "32"], ["--decoded", "--shards", "2"]):
        with pytest.raises(SystemExit):
            main(["pack", str(tmp_path), "out", *options])
        assert " goes with" in capsys.readouterr().err
