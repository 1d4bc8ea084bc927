"""An interrupt ends a run cleanly."""

import os
import signal
import subprocess
import sys
import threading
import time

INTERRUPTED = """
import pathlib, signal, sys, threading, time
# a job in a shell's background inherits "ignore"
signal.signal(signal.SIGINT, signal.default_int_handler)
import jax
jax.config.update("jax_num_cpu_devices", 2)
from jaxaug import Loader
from jaxaug.iterators import ImageFolder
from tests.images import jpegs
root = pathlib.Path(sys.argv[1])
for i, image in enumerate(jpegs(64)):
    (root / f"{i}.jpg").write_bytes(image)
class Slow(ImageFolder):
    reads = 0
    def read(self, indices):
        Slow.reads += 1
        # two at construction and five batches: the sixth keeps the consumer waiting
        if Slow.reads > 7:
            time.sleep(1.5)
        return super().read(indices)
loader = Loader(Slow(root), 32)
try:
    for batch in loader.steps():
        print("BATCH", flush=True)
except KeyboardInterrupt:
    stages = ("jaxaug-reader", "jaxaug-build", "jaxaug-files")
    before = [t.name for t in threading.enumerate() if t.name.startswith(stages)]
    batch = next(loader)  # still usable
    loader.close()
    after = [t.name for t in threading.enumerate() if t.name.startswith("jaxaug")]
    print("LEFT", before, after, flush=True)
    sys.exit(3)
"""


def test_ctrl_c_ends_cleanly_and_leaves_no_thread_or_process(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(400, child.kill)  # which ends the wait for its lines
    watchdog.start()
    try:
        for _ in range(5):
            assert child.stdout is not None and child.stdout.readline().startswith("BATCH")
        children = f"/proc/{child.pid}/task/{child.pid}/children"
        assert not os.path.exists(children) or not open(children).read().split()
        time.sleep(0.3)  # until the child waits for its next batch
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=300)
    finally:
        watchdog.cancel()
        child.kill()
        child.wait(60)
    assert child.returncode == 3, err[-2000:]
    assert "LEFT [] []" in out and "Traceback" not in err, (out[-200:], err[-2000:])
