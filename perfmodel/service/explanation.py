"""The numbers of ``perfmodel load``, explained: each with its equation and the values in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.model import queueing
from perfmodel.model.recording import named
from perfmodel.passes.equations import Equation, ExplainedNumber
from perfmodel.passes.recorded_words import working_lines
from perfmodel.service import closed_forms, events, sizing, stragglers
from perfmodel.service.closed_forms import QUANTILES, ClosedForm, given
from perfmodel.service.explained_hour import hourly_numbers
from perfmodel.service.highest import P99
from perfmodel.service.hourly import HourlyCost
from perfmodel.service.service_load import ServiceLoad
from perfmodel.units import counted, format_count, format_fraction, format_per_second, format_time


@dataclass(frozen=True)
class PassPart:
    """A step of the pass: its times for a small, the present and a full batch, and the delay by slow ranks.

    one_s, asked_s, full_s  time with one request, at the asked load, and in a full batch
    measured  ranks on which its mean time was measured, 0: it waits for no other rank
    late_s    mean delay because the service has more ranks than ``measured``, at the asked load;  late_p99_s
              its 99th percentile
    """

    name: str
    label: str
    one_s: float
    asked_s: float
    full_s: float
    measured: int
    late_s: float
    late_p99_s: float


@dataclass(frozen=True)
class LoadExplanation:
    """All numbers of an answer, explained.

    parts     the steps of the pass;  full_batch  samples per GPU in a full batch
    requests  in a batch for the three times of ``PassPart``: one, at the asked load, full
    """

    title: str
    numbers: tuple[ExplainedNumber, ...]
    parts: tuple[PassPart, ...]
    requests: tuple[float, float, float]
    """Requests per batch for the times in ``parts``: one, the mean at the asked load, a full batch."""
    full_batch: int = 1
    """Samples on each GPU in a full batch."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "title": self.title,
            "numbers": [each.to_dict() for each in self.numbers],
            "requests": list(self.requests),
            "steps": [vars(each) for each in self.parts],
        }


def explain_load(answer: ServiceLoad, hourly: HourlyCost) -> LoadExplanation:
    """Explains each number at the asked load: its equation, with values. hourly  cost of an hour"""
    q, best = answer.question, answer.best
    load, gpus = format_per_second(answer.asked.load_per_s, "requests"), counted(answer.gpus, "GPU")
    title = f"{load} on {gpus}: p99 {format_time(answer.asked.run.quantile(P99))}"
    requests = (1.0, answer.asked.run.requests, float(best.rule.requests))
    numbers = (*_numbers(answer), *hourly_numbers(hourly, answer))
    full = int(np.ceil(best.rule.requests * q.samples / q.served.gpus))
    return LoadExplanation(title, numbers, tuple(_parts(answer, requests)), requests, full)


def _numbers(answer: ServiceLoad) -> Iterator[ExplainedNumber]:
    yield from _sizes(answer)
    yield from _latencies(answer)
    yield from _waits(answer)
    yield from _slow_ranks(answer)


def _sizes(answer: ServiceLoad) -> Iterator[ExplainedNumber]:
    """Explains GPUs, load, capacity and batch."""
    best, asked, served = answer.best, answer.asked, answer.question.served
    each, most = asked.load_per_s / answer.replicas, best.rate_per_s
    fewest = Equation.of(sizing.sized, "R = ceil(lambda / lambda_max),   R G GPUs")
    yield ExplainedNumber(
        "GPUs",
        "gpus",
        answer.gpus,
        format_count(answer.gpus),
        fewest,
        (
            f"lambda_max = {_rate(most)}: the most that one replica carries within the limit, simulated",
            f"R = {_rate(asked.load_per_s)} / {_rate(most)}, rounded up = {format_count(answer.replicas)}"
            + ("" if answer.question.replicas is None else " (as given)")
            + f";  R G = {format_count(answer.replicas)} × {format_count(served.gpus)}",
        ),
    )
    batch = float(best.rule.requests)
    gap = given("gap", batch / best.capacity_per_s)
    capacity = named("mu", queueing.batch_capacity(given("B", batch), gap), "")
    used = named("rho", queueing.utilisation(given("lambda", each), given("mu", best.capacity_per_s)), "")
    what = "the schedule of two batches in flight" if best.rule.overlap else "the pass of a full batch"
    yield ExplainedNumber(
        "no limit",
        "capacity_per_replica_per_s",
        best.capacity_per_s,
        _rate(best.capacity_per_s),
        Equation.of(queueing.batch_capacity),
        (*working_lines(capacity), f"gap is {what}"),
    )
    yield ExplainedNumber(
        "used",
        "asked.utilisation",
        asked.utilisation,
        format_fraction(asked.utilisation),
        Equation.of(queueing.utilisation),
        (*working_lines(used), "both of a replica"),
    )
    yield ExplainedNumber(
        "batch",
        "asked.requests_per_batch",
        asked.run.requests,
        format_count(asked.run.requests),
        Equation.of(events.simulate),
        (f"simulated: {format_count(asked.run.batches)} batches, each with what has come by its begin",),
    )


def _latencies(answer: ServiceLoad) -> Iterator[ExplainedNumber]:
    """Explains percentiles and mean of the latency, and the requests inside the service."""
    run, closed = answer.asked.run, {each.name: each for each in answer.closed}
    for name, q in QUANTILES.items():
        value, form = run.quantile(q), closed.get(name)
        working: tuple[str, ...]
        if form is None:
            words = "between its closed forms only the simulation answers"
            equation = Equation.of(events.simulate)
            working = (f"{words}: {format_time(value)} of {format_count(run.latency_s.size)} requests",)
        else:
            made = working_lines(named("x_q", form.recorded, ""))
            equation, working = Equation.of(form.function), (_steady(form), *made, _beside(form))
        yield ExplainedNumber(name, f"asked.{name}_s", value, format_time(value), equation, working)
    mean = closed.get("mean")
    if mean is not None:
        alone = mean.function is queueing.light_load_latency
        law = named("s" if alone else "W", mean.recorded, "")
        total = "" if alone else f"t + W = {format_time(mean.closed)}: "
        working = (*working_lines(law), f"{total}{mean.words}", _beside(mean))
        equation = Equation.of(mean.function)
        yield ExplainedNumber("mean", "asked.mean_s", run.mean_s, format_time(run.mean_s), equation, working)
    load, latency = given("lambda", answer.asked.load_per_s), given("s", run.mean_s)
    inside = named("N", queueing.requests_inside(load, latency), "")
    yield ExplainedNumber(
        "inside",
        "asked.requests_inside",
        inside.value,
        format_count(inside.value),
        Equation.of(queueing.requests_inside),
        (*working_lines(inside), "s is the mean latency"),
    )


def _steady(form: ClosedForm) -> str:
    """In words, the source of the time t in the formula of a percentile."""
    asked = form.letters["lambda"] * form.letters["t"]
    return f"t is the pass that serves the {format_count(asked)} requests of lambda t"


def _beside(form: ClosedForm) -> str:
    """Words that compare a closed form with the simulated value."""
    words = {"about": "closed form", "at least": "bound from below", "equal": "closed form"}[form.kind]
    return f"{words} {format_time(form.closed)}, simulated {format_time(form.simulated)}"


_PARTS = {
    "batching": "min(a_B, a_1 + w, begin) - a: until the batch is full, or its first request has waited",
    "queue": "latency - batching - t(n) - d: for batches ahead, and for their steps",
    "pass": "t(n) = t_1(n) + t_2(n) + …: all steps of its own batch, each as project times it (table below)",
    "stragglers": "d = d_1 + d_2 + …: the slowest rank of each collective (below)",
}


def _waits(answer: ServiceLoad) -> Iterator[ExplainedNumber]:
    """Explains the parts of the p99."""
    run = answer.asked.run
    parts, whole = run.made_of(P99), run.quantile(P99)
    for name, text in _PARTS.items():
        value, working = parts[name], [f"mean of the requests around the p99: {format_time(parts[name])}"]
        if name == "batching":
            for each in answer.closed:
                if each.name == "fill":
                    at_most = f"at most f, simulated {format_time(each.simulated)}"
                    working += [f"{each.words}: {at_most}", *working_lines(named("f", each.recorded, ""))]
        if name == "stragglers":
            working.append(f"all four add up to {format_time(whole)}")
        equation = Equation.of(events.simulate, text)
        yield ExplainedNumber(
            name, f"asked.{name}_s", value, format_time(max(value, 0.0)), equation, tuple(working)
        )


def _slow_ranks(answer: ServiceLoad) -> Iterator[ExplainedNumber]:
    """Explains the delay by the slowest rank, and the latency of a single request."""
    q = answer.question
    alone = next(each for each in answer.closed if each.name == "alone")
    working = (*working_lines(named("s", alone.recorded, "")), _beside(alone))
    equation = Equation.of(queueing.light_load_latency)
    yield ExplainedNumber(
        "a request that comes alone", "closed_forms.alone", alone.closed, format_time(alone.closed),
        equation, working,
    )  # fmt: skip
    spread = q.spread
    mean = closed_forms.mean_pass(q.replica(1), 1.0)
    text = f"{Equation.of(stragglers.lateness).text},   s = a + r t"
    source = f"({spread.evidence}; {spread.source})"
    floor, share = format_time(spread.floor_s), format_fraction(spread.share)
    within = f"{format_time(answer.least_s)} or less in 99 % of the cases"
    words = (
        f"a = {floor}, r = {share}, G = {q.served.gpus}, g: below {source}",
        f"alone the pass takes {format_time(mean)} on average, {within}: all its steps with drawn delays",
    )
    yield ExplainedNumber(
        "the pass alone, p99", "least_latency_s", answer.least_s, format_time(answer.least_s),
        Equation.of(stragglers.lateness, text), words,
    )  # fmt: skip


def _parts(answer: ServiceLoad, requests: tuple[float, float, float]) -> Iterator[PassPart]:
    q, late = answer.question, answer.question.late
    samples = [np.ceil(each * q.samples / q.served.gpus) for each in requests]
    one, asked, full = q.served.at(samples).T
    behind = q.ranks_at(samples[1])
    for at, step in enumerate(q.served.steps):
        ranks = behind[at]
        mean, high = 0.0, 0.0
        if late is not None and ranks and asked[at]:
            scale = late.floor_s + late.share * float(asked[at])
            first = float(queueing.slowest_delay(scale, ranks))
            mean = float(queueing.slowest_delay(scale, q.served.gpus)) - first
            high = float(queueing.slowest_quantile(scale, q.served.gpus, P99)) - first
        yield PassPart(
            step.name, step.label, float(one[at]), float(asked[at]), float(full[at]), ranks, mean, high
        )


def _rate(per_s: float) -> str:
    return format_per_second(per_s, "requests")
