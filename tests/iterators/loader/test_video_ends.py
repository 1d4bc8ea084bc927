"""A Loader of videos ends: by close, by Ctrl-C, and in a child that was forked."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.videos import kind

PROGRAM = """
import os, sys, time
from jaxaug import Loader
from jaxaug.decode import Video
from jaxaug.iterators import VideoFolder

loader = Loader(VideoFolder(sys.argv[1]), 8, decode=Video(frames=2, canvas=(48, 64)))
next(loader)
try:
    print("ready", flush=True)
    while True:
        next(loader)
except KeyboardInterrupt:
    loader.close()
    print("closed", flush=True)
"""


def test_ctrl_c_ends_a_loader_of_videos(tmp_path):
    for number in range(8):
        (tmp_path / f"{number}.mp4").write_bytes(kind("h264"))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(90, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "closed\n"
        assert process.wait(timeout=300) == 0
    finally:
        watchdog.cancel()
        process.kill()
        process.wait(timeout=300)


def test_a_reader_made_before_a_fork_says_so(tmp_path, monkeypatch):
    import numpy as np

    from jaxaug.decode import Encoded, Video

    reader = Video(frames=2, canvas=(48, 64)).open([], False)
    try:
        values = Encoded.from_bytes([kind("h264")])
        checked, _ = reader.check_rows(values, None)
        arguments = (values, checked, {}, np.ones(1, bool), np.zeros(1, np.uint64))
        assert reader.decode_rows(*arguments).valid.all()
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(RuntimeError, match="before this process was forked"):
            reader.decode_rows(*arguments)
    finally:
        reader.close()
