"""``plan --replicas``: copies of the sharded tables, the all-reduce among them, and the fastest number."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perfmodel.errors import BadInputError
from perfmodel.plan import PlanTables
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.replicas import find_fastest, plan_replicas
from perfmodel.schema.machine import load_machine
from perfmodel.schema.workload import Table, TableSet

TABLES = TableSet("four", tuple(Table(f"t{at}", 500_000 * (at + 1), 64, 10.0) for at in range(4)))


def question(training: bool, **more: Any) -> PlanQuestion:
    machine = load_machine("h100-sxm-ib")
    options = {"gpus": 16, "batch": 512, "effort_s": 0.0, "training": training, **more}
    return PlanQuestion(tables=PlanTables.of(TABLES), machine=machine, **options)


@pytest.mark.parametrize("training", [False, True])
def test_a_copy_is_the_plan_of_its_gpus_and_then_tables_are_reduced(training: bool) -> None:
    asked = question(training, most_bytes=400e6)
    plans = plan_replicas(asked, [4, 1, 2])
    assert [plan.replicas for plan in plans] == [1, 2, 4]
    for plan in plans:
        alone = replace(asked, gpus=16 // plan.replicas).answer()
        assert plan.answer is not None and plan.answer.found.cost.time_s == alone.found.cost.time_s
        memory = alone.found.memory
        size = float((memory.rows_bytes + memory.optimizer_bytes).max())
        ranks, node = np.array([float(plan.replicas)]), {1: 1, 2: 1, 4: 2}[plan.replicas]
        links = alone.evaluator.setting.links
        reduced = float(links.timing("all_reduce", np.array([size]), ranks, node).time_s[0])
        assert plan.sync_s == (reduced if training else 0.0)
        assert plan.to_dict()["samples_per_s"] == pytest.approx(16 * 512 / plan.time_s)
    assert plans[0].sync_s == 0 and (not training or plans[1].sync_s > 0)
    assert find_fastest(plans).time_s == min(plan.time_s for plan in plans)


def test_copies_that_do_not_fit_are_rows_without_a_plan() -> None:
    """1.28 GB of rows on 16 GPUs of 100 MB; eight of them have no room."""
    plans = plan_replicas(question(False, most_bytes=100e6), [1, 2])
    assert plans[0].answer is not None and plans[1].answer is None and "more than the" in plans[1].why
    assert plans[1].to_dict()["time_s"] is None
    with pytest.raises(BadInputError, match=r"fits nowhere|more than the"):
        plan_replicas(question(False, most_bytes=100e6), [4])


def test_gpus_are_divided_without_rest() -> None:
    with pytest.raises(BadInputError, match="no 3 equal groups") as refused:
        plan_replicas(question(False), [1, 3])
    assert refused.value.next_step == "--replicas is one of 1, 2, 4, 8, 16."


def test_a_screen_and_a_document(cli: Any) -> None:
    words = ("plan", "--model", "criteo-kaggle", "--gpus", "8", "--replicas", "1,2,8", "--effort", "quick")
    screen = cli(*words, "--objective", "throughput")
    assert screen.code == 0 and "an all-reduce of rows and optimizer state" in " ".join(screen.out.split())
    assert "Fastest with 1 copy of the sharded tables." in screen.out and "--gpus 8" in screen.out
    document = json.loads(cli(*words, "--json").out)
    assert [row["replicas"] for row in document["replicas"]] == [1, 2, 8]
    assert document["fastest_replicas"] in (1, 2, 8) and document["gpus"] == 8
    assert [row["gpus"] for row in document["replicas"]] == [8, 4, 1]
    refused = cli(*words, "--out", "plan.json")
    assert refused.code == 2 and "--replicas" in refused.err
