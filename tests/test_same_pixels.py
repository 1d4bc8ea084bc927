"""The promise of the whole pipeline: a record's pixels depend on (seed, epoch, record), on no
layout.
"""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug import Decoder, Loader, augment
from jaxaug.decode import Image
from jaxaug.iterators import InMemory
from jaxaug.sharding import batch_sharding
from tests.images import encode, picture

N = 128
DEVICES = np.array(jax.devices("cpu"))
CHAIN = augment.Compose(
    [
        augment.RandomResizedCrop(24),
        augment.RandomHorizontalFlip(),
        augment.RandomRotation(20),
        augment.ColorJitter(0.4, 0.4, 0.4, 0.1),
        augment.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)


@pytest.fixture(scope="module")
def source():
    sizes = np.random.default_rng(0).integers(20, 60, (N, 2)).tolist()
    return InMemory([encode(picture(i, h, w), quality=90) for i, (h, w) in enumerate(sizes)])


def pixels(source, batch_size, sharding):
    """{record: bytes of its image} over one epoch."""
    rows = {}
    parts = sharding.addressable_devices_indices_map((batch_size,))
    homes = list(
        {(index[0].start if index else 0): device for device, index in parts.items()}.values()
    )
    with Decoder((64, 64), "host", homes) as decoder:
        options = {
            "transform": CHAIN,
            "seed": 3,
            "epochs": 1,
            "decode": decoder,
            "sharding": sharding,
        }
        with Loader(source, batch_size, **options) as loader:
            for batch in loader:
                images = np.asarray(batch["image"])
                rows |= {
                    int(i): image.tobytes() for i, image in zip(np.asarray(batch["index"]), images)
                }
    return rows


def mesh(kind, *shape):
    return Mesh(
        DEVICES.reshape(shape), ("data", "model")[: len(shape)], axis_types=(kind,) * len(shape)
    )


LAYOUTS = {
    "batch 64, 1 device": (64, lambda: batch_sharding(DEVICES[:1])),
    "batch 64, 8 devices, Auto": (64, lambda: NamedSharding(mesh(AxisType.Auto, 8), P("data"))),
    "batch 64, 8 devices, Explicit": (
        64,
        lambda: NamedSharding(mesh(AxisType.Explicit, 8), P("data")),
    ),
    "batch 32, replicated axis": (32, lambda: NamedSharding(mesh(AxisType.Auto, 4, 2), P("data"))),
    "batch 16, 8 devices: two rows each": (16, lambda: batch_sharding(DEVICES)),
}


@pytest.fixture(scope="module")
def reference(source):
    return pixels(source, 32, batch_sharding(DEVICES[:1]))


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_pixels(name, source, reference):
    batch_size, make = LAYOUTS[name]
    found = pixels(source, batch_size, make())
    assert found.keys() == reference.keys() == set(range(N))
    assert [index for index in range(N) if found[index] != reference[index]] == []


@pytest.mark.bits  # only the newest JAX tells a blend that depends on the batch
def test_a_mix_of_one_group_on_each_device_is_that_of_two():
    """Of large images, which CPUs compute in turn: XLA fuses what only one turn computes."""
    images = [encode(picture(i, 96, 96), quality=90) for i in range(16)]
    source = InMemory(images, {"label": np.arange(16) % 5})
    chain = augment.Compose([augment.RandomResizedCrop(64), augment.Normalize(0.5, 0.25)])
    options = {
        "transform": chain,
        "batch_transform": augment.MixUpOrCutMix(5),
        "decode": Image(canvas=(128, 128)),
        "shuffle": False,
    }
    batches = []
    for count in (4, 8):
        with Loader(source, 16, sharding=batch_sharding(DEVICES[:count]), **options) as loader:
            batches.append(jax.device_get(next(loader)))
    jax.tree.map(np.testing.assert_array_equal, *batches)
