"""Two answers side by side: verdicts follow bands, and steps add up to the batch."""

from __future__ import annotations

import pytest
from alpha_beta import AlphaBeta, one

from perfmodel.projections.comparison import (
    Difference,
    DifferenceVerdict,
    differences,
    largest,
    samples_per_s,
    whole,
)

SIZE = 10e12
ENDS = ("low_s", "time_s", "high_s")
SLOW, FAST = AlphaBeta(alpha=200e-6), AlphaBeta(alpha=10e-6)


def test_steps_of_both_add_up_to_the_difference_of_the_batches() -> None:
    a, b = (one(times, table_bytes=SIZE) for times in (SLOW, FAST))
    found, batch = differences(a, b), whole(a, b)
    assert sum(step.saved_s for step in found) == pytest.approx(batch.saved_s)
    assert batch.saved_s > 0
    assert batch.verdict is DifferenceVerdict.B and whole(b, a).verdict is DifferenceVerdict.A
    assert {step.name for step in found} == {step.name for step in (*a.steps, *b.steps)}
    low, middle, high = batch.band
    assert low < middle == batch.saved_s < high
    gather = next(step for step in found if step.name == "gather_pool")
    assert gather.verdict is DifferenceVerdict.SAME and gather.saved_s == 0


def test_bands_that_overlap_say_nothing() -> None:
    a, b = (one(AlphaBeta(alpha=alpha), table_bytes=SIZE) for alpha in (12e-6, 10e-6))
    assert whole(a, b).saved_s > 0 and whole(a, b).verdict is DifferenceVerdict.CANNOT_SAY


def test_the_largest_step_is_that_of_the_side_that_saves() -> None:
    steps = tuple(
        Difference(name, name, (a, a, a), (b, b, b)) for name, a, b in (("x", 9, 1), ("y", 1, 4), ("z", 3, 2))
    )
    step, share = largest(steps, 6.0)
    assert step.name == "x" and share == pytest.approx(8 / 6)
    back, share = largest(steps, -6.0)  # A is the faster one
    assert back.name == "y" and share == pytest.approx(3 / 6)


def test_a_step_that_one_side_lacks_counts_as_nothing() -> None:
    a, b = one(SLOW, table_bytes=SIZE), one(SLOW, table_bytes=1e9)  # B fits one GPU
    found = {step.name: step for step in differences(a, b)}
    assert found["all_to_all_ids"].b == (0, 0, 0) and found["gather_pool"].b != (0, 0, 0)


def test_other_ways_to_exchange_bags_are_one_difference() -> None:
    """A reduce-scatter beside an all-to-all and a sum: neither gives all, and neither takes it back."""
    a, b = (one(SLOW, table_bytes=SIZE, reduction=way) for way in ("reduce-scatter", "all-to-all"))
    found, batch = {step.name: step for step in differences(a, b)}, whole(a, b)
    assert sum(step.saved_s for step in found.values()) == pytest.approx(batch.saved_s)
    assert "reduce_scatter_bags" not in found and "local_sum" not in found
    own = {step.name: step for step in b.steps}
    assert found["bags"].b == pytest.approx(
        [sum(getattr(own[name], end) for name in ("all_to_all_bags", "local_sum")) for end in ENDS]
    )
    same = differences(a, one(FAST, table_bytes=SIZE, reduction="reduce-scatter"))
    assert "reduce_scatter_bags" in {step.name for step in same}


def test_samples_of_all_gpus_count() -> None:
    answer = one(FAST, table_bytes=SIZE, batch=256)
    assert samples_per_s(answer) == pytest.approx(answer.gpus * 256 / answer.time_s)
