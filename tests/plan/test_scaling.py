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
from perfmodel.plan.scaling import compare_plans, find_knee
from perfmodel.report.scaling_text import knee_words, scaling_text
from perfmodel.schema.workload import Table, TableSet

FOUR = TableSet("four", tuple(Table(f"t{at}", 500_000 * (at + 1), 64, 10.0) for at in range(4)))


def find_knee_slowly(gpus: list[int], rates: list[float]) -> int | None:
    """The definition word by word: walk up until further GPUs add less than half of a GPU before them."""
    for at in range(1, len(gpus)):
        a_gpu_before = rates[at - 1] / gpus[at - 1]
        if (rates[at] - rates[at - 1]) / (gpus[at] - gpus[at - 1]) < 0.5 * a_gpu_before:
            return gpus[at - 1]
    return None


def test_the_knee_is_what_its_definition_says() -> None:
    random = np.random.default_rng(7)
    for _ in range(500):
        gpus = sorted(random.choice(np.arange(1, 300), size=random.integers(1, 7), replace=False).tolist())
        rates = (np.cumprod(random.uniform(0.8, 2.2, size=len(gpus))) * 1e6).tolist()
        assert find_knee(gpus, rates) == find_knee_slowly(gpus, rates)
    assert find_knee([8, 16, 32], [1.0, 1.4, 2.8]) == 8
    assert find_knee([1, 2], [2.0, 3.0]) is None  # the second adds half of the first, not less


def test_the_table_is_that_of_the_plans_one_by_one() -> None:
    scaling = compare_plans(ask_plan("criteo-kaggle", 16), [16, 2, 4])
    rates = []
    for point in scaling.points:
        assert point.answer is not None
        e, plan = point.answer.evaluator, point.answer.plan
        cost, row = e.cost(plan), point.to_dict()
        assert row["time_s"] == cost.time_s and row["bound_s"] <= cost.time_s
        assert row["samples_per_s"] == pytest.approx(1024 * point.gpus / cost.time_s)
        assert row["memory_bytes"] == e.cost(plan).memory.total_bytes.max() <= row["memory_limit_bytes"]
        rates.append(row["samples_per_s"])
    assert scaling.knee == find_knee_slowly([2, 4, 16], rates)
    assert scaling.best.gpus == (scaling.knee or 16)


def test_more_gpus_that_are_slower_in_all_are_said_to_be_slower() -> None:
    scaling = compare_plans(ask_plan("criteo-kaggle", 16), [8, 16])
    (first, last), time_s = scaling.planned, scaling.planned[0].time_s
    plan = last.answer
    assert plan is not None

    def say(times: float) -> str:
        slow = replace(plan.costed, cost=replace(plan.costed.cost, time_s=times * time_s))
        point = replace(last, answer=replace(plan, result=replace(plan.result, costed=slow)))
        return " ".join(knee_words(replace(scaling, points=(first, point))).split())

    assert "less than half of the average" in say(1.8) and "slower" not in say(1.8)
    assert "Knee at 8 GPUs: the plan on 16 GPUs is slower in all" in say(3.0)


def test_ctrl_c_ends_all_searches_and_keeps_what_is_planned() -> None:
    def stop(gpus: int, best_s: float) -> None:
        if gpus == 16:
            raise KeyboardInterrupt

    scaling = compare_plans(ask_plan("mlperf-dlrm-dcnv2", 8, most_bytes=64e9), [8, 16, 32], tell=stop)
    assert scaling.stopped and [point.answer is None for point in scaling.points] == [False, False, True]
    assert "32 GPUs: stopped before there was a plan" in scaling_text(scaling, "the command")


def ask_four(objective: str, **more: Any) -> PlanQuestion:
    return ask_plan(FOUR, 16, batch=512, effort_s=0.0, objective=objective, **more)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_copy_is_the_plan_of_its_gpus_and_then_tables_are_reduced(objective: str) -> None:
    question = ask_four(objective, most_bytes=400e6)
    of_all = replace(question.question, total=16 * 512)
    scaling = compare_plans(replace(question, question=of_all), [16], [4, 1, 2])
    assert [point.replicas for point in scaling.points] == [1, 2, 4]
    for point in scaling.points:
        alone = question.use_gpus(16 // point.replicas).plan()
        assert point.answer is not None and point.answer.costed.time_s == alone.costed.time_s
        memory = alone.costed.memory
        size = float((memory.rows_bytes + memory.optimizer_bytes).max())
        ranks, node = np.array([float(point.replicas)]), {1: 1, 2: 1, 4: 2}[point.replicas]
        timing = alone.evaluator.setting.links.timing("all_reduce", np.array([size]), ranks, node)
        assert point.sync_s == (timing.time_s[0] if objective == "throughput" else 0.0)
        assert point.to_dict()["samples_per_s"] == pytest.approx(16 * 512 / point.time_s)
    assert scaling.best.time_s == min(point.time_s for point in scaling.points)


def test_copies_that_do_not_fit_are_rows_without_a_plan() -> None:
    """1.28 GB of rows on 16 GPUs of 100 MB; eight of them have no room."""
    question = ask_four("latency", most_bytes=100e6)
    scaling = compare_plans(question, [16], [1, 2])
    first, second = scaling.points
    assert first.answer is not None and second.answer is None and "more than the" in second.why
    assert scaling.knee is None and scaling.to_dict()["scaling"][1]["time_s"] is None
    text = scaling_text(scaling, "the command")
    assert "the tables need" in text and "no plan" in text
    with pytest.raises(BadInputError, match=r"each of 4 copies.\n--gpus 56 fits"):
        compare_plans(question, [16], [4])
    with pytest.raises(BadInputError, match="no 3 equal groups") as refused:
        compare_plans(question, [16], [1, 3])
    assert refused.value.next_step == "--replicas is one of 1, 2, 4, 8, 16."


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--gpus", "2,4,16"), "forward pass, 1 024 samples on each GPU"),
        (("--gpus", "8", "--replicas", "1,2,8"), "Fastest with "),
    ],
)
def test_a_screen_and_a_document(cli: Any, option: tuple[str, ...], said: str) -> None:
    words = ("plan", "--model", "criteo-kaggle", *option, "--effort", "quick")
    assert said in cli(*words).out
    document = json.loads(cli(*words, "--json").out)
    assert len(document["scaling"]) == 3 and document["command"] == "plan"
    refused = cli(*words, "--out", "plan.json")
    assert refused.code == 2 and "--out" in refused.err


def test_a_printed_setting_is_what_its_option_gives_for_this_very_plan() -> None:
    question = ask_plan("mlperf-dlrm-dcnv2", 16, most_bytes=20e9, reserve=0.0)
    planned = question.plan()
    effects = {effect.option: effect for effect in question.list_changes(planned, "--plan p.json {}".format)}
    fp16 = replace(question, question=replace(question.question, payload="fp16")).price(planned.plan)
    assert effects["--plan p.json --set payload=fp16"].after_s == fp16.costed.time_s
    assert "--machine gb200-nvl72" in effects  # of other domains: by a whole search
    assert not any("nvlink_domain" in option or "hbm_bytes" in option for option in effects)


def test_a_printed_number_of_gpus_is_what_a_whole_search_gives() -> None:
    question = ask_plan("embark-t180", 8, total=8192)
    planned = question.plan()
    effects = {effect.option: effect for effect in question.list_changes(planned, "--plan p.json {}".format)}
    assert effects["--gpus 16"].after_s == question.use_gpus(16).plan().costed.time_s
    assert effects["--gpus 16"].before_s == pytest.approx(planned.costed.time_s)
