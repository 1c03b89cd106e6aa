"""TorchRec's collectives, counted in real modules of 64 and 128 ranks: the steps that plans are costed at."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked_ranks
import pytest

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.plan import torchrec
from perfmodel.schema.workload import Table, TableSet

forked_ranks.require_torchrec()

PROGRAM = Path(__file__).with_name("torchrec_counts.py")
NODE, BATCH, POOLING, ROWS = 8, 32, 4.0, 1024
"""A bag's look-ups times the batch divide by 128: every row part is asked for as much."""


def placements(gpus: int) -> dict[str, Placement]:
    """Every way that TorchRec has to cut a table, in nodes of 8 GPUs."""
    across = [rank for i in range(NODE) for rank in (i, NODE + i)]
    return {
        "copied": Placement.of(Scheme(Exchange.DP)),
        "copied_too": Placement.of(Scheme(Exchange.DP)),
        "whole": Placement.of(Scheme(Exchange.RB), [3]),
        "columns": Placement.of(Scheme(Exchange.RB, 1, 4), [2, 0, gpus - 1, 9]),
        "inside": Placement.of(Scheme(Exchange.RB, 1, 2), [3, 2]),
        "rows": Placement.of(Scheme(Exchange.RS, gpus), range(gpus)),
        "node": Placement.of(Scheme(Exchange.TWO_LEVEL, NODE), range(NODE, 2 * NODE)),
        "grid": Placement.of(Scheme(Exchange.TWO_LEVEL, NODE, 2), across),
    }


def planned(
    gpus: int, *names: str, weighted: bool = False, halves: tuple[str, ...] = (), features: int = 1
) -> tuple[PlanTables, Plan]:
    """Tables of several widths, placed so; ``halves`` in fp16; the first one is looked up by one feature."""
    placed = placements(gpus)
    mine = [
        Table(
            *(name, ROWS, 16 + 16 * (i % 3), POOLING, "fp16" if name in halves else "fp32", weighted),
            features=features if i else 1,
        )
        for i, name in enumerate(names)
    ]
    tables = PlanTables.of(TableSet("mine", tuple(mine)))
    return tables, Plan(tables, tuple(placed[name] for name in names), gpus, NODE)


def evaluator_of(tables: PlanTables, gpus: int, sets: ExchangeSets) -> Evaluator:
    """Training on nodes of 8 GPUs."""
    return Evaluator.on("h100-sxm-ib", tables, BATCH, gpus, gpus_per_node=NODE, training=True, sets=sets)


Counted = Callable[..., list[list[Any]]]


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    """What each rank of a plan runs."""

    def ask(file: Any, ranks: list[int], *words: str) -> list[list[Any]]:
        path = tmp_path / "plan.json"
        torchrec.write_torchrec_plan(file, path)
        said = forked_ranks.said_by(PROGRAM, str(path), *words, *map(str, ranks))
        found = [json.loads(line) for line in said.splitlines() if line.startswith("[[")]
        assert len(found) == len(ranks)
        return found

    return ask


def expected(evaluator: Evaluator, plan: Plan, rank: int) -> Counter[tuple[Any, ...]]:
    """(name, ranks, bytes sent, bytes received) of the steps that the plan is costed at, on a rank."""
    loads, times = evaluator.loads(plan), evaluator.times
    found: Counter[tuple[Any, ...]] = Counter()
    for step in evaluator.steps:
        if not step.collective or times.time_step(step, loads.max(axis=1)).time_s[0] == 0:
            continue
        ranks = int(times.group(step)[0])
        sides = [float(loads[resource][rank]) for resource in step.resources]
        if step.splits:
            sides = [times.splits_bytes] * 2
        elif step.collective == "reduce_scatter":
            sides = [sides[0], sides[0] / ranks]
        elif step.collective == "all_gather":
            sides = [sides[0] / ranks, sides[0]]
        found[step.collective, ranks, *(round(side) for side in (*sides, sides[0])[:2])] += 1
    return found


EVERYTHING = tuple(placements(128))
FEWER = ("copied", "whole", "rows", "node")
"""One case of each type, as a plan has them that cuts no columns."""


@pytest.mark.parametrize(
    ("gpus", "names", "features", "weighted"),
    [(128, EVERYTHING, 1, False), (64, FEWER, 1, False), (64, FEWER, 3, False), (64, FEWER, 1, True)],
)
def test_an_exported_plan_runs_the_steps_that_it_is_costed_at(
    gpus: int, names: tuple[str, ...], features: int, weighted: bool, counted: Counted
) -> None:
    """Kinds of collective, how many, their ranks and every byte, of busy ranks and of one without shards.

    Weights of ids are exchanged after them in each set, and their number of each peer among the splits.
    """
    tables, plan = planned(gpus, *names, features=features, weighted=weighted)
    evaluator = evaluator_of(tables, gpus, ExchangeSets())
    if weighted:
        assert evaluator.times.splits_bytes == 64 * 4 * 8
        assert sum(step.name.startswith("all_to_all_weights") for step in evaluator.steps) == 3
    ranks = [0, 3, 9, gpus - 2]
    options = ["--weighted"] * weighted
    for rank, seen in zip(ranks, counted(_file(evaluator, plan), ranks, *options), strict=True):
        assert Counter((name, *sizes) for _, name, *sizes in seen) == expected(evaluator, plan, rank), rank


def test_a_plan_with_every_type_runs_a_set_for_each(counted: Counted) -> None:
    """As TorchRec's own planner names them: six types, six sets; gradients of copies in one all-reduce."""
    gpus = 64
    tables, plan = planned(gpus, *EVERYTHING)
    natural = ["data_parallel"] * 2
    natural += ["table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise", "grid_shard"]
    evaluator = evaluator_of(tables, gpus, ExchangeSets(tuple(natural)))
    file = _file(evaluator, plan)
    retyped = [
        entry.model_copy(update={"sharding_type": kind})
        for entry, kind in zip(file.tables, natural, strict=True)
    ]
    file = file.model_copy(update={"tables": retyped})
    for rank, seen in zip([1, 9], counted(file, [1, 9]), strict=True):
        found = Counter((name, *sizes) for _, name, *sizes in seen)
        assert found == expected(evaluator, plan, rank)
        assert sum(found[key] for key in found if key[2:] == (gpus * 24,) * 2) == 6  # splits
        gradients = 4 * sum(float(tables.rows[t] * tables.dim[t]) for t in (0, 1))
        assert found["all_reduce", gpus, gradients, gradients] == 1


@pytest.mark.parametrize(
    ("names", "halves", "rank", "groups"),
    [
        (EVERYTHING, (), 3, 4),
        (("copied", "columns", "rows", "node"), (), 9, 4),
        (("copied", "copied_too"), ("copied_too",), 3, 2),
        (EVERYTHING, ("columns", "inside", "rows"), 3, 5),
    ],
)
def test_a_look_up_is_launched_for_each_group_of_tables(
    names: tuple[str, ...], halves: tuple[str, ...], rank: int, groups: int, counted: Counted
) -> None:
    """Of one sharding type and one data type: as many launches forward, and backward those of all that are
    updated in place, as the plan is costed at, with TorchRec's exchanges and without."""
    tables, plan = planned(64, *names, halves=halves)
    evaluator = evaluator_of(tables, 64, ExchangeSets())
    for costing in (evaluator, evaluator.exchange_by(None)):
        assert (costing.loads(plan).max(axis=1)[costing.times.groups] > 0).sum() == groups
    seen = counted(_file(evaluator, plan), [rank], "--launched")[0]
    forward = [name for phase, name in seen if phase == "forward"]
    assert len(forward) == groups
    dense = sum(name.startswith("dense") for name in forward)
    assert len(seen) - len(forward) == groups - dense


def _file(evaluator: Evaluator, plan: Plan) -> Any:
    return torchrec.build_torchrec_plan(evaluator, plan)
