"""Draw a data set of shapes for the examples of detection and segmentation.

    python examples/shapes.py shapes --train 1000 --test 200
    python examples/shapes.py shapes --backgrounds photographs

For each split it writes a folder of JPEGs, a COCO file of boxes, and a folder of PNG masks: 0 is
the background, 1 + k is class k. The backgrounds are smooth noise, or crops of photographs of a
folder.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ("disc", "square", "triangle")
HEIGHT = 96
WIDTH = 128
MAX_SHAPES = 4
MIN_SIDE = 16
MAX_SIDE = 48
MAX_OVERLAP = 0.3  # of a new box by the ones before
TRIES = 20


def draw_split(
    folder: Path, split: str, count: int, backgrounds: list[Path], rng: np.random.Generator
) -> None:
    """Write images, masks and boxes of one split."""
    (folder / split).mkdir(parents=True)
    (folder / f"{split}_masks").mkdir()
    images = []
    annotations = []
    for number in range(count):
        image = Image.fromarray(background(backgrounds, rng))
        mask = Image.new("L", (WIDTH, HEIGHT))
        for label, (x, y, side) in places(rng):
            draw(image, mask, label, (x, y, side), rng)
            box = {"image_id": number, "category_id": label + 1, "bbox": [x, y, side, side]}
            annotations.append(box)

        name = f"{number:05d}"
        image.save(folder / split / f"{name}.jpg", quality=90)
        mask.save(folder / f"{split}_masks" / f"{name}.png")
        images.append({"id": number, "file_name": f"{name}.jpg"})

    categories = [{"id": label + 1, "name": name} for label, name in enumerate(CLASSES)]
    found = {"images": images, "annotations": annotations, "categories": categories}
    (folder / f"{split}.json").write_text(json.dumps(found))


def background(files: list[Path], rng: np.random.Generator) -> np.ndarray:
    """Return uint8[HEIGHT, WIDTH, 3]: a part of a photograph, or noise without sharp edges."""
    if files:
        with Image.open(files[rng.integers(len(files))]) as photograph:
            image = photograph.convert("RGB")
        scale = max(HEIGHT / image.height, WIDTH / image.width) * rng.uniform(1.0, 1.5)
        image = image.resize((round(image.width * scale) + 1, round(image.height * scale) + 1))
        left = int(rng.integers(image.width - WIDTH + 1))
        top = int(rng.integers(image.height - HEIGHT + 1))
        return np.asarray(image.crop((left, top, left + WIDTH, top + HEIGHT)))
    coarse = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))
    grain = rng.normal(0, 12, (HEIGHT, WIDTH, 3))
    return np.clip(smooth + grain, 0, 255).astype(np.uint8)


def places(rng: np.random.Generator) -> list[tuple[int, tuple[int, int, int]]]:
    """Return shapes as (class, (x, y, side)), which overlap little."""
    chosen: list[tuple[int, tuple[int, int, int]]] = []
    wanted = rng.integers(1, MAX_SHAPES + 1)
    for _ in range(TRIES):
        side = int(rng.integers(MIN_SIDE, MAX_SIDE + 1))
        x = int(rng.integers(WIDTH - side + 1))
        y = int(rng.integers(HEIGHT - side + 1))
        if all(overlap((x, y, side), other) <= MAX_OVERLAP for _, other in chosen):
            chosen.append((int(rng.integers(len(CLASSES))), (x, y, side)))
        if len(chosen) == wanted:
            break
    return chosen


def overlap(first: tuple[int, int, int], second: tuple[int, int, int]) -> float:
    """Return the common area of two squares as a share of the smaller."""
    x = min(first[0] + first[2], second[0] + second[2]) - max(first[0], second[0])
    y = min(first[1] + first[2], second[1] + second[2]) - max(first[1], second[1])
    return max(x, 0) * max(y, 0) / min(first[2], second[2]) ** 2


def draw(
    image: Image.Image,
    mask: Image.Image,
    label: int,
    place: tuple[int, int, int],
    rng: np.random.Generator,
) -> None:
    """Draw one shape of random color, and its class on the mask."""
    x, y, side = place
    color = tuple(rng.integers(0, 256, 3).tolist())
    for canvas, fill in ((image, color), (mask, label + 1)):
        pen = ImageDraw.Draw(canvas)
        # Pillow draws both ends of its coordinates.
        box = (x, y, x + side - 1, y + side - 1)
        if CLASSES[label] == "disc":
            pen.ellipse(box, fill)
        elif CLASSES[label] == "square":
            pen.rectangle(box, fill)
        else:
            pen.polygon([(x + side / 2 - 0.5, y), (box[2], box[3]), (x, box[3])], fill)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw shapes with boxes and masks.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("--backgrounds", type=Path, help="folder of photographs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    backgrounds = []
    if options.backgrounds:
        found = options.backgrounds.rglob("*")
        backgrounds = sorted(path for path in found if path.suffix.lower() in (".jpg", ".jpeg"))
    for number, (split, count) in enumerate((("train", options.train), ("test", options.test))):
        # The last fifth of the photographs is for the tests alone.
        cut = len(backgrounds) - len(backgrounds) // 5
        own = backgrounds[:cut] if split == "train" else backgrounds[cut:]
        rng = np.random.default_rng([options.seed, number])
        draw_split(options.folder, split, count, own, rng)


if __name__ == "__main__":
    main()
