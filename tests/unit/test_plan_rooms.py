"""The bound by rooms: no plan is below it, it sees that shards are whole, and plans come of its patterns."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles.bound_cases import random_case, rooms_s
from oracles.plan_files import Case, descended, every_plan

from perfmodel.model.exchanges import Exchange
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.bounding import linear
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.problem import Problem
from perfmodel.plan.bounding.rooms import NearRooms, RoomBound
from perfmodel.plan.bounding.shard_patterns import ShardSizes, listed, most_worth, on_ranks
from perfmodel.plan.bounding.tangents import TO_US
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.searching.by_patterns import by_patterns
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"


def sizes_of(load: list[list[float]], shards: list[float], tables: int = 99) -> ShardSizes:
    """Of tables that are of one kind each."""
    many = np.full(len(shards), float(tables))
    return ShardSizes(np.array(load), np.arange(len(shards)), np.array(shards), many)


def problem_of(evaluator: Evaluator, o: Options, limit: float, known_s: float) -> Problem:
    return Problem(o, StepCurves.of(evaluator), limit, known_s)


def test_shards_above_half_of_a_rank_need_a_rank_each() -> None:
    room, kind = np.ones(1), np.arange(1)
    five = on_ranks(sizes_of([[0.6]], [5.0]), room, 4.0, np.array([[0.6]]), kind)
    assert five.row is not None
    assert five.row.worth == pytest.approx([1.0])  # 5 > 4 K with K = 1
    four = on_ranks(sizes_of([[0.6]], [4.0]), room, 4.0, np.array([[0.6]]), kind)
    assert four.row is None
    assert four.ranks @ four.number == pytest.approx([4.0])


def test_hardly_any_shards_need_hardly_any_room() -> None:
    found = on_ranks(sizes_of([[0.1]], [2e-6]), np.ones(1), 4.0, np.array([[0.1]]), np.arange(1))
    assert found.row is None
    assert found.most == pytest.approx([0.0])
    assert found.ranks.size == 0


def test_shards_that_fit_in_each_resource_may_not_fit_together() -> None:
    """Two of a kind are too much of one resource, one of each of the other: no two are together."""
    load = [[0.6, 0.1], [0.1, 0.6], [0.5, 0.5]]
    found = on_ranks(sizes_of(load, [2.0, 2.0, 1.0]), np.ones(2), 2.0, np.array(load), np.arange(3))
    assert found.row is not None
    assert (found.row.worth * [2, 2, 1]).sum() > 2.0
    pairs = listed(sizes_of(load, [2.0, 2.0, 1.0]), np.ones(2))
    assert pairs is not None
    assert sorted(map(tuple, pairs[1].tolist())) == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 0, 2),
        (0, 1, 0),
        (1, 0, 0),
        (1, 1, 0),
    ]


@pytest.mark.parametrize("seed", range(8))
def test_no_ranks_break_a_row(seed: int) -> None:
    """Shards of any options, put on ranks at random: what they are worth is below what the row says."""
    random = np.random.default_rng(seed)
    options, ranks, D = 14, 6, 3
    load = random.uniform(0.05, 0.7, (options, D)) * random.choice([0.1, 1], (options, D))
    kind = random.integers(0, 6, options)
    tables = random.integers(1, 4, 6).astype(float)
    some = np.sort(random.choice(options, 5, replace=False))
    rows = []
    for many in (1.0, 2.0, 4.0, 8.0, 16.0):
        sizes = ShardSizes(load[some], kind[some], many * random.uniform(0.5, 1.5, 5), tables[kind[some]])
        found = on_ranks(sizes, np.ones(D), float(ranks), load, kind)
        rows += [found.row] if found.row is not None else []
    assert rows
    for _ in range(300):
        number = np.zeros((ranks, options), dtype=np.int64)
        for shard in random.integers(0, options, 60):
            at = random.integers(ranks)
            more = number[at] + (np.arange(options) == shard)
            few = np.bincount(kind, more, 6) <= tables
            if few.all() and (more @ load <= 1).all():
                number[at] = more
        room = (number @ load).max(axis=0)  # less than there was: K may be less
        for row in rows:
            worth = float((number @ row.worth).sum())
            assert worth <= ranks * most_worth([row], room)[0] * (1 + 1e-9)


def whole_tables(count: int, gpus: int, limit: float = np.inf) -> tuple[Evaluator, Options]:
    """Equal tables that are on one rank each."""
    tables = PlanTables.of(TableSet("equal", tuple(Table(f"t{i}", 10**5, 128, 64) for i in range(count))))
    evaluator = Evaluator.on(MACHINE, tables, 4096, gpus)
    o = options_of(evaluator, limit)
    return evaluator, o.kept((o.exchange == Exchange.RB) & (o.parts == 1) & (o.hot == 0))


def test_it_sees_that_one_rank_has_two_of_five_tables() -> None:
    evaluator, o = whole_tables(5, 4)
    loads = o.everywhere[0] * 5 + o.own[0] * 2
    best_s = float(evaluator.step_times(loads))
    mean_s = float(evaluator.step_times(o.everywhere[0] * 5 + o.own[0] * 5 / 4))
    assert mean_s < 0.8 * best_s
    found = RoomBound(problem_of(evaluator, o, np.inf, best_s * 1.2), best_s * 1.1 * TO_US)
    found.run(lambda: False)
    assert 0.99 * best_s < found.bound_us / TO_US <= best_s


def test_it_is_below_the_best_of_all_listed_plans() -> None:
    tables = PlanTables.of(TableSet("few", (Table("a", 3 * 10**5, 24, 8), Table("b", 10**4, 12, 3))))
    case = Case(Evaluator.on(MACHINE, tables, 4096, 3), 25e6, listed=True)
    best_s, _ = every_plan(case, {})
    assert 0.9 * best_s < rooms_s(case, best_s * 4 / 3) <= best_s


@pytest.mark.parametrize("seed", [1, 11, 48, 68])  # 48, 68: copies alone; copies of the one row in use
def test_no_plan_that_was_tried_is_below_it(seed: int) -> None:
    random = np.random.default_rng(seed)
    case = random_case(random)
    case = Case(case.evaluator, case.limit_bytes, listed=True)
    best_s, _ = descended(case, random, 40, 80)
    assert 0.3 * best_s < rooms_s(case, best_s * 4 / 3, seconds=0.7) <= best_s * (1 + 1e-9)


def test_it_is_true_whenever_it_is_stopped() -> None:
    evaluator, o = whole_tables(5, 4)
    best_s = float(evaluator.step_times(o.everywhere[0] * 5 + o.own[0] * 2))
    before = 0.0
    bound = RoomBound(problem_of(evaluator, o, np.inf, best_s * 1.2), best_s * 1.1 * TO_US)
    for _ in range(300):
        left = iter([False] * 3)
        bound.run(lambda left=left: next(left, True))  # type: ignore[misc]
        assert before <= bound.bound_us <= best_s * TO_US
        before = bound.bound_us
    assert before > 0.99 * best_s * TO_US


def near_plans(evaluator: Evaluator, o: Options, limit: float, seconds: int) -> list[NearRooms]:
    known_s = float(evaluator.step_times(o.everywhere.max(axis=0) * 60 + o.own.max(axis=0) * 60))
    found: list[NearRooms] = []
    bound = RoomBound(problem_of(evaluator, o, limit, known_s), known_s * TO_US, found.append)
    left = iter([False] * seconds)
    bound.run(lambda: next(left, True))
    return found


@pytest.mark.parametrize("two_level", [False, True])
def test_plans_of_patterns_hold_every_shard_once(two_level: bool) -> None:
    shapes = ((3 * 10**6, 128, 20), (10**6, 64, 60), (4 * 10**6, 32, 2))
    tables = tuple(Table(f"t{k}{i}", *shape) for k, shape in enumerate(shapes) for i in range(7))
    evaluator = Evaluator.on(MACHINE, PlanTables.of(TableSet("some", tables)), 2048, 16)
    o, limit = options_of(evaluator, 40e9), 40e9
    o = o.kept(np.isin(o.exchange, [Exchange.DP, Exchange.TWO_LEVEL if two_level else Exchange.RB]))
    states = [by_patterns(evaluator, o, near, limit) for near in near_plans(evaluator, o, limit, 40)]
    made = [state for state in states if state is not None]
    assert made
    for state in made:
        plan = state.plan()  # which checks that no rank holds two parts of a table
        loads = evaluator.loads(plan)
        shards: NDArray[np.int64] = np.array([p.ranks.size for p in plan.placements])
        cut = o.parts[state.option]
        assert (shards[cut > 0] == cut[cut > 0]).all()
        np.testing.assert_allclose(loads.most, state.most, rtol=1e-9, atol=1e-3)
        assert float(evaluator.step_times(loads.most)) == pytest.approx(state.time_s, rel=1e-9)


def test_a_program_that_is_given_up_is_solved_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.optimize

    asked, real = list[dict[str, bool]](), scipy.optimize.linprog

    def first_gives_up(*program: object, **way: object) -> object:
        options = way["options"]
        assert isinstance(options, dict)
        asked.append(options)
        found = real(*program, **way)  # type: ignore[call-overload]
        if len(asked) == 1:
            found.x = None
        return found

    monkeypatch.setattr(scipy.optimize, "linprog", first_gives_up)
    found = linear.least(np.ones(2), -np.ones((1, 2)), np.array([-3.0]))
    assert found.fun == pytest.approx(3.0)
    assert asked == [{"presolve": False}, {"presolve": True}]
