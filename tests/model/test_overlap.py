"""What kernels of a step hide: a step that a person can draw, and the limits of every step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.model.dense import StepParts, exposed_time, step_time

PARTS = StepParts(
    bucketize=1, keys=2, lookup=3, forward=6, backward=6, update=4, top=5, top_backward=10, bottom=2,
    bottom_backward=4, dp_lookup=1, dp_reduce=2, dp_update=1, dense_reduce=3, dense_update=1,
    pool=1, unpool=1,
)  # fmt: skip
EXCHANGES = ("keys", "forward", "backward", "dp_reduce", "dense_reduce")


def exposed(**changed: float) -> float:
    return exposed_time(replace(PARTS, **changed), training=True)


def test_a_training_step_by_hand() -> None:
    """Bags 6 beside 2 + 1 + 1, gradients 6 beside 4; 15 of the top and more hide the rest. Kernels are 34."""
    assert exposed() == 2 + 2
    assert step_time(PARTS, training=True) == 34 + 4
    assert PARTS.serial_time == 53 and PARTS.embedding_communication_time == 16


def test_a_forward_pass_by_hand() -> None:
    """Ids 2 are sent first; bags 6 beside the bottom layers 2 and the look-up of copies 1."""
    forward = StepParts(bucketize=1, keys=2, lookup=3, forward=6, pool=1, top=5, bottom=2, dp_lookup=1)
    assert exposed_time(forward, training=False) == 2 + 3
    assert step_time(forward, training=False) == 13 + 5


def test_ids_hide_between_the_exchanges_and_nowhere_else() -> None:
    """Sums 1, top layers 5 and 10, gradients 1: 17."""
    assert exposed(keys=17) == exposed() and exposed(keys=20) == exposed() + 3
    assert exposed(keys=20, update=1000) == exposed() + 3


def test_all_reduces_hide_behind_the_backward_pass_and_the_next_look_up() -> None:
    """Top backward 10, update 4, look-up 3: 17; with the ids 15 of 17 + 7; copies wait for the top's end."""
    assert exposed(dense_reduce=15) == exposed() and exposed(dense_reduce=18) == exposed() + 3
    assert exposed(keys=17, dense_reduce=5) == exposed()
    assert exposed(keys=17, dense_reduce=6) == exposed() + 1
    assert exposed(dp_reduce=7, dense_reduce=0) == exposed()
    assert exposed(dp_reduce=9, dense_reduce=0) == exposed() + 2


def test_long_kernels_hide_everything_and_none_hide_nothing() -> None:
    long = {name: 1e3 for name in ("bottom", "bottom_backward", "top", "top_backward", "update")}
    assert exposed(**long) == 0
    alone = StepParts(**{name: getattr(PARTS, name) for name in EXCHANGES})
    assert exposed_time(alone, training=True) == 19 == step_time(alone, training=True)
    assert exposed(**dict.fromkeys(EXCHANGES, 0.0)) == 0


durations = st.floats(0, 100, allow_nan=False)


@settings(max_examples=200)
@given(st.builds(StepParts, **{name: durations for name in vars(PARTS)}))
def test_no_step_beats_its_kernels_or_its_network_or_loses_to_a_sequence(parts: StepParts) -> None:
    network = sum(getattr(parts, name) for name in EXCHANGES)
    time = step_time(parts, training=True)
    assert max(network, parts.serial_time - network) <= time * (1 + 1e-9) + 1e-9
    assert time <= parts.serial_time * (1 + 1e-9) + 1e-9
    for name in EXCHANGES:  # less to send is never slower
        assert step_time(replace(parts, **{name: 0.0}), training=True) <= time + 1e-9
    bags = exposed_time(replace(parts, dense_reduce=0.0), training=True)
    assert 0 <= bags <= parts.embedding_communication_time * (1 + 1e-9)


@pytest.mark.parametrize("name", list(vars(PARTS)))
def test_a_part_adds_at_most_its_time(name: str) -> None:
    more = replace(PARTS, **{name: getattr(PARTS, name) + 1})
    assert 0 <= step_time(more, training=True) - step_time(PARTS, training=True) <= 1
