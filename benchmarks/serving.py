"""Latency and rate of the server of docs/howto/serving.md: one by one, and in batches.

    python -m benchmarks.serving --clients 1 4 16 --rounds 2

The code is that of the page, with a canvas of 512 and photographs of 375 x 500; the model is five
matrix products on patches. A client asks again as soon as it is answered.
"""

import argparse
import contextlib
import io
import os
import re
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxaug import augment
from tests.images import encode, picture

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "serving.md"
PATCH, WIDTH = 16, 256
MODES = {"one by one": ((1,), 0.0), "batches": ((1, 2, 4, 8), 0.002)}
SECONDS = 6.0
WARM_UP = 1.0
CHAIN = augment.Compose([augment.Resize(256), augment.CenterCrop(224), augment.ToFloat()])


@jax.jit
def scores(pixels: jax.Array, size: jax.Array) -> jax.Array:
    """Return what a small model says of images on canvases, [rows, WIDTH]."""
    sample = {"image": pixels, "size": size}
    image = jax.vmap(CHAIN, in_axes=(None, 0))(jax.random.key(0), sample)["image"]
    rows = image.shape[0]
    patches = image.reshape(rows, 14, PATCH, 14, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)
    value = patches.reshape(rows, 14 * 14, -1) @ jnp.full((PATCH * PATCH * 3, WIDTH), 0.01)
    for _ in range(4):
        value = jax.nn.relu(value @ jnp.full((WIDTH, WIDTH), 0.01))
    return value.mean(1)


def namespace() -> dict[str, Any]:
    """Return the names of the page, with its Server on larger canvases."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.makedirs("train/cat")
        Path("train/cat/000.jpg").write_bytes(encode(picture(3, 375, 500), quality=90))
        for block in blocks:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(block.replace("(256, 256)", "(512, 512)"), names)
    return names | {"scores": scores}


def measure(names: dict[str, Any], clients: int) -> np.ndarray:
    """Return the seconds of all answers within SECONDS."""
    server = names["Server"]()
    begin = time.monotonic() + WARM_UP
    found: list[float] = []

    def ask() -> None:
        while (start := time.monotonic()) < begin + SECONDS:
            server.ask(names["good"]).result()
            if start >= begin:
                found.append(time.monotonic() - start)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.close()
    return np.array(found)


def main() -> None:
    """Print a line for each number of clients, round and mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    names = namespace()
    globals_of_page = names["Server"].run.__globals__
    globals_of_page["scores"] = scores
    for clients in arguments.clients:
        for _ in range(arguments.rounds):
            for mode, (sizes, wait) in MODES.items():
                globals_of_page |= {"SIZES": sizes, "WAIT": wait}
                seconds = measure(names, clients)
                p50, p99 = 1e3 * np.percentile(seconds, [50, 99])
                rate = len(seconds) / SECONDS
                print(
                    f"{clients} clients, {mode}: {rate:.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms"
                )


if __name__ == "__main__":
    main()
