"""Time operators and chains on a GPU beside DALI, kornia and torchvision: microseconds an image.

    pip install nvidia-dali-cuda130 kornia torchvision
    python benchmarks/rivals_gpu.py [--only rotate jitter] [--rounds 5] [--json FILE]

256 uint8 images lie on the device: 224 x 224, or 375 x 500 for those that end in a crop. All draws
are for each image; torchvision, which draws once for a batch, gets one image at a time. Operators
return uint8 (kornia takes and returns float32), chains normalized half floats. Each library runs in
a process of its own, all take turns, round after round. A library that lacks an operator, or is not
installed, is left out. The table gives medians, the spread of jaxaug, and the ratio of the fastest
rival's time to jaxaug's.
"""

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from child import Child
from vs_dali import MEAN, STD, dali_chain, jaxaug_chain

BATCH = 256
SMALL = (224, 224)
LARGE = (375, 500)
ON_LARGE = ("resized crop", "resize", "rrc", "jitter chain", "twelve", "eval")
CHAINS = {"rrc": "rrc", "jitter chain": "jitter", "twelve": "twelve", "eval": "eval"}

Run = Callable[[int], float]  # seconds of so many calls


def shape_of(name: str) -> tuple[int, int]:
    """Return (height, width) of the images that an operator gets."""
    return LARGE if name in ON_LARGE else SMALL


def jaxaug_programs() -> dict[str, Callable[[], Run]]:
    """Return by name a function that compiles a program."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxaug import augment as a

    pictures = {
        "flip": a.RandomHorizontalFlip(),
        "crop": a.RandomCrop(196),
        "resized crop": a.RandomResizedCrop(224),
        "resize": a.Resize((224, 224)),
        "rotate": a.RandomRotation(15),
        "affine": a.RandomAffine(10, (0.1, 0.1), (0.9, 1.1), 5),
        "perspective": a.RandomPerspective(0.5, p=1.0),
        "elastic": a.ElasticTransform(50.0, 5.0),
        "brightness": a.ColorJitter(brightness=0.4),
        "contrast": a.ColorJitter(contrast=0.4),
        "saturation": a.ColorJitter(saturation=0.4),
        "hue": a.ColorJitter(hue=0.1),
        "jitter": a.ColorJitter(0.4, 0.4, 0.4, 0.1),
        "grayscale": a.Grayscale(),
        "gamma": a.RandomGamma((0.8, 1.2), p=1.0),
        "solarize": a.RandomSolarize(0.5, p=1.0),
        "posterize": a.RandomPosterize(4, p=1.0),
        "equalize": a.RandomEqualize(p=1.0),
        "sharpness": a.RandomAdjustSharpness(2.0, p=1.0),
        "blur": a.GaussianBlur(5, (0.5, 2.0)),
        "noise": a.GaussianNoise(0.0, 0.1),
        "erasing": a.RandomErasing(p=1.0),
        "JPEG": a.JPEG((30, 70)),
        "RandAugment": a.RandAugment(2, 9),
        "five pointwise": a.Compose(
            [
                a.RandomGamma((0.7, 1.4)),
                a.RandomSolarize(0.5, p=0.5),
                a.RandomPosterize(5, p=0.5),
                a.RandomInvert(p=0.5),
                a.RandomRGBShift(0.1),
                a.Normalize(MEAN, STD, dtype="bfloat16"),
            ]
        ),
        **{name: jaxaug_chain(chain) for name, chain in CHAINS.items()},
    }

    def compiled(name: str) -> Run:
        height, width = shape_of(name)
        side = 512 if name in ON_LARGE else 224  # as a Decoder makes them
        pixels = np.zeros((BATCH, side, side, 3), np.uint8)
        random = np.random.default_rng(0)
        pixels[:, :height, :width] = random.integers(0, 256, (height, width, 3), np.uint8)
        sizes = np.tile(np.array([height, width], np.int32), (BATCH, 1))
        sample = {"image": jnp.asarray(pixels), "size": jnp.asarray(sizes)}
        keys = jax.random.split(jax.random.key(0), BATCH)
        program = jax.jit(jax.vmap(pictures[name]))

        return timed(lambda: program(keys, sample), jax.block_until_ready)

    return {name: functools.partial(compiled, name) for name in pictures}


def dali_programs() -> dict[str, Callable[[], Run]]:
    """Return by name a function that builds a pipeline."""
    import torch
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.auto_aug import rand_augment

    uniform = fn.random.uniform
    linear = {"interp_type": types.INTERP_LINEAR, "antialias": True}

    def factor(spread: float):
        return uniform(range=(1 - spread, 1 + spread))

    def affine(images):
        matrix = fn.transforms.combine(
            fn.transforms.rotation(angle=uniform(range=(-10.0, 10.0)), center=(112.0, 112.0)),
            fn.transforms.shear(angles=uniform(range=(-5.0, 5.0), shape=2), center=(112.0, 112.0)),
            fn.transforms.translation(offset=uniform(range=(-22.4, 22.4), shape=2)),
        )
        return fn.warp_affine(images, matrix=matrix, fill_value=0, inverse_map=False)

    def jitter(images):
        factors = {name: factor(0.4) for name in ("brightness", "contrast", "saturation")}
        return fn.color_twist(images, hue=uniform(range=(-36.0, 36.0)), **factors)

    def erased(images):
        corner = uniform(range=(0.0, 0.7), shape=2)
        sides = uniform(range=(0.1, 0.5), shape=2)
        return fn.erase(images, anchor=corner, shape=sides, normalized=True, axis_names="HW")

    def compressed(images):
        quality = fn.cast(uniform(range=(30.0, 70.0)), dtype=types.INT32)
        return fn.jpeg_compression_distortion(images, quality=quality)

    pictures = {
        "flip": lambda x: fn.flip(x, horizontal=fn.random.coin_flip()),
        "crop": lambda x: fn.crop(
            x, crop=(196, 196), crop_pos_x=uniform(range=(0, 1)), crop_pos_y=uniform(range=(0, 1))
        ),
        "resized crop": lambda x: fn.random_resized_crop(x, size=[224, 224], **linear),
        "resize": lambda x: fn.resize(x, size=[224, 224], **linear),
        "rotate": lambda x: fn.rotate(
            x, angle=uniform(range=(-15.0, 15.0)), keep_size=True, fill_value=0
        ),
        "affine": affine,
        "brightness": lambda x: fn.brightness(x, brightness=factor(0.4)),
        "contrast": lambda x: fn.contrast(x, contrast=factor(0.4)),
        "saturation": lambda x: fn.saturation(x, saturation=factor(0.4)),
        "hue": lambda x: fn.hue(x, hue=uniform(range=(-36.0, 36.0))),
        "jitter": jitter,
        "grayscale": lambda x: fn.color_space_conversion(
            x, image_type=types.RGB, output_type=types.GRAY
        ),
        "equalize": lambda x: fn.equalize(x),
        "blur": lambda x: fn.gaussian_blur(x, window_size=5, sigma=uniform(range=(0.5, 2.0))),
        "noise": lambda x: fn.noise.gaussian(x, mean=0.0, stddev=25.5),
        "erasing": erased,
        "JPEG": compressed,
        "RandAugment": lambda x: rand_augment.rand_augment(x, n=2, m=9, shape=[224, 224]),
        **{
            name: (lambda x, chain=chain: dali_chain(chain, x, fn, types))
            for name, chain in CHAINS.items()
        },
    }

    def built(name: str) -> Run:
        pixels = torch.randint(0, 256, (BATCH, *shape_of(name), 3), dtype=torch.uint8).cuda()

        @pipeline_def(enable_conditionals=True)
        def pipeline():
            source = {"source": lambda: pixels, "batch": True, "no_copy": True}
            return pictures[name](fn.external_source(device="gpu", layout="HWC", **source))

        made = pipeline(batch_size=BATCH, num_threads=16, device_id=0, prefetch_queue_depth=2)
        made.build()

        return timed(made.run, lambda _: torch.cuda.synchronize())

    return {name: functools.partial(built, name) for name in pictures}


def kornia_programs() -> dict[str, Callable[[], Run]]:
    """Return by name a function that makes a module."""
    import kornia.augmentation as k
    import torch

    always: Any = {"p": 1.0}
    normalize = k.Normalize(torch.tensor(MEAN), torch.tensor(STD))
    crop = [k.RandomResizedCrop((224, 224)), k.RandomHorizontalFlip()]
    colors = k.ColorJitter(0.4, 0.4, 0.4, 0.1, **always)
    shears = [k.RandomAffine(0.0, shear=(-5.0, 5.0, -5.0, 5.0), **always) for _ in range(7)]
    pictures = {
        "flip": lambda: k.RandomHorizontalFlip(),
        "crop": lambda: k.RandomCrop((196, 196)),
        "resized crop": lambda: k.RandomResizedCrop((224, 224)),
        "resize": lambda: k.Resize((224, 224), antialias=True),
        "rotate": lambda: k.RandomRotation(15.0, **always),
        "affine": lambda: k.RandomAffine(10.0, (0.1, 0.1), (0.9, 1.1), 5.0, **always),
        "perspective": lambda: k.RandomPerspective(0.5, **always),
        "elastic": lambda: k.RandomElasticTransform((63, 63), (5.0, 5.0), (0.2, 0.2), **always),
        "brightness": lambda: k.RandomBrightness((0.6, 1.4), **always),
        "contrast": lambda: k.RandomContrast((0.6, 1.4), **always),
        "saturation": lambda: k.RandomSaturation((0.6, 1.4), **always),
        "hue": lambda: k.RandomHue((-0.1, 0.1), **always),
        "jitter": lambda: colors,
        "grayscale": lambda: k.RandomGrayscale(**always),
        "gamma": lambda: k.RandomGamma((0.8, 1.2), **always),
        "solarize": lambda: k.RandomSolarize(0.5, 0.0, **always),
        "posterize": lambda: k.RandomPosterize(4.0, **always),
        "equalize": lambda: k.RandomEqualize(**always),
        "sharpness": lambda: k.RandomSharpness(1.0, **always),
        "blur": lambda: k.RandomGaussianBlur((5, 5), (0.5, 2.0), **always),
        "noise": lambda: k.RandomGaussianNoise(0.0, 0.1, **always),
        "erasing": lambda: k.RandomErasing(**always),
        "JPEG": lambda: k.RandomJPEG((30.0, 70.0), **always),
        "RandAugment": lambda: k.auto.RandAugment(2, 9),
        "five pointwise": lambda: k.AugmentationSequential(
            k.RandomGamma((0.7, 1.4), p=0.5),
            k.RandomSolarize(0.5, 0.0, p=0.5),
            k.RandomPosterize(5.0, p=0.5),
            k.RandomInvert(p=0.5),
            k.RandomRGBShift(0.1, 0.1, 0.1, **always),
            normalize,
        ),
        "rrc": lambda: k.AugmentationSequential(*crop, normalize),
        "jitter chain": lambda: k.AugmentationSequential(
            *crop, k.RandomRotation(7.0, **always), colors, normalize
        ),
        "twelve": lambda: k.AugmentationSequential(
            *crop, k.RandomRotation(7.0, **always), *shears, normalize
        ),
    }

    def made(name: str) -> Run:
        pixels = torch.rand((BATCH, 3, *shape_of(name))).cuda()
        module = pictures[name]().cuda()
        return timed(lambda: module(pixels), lambda _: torch.cuda.synchronize())

    return {name: functools.partial(made, name) for name in pictures}


def torchvision_programs() -> dict[str, Callable[[], Run]]:
    """Return by name a function that makes a transform."""
    import torch
    from torchvision.transforms import v2

    ending = [v2.ToDtype(torch.float16, scale=True), v2.Normalize(MEAN, STD)]
    crop = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    shears = [v2.RandomAffine(0, shear=(-5, 5, -5, 5)) for _ in range(7)]
    colors = v2.ColorJitter(0.4, 0.4, 0.4, 0.1)
    pictures = {
        "flip": v2.RandomHorizontalFlip(),
        "crop": v2.RandomCrop(196),
        "resized crop": v2.RandomResizedCrop(224, antialias=True),
        "resize": v2.Resize((224, 224), antialias=True),
        "rotate": v2.RandomRotation(15, v2.InterpolationMode.BILINEAR),
        "affine": v2.RandomAffine(10, (0.1, 0.1), (0.9, 1.1), 5, v2.InterpolationMode.BILINEAR),
        "perspective": v2.RandomPerspective(0.5, 1.0),
        "elastic": v2.ElasticTransform(50.0, 5.0),
        "brightness": v2.ColorJitter(brightness=0.4),
        "contrast": v2.ColorJitter(contrast=0.4),
        "saturation": v2.ColorJitter(saturation=0.4),
        "hue": v2.ColorJitter(hue=0.1),
        "jitter": colors,
        "grayscale": v2.Grayscale(3),
        "solarize": v2.RandomSolarize(128, 1.0),
        "posterize": v2.RandomPosterize(4, 1.0),
        "equalize": v2.RandomEqualize(1.0),
        "sharpness": v2.RandomAdjustSharpness(2.0, 1.0),
        "blur": v2.GaussianBlur(5, (0.5, 2.0)),
        "erasing": v2.RandomErasing(1.0),
        "RandAugment": v2.RandAugment(2, 9),
        "rrc": v2.Compose([*crop, *ending]),
        "jitter chain": v2.Compose([*crop, v2.RandomRotation(7), colors, *ending]),
        "twelve": v2.Compose([*crop, v2.RandomRotation(7), *shears, *ending]),
        "eval": v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224), *ending]),
    }

    def made(name: str) -> Run:
        pixels = torch.randint(0, 256, (BATCH, 3, *shape_of(name)), dtype=torch.uint8).cuda()
        transform = pictures[name]

        def step():
            return torch.stack([transform(picture) for picture in pixels])

        return timed(step, lambda _: torch.cuda.synchronize())

    return {name: functools.partial(made, name) for name in pictures}


def timed(step: Callable[[], Any], wait: Callable[[Any], Any]) -> Run:
    """Return the timing of a step; `wait` gets its last result and ends when that is there."""

    def run(calls: int) -> float:
        started = time.perf_counter()
        for _ in range(calls):
            result = step()
        wait(result)
        return time.perf_counter() - started

    return run


LIBRARIES = {
    "jaxaug": jaxaug_programs,
    "dali": dali_programs,
    "kornia": kornia_programs,
    "torchvision": torchvision_programs,
}


def serve(library: str, seconds: float) -> None:
    """Answer each name on standard input with the microseconds of an image, or a reason."""
    programs = LIBRARIES[library]()
    print("ready", flush=True)
    found: tuple[str, Run, int] | None = None
    for line in sys.stdin:
        name = line.strip()
        try:
            if found is None or found[0] != name:
                run = programs[name]()
                run(2)
                found = (name, run, max(2, round(seconds / (run(2) / 2))))
            _, run, calls = found
            print("us", run(calls) / calls / BATCH * 1e6, flush=True)
        except Exception as error:  # of any library: it is left out here
            print("none", name, repr(error)[:120].replace("\n", " "), flush=True)


class Contestant:
    """A library in a process of its own."""

    def __init__(self, library: str, seconds: float):
        command = [sys.executable, __file__, "--serve", library, "--seconds", str(seconds)]
        self._child = Child(command, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
        self.close = self._child.close

    def wait(self) -> bool:
        """Return False where the library is missing."""
        try:
            self._child.answer("ready")
        except RuntimeError:
            return False
        return True

    def microseconds(self, name: str) -> float | None:
        """Return the time of an image, or None where the library fails or has no such operator."""
        self._child.send(name)
        try:
            kind, _, rest = self._child.answer("us ", "none ").partition(" ")
        except RuntimeError as error:
            kind, rest = "none", str(error)
        if kind == "us":
            return float(rest)
        if "KeyError" not in rest:
            print(f"  {rest}", file=sys.stderr, flush=True)
        return None


def compare(name: str, contestants: dict[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """Return the microseconds of each library that has the operator, one for each round."""
    taking_part = list(contestants)
    times: dict[str, list[float]] = {library: [] for library in taking_part}
    for number in range(rounds + 1):  # the first compiles
        for library in list(taking_part):
            found = contestants[library].microseconds(name)
            if found is None:
                taking_part.remove(library)
                times.pop(library)
            elif number:
                times[library].append(found)
    return times


def main() -> None:
    """Parse the arguments, measure in turn, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], help="names of operators and chains")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a library in a round")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", choices=list(LIBRARIES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve, args.seconds)

    contestants = {library: Contestant(library, args.seconds) for library in LIBRARIES}
    ready = {library: each for library, each in contestants.items() if each.wait()}
    print(f"{BATCH} images, us an image; taking part: {', '.join(ready)}", flush=True)
    names = args.only or [*CHAINS, *(n for n in operator_names() if n not in CHAINS)]
    results = {}
    for name in names:
        times = compare(name, ready, args.rounds)
        results[name] = times
        medians = {library: statistics.median(found) for library, found in times.items()}
        cells = "  ".join(f"{library} {value:8.2f}" for library, value in medians.items())
        rivals = [value for library, value in medians.items() if library != "jaxaug"]
        text = f"{name:14s} {cells}"
        if rivals and "jaxaug" in times:
            mine = times["jaxaug"]
            ratio = min(rivals) / medians["jaxaug"]
            text += f"  ({min(mine):.2f} to {max(mine):.2f})  {ratio:6.2f} x"
        print(text, flush=True)
    for each in ready.values():
        each.close()
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


def operator_names() -> list[str]:
    """Return the names of all operators, in the order of jaxaug's list."""
    return list(jaxaug_programs())


if __name__ == "__main__":
    main()
