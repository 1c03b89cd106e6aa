"""How long a simulation of a service is: until its 99th percentile is known, and what is left is said."""

from __future__ import annotations

import math
import re
import resource
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal, getcontext
from typing import Any

import numpy as np
import pytest
from test_service_events import IDS, served

from perfmodel.service import events
from perfmodel.service.arrivals import Poisson
from perfmodel.service.events import Rule, ServedRequests
from perfmodel.service.highest import ERROR, P99, Carried, Replica, effort_of, surely
from perfmodel.service.stragglers import Lateness

TAIL = served((IDS, 1e-6, 0))
ALONE = Rule(1, 0.0, overlap=False)


def md1_p99(rho: float) -> float:
    """Latency over t. Erlang: P(wait <= x t) = (1 - rho) sum over k <= x of y^k / k! e^-y; y = rho (k - x)"""
    getcontext().prec = 60
    r, low, high = Decimal(str(rho)), Decimal(0), Decimal(100)
    for _ in range(40):
        x = (low + high) / 2
        terms = [
            (r * (k - x)) ** k / math.factorial(k) * (-r * (k - x)).exp() if k else (r * x).exp()
            for k in range(int(x) + 1)
        ]
        low, high = (x, high) if (1 - r) * sum(terms) < Decimal(str(P99)) else (low, x)
    return 1 + float(low)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_a_p99_near_the_capacity_is_known_within_the_error_that_is_said(rho: float) -> None:
    """200 000 requests leave 7 to 16 % open at 90 %; 16 times as many leave 3 %, which is said."""
    true = md1_p99(rho) * 1e-6
    for seed in range(3):
        replica = Replica(TAIL, Poisson(seed), 1.0)
        short = replica.run(ALONE, rho * 1e6, effort_of(200_000))
        run = replica.steady_run(ALONE, rho * 1e6, effort_of(200_000))
        assert abs(run.quantile(P99) / true - 1) < 1.5 * run.error(P99) < 0.06
        assert (run.error(P99) <= ERROR) or run.latency_s.size > 15 * short.latency_s.size
        if rho == 0.9:
            assert short.error(P99) > 2 * run.error(P99)


def test_the_error_of_a_quantile_of_requests_that_know_nothing_of_one_another() -> None:
    """A binomial share: its sd is sqrt(q (1 - q) / n), and an exponential has the density 1 - q there."""
    n, q = 100_000, 0.9
    latency = np.random.default_rng(1).standard_exponential(n)
    run = ServedRequests(latency, dict, n, 1.0, 1, 0.0, 1.0)
    sd = math.sqrt(q * (1 - q) / n) / (1 - q)
    assert run.error(q) == pytest.approx(2.09 * sd / -math.log(1 - q), rel=0.4)
    same = replace(run, latency_s=np.tile(np.arange(1.0, 101.0), 1000))
    assert same.error(0.5) == 0


def test_what_is_carried_is_within_the_limit_in_a_steady_run() -> None:
    replica = Replica(TAIL, Poisson(1), 30e-6)
    found = surely(replica, Carried(1, ALONE, 0.0, 1e-6, 1e6), 20_000)
    assert replica.steady_run(ALONE, found.rate_per_s, effort_of(20_000)).quantile(P99) <= 30e-6
    assert found.rate_per_s == pytest.approx(0.93e6, rel=0.02)


def test_requests_of_one_are_served_as_batches_are() -> None:
    """The closed recursion against the loop over batches, with slow ranks."""
    late = Lateness(1e-7, 0.1, np.random.default_rng(2).standard_exponential((512, 1)) - 1)
    come = Poisson(3).times(0.8e6, 1, 20_000)
    found, slow = events._one_by_one, events._in_line
    times, steps = np.rint(come * 1e12).astype(np.int64), np.array([[10**6]])
    passes = events._Passes(steps, 1e-7 * 1e12, 0.1, late.rows)
    a, b = found(times, passes), slow(memoryview(times), passes, 1, 0)
    for name in ("first", "closed", "formed", "ready", "late"):
        assert (getattr(a, name) == getattr(b, name)).all(), name


def test_an_uncertain_p99_is_printed_with_its_error(cli: Any) -> None:
    asked = [
        "load",
        "--table-size",
        "100GB",
        "--gpus",
        "8",
        "--qps",
        "15500",
        "--p99",
        "20ms",
        "--batch",
        "1",
    ]
    found = cli(*asked, "--samples", "8", "--no-overlap", "--requests", "10000", "--sharding", "row-wise")
    assert (
        found.code == 0 and re.search(r"p99 is [\d.]+ ms ±[\d.]+ %", found.out) and "--requests" in found.out
    )


def test_large_requests_are_answered_in_seconds() -> None:
    """5 s of one core; a slow one has three times as many."""
    words = ("load", "--table-size", "10TB", "--qps", "500k", "--p99", "10ms", "--samples", "200")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (15, 15))

    done = subprocess.run(
        [sys.executable, "-c", "from perfmodel.cli import main; main()", *words],
        preexec_fn=limited,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "requests/s within 10.0 ms (p99)" in done.stdout, done.stderr
