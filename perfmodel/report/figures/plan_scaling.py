"""How plans scale: samples per second of the same tables planned on more and more GPUs, and the knee."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfmodel.errors import NoCalibrationError, PerfmodelError
from perfmodel.plan.as_projection import winner
from perfmodel.plan.scaling import knee_of
from perfmodel.plan.sizes import Size
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.report.figures.line_traces import source
from perfmodel.report.figures.over_gpus import gpus_axis, samples_tick, samples_words
from perfmodel.report.figures.planned import Begin, begun
from perfmodel.units import counted, format_count, format_fraction, format_ratio, format_time

NAME = "plan-scaling"
_MARGIN = {"l": 72, "r": 24, "t": 40, "b": 60}
_HEIGHT, _WIDTH = 460, 760
_BELOW, _ABOVE = 0.7, 1.5
_PLANNED, _ALIKE, _EVEN = "a plan", "all tables alike", "as many more samples as GPUs"


def plan_scaling(sizes: Sequence[Size], line: str, begin: Begin = begun) -> Block | Missing:
    """Plans that a search begins with, beside the best of all tables sharded alike.

    sizes  the tables of one model on each number of GPUs;  line  the command that searches on
    Limits: fewer than two numbers of GPUs with a plan -> Missing
    """
    rows = [row for size in sorted(sizes, key=lambda size: size.base.gpus) for row in _row(size, begin)]
    if len(rows) < 2:
        return Missing(NAME, "plans on two numbers of GPUs are needed: give more with --gpus.")
    numbers, rates = [row["gpus"] for row in rows], [row["samples_per_s"] for row in rows]
    knee = knee_of(numbers, rates)
    switches = tuple(_switch(rows, each, words) for each, words in ((False, "samples/s"), (True, "per GPU")))
    figure = style.plain_figure(
        [_trace(rows, name, values, at) for at, (name, values) in enumerate(_heights(rows, False).items())],
        height=_HEIGHT,
        margin=_MARGIN,
        meta={"min_width": _WIDTH, "right": _MARGIN["r"]},
        xaxis=gpus_axis(min(numbers), max(numbers)),
        shapes=[] if knee is None else [_rule(knee)],
        **switches[0].layout,
    )
    how = (
        "Tables are planned anew for each number of GPUs, with the same batch per GPU. Each point is the "
        "plan from which a search starts, which is deterministic. The dashed line is the knee. "
        f"To search further: {line}"
    )
    return Block(NAME, _title(rows, knee), how, figure, source(sizes[0].base, rows), tuple(rows), switches)


def _row(size: Size, begin: Begin) -> list[dict[str, Any]]:
    """A plan on one number of GPUs; none where there is none."""
    base = size.base
    try:
        known = begin(base)
    except NoCalibrationError:
        raise
    except PerfmodelError:
        return []
    if known is None:
        return []
    evaluator, loads = known.evaluator, known.evaluator.loads(known.plan)
    cost, all_samples = evaluator.step(loads), float(evaluator.batch * base.gpus)
    alike = winner(size.found)
    limiting = cost.limiting
    return [
        {
            "gpus": base.gpus,
            "batch": evaluator.batch,
            "time_s": cost.time_s,
            "low_s": cost.low_s,
            "high_s": cost.high_s,
            "samples_per_s": all_samples / cost.time_s,
            "memory_bytes": float(evaluator.memory(known.plan, loads).total_bytes.max()),
            "longest_step": limiting.name,
            "longest_share": limiting.time_s / cost.time_s,
            "alike_sharding": alike.way,
            "alike_samples_per_s": all_samples / alike.answer.time_s if alike.answer else None,
            "evidence": str(cost.evidence),
        }
    ]


def _heights(rows: Sequence[dict[str, Any]], each: bool) -> dict[str, list[float | None]]:
    """Samples a second of the lines; each: of one GPU."""
    over = [row["gpus"] if each else 1 for row in rows]
    first = rows[0]["samples_per_s"] / rows[0]["gpus"]
    alike = [row["alike_samples_per_s"] for row in rows]
    return {
        _PLANNED: [row["samples_per_s"] / n for row, n in zip(rows, over, strict=True)],
        _ALIKE: [None if rate is None else rate / n for rate, n in zip(alike, over, strict=True)],
        _EVEN: [first * row["gpus"] / n for row, n in zip(rows, over, strict=True)],
    }


def _trace(
    rows: Sequence[dict[str, Any]], name: str, values: Sequence[float | None], at: int
) -> dict[str, Any]:
    if name == _EVEN:
        return {
            "type": "scatter", "x": [row["gpus"] for row in rows], "y": list(values), "mode": "lines",
            "name": name, "hoverinfo": "skip", "line": {"color": style.PALETTE[7], "width": 1.5},
        }  # fmt: skip
    words = [
        [
            counted(row["gpus"], "GPU"),
            samples_words(value) if value else "",
            samples_words(value / row["gpus"]) if value else "",
            format_time(row["time_s"]) if name == _PLANNED else str(row["alike_sharding"]),
            f"{row['longest_step'].replace('_', ' ')} {format_fraction(row['longest_share'])}"
            if name == _PLANNED
            else "",
        ]
        for row, value in zip(rows, _heights(rows, False)[name], strict=True)
    ]
    return {
        "type": "scatter", "x": [row["gpus"] for row in rows], "y": list(values), "mode": "lines+markers",
        "cliponaxis": False, "name": name, "customdata": words, "hovertemplate": _HOVER,
        "line": {"color": style.colour(at), "width": 3 if at == 0 else 2},
        "marker": {"symbol": style.symbol(at), "size": 8, "color": style.colour(at)},
    }  # fmt: skip


_HOVER = (
    "<b>%{fullData.name}</b><br>%{customdata[0]}<br>%{customdata[1]} samples per second, "
    "%{customdata[2]} per GPU<br>%{customdata[3]} %{customdata[4]}<extra></extra>"
)


def _switch(rows: Sequence[dict[str, Any]], each: bool, words: str) -> Switch:
    lines = _heights(rows, each)
    known = [value for values in lines.values() for value in values if value is not None]
    title = "samples per second and GPU" if each else "samples per second"
    axis = style.log_axis(_BELOW * min(known), _ABOVE * max(known), samples_tick, title)
    return Switch(words, {"y": list(lines.values())}, {"yaxis": axis})


def _rule(gpus: int) -> dict[str, Any]:
    """The knee, from bottom to top."""
    return {
        "type": "line", "x0": gpus, "x1": gpus, "yref": "paper", "y0": 0, "y1": 1,
        "line": {"color": style.PALETTE[7], "width": 1, "dash": "dash"},
    }  # fmt: skip


def _title(rows: Sequence[dict[str, Any]], knee: int | None) -> str:
    first, last = rows[0], rows[-1]
    gain, more = last["samples_per_s"] / first["samples_per_s"], last["gpus"] / first["gpus"]
    text = (
        f"Planned again for each number, {format_count(last['gpus'])} GPUs have {format_ratio(gain)} "
        f"the samples per second of {format_count(first['gpus'])}, with {format_ratio(more)} the GPUs"
    )
    if knee is None:
        return f"{text}; there is no knee in this range."
    return f"{text}; the knee is at {counted(knee, 'GPU')}."
