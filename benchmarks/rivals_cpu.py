"""Time single operators on CPUs beside dm_pix and augmax: milliseconds for a batch.

    pip install dm-pix augmax
    python benchmarks/rivals_cpu.py --batch 32 --size 224 --rounds 15

float32 images under `jit(vmap)`, all draws for each image. In every round each contestant runs
once, another first each time: whoever runs behind a large one finds no memory ready. The table
gives medians, and the median of the ratios to the faster rival. With `--processor` it is the time
that all threads compute, which a loaded machine changes little.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxaug import augment

Run = Callable[[jax.Array, jax.Array], jax.Array]
LIMIT = np.pi / 12


def contestants(size: int) -> dict[str, dict[str, Run]]:
    """Return the programs by operator and library; a library without the operator is left out."""
    import augmax
    import dm_pix as pix

    def turned(key, image):
        angle = jax.random.uniform(key, (), minval=-LIMIT, maxval=LIMIT)
        return pix.rotate(image, angle, mode="constant", cval=0.0)

    def gamma(key, image):
        return pix.adjust_gamma(image, jax.random.uniform(key, (), minval=0.8, maxval=1.2))

    def blurred(key, image):
        return pix.gaussian_blur(image, jax.random.uniform(key, (), minval=0.5, maxval=2.0), 5)

    side = size * 7 // 8
    return {
        "flip": {
            "jaxaug": augment.RandomHorizontalFlip(),
            "dm_pix": pix.random_flip_left_right,
            "augmax": augmax.Chain(augmax.HorizontalFlip()),
        },
        "crop": {
            "jaxaug": augment.RandomCrop(side),
            "dm_pix": lambda key, image: pix.random_crop(key, image, (side, side, 3)),
            "augmax": augmax.Chain(augmax.RandomCrop(side, side)),
        },
        "rotate": {
            "jaxaug": augment.RandomRotation(15),
            "dm_pix": turned,
            "augmax": augmax.Chain(augmax.Rotate((-15, 15), p=1.0)),
        },
        "brightness": {
            "jaxaug": augment.ColorJitter(brightness=0.2),
            "dm_pix": lambda key, image: pix.random_brightness(key, image, 0.2),
            "augmax": augmax.Chain(augmax.RandomBrightness((-0.2, 0.2), p=1.0)),
        },
        "contrast": {
            "jaxaug": augment.ColorJitter(contrast=0.2),
            "dm_pix": lambda key, image: pix.random_contrast(key, image, 0.8, 1.2),
            "augmax": augmax.Chain(augmax.RandomContrast((-0.2, 0.2), p=1.0)),
        },
        "saturation": {
            "jaxaug": augment.ColorJitter(saturation=0.2),
            "dm_pix": lambda key, image: pix.random_saturation(key, image, 0.8, 1.2),
        },
        "hue": {
            "jaxaug": augment.ColorJitter(hue=0.1),
            "dm_pix": lambda key, image: pix.random_hue(key, image, 0.1),
        },
        "grayscale": {
            "jaxaug": augment.Grayscale(),
            "dm_pix": lambda key, image: pix.rgb_to_grayscale(image, keep_dims=True),
            "augmax": augmax.Chain(augmax.RandomGrayscale(p=1.0)),
        },
        "gamma": {
            "jaxaug": augment.RandomGamma((0.8, 1.2), p=1.0),
            "dm_pix": gamma,
            "augmax": augmax.Chain(augmax.RandomGamma((0.8, 1.2), p=1.0)),
        },
        "solarize": {
            "jaxaug": augment.RandomSolarize(0.5, p=1.0),
            "dm_pix": lambda key, image: pix.solarize(image, 0.5),
            "augmax": augmax.Chain(augmax.Solarization(0.5, p=1.0)),
        },
        "blur": {
            "jaxaug": augment.GaussianBlur(5, (0.5, 2.0)),
            "dm_pix": blurred,
            "augmax": augmax.Chain(augmax.GaussianBlur(2, p=1.0)),
        },
        "elastic": {
            "jaxaug": augment.ElasticTransform(alpha=40.0, sigma=5.0),
            "dm_pix": lambda key, image: pix.elastic_deformation(key, image, 40.0, 5.0),
            "augmax": augmax.Chain(augmax.Warp(5, 16)),
        },
    }


def seconds(program: Run, keys: jax.Array, images: jax.Array, clock: Callable[[], float]) -> float:
    """Return the time of one call."""
    started = clock()
    jax.block_until_ready(program(keys, images))
    return clock() - started


def main() -> None:
    """Parse the arguments, compile, measure in turn, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", default=[], help="names of operators")
    parser.add_argument("--processor", action="store_true", help="time that all threads compute")
    args = parser.parse_args()
    clock = time.process_time if args.processor else time.perf_counter
    pixels = np.random.default_rng(0).random((args.batch, args.size, args.size, 3), np.float32)
    images = jnp.asarray(pixels)
    keys = jax.random.split(jax.random.key(0), args.batch)

    print(f"jax {jax.__version__}, {args.batch} images of {args.size} x {args.size}, ms a batch")
    for name, programs in contestants(args.size).items():
        if args.only and name not in args.only:
            continue
        compiled = {library: jax.jit(jax.vmap(run)) for library, run in programs.items()}
        for run in compiled.values():
            seconds(run, keys, images, clock)
        rounds = {library: [] for library in compiled}
        order = list(compiled)
        for _ in range(args.rounds):
            for library in order:
                rounds[library].append(seconds(compiled[library], keys, images, clock) * 1e3)
            order = order[1:] + order[:1]

        medians = {library: statistics.median(times) for library, times in rounds.items()}
        rival = min(
            (library for library in medians if library != "jaxaug"), key=medians.__getitem__
        )
        ratio = statistics.median(a / b for a, b in zip(rounds["jaxaug"], rounds[rival]))
        cells = ", ".join(f"{library} {value:.2f}" for library, value in medians.items())
        print(f"{name:12s} {cells}; {ratio:.2f} of {rival}", flush=True)


if __name__ == "__main__":
    main()
