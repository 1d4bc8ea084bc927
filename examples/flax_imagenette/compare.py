"""Compare trainings that differ in their augmentation, several seeds each.

    python examples/flax_imagenette/compare.py --data cifar10

Every run is appended to `results.jsonl` as it ends; a table is printed at the end.
"""

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path

import config as configs
import jax
from config import Config
from input import AUGMENTATIONS
from train import train


def compare(
    config: Config, augments: list[str], seeds: list[int], results: Path
) -> dict[str, list[float]]:
    """Train once for each augmentation and seed; everything else is as in `config`.

    Returns:
      The test accuracies of each augmentation, in the order of `seeds`.
    """
    accuracies: dict[str, list[float]] = {augment: [] for augment in augments}
    for seed in seeds:
        for augment in augments:
            print(f"augment {augment}, seed {seed}", flush=True)
            started = time.perf_counter()
            accuracy = train(dataclasses.replace(config, augment=augment, seed=seed))
            accuracies[augment].append(accuracy)
            run = {
                "augment": augment,
                "seed": seed,
                "accuracy": accuracy,
                "epochs": config.epochs,
                "seconds": round(time.perf_counter() - started, 1),
                "device": jax.devices()[0].device_kind,
                "devices": jax.device_count(),
                "jax": jax.__version__,
            }
            with results.open("a") as file:
                file.write(json.dumps(run) + "\n")
    return accuracies


def table(accuracies: dict[str, list[float]]) -> str:
    """Return the accuracies in percent, as a table in Markdown."""
    lines = ["| augmentation | test accuracy, mean | each seed |", "| --- | --- | --- |"]
    for augment, values in accuracies.items():
        each = ", ".join(f"{value:.2%}" for value in values)
        lines.append(f"| `{augment}` | {statistics.mean(values):.2%} | {each} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare augmentations over several seeds.")
    configs.add_arguments(parser)
    parser.set_defaults(preset="cifar10")
    parser.add_argument(
        "--augments", nargs="+", choices=AUGMENTATIONS, default=["none", "flip_crop_jitter"]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=Path("results.jsonl"))
    arguments = parser.parse_args()
    config = configs.from_arguments(arguments)
    print(table(compare(config, arguments.augments, arguments.seeds, arguments.results)))


if __name__ == "__main__":
    main()
