"""The constants in which two answers differ, and what the slower one would need to be as fast."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.model.differences import log_span, ratio_band
from perfmodel.project.needs import MOST, Need, Remedy
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.compare import Pair
from perfmodel.report.figures.compare_curves import common_curves, model_of
from perfmodel.report.figures.row_layout import (
    BAR,
    legend_mark,
    ratio_row_axis,
    row_rules,
    row_words,
    rows_figure,
)
from perfmodel.report.figures.words import collective_name, hover, interval_end, safe, sentence
from perfmodel.schema.calibration import Calibration, Curve, Law
from perfmodel.schema.evidence import COLLECTIVES, Evidence
from perfmodel.schema.intervals import Interval
from perfmodel.schema.machine_keys import KEYS
from perfmodel.units import counted, format_quantity, format_ratio, format_time

CONSTANTS, NEEDS = "compare-constants", "compare-needs"
_MOST_DRAWN = 14
_ALIKE = 1e-9
_ROW = 58
_UNITS = {"_bytes_per_s": "byte/s", "_bytes": "byte", "_s": "s"}


@dataclass(frozen=True)
class Constant:
    """One number of both sides. ``low``, ``high``: the 95 % interval of B over A, where it is known."""

    name: str
    meaning: str
    unit: str
    a: float
    b: float
    a_from: str  # evidence and source
    b_from: str
    kind: str  # machine, curve or law
    low: float | None = None
    high: float | None = None

    @property
    def ratio(self) -> float | None:
        """B over A. Limits: one of them 0 -> None"""
        return self.b / self.a if self.a and self.b else None

    @property
    def sure(self) -> bool:
        """Whether it differs beyond its interval; one without an interval is taken at its word."""
        return self.low is None or self.high is None or not self.low <= 1 <= self.high

    @property
    def reach(self) -> float:
        """How far apart, as a logarithm. Limits: one of them 0 -> infinite"""
        return math.inf if self.ratio is None else abs(math.log(self.ratio))


_KINDS = {"machine": 0, "curve": 2, "law": 4}
"""Kinds with their places among the colours."""
_KIND_WORDS = {
    "machine": "value of the machine",
    "curve": "fitted to a collective",
    "law": "law beyond measured cells",
}


def differing(pair: Pair) -> list[Constant]:
    """Every constant that A and B have and that differs: the farthest apart first, of any kind.

    Values of the machines; floor and rate of each collective on the most ranks that both measured; the laws.
    Limits: a constant whose interval of B over A holds 1 -> it comes after those that differ for sure
    """
    found = [*_of_machines(pair), *_of_calibrations(pair)]
    return sorted(
        (one for one in found if abs(one.a - one.b) > _ALIKE * abs(one.a)),
        key=lambda one: (not one.sure, -one.reach),
    )


def constants(pair: Pair) -> Block | Missing:
    """B over A of every constant that differs.

    Limits: none differs -> Missing
    """
    found = differing(pair)
    drawn = [one for one in found if one.ratio is not None][:_MOST_DRAWN]
    if not drawn:
        return Missing(CONSTANTS, "A and B have the same constants.")
    figure = rows_figure(len(drawn), _ROW)
    for index, one in enumerate(drawn):
        for trace in _constant(one, index):
            figure.add_trace(trace)
        row_words(figure, index, f"{one.name}\n{_value(one, one.a)} → {_value(one, one.b)}")
    for kind in dict.fromkeys(one.kind for one in drawn):
        place = _KINDS[kind]
        figure.add_trace(legend_mark(_KIND_WORDS[kind], style.colour(place), style.symbol(place)))
    ends = [v for one in drawn for v in (one.ratio, one.low, one.high) if v is not None]
    low, high = min(*ends, 1.0), max(*ends, 1.0)
    ratio_row_axis(figure, low / 1.15, high * 1.15, "B over A (×)")
    row_rules(figure, len(drawn), 1.0)
    left = len(found) - len(drawn)
    return Block(
        CONSTANTS,
        _constants_title(found),
        "Each bar goes from 1 (the same) to B's value divided by A's; whiskers are the 95 % interval, where "
        "it is known. Significant differences come first, the largest on top; values of the machines have "
        "no interval and count as significant. Hover for sources."
        + (f" The numbers below have {counted(left, 'more constant')}." if left else ""),
        figure,
        "; ".join(
            f"{letter}: machine {answer.setting.machine.name}, calibration {', '.join(answer.calibrations)}"
            for letter, _, answer in pair.sides
        )
        + ".",
        tuple(_row(one) for one in found),
    )


def _constants_title(found: Sequence[Constant]) -> str:
    """How many of each kind, and the one that is the farthest apart; laws are told last."""
    parts = []
    for kind, words in _KIND_COUNTS.items():
        own = [one for one in found if one.kind == kind]
        if own:
            few = "" if kind == "machine" else f"{sum(one.sure for one in own)} of "
            parts.append(few + counted(len(own), *words))
    first = next(one for one in found if one.ratio is not None)  # the first that is drawn
    article = "the " if first.kind == "curve" else ""
    what = "the largest difference is" if first.sure else "the largest difference, not significant, is"
    return sentence(
        f"A and B differ significantly in {', '.join(parts)}; {what} {article}{first.name}, "
        f"{_value(first, first.a)} on A and {_value(first, first.b)} on B"
    )


_KIND_COUNTS = {
    "machine": ("value of the machines", "values of the machines"),
    "curve": ("fitted floor or rate", "fitted floors and rates"),
    "law": ("constant of the laws", "constants of the laws"),
}


def _of_machines(pair: Pair) -> Iterator[Constant]:
    a, b = (answer.setting.machine for _, _, answer in pair.sides)
    for key, kind in KEYS.items():
        first, second = a.quantity(key), b.quantity(key)
        a_from, b_from = (f"{q.evidence}, {q.source}" for q in (first, second))
        yield Constant(key, kind.meaning, kind.unit, first.value, second.value, a_from, b_from, "machine")


def _of_calibrations(pair: Pair) -> Iterator[Constant]:
    models = [model_of(answer.setting) for _, _, answer in pair.sides]
    if models[0] is None or models[1] is None:
        return
    a, b = models[0].calibration, models[1].calibration
    for collective in COLLECTIVES:
        curves = common_curves(collective, a.curves, b.curves)
        if curves is not None:
            yield from _of_curves(collective, curves, (a, b))
        yield from _of_laws(collective, a.law(collective), b.law(collective))


def _of_curves(
    collective: str, curves: tuple[Curve, Curve], calibrations: tuple[Calibration, Calibration]
) -> Iterator[Constant]:
    where = f"{collective_name(collective)} on {curves[0].gpus} GPUs"
    sources = tuple(
        f"fitted to {', '.join(curve.sources)} ({one.calibration_id})"
        for curve, one in zip(curves, calibrations, strict=True)
    )
    for word, name, unit in (("floor", "alpha_s", "s"), ("rate", "beta_bytes_per_s", "byte/s")):
        a, b = (getattr(curve, name) for curve in curves)
        low, high = _interval(a, b)
        what = f"{word} of {where}"
        yield Constant(what, what, unit, a.value, b.value, sources[0], sources[1], "curve", low, high)


def _of_laws(collective: str, a: Law | None, b: Law | None) -> Iterator[Constant]:
    """A law of several collectives is told with its first."""
    if a is None or b is None or a.law != b.law or collective != a.collectives[0]:
        return
    a_from, b_from = (", ".join(law.sources) or "known of the machine's kind" for law in (a, b))
    values = dict(zip(b.names, b.values, strict=True))
    for key, value in zip(a.names, a.values, strict=True):
        if key in values:
            what = f"{key}, {a.law.replace('_', '-')} law"
            low, _, high = ratio_band(_span(b, key), _span(a, key))
            ends = float(low), float(high)
            yield Constant(what, what, _unit(key), value, values[key], a_from, b_from, "law", *ends)


def _span(law: Law, name: str) -> tuple[Any, Any, Any]:
    """A constant of a law with its interval: low, middle, high."""
    at = law.names.index(name)
    return log_span(law.values[at], math.sqrt(law.log_covariance[at][at]))


def _interval(a: Interval, b: Interval) -> tuple[float | None, float | None]:
    """Of B over A. Limits: one that its samples do not tell -> None"""
    if not (a.known and b.known):
        return None, None
    low, _, high = ratio_band((b.low, b.value, b.high), (a.low, a.value, a.high))
    return float(low), float(high)


def _unit(name: str) -> str:
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "ratio")


def _value(one: Constant, value: float) -> str:
    return format_quantity(value, one.unit)


def _constant(one: Constant, index: int) -> Iterator[Any]:
    import plotly.graph_objects as go

    ratio = one.ratio or 1.0
    place = _KINDS[one.kind]
    text = hover(
        [
            f"<b>{safe(one.name)}</b>",
            safe(one.meaning) if one.meaning != one.name else "",
            f"A {_value(one, one.a)}: {safe(one.a_from)}",
            f"B {_value(one, one.b)}: {safe(one.b_from)}",
            f"B over A {format_ratio(ratio)}" + _interval_words(one),
        ]
    )
    same = {"hovertext": text, "hoverinfo": "text", "showlegend": False, "name": safe(one.name)}
    line = {"color": style.faded(style.colour(place), 0.45), "width": BAR}
    yield go.Scatter(x=[1, ratio], y=[index, index], mode="lines", line=line, **same)
    marker = {"color": style.colour(place), "symbol": style.symbol(place), "size": 10}
    bars: dict[str, Any] = {}
    if one.low is not None and one.high is not None:
        ends = {"array": [one.high - ratio], "arrayminus": [ratio - one.low]}
        bars = {"error_x": {"type": "data", "symmetric": False, **ends, "thickness": 1.5, "width": 5}}
    yield go.Scatter(x=[ratio], y=[index], mode="markers", marker=marker, **bars, **same)


def _interval_words(one: Constant) -> str:
    if one.low is None or one.high is None:
        return ""
    return f", interval {interval_end(one.low)} – {interval_end(one.high)}"


def _row(one: Constant) -> dict[str, Any]:
    return {
        "constant": one.name,
        "unit": one.unit,
        "a": one.a,
        "b": one.b,
        "b_over_a": one.ratio,
        "low": one.low,
        "high": one.high,
        "a_from": one.a_from,
        "b_from": one.b_from,
    }


# What the slower one would need


def needed(pair: Pair, found: Sequence[Need], others: Sequence[Remedy]) -> Block | Missing:
    """What each value of the slower machine would have to be, all others as they are, to be as fast.

    found   of ``needs`` for the slower one, the time of the faster one as its target;  others  of ``ways``
    Limits: the same time -> Missing;  no value and no exchange that helps -> Missing
    """
    (slow, _, loser), (fast, _, winner) = sorted(pair.sides, key=lambda side: -side[2].time_s)
    if loser.time_s == winner.time_s:
        return Missing(NEEDS, "both take the same time: neither has to be faster.")
    if not found and not others:
        return Missing(NEEDS, f"no single value of {slow}'s machine makes it faster by 2 % or more.")
    enough = [one for one in found if one.needed is not None]
    figure = rows_figure(max(len(found), 1), _ROW)
    for index, one in enumerate(found):
        figure.add_trace(_need(one, index, winner.time_s))
        row_words(figure, index, _need_words(one))
    evidence = dict.fromkeys(one.evidence for one in found)
    for kind in sorted(evidence, key=lambda e: e.rank):
        figure.add_trace(legend_mark(str(kind), style.EVIDENCE_COLOURS[kind], "diamond"))
    top = max([2.0, *(one.factor for one in enough)]) if len(enough) == len(found) else MOST
    ratio_row_axis(figure, 1, top * 1.15, "better by this factor (×)")
    return Block(
        NEEDS,
        _needs_title(slow, fast, winner.time_s, enough, others),
        f"Each bar is the factor by which one value of {slow}'s machine would have to improve for a batch of "
        f"{format_time(winner.time_s)}, with all other values unchanged; {_colours(list(evidence))}"
        + (
            "."
            if len(enough) == len(found)
            else f". A cross at the end of a bar: not even {MOST:g} times is enough."
        ),
        figure,
        f"Each bar is a full projection of {slow} with one value changed; {loser.setting.machine.name}, "
        f"calibration {', '.join(loser.calibrations)}.",
        tuple(
            [_need_row(one, winner.time_s) for one in found]
            + [{"value": f"--reduction {way.reduction}", "time_s": way.time_s} for way in others]
        ),
    )


def _colours(evidence: Sequence[Evidence]) -> str:
    """What colours say. Limits: one kind of evidence has no legend -> the kind"""
    if len(evidence) == 1:
        return f"the evidence of every value is {evidence[0]}"
    return "colours show the evidence of the value"


def _needs_title(
    slow: str, fast: str, target_s: float, enough: Sequence[Need], others: Sequence[Remedy]
) -> str:
    """The least change, and the exchange that needs none."""
    parts = []
    if enough:
        first = enough[0]
        unit = KEYS[first.key].unit
        parts.append(
            f"one value alone would make {slow} as fast as {fast}: {KEYS[first.key].meaning}, "
            f"{format_quantity(first.needed or 0.0, unit)} instead of {format_quantity(first.value, unit)}"
        )
    else:
        parts.append(
            f"improving a single value of its machine, even {MOST:g} times, does not make {slow} as fast "
            f"as {fast}"
        )
    if others:
        way = others[0]
        parts.append(f"with its {way.reduction} exchange of bags it takes {format_time(way.time_s)}")
    if not enough and not others:
        parts.append(f"it would have to take {format_time(target_s)}")
    return sentence("; ".join(parts))


def _need_words(one: Need) -> str:
    unit = KEYS[one.key].unit
    now = format_quantity(one.value, unit)
    if one.needed is None:
        return f"{one.key} = {now}\n{format_time(one.best_s)} even if {MOST:g} times better"
    return (
        f"{one.key} = {now}\n{format_quantity(one.needed, unit)} would be enough ({format_ratio(one.factor)})"
    )


def _need(one: Need, index: int, target_s: float) -> Any:
    import plotly.graph_objects as go

    colour, end = style.EVIDENCE_COLOURS[one.evidence], min(one.factor, MOST)
    text = hover(
        [
            f"<b>{one.key}</b>: {KEYS[one.key].meaning}",
            *_need_words(one).splitlines(),
            f"target: a batch of {format_time(target_s)}",
            f"evidence of the value: {one.evidence}",
        ]
    )
    marker = {
        "color": colour,
        "symbol": ["circle", "diamond" if one.needed else "x"],
        "size": [0, 10],
        "opacity": 1,
    }
    return go.Scatter(
        x=[1, end], y=[index, index], mode="lines+markers", hovertext=[text, text], hoverinfo="text",
        name=one.key, showlegend=False, line={"color": style.faded(colour, 0.45), "width": BAR},
        marker=marker,
    )  # fmt: skip


def _need_row(one: Need, target_s: float) -> Mapping[str, Any]:
    return {
        "value": one.key,
        "unit": KEYS[one.key].unit,
        "now": one.value,
        "needed": one.needed,
        "factor": None if one.needed is None else one.factor,
        "time_s": target_s if one.needed is not None else one.best_s,
        "evidence": str(one.evidence),
    }
