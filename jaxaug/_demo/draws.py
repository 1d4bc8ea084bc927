"""Random draws of a transform on one sample, as pictures: images with their targets, sounds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from PIL import Image, ImageDraw

from jaxaug._typing import Key, Sample
from jaxaug.augment import Compose, FiveCrop, Frames, GroupCompose, MultiView, Normalize
from jaxaug.iterators.export.viewable import (
    color_of,
    planes,
    rgb_of,
    sound_of,
    viewable,
    visible_points,
)

_AS_IT_IS = (0.0, 1.0)  # the mean and std that change nothing
_MASK_WEIGHT = 0.35
_SOUND_SIDE = 168  # pixels of the picture of a sound
_INK = "#1b1f24"
_WAVE_HEIGHT = 48  # of which its waveform takes so many
# Colors of what is silent to what is loud.
_HEAT = np.array([(13, 8, 60), (120, 28, 109), (237, 105, 37), (252, 255, 164)], np.float32)
_TARGETS = ("size", "mask", "masks", "boxes", "keypoints", "label")


def draws(
    transform: Callable, samples: Sequence[Mapping[str, Any]], keys: Key
) -> list[list[Sample]]:
    """Return the results of `transform` in NumPy: for each sample one for each of its keys.

    Args:
      transform: a function of (key, sample), compiled once.
      samples: of equal shapes.
      keys: [n, m], for n samples.
    """
    compiled = jax.jit(jax.vmap(transform, in_axes=(0, None)))
    results = []
    for sample, own_keys in zip(samples, keys, strict=True):
        drawn = jax.device_get(compiled(own_keys, dict(sample)))
        rows = range(len(own_keys))
        results.append([jax.tree.map(lambda leaf, row=row: leaf[row], drawn) for row in rows])
    return results


def pictures(result: Mapping[str, Any], mean: Any = 0.0, std: Any = 1.0) -> list[np.ndarray]:
    """Return the pictures of one result, uint8[h, w, 3]: its image, clip, sound, or all its views.

    Args:
      result: of a transform, with "image", "video", "audio", or as of `MultiView` stacks of images.
      mean, std: with which floats are normalized.
    """
    if "image" in result:
        return [_picture(result, mean, std)]
    if "audio" in result:
        return [_sound_picture(result)]
    if "video" in result:
        return [_clip_picture(result, mean, std)]
    stacks = [stack for name, stack in result.items() if name not in _TARGETS]
    return [viewable(image, mean, std) for stack in stacks for image in stack]


def normalization(transform: Any) -> tuple[Any, Any]:
    """Return the mean and std of the last `Normalize` in a chain or its views; (0, 1) without."""
    if isinstance(transform, Normalize):
        return transform.mean, transform.std
    steps = ()
    if isinstance(transform, (Compose, GroupCompose)):
        steps = transform.transforms
    elif isinstance(transform, Frames):
        steps = (transform.transform,)
    elif isinstance(transform, (MultiView, FiveCrop)):
        steps = transform.chains
    found = [normalization(step) for step in steps]
    return next((each for each in reversed(found) if each != _AS_IT_IS), _AS_IT_IS)


def _picture(sample: Mapping[str, Any], mean: Any, std: Any) -> np.ndarray:
    """Return the used part of the image, its targets drawn over it."""
    pixels = viewable(sample["image"], mean, std)
    for number, plane in planes(sample, pixels.shape[:2]):
        color = np.array(rgb_of(number), np.float32)
        mixed = (1 - _MASK_WEIGHT) * pixels + _MASK_WEIGHT * color
        pixels = np.where(plane[:, :, None], mixed, pixels).astype(np.uint8)

    image = Image.fromarray(pixels)
    pen = ImageDraw.Draw(image)
    for number, box in enumerate(sample.get("boxes", ())):
        if np.any(box):
            left, top, right, bottom = (float(side) for side in box)
            inside = (left, top, max(left, right - 1), max(top, bottom - 1))
            pen.rectangle(inside, outline=color_of(number))
    for x, y in visible_points(sample).tolist():
        pen.ellipse((x - 2.5, y - 2.5, x + 2.5, y + 2.5), fill="#ffffff", outline="#d00000")

    height, width = sample.get("size", pixels.shape[:2])
    return np.asarray(image)[:height, :width]


def _clip_picture(sample: Mapping[str, Any], mean: Any, std: Any) -> np.ndarray:
    """Return the first four frames of a clip, line by line, with gaps between them."""
    frames = [viewable(frame, mean, std) for frame in sample["video"][:4]]
    sizes = np.reshape(sample.get("size", frames[0].shape[:2]), (-1, 2))  # one, or of each frame
    height, width = sizes.max(axis=0)
    frames = [frame[:height, :width] for frame in frames]
    while len(frames) < 4:
        frames.append(np.zeros_like(frames[0]))
    gap = 1 + frames[0].shape[1] // 64
    edges = ((0, gap), (0, gap), (0, 0))
    frames = [np.pad(frame, edges, constant_values=255) for frame in frames]
    rows = [np.concatenate(frames[k : k + 2], axis=1) for k in (0, 2)]
    return np.concatenate(rows)[:-gap, :-gap]


def _sound_picture(sample: Mapping[str, Any]) -> np.ndarray:
    """Return a waveform above its spectrogram, or features, low frequencies below."""
    waves, picture = sound_of(sample)
    height = _SOUND_SIDE - (_WAVE_HEIGHT if waves is not None else 0)
    levels = Image.fromarray(np.asarray(picture[::-1], np.float32)).resize((_SOUND_SIDE, height))
    steps = np.linspace(0, 1, len(_HEAT))
    colors = [np.interp(np.asarray(levels), steps, _HEAT[:, channel]) for channel in range(3)]
    below = np.stack(colors, axis=-1).astype(np.uint8)
    if waves is None:
        return below

    above = Image.new("RGB", (_SOUND_SIDE, _WAVE_HEIGHT), "#ffffff")
    pen = ImageDraw.Draw(above)
    for x, part in enumerate(np.array_split(waves.mean(axis=1), _SOUND_SIDE)):
        if part.size:
            ends = np.clip([1 - part.max(), 1 - part.min()], 0, 2) * (_WAVE_HEIGHT - 1) / 2
            pen.line((x, ends[0], x, ends[1]), fill=_INK)
    return np.concatenate([np.asarray(above), below])
