"""Constraints: every placement obeys them, a plan file is held to them, and the bound stays one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perfmodel.engine.placement import check_scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.errors import BadInputError
from perfmodel.plan import Placement, Plan, PlanTables, Scheme
from perfmodel.plan.choices.table_rules import TableRule, typed_rules
from perfmodel.plan.question import PlanQuestion
from perfmodel.schema.distributions import UNIFORM, zipf
from perfmodel.schema.machine import load_machine
from perfmodel.schema.workload import Table, TableSet

TABLES = TableSet(
    "six",
    (
        Table("user_a", 4_000_000, 64, 20.0),
        Table("user_b", 4_000_000, 64, 20.0),
        Table("item_a", 900_000, 128, 5.0),
        Table("item_b", 30_000, 32, 1.0),
        Table("geo", 500, 16, 2.0),
        Table("deep", 2_000_000, 96, 60.0),
    ),
)


def question(rules: tuple[TableRule, ...], gpus: int = 16, **more: Any) -> PlanQuestion:
    tables = PlanTables.of(TABLES, more.pop("ids", zipf(1.05)))
    machine = load_machine("h100-sxm-ib")
    options = {"batch": 512, "most_bytes": 1.5e9, "effort_s": 0.1, **more}
    return PlanQuestion(tables=tables, machine=machine, gpus=gpus, rules=rules, **options)


def held(plan: Plan, name: str) -> Placement:
    return plan.placements[plan.tables.names.index(name)]


@pytest.mark.parametrize(("gpus", "training"), [(4, True), (16, False)])
def test_a_search_obeys(gpus: int, training: bool) -> None:
    """Each rule is read off the plan, without the code that applies it."""
    rules = typed_rules(
        ["user_a=row-wise", "item_a=column-wise,table-wise", "deep=unique,data-parallel", "user_b=ranks:0-2"],
        ["geo=data-parallel", "item_*=unique,hot-rows", "item_b=ranks:0+1", "deep=hot-rows"],
    )
    plan = question(rules, gpus, training=training).answer().plan
    a, b, item_a, item_b, geo, deep = (held(plan, name) for name in plan.tables.names)
    assert (a.scheme.row_parts, a.scheme.col_parts) == (gpus, 1)
    assert b.ranks.size and set(b.ranks.tolist()) <= {0, 1, 2} and not b.scheme.hot_rows
    assert item_a.scheme.row_parts == 1 and item_a.scheme.kind not in (Exchange.DP, Exchange.UB)
    assert item_a.scheme.hot_rows == 0 and item_b.scheme.kind != Exchange.UB
    assert item_b.ranks.size and not {0, 1} & set(item_b.ranks.tolist())
    assert geo.scheme.kind != Exchange.DP
    assert deep.scheme.kind in (Exchange.UB, Exchange.DP) and deep.scheme.hot_rows == 0


@pytest.mark.parametrize("seed", range(4))
def test_random_rules_are_obeyed(seed: int) -> None:
    """Random rules on random tables: what came out is allowed, table by table."""
    random = np.random.default_rng(seed)
    shardings = ["data-parallel", "table-wise", "column-wise", "row-wise", "3d"]
    rules, wanted = [], {}
    for table in TABLES.tables:
        some = list(random.choice(shardings, size=2, replace=False))
        ranks = sorted(random.choice(8, size=3, replace=False).tolist())
        if random.random() < 0.5:
            rules += typed_rules([f"{table.name}={','.join(some)}"], [])
            wanted[table.name] = (some, None)
        else:
            rules += typed_rules([f"{table.name}=ranks:{'+'.join(map(str, ranks))}"], [])
            wanted[table.name] = (None, ranks)
    plan = question(tuple(rules), 8, seed=seed).answer().plan
    for name, (some, ranks) in wanted.items():
        placement = held(plan, name)
        if some is not None:
            assert placement.sharding(8, 8) in some
        else:
            assert placement.ranks.size and set(placement.ranks.tolist()) <= set(ranks)


def test_the_bound_holds_for_every_allowed_plan() -> None:
    """Brute force: all placements of three tables on three GPUs that the rules allow."""
    small = TableSet("three", TABLES.tables[2:5])
    rules = typed_rules(["item_a=table-wise,column-wise"], ["geo=data-parallel", "item_b=ranks:0"])
    asked = replace(question(rules, 3), tables=PlanTables.of(small), effort_s=0.2)
    found = asked.answer().found
    cut = [Scheme(Exchange.RB)], [Scheme(Exchange.RB, 1, c) for c in (2, 3)]
    item_a = [(s, r) for s in (*cut[0], *cut[1]) for r in itertools.combinations(range(3), s.parts)]
    kinds = [
        Scheme(kind, r, c, 0)
        for kind in (Exchange.RB, Exchange.UB)
        for r, c in ((1, 1), (2, 1), (3, 1), (1, 3))
    ]
    item_b = [(s, r) for s in kinds for r in itertools.combinations((1, 2), s.parts)]
    geo = [(s, r) for s in kinds for r in itertools.combinations(range(3), s.parts)]
    constraints, evaluator = asked.constraints, asked.evaluator
    assert constraints is not None
    least = np.inf
    for parts in itertools.product(item_a, item_b, geo):
        placements = tuple(Placement.of(scheme, ranks) for scheme, ranks in parts)
        plan = Plan(constraints.tables, placements, 3, 3)
        constraints.check(plan)
        least = min(least, float(evaluator.time_passes(evaluator.loads(plan).most[np.newaxis])[0]))
    assert found.bound_s <= least * (1 + 1e-9)
    assert found.cost.time_s <= least * 1.01


def test_a_plan_of_a_file_is_held_to_the_rules() -> None:
    asked = question(())
    plan = asked.answer().plan
    name = next(n for n, p in zip(plan.tables.names, plan.placements, strict=True) if p.ranks.size)
    rank = int(held(plan, name).ranks[0])
    with pytest.raises(BadInputError, match=f"{name}.*may not be on rank {rank}"):
        replace(asked, rules=typed_rules([], [f"{name}=ranks:{rank}"])).given(plan)
    sharding = held(plan, name).sharding(plan.gpus, plan.domain).replace("table-column-wise", "column-wise")
    with pytest.raises(BadInputError, match=f"{name}.*may not be {sharding}"):
        replace(asked, rules=typed_rules([], [f"{name}={sharding}"])).given(plan)
    assert replace(asked, rules=typed_rules([f"{name}={sharding}"], [])).given(plan).constrained


@pytest.mark.parametrize("for_torchrec", [False, True])
def test_columns_stay_inside_one_domain(for_torchrec: bool) -> None:
    """Whichever domain; of equal tables each in its own. One domain holds all GPUs: any are inside it."""
    rules = typed_rules(["user_*=table-column-wise", "deep=table-column-wise,row-wise", "item_a=bags"], [])
    more: dict[str, Any] = {"batch": 4096, "most_bytes": 3e9, "for_torchrec": for_torchrec}
    asked = question(rules, 32, ids=UNIFORM, costs={"gpus_per_node": 4}, **more)
    plan = asked.answer().plan
    assert plan.domain == 4
    for name in ("user_a", "user_b"):
        placement = held(plan, name)
        assert placement.scheme.row_parts == 1 and 1 < placement.scheme.col_parts <= 4
        assert np.unique(placement.ranks // 4).size == 1
    assert held(plan, "deep").sharding(32, 4) in ("row-wise", "table-column-wise")
    apart = replace(plan, placements=(Placement.of(Scheme(Exchange.RB, 1, 2), [0, 4]), *plan.placements[1:]))
    with pytest.raises(BadInputError, match=r"user_a.*columns in several scale-up domains"):
        asked.given(apart)
    scheme = held(question(rules, 8, ids=UNIFORM, batch=4096).answer().plan, "user_a").scheme
    assert scheme.row_parts == 1 and scheme.col_parts > 1


@pytest.mark.parametrize(
    ("only", "without", "words"),
    [
        (["users=row-wise"], [], "--only users=row-wise: table 'users' is not known"),
        (["row"], [], "sharding or exchange 'row' is not known"),
        ([], ["table-column-wise"], "case of column-wise, and cannot be forbidden alone"),
        (["user_a=table-column-wise"], ["user_a=column-wise"], "user_a.*none is allowed"),
        (["geo=ranks:99"], [], "rank 99 does not exist"),
        (["geo=ranks:7-3"], [], "run backwards"),
        (["geo=ranks:x"], [], "are not ranks"),
        ([], ["ranks:100-9999999"], "more than 1 048 576 ranks"),
        (["geo="], [], "names nothing"),
        (["geo=row-wise"], ["geo=row-wise"], "geo.*none is allowed"),
        (["geo=ranks:0"], ["geo=ranks:0"], "geo.*no rank is left"),
        (["user_a=two-level,table-wise"], [], "user_a.*none is allowed"),
    ],
)
def test_rules_that_say_nothing(only: list[str], without: list[str], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        question(typed_rules(only, without)).answer()


def any_plan(asked: PlanQuestion, random: np.random.Generator) -> Plan | None:
    """A plan of any parts, exchanges, hot rows and ranks that the rules allow; None if the draw is none."""
    placements = [any_placement(asked, t, random) for t in range(len(asked.tables))]
    constraints = asked.constraints
    assert constraints is not None
    try:
        plan = Plan(constraints.tables, tuple(placements), asked.gpus, constraints.domain)
        constraints.check(plan)
    except BadInputError:
        return None
    return plan


def any_placement(asked: PlanQuestion, t: int, random: np.random.Generator) -> Placement:
    """One table, drawn until its scheme can be and is allowed."""
    constraints, gpus = asked.constraints, asked.gpus
    assert constraints is not None
    name, rows, dim = (getattr(constraints.tables, x)[t] for x in ("names", "rows", "dim"))
    while True:
        kind = Exchange(int(random.integers(len(Exchange))))
        r, c = (1, 1) if kind == Exchange.DP else (int(random.integers(1, gpus + 1)) for _ in range(2))
        hot = int(random.choice([0, 7, 100])) if kind in (Exchange.RB, Exchange.UB) else 0
        scheme = Scheme(kind, gpus if kind == Exchange.RS else r, 1 if kind == Exchange.RS else c, hot)
        try:
            check_scheme(name, int(rows), int(dim), scheme, gpus, constraints.domain)
        except BadInputError:
            continue
        if not constraints.allowed[t].why_not(scheme, gpus, constraints.domain):
            return Placement.of(scheme, random.permutation(gpus)[: scheme.parts])


@pytest.mark.parametrize("seed", range(4))
def test_no_allowed_plan_is_below_the_bound(seed: int) -> None:
    """Random rules, then random plans that they allow, with parts that a search does not look at."""
    random = np.random.default_rng(seed)
    small = TableSet("some", tuple(TABLES.tables[i] for i in random.choice(6, size=3, replace=False)))
    gpus = int(random.choice([3, 4, 6]))
    names = ["data-parallel", "table-wise", "column-wise", "row-wise", "3d", "unique", "sparse", "bags"]
    without = [f"{table.name}={','.join(random.choice(names, size=2))}" for table in small.tables]
    barred = f"{small.tables[0].name}=ranks:{int(random.integers(gpus))}"
    rules = typed_rules([], [*without, barred])
    base = question(rules, gpus, most_bytes=1.2e9, training=bool(seed % 2))
    asked = replace(base, tables=PlanTables.of(small, zipf(1.05)))
    try:
        found = asked.answer().found
    except BadInputError:
        pytest.skip("nothing fits these rules")
    assert asked.constraints is not None
    asked.constraints.check(found.plan)
    times, tried = [], 0
    while len(times) < 60 and tried < 2000:
        tried += 1
        plan = any_plan(asked, random)
        time_s = None if plan is None else asked.recosted(plan)
        if time_s is not None:
            times.append(time_s)
    assert len(times) >= 20 and found.bound_s <= min(times) * (1 + 1e-9)
    assert found.bound_s <= found.cost.time_s


@pytest.mark.parametrize(
    ("rules", "why", "step"),
    [
        (
            ["row-wise"],
            "row-wise needs a row for each of 1 024 GPUs; the table has 500 rows",
            "--only row-wise",
        ),
        (
            ["geo=row-wise"],
            "'geo': row-wise needs a row for each",
            "--only geo=row-wise,data-parallel: small",
        ),
        (
            ["geo*=row-wise"],
            "'geo': row-wise needs a row for each",
            "--only 'geo*=row-wise,data-parallel': small",
        ),
        (
            ["geo=reduced"],
            "reduced needs a row for each of 1 024 GPUs; the table has 500 rows",
            "--only geo=reduced,data-parallel: small",
        ),
        (["geo=row-wise", "g*=unique"], "row-wise needs a row", "allow data-parallel too"),
        (["geo=ranks:0"], None, None),
        (["geo=table-row-wise", "geo=ranks:0"], "of what fits .* none is allowed", "leaves nothing"),
    ],
)
def test_a_table_that_is_too_small_for_its_sharding_is_told_so(
    rules: list[str], why: str | None, step: str | None
) -> None:
    asked = question(typed_rules(rules, []), 1024, most_bytes=60e9)
    if why is None or step is None:
        asked.options()
        return
    with pytest.raises(BadInputError, match=why) as caught:
        asked.options()
    assert step in caught.value.next_step


def test_the_rule_that_a_small_table_suggests_can_be_used() -> None:
    """Row-wise, and what has fewer rows than GPUs whole on each: the baseline of the answer."""
    with pytest.raises(BadInputError, match="the table has 500 rows") as caught:
        question(typed_rules(["row-wise"], []), 1024, most_bytes=60e9).options()
    rule = caught.value.next_step.removeprefix("--only ").split(":")[0]
    plan = question(typed_rules([rule], []), 1024, most_bytes=60e9, effort_s=0.2).answer().plan
    assert not held(plan, "geo").ranks.size and held(plan, "deep").scheme.row_parts in (1, 1024)


def test_a_table_with_few_columns_cannot_be_split_by_them() -> None:
    narrow = TableSet("one", (Table("flag", 9_000_000, 4, 1.0),))
    asked = replace(question(typed_rules(["column-wise"], [])), tables=PlanTables.of(narrow))
    with pytest.raises(BadInputError, match="column-wise needs 8 columns or more; the table has 4 columns"):
        asked.options()


def test_a_table_with_fewer_rows_than_a_domain_has_gpus_is_not_reduced_there() -> None:
    tiny = TableSet("one", (Table("flag", 3, 64, 1.0),))
    asked = replace(question(typed_rules(["two-level"], [])), tables=PlanTables.of(tiny))
    with pytest.raises(BadInputError, match=r"two-level needs .* of a scale-up domain; the table has 3 rows"):
        asked.options()
