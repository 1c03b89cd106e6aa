"""Figures of a service: latencies against load, the parts of its p99, the highest load by batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.report.columns import Column
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import NAMED, rule, scatter
from perfmodel.report.figures.registry import BATCHES, LATENCY, MADE_OF
from perfmodel.report.figures.stacked_bars import Heights, stacked_bars
from perfmodel.service.closed_forms import estimated_quantile
from perfmodel.service.events import WAITS
from perfmodel.service.highest import P99
from perfmodel.service.service_load import LoadRow, ServiceLoad
from perfmodel.units import counted, format_count, format_fraction, format_per_second, format_time

_MARGIN = {"l": 80, "r": 32, "t": 56, "b": 64}
_LAYOUT: dict[str, Any] = {
    "height": 440,
    "margin": _MARGIN,
    "meta": {"min_width": 760, "right": _MARGIN["r"]},
}
_QUANTILES = (("p99", 0.99), ("p95", 0.95), ("p50", 0.5))
_BELOW, _ABOVE = 0.8, 1.25
Words = Callable[[float, float], str]
WORDS = {
    "batching": "waiting for the batch to fill",
    "queue": "waiting for earlier batches",
    "pass": "the pass itself",
    "stragglers": "the slowest ranks",
}


def latency(answer: ServiceLoad, rows: Sequence[LoadRow], source: str) -> Block:
    """Lines of the p50, p95 and p99 of the latency over the load; rules at the limit and at the asked load.

    rows  from ``service_load.curve``;  source  where the times of the pass come from
    """
    loads = [row.load_per_s for row in rows]
    limit, most = answer.question.limit_s, answer.best.rate_per_s * answer.replicas
    traces = [
        _line(name, loads, [row.run.quantile(q) for row in rows], _latency_words, at)
        for at, (name, q) in enumerate(_QUANTILES)
    ]
    traces += _estimated(answer, rows)
    heights = [height for trace in traces for height in trace["y"]] + [limit]
    figure = style.new_figure(
        traces,
        **_LAYOUT,
        xaxis=style.log_axis(_BELOW * min(loads), _ABOVE * max(loads), _tick, "requests per second"),
        yaxis=style.time_axis(_BELOW * min(heights), _ABOVE * max(heights), "latency"),
        shapes=[
            rule("y", limit, width=1.5, dash="dash"),
            rule("x", answer.asked.load_per_s, width=1.5, dash="dot"),
        ],
        annotations=[
            _note(f"limit {format_time(limit)}", y=limit),
            _note("asked", x=answer.asked.load_per_s),
        ],
    )
    at = f"at {_rate(answer.asked.load_per_s)} within {format_time(answer.asked.run.quantile(P99))}"
    title = f"Up to {_rate(most)}, 99 % of requests are answered within {format_time(limit)}; {at}."
    how = (
        "Each point is a simulation of the same service at another load. The dashed line is the limit; the "
        "dotted line is the requested load. Beyond its capacity, the queue grows without end. Where passes "
        "take all that wait, dotted curves are the closed form of the percentiles."
    )
    data = tuple(row.to_dict() for row in rows)
    return LATENCY.block(title, how, figure, source, data)


def _estimated(answer: ServiceLoad, rows: Sequence[LoadRow]) -> list[dict[str, Any]]:
    """Dotted plotly traces of the p99 and the p50 in closed form, at loads that have a closed form."""
    replica, rule = answer.question.replica(answer.replicas), answer.best.rule
    found = []
    for at, (name, q) in enumerate(_QUANTILES):
        loads, times = [], []
        for row in rows:
            time = estimated_quantile(replica, rule, row.load_per_s / answer.replicas, q)
            if time is not None:
                loads.append(row.load_per_s)
                times.append(time)
        if loads and name != "p95":
            trace = _line(f"{name}, closed form", loads, times, _latency_words, at)
            trace |= {"mode": "lines", "line": {"color": style.colour(at), "width": 2, "dash": "dot"}}
            found.append(trace)
    return found


def _line(name: str, x: Sequence[float], y: Sequence[float], words: Words, at: int) -> dict[str, Any]:
    """A plotly trace: a line with markers in colour number ``at``. words  returns a point's hover text"""
    said = [words(*point) for point in zip(x, y, strict=True)]
    line = {"color": style.colour(at), "width": 3 if at == 0 else 2}
    marker = {"symbol": style.symbol(at), "size": 8, "color": style.colour(at)}
    return scatter(x, y, said, name, marker, mode="lines+markers", line=line, hovertemplate=NAMED)


def _latency_words(load: float, time_s: float) -> str:
    return f"{_rate(load)}: {format_time(time_s)}"


def _note(text: str, x: float | None = None, y: float | None = None) -> dict[str, Any]:
    """A plotly annotation at the end of the rule at ``x`` or ``y``, on a logarithmic axis."""
    from math import log10

    base = {"text": text, "showarrow": False, "font": {"size": 12}}
    if y is not None:
        return {**base, "xref": "paper", "x": 0, "xanchor": "left", "y": log10(y), "yanchor": "bottom"}
    return {**base, "yref": "paper", "y": 0, "yanchor": "bottom", "x": log10(x or 1.0), "xanchor": "left"}


def made_of(answer: ServiceLoad, rows: Sequence[LoadRow], source: str) -> Block:
    """Bars of the p99 at each load, stacked by the reasons for which a request waits. rows, source  as in
    ``latency``"""
    within = [row for row in rows if row.load_per_s <= answer.best.rate_per_s * answer.replicas * (1 + 1e-9)]
    made = [(row.load_per_s, row.run.made_of(P99)) for row in within]
    figure, _ = stacked_bars(
        [
            (_load(load), {name: (name, load, max(parts[name], 0.0)) for name in WAITS})
            for load, parts in made
        ],
        (
            Column(text=lambda part: WORDS[part[0]]),
            Column(text=lambda part: f"{_load(part[1])}: {format_time(part[2])}"),
        ),
        lambda name, _: name,
        [Heights("ms", lambda part: part[2] * 1e3, style.axis("99th percentile (ms)", rangemode="tozero"))],
        **_LAYOUT,
        xaxis=style.axis("requests per second", type="category"),
    )
    asked = answer.asked.run.made_of(P99)
    largest = max(WAITS, key=lambda name: asked[name])
    share = format_fraction(asked[largest] / answer.asked.run.quantile(P99))
    title = f"At the requested load, {share} of the p99 is {largest}: {WORDS[largest]}."
    words = "; ".join(f"{name}: {WORDS[name]}" for name in WAITS)
    how = (
        f"Each bar is the p99 at one load within the limit, in its mean parts. {words[0].upper()}{words[1:]}."
    )
    data = [{"load_per_s": load, **{f"{name}_s": parts[name] for name in WAITS}} for load, parts in made]
    return MADE_OF.block(title, how, figure, source, data)


def batches(answer: ServiceLoad, source: str) -> Block | Missing:
    """Lines over batch sizes: the highest load of a replica, with the limit on the p99 and without it.

    source  where the times of the pass come from
    """
    best = {each.batch: each for each in sorted(answer.tried, key=lambda each: each.rate_per_s)}
    shown = [best[batch] for batch in sorted(best)]
    if len(shown) < 2:
        return BATCHES.missing("one batch size was given: leave out --batch to compare.")
    sizes = [float(each.batch) for each in shown]
    lines = {
        "within the limit": [each.rate_per_s for each in shown],
        "without a limit": [each.capacity_per_s for each in shown],
    }
    traces = [
        _line(name, sizes, rates, lambda size, rate: f"{format_count(size)} per GPU: {_rate(rate)}", at)
        for at, (name, rates) in enumerate(lines.items())
    ]
    rates = [rate for each in lines.values() for rate in each]
    figure = style.new_figure(
        traces,
        **_LAYOUT,
        xaxis=style.log_axis(
            _BELOW * min(sizes), _ABOVE * max(sizes), format_count, "samples of each GPU in a full batch"
        ),
        yaxis=style.log_axis(
            _BELOW * min(rates), _ABOVE * max(rates), _tick, "requests per second of a replica"
        ),
    )
    most = max(shown, key=lambda each: each.rate_per_s)
    size = counted(most.batch, "sample")
    title = f"A replica serves the most with full batches of {size} per GPU: {_rate(most.rate_per_s)}."
    how = (
        "Each point has the best wait, with or without overlap, of those tried in shorter simulations. "
        "Within the limit: the highest load of a replica whose p99 is below it; without a limit: what it "
        "serves if requests may wait without end."
    )
    data = tuple(
        {"batch": e.batch, "wait_s": e.rule.wait_s, "overlap": e.rule.overlap, "pass_s": e.pass_s,
         "highest_load_per_s": e.rate_per_s, "capacity_per_s": e.capacity_per_s}
        for e in shown
    )  # fmt: skip
    return BATCHES.block(title, how, figure, source, data)


def _rate(per_s: float) -> str:
    return format_per_second(per_s, "requests")


def _load(per_s: float) -> str:
    """Requests per second as ``500 k``."""
    return _rate(per_s).removesuffix("requests/s").strip()


def _tick(value: float) -> str:
    """Requests per second as ``500 k``, for ticks."""
    number, _, unit = _load(value).partition(" ")
    return f"{float(number):g} {unit}".strip()
