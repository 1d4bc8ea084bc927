"""From videos to batches of clips: drawn ones, the augmentations, the Loaders."""

from pathlib import Path

import av
import numpy as np

from jaxaug import Loader, augment, decode
from jaxaug.iterators import VideoFolder

SIDE = 32  # pixels of a clip that the network sees
FRAMES = 8
STRIDE = 2
_MOVES = {"down": (0, 1), "left": (-1, 0), "right": (1, 0), "up": (0, -1)}
_COUNT = 24  # frames of a drawn video
_DRAWN = 40  # pixels of its sides


def draw_videos(folder: Path, count: int, seed: int) -> None:
    """Write class folders of videos in which a disc moves over noise, a class for each way."""
    rng = np.random.default_rng(seed)
    for name, move in _MOVES.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            _write(folder / name / f"{number}.mp4", _disc(move, rng))


def _disc(move: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return frames uint8[T, h, w, 3] of a disc that moves, and comes back on the other side."""
    y, x = np.mgrid[:_DRAWN, :_DRAWN]
    start = rng.uniform(0, _DRAWN, 2)
    color = rng.uniform(120, 255, 3)
    frames = rng.uniform(0, 60, (_COUNT, _DRAWN, _DRAWN, 3))
    for time in range(_COUNT):
        center = (start + 1.5 * time * np.array(move)) % _DRAWN
        away = np.abs(np.stack([x, y]) - center[:, None, None])
        away = np.minimum(away, _DRAWN - away)
        frames[time][np.hypot(*away) < 6] = color
    return frames.astype(np.uint8)


def _write(path: Path, frames: np.ndarray) -> None:
    with av.open(path, "w") as container:
        stream = container.add_stream("mpeg4", 25, width=_DRAWN, height=_DRAWN, pix_fmt="yuv420p")
        stream.bit_rate = 400_000
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame)))
        container.mux(stream.encode(None))


def train_loader(folder: Path, batch_size: int, epochs: int, seed: int) -> Loader:
    """Return shuffled batches of clips at random places, cropped and jittered, never mirrored."""
    chain = augment.Compose(
        [
            augment.RandomResizedCrop(SIDE, scale=(0.6, 1.0)),
            augment.ColorJitter(0.3, 0.3),
            augment.ToFloat(),
        ]
    )
    return Loader(
        VideoFolder(folder),
        batch_size,
        decode=decode.Video(frames=FRAMES, stride=STRIDE),
        transform=augment.Frames(chain),
        epochs=epochs,
        seed=seed,
    )


def test_loader(folder: Path, batch_size: int) -> Loader:
    """Return ordered batches of the clips in the middle; the last is padded."""
    chain = augment.Compose([augment.Resize((SIDE, SIDE)), augment.ToFloat()])
    return Loader(
        VideoFolder(folder),
        batch_size,
        decode=decode.Video(frames=FRAMES, stride=STRIDE, start="center"),
        transform=augment.Frames(chain),
        shuffle=False,
        last_batch="pad",
        epochs=1,
    )
