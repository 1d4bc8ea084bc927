"""Too many bad records end a run that masks or replaces them; before that they are told."""

import pickle
import re
import warnings

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.decode import Image
from jaxaug.errors import DecodeError
from jaxaug.iterators import InMemory
from tests.images import jpegs
from tests.iterators.loaders import one_device

GOOD = jpegs(1, 8, 8)[0]


def source_of(count, bad):
    """`count` records, of which those in `bad` cannot be decoded."""
    bad = set(bad)
    return InMemory([b"no" if i in bad else GOOD for i in range(count)])


def run(source, batch_size=100, **options):
    """The delivered batches, the texts of the warnings, and the error that ended the epoch."""
    options = {"shuffle": False, "on_error": "mask", "decode": Image(canvas=(8, 8))} | options
    delivered = 0
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Loader(source, batch_size, sharding=one_device(), **options) as loader:
            try:
                for _ in loader:
                    delivered += 1
            except DecodeError as raised:
                error = raised
            stats = loader.stats
            state = loader.get_state()
    texts = [str(w.message) for w in caught if "could not be decoded" in str(w.message)]
    assert all(w.filename == __file__ for w in caught if "could not" in str(w.message))
    return delivered, texts, error, stats, state


@pytest.mark.parametrize("on_error", ["mask", "replace"])
def test_a_hundred_bad_records_over_one_per_cent_end_the_run(on_error):
    source = source_of(2000, range(0, 2000, 10))
    delivered, _, error, stats, state = run(source, on_error=on_error)
    assert error is not None and error.index == 0 and delivered == 9
    assert stats["bad"] == 100 and stats["images"] == 9 * (90 if on_error == "mask" else 100)
    assert state["position"] == 900  # the batch of the hundredth was not delivered
    text = str(error)
    assert re.search(r"100 of the last 1,000 records .* `max_bad`=0.01", text)
    named = re.findall(r"record (\d+):", text.partition("The first ten")[2])
    assert list(map(int, named)) == list(range(0, 100, 10))
    assert "max_bad=None" in text
    assert str(pickle.loads(pickle.dumps(error))) == text


def test_one_per_cent_and_less_than_a_hundred_go_on():
    assert run(source_of(1000, range(99)))[2] is None  # many, but few in number
    assert run(source_of(3000, range(0, 3000, 110)), max_bad=0.001)[2] is None
    at_the_bound = source_of(1000, range(0, 1000, 10))
    assert run(at_the_bound, max_bad=0.1)[2] is None
    assert run(at_the_bound, max_bad=0.099)[2] is not None


def test_none_never_ends_and_raise_is_not_concerned():
    source = source_of(1000, range(500))
    assert run(source, max_bad=None)[0] == 10
    error = run(source, on_error="raise")[2]
    assert error is not None and "max_bad" not in str(error)


def test_what_lies_behind_the_last_ten_thousand_records_is_forgotten():
    early = source_of(13_000, range(0, 60))
    late = source_of(13_000, [*range(0, 60), *range(12_900, 12_960)])
    near = source_of(13_000, [*range(3_100, 3_160), *range(12_900, 12_960)])
    options = {"batch_size": 1000, "max_bad": 0.001}
    assert run(early, **options)[2] is None
    assert run(late, **options)[2] is None
    delivered, _, error, _, _ = run(near, **options)
    assert delivered == 12 and "120 of the last 10,000 records" in str(error)


def test_padding_is_no_record():
    source = source_of(1100, range(100))
    error = run(source, batch_size=1000, max_bad=0.091, last_batch="pad", on_error="mask")[2]
    assert error is not None and "100 of the last 1,000" in str(error)
    few = source_of(110, range(100))
    error = run(few, batch_size=1000, max_bad=0.9, last_batch="pad")[2]
    assert error is not None and "100 of the last 110" in str(error)


@pytest.mark.parametrize("on_error, done", [("mask", "masked"), ("replace", "replaced")])
def test_the_first_bad_record_and_powers_of_ten_are_told(on_error, done):
    source = source_of(3000, range(5, 3000, 20))  # 5 in each batch
    _, texts, _, stats, _ = run(source, on_error=on_error, max_bad=None)
    assert stats["bad"] == 150
    assert [int(re.search(r"^(\d+) of (\d+)", text)[1]) for text in texts] == [5, 10, 100]
    assert [int(re.search(r"^(\d+) of (\d+)", text)[2]) for text in texts] == [100, 200, 2000]
    assert all(done in text for text in texts)
    assert "record 85: " in texts[0] and "bad_records" in texts[0]


def test_a_run_without_bad_records_says_nothing():
    assert run(source_of(200, []))[1] == []


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "1%", True, float("nan")])
def test_max_bad_is_a_share(wrong):
    with pytest.raises(ValueError, match="`max_bad` must be a probability in"):
        Loader(source_of(4, []), 2, max_bad=wrong, sharding=one_device())


def test_a_loader_goes_on_after_the_error():
    source = source_of(12_000, range(100))
    options = {"shuffle": False, "on_error": "mask", "decode": Image(canvas=(8, 8)), "epochs": 1}
    with Loader(source, 100, sharding=one_device(), **options) as loader:
        with pytest.warns(UserWarning), pytest.raises(DecodeError, match="max_bad"):
            next(loader)
        loader.set_state(loader.get_state() | {"position": 11_900})
        assert np.asarray(next(loader)["valid"]).all()
