"""Figures of arXiv 2512.05831: its stages (6 to 8), NVLink against PCIe, and the slowdown of 10 TB (9)."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from perfmodel.answer.sweep import GRIDS
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.settings import BEST
from perfmodel.errors import PerfmodelError
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.lines import describe_dashes, trace_line
from perfmodel.report.figures.marks import place_trace, rule, scatter, split_panes, whiskers
from perfmodel.report.figures.registry import PAPER_LINKS, PAPER_SLOWDOWN, PAPER_STAGES
from perfmodel.report.figures.subject import Subject, project_rows
from perfmodel.report.figures.verdicts import describe_verdicts, judge
from perfmodel.report.figures.words import hover, library_name, safe
from perfmodel.resources import DEFAULT_MACHINE, data_path
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import load_machine
from perfmodel.schema.run_files import read_run
from perfmodel.schema.runs import PointKind
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_ratio, format_time
from perfmodel.validate.crossover import GPUS, MACHINE
from perfmodel.validate.verdicts import Finding, load_claims

Row = dict[str, Any]
STAGES = {
    "permute": ("permute", "bucketize", "all_to_all_splits", "all_to_all_lengths", "all_to_all_ids"),
    "gather": ("gather", "gather_pool"),
    "reduce": ("reduce", "reduce_scatter", "reduce_scatter_bags", "all_to_all_bags", "local_sum"),
}
"""Steps of each stage of the paper, as projections and timed look-ups name them."""
_VALUES = {"table_count": (1, 2, 4, 8, 16, 32, 64), "batch": (128, 1024, 4096), "pooling": (4, 8, 16, 32)}
"""Values of the axes, all of them points of the paper's grids."""
_FIXED = {
    "table_count": {"batch": 1024, "pooling": 32, "dim": 32},
    "batch": {"table_count": 8, "pooling": 32, "dim": 32},
    "pooling": {"table_count": 1, "batch": 1024, "dim": 32},
}
_AXES = {"table_count": "tables", "batch": "batch of each GPU", "pooling": "ids of a bag"}
_CLOCKS = {"nccl": "eager", "nvshmem": "device"}
"""How the paper timed both libraries: TorchRec's calls from the host, and NVSHMEM inside a kernel."""


def draw_stages(subject: Subject) -> Block | Missing:
    """Figures 6 to 8: time of each stage and of all over tables, batch and pooling, a line for each library.

    The libraries are NCCL and NVSHMEM where both were measured, or that of the user's own calibration;
    look-ups that it has timed are marks, and lines then have their numbers of GPUs and of rows.
    """
    setting = subject.answer.setting
    samples = list(list_look_ups(subject))
    has_own = setting.calibration is not None
    machine = setting.machine if has_own else load_machine(MACHINE)
    libraries = {setting.backend: setting.clock} if has_own else _CLOCKS
    calibration = setting.calibration if has_own else None
    rows: list[Row] = []
    for axis in _VALUES:
        works, timed = choose_works(axis, samples)
        lines = []
        for backend, clock in libraries.items():
            try:
                costs = project_rows(works, machine, backend=backend, clock=clock, calibration=calibration)
            except PerfmodelError as error:
                return PAPER_STAGES.missing(error.message)
            name = f"{library_name(backend)} ({clock})" if clock else library_name(backend)
            lines.append([_sum_stages(axis, name, "projected", row) for row in costs])
        if len(lines) > 1:
            lines.append([_take_faster(points) for points in zip(*lines, strict=True)])
        rows += [row for line in lines for row in line]
        rows += [_sum_stages(axis, safe(sample["implementation"]), "timed", sample) for sample in timed]
    title = _describe_stages(rows, machine.name)
    how = "Three stages, and all of them, over three axes."
    how += " Marks without a line are look-ups that were timed here." if samples else ""
    how += describe_verdicts(judge(["6"]))
    source = f"Machine {machine.name}; lines are the row-wise projection, clocks in brackets."
    return PAPER_STAGES.block(title, how, _draw_stages(rows), source, rows)


def list_look_ups(subject: Subject) -> Iterator[Row]:
    """The paper's look-ups that the run of the answer's calibration has timed, with ``<step>_time_s``."""
    for point, visits, _ in read_run(subject.run).usable(PointKind.LOOKUP) if subject.run else ():
        if point.work is None:
            continue
        work, names = point.work, dict.fromkeys(name for visit in visits for name in visit.steps_s)
        yield {
            "implementation": f"{point.implementation} ({point.clock})", "gpus": point.gpus,
            "table_count": work.tables, "batch": work.batch, "pooling": work.pooling, "dim": work.dim,
            "rows": work.rows, "time_s": _find_median([visit.times_s for visit in visits]),
            "evidence": str(Evidence.MEASURED),
            **{f"{name}_time_s": _find_median([v.steps_s[name] for v in visits if v.steps_s.get(name)])
               for name in names},
        }  # fmt: skip


def _find_median(visits: Sequence[Sequence[float]]) -> float:
    """The median over visits of the median of each [s]."""
    return float(np.median([np.median(times) for times in visits]))


def choose_works(axis: str, samples: Sequence[Row]) -> tuple[dict[str, Any], list[Row]]:
    """(configurations of one line of a figure as arrays, the timed samples that lie on that line).

    Along ``axis`` one value changes and all others stay: those of the paper's grid on 8 GPUs, or, where there
    are samples, the combination that was timed for the most values of the axis.
    """
    groups: dict[tuple[float, ...], list[Row]] = {}
    names_fixed = ("gpus", "dim", *(name for name in _VALUES if name != axis))
    for sample in samples:
        groups.setdefault(tuple(sample[name] for name in names_fixed), []).append(sample)
    if not groups:
        return {"gpus": GPUS, **_FIXED[axis], axis: np.array(_VALUES[axis])}, []
    key = max(groups, key=lambda key: (len({sample[axis] for sample in groups[key]}), key))
    chosen = groups[key]
    values = np.array(sorted({sample[axis] for sample in chosen}))
    row_bytes = 4 * chosen[0]["dim"] * chosen[0]["rows"]
    fixed = dict(zip(names_fixed, key, strict=True))
    tables = values if axis == "table_count" else fixed["table_count"]
    return {**fixed, axis: values, "table_bytes": row_bytes * tables}, chosen


def _sum_stages(axis: str, line: str, kind: str, costs: Mapping[str, Any]) -> Row:
    """A row of the figure's data: the time of each stage, and of all of them [s]."""
    times = {
        stage: sum(costs.get(f"{step}_time_s", 0.0) for step in steps) or None
        for stage, steps in STAGES.items()
    }
    names = ("gpus", *_VALUES, "dim", "time_s", "low_s", "high_s", "evidence")
    shared = {name: costs[name] for name in names if name in costs}
    return {"axis": axis, "line": line, "kind": kind, **shared, **{f"{k}_s": v for k, v in times.items()}}


def _take_faster(points: Sequence[Row]) -> Row:
    """The same look-up with each stage by the library that is faster there."""
    times = {f"{stage}_s": min(point[f"{stage}_s"] for point in points) for stage in STAGES}
    rows = {"time_s": sum(times.values()), "low_s": None, "high_s": None}
    return {**points[0], "line": "the faster of each stage", **times, **rows}


def _describe_stages(rows: Sequence[Row], machine: str) -> str:
    gpus = counted(int(rows[0]["gpus"]), "GPU")
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(row["line"], []).append(row)
    projected = [line for line in lines.values() if line[0]["kind"] == "projected"]
    where = f"Figures 6 to 8 of the paper, on {gpus} of {machine}"
    if len(projected) < 3:
        times = [format_time(end(row["time_s"] for row in projected[0])) for end in (min, max)]
        return f"{where}: a look-up takes {times[0]} to {times[1]}."
    nccl, nvshmem, faster = projected
    wins = sum(a["time_s"] > b["time_s"] for a, b in zip(nccl, nvshmem, strict=True))
    saved = max(
        1 - best["time_s"] / min(a["time_s"], b["time_s"])
        for a, b, best in zip(nccl, nvshmem, faster, strict=True)
    )
    return (
        f"{where}: {nvshmem[0]['line']} is faster than {nccl[0]['line']} in {wins} of {len(nccl)} look-ups; "
        f"the faster library of each stage saves at most {format_fraction(saved)} more."
    )


def _draw_stages(rows: Sequence[Row]) -> Any:
    names = list(dict.fromkeys(row["line"] for row in rows))
    stages = {"permute_s": "permute", "gather_s": "gather", "reduce_s": "reduce", "time_s": "all"}
    traces, seen = [], set[str]()
    for column, axis in enumerate(_VALUES):
        for number, name in enumerate(names):
            line = [row for row in rows if row["axis"] == axis and row["line"] == name]
            for place, stage in enumerate(stages if line else ()):
                points = [row for row in line if row[stage]]
                if not points:
                    continue
                marker = {"color": style.colour(number), "symbol": style.symbol(number), "size": 7}
                dash = style.DASHES[Evidence(line[0]["evidence"])]
                timed = line[0]["kind"] == "timed"
                trace = scatter(
                    [row[axis] for row in points], [row[stage] for row in points],
                    [_describe_stage(row, axis, stage) for row in points], name, marker,
                    mode="markers" if timed else "lines+markers", legendgroup=name,
                    line={"color": style.colour(number), "width": 2, "dash": dash},
                    showlegend=name not in seen,
                )  # fmt: skip
                seen.add(name)
                traces.append(place_trace(trace, place, column, len(_VALUES)))
    x_axes, y_axes = [], []
    for axis, title in _AXES.items():
        values = sorted({row[axis] for row in rows if row["axis"] == axis})
        ticks: dict[str, Any] = {
            "tickvals": values,
            "ticktext": [format_count(value) for value in values],
            "minor": {},
        }
        x_axes.append(style.log_axis(values[0] / 1.2, 1.2 * values[-1], format_count, title, **ticks))
    for stage, title in stages.items():
        times = [row[stage] for row in rows if row[stage]] or [1e-6]
        y_axis = style.time_axis(min(times) / 1.5, 1.5 * max(times), title)
        y_axes.append([y_axis, *([{**y_axis, "title": {"text": ""}}] * (len(_AXES) - 1))])
    return style.new_figure(
        traces, height=760, meta={"min_width": 720}, **split_panes(x_axes, y_axes, gaps=(0.09, 0.04))
    )


def _describe_stage(row: Row, axis: str, stage: str) -> str:
    return hover(
        [
            row["line"],
            f"{_AXES[axis]} {format_count(row[axis])}: {format_time(row[stage])}",
            f"evidence: {row['evidence']}",
        ]
    )


_SOURCE, _OFF = "a100_p2p_disable", "p2p-disabled"
_SIZES = 2.0 ** np.arange(10, 34)


def draw_links(_: Subject) -> Block | Missing:
    """An all-reduce over NVLink and over PCIe on 8 H100, beside 4 A100 with peer-to-peer on and off.

    PCIe is the same machine with an NVLink domain of one GPU, whose times are assumed; A100 were measured.
    """
    machine = load_machine(DEFAULT_MACHINE)
    rows: list[Row] = []
    for line, domain in (("8 H100, NVLink", machine.nvlink_domain_gpus), ("8 H100, PCIe", 1)):
        changed = machine.with_overrides({"nvlink_domain_gpus": domain}) if domain == 1 else machine
        timing = CollectiveModel.load(changed, "nccl").estimate("all_reduce", _SIZES, GPUS)
        kinds = [str(Evidence.from_rank(int(rank))) for rank in timing.evidence]
        columns = {
            "payload_bytes": _SIZES, "time_s": timing.time_s, "low_s": timing.low_s, "high_s": timing.high_s,
        }  # fmt: skip
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        rows += [
            {"line": line, **dict(zip(columns, row, strict=True)), "evidence": kind, "main_evidence": kind}
            for row, kind in zip(values, kinds, strict=True)
        ]
    timed = list(_read_boxes())
    size = min(row["payload_bytes"] for row in timed)
    times: dict[str, float] = {
        row["line"]: row["time_s"] for row in (*rows, *timed) if row["payload_bytes"] == size
    }
    modelled = times["8 H100, PCIe"] / times["8 H100, NVLink"]
    measured = times["4 A100, peer-to-peer off"] / times["4 A100, peer-to-peer on"]
    finding = Finding(measured, f"{format_ratio(measured)} at {format_bytes(size)}")
    title = (
        f"An all-reduce of {format_bytes(size)} on 8 H100 would take {format_ratio(modelled)} as long over "
        f"PCIe as over NVLink; on 4 A100 with peer-to-peer off it took {format_ratio(measured)} as long."
    )
    verdicts = judge(["9a", "9b"], {"9a": finding, "9b": Finding(None, "not measured")})
    dashes = describe_dashes(row["main_evidence"] for row in rows)
    how = f"Ribbons are 95 % bands; {dashes}. Marks are measured.{describe_verdicts(verdicts)}"
    source = f"Machine {machine.name}, and the same with nvlink_domain_gpus=1; samples {_SOURCE}."
    return PAPER_LINKS.block(title, how, _draw_links([*rows, *timed]), source, [*rows, *timed])


def _read_boxes() -> Iterator[Row]:
    """All-reduces of 4 A100 with and without peer-to-peer, as they are in the shipped samples."""
    with data_path("measurements", "nccl", f"{_SOURCE}.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            yield {
                "line": f"4 A100, peer-to-peer {'off' if row['note'] == _OFF else 'on'}",
                "payload_bytes": float(row["payload_bytes"]), "time_s": float(row["time_s"]),
                "evidence": str(Evidence.MEASURED), "main_evidence": str(Evidence.MEASURED),
            }  # fmt: skip


def _draw_links(rows: Sequence[Row]) -> Any:
    traces: list[dict[str, Any]] = []
    for number, line in enumerate(dict.fromkeys(row["line"] for row in rows)):
        points = [row for row in rows if row["line"] == line]
        if "low_s" in points[0]:
            names = ("payload_bytes", "time_s", "low_s", "high_s")
            traces += trace_line(points, names, number, _describe_link)
            continue
        marker = {"color": style.colour(number), "symbol": style.symbol(number), "size": 8}
        x, y = ([row[name] for row in points] for name in ("payload_bytes", "time_s"))
        traces.append(scatter(x, y, [hover([line, *_describe_link(row)]) for row in points], line, marker))
    times = [row[name] for row in rows for name in ("low_s", "time_s", "high_s") if name in row]
    return style.new_figure(
        traces,
        xaxis=style.binary_bytes_axis(_SIZES[0], 1.3 * _SIZES[-1], "payload of one GPU"),
        yaxis=style.time_axis(min(times) / 1.2, 1.2 * max(times), "time of an all-reduce"),
    )


def _describe_link(row: Mapping[str, Any]) -> list[str]:
    band = f", band {format_time(row['low_s'])} – {format_time(row['high_s'])}" if "low_s" in row else ""
    return [f"{format_bytes(row['payload_bytes'])}: {format_time(row['time_s'])}{band}"]


_ENDS = {"least": ("10a", min), "most": ("10b", max)}
_PAPERS_GPUS = 128


def draw_ends(_: Subject) -> Block | Missing:
    """Figure 9: the least and the most slowdown of both grids on 128 GPUs, the paper's and projected ones."""
    rows: list[Row] = []
    claims = {claim.id: claim.published for claim in load_claims()}
    for end, (claim, _choose) in _ENDS.items():
        rows.append({"line": "the paper", "end": end, "slowdown": claims[claim], "evidence": "published"})
    findings: dict[str, Finding] = {}
    for machine, where in (("h100-paper", "one NVLink domain"), (DEFAULT_MACHINE, "16 nodes of 8")):
        for backend in ("nccl", "nvshmem", BEST):
            points: list[Row] = []
            with suppress(PerfmodelError):
                for grid in GRIDS.values():
                    points += project_rows(grid(gpus=(_PAPERS_GPUS,)), machine, backend=backend)
            name = "the faster for each step" if backend == BEST else library_name(backend)
            for end, (claim, choose) in _ENDS.items() if points else ():
                point = choose(points, key=lambda row: row["slowdown"])
                values = {key: point[f"slowdown{key}"] for key in ("", "_low", "_high")}
                rows.append(
                    {
                        "line": f"{where}, {name}", "end": end, "slowdown": values[""],
                        "slowdown_low": values["_low"], "slowdown_high": values["_high"],
                        "evidence": point["main_evidence"],
                    }
                )  # fmt: skip
                findings.setdefault(claim, Finding.within(values[""], values.values(), format_ratio))
    verdicts = judge(findings, findings)
    least_words, most_words, *projected_ends = (format_ratio(row["slowdown"]) for row in rows[:4])
    title = (
        f"Figure 9 of the paper, 10 TB on 128 GPUs: the slowdown goes from {' to '.join(projected_ends)} in "
        f"one NVLink domain, and from {least_words} to {most_words} in the paper."
    )
    how = f"The least and the most over both grids, with 95 % bands.{describe_verdicts(verdicts)}"
    source = f"Machines h100-paper, which nobody makes, and {DEFAULT_MACHINE}; row-wise."
    return PAPER_SLOWDOWN.block(title, how, _draw_slowdown(rows), source, rows)


def _draw_slowdown(rows: Sequence[Row]) -> Any:
    def read(row: Row, end: str = "") -> float:
        return float(row[name] if (name := f"slowdown{end}") in row else row["slowdown"])

    traces = []
    for number, end in enumerate(_ENDS):
        points = [row for row in rows if row["end"] == end]
        middle, low, high = ([read(row, side) for row in points] for side in ("", "_low", "_high"))
        words = [
            f"{row['line']}, {end}: {format_ratio(value)}<br>"
            f"band {format_ratio(start)} – {format_ratio(stop)}<br>evidence: {row['evidence']}"
            for row, value, start, stop in zip(points, middle, low, high, strict=True)
        ]
        look: dict[str, Any] = {
            "marker": {"color": style.colour(number), "symbol": style.symbol(number), "size": 9},
            "error_x": whiskers(middle, low, high, thickness=1.5, width=5, color=style.colour(number)),
        }
        traces.append(scatter(middle, [row["line"] for row in points], words, f"the {end}", **look))
    ends = [read(row, side) for row in rows for side in ("_low", "_high")]
    return style.new_figure(
        traces,
        height=380,
        meta={"min_width": 640},
        margin={"l": 24, "r": 24, "t": 40, "b": 56},
        xaxis=style.ratio_axis(0.9 * min(ends), 1.1 * max(ends), "slowdown (×)"),
        yaxis=style.axis(autorange="reversed", showgrid=False),
        shapes=[rule("x", row["slowdown"], dash="dot") for row in rows if row["evidence"] == "published"],
    )
