"""Where the time of two answers goes: bars side by side, and what each step saves with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfmodel.passes.steps import StepRow
from perfmodel.project import Projection
from perfmodel.project.comparison import Difference, DifferenceVerdict, differences, largest, whole
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.report.figures.compare import INDEPENDENT, Pair, verdict_mark
from perfmodel.report.figures.row_layout import BAR, legend_mark, row_rules, row_words, rows_figure
from perfmodel.report.figures.words import hover, safe, sentence
from perfmodel.report.projection_text import band, short_label
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_time

STEPS, DIFFERENCES = "compare-steps", "compare-differences"
_PATTERNS = ("", "/", "", "\\", "", "x", "", "-", "", "+")
_UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))
_ROW = 52


def steps(pairs: Sequence[Pair], asked: Pair) -> Block | Missing:
    """Steps of A and of B, stacked, beside each other for several table sizes.

    pairs  at increasing table sizes;  asked  the one that the sentence is about
    Limits: everything fits one GPU -> Missing
    """
    shown = [pair for pair in pairs if max(pair.a.gpus, pair.b.gpus) > 1]
    if not shown:
        return Missing(STEPS, asked.axis.small)
    bars = [(letter, answer) for pair in shown for letter, _, answer in pair.sides]
    names = list(dict.fromkeys(step.name for _, answer in bars for step in answer.steps))
    factor, unit = unit_of(max(answer.time_s for _, answer in bars))
    firsts = [pair.a.time_s for pair in shown for _ in pair.sides]
    own = [answer.time_s for _, answer in bars]
    heights = [[factor * _time(answer, name) for _, answer in bars] for name in names]
    shares, of_a = (
        [[100 * _time(b[1], name) / base for b, base in zip(bars, bases, strict=True)] for name in names]
        for bases in (own, firsts)
    )
    labels = [
        [_place(pair) for pair in shown for _ in pair.sides],
        [_bar_label(letter, answer) for letter, answer in bars],
    ]
    wide = 120 + 90 * len(bars)
    figure = style.new_figure(barmode="stack", bargap=0.2, height=460, meta={"min_width": min(wide, 680)})
    for index, name in enumerate(names):
        figure.add_trace(_bars(bars, labels, name, index, of_a[index]))
    figure.update_xaxes(type="multicategory", tickangle=0, dividercolor=style.GRID, title={"text": ""})
    a_axis = style.axis("relative to A's time at that size (%)", rangemode="tozero")
    time_axis = style.axis(f"time of a batch ({unit})", rangemode="tozero")
    share_axis = style.axis("share of the time (%)", range=[0, 100])
    figure.update_layout(yaxis=a_axis)
    return Block(
        STEPS,
        steps_title(asked),
        "Each bar is one batch at one table size; its segments are the steps, the first at the bottom. "
        "Heights are relative to A's time at that size, so that small sizes can be read too; the times are "
        "below.",
        figure,
        _source(asked, shares=False),
        tuple(_row(letter, answer, step) for letter, answer in bars for step in answer.steps),
        (
            Switch("over A", {"y": of_a}, {"yaxis": a_axis}),
            Switch(unit, {"y": heights}, {"yaxis": time_axis}),
            Switch("shares", {"y": shares}, {"yaxis": share_axis}),
        ),
    )


def step_differences(pair: Pair) -> Block | Missing:
    """What B saves in each step, with its interval and whether that holds 0; the batch last.

    Limits: everything fits one GPU -> Missing
    """
    if max(pair.a.gpus, pair.b.gpus) == 1:
        return Missing(DIFFERENCES, "both fit on one GPU: nothing is exchanged.")
    found, batch = differences(pair.a, pair.b), whole(pair.a, pair.b)
    rows = (*found, batch)
    factor, unit = unit_of(max(abs(end) for one in rows for end in one.band))
    figure = rows_figure(len(rows), _ROW)
    for index, one in enumerate(rows):
        for trace in _difference(one, index, factor):
            figure.add_trace(trace)
        row_words(figure, index, _words(one))
    for verdict in dict.fromkeys(one.verdict for one in rows):
        mark = verdict_mark(verdict)
        figure.add_trace(legend_mark(str(verdict), mark["color"], mark["symbol"]))
    figure.update_xaxes(style.axis(f"← A is faster    A − B ({unit})    B is faster →", zeroline=False))
    row_rules(figure, len(rows), 0.0)
    return Block(
        DIFFERENCES,
        _differences_title(found, batch, pair.what),
        "Each bar is a step's time on A minus its time on B, with the 95 % interval of the difference. "
        f"Grey: the interval includes 0, so neither is faster for certain. {INDEPENDENT}",
        figure,
        _source(pair),
        tuple(_difference_row(one) for one in rows),
    )


def unit_of(largest_s: float) -> tuple[float, str]:
    """Factor and unit in which times up to this one are drawn."""
    return next((pair for pair in _UNITS if largest_s * pair[0] >= 1), _UNITS[-1])


def steps_title(pair: Pair) -> str:
    """The sentence of ``steps``, at the table size of a pair."""
    size = pair.what
    (_, first), (_, second) = ((letter, _longest(answer)) for letter, _, answer in pair.sides)
    a, b = format_fraction(first.share), format_fraction(second.share)
    if first.name == second.name:
        return sentence(f"for {size} the {short_label(first)} takes {a} of A's time and {b} of B's")
    return sentence(
        f"for {size} the longest step of A is the {short_label(first)} ({a} of its time), that of B the "
        f"{short_label(second)} ({b})"
    )


def _differences_title(found: tuple[Difference, ...], batch: Difference, size: str) -> str:
    """Which step gives the most of what one side saves, and in how many that can be said."""
    differing = [one for one in found if one.verdict is not DifferenceVerdict.SAME]
    if not differing or batch.saved_s == 0:
        return sentence(f"for {size} every step takes the same time on A and B")
    step, share = largest(found, batch.saved_s)
    winner = "B" if batch.saved_s > 0 else "A"
    saved = format_time(abs(batch.saved_s))
    what = "all" if share >= 1 else format_fraction(share)
    first = f"for {size} {winner} saves {saved}, {what} of it in the {_short(step)}"
    back = sum(one.saved_s * batch.saved_s < 0 for one in found)
    more = f", but {counted(back, 'step')} {'is' if back == 1 else 'are'} slower" if back else ""
    said = sum(one.verdict in (DifferenceVerdict.A, DifferenceVerdict.B) for one in differing)
    if said == 0:
        return sentence(f"{first}{more}; the interval of every step includes 0, so none of it is certain")
    lie = "is significant" if said == 1 else "are significant"
    return sentence(f"{first}{more}; {said} of {counted(len(differing), 'difference')} {lie}")


def _short(one: Difference) -> str:
    return one.label.replace(" a domain)", ")").replace(" domains)", ")")


def _words(one: Difference) -> str:
    times = [f"{side} {format_time(span[1])}" for side, span in (("A", one.a), ("B", one.b)) if span[1]]
    return f"{_short(one)}: {', '.join(times)}{' alone' if len(times) == 1 else ''}"


def _difference(one: Difference, index: int, factor: float) -> list[Any]:
    import plotly.graph_objects as go

    start, middle, end = (factor * value for value in one.band)
    mark = verdict_mark(one.verdict)
    text = hover(
        [
            safe(_short(one)),
            *(
                f"{side} {format_time(at)}, band {band(low, high)}" if at else f"not a step of {side}"
                for side, (low, at, high) in (("A", one.a), ("B", one.b))
            ),
            f"A − B {_signed(one.band[1])}, interval {_signed(one.band[0])} to {_signed(one.band[2])}",
            str(one.verdict),
        ]
    )
    same = {"hovertext": text, "hoverinfo": "text", "showlegend": False, "name": _short(one)}
    line = {"color": style.faded(mark["color"], 0.45), "width": BAR}
    bars = {"type": "data", "symmetric": False, "array": [end - middle], "arrayminus": [middle - start]}
    return [
        go.Scatter(x=[0, middle], y=[index, index], mode="lines", line=line, **same),
        go.Scatter(
            x=[middle], y=[index], mode="markers", marker=mark | {"size": 10},
            error_x={**bars, "thickness": 1.5, "width": 5}, **same,
        ),
    ]  # fmt: skip


def _signed(value_s: float) -> str:
    return ("−" if value_s < 0 else "") + format_time(abs(value_s))


def _longest(answer: Projection) -> StepRow:
    return max(answer.steps, key=lambda step: step.time_s)


def _time(answer: Projection, name: str) -> float:
    return next((step.time_s for step in answer.steps if step.name == name), 0.0)


def _bar_label(letter: str, answer: Projection) -> str:
    many = f"{format_count(answer.gpus)} GPU{'s' if answer.gpus > 1 else ''}"
    return f"{letter}: {many}<br>{format_time(answer.time_s)}"


def _place(pair: Pair) -> str:
    """Where the bars of a pair stand: ``10 TB``, ``64 GPUs``."""
    known = {"table_bytes": pair.table_bytes, "gpus": float(pair.a.gpus)}
    return pair.axis.words(known[pair.axis.key])


def _size(table_bytes: float) -> str:
    return format_bytes(table_bytes, binary=False)


def _bars(
    bars: Sequence[tuple[str, Projection]],
    labels: list[list[str]],
    name: str,
    index: int,
    heights: list[float],
) -> Any:
    """One step in all bars."""
    import plotly.graph_objects as go

    found = [next((s for s in answer.steps if s.name == name), None) for _, answer in bars]
    texts = [
        _bar_text(letter, answer, step) if step else ""
        for (letter, answer), step in zip(bars, found, strict=True)
    ]
    pattern = {"shape": _PATTERNS[index % len(_PATTERNS)], "fillmode": "overlay",
               "fgcolor": "rgba(255,255,255,0.6)", "size": 7, "solidity": 0.2}  # fmt: skip
    return go.Bar(
        x=labels, y=heights, name=next(short_label(step) for step in found if step), hovertext=texts,
        hoverinfo="text", marker={"color": style.colour(index), "pattern": pattern},
    )  # fmt: skip


def _bar_text(letter: str, answer: Projection, step: StepRow) -> str:
    return hover(
        [
            f"<b>{letter}: {safe(short_label(step))}</b>",
            f"{_size(answer.gpu_count.table_bytes)} on {format_count(answer.gpus)} GPUs",
            f"{format_time(step.time_s)} ({format_fraction(step.share)})",
            f"band {band(step.low_s, step.high_s)}",
            f"{format_bytes(step.payload_bytes)} per GPU, {step.library}, {step.clock} clock",
            f"evidence: {step.evidence}",
        ]
    )


def _row(letter: str, answer: Projection, step: StepRow) -> dict[str, Any]:
    times = {name: float(f"{getattr(step, name):.6g}") for name in ("time_s", "low_s", "high_s", "share")}
    return {
        "side": letter,
        "table_bytes": answer.gpu_count.table_bytes,
        "gpus": answer.gpus,
        "step": step.name,
        **times,
        "library": step.library,
        "clock": str(step.clock),
        "evidence": str(step.evidence),
    }


def _difference_row(one: Difference) -> dict[str, Any]:
    low, middle, high = one.band
    return {
        "step": one.name,
        "a_s": one.a[1],
        "b_s": one.b[1],
        "difference_s": middle,
        "low_s": low,
        "high_s": high,
        "verdict": str(one.verdict),
    }


def _source(pair: Pair, *, shares: bool = True) -> str:
    """shares: those of the evidence, of this one table size."""
    parts = []
    for letter, _, answer in pair.sides:
        found = answer.evidence_shares() if shares else {}
        words = ", ".join(f"{format_fraction(share)} {kind}" for kind, share in found.items())
        names = ", ".join(dict.fromkeys(answer.calibrations))
        parts.append(f"{letter}: calibration {names}" + (f"; of its time {words}" if words else ""))
    return ". ".join(parts) + "."
