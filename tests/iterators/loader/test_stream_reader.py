"""Streams: batches in their own order, padding, resume."""

import itertools

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.iterators import FromIterable, Sequential
from jaxaug.iterators.loader.columns import Form
from jaxaug.iterators.loader.reader import BatchPlan
from jaxaug.iterators.loader.state import BatchSpan, Cursor
from jaxaug.iterators.loader.stream_reader import StreamReader
from tests.iterators.loaders import jitter, one_device

END = Cursor(1, 0)


def test_stream_yields_in_order_pads_and_resumes(images):
    source = FromIterable(lambda: ((image, {"label": i}) for i, image in enumerate(images[:10])))
    options = {"shuffle": False, "sharding": one_device(), "last_batch": "pad", "transform": jitter}
    with Loader(source, 4, epochs=2, **options) as loader:
        labels = [batch["index"].tolist() for batch in loader]
        assert labels == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, -1, -1]]
        assert loader.get_state()["epoch"] == 1
        next(loader)
        state = loader.get_state()
    with Loader(source, 3, epochs=2, **options) as loader:
        loader.set_state(state)
        assert [batch["index"].tolist() for batch in loader] == [[4, 5, 6], [7, 8, 9]]
    with Loader(source, 4, epochs=1, **(options | {"last_batch": "drop"})) as loader:
        assert len(list(loader)) == 2


class ShuffledByEpoch:
    """A shuffle by the epoch that it is told, as of streaming data sets of Hugging Face."""

    def __init__(self, images):
        self.images = images
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def order(self, epoch):
        return np.random.default_rng(epoch).permutation(len(self.images)).tolist()

    def __iter__(self):
        for record in self.order(self.epoch):
            yield {"image": self.images[record], "label": record}


@pytest.mark.parametrize("by_a_function", [False, True])
def test_an_iterable_is_told_the_epoch(images, by_a_function):
    items = ShuffledByEpoch(images[:8])
    expected = [items.order(0), items.order(1), items.order(2)]
    options = {"shuffle": False, "sharding": one_device()}
    source = FromIterable((lambda: items) if by_a_function else items)
    with Loader(source, 4, epochs=3, **options) as loader:
        found = [[label for batch in loader for label in batch["label"].tolist()] for _ in range(2)]
        assert found == expected[:2]
        next(loader)
        state = loader.get_state()
    with Loader(FromIterable(items), 4, epochs=3, **options) as loader:
        loader.set_state(state)
        assert next(loader)["label"].tolist() == expected[2][4:]


@pytest.mark.parametrize("form", ["dicts", "pairs", "stream"])
def test_an_iterator_may_write_into_its_arrays_again(images, form):
    """As those that read a file or an environment into one buffer do."""

    class Rewritten:
        def __iter__(self):
            values = np.zeros(3, np.int32)
            for number, image in enumerate(images[:8]):
                values[:] = number
                features = {"values": values, "label": number}
                yield (
                    (bytearray(image), features) if form == "pairs" else {"image": image} | features
                )

        iterate = __iter__
        describe = fingerprint = lambda self, *index: "rewritten"

    source = Rewritten() if form == "stream" else FromIterable(Rewritten())
    with Loader(source, 4, shuffle=False, sharding=one_device()) as loader:
        found = np.concatenate([batch["values"] for batch in loader])
    np.testing.assert_array_equal(found, np.repeat(np.arange(8), 3).reshape(8, 3))


def test_rows_that_fill_up_a_batch_are_not_decoded(images):
    source = FromIterable([(image, {"label": 3}) for image in images[:10]])
    options = {"shuffle": False, "sharding": one_device(), "last_batch": "pad", "epochs": 1}
    with Loader(source, 8, **options) as loader:
        assert [batch["valid"].sum() for batch in loader] == [8, 2]
        assert loader.decoders["image"] is not None
        assert (
            loader.decoders["image"].stats["host"] == loader.decoders["image"].stats["images"] == 10
        )


def test_a_value_that_does_not_fit_is_of_the_record_that_has_it(images):
    """Also on a process whose rows all fill up the batch: they are copies of its first record."""
    reader = StreamReader(source=FromIterable([]))
    for local in ([0, 1], [2, 3]):
        plan = BatchPlan(4, np.array(local), False, None)
        chunk = [{"image": images[0], "label": 2**40}]
        error = reader._make_batch(chunk, plan, BatchSpan(0, 8, 1, END)).error
        assert isinstance(error, ValueError) and "in record 8: " in str(error)


@pytest.mark.parametrize("shuffle", [True, Sequential(4)])
def test_an_order_for_a_stream_is_refused_by_its_name(images, shuffle):
    stream = FromIterable([(image, {}) for image in images[:4]])
    with pytest.raises(ValueError) as caught:
        Loader(stream, 2, shuffle=shuffle, sharding=one_device())
    assert str(caught.value).endswith(f"got {shuffle!r}.")


def test_numbers_of_records_beyond_int32_are_an_error(images):
    """A stream without an end, such as one of shards in a cycle, would come to 2^31."""
    source = FromIterable(lambda: ((images[0], {"label": i}) for i in itertools.count()))
    forms = {"image": Form("Encoded"), "label": Form("array", np.dtype(np.int32))}
    reader = StreamReader(source=source, forms=forms)
    plan = BatchPlan(4, np.arange(4), True, None)
    chunk = [{"image": images[0], "label": 0}] * 4
    last = reader._make_batch(chunk, plan, BatchSpan(0, 2**31 - 4, 4, END))
    assert last.error is None and last.indices.max() == 2**31 - 1
    beyond = reader._make_batch(chunk, plan, BatchSpan(0, 2**31 - 3, 4, END))
    with pytest.raises(ValueError, match=r"`source` must yield at most 2\^31 records an epoch"):
        raise beyond.error  # type: ignore
