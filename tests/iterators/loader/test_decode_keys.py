"""What decoders draw: by seed, epoch and record, and by nothing else."""

import dataclasses

import jax
import numpy as np

from jaxaug import Loader, decode
from jaxaug.iterators import FromIterable, InMemory, Weighted
from jaxaug.iterators.loader.keys import decode_keys
from tests.iterators.loaders import one_device

COUNT = 16


@dataclasses.dataclass(frozen=True)
class Drawn(decode.ColumnDecoder):
    """A number for each record, whatever its column holds; odd records are bad if `bad_odd`."""

    bad_odd: bool = False

    def forms(self):
        return {"drawn": jax.ShapeDtypeStruct((2,), np.float32)}

    def decode_rows(self, values, checked, siblings, wanted, keys):
        drawn = decode.draw_uniform(keys[:, None], np.arange(2)).astype(np.float32)
        odd = np.flatnonzero(wanted & (values % 2 == 1) & self.bad_odd).tolist()
        return decode.Decoded({"drawn": drawn}, wanted, {})._replace(
            valid=wanted & ~np.isin(np.arange(len(wanted)), odd),
            failures={row: "odd" for row in odd},
        )


def records():
    return InMemory(np.zeros((COUNT, 2, 2), np.uint8), {"number": np.arange(COUNT)})


def drawn(source, batch_size=4, batches=None, state=None, decoder=None, **options):
    """Return {record: the numbers drawn}, and the state after `batches`, of one epoch."""
    options = {"sharding": one_device(), "seed": 3, "last_batch": "pad", **options}
    seen = {}
    with Loader(source, batch_size, decode={"number": decoder or Drawn()}, **options) as loader:
        if state is not None:
            loader.set_state(state)
        for _ in range(batches or -(-COUNT // batch_size)):
            batch = next(loader)
            for row in np.flatnonzero(batch["valid"]):
                number = tuple(np.asarray(batch["number"][row]).tolist())
                seen.setdefault(int(batch["index"][row]), []).append(number)
        return seen, loader.get_state()


def test_the_same_for_any_batch_size_order_and_number_of_devices():
    expected, _ = drawn(records())
    assert len(expected) == COUNT
    assert len({number for found in expected.values() for pair in found for number in pair}) == 32
    assert drawn(records(), 6)[0] == expected
    assert drawn(records(), 8, sharding=None)[0] == expected
    assert drawn(records(), shuffle=False)[0] == expected
    keys = decode_keys(3, 0, np.arange(COUNT))
    for index, key in enumerate(keys):
        draws = decode.draw_uniform(np.array([key]), np.arange(2)).astype(np.float32)
        assert expected[index] == [tuple(draws.tolist())]


def test_a_resumed_run_goes_on_with_what_the_rest_would_have_drawn():
    expected, _ = drawn(records())
    first, state = drawn(records(), 4, batches=2)
    rest, _ = drawn(records(), 2, batches=4, state=state)
    assert first | rest == expected and len(first) == len(rest) == COUNT // 2


def test_epochs_and_seeds_differ():
    epochs, _ = drawn(records(), batches=8)
    (first, second), *_ = epochs.values()
    assert first != second
    other, _ = drawn(records(), seed=4)
    assert all(other[index] != found[:1] for index, found in epochs.items())


def test_a_record_drawn_twice_draws_by_its_position_too():
    sampler = Weighted(np.eye(COUNT)[5] + np.eye(COUNT)[2], seed=0, num_samples=COUNT)
    found, _ = drawn(records(), shuffle=sampler)
    assert len(set(found[5] + found[2])) == COUNT
    assert drawn(records(), 8, shuffle=sampler)[0] == found


def test_a_replacement_draws_as_itself():
    expected, _ = drawn(records())
    found, _ = drawn(records(), decoder=Drawn(bad_odd=True), on_error="replace")
    assert set(found) == set(range(0, COUNT, 2))
    assert all(set(found[index]) == set(expected[index]) for index in found)


def test_a_stream_gives_keys_by_the_number_of_its_records():
    def rows():
        return ({"image": np.zeros((2, 2), np.uint8), "number": i} for i in range(COUNT))

    assert drawn(FromIterable(rows, label=None), shuffle=False)[0] == drawn(records())[0]


def test_sample_draws_what_the_batch_has():
    found, _ = drawn(records())
    with Loader(records(), 4, seed=3, sharding=one_device(), decode={"number": Drawn()}) as loader:
        assert tuple(loader.sample(7)["sample"]["number"].tolist()) == found[7][0]
