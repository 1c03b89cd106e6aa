"""``plan --gpus 8,16,64``: the table, the knee; and what would change a plan, planned anew."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perfmodel.effort import EFFORTS, Deadline
from perfmodel.plan import PlanTables
from perfmodel.plan.limiting import limiting
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.scaling import knee_of, scale
from perfmodel.plan.what_ifs import what_ifs
from perfmodel.report.plan_text import limits, what_if_lines
from perfmodel.report.scaling_text import knee_words, scaling_text
from perfmodel.schema.machine import load_machine
from perfmodel.units import format_time


def question(model: str = "criteo-kaggle", gpus: int = 16, **more: Any) -> PlanQuestion:
    options = {"batch": 1024, "reserve": 0.15, "effort_s": 0.5, **more}
    machine = options.pop("machine", load_machine("h100-sxm-ib"))
    return PlanQuestion(tables=PlanTables.load(model), machine=machine, gpus=gpus, **options)


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
    found = set()
    for _ in range(2000):
        gpus = sorted(random.choice(np.arange(1, 300), size=random.integers(1, 7), replace=False).tolist())
        growth = random.uniform(0.8, 2.2, size=len(gpus))
        rates = (np.cumprod(growth) * 1e6).tolist()
        found.add(knee_of(gpus, rates) is None)
        assert knee_of(gpus, rates) == slow_knee(gpus, rates)
    assert found == {True, False}
    assert knee_of([8, 16, 32], [1.0, 2.0, 4.0]) is None
    assert knee_of([8, 16, 32], [1.0, 1.4, 2.8]) == 8
    assert knee_of([8, 16, 32], [1.0, 2.0, 2.9]) == 16
    assert knee_of([1, 2], [2.0, 3.0]) is None  # the second adds half of the first, not less


def test_the_table_is_that_of_the_plans_one_by_one() -> None:
    """Each row again by itself, and every number from the plan alone."""
    asked = question(effort_s=0.2)
    found = scale(asked, [16, 2, 4])
    assert [point.gpus for point in found.points] == [2, 4, 16]
    rates = []
    for point in found.points:
        assert point.answer is not None
        e, plan = point.answer.evaluator, point.answer.plan
        cost = e.cost(plan)
        row = point.to_dict()
        assert row["time_s"] == cost.time_s and row["bound_s"] <= cost.time_s
        assert row["samples_per_s"] == pytest.approx(1024 * point.gpus / cost.time_s)
        assert row["memory_bytes"] == e.memory(plan).total_bytes.max() <= row["memory_limit_bytes"]
        assert row["longest_share"] == max(each.time_s for each in cost.rows) / cost.time_s
        rates.append(row["samples_per_s"])
        again = replace(asked, gpus=point.gpus).answer()
        assert again.found.cost.time_s == pytest.approx(cost.time_s, rel=0.05)
    assert found.knee == slow_knee([2, 4, 16], rates)


def test_more_gpus_that_are_slower_in_all_are_said_to_be_slower() -> None:
    """The same tables on 8 GPUs of a node, and a plan of 16 that takes three times as long."""
    found = scale(question(effort_s=0.3), [8, 16])
    (first, last), time_s = found.planned, found.planned[0].answer.found.cost.time_s  # type: ignore[union-attr]
    assert last.answer is not None

    def at(times: float) -> str:
        plan = last.answer
        assert plan is not None
        slow = replace(plan.found.cost, time_s=times * time_s)
        point = replace(last, answer=replace(plan, found=replace(plan.found, cost=slow)))
        return " ".join(knee_words(replace(found, points=(first, point), knee=8)).split())

    assert "less than half of the average" in at(1.8) and "slower" not in at(1.8)
    assert "Knee at 8 GPUs: the plan on 16 GPUs is slower in all" in at(3.0), at(3.0)
    assert "half of the average" not in at(3.0)


def test_too_few_gpus_are_a_row_without_a_plan() -> None:
    found = scale(question("mlperf-dlrm-dcnv2", effort_s=0.3), [1, 2])
    assert found.points[0].answer is None and "more than the" in found.points[0].why
    assert found.knee is None
    text = scaling_text(found, lambda gpus: f"one {gpus}")
    assert "1 GPU: the tables of mlperf-dlrm-dcnv2 need" in text and "no plan" in text and "one 2" in text


def test_ctrl_c_ends_all_searches_and_keeps_what_is_planned() -> None:
    """Between two numbers of GPUs, in the search of one, and before there is any plan."""

    def stop_at(count: int) -> Any:
        def tell(gpus: int, best_s: float) -> None:
            if gpus == count:
                raise KeyboardInterrupt

        return tell

    asked = question("mlperf-dlrm-dcnv2", effort_s=0.2, most_bytes=64e9)
    found = scale(asked, [8, 16, 32], stop_at(16))
    assert found.stopped and [point.answer is None for point in found.points] == [False, False, True]
    assert found.points[1].answer is not None and found.points[1].answer.found.stopped == "interrupt"
    assert "stopped" in found.points[2].why
    text = scaling_text(found, lambda gpus: f"one {gpus}")
    assert "32 GPUs: stopped before there was a plan" in text and "has  " not in text
    assert not scale(asked, [8, 16], stop_at(32)).stopped


@pytest.mark.usefixtures("once")
def test_a_screen_and_a_document(cli: Any) -> None:
    words = ("plan", "--model", "criteo-kaggle", "--gpus", "2,4,16", "--effort", "quick")
    screen = cli(*words)
    assert screen.code == 0
    assert "forward pass, 1 024 samples on each GPU" in screen.out.splitlines()[0]
    document = json.loads(cli(*words, "--json").out)
    assert [row["gpus"] for row in document["scaling"]] == [2, 4, 16]
    assert document["command"] == "plan" and document["objective"] == "latency" and "knee_gpus" in document
    refused = cli(*words, "--out", "plan.json")
    assert refused.code == 2 and "--out is of one plan" in refused.err
    none = cli("plan", "--model", "mlperf-dlrm-dcnv2", "--gpus", "1..1", "--effort", "quick")
    assert none.code == 2


@pytest.mark.parametrize("training", [False, True])
def test_what_ifs_are_planned_anew(training: bool) -> None:
    """Never slower than the same plan there, never below the bound there, and the options give them."""
    asked = question("mlperf-dlrm-dcnv2", 16, effort_s=0.1, training=training, most_bytes=20e9, reserve=0)
    answer = asked.answer()
    found = {each.name: each for each in what_ifs(asked, answer, Deadline(None))}
    assert list(found)[-5:] == ["cards", "nvlink-domain", "memory", "payload", "batch"]
    fp16 = {**asked.costs, "payload": "fp16"}
    changed = {
        "cards": replace(asked, gpus=32),
        "nvlink-domain": replace(asked, machine=asked.machine.with_overrides({"nvlink_domain_gpus": 16.0})),
        "memory": replace(asked, most_bytes=40e9),
        "payload": replace(asked, costs=fp16),
        "batch": replace(asked, batch=4096),
    }
    for name, there in changed.items():
        time_s = found[name].time_s
        assert time_s is not None
        assert found[name].samples_per_s == pytest.approx(there.batch * there.gpus / time_s)
        bound = replace(there, effort_s=0.0).answer().found.bound_s
        assert time_s >= bound * (1 - 1e-6)
        same = there.recosted(answer.plan)
        assert same is None or time_s <= same * (1 + 1e-9)
    assert found["memory"].option == "--set max_hbm=40GB"
    assert found["nvlink-domain"].time_s < answer.found.cost.time_s  # type: ignore[operator]


@pytest.mark.parametrize(
    ("model", "gpus", "batch", "training", "name"),
    [
        ("mlperf-dlrm-dcnv2", 8, 8192, True, "memory-bandwidth"),
        ("mlperf-dlrm-dcnv2", 64, 16384, True, "network"),
        ("criteo-kaggle", 16, 64, True, "latency"),
        ("criteo-kaggle", 1, 64, False, "launch"),
        ("criteo-kaggle", 1, 64, True, "equal-ids"),
    ],
)
def test_what_limits_a_plan_is_what_saves_it_most(
    model: str, gpus: int, batch: int, training: bool, name: str
) -> None:
    """Beside the same plan costed on machines with each rate doubled, and with each launch halved."""
    asked = question(model, gpus, batch=batch, training=training, effort_s=0.3)
    answer = asked.answer()
    found = limiting(answer)
    now = answer.found.cost.time_s
    value = asked.machine.value
    rates = ("nic", "nvlink", "gather", "bucketize", "local_sum", "l2")
    changes = [{f"{rate}_bytes_per_s": 2 * value(f"{rate}_bytes_per_s")} for rate in rates]
    changes += [{key: value(key) / 2} for key in ("launch_floor_s", "bucketize_floor_s")]
    savings = []
    for change in changes:
        time_s = replace(asked, machine=asked.machine.with_overrides(change)).recosted(answer.plan)
        assert time_s is not None
        savings.append((now - time_s, change))
    most, change = max(savings, key=lambda pair: pair[0])
    assert found.name == name
    if found.name == "equal-ids":
        sorts = sum(row.time_s for row in answer.found.cost.rows if row.name == "sort_lookups")
        assert found.saving_s == pytest.approx(sorts / 2) and found.saving_s > most
    elif found.name == "latency":
        floors = sum(row.floor_s for row in answer.found.cost.rows if row.collective)
        assert found.saving_s == pytest.approx(floors / 2) and found.saving_s > most
    else:
        assert found.values == change and found.saving_s == pytest.approx(most, rel=0.2)
    offered = [each for each in what_ifs(asked, answer, Deadline(0.0)) if each.limits]
    assert [(each.name, bool(each.option)) for each in offered] == ([(name, True)] if found.values else [])
    said = f"this plan with {found.words} takes {format_time(now - found.saving_s)}"
    assert (said in " ".join(limits(answer).split())) == (not found.values)


@pytest.mark.parametrize(
    ("machine", "gpus", "offered"),
    [("h100-sxm-ib", 8, False), ("l40s-pcie", 16, False), ("h100-sxm-ib", 16, True)],
)
def test_a_larger_domain_is_asked_about_where_there_is_one_to_enlarge(
    machine: str, gpus: int, offered: bool
) -> None:
    """Not on one node, and not where GPUs have no NVLink at all."""
    asked = question("criteo-kaggle", gpus, machine=load_machine(machine), effort_s=0.1)
    found = [each.name for each in what_ifs(asked, asked.answer(), Deadline(0.0))]
    assert ("nvlink-domain" in found) == offered and "cards" in found


def test_a_larger_domain_holds_all_gpus_where_some_of_each_node_are_used() -> None:
    """Four GPUs, two of each node of eight: a domain of 16 holds them, one of 8 changes nothing."""
    asked = question("criteo-kaggle", 4, costs={"gpus_per_node": 2}, most_bytes=1.2e9, effort_s=0.1)
    found = {each.name: each for each in what_ifs(asked, asked.answer(), Deadline(0.0))}
    assert found["nvlink-domain"].option == "--set nvlink_domain_gpus=16"
    assert "2 → 4 of them in use" in found["nvlink-domain"].words
    machine = load_machine("h100-sxm-ib").with_overrides({"nvlink_domain_gpus": 16.0})
    assert replace(asked, machine=machine).evaluator.domain == 4


def test_what_ifs_without_time_are_left_out() -> None:
    """What nobody planned has no time: a plan with the change may take much less than this one does."""
    asked = question("mlperf-dlrm-dcnv2", 16, effort_s=0.1, training=True)
    answer = asked.answer()
    found = what_ifs(asked, answer, Deadline(0.0))
    assert [each.name for each in found][-5:] == ["cards", "nvlink-domain", "memory", "payload", "batch"]
    assert all(each.cut_short and each.time_s is None and each.samples_per_s is None for each in found)
    said = what_if_lines(found, answer)
    assert said.count("not searched") == len(found) + 1 and "≤" not in said and "(the limit)" not in said
    assert said.endswith("not searched: --time-limit left no time for it.")
    longer = what_ifs(asked, answer, Deadline(None))
    assert all(each.time_s and not each.cut_short for each in longer)
    assert "not searched" not in what_if_lines(longer, answer)


def test_planning_quickly_shows_no_less_than_a_what_if() -> None:
    """The opponent: the same change as a question of its own, with the quick effort."""
    asked = question("mlperf-dlrm-dcnv2", 16, effort_s=EFFORTS["normal"])
    of = {each.name: each.time_s for each in what_ifs(asked, asked.answer(), Deadline(None))}
    for name, there in (("cards", replace(asked, gpus=32)), ("batch", replace(asked, batch=4096))):
        quick = replace(there, effort_s=EFFORTS["quick"]).answer().found.cost.time_s
        assert of[name] <= quick * 1.03  # type: ignore[operator]


def test_more_memory_is_used_where_memory_limits() -> None:
    """A plan that fills the memory with copies: with twice the memory another one is found."""
    asked = question("embark-t180", 128, effort_s=0.1)
    answer = asked.answer()
    assert answer.found.memory.total_bytes.max() > 0.9 * asked.limit_bytes
    found = {each.name: each for each in what_ifs(asked, answer, Deadline(None))}
    assert found["memory"].time_s < 0.98 * answer.found.cost.time_s  # type: ignore[operator]


def test_a_batch_that_the_plan_has_no_room_for_is_planned_with_fewer_copies() -> None:
    asked = question("embark-t180", 8, effort_s=0.1)
    answer = asked.answer()
    changed = replace(asked, batch=16 * asked.batch)
    assert changed.recosted(answer.plan) is None
    found = {each.name: each for each in what_ifs(asked, answer, Deadline(None))}
    assert found["batch"].time_s is not None and found["batch"].samples_per_s is not None


@pytest.mark.usefixtures("once")
def test_the_plan_says_which_pass_and_what_would_change_it(cli: Any) -> None:
    words = ("plan", "--model", "criteo-kaggle", "--gpus", "16", "--effort", "quick")
    out = cli(*words, "--objective", "throughput").out
    assert "per training step of 1 024 samples" in out.splitlines()[0]
    other = " ".join(out.partition("The forward pass alone:\n")[2].split())
    assert other.startswith(" ".join(["perfmodel", "plan", "--objective", "latency", *words[1:]]))
    assert "What would change the plan" in out and "--gpus 32" in out
    document = json.loads(cli(*words, "--json").out)
    assert {each["name"] for each in document["changes"]} >= {"cards", "memory", "payload", "batch"}
