"""The bound holds for every plan that can be made, and the search meets the best plan of small cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.plans import exact

from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, Plan, PlanTables, Scheme
from perfmodel.plan.bounding.bound import Bounding, _by_copies
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.problem import Problem, Relaxation, Subspace
from perfmodel.plan.bounding.relaxation import relax
from perfmodel.plan.bounding.tangents import TO_US, Tangents
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.searching.packing import Packing, in_domains
from perfmodel.plan.searching.search import Search
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"


def random_tables(random: np.random.Generator, count: int) -> PlanTables:
    """Tables of random shapes, some of them equal."""
    shapes = [
        (
            int(10 ** random.uniform(2, 6)),
            int(random.choice([4, 8, 16])),
            float(random.choice([1, 4, 30])),
        )
        for _ in range(count)
    ]
    picked = [shapes[int(at)] for at in random.integers(0, count, count)]
    return PlanTables.of(TableSet("random", tuple(Table(f"t{i}", *shape) for i, shape in enumerate(picked))))


def random_plan(o: Options, evaluator: Evaluator, limit: float, random: np.random.Generator) -> Packing:
    """Any scheme for every table, on any ranks."""
    state = Packing(evaluator, o, limit)
    for table in range(o.kind_of.size):
        at = o.of(table)
        option = int(random.integers(at.start, at.stop))
        state.choose([table], np.array([option]))
        if state.ranks[table] is not None:
            continue
        if o.exchange[option] == Exchange.TWO_LEVEL:
            domains = random.permutation(o.gpus // o.domain)[: o.parts[option] // o.domain]
            state.put(table, in_domains(domains, o, option))
        else:
            state.put(table, random.permutation(o.gpus)[: o.parts[option]])
    return state


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_takes_less_than_the_bound(seed: int) -> None:
    random = np.random.default_rng(seed)
    tables = random_tables(random, 5)
    batch = int(random.choice([64, 4096]))
    evaluator = Evaluator.on(MACHINE, tables, batch, 16, gpus_per_node=4, training=bool(seed % 2))
    o = options_of(evaluator, np.inf)
    plans = [random_plan(o, evaluator, np.inf, random) for _ in range(200)]
    limit = float(np.median([plan.needs().max() for plan in plans]))
    plans = [plan for plan in plans if plan.needs().max() <= limit]
    times = [float(evaluator.step_times(evaluator.loads(plan.plan()).most)) for plan in plans]
    problem = Problem(o, StepCurves.of(evaluator), limit, 1.0)
    bounding = Bounding(problem, lambda part, relaxed: 1.0, 0.01)
    solved = iter(range(60))
    bounding.run(lambda: next(solved, None) is None)
    assert 0 < bounding.bound_s <= min(times), f"seed {seed}"
    for plan in plans[:5]:  # and of the plans that use the very same kinds of exchange
        used = np.isin(np.arange(len(Exchange)), o.exchange[plan.option])
        exchanged = used & (np.arange(used.size) != Exchange.DP)
        part = replace(Subspace.whole(problem), allowed=used, forced=exchanged)
        found = relax(problem, part, np.zeros(0, dtype=np.int64), tolerance=0.01)
        assert found is not None
        assert found.bound_s <= plan.time_s * (1 + 1e-9), f"seed {seed}"


@pytest.mark.parametrize("seed", range(12))
def test_the_search_finds_the_best_plan_of_a_small_case(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(100 + seed)
    gpus = int(random.choice([2, 3, 4]))
    tables = random_tables(random, int(random.choice([1, 2, 3])))
    node = 2 if gpus == 4 and seed % 2 else None
    evaluator = Evaluator.on(
        MACHINE, tables, int(random.choice([64, 8192])), gpus, gpus_per_node=node, training=seed % 3 == 0
    )
    buffers = evaluator.memory(random_plan_for_size(evaluator)).buffer_bytes.max()
    limit = tables.total_bytes * random.choice([0.6, 0.9, 1.1]) + float(buffers)
    best = exact(evaluator, limit)
    found = Search(evaluator, limit, effort_s=0.3).run()
    time_s = float(evaluator.step_times(evaluator.loads(found.plan).most))
    assert time_s <= best.time_s * 1.01, f"seed {seed}"
    assert found.bound_s <= best.time_s * 1.001, f"seed {seed}"
    blind = bounded(evaluator, limit)  # the search's own bound knows its plan: this one does not
    assert 0.2 * best.time_s < blind <= best.time_s, f"seed {seed}"


def bounded(evaluator: Evaluator, limit: float, parts: int = 60) -> float:
    """The bound of some parts, with no plan to stop at [s]."""
    problem = Problem(options_of(evaluator, limit), StepCurves.of(evaluator), limit, 1.0)
    bounding = Bounding(problem, lambda part, relaxed: 1.0, 0.01)
    solved = iter(range(parts))
    bounding.run(lambda: next(solved, None) is None)
    return bounding.bound_s


def test_a_bound_holds_while_a_part_is_solved_and_after_ctrl_c() -> None:
    """The part that is under way still holds plans: it counts until its own parts do."""
    evaluator = Evaluator.on(MACHINE, random_tables(np.random.default_rng(3), 5), 4096, 16, gpus_per_node=4)
    limit = evaluator.tables.total_bytes / 2
    best = bounded(evaluator, limit)
    problem = Problem(options_of(evaluator, limit), StepCurves.of(evaluator), limit, 1.0)
    seen: list[float] = []

    def found(part: Subspace, relaxed: Relaxation) -> float:
        seen.append(bounding.bound_s)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return 1.0

    bounding = Bounding(problem, found, 0.01)
    with pytest.raises(KeyboardInterrupt):
        bounding.run(lambda: False)
    assert seen == sorted(seen) and seen[0] > 0 and seen[-1] <= best
    assert bounding.bound_s <= best


def test_two_and_a_half_copied_tables_are_three_or_more_or_two_or_fewer() -> None:
    """Of four equal ones of 64 kB in 1 GB, where all of it once more would save 1 s; no word of a fifth."""
    five = tuple(Table(f"t{i}", rows, 16, 4.0) for i, rows in enumerate([1000] * 4 + [2000]))
    evaluator = Evaluator.on(MACHINE, PlanTables.of(TableSet("five", five)), 256, 4)
    problem = Problem(options_of(evaluator, 1e9), StepCurves.of(evaluator), 1e9, 1.0)
    copies = np.flatnonzero(problem.options.exchange == Exchange.DP)
    none, columns = np.zeros(0), np.zeros((0, 2), dtype=np.int64)
    relaxed = Relaxation(0.0, copies, np.array([2.5 / 4, 0]), columns, none, none, none, 1.0)
    worth, parts = _by_copies(problem, Subspace.whole(problem), relaxed)
    assert worth == pytest.approx(0.5 * 64e3 / 1e9)
    assert [part.fewest.tolist() for part in parts] == [[3 / 4, 0], [0, 0]]
    assert [part.most.tolist() for part in parts] == [[1, 1], [2 / 4, 1]]


def test_all_plans_are_tried_whatever_the_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = PlanTables.of(TableSet("two", (Table("rare", 10**6, 16, 1), Table("busy", 10**6, 16, 50))))
    evaluator = Evaluator.on(MACHINE, tables, 256, 2)
    whole = exact(evaluator, 64e6 + 40e6)
    monkeypatch.setattr("oracles.plans._CHUNK", 7)
    np.testing.assert_array_equal(exact(evaluator, 64e6 + 40e6).option, whole.option)


def random_plan_for_size(evaluator: Evaluator) -> Plan:
    """Any plan: for the size of its buffers."""
    o = options_of(evaluator, np.inf)
    return random_plan(o, evaluator, np.inf, np.random.default_rng(0)).plan()


def test_the_best_of_two_tables_is_a_copy_of_the_busy_one() -> None:
    # one fits beside the shards: it is the one that is looked up 50 times as often
    tables = PlanTables.of(TableSet("two", (Table("rare", 10**6, 16, 1), Table("busy", 10**6, 16, 50))))
    evaluator = Evaluator.on(MACHINE, tables, 256, 2)
    best = exact(evaluator, 64e6 + 40e6)
    assert best.options.scheme(int(best.option[1])) == Scheme(Exchange.DP)
    assert best.options.scheme(int(best.option[0])).kind != Exchange.DP


def test_too_many_plans_are_refused() -> None:
    tables = PlanTables.load("mlperf-dlrm-dcnv2")
    with pytest.raises(BadInputError, match=r"plans are too many to try"):
        exact(Evaluator.on(MACHINE, tables, 64, 4), 80e9)


def hull(sizes: np.ndarray, line: np.ndarray) -> np.ndarray:
    """The lower convex hull of points, at their sizes."""
    corners: list[int] = []
    for at in range(sizes.size):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (line[b] - line[a]) * (sizes[at] - sizes[a]) < (line[at] - line[a]) * (sizes[b] - sizes[a]):
                break
            corners.pop()
        corners.append(at)
    return np.interp(sizes, sizes[corners], line[corners])


@pytest.mark.parametrize(("first", "last"), [(1, 5000), (1000, 6000), (4000, 4001)])
def test_tangents_are_under_the_curves_and_close_to_their_hull(first: int, last: int) -> None:
    evaluator = Evaluator.on(MACHINE, random_tables(np.random.default_rng(5), 5), 512, 16)
    curves = StepCurves.of(evaluator)
    places = np.ones(len(curves.times), dtype=np.int64)
    slope, cut = Tangents(curves).of(places * first, places * last)
    sizes = curves.sizes[first : last + 1]
    for p, times in enumerate(curves.times):
        lines = (slope[p][:, np.newaxis] * sizes + cut[p][:, np.newaxis]).max(axis=0)
        best = hull(sizes, times[first : last + 1] * TO_US)
        assert (lines <= best * (1 + 1e-9)).all()
        assert (lines >= best * 0.96).all(), (p, float((lines / best).min()))
