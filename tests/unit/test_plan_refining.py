"""Few large tables, more than whole rounds of the ranks: some of them are cut finer, not all."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, PlanTables, Scheme
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.searching.packing import balance, pack
from perfmodel.plan.searching.refining import refined
from perfmodel.plan.searching.search import Search
from perfmodel.schema.workload import Table, TableSet

MACHINE, LIMIT = "h100-sxm-ib", 68e9
WHOLE = Scheme(Exchange.RB)


@pytest.fixture(scope="module")
def baselines() -> ModuleType:
    """benchmarks/planner_baselines.py, which uses nothing of the search."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "planner_baselines.py"
    spec = importlib.util.spec_from_file_location("planner_baselines", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its data classes look there
    spec.loader.exec_module(module)
    return module


def uneven(large: int = 12, small: int = 40) -> PlanTables:
    """Large tables that are looked up much, and as many bytes of others that are looked up little."""
    shapes = [("hot", 4_000_000, 100.0)] * large + [("cold", 4_000_000, 1.0)] * small
    return PlanTables.of(
        TableSet("uneven", tuple(Table(f"{n}{i}", E, 128, L) for i, (n, E, L) in enumerate(shapes)))
    )


def whole(evaluator: Evaluator) -> tuple[Options, np.ndarray]:
    """All tables uncut."""
    o = options_of(evaluator, LIMIT)
    found = [o.find(t, WHOLE) for t in range(o.kind_of.size)]
    return o, np.array(found, dtype=np.int64)


def test_what_is_left_over_after_whole_rounds_is_cut() -> None:
    """Twelve large tables on eight ranks: four of them are halved, and the ranks get as much each."""
    evaluator = Evaluator.on(MACHINE, uneven(), 1024, 8)
    o, option = whole(evaluator)
    cuts = {}
    for estimate_s, finer in refined(evaluator, o, option):
        assert estimate_s == pytest.approx(float(evaluator.step_times(balance(o, finer))))
        changed = finer != option
        assert (o.parts[finer[changed]] > 1).all() and (o.exchange[finer] == Exchange.RB).all()
        np.testing.assert_array_equal(o.group[finer], o.kind_of)
        cuts[tuple(np.bincount(o.c[finer[:12]], minlength=3)[1:3])] = finer
    assert (8, 4) in cuts and (11, 1) in cuts
    before, after = (pack(evaluator, o, at, LIMIT) for at in (option, cuts[8, 4]))
    assert before is not None and after is not None
    held = after.held.max(axis=0)
    np.testing.assert_allclose(held[held > 0], after.held.mean(axis=0)[held > 0], rtol=0.05)
    assert after.time_s < before.time_s * 0.9


def test_tables_left_over_get_as_many_parts_as_fill_the_round() -> None:
    evaluator = Evaluator.on(MACHINE, uneven(large=10, small=16), 1024, 8)
    o, option = whole(evaluator)
    cut = [np.sort(o.parts[finer[:10]]).tolist() for _, finer in refined(evaluator, o, option)]
    assert [1] * 8 + [4] * 2 in cut


def test_tables_that_every_rank_holds_are_not_cut() -> None:
    evaluator = Evaluator.on(MACHINE, uneven(large=3, small=0), 1024, 4)
    o = options_of(evaluator, LIMIT)
    for scheme in (Scheme(Exchange.DP), Scheme(Exchange.RS, 4)):
        option = o.find(0, scheme)
        assert option is not None
        assert list(refined(evaluator, o, np.full(3, option))) == []


def test_plans_to_begin_with_are_no_worse_than_embarks(baselines: ModuleType) -> None:
    """Its greedy cuts the costliest table in two and packs all of them anew, up to twenty times."""
    evaluator = Evaluator.on(MACHINE, PlanTables.load("embark-t510"), 8192, 8)
    opponent = baselines.Embark(evaluator, LIMIT, 1e8).plan()
    search = Search(evaluator, LIMIT)
    search.starts.until = search.starts.until_even = lambda: False  # the same on every CPU
    search.starts.quick(lambda: False)
    search.starts.run()
    assert search.best_s <= evaluator.cost(opponent).time_s


def test_ways_to_cut_are_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many tables each takes long: the first is looked at before the next is made."""
    evaluator = Evaluator.on(MACHINE, uneven(), 1024, 8)
    o, option = whole(evaluator)
    asked: list[np.ndarray] = []

    def counted(o: Options, at: np.ndarray) -> np.ndarray:
        asked.append(at)
        return balance(o, at)

    monkeypatch.setattr("perfmodel.plan.searching.refining.balance", counted)
    next(iter(refined(evaluator, o, option)))
    assert len(asked) == 2  # what it is now, and the first way
