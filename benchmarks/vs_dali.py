"""Images/s from a tar to augmented arrays on one GPU: jaxaug's Loader beside DALI's JAX iterator.

    python benchmarks/vs_dali.py CASE... [--chain rrc] [--rounds 5] [--seconds 1.5] [--json FILE]

A case is TAR[:CANVAS[:CHANGE]]. CANVAS is one side of a square `Decoder`, or "auto" for the
Loader's own choice. CHANGE rewrites the images first: "turned" gives all of them EXIF orientation
6, "progressive" makes a seeded twentieth progressive, "large" makes 4,000 x 3,000 photographs of
quality 90, "q90" encodes all as 4:2:0 of quality 90.

Both sides shuffle, decode, augment and normalize to half precision, batches of 256. DALI runs in a
process of its own, as its users run it, at the best of three shares for the hardware decoder, with
whole and with region decoding. The two take turns, round after round; the table gives medians and
the spread. Without DALI (`nvidia-dali-cuda130`) jaxaug is measured alone.
"""

import argparse
import dataclasses
import io
import json
import os
import statistics
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from child import Child

BATCH = 256
COPIES_OF = 3_500  # images in each measured tar, the given ones repeated
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
LOADS = (0.65, 0.9, 1.0)

# Two processes share the GPU: neither may take most of its memory at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


# ---------------------------------------------------------------- images


def turned(image: bytes, number: int) -> bytes:
    """Return the JPEG with EXIF orientation 6."""
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    payload = exif.tobytes()
    return image[:2] + b"\xff\xe1" + (len(payload) + 2).to_bytes(2, "big") + payload + image[2:]


def progressive(image: bytes, number: int) -> bytes:
    """Return every twentieth image as a progressive JPEG of the same quality."""
    from PIL import Image

    if number % 20 or Image.open(io.BytesIO(image)).mode not in ("RGB", "L"):
        return image
    file = io.BytesIO()
    options: dict[str, Any] = {"quality": 90, "progressive": True}
    Image.open(io.BytesIO(image)).save(file, "JPEG", **options)
    return file.getvalue()


def reencoded(image: bytes, size: tuple[int, int] | None) -> bytes:
    from PIL import Image

    picture = Image.open(io.BytesIO(image)).convert("RGB")
    if size is not None:
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90, subsampling=2)
    return file.getvalue()


CHANGES = {
    "": lambda image, number: image,
    "turned": turned,
    "progressive": progressive,
    "large": lambda image, number: reencoded(image, (4000, 3000)),
    "q90": lambda image, number: reencoded(image, None),
}


def write_tar(source: Path, target: Path, change: str) -> None:
    """Write the images of `source`, changed and repeated, with a label each."""
    with tarfile.open(source) as tar:
        members = [member for member in tar if member.isfile()]
        images = [tar.extractfile(member).read() for member in members]  # type: ignore[union-attr]
    if change == "large":
        images = images[:48]
    with ThreadPoolExecutor() as pool:  # Pillow gives up the GIL
        images = list(pool.map(CHANGES[change], images, range(len(images))))
    total = 768 if change == "large" else COPIES_OF
    with tarfile.open(target, "w") as tar:
        for number in range(total):
            for suffix, data in ((".jpg", images[number % len(images)]), (".cls", b"%d" % number)):
                member = tarfile.TarInfo(f"{number:06d}{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


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
        "eval": [augment.Resize(256), augment.CenterCrop(224)],
    }
    return augment.Compose([*chains[name], normalize])


class Jaxaug:
    """A Loader that stays open between the rounds."""

    def __init__(self, tar: Path, canvas: str, chain: str):
        from jaxaug import Decoder, Loader
        from jaxaug.iterators import WebDataset

        side = None if canvas == "auto" else int(canvas)
        self._decoder = None if side is None else Decoder((side, side))
        options = {"transform": jaxaug_chain(chain), "decoder": self._decoder}
        self._loader = Loader(WebDataset(str(tar)), BATCH, **options)

    def rate(self, seconds: float) -> float:
        return measure(lambda: next(self._loader)["image"], seconds)

    def close(self) -> None:
        self._loader.close()
        if self._decoder is not None:
            self._decoder.close()


def measure(step, seconds: float, images: int = BATCH) -> float:
    """Return images/s of `step`, one batch a call, after more batches than any side keeps ready."""
    import jax

    for _ in range(8):
        last = step()
    jax.block_until_ready(last)

    count = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        last = step()
        count += images
    jax.block_until_ready(last)
    return count / (time.perf_counter() - started)


# ---------------------------------------------------------------- DALI


def dali_chain(name: str, images, fn, types):
    """Return the images augmented as `jaxaug_chain` does."""
    uniform = fn.random.uniform
    linear = {"interp_type": types.INTERP_LINEAR, "antialias": True}
    mirror = fn.random.coin_flip()
    if name == "eval":
        images = fn.resize(images, resize_shorter=256, **linear)
        mirror = 0
    else:
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
    return normalized(images, mirror, fn, types)


def normalized(images, mirror, fn, types):
    return fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT16,
        output_layout="HWC",
        crop=(224, 224),
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        mirror=mirror,
    )


def dali_iterator(
    tar: str,
    chain: str,
    load: float,
    regions: bool,
    threads: int,
    batch: int = BATCH,
    prefetch: int = 3,
):
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.jax import DALIGenericIterator

    @pipeline_def
    def pipeline():
        data, _ = fn.readers.webdataset(
            paths=[tar], ext=["jpg", "cls"], random_shuffle=True, missing_component_behavior="error"
        )
        options = {"device": "mixed", "hw_decoder_load": load}
        if not regions:
            images = dali_chain(chain, fn.decoders.image(data, **options), fn, types)
        else:
            cropped = fn.decoders.image_random_crop(
                data, random_area=[0.08, 1.0], random_aspect_ratio=[0.75, 4 / 3], **options
            )
            linear = {"interp_type": types.INTERP_LINEAR, "antialias": True}
            resized = fn.resize(cropped, size=[224, 224], **linear)
            images = normalized(resized, fn.random.coin_flip(), fn, types)
        return images

    options = {"device_id": 0, "prefetch_queue_depth": prefetch}
    built = pipeline(batch_size=batch, num_threads=threads, **options)
    return DALIGenericIterator([built], ["image"])


def serve_dali() -> None:
    """Answer lines {"tar", "chain", "load", "regions", "seconds"} with images/s."""
    iterators: dict[str, Any] = {}
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        seconds = request.pop("seconds")
        key = json.dumps(request)
        if key not in iterators:
            if len(iterators) > 6:
                iterators.clear()
            iterators[key] = dali_iterator(**request, threads=len(os.sched_getaffinity(0)))
        iterator = iterators[key]
        print(
            "rate", measure(lambda iterator=iterator: next(iterator)["image"], seconds), flush=True
        )


class Dali:
    """DALI in a process of its own, without the hardware queues that jaxaug asks CUDA for."""

    def __init__(self):
        command = [sys.executable, __file__, "--serve-dali"]
        self._child = Child(command, {"CUDA_DEVICE_MAX_CONNECTIONS": "8"})  # CUDA's own choice
        self._child.answer("ready")

    def best(self, tar: Path, chain: str) -> dict[str, Any]:
        """Return the settings of the highest rate."""
        choices = [{"load": load, "regions": False} for load in LOADS]
        if chain == "rrc":
            choices += [{"load": 0.9, "regions": True}]
        rates = [self.rate(tar, chain, choice, 0.7) for choice in choices]
        print("  DALI", dict(zip(map(str, choices), map(round, rates))), flush=True)
        return choices[rates.index(max(rates))]

    def rate(self, tar: Path, chain: str, settings: dict[str, Any], seconds: float) -> float:
        request = {"tar": str(tar), "chain": chain, "seconds": seconds, **settings}
        return float(self._child.ask(json.dumps(request), "rate").split()[1])


# ---------------------------------------------------------------- table


@dataclasses.dataclass
class Row:
    case: str
    chain: str
    jaxaug: list[float]
    dali: list[float]
    settings: dict[str, Any]
    canvas: tuple[int, int]

    def __str__(self) -> str:
        text = f"{self.case:44s} {self.chain:7s} jaxaug {spread(self.jaxaug)}"
        if self.dali:
            ratio = statistics.median(self.jaxaug) / statistics.median(self.dali)
            text += f"  DALI {spread(self.dali)}  {ratio:5.2f} x"
        return f"{text}  canvas {self.canvas}"


def spread(rates: list[float]) -> str:
    return f"{statistics.median(rates):7,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def compare(case: str, tar: Path, canvas: str, chain: str, dali: Dali | None, args) -> Row:
    """Measure one case, both sides in turn."""
    loader = Jaxaug(tar, canvas, chain)
    settings = dali.best(tar, chain) if dali else {}
    row = Row(case, chain, [], [], settings, loader._loader.decoder.canvas)
    loader.rate(args.seconds)  # DALI has been warmed up by the search for its best settings
    for _ in range(args.rounds):
        row.jaxaug.append(loader.rate(args.seconds))
        if dali:
            row.dali.append(dali.rate(tar, chain, settings, args.seconds))
    loader.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--chain", nargs="+", default=["rrc"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve-dali", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve_dali:
        return serve_dali()

    try:
        dali = Dali()
    except RuntimeError:
        dali = None
        print("DALI is not installed")
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for case in args.cases:
            name, canvas, change = (case.split(":") + ["", ""])[:3]
            case = case.removeprefix(f"{Path(name).parent}/")
            tar = Path(folder) / f"{Path(name).stem}{change}.tar"
            if not tar.exists():
                write_tar(Path(name), tar, change)
            for chain in args.chain:
                rows.append(compare(case, tar, canvas or "auto", chain, dali, args))
                print(rows[-1], flush=True)
                if args.json:
                    run = [dataclasses.asdict(row) for row in rows]
                    args.json.write_text(json.dumps(run, indent=1))


if __name__ == "__main__":
    main()
