"""How far a search is: the best plan that it has is told."""

from __future__ import annotations

import math

import pytest

from perfmodel import effort
from perfmodel.cli.plan_progress import PlanProgress
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.searching.search import Search


def test_the_best_plan_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(effort, "listeners", [told.append])
    progress = PlanProgress()
    progress(math.inf)
    assert not progress.found
    progress(2e-3)
    progress.of_gpus(8, 1e-3)
    assert told == ["best 2.00 ms", "8 GPUs: best 1.00 ms"]
    assert progress.found


def test_a_search_tells_of_every_better_plan_until_it_is_stopped() -> None:
    told: list[float] = []

    def watch(best_s: float) -> None:
        told.append(best_s)
        if len(told) == 3:
            raise KeyboardInterrupt

    evaluator = Evaluator.on("h100-sxm-ib", PlanTables.load("mlperf-dlrm-dcnv2"), 1024, 8)
    assert Search(evaluator, 20e9, effort_s=60, watch=watch).run().stopped == "interrupt"
    assert told == sorted(told, reverse=True)
