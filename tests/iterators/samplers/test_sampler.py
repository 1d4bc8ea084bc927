"""Samplers: a permutation each epoch, uniform, the same everywhere; draws; samplers of users."""

import copy
import dataclasses

import jax
import numpy as np
import pytest
from scipy import stats

from jaxaug import Decoder, Loader, _splitmix
from jaxaug.iterators import Buckets, InMemory, Mix, Repeat
from jaxaug.iterators.loader.reader import RecordReader
from jaxaug.iterators.samplers import sampler as sampler_module
from jaxaug.iterators.samplers.sampler import (
    Blocks,
    Sequential,
    Shuffled,
    Weighted,
    balanced_weights,
    find_records,
    permute,
    sampler_name,
)
from tests.images import jpegs
from tests.iterators.loaders import N, jitter, one_device

SMALL = [1, 2, 3, 4, 5, 7, 8, 10, 15, 16, 17, 100, 1000, 1023, 1024, 1025, 65537]


@pytest.mark.parametrize("n", SMALL)
def test_every_epoch_is_a_permutation(n):
    for epoch in range(4):
        assert np.array_equal(np.sort(permute(5, epoch, np.arange(n), n)), np.arange(n))


@pytest.mark.parametrize("n", [10**6, 10**12, 2**53 + 1, 2**62])
def test_large_n_is_injective_and_in_range(n):
    positions = np.unique(np.random.default_rng(0).integers(0, n, 20_000))
    records = permute(1, 2, positions, n)
    assert records.dtype == np.int64 and records.min() >= 0 and records.max() < n
    assert np.unique(records).size == positions.size
    assert records.max() > n * 0.99 and records.min() < n * 0.01


def test_golden_values():
    """Never change these: every run that was stopped in the middle of an epoch resumes by them."""
    golden = {
        (0, 0, 10): [5, 3, 2, 9, 1, 7],
        (1, 7, 1000): [535, 945, 334, 328, 460, 411],
        (-3, 2, 10**12): [
            127794348902,
            106888939286,
            172520778081,
            959627932896,
            596998989133,
            48095382666,
        ],
    }
    for (seed, epoch, n), records in golden.items():
        assert permute(seed, epoch, np.arange(6), n).tolist() == records


@pytest.mark.parametrize(
    "order, records",
    [
        (Blocks(29, run=3, lanes=2, seed=5), [16, 19, 17, 27, 18, 28, 10, 0]),
        (Weighted(np.arange(1.0, 30.0), seed=5), [18, 14, 15, 5, 22, 16, 5, 8]),
        (Mix([50, 7], [3, 1], seed=5, num_samples=64), [39, 9, 14, 25, 7, 31, 22, 56]),
        (Repeat([1, 0, 2.5, 0.5, 1.25, 3], seed=5), [5, 5, 4, 0, 2, 5, 2, 2]),
    ],
)
def test_golden_values_of_other_orders(order, records):
    """Never change these either."""
    assert order.records(3, np.arange(8)).tolist() == records


def test_positions_may_be_asked_in_any_grouping():
    whole = permute(3, 1, np.arange(1000), 1000)
    parts = [permute(3, 1, np.arange(start, start + 100), 1000) for start in range(0, 1000, 100)]
    assert np.array_equal(np.concatenate(parts), whole)
    alone = [permute(3, 1, np.array([place]), 1000)[0] for place in range(1000)]
    assert np.array_equal(alone, whole)  # many look their hashes up, few compute them
    assert np.array_equal(permute(3, 1, np.array([7, 7, 999]), 1000), whole[[7, 7, 999]])
    assert permute(3, 1, np.zeros(0, np.int64), 1000).shape == (0,)


def test_seeds_and_epochs_differ_and_do_not_mirror():
    shuffles = {
        permute(seed, epoch, np.arange(50), 50).tobytes()
        for seed in range(20)
        for epoch in range(20)
    }
    assert len(shuffles) == 400


@pytest.mark.parametrize("n, epochs", [(10, 4000), (1000, 2000), (10**6, 2000)])
def test_the_record_at_a_position_is_uniform_over_epochs(n, epochs):
    """Chi-square of ten positions over the epochs, and of the gap between two of them."""
    watched = np.linspace(0, n - 1, 10).astype(np.int64)
    table = np.stack([permute(11, epoch, watched, n) for epoch in range(epochs)])
    bins = table * min(n, 20) // n
    p_values = [
        stats.chisquare(np.bincount(column, minlength=min(n, 20))).pvalue for column in bins.T
    ]
    assert min(p_values) > 1e-4 and stats.kstest(p_values, "uniform").pvalue > 1e-4
    first = table[:, 0]
    second = table[:, 1]
    gap = (second - first) % n - 1  # uniform on 0..n-2 for independent positions of one permutation
    counts = np.bincount(gap * min(n - 1, 18) // (n - 1), minlength=min(n - 1, 18))
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("n", [10, 1000, 10**6])
def test_the_records_of_one_epoch_show_no_trend(n):
    """The correlation of position and record, over epochs, is normal around 0 with variance 1/(k -
    1).
    """
    positions = np.arange(n) if n <= 1000 else np.arange(0, n, 1000)
    scores = []
    for epoch in range(200 if n <= 1000 else 50):
        records = permute(2, epoch, positions, n)
        scores.append(stats.pearsonr(positions, records).statistic * np.sqrt(positions.size - 1))
    assert stats.kstest(scores, "norm").pvalue > 1e-4


def test_all_shuffles_of_four_are_equally_likely():
    table = np.stack([permute(9, epoch, np.arange(4), 4) for epoch in range(6000)])
    _, counts = np.unique(table @ np.array([64, 16, 4, 1]), return_counts=True)
    assert counts.size == 24 and stats.chisquare(counts).pvalue > 1e-4


def test_positions_outside_are_refused():
    for wrong in ([-1], [10], [0, 11]):
        with pytest.raises(ValueError, match=r"`positions` must lie in \[0, 10\)"):
            permute(0, 0, np.array(wrong), 10)
    with pytest.raises(ValueError, match=r"`n`, the number of records, .*: leave out a `repeat"):
        permute(0, 0, np.array([0]), 0)
    with pytest.raises(ValueError, match="`positions`"):
        Sequential(3).records(0, np.array([3]))


def test_sequential_and_shuffled():
    assert Sequential(4).records(9, np.array([3, 0])).tolist() == [3, 0]
    shuffled = Shuffled(100, seed=4)
    assert shuffled.length == 100 and not shuffled.with_replacement
    assert np.array_equal(shuffled.records(2, np.arange(100)), permute(4, 2, np.arange(100), 100))
    with pytest.raises(ValueError, match="`length` must be an int of at least 1"):
        Shuffled(0)


def test_weighted_draws_follow_the_weights():
    weights = np.array([0.0, 1.0, 2.0, 0.0, 5.0, 0.0])
    sampler = Weighted(weights, seed=1, num_samples=40_000)
    records = sampler.records(3, np.arange(sampler.length))
    counts = np.bincount(records, minlength=6)
    assert counts[[0, 3, 5]].tolist() == [0, 0, 0]
    drawn = weights > 0
    expected = sampler.length * weights[drawn] / weights.sum()
    assert stats.chisquare(counts[drawn], expected).pvalue > 1e-4
    assert not np.array_equal(records, sampler.records(4, np.arange(sampler.length)))
    assert np.array_equal(records[[5, 77]], sampler.records(3, np.array([5, 77])))  # stateless
    assert sampler.with_replacement


def test_a_draw_of_zero_is_no_record_of_weight_zero():
    """At the position whose hash is that of 0, as SplitMix64 maps 0 to itself."""
    inverse = pow(int(_splitmix.GOLDEN), -1, 2**64)
    position = -int(sampler_module._keys(0, 0)[0]) * inverse % 2**64
    sampler = Weighted(np.array([0.0, 1.0]), seed=0, num_samples=2**63 - 1)
    assert sampler.records(0, np.array([position])).tolist() == [1]


def test_weighted_neighbours_are_independent():
    records = Weighted(np.ones(4), seed=0, num_samples=40_000).records(0, np.arange(40_000))
    pairs = np.bincount(records[:-1] * 4 + records[1:], minlength=16)
    assert stats.chisquare(pairs).pvalue > 1e-4


def test_balanced_weights_draw_every_class_equally():
    labels = np.repeat([3, 8, 9], [900, 90, 10])
    sampler = Weighted(balanced_weights(labels), seed=2, num_samples=30_000)
    counts = np.bincount(labels[sampler.records(0, np.arange(30_000))])[[3, 8, 9]]
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(
    "weights", [[], [-1.0, 2.0], [0.0, 0.0], [np.nan, 1.0], [[1.0]], [np.inf, 1.0]]
)
def test_bad_weights_are_refused(weights):
    with pytest.raises(ValueError, match="`weights` must be"):
        Weighted(np.array(weights))


def test_the_name_of_an_order_tells_its_parameters():
    orders = [
        Sequential(4),
        Sequential(5),
        Shuffled(4),
        Shuffled(4, seed=1),
        *[
            Weighted(np.ones(n), seed, samples)
            for n in (3, 4)
            for seed in (0, 1)
            for samples in (None, 3)
        ],
        Weighted(np.array([1, 1 + 1e-15, 1])),
    ]
    assert len({sampler_name(sampler) for sampler in orders}) == len(orders)
    assert sampler_name(Weighted([1, 2])) == sampler_name(Weighted(np.array([1.0, 2.0])))  # type: ignore
    assert sampler_name(Shuffled(np.int64(4), np.uint8(1))) == sampler_name(Shuffled(4, 1))  # type: ignore


def test_orders_of_ones_own_are_named_alike_in_every_process():
    @dataclasses.dataclass
    class Mine:
        start: int
        source: object  # prints with its address

    assert sampler_name(Mine(3, object())) == "Mine(start=3, source=object)"  # type: ignore

    class Plain:
        pass

    assert sampler_name(Plain()) == "Plain"  # type: ignore


def test_the_name_of_an_order_tells_of_tuples_lists_and_dataclasses_in_it():
    @dataclasses.dataclass
    class Stages:
        orders: object
        kind: type = Shuffled

    values = [
        (1, 2),
        (2, 1),
        [1, 2],
        [[1], [2]],
        [[1, 2], []],
        Shuffled(4),
        Shuffled(4, seed=1),
        [Shuffled(4), 3],
        [Shuffled(5), 3],
        (np.arange(3), 1),
        (np.arange(1, 4), 1),
        np.zeros((2, 3)),
        np.zeros((3, 2)),
        np.array(["a", "b"]),
        np.array(["a", "c"]),
    ]
    names = [sampler_name(Stages(value)) for value in values]  # type: ignore
    assert len(set(names)) == len(values)
    assert names == [sampler_name(Stages(copy.deepcopy(value))) for value in values]  # type: ignore
    assert len(sampler_name(Stages([0.5] * 10_000))) < 100  # type: ignore


def test_records_of_an_order_may_be_a_list_and_none():
    class Listed:
        def records(self, epoch, positions):
            return [int(position) + 1 for position in positions]

    assert find_records(Listed(), 0, np.array([2, 0]), 4).tolist() == [3, 1]  # type: ignore
    none = find_records(Listed(), 0, np.zeros(0, np.int64), 4)  # type: ignore
    assert none.dtype == np.int64 and none.shape == (0,)


def test_sequential_order_is_an_order(source):
    with Loader(source, 4, shuffle=Sequential(N), sharding=one_device()) as loader:
        assert next(loader)["index"].tolist() == [0, 1, 2, 3]


class Listed:
    """An order of one's own: the records of its list."""

    with_replacement = False

    def __init__(self, records):
        self.listed = np.array(records)
        self.length = len(records)

    def records(self, epoch, positions):
        return self.listed[positions] if self.listed.ndim == 1 else self.listed


@pytest.mark.parametrize(
    "wrong, words",
    [
        ([3, -1], r"-1 to 3 in epoch 0"),
        ([3, N], r"3 to 24 in epoch 0"),
        ([3.0, 1.0], r"float64\[2\] in epoch 0"),
        ([[3], [1]], r"int64\[2, 1\] in epoch 0"),
    ],
)
def test_an_order_of_wrong_records_is_named_and_delivers_none(source, wrong, words):
    with Loader(source, 2, shuffle=Listed(wrong), sharding=one_device()) as loader:
        with pytest.raises(
            ValueError, match=rf"Listed.records must give int64\[2\] in \[0, 24\).* got {words}"
        ):
            next(loader)


def test_a_wrong_record_fails_its_own_batch_alone(source):
    order = Listed([3, 1, 2, 0, 4, N, 5, 6])
    with Loader(source, 2, shuffle=order, sharding=one_device(), epochs=1) as loader:
        assert [next(loader)["index"].tolist() for _ in range(2)] == [[3, 1], [2, 0]]
        with pytest.raises(ValueError, match=r"Listed.records .* got 4 to 24 in epoch 0"):
            next(loader)
        assert next(loader)["index"].tolist() == [5, 6]


def test_an_order_is_asked_for_the_batches_of_an_epoch_at_once(source):
    class Counted(Listed):
        asked = ()

        def records(self, epoch, positions):
            self.asked += ((epoch, positions.tolist()),)
            return super().records(epoch, positions)

    order = Counted(range(7))
    options = {"last_batch": "pad", "sharding": one_device(), "epochs": 2}
    with Loader(source, 2, shuffle=order, **options) as loader:
        order.asked = ()
        found = [batch["index"].tolist() for batch in loader.steps()]
    assert found == [[0, 1], [2, 3], [4, 5], [6, -1]] * 2
    assert order.asked == ((0, [*range(7)]), (1, [*range(7)]))


def test_a_wrong_record_among_replacements_is_named():
    source = InMemory([*jpegs(2), b"no", *jpegs(1)])
    with Loader(
        source, 2, shuffle=Listed([0, 2, -1, 1]), on_error="replace", sharding=one_device()
    ) as loader:
        with pytest.raises(
            ValueError, match=r"Listed.records must give int64\[1\] in \[0, 4\).* got -1 to -1"
        ):
            next(loader)


def test_an_order_may_leave_records_out(source):
    with Loader(source, 2, shuffle=Listed([7, 3]), sharding=one_device()) as loader:
        assert next(loader)["index"].tolist() == [7, 3]
    with Loader(source, 4, shuffle=Shuffled(4), sharding=one_device()) as loader:
        assert sorted(next(loader)["index"].tolist()) == [0, 1, 2, 3]


class Huge(InMemory):
    """2^33 records: the same image over and over."""

    def __len__(self):
        return 2**33

    def read(self, indices):
        return super().read(indices % super().__len__())


def test_indices_of_huge_sources_are_two_words_whatever_the_orders_length():
    sampler = Listed([2**32 + 7, 5, 2**33 - 1])
    options = {"sharding": one_device(), "last_batch": "pad"}
    with Decoder((64, 64), devices=jax.devices("cpu")[:1]) as decoder:
        with Loader(Huge(jpegs(1)), 4, shuffle=sampler, decode=decoder, **options) as loader:
            batch = next(loader)["index"]
            spec = loader.element_spec["index"]
    assert batch.tolist() == [[1, 7], [0, 5], [1, 2**32 - 1], [2**32 - 1, 2**32 - 1]]
    assert (spec.shape, spec.dtype) == (batch.shape, batch.dtype) == ((4, 2), np.uint32)


@pytest.mark.parametrize("count, wide", [(2**31 - 1, False), (2**31, True)])
def test_indices_are_two_words_from_2_to_the_31_records_on(monkeypatch, count, wide):
    monkeypatch.setattr(Huge, "__len__", lambda self: count)
    order = Sequential(count)
    assert RecordReader(source=Huge(jpegs(1)), sampler=order).wide_index is wide


def test_indices_of_a_source_are_int32_however_long_its_order(source):
    with Loader(
        source, 4, shuffle=Weighted(np.ones(N), num_samples=2**32), sharding=one_device()
    ) as loader:
        assert next(loader)["index"].dtype == loader.element_spec["index"].dtype == np.int32


def test_with_replacement_the_position_is_part_of_the_key(source):
    sampler = Weighted(np.eye(N)[5], num_samples=8)  # record 5 alone, eight times
    with Loader(source, 8, shuffle=sampler, transform=jitter, sharding=one_device()) as loader:
        batch = next(loader)
    assert batch["index"].tolist() == [5] * 8
    assert len({np.asarray(image).tobytes() for image in batch["image"]}) == 8


def test_an_order_is_not_asked_for_its_length_with_each_batch(source):
    class Counted(Listed):
        asked = 0

        @property
        def length(self):
            self.asked += 1
            return len(self.listed)

        @length.setter
        def length(self, value):
            del value

    order = Counted(np.arange(2000) % N)
    with Loader(source, 1, shuffle=order, sharding=one_device()) as loader:
        next(loader)
    assert order.asked < 20


def test_positions_may_lie_in_epochs_of_their_own():
    rng = np.random.default_rng(0)
    for n in (1, 2, 10, 1000):
        epochs = rng.integers(-3, 2**40, 50)
        positions = rng.integers(0, n, 50)
        found = permute(7, epochs, positions, n)
        each = [permute(7, *pair, n)[0] for pair in zip(epochs.tolist(), positions[:, None])]
        np.testing.assert_array_equal(found, each)


@pytest.mark.parametrize("length", [0, 2.0, None])
def test_an_order_of_no_length_is_named(source, length):
    order = Listed([3, 1])
    order.length = length
    with pytest.raises(ValueError, match=r"`shuffle.length` must be an int of at least 1"):
        Loader(source, 1, shuffle=order, sharding=one_device())


SEEDED = {
    "Shuffled": lambda seed: Shuffled(9, seed),
    "Blocks": lambda seed: Blocks(9, 2, 2, seed),
    "Weighted": lambda seed: Weighted(np.ones(9), seed),
    "Mix": lambda seed: Mix([6, 3], [1, 1], seed),
    "Repeat": lambda seed: Repeat([1, 2, 3, 3], seed),
}


@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
@pytest.mark.parametrize("make", SEEDED.values(), ids=list(SEEDED))
def test_seeds_and_epochs_of_numpy_are_ints(make, dtype):
    for seed in (0, 3):
        expected = make(seed).records(2, np.arange(9))
        found = make(dtype(seed)).records(np.int32(2), np.arange(9))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", [1.5, 2.0, True, None, "3"])
@pytest.mark.parametrize("make", SEEDED.values(), ids=list(SEEDED))
def test_a_seed_that_is_no_int_is_refused(make, seed):
    with pytest.raises(ValueError, match="`seed` must be an int, got"):
        make(seed)


@pytest.mark.parametrize("factors", [Shuffled(8), "abc", [1.0, None]])
def test_factors_that_are_no_numbers_are_named(factors):
    with pytest.raises(ValueError, match=r"`factors` must be finite numbers, one for each record,"):
        Repeat(factors)
    with pytest.raises(ValueError, match=r"`weights` must be finite numbers, one for each record,"):
        Weighted(factors)


@pytest.mark.parametrize(
    "made",
    [
        lambda numbers: Weighted(numbers, num_samples=20),
        lambda numbers: Repeat(numbers),
        lambda numbers: Mix([3, 4, 5, 6], numbers),
        lambda numbers: Buckets(numbers, [1.5, 9], 2),
    ],
)
def test_an_order_keeps_the_numbers_that_it_was_made_of(made):
    """A caller may write into its array, such as for the weights of another Loader."""
    numbers = np.array([1.0, 2.0, 1.0, 3.0])
    order, expected = made(numbers), made(numbers.copy())
    numbers[:] = [3.0, 1.0, 2.0, 1.0]
    places = np.arange(expected.length)
    np.testing.assert_array_equal(order.records(0, places), expected.records(0, places))
    assert sampler_name(order) == sampler_name(expected)
