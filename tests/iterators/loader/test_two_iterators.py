"""Two iterators of one Loader would share its position: the older one is refused."""

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.iterators import InMemory
from tests.images import jpegs
from tests.iterators.loaders import one_device

REMEDY = "make a second Loader"


@pytest.fixture
def loader():
    source = InMemory(jpegs(10))
    with Loader(source, 2, shuffle=False, sharding=one_device()) as loader:
        yield loader


def first(batch):
    return int(np.asarray(batch["index"])[0])


def test_a_zip_of_a_loader_with_itself_is_refused(loader):
    with pytest.raises(RuntimeError, match=REMEDY):
        list(zip(loader, loader, strict=False))
    assert first(next(loader)) == 0  # nothing was taken


def test_the_outer_of_two_nested_loops_is_refused(loader):
    inner = []
    with pytest.raises(RuntimeError, match=REMEDY):
        for _ in loader:
            for batch in loader:
                inner.append(first(batch))
    assert inner == [2, 4, 6, 8]


@pytest.mark.parametrize("older", ["for", "steps"])
@pytest.mark.parametrize("newer", ["for", "steps"])
def test_loops_and_steps_refuse_each_other(loader, older, newer):
    make = {"for": lambda: iter(loader), "steps": lambda: loader.steps(3)}
    old, new = make[older](), make[newer]()
    assert first(next(new)) == 0
    with pytest.raises(RuntimeError, match=REMEDY):
        next(old)
    assert [first(batch) for batch in new][:2] == [2, 4]


def test_one_loop_after_another_and_next_within_a_loop_go_on(loader):
    seen = []
    for batch in loader:
        seen.append(first(batch))
        break
    seen.append(first(next(loader)))
    for batch in loader:
        seen.append(first(batch))
        if len(seen) == 3:
            seen.append(first(next(loader)))
    assert seen == [0, 2, 4, 6, 8]


def test_iterators_that_are_finished_do_not_matter(loader):
    for _ in range(3):
        assert [first(batch) for batch in loader] == [0, 2, 4, 6, 8]
