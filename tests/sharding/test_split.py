"""The split of a batch over processes and devices."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxaug.sharding import batch_sharding
from jaxaug.sharding._mesh import count_row_ranges, local_row_ranges, spans_processes

DEVICES = np.array(jax.devices("cpu"))


def test_local_row_ranges_want_a_divisible_batch():
    with pytest.raises(ValueError, match=r"multiple of 8, .* got 12: take 8 or 16"):
        local_row_ranges(batch_sharding(), 12)
    with pytest.raises(ValueError, match=r"got 3: take 8\."):
        local_row_ranges(batch_sharding(), 3)


class Elsewhere:
    """A device of a process."""

    def __init__(self, process_index):
        self.process_index = process_index


@pytest.mark.parametrize(
    "spec, processes, spans",
    [
        (P(("a", "b")), [0, 0, 1, 1], False),  # each row on one device
        (P("a"), [0, 0, 1, 1], False),  # replicas beside each other
        (P("b"), [0, 0, 1, 1], True),
        (P(), [0, 0, 1, 1], True),
        (P(), [0, 0, 0, 0], False),
        (P("a"), [0, 0, 1, 2], True),  # the last rows alone
    ],
)
def test_replicas_on_several_processes_are_seen(spec, processes, spans):
    local = NamedSharding(Mesh(DEVICES[:4].reshape(2, 2), ("a", "b")), spec)
    indices = local.devices_indices_map((count_row_ranges(local),))
    spread = {Elsewhere(number): indices[device] for device, number in zip(DEVICES, processes)}
    fake = SimpleNamespace(
        spec=local.spec, mesh=local.mesh, devices_indices_map=lambda shape: spread
    )
    assert spans_processes(fake) is spans
