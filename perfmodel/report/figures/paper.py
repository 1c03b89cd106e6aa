"""Figures of arXiv 2512.05831: its collectives (1), stages (6 to 8), NVLink against PCIe, and 10 TB (9).

Above each stands what the paper says, what is found here, and whether it holds, by ``validate``'s own rule.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.answer.sweep import GRIDS, prepare
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.settings import BEST
from perfmodel.errors import PerfmodelError
from perfmodel.report.figures.chart import (
    PALETTE,
    Axis,
    Block,
    Row,
    describe_dashes,
    draw_rule,
    draw_series,
    draw_whiskers,
    name_library,
    new_figure,
)
from perfmodel.report.figures.measured_curves import HOW, TIME, draw_curves, list_series, load_measured
from perfmodel.report.figures.subject import Subject, project_rows
from perfmodel.resources import DEFAULT_MACHINE, data_path
from perfmodel.schema.evidence import Backend, Clock, Evidence
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.run_files import read_run, run_of
from perfmodel.schema.runs import PointKind
from perfmodel.units import counted, format_bytes, format_ratio, format_time
from perfmodel.validate.crossover import COLLECTIVES, GPUS, MACHINE
from perfmodel.validate.questions import find_answer
from perfmodel.validate.verdicts import Finding, Outcome, Verdict, load_claims

_WORDS = {
    Outcome.HOLDS: ("it holds", "holds", "hold"),
    Outcome.CANNOT_SAY: ("cannot be said",) * 3,
    Outcome.FAILS: ("it fails", "fails", "fail"),
}
"""An outcome in words, and its verbs for one claim and for several."""


def judge(claims: Iterable[str], findings: Mapping[str, Finding] | None = None) -> list[Verdict]:
    """The verdicts on claims, by their ids. findings  that the figure has already; else they are computed"""
    rows = {claim.id: claim for claim in load_claims()}
    computed = findings or {}
    return [rows[name].verdict(computed.get(name) or find_answer(rows[name].ask)) for name in claims]


def describe_verdicts(verdicts: Iterable[Verdict]) -> str:
    """A line for each claim: what the paper says, what is found here, and whether it holds."""
    lines = []
    for verdict in verdicts:
        value_words = verdict.got.partition(",")[0].partition(";")[0].rpartition(": ")[2]
        lines.append(f"\nThe paper says: {verdict.claim}. Here: {value_words}; {_WORDS[verdict.verdict][0]}.")
    return "".join(lines)


_PAPER_CLOCKS = ((Backend.NCCL, Clock.STREAM), (Backend.NVSHMEM, Clock.DEVICE))
_OF_COLLECTIVES = ("2a", "2b", "3a", "3b", "3c", "4a", "4b", "4c")


def draw_paper_collectives(subject: Subject) -> Block:
    """Figure 1 of the paper: four collectives by NCCL and NVSHMEM, with the paper's clocks.

    On the answer's machine if both were measured there, else on the shipped machine where both were.
    """
    models: list[CollectiveModel] = []
    for machine in (subject.answer.setting.machine.unchanged(), load_machine(MACHINE)):
        pair = [load_measured(machine, str(backend), str(clock)) for backend, clock in _PAPER_CLOCKS]
        models = models or [model for model in pair if model is not None and None not in pair]
    verdicts = judge(_OF_COLLECTIVES)
    counts = [(sum(x.verdict is kind for x in verdicts), words[1:]) for kind, words in _WORDS.items()]
    parts = ", ".join(f"{count} {words[count > 1]}" for count, words in counts if count)
    title = (
        f"Figure 1 of the paper, on {models[0].machine.name}: of {counted(len(verdicts), 'claim')} {parts}."
    )
    series = list_series(models, COLLECTIVES, GPUS)
    return draw_curves("paper-collectives", title, f"{HOW}{describe_verdicts(verdicts)}", series, [TIME])


_FASTER = "the faster of each stage"
STAGES = {
    "permute_s": ("permute", "bucketize", "all_to_all_splits", "all_to_all_lengths", "all_to_all_ids"),
    "gather_s": ("gather", "gather_pool"),
    "reduce_s": ("reduce", "reduce_scatter", "reduce_scatter_bags", "all_to_all_bags", "local_sum"),
}
"""Steps of each stage of the paper."""
_AXES = {"table_count": "tables", "batch": "batch of each GPU", "pooling": "ids of a bag"}
_GRID: dict[str, dict[str, ArrayLike]] = {
    "table_count": {"table_count": np.array([1, 2, 4, 8, 16, 32, 64]), "batch": 1024, "pooling": 32},
    "batch": {"table_count": 8, "batch": np.array([128, 1024, 4096]), "pooling": 32},
    "pooling": {"table_count": 1, "batch": 1024, "pooling": np.array([4, 8, 16, 32])},
}
"""Points of the paper's grids along each axis; their dim is 32."""
_CLOCKS = {"nccl": "eager", "nvshmem": "device"}
"""How the paper timed both libraries: TorchRec's calls from the host, and NVSHMEM inside a kernel."""
_NUMBERS = ("gpus", *_AXES, "dim", "time_s", "low_s", "high_s", "evidence")


def draw_stages(subject: Subject) -> Block:
    """Figures 6 to 8: time of each stage and of all over tables, batch and pooling, a line for each library.

    The libraries are the paper's two on the shipped machine where both were measured, or that of the
    user's own calibration. Look-ups that its run has timed are marks; lines then have their shapes.
    """
    setting = subject.answer.setting
    rows: list[Row] = []
    samples = list(list_look_ups(setting.calibration))
    machine: Any = MACHINE if setting.calibration is None else setting.machine
    libraries = _CLOCKS if setting.calibration is None else {setting.backend: setting.clock}
    for axis in _AXES:
        works, timed = choose_works(axis, samples)
        lines = []
        for backend, clock in libraries.items():
            options = {"backend": backend, "clock": clock, "calibration": setting.calibration}
            name = f"{name_library(backend)} ({clock})" if clock else name_library(backend)
            costs = project_rows(works, *prepare(works, machine, **options))
            lines.append([_sum_stages(axis, name, row) for row in costs])
        if len(lines) > 1:
            lines.append([_take_faster(points) for points in zip(*lines, strict=True)])
        rows += [row for line in lines for row in line]
        rows += [_sum_stages(axis, sample["line"], sample) for sample in timed]
    how = "Three stages, and all of them, over three axes."
    how += " Marks without a line are look-ups that were timed here." if samples else ""
    how += describe_verdicts(judge(["6"]))
    where = getattr(machine, "name", machine)
    source = f"Machine {where}; lines are the row-wise projection, clocks in brackets."
    title = f"Figures 6 to 8 of the paper, on {counted(int(rows[0]['gpus']), 'GPU')} of {where}: "
    xs = [Axis(axis, words, "count") for axis, words in _AXES.items()]
    ys = [Axis(stage, stage.removesuffix("_s"), "s") for stage in STAGES] + [Axis("time_s", "all", "s")]
    names = list(dict.fromkeys(row["line"] for row in rows))
    traces = []
    for (column, x), (place, y), (number, name) in product(*map(enumerate, (xs, ys, names))):
        line = [row for row in rows if (row["axis"], row["line"]) == (x.column, name) and row[y.column]]
        if line:
            traces += draw_series(
                line, (x, y), number, (column, place), marks=all("low_s" not in row for row in line)
            )
    figure = new_figure(traces, xs, ys, height=760, meta={"min_width": 720})
    return Block("paper-stages", title + _describe_stages(rows), how, figure, source, rows)


def list_look_ups(calibration: str | Path | None) -> Iterator[Row]:
    """The look-ups that the run of a calibration has timed, with ``<step>_time_s``; none without a run."""
    run = run_of(calibration) if calibration else None
    for point, visits, _ in read_run(run).usable(PointKind.LOOKUP) if run else ():
        work = point.work
        if work is None:
            continue
        steps = dict.fromkeys(name for visit in visits for name in visit.steps_s)
        series = {f"{name}_time_s": [v.steps_s[name] for v in visits if name in v.steps_s] for name in steps}
        series["time_s"] = [visit.times_s for visit in visits]
        yield {
            "line": f"{point.implementation} ({point.clock})", "gpus": point.gpus, "batch": work.batch,
            "table_count": work.tables, "pooling": work.pooling, "dim": work.dim, "rows": work.rows,
            "evidence": str(Evidence.MEASURED),
            **{name: float(np.median([np.median(times) for times in many])) for name, many in series.items()},
        }  # fmt: skip


def choose_works(axis: str, samples: Sequence[Row]) -> tuple[dict[str, ArrayLike], list[Row]]:
    """(configurations of one line of a figure as arrays, the timed samples that lie on that line).

    Along ``axis`` one value changes and all others stay: those of the paper's grid on 8 GPUs, or, where there
    are samples, the combination that was timed for the most values of the axis.
    """
    fixed = ("gpus", "dim", "rows", *(name for name in _AXES if name != axis))
    groups: dict[tuple[float, ...], list[Row]] = {}
    for sample in samples:
        groups.setdefault(tuple(sample[name] for name in fixed), []).append(sample)
    if not groups:
        return {"gpus": GPUS, "dim": 32, **_GRID[axis]}, []
    key = max(groups, key=lambda key: (len({sample[axis] for sample in groups[key]}), key))
    works = dict(zip(fixed, key, strict=True)) | {axis: np.unique([row[axis] for row in groups[key]])}
    row_bytes = 4 * works["dim"]  # the rows of a look-up that calibrate times are fp32
    return works | {"table_bytes": row_bytes * works.pop("rows") * works["table_count"]}, groups[key]


def _sum_stages(axis: str, line: str, costs: Row) -> Row:
    """A row of the figure's data: the time of each stage, and of all of them [s]; None: not timed."""
    times = {
        stage: sum(costs.get(f"{step}_time_s", 0.0) for step in steps) or None
        for stage, steps in STAGES.items()
    }
    return {"axis": axis, "line": line, **{k: costs[k] for k in _NUMBERS if k in costs}, **times}


def _take_faster(points: Sequence[Row]) -> Row:
    """The same look-up with each stage by the library that is faster there."""
    times = {stage: min(point[stage] for point in points) for stage in STAGES}
    rows = {"time_s": sum(times.values()), "low_s": None, "high_s": None}
    return {**points[0], "line": _FASTER, **times, **rows}


def _describe_stages(rows: Sequence[Row]) -> str:
    """The least and the most time of a look-up, by line."""
    times: dict[str, list[float]] = {}
    for row in rows:
        times.setdefault(row["line"], []).append(row["time_s"])
    parts = [
        f"{line} {format_time(min(all_s))} to {format_time(max(all_s))}" for line, all_s in times.items()
    ]
    return f"a look-up takes by {'; '.join(parts)}."


_BOXES = "a100_p2p_disable"
_PAYLOAD = Axis("payload_bytes", "payload of one GPU", "KiB")
_TIME = Axis("time_s", "time of an all-reduce", "s", ("low_s", "high_s"))


def draw_links(_: Subject) -> Block:
    """An all-reduce over NVLink and over PCIe on 8 H100, beside 4 A100 with peer-to-peer on and off.

    PCIe is the same machine with an NVLink domain of one GPU, whose times are assumed; A100 were measured.
    """
    machine = load_machine(DEFAULT_MACHINE)
    pcie = machine.with_overrides({"nvlink_domain_gpus": 1})
    links = {"8 H100, NVLink": machine, "8 H100, PCIe": pcie}
    lines = {line: _project_all_reduces(line, changed) for line, changed in links.items()}
    with data_path("measurements", "nccl", f"{_BOXES}.csv").open(encoding="utf-8") as stream:
        for sample in csv.DictReader(stream):
            line = f"4 A100, peer-to-peer {'off' if sample['note'] == 'p2p-disabled' else 'on'}"
            numbers = {name: float(sample[name]) for name in ("payload_bytes", "time_s")}
            lines.setdefault(line, []).append({"line": line, "evidence": str(Evidence.MEASURED), **numbers})
    rows = [row for line in lines.values() for row in line]
    size = min(row["payload_bytes"] for row in rows if "low_s" not in row)
    times = {row["line"]: row["time_s"] for row in rows if row["payload_bytes"] == size}
    modelled = times["8 H100, PCIe"] / times["8 H100, NVLink"]
    measured = times["4 A100, peer-to-peer off"] / times["4 A100, peer-to-peer on"]
    finding = Finding(measured, f"{format_ratio(measured)} at {format_bytes(size)}")
    title = (
        f"An all-reduce of {format_bytes(size)} on 8 H100 would take {format_ratio(modelled)} as long over "
        f"PCIe as over NVLink; on 4 A100 with peer-to-peer off it took {format_ratio(measured)} as long."
    )
    traces = []
    for number, (line, series) in enumerate(lines.items()):
        traces += draw_series(series, (_PAYLOAD, _TIME), number, marks=line not in links)
    verdicts = judge(["9a", "9b"], {"9a": finding, "9b": Finding(None, "not measured")})
    how = f"Ribbons are 95 % bands; {describe_dashes(rows)}. Marks are measured.{describe_verdicts(verdicts)}"
    source = f"Machine {machine.name}, and the same with nvlink_domain_gpus=1; samples {_BOXES}."
    return Block("paper-links", title, how, new_figure(traces, [_PAYLOAD], [_TIME]), source, rows)


def _project_all_reduces(line: str, machine: Machine) -> list[Row]:
    """All-reduces of 1 KiB to 8 GiB on 8 GPUs of a machine, over NCCL."""
    sizes = 2.0 ** np.arange(10, 34)
    timing = CollectiveModel.load(machine, "nccl").estimate("all_reduce", sizes, GPUS)
    kinds = [str(Evidence.from_rank(int(rank))) for rank in timing.evidence]
    names = ("payload_bytes", "time_s", *_TIME.ends)
    values = zip(sizes.tolist(), timing.time_s, timing.low_s, timing.high_s, strict=True)
    rows = [dict(zip(names, map(float, row), strict=True)) for row in values]
    return [{"line": line, "evidence": kind, **row} for row, kind in zip(rows, kinds, strict=True)]


_ENDS = {"least": ("10a", min), "most": ("10b", max)}
_PAPERS_GPUS = 128
_SLOWDOWN = Axis("slowdown", "slowdown (×)", "×", ("slowdown_low", "slowdown_high"))
_WHERE = Axis("where", "", "name")


def draw_ends(_: Subject) -> Block:
    """Figure 9: the least and the most slowdown of both grids on 128 GPUs, the paper's and projected ones."""
    claims = {claim.id: claim.published for claim in load_claims()}
    rows: list[Row] = [
        {"where": "the paper", "line": f"the {end}", "slowdown": claims[claim], "evidence": "published"}
        for end, (claim, _choose) in _ENDS.items()
    ]
    findings: dict[str, Finding] = {}
    places = product(
        (("h100-paper", "one NVLink domain"), (DEFAULT_MACHINE, "16 nodes of 8")), (*_CLOCKS, BEST)
    )
    for (machine, where), backend in places:
        points: list[Row] = []
        with suppress(PerfmodelError):
            for grid in GRIDS.values():
                works = grid(gpus=(_PAPERS_GPUS,))
                points += project_rows(works, *prepare(works, machine, backend=backend))
        name = "the faster for each step" if backend == BEST else name_library(backend)
        for end, (claim, choose) in _ENDS.items() if points else ():
            point = choose(points, key=lambda row: float(row["slowdown"]))
            values = {column: point[column] for column in ("slowdown", *_SLOWDOWN.ends)}
            about = {"where": f"{where}, {name}", "line": f"the {end}", "evidence": point["main_evidence"]}
            rows.append({**about, **values})
            findings.setdefault(claim, Finding.within(point["slowdown"], values.values(), format_ratio))
    ratios = [format_ratio(row["slowdown"]) for row in rows[:4]]  # least and most: the paper's, then ours
    title = (
        f"Figure 9 of the paper, 10 TB on 128 GPUs: the slowdown goes from {' to '.join(ratios[2:])} in one "
        f"NVLink domain, and from {' to '.join(ratios[:2])} in the paper."
    )
    how = "The least and the most over both grids, with 95 % bands."
    how += describe_verdicts(judge(findings, findings))
    source = f"Machines h100-paper, which nobody makes, and {DEFAULT_MACHINE}; row-wise."
    traces = []
    for number, end in enumerate(_ENDS):
        ends = [row for row in rows if row["line"] == f"the {end}"]
        (marks,) = draw_series(ends, (_SLOWDOWN, _WHERE), number, about=_SLOWDOWN.describe, marks=True)
        whiskers = draw_whiskers(map(_SLOWDOWN.read, ends), PALETTE[number])
        traces.append({**marks, "error_x": whiskers})
    rules = [draw_rule("x", row["slowdown"]) for row in rows if row["evidence"] == "published"]
    look = {"height": 380, "meta": {"min_width": 640}, "shapes": rules}
    figure = new_figure(traces, [_SLOWDOWN], [_WHERE], **look)
    return Block("paper-slowdown", title, how, figure, source, rows)
