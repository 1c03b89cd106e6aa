"""GPUs that share a PCIe switch: rows of host memory share its uplink, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any

import fabric_simulation as simulation
import numpy as np
import pytest
from cli_calls import Outcome

from perfmodel.errors import BadInputError
from perfmodel.model import tiers
from perfmodel.passes.allowed_tiers import Below
from perfmodel.passes.measured_tier import SWITCH, with_host_tier
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, uniform_plan
from perfmodel.projections import Projection, project_one
from perfmodel.projections.sensitivity import sensitivities
from perfmodel.schema.calibration import Interval
from perfmodel.schema.constants import load_kernel_constants
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.machine import load_machine
from perfmodel.schema.tiers import parse_tier
from perfmodel.schema.workload import Table, TableSet

H100 = load_machine("h100-sxm-ib")
TIERS = ("uvm", "uvm-caching:1%", "uvm-caching:1%,lfu", "uvm-caching:1%,prefetch", "ssd:1%")
PACKETS = 128 / (128 + 18)
"""Part of a link that rows of whole reads have of it, beside the headers."""


def one(tier: str | None, switch: float | None = None, **more: object) -> Projection:
    given = {} if switch is None else {SWITCH: switch}
    asked = {"table_bytes": 10e12, "tier": tier, "overrides": given, "dim": 256, **more}
    return project_one(**asked)  # type: ignore[arg-type]


def gather(answer: Projection) -> tuple[float, float, float]:
    return next((s.low_s, s.time_s, s.high_s) for s in answer.steps if s.name == "gather_host")


def test_the_uplink_is_shared_by_the_gpus_of_a_switch() -> None:
    assert tiers.uplink_rate(64e9, 0.5, 96, 32, 1) == pytest.approx(24e9)
    shares = np.array([1, 2, 4, 8])
    assert shares * tiers.uplink_rate(64e9, 0.9, 128, 18, shares) == pytest.approx(64e9 * 0.9 * PACKETS)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("dim", [8, 32, 100, 512])
def test_a_switch_for_each_gpu_changes_no_time(tier: str, dim: int) -> None:
    """It is known then that no neighbour slows a GPU, so a band may only become narrower."""
    unsaid, alone = (one(tier, switch, dim=dim) for switch in (None, 1))
    assert [(s.low_s, s.time_s) for s in alone.steps] == [(s.low_s, s.time_s) for s in unsaid.steps]
    assert all(a.high_s <= b.high_s for a, b in zip(alone.steps, unsaid.steps, strict=True))
    assert alone.time_s == unsaid.time_s


@pytest.mark.parametrize("gpus", [8, 64])
def test_gpus_that_read_no_host_memory_feel_no_switch(gpus: int) -> None:
    """Nor does GPUDirect RDMA, which stays below it."""
    unsaid, shared = (one(None, switch, table_bytes=1e11, gpus=gpus) for switch in (None, 4))
    assert [astuple(step) for step in shared.steps] == [astuple(step) for step in unsaid.steps]


@pytest.mark.parametrize("switch", [2, 4])
def test_long_rows_have_a_share_of_the_uplink(switch: int) -> None:
    """Rows of 1 KiB, after a launch of 4 us and a latency of 1.3 us, at 0.908 of 64 GB/s over k."""
    answer = one("uvm", switch)
    moved = next(s.payload_bytes for s in answer.steps if s.name == "gather_host")
    by_hand = 5.3e-6 + moved / (0.908 * 64e9 * PACKETS / switch)
    assert gather(answer)[1] == pytest.approx(by_hand, rel=1e-6)


def test_as_many_share_as_read() -> None:
    """Tables of 1 TB on one GPU, and on four GPUs of a node with eight a switch."""
    few = {"table_bytes": 1e12, "dim": 256}
    assert gather(one("uvm", 8, gpus=1, **few)) == gather(one("uvm", gpus=1, **few))
    four, two = (one("uvm", switch, gpus=4, **few) for switch in (8, 4))
    assert gather(four) == gather(two)
    alone = gather(one("uvm", gpus=1, **few))
    assert gather(four)[1] - 5.3e-6 == pytest.approx(4 * (alone[1] - 5.3e-6), rel=1e-3)


def test_waiting_for_addresses_fills_no_uplink() -> None:
    """Rows of 128 B take 495 B of a link's time and 146 B of the uplink: two of them fit beside each other.

    Whether those waits share anything is not known, so the upper end has both, as without a switch.
    """
    unsaid, two = (gather(one("uvm", switch, dim=32)) for switch in (None, 2))
    assert two == unsaid
    four = gather(one("uvm", 4, dim=32))
    assert four[1] > unsaid[1] * 1.1


def test_the_evidence_is_that_of_the_switch() -> None:
    step = next(s for s in one("uvm", 2).steps if s.name == "gather_host")
    assert (step.limit, str(step.evidence)) == (SWITCH, "assumed")


def test_a_plan_has_the_same_time_as_a_projection() -> None:
    """And the quick times of a search are those of the answer."""
    some = TableSet("some", tuple(Table(f"t{at}", 1_000_000, 256, 32) for at in range(8)))
    tables = PlanTables.of(some, parse_distribution("uniform"))
    times = {}
    for switch in (1, 2):
        machine, below = H100.with_overrides({SWITCH: switch}), Below.of([parse_tier("uvm")])
        evaluator = Evaluator.on(machine, tables, 1024, 8, below=below)
        rows = uniform_plan(tables, "row-wise", 8, evaluator.domain).placements
        placed = tuple(Placement(replace(p.scheme, tier=parse_tier("uvm")), p.ranks) for p in rows)
        plan = Plan(tables, placed, 8, evaluator.domain)
        found = evaluator.cost(plan)
        answer = project_one(tables=some, gpus=8, tier="uvm", overrides={SWITCH: switch})
        assert found.time_s == pytest.approx(answer.time_s, rel=1e-9)
        assert float(evaluator.step_times(evaluator.loads(plan).most)) == pytest.approx(
            found.time_s, rel=1e-3
        )
        times[switch] = found.time_s
    assert times[2] > 1.2 * times[1]


@pytest.mark.parametrize(("ranks", "left"), [(1, 2), (2, 1), (8, 1)])
def test_a_rate_that_neighbours_shared_when_it_was_timed_is_not_shared_again(ranks: int, left: int) -> None:
    rate = Interval(value=29e9, low=28e9, high=30e9)
    tier = SimpleNamespace(values={"link_bytes_per_s": rate}, ranks=ranks, sample_count=9, log_sd=0.01)
    own: Any = SimpleNamespace(host_tier=tier, calibration_id="mine")
    machine, _ = with_host_tier(H100.with_overrides({SWITCH: 2}), load_kernel_constants(), own)
    assert (machine.value("host_link_bytes_per_s"), machine.value(SWITCH)) == (29e9, left)


def test_a_switch_for_each_gpu_is_offered() -> None:
    assert f"--set {SWITCH}=1" in {s.option for s in sensitivities(one("uvm", 2))}
    assert not any(SWITCH in s.option for s in sensitivities(one("uvm", 1)))


def test_an_explanation_has_the_share_of_the_uplink(cli: Callable[..., Outcome]) -> None:
    typed = "explain gather-host --table-size 10TB --tier uvm --dim 256 --set gpus_per_pcie_switch"
    text = cli(*f"{typed}=2".split()).out
    assert "R_up = f × C × a / ((a + h) × k)" in text and "tiers.uplink_rate" in text and "25.5 GB/s" in text
    assert "R_up" not in cli(*f"{typed}=1".split()).out


@pytest.mark.parametrize(
    ("machine", "value", "error"),
    [
        ("h100-sxm-ib", 3, "3 does not divide the 8 GPUs of a node"),
        ("h100-sxm-ib", 0, "more than 0"),
        ("h100-sxm-ib", 1.5, "whole number"),
        ("gh200-slingshot", 2, "faster than PCIe"),
    ],
)
def test_impossible_switches_are_refused(machine: str, value: float, error: str) -> None:
    with pytest.raises(BadInputError, match=error):
        load_machine(machine).with_overrides({SWITCH: value})


def test_the_law_agrees_with_a_simulation_of_flows() -> None:
    for rows in simulation.row_cases():
        assert rows.law_s() == pytest.approx(rows.simulated_s(), rel=1e-9)


def test_messages_beside_rows_share_the_port_of_the_gpu() -> None:
    """Rows have half of the port, so messages of the other half cost nothing; at 0.8 they wait."""
    half = simulation.Board(8, 2, 9.6, card=0.5)
    assert simulation.Rows(half, 1.0).simulated_s() == pytest.approx(2)
    assert simulation.Rows(replace(half, card=0.8), 1.6).simulated_s() == pytest.approx(2 + 0.6 / 0.8)
