"""The names of the peers beside ours: `python docs/site_names.py FOLDER > docs/migration/names.md`.

FOLDER holds the unpacked wheels of torchvision, kornia and AlbumentationsX, of which nothing is
imported: the names are read from their source. Run by hand, for new versions of them.
"""

import ast
import sys
from collections.abc import Mapping
from pathlib import Path

from jaxaug import augment

# A name of ours, or the reason why there is none, and what differs; the same names are found alone.
TYPES = "JAX has no image types: arrays, and dicts of them"
BASE = "a base class: derive from `Geometric`, `Pointwise`, `ImageOp` or `GroupOp`"
ALIKE = "the whole batch is transformed by `jax.vmap`, a video by `Frames`"
MISSING = "not here yet"
VOLUMES = {  # without "Random" and "3D"
    "Affine": "Affine",
    "Anisotropy": "Anisotropy",
    "CenterCrop": "CenterCrop",
    "CoarseDropout": "CoarseDropout",
    "Crop": "Crop",
    "DepthicalFlip": "Flip",
    "ElasticTransform": "Elastic",
    "Equalize": "Equalize",
    "Flip": "Flip",
    "GridShuffle": "GridShuffle",
    "HorizontalFlip": "Flip",
    "MotionBlur": "MotionBlur",
    "Pad": "CropOrPad",
    "PadIfNeeded": "CropOrPad",
    "Perspective": "Perspective",
    "Resize": "Resize",
    "ResizedCrop": "ResizedCrop",
    "Rotate90": "QuarterTurn",
    "Rotation": "Affine",
    "Transplantation": "Transplantation",
    "VerticalFlip": "Flip",
}
TORCHVISION = {
    "AutoAugmentPolicy": "a string: `AutoAugment('imagenet' | 'cifar10' | 'svhn')`",
    "ClampBoundingBoxes": "`SanitizeBoxes`, `functional.clamp_bounding_boxes`",
    "ClampKeyPoints": "left out: points outside have visibility 0",
    "ConvertBoundingBoxFormat": "`Compose(box_format=)`, `functional.convert_bounding_box_format`",
    "ConvertImageDtype": "`ToFloat`",
    "Identity": "`Compose([])`",
    "InterpolationMode": "strings: 'bilinear', 'bicubic', 'nearest'",
    "LinearTransformation": "left out: a matrix of all pixels is a line of `jax.numpy` in `Lambda`",
    "PILToTensor": TYPES,
    "RGB": "`Image(channels='rgb')` when decoding",
    "SanitizeBoundingBoxes": "`SanitizeBoxes`",
    "SanitizeKeyPoints": "left out: points outside have visibility 0",
    "SetClampingMode": "left out: geometry does not clip, `SanitizeBoxes` does",
    "ToDtype": "`ToFloat(dtype)`",
    "ToImage": TYPES,
    "ToPILImage": TYPES,
    "ToPureTensor": TYPES,
    "ToTensor": "`ToFloat(layout='CHW')`",
}
KORNIA = {
    "AugmentationSequential": "`Compose`",
    "ColorJiggle": "`ColorJitter`",
    "Denormalize": "left out: `Normalize` ends a chain; y * std + mean undoes it",
    "ImageSequential": "`Compose`",
    "LongestMaxSize": "`LetterBox`, `ScaleJitter`",
    "PadTo": "`LetterBox`, `RandomCrop(pad_if_needed=True)`",
    "PatchMix": "left out: `CutMix` pastes a window",
    "PatchSequential": "left out: chains work on whole images",
    "RandomAutoContrast": "`RandomAutocontrast`",
    "RandomBoxBlur": "`BoxBlur`",
    "RandomBrightness": "`ColorJitter(brightness=)`",
    "RandomChannelDropout": "`ChannelDropout`",
    "RandomChannelShuffle": "`RandomChannelPermutation`",
    "RandomClahe": "`CLAHE`",
    "RandomContrast": "`ColorJitter(contrast=)`",
    "RandomCutMixV2": "`CutMix`",
    "RandomDissolving": "left out: it needs a diffusion model",
    "RandomElasticTransform": "`ElasticTransform`",
    "RandomFisheye": "`OpticalDistortion`",
    "RandomGaussianBlur": "`GaussianBlur`",
    "RandomGaussianIllumination": "`Illumination('gaussian')`; there any sign of the whole picture",
    "RandomGaussianNoise": "`GaussianNoise`",
    "RandomHue": "`ColorJitter(hue=)`, `RandomHueYIQ`",
    "RandomJPEG": "`JPEG`",
    "RandomJigsaw": "`RandomGridShuffle`; there several images of a batch",
    "RandomLinearCornerIllumination": "`Illumination(angle_range=(45, 45))`",
    "RandomLinearIllumination": "`Illumination`",
    "RandomMedianBlur": "`MedianBlur`",
    "RandomMixUpV2": "`MixUp`",
    "RandomMosaic": "`Mosaic`",
    "RandomMotionBlur": "`MotionBlur`",
    "RandomPlanckianJitter": "`PlanckianJitter`",
    "RandomPlasmaBrightness": "`PlasmaBrightnessContrast(contrast_range=0)`",
    "RandomPlasmaContrast": "`PlasmaBrightnessContrast(brightness_range=0)`",
    "RandomPlasmaShadow": "`PlasmaShadow`",
    "RandomRain": "`RandomRain(blur=1, brightness=1)`",
    "RandomRotation90": "`RandomRotate90`",
    "RandomSaltAndPepperNoise": "`SaltAndPepper`",
    "RandomSaturation": "`ColorJitter(saturation=)`",
    "RandomSharpness": "`RandomAdjustSharpness`",
    "RandomThinPlateSpline": "`ThinPlateSpline`",
    "RandomTransplantation": "`CopyAndPaste`, of instances",
    "SmallestMaxSize": "`Resize(side)`, `RandomShortestSize`",
    "VideoSequential": "`Frames`",
}
ALBUMENTATIONS = {
    "AnnotationArtifacts": "left out: a font and a drawing program; `Lambda`",
    "GhostingArtifact": "left out: of an MRI's phase axis; `Lambda`",
    "GibbsRinging": "`RingingOvershoot`, whose cutoff is a disk",
    "LensFlare": "`RandomSunFlare`, without rays",
    "ModeFilter": "left out: `MedianBlur` keeps edges, too",
    "MotionArtifact": "left out: of an MRI's phase axis; `Lambda`",
    "OverlayElements": "`OverlayElements`, of a bank, at random places",
    "AtLeastOneBBoxRandomCrop": "`RandomIoUCrop(sampler_options=(0.0,))`",
    "AutoContrast": "`RandomAutocontrast`",
    "Blur": "`BoxBlur`",
    "Dithering": "`Dithering`, ordered or random; error diffusion goes from pixel to pixel",
    "HEStain": "`HEStain`, with given densities",
    "PixelDistributionAdaptation": '`PixelDistributionAdaptation`, its "standard"',
    "Superpixels": "`Superpixels`, cells about random seeds",
    "BBoxSafeRandomCrop": "`RandomSizedBoxSafeCrop`, resized",
    "BBoxSubsetSafeRandomCrop": "`RandomSizedBoxSafeCrop`, of all boxes",
    "Crop": "`functional.crop` in `Lambda`; `CenterCrop`",
    "ChannelSwap": "`RandomChannelPermutation`",
    "D4": "`RandomD4`",
    "Enhance": "`ColorJitter`, `RandomAdjustSharpness`",
    "Equalize": "`RandomEqualize`",
    "Erasing": "`RandomErasing`",
    "FancyPCA": "`PCALighting`, with ImageNet's components",
    "FrequencyMasking": "`XYMasking(columns=0)`, `augment.audio`",
    "FromFloat": "left out: uint8 in is uint8 out",
    "GaussNoise": "`GaussianNoise`",
    "GridElasticDeform": "`PiecewiseAffine`",
    "GridMask": "`GridDropout`",
    "GuidedCoarseDropout": "`ConstrainedCoarseDropout`, by boxes",
    "ImageCompression": "`JPEG`",
    "PadIfNeeded": "`LetterBox`, `RandomCrop(pad_if_needed=True)`",
    "Perspective": "`RandomPerspective`",
    "PhotoMetricDistort": "`RandomPhotometricDistort`",
    "Posterize": "`RandomPosterize`",
    "RGBShift": "`RandomRGBShift`",
    "RandomBrightnessContrast": "`ColorJitter(brightness=, contrast=)`",
    "RandomCropFromBorders": "`CropAndPad((-0.1, 0))`, resized",
    "RandomCropNearBBox": "`RandomCropNearBox`, resized",
    "RandomFog": "`AtmosphericFog`; there circles of haze",
    "RandomScale": "`RandomResize`, `ScaleJitter`, `RandomAffine(scale=)`",
    "RandomSizedBBoxSafeCrop": "`RandomSizedBoxSafeCrop`",
    "RandomSizedCrop": "`RandomResizedCrop`",
    "Rotate": "`RandomRotation`",
    "SafeRotate": "`RandomRotation(expand=True)`",
    "Sharpen": "`RandomAdjustSharpness`, `UnsharpMask`",
    "ShiftScaleRotate": "`RandomAffine`",
    "Solarize": "`RandomSolarize`",
    "StochasticConvolution": "`KernelFilter`, of a kernel that is given",
    "TimeMasking": "`XYMasking(rows=0)`, `augment.audio`",
    "TimeReverse": "`RandomHorizontalFlip`",
    "ToGray": "`RandomGrayscale`",
    "ToRGB": "`Image(channels='rgb')` when decoding",
}
# Of `nvidia.dali.fn`, whose names are registered in C++: by hand, from the operator reference.
DALI = {
    "audio_resample": "`decode.Audio(rate=)` when decoding, `audio.Speed`",
    "bb_flip, bbox_paste, bbox_rotate, coord_flip, coord_transform": "they move along",
    "box_encoder": "`functional.encode_boxes`",
    "brightness, contrast, brightness_contrast": "`ColorJitter`",
    "clahe": "`CLAHE`, of each channel",
    "coin_flip, random.uniform, random.normal, random.choice": "`augment.random`",
    "color_space_conversion": "`functional.convert_color_space`",
    "color_twist, hue, saturation, hsv": "`ColorJitter`, `HueSaturationValue`, `RandomHueYIQ`",
    "crop, slice": "`RandomCrop`, `CenterCrop`, `functional.crop`",
    "crop_mirror_normalize": "`RandomCrop`, `RandomHorizontalFlip`, `Normalize`: one pass",
    "debayer": "`functional.debayer`, bilinear",
    "dilate, erode": "`Morphological`",
    "equalize": "`RandomEqualize`",
    "erase": "`CoarseDropout`, `functional.erase`",
    "filter": "`KernelFilter`, `functional.correlate`",
    "flip": "`RandomHorizontalFlip`, `RandomVerticalFlip`",
    "gaussian_blur": "`GaussianBlur`",
    "grid_mask": "`GridDropout`",
    "jitter": "`PixelSpread`",
    "jpeg_compression_distortion": "`JPEG`",
    "laplacian": "`functional.laplacian`",
    "lookup_table": "`LookupTable`",
    "median_blur": "`MedianBlur`",
    "mel_filter_bank, mfcc, power_spectrum, spectrogram, to_decibels": "`augment.audio`",
    "multi_paste": "`Mosaic`, `CutMix`, `CopyAndPaste`",
    "noise.gaussian, noise.salt_and_pepper, noise.shot": (
        "`GaussianNoise`, `SaltAndPepper`, `ShotNoise`"
    ),
    "normalize": "`Normalize`; by an image's own statistics `functional.standardize`",
    "optical_flow": "left out: a library of NVIDIA's own",
    "pad, paste": "`Pad`, `LetterBox`, `RandomZoomOut`",
    "random_bbox_crop": "`RandomIoUCrop`",
    "random_resized_crop, random_crop_generator": "`RandomResizedCrop`",
    "remap": "`functional.remap`, `functional.elastic`",
    "resize, tensor_resize, resize_crop_mirror": "`Resize`, `RandomShortestSize`",
    "roi_random_crop": "`RandomSizedBoxSafeCrop`, `CropNonEmptyMaskIfExists`",
    "rotate": "`RandomRotation`",
    "segmentation.random_mask_pixel": "`functional.random_mask_pixel`, `CropNonEmptyMaskIfExists`",
    "segmentation.random_object_bbox": "`RandomCropNearBox`",
    "segmentation.select_masks": "`SanitizeBoxes` keeps masks beside their boxes",
    "sequence_rearrange, per_frame": "`Frames`",
    "sphere": "`functional.remap`; `OpticalDistortion` of positive k",
    "transforms.rotation, transforms.scale, transforms.shear, transforms.translation": (
        "`augment.matrix`"
    ),
    "transpose": "`ToFloat(layout=)`, `Normalize(layout=)`",
    "warp_affine, warp_perspective": "`RandomAffine`, `RandomPerspective`, a `Warp` of one's own",
    "water": "`WaterRefraction`",
    "arithmetic, math, reductions, cast, cat, stack, reshape": "`jax.numpy`, in `Lambda`",
    "auto_aug.*": "`AutoAugment`, `RandAugment`, `TrivialAugmentWide`",
}
PEERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "torchvision": ("torchvision/transforms/v2/__init__.py", TORCHVISION),
    "kornia": ("kornia/augmentation/__init__.py", KORNIA),
    "AlbumentationsX": ("albumentations/augmentations", ALBUMENTATIONS),
}


def imported(path: Path) -> list[str]:
    """Return the capitalized names that a module imports: its public classes."""
    nodes = ast.parse(path.read_text()).body
    names = {a.asname or a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
    return sorted(name for name in names if name[0].isupper())


def with_schemas(folder: Path) -> list[str]:
    """Return the classes with an `InitSchema`: the transforms that users build."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            parts = node.body if isinstance(node, ast.ClassDef) else []
            if any(isinstance(part, ast.ClassDef) and part.name == "InitSchema" for part in parts):
                found.add(node.name)  # pyright: ignore[reportAttributeAccessIssue]
    return sorted(name for name in found if not name.startswith(("Base", "_")))


def ours(name: str, written: Mapping[str, str]) -> str:
    """Return what stands beside a name of a peer."""
    if name in written:
        return written[name]
    if hasattr(augment, name):
        return f"`{name}`"
    if "Base" in name or "Dispather" in name:
        return BASE
    if name.endswith("3D"):
        of_volumes = VOLUMES.get(name.removeprefix("Random").removesuffix("3D").strip("_"))
        return f"`augment.volume.{of_volumes}`" if of_volumes else MISSING
    return MISSING


def page(folder: Path) -> str:
    """Return the Markdown of the tables."""
    lines = ["# Names of the peers", ""]
    lines += ["Each transform of theirs, and ours; made by `docs/site_names.py` from their wheels."]
    for peer, (place, written) in PEERS.items():
        path = folder / place
        names = with_schemas(path) if path.is_dir() else imported(path)
        version = next(folder.glob(f"{peer.lower()}-*.dist-info")).name.split("-")[1]
        rows = [(name, ours(name, written)) for name in names]
        here = sum(MISSING not in text for _, text in rows)
        lines += ["", f"## {peer} {version.removesuffix('.dist')}", ""]
        lines += [f"{here} of {len(rows)} are here, or left out for the reason given.", ""]
        lines += ["| theirs | ours |", "| --- | --- |"]
        lines += [f"| `{name}` | {text} |" for name, text in rows]
    lines += ["", "## DALI 2.4, operators of images and sounds", ""]
    lines += ["| theirs | ours |", "| --- | --- |"]
    for names, text in DALI.items():
        lines.append("| " + ", ".join(f"`{name}`" for name in names.split(", ")) + f" | {text} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(Path(sys.argv[1])), end="")
