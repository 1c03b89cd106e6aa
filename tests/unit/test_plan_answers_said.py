"""What a plan's answer says where something is one, not known, or not a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfmodel.errors import BadInputError
from perfmodel.plan import Evaluator, PlanTables, plan_from, uniform_plan
from perfmodel.plan.outcome import Planned, given_outcome
from perfmodel.report.plan_text import headline
from perfmodel.schema.distributions import parse_distribution
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
