"""Figures of a question: each is of the answer on top, and its sentence follows its data."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from oracles import own_run

from perfmodel.answer import Question, project_one, project_row_wise
from perfmodel.answer.ranking import answer_shardings, rank_shardings
from perfmodel.answer.sweep import GRIDS
from perfmodel.errors import NoCalibrationError
from perfmodel.model.curves import hockney_time
from perfmodel.report.figures import bars, breakdown, collective_curves, heat_maps, lines, paper, registry
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import BREAKDOWN, CHANGES, PAPER, QUESTION, SLOWDOWN, Figure
from perfmodel.report.figures.roofline import draw_roofline
from perfmodel.report.figures.subject import Subject, find_subject
from perfmodel.report.figures.validation import compare_points, draw_validation, read_held_out
from perfmodel.report.figures.words import hover, safe, sentence
from perfmodel.schema.evidence import Clock
from perfmodel.schema.files import SAMPLES_NAME
from perfmodel.schema.machine import load_machine
from perfmodel.schema.runs import Finish, LookupWork, Point, PointKind, PointLine, Status, Visit
from perfmodel.units import format_ratio, format_time
from perfmodel.validate import accuracy
from perfmodel.validate.own import compare_run, judged

MODEL = "mlperf-dlrm-dcnv2"
GRID: dict[str, Any] = {"table_bytes": 640e9}
"""Grid leads on 16 GPUs."""
DEFAULT: dict[str, Any] = {"table_bytes": 10e12}


@cache
def subject(**options: Any) -> Subject:
    return find_subject(Question.of(**options))


def alone(**options: Any) -> Subject:
    answer = project_one(**{**DEFAULT, **options})
    return Subject(answer, answer)


def drawn(block: Block | Missing) -> Block:
    assert isinstance(block, Block), block
    return block


def row(block: Block, **values: Any) -> dict[str, Any]:
    (only,) = [dict(row) for row in block.data if values.items() <= row.items()]
    return only


def traces(block: Block, mode: str) -> list[Any]:
    return [trace for trace in block.figure.data if trace.mode == mode]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_run.write_run(tmp_path_factory.mktemp("runs") / "four-cores-01234567", held_out_factor=3.0)


def own_subject(folder: Path, **options: Any) -> Subject:
    values = {
        "machine": load_machine(folder / "machine.toml"),
        "backend": "mpi",
        "table_bytes": 1e8,
        "gpus": 2,
    }
    path = next(iter(folder.glob("mpi*.json")))
    return alone(**{**values, "calibration": str(path), **options})


# All of them


def test_every_figure_of_the_default_question_is_there() -> None:
    for figure in (BREAKDOWN, SLOWDOWN, CHANGES, *QUESTION):
        block = drawn(figure.draw(subject(**DEFAULT)))
        assert block.name == figure.name and block.title.endswith(".") and block.source and block.how_to_read
        assert block.data and all(
            isinstance(value, str | int | float | None) for row in block.data for value in row.values()
        )
        go.Figure(block.figure.to_dict())  # checked by plotly


def test_fourteen_figures_each_by_a_function_of_its_own() -> None:
    assert len((BREAKDOWN, SLOWDOWN, CHANGES, *QUESTION)) == 14
    figures = [value for value in vars(registry).values() if isinstance(value, Figure)]
    makers = [figure.maker.rpartition(".")[::2] for figure in figures]
    assert len({figure.name for figure in figures}) == len(set(makers)) == len(figures)
    for module, function in makers:
        assert callable(getattr(importlib.import_module(module, "perfmodel.report.figures"), function))


def test_on_one_gpu_what_hangs_on_several_is_missing() -> None:
    one = subject(table_bytes=1e9, gpus=1)
    for figure in (bars.draw_changes, bars.draw_shardings, heat_maps.draw_shapes):
        assert isinstance(figure(one), Missing)
    many = subject(tables=MODEL, gpus=16)
    for figure, words in ((heat_maps.draw_shapes, "pooling and dim"), (lines.draw_slowdown, "one size")):
        missing = figure(many)
        assert isinstance(missing, Missing) and words in missing.why


def test_words() -> None:
    assert safe("<script>alert(1)</script>") == "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert sentence("two are left") == "Two are left." and sentence("Done.") == "Done."
    assert hover(["a", "", "b"]) == "a<br>b"


# The first screen


def test_the_bar_is_the_steps_of_the_answer_with_their_bands() -> None:
    answer = subject(**GRID).answer
    block = drawn(breakdown.draw_breakdown(subject(**GRID)))
    assert answer.sharding == "grid" and {row["sharding"] for row in block.data} == {"grid"}
    assert [row["time_s"] for row in block.data] == [step.time_s for step in answer.steps]
    longest = answer.longest_step
    assert f"the {longest.label} takes" in block.title and format_time(answer.time_s) in block.title
    *steps, band = block.figure.data
    ends = [(trace.base[1], trace.base[1] + trace.x[1]) for trace in steps]
    assert all(end == pytest.approx(start) for (_, end), (start, _) in pairwise(ends))
    assert ends[-1][1] == pytest.approx(1e6 * answer.time_s)
    assert band.x[0] + band.error_x.array[0] == pytest.approx(1e6 * answer.totals["high_s"])
    start_s = answer.time_s - answer.steps[-1].time_s
    last = band.x[-1] - band.error_x.arrayminus[-1]
    assert last == pytest.approx(1e6 * (start_s + answer.steps[-1].low_s))


def test_the_slowdown_has_three_lines_at_most_the_answers_first() -> None:
    on_top = subject(**DEFAULT)
    block = drawn(lines.draw_slowdown(on_top))
    names = list(dict.fromkeys(row["line"] for row in block.data))
    assert names == ["TorchRec's fastest", "with unique rows (EMBark)", "if one NVLink domain held all GPUs"]
    own = row(block, line=names[0], **DEFAULT)
    assert own["slowdown"] == on_top.answer.slowdown and own["gpus"] == on_top.answer.gpus
    assert (own["slowdown_low"], own["slowdown_high"]) == on_top.answer.band
    grid = row(block, line=names[0], table_bytes=1e12)
    best = rank_shardings(project_one(table_bytes=1e12)).answer
    assert (grid["sharding"], grid["time_s"]) == ("grid", best.time_s)
    unique = on_top.lead.beside.unique_rows if on_top.lead else None
    assert unique and row(block, line=names[1], **DEFAULT)["slowdown"] == unique.slowdown
    start = f"Slowdown at 10 TB: {format_ratio(on_top.answer.slowdown)}; with unique rows"
    assert block.title.startswith(start)
    named = drawn(lines.draw_slowdown(subject(table_bytes=1e12, sharding="row-wise-ub")))
    assert list(dict.fromkeys(row["line"] for row in named.data))[:2] == ["row-wise-ub", "row-wise"]


def test_a_line_changes_its_dash_where_its_evidence_changes() -> None:
    kinds = ["measured", "measured", "interpolated", "assumed"]
    rows = [
        {"line": "a", "x": x, "y": x, "low": x, "high": x, "evidence": kind, "main_evidence": kind}
        for x, kind in enumerate(kinds)
    ]
    ribbon, *parts = lines.trace_line(rows, ("x", "y", "low", "high"), 0, lambda row: [])
    dashes = [part["line"]["dash"] for part in parts]
    assert ribbon["fill"] == "toself" and dashes == ["solid", "dash", "longdashdot"]
    assert parts[0]["x"][-1] == 1 == parts[1]["x"][0]  # no gap
    assert [part["showlegend"] for part in parts] == [True, False, False]
    said = "solid = measured, dashed = interpolated, long dash-dot = assumed"
    assert lines.describe_dashes(kinds).endswith(said)


def test_rules_stand_where_a_node_and_a_domain_end() -> None:
    """At 85 % of the memory of 8 GPUs; of a tray of 4 and of 72 GPUs in one NVLink domain."""
    for machine, gpus in (("h100-sxm-ib", [8]), ("gb200-nvl72", [4, 72])):
        on_top = subject(table_bytes=50e12, machine=machine)
        hbm = on_top.answer.setting.machine.value("hbm_bytes")
        rules = drawn(lines.draw_slowdown(on_top)).figure.layout.shapes
        assert [shape.x0 for shape in rules] == pytest.approx([0.85 * number * hbm for number in gpus])


@pytest.mark.parametrize(
    ("options", "marks"),
    [({}, [22.8, 108.2]), ({"machine": "h200-sxm-ib"}, []), ({"objective": "training"}, [])],
)
def test_the_papers_slowdowns_are_marks_of_its_machine_alone(
    options: dict[str, Any], marks: list[float]
) -> None:
    block = drawn(lines.draw_slowdown(subject(**DEFAULT, **options)))
    assert [y for trace in traces(block, "markers") for y in trace.y] == marks


def test_sizes_that_a_calibration_does_not_cover_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Subject.ask

    def ask(on_top: Subject, **changes: Any) -> Any:
        if changes["table_bytes"] > 1e12:
            raise NoCalibrationError("no such ranks.")
        return own(on_top, **changes)

    monkeypatch.setattr(Subject, "ask", ask)
    block = drawn(lines.draw_slowdown(subject(table_bytes=640e9)))
    assert max(row["table_bytes"] for row in block.data if row["line"] == "TorchRec's fastest") == 1e12


def test_bars_are_the_changes_that_help_and_the_sentence_is_the_best() -> None:
    on_top = subject(**DEFAULT)
    block, changes = drawn(bars.draw_changes(on_top)), on_top.lead.changes if on_top.lead else ()
    assert [row["time_s"] for row in block.data] == [on_top.answer.time_s, *(c.after_s for c in changes)]
    assert [row["option"] for row in block.data[1:]] == [change.option for change in changes]
    best = min(changes, key=lambda change: change.after_s)
    assert f"{best.label}, {format_time(best.after_s)} instead of " in block.title
    assert best.option in block.title
    whiskers = block.figure.data[-1]
    highs = [x + up for x, up in zip(whiskers.x, whiskers.error_x.array, strict=True)]
    ends = [on_top.answer.totals["high_s"], *(change.high_s for change in changes)]
    assert highs == pytest.approx([1e3 * end for end in ends])  # ms


# Shardings, GPUs, shapes


def test_every_sharding_is_beside_the_answer_the_fastest_on_top() -> None:
    on_top = subject(**DEFAULT)
    block = drawn(bars.draw_shardings(on_top))
    answers = {answer.sharding: answer for answer in answer_shardings(on_top.base)}
    times = [row["time_s"] for row in block.data]
    assert times == sorted(times) and len(times) > 4
    assert all(row["time_s"] == answers[row["sharding"]].time_s for row in block.data)  # type: ignore[union-attr]
    assert block.title == (
        f"On 144 GPUs row-wise takes {format_time(on_top.answer.time_s)}; the fastest is row-wise-ub, which "
        f"TorchRec does not run: {format_time(times[0])}."
    )
    assert "Not possible or too large here: data-parallel, " in block.how_to_read


def test_more_gpus_have_the_time_and_the_gpu_hours_of_their_answers() -> None:
    block = drawn(lines.draw_over_gpus(subject(tables=MODEL, gpus=16)))
    *uniform, planned = block.data
    assert [row["gpus"] for row in uniform] == [2, 4, 8, 16, 24, 32, 64, 128]
    eight = rank_shardings(project_one(tables=MODEL, gpus=8)).answer
    assert row(block, gpus=8)["time_s"] == eight.time_s
    assert row(block, gpus=8)["gpu_hours"] == pytest.approx(8 * eight.time_s * 1e9 / (8 * 1024) / 3600)
    least = min(uniform, key=lambda row: float(row["gpu_hours"]))
    assert planned["line"] == "a sharding for each table" and planned["gpus"] == 16
    assert f", on {least['gpus']} GPUs." in block.title and "as many samples on each" in block.how_to_read


def test_a_batch_of_all_gpus_is_divided_among_them() -> None:
    question = replace(Question.of(tables=MODEL, gpus=16, batch=1024), total=16 * 1024)
    block = drawn(lines.draw_over_gpus(find_subject(question)))
    assert "on all of them together" in block.how_to_read
    eight = rank_shardings(project_one(tables=MODEL, gpus=8, batch=2048)).answer
    assert row(block, gpus=8)["time_s"] == eight.time_s


def test_a_plan_leads_the_figures_of_a_table_set() -> None:
    on_top = subject(tables=MODEL, gpus=16)
    assert on_top.planned and on_top.answer.time_s < on_top.uniform.time_s
    steps = drawn(breakdown.draw_breakdown(on_top))
    assert sum(row["time_s"] for row in steps.data) == pytest.approx(on_top.answer.time_s)
    first = drawn(bars.draw_shardings(on_top)).data[0]
    assert (first["sharding"], first["time_s"]) == ("a sharding for each table", on_top.answer.time_s)
    now, uniform, *changes = drawn(bars.draw_changes(on_top)).data
    assert now["time_s"] == on_top.answer.time_s and uniform["time_s"] == on_top.uniform.time_s
    assert changes and all(row["time_s"] < now["time_s"] for row in changes)


def test_cells_are_answers_on_top_and_the_question_is_framed() -> None:
    block = drawn(heat_maps.draw_shapes(subject(**GRID)))
    cell = row(block, batch=4096.0, pooling=8.0)
    best = rank_shardings(project_one(**GRID, gpus=16, batch=4096, pooling=8)).answer
    assert (cell["slowdown"], cell["sharding"]) == (best.slowdown, best.sharding)
    for heat, frame, own in zip(
        block.figure.data, block.figure.layout.shapes, (("1 024", "32"), ("1", "32")), strict=True
    ):
        x, y = round(frame.x0 + 0.5), round(frame.y0 + 0.5)
        assert (heat.x[x], heat.y[y]) == own
        assert heat.text[y][x] == format_ratio(subject(**GRID).answer.slowdown)
    most = max(block.data, key=lambda row: float(row["slowdown"]))
    assert f" to {format_ratio(most['slowdown'])} (batch " in block.title


def test_cells_that_cannot_be_are_empty() -> None:
    block = drawn(heat_maps.draw_shapes(subject(table_bytes=1e6, gpus=8, batch=64, dim=1024)))
    cells = [cell for heat in block.figure.data for line in heat.z for cell in line]
    assert None in cells and any(cell is not None for cell in cells)


def test_values_around_the_question() -> None:
    assert heat_maps.list_around(1024, 4, 2, whole=True) == [64, 256, 1024, 4096]
    assert heat_maps.list_around(1, 4, 1, whole=True) == [1, 4, 16, 64]
    assert heat_maps.list_around(6, 4, 1, whole=True) == [6, 24, 96, 384]  # 1.5 tables are none
    assert heat_maps.list_around(6, 4, 1, whole=False) == [1.5, 6, 24, 96]


# Collectives


def test_marks_are_the_medians_and_lines_the_fit() -> None:
    block = drawn(collective_curves.draw_collectives(subject(**DEFAULT)))
    model = collective_curves.load_measured(load_machine("h100-sxm-ib"), "nccl")
    curve = model.calibration.curve("all_to_all", 8, 8) if model else None
    assert curve is not None
    times, residuals = [mark for mark in traces(block, "markers") if mark.xaxis in ("x", "x3")]
    assert list(times.x) == curve.anchor_bytes and list(times.y) == curve.anchor_times_s
    bus = [size * 7 / 8 / time for size, time in zip(times.x, times.y, strict=True)]
    assert [row["busbw_bytes_per_s"] for row in block.data][: len(bus)] == pytest.approx(bus)
    fit = curve.alpha_s.value, curve.beta_bytes_per_s.value, curve.p.value
    off = np.array(curve.anchor_times_s) / hockney_time(np.array(curve.anchor_bytes), *fit) - 1
    assert list(residuals.y) == pytest.approx((100 * off).tolist())
    inside, *outside = [line for line in traces(block, "lines") if line.xaxis == "x"]
    assert [line.line.dash for line in (inside, *outside)] == ["dash", "dot", "dot"]
    for line in (inside, *outside):
        assert list(line.y) == pytest.approx(hockney_time(np.array(line.x), *fit).tolist())
    assert (min(inside.x), max(inside.x)) == pytest.approx((curve.anchor_bytes[0], curve.anchor_bytes[-1]))
    own = [row["time_s"] for row in block.data if row["collective"] == "all_to_all"]
    assert own == curve.anchor_times_s and "reaches" in block.title


def test_both_libraries_stand_where_both_were_measured_with_their_crossover() -> None:
    def libraries(block: Block | Missing) -> set[str]:
        return {str(row["backend"]) for row in drawn(block).data}

    h100, h200 = subject(table_bytes=1e12), subject(table_bytes=1e12, machine="h200-sxm-ib")
    assert libraries(collective_curves.draw_collectives(h100)) == {"nccl"}
    block = drawn(collective_curves.draw_collectives(h200))
    assert libraries(block) == {"nccl", "nvshmem"}
    assert "all-to-all: NCCL 2.29.2 (stream) is faster than NVSHMEM 3.3.9 (stream) at every" in block.title
    block = drawn(collective_curves.draw_paper_collectives(h100))
    clocks = {(row["backend"], row["clock"]) for row in block.data}
    assert clocks == {("nccl", "stream"), ("nvshmem", "device")}
    rules = {shape.xref: shape.x0 for shape in block.figure.layout.shapes}
    assert rules["x3"] == pytest.approx(81386.4) and len(rules) == 3  # broadcast: NVSHMEM alone


def test_what_was_not_measured_is_missing_with_the_command() -> None:
    borrowed = alone(machine=load_machine("h200-sxm-ib").model_copy(update={"name": "mine"}))
    missing = collective_curves.draw_collectives(borrowed)
    assert isinstance(missing, Missing) and "perfmodel calibrate --only nccl:all_to_all" in missing.why
    assert collective_curves.load_measured(load_machine("h100-sxm-ib"), "gloo") is None


def test_a_library_of_a_file_stays_text() -> None:
    model = collective_curves.load_measured(load_machine("h200-sxm-ib"), "nccl")
    assert model is not None
    odd = model.calibration.model_copy(update={"library_version": "<script>x</script>"})
    series = collective_curves.MeasuredCurve(0, replace(model, calibration=odd), odd.curves[0])
    assert series.label == "NCCL &lt;script&gt;x&lt;/script&gt; (stream)"


# The paper


def test_every_figure_of_the_paper_says_what_it_says_and_whether_it_holds() -> None:
    said = {figure.name: drawn(figure.draw(subject(**DEFAULT))) for figure in PAPER}
    counts = {name: block.how_to_read.count("The paper says: ") for name, block in said.items()}
    assert counts == {"paper-collectives": 8, "paper-stages": 1, "paper-grids": 0, "paper-links": 2,
                      "paper-slowdown": 2}  # fmt: skip
    assert "of 8 claims 1 holds, 4 cannot be said, 3 fail" in said["paper-collectives"].title
    assert "flips from 4 MiB on; it holds." in said["paper-stages"].how_to_read
    assert "The paper prints no slowdown" in said["paper-grids"].how_to_read


def test_the_papers_grids_are_whole_and_row_wise_on_the_machine_of_the_answer() -> None:
    block = drawn(heat_maps.draw_grids(subject(**DEFAULT)))
    shapes = [(len(heat.x), len(heat.y)) for heat in block.figure.data]
    assert shapes == [(12, 16), (7, 24)] and len(block.data) == 192 + 168
    point = row(block, grid="paper-1", gpus=8.0, batch=1024.0, dim=128.0, pooling=16.0)
    assert point["slowdown"] == pytest.approx(project_one(gpus=8, dim=128, pooling=16).slowdown)
    most = max(float(row["slowdown"]) for row in block.data)
    assert f" to {format_ratio(most)} (" in block.title


def test_stages_sum_to_the_look_up_and_the_faster_library_is_taken_for_each() -> None:
    block = drawn(paper.draw_stages(subject(**DEFAULT)))
    frame = project_row_wise(
        {"gpus": [8], "batch": [1024], "table_count": [8]}, "h200-sxm-ib", backend="nccl", clock="eager"
    )
    same = {"axis": "table_count", "table_count": 8}
    nccl = row(block, **same, line="NCCL (eager)")
    nvshmem, faster = (
        row(block, **same, line="NVSHMEM (device)"),
        row(block, **same, line="the faster of each stage"),
    )
    assert nccl["time_s"] == pytest.approx(float(frame["time_s"].iloc[0]))
    for stage in ("permute_s", "gather_s", "reduce_s"):
        assert faster[stage] == min(nccl[stage], nvshmem[stage])
    for point in (nccl, nvshmem, faster):
        assert point["permute_s"] + point["gather_s"] + point["reduce_s"] == pytest.approx(point["time_s"])
    assert len(block.data) == 3 * (7 + 3 + 4)


def test_look_ups_that_were_timed_stand_on_lines_of_their_shapes(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / folder.name
    own.mkdir()
    for path in folder.iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    with (own / SAMPLES_NAME).open("a") as stream:
        for tables in (1, 2, 4):
            work = LookupWork(batch=16, tables=tables, pooling=32, dim=32, rows=4000)
            point = Point(kind=PointKind.LOOKUP, operation="row_wise", backend="mpi", gpus=4, gpus_per_node=4,
                          implementation="exchange", clock=Clock.EAGER, work=work)  # fmt: skip
            steps = {"permute": [1e-4], "gather_pool": [2e-4], "reduce_scatter": [3e-4 * tables]}
            visit = Visit(key=point.key, round=0, at="", times_s=[6e-4 * tables], steps_s=steps, checked=1)
            finish = Finish(key=point.key, status=Status.OK, median_s=6e-4 * tables)
            for line in (PointLine(key=point.key, point=point), visit, finish):
                stream.write(line.model_dump_json() + "\n")
    block = drawn(paper.draw_stages(own_subject(own, gpus=4)))
    timed = [row for row in block.data if row["kind"] == "timed" and row["axis"] == "table_count"]
    assert [(row["table_count"], row["reduce_s"]) for row in timed] == [(n, 3e-4 * n) for n in (1, 2, 4)]
    assert {row["evidence"] for row in timed} == {"measured"}
    projected = [row for row in block.data if row["kind"] == "projected" and row["axis"] == "table_count"]
    assert [(row["table_count"], row["batch"], row["gpus"]) for row in projected] == [
        (n, 16, 4) for n in (1, 2, 4)
    ]
    asked = {"gpus": 4, "batch": 16, "table_count": 2, "table_bytes": 2 * 4000 * 128}
    assert projected[1]["time_s"] == pytest.approx(own_subject(own, **asked).answer.time_s)
    marks = [trace for trace in traces(block, "markers") if trace.name == "exchange (eager)"]
    assert any(list(trace.y) == [6e-4, 12e-4, 24e-4] for trace in marks)
    assert {trace.name for trace in block.figure.data if trace.showlegend} == {"MPI", "exchange (eager)"}
    assert all(trace.x for trace in block.figure.data)


def test_nvlink_is_measured_beside_pcie_that_is_assumed() -> None:
    block = drawn(paper.draw_links(subject(**DEFAULT)))
    kinds = {(row["line"], row["evidence"]) for row in block.data}
    assert ("8 H100, PCIe", "assumed") in kinds and ("4 A100, peer-to-peer off", "measured") in kinds
    assert {kind for line, kind in kinds if line == "8 H100, NVLink"} <= {"measured", "interpolated"}
    assert "43.2×" in block.title and "it holds" in block.how_to_read
    assert {trace.line.dash for trace in traces(block, "lines+markers")} >= {"solid", "longdashdot"}


def test_figure_9_has_both_ends_with_their_bands_beside_the_papers() -> None:
    block = drawn(paper.draw_ends(subject(**DEFAULT)))
    published = [row["slowdown"] for row in block.data if row["evidence"] == "published"]
    assert published == [22.8, 108.2]
    frames = [project_row_wise(GRIDS[name](gpus=(128,)), "h100-paper") for name in ("paper-1", "paper-2")]
    least = min(float(frame["slowdown"].min()) for frame in frames)
    own = row(block, line="one NVLink domain, NCCL", end="least")
    assert own["slowdown"] == pytest.approx(least) and own["slowdown_low"] < least < own["slowdown_high"]
    assert {row["line"].partition(", ")[2] for row in block.data} >= {
        "NCCL",
        "NVSHMEM",
        "the faster for each step",
    }


# Roofline


def roofline_lines(block: Block) -> list[Any]:
    return [t for t in block.figure.data if str(t.name).startswith("batch") and not t.fill]


def test_lines_are_the_local_times_of_a_projection() -> None:
    block = draw_roofline(alone())
    rows = [row for row in block.data if row["batch"] == 1024]
    sizes = np.array([row["working_set_bytes"] for row in rows])
    local = project_row_wise(table_bytes=sizes, gpus=1, batch=1024)
    assert [row["time_s"] for row in rows] == pytest.approx(local["baseline_time_s"].tolist())
    moved = 1024 * 32 * (32 * 4 + 8) + 1024 * (32 * 4 + 8)
    assert rows[0]["requested_bytes"] == moved
    assert [row["bytes_per_s"] for row in rows] == pytest.approx([moved / row["time_s"] for row in rows])
    assert [t.name for t in roofline_lines(block)] == ["batch 1 024", "batch 8 192", "batch 65 536"]
    last = [t.y[-1] for t in roofline_lines(block)]
    assert last == sorted(last)
    most = draw_roofline(alone(batch=2**30, gpus=128, pooling=1))
    assert [t.name for t in roofline_lines(most)] == ["batch 1 073 741 824"]


def test_ceilings_are_the_machines_values_dashed_by_evidence() -> None:
    block, machine = draw_roofline(alone()), load_machine("h100-sxm-ib")
    ceilings = {t.name.split()[0]: t for t in block.figure.data if "TB/s" in t.name}
    for name, key in (
        ("memory", "hbm_bytes_per_s"),
        ("gather", "gather_bytes_per_s"),
        ("L2", "l2_bytes_per_s"),
    ):
        assert list(ceilings[name].y) == [machine.value(key)] * 2
    assert ceilings["memory"].line.dash == "longdash" and ceilings["L2"].line.dash == "dashdot"
    assert [shape.x0 for shape in block.figure.layout.shapes] == [machine.value("l2_bytes")]
    bands = np.concatenate([np.asarray(t.y, float) for t in block.figure.data if t.fill == "toself"])
    low, high = (10**end for end in block.figure.layout.yaxis.range)
    assert low < bands.min() and bands.max() < high


def test_the_sentence_of_the_roofline_follows_the_data() -> None:
    small, large = draw_roofline(alone()), draw_roofline(alone(batch=1_000_000))
    assert "kernel launches take 64.2 % of the time" in small.title
    assert "launches" not in large.title and "of the rate for long rows" in large.title
    tables = draw_roofline(alone(tables=MODEL, gpus=16, batch=512, table_bytes=None))
    rows = [row for row in tables.data if row["batch"] == 512]
    assert rows[-1]["working_set_bytes"] == load_machine("h100-sxm-ib").value("hbm_bytes")


# Predicted against measured


def points(*factors: float, wide: float = 1.2) -> list[dict[str, Any]]:
    return [
        {"kind": "some", "gpus": 8, "time_s": 10.0**-k, "predicted_s": factor * 10.0**-k,
         "low_s": factor / wide * 10.0**-k, "high_s": factor * wide * 10.0**-k}
        for k, factor in enumerate(factors, 3)
    ]  # fmt: skip


def test_marks_are_predictions_over_measurements() -> None:
    some = points(1.0, 1.1, 0.5)
    block = drawn(compare_points(some))
    above, below = traces(block, "markers")
    assert list(above.x) == list(below.x) == [row["time_s"] for row in some]
    assert list(above.y) == [row["predicted_s"] for row in some]
    assert list(below.y) == pytest.approx([1.0, 1.1, 0.5])
    assert [row["inside"] for row in block.data] == [True, True, False]
    assert isinstance(compare_points([]), Missing)


def test_the_sentence_counts_the_points() -> None:
    block = drawn(compare_points(points(1.1, 0.9, 1.1, 1.1)))
    assert block.title == (
        "Of 4 points left out of the fits, on up to 8 GPUs, half are predicted within 10.0 % and 90 % within "
        "10.0 %; 100 % are inside their 95 % band."
    )
    assert "some, 4 points, median error 10.0 %" in block.source
    assert "half are predicted within 75.0 %" in drawn(compare_points(points(2.0, 0.5))).title


def test_the_points_are_sizes_of_the_machine_and_clusters_where_the_answer_leaves_a_node() -> None:
    inside, across = (drawn(draw_validation(alone(table_bytes=size))) for size in (400e9, 1e12))
    assert {row["machine"] for row in inside.data} == {"h100-sxm-ib"}
    assert {row["gpus"] for row in inside.data} == {8} and len(across.data) > len(inside.data)
    kinds = [row["kind"] for row in read_held_out("h100-sxm-ib", across=True)]
    assert kinds.count("a cluster left out of the fit") == len(accuracy.other_clusters())
    assert max(row["gpus"] for row in across.data) == 2160
    nobodys = drawn(
        draw_validation(alone(machine="gb200-nvl72"))
    )  # in one domain, of which no size is stored
    assert len(nobodys.data) > 900


def test_passes_of_an_own_run(folder: Path) -> None:
    passes = judged(compare_run(folder))
    block = drawn(draw_validation(own_subject(folder)))
    assert len(block.data) == 3 and [row["time_s"] for row in block.data] == passes["time_s"].tolist()
    assert [row["predicted_s"] for row in block.data] == passes["projected_s"].tolist()
    assert [row["low_s"] for row in block.data] == passes["projected_low_s"].tolist()
    assert all(row["kind"] == "whole passes of this run" for row in block.data)
