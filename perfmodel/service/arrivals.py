"""Arrival times of requests: Poisson, or from a file; assigned to replicas at random."""

from __future__ import annotations

import io
import math
from array import array
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.schema.gate import over, read_text
from perfmodel.units import format_count

Array = NDArray[np.float64]
_WHAT = "arrivals file"
_FEWEST, _MOST = 100, 20_000_000
"""Allowed number of times in a file: with fewer there is no 99th percentile."""


@dataclass(frozen=True)
class Poisson:
    """Poisson arrivals: requests that come independently of each other.

    seed  of the random numbers: the same seed gives the same arrivals, scaled to any rate
    rate_per_s  unused: the load is given separately
    """

    seed: int = 0
    name: str = "Poisson"
    rate_per_s: float | None = None  # no rate of its own

    def times(self, rate: float, replicas: int, count: int, grain: int = 1) -> Array:
        """Arrival times at one replica of the requests that are followed [s], increasing; ``count`` of them.

            a_n = (E_1 + ... + E_n) / lambda,   E exponential of mean 1

        rate   lambda of one replica [1/s]: random assignment leaves Poisson arrivals Poisson
        grain  only every ``grain``-th request is followed: the gaps between them are Gamma(grain)
        """
        return self._unit(count, grain) / rate

    def _unit(self, count: int, grain: int) -> Array:
        known = self._drawn
        if (count, grain) not in known:
            random = np.random.default_rng([self.seed, grain])
            gaps = random.standard_exponential(count) if grain == 1 else random.standard_gamma(grain, count)
            known.clear()
            known[count, grain] = np.cumsum(gaps)
        return known[count, grain]

    @cached_property
    def _drawn(self) -> dict[tuple[int, int], Array]:
        return {}


@dataclass(frozen=True, eq=False)
class ArrivalTrace:
    """Arrivals as recorded. For another load, all gaps are multiplied by the same factor.

    A short trace is repeated, so that a run has as many requests as with Poisson arrivals: the result then
    depends on the machine, not on the length of the trace.

    seconds  times of arrival, increasing;  seed  of the random assignment to replicas
    """

    seconds: Array
    name: str
    seed: int = 0
    _known: dict[tuple[int, int, int], Array] = field(default_factory=dict, init=False, repr=False)

    @property
    def rate_per_s(self) -> float:
        """Requests per second over the whole trace."""
        return float((self.seconds.size - 1) / (self.seconds[-1] - self.seconds[0]))

    def times(self, rate: float, replicas: int, count: int, grain: int = 1) -> Array:
        """Arrival times at one of the replicas of the requests that are followed [s]; ``count`` of them.

            t_n = (T floor(n / N) + a_(n mod N)) s,   T = N (a_(N-1) - a_0) / (N - 1)

        a      the N times of the trace, from 0; it is repeated, one mean gap after its end
        s      factor that turns its rate into ``rate`` of one replica [1/s] times the replicas
        n      requests that go to this replica and are followed: each request goes to one of R replicas at
               random, so the next followed request comes ``grain`` + NegativeBinomial(grain, 1 / R) requests
               later
        Limits: at most N requests, one replica -> the trace itself, rescaled
        """
        return self._dealt(replicas, count, grain) * (self.rate_per_s / (rate * replicas))

    def _dealt(self, replicas: int, count: int, grain: int) -> Array:
        """As ``times``, at the trace's own rate; kept, because a search uses the same times at many rates."""
        key = replicas, count, grain
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            steps = np.full(count, grain, dtype=np.int64)
            if replicas > 1:
                random = np.random.default_rng([self.seed, replicas, grain])
                steps += random.negative_binomial(grain, 1 / replicas, count)
            turns, place = np.divmod(np.cumsum(steps) - 1, self.seconds.size)
            turn_s = self.seconds.size / self.rate_per_s
            self._known[key] = turns * turn_s + (self.seconds[place] - self.seconds[0])
        return self._known[key]


_KEPT = 32  # assignments of a trace
Arrivals = Poisson | ArrivalTrace


def read_arrivals(path: Path, seed: int = 0) -> ArrivalTrace:
    """Arrivals from a file: one time in seconds per line, in order.

    Limits: not a number, too few, out of order -> BadInputError with the line
    """
    seconds, last = array("d"), -math.inf
    for at, line in enumerate(io.StringIO(read_text(path, _WHAT)), 1):
        word = line.strip()
        if not word or word.startswith("#"):
            continue
        try:
            time_s = float(word)
        except ValueError:
            time_s = math.nan
        if not math.isfinite(time_s):
            raise BadInputError(
                f"{_WHAT} {path}, line {at}: {word[:40]!r} is not a time.",
                "write seconds, for example 0.0125.",
            )
        if time_s < last:
            raise BadInputError(
                f"{_WHAT} {path}, line {at}: {word[:40]} s comes before the line above it.",
                "sort the file: sort -g FILE.",
            )
        if len(seconds) == _MOST:
            raise over(f"{_WHAT} {path}", "times", _MOST)
        seconds.append(time_s)
        last = time_s
    if len(seconds) < _FEWEST:
        raise BadInputError(
            f"{_WHAT} {path} has {format_count(len(seconds))} times.",
            f"one time in seconds a line: from {_FEWEST} to {format_count(_MOST)} of them.",
        )
    found = np.frombuffer(seconds)
    if found[-1] <= found[0]:
        raise BadInputError(f"{_WHAT} {path}: all requests come at once.", "give times that differ.")
    return ArrivalTrace(found, path.name, seed)
