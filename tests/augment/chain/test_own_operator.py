"""The operators of docs/own_operator.md, as they stand there."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from tests.docstrings import compile_calls
from tests.images import picture

PAGE = Path(__file__).parents[3] / "docs" / "own_operator.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
KEY = jax.random.key(0)
SIZE = jnp.array([20, 26], jnp.int32)

pytestmark = pytest.mark.training  # a user's session has jax's own promotions


@pytest.fixture(scope="module")
def page():
    """The names that the page defines."""
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        compile_calls(patch.setattr)
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
    assert len(classes) == 10
    for block in classes:
        written = [line for line in block.split("\nclass ")[1].splitlines()[1:] if line.strip()]
        assert len(written) <= 16


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


def test_a_choice_costs_one_resample_and_is_each_branch_sequential(page):
    branches = (A.RandomRotation((30, 30)), A.RandomHorizontalFlip(1.0), page["RandomElastic"]())
    one_of = page["OneOf"](branches)
    image = jnp.asarray(picture(0, 24, 32))
    assert jax.eval_shape(one_of, KEY, image).shape == image.shape
    chain = A.Compose([one_of, A.RandomRotation(5)])
    assert str(chain.explain(A.ImageInfo((24, 32)))).count("resample ") == 1
    info = A.ImageInfo((24, 32))
    run = jax.jit(lambda params: A.Compose([one_of]).apply((params,), image))
    drawn = one_of.draw(KEY, info)
    for number, branch in enumerate(branches):
        params = (jnp.int32(number), drawn.params[1])
        expected = jax.jit(A.Compose([branch]).apply)((drawn.params[1][number],), image)
        difference = np.abs(np.asarray(run(drawn._replace(params=params)), int) - expected)
        assert difference.max() <= 1


@pytest.mark.parametrize("size", [None, (30, 36)])
def test_a_crop_at_a_class_holds_it(page, size):
    crop = page["CropAtClass"](number=3, side=16)
    mask = np.zeros((40, 50), np.uint8)
    mask[22, 31] = 3
    sample = {"image": np.repeat(mask[:, :, None] / np.float32(3), 3, axis=2), "mask": mask}
    if size is not None:
        sample["size"] = np.array(size, np.int32)
    chain = jax.jit(A.Compose([crop, A.RandomHorizontalFlip(1.0)]))
    for seed in range(3):
        out = chain(jax.random.key(seed), sample)
        assert "size" not in out and out["mask"].shape == (16, 16)
        np.testing.assert_array_equal(np.asarray(out["mask"]) == 3, out["image"][:, :, 0] == 1)
        assert (np.asarray(out["mask"]) == 3).sum() == 1
    drawn = A.Compose([crop]).make_params(KEY, A.ImageInfo((40, 50), sample.get("size")))
    assert drawn[0].params.shape == (40, 50)


def test_a_group_without_a_valid_partner_is_left_alone(page):
    image = np.stack([picture(0, 8, 9), picture(1, 8, 9)])
    swap = page["SwapChannel"](p=1.0)
    mixed = np.asarray(swap(KEY, {"image": image})["image"])
    taken = [(mixed[0, :, :, c] == image[1, :, :, c]).all() for c in range(3)]
    assert sorted(taken) == [False, False, True]
    alone = {"image": image, "valid": np.array([True, False])}
    np.testing.assert_array_equal(swap(KEY, alone)["image"], image)
