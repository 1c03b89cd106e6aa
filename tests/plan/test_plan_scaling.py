"""``plan --gpus 8,16`` and ``--replicas 1,2``: plans side by side; and what would make a plan faster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from searches import ask_plan

from perfmodel.errors import BadInputError
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.replicas import find_fastest, plan_replicas
from perfmodel.plan.scaling import knee_of, scale
from perfmodel.report.scaling_text import knee_words, scaling_text
from perfmodel.schema.workload import Table, TableSet

FOUR = TableSet("four", tuple(Table(f"t{at}", 500_000 * (at + 1), 64, 10.0) for at in range(4)))


def slow_knee(gpus: list[int], rates: list[float]) -> int | None:
    """The definition word by word: walk up until further GPUs add less than half of a GPU before them."""
    for at in range(1, len(gpus)):
        a_gpu_before = rates[at - 1] / gpus[at - 1]
        each_more = (rates[at] - rates[at - 1]) / (gpus[at] - gpus[at - 1])
        if each_more < 0.5 * a_gpu_before:
            return gpus[at - 1]
    return None


def test_the_knee_is_what_its_definition_says() -> None:
    random = np.random.default_rng(7)
    for _ in range(500):
        gpus = sorted(random.choice(np.arange(1, 300), size=random.integers(1, 7), replace=False).tolist())
        rates = (np.cumprod(random.uniform(0.8, 2.2, size=len(gpus))) * 1e6).tolist()
        assert knee_of(gpus, rates) == slow_knee(gpus, rates)
    assert knee_of([8, 16, 32], [1.0, 2.0, 4.0]) is None
    assert knee_of([8, 16, 32], [1.0, 1.4, 2.8]) == 8
    assert knee_of([1, 2], [2.0, 3.0]) is None  # the second adds half of the first, not less


def test_the_table_is_that_of_the_plans_one_by_one() -> None:
    scaling = scale(ask_plan("criteo-kaggle", 16), [16, 2, 4])
    rates = []
    for point in scaling.points:
        assert point.answer is not None
        e, plan = point.answer.evaluator, point.answer.plan
        cost, row = e.cost(plan), point.to_dict()
        assert row["time_s"] == cost.time_s and row["bound_s"] <= cost.time_s
        assert row["samples_per_s"] == pytest.approx(1024 * point.gpus / cost.time_s)
        assert row["memory_bytes"] == e.memory(plan).total_bytes.max() <= row["memory_limit_bytes"]
        rates.append(row["samples_per_s"])
    assert scaling.knee == slow_knee([2, 4, 16], rates)


def test_more_gpus_that_are_slower_in_all_are_said_to_be_slower() -> None:
    scaling = scale(ask_plan("criteo-kaggle", 16), [8, 16])
    (first, last), time_s = scaling.planned, scaling.planned[0].answer.found.cost.time_s  # type: ignore[union-attr]
    plan = last.answer
    assert plan is not None

    def say(times: float) -> str:
        slow = replace(plan.found.cost, time_s=times * time_s)
        point = replace(last, answer=replace(plan, found=replace(plan.found, cost=slow)))
        return " ".join(knee_words(replace(scaling, points=(first, point), knee=8)).split())

    assert "less than half of the average" in say(1.8) and "slower" not in say(1.8)
    assert "Knee at 8 GPUs: the plan on 16 GPUs is slower in all" in say(3.0)


def test_too_few_gpus_are_a_row_without_a_plan() -> None:
    scaling = scale(ask_plan("mlperf-dlrm-dcnv2", 1), [1, 2])
    assert scaling.points[0].answer is None and "more than the" in scaling.points[0].why
    assert scaling.knee is None
    text = scaling_text(scaling, lambda gpus: f"one {gpus}")
    assert "1 GPU: the tables of mlperf-dlrm-dcnv2 need" in text and "no plan" in text and "one 2" in text


def test_ctrl_c_ends_all_searches_and_keeps_what_is_planned() -> None:
    def stop(gpus: int, best_s: float) -> None:
        if gpus == 16:
            raise KeyboardInterrupt

    scaling = scale(ask_plan("mlperf-dlrm-dcnv2", 8, most_bytes=64e9), [8, 16, 32], stop)
    assert scaling.stopped and [point.answer is None for point in scaling.points] == [False, False, True]
    text = scaling_text(scaling, lambda gpus: f"one {gpus}")
    assert "32 GPUs: stopped before there was a plan" in text


def ask_four(objective: str, **more: Any) -> PlanQuestion:
    return ask_plan(FOUR, 16, batch=512, effort_s=0.0, objective=objective, **more)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_copy_is_the_plan_of_its_gpus_and_then_tables_are_reduced(objective: str) -> None:
    question = ask_four(objective, most_bytes=400e6)
    plans = plan_replicas(question, [4, 1, 2])
    assert [plan.replicas for plan in plans] == [1, 2, 4]
    for plan in plans:
        alone = question.on(16 // plan.replicas).answer()
        assert plan.answer is not None and plan.answer.found.cost.time_s == alone.found.cost.time_s
        memory = alone.found.memory
        size = float((memory.rows_bytes + memory.optimizer_bytes).max())
        ranks, node = np.array([float(plan.replicas)]), {1: 1, 2: 1, 4: 2}[plan.replicas]
        links = alone.evaluator.setting.links
        reduced = float(links.timing("all_reduce", np.array([size]), ranks, node).time_s[0])
        assert plan.sync_s == (reduced if objective == "throughput" else 0.0)
        assert plan.to_dict()["samples_per_s"] == pytest.approx(16 * 512 / plan.time_s)
    assert find_fastest(plans).time_s == min(plan.time_s for plan in plans)


def test_copies_that_do_not_fit_are_rows_without_a_plan() -> None:
    """1.28 GB of rows on 16 GPUs of 100 MB; eight of them have no room."""
    plans = plan_replicas(ask_four("latency", most_bytes=100e6), [1, 2])
    assert plans[0].answer is not None and plans[1].answer is None and "more than the" in plans[1].why
    assert plans[1].to_dict()["time_s"] is None
    with pytest.raises(BadInputError, match=r"fits nowhere|more than the"):
        plan_replicas(ask_four("latency", most_bytes=100e6), [4])


def test_gpus_are_divided_without_rest() -> None:
    with pytest.raises(BadInputError, match="no 3 equal groups") as refused:
        plan_replicas(ask_four("latency"), [1, 3])
    assert refused.value.next_step == "--replicas is one of 1, 2, 4, 8, 16."


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize(
    ("option", "rows", "said"),
    [
        (("--gpus", "2,4,16"), "scaling", "forward pass, 1 024 samples on each GPU"),
        (("--gpus", "8", "--replicas", "1,2,8"), "replicas", "Fastest with "),
    ],
)
def test_a_screen_and_a_document(cli: Any, option: tuple[str, ...], rows: str, said: str) -> None:
    words = ("plan", "--model", "criteo-kaggle", *option, "--effort", "quick")
    assert said in cli(*words).out
    document = json.loads(cli(*words, "--json").out)
    assert len(document[rows]) == 3 and document["command"] == "plan"
    refused = cli(*words, "--out", "plan.json")
    assert refused.code == 2 and "--out" in refused.err


def test_a_printed_setting_is_what_its_option_gives_for_this_very_plan() -> None:
    question = ask_plan("mlperf-dlrm-dcnv2", 16, most_bytes=20e9, reserve=0.0)
    planned = question.answer()
    effects = {effect.option: effect for effect in question.list_changes(planned, "p.json")}
    fp16 = replace(question, question=replace(question.question, payload="fp16")).price(planned.plan)
    assert effects["--plan p.json --set payload=fp16"].after_s == fp16.found.cost.time_s
    assert not any("nvlink_domain" in option or "hbm_bytes" in option for option in effects)


def test_a_printed_number_of_gpus_is_what_a_whole_search_gives() -> None:
    question = ask_plan("embark-t180", 8, total=8192)
    planned = question.answer()
    effects = {effect.option: effect for effect in question.list_changes(planned, "p.json")}
    assert effects["--gpus 16"].after_s == question.on(16).answer().found.cost.time_s
    assert effects["--gpus 16"].before_s == planned.found.cost.time_s


@pytest.mark.usefixtures("once")
def test_the_plan_says_which_pass_and_what_would_make_it_faster(cli: Any) -> None:
    words = ("plan", "--model", "mlperf-dlrm-dcnv2", "--gpus", "16", "--effort", "quick")
    words = (*words, "--objective", "throughput")
    out = cli(*words).out
    assert "per training step of 1 024 samples" in out.splitlines()[0]
    assert "What would help" in out and "--plan plan.json --set payload=fp16" in " ".join(out.split())
    document = json.loads(cli(*words, "--json").out)
    assert {"--plan plan.json --set payload=fp16"} <= {change["option"] for change in document["changes"]}
