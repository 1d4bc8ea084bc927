"""A figure of a batch, to look at what the network is given."""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxaug._checks import check_positive_int
from jaxaug._install import install_command
from jaxaug.iterators.export.viewable import (
    channels_last,
    color_of,
    planes,
    rgb_of,
    sound_of,
    viewable,
    visible_points,
)
from jaxaug.sharding._assemble import local_shards

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLIPPED_QUIETLY = 0.5  # beyond [0, 1], which noise and bright colors may be
_MASK_WEIGHT = 0.4
_SHOWN_SHARES = 2  # of a soft label
_TILE_INCHES = 2.2
_MEDIA = ("image", "video", "audio")  # what is drawn, the first that there is
_SHOWN_FRAMES = 4  # of a clip


def show(
    batch: Mapping[str, Any],
    *,
    count: int = 16,
    columns: int = 4,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    names: Sequence[str] | None = None,
) -> "Figure":
    """Return a figure of the first images of a batch, with what is known about them.

    Drawn are the used part of each image ("size"), "label" and "index" as its title, "boxes" with
    "box_labels", "mask" and "masks" as transparent colors, and "keypoints". A row whose "valid" is
    False is called "not valid". Of a batch that spans processes, the rows of this process are
    shown. Of a "video" some frames are drawn side by side, of several clips those of the first, and
    of lists of images, [n, k, h, w, C], the first four. Of a batch of sounds alone its "audio" is
    drawn: waveforms as lines above their spectrogram, features as pictures, with time to the right
    and low frequencies below. Needs matplotlib, the extra "show".

    Args:
      batch: of a Loader, or of `to_numpy`; "image" [n, h, w, C] or [n, C, h, w], "video" [n, t, h,
        w, C] or [n, t, C, h, w], or "audio" [n, N], [n, N, channels] or [n, T, bins]. Entries of
        several arrays are not shown.
      count: images to show, at most.
      columns: images in a row.
      mean, std: those of `Normalize`, to be undone: a number, or one for each channel. Without,
        floats are taken as values in [0, 1]; what is beyond is clipped, far beyond with a
        warning.
      names: of the classes, by label.

    Returns:
      The figure: `figure.savefig("batch.png")`, or `matplotlib.pyplot.show()`. In a notebook write
      `show(batch);`: it appears by itself.

    Raises:
      ImportError: matplotlib is not installed.
      ValueError: the batch has no "image", "video" or "audio", or one that is no batch of these.

    Example:
      >>> import numpy as np
      >>> batch = {"image": np.zeros((2, 8, 9, 3), np.uint8), "label": np.array([1, 0])}
      >>> figure = show(batch, names=["cat", "dog"])
      >>> [axes.get_title() for axes in figure.axes]
      ['dog', 'cat']
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(f"show needs matplotlib: {install_command('show')}.") from error

    check_positive_int("count", count)
    check_positive_int("columns", columns)
    medium = next((name for name in _MEDIA if name in batch), None)
    if medium is None:
        raise ValueError(
            f'`batch` must have an "image", "video" or "audio", got {sorted(batch)}: give what is'
            ' to be seen that name, as show({"image": batch["view"][:, 0]}).'
        )

    nested = (Mapping, tuple, list)
    names_of_arrays = [name for name, value in batch.items() if not isinstance(value, nested)]
    arrays = {name: _local(batch[name])[:count] for name in names_of_arrays}
    wide = 0  # pixels of a frame
    if medium == "video" or arrays[medium].ndim == 5:
        wide = channels_last(arrays[medium]).shape[-2]
        arrays, medium = _filmstrips(arrays, medium), "image"
    if medium == "image":
        _warn_of_clipping(arrays["image"], mean, std)
    shown = len(arrays[medium])
    columns = min(columns, shown) or 1
    rows = -(-shown // columns)
    inches = (_TILE_INCHES * columns, (_TILE_INCHES + 0.3) * max(rows, 1))
    figure = pyplot.figure(figsize=inches, layout="constrained")
    for row in range(shown):
        sample = {name: value[row] for name, value in arrays.items()}
        axes = figure.add_subplot(rows, columns, row + 1)
        axes.set_axis_off()
        axes.set_title(_title(sample, names), fontsize="small", parse_math=False)
        if medium == "audio":
            _draw_sound(axes, sample)
        else:
            pixels = viewable(sample["image"], mean, std)
            _draw(axes, sample, pixels, names)
            for edge in range(wide, pixels.shape[1], wide) if wide else ():
                axes.axvline(edge, color="white", linewidth=2)
    return figure


def _filmstrips(arrays: Mapping[str, np.ndarray], medium: str) -> dict[str, np.ndarray]:
    """Return an image of some frames, or images of a list, side by side, and what titles say."""
    frames = arrays[medium]
    if frames.ndim == 6:  # of several clips the first
        frames = frames[:, 0]
    if frames.ndim != 5:
        raise ValueError(
            f'"video" must be clips [n, t, h, w, C] or [n, t, C, h, w], got {list(frames.shape)}.'
        )
    frames = channels_last(frames)
    last = frames.shape[1] if medium == "video" else min(frames.shape[1], _SHOWN_FRAMES)
    shown = np.unique(np.linspace(0, last - 1, min(last, _SHOWN_FRAMES)).astype(int))
    strips = np.concatenate([frames[:, number] for number in shown], axis=2)
    titles = {name: arrays[name] for name in ("label", "index", "valid") if name in arrays}
    return {"image": strips, **titles}


def _local(value: Any) -> np.ndarray:
    """Return an array of a batch in NumPy: the rows of this process."""
    if not isinstance(value, jax.Array):
        return np.asarray(value)
    return np.concatenate(jax.device_get(local_shards(value)))


def _warn_of_clipping(images: np.ndarray, mean: Any, std: Any) -> None:
    """Warn of images that were normalized, and whose mean and std were not given."""
    given = np.any(mean) or np.any(np.asarray(std) != 1)
    if given or images.dtype in (np.uint8, np.uint16, np.bool_) or images.size == 0:
        return
    low, high = float(images.min()), float(images.max())
    if low < -_CLIPPED_QUIETLY or high > 1 + _CLIPPED_QUIETLY:
        warnings.warn(
            f"the images have values from {low:.2f} to {high:.2f}, shown clipped to [0, 1]: give "
            "the `mean` and `std` of Normalize.",
            stacklevel=3,
        )


def _title(sample: Mapping[str, Any], names: Sequence[str] | None) -> str:
    """Return the label, the index and a remark where the row is not valid."""
    if not sample.get("valid", True):
        return "not valid"
    parts = []
    if "label" in sample:
        parts.append(_label_text(sample["label"], names))
    if np.ndim(sample.get("index", ())) == 0:
        parts.append(f"#{sample['index']}")
    return "  ".join(parts)


def _label_text(label: np.ndarray, names: Sequence[str] | None) -> str:
    """Return a class, the largest shares of a soft label, or numbers as they are."""
    if label.ndim == 0 and np.issubdtype(label.dtype, np.integer):
        return _name(int(label), names)
    if label.ndim != 1 or not np.issubdtype(label.dtype, np.floating):
        return str(label)
    largest = np.argsort(-label, kind="stable")[:_SHOWN_SHARES].tolist()
    return ", ".join(f"{_name(k, names)} {label[k]:.2f}" for k in largest if label[k] > 0)


def _name(label: int, names: Sequence[str] | None) -> str:
    if label < 0:
        return "no label"
    if names is None or label >= len(names):
        return str(label)
    return str(names[label]).encode(errors="backslashreplace").decode()  # a folder's may be no text


def _draw(
    axes: "Axes", sample: Mapping[str, Any], pixels: np.ndarray, names: Sequence[str] | None
) -> None:
    """Draw one image and its targets."""
    canvas = pixels.shape[:2]
    height, width = (int(side) for side in sample.get("size", canvas))
    extent = (0, width, height, 0)  # edge coordinates: pixel i covers [i, i + 1)
    axes.imshow(pixels[:height, :width], extent=extent)
    for number, plane in planes(sample, canvas):
        overlay = np.zeros((height, width, 4), np.float32)
        color = [byte / 255 for byte in rgb_of(number)]
        overlay[plane[:height, :width]] = [*color, _MASK_WEIGHT]
        axes.imshow(overlay, extent=extent)

    for number, box in enumerate(sample.get("boxes", ())):
        if np.any(box):
            label = sample["box_labels"][number] if "box_labels" in sample else None
            _draw_box(axes, box, label, names, color_of(number))
    points = visible_points(sample)
    axes.scatter(points[:, 0], points[:, 1], s=9, c="white", edgecolors="red")
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)


def _draw_sound(axes: "Axes", sample: Mapping[str, Any]) -> None:
    """Draw the used part of a waveform above its spectrogram, or of features."""
    waves, picture = sound_of(sample)
    bins, frames = picture.shape
    extent = (0, frames, 0, bins)
    if waves is not None:
        extent = (0, max(len(waves), 1), -3, -1)
        axes.plot(waves, linewidth=0.5)
        axes.set_ylim(-3, 1)
    axes.imshow(picture, origin="lower", aspect="auto", extent=extent)


def _draw_box(
    axes: "Axes", box: np.ndarray, label: Any, names: Sequence[str] | None, color: str
) -> None:
    """Draw an xyxy box with its label, if it has one."""
    from matplotlib.patches import Rectangle

    left, top, right, bottom = (float(side) for side in box)
    frame = Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=color)
    axes.add_patch(frame)
    if label is not None:
        paper = {"facecolor": color, "pad": 1, "linewidth": 0}
        text = _name(int(label), names)
        # below the upper edge, and inside of the image: above it, the label of a box at the image's
        # edge would be cut off
        place = (max(left, 0.0), max(top, 0.0))
        options = {"fontsize": "x-small", "va": "top", "clip_on": True, "parse_math": False}
        axes.text(*place, text, bbox=paper, **options)
