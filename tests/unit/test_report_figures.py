"""Figures of the report: their sentences follow the data, their numbers are those of the projection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from perfmodel.plan.sizes import Size, by_size
from perfmodel.project import Projection, project, project_one
from perfmodel.report.figures import Block, Missing
from perfmodel.report.figures.breakdown import breakdown
from perfmodel.report.figures.shardings import shardings
from perfmodel.report.figures.slowdown import Line, Mark, slowdown
from perfmodel.schema.evidence import Evidence

TB = 1e12
SIZES = np.array([80e9, 640e9, 1 * TB, 10 * TB, 100 * TB])


def asked(size: float = 10 * TB) -> Projection:
    return project_one(table_bytes=size)


def line(label: str = "row-wise", **options: str) -> Line:
    return Line(label, project({"table_bytes": SIZES}, **options))


def drawn(block: Block | Missing) -> Block:
    assert isinstance(block, Block), block
    return block


def scaled(one: Line, factor: float) -> Line:
    return Line(one.label, one.frame.assign(slowdown=one.frame["slowdown"] * factor))


def test_slowdown_names_the_way_that_would_be_faster_and_only_then() -> None:
    two = replace(line("two-level", reduction="two-level"))
    block = drawn(slowdown([line(), two], asked()))
    assert "two-level would make it" in block.title and "128 GPUs" in block.title
    assert "no other way drawn here is faster" in drawn(slowdown([line(), scaled(two, 1e3)], asked())).title
    supposed = replace(two, supposed=True)
    assert "two-level" not in drawn(slowdown([line(), supposed], asked())).title


def test_slowdown_has_the_numbers_of_the_projection() -> None:
    block, answer = drawn(slowdown([line()], asked())), asked()
    row = next(row for row in block.data if row["table_bytes"] == 10 * TB)
    assert row["slowdown"] == pytest.approx(answer.slowdown, rel=1e-5)
    assert (row["slowdown_low"], row["slowdown_high"]) == pytest.approx(answer.band, rel=1e-5)
    traces = [trace for trace in block.figure.data if trace.mode == "lines" and trace.showlegend]
    at = list(traces[0].x).index(10 * TB)
    assert traces[0].y[at] == row["slowdown"] and traces[0].customdata[at][1] == "128"


def test_a_line_changes_its_dash_where_its_evidence_changes() -> None:
    one = line()
    words = ["measured", "measured", "interpolated", "assumed", "assumed"]
    block = drawn(slowdown([Line("row-wise", one.frame.assign(evidence=words))], asked()))
    parts = [trace for trace in block.figure.data if trace.line.dash]
    assert [part.line.dash for part in parts] == ["solid", "dash", "longdashdot"]
    assert parts[0].x[-1] == parts[1].x[0]  # no gap
    assert sum(bool(part.showlegend) for part in parts) == 1
    assert "solid = measured" in block.how_to_read and "long dash-dot = assumed" in block.how_to_read


def test_slowdown_marks_what_was_published() -> None:
    figure = drawn(slowdown([line()], asked(), [Mark(10 * TB, 22.8, "Fig 9")])).figure
    mark = next(trace for trace in figure.data if trace.mode == "markers+text")
    assert (list(mark.x), list(mark.y), list(mark.text)) == ([10 * TB], [22.8], ["22.8×"])


def test_slowdown_of_what_fits_one_gpu_is_left_out() -> None:
    small = Line("row-wise", project({"table_bytes": np.array([1e9, 2e9])}))
    found = slowdown([small], asked(1e9))
    assert isinstance(found, Missing) and "--table-size" in found.why
    assert "fit one GPU" in drawn(slowdown([line()], asked(1e9))).title


def test_breakdown_names_the_longest_step_of_these_data() -> None:
    answers = [asked(size) for size in (1 * TB, 10 * TB)]
    block = drawn(breakdown(answers))
    assert "reduce-scatter" in block.title
    assert "gather + pool" in drawn(breakdown([longest_is(a, "gather_pool") for a in answers])).title
    mixed = drawn(breakdown([longest_is(answers[0], "gather_pool"), answers[1]]))
    assert mixed.title.startswith("From 128 GPUs on the reduce-scatter")


def longest_is(answer: Projection, name: str) -> Projection:
    steps = tuple(
        replace(step, time_s=1.0, share=0.9) if step.name == name else step for step in answer.steps
    )
    return replace(answer, steps=steps)


def test_bars_add_up_to_the_time_of_a_batch() -> None:
    answers = [asked(size) for size in (1 * TB, 10 * TB)]
    block = drawn(breakdown(answers))
    percent, time = block.switches
    assert percent.label == "%" and time.label == "ms"
    assert np.sum(percent.traces["y"], axis=0) == pytest.approx([100, 100], rel=1e-4)
    assert np.sum(time.traces["y"], axis=0) == pytest.approx([1e3 * a.time_s for a in answers], rel=1e-4)
    assert [list(trace.y) for trace in block.figure.data] == percent.traces["y"]
    assert isinstance(breakdown([asked(1e9)]), Missing)


@pytest.fixture(scope="module")
def sizes() -> list[Size]:
    return list(by_size(lambda size: project_one(table_bytes=size), (80e9, 160e9, 10 * TB)))


def test_shardings_say_who_wins_where(sizes: list[Size]) -> None:
    block = drawn(shardings(sizes))
    assert "80 GB" not in block.title  # one GPU
    for size in sizes[1:]:
        assert size.best.way in block.title
    fastest = {row["table_bytes"]: row["sharding"] for row in block.data if row["fastest"]}
    assert fastest == {size.table_bytes: size.best.way for size in sizes[1:]}
    assert len(block.figure.layout.shapes) == 2
    assert isinstance(shardings(sizes[:1]), Missing)


def test_the_sentence_about_shardings_follows_the_data(sizes: list[Size]) -> None:
    def without(size: Size, way: str) -> Iterator[Size]:
        yield replace(size, found=tuple(each for each in size.found if each.way == way))

    one = [new for size in sizes[1:] for new in without(size, "row-wise")]
    assert drawn(shardings(one)).title == "The row-wise sharding is the fastest at every size here."


def test_the_footer_names_the_weakest_evidence() -> None:
    one = line()
    better = Line("row-wise", one.frame.assign(evidence=str(Evidence.MEASURED)))
    assert drawn(slowdown([better], asked())).source.endswith("weakest evidence: measured.")
    assert drawn(slowdown([one], asked())).source.endswith("weakest evidence: assumed.")
