"""A Loader of videos ends: by close, by Ctrl-C, and in a child that was forked."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.decode import Encoded, Video, decode_video
from jaxaug.iterators import VideoFolder
from tests.iterators.loaders import one_device
from tests.videos import kind, video

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


@pytest.mark.filterwarnings("ignore:.*fork:")
def test_a_forked_child_decodes_or_is_told_why_not():
    """Whatever the threads of a reader do meanwhile."""
    data = kind("h264")
    values = Encoded.from_bytes([data] * 8)
    reader = Video(frames=2, canvas=(48, 64), num_threads=2).open([], False)
    checked, _ = reader.check_rows(values, None)
    arguments = (values, checked, {}, np.ones(8, bool), np.zeros(8, np.uint64))
    expected = decode_video(data)

    def in_child():
        signal.alarm(120)
        status = 1
        try:
            with pytest.raises(RuntimeError, match="before this process was forked"):
                reader.decode_rows(*arguments)
            reader.close()
            status = int((decode_video(data) != expected).any())
        finally:
            os._exit(status)

    decoding = threading.Thread(target=lambda: [reader.decode_rows(*arguments) for _ in range(6)])
    decoding.start()
    try:
        for _ in range(3):
            child = os.fork()
            if child == 0:
                in_child()
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert reader.decode_rows(*arguments).valid.all()
    finally:
        decoding.join()
        reader.close()


def test_a_loader_closes_while_its_threads_decode(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.mp4").write_bytes(video(200, (48, 64), g="12"))
    decode = Video(frames=16, stride=4, canvas=(48, 64), num_threads=2)
    before = set(threading.enumerate())
    for taken in (0, 1, 2):
        loader = Loader(VideoFolder(tmp_path), 2, decode=decode, sharding=one_device())
        for _ in range(taken):
            next(loader)
        loader.close()
        with pytest.raises(ValueError, match="closed"):
            next(loader)
        left = {*threading.enumerate()} - before
        assert not [each for each in left if each.name.startswith("jaxaug")]
