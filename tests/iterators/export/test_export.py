"""The exports in common, and batches as NumPy arrays."""

import jax
import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.iterators import InMemory, for_pmap, to_numpy, to_tf, to_torch
from tests.images import jpegs
from tests.iterators.loaders import N, named_sharding, one_device


@pytest.fixture(scope="module")
def source():
    return InMemory(jpegs(N), {"label": np.arange(N)})


@pytest.mark.parametrize("kind", ["one", "eight", "replicated"])
def test_to_numpy_gives_all_local_rows_in_order(source, kind):
    with Loader(source, 8, sharding=named_sharding(kind), seed=2) as loader:
        expected = [{k: np.asarray(v) for k, v in batch.items()} for batch in loader]
        loader.set_state(loader.get_state() | {"epoch": 0})
        exported = to_numpy(loader)
        assert len(exported) == 3
        found = list(exported)
        assert loader.get_state()["epoch"] == 1
    assert len(found) == 3
    for ours, theirs in zip(found, expected):
        assert ours.keys() == theirs.keys()
        assert all(type(array) is np.ndarray for array in ours.values())
        for name in theirs:
            np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize("export", [to_numpy, for_pmap])
def test_a_loop_over_an_export_within_jax_goes_on_as_that_of_the_loader(source, export):
    with Loader(source, 8) as loader:
        exported = export(loader)
        next(iter(exported))
        assert [len(list(exported)) for _ in range(2)] == [2, 3]


@pytest.mark.parametrize("export", [to_numpy, to_torch, to_tf, for_pmap])
def test_an_export_of_something_else_is_refused_and_tells_what_it_is(source, export):
    refused = rf"`loader` must be a jaxaug.Loader, got InMemory: write {export.__name__}"
    with pytest.raises(TypeError, match=refused):
        export(source)
    with Loader(source, 8) as loader:
        assert repr(export(loader)) == f"{export.__name__}({loader!r})"


@pytest.mark.parametrize("export", [to_torch, to_tf])
def test_wrong_arguments_of_an_export_are_named(source, export):
    with Loader(source, 8) as loader:
        with pytest.raises(TypeError, match=r"`restart` must be True or False, got 1"):
            export(loader, restart=1)
        with pytest.raises(TypeError, match=r"`names` must be a tuple such as .* got 'image'"):
            export(loader, names="image")
        with pytest.raises(ValueError, match=r"`names` must be among .*'valid'\], got 'y'"):
            export(loader, names=("image", "y"))


def test_nested_batches_are_exported(source):
    views = lambda key, sample: {"views": (sample["image"], sample["image"][::2])}  # noqa: E731
    with Loader(source, 8, transform=views) as loader:
        first, second = next(iter(to_numpy(loader)))["views"]
        np.testing.assert_array_equal(first[:, ::2], second)
        count = jax.device_count()
        shape = (count, 8 // count, 20, 56, 3)
        assert next(iter(for_pmap(loader)))["views"][1].shape == shape


def test_writing_into_a_numpy_array_is_an_error_or_changes_no_later_batch(source):
    with Loader(source, 8, sharding=one_device(), shuffle=False) as loader:
        expected = [batch["image"].copy() for batch in to_numpy(loader)]
        for batch in to_numpy(loader):
            for array in batch.values():
                if array.flags.writeable:
                    array[...] = 0
        found = [batch["image"] for batch in to_numpy(loader)]
    np.testing.assert_array_equal(found, expected)
