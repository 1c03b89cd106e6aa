"""What a plan's answer says where something is one, not known, or not a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cli_calls import planned as asked

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme, uniform_plan
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.files import plan_from
from perfmodel.plan.outcome import Planned, given_outcome
from perfmodel.report.plan_text import headline, placements
from perfmodel.schema.workload import Table, TableSet, parse_distribution

TABLES = PlanTables.of(TableSet("one", (Table("t", 100_000, 64, 10.0),)), parse_distribution("uniform"))


def planned(gpus: int) -> Planned:
    evaluator = Evaluator.on("h100-sxm-ib", TABLES, 512, gpus)
    return given_outcome(evaluator, uniform_plan(TABLES, "row-wise", gpus, evaluator.domain), 64e9)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"calibration_id": "h100/nccl", "curves": []}, "my.json is a calibration, not a plan"),
        ({"some": 1}, "my.json is not a plan"),
    ],
)
def test_another_file_is_called_by_its_name(document: object, words: str) -> None:
    with pytest.raises(BadInputError) as raised:
        plan_from(document, TABLES, "my.json")
    assert words in raised.value.message
    assert "perfmodel plan --out" in raised.value.next_step


def bounded(bound_s: float, stopped: str = "effort") -> str:
    """What is said of a plan of 100 µs with this bound [µs]."""
    answer = planned(2)
    cost = replace(answer.found.cost, time_s=100e-6)
    found = replace(answer.found, cost=cost, bound_s=bound_s * 1e-6, stopped=stopped, done=0.4)
    return headline(replace(answer, found=found)).replace("\n     ", " ")


def test_a_bound_is_said_if_it_is_near() -> None:
    assert "At least 90.0 µs for any plan of these shardings." in bounded(90)
    assert "At least" in bounded(70.1) and "At least" not in bounded(69.9)


def test_a_search_that_was_stopped_says_so_before_its_bound() -> None:
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
    answer = given_outcome(evaluator, Plan(tables, placed, 6, 6), 80e9)
    assert [group.scheme.kind for group in answer.groups] == [Exchange.UB, Exchange.SPARSE]
    assert all(group.next_best is not None for group in answer.groups)


def test_the_table_begins_with_the_largest_and_folds_copies() -> None:
    """40 tables that are copied, each another; a huge one that is hardly looked up; a busy one."""
    copied = [Table(f"copy_{n}", 1000 + n, 16, 1.0) for n in range(40)]
    huge, busy = Table("huge", 100_000_000, 64, 1.0), Table("busy", 2_000_000, 128, 100.0)
    tables = PlanTables.of(TableSet("many", (*copied, huge, busy)))
    rows = Placement.of(Scheme(Exchange.RB, 8), range(8))
    plan = Plan(tables, (*(Placement.of(Scheme(Exchange.DP)),) * 40, rows, rows), 8, 8)
    answer = given_outcome(Evaluator.on("h100-sxm-ib", tables, 1024, 8), plan, 80e9)
    first = [tables.names[group.tables[0]] for group, _ in answer.by_share[:2]]
    assert sorted(first) == ["busy", "huge"]
    lines = placements(answer).splitlines()
    assert {line.split()[0] for line in lines[1:3]} == {"busy", "huge"}
    assert lines[3].split()[:2] == ["40", "tables"] and "data-parallel" in lines[3]
    assert not any("copy_" in line for line in lines)
