"""Kill -9 at random moments, and go on from the last checkpoint with other processes and another
batch size.
"""

import hashlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.iterators import WebDataset
from jaxaug.sharding import batch_sharding
from tests.images import jpegs
from tests.iterators.sources import containers

KILLS = 20
RECORDS = 205
SEED = 11
PROCESSES = (1, 2, 4)
BATCH_SIZES = (16, 24, 32)

WORKER = """
import json, os, sys, time
import jax
from pathlib import Path
folder, start, epochs = sys.argv[1], *sys.argv[6:8]
port, count, rank, batch_size = map(int, sys.argv[2:6])
folder = Path(folder)
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_preemption_service", False)
if count > 1:
    jax.distributed.initialize(
        f"localhost:{port}", num_processes=count, process_id=rank, initialization_timeout=300
    )
from jaxaug import Loader
from jaxaug.iterators import WebDataset
from tests.iterators.loader.test_kill import SEED, noisy, rows_of

options = {"transform": noisy, "seed": SEED, "last_batch": "pad", "epochs": int(epochs) or None}
source = WebDataset(folder / "a.tar")
with Loader(source, batch_size, **options) as loader, open(folder / f"log-{rank}", "a") as log:
    if start != "none":
        loader.set_state(json.loads(start))
    epoch = loader.get_state()["epoch"]
    for step, batch in enumerate(loader.steps(), 1):
        state = loader.get_state()
        log.write(json.dumps([epoch, [state["epoch"], state["position"]], rows_of(batch)]) + "\\n")
        log.flush()
        # a checkpoint every other step and at the end of an epoch
        if step % 2 == 0 or state["position"] == 0:
            (folder / f"partial-{rank}").write_text(json.dumps(state))
            os.replace(folder / f"partial-{rank}", folder / f"state-{rank}")
        epoch = state["epoch"]
        time.sleep(0.02)
"""


def noisy(key, sample):
    noise = jax.random.uniform(key, (), jnp.float32)
    return {"image": sample["image"].astype(jnp.float32) * noise}


def rows_of(batch) -> list[tuple[int, str]]:
    """(index, hash of the pixels) of the rows of this process."""
    rows = []
    for index, image in zip(batch["index"].addressable_shards, batch["image"].addressable_shards):
        for number, pixels in zip(np.asarray(index.data).tolist(), np.asarray(image.data)):
            if number >= 0:
                rows.append((number, hashlib.sha1(pixels.tobytes()).hexdigest()))
    return rows


class Run:
    """Processes that log what is delivered to them; `rank`s of one run hold disjoint rows."""

    def __init__(self, folder: Path, chance: random.Random, state: dict | None, epochs: int):
        self.folder = folder
        self.count = chance.choice(PROCESSES)
        self.batch_size = chance.choice(BATCH_SIZES)
        for rank in range(max(PROCESSES)):
            for name in ("log", "state"):
                (folder / f"{name}-{rank}").unlink(missing_ok=True)
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        start = "none" if state is None else json.dumps(state)
        self.workers = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    WORKER,
                    *map(str, (folder, port, self.count, rank, self.batch_size, start, epochs)),
                ],
                stderr=(folder / f"err-{rank}").open("w"),
            )
            for rank in range(self.count)
        ]

    def wait_for_batches(self) -> None:
        deadline = time.monotonic() + 120
        logs = [self.folder / f"log-{rank}" for rank in range(self.count)]
        while not all(log.exists() and log.stat().st_size for log in logs):
            self._check(deadline)

    def join(self) -> None:
        deadline = time.monotonic() + 120
        while any(worker.poll() is None for worker in self.workers):
            self._check(deadline)
        self._check(deadline)

    def kill(self) -> None:
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.wait()

    def checkpoint(self) -> dict | None:
        """The last state that every process has written: they are those of the same steps."""
        texts = [self.folder / f"state-{rank}" for rank in range(self.count)]
        if not all(text.exists() for text in texts):
            return None
        return min(
            (json.loads(text.read_text()) for text in texts),
            key=lambda s: (s["epoch"], s["position"]),
        )

    def delivered(self, until: dict) -> list[tuple[int, int, str]]:
        """(epoch, index, hash) of all rows of the batches before a state."""
        rows = []
        for rank in range(self.count):
            for line in (self.folder / f"log-{rank}").read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    epoch, after, batch = json.loads(line)
                    if tuple(after) <= (until["epoch"], until["position"]):
                        rows += [(epoch, index, pixels) for index, pixels in batch]
        return rows

    def _check(self, deadline: float) -> None:
        failed = [
            rank for rank, worker in enumerate(self.workers) if worker.poll() not in (None, 0)
        ]
        errors = [(self.folder / f"err-{rank}").read_text()[-2000:] for rank in failed]
        assert not failed and time.monotonic() < deadline, errors
        time.sleep(0.002)


@pytest.mark.slow
def test_twenty_kills_lose_and_repeat_no_record(tmp_path):
    (tmp_path / "a.tar").write_bytes(
        containers.tar({f"{i:04d}.jpg": image for i, image in enumerate(jpegs(RECORDS))})
    )
    source = WebDataset(tmp_path / "a.tar")
    chance = random.Random(os.environ.get("KILL_SEED", "0"))
    rows = []
    state = None
    layouts = set()
    repeated = 0
    for kill in range(KILLS + 1):
        final = kill == KILLS
        assert state is not None or not final
        run = Run(tmp_path, chance, state, epochs=state["epoch"] + 1 if final else 0)
        try:
            run.join() if final else (run.wait_for_batches(), time.sleep(chance.uniform(0, 0.5)))
        finally:
            run.kill()
        reached = run.checkpoint()
        if reached is None:
            continue  # killed before the first checkpoint: the next run starts where this one did
        done = run.delivered(reached)
        everything = run.delivered(reached | {"epoch": 1 << 30})
        repeated += len(everything) - len(done)
        rows = rows + done
        state = reached
        layouts.add((run.count, run.batch_size))
        print(
            f"kill {kill}: {run.count} processes, batch {run.batch_size}, "
            f"epoch {state['epoch']}:{state['position']}"
        )
    assert state is not None and state["position"] == 0 and len(layouts) >= 3
    sharding = batch_sharding(jax.devices("cpu")[:1])
    options = {"transform": noisy, "seed": SEED, "last_batch": "pad", "epochs": state["epoch"]}
    with Loader(source, 16, sharding=sharding, **options) as loader:
        undisturbed = []
        for number in range(state["epoch"]):
            undisturbed += [(number, *row) for batch in loader for row in rows_of(batch)]
    assert len(undisturbed) == state["epoch"] * RECORDS
    assert sorted(rows) == sorted(
        undisturbed
    )  # each record of each epoch exactly once, with the same pixels
    print(
        f"{len(rows)} records of {state['epoch']} epochs, "
        f"{repeated} of undone batches delivered again, {layouts}"
    )
