"""The map of many tables: shardings are left out only where no way to deal them can win or come close."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.passes.alike import Alike, best_alike, least_times
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.tables import PlanTables
from perfmodel.plan.other_ways.map_cells import CUTS
from perfmodel.plan.other_ways.winner_map import LIKELY, WinnerMap
from perfmodel.projections import Forward, project_one
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.workload import Table, TableSet


def tables_of(count: int, log_rows: float = 11) -> TableSet:
    draw = np.random.default_rng(3)
    rows = np.exp(draw.normal(log_rows, 2, count)).astype(int) + 10
    dims, poolings = draw.choice([16, 32, 64, 128], count), draw.integers(1, 60, count)
    each = zip(rows.tolist(), dims.tolist(), poolings.tolist(), strict=True)
    return TableSet("made", tuple(Table(f"t{at}", *one) for at, one in enumerate(each)))


@pytest.mark.parametrize(
    ("count", "gpus", "ids"), [(7, 4, "uniform"), (30, 16, "zipf:1.05"), (90, 7, "zipf:0.8")]
)
def test_no_plan_is_faster_than_its_shards_spread_evenly(count: int, gpus: int, ids: str) -> None:
    """The opponent: every sharding, dealt to GPUs by memory and by work."""
    tables = PlanTables.of(tables_of(count), parse_distribution(ids))
    evaluator, room = Evaluator.on("h100-sxm-ib", tables, 512, gpus), 2.5 * tables.total_bytes / gpus
    least, known, _ = least_times(evaluator, list(CUTS.values()), room)
    dealt = {way: best_alike(evaluator, way, room) for way in CUTS.values()}
    assert len(least) >= 4
    for way, found in dealt.items():
        if isinstance(found, Alike):
            assert found.cost.time_s >= least[way] * (1 - 1e-9)
            again = best_alike(evaluator, way, room, known)
            assert isinstance(again, Alike) and again.cost.time_s == pytest.approx(
                found.cost.time_s, rel=1e-9
            )
    assert any(isinstance(found, Alike) for found in dealt.values())


def test_a_map_of_many_tables_has_the_shardings_that_are_dealt() -> None:
    """700 tables, more than were dealt before: the fastest sharding is in the cell, slow ones are not."""
    tables = tables_of(700, 12)
    asked = {"machine": "h100-sxm-ib", "tables": tables}
    (cell,) = WinnerMap(asked, "per-gpu").at(
        "uniform", float(tables.total_bytes), [1024], ["row-wise", *CUTS]
    )
    gpus = project_one(tables=tables).gpus
    assert gpus > 1 and cell.gpus["row-wise"] == 8 // gpus * gpus  # in copies that fill a node
    evaluator = Evaluator.on("h100-sxm-ib", PlanTables.of(tables), 1024, gpus)
    times = {words: best_alike(evaluator, way, 68e9) for words, way in CUTS.items()}
    known = {words: found.cost.time_s for words, found in times.items() if isinstance(found, Alike)}
    best = min([*known.values(), cell.times["row-wise"]])
    assert cell.times[cell.winner] == pytest.approx(best)
    assert {words for words, time in known.items() if time < LIKELY * best} <= set(cell.times)


def test_a_map_costs_no_pass_in_one_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell compares times and bands of ways, which need no slowdown: of many tables it took long."""
    monkeypatch.delattr(Forward, "local_steps")
    tables = tables_of(7)
    known = WinnerMap({"machine": "h100-sxm-ib", "tables": tables})
    (cell,) = known.at("zipf:0.8", float(tables.total_bytes), [4096], ["row-wise", "host", *CUTS])
    assert {"row-wise", "host", "ub"} <= set(cell.times)
    assert "host" not in cell.as_good
