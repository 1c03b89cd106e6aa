"""What a service sees: latencies against load, how many replicas carry it, what its p99 is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.model import queueing
from perfmodel.service.arrivals import Arrivals, Poisson
from perfmodel.service.closed_forms import QUANTILES, ClosedForm, closed_forms
from perfmodel.service.events import Rule, ServedRequests
from perfmodel.service.highest import (
    FOLLOWED,
    P99,
    QUICK,
    Carried,
    Replica,
    batches_within,
    carried,
    effort_of,
    surely,
)
from perfmodel.service.served import ServedPass
from perfmodel.service.stragglers import NONE, RankDelay, lateness
from perfmodel.units import counted, format_count, format_per_second, format_time

if TYPE_CHECKING:
    import pandas as pd

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Of the highest load: those in the table."""
_MOST_GPUS = 2**20
_MOST_ROUNDS = 12


def _quiet(what: str) -> None:
    """Nobody watches."""


@dataclass(frozen=True, kw_only=True)
class ServiceQuestion:
    """What is asked.

    served   the pass of a replica;  limit_s  of the 99th percentile [s];  qps  requests a second; None: what
             the replicas carry;  replicas  None: as many as it takes
    batch    samples of each GPU in a full batch, wait_s  of its first request, overlap  whether two batches
             overlap; None: the best that is tried
    samples  of a request;  requests  number of requests that are simulated at each load
    spread   of ranks;  measured  ranks behind the mean time of each step
    """

    served: ServedPass
    limit_s: float
    qps: float | None = None
    replicas: int | None = None
    batch: int | None = None
    wait_s: float | None = None
    overlap: bool | None = None
    samples: float = 1.0
    arrivals: Arrivals = field(default_factory=Poisson)
    requests: int = FOLLOWED
    spread: RankDelay = NONE
    measured: tuple[int, ...] = ()

    def replica(self, replicas: int, end: str = "") -> Replica:
        """One of so many; ``low`` or ``high``: with all times and delays at that end of their bands."""
        served, spread = self.served, self.spread
        if end:
            served = served.changed(getattr(served, f"{end}_s"))
            spread = spread.end(end == "high")
        late = lateness(spread, self.measured, served.gpus, self.arrivals.seed) if self.measured else None
        return Replica(served, self.arrivals, self.limit_s, late, self.samples, replicas)


@dataclass(frozen=True, eq=False)
class LoadRow:
    """One load. load_per_s  of all replicas;  utilisation  of the capacity;  run  of one replica"""

    load_per_s: float
    utilisation: float
    run: ServedRequests

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers in SI units; ``<part>_s`` add up to ``p99_s``."""
        found = {f"{name}_s": self.run.quantile(q) for name, q in QUANTILES.items()}
        parts = {f"{name}_s": value for name, value in self.run.made_of(P99).items()}
        return {
            "load_per_s": self.load_per_s,
            "utilisation": self.utilisation,
            "requests_per_batch": self.run.requests,
            **found,
            "mean_s": self.run.mean_s,
            "requests_inside": float(queueing.requests_inside(self.load_per_s, self.run.mean_s)),
            **parts,
        }


@dataclass(frozen=True, eq=False)
class ServiceLoad:
    """The answer.

    best      batch, wait and what a replica carries;  tried  the same of every batch size
    low_per_s, high_per_s  what a replica carries with all times at the ends of their 95 % bands
    rows      loads up to the highest, and the asked one, increasing;  asked  that one
    least_s   99th percentile of a request that comes alone and waits for nobody
    closed    closed forms beside the simulation, of one replica at the asked load
    in_line   where overlap is asked for: the asked load with one batch after the other; else None
    """

    question: ServiceQuestion
    replicas: int
    best: Carried
    tried: tuple[Carried, ...]
    low_per_s: float
    high_per_s: float
    rows: tuple[LoadRow, ...]
    asked: LoadRow
    least_s: float
    closed: tuple[ClosedForm, ...] = ()
    in_line: LoadRow | None = None

    @property
    def gpus(self) -> int:
        """Of all replicas."""
        return self.replicas * self.question.served.gpus

    def gpus_for(self, rate_per_s: float) -> int:
        """GPUs that the asked load takes where a replica carries so much."""
        return max(math.ceil(self.asked.load_per_s / rate_per_s - _SLACK), 1) * self.question.served.gpus

    def to_frame(self) -> pd.DataFrame:
        """One row a load."""
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        q, best = self.question, self.best
        return {
            "qps": self.asked.load_per_s,
            "p99_limit_s": q.limit_s,
            "gpus_per_replica": q.served.gpus,
            "replicas": self.replicas,
            "gpus": self.gpus,
            **_carried(best),
            "low_per_s": self.low_per_s,
            "high_per_s": self.high_per_s,
            "least_latency_s": self.least_s,
            "closed_forms": [each.to_dict() for each in self.closed],
            "samples_per_request": q.samples,
            "arrivals": q.arrivals.name,
            "seed": q.arrivals.seed,
            "requests_followed": q.requests,
            "asked": self.asked.to_dict(),
            "loads": [row.to_dict() for row in self.rows],
            "tried": [_carried(each) for each in self.tried],
            "evidence": str(q.served.evidence_at(best.batch)),
            "stragglers": {
                "rank_delay_floor_s": q.spread.floor_s,
                "rank_delay_share": q.spread.share,
                "evidence": str(q.spread.evidence),
                "source": q.spread.source,
            },
        }


_SLACK = 1e-9


def _carried(best: Carried) -> dict[str, Any]:
    return {
        "batch": best.batch,
        "requests_in_full_batch": best.rule.requests,
        "wait_s": best.rule.wait_s,
        "overlap": best.rule.overlap,
        "pass_s": best.pass_s,
        "highest_load_per_replica_per_s": best.rate_per_s,
        "capacity_per_replica_per_s": best.capacity_per_s,
    }


def service_load(question: ServiceQuestion, tell: Callable[[str], None] = _quiet) -> ServiceLoad:
    """Latencies against load, and how many replicas carry it.

    tell  hears what is simulated
    Limits: a limit below the pass itself, more than the replicas carry -> BadInputError that says how much
    """
    least = least_latency(question)
    if least > question.limit_s:
        raise BadInputError(
            f"--p99 {format_time(question.limit_s)} is below what the pass itself takes.",
            f"a request that comes alone takes {format_time(least)} at the 99th percentile: ask for more, "
            "or for other --gpus or another --machine.",
        )
    replicas, best, tried = _sized(question, tell)
    rate = best.rate_per_s * replicas
    load = question.qps or _short(rate)
    if question.qps is not None and load > rate * (1 + _SLACK):
        limit, needed = format_time(question.limit_s), math.ceil(load / best.rate_per_s)
        who = f"{counted(replicas, 'replica')} of {counted(question.served.gpus, 'GPU')}"
        raise BadInputError(
            f"{who} cannot carry {format_per_second(load, 'requests')} within {limit}.",
            f"at most {format_per_second(rate, 'requests')}; it takes {counted(needed, 'replica')}.",
        )
    tell("the most that it carries at the ends of the band")
    ends = []
    for end in ("high", "low"):
        replica = question.replica(replicas, end)
        ends.append(replica.highest(best.rule, effort_of(question.requests // 4)))
    replica = question.replica(replicas)
    loads = sorted({*(share * rate for share in SHARES), load})
    found = []
    for place, each in enumerate(loads, 1):
        tell(f"load {place} of {len(loads)}")
        found.append(_row(replica, best.rule, each, question.requests))
    rows = tuple(found)
    asked = next(row for row in rows if row.load_per_s == load)
    other = replace(best.rule, overlap=False)
    in_line = (
        _row(replica, other, load, question.requests)
        if question.overlap and load < replica.capacity(other) * replicas
        else None
    )
    closed = closed_forms(replica, best.rule, load / replicas, asked.run)
    return ServiceLoad(question, replicas, best, tried, ends[0], ends[1], rows, asked, least, closed, in_line)


def _row(replica: Replica, rule: Rule, load: float, requests: int) -> LoadRow:
    each = load / replica.replicas
    used = float(queueing.utilisation(each, replica.capacity(rule)))
    return LoadRow(load, used, replica.run(rule, each, effort_of(requests)))


PAGE_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 1.0)
"""Of the highest load: those that a figure shows."""
_BEYOND = (0.97, 0.99)  # of the capacity


def curve(answer: ServiceLoad) -> list[LoadRow]:
    """More loads than ``rows``, up to nearly all that the replicas can serve, increasing."""
    replica, best = answer.question.replica(answer.replicas), answer.best
    most, full = best.rate_per_s * answer.replicas, best.capacity_per_s * answer.replicas
    loads = {share * most for share in PAGE_SHARES} | {
        share * full for share in _BEYOND if share * full > most
    }
    known = {row.load_per_s: row for row in answer.rows}
    requests = answer.question.requests
    return [known.get(each) or _row(replica, best.rule, each, requests) for each in sorted({*loads, *known})]


def _short(rate: float) -> float:
    """The rate with two digits, not above it."""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return math.floor(rate / unit * (1 + _SLACK)) * unit


def least_latency(question: ServiceQuestion) -> float:
    """99th percentile of a request that is served alone at once [s]: the pass and its slowest ranks."""
    replica = question.replica(1)
    times = replica.served.at(max(math.ceil(question.samples / replica.served.gpus), 1))[:, 0]
    if replica.late is None:
        return float(times.sum())
    late = replica.late
    delays = np.where(times > 0, (late.floor_s + late.share * times) * late.draws, 0.0).sum(axis=1)
    return float(np.quantile(times.sum() + delays, P99))


def _sized(
    question: ServiceQuestion, tell: Callable[[str], None]
) -> tuple[int, Carried, tuple[Carried, ...]]:
    """The fewest replicas that carry what is asked, the best batch, and all that were tried.

    Poisson arrivals that are dealt stay Poisson, so one search tells it. A trace comes to each of more
    replicas in another way: then the fewest are sought by trying numbers of them.
    """
    replicas = question.replicas or 1
    gpus = replicas * question.served.gpus
    if gpus > _MOST_GPUS:
        raise BadInputError(
            f"{counted(replicas, 'replica')} of {counted(question.served.gpus, 'GPU')} are "
            f"{counted(gpus, 'GPU')}: more than this model describes.",
            f"at most {format_count(_MOST_GPUS)} GPUs.",
        )
    best, tried = _best(question, replicas, tell)
    if question.qps is None or question.replicas is not None:
        return replicas, best, tried
    needed = _needed(question, best)
    if isinstance(question.arrivals, Poisson) or needed <= replicas:
        return needed, best, tried
    too_few, enough = replicas, None
    for _ in range(_MOST_ROUNDS):
        best, tried = _best(question, needed, tell)
        if _needed(question, best) <= needed:
            enough = needed, best, tried
        else:
            too_few = needed
        if enough is None:
            needed = max(_needed(question, best), needed + 1)
            continue
        needed = math.isqrt(too_few * enough[0])
        if not too_few < needed < enough[0]:
            break
    return enough or (needed, best, tried)


def _needed(question: ServiceQuestion, best: Carried) -> int:
    """Replicas for the asked load. Limits: more GPUs than the model describes -> BadInputError"""
    load, gpus = question.qps or 0.0, question.served.gpus
    needed = max(math.ceil(load / best.rate_per_s - _SLACK), 1)
    if needed * gpus > _MOST_GPUS:
        most = best.rate_per_s * (_MOST_GPUS // gpus)
        raise BadInputError(
            f"{format_per_second(load, 'requests')} need {counted(needed, 'replica')} of "
            f"{counted(gpus, 'GPU')}: more than this model covers.",
            f"{format_count(_MOST_GPUS)} GPUs carry {format_per_second(most, 'requests')}.",
        )
    return needed


def _best(
    question: ServiceQuestion, replicas: int, tell: Callable[[str], None]
) -> tuple[Carried, tuple[Carried, ...]]:
    replica = question.replica(replicas)
    fitting = batches_within(question.served, question.limit_s)
    batches = fitting if question.batch is None else [question.batch]
    tried = carried(replica, batches, question.wait_s, question.overlap, tell)
    tell("the most that the best batch carries")
    best = _chosen(question, replica, tried)
    sure = None if best is None else surely(replica, best, question.requests)
    if question.qps is None and best is not None and sure is not None:
        for each in sorted(tried, key=lambda each: -each.rate_per_s):
            if each is not best and each.rate_per_s > (1 - _ROUGH) * sure.rate_per_s:
                better = surely(replica, each, question.requests, sure.rate_per_s)
                best, sure = (each, better) if better.rate_per_s > sure.rate_per_s else (best, sure)
    if sure is None or not sure.rate_per_s:
        raise _nothing(question)
    return sure, tuple(replace(each, rate_per_s=sure.rate_per_s) if each is best else each for each in tried)


def _chosen(question: ServiceQuestion, replica: Replica, tried: Sequence[Carried]) -> Carried | None:
    """Of those that need the fewest replicas the one that answers the asked load soonest; what is as soon
    within 5 % goes by the load that it carries."""
    if question.qps is None or not tried:
        return max(tried, key=lambda each: (each.rate_per_s, -each.batch), default=None)
    needed = [max(math.ceil(question.qps / each.rate_per_s - _SLACK), 1) for each in tried]
    fewest = question.replicas or min(needed)
    few = [each for each, count in zip(tried, needed, strict=True) if count <= max(fewest, min(needed))]
    times = [replica.p99(each.rule, question.qps / max(fewest, min(needed)), QUICK) for each in few]
    soon = [each for each, time in zip(few, times, strict=True) if time <= (1 + _ALIKE) * min(times)]
    return max(soon, key=lambda each: (each.rate_per_s, -each.batch))


_ALIKE = 0.05
_ROUGH = 0.1  # of the load that a short simulation finds


def _nothing(question: ServiceQuestion) -> BadInputError:
    """No load, however small, is answered in time."""
    named = {
        f"--batch {question.batch}": question.batch,
        f"--wait {format_time(question.wait_s or 0)}": question.wait_s,
    }
    given = " and ".join(name for name, value in named.items() if value is not None)
    with_what = f" with {given}" if given else ""
    return BadInputError(
        f"no load is answered within {format_time(question.limit_s)}{with_what}.",
        f"ask for a longer --p99{', or leave ' + given + ' out' if given else ''}.",
    )
