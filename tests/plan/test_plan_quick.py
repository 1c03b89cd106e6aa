"""However little time a search has, its plan is one that people would not beat by hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from test_plan_starts import distinct

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.searching.search import Search

MACHINE, LIMIT = "h100-sxm-ib", 68e9
GPUS = {False: (8, 128), True: (16, 128)}
"""Of a forward pass, and of a training step."""
MODELS = (
    *("mlperf-dlrm-dcnv2", "criteo-kaggle", "embark-t200", "embark-t510", "distemb-tiny"),
    "100 different",
)
MORE_SAMPLES = {("embark-t510", 128): 8192}


@pytest.fixture(scope="module")
def greedy() -> ModuleType:
    """benchmarks/planner_greedy.py, which uses nothing of the search."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "planner_greedy.py"
    spec = importlib.util.spec_from_file_location("planner_greedy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def uniform(evaluator: Evaluator) -> Iterator[Plan]:
    """All tables cut by rows over all GPUs, or each whole on one GPU in turn, where they fit."""
    tables, gpus = evaluator.tables, evaluator.gpus
    by_rows = []
    for rows in tables.rows.tolist():
        parts = min(int(rows), gpus)
        kind = Exchange.RS if parts == gpus else Exchange.RB
        by_rows.append(Placement.of(Scheme(kind, parts), range(parts)))
    whole = [Placement.of(Scheme(Exchange.RB), [t % gpus]) for t in range(len(tables))]
    for placements in (by_rows, whole):
        plan = Plan(tables, tuple(placements), gpus, evaluator.domain)
        if evaluator.memory(plan).total_bytes.max() <= LIMIT:
            yield plan


def named(model: str) -> PlanTables:
    return distinct(100) if model == MODELS[-1] else PlanTables.load(model)


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("model", MODELS)
def test_a_search_without_time_is_no_worse_than_what_people_write(
    model: str, training: bool, greedy: ModuleType
) -> None:
    """The time is up before the search begins, so the answer is the same on every CPU."""
    tables, compared = named(model), False
    for gpus in GPUS[training]:
        samples = MORE_SAMPLES.get((model, gpus), 1024)
        evaluator = Evaluator.on(MACHINE, tables, samples, gpus, training=training)
        opponents = [plan for plan in (greedy.per_byte(evaluator, LIMIT), *uniform(evaluator)) if plan]
        if not opponents:  # memory is nearly full
            continue
        compared = True
        found = Search(evaluator, LIMIT, effort_s=0).run()
        best = min(evaluator.cost(plan).time_s for plan in opponents)
        assert found.cost.time_s <= best * (1 + 1e-3), gpus
    assert compared
