"""Time chains of transforms on pixels that are on the device: microseconds for each image.

    python benchmarks/augment.py --batch 256 --canvas 512 --used 375 500 --size 224 --rounds 9

Runs on the default device of jax. Every round calls every chain `--calls` times in a row and waits
for the last call. The table gives the median of the rounds and their range, and the memory that XLA
reserves for intermediate values.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from jaxaug import augment


def chains(size: int) -> dict[str, augment.Compose]:
    """Return the chains by name."""
    crop = [augment.RandomResizedCrop(size), augment.RandomHorizontalFlip()]
    turn = [*crop, augment.RandomRotation(7)]
    jitter = augment.ColorJitter(0.4, 0.4, 0.4, 0.1)
    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)

    def ending(layout: str) -> augment.Normalize:
        return augment.Normalize(mean, std, "bfloat16", layout)

    shears = [augment.RandomAffine(0, shear=5, p=0.5) for _ in range(7)]
    colors = [
        augment.RandomGamma((0.7, 1.4)),
        augment.RandomSolarize(0.5, p=0.5),
        augment.RandomPosterize(5, p=0.5),
        augment.RandomInvert(p=0.5),
        augment.RandomRGBShift(0.1),
    ]

    return {
        "rrc+flip+normalize": augment.Compose([*crop, ending("NHWC")]),
        "rrc+flip+normalize NCHW": augment.Compose([*crop, ending("NCHW")]),
        "rrc+flip+gray+normalize": augment.Compose(
            [*crop, augment.RandomGrayscale(0.2), ending("NHWC")]
        ),
        "rrc+flip+rotation+normalize": augment.Compose([*turn, ending("NHWC")]),
        "rrc+flip+rotation+jitter+normalize": augment.Compose([*turn, jitter, ending("NHWC")]),
        "12 operations": augment.Compose([*turn, *shears, ending("NHWC")]),
        "rrc+flip+RandAugment": augment.Compose([*crop, augment.RandAugment(), ending("NHWC")]),
        "rrc+flip+RandAugment+erasing": augment.Compose(
            [*crop, augment.RandAugment(), augment.RandomErasing(0.25), ending("NHWC")]
        ),
        "center crop+normalize": augment.Compose([augment.CenterCrop(size), ending("NHWC")]),
        "center crop+5 pointwise+normalize": augment.Compose(
            [augment.CenterCrop(size), *colors, ending("NHWC")]
        ),
        "resize+center crop+normalize": augment.Compose(
            [augment.Resize(size * 256 // 224), augment.CenterCrop(size), ending("NHWC")]
        ),
    }


def batch(count: int, canvas: int, used: tuple[int, int]) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return keys and noise images of `used` (height, width) on square canvases."""
    pixels = np.zeros((count, canvas, canvas, 3), np.uint8)
    noise = np.random.default_rng(0).integers(0, 256, (*used, 3), dtype=np.uint8)
    pixels[:, : used[0], : used[1]] = noise
    sizes = np.tile(np.array(used, np.int32), (count, 1))
    keys = jax.random.split(jax.random.key(0), count)
    return keys, {"image": jnp.asarray(pixels), "size": jnp.asarray(sizes)}


def microseconds(program, keys: jax.Array, sample: dict[str, jax.Array], calls: int) -> float:
    """Return the time of a call, divided by its images."""
    started = time.perf_counter()
    for _ in range(calls):
        result = program(keys, sample)
    jax.block_until_ready(result)
    return (time.perf_counter() - started) / calls / len(keys) * 1e6


def main() -> None:
    """Parse the arguments, compile, measure in turn, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--canvas", type=int, default=512)
    parser.add_argument(
        "--used", type=int, nargs=2, default=(375, 500), metavar=("HEIGHT", "WIDTH")
    )
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--chains", default="", help="only chains whose name contains this")
    args = parser.parse_args()

    keys, sample = batch(args.batch, args.canvas, tuple(args.used))
    programs = {}
    for name, chain in chains(args.size).items():
        if args.chains in name:
            programs[name] = jax.jit(jax.vmap(chain)).lower(keys, sample).compile()
            jax.block_until_ready(programs[name](keys, sample))
    rounds = {name: [] for name in programs}
    for _ in range(args.rounds):
        for name, program in programs.items():
            rounds[name].append(microseconds(program, keys, sample, args.calls))

    device = jax.devices()[0]
    used = "x".join(map(str, args.used))
    print(f"jax {jax.__version__}, {device.device_kind} ({device.platform}), batch {args.batch},")
    print(f"canvas {args.canvas}, used {used}, to {args.size}, bfloat16;")
    print(f"us for each image, median of {args.rounds}")
    for name, times in rounds.items():
        memory = programs[name].memory_analysis()
        reserved = ""
        if memory is not None:
            reserved = f", {memory.temp_size_in_bytes / args.batch / 1e6:.2f} MB for each image"
        spread = f"({min(times):.2f} to {max(times):.2f})"
        print(f"{name:36s} {statistics.median(times):9.2f} {spread}{reserved}")


if __name__ == "__main__":
    main()
