"""Time transforms of sounds on the default device, and torchaudio's there: microseconds for a clip.

    python benchmarks/audio_augment.py --batch 256 --seconds 4 --rounds 15

The chain, each operator alone, and what a chain like it takes by torchaudio, all on clips that lie
on the device. Programs take turns; each round waits for the last of its calls. The table gives the
median of the rounds and their range. `--check` compares instead: the values with those of the CPU,
and the bits of batches of 1, 2 and 32 rows with those of all.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxaug import augment
from jaxaug.augment import audio

RATE = 16_000
MASKS: dict[str, Any] = {
    "time_masks": 2,
    "time_width": 40,
    "frequency_masks": 2,
    "frequency_width": 27,
}


def transforms(bank: np.ndarray) -> dict[str, Any]:
    """Return chains and operators by name."""
    level = [audio.Gain(), audio.AddNoise((5, 30))]
    banked = [audio.Gain(), audio.AddNoise((5, 30), bank=bank)]
    masks = audio.SpecAugment(**MASKS)
    return {
        "gain+noise+log mel+SpecAugment": augment.Compose([*level, audio.LogMel(), masks]),
        "the same, noise of a bank": augment.Compose([*banked, audio.LogMel(), masks]),
        "the same, kaldi": augment.Compose([*level, audio.LogMel(like="kaldi"), masks]),
        "Gain": audio.Gain(),
        "AddNoise": audio.AddNoise((5, 30)),
        "AddNoise bank": audio.AddNoise((5, 30), bank=bank),
        "Normalize rms": audio.Normalize(to="rms"),
        "Spectrogram": audio.Spectrogram(),
        "MelSpectrogram": audio.MelSpectrogram(),
        "LogMel": audio.LogMel(),
        "LogMel kaldi": audio.LogMel(like="kaldi"),
        "LogMel torchaudio": audio.LogMel(like="torchaudio"),
        "MFCC": audio.MFCC(),
        "LowPass": audio.LowPass(),
        "RoomImpulse": audio.RoomImpulse(bank=bank[:, :RATE]),
        "TimeShift": audio.TimeShift(),
        "TimeMask": audio.TimeMask(),
        "Speed": audio.Speed(),
        "TimeStretch": audio.TimeStretch(),
        "PitchShift": audio.PitchShift(),
    }


def on_features() -> dict[str, Any]:
    """Return what takes features, by name."""
    return {
        "SpecAugment": audio.SpecAugment(**MASKS),
        "SpecAugment warp": audio.SpecAugment(**MASKS, warp=20),
        "AmplitudeToDB": audio.AmplitudeToDB(),
        "Standardize": audio.Standardize(),
    }


def torch_programs(clips: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return torchaudio's chain, and its parts, on the device that jax has; none without it."""
    try:
        import torch
        import torchaudio
    except ImportError:
        return {}
    device = "cuda" if jax.devices()[0].platform == "gpu" else "cpu"
    waves = torch.tensor(clips, device=device)
    mel = torchaudio.transforms.MelSpectrogram(
        RATE, n_fft=512, win_length=400, hop_length=160, n_mels=80
    ).to(device)
    decibels = torchaudio.transforms.AmplitudeToDB(top_db=80)
    times = torchaudio.transforms.TimeMasking(MASKS["time_width"], iid_masks=True)
    bands = torchaudio.transforms.FrequencyMasking(MASKS["frequency_width"], iid_masks=True)

    def noisy() -> Any:
        gain = 10 ** ((torch.rand(len(waves), 1, device=device) * 12 - 6) / 20)
        snr = torch.rand(len(waves), device=device) * 25 + 5
        return torchaudio.functional.add_noise(waves * gain, torch.randn_like(waves), snr)

    def masked(features: Any) -> Any:
        features = features[:, None]  # it masks examples apart where they have channels
        for mask in (times, times, bands, bands):
            features = mask(features)
        return features

    features = decibels(mel(waves))
    return {
        "torchaudio chain": lambda: masked(decibels(mel(noisy()))),
        "torchaudio gain+noise": noisy,
        "torchaudio log mel": lambda: decibels(mel(waves)),
        "torchaudio masks": lambda: masked(features),
    }


def wait(result: Any) -> None:
    """Wait for the device."""
    if type(result).__module__.startswith("torch"):
        if result.is_cuda:
            result.flatten()[0].item()
    else:
        jax.block_until_ready(result)


def programs(clips: np.ndarray, bank: np.ndarray, only: str) -> dict[str, Callable[[], Any]]:
    """Return compiled calls by name."""
    keys = jax.random.split(jax.random.key(0), len(clips))
    waves = jnp.asarray(clips)
    features = jax.jit(jax.vmap(audio.LogMel()))(keys, waves)
    found = {}
    given = [(name, t, waves) for name, t in transforms(bank).items()]
    given += [(name, t, features) for name, t in on_features().items()]
    for name, transform, values in given:
        if only not in name:
            continue
        sample = {"audio": values}
        call = jax.jit(jax.vmap(transform)).lower(keys, sample).compile()
        found[name] = lambda call=call, sample=sample: call(keys, sample)["audio"]
    return found | torch_programs(clips)


def microseconds(program: Callable[[], Any], clips: int, calls: int) -> float:
    """Return the time of a call, divided by its clips."""
    started = time.perf_counter()
    result = None
    for _ in range(calls):
        result = program()
    wait(result)
    return (time.perf_counter() - started) / calls / clips * 1e6


def check(clips: np.ndarray, bank: np.ndarray, only: str) -> None:
    """Print how far the device is from the CPU, and whether batches of other sizes are equal."""
    keys = jax.random.split(jax.random.key(0), len(clips))
    cpu = jax.devices("cpu")[0]
    for name, transform in transforms(bank).items():
        if only not in name:
            continue
        call = jax.jit(jax.vmap(transform))
        whole = np.asarray(call(keys, {"audio": clips})["audio"])
        unequal = []
        for rows in (1, 2, 32):
            part = np.asarray(call(keys[:rows], {"audio": clips[:rows]})["audio"])
            if not (part == whole[:rows]).all():
                unequal.append(rows)
        few = jax.device_put((keys[:4], {"audio": clips[:4]}), cpu)
        beside = np.asarray(call(*few)["audio"])
        far = np.abs(beside - whole[:4]).max() / np.abs(beside).max()
        told = f"unequal: {unequal}" if unequal else "equal"
        print(f"{name:34} batches {told:24} {far:.1e} of the peak off the CPU", flush=True)


def main() -> None:
    """Parse the arguments, compile, measure in turn, print."""
    parser = argparse.ArgumentParser(description="Time transforms of sounds.")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--only", default="", help="only what has this in its name")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    clips = rng.normal(0, 0.1, (options.batch, round(options.seconds * RATE))).astype(np.float32)
    bank = rng.normal(0, 0.1, (8, 10 * RATE)).astype(np.float32)
    device = jax.devices()[0]
    print(f"jax {jax.__version__}, {device.device_kind}, batch {options.batch}, us a clip")
    if options.check:
        return check(clips, bank, options.only)
    calls = programs(clips, bank, options.only)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.rounds + 1):
        for name, call in calls.items():
            found[name].append(microseconds(call, options.batch, options.calls))
    for name, times in found.items():
        times = times[1:]
        middle = statistics.median(times)
        print(f"{name:34} {middle:9.2f} ({min(times):.2f} to {max(times):.2f})", flush=True)


if __name__ == "__main__":
    main()
