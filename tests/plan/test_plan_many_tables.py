"""Files of very many tables: equal ones are dealt in turn, and a search keeps its time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from test_plan_starts import distinct

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.choices import options
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.outcome import outcome_of
from perfmodel.plan.searching import packing
from perfmodel.plan.searching.packing import pack
from perfmodel.plan.searching.search import Search
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"


def equal(*shapes: tuple[int, int, int, float]) -> PlanTables:
    """So many tables of each shape: (count, rows, dim, pooling)."""
    found = [Table(f"t{i}_{n}", *shape) for i, (count, *shape) in enumerate(shapes) for n in range(count)]
    return PlanTables.of(TableSet("mine", tuple(found)))


@pytest.mark.parametrize(
    "scheme",
    [
        Scheme(Exchange.RB),
        Scheme(Exchange.RB, 1, 2),
        Scheme(Exchange.RB, 3),
        Scheme(Exchange.TWO_LEVEL, 4, 2),
    ],
)
def test_equal_tables_are_placed_together_as_evenly_as_one_by_one(
    scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = equal((5, 10**6, 64, 40), (400, 10**4, 32, 5), (303, 10**4, 64, 10))
    evaluator = Evaluator.on(MACHINE, tables, 512, 12, gpus_per_node=4)
    o = options_of(evaluator, 80e9, [{scheme}] * 3)
    option = np.array([o.find(t, scheme) for t in range(len(tables))])
    dealt = pack(evaluator, o, option, 80e9)
    monkeypatch.setattr(packing, "_AT_ONCE", 10**9)
    single = pack(evaluator, o, option, 80e9)
    assert dealt is not None and single is not None
    assert dealt.time_s <= single.time_s * 1.01
    loads = evaluator.loads(dealt.plan())
    np.testing.assert_allclose((dealt.base + dealt.held).T, loads.values, rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(dealt.needs(), evaluator.memory(dealt.plan(), loads).total_bytes, rtol=1e-9)
    assert len({id(placement) for placement in dealt.plan().placements}) < len(tables)


def test_a_search_of_very_many_tables_keeps_its_effort() -> None:
    """Packing them one by one took ten times as much."""
    tables = equal((30_000, 10**5, 64, 10), (10_000, 10**5, 32, 5))
    evaluator = Evaluator.on(MACHINE, tables, 256, 128)
    search = Search(evaluator, 68e9, effort_s=2)
    found = search.run()
    assert search.budget.spent_s < 3
    assert found.memory.total_bytes.max() <= 68e9


def test_the_answer_keeps_the_effort_where_tables_are_many_and_differ() -> None:
    """Making plans even, and the next best of each table, took more than the search."""
    evaluator = Evaluator.on(MACHINE, distinct(400), 1024, 128, training=True)
    search = Search(evaluator, 68e9, effort_s=0.5)
    answer = outcome_of(search, search.run())
    assert search.budget.spent_s < 0.5 * 2
    assert sum(group.next_best is not None for group in answer.groups) >= 40


def test_no_plan_is_slower_than_that_of_a_part_of_its_schemes() -> None:
    """Listing the schemes took the whole effort, and one slow plan was left: 78 ms instead of 4."""
    tables = distinct(1200, rows_log10=(3, 7))
    for effort_s in (0.0, 0.3):
        evaluator = Evaluator.on(MACHINE, tables, 256, 64)
        whole = Search(evaluator, 68e9, effort_s=effort_s).run()
        part = Search(evaluator, 68e9, effort_s=effort_s, restrict=bags_and_copies).run()
        assert whole.cost.time_s <= part.cost.time_s * (1 + 1e-9)


def bags_and_copies(options: Options, evaluator: Evaluator) -> NDArray[np.bool_]:
    return np.isin(options.exchange, (Exchange.DP, Exchange.RB))


def test_more_different_tables_than_a_plan_can_choose_for_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(options, "MOST_KINDS", 11)
    evaluator = Evaluator.on(MACHINE, distinct(12), 256, 8)
    with pytest.raises(BadInputError, match="12 different tables are more than a plan"):
        Search(evaluator, 68e9)
    assert evaluator.work.seconds == 0
    assert Search(Evaluator.on(MACHINE, distinct(11, equal=3), 256, 8), 68e9, effort_s=0).run()
