"""The Loader on real `jax.distributed` processes: each decodes its own rows of the same batches."""

import json

import pytest

from tests.iterators.forked import End, forks, free_port

WORKER = """
import json, os, sys
import jax
port, count, rank, layout, platform, keep = sys.argv[1:7]
count = int(count)
rank = int(rank)
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1" if count == 1 else str(rank)
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
if platform == "cpu":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_preemption_service", False)
if count > 1:
    jax.distributed.initialize(
        f"localhost:{port}", num_processes=count, process_id=rank, initialization_timeout=300
    )
import hashlib
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from jaxaug import Decoder, Loader
from jaxaug.decode import Encoded, Image, Ragged, Tokenized
from jaxaug.iterators import InMemory
from tests.images import encode, jpegs

MASKS = Encoded.from_bytes([encode(np.full((40, 56), i, np.uint8), "PNG") for i in range(22)])

# No page to three in a record, of several sizes, a text, and as many numbers as pages twice.
COUNTS = np.arange(22) % 4
FILES = [jpegs(1, 16 + k % 5, 30, seed=k)[0] for k in range(int(COUNTS.sum()))]
PAGES = Ragged(Encoded.from_bytes(FILES), COUNTS, 3)
NUMBERS = Ragged(np.arange(2 * COUNTS.sum(), dtype=np.int32), 2 * COUNTS, 6, -1)
TEXTS = Encoded.from_bytes([b"a " * int(k) + b"text" for k in COUNTS])
# The same as numbers, since a folder of records takes no function that decodes.
WORDS = [([1] * int(k) + [4])[:3] for k in COUNTS]
WORDS = Ragged(np.concatenate(WORDS).astype(np.int32), np.array(list(map(len, WORDS))), 3)
MANY = {
    "pages": Image(canvas=(24, 32)),
    "caption": Tokenized(lambda text: list(map(len, text.split())), 3),
}
if keep.startswith("disk:"):
    MANY.pop("caption")
    TEXTS = WORDS
if platform == "gpu":
    MANY = {}

class Pairs(InMemory):
    def read(self, indices):
        columns = super().read(indices) | {"mask": MASKS.take(indices)}
        if MANY:
            columns["pages"] = PAGES.take(indices)
            columns["numbers"] = NUMBERS.take(indices)
            columns["caption"] = TEXTS.take(indices)
        return columns

def transform(key, sample):
    noise = jax.random.uniform(key, (), jnp.float32)
    image = sample["image"].astype(jnp.float32) * noise
    rest = {name: value for name, value in sample.items() if name != "size"}
    if MANY:
        rest["pages"] = rest["pages"].astype(jnp.float32) * noise
    return {**rest, "image": image}

devices = np.array(jax.devices())
square = devices.reshape(2, -1)
auto, explicit = AxisType.Auto, AxisType.Explicit
sharding = {
    "auto": lambda: NamedSharding(Mesh(devices, ("d",)), P("d")),
    "explicit": lambda: NamedSharding(Mesh(devices, ("d",), axis_types=(explicit,)), P("d")),
    "two axes": lambda: NamedSharding(
        Mesh(square, ("a", "b"), axis_types=(explicit,) * 2), P(("b", "a"))
    ),
    "replicated": lambda: NamedSharding(Mesh(square.T, ("a", "b")), P("b")),
    "replicated across": lambda: NamedSharding(Mesh(square, ("a", "b")), P("b")),
}[layout]()
source = Pairs(jpegs(22), {"label": np.arange(22)})
rows = []
options = {"transform": transform, "seed": 5, "last_batch": "pad", "epochs": 2}
options |= {"sharding": sharding, "keep": keep or None}
if platform == "gpu" and layout == "replicated across":  # deterministic by itself
    options["decode"] = {"image": Image((64, 64), backend="nvjpeg")}
elif platform == "gpu":
    options["decode"] = Decoder((64, 64), "nvjpeg", deterministic=True)
elif MANY:
    options["decode"] = MANY
with jax.thread_guard(True), Loader(source, 8, **options) as loader:
    across = layout == "replicated across" or layout == "replicated" and count == 4
    assert loader.decoders["image"].deterministic is (platform == "gpu" or across)
    for number, batch in enumerate(loader.steps()):
        epoch = number // len(loader)
        others = sorted(batch.keys() - {"index", "image", "mask"})
        assert len(others) == (11 if MANY else 3), others
        shards = [
            {int(s.index[0].start or 0): np.asarray(s.data) for s in batch[name].addressable_shards}
            for name in ("index", "image", "mask", *others)
        ]
        for start, index in shards[0].items():
            for offset, record in enumerate(index):
                mask = shards[2][start][offset][:40, :56]
                assert (mask == (255 if record < 0 else record)).all(), (record, mask)
                each = [shard[start][offset].tobytes() for shard in shards[1:]]
                digest = hashlib.sha1(b"".join(each)).hexdigest()
                rows.append([epoch, start + offset, int(record), digest])
    state = loader.get_state()
print("ROWS", json.dumps([rows, state]), flush=True)
"""


@pytest.fixture(scope="module")
def processes():
    """A function that runs a program in several processes at once."""
    with forks() as run_all:
        yield run_all


def printed(ends: list[End], word: str) -> list:
    """What each process has printed behind a word, as JSON."""
    lines = [[line for line in end.out.splitlines() if line.startswith(word)] for end in ends]
    assert all(lines), "\n".join(end.error[-2000:] for end in ends)
    return [json.loads(line[-1].removeprefix(word)) for line in lines]


@pytest.fixture(scope="module")
def run(processes):
    """A function: the rows and the end state that each of `count` processes saw; on GPUs they share
    two.
    """

    def run(count: int, layout: str, platform: str = "cpu", keep: str = "") -> tuple[list, list]:
        port = free_port()
        calls = [(port, count, rank, layout, platform, keep) for rank in range(count)]
        rows, states = zip(*printed(processes(WORKER, calls), "ROWS "))
        return list(rows), list(states)

    return run


@pytest.fixture(scope="module")
def alone(run):
    rows, states = run(1, "auto")
    return sorted(map(tuple, rows[0])), states[0]


@pytest.mark.parametrize(
    "count, layout",
    [
        (2, "auto"),
        (2, "replicated"),
        (2, "replicated across"),
        pytest.param(2, "explicit", marks=pytest.mark.slow),
        pytest.param(2, "two axes", marks=pytest.mark.slow),
        pytest.param(4, "auto", marks=pytest.mark.slow),
        pytest.param(4, "explicit", marks=pytest.mark.slow),
        pytest.param(4, "two axes", marks=pytest.mark.slow),
        pytest.param(4, "replicated", marks=pytest.mark.slow),
    ],
)
def test_the_union_of_all_processes_is_the_single_process_batch(run, alone, count, layout):
    rows, states = run(count, layout)
    union = sorted({tuple(row) for process in rows for row in process})
    assert union == alone[0]
    assert all(state == alone[1] for state in states)
    if layout == "replicated across":  # each row on both
        assert sorted(map(tuple, rows[0])) == sorted(map(tuple, rows[1])) == union
    elif layout != "replicated":  # each row on one process only
        assert sum(map(len, rows)) == len(union) == len(alone[0])


def test_the_reference_itself_is_two_epochs(alone):
    for epoch in range(2):
        indices = [index for of, _, index, _ in alone[0] if of == epoch]
        assert sorted(indices) == [-1] * 2 + list(range(22))


@pytest.mark.parametrize(
    "keep, count",
    [
        ("device", 2),
        pytest.param("device", 4, marks=pytest.mark.slow),
        pytest.param("device:0.3", 2, marks=pytest.mark.slow),
        pytest.param("host", 2, marks=pytest.mark.slow),
        pytest.param("disk:", 2, marks=pytest.mark.slow),
    ],
)
def test_processes_that_keep_records_have_the_same_batches(run, alone, keep, count, tmp_path):
    rows, _ = run(count, "auto", keep=f"{keep}{tmp_path}" if keep == "disk:" else keep)
    assert sorted(tuple(row) for process in rows for row in process) == alone[0]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "layout", ["auto", "explicit", "two axes", "replicated", "replicated across"]
)
def test_one_process_for_each_of_two_gpus(run, layout):
    import jax

    if len(jax.devices("gpu")) < 2:
        pytest.skip("needs two GPUs")
    rows, states = run(1, "auto", "gpu")
    reference = sorted(map(tuple, rows[0]))
    state = states[0]
    rows, states = run(2, layout, "gpu")
    assert sorted({tuple(row) for process in rows for row in process}) == reference
    assert all(each == state for each in states)


DIFFERING = """
import json, sys, time
import jax
port, rank = sys.argv[1], int(sys.argv[2])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_preemption_service", False)
jax.distributed.initialize(
    f"localhost:{port}", num_processes=2, process_id=rank, initialization_timeout=300
)
import numpy as np
from jaxaug import Loader, augment
from jaxaug.decode import Image
from jaxaug.iterators import InMemory
from jaxaug.sharding import batch_sharding
from tests.images import jpegs

def records(count=24):
    return InMemory(jpegs(count), {"label": np.arange(count)})

def attempt(restore=None, **changes):
    options = {"source": records(), "batch_size": 8, "seed": 3, "sharding": batch_sharding()}
    start = time.monotonic()
    try:
        with Loader(**options | changes) as loader:
            states = [loader.get_state(), next(loader) and loader.get_state()]
            if restore is not None:
                loader.set_state(states[restore])
        error = ""
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    return [error, time.monotonic() - start]

results = {
    "alike": attempt(),
    "missing file": attempt(source=records(24 - rank)),
    "canvas": attempt(decode=Image(canvas=(64 + 64 * rank, 64))),
    "seed": attempt(seed=3 + rank),
    "transform": attempt(transform=augment.RandomHorizontalFlip(0.25 + 0.5 * rank)),
    "batch size": attempt(batch_size=8 + 8 * rank),
    "one fails": attempt(batch_size=8 - rank),
    "state": attempt(restore=rank),
    "alike again": attempt(restore=1),
}
print("RESULTS", json.dumps(results), flush=True)
"""


@pytest.fixture(scope="module")
def differing(processes):
    """The error of each scenario, and its seconds, on both processes."""
    port = free_port()
    return printed(processes(DIFFERING, [(port, rank) for rank in range(2)]), "RESULTS ")


@pytest.mark.parametrize(
    "name, expected",
    [
        ("missing file", "process 0 has length=24, process 1 has length=23"),
        ("canvas", "process 0 has decode['image']=\"Image(canvas=(64, 64), "),
        ("seed", "process 0 has seed=3, process 1 has seed=4"),
        ("transform", "process 0 has transform='RandomHorizontalFlip "),
        ("batch size", "process 0 has batch_size=8, process 1 has batch_size=16"),
        ("state", "process 0 has state["),
    ],
)
def test_loaders_that_differ_raise_on_both_processes(differing, name, expected):
    (first, seconds), (second, others) = (results[name] for results in differing)
    assert first == second and first.startswith("ValueError: ") and expected in first
    assert max(seconds, others) < 60


def test_a_loader_that_fails_on_one_process_ends_the_other(differing):
    (first, seconds), (second, others) = (results["one fails"] for results in differing)
    assert first == f"JaxaugError: Loader(...) failed on process 1: {second}"
    assert second.startswith("ValueError: `batch_size`")
    assert max(seconds, others) < 60


@pytest.mark.parametrize("name", ["alike", "alike again"])
def test_loaders_that_are_alike_go_on(differing, name):
    assert [results[name][0] for results in differing] == ["", ""]
