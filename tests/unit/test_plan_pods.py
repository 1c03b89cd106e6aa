"""Which nodes share a pod: tables on few nodes, in one pod or in different ones."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fabric_simulation as simulation
import numpy as np
import pytest

from perfmodel.effort import Deadline
from perfmodel.model.fabric import crossing_time, pod_payload
from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme, uniform_plan
from perfmodel.plan.pods import _apart, _heaviest, pod_orders
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.what_ifs import what_ifs
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.machine import load_machine
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import format_ratio, format_time

H100 = load_machine("h100-sxm-ib")
PODS = {"pod_nodes": 2.0, "oversubscription": 16.0}
SOME = TableSet("some", tuple(Table(name, 40_000_000, 128, 40.0) for name in ("a", "b")))
TABLES = PlanTables.of(SOME, parse_distribution("uniform"))


def on_nodes(nodes: Sequence[int], values: dict[str, float] = PODS) -> Any:
    """A plan for four nodes: each table table-row-wise on one of these nodes."""
    evaluator = Evaluator.on(H100.with_overrides(values), TABLES, 4096, 32)
    scheme = Scheme(Exchange.TWO_LEVEL, 8)
    placed = tuple(Placement.of(scheme, range(8 * node, 8 * node + 8)) for node in nodes)
    plan = Plan(TABLES, placed, 32, 8)
    return SimpleNamespace(evaluator=evaluator, plan=plan, found=SimpleNamespace(cost=evaluator.cost(plan)))


def wide(answer: Any) -> Evaluator:
    machine = answer.evaluator.setting.machine.with_overrides({"oversubscription": 1.0})
    return Evaluator.on(machine, TABLES, 4096, 32)


@pytest.mark.parametrize("nodes", [(0, 1), (0, 2), (3, 1)])
def test_wherever_the_tables_are_the_two_orders_are_the_same(nodes: tuple[int, int]) -> None:
    answer = on_nodes(nodes)
    orders = pod_orders(answer, wide(answer))
    assert orders is not None
    apart, together = orders
    assert sorted(nodes) in [list(pod) for pod in together.pods]
    assert all(len(set(pod) & set(nodes)) == 1 for pod in apart.pods)
    time_s = answer.found.cost.time_s
    assert together.time_s == pytest.approx(time_s)  # both nodes of a pod are as busy as the busiest
    of = {row.name: row.time_s for row in answer.found.cost.rows}
    assert apart.time_s < time_s - 0.3 * of["all_to_all_across"]


def test_the_links_of_a_pod_carry_the_sum_of_its_nodes() -> None:
    assert pod_payload(4.0, 4, 4, 16) == 1  # four ranks that send 1
    assert pod_payload(1.0, 4, 4, 16) == 1 / 4
    assert pod_payload(2.0, 2, 4, 6) == 1  # half a pod sends 2/3 of its bytes up, a full one 1/3
    e: Any = SimpleNamespace(gpus=32, domain=8)
    each = np.array([[8.0, 8.0, 0.0, 0.0]])
    assert _heaviest(each, e, [[0, 1], [2, 3]]) == 1  # both nodes: as if all ranks sent 1
    assert _heaviest(each, e, [[0, 2], [1, 3]]) == 0.5
    e = SimpleNamespace(gpus=24, domain=8)
    assert _heaviest(np.array([[8.0, 8.0, 8.0]]), e, [[0, 1], [2]]) == 1  # even loads: those of a rank
    assert _apart(np.array([5.0, 1.0, 4.0, 2.0]), [0, 2, 3, 1], [2, 2]) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("values", [{}, {"pod_nodes": 2.0}, {**PODS, "pod_nodes": 4.0}])
def test_no_order_matters_in_one_pod_or_where_links_are_wide(values: dict[str, float]) -> None:
    answer = on_nodes((0, 1), values)
    assert pod_orders(answer, wide(answer) if values else answer.evaluator) is None


def test_no_order_matters_where_all_nodes_are_as_busy() -> None:
    evaluator = Evaluator.on(H100.with_overrides(PODS), TABLES, 4096, 32)
    plan = uniform_plan(TABLES, "row-wise", 32, 8)
    answer: Any = SimpleNamespace(
        evaluator=evaluator, plan=plan, found=SimpleNamespace(cost=evaluator.cost(plan))
    )
    assert pod_orders(answer, wide(answer)) is None


@pytest.mark.parametrize("ratio", [2, 4, 8])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 0.0, 0.0), (1.0, 0.0, 1.0, 0.0), (1.0, 0.5, 0.5, 0.0)])
def test_the_simulation_has_what_a_pod_carries(ratio: float, weights: tuple[float, ...]) -> None:
    """A card each, pods of two; the longer of a card's bytes and those of the busiest pod on its links."""
    cluster = simulation.Cluster(4, 1, 2, ratio)
    case = simulation.Case("all-to-all", cluster, weights=weights)
    e: Any = SimpleNamespace(gpus=4, domain=1)
    mean = _heaviest(np.array([weights]), e, [[0, 1], [2, 3]])
    card = 0.75 * max(weights)
    arriving = max(sum(weights) - own for own in weights) / 4
    law = max(card, arriving, float(crossing_time(mean, 1, 1.0, 4, 1, 2, ratio, 1)))
    assert case.simulated_s() == pytest.approx(law)


def test_a_plan_says_both_orders() -> None:
    asked = PlanQuestion(
        tables=TABLES, machine=H100.with_overrides(PODS), gpus=32, batch=4096, reserve=0.15, effort_s=0.1
    )
    answer, made = asked.answer(), on_nodes((0, 1))
    answer = replace(answer, found=replace(answer.found, plan=made.plan, cost=made.found.cost))
    found = {each.name: each for each in what_ifs(asked, answer, Deadline(0.0))}
    apart, together = found["pods-apart"], found["pods-together"]
    assert apart.time_s is not None and together.time_s is not None and apart.time_s < together.time_s
    assert apart.why == "nodes of the plan by pod: 0 2 | 1 3."
    assert "nodes of the plan by pod: 0 1 | 2 3. The plan's own time takes all GPUs of a pod" in together.why
    assert json.loads(json.dumps(apart.to_dict()))["pods"] == [[0, 2], [1, 3]]
    assert together.to_dict()["pods"] == [[0, 1], [2, 3]] and not found["memory"].pods


def asked_of_skewed(cli: Any, folder: Path, *more: str) -> Any:
    """``plan`` of large tables table-wise on 64 GPUs, above pods of two nodes with narrow links."""
    large = [f"{name},20000000,128,80" for name in "abcdef"]
    some = [f"s{at},5000000,128,20" for at in range(10)]
    (folder / "m.csv").write_text("\n".join(["name,rows,dim,pooling", *large, *some, ""]))
    asked = ("--model", str(folder / "m.csv"), "--gpus", "64", "--only", "table-wise,bags")
    asked += ("--effort", "quick", "--set", "pod_nodes=2", "--set", "oversubscription=4")
    return cli("plan", *asked, *more)


def test_the_first_lines_say_that_the_time_is_an_upper_limit(cli: Any, tmp_path: Path) -> None:
    kept = tmp_path / "plan.json"
    text = asked_of_skewed(cli, tmp_path, "--out", str(kept)).out
    document = json.loads(asked_of_skewed(cli, tmp_path, "--plan", str(kept), "--json").out)
    apart, together = document["changes"]  # of a given plan nothing else is asked
    assert apart["time_s"] < together["time_s"] < document["time_s"]
    between = f"{format_time(apart['time_s'])} with the busiest nodes in different pods to"
    between += f" {format_time(together['time_s'])} with them in one"
    first = " ".join(text.partition("GPUs    64")[0].split())
    said = "This is an upper limit: all GPUs of a pod count as busy as the busiest"
    assert f"{said} (in the bound too). By which nodes share a pod: {between}." in first
    given = " ".join(asked_of_skewed(cli, tmp_path, "--plan", str(kept)).out.split())
    assert f"{said}. By which nodes share a pod: {between}." in given
    table = text.partition("What would change the plan")[2]
    assert "the busiest nodes in one pod" not in table
    ratio = format_ratio(document["time_s"] / apart["time_s"])
    assert f"the busiest nodes in different pods {format_time(apart['time_s'])} ≤ {ratio}" in " ".join(
        table.split()
    )


def marks(text: str) -> dict[str, str]:
    """By its words, the sign before the ratio of each change that is listed."""
    rows = text.partition("What would change the plan")[2].partition("\n\n")[0].splitlines()[1:]
    found = (re.match(r" (\S.*?) {2,}\S+ [mµ]?s +([≤≥]?) ?[\d.]+×", row) for row in rows)
    return {each[1]: each[2] for each in found if each}


def test_a_ratio_of_a_limit_and_of_a_time_that_is_none_says_so(cli: Any, tmp_path: Path) -> None:
    """Links at full rate and orders of nodes have times that are no limits; other cards and batches have."""
    text = asked_of_skewed(cli, tmp_path).out
    signs = marks(text)
    assert signs["links above a pod 4:1 → 1:1"] == "≤" and "≤: at most, since the time now is" in text
    assert signs["the busiest nodes in different pods"] == "≤" and "≥" not in signs.values()
    assert next(sign for words, sign in signs.items() if words.startswith("samples per GPU")) == ""
    changes = json.loads(asked_of_skewed(cli, tmp_path, "--json").out)["changes"]
    for each in changes:
        if each["words"] in signs:
            assert (signs[each["words"]] == "≤") != each["upper_limit"], each["words"]
            pod = int((re.findall(r"pod_nodes=(\d+)", each["option"]) or [2])[0])
            wide = pod >= 8 or each["pods"] or "oversubscription=1" in each["option"]  # 8 nodes
            wide = wide or "nvlink_domain_gpus=64" in each["option"]
            assert each["upper_limit"] != bool(wide), each["words"]


def test_more_gpus_that_leave_the_pod_have_an_upper_limit(cli: Any) -> None:
    """16 GPUs are one pod of two nodes, and 32 are two."""
    asked = ("plan", "--model", "criteo-1tb", "--gpus", "16", "--effort", "quick")
    text = cli(*asked, "--set", "pod_nodes=2", "--set", "oversubscription=4").out
    signs = marks(text)
    assert next(sign for words, sign in signs.items() if "16 → 32" in words) == "≥"
    assert set(signs.values()) == {"≥", ""} and "≥: at least, since this time is an upper limit" in text
