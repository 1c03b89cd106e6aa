"""How far a search is: what it has found is told, and it tells of its bound."""

from __future__ import annotations

import math

import pytest

from perfmodel import effort
from perfmodel.cli.plan_progress import PlanProgress
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.searching.search import Search


def test_the_best_plan_and_the_bound_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(effort, "listeners", [told.append])
    progress = PlanProgress()
    progress(math.inf, 0.0)
    assert not progress.found
    progress(2e-3, 0.0)
    progress.of_gpus(8, 1e-3, 5e-4)
    assert told == ["best 2.00 ms", "8 GPUs: best 1.00 ms, no listed plan is below 500 µs"]
    assert progress.found


def test_a_search_tells_of_its_bound_while_its_plan_stays() -> None:
    told: list[tuple[float, float]] = []

    def watch(best_s: float, bound_s: float) -> None:
        told.append((best_s, bound_s))
        if len({best_s for best_s, _ in told}) < len(told) and bound_s > 0:
            raise KeyboardInterrupt  # seen: there is no need for more

    evaluator = Evaluator.on("h100-sxm-ib", PlanTables.load("mlperf-dlrm-dcnv2"), 1024, 8)
    assert Search(evaluator, 20e9, effort_s=60, watch=watch).run().stopped == "interrupt"
