"""The first lines of ``load``: GPUs, sharding, latency, host, what limits the load, choices that are open."""

from __future__ import annotations

import math

from perfmodel.passes.schemes import ROW_WISE, WAYS, whose
from perfmodel.projections.hosted import EAGER
from perfmodel.report.host_text import HOST_WORDS
from perfmodel.report.terminal import paragraph, sides
from perfmodel.schema.prices import MEMORY
from perfmodel.service.highest import ERROR, P99
from perfmodel.service.served import TORCHREC
from perfmodel.service.service_load import LIMIT, LOAD, REPLICAS, TABLES, LoadRow, ServiceLoad, least_latency
from perfmodel.units import (
    counted,
    format_count,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)

CANNOT_TELL = "Cannot tell"
_INDENT = 5


def headline(answer: ServiceLoad) -> str:
    """The answer of ``perfmodel load``: how many GPUs serve the load, by which sharding, at what latency.

    It also says if the band leaves the number of GPUs open, and what limits the load.
    """
    first = gpus_words(answer)
    line = paragraph(first) if CANNOT_TELL in first else sides(first, band_words(answer))
    below = [sharding_words(answer), times_words(answer), most_words(answer)]
    return "\n".join([line, *(paragraph(words, _INDENT) for words in below if words)])


def gpus_words(answer: ServiceLoad) -> str:
    """How many GPUs the load takes; if the band of all times leaves that open, the range."""
    q, load = answer.question, answer.asked.load_per_s
    what, gpus = f"{rate(load)} within {format_time(q.limit_s)} (p99)", counted(answer.gpus, "GPU")
    replicas = f"{counted(answer.replicas, 'replica')} of {format_count(q.served.gpus)}"
    takes = "takes" if load == 1 else "take"
    if q.qps is None or q.replicas is not None or answer.fewest == answer.most:
        return f"{what} {takes} {gpus}{f': {replicas}' if answer.replicas > 1 else ''}."
    ends = f"{format_count(answer.fewest)} – {format_count(answer.most)}"
    if answer.most == math.inf:
        ends = f"{format_count(answer.fewest)} or more"
    return (
        f"{CANNOT_TELL} how many GPUs {what} {takes}: {ends} by the band (95 %) of all times; "
        f"{format_count(answer.gpus)} in the middle of it ({replicas})."
    )


def sharding_words(answer: ServiceLoad) -> str:
    """The service's sharding, whether TorchRec runs it, and what may be as fast; "" if none is sharded."""
    served, choice = answer.question.served, answer.choice
    if served.gpus == 1 or served.held_in == MEMORY:
        return ""
    name = served.way or served.sharding.partition(",")[0]
    who = [whose(served.runs)] * bool(served.runs) + ["TorchRec does not run it"] * (served.runs != TORCHREC)
    if choice is None:
        return f"sharded {name} ({'; '.join(who)})"
    who += ["used here"] * bool(choice.near)
    where = f"for {counted(choice.samples, 'sample')} on each GPU, about the batch at this load"
    first = f"{name} ({'; '.join(who)}), {format_time(choice.time_s)} {where}"
    beside = ""
    if choice.row_wise_s is not None and ROW_WISE not in dict(choice.near):
        beside = f"; {ROW_WISE} (TorchRec's): {format_time(choice.row_wise_s)}"
    if not choice.near:
        return f"sharded {first}{beside}"
    others = [f"{each} ({whose(WAYS[each].runs)}), {format_time(time)}" for each, time in choice.near]
    return f"{CANNOT_TELL.lower()} which sharding is faster: {first}, or {' or '.join(others)}{beside}"


def times_words(answer: ServiceLoad) -> str:
    """The p50, p95 and p99 of the latency, the samples per request, and whether the host is included."""
    q, asked = answer.question, answer.asked
    tail = " ".join(
        [format_time(asked.run.quantile(P99)), *(each.removeprefix("p99 ") for each in uncertain(asked))]
    )
    many = "1 sample (--samples)" if q.samples == 1 else f"{q.samples:g} samples"
    p50 = format_time(asked.run.quantile(0.5))
    return f"p99 is {tail}, p50 {p50}; a request is {many}; {host_words(answer)}"


def host_words(answer: ServiceLoad) -> str:
    """Whether the times include the host; if they do not, how much longer they would be with it."""
    if answer.question.served.host:
        return f"the host's time is in it ({answer.question.served.host})"
    if answer.host_adds_s is None:
        return "the device alone, no host"
    more = f"{HOST_WORDS[EAGER]} adds {format_time(answer.host_adds_s)} to a pass (--host {EAGER})"
    return f"without the host's time: {more}"


def band_words(answer: ServiceLoad) -> str:
    """How many GPUs the load takes if all times are at the low or the high end of their bands.

    With a given number of replicas: the load that they serve at either end.
    """
    if not answer.low_per_s:
        return "no upper end of the band"
    if answer.question.qps is None or answer.question.replicas is not None:
        low, high = (answer.replicas * each for each in (answer.low_per_s, answer.high_per_s))
        return f"band {rate(low).partition('request')[0].strip()} – {rate(high)} carried"
    if answer.fewest == answer.most:
        return "the same number over the whole band"
    return f"band {format_count(answer.fewest)} – {counted(int(answer.most), 'GPU')}"


def unsure(answer: ServiceLoad) -> list[str]:
    """A warning that perhaps no load meets the limit on the p99, with the reason and what to do.

    Limits: with all times at the slow end of their bands some load still meets it -> none
    """
    if answer.low_per_s:
        return []
    limit, slow = format_time(answer.question.limit_s), format_time(least_latency(answer.question, "high"))
    return [
        f"The limit of {limit} may not be kept at any load: with all times at the slow end of their 95 % "
        f"bands, a request that comes alone takes {slow} (p99), and this batch and wait carry nothing within "
        f"{limit}. "
        "Ask for a longer --p99, or narrow the band: perfmodel calibrate, then --calibration latest."
    ]


def most_words(answer: ServiceLoad) -> str:
    """Whether load, limit or memory decides the number of GPUs, and the highest load that they serve."""
    best = answer.best
    most = best.rate_per_s * answer.replicas
    who = "they carry" if answer.replicas > 1 else "it carries"
    times = format_ratio(most / answer.asked.load_per_s)
    binds = _BINDS[answer.binds]
    if answer.binds == LIMIT and answer.question.qps is not None:
        binds += f" (without a limit {counted(answer.gpus_for(best.capacity_per_s), 'GPU')} would do)"
    return f"{binds}; with this batch and wait {who} up to {rate(most)} within the limit, {times} this load"


_BINDS = {
    REPLICAS: "the number of replicas is given",
    TABLES: "the memory for the tables binds, not the load",
    LIMIT: "the limit on the p99 binds",
    LOAD: "the load binds",
}


def rate(per_s: float) -> str:
    """A rate of requests: ``500 k requests/s``, ``1 request/s``."""
    if per_s == 1:
        return "1 request/s"
    return format_per_second(per_s, "requests")


def uncertain(row: LoadRow) -> list[str]:
    """``p99 ±3 %`` if the simulation's error of the p99 is larger than intended; else none."""
    error = row.run.error(P99)
    return [f"p99 ±{format_fraction(error)}"] if error > ERROR else []
