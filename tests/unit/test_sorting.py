"""What finding equal ids costs: between a radix sort and a cache's prefetch, and what it leaves undecided."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perfmodel.model import kernels
from perfmodel.model.bands import sum_band
from perfmodel.model.differences import difference_band, shared_difference_band
from perfmodel.model.recording import geometric_mean
from perfmodel.passes.steps import STEPS
from perfmodel.plan.as_projection import compared, undecided, winner
from perfmodel.plan.pricing.cost import Evaluator
from perfmodel.plan.pricing.placement import Plan
from perfmodel.projections import project_one

MACHINE = "h100-sxm-ib"
ASKED = ("project", "--table-size", "10TB", "--sharding", "all")


def ways(**asked: Any) -> Any:
    return list(compared(project_one(machine=MACHINE, table_bytes=10e12, gpus=152, **asked)))


def test_ends_of_a_sort() -> None:
    ends = kernels.sort_ends(4e-6, 14, 3.35e12, 0.45, 91e-6, 4e-9, 200)
    assert ends == ((pytest.approx(56e-6), pytest.approx(1.5075e12)), (91e-6, pytest.approx(50e9)))
    assert geometric_mean(4.0, 9.0) == 6


@pytest.mark.parametrize(
    ("batch", "sort_s", "prefetch_s"),
    # 14 x 4 us + n 200 / 1.5075 TB/s, and 91.3 us + n 4.28 ns of 32 ids a sample
    [(1024, 60.3e-6, 231.5e-6), (16_384, 125.6e-6, 2.335e-3)],
)
def test_deduplicating_costs_what_sorting_costs(batch: int, sort_s: float, prefetch_s: float) -> None:
    """By hand; before, it cost a bucketize: 24 and 30 us."""
    found = next(each for each in ways(batch=batch) if each.way == "row-wise-ub")
    step = next(row for row in found.answer.steps if row.name == "deduplicate")
    assert step.payload_bytes == batch * 32 * 200
    assert (step.low_s, step.high_s) == pytest.approx((sort_s, prefetch_s), rel=2e-3)
    assert step.low_s < step.time_s < step.high_s and str(step.evidence) == "assumed"


def test_the_backward_sorts_at_the_lower_end_of_the_same_law() -> None:
    assert {name for name, step in STEPS.items() if step.sorts} == {"deduplicate", "sort_lookups"}
    found = next(each for each in ways() if each.way == "row-wise-ub").alike
    tables = found.plan.tables
    evaluator = Evaluator.on(MACHINE, tables, 1024, 152, training=True)
    plan = Plan(tables, found.plan.placements, 152, evaluator.domain)
    rows = {row.name: row for row in evaluator.cost(plan).rows}
    for name, alone in (("deduplicate", False), ("sort_lookups", True)):
        floor, rate = evaluator.basis.sort_middle(8, alone=alone)
        assert rows[name].time_s == pytest.approx(floor + rows[name].payload_bytes / rate)
    loads = evaluator.loads(plan).most
    assert float(evaluator.times.fast(loads)) == pytest.approx(evaluator.exact_times(loads)[0], rel=2e-3)


def test_sums_of_independent_errors() -> None:
    assert sum_band((7, 10, 13), (6, 10, 14)) == (15, 20, 25)
    assert sum_band((1, 2, 3)) == (1, 2, 3)


def test_a_shared_cause_moves_both() -> None:
    a, b = {"x": (8.0, 10.0, 14.0)}, {"x": (7.0, 9.0, 13.0)}
    assert shared_difference_band(a, b) == (1, 1, 1)
    assert shared_difference_band(a, a) == (0, 0, 0)
    assert shared_difference_band(a, {}) == (8, 10, 14)
    assert shared_difference_band(a, {"y": b["x"]}) == pytest.approx(difference_band(a["x"], b["x"]))
    low, middle, high = shared_difference_band({**a, "z": (1.0, 4.0, 5.0)}, b)
    assert (low, middle, high) == (2, 5, 6)  # z alone errs


def test_which_wins_cannot_be_told_at_a_large_batch() -> None:
    found = ways(batch=16_384)
    assert winner(found).way == "row-wise-ub"
    assert [each.way for each in undecided(found)][:2] == ["row-wise-sparse", "row-wise"]


def test_unique_rows_cannot_be_told_from_two_levels_at_10_tb(cli: Any) -> None:
    assert "row-wise-two-level" in [each.way for each in undecided(ways())]
    text = " ".join(cli(*ASKED).out.split())
    assert "Which wins on 152 GPUs cannot be told: row-wise-ub takes" in text
    assert "≈: which wins cannot be told" in text
    said = json.loads(cli(*ASKED, "--json").out)
    assert said["winner"] == "row-wise-ub" and "row-wise-two-level" in said["undecided"]
