"""Images/s from JPEGs to augmented arrays on one GPU: jaxaug's Loader beside DALI's JAX iterator.

    python benchmarks/vs_dali.py CASE... [--chain rrc] [--read tar files] [--rounds 5]
        [--seconds 1.5] [--beside grain torchvision] [--json FILE]

A case is TAR[:CANVAS[:CHANGE]]. CANVAS is one side of a square `Decoder`, or "auto" for the
Loader's own choice. CHANGE rewrites the images first: "turned" gives all of them EXIF orientation
6, "progressive" makes every twentieth progressive, "large" makes 4,000 x 3,000 photographs of
quality 90, "q90" encodes all as 4:2:0 of quality 90. They are read from a tar, or with
`--read files` as loose files in the folders of ten classes.

The chains: "rrc" is random-resized-crop and flip; "jitter" adds rotation by 7 degrees and a 4-op
jitter, "twelve" rotation and seven shears, "randaugment" RandAugment(2, 9); "eval" is resize 256
and center-crop. All shuffle, decode, augment and normalize to half precision, batches of 256,
ready on the GPU. DALI runs at the best of three shares for the hardware decoder with whole
decoding, and of one with regions. `--beside` adds two that decode on the host, from loose files, in
as many worker processes as there are CPUs: Grain with Pillow, which lacks "twelve" and
"randaugment", and torchvision.

Each contestant has a process of its own and is opened anew for each row. They take turns, round
after round; worker processes are stopped while others are measured. The table gives medians, the
spread, the ratio to jaxaug, and the peak of the memory from the start of the process to the end of
its warm-up (`footprint.py`). Whoever is not installed or fails is left out with a line that tells
why.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contestant import measure_in_turn, open_best
from footprint import family
from images import write_files, write_tar
from worker_contestants import PILLOW_CHAINS, WORKERS, open_grain, open_torchvision

BATCH = 256
WARM_UP = 8  # batches
CHAINS = ("rrc", "jitter", "twelve", "randaugment", "eval")
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
LOADS = (0.65, 0.9, 1.0)
MODULES = {"dali": "nvidia.dali", "grain": "grain", "torchvision": "torchvision"}
WRITERS = {"tar": write_tar, "files": write_files}

# Two processes share the GPU: neither may take most of its memory at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


# ---------------------------------------------------------------- jaxaug


def jaxaug_chain(name: str):
    from jaxaug import augment

    normalize = augment.Normalize(MEAN, STD, dtype="bfloat16")
    crop = [augment.RandomResizedCrop(224), augment.RandomHorizontalFlip()]
    jitter = [augment.RandomRotation(7), augment.ColorJitter(0.4, 0.4, 0.4, 0.1)]
    shears = [augment.RandomAffine(0, shear=(-5, 5, -5, 5)) for _ in range(7)]
    chains = {
        "rrc": crop,
        "jitter": [*crop, *jitter],
        "twelve": [*crop, augment.RandomRotation(7), *shears],
        "randaugment": [*crop, augment.RandAugment(2, 9)],
        "eval": [augment.Resize(256), augment.CenterCrop(224)],
    }
    return augment.Compose([*chains[name], normalize])


def open_jaxaug(images: Path, chain: str, canvas: str) -> "Opened":
    import jax

    from jaxaug import Decoder, Loader
    from jaxaug.iterators import ImageFolder, WebDataset

    source = ImageFolder(images) if images.is_dir() else WebDataset(str(images))
    decoder = None if canvas == "auto" else Decoder((int(canvas), int(canvas)))
    loader = Loader(source, BATCH, transform=jaxaug_chain(chain), decode=decoder)

    def close():
        loader.close()
        if decoder is not None:
            decoder.close()

    settings = {"canvas": loader.decoders["image"].canvas}
    return Opened(
        lambda: next(loader)["image"], jax.block_until_ready, settings=settings, close=close
    )


def measure(
    step: Callable[[], Any],
    seconds: float,
    images: int = BATCH,
    warm_up: int = WARM_UP,
    wait: Callable[[Any], Any] | None = None,
) -> float:
    """Return images/s of `step`, a batch a call, after more batches than any side keeps ready.

    `wait` gets what the last step returned and ends when that is ready, as `jax.block_until_ready`.
    """
    if wait is None:
        import jax

        wait = jax.block_until_ready
    for _ in range(warm_up):
        last = step()
    wait(last)

    count = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        last = step()
        count += images
    wait(last)
    return count / (time.perf_counter() - started)


# ---------------------------------------------------------------- DALI


def dali_chain(name: str, images, fn, types, cropped: bool = False):
    """Return the images augmented as `jaxaug_chain` does, those that are `cropped` by the rest."""
    uniform = fn.random.uniform
    linear = {"interp_type": types.INTERP_LINEAR, "antialias": True}
    mirror = fn.random.coin_flip()
    if name == "eval":
        images = fn.resize(images, resize_shorter=256, **linear)
        mirror = 0
    elif not cropped:
        images = fn.random_resized_crop(images, size=[224, 224], **linear)

    if name in ("jitter", "twelve"):
        angle = uniform(range=(-7.0, 7.0))
        images = fn.rotate(images, angle=angle, keep_size=True, fill_value=0)
    if name == "jitter":
        factors = {
            key: uniform(range=(0.6, 1.4)) for key in ("brightness", "contrast", "saturation")
        }
        images = fn.color_twist(images, hue=uniform(range=(-36.0, 36.0)), **factors)
    if name == "twelve":
        for _ in range(7):
            angles = uniform(range=(-5.0, 5.0), shape=2)
            matrix = fn.transforms.shear(angles=angles, center=(112.0, 112.0))
            images = fn.warp_affine(images, matrix=matrix, fill_value=0, inverse_map=False)
    if name == "randaugment":
        from nvidia.dali.auto_aug import rand_augment

        images = rand_augment.rand_augment(images, n=2, m=9, shape=[224, 224])
    return fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT16,
        output_layout="HWC",
        crop=(224, 224),
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        mirror=mirror,
    )


def dali_bytes(images: str, fn):
    """Return the encoded images of a tar or a folder."""
    if Path(images).is_dir():
        data, _ = fn.readers.file(file_root=images, random_shuffle=True)
    else:
        data, _ = fn.readers.webdataset(
            paths=[images],
            ext=["jpg", "cls"],
            random_shuffle=True,
            missing_component_behavior="error",
        )
    return data


def dali_iterator(
    images: str,
    chain: str,
    load: float,
    regions: bool,
    threads: int,
    batch: int = BATCH,
    prefetch: int = 3,
):
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.jax import DALIGenericIterator

    # Conditionals cost DALI a little, so only the chain that needs them has them.
    @pipeline_def(enable_conditionals=chain == "randaugment")
    def pipeline():
        data = dali_bytes(images, fn)
        options = {"device": "mixed", "hw_decoder_load": load}
        if regions:
            window = {"random_area": [0.08, 1.0], "random_aspect_ratio": [0.75, 4 / 3]}
            decoded = fn.decoders.image_random_crop(data, **window, **options)
            linear = {"interp_type": types.INTERP_LINEAR, "antialias": True}
            decoded = fn.resize(decoded, size=[224, 224], **linear)
        else:
            decoded = fn.decoders.image(data, **options)
        return dali_chain(chain, decoded, fn, types, cropped=regions)

    options = {"device_id": 0, "prefetch_queue_depth": prefetch}
    built = pipeline(batch_size=batch, num_threads=threads, **options)
    return DALIGenericIterator([built], ["image"])


def open_dali(images: Path, chain: str, load: float, regions: bool) -> "Opened":
    import jax

    threads = len(os.sched_getaffinity(0))
    iterator = dali_iterator(str(images), chain, load, regions, threads)
    settings = {"load": load, "regions": regions}
    return Opened(lambda: next(iterator)["image"], jax.block_until_ready, settings=settings)


# ---------------------------------------------------------------- in a contestant's process


@dataclasses.dataclass
class Opened:
    """A contestant that can be measured.

    Attributes:
      step: makes batches on the device and returns the last.
      wait: gets that batch and ends when it is ready.
      images: of a step.
      warm_up: steps that are not counted.
      settings: what it told about them.
      close: ends it.
    """

    step: Callable[[], Any]
    wait: Callable[[Any], Any]
    images: int = BATCH
    warm_up: int = WARM_UP
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    close: Callable[[], None] = lambda: None


def open_workers(opener: Callable[..., Any], images: Path, chain: str) -> Opened:
    """Return a contestant with worker processes, all of which its first step warms up."""
    step, wait, close = opener(images, chain, BATCH, MEAN, STD)
    return Opened(step, wait, BATCH * WORKERS, warm_up=1, close=close)


OPENERS = {
    "jaxaug": open_jaxaug,
    "dali": open_dali,
    "grain": functools.partial(open_workers, open_grain),
    "torchvision": functools.partial(open_workers, open_torchvision),
}


def serve(name: str, images: str, chain: str, **settings: Any) -> None:
    """Open a contestant and answer each line of seconds with its images/s."""
    try:
        opened = OPENERS[name](Path(images), chain, **settings)
        print("ready", json.dumps(opened.settings), flush=True)
        for line in sys.stdin:
            signal_workers(signal.SIGCONT)
            rate = measure(opened.step, float(line), opened.images, opened.warm_up, opened.wait)
            signal_workers(signal.SIGSTOP)  # or they would work on while others are measured
            print("rate", rate, flush=True)
        signal_workers(signal.SIGCONT)
        opened.close()
    except Exception as error:  # of any library: the contestant is left out
        traceback.print_exc()
        print("failed", repr(error)[:200].replace("\n", " "), flush=True)


def signal_workers(number: signal.Signals) -> None:
    """Send a signal to all processes that come from this one."""
    for process in family(os.getpid())[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


# ---------------------------------------------------------------- the table


def settings_of(name: str, chain: str, canvas: str) -> list[dict[str, Any]]:
    """Return the settings of which a contestant gets the best; none if it lacks the chain."""
    if name == "jaxaug":
        return [{"canvas": canvas}]
    if name == "grain" and chain not in PILLOW_CHAINS:
        return []
    if name != "dali":
        return [{}]
    whole = [{"load": load, "regions": False} for load in LOADS]
    return whole if chain == "eval" else [*whole, {"load": 0.9, "regions": True}]


def compare(
    case: dict[str, str], images: Path, canvas: str, names: list[str], args: argparse.Namespace
) -> dict[str, Any]:
    """Measure one case, all contestants in turn; return its row of the table."""
    contestants = {}
    try:
        for name in names:
            task = {"name": name, "images": str(images), "chain": case["chain"]}
            choices = settings_of(name, case["chain"], canvas)
            found = open_best(__file__, task, choices, args.seconds)
            if found:
                contestants[name] = found
        rates = measure_in_turn(contestants, args.rounds, args.seconds)
    finally:
        for contestant in contestants.values():
            contestant.close()

    return {
        **case,
        **rates,
        "memory_gb": {name: contestants[name].memory_gb for name in rates},
        "settings": {name: contestants[name].ready for name in rates},
    }


def show(row: dict[str, Any]) -> None:
    """Print a row of the table, a line for each contestant."""
    print(f"{row['case']}, {row['read']}, {row['chain']}")
    for name, memory in row["memory_gb"].items():
        ratio = ""
        if name != "jaxaug" and "jaxaug" in row:
            times = statistics.median(row["jaxaug"]) / statistics.median(row[name])
            ratio = f"{times:5.2f} x"
        used = ", ".join(f"{where} {amount:.1f} GB" for where, amount in memory.items())
        rates = f"{name:12s} {spread(row[name]):32s} {ratio:8s}"
        print(f"  {rates} {used}  {row['settings'][name]}", flush=True)


def spread(rates: list[float]) -> str:
    return f"{statistics.median(rates):7,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--chain", nargs="+", default=["rrc"], choices=CHAINS)
    parser.add_argument("--read", nargs="+", default=["tar"], choices=list(WRITERS))
    parser.add_argument("--beside", nargs="+", default=[], choices=["grain", "torchvision"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.cases and not args.serve:
        parser.error("a case is missing: TAR[:CANVAS[:CHANGE]]")
    if args.beside and "files" not in args.read:
        parser.error("--beside needs --read files: Grain and torchvision read no tar here")
    return args


def main() -> None:
    """Parse the arguments, measure in turn, print."""
    args = arguments()
    if args.serve:
        return serve(**args.serve)

    rivals = [name for name in ("dali", *args.beside) if installed(MODULES[name])]
    for name in {"dali", *args.beside}.difference(rivals):
        print(f"{name} is left out: it is not installed", flush=True)
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for text, read in itertools.product(args.cases, args.read):
            name, canvas, change = (text.split(":") + ["", ""])[:3]
            images = Path(folder) / f"{Path(name).stem}{change}.{read}"
            if not images.exists():
                WRITERS[read](Path(name), images, change)
            names = ["jaxaug", *(each for each in rivals if read == "files" or each == "dali")]
            for chain in args.chain:
                case = {"case": text.removeprefix(f"{Path(name).parent}/")}
                case |= {"read": read, "chain": chain}
                rows.append(compare(case, images, canvas or "auto", names, args))
                show(rows[-1])
                if args.json:
                    args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
