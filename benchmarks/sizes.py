"""Compare decoding with the engines alone, by size, chroma sampling and batch.

    python benchmarks/sizes.py TAR [--sides 256 512 1024 2048 4096] [--batches 32 256 1024]
        [--rounds 5] [--seconds 0.2] [--json FILE]

The photographs of TAR are resized to SIDE x 3/4 SIDE and encoded with quality 90. "nvJPEG" is the
library alone, driven by three threads with 64 images a call: the roof. "Decoder" has a canvas of
the images' size and three callers. The two take turns, round after round; the table gives medians,
spreads and the part of the roof. A measurement takes as long as several calls; batches of more than
4 GB of pixels are left out.
"""

import argparse
import functools
import io
import json
import statistics
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
from decode import decoder_rate, repeat
from PIL import Image
from rate import rate
from raw_nvjpeg import raw_engines
from vs_dali import spread

from jaxaug.decode import Decoder, Encoded

SAMPLINGS = {"4:4:4": 0, "4:2:0": 2}  # Pillow's numbers
DISTINCT = 32  # photographs
CALLERS = 3
ROOF_BATCH = 64
MAX_BYTES = 4e9
CALLS = 2  # of each caller in a measurement, at
PIXELS_A_SECOND = 6e9  # of all engines of an H200


def resize(image: bytes, side: int, sampling: str) -> bytes:
    """Return a photograph as a JPEG of SIDE x 3/4 SIDE pixels."""
    out = io.BytesIO()
    resized = Image.open(io.BytesIO(image)).convert("RGB").resize((side, side * 3 // 4))
    resized.save(out, "JPEG", quality=90, subsampling=SAMPLINGS[sampling])
    return out.getvalue()


def compare(
    images: list[bytes], side: int, sampling: str, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return a row for each batch size, with the rates of both sides."""
    canvas = (side * 3 // 4, side)
    batches = [batch for batch in args.batches if batch * side * side * 9 / 4 < MAX_BYTES]
    encoded = {batch: Encoded.from_bytes(repeat(images, batch)) for batch in batches}
    work = raw_engines([repeat(images, ROOF_BATCH)], canvas)

    roof: list[float] = []
    rates: dict[int, list[float]] = {batch: [] for batch in batches}
    with Decoder(canvas, "nvjpeg", jax.local_devices()[:1], deterministic=True) as decoder:
        for batch in batches:  # the first batch makes nvJPEG's states
            jax.block_until_ready(decoder.decode(encoded[batch]).pixels)
        for _ in range(args.rounds):
            roof.append(rate(work, CALLERS, seconds(ROOF_BATCH, canvas, args)))
            for batch, found in rates.items():
                length = seconds(batch, canvas, args)
                found.append(decoder_rate(decoder, encoded[batch], CALLERS, length))

    name = f"{sampling}, {side} x {canvas[0]}"
    return [
        {"case": name, "batch": batch, "Decoder": found, "nvJPEG": roof}
        for batch, found in rates.items()
    ]


def seconds(batch: int, canvas: tuple[int, int], args: argparse.Namespace) -> float:
    """Return the length of a measurement."""
    calls = CALLS * CALLERS * batch * canvas[0] * canvas[1] / PIXELS_A_SECOND
    return max(args.seconds, calls)


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tar", type=Path)
    parser.add_argument("--sides", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 256, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    with tarfile.open(args.tar) as tar:
        members = [member for member in tar if member.isfile()][:DISTINCT]
        photographs = [tar.extractfile(member).read() for member in members]  # type: ignore[union-attr]

    rows = []
    for sampling in SAMPLINGS:
        for side in args.sides:
            with ThreadPoolExecutor() as pool:
                resized = functools.partial(resize, side=side, sampling=sampling)
                images = list(pool.map(resized, photographs))
            for row in compare(images, side, sampling, args):
                part = statistics.median(row["Decoder"]) / statistics.median(row["nvJPEG"])
                rates = f"Decoder {spread(row['Decoder'])}  nvJPEG {spread(row['nvJPEG'])}"
                print(f"{row['case']:20s} batch {row['batch']:4d}  {rates}  {part:.2f}", flush=True)
                rows.append(row)
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
