"""Loops over a Loader: epochs, steps, restarts, and what they leave behind."""

import weakref

import numpy as np
import pytest

from jaxaug import Loader, decode
from jaxaug.errors import DecodeError
from jaxaug.iterators import FromIterable, InMemory
from tests.images import jpegs
from tests.iterators.loaders import one_device

N = 10


@pytest.fixture(scope="module")
def source():
    return InMemory(jpegs(N), {"label": np.arange(N)})


def make(source, batch_size=2, **options):
    return Loader(source, batch_size, **({"sharding": one_device(), "seed": 1} | options))


def indices(batches):
    return [batch["index"].tolist() for batch in batches]


def test_a_for_loop_is_one_epoch_as_len_list_and_enumerate_expect(source):
    with make(source) as loader:
        epochs = []
        for _ in range(3):
            epochs.append([i for batch in loader for i in batch["index"].tolist()])
        assert len(loader) == 5 and len(list(loader)) == 5
        assert loader.get_state()["epoch"] == 4
    assert all(sorted(epoch) == list(range(N)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_loop_that_was_left_early_goes_on_there(source):
    with make(source) as whole, make(source) as loader:
        expected = indices(whole)
        for batch in loader:
            found = indices([batch])
            break
        assert found + indices(loader) == expected


def test_next_and_steps_go_on_over_epochs(source):
    with make(source, epochs=2) as whole, make(source, epochs=2) as loader:
        expected = indices(whole.steps())
        assert len(expected) == 10
        found = [next(loader)["index"].tolist()]
        found += indices(loader.steps(6))
        assert loader.get_state()["epoch"] == 1 and loader.get_state()["position"] == 4
        found += indices(loader.steps())
        assert found == expected
        assert indices(loader.steps(3)) == []


def test_restart_begins_the_next_epoch_if_a_batch_of_this_one_was_delivered(source):
    with make(source) as whole, make(source) as loader:
        first, second, third = (indices(whole) for _ in range(3))
        loader.restart()
        assert indices(loader) == first
        loader.restart()  # at the beginning of an epoch already
        iterator = iter(loader)
        assert indices([next(iterator)]) == second[:1]
        loader.restart()
        assert list(iterator) == []  # its epoch is over
        assert indices(loader) == third


def test_restart_goes_on_where_set_state_put_the_loader(source):
    with make(source) as whole, make(source) as loader:
        first, second = (indices(whole) for _ in range(2))
        batch = next(iter(loader))
        state = loader.get_state()
        loader.set_state(state)
        loader.restart()
        assert indices([batch]) + indices(loader) == first
        loader.set_state(state)
        next(loader)
        loader.restart()
        assert indices(loader) == second


@pytest.mark.parametrize("start", [0, 4])
def test_restart_keeps_an_epoch_of_which_no_batch_was_delivered(start):
    """The first batch fails: of an epoch, or behind the position that was set."""
    images = jpegs(N)
    images[start] = b"broken"
    rest = [[i, i + 1] for i in range(start + 2, N, 2)]
    with make(InMemory(images), shuffle=False) as loader:
        for epoch in range(2):
            loader.set_state(loader.get_state() | {"epoch": epoch, "position": start})
            with pytest.raises(DecodeError):
                next(loader)
            loader.restart()
            assert indices(loader) == rest
        with pytest.raises(DecodeError):  # with two batches before it where `start` is 4
            list(loader)
        loader.restart()
        assert loader.get_state()["epoch"] == (2 if start == 0 else 3)


def test_a_loop_over_used_up_epochs_warns(source):
    with make(source, epochs=1) as loader:
        assert len(list(loader)) == 5
        with pytest.warns(UserWarning, match=r"the Loader's epochs=1 are used up"):
            assert list(loader) == []


@pytest.mark.parametrize("kind", ["source", "stream"])
def test_the_rest_of_an_epoch_that_makes_no_batch_is_an_empty_loop(source, kind):
    """Resumed with a larger batch: two records of ten are left, too few for four."""
    options = {}
    if kind == "stream":
        source = FromIterable([(image, {}) for image in jpegs(N)])
        options = {"shuffle": False}
    with make(source, 2, **options) as loader:
        list(loader.steps(4))
        state = loader.get_state()
        assert state["position"] == 8
    with make(source, 4, **options) as loader:
        loader.set_state(state)
        if kind == "stream":  # only its end tells that there are no more
            assert indices(loader) == []
        assert loader.get_state()["epoch"] == 1 and loader.get_state()["position"] == 0
        assert len(indices(loader)) == 2
        assert loader.get_state()["epoch"] == 2


def test_a_batch_is_not_kept_alive_while_the_next_is_awaited(source):
    with make(source) as loader:
        for start in (loader.__iter__, loader.steps):
            loop = start()
            image = weakref.ref(next(loop)["image"])
            next(loop)
            assert image() is None


def test_a_stream_shorter_than_a_batch_is_an_error():
    stream = FromIterable([(image, {}) for image in jpegs(3)])
    with make(stream, 4, shuffle=False) as loader:
        with pytest.raises(ValueError, match=r"at least 4 records an epoch, a batch, got 3"):
            next(loader)
    with make(stream, 4, shuffle=False, last_batch="pad") as loader:
        assert indices(loader) == [[0, 1, 2, -1]]


def test_a_stream_that_fails_delivers_what_came_before():
    def items():
        for i, image in enumerate(jpegs(4)):
            yield image, {"label": i}
        raise OSError("the connection is gone")

    with make(
        FromIterable(items), 2, shuffle=False, decode=decode.Image(canvas=(40, 56))
    ) as loader:
        assert next(loader)["label"].tolist() == [0, 1]
        assert next(loader)["label"].tolist() == [2, 3]
        with pytest.raises(OSError, match="connection"):
            next(loader)
        assert loader.get_state()["position"] == 4
        with pytest.raises(OSError, match="connection"):  # it is read again from there
            next(loader)


class Stops(InMemory):
    """Its third read has a stray `next` of an empty iterator in it."""

    reads = 0

    def read(self, indices):
        self.reads += 1
        if self.reads == 5:
            next(iter(()))
        return super().read(indices)


def test_a_stop_iteration_in_a_source_does_not_end_the_loop_in_silence():
    with make(Stops(jpegs(N))) as loader:
        with pytest.raises(RuntimeError, match="raised StopIteration") as caught:
            list(loader)
    assert isinstance(caught.value.__cause__, StopIteration)  # with the place where it was raised


def test_a_loader_tells_what_it_is(source):
    with make(source) as loader:
        assert repr(loader) == (
            "Loader(InMemory(10 images, features ['label']), batch_size=2, "
            "order=Shuffled(length=10, seed=1))"
        )


def test_a_transform_is_told_the_epoch():
    def tag(key, sample):
        return sample | {"seen": sample["epoch"]}

    with Loader(InMemory(jpegs(4)), 4, transform=tag, epochs=3, sharding=one_device()) as loader:
        seen = [batch["seen"].tolist() for batch in loader.steps()]
        assert "epoch" not in loader.element_spec
    assert seen == [[epoch] * 4 for epoch in range(3)]


def test_an_epoch_of_the_source_is_left_alone():
    source = InMemory(jpegs(4), {"epoch": np.full(4, 7, np.int32)})
    with Loader(source, 4, transform=lambda key, s: s, sharding=one_device()) as loader:
        assert next(loader)["epoch"].tolist() == [7] * 4
