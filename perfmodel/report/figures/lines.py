"""Line charts: the slowdown over table sizes, and time and GPU-hours over GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from perfmodel.answer import Answer
from perfmodel.answer.answer import answer_row_wise
from perfmodel.answer.inputs import share_equally
from perfmodel.answer.ranking import rank
from perfmodel.engine.schemes import ROW_WISE, TORCHREC
from perfmodel.errors import PerfmodelError
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import place_trace, rule, scatter, split_panes
from perfmodel.report.figures.registry import OVER_GPUS, SLOWDOWN
from perfmodel.report.figures.subject import PLANNED_WORDS, Subject
from perfmodel.report.figures.words import hover, safe, size_words
from perfmodel.resources import DEFAULT_MACHINE
from perfmodel.schema.evidence import Evidence
from perfmodel.units import counted, format_count, format_number, format_ratio, format_time
from perfmodel.validate.verdicts import load_claims

Row = Mapping[str, Any]
_LARGEST_BYTES = 100e12
_STEPS = (1.0, 2.0, 5.0)
_LESS, _MORE = 0.98, 1.05  # of a full GPU or node: just below, there is room for buffers
_ONE_DOMAIN = 2.0**17
"""GPUs of a scale-up domain that holds all others."""
_PAPER_BYTES, _PAPER_CLAIMS = 10e12, ("10a", "10b")
"""Table size, and ids of the claims, of the smallest and the largest slowdown in the paper's Fig 9."""
_PAPER_MACHINES = (DEFAULT_MACHINE, "h100-paper")
_TIMES = (0.125, 0.25, 0.5, 1, 2, 4, 8)
_SAMPLES = 1e9
_RATIOS = ("slowdown", "slowdown_low", "slowdown_high")
_TIME, _HOURS = (
    ("time_s", "low_s", "high_s"),
    ("gpu_hours", "gpu_hours_low", "gpu_hours_high"),
)


def describe_answer(line: str, answer: Answer) -> dict[str, Any]:
    """An answer as a point of ``line``: a row of the figure's data, in SI units."""
    totals = answer.totals
    hours = _SAMPLES * answer.gpus / (answer.time_s * answer.samples_per_s * 3600)
    return {
        "line": line,
        "table_bytes": answer.gpu_count.table_bytes,
        "gpus": answer.gpus,
        "sharding": answer.sharding,
        **{name: totals[name] for name in (*_RATIOS, *_TIME, "baseline_time_s")},
        "samples_per_s": answer.samples_per_s,
        **{name: hours * totals[time] for name, time in zip(_HOURS, _TIME, strict=True)},
        "evidence": str(answer.evidence),
        "main_evidence": str(answer.main_evidence),
    }


def draw_slowdown(subject: Subject) -> Block | Missing:
    """Three lines at most of the slowdown over table sizes: the answer's, another sharding's, one domain's.

    Limits: a set of tables, or no size that needs two GPUs -> Missing
    """
    answer = subject.answer
    if subject.base.question.model is not None:
        return SLOWDOWN.missing("a set of tables has one size.")
    lines = [line for line in _list_lines(subject) if any(row["gpus"] > 1 for row in line)]
    if not lines:
        return SLOWDOWN.missing("no size beyond one GPU is covered by the calibration.")
    rows = [row for line in lines for row in line]
    published = _list_published(subject)
    left, right = (end(row["table_bytes"] for row in rows) for end in (min, max))
    top = 1.2 * max([row["slowdown_high"] for row in rows] + published)
    traces = [
        trace
        for number, line in enumerate(lines)
        for trace in trace_line(line, ("table_bytes", *_RATIOS), number, _describe)
    ]
    if published:
        words = [f"{ratio:g}×, arXiv 2512.05831, Fig 9: 128 GPUs, NVLink between all" for ratio in published]
        marker = {"symbol": "star-diamond", "size": 12, "color": style.RULE}
        sizes = [_PAPER_BYTES] * len(published)
        traces.append(scatter(sizes, published, words, "the paper's least and most", marker))
    borders = list(_list_borders(answer, left, right))
    labels = [
        {
            "x": math.log10(size), "y": math.log10(top), "yanchor": "top", "xanchor": "right",
            "showarrow": False, "text": words, "font": {"size": 11}, "textangle": -90,
        }
        for size, words in borders
    ]  # fmt: skip
    figure = style.new_figure(
        traces,
        height=style.FIRST_HEIGHT,
        margin={"l": 64, "r": 16, "t": 16, "b": 56},
        xaxis=style.bytes_axis(left, right, "bytes of all tables"),
        yaxis=style.ratio_axis(0.8, top, "slowdown (×)"),
        shapes=[rule("x", size, dash="dot") for size, _ in borders],
        annotations=labels,
    )
    how = (
        f"Against one GPU that holds all tables. Ribbons are 95 % bands; "
        f"{describe_dashes(row['main_evidence'] for row in rows)}."
    )
    return SLOWDOWN.block(_describe_slowdown(rows, answer), how, figure, subject.source, rows)


def _list_lines(subject: Subject) -> Iterator[list[dict[str, Any]]]:
    question, sizes = subject.base.question, list_sizes(subject.base)

    def draw(label: str, ask: Callable[..., Answer | None], **changes: Any) -> list[dict[str, Any]]:
        answers = []
        for size in sizes:
            with suppress(PerfmodelError):
                answers.append(ask(table_bytes=size, gpus=None, total=None, **changes))
        return [describe_answer(label, answer) for answer in answers if answer is not None and answer.fits]

    fixed = subject.fix_setting()
    yield draw(f"{TORCHREC}'s fastest" if subject.lead else subject.answer.sharding, fixed.ask)
    if subject.lead:
        yield draw("with unique rows (EMBark)", lambda **c: rank(fixed.change(**c)).beside.unique_rows)
    elif subject.answer.sharding != ROW_WISE:
        yield draw(ROW_WISE, lambda **c: answer_row_wise(fixed.change(sharding=None, **c)))
    machine = question.machine
    if machine.nvlink_domain_gpus > 1:
        with suppress(PerfmodelError):
            wide = subject.fix_setting(machine=machine.with_overrides({"nvlink_domain_gpus": _ONE_DOMAIN}))
            yield draw(f"if one {machine.links.scale_up} domain held all GPUs", wide.ask)


def list_sizes(base: Answer) -> list[float]:
    """Table sizes at which a line is computed: round ones, the question's, and around a full GPU and node."""
    usable, node = base.gpu_count.usable_bytes, base.gpu_count.gpus_per_node
    table_bytes = base.gpu_count.table_bytes
    low, high = min(usable, table_bytes), max(_LARGEST_BYTES, table_bytes)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    even = [step * 10.0**power for power in powers for step in _STEPS]
    full = [factor * gpus * usable for gpus in {1, node} for factor in (_LESS, _MORE)]
    return sorted({float(f"{size:.6g}") for size in (*even, *full) if low <= size <= high} | {table_bytes})


def _list_published(subject: Subject) -> list[float]:
    """The paper's slowdowns of 10 TB. Limits: training, or another machine than the paper's kind -> none"""
    question = subject.base.question
    if question.training or question.machine.name not in _PAPER_MACHINES:
        return []
    claims = {claim.id: claim.published for claim in load_claims()}
    return [ratio for name in _PAPER_CLAIMS if (ratio := claims[name])]


def _list_borders(answer: Answer, left: float, right: float) -> Iterator[tuple[float, str]]:
    """Table sizes that fill a node, and a scale-up domain if that is larger, each with its label."""
    node, usable = answer.gpu_count.gpus_per_node, answer.gpu_count.usable_bytes
    machine = answer.setting.machine
    domain = machine.nvlink_domain_gpus
    ends = {domain: f"{machine.links.scale_up} domain of {domain} ends", node: f"node of {node} ends"}
    for gpus, words in sorted(ends.items()):
        if gpus > 1 and left < gpus * usable < right:
            yield gpus * usable, words


def _describe_slowdown(rows: Sequence[Row], answer: Answer) -> str:
    size = answer.gpu_count.table_bytes
    if answer.gpus == 1:
        return f"Tables of {size_words(size)} fit on one GPU, so nothing is slower there."
    beside = [row for row in rows if row["table_bytes"] == size and row["line"] != rows[0]["line"]]
    words = [f"; {row['line']} {format_ratio(row['slowdown'])}" for row in beside]
    return f"Slowdown at {size_words(size)}: {format_ratio(answer.slowdown)}{''.join(words)}."


def draw_over_gpus(subject: Subject) -> Block | Missing:
    """Time of a batch, and GPU-hours for 10⁹ samples, on the GPUs of the answer and on more of them."""
    answer = subject.answer
    line = answer.sharding if subject.lead is None else f"{TORCHREC}'s fastest"
    line += " for all tables" if subject.planned else ""
    rows = [describe_answer(line, scaled) for scaled in _list_scaled(subject)]
    if len(rows) < 2:
        return OVER_GPUS.missing("no other number of GPUs is covered by the calibration.")
    point = describe_answer(PLANNED_WORDS if subject.planned else line, answer)
    marker = {"symbol": "star", "size": 13, "color": style.colour(1)}
    words = hover([point["line"], *_describe(point), _describe_evidence(point)])
    stars = [
        place_trace(
            scatter([point["gpus"]], [point[name]], words, point["line"], marker, showlegend=row == 0), row
        )
        for row, name in enumerate(("time_s", "gpu_hours") if subject.planned else ())
    ]
    traces = [
        place_trace({**trace, "showlegend": trace["showlegend"] and row == 0}, row)
        for row, names in enumerate((_TIME, _HOURS))
        for trace in trace_line(rows, ("gpus", *names), 0, _describe)
    ]
    spans = [
        (min(row[low] for row in (*rows, point)) / 1.2, 1.2 * max(row[high] for row in rows))
        for _, low, high in (_TIME, _HOURS)
    ]
    gpus = style.log_axis(rows[0]["gpus"] / 1.05, 1.05 * rows[-1]["gpus"], format_count, "GPUs")
    hours = style.log_axis(*spans[1], lambda value: f"{value:g}", "GPU-hours for 10⁹ samples")
    axes = [[style.time_axis(*spans[0], "time of a batch")], [hours]]
    shapes = [rule("x2", answer.gpus, dash="dot")]
    look = {"height": 400, "showlegend": subject.planned, "margin": {"l": 64, "r": 16, "t": 32, "b": 56}}
    figure = style.new_figure(
        [*traces, *stars], shapes=shapes, **look, **split_panes([gpus], axes, gaps=(0, 0.1))
    )
    cheapest = min(rows, key=lambda row: float(row["gpu_hours"]))
    title = (
        f"On {counted(answer.gpus, 'GPU')} a batch takes {format_time(answer.time_s)}, and 10⁹ samples take "
        f"{format_number(point['gpu_hours'])} GPU-hours; the fewest"
        f"{' with one sharding for all tables' if subject.planned else ''} are "
        f"{format_number(cheapest['gpu_hours'])}, on {counted(cheapest['gpus'], 'GPU')}."
    )
    batch = "on all of them together" if subject.base.question.total else "on each"
    how = (
        f"The same tables on other numbers of GPUs, with as many samples {batch}; the rule is the question. "
        f"Ribbons are 95 % bands; {describe_dashes(row['main_evidence'] for row in rows)}."
    )
    return OVER_GPUS.block(title, how, figure, subject.source, [*rows, *([point] if subject.planned else [])])


def _list_scaled(subject: Subject) -> Iterator[Answer]:
    """The answers on the GPUs of the answer, one node more, and on multiples and parts of them that fit."""
    own_gpus, node = subject.answer.gpus, subject.answer.gpu_count.gpus_per_node
    total, fixed = subject.base.question.total, subject.fix_setting()
    numbers = {round(times * own_gpus) for times in _TIMES} | {own_gpus + node}
    for gpus in sorted(numbers - {0}):
        with suppress(PerfmodelError):
            batch = {} if total is None else {"batch": share_equally(total, gpus)}
            answer = subject.uniform if gpus == own_gpus else fixed.ask(gpus=gpus, **batch)
            if answer.fits:
                yield answer


def trace_line(
    rows: Sequence[Row], names: Sequence[str], number: int, words: Callable[[Row], list[str]]
) -> Iterator[dict[str, Any]]:
    """Plotly traces of a line: the ribbon of its band, then each stretch with the same main evidence.

    names  of the columns x, y, and the ends of the band;  number  of its colour and marker
    words  returns the lines of hover text of a point, without its evidence
    """
    label, colour = safe(rows[0]["line"]), style.colour(number)
    x, y, low, high = ([row[name] for row in rows] for name in names)
    shared = {"type": "scatter", "legendgroup": label, "name": label}
    yield {
        **shared, "x": [*x, *reversed(x)], "y": [*high, *reversed(low)], "fill": "toself", "mode": "lines",
        "fillcolor": style.faded(colour), "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip
    start = 0
    for kind, members in groupby(rows, key=lambda row: row["main_evidence"]):
        stop = start + len(list(members))
        stretch = slice(max(start - 1, 0), stop)  # from the last point before, so that the line has no gaps
        texts = [hover([label, *words(row), _describe_evidence(row)]) for row in rows[stretch]]
        yield {
            **shared, "x": x[stretch], "y": y[stretch], "hovertext": texts, "hoverinfo": "text",
            "mode": "lines+markers", "showlegend": start == 0,
            "line": {"color": colour, "width": 2.5, "dash": style.DASHES[Evidence(kind)]},
            "marker": {"symbol": style.symbol(number), "size": 6, "color": colour, "maxdisplayed": 9},
        }  # fmt: skip
        start = stop


def describe_dashes(main: Iterable[str]) -> str:
    """What the dashes mean. main  for each point, the weakest evidence behind much of its time"""
    kinds = sorted({Evidence(kind) for kind in main}, key=lambda kind: kind.rank)
    words = ", ".join(f"{_DASH_WORDS[style.DASHES[kind]]} = {kind}" for kind in kinds)
    return f"dashes show the evidence: {words}"


_DASH_WORDS = {
    "solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "dash-dot", "longdash": "long dashes",
    "longdashdot": "long dash-dot",
}  # fmt: skip


def _describe_evidence(row: Row) -> str:
    main, weakest = row["main_evidence"], row["evidence"]
    return f"evidence: {main if main == weakest else f'{main}; in part {weakest}'}"


def _describe(row: Row) -> list[str]:
    middle, low, high = (format_ratio(row[name]) for name in _RATIOS)
    return [
        f"{size_words(row['table_bytes'])} on {counted(row['gpus'], 'GPU')}, {row['sharding']}",
        f"{middle}, band {low} – {high}",
        f"{format_time(row['time_s'])} instead of {format_time(row['baseline_time_s'])}",
        f"{format_number(row['gpu_hours'])} GPU-hours for 10⁹ samples",
    ]
