"""The gallery: every transform of jaxaug on one picture, drawn when the site is built.

`python docs/site_gallery.py FOLDER [NAME ...]` draws the strips of all, or of those that are named.
"""

import inspect
import io
import itertools
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from PIL import Image
from site_api import FAMILIES, VIDEOS

from jaxaug import augment
from jaxaug._demo.drawings import draw
from jaxaug._demo.draws import draws, normalization, pictures
from jaxaug._demo.scene import draw_scene
from jaxaug.augment import recipes

TILE = (144, 192)  # (height, width) of the scene, and of what a tile shows
GAP = 4
DRAWS = 5
THREADS = 2  # XLA compiles without the GIL
PANEL = (241, 243, 245)

WITH_TARGETS = tuple(FAMILIES)[:4]  # drawn with mask, boxes and keypoints
ON_SQUARES = ("RandomD4", "RandomRotate90", "RandomTranspose")  # what swaps height and width
RECIPES = "Recipes"
OF_VIDEOS = ("vjepa_train",)  # recipes that pictures do not show
DETECTION = ("copy_paste", "detr", "lsj", "multiscale", "rtdetr", "ssd", "yolo")  # with boxes


def vignette(key, image):
    """Return the image, darker toward its corners by a random amount."""
    height, width = image.shape[:2]
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None, None]
    x = np.linspace(-1, 1, width, dtype=np.float32)[None, :, None]
    strength = jax.random.uniform(key, (), "float32", 0.1, 0.5)
    return image * (1 - strength * (x**2 + y**2))


_PARTS = (
    augment.RandomRotation((20, 40)),
    augment.RandomInvert(p=1.0),
    augment.Grayscale(),
)
_CHAIN = (
    augment.RandomResizedCrop(TILE, scale=(0.3, 1.0)),
    augment.RandomHorizontalFlip(),
    augment.ColorJitter(0.4, 0.4, 0.4, 0.1),
)
_SMALL = augment.RandomResizedCrop(64, scale=(0.05, 0.3))
_WAVE = tuple((0.5 - 0.5 * np.cos(np.linspace(0, 3 * np.pi, 256))).tolist())
_IMAGENET = {"mean": recipes.IMAGENET_MEAN, "std": recipes.IMAGENET_STD}

# The arguments with which a transform is shown, where it needs some, or where its defaults do
# little to a picture of this size.
_BANK = np.stack([draw(kind, (96, 128), np.random.default_rng(5)) for kind in ("stars", "waves")])
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "AdvancedBlur": {"sigma_x": (1.0, 3.0), "blur_limit": (7, 11)},
    "ChromaticAberration": {"primary": (-0.2, 0.2)},
    "Colorize": {"black": (0.1, 0.0, 0.4), "white": (1.0, 0.9, 0.6)},
    "CropNonEmptyMaskIfExists": {"size": 80},
    "FDA": {"references": _BANK},
    "HistogramMatching": {"references": _BANK},
    "KernelFilter": {"kernel": ((-1, -1, -1), (-1, 9, -1), (-1, -1, -1))},
    "OverlayElements": {"elements": np.concatenate([_BANK, _BANK[..., :1]], axis=3)[:, ::3, ::3]},
    "PixelDistributionAdaptation": {"references": _BANK},
    "RandomGravel": {"stones": 60},
    "Superpixels": {"p_replace": (0.5, 1.0)},
    "ByEpoch": {"transforms": _PARTS, "starts": (10, 20)},
    "CenterCrop": {"size": 112},
    "CoarseDropout": {"holes": (2, 6)},
    "ColorJitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
    "Compose": {"transforms": _CHAIN},
    "ConstrainedCoarseDropout": {"height": (0.3, 0.5), "width": (0.3, 0.5)},
    "Defocus": {"radius": (2, 5)},
    "Downscale": {"scale_range": (0.15, 0.5)},
    "ElasticTransform": {"alpha": 60, "sigma": 6},
    "Emboss": {"alpha": (0.4, 0.9)},
    "FiveCrop": {"size": 96},
    "GaussianBlur": {"kernel_size": 9, "sigma": (0.5, 3.0)},
    "GaussianNoise": {"sigma": (0.05, 0.2)},
    "GridDropout": {"degrees": 30},
    "GroupCompose": {
        "transforms": (augment.Mosaic(192), augment.Resize(TILE), augment.MixUp(alpha=4.0))
    },
    "ISONoise": {"color_shift": (0.05, 0.1), "intensity": (0.5, 1.0)},
    "JPEG": {"quality": (3, 20)},
    "Lambda": {"function": vignette},
    "LetterBox": {"size": 144},
    "LookupTable": {"table": _WAVE},
    "MedianBlur": {"kernel_size": 5},
    "MixUp": {"alpha": 4.0},
    "Mosaic": {"size": TILE},
    "MotionBlur": {"blur_limit": (7, 15)},
    "MultiView": {"views": {"global": (_CHAIN[0], 2), "local": (_SMALL, 3)}},
    "MultiplicativeNoise": {"multiplier": (0.5, 1.5)},
    "Normalize": _IMAGENET,
    "OneOf": {"transforms": _PARTS},
    "OpticalDistortion": {"distort_limit": (-0.3, 0.3)},
    "PCALighting": {"std": 0.5},
    "Pad": {"padding": 16, "padding_mode": "reflect"},
    "PixelDropout": {"rate": 0.1},
    "RandomAdjustSharpness": {"sharpness_factor": 3.0},
    "RandomAffine": {
        "degrees": 20,
        "translate": (0.1, 0.1),
        "scale": (0.7, 1.2),
        "shear": 10,
        "padding_mode": "reflect",
    },
    "RandomApply": {"transforms": _PARTS[:1]},
    "RandomChoice": {"transforms": _PARTS},
    "RandomCrop": {"size": 112},
    "RandomCropNearBox": {"size": TILE},
    "RandomGamma": {"gamma": (0.4, 2.5)},
    "RandomOrder": {"transforms": (augment.RandomTranslate((0.2, 0.0)), *_PARTS[:1])},
    "RandomPosterize": {"bits": 2},
    "RandomResize": {"min_size": 64, "max_size": 144, "canvas": TILE},
    "RandomResizedCrop": {"size": 128},
    "RandomRotation": {"degrees": 30},
    "RandomShear": {"shear": 25},
    "RandomShortestSize": {"min_size": (64, 96, 128), "canvas": TILE},
    "RandomSizedBoxSafeCrop": {"size": TILE},
    "RandomSolarize": {"threshold": 0.5},
    "RandomToneCurve": {"scale": 0.3},
    "RandomTranslate": {"translate": (0.2, 0.2)},
    "RandomZoomOut": {"side_range": (1.2, 2.5)},
    "Resize": {"size": (96, 96)},
    "SanitizeBoxes": {"min_size": 60},
    "ScaleJitter": {"target_size": TILE, "scale_range": (0.3, 1.0)},
    "SomeOf": {"transforms": _PARTS, "n": 2},
    "TenCrop": {"size": 96, "vertical_flip": True},
    "UnsharpMask": {"amount": (1.0, 3.0)},
    "Vignetting": {"intensity_range": (0.4, 0.9)},
}
RECIPE_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "cifar_train": {"size": 112},
    "detr_train": {"max_size": 192, "sizes": (80, 112, 144)},
    "dino": {"global_size": 144, "local_size": 64, "local_crops": 3},
    "imagenet_eval": {"size": 112, "resize": 128},
    "multiscale_eval": {"size": 112, "max_size": 192},
    "multiscale_train": {"sizes": (80, 112, 144), "max_size": 192},
    "segmentation_eval": {"base": 112},
}


class Entry(NamedTuple):
    """One transform of the gallery.

    Attributes:
      name: under which it is exported.
      path: its full name, as the API pages have it.
      family: the heading of its section.
      arguments: with which it is shown.
    """

    name: str
    path: str
    family: str
    arguments: Mapping[str, Any]

    @property
    def exported(self) -> Any:
        """The class or the function of a recipe."""
        package = recipes if self.family == RECIPES else augment
        return getattr(package, self.name)

    @property
    def code(self) -> str:
        """The call that makes it, as users write it."""
        arguments = ", ".join(f"{name}={_shown(value)}" for name, value in self.arguments.items())
        return f"{self.name}({arguments})"

    def build(self) -> Any:
        """Return the transform, always applied unless its probability is what it shows."""
        always = {}
        parameters = inspect.signature(self.exported).parameters
        if "p" in parameters and self.name not in ("OneOf", "RandomApply"):
            always = {"p": 1.0}
        built = self.exported(**{**always, **self.arguments})
        return built[0] if isinstance(built, tuple) else built  # (transform, batch transform)


def entries() -> list[Entry]:
    """Return the entries in the order of the page: every transform that is exported.

    Raises:
      ValueError: for a transform of a module that stands in no family.
    """
    families = {module: family for family, modules in FAMILIES.items() for module in modules}
    found = []
    for name, value in vars(augment).items():
        if not inspect.isclass(value) or inspect.isabstract(value) or "__call__" not in dir(value):
            continue
        module = value.__module__.rpartition(".")[2]
        if not hasattr(value, "__dataclass_fields__") or module in FAMILIES[VIDEOS]:
            continue  # pictures do not show them
        if module not in families:
            raise ValueError(f"FAMILIES must name the module {module!r} of {name}: add it to one.")
        path = f"jaxaug.augment.{name}"
        found.append(Entry(name, path, families[module], ARGUMENTS.get(name, {})))
    for name, value in vars(recipes).items():
        if inspect.isfunction(value) and name[0] != "_" and name not in OF_VIDEOS:
            arguments = RECIPE_ARGUMENTS.get(name, {"size": 144})
            found.append(Entry(name, f"jaxaug.augment.recipes.{name}", RECIPES, arguments))

    order = [*FAMILIES, RECIPES]
    return sorted(found, key=lambda entry: order.index(entry.family))


def page() -> str:
    """Return the Markdown of the page."""
    lines = [
        "---",
        "hide: [navigation]  # room for the pictures",
        "---",
        "",
        "# Gallery",
        "",
        "Every transform on one picture, drawn by jaxaug when this site was built. The first tile"
        " of a row is the input; the others are results with different keys, without repetitions."
        " Except for OneOf and RandomApply, transforms with a probability are always applied here."
        " Geometric transforms are shown with a mask, boxes and keypoints, which move with the"
        " image.",
        "",
        "To see a chain of your own on your own images:"
        " [`python -m jaxaug preview FOLDER --chain module:name`](api/command_line.md#preview).",
    ]
    family = ""
    for entry in entries():
        if entry.family != family:
            family = entry.family
            lines += ["", f"## {family}"]
        summary = (inspect.getdoc(entry.exported) or "").partition("\n\n")[0]
        lines += [
            "",
            f"### [{entry.name}][{entry.path}]",
            "",
            " ".join(summary.split()),
            "",
            f"`{entry.code}`",
            "",
            f"![{entry.name}](gallery/{entry.name}.webp){{ loading=lazy }}",
        ]
    return "\n".join(lines) + "\n"


def strips(chosen: list[Entry]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the WebP of each entry."""
    # The pictures are small: compiling is what takes time.
    jax.config.update("jax_disable_most_optimizations", True)
    with ThreadPoolExecutor(THREADS) as pool:
        yield from zip([entry.name for entry in chosen], pool.map(strip, chosen))


def strip(entry: Entry) -> bytes:
    """Return the input and the different draws of one entry side by side, as WebP."""
    transform = entry.build()
    mean, std = normalization(transform)
    if entry.name == "Normalize":
        mean, std = 0.5, 0.25  # to be seen as it is, from -2 to 2

    group = isinstance(transform, augment.GroupOp)
    sample = sample_for(entry, transform)
    keys = jax.random.split(jax.random.key(1), (1, DRAWS))
    shown = []
    for result in draws(transform, [sample], keys)[0]:
        first = jax.tree.map(lambda value: value[0], result) if group else result
        shown += pictures(first, mean, std)

    given = jax.tree.map(lambda value: value[0], sample) if group else sample
    tiles = [*pictures(given), *_unique(shown)[:DRAWS]]
    file = io.BytesIO()
    _side_by_side(tiles).save(file, "WEBP", quality=80)
    return file.getvalue()


def sample_for(entry: Entry, transform: Any) -> dict[str, np.ndarray]:
    """Return the sample, or the group of samples, that a transform is shown on."""
    if isinstance(transform, augment.GroupOp):
        objects = entry.name == "CopyAndPaste"
        return _objects() if objects else _group(transform.group_size)

    sample = draw_scene(TILE[1]).sample()
    if entry.name in ON_SQUARES:
        return _on_square(sample)
    if entry.family in WITH_TARGETS:
        return sample
    if entry.name.startswith(DETECTION):
        epoch = {"epoch": np.int32(0)} if entry.name == "rtdetr_train" else {}
        return {name: sample[name] for name in ("image", "boxes")} | epoch
    if entry.name.startswith("segmentation"):
        return {name: sample[name] for name in ("image", "mask")}
    if entry.name == "MaskDropout":
        return {name: sample[name] for name in ("image", "mask")}
    if entry.name in ("ConstrainedCoarseDropout", "SanitizeBoxes"):
        return {name: sample[name] for name in ("image", "boxes")}
    if entry.name == "ByEpoch":
        return {"image": sample["image"], "epoch": np.int32(0)}
    return {"image": sample["image"]}


def _on_square(sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the sample on a square canvas, its size beside it."""
    height, width = TILE
    below = ((0, width - height), (0, 0))
    image = np.pad(sample["image"], (*below, (0, 0)))
    mask = np.pad(sample["mask"], below)
    return {**sample, "image": image, "mask": mask, "size": np.array(TILE, np.int32)}


def _objects() -> dict[str, np.ndarray]:
    """Return a group of the scene and its mirror image, with the masks of their objects."""
    scene = draw_scene(TILE[1])
    labels = np.arange(1, len(scene.boxes) + 1)[:, None, None]
    masks = (scene.mask[None] == labels).astype(np.uint8)
    left, top, right, bottom = scene.boxes.T
    mirrored = np.stack([TILE[1] - right, top, TILE[1] - left, bottom], axis=1)
    return {
        "image": np.stack([scene.image, scene.image[:, ::-1]]),
        "masks": np.stack([masks, masks[:, :, ::-1]]),
        "boxes": np.stack([scene.boxes, mirrored]),
    }


def _group(size: int) -> dict[str, np.ndarray]:
    """Return a group of images: the scene, and drawings of the demo."""
    rng = np.random.default_rng(3)
    kinds = itertools.cycle(("stars", "rings", "waves"))
    others = [draw(kind, TILE, rng) for kind in itertools.islice(kinds, size - 1)]
    return {"image": np.stack([draw_scene(TILE[1]).image, *others])}


def _unique(images: list[np.ndarray]) -> list[np.ndarray]:
    """Return the images without repetitions, in their order."""
    found = {(image.shape, image.tobytes()): image for image in images}
    return list(found.values())


def _side_by_side(images: list[np.ndarray]) -> Image.Image:
    """Return images in a row of tiles; larger ones are shrunk to fit, smaller ones are centered."""
    height, width = TILE
    row = Image.new("RGB", ((DRAWS + 1) * (width + GAP) - GAP, height), "white")
    for column, pixels in enumerate(images):
        tile = Image.new("RGB", (width, height), PANEL)
        image = Image.fromarray(pixels)
        image.thumbnail((width, height), Image.Resampling.LANCZOS)
        tile.paste(image, ((width - image.width) // 2, (height - image.height) // 2))
        row.paste(tile, (column * (width + GAP), 0))
    return row


def _shown(value: Any) -> str:
    """Return an argument as it is written; long tables and functions are cut short."""
    if callable(value) and not isinstance(value, augment.Transform):
        return getattr(value, "__name__", repr(value))
    text = repr(value)
    return text if len(text) < 300 else f"{text[:40]}...)"


def main(folder: str, *names: str) -> None:
    """Write the strips of the named entries, or of all."""
    chosen = [entry for entry in entries() if not names or entry.name in names]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, content in strips(chosen):
        (Path(folder) / f"{name}.webp").write_bytes(content)


if __name__ == "__main__":
    main(*sys.argv[1:])
