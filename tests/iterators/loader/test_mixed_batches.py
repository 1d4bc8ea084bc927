"""Batches whose images are mixed, with XLA's optimizations as users have them: without them XLA may
round one resized pixel in 5,000 the other way in a batch of another size.
"""

import jax
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.iterators import InMemory, Loader
from jaxaug.sharding import batch_sharding
from tests.images import jpegs

pytestmark = pytest.mark.bits

CLASSES = 5
ROWS = 14  # the last batch has 2 records, or 14, and 2 rows of padding


@pytest.mark.parametrize("mix", [A.MixUpOrCutMix(CLASSES), A.Mosaic((40, 60), num_classes=CLASSES)])
def test_they_are_the_same_for_any_devices_and_batch_size(mix):
    source = InMemory(jpegs(ROWS), {"label": np.arange(ROWS) % CLASSES})
    transform = A.Compose([A.RandomResizedCrop((40, 60)), A.RandomHorizontalFlip()])
    seen = []
    for batch_size, devices in [(4, 1), (16, 2)]:
        with Loader(
            source,
            batch_size,
            transform=transform,
            batch_transform=mix,
            seed=3,
            last_batch="pad",
            sharding=batch_sharding(jax.devices("cpu")[:devices]),
        ) as loader:
            batches = [jax.device_get(batch) for batch in loader]
        valid = np.concatenate([batch["valid"] for batch in batches])
        image = np.concatenate([batch["image"] for batch in batches])
        label = np.concatenate([batch["label"] for batch in batches])
        assert valid.sum() == ROWS and label.dtype == np.float32 and label.shape[1] == CLASSES
        assert not image[~valid].any() and not label[~valid].any()
        np.testing.assert_allclose(label[valid].sum(axis=1), 1, atol=1e-5)
        seen.append((image[valid], label[valid]))
    for image, label in seen[1:]:
        np.testing.assert_array_equal(image, seen[0][0])
        np.testing.assert_array_equal(label, seen[0][1])
    assert ((seen[0][1] > 0).sum(axis=1) > 1).mean() > 0.4
