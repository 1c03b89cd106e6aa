"""Steps of which one hides another: bands as of the maximum, what is hidden is said, what limits is named."""

from __future__ import annotations

import numpy as np
import pytest
from perfmodel.passes.allowed_tiers import Below
from perfmodel.schema.tiers import IN_HBM, parse_tier

from perfmodel.passes.schemes import Exchange
from perfmodel.passes.steps import StepCost
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme
from perfmodel.plan.explain_step import explain_plan_step
from perfmodel.plan.limiting import limiting
from perfmodel.plan.outcome import Planned, given_outcome
from perfmodel.plan.question import PlanQuestion
from perfmodel.projections import project_one
from perfmodel.report.plan_text import limits, steps
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import format_time

H100 = load_machine("h100-sxm-ib")
TABLES = PlanTables.of(
    TableSet("two", (Table("near", 1_000_000, 64, 300.0), Table("far", 1_000_000, 64, 10.0))),
    parse_distribution("uniform"),
)


def on_link(rate: float) -> Machine:
    return H100.with_overrides({"host_link_bytes_per_s": rate})


def cost(rate: float) -> StepCost:
    """One table in HBM, one in host memory, on a link of so many bytes/s."""
    evaluator = Evaluator.on(on_link(rate), TABLES, 4096, 1, below=Below.of([parse_tier("uvm")]))
    schemes = Scheme(Exchange.RB, tier=IN_HBM), Scheme(Exchange.RB, tier=parse_tier("uvm"))
    return evaluator.cost(Plan(TABLES, tuple(Placement.of(s, [0]) for s in schemes), 1, 1))


def crossover() -> float:
    """Rate of the link at which both sides of the gather take as long [bytes/s]."""
    slow, fast = 1e9, 1e13
    assert (cost(slow).limiting.name, cost(fast).limiting.name) == ("gather_host", "gather_pool")
    for _ in range(50):
        middle = np.sqrt(slow * fast)
        slow, fast = (middle, fast) if cost(middle).limiting.name == "gather_host" else (slow, middle)
    return float(slow)


def test_the_band_of_a_gather_from_two_memories_does_not_jump_where_they_take_as_long() -> None:
    at = crossover()
    before, after = cost(at * (1 - 1e-6)), cost(at * (1 + 1e-6))
    assert [before.limiting.name, after.limiting.name] == ["gather_host", "gather_pool"]
    for one, other in ((before, after), (before.limiting, after.limiting)):
        ends = [(x.low_s, x.time_s, x.high_s) for x in (one, other)]
        assert ends[0] == pytest.approx(ends[1], rel=1e-5)


def test_the_band_reaches_as_far_as_the_band_of_each_side() -> None:
    alone = cost(1e15).limiting  # the gather from HBM
    for rate in crossover() * np.array([0.3, 0.8, 0.99, 1.01, 1.5]):
        row = cost(float(rate)).limiting
        assert row.low_s >= alone.low_s * (1 - 1e-9)
        assert row.high_s >= alone.high_s * (1 - 1e-9)
        assert row.low_s <= row.time_s <= row.high_s


@pytest.mark.parametrize(("tier", "name"), [("uvm", "gather_host"), ("ssd:5%", "read_ssd")])
def test_a_projections_band_does_not_jump_where_the_longer_side_changes(tier: str, name: str) -> None:
    def row(rate: float) -> tuple[str, tuple[float, float, float]]:
        answer = project_one(
            table_bytes=1e12,
            gpus=4,
            tier=tier,
            pooling=200.0,
            distribution="zipf:1.05",
            overrides={"host_link_bytes_per_s": rate, "host_bytes_per_s": 1e15, "pcie_bytes_per_s": 1e15},
        )
        found = next(s for s in answer.steps if s.name == name)
        return found.limit, (found.low_s, found.time_s, found.high_s)

    slow, fast = 1e8, 1e14
    first = row(slow)[0]
    assert first != row(fast)[0]
    for _ in range(15):
        middle = float(np.sqrt(slow * fast))
        slow, fast = (middle, fast) if row(middle)[0] == first else (slow, middle)
    assert row(slow)[1] == pytest.approx(row(fast)[1], rel=5e-3)


def planned(rate: float) -> Planned:
    """The plan of ``cost`` as an answer."""
    question = PlanQuestion(
        tables=TABLES, machine=on_link(rate), gpus=1, batch=4096, below=Below.of([parse_tier("uvm")])
    )
    schemes = Scheme(Exchange.RB, tier=IN_HBM), Scheme(Exchange.RB, tier=parse_tier("uvm"))
    plan = Plan(TABLES, tuple(Placement.of(s, [0]) for s in schemes), 1, 1)
    return given_outcome(question.evaluator, plan, question.limit_bytes)


def test_what_limits_a_plan_in_host_memory_is_the_link_or_the_memory_behind_it() -> None:
    slow = planned(10e9)
    found = limiting(slow)
    assert (found.name, found.option) == ("host-link", "--set host_link_bytes_per_s=20GB/s")
    row = slow.found.cost.limiting
    assert 0 < found.saving_s <= (row.time_s - row.beside_s) * (1 + 1e-12)
    faster = planned(20e9).found.cost.time_s
    assert slow.found.cost.time_s - faster == pytest.approx(found.saving_s, rel=1e-3)
    shared = planned(crossover() * 0.9)  # the HBM is nearly as slow: a faster link gains a tenth at most
    assert limiting(shared).saving_s < 0.6 * shared.found.cost.time_s
    behind = on_link(1e15).with_overrides({"host_bytes_per_s": 5e9})
    evaluator = Evaluator.on(behind, TABLES, 4096, 1, below=Below.of([parse_tier("uvm")]))
    assert limiting(given_outcome(evaluator, slow.plan, 64e9)).option == "--set host_bytes_per_s=10GB/s"


def test_the_side_that_is_hidden_is_in_the_steps_the_text_and_the_explanation() -> None:
    at = crossover()
    for rate, name, hidden in (
        (0.9 * at, "gather_host", "HBM gather"),
        (1.1 * at, "gather_pool", "gather over the host link"),
    ):
        answer = planned(rate)
        row = answer.found.cost.limiting
        assert (row.name, row.beside) == (name, hidden)
        assert 0.8 * row.time_s < row.beside_s < row.time_s
        assert row.to_dict()["beside_s"] == row.beside_s
        said = f"{hidden} {format_time(row.beside_s)}, hidden behind"
        assert said in steps(answer)
        assert f"saves at most {format_time(row.time_s - row.beside_s)}" in " ".join(limits(answer).split())
        explained = explain_plan_step(answer.evaluator, answer.plan, answer.found.cost, "gather-host")
        assert explained.step.name == name
        assert f"{hidden} takes {format_time(row.beside_s)} beside it" in explained.time.working[-1]
