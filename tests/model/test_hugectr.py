"""HugeCTR's planner by hand, how MLPerf's rows call it, and the ids of its tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hugectr_planner import PlannerCall, holders, plan_of
from mlperf_steps import fixed_bags, inputs, kinds, planned
from scipy.optimize import brentq

from perfmodel.engine.schemes import TABLE_ROW_WISE
from perfmodel.model import access
from perfmodel.model.popularity import popularity
from perfmodel.plan import PlanTables
from perfmodel.schema.workload import Table, TableSet

SAMPLES = 4_195_197_692 + 2 * 89_137_319
DIFFERENT = {
    "t0": (227_605_432, 7_912_889),
    "t9": (130_229_467, 5_554_114),
    "t10": (3_067_956, 582_469),
    "t11": (405_282, 245_828),
    "t19": (292_775_614, 8_165_896),
    "t20": (40_790_948, 2_675_940),
    "t21": (187_188_510, 7_156_453),
    "t22": (590_152, 302_516),
}
"""Of a feature of Criteo 1 TB: ids, and those that occur 15 times and more (NVIDIA/DeepLearningExamples)."""


def test_the_largest_part_is_cut_until_no_deal_is_better() -> None:
    """8 ids over two buckets beside 1 and 1: 8 | 1 1, then 4 1 | 4 1."""
    assert holders([8, 1, 1], [1, 1, 1], 2, 9, 0) == [[0, 1], [0], [1]]
    assert holders([8, 1, 1], [1, 1, 1], 2, 9, 10) == [[0], [1], [1]]  # 18 | 22; cut: 14 and 11 | 14 and 11
    assert holders([3, 2], [1, 1], 1, 9, 1) == [[0], [0]]
    assert holders([1, 1], [8, 2], 3, 5, 0) == [[1, 2], [0]]  # no room for it whole
    assert holders([1, 1], [8, 4], 2, 5, 0) == [[0, 1], [0, 1]]  # nothing fits: every bucket has all


def test_small_tables_are_copied_and_nodes_hold_whole_parts() -> None:
    """16 bytes of a row with its state; no table of one row fills the two GPUs of a node."""
    rows, ids = (1000, 4, 8, 1), (6, 1, 2, 1)
    named = tuple(Table(f"t{i}", e, 2, n, "fp32") for i, (e, n) in enumerate(zip(rows, ids, strict=True)))
    tables = PlanTables.of(TableSet("mine", named))
    call = PlannerCall(by_node=True, part_ids=2, copied_bytes=100, capacity_bytes=1e6)
    found = plan_of(tables, 4, 2, call).placements
    assert [each.scheme.copied for each in found] == [False, True, False, True]
    assert found[0].ranks.tolist() == [0, 1] and found[2].ranks.tolist() == [2, 3]
    assert found[2].sharding(4, 2) == TABLE_ROW_WISE
    flat = plan_of(tables, 4, 2, replace(call, by_node=False, copied_bytes=0.0)).placements
    assert [len(each.ranks) for each in flat] == [2, 1, 1, 1]


def test_mlperf_rows_are_planned_as_their_configurations_say() -> None:
    """What NVIDIA's planner printed for its own options: parts of t20 and t21, and how many are copied."""
    said = {}
    for case, _ in kinds():
        costed = planned(case)
        placements, evaluator = costed.plan.placements, costed.evaluator
        held = evaluator.memory(costed.plan).total_bytes
        assert held.max() <= evaluator.setting.machine.value("hbm_bytes"), case
        parts = [placements[t].scheme.row_parts for t in (0, 19, 20, 21)]
        copies = sum(each.scheme.copied for each in placements)
        said[case.machine, case.gpus, case.planner.copied_bytes] = (*parts, copies)
    assert said == {
        ("h100-sxm-ib", 4, 8e6): (4, 1, 2, 1, 13),
        ("h100-sxm-ib", 4, 0.0): (4, 1, 2, 1, 0),
        ("h100-sxm-ib", 8, 8e6): (1, 1, 4, 1, 13),
        ("h100-sxm-ib", 8, 0.0): (1, 1, 4, 1, 0),
        ("a100-sxm-ib", 8, 0.0): (1, 1, 4, 1, 0),
        ("h200-sxm-ib", 8, 8e6): (1, 1, 8, 2, 13),
        ("b200-sxm-ib", 8, 8e6): (1, 1, 8, 2, 13),
        ("h100-sxm-ib", 64, 0.0): (8, 8, 16, 8, 2),
        ("h100-sxm-ib", 64, 12.5e6): (8, 8, 32, 8, 14),
        ("a100-sxm-ib", 64, 12.5e6): (8, 8, 32, 8, 14),
        ("h100-sxm-ib", 128, 0.0): (8, 8, 32, 8, 2),
        ("h100-sxm-ib", 128, 12.5e6): (8, 8, 32, 16, 14),
    }


def test_exponents_follow_from_how_many_ids_occur_fifteen_times() -> None:
    def exponent(ids: int, often: int) -> float:
        p = lambda s: access.zipf_popularity(ids, s, 64)[0][0]  # noqa: E731  of the first rank
        return float(brentq(lambda s: SAMPLES * p(s) * often**-s - 15, 0.5, 2))

    assert dict(inputs()["skew"]) == pytest.approx(
        {name: exponent(*counts) for name, counts in DIFFERENT.items()}, abs=0.006
    )


@pytest.mark.parametrize("skew", [0.0, 1.1, 1.4])
def test_bags_that_come_again_ask_for_the_same_rows(skew: float) -> None:
    """Drawn: 200 000 values, each with a bag of itself and 9 others, 3000 samples."""
    E, L, n = 200_000, 10, 3000
    rng = np.random.default_rng(7)
    bags = np.concatenate([np.arange(E)[:, None], rng.integers(0, E, (E, L - 1))], axis=1)
    p = np.arange(1, E + 1) ** -skew
    drawn = [np.unique(bags[rng.choice(E, n, p=p / p.sum())]).size for _ in range(5)]
    law = popularity(fixed_bags(E, skew, L), E)
    assert law.unique(n * L, slice(None)) == pytest.approx(np.mean(drawn), rel=0.04)
