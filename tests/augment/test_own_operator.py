"""The operators of docs/own_operator.md, as they stand there."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from tests.images import picture

PAGE = Path(__file__).parents[2] / "docs" / "own_operator.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
KEY = jax.random.key(0)
SIZE = jnp.array([20, 26], jnp.int32)

pytestmark = pytest.mark.training  # a user's session has jax's own promotions


@pytest.fixture(scope="module")
def page():
    """The names that the page defines."""
    names: dict = {}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def on_canvas(rest):
    image = np.full((24, 32, 3), rest, np.uint8)
    image[:20, :26] = picture(0, 20, 26)
    return {"image": image, "size": SIZE}


OPERATORS = ("RandomSquash", "RandomGamma", "RandomBoxBlur", "RandomElastic", "RandomSquareErasing")


def test_bodies_are_short():
    classes = [block for block in BLOCKS if "\nclass " in block]
    assert len(classes) == 6
    for block in classes:
        written = [line for line in block.split("\nclass ")[1].splitlines()[1:] if line.strip()]
        assert len(written) <= 10


def test_the_chain_of_the_page_runs(page):
    assert page["batch"].shape == (2, 32, 32, 3) and np.isfinite(page["batch"]).all()
    image = jnp.asarray(picture(1, 40, 60))
    replayed = jax.jit(page["train"].apply)(page["drawn"], image)
    called = jax.jit(page["train"])(page["keys"][0], image)
    np.testing.assert_allclose(called, replayed, atol=1e-5)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_reads_the_used_part_alone(page, name):
    operator = page[name](p=1.0) if "p" in page[name].__dataclass_fields__ else page[name]()
    run = jax.jit(operator)
    dark = run(KEY, on_canvas(0))["image"]
    np.testing.assert_array_equal(dark, run(KEY, on_canvas(255))["image"])
    assert (np.asarray(dark) != on_canvas(0)["image"]).any()


def test_gamma_and_erasing_do_what_they_say(page):
    image = np.random.default_rng(0).uniform(0, 1, (20, 26, 3)).astype(np.float32)
    gamma = page["RandomGamma"]()
    exponent = float(gamma.draw(jax.random.fold_in(KEY, 0), A.ImageInfo((20, 26))).params)
    np.testing.assert_allclose(gamma(KEY, image), image**exponent, atol=1e-5)
    erased = np.asarray(page["RandomSquareErasing"](4, p=1.0)(KEY, image)) == 0.5
    assert 1 <= erased.all(axis=2).sum() <= 16


def test_a_choice_costs_one_resample_and_is_each_branch_in_turn(page):
    branches = (A.RandomRotation((30, 30)), A.RandomHorizontalFlip(1.0), page["RandomElastic"]())
    one_of = page["OneOf"](branches)
    image = jnp.asarray(picture(0, 24, 32))
    assert one_of(KEY, image).shape == image.shape
    chain = A.Compose([one_of, A.RandomRotation(5)])
    assert str(chain.explain(A.ImageInfo((24, 32)))).count("resample ") == 1
    info = A.ImageInfo((24, 32))
    run = jax.jit(lambda params: A.Compose([one_of]).apply((params,), image))
    drawn = one_of.draw(KEY, info)
    for number, branch in enumerate(branches):
        params = (jnp.int32(number), drawn.params[1])
        expected = A.Compose([branch]).apply((drawn.params[1][number],), image)
        difference = np.abs(np.asarray(run(drawn._replace(params=params)), int) - expected)
        assert difference.max() <= 1
