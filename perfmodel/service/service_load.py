"""Results of a service: latencies against load, replicas needed, the parts of its p99."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.model import queueing
from perfmodel.service.closed_forms import QUANTILES, ClosedForm, closed_forms
from perfmodel.service.events import Rule, ServedRequests
from perfmodel.service.highest import P99, QUICK, Carried, Replica, effort_of
from perfmodel.service.sizing import SLACK, ServiceQuestion, sized
from perfmodel.units import counted, format_per_second, format_time

if TYPE_CHECKING:
    import pandas as pd

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Loads in the table, as shares of the highest load."""


def _quiet(what: str) -> None:
    """Ignores a message about progress."""


@dataclass(frozen=True, eq=False)
class LoadRow:
    """The simulation of a service at one load.

    load_per_s  requests per second of all replicas;  utilisation  load over capacity;  run  of one replica
    """

    load_per_s: float
    utilisation: float
    run: ServedRequests

    def to_dict(self) -> dict[str, Any]:
        """Plain values in SI units; the parts of the p99, each named ``<part>_s``, add up to ``p99_s``."""
        found = {f"{name}_s": self.run.quantile(q) for name, q in QUANTILES.items()}
        parts = {f"{name}_s": value for name, value in self.run.made_of(P99).items()}
        return {
            "load_per_s": self.load_per_s,
            "utilisation": self.utilisation,
            "requests_per_batch": self.run.requests,
            **found,
            "p99_error": self.run.error(P99),
            "mean_s": self.run.mean_s,
            "requests_inside": float(queueing.requests_inside(self.load_per_s, self.run.mean_s)),
            **parts,
        }


@dataclass(frozen=True)
class ChosenSharding:
    """The served sharding compared with others, at about the batch of the asked load.

    samples  per GPU in that batch;  time_s  of a pass [s]
    row_wise_s  time of the row-wise pass [s]; None: row-wise does not fit
    near     (sharding, time) of other shardings that differ by less than the uncertainty of the difference
    """

    samples: int
    time_s: float
    row_wise_s: float | None
    near: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        near = [name for name, _ in self.near]
        row_wise = self.row_wise_s
        return {
            "samples_per_gpu": self.samples,
            "pass_s": self.time_s,
            "row_wise_s": row_wise,
            "as_good": near,
        }


REPLICAS, TABLES, LIMIT, LOAD = "replicas", "tables", "p99", "load"
"""Possible reasons for the number of GPUs of a service."""
_BEYOND_NOISE = 0.1  # of the load carried: a short simulation resolves no less
_NEARLY_ALL = 0.99  # share of the requests served without a limit


@dataclass(frozen=True, eq=False)
class ServiceLoad:
    """The answer to a question about a service.

    replicas  their number;  best  batch, wait and highest load of a replica;  tried  as ``best``, per batch
              size
    low_per_s, high_per_s  highest load of a replica with all times at the ends of their 95 % bands
    rows      loads up to the highest, with the asked load, increasing;  asked  the asked load
    least_s   99th percentile of the latency of a request that is alone and waits for no other request
    closed    closed forms to compare with the simulation, for one replica at the asked load
    in_line   if overlap is asked for: the asked load with one batch after the other; else None
    host_adds_s  time that an eager host adds to a pass at the asked load [s]; None: included, or unknown
    choice    how the sharding was chosen; None: it was given
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
    host_adds_s: float | None = None
    choice: ChosenSharding | None = None

    @property
    def samples(self) -> float:
        """Mean samples per GPU in a batch at the asked load."""
        return self.asked.run.requests * self.question.samples / self.question.served.gpus

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.question.served.gpus

    @property
    def fewest(self) -> int:
        """GPUs needed if all times are at the fast end of their bands."""
        return self.gpus_for(self.high_per_s)

    @property
    def most(self) -> float:
        """GPUs needed at the slow end. Limits: no load is answered in time at that end -> infinite"""
        return self.gpus_for(self.low_per_s) if self.low_per_s else math.inf

    @property
    def binds(self) -> str:
        """What limits the answer: the number of GPUs or, without a given load, the highest load; a word.

        Limits: the number of replicas was given -> replicas;  one replica carries the load -> the tables;
        without a limit on the p99, fewer GPUs or more load would be possible -> the limit;  else -> the load
        """
        q, best = self.question, self.best
        if q.replicas is not None:
            return REPLICAS
        if q.qps is not None and self.replicas == 1:
            return TABLES
        more = best.rate_per_s < best.capacity_per_s * _NEARLY_ALL
        limited = more if q.qps is None else self.gpus_for(best.capacity_per_s) < self.gpus
        return LIMIT if limited else LOAD

    def gpus_for(self, rate_per_s: float) -> int:
        """GPUs needed for the asked load if each replica carries ``rate_per_s`` requests per second."""
        return max(math.ceil(self.asked.load_per_s / rate_per_s - SLACK), 1) * self.question.served.gpus

    def to_frame(self) -> pd.DataFrame:
        """One row per load."""
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        q, best = self.question, self.best
        return {
            "qps": self.asked.load_per_s,
            "p99_limit_s": q.limit_s,
            "gpus_per_replica": q.served.gpus,
            "replicas": self.replicas,
            "gpus": self.gpus,
            "binds": self.binds,
            **_carried(best),
            "low_per_s": self.low_per_s,
            "high_per_s": self.high_per_s,
            "least_latency_s": self.least_s,
            "closed_forms": [each.to_dict() for each in self.closed],
            "sharding": q.served.sharding,
            "runs": q.served.runs or None,
            "choice": self.choice.to_dict() if self.choice else None,
            "host_adds_s": self.host_adds_s,
            "rows": q.served.rows or None,
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
    """Computes the answer: latencies against load, and the number of replicas that carry the load.

    tell  is called with words on the progress
    Limits: a limit below the pass itself, more load than the replicas carry -> BadInputError with the numbers
    """
    least = least_latency(question)
    if least > question.limit_s:
        raise BadInputError(
            f"--p99 {format_time(question.limit_s)} is below what the pass itself takes.",
            f"a request that comes alone takes {format_time(least)} at the 99th percentile: ask for more, "
            "or for other --gpus or another --machine.",
        )
    replicas, best, tried = sized(question, tell)
    rate = best.rate_per_s * replicas
    load = question.qps or _short(rate)
    if question.qps is not None and load > rate * (1 + SLACK):
        limit, needed = format_time(question.limit_s), math.ceil(load / best.rate_per_s)
        who = f"{counted(replicas, 'replica')} of {counted(question.served.gpus, 'GPU')}"
        raise BadInputError(
            f"{who} cannot carry {format_per_second(load, 'requests')} within {limit}.",
            f"at most {format_per_second(rate, 'requests')}; it takes {counted(needed, 'replica')}.",
        )
    tell("the most that it carries at the ends of the band")
    rules = [best.rule, *(each.rule for each in tried if each is not best)]
    ends = [_most_at(question, replicas, end, rules) for end in ("high", "low")]
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


def _most_at(question: ServiceQuestion, replicas: int, end: str, rules: Sequence[Rule]) -> float:
    """Highest load of a replica with all times at one end of their bands [requests/s].

    end    ``low`` or ``high``;  rules  batch sizes and waits to try; the first is kept unless another is
           better both in a short and in a long simulation
    Limits: even a single request is late -> 0
    """
    if least_latency(question, end) > question.limit_s:
        return 0.0
    replica, long = question.replica(replicas, end), effort_of(question.requests // 4)
    most = replica.highest(rules[0], long)
    for rule in sorted(rules[1:], key=replica.capacity, reverse=True):
        if replica.highest(rule, QUICK, most * (1 + _BEYOND_NOISE)):
            most = max(most, replica.highest(rule, long, most))
    return most


def _row(replica: Replica, rule: Rule, load: float, requests: int) -> LoadRow:
    each = load / replica.replicas
    used = float(queueing.utilisation(each, replica.capacity(rule)))
    return LoadRow(load, used, replica.steady_run(rule, each, effort_of(requests)))


PAGE_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 1.0)
"""Loads in a figure, as shares of the highest load."""
_BEYOND = (0.97, 0.99)  # of the capacity


def curve(answer: ServiceLoad) -> list[LoadRow]:
    """More loads than ``rows``, up to nearly the capacity of the replicas, increasing."""
    replica, best = answer.question.replica(answer.replicas), answer.best
    most, full = best.rate_per_s * answer.replicas, best.capacity_per_s * answer.replicas
    loads = {share * most for share in PAGE_SHARES} | {
        share * full for share in _BEYOND if share * full > most
    }
    known = {row.load_per_s: row for row in answer.rows}
    requests = answer.question.requests
    return [known.get(each) or _row(replica, best.rule, each, requests) for each in sorted({*loads, *known})]


def _short(rate: float) -> float:
    """The rate, rounded down to two digits."""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return math.floor(rate / unit * (1 + SLACK)) * unit


def least_latency(question: ServiceQuestion, end: str = "") -> float:
    """99th percentile of the latency of a request that is served at once: a pass with its slowest ranks [s].

    end  ``low`` or ``high``: with all times at that end of their bands; "": at the centre
    """
    replica = question.replica(1, end)
    alone = replica.times(1).sum()
    return float(alone if replica.late is None else np.quantile(alone + replica.delays(1).sum(axis=1), P99))
