import pytest

from jaxaug.errors import StateError
from jaxaug.iterators._state import Cursor, batches_per_epoch, from_state, next_step, to_state


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("length, batch_size", [(10, 1), (10, 3), (10, 5), (10, 10), (11, 4)])
def test_an_epoch_is_cut_into_len_batches(length, batch_size, drop):
    cursor = Cursor(0, 0)
    steps = []
    while cursor.epoch == 0:
        steps.append(next_step(cursor, length, batch_size, drop))
        cursor = steps[-1].after
    covered = [position for step in steps for position in range(step.start, step.start + step.rows)]
    kept = length // batch_size * batch_size if drop else length
    assert covered == list(range(kept))
    assert len(steps) == batches_per_epoch(length, batch_size, drop)
    assert cursor == Cursor(1, 0)


def test_a_rest_too_short_for_another_batch_size_is_dropped():
    assert next_step(Cursor(0, 8), length=10, batch_size=4, drop=True).epoch == 1


GOOD = to_state(Cursor(2, 3), seed=7, fingerprint="abc", order="Shuffled(length=10, seed=1)")


def test_state_round_trip():
    assert from_state(GOOD, 7, "abc", GOOD["order"], 10) == Cursor(2, 3)


def test_a_state_that_names_the_kind_of_its_order_alone_goes_on():
    assert from_state(GOOD | {"order": "Shuffled"}, 7, "abc", GOOD["order"], 10) == Cursor(2, 3)
    with pytest.raises(StateError, match="saved with the order Weighted, this Loader has Shuffled"):
        from_state(GOOD | {"order": "Weighted"}, 7, "abc", GOOD["order"], 10)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"version": 2}, "version 2"),
        ({"version": 0}, "damaged state: `version` must be an int of at least 1, got 0"),
        ({"version": -3}, "damaged state: `version` .* got -3"),
        ({"version": "1"}, "damaged state: `version` .* got '1'"),
        (
            {"order": "Shuffled(length=10, seed=2)"},
            r"seed=2\), this Loader has Shuffled\(length=10, seed=1\)",
        ),
        ({"seed": 8}, "seed=8"),
        ({"fingerprint": "abd"}, "another data set"),
        ({"position": 11}, "damaged state: epoch 2, position 11 of 10"),
        ({"position": -1}, "damaged"),
        ({"epoch": "2"}, "`epoch` must be int"),
        ({"epoch": None}, "`epoch` must be int"),
    ],
)
def test_other_states_are_refused_with_the_difference_named(change, words):
    with pytest.raises(StateError, match=words):
        from_state(GOOD | change, 7, "abc", GOOD["order"], 10)


@pytest.mark.parametrize("state", [{"version": 2, "step": 5}, GOOD | {"version": 3, "seed": [7]}])
def test_a_newer_version_is_told_before_its_fields_are_read(state):
    with pytest.raises(
        StateError, match=f"the state has version {state['version']}, .* up to 1: update jaxaug"
    ):
        from_state(state, 7, "abc", GOOD["order"], 10)


def test_a_state_must_be_a_dict():
    with pytest.raises(StateError, match="must be the dict"):
        from_state("x", 7, "abc", GOOD["order"], 10)
