"""The cost of plans: the projection's own pass, the messages of every sharding, and an example by hand."""

from __future__ import annotations

import pytest

from perfmodel.model.exchanges import Exchange
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme
from perfmodel.project import project_one
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"


def tables_of(*shapes: tuple[int, int, float], dtype: str = "fp32") -> PlanTables:
    """Tables of (rows, dim, pooling)."""
    return PlanTables.of(
        TableSet("mine", tuple(Table(f"t{i}", *shape, dtype) for i, shape in enumerate(shapes)))
    )


MLPERF = PlanTables.load("mlperf-dlrm-dcnv2")


@pytest.mark.parametrize("gpus", [1, 8, 128])
@pytest.mark.parametrize("reduction", ["auto", "all_to_all", "two_level", "sparse"])
def test_a_row_wise_plan_costs_what_a_projection_says(gpus: int, reduction: str) -> None:
    kind = {
        "auto": Exchange.RS,
        "all_to_all": Exchange.RB,
        "two_level": Exchange.TWO_LEVEL,
        "sparse": Exchange.SPARSE,
    }[reduction]
    evaluator = Evaluator.on(MACHINE, MLPERF, 1024, gpus)
    whole, copy = Placement.of(Scheme(kind, gpus), range(gpus)), Placement.of(Scheme(Exchange.DP))
    placements = tuple(whole if rows >= gpus else copy for rows in MLPERF.rows)
    found = evaluator.cost(Plan(MLPERF, placements, gpus, evaluator.domain))
    wanted = project_one(
        tables="mlperf-dlrm-dcnv2",
        machine=MACHINE,
        batch=1024,
        gpus=gpus,
        reduction=reduction,
        overrides={"hbm_bytes": 200e9},
    ).totals
    for name in ("time_s", "low_s", "high_s"):
        assert getattr(found, name) == pytest.approx(wanted[name], rel=1e-13)
