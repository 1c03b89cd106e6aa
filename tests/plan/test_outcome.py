"""What a plan's answer says: groups of tables, hot rows, bounds."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_calls import planned as asked
from dealt_plan import uniform_plan
from searches import tables_of

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.plan import outcome
from perfmodel.plan.outcome import price_plan
from perfmodel.plan.plan_files import write_plan
from perfmodel.report.plan_text import headline, placements
from perfmodel.schema.workload import ONE_ROW, Distribution, Table, TableSet, parse_distribution

TABLES = PlanTables.of(TableSet("one", (Table("t", 100_000, 64, 10.0),)), parse_distribution("uniform"))
SKEWED = ("--gpus", "16", "--distribution", "zipf:1.1", "--effort", "quick", "--set", "max_hbm=3GB")


TABLE_OF_100 = TableSet("mine", (Table("t", 100, 8, 4.0),))
HALVES = Distribution("histogram:mine", 0.0, ((0.1, 0.5), (0.9, 0.5)))
"""A tenth of the rows has half of the look-ups."""


def bounded(bound_s: float, stopped: str = "effort") -> str:
    """What is said of a plan of 100 µs with this bound [µs]."""
    evaluator = Evaluator.on("h100-sxm-ib", TABLES, 512, 2)
    plan = uniform_plan(TABLES, "row-wise", 2, evaluator.domain)
    answer = price_plan(evaluator, plan, evaluator.cost(plan).fullest_bytes)
    costed = replace(answer.costed, cost=replace(answer.costed.cost, time_s=100e-6))
    result = replace(answer.result, costed=costed, bound_s=bound_s * 1e-6, stopped=stopped, done=0.4)
    return headline(replace(answer, result=result)).replace("\n     ", " ")


def test_a_bound_is_said_if_it_is_near_and_after_that_a_search_was_stopped() -> None:
    assert "At least 90.0 µs for any plan of these shardings." in bounded(90)
    assert "At least" in bounded(70.1) and "At least" not in bounded(69.9)
    cut = bounded(90, "interrupt")
    words = "stopped by Ctrl-C after 40.0 % of the work: another run may find another plan"
    assert 0 < cut.index(words) < cut.index("At least 90.0 µs")
    assert "another run" not in bounded(90)


def test_rules_that_want_too_much_hbm_are_named() -> None:
    code, _, err = asked(
        *("--model", "mlperf-dlrm-dcnv2", "--gpus", "2", "--set", "max_hbm=64GB"),
        *("--only", "t*=data-parallel", "--effort", "quick"),
    )
    said = " ".join(err.split())
    assert code == 2 and "allow more than --only t*=data-parallel, use " in said
    assert "need 209 GB" in said and "more than the 128 GB of 2 GPUs" in said


def test_equal_tables_of_a_given_plan_may_be_sharded_in_different_ways() -> None:
    """Neither scheme is one that a search lists: 3 row parts on 6 GPUs."""
    tables = PlanTables.of(TableSet("two", tuple(Table(name, 10**6, 16, 60.0) for name in ("a", "b"))))
    placed = (
        Placement.of(Scheme(Exchange.UB, 3), [0, 1, 2]),
        Placement.of(Scheme(Exchange.SPARSE, 3), [3, 4, 5]),
    )
    evaluator = Evaluator.on("h100-sxm-ib", tables, 512, 6)
    answer = price_plan(evaluator, Plan(tables, placed, 6, 6), 80e9)
    assert [group.scheme.kind for group in answer.groups] == [Exchange.UB, Exchange.SPARSE]
    assert all(group.next_best is not None for group in answer.groups)


def test_the_table_begins_with_the_largest_and_folds_copies() -> None:
    """40 tables that are copied, each another; a huge one that is hardly looked up; a busy one."""
    copied = [Table(f"copy_{n}", 1000 + n, 16, 1.0) for n in range(40)]
    huge, busy = Table("huge", 100_000_000, 64, 1.0), Table("busy", 2_000_000, 128, 100.0)
    tables = PlanTables.of(TableSet("many", (*copied, huge, busy)))
    rows = Placement.of(Scheme(Exchange.RB, 8), range(8))
    plan = Plan(tables, (*(Placement.of(Scheme(Exchange.DP)),) * 40, rows, rows), 8, 8)
    answer = price_plan(Evaluator.on("h100-sxm-ib", tables, 1024, 8), plan, 80e9)
    first = [tables.names[group.tables[0]] for group, _ in answer.by_share[:2]]
    assert sorted(first) == ["busy", "huge"]
    lines = placements(answer).splitlines()
    assert {line.split()[0] for line in lines[1:3]} == {"busy", "huge"}
    assert lines[-1].startswith(" 40 tables, ") and not any("copy_" in line for line in lines)


def test_a_plan_says_which_hot_rows_are_on_every_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, file = tmp_path / "tables.csv", tmp_path / "plan.json"
    tables.write_text("rows,dim,pooling,count\n10000000,64,20,3\n", encoding="utf-8")
    code, text, _ = asked("--model", str(tables), *SKEWED, "--out", str(file))
    assert code == 0
    assert re.search(r"^Ids +zipf:1.1$", text, re.M)
    assert re.search(r"t\d( \+\d)?: hottest [\d ]+ rows \([\d.]+ % of look-ups, .*B\) on every GPU", text)
    assert re.search(r"\w +\d+×1\*", text) and "* beside a copy of its hottest rows" in " ".join(text.split())
    kept = [entry["hot_rows"] for entry in json.loads(file.read_text())["placements"]]
    assert max(kept) > 0

    again = ("--model", str(tables), "--plan", str(file), *SKEWED[2:])
    code, text, _ = asked(*again, "--json")
    document = json.loads(text)
    assert code == 0 and document["distribution"] == "zipf:1.1"
    assert [entry["hot_rows"] for entry in document["plan"]["placements"]] == kept
    hot = [group for group in document["groups"] if group["hot_rows"]]
    assert hot and all(0.2 < group["hot_share"] < 1 for group in hot)

    uniform = ("--plan", str(file), "--distribution", "uniform", "--set", "max_hbm=3GB", "--json")
    code, text, _ = asked("--model", str(tables), *uniform)
    even = json.loads(text)  # the same plan with uniform ids: the hot rows are no more popular
    assert code == 0 and even["time_s"] > document["time_s"]


def test_a_part_with_the_hottest_row_is_busier_than_is_counted(tmp_path: Path) -> None:
    """10 rows have 5 % of the look-ups each: on one of two parts 0.05 + 0.95/2, over 0.5."""
    e = Evaluator.on("h100-sxm-ib", PlanTables.of(TABLE_OF_100, HALVES), 10, 2)
    one_row = Evaluator.on("h100-sxm-ib", PlanTables.of(TABLE_OF_100, ONE_ROW), 10, 2)
    assert e.fullest_part(0, Scheme(Exchange.RS, 2)) == pytest.approx(1.05)
    assert e.fullest_part(0, Scheme(Exchange.SPARSE, 2, 1, 10)) == pytest.approx(1 + 1 / 90)
    assert e.fullest_part(0, Scheme(Exchange.UB, 2)) == e.fullest_part(0, Scheme(Exchange.RB)) == 1
    assert one_row.fullest_part(0, Scheme(Exchange.RB, 2)) == 2
    assert one_row.fullest_part(0, Scheme(Exchange.RB, 2, 1, 1)) == 1

    tables, file = tmp_path / "tables.csv", tmp_path / "plan.json"
    tables.write_text("rows,dim,pooling\n100000,64,20\n", encoding="utf-8")
    known = PlanTables.load(tables)
    write_plan(Plan(known, (Placement.of(Scheme(Exchange.RS, 8), range(8)),), 8, 8), file)
    words = ("--model", str(tables), "--plan", str(file))
    factor = 1 + 7 / np.sum(np.arange(1.0, 100_001) ** -1.1)
    said = f"the one with the hottest row gets {factor:.2f}× as many ids"
    assert said in " ".join(asked(*words, "--distribution", "zipf:1.1")[1].split())
    assert "hottest row" not in asked(*words)[1]


def test_the_next_best_is_looked_for_where_tables_read_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables of 128 000 elements, which read 50 x 128 and 250 x 4 a sample: the first weighs more."""
    monkeypatch.setattr(outcome, "_MOST_COMPARED", 1)
    tables = tables_of((32_000, 4, 250.0), (1000, 128, 50.0))
    plan = uniform_plan(tables, "table-wise", 8, 8)
    groups = price_plan(Evaluator.on("h100-sxm-ib", tables, 512, 8), plan, 64e9).groups
    assert {group.tables: group.next_best is not None for group in groups} == {(0,): False, (1,): True}
