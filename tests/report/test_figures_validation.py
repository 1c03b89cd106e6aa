"""Predicted against measured: marks are the points, sentences count them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from oracles import own_run

from perfmodel.answer import project_one
from perfmodel.report.figures import Block, Missing
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.validation import compare_points, held_out_points, own_run_points, validation
from perfmodel.validate import accuracy
from perfmodel.validate.own import compare_run, judged


def points(factors: list[float], wide: float = 1.2) -> pd.DataFrame:
    measured = [10.0**-k for k in range(3, 3 + len(factors))]
    frame = pd.DataFrame({"time_s": measured, "factor": factors})
    predicted = frame["time_s"] * frame["factor"]
    low, high = predicted / wide, predicted * wide
    inside = (low <= frame["time_s"]) & (frame["time_s"] <= high)
    return frame.assign(
        predicted_s=predicted, low_s=low, high_s=high, error=frame["factor"] - 1, inside=inside
    )


def block(found: Block | Missing) -> Block:
    assert isinstance(found, Block), found
    return found


def marks(found: Block) -> list[Any]:
    return [trace for trace in found.figure.data if trace.mode == "markers"]


def test_marks_are_predictions_over_measurements() -> None:
    frame = points([1.0, 1.1, 0.5])
    found = block(compare_points({"some": frame}))
    above, below = marks(found)
    assert list(above.x) == list(below.x) == frame["time_s"].tolist()
    assert list(above.y) == frame["predicted_s"].tolist()
    assert list(below.y) == pytest.approx([1.0, 1.1, 0.5])
    assert [row["error"] for row in found.data] == pytest.approx([0.0, 0.1, -0.5])
    assert [row["inside"] for row in found.data] == [True, True, False]


def test_the_sentence_counts_the_points() -> None:
    good = block(compare_points({"one": points([1.1, 0.9, 1.1]), "two": points([1.1])}))
    assert good.title == (
        "Of 4 points left out of the fits, half are predicted within 10.0 % and 90 % within 10.0 %; 100 % "
        "are inside their 95 % band."
    )
    bad = block(compare_points({"one": points([2.0, 0.5])}))
    assert "half are predicted within 75.0 %" in bad.title and "0 % are inside" in bad.title
    assert "one, 3 points, median error 10.0 %" in good.source


def test_no_point_is_missing() -> None:
    for frames in ({}, {"some": points([])}):
        found = compare_points(frames)
        assert isinstance(found, Missing) and "perfmodel validate" in found.why


def test_the_shipped_points_are_those_that_are_validated() -> None:
    frames = held_out_points("gb200-nvl72")
    large = accuracy.nodes_left_out()
    many = int((large["gpus"] >= 40).sum())
    assert [len(frame) for frame in frames.values()] == [
        len(accuracy.other_clusters()), len(large) - many, many,
    ]  # fmt: skip
    assert large["gpus"].max() == 2160 and (large["nodes"] > large["seen_nodes"]).all()
    found = block(compare_points(frames))
    clusters = marks(found)[0]
    assert list(clusters.y) == frames["a cluster left out of the fit"]["predicted_s"].tolist()
    assert "all-reduce of 1 MiB" in clusters.hovertext[0] and "h100-sxm-ib" in clusters.hovertext[0]


def test_sizes_left_out_are_of_the_machine() -> None:
    found = held_out_points("h200-sxm-ib")["a size left out of the fit"]
    assert set(found["machine"]) == {"h200-sxm-ib"} and set(found["gpus"]) == {8} and len(found) > 50


def test_what_was_measured_between_nodes_is_beside_an_answer_between_nodes() -> None:
    answers = [project_one(table_bytes=size) for size in (400e9, 1e12)]
    inside, across = (validation(Subject(answer, answer)) for answer in answers)
    assert isinstance(inside, Block) and isinstance(across, Block)
    assert {row["machine"] for row in inside.data} == {"h100-sxm-ib"}
    assert {row["gpus"] for row in inside.data} == {8} and len(across.data) > len(inside.data)


def test_passes_of_an_own_run(tmp_path: Path) -> None:
    folder = own_run.write_run(tmp_path / "four-cores-01234567", held_out_factor=3.0)
    (frame,) = own_run_points(folder).values()
    passes = judged(compare_run(folder))
    assert len(frame) == 3 and frame["predicted_s"].tolist() == passes["projected_s"].tolist()
    found = block(compare_points(own_run_points(folder)))
    assert [row["time_s"] for row in found.data] == passes["time_s"].tolist()
    assert [row["low_s"] for row in found.data] == passes["projected_low_s"].tolist()
