"""Tests of the pure function of a batch: rows in turn and rows at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment
from jaxaug.decode import Image
from jaxaug.iterators.loader.batch_function import BatchFunction, computes_in_turn
from jaxaug.iterators.loader.reader import ReadBatch
from jaxaug.iterators.loader.rows import RowSchema
from jaxaug.iterators.loader.state import BatchSpan, Cursor

CANVAS = (24, 20)


def make_rows(count: int) -> dict:
    """Return rows of noise on a canvas, of which the last is not valid."""
    rng = np.random.default_rng(0)
    sizes = np.tile(np.array([[20, 18]], np.int32), (count, 1))
    return {
        "words": np.stack([np.zeros(count), np.zeros(count), np.arange(count)], 1).astype(
            np.uint32
        ),
        "valid": np.arange(count) < count - 1,
        "plain": {"label": np.arange(count, dtype=np.int32)},
        "decoded": {
            "image": {
                "pixels": rng.integers(0, 256, (count, *CANVAS, 3), np.uint8),
                "size": sizes,
                "original_size": sizes,
                "orientation": np.ones(count, np.uint8),
            }
        },
    }


def make_function(in_turn: bool) -> BatchFunction:
    transform = augment.Compose([augment.RandomResizedCrop(8), augment.ColorJitter(0.4, 0.4)])
    return BatchFunction(transform, augment.MixUp(10), (("image", Image(canvas=CANVAS)),), in_turn)


def test_rows_in_turn_are_those_of_all_rows_at_once():
    seed = jnp.zeros(2, jnp.uint32)
    rows = make_rows(6)
    at_once, _ = jax.jit(make_function(False).__call__)(seed, rows)
    in_turn, _ = jax.jit(make_function(True).__call__)(seed, rows)

    assert sorted(in_turn) == sorted(at_once)
    for name, expected in at_once.items():
        np.testing.assert_allclose(in_turn[name], expected, atol=1e-6, err_msg=name)
    assert np.ptp(np.asarray(at_once["image"])) > 0


def test_rows_that_are_all_valid_are_selected_nowhere():
    """XLA drops the selections, of which each is one more pass over what a kernel has written."""
    rows = make_rows(6)
    whole = rows | {"valid": np.ones(6, bool)}
    seed = jnp.zeros(2, jnp.uint32)
    function = make_function(False)._replace(transform=None, batch_transform=None)
    plain = jax.jit(function.__call__)
    kept = jax.jit(function._replace(all_valid=True).__call__).lower(seed, rows).compile()

    for name, expected in plain(seed, whole)[0].items():
        np.testing.assert_array_equal(kept(seed, rows)[0][name], expected, err_msg=name)
    assert " select(" in plain.lower(seed, rows).compile().as_text()
    assert " select(" not in kept.as_text()


def test_rows_in_turn_are_a_loop_over_single_images():
    text = str(jax.make_jaxpr(make_function(True).__call__)(jnp.zeros(2, jnp.uint32), make_rows(6)))
    assert "scan[" in text
    assert "6,8,20,3" not in text  # no stage holds the lines of all images


@pytest.mark.parametrize(
    ("platform", "canvas", "expected"),
    [
        ("cpu", (512, 512), True),
        ("cpu", (32, 32), False),
        ("gpu", (512, 512), False),
        ("tpu", (512, 512), False),
    ],
)
def test_large_images_are_computed_in_turn_on_cpus_only(platform, canvas, expected):
    assert computes_in_turn(platform, {"image": Image(canvas=canvas)}) is expected


def test_rows_without_a_transform_are_copied_at_once():
    decoders = (("image", Image(canvas=CANVAS)),)
    for transform, turns in ((None, False), (lambda key, sample: sample, True)):
        function = BatchFunction(transform, None, decoders, in_turn=True)
        seed = np.zeros(2, np.uint32)
        assert ("scan[" in str(jax.make_jaxpr(function)(seed, make_rows(4)))) is turns


def test_epochs_far_away_have_words_of_their_own():
    for epoch, word in ((3, 3), (2**16 + 3, 2**16 + 3), (2**32 + 3, 3)):
        one = np.array([7])
        read = ReadBatch(BatchSpan(epoch, 0, 1, Cursor(epoch, 1)), one, one)
        rows = RowSchema({}, {}, with_replacement=False, wide_index=False)
        assert rows.names(read, one, one > 0)["words"].tolist() == [[word, 0, 7]]
