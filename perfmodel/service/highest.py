"""The highest load that a replica carries within a limit, and the batch size and wait for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfmodel.model import queueing
from perfmodel.service.arrivals import Arrivals, Poisson
from perfmodel.service.events import Rule, ServedRequests, simulate
from perfmodel.service.served import LARGEST_BATCH, ServedPass
from perfmodel.service.stragglers import Lateness
from perfmodel.units import format_count

Array = NDArray[np.float64]
P99 = 0.99
LOADS = (0.98, 0.95, 0.9, 0.84, 0.76, 0.66, 0.54, 0.4, 0.26, 0.14, 0.06, 0.02)
"""Shares of the capacity that are tried, highest first."""
WAITS = (0.0, 0.05, 0.15, 0.4)
"""Shares of the limit for which the first request of a batch may wait for others."""
_RARE = 0.002
"""Mean arrivals while one request is served: below it, hardly one of 1000 requests waits for another."""
_HALVINGS = 5
"""Bisection steps for the highest load."""
ERROR = 0.02
"""Relative error of the 99th percentile at which a simulation is long enough (95 %)."""
_MOST_TIMES = 16
"""Largest factor on the given number of requests, for a run with an error of at most ``ERROR``."""
QUICK = (8_000, 20)
"""Followed requests in a simulation of a search, and followed requests per batch."""
_OF_A_BATCH = 1000


def effort_of(requests: int) -> tuple[int, int]:
    """(requests to follow, followed requests per batch) for enough batches to know a 99th percentile."""
    return requests, max(min(requests // _OF_A_BATCH, _OF_A_BATCH), QUICK[1])


@dataclass(frozen=True, eq=False)
class Replica:
    """The pass that one replica runs, and how its requests arrive.

    served    its pass;  arrivals  at the whole service;  late  delays of its collectives by slow ranks
    limit_s   limit of the 99th percentile of the latency [s];  samples  per request
    replicas  number of replicas that share the requests
    """

    served: ServedPass
    arrivals: Arrivals
    limit_s: float
    late: Lateness | None = None
    samples: float = 1.0
    replicas: int = 1

    def rule(self, batch: int, wait_s: float, overlap: bool) -> Rule:
        """How batches are formed: full batches have ``batch`` samples per GPU; wait and overlap as in
        ``Rule``.
        """
        requests = max(int(batch * self.served.gpus // self.samples), 1)
        return Rule(requests, wait_s, self.samples, overlap)

    def capacity(self, rule: Rule) -> float:
        """Most requests per second in full batches (``queueing.batch_capacity``).

        A batch takes the mean time of a pass with its slowest ranks; less if two batches overlap.
        """
        key = rule.requests, rule.overlap
        if key not in self._capacities:
            samples, late = self.samples_of(rule.requests), self.mean_delays(rule.requests)
            gap = self.served.gap(samples, rule.overlap, late)
            self._capacities[key] = float(queueing.batch_capacity(rule.requests, gap))
        return self._capacities[key]

    @cached_property
    def _capacities(self) -> dict[tuple[int, bool], float]:
        return {}

    def samples_of(self, requests: float) -> float:
        """Samples per GPU in a pass with so many requests, rounded to a whole number."""
        return max(math.ceil(requests * self.samples / self.served.gpus), 1)

    def times(self, requests: float) -> Array:
        """Time of each step in a pass with so many requests, without slow ranks [s]."""
        return self.served.at(self.samples_of(requests))[:, 0]

    def delays(self, requests: float) -> Array:
        """Delay by the slowest ranks for each step of each batch with so many requests [batches, S] [s]."""
        assert self.late is not None
        return self.late.delays(self.times(requests), self.samples_of(requests))

    def mean_delays(self, requests: float) -> Array:
        """Mean delay of each step [S] [s]; 0: all ranks are equally fast."""
        return np.zeros(len(self.served.steps)) if self.late is None else self.delays(requests).mean(axis=0)

    def run(self, rule: Rule, rate: float, effort: tuple[int, int]) -> ServedRequests:
        """A simulation of this replica at ``rate`` requests per second.

        effort  as returned by ``effort_of``
        """
        count, of_a_batch = effort
        likely = min(rule.requests, rate * max(self.served.total(1), rule.wait_s))  # or more, if it is busy
        grained = replace(rule, grain=max(int(likely / of_a_batch), 1))
        times = self.arrivals.times(rate, self.replicas, count, grained.grain)
        return simulate(self.served, grained, times, self.late)

    def steady_run(self, rule: Rule, rate: float, effort: tuple[int, int]) -> ServedRequests:
        """A simulation long enough that the 99th percentile is known within ``ERROR``.

        effort  of the first try, as returned by ``effort_of``
        Limits: the error stays larger -> at most ``_MOST_TIMES`` as many requests;  a trace -> one
                simulation, since more requests only repeat it
        """
        count, of_a_batch = effort
        times, most = 1, _MOST_TIMES if isinstance(self.arrivals, Poisson) else 1
        while True:
            run = self.run(rule, rate, (times * count, of_a_batch))
            error = run.error(P99)
            if error <= ERROR or times == most:
                return run
            times = min(times * max(math.ceil((error / ERROR) ** 2), 2), most)  # errors fall as its root

    def p99(self, rule: Rule, rate: float, effort: tuple[int, int]) -> float:
        """99th percentile of the latency, simulated at ``rate`` requests per second [s]."""
        return self.run(rule, rate, effort).quantile(P99)

    def highest(self, rule: Rule, effort: tuple[int, int], above: float = 0.0) -> float:
        """Highest load at which 99 % of the requests are answered within the limit [requests/s].

        effort  of each simulation (``effort_of``). Limits: no such load above ``above`` -> 0
        """
        capacity = self.capacity(rule)
        if capacity <= above or self.served.total(1) > self.limit_s:
            return 0.0
        too_much = capacity
        for share in self._shares(capacity):
            rate = share * capacity
            if rate <= above:
                rate = above * (1 + _BETTER)
            if rate < too_much and self.p99(rule, rate, effort) <= self.limit_s:
                return self._between(rule, rate, too_much, effort)
            if share * capacity <= above:
                return 0.0
            too_much = min(too_much, rate)
        return 0.0

    def _shares(self, capacity: float) -> Iterator[float]:
        """Loads to try, as shares of the capacity: ``LOADS``, then until requests hardly meet."""
        yield from LOADS
        share = LOADS[-1]
        while share * capacity * self.served.total(1) > _RARE:
            share /= 4
            yield share

    def alone(self) -> float:
        """99th percentile of the latency at a load where requests hardly ever meet [s]."""
        rule = self.rule(1, 0.0, False)
        return self.p99(rule, _RARE / self.served.total(1), QUICK)

    def _between(self, rule: Rule, good: float, bad: float, effort: tuple[int, int]) -> float:
        for _ in range(_HALVINGS):
            middle = (good + bad) / 2
            if self.p99(rule, middle, effort) <= self.limit_s:
                good = middle
            else:
                bad = middle
        return good


_BETTER = 0.01
_SMALL = 1 / 8


@dataclass(frozen=True)
class Carried:
    """The highest load that a replica carries within the limit, with full batches of one size.

    batch   samples per GPU in a full batch;  rule  the best wait and overlap for it
    rate_per_s  the load [requests/s];  pass_s  time of a pass with a full batch alone
    capacity_per_s  load that it would carry without a limit on the latency
    """

    batch: int
    rule: Rule
    rate_per_s: float
    pass_s: float
    capacity_per_s: float


def carried(
    replica: Replica,
    batches: Sequence[int],
    wait_s: float | None = None,
    overlap: bool | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[Carried]:
    """For each batch size, the highest load of a replica, one batch after the other and with overlap.

    batches  samples per GPU;  wait_s, overlap  given values; None: the best of ``WAITS``, and of both
    tell     is called with words for each size
    Small sizes whose capacity is less than an eighth of the best load are skipped: a larger size serves small
    batches as well.
    """
    found: list[Carried] = []
    for batch in sorted(batches, reverse=True):
        best = max((each.rate_per_s for each in found), default=0.0)
        if tell is not None:
            tell(f"a batch of {format_count(batch)} on each GPU")
        if replica.capacity(replica.rule(batch, 0.0, False)) >= _SMALL * best:
            found += _of_batch(replica, batch, wait_s, overlap)
    return sorted(found, key=lambda each: each.batch)


def waits_of(replica: Replica, wait_s: float | None) -> list[float]:
    """Waits for other requests to try [s]: the given wait, or all of ``WAITS``."""
    return [share * replica.limit_s for share in WAITS] if wait_s is None else [wait_s]


def soonest(
    replica: Replica, batches: Sequence[int], rate: float, wait_s: float | None, overlap: bool | None
) -> list[tuple[int, Rule, float]]:
    """Every (batch size, rule, p99 [s]) that carries a load within the limit in a short simulation.

    rate  requests per second of this replica;  wait_s, overlap  if given; None: all are tried
    Sizes of full batches that are never reached give equal results, so they are simulated once.
    """
    found = []
    for both in (False, True) if overlap is None else (overlap,):
        for wait in waits_of(replica, wait_s):
            largest, time = 0, 0.0
            for batch in sorted(batches, reverse=True):
                rule = replica.rule(batch, wait, both)
                if replica.capacity(rule) <= rate or (rule.requests == 1 and wait and wait_s is None):
                    continue
                if not largest or rule.requests <= largest:
                    run = replica.run(rule, rate, QUICK)
                    largest, time = run.largest, run.quantile(P99)
                if time <= replica.limit_s:
                    found.append((batch, rule, time))
    return found


def _of_batch(replica: Replica, batch: int, wait_s: float | None, overlap: bool | None) -> Iterator[Carried]:
    waits = waits_of(replica, wait_s)
    for both in (False, True) if overlap is None else (overlap,):
        best: Rule | None = None
        most = 0.0
        for wait in waits:
            rule = replica.rule(batch, wait, both)
            if rule.requests == 1 and wait and wait_s is None:
                continue
            rate = replica.highest(rule, QUICK, most)
            if rate > most * (1 + _BETTER):
                best, most = rule, rate
        if best is not None:
            yield Carried(batch, best, most, replica.served.total(batch), replica.capacity(best))


def surely(replica: Replica, found: Carried, requests: int, above: float = 0.0) -> Carried:
    """The result of ``carried`` again, from longer simulations.

    Limits: no load above ``above`` -> a load of 0
    """
    effort = effort_of(requests)
    rate = replica.highest(found.rule, effort, above)
    while rate > above and replica.steady_run(found.rule, rate, effort).quantile(P99) > replica.limit_s:
        rate *= 1 - _BETTER
    return replace(found, rate_per_s=rate if rate > above else 0.0)


def batches_within(served: ServedPass, limit_s: float) -> list[int]:
    """Batch sizes to try: powers of two that fit the memory and whose pass takes less than ``limit_s``."""
    found, batch = [], 1
    while batch <= min(served.largest_batch, LARGEST_BATCH) and served.total(batch) <= limit_s:
        found.append(batch)
        batch *= 2
    return found
