"""Labels that the mixing of a batch has no class for are named when the Loader is made."""

import dataclasses

import numpy as np
import pytest

from jaxaug import Loader, augment
from jaxaug.iterators import Arrays, InMemory, Renamed, Subset, Weighted
from tests.iterators.loaders import one_device

COUNT = 40
PIXELS = np.zeros((COUNT, 8, 8, 3), np.uint8)
LABELS = np.arange(COUNT, dtype=np.int32) % 10  # 0 to 9


class Unknown(Arrays):
    """A source that knows no label without reading it."""

    features = None


def make(source, **options):
    return Loader(source, 8, sharding=one_device(), **options)


def known(labels: np.ndarray = LABELS):
    return InMemory(PIXELS, {"label": labels})


SOURCES = {
    "known": known(),
    "subset": Subset(known(), np.arange(20)),
    "renamed": Renamed(InMemory(PIXELS, {"kind": LABELS}), {"kind": "label"}),
    "unknown": Unknown({"image": PIXELS, "label": LABELS + 990}),
}
MIXES = {
    "mixup": augment.MixUp,
    "either": lambda count: augment.MixUpOrCutMix(count),
    "mosaic": lambda count: augment.GroupCompose(
        [augment.Mosaic((8, 8), num_classes=count), augment.MixUp(count)]
    ),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_label_beyond_the_classes_is_named(kind):
    highest = r"99\d" if kind == "unknown" else "9"
    with pytest.raises(ValueError, match=rf"`num_classes` of MixUp .* got 9 and .* {highest}:"):
        make(SOURCES[kind], batch_transform=augment.MixUp(9))


@pytest.mark.parametrize("mix", MIXES)
def test_every_class_has_its_place(mix):
    with pytest.raises(ValueError, match="`num_classes` of M"):
        make(known(), batch_transform=MIXES[mix](9))
    with make(known(), batch_transform=MIXES[mix](10)) as loader:
        assert np.isfinite(next(loader)["label"]).all()


@dataclasses.dataclass(frozen=True)
class Halved:
    def __call__(self, key, sample):
        return {**sample, "label": sample["label"] // 2}


def test_labels_that_do_not_come_to_it_are_no_fault():
    chain = augment.Compose([augment.RandomHorizontalFlip()])
    with pytest.raises(ValueError, match="`num_classes`"):
        make(known(), transform=chain, batch_transform=augment.MixUp(5))
    some = Weighted((LABELS < 5).astype(float))
    with make(known(), transform=Halved(), batch_transform=augment.MixUp(5)) as loader:
        assert np.isfinite(next(loader)["label"]).all()
    with make(known(), shuffle=some, batch_transform=augment.MixUp(5)) as loader:
        assert np.isfinite(next(loader)["label"]).all()
    make(known(-np.ones(COUNT, np.int32)), batch_transform=augment.MixUp(5)).close()
