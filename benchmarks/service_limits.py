"""The simulation of a service beside its closed forms: mean latencies, and what full batches serve.

python benchmarks/service_limits.py     about 10 s; the same numbers on every computer
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import numpy as np

from perfmodel.model import queueing, schedule
from perfmodel.schema.evidence import Evidence
from perfmodel.service.arrivals import Poisson
from perfmodel.service.events import Rule, ServedRequests, simulate
from perfmodel.service.served import ServedPass, ServedStep
from perfmodel.service.stragglers import Lateness, RankDelay, lateness

REQUESTS, PASS_S = 300_000, 1e-3
UNLIMITED = 10**6
STEP = ServedStep("all_to_all_ids", "all_to_all", schedule.NETWORK)


def constant(time_s: float) -> ServedPass:
    """A pass of one exchange that takes as long for any batch, on one GPU."""
    times = np.full((1, 2), time_s)
    ends = np.array([1.0, 2.0])
    return ServedPass(1, ends, (STEP,), times, times, times, (Evidence.MEASURED,) * 2, np.ones(2, bool))


def served(load: float, full: int, late: Lateness | None = None) -> ServedRequests:
    """At so many requests per pass, in batches of up to ``full``."""
    times = Poisson(1).times(load / PASS_S, 1, REQUESTS)
    return simulate(constant(PASS_S), Rule(full, 0.0, overlap=False), times, late)


def cases() -> Iterator[tuple[str, float, float, float]]:
    """(what, requests per pass, simulated, closed form), mean latencies in passes."""
    spread = 0.8
    random = RankDelay(0.0, 0.0, 0.0, spread, spread, spread, Evidence.ASSUMED, "")
    late = lateness(random, (1,), 1)  # one rank: exponential delays of mean 0
    for load in (0.1, 0.3, 0.5, 0.7, 0.9):
        wait = float(queueing.mean_wait(load, 1.0))
        yield "one at a time, equal passes (M/D/1)", load, served(load, 1).mean_s / PASS_S, 1 + wait
        wait = float(queueing.mean_wait(load, 1.0, spread**2))
        yield "one at a time, random passes (M/G/1)", load, served(load, 1, late).mean_s / PASS_S, 1 + wait
    for load in (0.1, 0.5, 1.0, 3.0, 10.0, 100.0):
        wait = float(queueing.unlimited_batch_wait(load, 1.0))
        yield "all that wait at once", load, served(load, UNLIMITED).mean_s / PASS_S, 1 + wait
    for full in (1, 8, 64):
        found = simulate(constant(PASS_S), Rule(full, 0.0, overlap=False), np.linspace(0, 1e-9, full * 500))
        each = float(found.latency_s.max() - found.latency_s.min()) / (found.latency_s.size / full - 1)
        yield "overload: requests per pass", float(full), full * PASS_S / each, float(full)


def main() -> None:
    """The table."""
    errors = []
    print(f"{'':38} {'load':>6} {'simulated':>10} {'closed':>8} {'error':>8}")
    for what, load, simulated, closed in cases():
        errors.append(abs(simulated / closed - 1))
        print(f"{what:38} {load:6g} {simulated:10.4g} {closed:8.4g} {simulated / closed - 1:+8.2%}")
    print(f"median error {statistics.median(errors):.2%}, largest {max(errors):.2%}")


if __name__ == "__main__":
    main()
