"""Figures of a question: each is of the answer on top, its sentence follows its data."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
import pytest

from perfmodel.answer import Question, project_one
from perfmodel.answer.ranking import answer_shardings, rank_shardings
from perfmodel.errors import NoCalibrationError
from perfmodel.report.figures import bars, breakdown, heat_maps, lines
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import BREAKDOWN, CHANGES, QUESTION, SLOWDOWN
from perfmodel.report.figures.subject import Subject, find_subject
from perfmodel.units import format_ratio, format_time

MODEL = "mlperf-dlrm-dcnv2"
GRID: dict[str, Any] = {"table_bytes": 640e9}
"""Grid leads on 16 GPUs."""


@cache
def subject(**options: Any) -> Subject:
    return find_subject(Question.of(**options))


def drawn(block: Block | Missing) -> Block:
    assert isinstance(block, Block), block
    return block


def row(block: Block, **values: Any) -> dict[str, Any]:
    (only,) = [dict(row) for row in block.data if values.items() <= row.items()]
    return only


def test_every_figure_of_the_default_question_is_there() -> None:
    for figure in (BREAKDOWN, SLOWDOWN, CHANGES, *QUESTION):
        block = drawn(figure.draw(subject(table_bytes=10e12)))
        assert block.name == figure.name and block.title.endswith(".") and block.source and block.how_to_read
        assert block.data and all(
            isinstance(value, str | int | float | None) for each in block.data for value in each.values()
        )
        go.Figure(block.figure.to_dict())  # checked by plotly


def test_at_most_fourteen_figures() -> None:
    assert len((BREAKDOWN, SLOWDOWN, CHANGES, *QUESTION)) <= 14


def test_the_bar_is_the_steps_of_the_answer_with_their_bands() -> None:
    answer = subject(**GRID).answer
    block = drawn(breakdown.breakdown(subject(**GRID)))
    assert answer.sharding == "grid" and {each["sharding"] for each in block.data} == {"grid"}
    assert [each["time_s"] for each in block.data] == [step.time_s for step in answer.steps]
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
    found = subject(table_bytes=10e12)
    block = drawn(lines.slowdown(found))
    names = list(dict.fromkeys(each["line"] for each in block.data))
    assert names == ["TorchRec's fastest", "with unique rows (EMBark)", "if one NVLink domain held all GPUs"]
    own = row(block, line=names[0], table_bytes=10e12)
    assert own["slowdown"] == found.answer.slowdown and own["gpus"] == found.answer.gpus
    assert (own["slowdown_low"], own["slowdown_high"]) == found.answer.band
    grid = row(block, line=names[0], table_bytes=1e12)
    assert (
        grid["sharding"] == "grid"
        and grid["time_s"] == rank_shardings(project_one(table_bytes=1e12)).answer.time_s
    )
    unique = found.lead.unique_rows if found.lead else None
    assert unique and row(block, line=names[1], table_bytes=10e12)["slowdown"] == unique.slowdown
    assert block.title.startswith(
        f"Slowdown at 10 TB: {format_ratio(found.answer.slowdown)}; with unique rows"
    )


def test_a_line_changes_its_dash_where_its_evidence_changes() -> None:
    names = ("x", "y", "low", "high")
    kinds = ["measured", "measured", "interpolated", "assumed"]
    rows = [
        {"line": "a", "x": at, "y": at, "low": at, "high": at, "evidence": kind, "main_evidence": kind}
        for at, kind in enumerate(kinds)
    ]
    ribbon, *parts = lines.line_traces(rows, names, 0, lambda row: [])
    assert ribbon["fill"] == "toself" and [part["line"]["dash"] for part in parts] == [
        "solid",
        "dash",
        "longdashdot",
    ]
    assert parts[0]["x"][-1] == 1 == parts[1]["x"][0]  # no gap
    assert [part["showlegend"] for part in parts] == [True, False, False]
    assert lines.dash_words(kinds).endswith(
        "solid = measured, dashed = interpolated, long dash-dot = assumed"
    )


def test_rules_stand_where_a_node_and_a_domain_end() -> None:
    """At 85 % of the memory of 8 GPUs; of a tray of 4 and of 72 GPUs in one NVLink domain."""
    for machine, gpus in (("h100-sxm-ib", [8]), ("gb200-nvl72", [4, 72])):
        found = subject(table_bytes=50e12, machine=machine)
        hbm = found.answer.setting.machine.value("hbm_bytes")
        rules = drawn(lines.slowdown(found)).figure.layout.shapes
        assert [shape.x0 for shape in rules] == pytest.approx([0.85 * number * hbm for number in gpus])


def test_the_papers_slowdowns_are_marks_of_its_machine_alone() -> None:
    def marks(**options: Any) -> list[float]:
        block = drawn(lines.slowdown(subject(**options)))
        return [y for trace in block.figure.data if trace.mode == "markers" for y in trace.y]

    assert marks(table_bytes=10e12) == [22.8, 108.2]
    assert marks(table_bytes=10e12, machine="h200-sxm-ib") == []
    assert marks(table_bytes=10e12, objective="training") == []


def test_a_named_sharding_is_drawn_beside_row_wise() -> None:
    block = drawn(lines.slowdown(subject(table_bytes=1e12, sharding="row-wise-ub")))
    first, second, _ = dict.fromkeys(each["line"] for each in block.data)
    assert (first, second) == ("row-wise-ub", "row-wise")
    assert {each["sharding"] for each in block.data if each["line"] == second} == {"row-wise"}


def test_a_set_of_tables_has_one_size() -> None:
    found = lines.slowdown(subject(tables=MODEL, gpus=16))
    assert isinstance(found, Missing) and "one size" in found.why


def test_more_gpus_have_the_time_and_the_gpu_hours_of_their_answers() -> None:
    block = drawn(lines.over_gpus(subject(tables=MODEL, gpus=16)))
    assert [each["gpus"] for each in block.data] == [2, 4, 8, 16, 24, 32, 64, 128]
    eight = rank_shardings(project_one(tables=MODEL, gpus=8)).answer
    assert row(block, gpus=8)["time_s"] == eight.time_s
    assert row(block, gpus=8)["gpu_hours"] == pytest.approx(8 * eight.time_s * 1e9 / (8 * 1024) / 3600)
    least = min(block.data, key=lambda each: float(each["gpu_hours"]))
    assert f", on {least['gpus']} GPUs." in block.title and "as many samples on each" in block.how_to_read


def test_a_batch_of_all_gpus_is_divided_among_them() -> None:
    found = find_subject(replace(Question.of(tables=MODEL, gpus=16, batch=1024), total=16 * 1024))
    block = drawn(lines.over_gpus(found))
    assert "on all of them together" in block.how_to_read
    eight = rank_shardings(project_one(tables=MODEL, gpus=8, batch=2048)).answer
    assert row(block, gpus=8)["time_s"] == eight.time_s


def test_bars_are_the_changes_that_help_and_the_sentence_is_the_best() -> None:
    found = subject(table_bytes=10e12)
    block, changes = drawn(bars.changes(found)), found.lead.changes if found.lead else ()
    assert [each["time_s"] for each in block.data] == [found.answer.time_s, *(c.after_s for c in changes)]
    assert [each["option"] for each in block.data[1:]] == [change.option for change in changes]
    best = min(changes, key=lambda change: change.after_s)
    assert (
        f"{best.label}, {format_time(best.after_s)} instead of " in block.title and best.option in block.title
    )
    whiskers = block.figure.data[-1]
    highs = [x + up for x, up in zip(whiskers.x, whiskers.error_x.array, strict=True)]
    unit = 1e3  # ms
    ends = [found.answer.totals["high_s"], *(change.high_s for change in changes)]
    assert highs == pytest.approx([unit * end for end in ends])


def test_every_sharding_is_beside_the_answer_the_fastest_on_top() -> None:
    found = subject(table_bytes=10e12)
    block = drawn(bars.shardings(found))
    answers = {each.sharding: each for each in answer_shardings(found.base)}
    times = [float(each["time_s"]) for each in block.data]
    assert times == sorted(times) and len(times) > 4
    assert all(each["time_s"] == answers[each["sharding"]].time_s for each in block.data)  # type: ignore[union-attr]
    assert block.title == (
        f"On 144 GPUs row-wise takes {format_time(found.answer.time_s)}; the fastest is row-wise-ub, which "
        f"TorchRec does not run: {format_time(times[0])}."
    )
    assert "Not possible or too large here: data-parallel, " in block.how_to_read
    assert "grid is the fastest of all" not in block.title


def test_cells_are_answers_on_top_and_the_question_is_framed() -> None:
    block = drawn(heat_maps.batches(subject(**GRID)))
    cell = row(block, batch=4096.0, pooling=8.0)
    best = rank_shardings(project_one(**GRID, gpus=16, batch=4096, pooling=8)).answer
    assert (cell["slowdown"], cell["sharding"]) == (best.slowdown, best.sharding)
    (frame,) = block.figure.layout.shapes
    heat = block.figure.data[0]
    at = round(frame.x0 + 0.5), round(frame.y0 + 0.5)
    assert (heat.x[at[0]], heat.y[at[1]]) == ("1 024", "32")
    assert heat.text[at[1]][at[0]] == format_ratio(subject(**GRID).answer.slowdown)
    most = max(block.data, key=lambda each: float(each["slowdown"]))
    assert f" to {format_ratio(most['slowdown'])} (batch " in block.title


def test_cells_that_cannot_be_are_empty() -> None:
    block = drawn(heat_maps.shapes(subject(table_bytes=1e6, gpus=8, batch=64, dim=1024)))
    cells = [cell for line in block.figure.data[0].z for cell in line]
    assert None in cells and any(cell is not None for cell in cells)


def test_values_around_the_question() -> None:
    assert heat_maps.around(1024, 4, 2, 5, whole=True) == [64, 256, 1024, 4096, 16384]
    assert heat_maps.around(1, 4, 1, 4, whole=True) == [1, 4, 16, 64]
    assert heat_maps.around(6, 4, 1, 3, whole=True) == [6, 24, 96]  # 1.5 tables are none
    assert heat_maps.around(6, 4, 1, 3, whole=False) == [1.5, 6, 24]


def test_on_one_gpu_what_hangs_on_several_is_missing() -> None:
    alone = subject(table_bytes=1e9, gpus=1)
    for figure in (bars.changes, bars.shardings, heat_maps.batches, heat_maps.shapes):
        assert isinstance(figure(alone), Missing)
    found = heat_maps.batches(subject(tables=MODEL, gpus=16))
    assert isinstance(found, Missing) and "pooling and dim" in found.why


def test_sizes_that_a_calibration_does_not_cover_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Subject.ask

    def ask(found: Subject, **changes: Any) -> Any:
        if changes["table_bytes"] > 1e12:
            raise NoCalibrationError("no such ranks.")
        return own(found, **changes)

    monkeypatch.setattr(Subject, "ask", ask)
    block = drawn(lines.slowdown(subject(table_bytes=640e9)))
    assert max(each["table_bytes"] for each in block.data if each["line"] == "TorchRec's fastest") == 1e12


def test_the_papers_grids_are_whole_and_row_wise_on_the_machine_of_the_answer() -> None:
    for figure, count, columns in ((heat_maps.paper_1, 192, 12), (heat_maps.paper_2, 168, 7)):
        block = drawn(figure(subject(table_bytes=10e12)))
        heat = block.figure.data[0]
        assert len(block.data) == count == columns * len(heat.y) and len(heat.x) == columns
        point = row(
            block, gpus=8.0, batch=1024.0, dim=128.0, pooling=16.0 if columns == 12 else 32.0, table_count=1.0
        )
        alone = project_one(gpus=8, batch=1024, dim=128, pooling=point["pooling"])
        assert point["slowdown"] == pytest.approx(alone.slowdown)
        most = max(float(each["slowdown"]) for each in block.data)
        assert f" to {format_ratio(most)} (" in block.title
