"""Figures of the report: their sentences follow the data, their numbers are those of the projection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from perfmodel.answer import Answer, project_one, project_row_wise
from perfmodel.answer.ranking import Size, compare_sizes
from perfmodel.report.figures import Block, Missing
from perfmodel.report.figures.breakdown import breakdown
from perfmodel.report.figures.ends import GAP, PixelScale, dodged
from perfmodel.report.figures.line_traces import SlowdownLine
from perfmodel.report.figures.marks import NUMBERS
from perfmodel.report.figures.sharding_winners import shardings
from perfmodel.report.figures.slowdown import Mark, slowdown
from perfmodel.schema.evidence import Evidence

TB = 1e12
SIZES = np.array([80e9, 640e9, 1 * TB, 10 * TB, 100 * TB])


def asked(size: float = 10 * TB) -> Answer:
    return project_one(table_bytes=size, reserve=0)


def line(label: str = "row-wise", **options: str) -> SlowdownLine:
    return SlowdownLine(label, project_row_wise({"table_bytes": SIZES}, reserve=0, **options))


def drawn(block: Block | Missing) -> Block:
    assert isinstance(block, Block), block
    return block


def scaled(one: SlowdownLine, factor: float) -> SlowdownLine:
    return SlowdownLine(one.label, one.frame.assign(slowdown=one.frame["slowdown"] * factor))


def test_slowdown_names_the_way_that_would_be_faster_and_only_then() -> None:
    two = replace(line("two-level", reduction="two-level"))
    block = drawn(slowdown([line(), two], asked()))
    assert "two-level would make it" in block.title and "120 GPUs" in block.title
    assert "no other way drawn here is faster" in drawn(slowdown([line(), scaled(two, 1e3)], asked())).title
    supposed = replace(two, supposed=True)
    assert "two-level" not in drawn(slowdown([line(), supposed], asked())).title


def test_slowdown_has_the_numbers_of_the_projection() -> None:
    block, answer = drawn(slowdown([line()], asked())), asked()
    row = next(row for row in block.data if row["table_bytes"] == 10 * TB)
    assert row["slowdown"] == pytest.approx(answer.slowdown, rel=1e-5)
    assert (row["slowdown_low"], row["slowdown_high"]) == pytest.approx(answer.band, rel=1e-5)
    last = next(trace for trace in reversed(block.figure.data) if trace.mode == "lines+markers")
    at = list(last.x).index(10 * TB)
    first, *_, evidence = last.hovertext[at].split("<br>")
    assert last.y[at] == row["slowdown"] and first == "10 TB on 120 GPUs"
    assert evidence == f"evidence: {answer.main_evidence}; in part {answer.evidence}"


def test_a_line_changes_its_dash_where_its_evidence_changes() -> None:
    one = line()
    words = ["measured", "measured", "interpolated", "assumed", "assumed"]
    block = drawn(slowdown([SlowdownLine("row-wise", one.frame.assign(main_evidence=words))], asked()))
    parts = [trace for trace in block.figure.data if trace.line.dash]
    assert [part.line.dash for part in parts] == ["solid", "dash", "longdashdot"]
    assert parts[0].x[-1] == parts[1].x[0]  # no gap
    assert sum(bool(part.showlegend) for part in parts) == 1
    assert "solid = measured" in block.how_to_read and "long dash-dot = assumed" in block.how_to_read
    assert "(evidence: transferred)" in block.how_to_read


def test_slowdown_marks_what_was_published() -> None:
    figure = drawn(slowdown([line()], asked(), [Mark(10 * TB, 22.8, "Fig 9")])).figure
    mark = next(trace for trace in figure.data if trace.mode == "markers")
    assert (list(mark.x), list(mark.y)) == ([10 * TB], [22.8])
    assert "published 22.8×" in [words.text for words in figure.layout.annotations]


def test_a_node_ends_where_its_memory_does() -> None:
    """At 85 % of the memory of 8 GPUs."""
    sizes = np.array([200e9, 10 * TB])
    one = SlowdownLine("row-wise", project_row_wise({"table_bytes": sizes}))
    found = project_one(table_bytes=10 * TB)
    (x,) = {shape.x0 for shape in drawn(slowdown([one], found)).figure.layout.shapes}
    assert x == pytest.approx(8 * found.setting.machine.value("hbm_bytes") * 0.85)


def test_every_line_has_its_name_at_its_end_and_none_covers_another() -> None:
    one = line()
    lines = [scaled(SlowdownLine(f"way {k}", one.frame), 1 + k / 1e3) for k in range(5)]
    figure = drawn(slowdown(lines, asked())).figure
    words = [each for each in figure.layout.annotations if each.text.startswith("way")]
    assert [each.text for each in words] == [each.label for each in lines]
    scale = PixelScale(*(10**end for end in figure.layout.yaxis.range), 416, log=True)
    places = sorted(scale.pixel(10**each.y) + each.ay for each in words)
    assert np.diff(places) == pytest.approx([GAP] * 4, abs=0.2) and places[0] > 0


def test_names_stay_where_they_are_while_there_is_room() -> None:
    assert dodged([10, 100, 50], 18, 400) == [10, 100, 50]
    assert dodged([50, 50, 52], 10, 400) == pytest.approx([40.67, 50.67, 60.67], abs=0.01)
    assert dodged([0, 0], 18, 400) == [0, 18] and dodged([400, 400], 18, 400) == [382, 400]
    assert dodged([5, 5, 5], 18, 20) == [0, 10, 20]  # more than fit


def test_the_upper_axis_tells_the_gpus_of_its_sizes() -> None:
    upper = drawn(slowdown([line()], asked())).figure.layout.xaxis2
    told = dict(zip(upper.tickvals, upper.ticktext, strict=True))
    assert told[10 * TB] == "120" and told[1 * TB] == "16"
    assert told[20 * TB] == ""  # not drawn here: nothing instead of a neighbour's


def test_slowdown_of_what_fits_one_gpu_is_left_out() -> None:
    small = SlowdownLine("row-wise", project_row_wise({"table_bytes": np.array([1e9, 2e9])}))
    found = slowdown([small], asked(1e9))
    assert isinstance(found, Missing) and "--table-size" in found.why
    assert "fit on one GPU" in drawn(slowdown([line()], asked(1e9))).title


def test_breakdown_names_the_longest_step_of_these_data() -> None:
    answers = [asked(size) for size in (1 * TB, 10 * TB)]
    block = drawn(breakdown(answers))
    assert "reduce-scatter" in block.title
    assert "gather + pool" in drawn(breakdown([longest_is(a, "gather_pool") for a in answers])).title
    mixed = drawn(breakdown([longest_is(answers[0], "gather_pool"), answers[1]]))
    assert mixed.title.startswith("From 120 GPUs on, the longest step of row-wise is the reduce-scatter")


def longest_is(answer: Answer, name: str) -> Answer:
    steps = tuple(
        replace(step, time_s=1.0, share=0.9) if step.name == name else step for step in answer.steps
    )
    return replace(answer, steps=steps)


def test_bars_add_up_to_the_time_of_a_batch() -> None:
    answers = [asked(size) for size in (1 * TB, 10 * TB)]
    block = drawn(breakdown(answers))
    percent, time = block.switches
    assert percent.label == "%" and time.label == "µs"
    assert np.sum(percent.traces["y"], axis=0) == pytest.approx([100, 100], rel=1e-4)
    assert np.sum(time.traces["y"], axis=0) == pytest.approx([1e6 * a.time_s for a in answers], rel=1e-4)
    assert [list(trace.y) for trace in block.figure.data] == percent.traces["y"]
    assert isinstance(breakdown([asked(1e9)]), Missing)


@pytest.fixture(scope="module")
def sizes() -> list[Size]:
    return list(compare_sizes(lambda size: project_one(table_bytes=size, reserve=0), (80e9, 160e9, 10 * TB)))


def test_shardings_say_who_wins_where(sizes: list[Size]) -> None:
    block = drawn(shardings(sizes))
    assert "80 GB" not in block.title  # one GPU
    for size in sizes[1:]:
        assert size.best.sharding in block.title
    fastest = {(row["table_bytes"], row["sharding"]): row["time_s"] for row in block.data if row["fastest"]}
    assert len(fastest) == len(block.figure.layout.shapes) > len(sizes) - 1  # some are as fast
    for size in sizes[1:]:
        assert (size.table_bytes, size.best.sharding) in fastest
        same = [t for (table_bytes, _), t in fastest.items() if table_bytes == size.table_bytes]
        assert same == pytest.approx([size.best.time_s] * len(same), rel=1e-5)
    assert "All use NCCL" in block.how_to_read and "row-wise-ub sends unique rows" in block.how_to_read
    (cells,) = block.figure.data
    assert cells.textfont.color == NUMBERS  # test_report_style reads them on every colour
    assert isinstance(shardings(sizes[:1]), Missing)


def test_the_sentence_about_shardings_follows_the_data(sizes: list[Size]) -> None:
    def without(size: Size, way: str) -> Iterator[Size]:
        yield replace(size, answers=tuple(each for each in size.answers if each.sharding == way))

    one = [new for size in sizes[1:] for new in without(size, "row-wise")]
    assert drawn(shardings(one)).title == "With NCCL the row-wise sharding is the fastest at every size here."


def test_the_footer_names_the_weakest_evidence() -> None:
    one = line()
    better = SlowdownLine("row-wise", one.frame.assign(evidence=str(Evidence.MEASURED)))
    assert drawn(slowdown([better], asked())).source.endswith("weakest evidence: measured.")
    assert drawn(slowdown([one], asked())).source.endswith("weakest evidence: assumed.")
