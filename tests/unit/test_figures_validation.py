"""Predicted against measured: marks are the points, sentences count them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import own_run
import pandas as pd
import pytest
from left_out import stored_steps

from perfmodel.projections import project_one
from perfmodel.report.figures import Block, Missing
from perfmodel.report.figures.evidence_figures import points as points_of
from perfmodel.report.figures.validation import claims, held_out_points, own_run_points, validation
from perfmodel.validate import Judged, Kind, Outcome, accuracy, judged_claims, kept, validate
from perfmodel.validate.own import compare_run, judged
from perfmodel.validate.verdicts import Finding


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
    found = block(validation({"some": frame}))
    above, below = marks(found)
    assert list(above.x) == list(below.x) == frame["time_s"].tolist()
    assert list(above.y) == frame["predicted_s"].tolist()
    assert list(below.y) == pytest.approx([1.0, 1.1, 0.5])
    assert [row["error"] for row in found.data] == pytest.approx([0.0, 0.1, -0.5])
    assert [row["inside"] for row in found.data] == [True, True, False]


def test_bands_are_ten_and_twenty_five_percent() -> None:
    found = block(validation({"some": points([1.0, 1.1])}))
    bands = {t.name: t for t in found.figure.data if t.name.startswith("±") and t.yaxis == "y2"}
    assert list(bands["±25%"].y) == [1.25, 1.25, 0.75, 0.75]
    assert list(bands["±10%"].y) == [1.1, 1.1, 0.9, 0.9]
    (equal,) = [t for t in found.figure.data if t.name == "equal" and t.yaxis == "y"]
    assert list(equal.x) == list(equal.y)


def test_the_sentence_counts_the_points() -> None:
    good = block(validation({"one": points([1.1, 0.9, 1.1]), "two": points([1.1])}))
    assert good.title == (
        "Of 4 points left out of the fits, half are predicted within 10.0 % and 90 % within 10.0 %; 100 % "
        "are inside their 95 % band."
    )
    bad = block(validation({"one": points([2.0, 0.5])}))
    assert "half are predicted within 75.0 %" in bad.title and "0 % are inside" in bad.title
    assert "one, 3 points, median error 10.0 %" in good.source


def test_no_point_is_missing() -> None:
    for frames in ({}, {"some": points([])}):
        found = validation(frames)
        assert isinstance(found, Missing) and "perfmodel validate" in found.why


def test_the_shipped_points_are_those_that_are_validated() -> None:
    frames = held_out_points("gb200-nvl72")
    large = kept.nodes_left_out()
    many = int((large["gpus"] >= 40).sum())
    assert [len(frame) for frame in frames.values()] == [
        len(accuracy.other_clusters()), len(large) - many, many, 48,
    ]  # fmt: skip
    assert large["gpus"].max() == 2160 and (large["nodes"] > large["seen_nodes"]).all()
    found = block(validation(frames))
    clusters = marks(found)[0]
    assert list(clusters.y) == frames["a cluster left out of the fit"]["predicted_s"].tolist()
    assert "all-reduce of 1 MiB" in clusters.hovertext[0] and "h100-sxm-ib" in clusters.hovertext[0]


def test_sizes_left_out_are_of_the_machine() -> None:
    found = held_out_points("h200-sxm-ib")["a size left out of the fit"]
    assert set(found["machine"]) == {"h200-sxm-ib"} and set(found["gpus"]) == {8} and len(found) > 50


def test_what_was_measured_between_nodes_is_beside_an_answer_between_nodes() -> None:
    inside, across = (points_of(project_one(table_bytes=size)) for size in (400e9, 1e12))
    assert isinstance(inside, Block) and isinstance(across, Block)
    assert {row["machine"] for row in inside.data} == {"h100-sxm-ib"}
    assert {row["gpus"] for row in inside.data} == {8} and len(across.data) > len(inside.data)


@pytest.fixture(scope="module")
def fresh() -> list[Judged]:
    """Claims judged now: seconds of searches, which two tests ask for."""
    return judged_claims()


@pytest.mark.parametrize("name", ["claims", "steps"])
def test_what_is_kept_is_what_is_computed(name: str, request: pytest.FixtureRequest) -> None:
    """Sizes left out are compared in tests/integration: they are fitted again."""
    hint = "python benchmarks/accuracy.py --write"
    if name == "steps":
        fresh, stored = stored_steps(), kept.steps_left_out()
        assert stored["system"].tolist() == fresh["system"].tolist(), hint
        for column in ("gpus", "time_s", "predicted_s", "low_s", "high_s"):
            assert stored[column].tolist() == pytest.approx(fresh[column].tolist(), rel=1e-3), hint
        return
    for one, other in zip(kept.claims_found(), request.getfixturevalue("fresh"), strict=True):
        assert (one.claim, one.outcome) == (other.claim, other.outcome), hint
        assert (one.found.value is None) == (other.found.value is None), hint
        assert one.found.ends == (other.found.ends and pytest.approx(other.found.ends, rel=1e-3)), hint
        assert _NUMBER.sub("#", one.found.words) == _NUMBER.sub("#", other.found.words), hint
        numbers = [[float(n) for n in _NUMBER.findall(each.found.words)] for each in (one, other)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.01), hint


_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_passes_of_an_own_run(tmp_path: Path) -> None:
    folder = own_run.write_run(tmp_path / "four-cores-01234567", held_out_factor=3.0)
    (frame,) = own_run_points(folder).values()
    passes = judged(compare_run(folder))
    assert len(frame) == 3 and frame["predicted_s"].tolist() == passes["projected_s"].tolist()
    found = block(validation(own_run_points(folder)))
    assert [row["time_s"] for row in found.data] == passes["time_s"].tolist()
    assert [row["low_s"] for row in found.data] == passes["projected_low_s"].tolist()


# Claims


def test_claims_are_those_of_validate(fresh: list[Judged]) -> None:
    verdicts = validate(paper=True)
    assert [one.outcome for one in fresh] == [v.verdict for v in verdicts]
    assert [one.found.words for one in fresh] == [v.got for v in verdicts]


def test_marks_of_claims_are_over_the_middle_of_their_band() -> None:
    found = kept.claims_found()
    drawn = block(claims(found))
    least = next(one for one in found if one.claim.check == "figure_9_least")
    mark = next(t for t in marks(drawn) if t.name == least.claim.id)
    assert least.found.value is not None
    assert mark.x[0] == pytest.approx(least.found.value / (20.52 * 25.08) ** 0.5)
    words = [note.text for note in drawn.figure.layout.annotations]
    here = least.found.words.split(" (")[0]
    assert least.found.high is not None
    assert mark.x[0] + mark.error_x.array[0] == pytest.approx(least.found.high / (20.52 * 25.08) ** 0.5)
    judged = [one for one in found if one.claim.kind is Kind.CLAIM]
    many, measured = len(judged), sum(one.found.value is not None for one in judged)
    assert f"figure 9 least (10a)<br>22.8x claimed, {here} here" in words and len(words) == measured
    held, failed = (sum(one.outcome is each for one in judged) for each in (Outcome.HOLDS, Outcome.FAILS))
    rest = f"{held} hold, {failed} fail, {many - held - failed} cannot be judged."
    assert drawn.title == f"Of {many} claims of papers {rest}"
    assert len(drawn.data) == len(found) > many


def test_ranges_without_an_end_reach_the_edge_and_stay_json() -> None:
    """At least 20 times, and at most a half from 0 on: neither end is on an axis of ratios."""
    drawn = block(claims(kept.claims_found()))
    json.dumps(drawn.data, allow_nan=False)
    edges = [10**end for end in drawn.figure.layout.xaxis.range]
    bars = {t.name: t.x for t in drawn.figure.data if t.mode == "lines"}
    assert bars["11c"] == pytest.approx((1, edges[1]), rel=0.2) and bars["11c"][0] == 1
    assert bars["11a"] == pytest.approx((edges[0], 1), rel=0.2) and bars["11a"][1] == 1


def test_the_count_of_claims_follows_the_data() -> None:
    found = [one for one in kept.claims_found() if one.claim.kind is Kind.CLAIM][:2]
    fails = replace(found[0], outcome=Outcome.FAILS)
    unknown = Judged(found[1].claim, Finding(None, "not measured"), Outcome.CANNOT_SAY)
    drawn = block(claims([fails, unknown]))
    assert drawn.title == "Of 2 claims of papers 1 fails, 1 cannot be judged."
    assert drawn.source.endswith(f"Not drawn, because they have no number or no band: {unknown.claim.id}.")
    assert isinstance(claims([unknown]), Missing)


def test_words_of_a_claim_do_not_reach_the_mark_above() -> None:
    """Words end 0.17 of a row above their bar; a line has 17 px, and the mark above reaches 7 px down."""
    figure = block(claims(kept.claims_found())).figure
    low, high = figure.layout.yaxis.range[1], figure.layout.yaxis.range[0]
    row = (figure.layout.height - figure.layout.margin.t - figure.layout.margin.b) / (high - low)
    lines = max(note.text.count("<br>") + 1 for note in figure.layout.annotations)
    assert lines == 3 and 17 * lines + 2 < 0.83 * row - 7
