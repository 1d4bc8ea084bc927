"""Compare the pixels of a backend with those of libjpeg-turbo, by chroma sampling.

    python benchmarks/pixels.py --images FOLDER --backend nvjpeg --canvas 512 512 --batch 256

libjpeg-turbo decodes with fancy upsampling (the host backend). "worst mean" is the largest mean
absolute difference of one image, "largest" the largest difference of one value, both in levels of
255; an image may go to the engines or, where those refuse it, to the host, so that 0 is expected
there. With `deterministic=True` a second run with batches of another size must give the same bits.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import jax
import numpy as np
from images import jpegs_below

from jaxaug.decode import Decoder, Encoded, read_headers

_NAMES = {
    0x11111100: "4:4:4",
    0x21111100: "4:2:2",
    0x12111100: "4:4:0",
    0x22111100: "4:2:0",
    0x11000000: "gray",
}


def name_of(sampling: int, coding: int, orientation: int) -> str:
    """Return the kind of a JPEG in words."""
    kind = _NAMES.get(sampling, f"sampling {sampling:08x}")
    return kind + (", progressive" if coding == 2 else "") + (", turned" if orientation > 1 else "")


def decode(decoder: Decoder, images: list[bytes], batch: int) -> np.ndarray:
    """Return the pixels of all images, decoded in batches."""
    parts = [decoder.decode(images[at : at + batch]) for at in range(0, len(images), batch)]
    return np.concatenate([np.asarray(part.pixels) for part in parts])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True, help="a folder of JPEGs")
    parser.add_argument("--backend", default="nvjpeg", choices=["nvjpeg", "host"])
    parser.add_argument("--canvas", type=int, nargs=2, default=[512, 512])
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()
    images = jpegs_below(args.images)
    canvas = tuple(args.canvas)
    device = jax.local_devices()[:1]
    headers = read_headers(Encoded.from_bytes(images))
    with Decoder(canvas, "host", device) as host:
        expected = decode(host, images, args.batch)
    with Decoder(canvas, args.backend, device, deterministic=True) as decoder:
        found = decode(decoder, images, args.batch)
        again = decode(decoder, images, args.batch // 3 + 1)
        ways = {name: count for name, count in decoder.stats.items() if name in ("engines", "host")}
    difference = np.abs(found.astype(np.int16) - expected)
    # The canvas around an image is zero in both.
    inside = (expected > 0).any(-1) | (found > 0).any(-1)
    means = difference.sum((1, 2, 3)) / np.maximum(inside.sum((1, 2)) * 3, 1)
    groups = defaultdict(list)
    for row in range(len(images)):
        facts = headers.row(row)
        groups[name_of(int(facts.sampling), int(facts.coding), int(facts.orientation))].append(row)
    print(f"{len(images)} images, {jax.devices()[0].device_kind}, decoded twice: {ways}")
    same = "the same bits" if (found == again).all() else "OTHER BITS"
    print(f"the second run, in batches of {args.batch // 3 + 1}: {same}")
    print(f"{'':28} images  worst mean  largest")
    for name, rows in sorted(groups.items()):
        print(f"{name:28} {len(rows):6}  {means[rows].max():10.4f}  {difference[rows].max():7}")


if __name__ == "__main__":
    main()
