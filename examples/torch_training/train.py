"""Train a network of PyTorch on batches of jaxaug, in one process or in those of torchrun.

python train.py --data imagenette2-160
torchrun --nproc-per-node 4 train.py --data imagenette2-160
"""

import argparse
import os
from pathlib import Path
from typing import Any

# JAX would take three quarters of the GPU when it starts; it needs room for a few batches alone.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import torch
from data import test_loader, train_loader
from model import make_model
from processes import Process, join_processes, leave_processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from jaxaug import Loader
from jaxaug.iterators import ImageFolder, to_torch
from jaxaug.sharding import batch_sharding

Options = argparse.Namespace


def parse_options() -> Options:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Train a network of PyTorch on batches of jaxaug.")
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and val/")
    parser.add_argument("--test-split", default="val", help="the folder of the test images")
    parser.add_argument("--size", type=int, default=128, help="side of the images, pixels")
    parser.add_argument("--batch-size", type=int, default=128, help="of all processes together")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and augmentation")
    parser.add_argument("--checkpoint", type=Path, help="the file; none is written without")
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument(
        "--stop-at", type=int, help="end at this step, as if the job's time were up"
    )
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    return parser.parse_args()


class Trainer:
    """The model, its optimizer, and the number of steps made.

    Args:
      options: of the command line.
      process: this process.
      classes: how many there are.
    """

    def __init__(self, options: Options, process: Process, classes: int):
        torch.manual_seed(options.seed)
        self.process = process
        self.options = options
        self.steps = 0
        self.plain = make_model(classes).to(process.device)
        self.optimizer = torch.optim.SGD(
            self.plain.parameters(), options.learning_rate, momentum=0.9
        )
        self.model: nn.Module = self.plain
        if process.count > 1:
            self.model = DistributedDataParallel(self.plain)

    def step(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Make one step on the rows of this process; return their mean loss."""
        # These move nothing where the batches of JAX are on the GPU of the model.
        logits = self.model(image.to(self.process.device))
        loss = nn.functional.cross_entropy(logits, label.to(self.process.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, loader: Loader) -> tuple[int, int]:
        """Return how many test images are classified rightly, and how many there are."""
        counts = torch.zeros(2, dtype=torch.int64, device=self.process.device)
        for image, label in to_torch(loader, names=("image", "label"), channels_last=True):
            label = label.to(self.process.device)
            guess = self.plain(image.to(self.process.device)).argmax(dim=1)
            counts += torch.stack([(guess == label).sum(), (label >= 0).sum()])
        if self.process.count > 1:
            torch.distributed.all_reduce(counts)
        right, count = counts.tolist()
        return right, count

    def save(self, loader: Loader) -> None:
        """Write a checkpoint; all processes have the same, so the first writes."""
        path = self.options.checkpoint
        if path is None or self.process.rank != 0:
            return
        state = {
            "model": self.plain.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "steps": self.steps,
            "loader": loader.get_state(),
        }
        part = path.with_suffix(".part")
        torch.save(state, part)
        part.replace(path)

    def restore(self, loader: Loader) -> None:
        """Go on from the checkpoint, on any number of processes."""
        state: dict[str, Any] = torch.load(self.options.checkpoint, map_location="cpu")
        self.plain.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = state["steps"]
        loader.set_state(state["loader"])


def train(trainer: Trainer, loader: Loader, tests: Loader) -> None:
    """Train until the last epoch, or until `--stop-at`, and print each epoch's accuracy."""
    options = trainer.options
    batches = to_torch(loader, names=("image", "label"), channels_last=True)
    while loader.get_state()["epoch"] < options.epochs:
        epoch = loader.get_state()["epoch"]
        loss = torch.zeros(())
        for image, label in batches:
            loss = trainer.step(image, label)
            if trainer.steps % options.save_every == 0:
                trainer.save(loader)
            if trainer.steps == options.stop_at:
                return

        right, count = trainer.evaluate(tests)
        if trainer.process.rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, {right} of {count} right", flush=True)
    trainer.save(loader)


def main() -> None:
    """Train as the command line says."""
    options = parse_options()
    process = join_processes()
    # All processes together, one device of each; alone it trains on one GPU.
    devices = jax.devices() if process.count > 1 else jax.devices()[:1]
    sharding = batch_sharding(devices)

    images = ImageFolder(options.data / "train")
    test_images = ImageFolder(options.data / options.test_split, images.classes)
    trainer = Trainer(options, process, len(images.classes))
    with (
        train_loader(images, options.size, options.batch_size, options.seed, sharding) as loader,
        test_loader(test_images, options.size, options.batch_size, sharding) as tests,
    ):
        if options.resume:
            trainer.restore(loader)
        train(trainer, loader, tests)
    leave_processes(process)


if __name__ == "__main__":
    main()
