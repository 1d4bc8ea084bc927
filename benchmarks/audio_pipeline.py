"""From a tar of sounds to batches of log mel on a CPU: jaxaug, torchaudio and Lhotse.

    python benchmarks/audio_pipeline.py --clips 512 --rounds 5

Clips of 4 s, 16 kHz, 16 bits, drawn here. Contestants, as far as they are installed, on two cores:

- jaxaug: `WebDataset`, `decode.Audio`, `LogMel` in the Loader, as of librosa and of Kaldi;
- torchaudio: a DataLoader with two workers that read the tar, soundfile, `MelSpectrogram` and
  `AmplitudeToDB`;
- Lhotse: a Shar (its tars) read by two workers, with `OnTheFlyFeatures(Fbank())`, as Kaldi.

Each runs in a process of its own, and all take turns: one epoch to warm up, then `--epochs` that
are measured. Prints clips a second by the clock, and milliseconds of processor time a clip with all
of their workers: medians, minima and maxima.
"""

import argparse
import importlib.util
import io
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

RATE, SECONDS, WORKERS = 16_000, 4, 2


def draw(folder: Path, clips: int) -> None:
    """Write a tar of WAV files, and the same as a Shar where Lhotse is installed."""
    rng = np.random.default_rng(0)
    (folder / "wav").mkdir()
    with tarfile.open(folder / "clips.tar", "w") as tar:
        for number in range(clips):
            buffer = io.BytesIO()
            samples = 0.1 * rng.standard_normal(SECONDS * RATE)
            soundfile.write(buffer, samples, RATE, format="WAV", subtype="PCM_16")
            info = tarfile.TarInfo(f"{number:06}.wav")
            info.size = buffer.tell()
            tar.addfile(info, io.BytesIO(buffer.getvalue()))
            (folder / "wav" / info.name).write_bytes(buffer.getvalue())
    if importlib.util.find_spec("lhotse"):
        _draw_shar(folder)


def _draw_shar(folder: Path) -> None:
    from lhotse import CutSet, RecordingSet

    recordings = RecordingSet.from_dir(folder / "wav", "*.wav")
    cuts = CutSet.from_manifests(recordings=recordings).to_eager()
    (folder / "shar").mkdir()
    shards = len(cuts) // (2 * WORKERS)
    cuts.to_shar(folder / "shar", {"recording": "wav"}, shard_size=shards, verbose=False)


def by_jaxaug(folder: Path, batch: int, like: str = "librosa") -> Callable[[], Iterator[Any]]:
    """Return a function that gives the batches of an epoch."""
    from jaxaug import decode
    from jaxaug.augment import audio
    from jaxaug.iterators import Loader, Renamed, WebDataset

    source = Renamed(WebDataset(folder / "clips.tar", image="wav"), {"image": "audio"})
    loader = Loader(
        source,
        batch,
        decode={"audio": decode.Audio(seconds=SECONDS)},
        transform=audio.LogMel(like=like),
    )

    def epoch() -> Iterator[Any]:
        for values in loader:
            yield values["audio"].block_until_ready()

    return epoch


def by_torchaudio(folder: Path, batch: int) -> Callable[[], Iterator[Any]]:
    """Return a function that gives the batches of an epoch."""
    import torch
    import torchaudio

    mel = torchaudio.transforms.MelSpectrogram(RATE, 512, 400, 160, n_mels=80)
    decibels = torchaudio.transforms.AmplitudeToDB(top_db=80)

    class Tar(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            torch.set_num_threads(1)
            info: Any = torch.utils.data.get_worker_info()
            with tarfile.open(folder / "clips.tar") as tar:
                for number, member in enumerate(tar):
                    if number % info.num_workers == info.id:
                        file: Any = tar.extractfile(member)
                        samples, _ = soundfile.read(file, dtype="float32")
                        yield decibels(mel(torch.from_numpy(samples)))

    loader = torch.utils.data.DataLoader(Tar(), batch, num_workers=WORKERS, persistent_workers=True)
    return lambda: iter(loader)


def by_lhotse(folder: Path, batch: int) -> Callable[[], Iterator[Any]]:
    """Return a function that gives the batches of an epoch."""
    import torch
    from lhotse import CutSet, Fbank
    from lhotse.dataset import IterableDatasetWrapper, OnTheFlyFeatures, SimpleCutSampler

    class Features(torch.utils.data.Dataset):
        strategy = OnTheFlyFeatures(Fbank())

        def __getitem__(self, cuts: Any) -> Any:
            torch.set_num_threads(1)
            return self.strategy(cuts)[0]

    cuts = CutSet.from_shar(in_dir=folder / "shar", split_for_dataloading=True)
    dataset = IterableDatasetWrapper(Features(), SimpleCutSampler(cuts, max_cuts=batch))
    loader = torch.utils.data.DataLoader(
        dataset, None, num_workers=WORKERS, persistent_workers=True
    )
    return lambda: iter(loader)


CONTESTANTS: dict[str, tuple[str, Callable[..., Callable[[], Iterator[Any]]]]] = {
    "jaxaug": ("jax", by_jaxaug),
    "jaxaug, as Kaldi": ("jax", lambda folder, batch: by_jaxaug(folder, batch, "kaldi")),
    "torchaudio": ("torchaudio", by_torchaudio),
    "Lhotse": ("lhotse", by_lhotse),
}


def processor_time() -> float:
    """Return the seconds that this process and its workers, which run on, have computed."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    total = usage.ru_utime + usage.ru_stime
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(name: str, folder: Path, batch: int, epochs: int) -> None:
    """Print clips a second and milliseconds of processor time a clip."""
    epoch = CONTESTANTS[name][1](folder, batch)
    clips = sum(len(values) for values in epoch())
    clock, work = time.perf_counter(), processor_time()
    found = sum(len(values) for _ in range(epochs) for values in epoch())
    clock, work = time.perf_counter() - clock, processor_time() - work
    assert found == epochs * clips
    print(found / clock, work / found * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description="From a tar to log mel.")
    parser.add_argument("--clips", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        return measure(options.contestant, options.folder, options.batch, options.epochs)
    names = [name for name, (needs, _) in CONTESTANTS.items() if importlib.util.find_spec(needs)]
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), options.clips)
        given = [*sys.argv, "--folder", folder, "--contestant"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        for _ in range(options.rounds):
            for name in names:
                command = [sys.executable, *given, name]
                told = subprocess.run(command, check=True, capture_output=True, env=environment)
                found[name].append([float(word) for word in told.stdout.split()[-2:]])
    for name, rounds in found.items():
        cells = [
            f"{statistics.median(v):,.2f} ({min(v):,.2f} to {max(v):,.2f})" for v in zip(*rounds)
        ]
        print(f"{name:20}{cells[0]:>32} clips/s{cells[1]:>28} ms of processor time")


if __name__ == "__main__":
    main()
