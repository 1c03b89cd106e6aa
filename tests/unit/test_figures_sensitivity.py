"""Figures of what the answer hangs on: bars and cells are projections, sentences follow them."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.answer import Answer, project_one
from perfmodel.answer.ranking import answer_question
from perfmodel.answer.what_would_help import list_helping
from perfmodel.report.figures import Block, Missing
from perfmodel.report.figures.what_if import around, changes, heat_map, plane
from perfmodel.schema.machine import load_machine
from perfmodel.units import format_ratio

ASKED: dict[str, Any] = {"table_bytes": 10e12, "reserve": 0}
PLANES = (("batch", "pooling"), ("table_count", "dim"))


@pytest.fixture(scope="module")
def asked() -> Answer:
    return project_one(**ASKED)


def block(found: Block | Missing) -> Block:
    assert isinstance(found, Block), found
    return found


def test_bars_go_from_the_answer_to_what_each_change_leaves(asked: Answer) -> None:
    found = block(changes(asked))
    expected = sorted(list_helping(asked.pinned, answer_question), key=lambda s: s.after)
    bars = [t for t in found.figure.data if t.mode == "lines"]
    marks = [t for t in found.figure.data if t.mode == "markers" and t.x[0] is not None]
    assert [tuple(bar.x) for bar in bars] == [(asked.slowdown, s.after) for s in expected]
    assert [m.x[0] + m.error_x.array[0] for m in marks] == pytest.approx([s.high for s in expected])
    assert [m.x[0] - m.error_x.arrayminus[0] for m in marks] == pytest.approx([s.low for s in expected])
    assert [row["after"] for row in found.data] == [s.after for s in expected]
    words = " ".join(note.text for note in found.figure.layout.annotations)
    assert all(s.label in words.replace("<br>", " ") for s in expected)


def test_the_change_in_the_sentence_is_the_one_that_helps_most(asked: Answer) -> None:
    first = block(changes(asked)).title
    box = load_machine("h100-sxm-ib").with_overrides({"nvlink_domain_gpus": 120})
    wide = project_one(table_bytes=10e12, reserve=0, machine=box)
    assert first == (
        f"NVLink domain 8 → 120 GPUs would help most: {asked.slowdown:.0f}× becomes {wide.slowdown:.1f}×."
    )
    other = block(changes(project_one(table_bytes=20e12, machine="l40s-pcie"))).title
    assert other.startswith("Sending only the partial bags that are not empty would help most")
    assert "weakest evidence of each is assumed" in block(changes(asked)).how_to_read


def test_values_around_what_was_asked() -> None:
    assert around(1024, 4, 2, 5, whole=True) == [64, 256, 1024, 4096, 16384]
    assert around(1, 4, 1, 4, whole=True) == [1, 4, 16, 64]
    assert around(6, 4, 1, 3, whole=True) == [6, 24, 96]  # 1.5 tables are none
    assert around(6, 4, 1, 3, whole=False) == [1.5, 6, 24]


def test_cells_are_projections(asked: Answer) -> None:
    found = block(heat_map(asked))
    first, second = found.figure.data
    assert first.visible is True and second.visible is False
    assert list(first.x) == ["64", "256", "1 024", "4 096", "16 384"]
    assert list(second.x) == ["1", "4", "16", "64"] and list(second.y) == ["16", "32", "64", "128"]
    at = list(first.x).index("4 096"), list(first.y).index("8")
    cell = project_one(**ASKED, gpus=120, batch=4096, pooling=8)
    assert 10 ** first.z[at[1]][at[0]] == pytest.approx(cell.slowdown)
    cell = project_one(**ASKED, gpus=120, table_count=16, dim=64)
    assert 10 ** second.z[list(second.y).index("64")][2] == pytest.approx(cell.slowdown)
    assert [s.label for s in found.switches] == ["batch × pooling", "tables × dim"]
    assert found.switches[1].traces["visible"] == [False, True]


def test_the_asked_cell_is_framed_in_both_pictures(asked: Answer) -> None:
    found = block(heat_map(asked))
    own = (("1 024", "32"), ("1", "32"))
    for switch, heat, words in zip(found.switches, found.figure.data, own, strict=True):
        (frame,) = switch.layout["shapes"]
        at = heat.x[round(frame["x0"] + 0.5)], heat.y[round(frame["y0"] + 0.5)]
        assert at == words
        assert heat.text[round(frame["y0"] + 0.5)][round(frame["x0"] + 0.5)] == format_ratio(asked.slowdown)
    assert found.figure.layout.shapes[0].x0 == found.switches[0].layout["shapes"][0]["x0"]
    other = heat_map(
        project_one(table_bytes=10e12, reserve=0, batch=512), [plane(asked, *names) for names in PLANES]
    )
    assert block(other).switches[0].layout["shapes"] == []  # a sweep of other batches


def test_the_sentence_is_of_the_picture_that_is_shown(asked: Answer) -> None:
    frames = [plane(asked, "batch", "pooling"), plane(asked, "table_count", "dim")]
    found = block(heat_map(asked, frames))
    assert found.title == found.switches[0].title
    for switch, frame in zip(found.switches, frames, strict=True):
        least, most = (format_ratio(value) for value in (frame["slowdown"].min(), frame["slowdown"].max()))
        assert f"from {least} (" in switch.title and f" to {most} (" in switch.title
    assert found.title == found.switches[0].title != found.switches[1].title
    frames[1].loc[0, "slowdown"] = 999.0
    assert "999× (tables 1, dim 16)" in block(heat_map(asked, frames)).switches[1].title


def test_a_plane_of_a_training_step_has_its_time() -> None:
    step = project_one(table_bytes=10e12, objective="training", optimizer="adam")
    frame = plane(step, *PLANES[0])
    (own,) = frame[(frame["batch"] == 1024) & (frame["pooling"] == 32)]["slowdown"]
    assert own == pytest.approx(step.slowdown)


def test_cells_that_cannot_be_are_empty() -> None:
    small = project_one(table_bytes=1e6, gpus=8, batch=64, dim=1024)
    found = block(heat_map(small))
    cells = [cell for line in found.figure.data[1].z for cell in line]
    assert None in cells and any(cell is not None for cell in cells)


def test_what_cannot_be_drawn_is_missing() -> None:
    alone = project_one(table_bytes=1e9, gpus=1)
    for figure in (changes, heat_map):
        found = figure(alone)
        assert isinstance(found, Missing) and "--table-size" in found.why
    found = heat_map(project_one(tables="mlperf-dlrm-dcnv2", gpus=16))
    assert isinstance(found, Missing) and "pooling and dim" in found.why
