"""In TorchRec's space one kind of sharding beside copies is never better than all together by 1 % or more."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.schemes import Exchange
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.searching.search import Restriction, Search

SAMPLES, LIMIT = 65_536, 68e9
NEAR = 1.01  # what a search calls as good: below that luck decides
EFFORT_S, OF_ONE = 1.5, 0.15
"""How often a search looks at the clock: its time, on a machine of any speed; one kind gets 1.5 s of 10."""


def alone(kind: Exchange) -> Restriction:
    """Copies and one kind of sharding, of those that TorchRec runs."""
    return lambda options, evaluator: (
        torchrec.runnable(options, evaluator) & np.isin(options.exchange, [Exchange.DP, kind])
    )


@pytest.mark.parametrize(("model", "gpus"), [("embark-t510", 64), ("mlperf-dlrm-dcnv2", 128)])
def test_no_kind_of_sharding_alone_beats_the_full_search(model: str, gpus: int) -> None:
    evaluator = Evaluator.on(
        *("h100-sxm-ib", PlanTables.load(model), SAMPLES // gpus, gpus),
        **{"training": True, "optimizer": "rowwise-adagrad", "sets": ExchangeSets()},
    )

    def found(restrict: Restriction, effort_s: float) -> float:
        return Search(evaluator, LIMIT, effort_s=effort_s, restrict=restrict).run().cost.time_s

    best = found(torchrec.runnable, EFFORT_S)
    for kind in (Exchange.RB, Exchange.RS, Exchange.TWO_LEVEL):
        assert best <= found(alone(kind), OF_ONE * EFFORT_S) * NEAR, kind.name
