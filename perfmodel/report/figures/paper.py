"""Figures of arXiv 2512.05831: its stages (6 to 8), and the slowdown of 10 TB (9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from perfmodel.answer.sweep import GRIDS
from perfmodel.engine.settings import BEST
from perfmodel.errors import PerfmodelError
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.chart import (
    Axis,
    Row,
    Trace,
    draw_line,
    draw_marks,
    draw_rule,
    draw_whiskers,
    name_library,
    place_panes,
)
from perfmodel.report.figures.subject import Subject, project_rows
from perfmodel.report.figures.verdicts import describe_verdicts, judge
from perfmodel.resources import DEFAULT_MACHINE
from perfmodel.units import format_fraction, format_ratio
from perfmodel.validate.crossover import GPUS, MACHINE
from perfmodel.validate.verdicts import Finding, load_claims

_FASTER = "the faster of each stage"
STAGES = {
    "permute_s": ("permute", "bucketize", "all_to_all_splits", "all_to_all_lengths", "all_to_all_ids"),
    "gather_s": ("gather", "gather_pool"),
    "reduce_s": ("reduce", "reduce_scatter", "reduce_scatter_bags", "all_to_all_bags", "local_sum"),
}
"""Steps of each stage of the paper."""
_AXES = {"table_count": "tables", "batch": "batch of each GPU", "pooling": "ids of a bag"}
_GRID: dict[str, dict[str, Any]] = {
    "table_count": {"table_count": np.array([1, 2, 4, 8, 16, 32, 64]), "batch": 1024, "pooling": 32},
    "batch": {"table_count": 8, "batch": np.array([128, 1024, 4096]), "pooling": 32},
    "pooling": {"table_count": 1, "batch": 1024, "pooling": np.array([4, 8, 16, 32])},
}
"""Points of the paper's grids along each axis; their dim is 32."""
_CLOCKS = {"nccl": "eager", "nvshmem": "device"}
"""How the paper timed both libraries: TorchRec's calls from the host, and NVSHMEM inside a kernel."""
_NUMBERS = ("gpus", *_AXES, "dim", "time_s", "low_s", "high_s", "evidence")


def draw_stages(_: Subject) -> Block:
    """Figures 6 to 8: time of each stage and of all over tables, batch and pooling, a line for each library.

    On the shipped machine where both of the paper's libraries were measured.
    """
    lines: dict[tuple[str, str], list[Row]] = {}
    for axis, grid in _GRID.items():
        for backend, clock in _CLOCKS.items():
            name = f"{name_library(backend)} ({clock})"
            costs = project_rows({"gpus": GPUS, "dim": 32, **grid}, MACHINE, backend=backend, clock=clock)
            lines[axis, name] = [_sum_stages(axis, name, row) for row in costs]
        pairs = zip(*(lines[key] for key in lines if key[0] == axis), strict=True)
        lines[axis, _FASTER] = list(map(_take_faster, pairs))
    rows = [row for line in lines.values() for row in line]
    how = f"Three stages, and all of them, over three axes.{describe_verdicts(judge(['6']))}"
    source = f"Machine {MACHINE}; lines are the row-wise projection, clocks in brackets."
    return Block("paper-stages", _describe_stages(lines), how, _draw_stages(lines), source, rows)


def _sum_stages(axis: str, line: str, costs: Row) -> Row:
    """A row of the figure's data: the time of each stage, and of all of them [s]."""
    times = {
        stage: sum(costs.get(f"{step}_time_s", 0.0) for step in steps) for stage, steps in STAGES.items()
    }
    return {"axis": axis, "line": line, **{name: costs[name] for name in _NUMBERS}, **times}


def _take_faster(points: Sequence[Row]) -> Row:
    """The same look-up with each stage by the library that is faster there."""
    times = {stage: min(point[stage] for point in points) for stage in STAGES}
    rows = {"time_s": sum(times.values()), "low_s": None, "high_s": None}
    return {**points[0], "line": _FASTER, **times, **rows}


def _describe_stages(lines: Mapping[tuple[str, str], Sequence[Row]]) -> str:
    times: dict[str, list[float]] = {}
    for (_, name), line in lines.items():
        times.setdefault(name, []).extend(row["time_s"] for row in line)
    (nccl, nccl_s), (nvshmem, nvshmem_s), (_, faster_s) = times.items()
    pairs = list(zip(nccl_s, nvshmem_s, strict=True))
    wins = sum(slow > fast for slow, fast in pairs)
    saved = max(1 - time / min(pair) for time, pair in zip(faster_s, pairs, strict=True))
    return (
        f"Figures 6 to 8 of the paper, on {GPUS} GPUs of {MACHINE}: {nvshmem} is faster than {nccl} "
        f"in {wins} of {len(pairs)} look-ups; the faster library of each stage saves at most "
        f"{format_fraction(saved)} more."
    )


def _draw_stages(lines: Mapping[tuple[str, str], Sequence[Row]]) -> Any:
    xs = [Axis(axis, title, "count") for axis, title in _AXES.items()]
    ys = [Axis(stage, stage.removesuffix("_s"), "s") for stage in STAGES] + [Axis("time_s", "all", "s")]
    names, traces = list(dict.fromkeys(name for _, name in lines)), list[Trace]()
    for (axis, name), line in lines.items():
        column = list(_AXES).index(axis)
        for place, y in enumerate(ys):
            traces += draw_line(line, xs[column], y, names.index(name), (column, place))
    return style.new_figure(traces, height=760, meta={"min_width": 720}, **place_panes(traces, xs, ys))


_ENDS = {"least": ("10a", min), "most": ("10b", max)}
_PAPERS_GPUS = 128
_SLOWDOWN = Axis("slowdown", "slowdown (×)", "×", ("slowdown_low", "slowdown_high"))


def draw_ends(_: Subject) -> Block:
    """Figure 9: the least and the most slowdown of both grids on 128 GPUs, the paper's and projected ones."""
    claims = {claim.id: claim.published for claim in load_claims()}
    rows: list[dict[str, Any]] = [
        {"where": "the paper", "line": f"the {end}", "slowdown": claims[claim], "evidence": "published"}
        for end, (claim, _choose) in _ENDS.items()
    ]
    findings: dict[str, Finding] = {}
    for machine, where in (("h100-paper", "one NVLink domain"), (DEFAULT_MACHINE, "16 nodes of 8")):
        for backend in ("nccl", "nvshmem", BEST):
            points: list[Row] = []
            with suppress(PerfmodelError):
                for grid in GRIDS.values():
                    points += project_rows(grid(gpus=(_PAPERS_GPUS,)), machine, backend=backend)
            name = "the faster for each step" if backend == BEST else name_library(backend)
            for end, (claim, choose) in _ENDS.items() if points else ():
                point = choose(points, key=lambda row: float(row["slowdown"]))
                values = {name: point[name] for name in ("slowdown", *_SLOWDOWN.ends)}
                about = {
                    "where": f"{where}, {name}",
                    "line": f"the {end}",
                    "evidence": point["main_evidence"],
                }
                rows.append({**about, **values})
                finding = Finding.within(point["slowdown"], values.values(), format_ratio)
                findings.setdefault(claim, finding)
    low_words, high_words, *projected = (format_ratio(row["slowdown"]) for row in rows[:4])
    title = (
        f"Figure 9 of the paper, 10 TB on 128 GPUs: the slowdown goes from {' to '.join(projected)} in one "
        f"NVLink domain, and from {low_words} to {high_words} in the paper."
    )
    how = "The least and the most over both grids, with 95 % bands."
    how += describe_verdicts(judge(findings, findings))
    source = f"Machines h100-paper, which nobody makes, and {DEFAULT_MACHINE}; row-wise."
    return Block("paper-slowdown", title, how, _draw_ends(rows), source, rows)


def _draw_ends(rows: Sequence[Mapping[str, Any]]) -> Any:
    where, traces = Axis("where", "", "name"), []
    for number, end in enumerate(_ENDS):
        points = [row for row in rows if row["line"] == f"the {end}"]
        ends = draw_whiskers(map(_SLOWDOWN.read, points), color=style.colour(number))
        trace = draw_marks(points, _SLOWDOWN, where, number, (0, 0), _SLOWDOWN.describe, error_x=ends)
        traces.append(trace)
    return style.new_figure(
        traces,
        height=380,
        meta={"min_width": 640},
        margin={"l": 24, "r": 24, "t": 40, "b": 56},
        shapes=[draw_rule("x", row["slowdown"]) for row in rows if row["evidence"] == "published"],
        **place_panes(traces, [_SLOWDOWN], [where]),
    )
