"""Closed forms beside the simulation: every bound is kept, every estimate is near, at all loads and rules."""

from __future__ import annotations

import numpy as np
import pytest
from test_service_events import BAGS, GATHER, IDS, served

from perfmodel.model import queueing
from perfmodel.schema.evidence import Evidence
from perfmodel.service.arrivals import ArrivalTrace, Poisson
from perfmodel.service.closed_forms import ABOUT, AT_LEAST, AT_MOST, EQUAL, ClosedForm, closed_forms
from perfmodel.service.events import Rule
from perfmodel.service.highest import Replica
from perfmodel.service.stragglers import RankDelay, lateness

ONE = served((IDS, 4e-4, 2e-6), (GATHER, 2e-4, 1e-6), (BAGS, 4e-4, 2e-6), gpus=4)
LATE = lateness(RankDelay(8e-6, 8e-6, 8e-6, 0.05, 0.05, 0.05, Evidence.ASSUMED, ""), (2, 0, 2), 4)
RULES = {
    "M/D/1": Rule(1, 0.0, overlap=False),
    "batches": Rule(64, 0.0, overlap=False),
    "all at once": Rule(4096, 0.0, overlap=False),
    "waits": Rule(64, 3e-4, overlap=False),
    "overlap": Rule(64, 3e-4, overlap=True),
}


def found(rule: Rule, used: float, late: bool = False) -> dict[str, ClosedForm]:
    """At a share of the capacity."""
    replica = Replica(ONE, Poisson(1), 1.0, LATE if late else None)
    rate = used * replica.capacity(rule)
    run = replica.run(rule, rate, (30_000, 100))
    return {each.name: each for each in closed_forms(replica, rule, rate, run)}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("late", [False, True])
def test_bounds_are_kept_and_what_is_equal_is(name: str, late: bool) -> None:
    for used in (0.05, 0.4, 0.8):
        for each in found(RULES[name], used, late).values():
            ratio = each.simulated / each.closed
            if each.kind == AT_LEAST:
                assert ratio > 0.995, each
            elif each.kind == AT_MOST:
                assert ratio < 1.005, each
            elif each.kind == EQUAL:
                assert ratio == pytest.approx(1, abs=0.03), each
    kinds = {each.kind for each in found(RULES[name], 0.4, late).values()}
    assert {AT_MOST, EQUAL} <= kinds


@pytest.mark.parametrize("name", ["batches", "all at once"])
@pytest.mark.parametrize(("used", "late"), [(0.02, False), (0.3, False), (0.6, False), (0.3, True)])
def test_percentiles_are_near_where_passes_take_all_that_wait(name: str, used: float, late: bool) -> None:
    about = {k: each for k, each in found(RULES[name], used, late).items() if each.kind == ABOUT}
    assert list(about) == ["p50", "p95", "p99"]
    for each in about.values():
        assert each.simulated == pytest.approx(each.closed, rel=0.05 if late else 0.04), each  # delays vary


def test_a_tighter_bound_would_be_broken() -> None:
    """The bound of the mean is attained: where a pass takes as long for any batch it is the mean itself."""
    same = served((IDS, 1e-3, 0.0))
    replica, rule = Replica(same, Poisson(2), 1.0), Rule(10_000, 0.0, overlap=False)
    for asked in (0.3, 3.0):
        run = replica.run(rule, asked / 1e-3, (60_000, 100_000))
        bound = next(e for e in closed_forms(replica, rule, asked / 1e-3, run) if e.name == "mean")
        assert bound.kind == AT_LEAST and bound.simulated == pytest.approx(bound.closed, rel=0.01)


def test_a_trace_has_no_closed_form_of_its_queue() -> None:
    trace = ArrivalTrace(Poisson(1).times(1e3, 1, 500), "a trace")
    replica, rule = Replica(ONE, trace, 1.0), RULES["batches"]
    run = replica.run(rule, 1e3, (10_000, 100))
    assert [each.name for each in closed_forms(replica, rule, 1e3, run)] == ["capacity", "alone"]


def test_the_percentile_of_passes_that_take_all() -> None:
    x = queueing.unlimited_batch_quantile
    assert x(1e-9, 2.0, 0.99) == pytest.approx(2.0)
    assert x(1e9, 2.0, 0.5) == pytest.approx(3.0)
    assert x(1.0, 1.0, 1.0) == pytest.approx(2.0)
    assert x(0.0, 2.0, 0.99) == 2.0
    shares = (np.arange(100_000) + 0.5) / 100_000
    mean = float(x(0.7, 1.0, shares).mean())  # the mean of all quantiles is the mean
    assert mean == pytest.approx(1 + float(queueing.unlimited_batch_wait(0.7, 1.0)), rel=1e-6)
