import pytest

from jaxaug.errors import StateError
from jaxaug.iterators._state import (
    Cursor,
    RunIdentity,
    batches_per_epoch,
    from_state,
    next_span,
    to_state,
)


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("length, batch_size", [(10, 1), (10, 3), (10, 5), (10, 10), (11, 4)])
def test_an_epoch_is_cut_into_len_batches(length, batch_size, drop):
    cursor = Cursor(0, 0)
    spans = []
    while cursor.epoch == 0:
        spans.append(next_span(cursor, length, batch_size, drop))
        cursor = spans[-1].after
    covered = [position for span in spans for position in range(span.start, span.start + span.rows)]
    kept = length // batch_size * batch_size if drop else length
    assert covered == list(range(kept))
    assert len(spans) == batches_per_epoch(length, batch_size, drop)
    assert cursor == Cursor(1, 0)


def test_a_rest_too_short_for_another_batch_size_is_dropped():
    assert next_span(Cursor(0, 8), length=10, batch_size=4, drop=True).epoch == 1


RUN = RunIdentity(seed=7, fingerprint="abc", sampler="Shuffled(length=10, seed=1)", length=10)
GOOD = to_state(Cursor(2, 3), RUN)


def test_state_round_trip():
    assert from_state(GOOD, RUN) == Cursor(2, 3)


def test_a_state_that_names_the_kind_of_its_order_alone_goes_on():
    assert from_state(GOOD | {"order": "Shuffled"}, RUN) == Cursor(2, 3)
    with pytest.raises(StateError, match="saved with the order Weighted, this Loader has Shuffled"):
        from_state(GOOD | {"order": "Weighted"}, RUN)


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
        from_state(GOOD | change, RUN)


@pytest.mark.parametrize("state", [{"version": 2, "step": 5}, GOOD | {"version": 3, "seed": [7]}])
def test_a_newer_version_is_told_before_its_fields_are_read(state):
    with pytest.raises(
        StateError, match=f"the state has version {state['version']}, .* up to 1: update jaxaug"
    ):
        from_state(state, RUN)


def test_a_state_must_be_a_dict():
    with pytest.raises(StateError, match="must be the dict"):
        from_state("x", RUN)
