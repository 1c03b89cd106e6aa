"""Files of very many tables: equal ones are dealt in turn, and a search keeps its time."""

from __future__ import annotations

import numpy as np
import pytest
from test_plan_starts import distinct

from perfmodel.engine.schemes import Exchange
from perfmodel.plan import Evaluator, PlanTables, Scheme
from perfmodel.plan.choices.options import options_of
from perfmodel.plan.outcome import outcome_of
from perfmodel.plan.searching import packing
from perfmodel.plan.searching.packing import Packing, pack
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
def test_equal_tables_are_dealt_in_turn_as_evenly_as_one_by_one(
    scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = equal((5, 10**6, 64, 40), (400, 10**4, 32, 5), (303, 10**4, 64, 10))
    evaluator = Evaluator.on(MACHINE, tables, 512, 12, gpus_per_node=4)
    o = options_of(evaluator, 80e9, [scheme] * len(tables))
    option = np.array([o.find(t, scheme) for t in range(len(tables))])
    dealt = pack(evaluator, o, option, 80e9)
    monkeypatch.setattr(packing, "_in_rounds", lambda *_: 0)
    single = pack(evaluator, o, option, 80e9)
    assert dealt is not None and single is not None
    assert dealt.time_s <= single.time_s * 1.01
    loads = evaluator.loads(dealt.plan())
    np.testing.assert_allclose((dealt.base + dealt.held).T, loads.values, rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(dealt.needs(), evaluator.memory(dealt.plan(), loads).total_bytes, rtol=1e-9)
    assert len({id(placement) for placement in dealt.plan().placements}) < len(tables)


def test_ranks_that_are_nearly_full_get_no_turn() -> None:
    tables = equal((1, 4_000_000, 64, 1), (600, 10**5, 64, 10))
    evaluator = Evaluator.on(MACHINE, tables, 64, 4)
    limit = float(tables.total_bytes) / 4 * 1.02
    o = options_of(evaluator, limit)
    option = np.array([o.find(t, Scheme(Exchange.RB)) for t in range(len(tables))])
    state = pack(evaluator, o, option, limit)
    assert isinstance(state, Packing)
    assert state.needs().max() <= limit


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
    assert sum(group.reason is not None for group in answer.groups) >= 40
