"""Closed forms to compare with the simulation of a service: bounds, and estimates of percentiles.

Each holds at a given load, and is printed beside the simulated value of the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.model import queueing
from perfmodel.model.recording import PER_SECOND, PLAIN, SECONDS, Recorded, Unit
from perfmodel.service.arrivals import Poisson
from perfmodel.service.events import Rule, ServedRequests
from perfmodel.service.highest import P99, Replica

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": P99}
AT_LEAST, AT_MOST, EQUAL, ABOUT = "at least", "at most", "equal", "about"
"""Relation of a closed form to the simulated number: a lower bound, an upper bound, equal, an estimate."""
_ALONE = 1e-3  # share of the time during which any request is inside
_FOLLOWED = 10_000
_ROUNDS, _SAME = 200, 1e-9


_UNITS: dict[str, Unit] = {
    **dict.fromkeys(("lambda", "mu"), PER_SECOND),
    **dict.fromkeys(("t", "w", "s", "gap"), SECONDS),
    "s^2": (0, 2),
}


def given(letter: str, value: float) -> Recorded:
    """The value of a letter of ``model.queueing``'s formulas, as a recorded number with unit and meaning."""
    return Recorded(value, _UNITS.get(letter, PLAIN), symbol=letter)


@dataclass(frozen=True)
class ClosedForm:
    """A number of the service, computed by a formula and by simulation; both in s or in requests per second.

    name      short name;  words  its meaning;  kind  how the two should compare: ``AT_LEAST`` …
    closed    by the formula;  simulated  by the simulation
    function  that computes the formula;  letters  its arguments by the letters of its docstring, in SI units
    """

    name: str
    words: str
    kind: str
    closed: float
    simulated: float
    function: Callable[..., Any]
    letters: Mapping[str, float]

    @property
    def recorded(self) -> Recorded:
        """The formula's value with its working: each letter with its value."""
        found: Recorded = self.function(*(given(letter, value) for letter, value in self.letters.items()))
        return found

    @property
    def per_second(self) -> bool:
        """Whether it is a rate; otherwise it is a time."""
        return self.name == "capacity"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        unit = "per_s" if self.per_second else "s"
        return {
            "name": self.name,
            "kind": self.kind,
            "words": self.words,
            f"closed_{unit}": self.closed,
            f"simulated_{unit}": self.simulated,
            "function": f"{self.function.__module__}.{self.function.__qualname__}",
        }


def closed_forms(replica: Replica, rule: Rule, rate: float, run: ServedRequests) -> tuple[ClosedForm, ...]:
    """The closed forms that apply to a replica which serves by this rule at this load.

    rate  requests per second of the replica;  run  its simulation
    Queues have closed forms for Poisson arrivals only. Limits: a trace -> capacity and a single request
    """
    return tuple(_found(replica, rule, rate, run))


def _found(replica: Replica, rule: Rule, rate: float, run: ServedRequests) -> Iterator[ClosedForm]:
    alone, requests = mean_pass(replica, 1.0), float(rule.requests)
    gap = requests / replica.capacity(rule)
    yield ClosedForm(
        "capacity",
        "requests served per second, in full batches",
        AT_MOST,
        float(queueing.batch_capacity(requests, gap)),
        rate,
        queueing.batch_capacity,
        {"B": requests, "gap": gap},
    )
    yield ClosedForm(
        "alone",
        "a request that comes alone",
        EQUAL,
        float(queueing.light_load_latency(requests, rule.wait_s, alone)),
        _alone(replica, rule, alone),
        queueing.light_load_latency,
        {"B": requests, "w": rule.wait_s, "t": alone},
    )
    if isinstance(replica.arrivals, Poisson):
        yield from _of_poisson(replica, rule, rate, run, alone)


def _alone(replica: Replica, rule: Rule, alone_s: float) -> float:
    """Mean latency at a very low load, where two requests hardly ever wait together [s].

    alone_s  about the time of a request alone
    """
    in_line = replace(rule, overlap=False)  # for batches that never meet, the same
    return replica.run(in_line, _ALONE / (rule.wait_s + alone_s), (_FOLLOWED, _FOLLOWED)).mean_s


def _of_poisson(
    replica: Replica, rule: Rule, rate: float, run: ServedRequests, alone: float
) -> Iterator[ClosedForm]:
    if rule.requests > 1 and rule.wait_s:
        letters = {"B": float(rule.requests), "lambda": rate, "w": rule.wait_s}
        longest = float(queueing.fill_time(*letters.values()))
        words = "mean time that a request waits for its batch to fill"
        filling = float(run.parts_s["batching"].mean())
        yield ClosedForm("fill", words, AT_MOST, longest, filling, queueing.fill_time, letters)
    if rule.overlap or (rule.wait_s and rule.requests > 1):
        words = "mean latency: a pass of one request"
        letters = {"B": 1.0, "w": 0.0, "t": alone}
        yield ClosedForm("mean", words, AT_LEAST, alone, run.mean_s, queueing.light_load_latency, letters)
    elif rule.requests == 1:
        variance = pass_variance(replica, 1.0)
        letters = {"lambda": rate, "t": alone, "s^2": variance}
        wait = float(queueing.mean_wait(rate, alone, variance))
        words = "mean latency: one request at a time (M/G/1)" if variance else "mean latency (M/D/1)"
        yield ClosedForm("mean", words, EQUAL, alone + wait, run.mean_s, queueing.mean_wait, letters)
    else:
        wait = float(queueing.unlimited_batch_wait(rate, alone))
        letters = {"lambda": rate, "t": alone}
        words = "mean latency: every pass as short as one of one request"
        function = queueing.unlimited_batch_wait
        yield ClosedForm("mean", words, AT_LEAST, alone + wait, run.mean_s, function, letters)
        yield from _percentiles(replica, rule, rate, run)


def estimated_quantile(replica: Replica, rule: Rule, rate: float, q: float) -> float | None:
    """Estimated quantile q of the latency [s], if a pass takes all waiting requests.

    rate  requests per second of the replica
    Limits: overlap, a wait, batches of one, a trace, or overload -> None
    """
    waits = rule.overlap or rule.wait_s or rule.requests == 1
    if waits or not isinstance(replica.arrivals, Poisson) or rate >= replica.capacity(rule):
        return None
    return float(queueing.unlimited_batch_quantile(rate, steady_pass(replica, rule, rate), q))


def _percentiles(replica: Replica, rule: Rule, rate: float, run: ServedRequests) -> Iterator[ClosedForm]:
    time = steady_pass(replica, rule, rate)
    for name, q in QUANTILES.items():
        closed = float(queueing.unlimited_batch_quantile(rate, time, q))
        words = f"{name}: every pass takes all that came in the one before"
        function, letters = queueing.unlimited_batch_quantile, {"lambda": rate, "t": time, "q": q}
        yield ClosedForm(name, words, ABOUT, closed, run.quantile(q), function, letters)


def steady_pass(replica: Replica, rule: Rule, rate: float) -> float:
    """Time t of a pass that serves as many requests as arrive while it runs [s].

        t = pass(min(lambda t, B))

    pass(n)  mean time of a pass with n requests;  lambda  rate [1/s];  B  requests of a full batch
    Limits: rate -> 0 -> a pass with one request;  overload -> a pass with a full batch
    """
    time = mean_pass(replica, 1.0)
    for _ in range(_ROUNDS):
        again = mean_pass(replica, min(max(rate * time, 1.0), rule.requests))
        if again <= time * (1 + _SAME):
            break
        time = again
    return time


def mean_pass(replica: Replica, requests: float) -> float:
    """Mean time of a pass with so many requests, including its slowest ranks [s]."""
    return float((replica.times(requests) + replica.mean_delays(requests)).sum())


def pass_variance(replica: Replica, requests: float) -> float:
    """Variance of the time of a pass with so many requests [s^2]."""
    return 0.0 if replica.late is None else float(replica.delays(requests).sum(axis=1).var())
