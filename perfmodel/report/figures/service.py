"""A service: latencies against its load, what its p99 is made of, what each batch size carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.service.closed_forms import estimated_quantile
from perfmodel.service.events import WAITS
from perfmodel.service.highest import P99
from perfmodel.service.service_load import LoadRow, ServiceLoad
from perfmodel.units import counted, format_count, format_fraction, format_per_second, format_time

LATENCY, MADE_OF, BATCHES = "latency", "made-of", "batches"
_HEIGHT, _WIDTH = 440, 760
_MARGIN = {"l": 80, "r": 32, "t": 56, "b": 64}
_QUANTILES = (("p99", 0.99), ("p95", 0.95), ("p50", 0.5))
_BELOW, _ABOVE = 0.8, 1.25
WORDS = {
    "batching": "waiting for the batch to fill",
    "queue": "waiting for earlier batches",
    "pass": "the pass itself",
    "stragglers": "the slowest ranks",
}


def blocks(answer: ServiceLoad, rows: Sequence[LoadRow], source: str) -> tuple[Block | Missing, ...]:
    """All figures of a service. rows  of ``service_load.curve``;  source  of the times of the pass"""
    return latency(answer, rows, source), made_of(answer, rows, source), batches(answer, source)


def latency(answer: ServiceLoad, rows: Sequence[LoadRow], source: str) -> Block:
    """Percentiles against load, with the limit and the asked load."""
    loads = [row.load_per_s for row in rows]
    limit, most = answer.question.limit_s, answer.best.rate_per_s * answer.replicas
    traces = [
        _line(name, loads, [row.run.quantile(q) for row in rows], at)
        for at, (name, q) in enumerate(_QUANTILES)
    ]
    traces += _estimated(answer, rows)
    heights = [height for trace in traces for height in trace["y"]] + [limit]
    figure = style.plain_figure(
        traces,
        height=_HEIGHT,
        margin=_MARGIN,
        meta={"min_width": _WIDTH, "right": _MARGIN["r"]},
        xaxis=style.log_axis(_BELOW * min(loads), _ABOVE * max(loads), _tick, "requests per second"),
        yaxis=style.time_axis(_BELOW * min(heights), _ABOVE * max(heights), "latency"),
        shapes=[_rule("y", limit), _rule("x", answer.asked.load_per_s, "dot")],
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
    return Block(LATENCY, title, how, figure, source, data)


def _estimated(answer: ServiceLoad, rows: Sequence[LoadRow]) -> list[dict[str, Any]]:
    """The p99 and the p50 in closed form, where there is one, dashed."""
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
            trace = _line(f"{name}, closed form", loads, times, at)
            trace |= {"mode": "lines", "line": {"color": style.colour(at), "width": 2, "dash": "dot"}}
            found.append(trace)
    return found


def _line(name: str, loads: Sequence[float], times: Sequence[float], at: int) -> dict[str, Any]:
    words = [[_rate(load), format_time(time)] for load, time in zip(loads, times, strict=True)]
    return {
        "type": "scatter", "x": list(loads), "y": list(times), "mode": "lines+markers", "name": name,
        "customdata": words,
        "hovertemplate": "<b>%{fullData.name}</b><br>%{customdata[0]}: %{customdata[1]}<extra></extra>",
        "line": {"color": style.colour(at), "width": 3 if at == 0 else 2},
        "marker": {"symbol": style.symbol(at), "size": 8, "color": style.colour(at)},
    }  # fmt: skip


def _rule(axis: str, value: float, dash: str = "dash") -> dict[str, Any]:
    across = {"y": ("x", "y"), "x": ("y", "x")}[axis]
    return {
        "type": "line", f"{across[1]}0": value, f"{across[1]}1": value, f"{across[0]}ref": "paper",
        f"{across[0]}0": 0, f"{across[0]}1": 1, "line": {"color": style.RULE, "width": 1.5, "dash": dash},
    }  # fmt: skip


def _note(text: str, x: float | None = None, y: float | None = None) -> dict[str, Any]:
    """A word at the end of a rule; positions on a logarithmic axis are logarithms."""
    from math import log10

    base = {"text": text, "showarrow": False, "font": {"size": 12}}
    if y is not None:
        return {**base, "xref": "paper", "x": 0, "xanchor": "left", "y": log10(y), "yanchor": "bottom"}
    return {**base, "yref": "paper", "y": 0, "yanchor": "bottom", "x": log10(x or 1.0), "xanchor": "left"}


def made_of(answer: ServiceLoad, rows: Sequence[LoadRow], source: str) -> Block:
    """The parts of the 99th percentile at each load, as bars on top of one another."""
    within = [row for row in rows if row.load_per_s <= answer.best.rate_per_s * answer.replicas * (1 + 1e-9)]
    loads = [_rate(row.load_per_s).removesuffix(" requests/s").removesuffix("requests/s") for row in within]
    parts = [row.run.made_of(P99) for row in within]
    traces = [
        {
            "type": "bar", "x": loads, "y": [max(each[name], 0.0) * 1e3 for each in parts], "name": name,
            "customdata": [[format_time(max(each[name], 0.0))] for each in parts],
            "hovertemplate": f"<b>{name}</b>: {WORDS[name]}<br>%{{x}}: %{{customdata[0]}}<extra></extra>",
            "marker": {"color": style.colour(at)},
        }
        for at, name in enumerate(WAITS)
    ]  # fmt: skip
    figure = style.plain_figure(
        traces,
        height=_HEIGHT,
        margin=_MARGIN,
        meta={"min_width": _WIDTH, "right": _MARGIN["r"]},
        barmode="stack",
        xaxis=style.axis("requests per second", type="category"),
        yaxis=style.axis("99th percentile (ms)", rangemode="tozero"),
    )
    asked = answer.asked.run.made_of(P99)
    largest = max(WAITS, key=lambda name: asked[name])
    share = format_fraction(asked[largest] / answer.asked.run.quantile(P99))
    title = f"At the requested load, {share} of the p99 is {largest}: {WORDS[largest]}."
    words = "; ".join(f"{name}: {WORDS[name]}" for name in WAITS)
    how = (
        f"Each bar is the p99 at one load within the limit, in its mean parts. {words[0].upper()}{words[1:]}."
    )
    data = tuple(
        {"load_per_s": row.load_per_s, **{f"{name}_s": part[name] for name in WAITS}}
        for row, part in zip(within, parts, strict=True)
    )
    return Block(MADE_OF, title, how, figure, source, data)


def batches(answer: ServiceLoad, source: str) -> Block | Missing:
    """What a replica carries within the limit, and without one, at each batch size."""
    best = {each.batch: each for each in sorted(answer.tried, key=lambda each: each.rate_per_s)}
    shown = [best[batch] for batch in sorted(best)]
    if len(shown) < 2:
        return Missing(BATCHES, "one batch size was given: leave out --batch to compare.")
    sizes = [float(each.batch) for each in shown]
    lines = {
        "within the limit": [each.rate_per_s for each in shown],
        "without a limit": [each.capacity_per_s for each in shown],
    }
    traces = [_carries(name, sizes, rates, at) for at, (name, rates) in enumerate(lines.items())]
    rates = [rate for each in lines.values() for rate in each]
    figure = style.plain_figure(
        traces,
        height=_HEIGHT,
        margin=_MARGIN,
        meta={"min_width": _WIDTH, "right": _MARGIN["r"]},
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
    return Block(BATCHES, title, how, figure, source, data)


def _carries(name: str, sizes: Sequence[float], rates: Sequence[float], at: int) -> dict[str, Any]:
    words = [[format_count(size), _rate(rate)] for size, rate in zip(sizes, rates, strict=True)]
    found = _line(name, sizes, rates, at)
    hover = "<b>%{fullData.name}</b><br>%{customdata[0]} per GPU: %{customdata[1]}<extra></extra>"
    return {**found, "customdata": words, "hovertemplate": hover}


def _rate(per_s: float) -> str:
    return format_per_second(per_s, "requests")


def _tick(value: float) -> str:
    """``500 k``, on an axis."""
    number, _, unit = _rate(value).removesuffix("requests/s").strip().partition(" ")
    return f"{float(number):g} {unit}".strip()
