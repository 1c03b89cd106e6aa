"""Discrete-event simulation of a replica: requests arrive, batches are formed, their steps run.

A batch is formed when its first step can begin, but not before it is full or its first request has waited
long enough. It takes all requests that have arrived by then, up to its size. Times are whole picoseconds, so
that every CPU forms the same batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from perfmodel.model.schedule import IN_FLIGHT
from perfmodel.service.served import ServedPass
from perfmodel.service.stragglers import Lateness

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
_PER_S = 1e12
_DIGITS = 17  # of a time, at most: in a run of more than a day the unit is more than a picosecond
_FAR = 2**62
_WARM = 0.1  # of the requests, while queues fill up
_FEWEST_BATCHES, _AT_ONCE = 20, 4096  # in a simulation; requests per batch in a short one
_PARTS, _UPPER = 20, 0.975  # of a run, for the error of its quantiles; two-sided 95 %
WAITS = ("batching", "queue", "pass", "stragglers")
"""Parts of a request's latency, in order."""


@dataclass(frozen=True)
class Rule:
    """How a replica forms batches of requests.

    requests  of a full batch;  wait_s  longest that a batch's first request waits for others [s]
    samples   per request;  overlap  whether steps of two batches run at the same time
    grain     each simulated request stands for so many
    """

    requests: int
    wait_s: float
    samples: float = 1.0
    overlap: bool = True
    grain: int = 1

    @property
    def followed(self) -> int:
        """Number of simulated requests in a full batch, each of which stands for ``grain`` requests."""
        return max(self.requests // self.grain, 1)


@dataclass(frozen=True, eq=False)
class ServedRequests:
    """Result of a simulation, without the initial time in which queues fill up.

    latency_s  of every simulated request;  parts  function that computes ``parts_s``
    batches    number that were served;  requests  per batch on average;  largest  in the largest batch: a
               larger full batch would change nothing
    grain      requests that each simulated request stands for
    first_s, last_s  arrival of the first and the last request
    """

    latency_s: Array
    parts: Callable[[], dict[str, Array]]
    batches: int
    requests: float
    grain: int
    first_s: float
    last_s: float
    largest: int = 0

    @cached_property
    def parts_s(self) -> dict[str, Array]:
        """The parts that add up to every latency, by their names (``WAITS``). Not used in a search."""
        return self.parts()

    def quantile(self, q: float) -> float:
        """Latency below which a share q of the requests is [s]."""
        return float(np.quantile(self.latency_s, q, method="inverted_cdf"))

    def error(self, q: float) -> float:
        """Relative half-width of the 95 % interval of ``quantile``: uncertainty due to the run's length [-].

            (x(q + d) - x(q - d)) / (2 x(q)),   d = t s / sqrt(n)

        x  ``quantile``;  n  number of equal parts of the run, one after the other
        s  standard deviation, over these parts, of the share of latencies below x(q)
        t  Student's, of n - 1 degrees of freedom
        Source: batch means: parts that are much longer than a busy period are nearly independent
        Limits: equal parts -> 0;  independent requests -> the error of a binomial share
        """
        whole = self.quantile(q)
        shares = [float((part <= whole).mean()) for part in np.array_split(self.latency_s, _PARTS)]
        apart = float(stdtrit(_PARTS - 1, _UPPER) * np.std(shares, ddof=1) / np.sqrt(_PARTS))
        low, high = self.quantile(max(q - apart, 0.0)), self.quantile(min(q + apart, 1.0))
        return (high - low) / (2 * whole)

    @property
    def mean_s(self) -> float:
        """Mean latency [s]."""
        return float(self.latency_s.mean())

    def made_of(self, q: float, width: float = 0.005) -> dict[str, float]:
        """Parts of the latencies near the quantile q, which add up to it [s].

        They are means over requests whose latencies are between the quantiles q - width and q + width.
        """
        whole = self.quantile(q)
        low, high = self.quantile(q - width), self.quantile(min(q + width, 1 - width / 2))
        near = (self.latency_s >= low) & (self.latency_s <= high)
        means = {name: float(part[near].mean()) for name, part in self.parts_s.items()}
        scale = whole / sum(means.values())
        return {name: value * scale for name, value in means.items()}


def simulate(served: ServedPass, rule: Rule, arrivals: Array, late: Lateness | None = None) -> ServedRequests:
    """Simulate a replica that serves requests which arrive at ``arrivals`` [s], increasing.

        begin = max(free, min(a_B, a_1 + w)),   end = begin + t(n) + d,   latency = end - a     [s]

    a    arrival of a request;  a_1, a_B  arrivals of the first and last request of a full batch;  w  wait
    free end of the batch before; with overlap, the time when the first step can begin
    n    requests that have arrived by then, at most B;  t  time of their pass;  d  delay of its slowest ranks
    late  delays of the collectives of each batch, repeated if there are more batches; None: all ranks are
          equally fast
    Limits: load -> 0 -> the wait and a pass;  overload -> latencies grow to the end of the run
    """
    per_s = min(_PER_S, 10.0 ** np.floor(_DIGITS - np.log10(max(float(arrivals[-1]), 1.0))))
    times = np.rint(arrivals * per_s).astype(np.int64)
    full = min(rule.followed, max(times.size // _FEWEST_BATCHES, _AT_ONCE))  # more never come together
    counts = np.ceil(np.arange(1, full + 1) * rule.grain * rule.samples / served.gpus)
    steps = np.rint(served.at(counts) * per_s).astype(np.int64).T
    passes = _Passes(steps)
    if late is not None:
        passes = _Passes(steps, late.floor_s * per_s, late.share, late.rows, late.more_of(counts))
    wait = round(rule.wait_s * per_s) if rule.requests > 1 else 0
    come = memoryview(times)  # Python's own integers, only for times that are used
    if rule.overlap:
        found = _overlapped(come, passes, served, full, wait)
    elif full == 1:
        found = _one_by_one(times, passes)
    else:
        found = _in_line(come, passes, full, wait)
    return _measured(times, steps.sum(axis=1), found, rule, full, per_s)


@dataclass(frozen=True, eq=False)
class _Passes:
    """Times of the steps of a batch by its number of requests, and its delays by slow ranks (``Lateness``).

    steps  [n, S] for 1 .. n requests and S steps [ps];  floor, share  of the delays
    draws  random numbers for each batch; empty: all ranks are equally fast
    more   [n, S] added to the draws; [0, 0]: nothing to add
    """

    steps: Whole
    floor: float = 0.0
    share: float = 0.0
    draws: Sequence[Sequence[float]] = ()
    more: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def spans(self, number: int, requests: int) -> tuple[list[int], int]:
        """For a batch: (time of each step with its slowest rank, sum of the delays by slowest ranks) [ps].

        number  of the batch, which determines the draws;  requests  in it
        """
        times, scales, more = self._known.get(requests) or self._of(requests)
        if not self.draws:
            return times, 0
        drawn = self.draws[number % len(self.draws)]
        late = [int(scale * (a + b)) for scale, a, b in zip(scales, drawn, more, strict=True)]
        return [time + each for time, each in zip(times, late, strict=True)], sum(late)

    def _of(self, requests: int) -> tuple[list[int], list[float], list[float]]:
        """For a batch of so many requests: (time of each step, scale of its delay, addition to the draw)."""
        times: list[int] = self.steps[requests - 1].tolist()
        scales = [self.floor + self.share * time if time else 0.0 for time in times]
        more = self.more[requests - 1].tolist() if self.more.size else [0.0] * len(times)
        self._known[requests] = times, scales, more
        return self._known[requests]

    @cached_property
    def _known(self) -> dict[int, tuple[list[int], list[float], list[float]]]:
        return {}


@dataclass(frozen=True, eq=False)
class _Batches:
    """The batches of a simulation, an array entry each; times in ps.

    first   index of its first request;  closed  when it was full or had waited;  formed  when it began
    ready   when its last step ended;  late  delay by slow ranks
    """

    first: Whole
    closed: Whole
    formed: Whole
    ready: Whole
    late: Whole
    end: int  # requests that were served


def _one_by_one(times: Whole, passes: _Passes) -> _Batches:
    """Batches of one request each, one after the other: as ``_in_line``, but without a loop.

        end_n = S_n + max over k <= n of (a_k - S_(k-1)),   S_n = s_1 + ... + s_n

    a_k  arrival of request k (``times``);  s_k  time of its pass
    """
    rows = [passes.spans(number, 1) for number in range(max(len(passes.draws), 1))]
    late = np.resize([late for _, late in rows], times.size)
    served = np.cumsum(late + passes.steps[0].sum())
    before = np.append(0, served[:-1])
    ready = served + np.maximum.accumulate(times - before)
    formed = np.maximum(times, np.append(0, ready[:-1]))
    return _Batches(np.arange(times.size), times, formed, ready, late, times.size)


def _in_line(come: Sequence[int], passes: _Passes, full: int, wait: int) -> _Batches:
    """One batch after the other: each begins when it is closed and the batch before has ended.

    come  arrivals;  full  requests of a full batch;  wait  of its first request; times in ps
    """
    count, at, free, number = len(come), 0, 0, 0
    out: list[tuple[int, int, int, int, int]] = []
    while at < count:
        filled = come[at + full - 1] if at + full <= count else _FAR
        closed = min(filled, come[at] + wait)
        formed = closed if closed > free else free
        after = bisect_right(come, formed, at, min(at + full, count))
        spans, late = passes.spans(number, after - at)
        free = formed + sum(spans)
        out.append((at, closed, formed, free, late))
        at, number = after, number + 1
    return _columns(out, at)


def _overlapped(come: Sequence[int], passes: _Passes, served: ServedPass, full: int, wait: int) -> _Batches:
    """Two batches at the same time: of their next steps, the step that can begin earlier is started.

    Arguments as in ``_in_line``; the order is as in ``model.schedule``.
    """
    kinds = list(dict.fromkeys(step.device for step in served.steps))
    device = [kinds.index(step.device) for step in served.steps]
    last, count, at = len(device), len(come), 0
    free = [0] * len(kinds)
    out: list[tuple[int, int, int, int]] = []
    ends: list[int] = []  # per batch, so far
    flying: list[list[Any]] = []  # [index in out, next step, when it can begin, spans of its steps]
    while at < count or flying:
        best, pick = _FAR, -1
        for place, batch in enumerate(flying):
            begin, busy = batch[2], free[device[batch[1]]]
            if busy > begin:
                begin = busy
            if begin < best:
                best, pick = begin, place
        if at < count and len(flying) < IN_FLIGHT:
            filled = come[at + full - 1] if at + full <= count else _FAR
            closed = min(filled, come[at] + wait)
            room = ends[-IN_FLIGHT] if len(ends) >= IN_FLIGHT else 0
            formed = max(closed, room, free[device[0]])
            if formed < best:
                after = bisect_right(come, formed, at, min(at + full, count))
                spans, late = passes.spans(len(out), after - at)
                out.append((at, closed, formed, late))
                at = after
                if not flying and max(free) <= formed:
                    end = formed + sum(spans)
                    if after == count or come[after] >= end:  # no request arrives while it runs
                        free = [end] * len(kinds)
                        ends.append(end)
                        continue
                ends.append(0)
                flying.append([len(out) - 1, 0, formed, spans])
                pick, best = len(flying) - 1, formed
        batch = flying[pick]
        number, own = batch[0], batch[1]
        end = best + batch[3][own]
        ends[number] = free[device[own]] = batch[2] = end
        batch[1] = own + 1
        if own + 1 == last:
            del flying[pick]
    rows = [(*row[:3], end, row[3]) for row, end in zip(out, ends, strict=True)]
    return _columns(rows, at)


def _columns(rows: list[tuple[int, int, int, int, int]], end: int) -> _Batches:
    first, closed, formed, ready, late = np.array(rows, dtype=np.int64).T
    return _Batches(first, closed, formed, ready, late, end)


def _measured(
    times: Whole, alone: Whole, found: _Batches, rule: Rule, full: int, per_s: float
) -> ServedRequests:
    """The result: latencies of requests and their parts, without the time in which queues fill up.

    times  arrivals [ps];  alone  time of a pass without slow ranks, by requests;  per_s  ps per second
    """
    counts = np.diff(np.append(found.first, found.end))
    of = np.repeat(np.arange(counts.size), counts)
    begin = min(int(_WARM * times.size), times.size - 1)
    kept = slice(begin, max(found.end - min(full, times.size // _FEWEST_BATCHES), begin + 1))
    came, batch = times[kept], of[kept]
    latency = found.ready[batch] - came
    batches = int(batch[-1] - batch[0] + 1)

    def parts() -> dict[str, Array]:
        formed, late, served = found.formed[batch], found.late[batch], alone[counts - 1][batch]
        collected = np.clip(np.minimum(found.closed[batch], formed) - came, 0, None)
        each = (collected, latency - collected - served - late, served, late)
        return {name: part / per_s for name, part in zip(WAITS, each, strict=True)}

    return ServedRequests(
        latency / per_s,
        parts,
        batches,
        came.size / batches * rule.grain,
        rule.grain,
        float(came[0] / per_s),
        float(came[-1] / per_s),
        int(counts.max()) * rule.grain,
    )
