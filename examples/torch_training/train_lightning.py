"""The same training in Lightning, with the default settings of its Trainer.

    python train_lightning.py --data imagenette2-160
    python train_lightning.py --data imagenette2-160 --resume PATH.ckpt

Lightning saves the place in the data with each checkpoint, as it does for every loader that has a
`state_dict`, also in the middle of an epoch.
"""

import argparse
import os
from pathlib import Path

# JAX would take three quarters of the GPU when it starts; it needs room for a few batches alone.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import lightning
import torch
from data import test_loader, train_loader
from model import make_model
from torch import nn

from jaxaug.iterators import ImageFolder, to_torch
from jaxaug.sharding import batch_sharding

Batch = tuple[torch.Tensor, torch.Tensor]


class Classifier(lightning.LightningModule):
    """The network, its loss and its accuracy."""

    def __init__(self, classes: int):
        super().__init__()
        self.net = make_model(classes)

    def training_step(self, batch: Batch, number: int) -> torch.Tensor:
        """Return the mean loss of a batch."""
        image, label = batch
        return nn.functional.cross_entropy(self.net(image), label)

    def validation_step(self, batch: Batch, number: int) -> None:
        """Log the accuracy; each batch counts by its rows that are no padding."""
        image, label = batch
        valid = label >= 0
        right = self.net(image).argmax(dim=1) == label
        rows = int(valid.sum())
        self.log("accuracy", right.sum() / rows, batch_size=rows, prog_bar=True)
        self.log("images", float(rows), reduce_fx="sum", prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)


def main() -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(description="Train in Lightning on batches of jaxaug.")
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and val/")
    parser.add_argument("--test-split", default="val", help="the folder of the test images")
    parser.add_argument("--size", type=int, default=128, help="side of the images, pixels")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and augmentation")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the checkpoints")
    parser.add_argument("--resume", type=Path, help="a checkpoint of Lightning")
    options = parser.parse_args()

    lightning.seed_everything(options.seed)
    sharding = batch_sharding(jax.local_devices()[:1])
    images = ImageFolder(options.data / "train")
    test_images = ImageFolder(options.data / options.test_split, images.classes)
    trainer = lightning.Trainer(devices=1, max_epochs=options.epochs, default_root_dir=options.runs)
    with (
        train_loader(images, options.size, options.batch_size, options.seed, sharding) as train,
        test_loader(test_images, options.size, options.batch_size, sharding) as tests,
    ):
        form = {"names": ("image", "label"), "channels_last": True}
        trainer.fit(
            Classifier(len(images.classes)),
            to_torch(train, **form),
            to_torch(tests, **form),
            ckpt_path=options.resume,
        )
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
