"""Time every operator of jaxaug beside those of kornia and AlbumentationsX: microseconds an image.

    python benchmarks/operators.py jaxaug --json ours.json
    python benchmarks/operators.py kornia --json kornia.json
    python benchmarks/operators.py albumentations --json albumentations.json
    python benchmarks/operators.py table ours.json kornia.json albumentations.json

A batch of 256 images of 224 x 224, on the default device. jaxaug gets and returns uint8, each
operator alone, compiled, applied to every image; kornia gets and returns float32. AlbumentationsX
gets an image at a time, in as many processes as there are CPUs, and its figure is that of all of
them together. Each figure is the median of rounds of `--seconds`. An operator without default
arguments has them in ARGUMENTS; new ones of jaxaug enter by themselves. The table gives jaxaug's
time, the peers', and by how much they are slower.
"""

import argparse
import dataclasses
import functools
import inspect
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 256
SIDE = 224
MEAN = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

Timed = dict[str, float | str]  # microseconds by the name of ours, or why there is no figure


# ---------------------------------------------------------------- jaxaug

_BANK = tuple(np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), np.uint8))
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "BandGain": {"offset": (-0.1, 0.1)},
    "CenterCrop": {"size": 196},
    "ColorJitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
    "ElasticTransform": {"alpha": 50.0, "sigma": 5.0},
    "GaussianBlur": {"kernel_size": 5, "sigma": (0.5, 2.0)},
    "GaussianNoise": {"sigma": 0.1},
    "JPEG": {"quality": (30, 70)},
    "CropNonEmptyMaskIfExists": {"size": 196},
    "FDA": {"references": _BANK},
    "HistogramMatching": {"references": _BANK},
    "KernelFilter": {"kernel": ((0.0, 0.1, 0.0), (0.1, 0.6, 0.1), (0.0, 0.1, 0.0))},
    "LetterBox": {"size": SIDE},
    "LookupTable": {"table": tuple(1 - i / 255 for i in range(256))},
    "CutMix": {"num_classes": 10},
    "MixUp": {"num_classes": 10},
    "MixUpOrCutMix": {"num_classes": 10},
    "Mosaic": {"size": SIDE, "num_classes": 10},
    "Normalize": MEAN,
    "Pad": {"padding": 16},
    "OverlayElements": {"elements": tuple(image[..., [0, 1, 2, 0]] for image in _BANK)},
    "PixelDistributionAdaptation": {"references": _BANK},
    "RandomAdjustSharpness": {"sharpness_factor": 2.0},
    "RandomAffine": {
        "degrees": 10,
        "translate": (0.1, 0.1),
        "scale": (0.9, 1.1),
        "shear": 5.0,
    },
    "RandomCrop": {"size": 196},
    "RandomCropNearBox": {"size": 196},
    "RandomSizedBoxSafeCrop": {"size": 196},
    "RandomPosterize": {"bits": 4},
    "RandomResize": {"min_size": 160, "max_size": SIDE, "canvas": SIDE},
    "RandomResizedCrop": {"size": SIDE},
    "RandomRotation": {"degrees": 15},
    "RandomShear": {"shear": 5.0},
    "RandomShortestSize": {"min_size": (160, 192), "canvas": SIDE},
    "RandomSolarize": {"threshold": 0.5},
    "RandomTranslate": {"translate": (0.1, 0.1)},
    "Resize": {"size": 196},
    "ScaleJitter": {"target_size": (SIDE, SIDE)},
}


def ours(names: list[str]) -> Timed:
    """Return the times of jaxaug's operators; compiled side by side, measured in turn."""
    import jax

    from jaxaug import augment

    found = {}
    for name, kind in vars(augment).items():
        single = inspect.isclass(kind) and issubclass(kind, (augment.Transform, augment.GroupOp))
        if single and not inspect.isabstract(kind) and dataclasses.is_dataclass(kind):
            found[name] = kind
    programs: dict[str, Any] = {}
    errors: Timed = {}

    started = time.perf_counter()

    def compile_one(name: str) -> None:
        if time.perf_counter() - started > _LIMIT:
            errors[name] = "beyond --limit"
            return
        try:
            arguments = dict(ARGUMENTS.get(name, {}))
            if "p" in inspect.signature(found[name]).parameters:
                arguments["p"] = 1.0
            operands = _operands(found[name](**arguments))
            program = jax.jit(jax.vmap(found[name](**arguments)))
            programs[name] = (program.lower(*operands).compile(), operands)
        except Exception as error:  # one that needs more arguments, or more than images
            errors[name] = repr(error)[:100].replace("\n", " ")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, [name for name in found if not names or name in names]))
    times: Timed = errors
    for name in sorted(programs):
        program, operands = programs.pop(name)
        times[name] = _median(functools.partial(program, *operands), jax.block_until_ready) / BATCH
    return times


def _operands(transform: Any) -> tuple[Any, dict[str, Any]]:
    """Return keys and samples for a transform: images, and boxes or masks where it needs them."""
    import jax

    random = np.random.default_rng(0)
    sample = {"image": random.integers(0, 256, (BATCH, SIDE, SIDE, 3), np.uint8)}
    if any(word in type(transform).__name__ for word in ("Box", "Constrained", "IoU")):
        sample["boxes"] = np.tile(np.array([[40.0, 40.0, 140.0, 150.0]], np.float32), (BATCH, 1, 1))
    if type(transform).__name__ in ("CropNonEmptyMaskIfExists", "MaskDropout"):
        mask = np.zeros((BATCH, SIDE, SIDE), np.uint8)
        mask[:, 60:120, 80:160] = 1
        sample["mask"] = mask
    size = getattr(transform, "group_size", None)
    rows = BATCH // size if size else BATCH
    if size:
        sample = {k: v.reshape(rows, size, *v.shape[1:]) for k, v in sample.items()}
        sample["label"] = np.zeros((rows, size), np.int32)
    return jax.random.split(jax.random.key(0), rows), jax.device_put(sample)


# ---------------------------------------------------------------- kornia


def kornia(names: list[str]) -> Timed:
    """Return the times of kornia's operators, by our names."""
    import kornia.augmentation as k
    import torch

    always: Any = {"p": 1.0}
    modules: dict[str, Callable[[], Any]] = {
        "BoxBlur": lambda: k.RandomBoxBlur((5, 5), **always),
        "CLAHE": lambda: k.RandomClahe((1.0, 4.0), **always),
        "CenterCrop": lambda: k.CenterCrop((196, 196)),
        "ChannelDropout": lambda: k.RandomChannelDropout(**always),
        "ColorJitter": lambda: k.ColorJitter(0.4, 0.4, 0.4, 0.1, **always),
        "CutMix": lambda: k.RandomCutMixV2(**always),
        "ElasticTransform": lambda: k.RandomElasticTransform(
            (63, 63), (5.0, 5.0), (0.2, 0.2), **always
        ),
        "GaussianBlur": lambda: k.RandomGaussianBlur((5, 5), (0.5, 2.0), **always),
        "GaussianNoise": lambda: k.RandomGaussianNoise(0.0, 0.1, **always),
        "Grayscale": lambda: k.RandomGrayscale(**always),
        "Illumination": lambda: k.RandomLinearIllumination(**always),
        "JPEG": lambda: k.RandomJPEG((30.0, 70.0), **always),
        "MedianBlur": lambda: k.RandomMedianBlur((3, 3), **always),
        "MixUp": lambda: k.RandomMixUpV2(**always),
        "Mosaic": lambda: k.RandomMosaic((224, 224), **always),
        "MotionBlur": lambda: k.RandomMotionBlur((3, 7), 35.0, 0.5, **always),
        "Normalize": lambda: k.Normalize(torch.tensor(MEAN["mean"]), torch.tensor(MEAN["std"])),
        "OpticalDistortion": lambda: k.RandomFisheye(
            torch.tensor([-0.3, 0.3]), torch.tensor([-0.3, 0.3]), torch.tensor([0.9, 1.0]), **always
        ),
        "PlanckianJitter": lambda: k.RandomPlanckianJitter(**always),
        "PlasmaBrightnessContrast": lambda: k.RandomPlasmaBrightness(**always),
        "PlasmaShadow": lambda: k.RandomPlasmaShadow(**always),
        "RandAugment": lambda: k.auto.RandAugment(2, 9),
        "RandomAdjustSharpness": lambda: k.RandomSharpness(1.0, **always),
        "RandomAffine": lambda: k.RandomAffine(10.0, (0.1, 0.1), (0.9, 1.1), 5.0, **always),
        "RandomAutocontrast": lambda: k.RandomAutoContrast(**always),
        "RandomChannelPermutation": lambda: k.RandomChannelShuffle(**always),
        "RandomCrop": lambda: k.RandomCrop((196, 196)),
        "RandomEqualize": lambda: k.RandomEqualize(**always),
        "RandomErasing": lambda: k.RandomErasing(**always),
        "RandomGamma": lambda: k.RandomGamma((0.8, 1.2), **always),
        "RandomGridShuffle": lambda: k.RandomJigsaw((4, 4), **always),
        "RandomHorizontalFlip": lambda: k.RandomHorizontalFlip(**always),
        "RandomHueYIQ": lambda: k.RandomHue((-0.1, 0.1), **always),
        "RandomInvert": lambda: k.RandomInvert(**always),
        "RandomPerspective": lambda: k.RandomPerspective(0.5, **always),
        "RandomPosterize": lambda: k.RandomPosterize(4.0, **always),
        "RandomRGBShift": lambda: k.RandomRGBShift(0.1, 0.1, 0.1, **always),
        "RandomRain": lambda: k.RandomRain(
            drop_height=(10, 20), drop_width=(1, 3), number_of_drops=(200, 1000), **always
        ),
        "RandomResizedCrop": lambda: k.RandomResizedCrop((224, 224)),
        "RandomRotate90": lambda: k.RandomRotation90((0, 3), **always),
        "RandomRotation": lambda: k.RandomRotation(15.0, **always),
        "RandomShear": lambda: k.RandomShear(5.0, **always),
        "RandomSnow": lambda: k.RandomSnow((0.1, 0.3), (2.0, 3.0), **always),
        "RandomSolarize": lambda: k.RandomSolarize(0.5, 0.0, **always),
        "RandomTranslate": lambda: k.RandomTranslate((0.1, 0.1), (0.1, 0.1), **always),
        "RandomVerticalFlip": lambda: k.RandomVerticalFlip(**always),
        "Resize": lambda: k.Resize((196, 196), antialias=True),
        "SaltAndPepper": lambda: k.RandomSaltAndPepperNoise(**always),
        "ThinPlateSpline": lambda: k.RandomThinPlateSpline(**always),
        "TrivialAugmentWide": lambda: k.auto.TrivialAugment(),
    }
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pixels = torch.rand((BATCH, 3, SIDE, SIDE), device=device)
    labels = torch.zeros(BATCH, dtype=torch.long, device=device)
    boxes = torch.tensor([[[40.0, 40, 140, 150]]], device=device).repeat(BATCH, 1, 1)

    def wait(_: Any) -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    times: Timed = {}
    for name, make in modules.items():
        if names and name not in names:
            continue
        beside = {"CutMix": (labels,), "MixUp": (labels,), "Mosaic": (boxes,)}.get(name, ())
        try:
            module = make().to(device)
            times[name] = _median(functools.partial(module, pixels, *beside), wait) / BATCH
        except Exception as error:  # of any version: it is left out
            times[name] = repr(error)[:100].replace("\n", " ")
    return times


# ---------------------------------------------------------------- AlbumentationsX

ALBUMENTATIONS: Mapping[str, str] = {
    "BoxBlur": "Blur",
    "GaussianNoise": "GaussNoise",
    "Grayscale": "ToGray",
    "JPEG": "ImageCompression",
    "PCALighting": "FancyPCA",
    "RandomAdjustSharpness": "Sharpen",
    "RandomAffine": "Affine",
    "RandomAutocontrast": "AutoContrast",
    "RandomChannelPermutation": "ChannelSwap",
    "RandomD4": "D4",
    "RandomEqualize": "Equalize",
    "RandomErasing": "Erasing",
    "RandomHorizontalFlip": "HorizontalFlip",
    "RandomInvert": "InvertImg",
    "RandomPerspective": "Perspective",
    "RandomPhotometricDistort": "PhotoMetricDistort",
    "RandomPosterize": "Posterize",
    "RandomRGBShift": "RGBShift",
    "RandomRotation": "Rotate",
    "RandomSolarize": "Solarize",
    "RandomTranspose": "Transpose",
    "RandomVerticalFlip": "VerticalFlip",
    "RandomZoomOut": "RandomScale",
}
ALBUMENTATIONS_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "CenterCrop": {"height": 196, "width": 196},
    "LetterBox": {"size": (SIDE, SIDE)},
    "Pad": {"padding": 16},
    "RandomCrop": {"height": 196, "width": 196},
    "RandomResizedCrop": {"size": (SIDE, SIDE)},
    "Resize": {"height": 196, "width": 196},
}


def albumentations_times(names: list[str], seconds: float, limit: float) -> Timed:
    """Return the microseconds of an image by one process, of operators begun within a limit."""
    import albumentations
    import cv2

    cv2.setNumThreads(0)
    image = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    begun = time.perf_counter()
    times: Timed = {}
    for name in names:
        if time.perf_counter() - begun > limit:
            break
        try:
            kind = getattr(albumentations, ALBUMENTATIONS.get(name, name))
            module = albumentations.Compose([kind(**ALBUMENTATIONS_ARGUMENTS.get(name, {}), p=1.0)])
            module(image=image)
            count = 0
            started = time.perf_counter()
            while time.perf_counter() - started < seconds:
                module(image=image)
                count += 1
            times[name] = (time.perf_counter() - started) / count * 1e6
        except Exception as error:  # one that needs more than an image
            times[name] = repr(error)[:100].replace("\n", " ")
    return times


def albumentations(names: list[str]) -> Timed:
    """Return the times of AlbumentationsX's operators, by our names, all CPUs together."""
    import albumentations

    from jaxaug import augment

    wanted = names or [
        name
        for name in dir(augment)
        if name[0].isupper() and hasattr(albumentations, ALBUMENTATIONS.get(name, name))
    ]
    count = len(os.sched_getaffinity(0))
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        each = pool.starmap(albumentations_times, [(wanted, _SECONDS, _LIMIT)] * count, chunksize=1)
    times: Timed = {}
    for name in wanted:
        found = [result[name] for result in each if name in result]
        words = [value for value in found if isinstance(value, str)]
        if words or len(found) < count:
            times[name] = words[0] if words else "beyond --limit"
        else:
            times[name] = 1 / sum(1 / float(value) for value in found)
    return times


# ---------------------------------------------------------------- all of them

_SECONDS = 0.1
_LIMIT = float("inf")
_ROUNDS = 3


def _median(step: Callable[[], Any], wait: Callable[[Any], None]) -> float:
    """Return the microseconds of a step, after it has run once."""
    wait(step())
    started = time.perf_counter()
    wait(step())
    calls = max(1, round(_SECONDS / _ROUNDS / (time.perf_counter() - started)))
    rounds = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        for _ in range(calls - 1):
            step()
        wait(step())
        rounds.append((time.perf_counter() - started) / calls * 1e6)
    return statistics.median(rounds)


def table(files: list[str]) -> str:
    """Return the Markdown of the figures of jaxaug and its peers, and those without."""
    results = [json.loads(Path(file).read_text()) for file in files]
    lines = ["| operator | jaxaug | kornia | AlbumentationsX |", "| --- | --- | --- | --- |"]
    first, *peers = [result["times"] for result in results]
    for name in sorted(name for name, value in first.items() if not isinstance(value, str)):
        cells = [f"{first[name]:.2f}"]
        for times in peers:
            value = times.get(name, "")
            known = not isinstance(value, str)
            cells.append(f"{value:.1f} ({value / first[name]:.1f} x)" if known else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for result in results:
        left = {name: why for name, why in result["times"].items() if isinstance(why, str)}
        lines.append(f"\n{result['library']} {result['device']}, without a figure: {left}")
    return "\n".join(lines)


def device(library: str) -> str:
    """Return what a library runs on, in words."""
    if library == "jaxaug":
        import jax

        return f"jax {jax.__version__} {jax.devices()[0].device_kind}"
    if library == "kornia":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{len(os.sched_getaffinity(0))} CPUs"


LIBRARIES = {"jaxaug": ours, "kornia": kornia, "albumentations": albumentations}


def main() -> None:
    """Measure one library, or print the table of what was measured."""
    global _SECONDS, _LIMIT
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=[*LIBRARIES, "table"])
    parser.add_argument("files", nargs="*", help="of the table: ours first")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="of an operator")
    parser.add_argument("--limit", type=float, default=_LIMIT, help="seconds to begin operators")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.what == "table":
        print(table(args.files))
        return

    _SECONDS, _LIMIT = args.seconds, args.limit
    times = LIBRARIES[args.what](args.only)
    result = {"library": args.what, "device": device(args.what), "times": times}
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))
    for name, value in sorted(times.items()):
        print(name, value if isinstance(value, str) else f"{value:.2f}")


if __name__ == "__main__":
    main()
