"""One of four `jax.distributed` processes ends: the others say so by name, and end as well."""

import re
import signal

import pytest

from tests.iterators.forked import End, forks, free_port

WHERE = 2  # the process that ends, or differs

WORKER = """
import os, signal, sys, time
import jax
port, rank, how, where = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(
    f"localhost:{port}", num_processes=4, process_id=rank, initialization_timeout=300
)
import jax.numpy as jnp
from jaxaug import Loader
from jaxaug.iterators import InMemory
from jaxaug.sharding import batch_sharding
from tests.images import jpegs

loader = Loader(InMemory(jpegs(16)), 8, sharding=batch_sharding())
step = jax.jit(lambda image: jnp.sum(image * 2.0))
here = rank == where
state = loader.get_state()
if how == "missing state":
    if here:
        print("NOW", time.time(), flush=True)
    else:
        loader.set_state(state)
if how == "unreadable state":
    if here:
        print("NOW", time.time(), flush=True)
        raise FileNotFoundError("loader.json")
    loader.set_state(state)
for number, batch in enumerate(loader.steps()):
    if here and number == 4:
        print("NOW", time.time(), flush=True)
        if how == "exception":
            raise RuntimeError("no more")
        if how == "break":
            break
        if how.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, how))
    float(step(batch["image"]))
    time.sleep(0.05)
    if number == 6 and how == "export":  # on one process, after the last step of all
        time.sleep(12 if here else 0)
        break
print("END", flush=True)
"""


@pytest.fixture(scope="module")
def run():
    """A function: how each of four processes ends, and when one was about to end or to differ."""
    with forks() as run_all:

        def run(how: str) -> tuple[list[End], float]:
            port = free_port()
            ends = run_all(WORKER, [(port, rank, how, WHERE) for rank in range(4)])
            stamp = re.search(r"NOW ([\d.]+)", ends[WHERE].out)
            return ends, float(stamp[1]) if stamp else ends[WHERE].at

        yield run


def named(end: End) -> str:
    """The first line of an error of jaxaug in what a process has printed."""
    lines = re.findall(r"^jaxaug\.errors\.\w+: .*", end.error, re.MULTILINE)
    return lines[0] if lines else end.error[-2000:]


@pytest.mark.parametrize(
    "how, cause",
    [
        ("exception", "process 2, which ended with RuntimeError: no more"),
        ("break", "process 2, which has ended"),
        ("SIGKILL", "process 2, which was killed or has crashed"),
        ("SIGTERM", "a process received SIGTERM"),
        ("missing state", r"process \d waits for the others in Loader.set_state, process 2 takes"),
        ("unreadable state", r"process 2 .*FileNotFoundError|process 2 ended with FileNotFound"),
    ],
)
def test_the_others_name_the_process_that_ended_and_end(run, how, cause):
    ends, start = run(how)
    for rank, end in enumerate(ends):
        print(
            f"{how} | process {rank} | {end.at - start:.1f} s | {end.status} | {named(end)[:160]}"
        )
    assert ends[WHERE].at - start < 60
    for rank in {0, 1, 2, 3} - {WHERE}:
        assert ends[rank].status == 1 and named(ends[rank]).startswith("jaxaug.errors."), rank
        assert ends[rank].at - start < 60  # JAX alone: 100 to 330
    assert any(re.search(cause, end.error) for end in ends)
    if how == "SIGKILL":
        assert ends[WHERE].status == -signal.SIGKILL


def test_a_process_that_works_on_after_the_last_step_is_left_alone(run):
    ends, _ = run("export")
    assert [end.status for end in ends] == [0] * 4, [named(end) for end in ends]
    assert all("END" in end.out for end in ends)
