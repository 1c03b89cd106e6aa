"""Figures of a question: each is of the answer on top, and its sentence follows its data."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from oracles import own_run

from perfmodel.answer import Question, project_one, project_row_wise, uniform_plans
from perfmodel.answer.ranking import answer_shardings, rank_shardings
from perfmodel.answer.sweep import GRIDS
from perfmodel.model.curves import hockney_time
from perfmodel.plan.question import plan_quickly
from perfmodel.report.figures import heat_maps
from perfmodel.report.figures.chart import Block, Missing
from perfmodel.report.figures.measured_curves import compare_points, load_measured
from perfmodel.report.figures.subject import Subject, find_subject
from perfmodel.report.page.question_page import draw_figure
from perfmodel.schema.evidence import Clock
from perfmodel.schema.files import SAMPLES_NAME
from perfmodel.schema.machine import load_machine
from perfmodel.schema.runs import Finish, LookupWork, Point, PointKind, PointLine, Status, Visit
from perfmodel.units import format_ratio, format_time
from perfmodel.validate import accuracy

MODEL = "mlperf-dlrm-dcnv2"
DEFAULT: dict[str, Any] = {"table_bytes": 10e12}
GRID: dict[str, Any] = {"table_bytes": 640e9}
"""Grid leads on 16 GPUs."""


@cache
def subject(**options: Any) -> Subject:
    return find_subject(replace(Question.of(**options), planner=plan_quickly))


def alone(**options: Any) -> Subject:
    answer = project_one(**{**DEFAULT, **options})
    return Subject(answer, answer)


def draw(name: str, on_top: Subject) -> Block:
    block = draw_figure(name, on_top)
    assert isinstance(block, Block), block
    return replace(block, figure=go.Figure(block.figure))  # checked by plotly


def row(block: Block, **values: Any) -> dict[str, Any]:
    (only,) = [dict(row) for row in block.data if values.items() <= row.items()]
    return only


def traces(block: Block, mode: str) -> list[Any]:
    return [trace for trace in block.figure.data if trace.mode == mode]


@pytest.mark.parametrize(
    ("options", "name", "why"),
    [
        ({"table_bytes": 1e9, "gpus": 1}, "changes", "--table-size"),
        ({"table_bytes": 1e9, "gpus": 1}, "shardings", "nothing is sharded"),
        ({"table_bytes": 1e9, "gpus": 1}, "shapes", "fit on one GPU"),
        ({"tables": MODEL, "gpus": 16}, "shapes", "pooling and dim"),
        ({"tables": MODEL, "gpus": 16}, "slowdown", "one size"),
        ({"tables": MODEL, "gpus": 16}, "roofline", "pooling and dim"),
    ],
)
def test_what_cannot_be_drawn_is_left_out_with_the_reason(options: Any, name: str, why: str) -> None:
    missing = draw_figure(name, subject(**options))
    assert isinstance(missing, Missing) and why in missing.why


# The first screen


def test_the_bar_is_the_steps_of_the_answer_with_their_bands() -> None:
    answer, block = subject(**GRID).answer, draw("breakdown", subject(**GRID))
    assert answer.sharding == "grid" and {row["sharding"] for row in block.data} == {"grid"}
    assert [row["time_s"] for row in block.data] == [step.time_s for step in answer.steps]
    assert f"the {answer.longest_step.label} takes" in block.title
    *steps, band = block.figure.data
    ends = [(trace.base[1], trace.base[1] + trace.x[1]) for trace in steps]
    assert all(end == pytest.approx(start) for (_, end), (start, _) in pairwise(ends))
    assert ends[-1][1] == pytest.approx(answer.time_s)
    assert band.error_x.symmetric is False  # else the lower ends are not drawn
    assert band.x[0] + band.error_x.array[0] == pytest.approx(answer.totals["high_s"])
    last = answer.steps[-1]
    low = band.x[-1] - band.error_x.arrayminus[-1]
    assert low == pytest.approx(answer.time_s - last.time_s + last.low_s)


def test_the_slowdown_has_three_lines_at_most_the_answers_first() -> None:
    on_top = subject(**DEFAULT)
    block = draw("slowdown", on_top)
    names = list(dict.fromkeys(row["line"] for row in block.data))
    assert names == ["TorchRec's fastest", "with unique rows (EMBark)", "if one NVLink domain held all GPUs"]
    point = row(block, line=names[0], **DEFAULT)
    assert (point["slowdown"], point["gpus"]) == (on_top.answer.slowdown, on_top.answer.gpus)
    assert (point["slowdown_low"], point["slowdown_high"]) == on_top.answer.band
    best = rank_shardings(project_one(table_bytes=1e12)).answer
    grid = row(block, line=names[0], table_bytes=1e12)
    assert (grid["sharding"], grid["time_s"]) == ("grid", best.time_s)
    unique = on_top.lead.beside.unique_rows if on_top.lead else None
    assert unique and row(block, line=names[1], **DEFAULT)["slowdown"] == unique.slowdown
    assert block.title.startswith(f"Slowdown at 10 TB: {format_ratio(on_top.answer.slowdown)}; with unique")
    named = draw("slowdown", subject(table_bytes=1e12, sharding="row-wise-ub"))
    assert list(dict.fromkeys(row["line"] for row in named.data))[:2] == ["row-wise-ub", "row-wise"]
    cards = draw("slowdown", subject(table_bytes=300e9, machine="l40s-pcie"))  # no domain of their own
    assert {row["line"] for row in cards.data} <= {*names[:2]} and len(cards.figure.layout.shapes) == 1


@pytest.mark.parametrize(
    ("options", "marks"),
    [({}, [22.8, 108.2]), ({"machine": "h200-sxm-ib"}, []), ({"objective": "training"}, [])],
)
def test_the_papers_slowdowns_are_marks_of_its_machine_alone(options: Any, marks: list[float]) -> None:
    block = draw("slowdown", subject(**DEFAULT, **options))
    assert [y for trace in traces(block, "markers") for y in trace.y] == marks


def test_bars_are_the_changes_that_help_and_the_sentence_is_the_best() -> None:
    on_top = subject(**DEFAULT)
    block, changes = draw("changes", on_top), on_top.lead.changes if on_top.lead else ()
    assert [row["time_s"] for row in block.data] == [on_top.answer.time_s, *(c.after_s for c in changes)]
    assert [row["option"] for row in block.data[1:]] == [change.option for change in changes]
    best = min(changes, key=lambda change: change.after_s)
    assert f"{best.label}, {format_time(best.after_s)} instead of " in block.title
    *_, whiskers, labels = block.figure.data
    assert len(labels.text) == len(block.data) and not any("<br>" in text for text in labels.text)
    highs = [x + up for x, up in zip(whiskers.x, whiskers.error_x.array, strict=True)]
    ends = [on_top.answer.totals["high_s"], *(change.high_s for change in changes)]
    assert highs == pytest.approx(ends)


# Shardings, GPUs, shapes


def test_every_sharding_is_beside_the_answer_the_fastest_on_top() -> None:
    on_top = subject(**DEFAULT)
    block = draw("shardings", on_top)
    answers = {answer.sharding: answer for answer in answer_shardings(on_top.base)}
    times = [row["time_s"] for row in block.data]
    assert times == sorted(times) and len(times) > 4
    assert all(row["time_s"] == answers[row["sharding"]].time_s for row in block.data)  # type: ignore[union-attr]
    assert block.title == (
        f"On 144 GPUs row-wise takes {format_time(on_top.answer.time_s)}; the fastest is "
        f"row-wise-sparse, which nobody runs: {format_time(times[0])}."
    )
    assert "Not possible or too large here: data-parallel, " in block.how_to_read


def test_as_many_tables_are_compared_as_a_ranking_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = subject(**DEFAULT)
    assert draw("shardings", shown).data
    monkeypatch.setattr(uniform_plans, "MOST_TABLES", 0)
    assert isinstance(draw_figure("shardings", shown), Missing)


def test_more_gpus_have_the_time_and_the_gpu_hours_of_their_answers() -> None:
    on_top = subject(tables=MODEL, gpus=16)
    block = draw("over-gpus", on_top)
    *uniform, planned = block.data
    assert [row["gpus"] for row in uniform] == [2, 4, 8, 16, 24, 32, 64, 128]
    eight = rank_shardings(project_one(tables=MODEL, gpus=8)).answer
    assert row(block, gpus=8)["time_s"] == eight.time_s
    assert row(block, gpus=8)["gpu_hours"] == pytest.approx(8 * eight.time_s * 1e9 / (8 * 1024) / 3600)
    least = min(uniform, key=lambda row: float(row["gpu_hours"]))
    assert planned["line"] == "a sharding for each table" and planned["gpus"] == 16
    assert f", on {least['gpus']} GPUs." in block.title and "as many samples on each" in block.how_to_read
    assert 8 in [row["gpus"] for row in draw("over-gpus", subject(table_bytes=300e9, gpus=5)).data]
    assert on_top.lead
    alone_fits = draw("over-gpus", replace(on_top, lead=replace(on_top.lead, best=())))
    assert alone_fits.data == [row for row in block.data if row["gpus"] != 16 or row is planned]


def test_a_batch_of_all_gpus_is_divided_among_them() -> None:
    question = Question.of(tables=MODEL, gpus=16, batch=1024)
    question = replace(question, total=16 * 1024, planner=plan_quickly)
    block = draw("over-gpus", find_subject(question))
    assert "on all of them together" in block.how_to_read
    eight = rank_shardings(project_one(tables=MODEL, gpus=8, batch=2048)).answer
    assert row(block, gpus=8)["time_s"] == eight.time_s


def test_a_plan_leads_the_figures_of_a_table_set() -> None:
    on_top = subject(tables=MODEL, gpus=16)
    assert on_top.planned and on_top.uniform and on_top.answer.time_s < on_top.uniform.time_s
    steps = draw("breakdown", on_top)
    assert sum(row["time_s"] for row in steps.data) == pytest.approx(on_top.answer.time_s)
    shardings = draw("shardings", on_top)
    fastest = shardings.data[0]
    assert " a sharding for each table is the fastest of all shardings: " in shardings.title
    assert (fastest["sharding"], fastest["time_s"]) == ("a sharding for each table", on_top.answer.time_s)
    now, *changes = draw("changes", on_top).data
    assert now["time_s"] == on_top.answer.time_s
    assert min(row["time_s"] for row in changes) < now["time_s"]


def test_cells_are_answers_on_top_and_the_question_is_framed() -> None:
    block = draw("shapes", subject(**GRID))
    cell = row(block, batch=4096.0, pooling=8.0)
    best = rank_shardings(project_one(**GRID, gpus=16, batch=4096, pooling=8)).answer
    assert (cell["slowdown"], cell["sharding"]) == (best.slowdown, best.sharding)
    labels = (("1 024", "32"), ("1", "32"))
    for heat, frame, label in zip(block.figure.data, block.figure.layout.shapes, labels, strict=True):
        x, y = round(frame.x0 + 0.5), round(frame.y0 + 0.5)
        assert (heat.x[x], heat.y[y]) == label
        assert heat.text[y][x] == format_ratio(subject(**GRID).answer.slowdown)
    most = max(block.data, key=lambda row: float(row["slowdown"]))
    assert f" to {format_ratio(most['slowdown'])} (batch " in block.title


def test_cells_that_cannot_be_are_empty() -> None:
    block = draw("shapes", subject(table_bytes=1e6, gpus=8, batch=64, dim=1024))
    cells = [cell for heat in block.figure.data for line in heat.z for cell in line]
    assert None in cells and any(cell is not None for cell in cells)


@pytest.mark.parametrize(
    ("value", "name", "values"),
    [
        (1024, "batch", [256, 1024, 4096, 16384]),
        (1, "table_count", [1, 4, 16]),
        (6, "table_count", [2, 6, 24, 96]),
        (4.5, "pooling", [1, 2, 4.5, 9]),
    ],
)
def test_values_around_the_question(value: float, name: str, values: list[float]) -> None:
    assert heat_maps.list_around(value, name) == values


# Collectives


def test_marks_are_the_medians_and_lines_the_fit() -> None:
    block = draw("collectives", subject(**DEFAULT))
    model = load_measured(load_machine("h100-sxm-ib"), "nccl")
    curve = model.calibration.curve("all_to_all", 8, 8) if model else None
    assert curve is not None
    times, residuals = [mark for mark in traces(block, "markers") if mark.xaxis == "x"]
    assert list(times.x) == curve.anchor_bytes and list(times.y) == curve.anchor_times_s
    assert "evidence: measured" in times.hovertext[0]
    bus = [size * 7 / 8 / time for size, time in zip(times.x, times.y, strict=True)]
    assert [row["busbw_bytes_per_s"] for row in block.data][: len(bus)] == pytest.approx(bus)
    sizes = np.array(curve.anchor_bytes)
    fit = hockney_time(sizes, curve.alpha_s.value, curve.beta_bytes_per_s.value, curve.p.value)
    off = 100 * (np.array(curve.anchor_times_s) / fit - 1)
    assert list(residuals.y) == pytest.approx(off.tolist())
    (law,) = [line for line in traces(block, "lines") if line.xaxis == "x"]
    assert law.line.dash == "dash" and list(law.y) == pytest.approx(fit.tolist())
    assert "all-to-all by NCCL 2.29.2 (stream) takes at least" in block.title and "reaches" in block.title


def test_both_libraries_stand_where_both_were_measured_with_their_crossover() -> None:
    h100, h200 = subject(table_bytes=1e12), subject(table_bytes=1e12, machine="h200-sxm-ib")
    assert {row["backend"] for row in draw("collectives", h100).data} == {"nccl"}
    block = draw("collectives", h200)
    assert {row["backend"] for row in block.data} == {"nccl", "nvshmem"}
    assert "all-to-all by NVSHMEM 3.3.9 (stream) takes at least" in block.title
    block = draw("paper-collectives", h100)
    clocks = {(row["backend"], row["clock"]) for row in block.data}
    assert clocks == {("nccl", "stream"), ("nvshmem", "device")}
    rules = {shape.xref: shape.x0 for shape in block.figure.layout.shapes}
    assert {shape.label.text for shape in block.figure.layout.shapes} == {"NCCL is faster →"}
    assert rules["x3"] == pytest.approx(81386.4) and len(rules) == 3  # broadcast: NVSHMEM alone


def test_what_was_not_measured_is_missing_with_the_command() -> None:
    borrowed = alone(machine=load_machine("h200-sxm-ib").model_copy(update={"name": "mine"}))
    missing = draw_figure("collectives", borrowed)
    assert isinstance(missing, Missing) and "perfmodel calibrate --only all_to_all" in missing.why
    assert load_measured(load_machine("h100-sxm-ib"), "gloo") is None


# The paper


@pytest.mark.parametrize(
    ("name", "count", "words"),
    [
        ("paper-collectives", 8, "of 8 claims 1 holds, 4 cannot be said, 3 fail"),
        ("paper-stages", 1, "flips from 4 MiB on; it holds."),
        ("paper-links", 2, "43.2× at 1 GiB; it holds"),
        ("paper-grids", 0, "The paper prints no slowdown"),
        ("paper-slowdown", 2, "cannot be said"),
    ],
)
def test_figures_of_the_paper_say_what_it_says_and_whether_it_holds(
    name: str, count: int, words: str
) -> None:
    block = draw(name, subject(**DEFAULT))
    assert block.how_to_read.count("The paper says: ") == count
    assert words in block.title + block.how_to_read


def test_the_papers_grids_are_whole_and_row_wise_on_the_machine_of_the_answer() -> None:
    block = draw("paper-grids", subject(**DEFAULT))
    shapes = [(len(heat.x), len(heat.y)) for heat in block.figure.data]
    assert shapes == [(12, 16), (7, 24)] and len(block.data) == 192 + 168
    point = row(block, grid="paper-1", gpus=8.0, batch=1024.0, dim=128.0, pooling=16.0)
    assert point["slowdown"] == pytest.approx(project_one(gpus=8, dim=128, pooling=16).slowdown)
    most = max(float(row["slowdown"]) for row in block.data)
    assert f" to {format_ratio(most)} (" in block.title


def test_stages_sum_to_the_look_up_and_the_faster_library_is_taken_for_each() -> None:
    block = draw("paper-stages", subject(**DEFAULT))
    works = {"gpus": [8], "batch": [1024], "table_count": [8]}
    frame = project_row_wise(works, "h200-sxm-ib", backend="nccl", clock="eager")
    names = ("NCCL (eager)", "NVSHMEM (device)", "the faster of each stage")
    nccl, nvshmem, faster = (row(block, axis="table_count", table_count=8, line=name) for name in names)
    assert nccl["time_s"] == pytest.approx(float(frame["time_s"].iloc[0]))
    for stage in ("permute_s", "gather_s", "reduce_s"):
        assert faster[stage] == min(nccl[stage], nvshmem[stage])
    for point in (nccl, nvshmem, faster):
        assert point["permute_s"] + point["gather_s"] + point["reduce_s"] == pytest.approx(point["time_s"])
    assert len(block.data) == 3 * (7 + 3 + 4)


def test_look_ups_that_were_timed_stand_on_lines_of_their_shapes(tmp_path: Path) -> None:
    folder = own_run.write_run(tmp_path / "four-cores-01234567")
    with (folder / SAMPLES_NAME).open("a") as stream:
        for tables in (1, 2, 4):
            work = LookupWork(batch=16, tables=tables, pooling=32, dim=32, rows=4000)
            point = Point(kind=PointKind.LOOKUP, operation="row_wise", backend="mpi", gpus=4, gpus_per_node=4,
                          implementation="exchange", clock=Clock.EAGER, work=work)  # fmt: skip
            steps = {"permute": [1e-4], "gather_pool": [2e-4], "reduce_scatter": [3e-4 * tables]}
            visit = Visit(key=point.key, round=0, at="", times_s=[6e-4 * tables], steps_s=steps, checked=1)
            finish = Finish(key=point.key, status=Status.OK, median_s=6e-4 * tables)
            lines = (PointLine(key=point.key, point=point), visit, finish)
            stream.writelines(f"{line.model_dump_json()}\n" for line in lines)
    options = {"machine": load_machine(folder / "machine.toml"), "backend": "mpi", "gpus": 4}
    options |= {"calibration": str(next(folder.glob("mpi*.json")))}
    block = draw("paper-stages", alone(**options, table_bytes=1e8))
    rows = [row for row in block.data if row["axis"] == "table_count"]
    timed = [row for row in rows if row["line"] == "exchange (eager)"]
    assert [(row["table_count"], row["reduce_s"]) for row in timed] == [(n, 3e-4 * n) for n in (1, 2, 4)]
    projected = [row for row in rows if row["evidence"] != "measured"]
    assert [(row["table_count"], row["batch"], row["gpus"]) for row in projected] == [
        (n, 16, 4) for n in (1, 2, 4)
    ]
    same = alone(**options, batch=16, table_count=2, table_bytes=2 * 4000 * 128)
    assert projected[1]["time_s"] == pytest.approx(same.answer.time_s)
    marks = [trace for trace in traces(block, "markers") if trace.name == "exchange (eager)"]
    assert any(list(trace.y) == pytest.approx([6e-4, 12e-4, 24e-4]) for trace in marks)


def test_figure_9_has_both_ends_with_their_bands_beside_the_papers() -> None:
    block = draw("paper-slowdown", subject(**DEFAULT))
    published = [row["slowdown"] for row in block.data if row["evidence"] == "published"]
    assert published == [22.8, 108.2]
    frames = [project_row_wise(GRIDS[name](gpus=(128,)), "h100-paper") for name in ("paper-1", "paper-2")]
    least = min(float(frame["slowdown"].min()) for frame in frames)
    point = row(block, where="one NVLink domain, NCCL", line="the least")
    assert (
        point["slowdown"] == pytest.approx(least) and point["slowdown_low"] < least < point["slowdown_high"]
    )


# Roofline


def test_lines_are_the_local_times_of_a_projection() -> None:
    block = draw("roofline", alone())
    rows = [row for row in block.data if row["batch"] == 1024]
    sizes = np.array([row["table_bytes"] for row in rows])
    local = project_row_wise(table_bytes=sizes, gpus=1, batch=1024)
    assert [row["time_s"] for row in rows] == pytest.approx(local["baseline_time_s"].tolist())
    moved = 1024 * 32 * (32 * 4 + 8) + 1024 * (32 * 4 + 8)
    assert rows[0]["requested_bytes"] == moved
    assert [row["bytes_per_s"] for row in rows] == pytest.approx([moved / row["time_s"] for row in rows])
    assert {row["line"] for row in block.data} == {"batch 1 024", "batch 8 192", "batch 65 536"}
    most = draw("roofline", alone(batch=2**30, gpus=128, pooling=1))
    assert {row["line"] for row in most.data} == {"batch 1 073 741 824"}


# Predicted against measured


def test_marks_are_predictions_over_measurements_and_the_sentence_counts_them() -> None:
    points = [
        {"line": "some", "machine": "m", "collective": "all_reduce", "gpus": 8, "payload_bytes": 1024,
         "time_s": 10.0**-k, "predicted_s": factor * 10.0**-k, "low_s": factor / 1.2 * 10.0**-k,
         "high_s": factor * 1.2 * 10.0**-k}
        for k, factor in enumerate((1.1, 0.9, 1.1, 0.5), 3)
    ]  # fmt: skip
    block = compare_points(points)
    block = replace(block, figure=go.Figure(block.figure))
    above, below = traces(block, "markers")
    assert list(above.x) == list(below.x) == [row["time_s"] for row in points]
    assert list(above.y) == [row["predicted_s"] for row in points]
    assert list(below.y) == pytest.approx([1.1, 0.9, 1.1, 0.5])
    assert [row["inside"] for row in block.data] == [True, True, True, False]
    assert block.title.startswith(
        "Of 4 points left out of the fits, on up to 8 GPUs, half are predicted within"
    )
    assert block.title.endswith("75.0 % are inside their 95 % band.")
    assert "some, 4 points, median error 10.0 %" in block.source


def test_the_points_are_of_clusters_and_nodes_that_no_fit_used() -> None:
    block = draw("validation", subject(**DEFAULT))
    kinds = [row["line"] for row in block.data]
    assert kinds.count("a cluster left out of the fit") == len(accuracy.predict_other_clusters())
    assert len(block.data) > 900 and max(row["gpus"] for row in block.data) == 2160
