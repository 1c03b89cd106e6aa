"""Constraints: every placement obeys them, a plan file is held to them, and the bound stays one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from searches import ask_plan

from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.errors import BadInputError
from perfmodel.plan.choices import constraints
from perfmodel.plan.question import PlanQuestion
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


def question(only: Sequence[str], gpus: int = 16, tables: TableSet = TABLES, **more: Any) -> PlanQuestion:
    options = {"batch": 512, "most_bytes": 1.5e9, "distribution": "zipf:1.05", **more}
    return ask_plan(tables, gpus, only=only, **options)


def held(plan: Plan, name: str) -> Placement:
    return plan.placements[plan.tables.names.index(name)]


def test_rules_that_want_another_exchange_for_each_table_have_a_plan() -> None:
    """TorchRec's row-wise is reduced, its table-wise sends bags: no kind of exchange alone has a plan."""
    rules = ["user_*=row-wise", "item_*=table-wise", "deep=column-wise", "geo=data-parallel"]
    plan = question(rules, 8, for_torchrec=True, effort_s=0.0).plan().plan
    kinds = [held(plan, name).scheme.kind for name in ("user_a", "item_a", "geo")]
    assert kinds == [Exchange.RS, Exchange.RB, Exchange.DP]


@pytest.mark.parametrize("seed", range(4))
def test_random_rules_are_obeyed(seed: int) -> None:
    """Random rules on random tables: what came out is allowed, read off the plan table by table."""
    random = np.random.default_rng(seed)
    shardings = ["data-parallel", "table-wise", "column-wise", "row-wise", "3d", "unique"]
    wanted = {table.name: list(random.choice(shardings, size=2, replace=False)) for table in TABLES.tables}
    rules = [f"{name}={','.join(words)}" for name, words in wanted.items()]
    plan = question(rules, 8, objective="training" if seed % 2 else "latency").plan().plan
    for name, words in wanted.items():
        placement = held(plan, name)
        unique = "unique" in words and placement.scheme.kind == Exchange.UB
        assert unique or placement.sharding(8, 8) in words, name


def test_a_plan_of_a_file_is_held_to_the_rules() -> None:
    asked = question([])
    plan = asked.plan().plan
    name = next(n for n, p in zip(plan.tables.names, plan.placements, strict=True) if p.ranks.size)
    sharding = held(plan, name).sharding(plan.gpus, plan.domain).replace("table-column-wise", "column-wise")
    with pytest.raises(BadInputError, match=f"{name}.*may not be {sharding}"):
        question([f"{name}=data-parallel"]).price(plan)
    assert question([f"{name}={sharding}"]).price(plan).given


@pytest.mark.parametrize(
    ("only", "words"),
    [
        (["users=row-wise"], "--only users=row-wise: table 'users' is not known"),
        (["row"], "sharding or exchange 'row' is not known"),
        (["t*=hot-rows"], "table 't\\*' is not known"),
        (["table-column-wise"], "case of column-wise, and cannot be asked for alone"),
        (["geo="], "names nothing"),
        (["geo=row-wise", "geo=table-wise"], "geo.*none is allowed"),
        (["user_a=two-level,table-wise"], "user_a.*none is allowed"),
        (["missing.json"], "missing.json"),
    ],
)
def test_rules_that_say_nothing(only: list[str], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        question(only).plan()


def constraints_of(path: Path, **fields: Any) -> list[str]:
    path.write_text(json.dumps({"item_a": fields}), encoding="utf-8")
    return [str(path)]


def test_constraints_of_torchrec_are_obeyed(tmp_path: Path) -> None:
    """As ``dataclasses.asdict`` writes TorchRec's: what is not set says nothing."""
    unset = {"pooling_factors": [1.0], "is_weighted": False, "use_virtual_table": False, "num_poolings": None}
    said = {"sharding_types": ["column_wise"], "compute_kernels": ["fused", "fused_uvm"], "min_partition": 64}
    rules = constraints_of(tmp_path / "c.json", **said, **unset)
    asked = question(rules, 8, for_torchrec=True)
    scheme = held(asked.plan().plan, "item_a").scheme
    assert (scheme.row_parts, scheme.col_parts) == (1, 2)  # 128 columns: two parts of 64
    constraints = asked.constraints
    assert constraints is not None
    assert "less than 64" in constraints.allowed[2].explain_refusal(scheme, 120, 8, 8)
    assert not constraints.allowed[2].explain_refusal(scheme, 128, 8, 8)
    assert not replace(constraints.allowed[2], shardings=None).explain_refusal(Scheme(scheme.kind), 32, 8, 8)
    assert all(limits.shardings is None for at, limits in enumerate(constraints.allowed) if at != 2)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sharding_types": ["row"]}, "item_a"),
        ({"compute_kernels": ["fused_uvm"]}, "keep rows outside GPU memory"),
        ({"pooling_factors": [20.0]}, "pooling_factors"),
        ({"min_partition": 0}, "min_partition"),
        ({"sharding_types": ["table_column_wise"]}, "case of column-wise"),
    ],
)
def test_constraints_of_torchrec_that_are_not_used_are_refused(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInputError, match=words):
        question(constraints_of(tmp_path / "c.json", **fields)).list_options()


def test_a_file_may_have_constraints_for_as_many_tables_as_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = constraints_of(tmp_path / "c.json", min_partition=64)
    monkeypatch.setattr(constraints, "MOST_TABLES", 1)
    assert question(rules).list_options()
    monkeypatch.setattr(constraints, "MOST_TABLES", 0)
    with pytest.raises(BadInputError, match="no object with constraints"):
        question(rules)


def test_a_table_that_is_too_small_for_its_sharding_is_told_what_it_may_be() -> None:
    asked = question(["row-wise"], 1024, most_bytes=60e9)
    with pytest.raises(BadInputError, match=r"'geo': of what fits \(.*data-parallel.*\) none") as caught:
        asked.list_options()
    assert caught.value.next_step.startswith("--only row-wise leaves nothing")
    plan = question(["row-wise,data-parallel"], 1024, most_bytes=60e9, effort_s=0.2).plan().plan
    assert not held(plan, "geo").ranks.size and held(plan, "deep").scheme.row_parts in (1, 1024)
