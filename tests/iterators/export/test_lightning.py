"""`to_torch` in Lightning's Trainer, with its default settings."""

import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.iterators import InMemory, to_torch
from tests.images import jpegs
from tests.iterators.loaders import one_device

torch = pytest.importorskip("torch", reason="needs torch, which no extra of jaxaug installs")
lightning = pytest.importorskip(
    "lightning", reason="needs lightning, which no extra of jaxaug installs"
)

COUNT = 50  # 16 does not divide it
CHAIN = augment.Compose([augment.CenterCrop(16), augment.ToFloat(layout="NCHW")])


class Model(lightning.LightningModule):
    """A linear classifier that notes the records that it is shown."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16 * 16 * 3, 3))
        self.trained: list[int] = []
        self.validations: list[list[int]] = []

    def training_step(self, batch, number):
        self.trained += batch["index"].tolist()
        return torch.nn.functional.cross_entropy(self.net(batch["image"]), batch["label"])

    def on_validation_epoch_start(self):
        self.validations.append([])

    def validation_step(self, batch, number):
        self.validations[-1] += batch["index"][batch["valid"]].tolist()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Save(lightning.Callback):
    """Saves a checkpoint behind a step."""

    def __init__(self, step, path):
        self.step = step
        self.path = path

    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


def fit(epochs, root, callbacks=(), **options):
    """Train with Loaders of 50 images in batches of 16; return the model."""
    source = InMemory(jpegs(COUNT), {"label": np.arange(COUNT) % 3})
    common = {"transform": CHAIN, "sharding": one_device()}
    model = Model()
    trainer = lightning.Trainer(max_epochs=epochs, default_root_dir=root, callbacks=list(callbacks))
    with (
        Loader(source, 16, **common) as train,
        Loader(source, 16, shuffle=False, last_batch="pad", **common) as validation,
    ):
        trainer.fit(model, to_torch(train), to_torch(validation), **options)
    return model


@pytest.mark.filterwarnings("ignore")
def test_validations_are_whole_behind_the_sanity_check(tmp_path):
    model = fit(2, tmp_path)
    check, first, second = model.validations
    assert len(check) == 2 * 16
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert len(model.trained) == 2 * 48


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_within_an_epoch_resumes_exactly(tmp_path):
    path = tmp_path / "middle.ckpt"
    whole = fit(3, tmp_path, [Save(4, path)])
    rest = fit(3, tmp_path, ckpt_path=path, weights_only=False)
    assert rest.trained == whole.trained[4 * 16 :] and len(rest.trained) == 5 * 16
    torch.testing.assert_close(rest.net[1].weight, whole.net[1].weight, rtol=0, atol=0)
