"""Own times of GPUs, shards and copies: they add up, and who has fewer bytes waits."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme, uniform_plan
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.report.figures.shares import Shares
from perfmodel.schema.workload import Table, TableSet, zipf

TABLES = PlanTables.of(
    TableSet("mine", (Table("a", 1_000_000, 64, 10, "fp32"), Table("b", 1000, 64, 2, "fp32"))), zipf(1.05)
)
PLACED = Plan(
    TABLES, (Placement.of(Scheme(Exchange.SPARSE, 1, 1, 100), [1]), Placement.of(Scheme(Exchange.DP))), 4, 4
)


def shares_of(plan: Plan, training: bool = False) -> Shares:
    evaluator = Evaluator.on("h100-sxm-ib", TABLES, 256, plan.gpus, training=training)
    return Shares.of(evaluator, plan, evaluator.cost(plan))


@pytest.mark.parametrize("training", [False, True])
def test_alike_gpus_never_wait(training: bool) -> None:
    shares = shares_of(uniform_plan(TABLES, "row-wise", 4, 4), training)
    assert shares.own_s == pytest.approx(np.repeat(shares.step_s[:, np.newaxis], 4, axis=1))
    assert shares.total_s == pytest.approx(shares.step_s.sum())


@pytest.mark.parametrize("training", [False, True])
def test_the_holder_is_busiest_and_the_others_wait(training: bool) -> None:
    shares = shares_of(PLACED, training)
    assert int(np.argmax(shares.total_s)) == 1
    assert shares.total_s[1] == pytest.approx(shares.step_s.sum())
    assert len({round(float(time), 12) for time in np.delete(shares.total_s, 1)}) == 1
    gone = 1 - shares.total_s.mean() / shares.step_s.sum()
    waiting = 1 - float(shares.total_s.mean()) / float(shares.step_s.sum())
    assert 0 < waiting == pytest.approx(gone)
