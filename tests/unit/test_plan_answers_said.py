"""What a plan's answer says where something is one, not known, or not a plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cli_calls import planned as asked

from perfmodel.errors import BadInputError
from perfmodel.plan import Evaluator, PlanTables, plan_from, plan_record, uniform_plan
from perfmodel.plan.outcome import Planned, given_outcome
from perfmodel.plan.pricing.allowed_tiers import Below
from perfmodel.report.bound_text import bound_words
from perfmodel.report.plan_text import headline, limits
from perfmodel.report.scaling_text import to_gain
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.tiers import parse_tiers
from perfmodel.schema.workload import Table, TableSet

TABLES = PlanTables.of(TableSet("one", (Table("t", 100_000, 64, 10.0),)), parse_distribution("uniform"))


def planned(gpus: int) -> Planned:
    evaluator = Evaluator.on("h100-sxm-ib", TABLES, 512, gpus)
    return given_outcome(evaluator, uniform_plan(TABLES, "row-wise", gpus, evaluator.domain), 64e9)


def test_one_gpu_is_not_each_of_one_gpus() -> None:
    assert "of 512 samples on 1 GPU." in headline(planned(1))
    assert "of 512 samples on each of 2 GPUs." in headline(planned(2))


def test_a_bound_that_is_not_known_is_null() -> None:
    answer = planned(2)
    for known in (0.0, None):
        unknown = replace(answer, found=replace(answer.found, all_plans_s=known)).to_dict()
        fields = "all_plans_bound_s", "all_plans_gap", "all_plans_bound_over"
        assert [unknown[field] for field in fields] == [None, None, None]
    bound = replace(answer, found=replace(answer.found, all_plans_s=1e-6)).to_dict()
    assert bound["all_plans_bound_s"] == 1e-6


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


def bounded(bound_s: float, every_s: float | None, below: Below | None = None) -> str:
    """What is said of a plan of 100 µs with these bounds [µs]."""
    answer = planned(2)
    cost = replace(answer.found.cost, time_s=100e-6)
    every = None if every_s is None else every_s * 1e-6
    found = replace(answer.found, cost=cost, bound_s=bound_s * 1e-6, all_plans_s=every, stopped="time")
    e = answer.evaluator
    if below is not None:
        e = Evaluator.on("h100-sxm-ib", TABLES, 512, 2, below=below)
    return bound_words(replace(answer, evaluator=e, found=found))


def test_each_bound_says_what_can_be_saved_at_most_and_whether_it_is_tight() -> None:
    near = bounded(90, 80)
    assert "is faster than 90.0 µs: at most 10.0 % of the time can be saved (the time" in near
    assert near.endswith("hot rows, is faster than 80.0 µs: at most 20.0 % of the time can be saved.")
    assert "tight" not in near
    far = bounded(49.1, 49)
    assert "is faster than 49.1 µs: at most 50.9 % of the time can be saved (the time limit" in far
    assert far.endswith("is faster than 49.0 µs: at most 51.0 % of the time can be saved (not tight yet).")
    assert "This bound is not tight yet: less may be possible." in far and "--time-limit" in far
    assert bounded(60, 40).endswith(
        "faster than 40.0 µs: at most 60.0 % of the time can be saved (not tight yet)."
    )
    assert (to_gain(0.51), to_gain(0.4), to_gain(1.0)) == ("≤ 51.0 %", "≤ 40.0 %", "?")


def test_equal_bounds_are_one_sentence() -> None:
    assert bounded(90, 90) == (
        "No plan at all, whatever its row parts, column parts and hot rows, is faster than 90.0 µs: "
        "at most 10.0 % of the time can be saved (the time limit was reached)."
    )


def test_with_tiers_there_is_one_bound_and_that_is_said() -> None:
    below = Below.of(parse_tiers(["hbm", "uvm"]))
    assert bounded(90, None, below).endswith("With --tier there is no bound over plans of other schemes.")
    assert bounded(90, None).endswith("(the time limit was reached).")


def test_a_memory_that_is_no_tier_names_the_file_and_the_table() -> None:
    for memory, words in (("floppy", "is not known"), ("uvm-caching:150%", "150 % of the rows")):
        record = plan_record(planned(2).plan)
        record["placements"][0]["memory"] = memory
        with pytest.raises(BadInputError) as raised:
            plan_from(record, TABLES, "my.json")
        assert "plan file my.json: memory of table" in raised.value.message
        assert words in raised.value.message


def test_rules_that_want_too_much_hbm_are_named() -> None:
    code, _, err = asked(
        *("--model", "mlperf-dlrm-dcnv2", "--gpus", "2", "--max-hbm", "24GB"),
        *("--tier", "uvm", "--only", "t*=hbm", "--time-limit", "1s"),
    )
    said = " ".join(err.split())
    assert code == 2 and "--only t*=hbm says so" in said and "2 GPUs have 48 GB" in said


def test_more_memory_takes_tables_out_of_host_memory() -> None:
    answer = planned(2)
    memory = answer.found.memory
    full = replace(answer.found, limit_bytes=float(memory.total_bytes.max()))
    assert "would allow more copies" in limits(replace(answer, found=full))
    below = replace(full, memory=replace(memory, host_bytes=np.array([1e9, 0.0])))
    said = " ".join(limits(replace(answer, found=below)).split())
    assert "would take tables out of host memory." in said and "copies" not in said
