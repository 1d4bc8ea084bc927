"""Far data on real processes: 4, then 2, then 3 of them, each change in the middle of a block."""

import json
import os
import socket
import subprocess
import sys

import pytest

from tests.iterators.sources import containers
from tests.iterators.sources.packed.test_remote import Server, serving

WORKER = """
import hashlib, json, sys
import jax
port, count, rank, url, cache, state, steps = sys.argv[1:8]
count = int(count)
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_preemption_service", False)
if count > 1:
    jax.distributed.initialize(
        f"localhost:{port}", num_processes=count, process_id=int(rank), initialization_timeout=300
    )
import jax.numpy as jnp
import numpy as np
from jaxaug import Loader
from jaxaug.decode import Image
from jaxaug.iterators import Blocks, WebDataset

def noisy(key, sample):
    return {"image": sample["image"].astype(jnp.float32) * jax.random.uniform(key, (), jnp.float32)}

source = WebDataset(url, cache=cache or None, cache_bytes=1e6)
order = Blocks(len(source), run=5, lanes=24, seed=3)
options = {"shuffle": order, "transform": noisy, "decode": {"image": Image((64, 64))}}
rows = []
with Loader(source, 24, **options) as loader:
    if state:
        loader.set_state(json.loads(state))
    for number, batch in enumerate(loader.steps(int(steps))):
        shards = [
            {int(s.index[0].start or 0): np.asarray(s.data) for s in batch[name].addressable_shards}
            for name in ("index", "image")
        ]
        for start, records in shards[0].items():
            for row, record in enumerate(records):
                digest = hashlib.sha1(shards[1][start][row].tobytes()).hexdigest()
                rows.append([number, start + row, int(record), digest])
    print("ROWS", json.dumps([rows, loader.get_state()]), flush=True)
"""


def run(count, url, cache, state, steps):
    """The rows of all processes in order, and the state behind them."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    arguments = [url, cache, json.dumps(state) if state else "", steps]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, *map(str, (port, count, rank, *arguments))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
        )
        for rank in range(count)
    ]
    try:
        outputs = [worker.communicate(timeout=240) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(30)
    lines = [[line for line in out.splitlines() if line.startswith("ROWS")] for out, _ in outputs]
    assert all(lines), "\n".join(err[-2000:] for _, err in outputs)
    rows, states = zip(*(json.loads(line[-1][5:]) for line in lines))
    assert all(each == states[0] for each in states)
    assert len({len(each) for each in rows}) == 1
    return sorted(row for process in rows for row in process), states[0]


@pytest.mark.slow
def test_four_processes_become_two_and_then_three(tmp_path, monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "index"))
    with serving(Server) as (handler, url):
        files = list(containers.labelled_files(150).items())
        for shard in range(3):
            part = dict(files[100 * shard : 100 * shard + 100])
            handler.contents[f"/{shard}.tar"] = containers.tar(part)
        shards = f"{url}/{{0..2}}.tar"
        cache = str(tmp_path / "kept")
        whole, end = run(1, shards, "", None, 13)
        found, state, done = [], None, 0
        for count, steps in ((4, 3), (2, 4), (3, 6)):
            rows, state = run(count, shards, cache, state, steps)
            found += [[number + done, *rest] for number, *rest in rows]
            done += steps
    assert found == whole and state == end and end["epoch"] == 2
