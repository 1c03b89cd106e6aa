"""Many equal tables that change together: against all counts of a small case, and against a smaller space."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.for_torchrec.runnable import runnable
from perfmodel.plan.searching.evening import Evening
from perfmodel.plan.searching.improve import improve
from perfmodel.plan.searching.packing import Packing, pack
from perfmodel.plan.searching.regrouping import Regrouping
from perfmodel.plan.searching.starts import Starts
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"
LIMIT = 68e9


def never() -> bool:
    return False


def climbed(state: Packing, limit_bytes: float = LIMIT) -> Packing:
    """As long as changes of many tables help."""
    regrouping = Regrouping(state.evaluator, state.options, limit_bytes, np.random.default_rng(0))
    while (better := regrouping.better(state, never)) is not None:
        assert better.time_s < state.time_s
        state = better
    return state


def schemes(o: Options, cut: Callable[[int, int, int], bool]) -> Options:
    """Copies, and parts [exchange, r, c] that ``cut`` allows."""
    exchanges, r, c = (of.tolist() for of in (o.exchange, o.r, o.c))
    kept = [kind == Exchange.DP or cut(*each) for kind, *each in zip(exchanges, exchanges, r, c, strict=True)]
    return o.kept(np.array(kept) & (o.hot == 0))


@pytest.mark.parametrize(("rows", "pooling"), [((2e6, 3e6), (40, 5)), ((1e5, 8e6), (20, 30))])
def test_it_finds_the_best_counts_of_a_small_case(rows: tuple[float, ...], pooling: tuple[int, ...]) -> None:
    """Brute force: five tables of each of two kinds, copied, whole or in two, all packed, on 8 GPUs."""
    kinds = [(int(E), L) for E, L in zip(rows, pooling, strict=True) for _ in range(5)]
    tables = PlanTables.of(TableSet("two", tuple(Table(f"t{i}", E, 64, L) for i, (E, L) in enumerate(kinds))))
    evaluator = Evaluator.on(MACHINE, tables, 2048, 8, training=True, optimizer="sgd")
    room = 0.5 * tables.total_bytes
    o = schemes(options_of(evaluator, room), lambda kind, r, c: kind == Exchange.RB and r == 1 and c <= 2)
    found = []
    ways = [
        list(combinations_with_replacement(range(*of), 5)) for of in ((o.first[0], o.first[1]), o.first[1:])
    ]
    for first, other in product(*ways):
        state = pack(evaluator, o, np.array([*first, *other]), room)
        if state is not None:
            Evening(state, np.random.default_rng(0), quick=True).run(never)
            found.append((state.time_s, state))
    found.sort(key=lambda each: each[0])
    ends = [climbed(start, room).time_s for _, start in found[len(found) // 4 :: len(found) // 4]]
    assert min(ends) <= 1.001 * found[0][0]
    assert max(ends) <= 1.05 * found[0][0]


def test_it_leaves_a_plan_that_one_table_after_the_other_does_not() -> None:
    """Seventy equal tables on 64 GPUs: six GPUs have two, and cutting one of those leaves the other five."""
    tables = PlanTables.of(TableSet("equal", tuple(Table(f"t{i}", 1_000_000, 128, 20.0) for i in range(70))))
    evaluator = Evaluator.on(MACHINE, tables, 1024, 64)
    o = schemes(options_of(evaluator, LIMIT), lambda kind, r, c: r == 1 or r == 8)
    whole = np.flatnonzero((o.exchange == Exchange.RB) & (o.r == 1) & (o.c == 1))[0]
    start = pack(evaluator, o, np.full(70, whole), 4e9)
    assert start is not None
    alone = improve(start.copy(), np.ones(o.group.size, dtype=bool), never)
    assert climbed(start, 4e9).time_s < 0.99 * alone.time_s


def test_a_search_begins_no_worse_than_in_a_smaller_space() -> None:
    """Two hundred tables of 15 kinds on 64 GPUs: all schemes, and those that TorchRec can run, priced alike.

    The time and the memory that are kept up to date are those of the plan.
    """
    evaluator = Evaluator.on(MACHINE, PlanTables.load("embark-t200"), 1024, 64)
    every = options_of(evaluator, LIMIT)
    best = []
    for o in (every, every.kept(runnable(every, evaluator))):
        kept: list[Packing] = []
        Starts(evaluator, o, LIMIT, kept.append, never).run()
        best.append(min(kept, key=lambda state: state.time_s))
    full, less = best
    assert full.time_s <= 1.01 * less.time_s
    plan = full.plan()
    loads = evaluator.loads(plan)
    assert evaluator.step(loads).time_s == pytest.approx(full.time_s, rel=2e-3)
    assert evaluator.memory(plan, loads).total_bytes.max() <= LIMIT
