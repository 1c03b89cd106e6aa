"""benchmarks/planner_score.py: TorchRec's score from costs of shards; searches that minimise or keep to it"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme, uniform_plan
from perfmodel.plan.choices.options import Options
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.searching.packing import Packing, Scale, place
from perfmodel.schema.workload import Table, TableSet

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark's modules can be imported."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def tables_of(*shapes: tuple[int, int, float]) -> PlanTables:
    return PlanTables.of(TableSet("mine", tuple(Table(f"t{i}", *shape) for i, shape in enumerate(shapes))))


def random_plan(evaluator: Evaluator, options: Options, random: np.random.Generator) -> Plan:
    """Every table cut in any way of ``options``, on any ranks that may hold it."""
    state = Packing(evaluator, options, 1e15)
    for t in range(len(evaluator.tables)):
        at = int(random.choice(np.arange(options.group.size)[options.of(t)]))
        state.choose([t], np.array([at]))
        if state.ranks[t] is None:
            weight = random.random(options.own.shape[1])
            ranks = place(state, at, Scale(np.ones(options.own.shape[1]), weight))
            assert ranks is not None
            state.put(t, ranks)
    return state.plan()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("gpus", "node"), [(8, 4), (4, 4)])
def test_costs_of_shards_add_up_to_torchrecs_score(training: bool, gpus: int, node: int) -> None:
    """Plans of all shardings that TorchRec has: its score and its memory are sums of its costs of shards."""
    pytest.importorskip("torchrec")
    from planner_score import Costs, runnable_options, shards
    from planner_torchrec import Rating

    shapes = ((102_400, 256, 20.0), (51_200_000, 64, 3.0), (1024, 16, 1.0), (64, 8, 0.5), (64, 8, 0.5))
    tables = tables_of(*shapes)
    evaluator = Evaluator.on("h100-sxm-ib", tables, 512, gpus, gpus_per_node=node, training=training)
    rating = Rating(torchrec.torchrec_plan(evaluator, uniform_plan(tables, "row-wise", gpus, node)), training)
    options = runnable_options(evaluator, 80e9)
    answer = rating.costs(shards(evaluator, options))
    costs = Costs(options, np.array(answer["ms"]), np.array(answer["bytes"]))
    random, kinds = np.random.default_rng(5), set()
    for _ in range(40):
        plan = random_plan(evaluator, options, random)
        file = torchrec.torchrec_plan(evaluator, plan)
        kinds |= {entry.sharding_type for entry in file.tables}
        theirs, (ms, held) = rating.score(file), costs.ranks(plan)
        assert ms.max() == pytest.approx(theirs["ms"], rel=1e-6), plan.placements
        assert held.max() == pytest.approx(theirs["bytes"], rel=1e-6), plan.placements
    whole = {"data_parallel", "table_wise", "column_wise", "row_wise"}
    parted = {"table_row_wise", "grid_shard"}
    assert kinds >= (whole | parted if gpus > node else whole), kinds


def costs_of(evaluator: Evaluator, ms: dict[Scheme, float]) -> Any:
    """Costs of two tables: those given [ms of a shard], 9 ms for all else; 1 GB a shard, 3 GB a copy."""
    from planner_score import Costs, runnable_options

    options = runnable_options(evaluator, 80e9)
    found = [ms.get(options.scheme(at), 9.0) for at in range(options.group.size)]
    return Costs(options, np.array(found), np.where(options.parts == 0, 3e9, 1e9))


TABLES = tables_of((1000, 64, 8.0), (1000, 64, 8.0), (1000, 64, 8.0))


def test_the_search_minimises_the_table_of_costs() -> None:
    """Three tables on two GPUs: a whole one costs 4.4 ms, a half 2.5, both 1 GB; a copy 1.5 and 3 GB.

    Room for three copies (9 GB): 4.5 ms. Two copies and halves (7 GB): 3 + 2.5. One copy, one whole table on
    each GPU (4 GB): 1.5 + 4.4. One whole table on each and halves (2 GB): 4.4 + 2.5.
    """
    from planner_score import search_by_score

    evaluator = Evaluator.on("h100-sxm-ib", TABLES, 16, 2)
    schemes = {Scheme(Exchange.RB): 4.4, Scheme(Exchange.RB, 1, 2): 2.5, Scheme(Exchange.DP): 1.5}
    costs = costs_of(evaluator, schemes)
    for room, ms in ((9e9, 4.5), (8e9, 5.5), (5e9, 5.9), (3.5e9, 6.9)):
        found = search_by_score(evaluator, costs, room, 0.3)
        assert found.cost.time_s * 1e3 == pytest.approx(ms)
        assert found.memory.total_bytes.max() <= room
    with pytest.raises(BadInputError, match=r"TorchRec counts memory"):
        search_by_score(evaluator, costs, 5e8, 0.3)


def test_a_bound_of_the_score_is_below_it() -> None:
    from planner_score import search_by_score

    evaluator = Evaluator.on("h100-sxm-ib", TABLES, 16, 2)
    found = search_by_score(evaluator, costs_of(evaluator, {Scheme(Exchange.RB): 4.0}), 80e9, 0.3)
    assert found.cost.time_s == pytest.approx(8e-3)  # two whole tables on one of the GPUs
    assert 5.9e-3 < found.bound_s <= 6e-3  # as if three on two GPUs could be spread evenly


def test_within_a_score_the_best_by_our_model() -> None:
    """Copies are best by our model, and dear by TorchRec's score: as many as the limit has room for."""
    from planner_score import search_within

    evaluator = Evaluator.on("h100-sxm-ib", TABLES, 65536, 2)
    schemes = {Scheme(Exchange.RB, 1, 2): 2.0, Scheme(Exchange.DP): 4.0}
    costs = costs_of(evaluator, schemes)
    halves = tuple(Placement.of(Scheme(Exchange.RB, 1, 2), [0, 1]) for _ in range(3))
    copies = tuple(Placement.of(Scheme(Exchange.DP)) for _ in range(3))
    start, best = (Plan(TABLES, placements, 2, 2) for placements in (halves, copies))
    assert evaluator.cost(best).time_s < evaluator.cost(start).time_s
    for most_ms, copied in ((6.0, 0), (8.0, 1), (11.9, 2), (12.0, 3)):
        plan = search_within(evaluator, costs, [start], 80e9, most_ms, 0.3)
        assert plan is not None
        assert sum(p.scheme.kind == Exchange.DP for p in plan.placements) == copied
        assert costs.ranks(plan)[0].max() <= most_ms
    assert search_within(evaluator, costs, [start], 80e9, 5.9, 0.3) is None
    tight = search_within(evaluator, costs, [start], 7e9, 12.0, 0.3)  # 3 GB a copy, as TorchRec counts
    assert tight is not None and sum(p.scheme.kind == Exchange.DP for p in tight.placements) == 2


def test_a_worker_that_is_late_is_ended_and_started_anew() -> None:
    from planner_worker import Worker

    evaluator = Evaluator.on("h100-sxm-ib", TABLES, 16, 2)
    script = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if asked['ask'] == 'plan': continue\n"
        "    if asked.get('shards'): sys.exit('no such shards')\n"
        "    print(json.dumps({'ms': [1.0]}), flush=True)\n"
    )
    with Worker(evaluator, uniform_plan(TABLES, "row-wise", 2, 2), 80e9, True) as worker:
        worker.command = [sys.executable, "-c", script]
        assert worker.costs([]) == {"ms": [1.0]}
        first = worker.process
        assert worker.planned(-60.0 + 0.2) is None
        assert first is not None and first.returncode is not None
        assert worker.costs([]) == {"ms": [1.0]}
        with pytest.raises(RuntimeError, match=r"no such shards"):
            worker.costs(["shard"])
