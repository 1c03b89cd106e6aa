"""Alternatives on fewer GPUs than the tables need in HBM: those rows say so, all others are answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfmodel.effort import EFFORTS
from perfmodel.plan.other_ways import winner_map as maps
from perfmodel.plan.other_ways.alternatives import alternatives, best_of, question_of
from perfmodel.report.alternatives_text import alternatives_text, how_words
from perfmodel.report.figures.alternatives import steps


def test_tables_that_do_not_fit_the_hbm_leave_all_other_alternatives() -> None:
    found = alternatives({"table_bytes": 10e12, "gpus": 64})
    possible = {each.name: each.answer is not None for each in found}
    assert not possible["row-wise"] and not possible["best-plan"]
    assert possible["host"] and possible["ssd"] and possible["one-memory"]
    assert next(each for each in found if each.name == "host").gpus <= 64
    text = alternatives_text(found, [], [])
    assert best_of(found).label.lower() in text.lower() and "does not fit" in text
    asked = question_of({"table_bytes": 10e12, "gpus": 64})
    assert (asked["table_bytes"], asked["gpus"], asked["tier"]) == (10e12, 64, None)


def test_why_so_many_gpus_and_in_what_unit_times_are() -> None:
    found = {each.name: each for each in alternatives({"table_bytes": 10e12})}
    assert found["row-wise"].gpus_why == "as many as hold the tables in HBM"
    assert found["host"].gpus_why == "the fewest GPU-hours of 48, 64, 80, 96, 120 and 152 GPUs"
    assert found["gb200-fast"].gpus_why == "the shortest time of 52, 64, 80, 100, 124 and 152 GPUs"
    assert found["ssd"].gpus_why == "the fewest GPU-hours of 1, 8, 16, 24, 48, 88 and 152 GPUs"
    assert "152 GPUs: the fewest GPU-hours of 1, 8" in how_words(found["ssd"])
    figure = steps(list(found.values())).figure
    assert figure.layout.xaxis.title.text == "time of a batch (ms)"
    bars = sum(trace.x[0] for trace in figure.data if trace.type == "bar")
    assert bars == pytest.approx(1e3 * found["row-wise"].time_s)


def test_tables_in_both_take_the_gpus_with_the_fewest_hours(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look-ups of 200 GB over 1 GPU's link, or mostly from the HBM of 2 of the 3 GPUs that would hold all.

    All 8 GPUs of the node are paid, so two copies in HBM, on 3 of them each, take fewer GPU-hours.
    """
    path = tmp_path / "tables.csv"
    path.write_text("name,rows,dim,pooling\n" + "".join(f"t{i},39000000,128,{8 + i}\n" for i in range(10)))
    monkeypatch.setitem(EFFORTS, "normal", 0.3)  # type: ignore[misc]
    monkeypatch.setattr(maps, "SKEWS", ("uniform",))
    monkeypatch.setattr(maps, "BATCHES", (1024,))
    words = ("alternatives", "--model", str(path), "--id-dtype", "int32")
    document = json.loads(cli(*words, "--json").out)
    found = {each["name"]: each for each in document["alternatives"]}
    both = found["best-plan-host"]
    assert both["gpus_why"] == "the fewest GPU-hours of 1 and 2 GPUs" and both["gpus"] == 2
    assert both["gpus_paid"] == 8 and both["gpu_hours"] > found["best-plan"]["gpu_hours"]
    assert (found["best-plan"]["copies"], found["best-plan"]["gpus"]) == (2, 6)
    assert [cell["table_bytes"] for cell in document["map"]] == [10 * 39e6 * 512]
    assert document["question"]["id_dtype"] == "int32"
    ids = next(step for step in found["best-plan"]["steps"] if step["name"] == "all_to_all_ids")
    assert ids["payload_bytes"] <= 4 * 1024 * sum(8 + i for i in range(10))
