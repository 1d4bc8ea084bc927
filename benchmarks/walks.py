"""How far does a value walk? Follows three of them through the package, counts, to be compared.

    python benchmarks/walks.py
    PYTHONPATH=path/to/another/checkout python benchmarks/walks.py

records: the numbers of a batch's records, from the sampler to what is sent to the device.
encoded: the bytes of its images, by the object that owns their memory.
sample: the dict of one sample in a chain of four operators, by a label that no operator changes.
stays: functions that are given it, alone or in something that holds it; rooms: the files of these;
returns: functions that hand it back. What holds it is looked into three levels deep.
"""

import dataclasses
import io
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

import jaxaug
from jaxaug import Loader, augment
from jaxaug.iterators import InMemory

PACKAGE = str(Path(jaxaug.__file__).parent)
DEPTH = 3


def parts_of(value: Any) -> list:
    """Return what a container holds; nothing of an object that is none."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (tuple, list)):
        return list(value[:64])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return []


def holds(value: Any, is_it: Callable[[Any], bool], depth: int = DEPTH) -> bool:
    """Return True if a value is what is followed, or holds it."""
    if is_it(value):
        return True
    return depth > 0 and any(holds(part, is_it, depth - 1) for part in parts_of(value))


class Walk:
    """The functions of jaxaug that a value passes, in all threads that start while this is open."""

    def __init__(self, is_it: Callable[[Any], bool]):
        self._is_it = is_it
        self.stays: set[tuple[str, str]] = set()
        self.returns: set[tuple[str, str]] = set()

    def __enter__(self) -> "Walk":
        threading.setprofile(self._look)
        sys.setprofile(self._look)
        return self

    def __exit__(self, *error) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _look(self, frame, event: str, argument: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        function = code.co_filename, code.co_qualname
        if event == "return":
            if holds(argument, self._is_it):
                self.returns.add(function)
            return
        count = code.co_argcount + code.co_kwonlyargcount
        given = [frame.f_locals.get(name) for name in code.co_varnames[:count] if name != "self"]
        if any(holds(value, self._is_it) for value in given):
            self.stays.add(function)

    def __str__(self) -> str:
        functions = self.stays | self.returns
        rooms = {file for file, _ in functions}
        return f"{len(functions):>6} {len(rooms):>6} {len(self.returns):>8}"


def jpegs(count: int) -> list[bytes]:
    """Return small images."""
    files = []
    for number in range(count):
        file = io.BytesIO()
        Image.fromarray(np.full((40, 48, 3), 5 * number, np.uint8)).save(file, "JPEG")
        files.append(file.getvalue())
    return files


def walk_through_loader(is_it: Callable[[Any], bool], source: InMemory) -> Walk:
    """Return the walk of a value of the batches of two epochs, once a Loader is made."""
    sharding = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    options: dict = {"shuffle": False, "epochs": 1}
    try:
        loader = Loader(source, 8, sharding=sharding, **options)
    except (TypeError, ValueError):
        mesh = jax.make_mesh((1,), ("batch",), devices=jax.devices("cpu")[:1])
        split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
        loader = Loader(source, 8, sharding=split, **options)
    with loader, Walk(is_it) as walk:
        for batch in loader:
            jax.block_until_ready(batch)
    return walk


def walk_through_chain() -> Walk:
    """Return the walk of a sample through a chain that is traced."""
    chain = augment.Compose(
        [
            augment.RandomResizedCrop(24),
            augment.RandomHorizontalFlip(),
            augment.ColorJitter(0.4, 0.4, 0.4, 0.1),
            augment.Normalize((0.5,) * 3, (0.2,) * 3),
        ]
    )
    label = jax.numpy.int32(3)
    sample = {"image": jax.numpy.zeros((32, 32, 3), jax.numpy.uint8), "label": label}
    walk = Walk(lambda value: value is label)

    def trace(key, image):
        with walk:
            return chain(key, {**sample, "image": image})["image"]

    jax.eval_shape(trace, jax.random.key(0), sample["image"])
    return walk


def is_records(value: Any) -> bool:
    """Return True for the numbers of the second batch, in any array of integers."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.shape != (8,):
        return False
    return value.tolist() == list(range(8, 16))


def main() -> None:
    """Print the table."""
    source = InMemory(jpegs(24), {"label": np.arange(24) + 100})
    read = source.read(np.arange(8))
    encoded = type(read["image"] if isinstance(read, dict) else read[0])  # once a tuple
    walks = {
        "records": walk_through_loader(is_records, source),
        "encoded": walk_through_loader(lambda value: type(value) is encoded, source),
        "sample": walk_through_chain(),
    }
    print(f"{'value':<10} {'stays':>6} {'rooms':>6} {'returns':>8}")
    for name, walk in walks.items():
        print(f"{name:<10} {walk}")
    if "--list" in sys.argv:
        for name, walk in walks.items():
            for file, function in sorted(walk.stays | walk.returns):
                returned = "returns" if (file, function) in walk.returns else ""
                print(f"{name:<8} {file.removeprefix(PACKAGE):<45} {function:<45} {returned}")


if __name__ == "__main__":
    main()
