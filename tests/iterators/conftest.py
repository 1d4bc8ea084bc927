"""Fixtures of the tests of Loaders."""

import numpy as np
import pytest

from jaxaug.iterators import (
    InMemory,
)
from tests.images import jpegs
from tests.iterators.loaders import N, forget_threads


@pytest.fixture(autouse=True)
def threads_of_its_own():
    forget_threads()


@pytest.fixture(scope="module")
def images():
    return jpegs(N)


@pytest.fixture(scope="module")
def source(images):
    return InMemory(images, {"label": np.arange(N)})
