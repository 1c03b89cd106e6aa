"""HugeCTR's planner by hand, how MLPerf's rows call it, and the ids of its tables."""

from __future__ import annotations

import pytest
from hugectr_planner import holders
from mlperf_steps import inputs, kinds, planned
from scipy.optimize import brentq

from perfmodel.model import access

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


def test_mlperf_rows_are_planned_as_their_configurations_say() -> None:
    """What NVIDIA's planner printed for its own options: parts of t20 and t21, and how many are copied."""
    said = {}
    for case, _ in kinds():
        costed = planned(case)
        placements, evaluator = costed.plan.placements, costed.evaluator
        held = costed.memory.total_bytes
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
        p = lambda s: access.build_zipf_bins(ids, s, 64)[0][0]  # noqa: E731  of the first rank
        return float(brentq(lambda s: SAMPLES * p(s) * often**-s - 15, 0.5, 2))

    assert dict(inputs()["skew"]) == pytest.approx(
        {name: exponent(*counts) for name, counts in DIFFERENT.items()}, abs=0.006
    )
